"""A control of partial participation: FedCCEA's qualities, dealt to the clients at random.

Where clients use random shares of their data they are ranked by ``x_i omega_i``.  An uneven omega,
and most of all one with zeros, removes much the same clients in every round, where the amounts
alone take turns.  Dealt qualities are as uneven and know nothing: what they show is not due to what
was learnt.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.federated.retraining_cache import RetrainingCache
from fedkit.methods.fedccea import fit_aam, simulate
from fedkit.papers.fedccea.removal import PROPORTIONS, area_between, partial_participation
from fedkit.papers.fedccea.settings import FITS, architecture, federation, halves, identity, setting
from fedkit.papers.registry import Cell
from fedkit.records.store import default_root
from fedkit.streams import Streams

__all__ = ["DEALS", "ENDS", "run_dealt"]

#: random assignments of the learnt qualities to the clients
DEALS = 6
#: what stands behind the name of a metric, by reading
ENDS = {"fedccea": "", "connected": "-connected"}


def run_dealt(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run a cell: learnt qualities, dealt ones, and the amounts alone, one seed after another.

    Metrics are "area.M" and "lost40.M" as in the experiment ``contribution``, M one of "amounts",
    "learnt", "dealt0", "dealt1", ..., and with the sigmoid behind the nodes "learnt-connected",
    "dealt-connected0", ...  The simulations are those of that experiment; both readings' qualities
    are dealt in the same orders.
    """
    s, results = setting(cell), []
    kept = RetrainingCache(default_root() / "trainings" / "fedccea")
    train: TrainWithSizes = train_with_sizes if cell.profile == "smoke" else kept
    at = int(np.argmin(np.abs(PROPORTIONS - 0.4)))
    for seed in cell.seeds:
        f = federation(s, seed)
        valuing, scoring = halves(f, seed)
        sims = simulate(
            valuing, architecture(s, f), s.local, simulations=s.simulations, rounds=s.rounds,
            seed=seed, device=device, progress=progress, train=train,
        )  # fmt: skip
        rng = Streams(seed).generator("fedccea", "dealt")
        orders = [rng.permutation(s.clients) for _ in range(DEALS)]
        ranked = {"amounts": np.ones(s.clients)}
        for reading, end in ENDS.items():
            quality = fit_aam(sims, sigmoid=FITS[reading], seed=seed).quality
            ranked[f"learnt{end}"] = quality
            ranked |= {f"dealt{end}{k}": quality[order] for k, order in enumerate(orders)}
        curves = partial_participation(s, scoring, ranked, seed, train=train, device=device)
        lowest = {m: curves[f"{m}.lowest"] for m in ranked}
        metrics = {f"area.{m}": area_between(curves, m) for m in ranked}
        metrics |= {f"lost40.{m}": float(c[0] - c[at]) for m, c in lowest.items()}
        series = {"removed": (100 * PROPORTIONS).tolist()}
        series |= {name: curve.tolist() for name, curve in curves.items()}
        results.append(
            {"seed": int(seed), "metrics": metrics, "series": series, "data": identity(s)}
        )
    return results
