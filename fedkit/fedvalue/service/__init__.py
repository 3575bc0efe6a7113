"""FedValue between organisations: the counting server over HTTP, and the parties as programs.

``server`` answers requests and ``store`` keeps what it holds; ``client`` speaks to a server and
``parties`` is what a data party and a task party do with it; ``access`` has the tokens, ``files``
secrets and databases, ``wire`` the JSON; ``cli`` and ``demo`` are the commands.
"""

from __future__ import annotations

from fedkit.extras import later

_NAMES = {
    "CounterError": "client",
    "CounterRefused": "client",
    "CounterUnavailable": "client",
    "Limits": "store",
    "RemoteCounter": "client",
    "TokenBook": "access",
    "answer_jobs": "parties",
    "create_app": "server",
    "issue_tokens": "access",
    "run_task": "parties",
}

__all__ = sorted(_NAMES)


__getattr__ = later(__name__, _NAMES)
