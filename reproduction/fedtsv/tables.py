"""FedTSV's results as tables: accuracy, separation and weights; the study beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedkit.extras import need
from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.common import chance_above
from reproduction.fedtsv.settings import BASES, CHANGES, KINDS, PAIRS, STUDIED, changed

if TYPE_CHECKING:
    import pandas as pd

LABELS = {
    "fedavg": "FedAvg",
    "cgsv": "CGSV",
    "loo": "LOO",
    "loo-loss": "LOO, by loss",
    "tsv": "FedTSV (exact)",
    "tsv-sampled": "FedTSV, sampled",
    "cgsv-game": "CGSV, its game",
    "cgsv-raw": "CGSV, not normalised",
    "mr": "exact values of accuracy (MR)",
    "shuffled": "control: FedTSV, shuffled",
    "random": "control: random values",
    "oracle": "oracle",
}
_COLUMNS = {
    "accuracy_lowest_late": "lowest late accuracy (%)",
    "accuracy_swing": "change between tests (points)",
    "test_loss": "test loss (nats)",
    "auc.iid-malicious": "iid above malicious",
    "auc.skewed-malicious": "skewed above malicious",
    "auc.iid-skewed": "iid above skewed",
    "weight_malicious": "weight of malicious (%)",
}

#: columns of :func:`rounds_table`: a metric, its digits, and the largest value that it can have
_ROUNDS = {
    "length.malicious-iid.first": ("length of malicious updates, first half", 1, np.inf),
    "length.malicious-iid.second": ("the same, second half", 1, np.inf),
    "weight_malicious": ("weight of malicious (%)", 1, 100),
    "reach_malicious": ("the same, times length (%)", 1, 100),
    "fallback.second": ("rounds without a contribution (%)", 1, 100),
    "fallback_malicious": ("weight of malicious from these (%)", 0, 100),
}
#: late accuracy of every method of the study
ACCURACY_COLUMNS = tuple(LABELS[m] for m in STUDIED)
#: how clients are told apart: a metric, a method, its digits, and the largest value it can have
_SEPARATION = {
    **{
        f"AUC, {LABELS[m]}": ("auc.iid-malicious", m, 2, 1)
        for m in ("tsv", "loo-loss", "cgsv", "cgsv-raw")
    },
    "IID above skewed": ("auc.iid-skewed", "tsv", 2, 1),
    "skewed above malicious": ("auc.skewed-malicious", "tsv", 2, 1),
    "by weight, IID above malicious": ("iid above malicious", "tsv", 2, 1),
    "by weight, skewed above malicious": ("skewed above malicious", "tsv", 2, 1),
    "IID of weight zero (%)": ("zero weight, iid (%)", "tsv", 0, 100),
    "skewed of weight zero (%)": ("zero weight, skewed (%)", "tsv", 0, 100),
    "rounds of fallback (%)": ("fallback.second", "tsv", 1, 100),
    "weight of malicious (%)": ("weight_malicious", "tsv", 1, 100),
}
SEPARATION_COLUMNS = tuple(_SEPARATION)
_STUDY = {LABELS[m]: ("accuracy_late", m, 1, 100) for m in STUDIED} | _SEPARATION


def text(values: npt.ArrayLike, digits: int = 2, most: float = np.inf) -> str:
    """Write a mean over seeds with its 95% t-interval within 0 and `most`; a dash for none."""
    return _written(mean_interval(values).within(0.0, most), digits)


def _written(cut: Interval, digits: int) -> str:
    """Write an interval; what is the same in all seeds has none."""
    same = cut.low == cut.high == cut.mean
    return f"{cut.mean:.{digits}f}" if same else cut.text(digits)


def lead(frame: pd.DataFrame, first: str, second: str, metric: str = "accuracy_late") -> Interval:
    """First method minus the second in one setting, paired by seed, with its 95% interval."""
    wide = overviews.by_seed(frame, LABELS, metric)
    return paired_interval(wide[first] - wide[second])


def over_rounds(
    series: pd.DataFrame, methods: Sequence[str], against: str | None = None
) -> pd.DataFrame:
    """Accuracy and loss over the rounds, or how far they are from those of one method.

    Of series of the experiment ``figures`` in one setting.  With `against`, differences from this
    method, which is left out; paired by seed and round.

    One row per method (its label), seed and test: round and accuracy (%), loss_round and loss
    (nats); NaN where one of the two has no test.
    """
    names = ["round", "accuracy", "loss_round", "loss"]
    part = series[series.method.isin([*methods, against]) & series.series.isin(names)]
    keys = ["method", "seed", "index"]
    wide = part.pivot(index=keys, columns="series", values="value")[names]
    if against:
        base = wide.xs(against)
        wide = wide.drop(index=against)
        base = base.reindex(wide.reset_index("method").index).set_axis(wide.index)
        for place, name in (("round", "accuracy"), ("loss_round", "loss")):
            wide[name] = (wide[name] - base[name]).where(wide[place] == base[place])
    return wide.reset_index().assign(method=lambda rows: rows.method.map(LABELS))


def weights_table(series: pd.DataFrame) -> pd.DataFrame:
    """How the final weights of Eq. 13, ``max(c, 0)`` over its sum, tell kinds of clients apart.

    The metrics ``auc.*`` of a record judge the values c before they are cut at zero; weights have
    ties at zero, which count half.

    One row per method: the probability that a client of the first kind weighs more than one of the
    second, and the share of clients of each kind whose weight is zero, as :func:`by_weight`.
    """
    cuts = {m: by_weight(series[series.method == m]) for m in LABELS if m in set(series.method)}
    return overviews.table({
        LABELS[m]: {
            name: _written(cut, 0 if name.startswith("zero") else 2) for name, cut in told.items()
        }
        for m, told in cuts.items()
    })  # fmt: skip


def by_weight(series: pd.DataFrame) -> dict[str, Interval]:
    """What the final weights of one method tell apart, with 95% t-intervals over the seeds.

    Where all clients of a kind have the weight zero, or none has, in every seed, the interval is
    the exact one of so many clients (Clopper and Pearson).
    """
    found: dict[str, list[float]] = {}
    zeros: dict[str, list[npt.NDArray[np.bool_]]] = {}
    for _, one in series[series.series.isin(["weight", "kind"])].groupby("seed"):
        wide = one.pivot(index="index", columns="series", values="value")
        groups = {k: wide.weight[wide.kind == j].to_numpy() for j, k in enumerate(KINDS)}
        for a, b in PAIRS:
            found.setdefault(f"{a} above {b}", []).append(chance_above(groups[a], groups[b]))
        for kind, weights in groups.items():
            zeros.setdefault(kind, []).append(weights == 0)
    told = {name: mean_interval(x).within(0.0, 1.0) for name, x in found.items()}
    for kind, seeds in zeros.items():
        every = 100.0 * np.concatenate(seeds)
        cut = mean_interval([100 * z.mean() for z in seeds if len(z)]).within(0.0, 100.0)
        alike = bool(len(every)) and np.ptp(every) == 0
        told[f"zero weight, {kind} (%)"] = bounded_interval(every, 0, 100) if alike else cut
    return told


def under(frame: pd.DataFrame, change: str, profile: str = "paper") -> pd.DataFrame:
    """Keep the records (or series) of one of the study's CHANGES; each of them once."""
    setting = changed(BASES[profile][0], CHANGES[change])
    part = overviews.alike(frame, setting, set[str]().union(*CHANGES.values()))
    place = "metric" if "metric" in part else ["series", "index"]
    return part.drop_duplicates(["method", "seed", *np.atleast_1d(place)])


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method: late accuracy with its interval, and the means of the other metrics.

    `frame` holds records of the experiment ``figures`` in one setting.
    """
    pd = need("pandas", "run")
    late = overviews.by_seed(frame, LABELS, "accuracy_late")
    table = pd.DataFrame({"late accuracy (%)": {m: text(late[m], 1, 100) for m in late}})
    for metric, name in _COLUMNS.items():
        table[name] = overviews.by_seed(frame, LABELS, metric).mean()
    return table.rename(index=LABELS)


def rounds_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What goes on in the rounds: how long malicious updates are, and what they get.

    `frame` is that of :func:`summary`.  One row per method: means over the seeds with 95%
    t-intervals; a dash where a method has nothing of the kind.
    """
    table = {}
    for metric, (name, digits, most) in _ROUNDS.items():
        wide = overviews.by_seed(frame, LABELS, metric)
        table[name] = {LABELS.get(m, m): text(wide[m], digits, most) for m in map(str, wide)}
    return need("pandas", "run").DataFrame(table).dropna(how="all").fillna("–")


