"""What the pages on FedTSV say in numbers, each computed here from the records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval, paired_interval
from reproduction import overviews
from reproduction.common import chance_above
from reproduction.fedtsv.experiments import BASES, CHANGES, KINDS, STUDIED, changed
from reproduction.overviews import view, where
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
#: late accuracy of every method of the study, and how scores tell clients apart: each is a metric,
#: a method, its digits, and the largest value it can have
STUDY = {
    **{LABELS[m]: ("accuracy_late", m, 1, 100) for m in STUDIED},
    **{
        f"AUC, {LABELS[m]}": ("auc.iid-malicious", m, 2, 1)
        for m in ("tsv", "loo-loss", "cgsv", "cgsv-raw")
    },
    "IID above skewed": ("auc.iid-skewed", "tsv", 2, 1),
    "skewed above malicious": ("auc.skewed-malicious", "tsv", 2, 1),
}


def text(values: npt.ArrayLike, digits: int = 2, most: float = np.inf) -> str:
    """Write a mean over seeds with its 95% t-interval within 0 and `most`; a dash for none.

    What is the same in all seeds has no interval.
    """
    cut = mean_interval(values).within(0.0, most)
    same = cut.low == cut.high == cut.mean
    return f"{cut.mean:.{digits}f}" if same else cut.text(digits)


def over_rounds(
    series: pd.DataFrame, methods: Sequence[str], against: str | None = None
) -> pd.DataFrame:
    """Accuracy and loss over the rounds by method and seed, or how far from those of `against`."""
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


def under(frame: pd.DataFrame, change: str, profile: str = "paper") -> pd.DataFrame:
    """Keep the records (or series) of one of the study's CHANGES; each of them once."""
    setting = changed(BASES[profile][0], CHANGES[change])
    part = overviews.alike(frame, setting, set[str]().union(*CHANGES.values()))
    place = ["metric"] if "metric" in part else ["series", "index"]
    return part.drop_duplicates(["method", "seed", *place])


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
    #: metrics, and series, of the figures on MNIST; and of the study as well
    mnist = view(lambda e: where(e.frame("figures"), dataset="mnist"))
    drawn = view(lambda e: e.series("figures", dataset="mnist"))
    both = view(lambda e: pd.concat([e.frame("study"), e.mnist]))

    @view
    def study(self) -> pd.DataFrame:
        """One row per change: how many seeds, and the columns of :data:`STUDY` as text."""
        rows = {}
        for name in CHANGES:
            part = self.under(name)
            rows[name] = {"seeds": str(part.seed.nunique())} | {
                column: text(where(part, method=method, metric=metric).value, digits, most)
                for column, (metric, method, digits, most) in STUDY.items()
            }
        return overviews.table(rows)

    @cache  # noqa: B019  (one or two evaluations in a process)
    def under(self, change: str) -> Any:
        """Return metrics under a change of the study."""
        return under(self.both, change, self.records)

    def values(self, method: str, metric: str = "accuracy_late", change: str = FIRST) -> Any:
        """Return one number per seed."""
        part = where(self.under(change), method=method, metric=metric)
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
        theirs = self.values(second, metric, other or change)
        return paired_interval(self.values(first, metric, change) - theirs)

    @cache  # noqa: B019
    def weights(self, change: str) -> dict[str, Interval]:
        """Percent of the clients of each kind whose final weight by FedTSV, Eq. 13, is zero.

        With 95% t-intervals over the seeds; where all clients of a kind have the weight zero, or
        none has, in every seed, the exact interval of so many clients.
        """
        drawn = pd.concat([self.series("study"), self.drawn])
        part = under(where(drawn, method="tsv"), change, self.records)
        wide = part.pivot(index=["seed", "index"], columns="series", values="value")
        cuts = {}
        for k, kind in enumerate(KINDS):
            zero = 100.0 * (wide.weight[wide.kind == k] == 0)
            shares = zero if zero.nunique() == 1 else zero.groupby("seed").mean()
            cuts[kind] = bounded_interval(shares, 0, 100)
        return cuts

    def free_riders(self, method: str) -> Interval:
        """Chance in the arena that a sound client scores above a free-rider."""
        truth, values = (
            {
                (record.cell.settings["dataset"], result["seed"]): np.array(result["series"][name])
                for record in self.store.records(self.records, "arena", kind)
                if record.cell.settings["scenario"] == "free-riders"
                and record.cell.settings.get("method", method) == method
                for result in record.results
            }
            for kind, name in (("truths", "bad"), ("methods", "value"))
        )
        pairs = [(values[place], truth[place]) for place in values.keys() & truth.keys()]
        chances = [chance_above(value[bad == 0], value[bad == 1]) for value, bad in pairs]
        return mean_interval(chances).within(0, 1)


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
    told = where(e.both, method="tsv", metric="auc.iid-malicious").value
    lowest = e.values("tsv", "accuracy_lowest_late", LOUD)
    zero = {key: e.weights(change)["iid"].mean for key, change in (
        ("", FIRST), ("-rational", "utility 1 / (1 + d / sigma)"),
        ("-gauss", "utility exp(-(d / sigma)^2)"))}  # fmt: skip
    failed = e.claims[e.claims.verdict == NOT_REPRODUCED]
    means = {
        "near-first": ("tsv", "closer.iid.first", 0),
        "near-second": ("tsv", "closer.iid.second", 1),
        "fedavg-ours": ("fedavg", "accuracy_late", 1),
        "chance": ("shuffled", "auc.iid-malicious", 2),
        "weight-tsv": ("tsv", "weight_malicious", 1),
        "weight-cgsv": ("cgsv", "weight_malicious", 1),
        "long-cgsv": ("cgsv", "length.malicious-iid.second", 1),
        "raw-told": ("cgsv-raw", "auc.iid-malicious", 3),
        "fallback": ("tsv", "fallback.second", 1),
        "fallback-share": ("tsv", "fallback_malicious", 0),
    }
    return {
        "record-seeds": e.mnist.seed.nunique(),
        "told-least": f"{told.min():.2f}",
        "loud-fell": int((lowest < 25).sum()),
        "loud-seeds": len(lowest),
        "free-tsv": e.free_riders("fedtsv").text(2),
        "free-loss": f"{e.free_riders('loo-loss').mean:.2f}",
        "ms-exact": f"{1000 * timed.loc[5, 'seconds.exact']:.1f}",
        "s-exact": f"{timed.loc[20, 'seconds.exact']:.1f}",
        "s-averaged": f"{timed.loc[20, 'seconds.averaged']:.0f}",
        "fedavg-slow": f"{e.mean('fedavg', 'accuracy_late', SLOW):.1f}",
        "oracle-ours": f"{e.lead('oracle', 'fedavg').mean:.1f}",
        "ms-loss": f"{1000 * e.mean('loo-loss', 'value_seconds_per_round'):.0f}",
        "ms-tsv": f"{1000 * e.mean('tsv', 'value_seconds_per_round'):.0f}",
        "n-failed": len(failed),
        "n-weights": int(failed.index.str.contains("weigh|positive").sum()),
        **{name: f"{e.mean(m, metric):.{d}f}" for name, (m, metric, d) in means.items()},
        **{f"iid-zero{key}": f"{mean:.0f}" for key, mean in zero.items()},
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
