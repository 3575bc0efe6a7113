"""FedCCEA's removal experiments: federations retrained without some clients (section 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedkit.federated.clients import Federation
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.methods.fedccea import sample_sizes
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.settings import CONTROLS, METHODS, Setting, Valued, architecture
from fedkit.streams import Streams

__all__ = [
    "PARTIAL",
    "PROPORTIONS",
    "TIE_ORDERS",
    "area_between",
    "kept_after_removal",
    "partial_participation",
    "removal_curves",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
#: FedCCEA's ranking with partial participation in both readings, and by amounts alone (control)
PARTIAL = ("partial", "partial-connected", "partial-size")
#: random orders of tied clients, over which a removal curve is averaged
TIE_ORDERS = 3


def kept_after_removal(
    values: FloatArray, proportions: FloatArray, highest: bool, ties: IntArray
) -> np.ndarray:
    """Say who stays when the lowest (or highest) clients go, bool[len(proportions), n].

    Of clients with the same value the one with the lower rank in `ties`, int64[n], goes first.
    Ranks must be random: the clients' own order is one of classes, and of clean before noisy.
    """
    order = np.lexsort((ties, -values if highest else values))
    kept = np.ones((len(proportions), len(values)), dtype=bool)
    for row, share in enumerate(proportions):
        kept[row, order[: round(share * len(values))]] = False
    return kept


def removal_curves(valued: Valued, seed: int) -> dict[str, FloatArray]:
    """Accuracy after the lowest, or the highest, clients have gone, by every method's values.

    A ranking that ranks nobody is left out.  Tied clients go in random order; the curve of a
    ranking with ties is a mean over a few such orders, which are the same for all rankings.

    Returns
    -------
    dict of str to float64[len(PROPORTIONS)]
        Keys "method.lowest" and "method.highest", of the random orders "random0.lowest", ..., and
        "random", the mean of all of these; in percent.
    """
    ranked = {m: valued.values[m] for m in (*METHODS, *READINGS, *CONTROLS)}
    ranked |= {f"random{k}": v for k, v in enumerate(ranked.pop("random"))}
    rng, n = Streams(seed).generator("fedccea", "ties"), len(valued.values["size"])
    ties = [rng.permutation(n) for _ in range(TIE_ORDERS)]
    jobs = {
        f"{m}.{'highest' if high else 'lowest'}": [
            kept_after_removal(v, PROPORTIONS, high, order)
            for order in ties[: 1 if len(np.unique(v)) == n else None]
        ]
        for m, v in ranked.items()
        if np.ptp(v) > 0
        for high in (False, True)
    }
    found = 100 * valued.scored.value(np.concatenate([row for job in jobs.values() for row in job]))
    each = np.split(
        found.reshape(-1, len(PROPORTIONS)), np.cumsum([len(job) for job in jobs.values()])[:-1]
    )
    curves = {name: rows.mean(axis=0) for name, rows in zip(jobs, each, strict=True)}
    # An order read from its other end is as random: both curves are draws of the same.
    curves["random"] = np.mean([c for m, c in curves.items() if m.startswith("random")], axis=0)
    return curves


def partial_participation(
    s: Setting,
    f: Federation,
    qualities: Mapping[str, FloatArray],
    seed: int,
    *,
    train: TrainWithSizes = train_with_sizes,
    device: str | None = None,
) -> dict[str, FloatArray]:
    """The same for FedCCEA where clients use random shares of their data (section 4.4).

    In every round the clients are ranked by what they bring in that round, ``x_i omega_i``, and
    tied ones go in a random order of that round.  Weights of one ("partial-size") rank by the used
    amounts ``x_i`` alone, which nobody had to learn.

    Returns
    -------
    dict of str to float64[len(PROPORTIONS)]
        Keys "name.lowest" and "name.highest" for the names of `qualities`; in percent.
    """
    drawn = sample_sizes(f.sizes, s.simulations + 1, s.rounds, seed)[-1]  # none of the simulations'
    rng = Streams(seed).generator("fedccea", "ties", "partial")
    ties = [rng.permutation(s.clients) for _ in drawn]
    names = [f"{m}.{end}" for m in qualities for end in ("lowest", "highest")]
    kept = np.stack(
        [
            [
                kept_after_removal(used * q, PROPORTIONS, high, order)
                for used, order in zip(drawn, ties, strict=True)
            ]
            for q in qualities.values()
            for high in (False, True)
        ]
    )  # [curve, round, proportion, client]
    sizes = np.moveaxis(kept * drawn[None, :, None], 1, 2)
    # Where nobody goes, all curves are one federation.
    jobs = np.concatenate([sizes[0, :1], *sizes[:, 1:]])
    reached = 100 * train(
        f, architecture(s, f), s.local, jobs, seed=seed, every_round=False, device=device
    ).reshape(-1)
    rest = reached[1:].reshape(len(names), -1)
    return {name: np.append(reached[0], row) for name, row in zip(names, rest, strict=True)}


def area_between(curves: dict[str, FloatArray], method: str) -> float:
    """Mean difference of the two removal curves in points: how well a ranking ranks."""
    return float((curves[f"{method}.lowest"] - curves[f"{method}.highest"])[1:].mean())
