"""FedValue's two approximations (Figures 8 and 9): sampled permutations, and party-side PCA."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkit.estimators import PermutationSampling
from fedkit.fedvalue.cmi import PartyValues, mshapley_cmi
from fedkit.fedvalue.data import discretise, pca
from fedkit.papers.fedvalue.settings import Setting, binned, deal, identity, split, table
from fedkit.papers.registry import Cell
from fedkit.streams import Streams

__all__ = ["Approximation", "mape", "reduce", "run_approximation"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Approximation:
    """One data set of Figures 8 and 9.

    Attributes
    ----------
    dataset : str
        A name of ``fedkit.datasets.tabular.TABLES``.
    features : int
        Features per party where permutations are sampled.
    wide : int
        Features per party where PCA is tried; the paper gives neither.
    samplings : tuple of int
        Numbers of permutations (the paper: 100 to more than 1200).
    components : tuple of int
        Numbers of components per party.
    sample, bins
        As in :class:`~fedkit.papers.fedvalue.settings.Setting`.
    """

    dataset: str
    features: int = 2
    wide: int = 6
    samplings: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 1200, 1600, 2400)
    components: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    sample: float = 0.8
    bins: int = 5


def mape(estimate: Floats, truth: Floats) -> float:
    """Return the mean absolute percentage error over the parties whose true value is not zero."""
    some = np.abs(truth) > 1e-9 * np.abs(truth).max()
    return 100 * float(np.mean(np.abs(estimate[some] - truth[some]) / np.abs(truth[some])))


def reduce(x: Floats, components: int, bins: int) -> NDArray[np.int64]:
    """Return a party's first principal components in bins; its columns are standardised first.

    Equal-width bins do not see a column's unit, so neither should the components.
    """
    spread = x.std(axis=0)
    standard = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return discretise(pca(standard, components), bins, discrete=False)


def run_approximation(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
    """Measure both approximations against exact values on the same rows and parties."""
    known = {f.name for f in fields(Approximation)}
    given: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in cell.settings.items()
    }
    a = Approximation(**{k: v for k, v in given.items() if k in known})
    results = []
    for seed in cell.seeds:
        metrics = {**_sampled(a, seed), **_reduced(a, seed)}
        results.append(
            {"seed": int(seed), "metrics": metrics, "series": {},
             "data": identity(Setting(a.dataset))}
        )  # fmt: skip
    return results


def _dealt(a: Approximation, features: int, seed: int) -> tuple[Any, ...]:
    """Return the rows of a sample and the columns of each party."""
    s = Setting(a.dataset, features, sample=a.sample, bins=a.bins)
    rows = split(s, seed, 0)[0]
    rng = Streams(seed).generator("fedvalue", "approximation", features)
    return rows, table(a.dataset).y[rows], deal(s, table(a.dataset).x.shape[1], rng)


def _timed(*args: Any, **options: Any) -> tuple[PartyValues, float]:
    start = time.perf_counter()
    values = mshapley_cmi(*args, **options)
    return values, time.perf_counter() - start


def _sampled(a: Approximation, seed: int) -> dict[str, float]:
    """Figure 8: error, evaluated coalitions and seconds by number of permutations."""
    rows, y, (own, *parties) = _dealt(a, a.features, seed)
    x = binned(a.dataset, a.bins)[rows]
    what = (x[:, own], y, [x[:, p] for p in parties])
    exact, seconds = _timed(*what, bins=int(x.max()) + 1, budget=2 ** len(parties))
    assert exact.exact
    found = {
        "sampling.parties": float(len(parties)),
        "sampling.exact.evaluations": float(exact.evaluations),
        "sampling.exact.seconds": seconds,
    }
    for walks in a.samplings:
        near, seconds = _timed(
            *what, bins=int(x.max()) + 1, estimator=PermutationSampling(walks=walks), seed=seed
        )
        found[f"sampling.mape.{walks}"] = mape(near.values, exact.values)
        found[f"sampling.evaluations.{walks}"] = float(near.evaluations)
        found[f"sampling.seconds.{walks}"] = seconds
    if {100, 1200} <= set(a.samplings):
        found["sampling.ratio"] = found["sampling.mape.1200"] / found["sampling.mape.100"]
    return found


def _reduced(a: Approximation, seed: int) -> dict[str, float]:
    """Figure 9: error, rank correlation and cells by number of components per party."""
    rows, y, parties = _dealt(a, a.wide, seed)
    codes, x = binned(a.dataset, a.bins)[rows], table(a.dataset).x[rows]
    whole, seconds = _timed(
        codes[:, parties[0]], y, [codes[:, p] for p in parties[1:]], bins=int(codes.max()) + 1
    )
    found = {"pca.parties": float(len(parties) - 1), "pca.whole.seconds": seconds}
    for components in a.components:
        task, *data = (reduce(x[:, p], components, a.bins) for p in parties)
        near, seconds = _timed(task, y, data, bins=a.bins)
        found[f"pca.mape.{components}"] = mape(near.values, whole.values)
        found[f"pca.rank.{components}"] = float(stats.spearmanr(near.values, whole.values)[0])
        found[f"pca.seconds.{components}"] = seconds
        # what the protocol has to count: cells of one data party, and occupied ones
        found[f"pca.cells.{components}"] = float(a.bins**components)
        found[f"pca.occupied.{components}"] = float(
            np.mean([len(np.unique(part, axis=0)) for part in data])
        )
    found["pca.zero_share"] = float(np.mean(np.abs(whole.values) < 1e-9))
    return found
