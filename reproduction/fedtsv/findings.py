"""What the pages on FedTSV say in numbers, each computed here from the records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.common import chance_above
from reproduction.fedtsv.experiments import BASES, CHANGES, KINDS, PAIRS, STUDIED, changed
from reproduction.verdicts import NOT_REPRODUCED

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


def over_rounds(
    series: pd.DataFrame, methods: Sequence[str], against: str | None = None
) -> pd.DataFrame:
    """Accuracy and loss over the rounds, or how far they are from those of a method `against`.

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

    One row per method: the probability that a client of the first kind weighs more than one of the
    second (ties count half), and the share of each kind whose weight is zero, as :func:`by_weight`.
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
    return pd.DataFrame(table).dropna(how="all").fillna("–")


def study(frame: pd.DataFrame, series: pd.DataFrame, profile: str = "paper") -> pd.DataFrame:
    """One row per change: late accuracy by method, and how well kinds of clients are told apart.

    `frame` and `series` are of ``study``, and of ``figures`` for the first row. Intervals over the
    seeds (n = 0 without a record) in ACCURACY_COLUMNS and SEPARATION_COLUMNS, and "seeds", the
    most.
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


FIRST = "as in Figure 1"
SLOW, LOUD = "learning rate 0.0002", "malicious updates times 10"
EVEN, CLIP = "updates of equal length", "long updates clipped"
RATES = {0.0002: SLOW, 0.001: "learning rate 0.001", 0.01: FIRST, 0.1: "learning rate 0.1"}
RIVALS = {
    "fedavg": "FedAvg", "cgsv": "CGSV", "loo": "leave-one-out by accuracy",
    "loo-loss": "leave-one-out by loss", "oracle": "oracle, who knows who lies",
}  # fmt: skip
#: what is lost or left open, on which it turns how many honest clients are shut out
LOST = {
    FIRST: "exp(−d/σ), 1,000 images, rate 0.01", "utility 1 / (1 + d / sigma)": "1/(1 + d/σ)",
    "utility exp(-(d / sigma)^2)": "exp(−(d/σ)²)", "utility of the angle": "angle (not used)",
    "100 validation images": "100 validation images", SLOW: "learning rate 0.0002",
}  # fmt: skip
TREATED = {
    "100 validation images": "100 validation images",
    "validation short of five classes": "five classes rare in the validation set",
    "40% malicious": "40% malicious", LOUD: "malicious updates times 10",
    EVEN: "all updates of equal length", CLIP: "long updates clipped",
    "one permutation for all": "liars agree on one permutation",
    "Dirichlet parameter 0.1": "skewed clients more skewed",
    "Dirichlet parameter 0.05": "much more skewed",
}  # fmt: skip


class Evaluation(overviews.Evaluation):
    """What the pages ask of the records, on MNIST."""

    paper = "fedtsv"

    @cached_property
    def mnist(self) -> Any:
        """Metrics of the figures on MNIST."""
        return overviews.where(self.frame("figures"), dataset="mnist")

    @cached_property
    def drawn(self) -> Any:
        """Series of the figures on MNIST."""
        return self.series("figures", dataset="mnist")

    @cached_property
    def _both(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        frame, series = self.frame("study"), self.series("study")
        return pd.concat([frame, self.mnist]), pd.concat([series, self.drawn])

    @cached_property
    def study(self) -> pd.DataFrame:
        """Return the study of one change at a time; see :func:`study`."""
        return study(*self._both, self.records)

    @cache  # noqa: B019  (one or two evaluations in a process)
    def under(self, change: str, series: bool = False) -> Any:
        """Return metrics, or series, under a change of the study."""
        return under(self._both[series], change, self.records)

    def values(self, method: str, metric: str = "accuracy_late", change: str = FIRST) -> Any:
        """Return one number per seed."""
        part = overviews.where(self.under(change), method=method, metric=metric)
        return part.set_index("seed").value.astype(float)

    def mean(self, method: str, metric: str, change: str = FIRST) -> float:
        """Mean of a metric over the seeds."""
        return float(self.values(method, metric, change).mean())

    def lead(
        self,
        first: str,
        second: str,
        change: str = FIRST,
        metric: str = "accuracy_late",
        other: str | None = None,
    ) -> Interval:
        """First method under a change minus the second under `other`, or the same, by seed."""
        one, two = (
            self.values(m, metric, c) for m, c in ((first, change), (second, other or change))
        )
        return paired_interval(one - two)

    def weights(self, change: str) -> dict[str, Interval]:
        """What FedTSV's final weights tell apart under a change."""
        return by_weight(overviews.where(self.under(change, series=True), method="tsv"))

    def free_riders(self, method: str) -> Interval:
        """Chance in the arena that a sound client scores above a free-rider."""
        truth: dict[Any, Any] = {}
        found = []
        for kind in ("truths", "methods"):
            for record in self.store.records(self.records, "arena", kind):
                s = record.cell.settings
                if s["scenario"] != "free-riders" or s.get("method", method) != method:
                    continue
                for result in record.results:
                    place = (s["dataset"], result["seed"])
                    if kind == "truths":
                        truth[place] = np.array(result["series"]["bad"])
                    elif place in truth:
                        value, bad = np.array(result["series"]["value"]), truth[place]
                        found.append(chance_above(value[bad == 0], value[bad == 1]))
        return mean_interval(found).within(0, 1)


