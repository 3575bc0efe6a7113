"""FedCCEA's removal experiments: federations retrained without some clients (section 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedkit.federated.clients import Federation
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.methods.fedccea import sample_sizes
from fedkit.papers.fedccea.federations import architecture
from fedkit.papers.fedccea.names import CONTROLS, METHODS, READINGS
from fedkit.papers.fedccea.settings import Setting
from fedkit.papers.fedccea.valuing import Valued
from fedkit.streams import Streams

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
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
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank >= np.round(proportions * len(values))[:, None]


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
        f"{m}.{end}": [
            kept_after_removal(v, PROPORTIONS, end == "highest", order)
            for order in ties[: 1 if len(np.unique(v)) == n else None]
        ]
        for m, v in ranked.items()
        if np.ptp(v) > 0
        for end in ("lowest", "highest")
    }
    reached = 100 * valued.scored.value(
        np.concatenate([row for job in jobs.values() for row in job])
    )
    rows = iter(reached.reshape(-1, len(PROPORTIONS)))
    curves = {name: np.mean([next(rows) for _ in job], axis=0) for name, job in jobs.items()}
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
    tied ones go in a random order of that round.  Weights of one rank by the used amounts ``x_i``
    alone, which nobody had to learn.

    Returns
    -------
    dict of str to float64[len(PROPORTIONS)]
        Keys "name.lowest" and "name.highest" for the names of `qualities`; in percent.
    """
    drawn = sample_sizes(f.sizes, s.simulations + 1, s.rounds, seed)[-1]  # none of the simulations'
    rng = Streams(seed).generator("fedccea", "ties", "partial")
    ties = [rng.permutation(s.clients) for _ in drawn]
    kept = {
        f"{m}.{end}": np.stack(
            [
                kept_after_removal(used * q, PROPORTIONS, end == "highest", order)
                for used, order in zip(drawn, ties, strict=True)
            ],
            axis=1,
        )
        for m, q in qualities.items()
        for end in ("lowest", "highest")
    }  # bool[proportion, round, client] each
    # Where nobody goes, all curves are one federation.
    jobs = np.concatenate([drawn[None], *(stay[1:] * drawn for stay in kept.values())])
    everybody, *reached = 100 * train(
        f, architecture(s, f), s.local, jobs, seed=seed, every_round=False, device=device
    ).reshape(-1)
    rest = np.reshape(reached, (len(kept), -1))
    return {name: np.append(everybody, row) for name, row in zip(kept, rest, strict=True)}


def curve_metrics(curves: Mapping[str, FloatArray]) -> dict[str, float]:
    """How well rankings rank, in points.

    "area.M": mean difference of the two removal curves; "lost40.M": what is lost when the 40% with
    the lowest values go (section 4.3).
    """
    at, found = int(np.argmin(np.abs(PROPORTIONS - 0.4))), {}
    for m in (name.removesuffix(".lowest") for name in curves if name.endswith(".lowest")):
        low, high = curves[f"{m}.lowest"], curves[f"{m}.highest"]
        found[f"area.{m}"] = float((low - high)[1:].mean())
        found[f"lost40.{m}"] = float(low[0] - low[at])
    return found
