"""FedValue: valuing the data parties of vertical federated learning before any model is trained.

``columns`` and ``information`` hold the metric MShapley-CMI, ``protocol`` the verifiable counting
protocol, ``http`` the same between processes.  Each name is imported when it is used.
"""

from __future__ import annotations

from fedkit.extras import lazy

__all__, __getattr__ = lazy(
    __name__,
    {
        "columns": "VerticalData discretise joint_codes",
        "information": "PartyValues cmi_game mshapley_cmi mshapley_from_table",
        "protocol.messages": "Table Upload",
        "protocol.parties": "count_securely",
        "report": "assess",
        "significance": "permutation_p_values",
    },
)