def differences(e: Evaluation) -> dict[str, tuple[Interval, int]]:
    """All differences in the text with the decimals that they are told with."""
    loss = "test_loss"
    return {
        "cgsv-ours": (e.lead("tsv", "cgsv"), 2),
        "cgsv-slow": (e.lead("tsv", "cgsv", SLOW), 2),
        "slow-loo": (e.lead("tsv", "loo", SLOW), 2),
        "loud-loo-all": (e.lead("tsv", "loo", LOUD), 1),
        "loss-tsv": (e.lead("tsv", "fedavg", metric=loss), 2),
        "loss-shuffled": (e.lead("shuffled", "fedavg", metric=loss), 2),
        "remedy": (e.lead("fedavg", "tsv", EVEN, other=FIRST), 2),
    }


def counts(e: Evaluation) -> dict[str, Any]:
    """Means without an interval, whole numbers, and chances."""
    timed = timings(e)
    scores = e._both[0]
    told = overviews.where(scores, method="tsv", metric="auc.iid-malicious").value
    lowest = e.values("tsv", "accuracy_lowest_late", LOUD)
    zero = {key: e.weights(change)["zero weight, iid (%)"] for key, change in (
        ("", FIRST), ("-rational", "utility 1 / (1 + d / sigma)"),
        ("-gauss", "utility exp(-(d / sigma)^2)"))}  # fmt: skip
    failed = e.claims[e.claims.verdict == NOT_REPRODUCED]
    return {
        "record-seeds": e.mnist.seed.nunique(),
        "told-least": f"{told.min():.2f}",
        "loud-fell": int((lowest < 25).sum()),
        "free-tsv": e.free_riders("fedtsv").text(2),
        "free-loss": f"{e.free_riders('loo-loss').mean:.2f}",
        "ms-exact": f"{1000 * timed.loc[5, 'seconds.exact']:.1f}",
        "s-exact": f"{timed.loc[20, 'seconds.exact']:.1f}",
        "s-averaged": f"{timed.loc[20, 'seconds.averaged']:.0f}",
        "near-first": f"{e.mean('tsv', 'closer.iid.first'):.0f}",
        "near-second": f"{e.mean('tsv', 'closer.iid.second'):.1f}",
        "fedavg-ours": f"{e.mean('fedavg', 'accuracy_late'):.1f}",
        "fedavg-slow": f"{e.mean('fedavg', 'accuracy_late', SLOW):.1f}",
        "oracle-ours": f"{e.lead('oracle', 'fedavg').mean:.1f}",
        "chance": f"{e.mean('shuffled', 'auc.iid-malicious'):.2f}",
        "weight-tsv": f"{e.mean('tsv', 'weight_malicious'):.1f}",
        "weight-cgsv": f"{e.mean('cgsv', 'weight_malicious'):.1f}",
        "long-cgsv": f"{e.mean('cgsv', 'length.malicious-iid.second'):.1f}",
        "raw-told": f"{e.mean('cgsv-raw', 'auc.iid-malicious'):.3f}",
        "fallback": f"{e.mean('tsv', 'fallback.second'):.1f}",
        "fallback-share": f"{e.mean('tsv', 'fallback_malicious'):.0f}",
        "ms-loss": f"{1000 * e.mean('loo-loss', 'value_seconds_per_round'):.0f}",
        "ms-tsv": f"{1000 * e.mean('tsv', 'value_seconds_per_round'):.0f}",
        "n-failed": len(failed),
        "n-weights": int(failed.index.str.contains("weigh|positive").sum()),
        **{f"iid-zero{key}": f"{cut.mean:.0f}" for key, cut in zero.items()},
    }


def numbers(e: Evaluation) -> dict[str, Any]:
    """All of them, differences as text, by the names under which the pages show them."""
    found = counts(e)
    for name, (cut, digits) in differences(e).items():
        found |= overviews.told({name: cut}, digits, signed=True)
    return found


def timings(e: Evaluation) -> Any:
    """Shortest seconds of all runs: a row per number of participants."""
    timed = e.frame("timings")
    return timed.pivot_table(index="participants", columns="metric", values="value", aggfunc="min")


def timings_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds per round of three ways to its values, and how far two are from the exact ones.

    One row per number of participants.  Seconds are the shortest of all runs, with two digits, the
    Gram matrix included.
    """
    rows = {}
    for k, part in frame.groupby("participants"):
        wide = overviews.by_metric(part)
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
