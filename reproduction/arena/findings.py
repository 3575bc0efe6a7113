"""What the page on methods says in numbers, each computed here from the records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedkit.arena import METHODS, SAMPLED, agreement, sees
from fedkit.intervals import Interval, finite, mean_interval, paired_p_value
from reproduction import ROOT, overviews
from reproduction.arena.comparison import Entered, measures_of
from reproduction.arena.federations import SKEWED
from reproduction.arena.measures import interval, summary
from reproduction.common import chance_above
from reproduction.overviews import lead, view, where

_LABELS = pd.read_csv(Path(__file__).with_name("labels.csv"))
LABELS: dict[str, str] = dict(zip(_LABELS["row"], _LABELS["label"], strict=True))
CONTROLS = ("size", "random", "uniform")
RETRAIN = tuple(name for name, method in METHODS.items() if "training" in sees(method))
#: the rows that the decision table recommends
TAKEN = ("loo-loss", "exact-loss", "proxy", "proxy-retrained", "cgsv")
#: the rows of the page's figures, best agreement with retraining first
MAIN = (
    "proxy-retrained", "tmc-retrained", "loo-retrained", "fedccea-connected", "exact-loss",
    "exact", "proxy", "complementary", "banzhaf", "loo-loss", "cgsv", "fedtsv", "size", "random",
)  # fmt: skip
SAMPLERS = (
    "proxy", "complementary", "kernel-shap", "multilinear", "banzhaf", "gtg", "antithetic",
    "owen", "permutation", "tmc", "beta", "random",
)  # fmt: skip
#: federations in which somebody sends nothing
ALIKE_RIDERS, SKEWED_RIDERS = "free-riders", "skewed-free-riders"
#: tests of a round with k clients
TESTS = {"exact-loss": lambda k: 2**k, "proxy": lambda k: 6 * k, "loo-loss": lambda k: k + 1}
PLACE = ["dataset", "scenario", "seed"]
#: what pages quote: a name, which number of :class:`Evidence` it is, of what, and how it is written
QUOTED = Path(__file__).with_name("quoted.csv")


class Evidence(overviews.Evaluation):
    """The arena's records of a profile, and what they measure."""

    paper = "arena"
    #: every measure of every method, federation and seed; what is known of the clients
    measures = view(lambda e: e.entered.measures.replace({"method": {e.kernel: "kernel-shap"}}))
    truths = view(lambda e: e.entered.truths)

    @view
    def entered(self) -> Entered:
        """All that is on record."""
        found = measures_of(self.store, self.records)
        if found.measures.empty:
            self.frame("methods")  # says so
        return found

    @view
    def kernel(self) -> str:
        """Name in the records of the row that was entered from outside."""
        (name,) = [m for m in set(self.entered.measures.method) if "KernelSHAP" in m]
        return str(name)

    @view
    def paid(self) -> Any:
        """Values with the pay that they give, as a share of the money and in mean pays."""
        values = self.entered.values.replace({"method": {self.kernel: "kernel-shap"}})
        positive = values["value"].clip(lower=0)
        by = [values[c] for c in (*PLACE, "method")]
        values["share"] = positive / positive.groupby(by).transform("sum")
        values["pay"] = positive / positive.groupby(by).transform("mean")
        return values.merge(self.truths[[*PLACE, "role", "bad", "quality"]], on=[*PLACE, "role"])

    def units(self, measure: str) -> Any:
        """Means per federation (or seed, where there is one), a column per method."""
        part = self.measures[self.measures.measure == measure]
        unit = "scenario" if part.scenario.nunique() > 1 else "seed"
        return part.pivot_table(index=unit, columns="method", values="value")

    def mean(self, measure: str, method: str) -> Interval:
        """Mean of a method over federations."""
        return interval(measure, self.units(measure)[method])

    def inside(self, measure: str, method: str, scenario: str) -> Interval:
        """Mean in one federation, over seeds, which its data sets have in common."""
        part = where(self.measures, measure=measure, scenario=scenario, method=method)
        return interval(measure, part.groupby("seed").value.mean())

    def lead(self, measure: str, method: str, other: str) -> Interval:
        """Paired difference of two methods over federations."""
        return lead(self.units(measure), method, other)

    def chance(self, measure: str, method: str, other: str) -> float:
        """P-value of that difference on its own, not corrected for other comparisons."""
        both = self.units(measure)
        return paired_p_value(both[method] - both[other])[0]

    def changed(self, change: str, method: str, scenario: str, *datasets: str) -> float:
        """Chance that a sound client is above a bad one by the values under a change.

        The change is "rate" (half the learning rate) or "rounds" (half of them).
        """
        bad_of = self.truths.sort_values("role").groupby(PLACE).bad.apply(list)
        found = []
        for record in self.store.records(self.records, "arena", "methods"):
            s = record.cell.settings
            there = (s["method"], s["scenario"]) == (method, scenario)
            if there and s["dataset"] in (datasets or [s["dataset"]]):
                for result in record.results:
                    bad = np.array(bad_of[s["dataset"], scenario, result["seed"]]) > 0
                    value = np.array(result["series"][f"value.{change}"], dtype=np.float64)
                    found.append(chance_above(finite(value[~bad]), finite(value[bad])))
        return float(np.mean(found))

    def moved(self, method: str) -> Interval:
        """Percent of the money that goes to other clients than by exact values."""
        share = self.paid.pivot_table(index=[*PLACE, "role"], columns="method", values="share")
        apart = (share[method] - share["exact"]).abs().groupby(PLACE).sum(min_count=1) / 2
        return mean_interval(100 * apart.groupby("scenario").mean())

    def bad_pay(self, method: str, scenario: str) -> Interval:
        """What a bad client is paid, in mean pays, over seeds."""
        part = where(self.paid, scenario=scenario, method=method)
        return mean_interval(part[part.bad > 0].groupby("seed").pay.mean())

    def twins(self) -> Any:
        """What the two clients with the same data are paid by leave-one-out by loss."""
        part = where(self.paid, scenario="duplicates", method="loo-loss")
        two = part[part.role.isin([0, part.role.max()])]
        return two.groupby(["dataset", "seed"]).pay.mean()

    def fedccea_gap(self) -> Interval:
        """FedCCEA less leave-one-out by retraining at finding label noise, over seeds."""
        part = where(self.measures, scenario="label-noise", measure="detection")
        wide = part.pivot_table(index="seed", columns="method", values="value")
        return lead(wide, "fedccea", "loo-retrained")

    def gap_by_another_seed(self) -> Interval:
        """How much more retraining, by another seed, agrees with the truth than values by loss."""
        return lead(other_seed(self)["agreement"], "proxy-retrained", "exact-loss")

    def without_worst(self, which: str) -> Interval:
        """Points that go with the worst fifth where there are bad clients, or all are sound."""
        worst = self.units("worth.worst")["loo-loss"]
        bad = worst.index.isin(self.units("detection").index)
        return mean_interval(worst[bad if which == "bad" else ~bad])

    def by_size(self, scenario: str, weights: str) -> Interval:
        """Return :func:`by_weights` of all rounds."""
        return by_weights(sizes(), scenario, weights)


