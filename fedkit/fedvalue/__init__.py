"""FedValue: valuing the data parties of vertical federated learning before any model is trained.

``data`` and ``cmi`` hold the metric MShapley-CMI, ``protocol`` the verifiable counting
protocol, ``service`` the same protocol between processes.  Each name is imported when it is used.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_NAMES = homes(
    {
        "cmi": "CMIGame PartyValues mshapley_cmi mshapley_from_table",
        "data": "VerticalData discretise",
        "protocol.messages": "Table Upload",
        "protocol.secure": "count_securely",
        "report": "assess",
        "significance": "permutation_p_values",
    }
)

__all__ = list(_NAMES)
__getattr__ = later(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
