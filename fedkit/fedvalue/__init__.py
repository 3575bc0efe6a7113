"""FedValue: valuing the data parties of vertical federated learning before any model is trained.

``columns`` and ``information`` hold the metric MShapley-CMI, ``protocol`` the verifiable counting
protocol, ``http`` the same between processes.  Each name is imported when it is used.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_NAMES = homes(
    {
        "columns": "VerticalData discretise joint_codes",
        "information": "PartyValues cmi_game mshapley_cmi mshapley_from_table",
        "protocol.messages": "Table Upload",
        "protocol.parties": "count_securely",
        "report": "assess",
        "significance": "permutation_p_values",
    }
)

__all__ = list(_NAMES)
__getattr__ = later(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