# ------------------------------------------------------------------ other records of the arena


def sizes() -> Any:
    """By how much a client lowers the loss, by the number of others, round by round."""
    return pd.read_json(ROOT / "results" / "arena-sizes.json")


def adds(frame: Any) -> Any:
    """The same in tidy rows, sound clients and those who send nothing apart."""
    lines = []
    for row in frame.itertuples():
        for bad, name in ((False, "sound"), (True, "sends nothing")):
            mine = np.array(row.adds)[np.array(row.bad) == bad].mean(axis=0)
            lines += [(row.scenario, row.half, row.seed, name, k, x) for k, x in enumerate(mine)]
    return pd.DataFrame(lines, columns=["scenario", "half", "seed", "client", "there", "adds"])


def by_weights(
    frame: Any, scenario: str, weights: str, halves: tuple[int, ...] = (0, 1)
) -> Interval:
    """Chance that a sound client is above one who sends nothing, by a semivalue of the loss."""
    n = len(frame.bad[0])
    of_sizes = {
        "shapley": np.full(n, 1 / n),
        "banzhaf": np.array([math.comb(n - 1, k) for k in range(n)]) / 2 ** (n - 1),
        "loo": np.eye(n)[-1],
        "not-first": np.r_[0, np.full(n - 1, 1 / n)],
    }
    part = frame[(frame.scenario == scenario) & frame.half.isin(halves)]
    found = []
    for (_, seed), rows in part.groupby(["dataset", "seed"]):
        value = np.mean(rows.adds.tolist(), axis=0) @ of_sizes[weights]
        bad = np.array(rows.bad.iloc[0])
        found.append((seed, chance_above(value[~bad], value[bad])))
    return interval("detection", pd.DataFrame(found).groupby(0)[1].mean())


def other_seed(e: Evidence) -> Any:
    """Agreement with retraining by the truth's seed and by another one, over federations."""
    found = pd.read_json(ROOT / "results" / "arena-seed.json")
    same = e.measures[e.measures.measure == "fidelity.retraining"]
    both = found.merge(same, on=[*PLACE, "method"])
    return both.groupby(["scenario", "method"])[["value", "agreement"]].mean().unstack("method")