def study(frame: pd.DataFrame, series: pd.DataFrame, profile: str = "paper") -> pd.DataFrame:
    """One row per change: late accuracy by method, and how well kinds of clients are told apart.

    `frame` and `series` are metrics and series of the experiment ``study``, and of ``figures`` for
    the first row.

    Intervals over the seeds (n = 0 where a method has no record) in ACCURACY_COLUMNS and
    SEPARATION_COLUMNS, and "seeds", the largest number of them.  :func:`study_text` writes it.
    """
    rows: dict[str, dict[str, Any]] = {}
    for name in CHANGES:
        part, drawn = (under(f, name, profile) for f in (frame, series))
        if part.empty:
            continue
        weights = by_weight(drawn[drawn.method == "tsv"])
        rows[name] = {"seeds": int(part.seed.nunique())}
        for column, (metric, method, _, most) in _STUDY.items():
            mine = part[(part.method == method) & (part.metric == metric)].value
            rows[name][column] = weights.get(metric, mean_interval(mine).within(0.0, most))
    return overviews.table(rows)


def study_text(table: pd.DataFrame) -> pd.DataFrame:
    """Write the intervals of :func:`study` as text; a dash for none."""

    def words(column: pd.Series) -> list[str]:
        digits = _STUDY[str(column.name)][2] if column.name in _STUDY else 0
        return [_written(x, digits) if isinstance(x, Interval) else str(x) for x in column]

    return table.transform(words)


def timings_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds per round of three ways to its values, and how far two are from the exact ones.

    One row per number of participants.  Seconds are the shortest of all runs, with two digits, the
    Gram matrix included.
    """
    rows = {}
    for k, part in frame.groupby("participants"):
        wide = part.pivot(index="seed", columns="metric", values="value")
        shortest = {way: wide[f"seconds.{way}"].min() for way in ("exact", "sampled", "averaged")}
        seconds = {way: f"{float(f'{x:.2g}'):g}" for way, x in shortest.items()}  # no exponents
        rows[k] = {
            "exact (s)": seconds["exact"],
            "sampled (s)": seconds["sampled"],
            "error of sampling": text(wide["error.sampled"], 3),
            "size of a value": f"{wide['size'].mean():.3f}",
            "averaging (s)": seconds["averaged"],
            "difference of averaging": f"{wide['error.averaged'].max():.0e}",
        }
    return overviews.table(rows).rename_axis("participants")
