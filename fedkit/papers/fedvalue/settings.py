"""FedValue's evaluation (section 5): MShapley-CMI beside the SHAP values of trained models.

A repetition draws 80% of the rows, trains the models on them, explains some of them, deals the
columns to parties, and correlates the parties' values.  What the paper does not give is a field of
:class:`Setting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkit.datasets.tabular import Tabular, load_table
from fedkit.estimators import PermutationSampling
from fedkit.fedvalue.baselines import MODELS, explain, train
from fedkit.fedvalue.cmi import PartyValues, entropy, mshapley_cmi, mutual_information
from fedkit.fedvalue.data import discretise
from fedkit.papers.registry import Cell
from fedkit.streams import Streams

__all__ = [
    "CONTROLS", "ESTIMATES", "THRESHOLDS", "Repetition", "Setting", "binned", "correlate", "deal",
    "dealt", "identity", "information_values", "repetition", "setting", "split", "table",
]  # fmt: skip

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

#: MShapley-CMI as printed, and with its bias taken off
ESTIMATES = ("plugin", "permutation")
#: values that need no game: information of each party alone; and two without any look at the
#: true labels: the entropy of a party's cells, and MShapley-CMI of shuffled labels
CONTROLS = ("alone", "entropy", "shuffled")
#: thresholds of SHAP-ensemble by their name in the records, in hundredths
THRESHOLDS = {"ensemble5": 0.05, "ensemble2": 0.02}


#: data parties up to which values are exact: 1024 coalitions (fewer for the 24,000 rows of Credit,
#: where ten parties are left to mshapley_cmi's own 500 permutations)
EXACT = 10


@dataclass(frozen=True)
class Setting:
    """One panel of Figure 4: a data set at a number of features per party.

    Attributes
    ----------
    dataset : str
        A name of ``fedkit.datasets.tabular.TABLES``.
    features : int
        Features per party; 0 where it does not matter.
    inputs : {"binned", "raw"}
        Whether the models see the five bins or the numbers themselves.  Table 8 fits "binned".
    repetitions : int
        Repetitions behind one seed; the paper has 50 in all.
    sample : float
        Share of the rows that a repetition draws, trains on and values; the rest tests.
    bins : int
        Bins of equal width, over all rows (the bins do not look at labels).
    rows, background : int
        Rows of the sample that are explained, and that stand for unknown features.
    walks : int
        Permutations of MShapley-CMI for more than :data:`EXACT` data parties.
    task_has : {"columns", "label"}
        Whether the task party is dealt columns like the others, or has the label only.
    data_parties : int
        The most data parties; 0 for as many as there are columns for.
    trained_on : {"all", "dealt"}
        Whether the models see all columns (as in Table 8) or those that some party has.
    """

    dataset: str
    features: int = 0
    inputs: Literal["binned", "raw"] = "binned"
    repetitions: int = 10
    sample: float = 0.8
    bins: int = 5
    rows: int = 100
    background: int = 25
    walks: int = 200
    task_has: Literal["columns", "label"] = "columns"
    data_parties: int = 0
    trained_on: Literal["all", "dealt"] = "all"

    def __post_init__(self) -> None:
        if self.inputs not in ("binned", "raw"):
            raise ValueError(f"inputs is {self.inputs!r}; expected 'binned' or 'raw'")
        if self.trained_on not in ("all", "dealt"):
            raise ValueError(f"trained_on is {self.trained_on!r}; expected 'all' or 'dealt'")
        if self.task_has not in ("columns", "label"):
            raise ValueError(f"task_has is {self.task_has!r}; expected 'columns' or 'label'")
        if not 0 < self.sample < 1:
            raise ValueError(f"sample is {self.sample}; it is a share of the rows, between 0 and 1")
        if self.features < 0 or min(self.repetitions, self.rows, self.background) < 1:
            raise ValueError(
                f"features is {self.features}, repetitions {self.repetitions}, rows {self.rows} "
                f"and background {self.background}; expected positive numbers"
            )


@lru_cache(maxsize=2)
def table(name: str) -> Tabular:
    """Return a table, read once."""
    return load_table(name)


@lru_cache(maxsize=2)
def binned(name: str, bins: int) -> Codes:
    """Return all rows of a table in bins of equal width, ``int64[n, f]``."""
    data = table(name)
    return discretise(data.x, bins, discrete=data.discrete.tolist())


def identity(s: Setting) -> dict[str, str]:
    """Return which data a setting runs on, for the record's manifest."""
    data = table(s.dataset)
    return {"name": data.name, "source": data.source, "checksum": data.fingerprint}


