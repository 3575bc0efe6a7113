"""FedValue between organisations: the counting server over HTTP, and the parties as programs.

``server`` answers requests and ``store`` keeps what it holds; ``client`` speaks to a server and
``parties`` is what a data party and a task party do with it; ``access`` has the tokens, ``files``
secrets and databases, ``wire`` the JSON; ``cli`` and ``demo`` are the commands.
"""

from __future__ import annotations

from fedkit.extras import homes, later

_NAMES = homes(
    {
        "access": "TokenBook issue_tokens",
        "client": "CounterError CounterRefused CounterUnavailable RemoteCounter",
        "parties": "answer_jobs run_task",
        "server": "create_app",
        "store": "Limits",
    }
)

__all__ = list(_NAMES)
__getattr__ = later(__name__, _NAMES)
