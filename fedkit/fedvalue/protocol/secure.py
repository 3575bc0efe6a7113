"""The verifiable counting protocol of FedValue (Algorithm 1), cell by cell or a table at a time.

A task party and data parties, who share a key, have an untrusted server count their joint cells
without showing it an ID, a feature or a label.  ``variant="cells"`` asks for one cardinality after
another, as printed; ``variant="table"`` gets the whole contingency table from one upload of each
party per iteration.  ``hardened=False`` makes only the paper's checks, ``hardened=True`` also
ours: see :mod:`.verification`, and :mod:`.attacks` for what each stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from fedkit.checks import flag, having, whole
from fedkit.fedvalue.data import How, Missing, VerticalData
from fedkit.fedvalue.protocol.counting import CountingServer
from fedkit.fedvalue.protocol.keys import derive
from fedkit.fedvalue.protocol.parties import (
    DataParty,
    PartyMissing,
    Roster,
    SecureCounts,
    TaskParty,
    Variant,
)
from fedkit.fedvalue.protocol.verification import AlignmentError, CheatingDetected

__all__ = [
    "AlignmentError", "CheatingDetected", "CountingServer", "DataParty", "PartyMissing",
    "SecureCounts", "TaskParty", "count_here", "count_securely", "parties_of",
]  # fmt: skip


def count_securely(
    data: VerticalData, *, iterations: int = 2, duplications: int | tuple[int, int] = (2, 9),
    artificial: int | tuple[int, int] = (1, 50), seed: int | None = None,
    variant: Variant = "table", hardened: bool = True, bins: int = 5, how: How = "width",
    missing: Missing = "own", **options: Any,
) -> SecureCounts:  # fmt: skip
    """Count the joint cells of vertical data through the protocol, all roles in this process.

    Parameters
    ----------
    data : VerticalData
        The data of all parties; each role gets its own only.
    seed : int, optional
        Fixes key and secrets, for lessons and tests; by default they come from the system.
    bins, how, missing
        As for :meth:`~fedkit.fedvalue.data.VerticalData.codes`.
    iterations, duplications, artificial, variant, hardened, options
        As for :class:`TaskParty`.  ``variant="cells"`` with hardening is refused: a server that
        knows the true table can deceive it.
    """
    having("data", data, "codes", "ids", "names")
    flag("hardened", hardened)
    if seed is not None:
        whole("seed", seed, 0)
    if variant == "cells" and hardened:
        raise ValueError(
            'variant is "cells" and hardened is True: a server that knows the true table can '
            "deceive this count, and nothing is proven of it; count a whole table "
            '(variant="table"), or as printed (hardened=False)'
        )
    options |= {
        "iterations": iterations, "duplications": duplications, "artificial": artificial,
        "variant": variant, "hardened": hardened,
    }  # fmt: skip
    codes = data.codes(bins, how, missing)
    return count_here(*parties_of(codes, data.ids, data.names, seed=seed, **options))


def count_here(task: TaskParty, others: Sequence[DataParty]) -> SecureCounts:
    """Count with a server in this process, the data parties side by side in threads."""
    server = CountingServer()
    with ThreadPoolExecutor() as pool:
        return task.count(
            server, wait=lambda: list(pool.map(lambda party: party.serve(server), others))
        )


def parties_of(
    codes: tuple[Any, Any, Sequence[Any]], ids: Any = None, names: Sequence[str] | None = None, *,
    seed: int | None = None, **options: Any,
) -> tuple[TaskParty, list[DataParty]]:  # fmt: skip
    """Set up the roles from the codes of task party, label and data parties.

    `ids` is one list for all (``0..n-1`` by default); `options` are those of :class:`TaskParty`.
    """
    x_task, y, cells = codes
    root = secrets.token_bytes(32) if seed is None else derive(bytes(32), "lesson", seed)
    key = derive(root, "key")
    who = Roster.of("every party", np.arange(len(y)) if ids is None else ids, key)  # hashed once
    titles = tuple(names) if names else tuple(f"party {i + 1}" for i in range(len(cells)))
    if "task" in titles:
        raise ValueError(
            'a data party is named "task", and that is the task party here; name it otherwise'
        )
    others = [
        DataParty(name, who, column, key, secret=derive(root, "secret", name))
        for name, column in zip(titles, cells, strict=True)
    ]
    if options.get("variant") == "cells":
        options.setdefault("n_cells", {party.name: party.n_cells for party in others})
    own = derive(root, "secret of the task party")
    return TaskParty("task", who, x_task, y, key, titles, secret=own, **options), others