def split(s: Setting, seed: int, repetition: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the sample and the rest, which tests; the same for all features."""
    rows = len(table(s.dataset).y)
    order = Streams(seed).generator("fedvalue", "sample", repetition).permutation(rows)
    cut = round(s.sample * rows)
    return order[:cut], order[cut:]


@dataclass(frozen=True, eq=False)
class Repetition:
    """What the models of one repetition say: accuracy on the rest, SHAP values of some rows."""

    sample: NDArray[np.int64]
    accuracies: Mapping[str, float]
    phi: Mapping[str, NDArray[np.float32]]


def repetition(s: Setting, seed: int, index: int, explained: bool = True) -> Repetition:
    """Train and explain the five models of one repetition."""
    columns = None
    if s.trained_on == "dealt":
        columns = tuple(np.sort(np.concatenate(dealt(s, seed, index))).tolist())
    what = (s.dataset, s.inputs, s.sample, s.bins, s.rows, s.background, columns)
    return _repetition(what, seed, index, explained)


# Settings that differ in the features per party share their models: 50 repetitions are kept.
@lru_cache(maxsize=50)
def _repetition(what: tuple[Any, ...], seed: int, index: int, explained: bool) -> Repetition:
    dataset, inputs, sample, bins, rows, background, columns = what
    data, s = table(dataset), Setting(dataset, sample=sample)
    x = data.x if inputs == "raw" else binned(dataset, bins).astype(np.float64)
    seen = np.arange(x.shape[1]) if columns is None else np.array(columns)
    chosen, rest = split(s, seed, index)
    # the sample is in random order: its first rows are explained, its last are the background
    some, base = x[chosen[:rows]], x[chosen[-background:]]
    accuracies, phi = {}, {}
    for name in MODELS:
        fitted = train(name, x[np.ix_(chosen, seen)], data.y[chosen], seed)
        accuracies[name] = fitted.accuracy(x[np.ix_(rest, seen)], data.y[rest])
        if explained:
            found = explain(fitted, some[:, seen], base[:, seen], seed)
            phi[name] = np.zeros((len(some), x.shape[1], found.shape[2]), dtype=np.float32)
            phi[name][:, seen] = found
    return Repetition(chosen, accuracies, phi)


def dealt(s: Setting, seed: int, index: int) -> list[NDArray[np.int64]]:
    """Return the columns of each party in one repetition, the task party first."""
    rng = Streams(seed).generator("fedvalue", "deal", index, s.features)
    return deal(s, table(s.dataset).x.shape[1], rng)


def deal(s: Setting, columns: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Deal columns to parties at random, the task party first.

    Every party has exactly ``s.features`` columns, the task party none where it has only the
    label.  Columns that are left over belong to nobody: the paper's are "randomly selected and
    evenly distributed".

    Raises
    ------
    ValueError
        If fewer than two data parties come of it.
    """
    own = s.features if s.task_has == "columns" else 0
    parties = (columns - own) // s.features if s.features > 0 else 0
    if parties < 2:
        raise ValueError(
            f"{columns} columns at {s.features} per party make {parties} data parties; a "
            "correlation needs at least two"
        )
    order = rng.permutation(columns)
    parties = min(parties, s.data_parties) if s.data_parties else parties
    dealt = order[own : own + parties * s.features].reshape(parties, s.features)
    return [np.sort(order[:own]), *np.sort(dealt, axis=1)]


def correlate(a: Floats, b: Floats) -> tuple[float, float]:
    """Return Pearson's and Spearman's correlation; NaN where one side does not vary.

    Differences below the rounding of the sums behind the values count as none.
    """
    if min(np.ptp(a), np.ptp(b)) <= 1e-9 * max(np.abs(a).max(), np.abs(b).max(), 1e-12):
        return float("nan"), float("nan")
    return float(stats.pearsonr(a, b)[0]), float(stats.spearmanr(a, b)[0])


def information_values(
    s: Setting, x: Codes, y: Codes, parties: Sequence[NDArray[np.int64]], seed: int
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return the parties' values by every estimate and control, and facts about them."""
    task, data = x[:, parties[0]] if len(parties[0]) else None, [x[:, p] for p in parties[1:]]
    levels = int(x.max()) + 1  # codes have at most so many levels and are not binned again
    sampling = None if len(data) <= EXACT else PermutationSampling(walks=s.walks)

    def value(labels: Codes, correction: Any) -> PartyValues:
        return mshapley_cmi(
            task, labels, data, bins=levels, correction=correction, estimator=sampling, seed=seed,
            draws=0,
        )  # fmt: skip

    corrected = value(y, "permutation")
    plain = corrected.plugin  # of the same coalitions
    assert plain is not None
    shuffled = Streams(seed).generator("fedvalue", "shuffled").permutation(y)
    values = {
        "plugin": plain,
        "permutation": corrected.values,
        "alone": np.array([mutual_information(part, y) for part in data]),
        "entropy": np.array([entropy(_cells(part)) for part in data]),
        "shuffled": value(shuffled, "plugin").values,
    }
    everything, labels = _cells(x), entropy(y)
    facts = {
        "parties": float(len(data)),
        "exact": float(corrected.exact),
        # standard error of the corrected values, of the order of the mean plug-in value
        "error": float(corrected.standard_errors.mean() / max(plain.mean(), 1e-12)),
        # how much of the label is left once all columns are known, and cells per row
        "left": max(labels - mutual_information(everything, y), 0.0) / labels,
        "cells_per_row": float(everything.max() + 1) / len(y),
        "shuffled_share": float(values["shuffled"].sum() / max(plain.sum(), 1e-12)),
        "bias_share": float(1 - corrected.values.sum() / max(plain.sum(), 1e-12)),
        "task_share": mutual_information(task, y) / labels if task is not None else 0.0,
    }
    return values, facts


def _cells(x: Codes) -> Codes:
    found: Codes = np.unique(x, axis=0, return_inverse=True)[1].reshape(-1)
    return found


def setting(cell: Cell) -> Setting:
    """Return the setting of a cell."""
    known = {f.name for f in fields(Setting)}
    return Setting(**{k: v for k, v in cell.settings.items() if k in known})