def known(e: Evidence) -> Any:
    """How far the truths of a federation can be met, a row per federation."""

    def of(t: Any) -> Any:
        pairs = np.triu_indices(len(t), 1)
        apart = t.quality.to_numpy()[pairs[0]] != t.quality.to_numpy()[pairs[1]]
        planted = agreement(t["retraining.accuracy"], t["quality"])
        return pd.Series({
            "accuracy and loss": agreement(t["retraining.accuracy"], t["retraining.loss"]),
            "accuracy and planted": planted if apart.any() else np.nan,
            "best with planted": np.sqrt(apart.mean()) if apart.any() else np.nan,
            "spread of values": 100 * t["retraining.accuracy"].std(),
            "standard error": 100 * t["error.accuracy"].mean(),
        })  # fmt: skip

    each = e.truths.groupby(PLACE).apply(of, include_groups=False)
    return each.groupby("scenario").mean()


def hours(e: Evidence) -> Any:
    """Hours that the records took, by row, one after the other; the first trains the rounds."""
    took = [
        (r.cell.settings.get("method", "truth"), r.manifest["seconds"] / 3600)
        for what in ("truths", "methods")
        for r in e.store.records(e.records, "arena", what)
    ]
    return pd.DataFrame(took).groupby(0)[1].sum()


def costs() -> dict[str, dict[str, float]]:
    """Seconds of a round of FedAvg and of its valuation by each method, by number of clients."""
    told = json.loads((ROOT / "results" / "costs.json").read_text("utf-8"))
    return dict(told["seconds"])


# ---------------------------------------------------------------------------- what pages quote


def numbers(e: Evidence) -> dict[str, str | int]:
    """Return what pages quote, by name: means with intervals, those in ``-mean`` without."""
    found: dict[str, str | int] = {
        "federations": int(e.measures.scenario.nunique()),
        "methods": int(e.measures.method.nunique()),
        "sampled": SAMPLED,
        "two-truths": f"{known(e)['accuracy and loss'].drop('late').mean():.2f}",
        "twice-most": f"{16 / 45:.2f}",  # two of ten are told from eight, and all else is a coin
        "tests-exact-12": f"{TESTS['exact-loss'](12):,}",
        "tests-proxy-12": f"{TESTS['proxy'](12):,}",
        "tests-loo-40": f"{TESTS['loo-loss'](40):,}",
    }
    quoted: Any
    for quoted in pd.read_csv(QUOTED, keep_default_na=False).itertuples():
        cut: Interval = getattr(e, quoted.number)(*quoted.of.split())
        alone = f"{cut.mean:{quoted.sign}.{quoted.digits}f}"
        whole = cut.text(quoted.digits, signed=bool(quoted.sign))
        found[quoted.name] = alone if quoted.name.endswith("-mean") else whole
    twins, took, thirty = e.twins(), hours(e), costs()["30"]
    # shares of sound clients below zero, by what was planted
    alarm, bad = e.units("detection.alarm"), sorted(e.units("detection.below").index)
    detection = where(e.measures, measure="detection", method="loo-loss")
    scaled = where(detection, scenario="scaled-updates", dataset="mnist").value.mean()
    trained = e.units("cost.trainings").loc["labels", "proxy-retrained"]  # of ten clients
    graded = e.units("stability.seeds").loc["label-noise", "exact-loss"]
    shares = {
        "alarm-bad": alarm.loc[[k for k in bad if k not in SKEWED], "loo-loss"].mean(),
        "alarm-bad-skew": alarm.loc[[k for k in bad if k in SKEWED], "loo-loss"].mean(),
        "alarm-clean": alarm.drop([*bad, "mavericks"])["loo-loss"].mean(),
        "alarm-skew": alarm.loc["labels", "exact-loss"],
        "alarm-again": alarm["proxy-retrained"].max(),
        "scaled-mnist": scaled,
        "slow-loo": e.changed("rate", "loo-loss", "scaled-updates"),
        "slow-tsv": e.changed("rate", "fedtsv", ALIKE_RIDERS),
        "twice-graded": graded,
        "pair": twins.mean(),
        "ban-removal-p": e.chance("worth.removal", "banzhaf", "exact"),
        "ban-weights-p": e.chance("worth.weights", "banzhaf", "exact"),
    }
    found |= {key: f"{share:.2f}" for key, share in shares.items()}
    found |= {
        "again-cost": f"{trained:.0f}",
        "again-coalitions": f"{2 * trained:.0f}",  # each of half of the data, on average
        "took-all": f"{took.sum():.0f}",
        **{
            f"cost-{key}": f"{100 * thirty[name] / thirty['fedavg']:.0f}"
            for key, name in (("loo", "loo-loss"), ("proxy", "proxy"), ("cgsv", "cgsv"))
        },
        "took-first": f"{60 * took[next(iter(METHODS))]:.0f}",
    }
    return found


def ranked(e: Evidence, measure: str, methods: tuple[str, ...]) -> list[str]:
    """Return these methods by a measure, best first."""
    return [m for m in summary(e.measures, measure).index if m in methods]
