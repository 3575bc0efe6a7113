"""FedValue: valuing the data parties of vertical federated learning before any model is trained.

``data`` and ``cmi`` hold the metric MShapley-CMI, ``protocol`` the verifiable counting
protocol, ``service`` the same protocol between processes.  Each name is imported when it is used.
"""

from __future__ import annotations

from fedkit.extras import later

_NAMES = {
    "Table": "protocol.messages",
    "Upload": "protocol.messages",
    "CMIGame": "cmi",
    "PartyValues": "cmi",
    "VerticalData": "data",
    "assess": "report",
    "discretise": "data",
    "mshapley_cmi": "cmi",
    "mshapley_from_table": "cmi",
    "count_securely": "protocol.secure",
    "permutation_p_values": "significance",
}

__all__ = sorted(_NAMES)


__getattr__ = later(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
