"""What the pages on FedCCEA say in numbers, each computed here from the records.

An :class:`Evaluation` holds the records; :func:`numbers` are those in the text, by the names under
which the pages show them.  Most tables begin with a :func:`seed_table`, all runs of an experiment
side by side: :func:`intervals` are means over the seeds of a setting, differences paired by seed.
A pool is a seed's mean over several settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property, reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval
from reproduction import overviews
from reproduction.claims import load_claims
from reproduction.common import chance_above
from reproduction.fedccea.experiments import (
    BY_ROUNDS,
    DATA,
    DEALS,
    DISTRIBUTIONS,
    ENDS,
    FITS,
    LABELS,
    METHODS,
    RANDOM_ORDERS,
    READINGS,
    WALKS,
    setting_name,
)
from reproduction.overviews import lead
from reproduction.readings import readings_of, under
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED, join

if TYPE_CHECKING:
    from reproduction.claims import Claims

RUN = ["dataset", "distribution", "noise", "seed"]
#: metric of what goes with the 40% of the clients at one end of an order
_LOST = {"lowest": "lost40", "highest": "lost40.highest"}


def seed_table(frame: pd.DataFrame, series: pd.DataFrame | None = None) -> pd.DataFrame:
    """Put the runs of an experiment below each other, their metrics side by side, a column each.

    `series` adds "lost40.highest.M", "lost40.random" and "lost40.highest.random", points lost with
    the highest and with random clients; "clean.M", the probability that clients that stay clean are
    above those that others' runs make noisy, where all are clean, and "gain.M", how much more it is
    with noise.
    """
    table = frame.pivot(index=RUN, columns="metric", values="value")
    if series is not None:
        table = table.join(_losses(series)).join(
            _without_noise(series), on=[RUN[0], RUN[1], "seed"]
        )
        for m in METHODS:
            table[f"gain.{m}"] = table.get(f"auc.{m}", np.nan) - table[f"clean.{m}"]
    place = {name: k for k, name in enumerate([*DATA, *DISTRIBUTIONS])} | {"none": ""}
    return table.loc[sorted(table.index, key=lambda run: [place.get(x, x) for x in run])]


def _losses(series: pd.DataFrame) -> pd.DataFrame:
    """Points lost when 40% of the clients have gone, the highest or random ones."""
    names = {f"{m}.highest": f"{_LOST['highest']}.{m}" for m in (*METHODS, *READINGS, "oracle")}
    names["random"] = "lost40.random"
    drawn = series[series.series.isin(["removed", *names])]
    curves = drawn.pivot(index=[*RUN, "index"], columns="series", values="value")
    curves = curves.set_index("removed", append=True).droplevel("index")
    share = curves.index.get_level_values("removed")
    everybody, rest = (curves[share == gone].droplevel("removed") for gone in (0.0, 40.0))
    lost = (everybody - rest).reindex(columns=[*names]).rename(columns=names)
    return lost.assign(**{"lost40.highest.random": lost["lost40.random"]})


def _without_noise(series: pd.DataFrame) -> pd.DataFrame:
    """The clients that others' runs make noisy, where all are clean.

    They need not be like the others: where classes are few, theirs may be held by others too.
    """

    def told(part: pd.DataFrame) -> float:
        values = part.sort_values("index").value.to_numpy()
        first = len(values) - round(part.noisy.iloc[0] * len(values))  # as Setting.noisy_clients
        return chance_above(values[:first], values[first:])

    names = {f"value.{m}": f"clean.{m}" for m in METHODS}
    clean = series[(series.noise == "none") & series.series.isin(names)]
    rows = clean.groupby([RUN[0], RUN[1], "seed", "series"])[["index", "value", "noisy"]]
    return rows.apply(told).unstack("series").reindex(columns=[*names]).rename(columns=names)


def settings(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every setting's name and metrics, one row per seed."""
    for place, seeds in table.groupby(RUN[:3], sort=False):
        yield setting_name(*map(str, place)), seeds.droplevel([0, 1, 2])


def pools(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a seed's mean over the settings of a pool that have all seeds.

    A pool holds a data set where few classes per client decide much, or where not.  NaN where one
    of the settings lacks a metric, as the others would differ.  Nothing for one setting, or seed.
    """
    few, many = DISTRIBUTIONS["strong"], f"{DISTRIBUTIONS['iid']} and {DISTRIBUTIONS['weak']}"
    pools: dict[str, list[pd.DataFrame]] = {}
    for place, seeds in table.groupby(RUN[:3], sort=False):
        name = f"{DATA[str(place[0])]}, {few if place[1] == 'strong' else many}"
        pools.setdefault(name, []).append(seeds.droplevel([0, 1, 2]))
    for name, members in pools.items():
        most = max(map(len, members))
        whole = [seeds for seeds in members if len(seeds) == most]
        if most > 1 and len(whole) > 1:
            yield f"{name}, mean of {len(whole)} settings", reduce(add, whole) / len(whole)


def intervals(
    table: pd.DataFrame,
    shown: Mapping[str, str | tuple[str, str]],
    bounds: tuple[float, float] = (-np.inf, np.inf),
    *,
    pooled: bool = False,
) -> pd.DataFrame:
    """Means over the seeds of every setting, or pool, with their 95% intervals.

    `shown` has by label a metric, or two of which the second is taken from the first, paired by
    seed; `bounds` are what a metric can be. Index: setting (or pool) and label; columns mean, low,
    high and n, the seeds that have a finite number: none where it is not on record.
    """

    def one(seeds: pd.DataFrame, what: str | tuple[str, str]) -> Interval:
        if isinstance(what, str):
            return _metric(seeds, what, bounds)
        return lead(seeds.reindex(columns=[*what]), *what)

    rows = {
        (place, label): asdict(one(seeds, what))
        for place, seeds in (pools if pooled else settings)(table)
        for label, what in shown.items()
    }
    return overviews.table(rows)


def _metric(seeds: pd.DataFrame, metric: str, bounds: tuple[float, float]) -> Interval:
    found: Any = seeds.get(metric, [])
    if np.isfinite(bounds).all():
        return bounded_interval(found, *bounds)
    return mean_interval(found).within(*bounds)


def as_text(found: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Write :func:`intervals` as text, a row per setting and a column per label.

    Where not all seeds have a finite number, how many do is said.
    """
    most = found["n"].max()
    words = {}
    for place, row in found.iterrows():
        said = Interval(row["mean"], row["low"], row["high"], int(row["n"])).text(digits)
        words[place] = f"{said}, n = {row['n']:.0f}" if 0 < row["n"] < most else said
    wide = pd.Series(words).unstack(sort=False)
    return wide.loc[:, (wide != "–").any()]


# Beside the paper's numbers (Table 3)


def _printed(claims: Claims, row: str, place: Mapping[str, str], data: Iterable[str]) -> float:
    """Return a number of Table 3; NaN where there is none, or the paper has other data than ours.

    The letters are another data set.
    """
    printed = claims.tables["t3"]
    if place not in printed.columns or not {*data} <= {*claims.data.get(place["dataset"], ())}:
        return np.nan
    return float(printed.rows[row][printed.columns.index(place)])


def exclusions(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy without the clients of index zero, clean clients, beside Table 3.

    `frame`: records of the experiment ``contribution``, and of ``rounds``.
    """
    claims, clean = load_claims("fedccea"), frame[frame.noise == "none"]
    rows = {"everybody": "base"} | {LABELS[m]: m for m in EXCLUDED}
    shown = {t: m if m == "base" else f"excluded.{m}" for t, m in rows.items()}
    paper = {}
    for (dataset, distribution), part in clean.groupby(RUN[:2]):
        place = {"dataset": str(dataset), "distribution": str(distribution)}
        for label, m in rows.items():
            row = "fedccea" if m in (*FITS, "adam") else m.removesuffix("-rounds")
            paper[setting_name(**place), label] = _printed(claims, row, place, part["data"])
    found = intervals(seed_table(clean), shown, (0, 100))
    found = found.assign(paper=[paper[place] for place in found.index])
    few = found.index.isin([LABELS[m] for m in BY_ROUNDS], level=1)
    return found[~few | (found["n"] > 0)]  # not everything was valued round by round


def learning(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy with everybody beside the paper's: all samples, fewer, and fewer with more steps.

    `frame`: records of the experiment ``learning``; all samples have the printed batches and rate.
    """
    claims, rows = load_claims("fedccea"), {}
    part = frame[frame.metric == "base"]
    part = part.assign(samples=part.samples.astype(float).fillna(np.inf))
    for dataset, distribution in product(DATA, DISTRIBUTIONS):
        place = {"dataset": dataset, "distribution": distribution}
        here = overviews.where(part, **place)
        here = here.sort_values(["samples", "lr", "batch_size"], ascending=[False, True, False])
        for (samples, *how), seeds in here.groupby(["samples", "batch_size", "lr"], sort=False):
            amount = "all samples" if samples == np.inf else f"{samples:.0f} samples"
            as_printed = how == [here.batch_size.iloc[0], here.lr.iloc[0]]
            label = amount if as_printed else f"{amount}, as run here"
            rows[setting_name(**place), label] = {
                **asdict(bounded_interval(seeds.value, 0, 100)),
                "paper": _printed(claims, "base", place, here["data"]),
            }
    return overviews.table(rows)


# Areas between removal curves, and what goes with either end of an order (Figures 5, 6, 13 to 24)


def random_spread(seeds: pd.DataFrame) -> float:
    """Return the standard error of the mean area of random orders, in points, one order per seed.

    From its other end an order has the opposite area, so it is 0 on average: the root mean square
    of all orders is divided by the root of the number of seeds.
    """
    areas = seeds[[f"area.random{k}" for k in range(RANDOM_ORDERS)]].to_numpy()
    return float(np.sqrt(np.square(areas).mean() / len(areas)))


def mean_deals(table: pd.DataFrame) -> pd.DataFrame:
    """Add a seed's mean over its deals of worthless qualities, "area.dealt" and "lost40.dealt".

    `table`: a :func:`seed_table` of the experiment ``dealt``.
    """
    names = [f"{metric}.dealt{end}" for metric in ("area", "lost40") for end in ENDS.values()]
    deals = {name: [f"{name}{k}" for k in range(DEALS)] for name in names}
    return table.assign(**{
        name: table[each].mean(axis=1) for name, each in deals.items() if each[0] in table
    })  # fmt: skip


# What the fits explain (Figure 7)


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """Error of the AAM beside that of the round's mean, and in how many seeds chance does worse."""
    rows = {
        name: {
            "error of the round's mean (points)": seeds["round_error"].mean(),
            "error of the AAM (points)": seeds["aam_error"].mean(),
            "rounds that take off (share)": seeds["falling"].mean(),
            "more than chance (seeds)": f"{(seeds['explained.p'] <= 0.05).sum()} of {len(seeds)}",
        }
        for name, seeds in settings(table)
    }
    return overviews.table(rows)


# Who finds the clients with planted noise: beside the same clients when all are clean


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the noisy runs that have a clean one beside them, for every method."""
    noisy = table[table.index.get_level_values("noise") != "none"]
    return noisy.dropna(subset=[f"gain.{m}" for m in METHODS])


# Seconds

#: how many simulations FedCCEA needs
SIMULATIONS = 100


def printed_times() -> pd.DataFrame:
    """The paper's Table 2, FedCCEA's times multiplied by the simulations that it needs.

    Index: clients; columns: seconds of one simulation, of all, of TMC-SV and of LOO, and the ratio
    of FedCCEA's total to TMC-SV.
    """
    printed = load_claims("fedccea").tables["t2"]
    clients = pd.Index([int(c["clients"]) for c in printed.columns], name="clients")
    rows = pd.DataFrame(printed.rows, clients).astype(float)
    table = pd.DataFrame(
        {
            "FedCCEA, one simulation (s)": rows["fedccea"],
            f"FedCCEA, {SIMULATIONS} simulations (s)": SIMULATIONS * rows["fedccea"],
            "TMC-SV (s)": rows["tmc-sv"],
            "LOO (s)": rows["loo"],
        }
    )
    return table.assign(**{"FedCCEA over TMC-SV": table.iloc[:, 1] / rows["tmc-sv"]})


def measured_times(frame: pd.DataFrame) -> pd.DataFrame:
    """Our Table 2: milliseconds per round, by number of clients.

    `frame`: records of the experiment ``cost``.
    """
    found = frame.pivot_table(index="clients", columns="metric", values="value")
    total, loo = SIMULATIONS * found["seconds.lockstep"], found["seconds.loo"]
    table = pd.DataFrame(
        {
            "one simulation (ms)": 1000 * found["seconds.simulation"],
            "one of many in lockstep (ms)": 1000 * found["seconds.lockstep"],
            f"FedCCEA, {SIMULATIONS} simulations (ms)": 1000 * total,
            "one walk of Monte Carlo (ms)": 1000 * found["seconds.walk"],
            "LOO (ms)": 1000 * loo,
            "FedCCEA over LOO": total / loo,
        }
    )
    training = {m: found[f"seconds.{m}"] - found[f"testing.{m}"] for m in ("lockstep", "loo")}
    table["training alone"] = SIMULATIONS * training["lockstep"] / training["loo"]
    table["data trained on"] = SIMULATIONS * found["trained.lockstep"] / found["trained.loo"]
    return table


# The numbers of the pages


class Evaluation(overviews.Evaluation):
    """The records: clients with 300 samples, and trainings with all at the profile `records`."""

    paper = "fedccea"

    @cached_property
    def valued(self) -> pd.DataFrame:
        """Metrics of the clients that were valued and removed."""
        return self.frame("contribution", "laptop")

    @cached_property
    def excluded(self) -> pd.DataFrame:
        """Metrics of zeros and exclusions, of the rivals in both readings."""
        rounds = self.frame("rounds", "laptop")
        own = rounds.metric.str.endswith(BY_ROUNDS)
        return pd.concat([self.valued, rounds[own & (rounds.permutations == WALKS)]])

    @cached_property
    def drawn(self) -> pd.DataFrame:
        """Series of the same runs."""
        return self.series("contribution", "laptop")

    @cached_property
    def runs(self) -> pd.DataFrame:
        """All these runs, a row each."""
        return seed_table(self.valued, self.drawn)

    def at(self, dataset: str, distribution: str, noise: str) -> pd.DataFrame:
        """Return the runs of one setting."""
        return pd.DataFrame(self.runs.xs((dataset, distribution, noise), level=[0, 1, 2]))

    @property
    def here(self) -> pd.DataFrame:
        """The setting that the chapter shows: two classes each, 40% wrong labels, MNIST."""
        return self.at(*PLACE)

    @cached_property
    def deals(self) -> pd.DataFrame:
        """Runs with qualities dealt at random, a seed's mean over its deals."""
        return mean_deals(seed_table(self.frame("dealt", "laptop")))

    @cached_property
    def measured(self) -> pd.DataFrame:
        """Our times; see :func:`measured_times`."""
        return measured_times(self.frame("cost"))

    @cached_property
    def learnt(self) -> pd.DataFrame:
        """Accuracy with everybody; see :func:`learning`."""
        return learning(self.frame("learning"))

    @cached_property
    def judged(self) -> pd.DataFrame:
        """The claims on MNIST, judged by the runs with 300 samples."""
        return self._judged(reduced_claims())

    @cached_property
    def judged_by_rounds(self) -> pd.DataFrame:
        """The same, with the rivals valued round by round, of those that are on record so."""
        claims = reduced_claims()
        for reading in readings_of("fedccea"):
            if "experiment=rounds" in reading.other:
                claims = under(claims, reading)
        moved = [c.id for c in claims.claims for p in (c.ours, c.against or {})
                 if p.get("experiment") == "rounds"]  # fmt: skip
        there = self._judged(claims)
        return there[there.index.isin(moved)]

    def _judged(self, claims: Claims) -> pd.DataFrame:
        found = join(claims, self.store, profile="laptop", scale="laptop")
        found = found[(found.seeds > 0) & ~found.claim.str.contains(r"\.t2\.|emnist")]
        return found.set_index("claim", drop=False)


def reduced_claims() -> Claims:
    """Return the claims as the chapter judges them: with 300 samples per client."""
    claims = load_claims("fedccea")
    return replace(claims, protocol={**claims.protocol, "samples": 300})


PLACE = ("mnist", "strong", "label-40")


def leads(e: Evaluation) -> dict[str, Interval]:
    """FedCCEA's leads over leave-one-out with few classes, in chance and in gain."""
    noisy = dict(pools(compared(e.runs)))
    mnist, letters = (
        next(mean for name, mean in noisy.items() if name.startswith(f"{data}, strong"))
        for data in ("MNIST", "EMNIST")
    )
    return {
        "cc-mnist-chance": lead(mnist, "auc.fedccea", "auc.loo"),
        "cc-decided-chance": lead(letters, "auc.fedccea", "auc.loo"),
        "cc-decided-gain": lead(letters, "gain.fedccea", "gain.loo"),
    }


def points(e: Evaluation) -> dict[str, Interval]:
    """Differences in points, with their sign."""
    here, dealt = e.here, "area.dealt-connected"
    mnist, letters = (e.deals.xs((x, *PLACE[1:]), level=[0, 1, 2]) for x in ("mnist", "emnist"))
    return {
        "cc-lost-cca": lead(here, "lost40.fedccea", "lost40.random"),
        "cc-lost-loo": lead(here, "lost40.loo", "lost40.random"),
        "cc-wider-iid": lead(e.at("mnist", "iid", "label-40"), "area.partial", "area.fedccea"),
        "cc-over-amounts": lead(here, "area.partial-connected", "area.partial-size"),
        "cc-dealt-mnist": lead(mnist, dealt, "area.amounts"),
        "cc-over-dealt-letters": lead(letters, "area.learnt-connected", dealt),
    }


def amounts(e: Evaluation) -> dict[str, Interval]:
    """Points and clients without a sign."""
    iid, clean = e.at("mnist", "iid", "label-40"), e.at("mnist", "strong", "none")
    found = {
        "cc-zeros-cca": bounded_interval(clean["zeros.fedccea"], 0, 20),
        "cc-zeros-drop": lead(clean, "base", "excluded.fedccea"),
        "cc-lost-random": bounded_interval(e.here["lost40.random"], 0, 100),
        "cc-area-partial": mean_interval(iid["area.partial"]),
        "cc-area-partial-size": mean_interval(iid["area.partial-size"]),
    }
    pooled = next(mean for name, mean in pools(e.runs) if name.startswith("MNIST, strong"))
    for key, end in (("low", "lowest"), ("high", "highest")):
        lost = _LOST[end]
        found[f"cc-both-{key}"] = lead(pooled, f"{lost}.fedccea", f"{lost}.random")
    return found


def counts(e: Evaluation) -> dict[str, Any]:
    """Means without an interval, whole numbers, and lists in words."""
    judged = e.judged[~e.judged.by_construction]
    verdicts = judged.verdict.value_counts()
    good, bad = verdicts.get(REPRODUCED, 0), verdicts.get(NOT_REPRODUCED, 0)
    seeds = e.runs.groupby(RUN[:3]).size()
    base = pd.DataFrame(e.learnt.xs("all samples", level=1)).dropna(subset="paper")
    easy = e.at("mnist", "iid", "none")
    found: dict[str, Any] = {
        "cc-judged": len(judged),
        "cc-good": int(good),
        "cc-bad": int(bad),
        "cc-base-off": f"{(base['mean'] - base.paper).abs().max():.1f}",
        "cc-runs-seeds": int(seeds.max()),
        "cc-runs-settings": len(seeds),
        "cc-error": f"{easy.aam_error.mean():.2f}",
        "cc-error-mean": f"{easy.round_error.mean():.2f}",
        "cc-mean-loo": f"{e.here['auc.loo'].mean():.2f}",
        "cc-mean-cca": f"{e.here['auc.fedccea'].mean():.2f}",
    }
    for m in ("loo", "tmc-sv", "fedccea"):
        found[f"cc-crossed-{m}"] = crossed(e, m, "label-40")
    return found | _of_rounds(e) | _of_times(e) | _of_fits(e)


def crossed(e: Evaluation, method: str, noise: str) -> int:
    """In how many seeds removing the lowest costs more than the highest at some place."""
    curves = wide(e.drawn, dataset="mnist", distribution="strong", noise=noise)
    curves = curves[curves.removed > 0]
    above = curves[f"{method}.lowest"] < curves[f"{method}.highest"]
    return int(above.groupby(curves.seed).any().sum())


def wide(series: pd.DataFrame, **settings: str) -> pd.DataFrame:
    """Series of one setting, one column each; a row per seed and place."""
    part = overviews.where(series, **settings)
    return part.pivot(index=["seed", "index"], columns="series", values="value").reset_index()


def _of_rounds(e: Evaluation) -> dict[str, Any]:
    """Clients of index zero and accuracy without them, seed by seed, valued round by round."""
    clean = overviews.where(e.excluded, dataset="mnist", distribution="strong", noise="none")
    found: dict[str, Any] = {}
    for name, metric in (
        ("cc-zeros-tmc-sv", "zeros.tmc-sv"),
        ("cc-left-tmc-sv", "excluded.tmc-sv"),
        ("cc-zeros-tmc-sv-rounds", "zeros.tmc-sv-rounds"),
        ("cc-left-tmc-sv-rounds", "excluded.tmc-sv-rounds"),
        ("cc-zeros-loo", "zeros.loo"),
        ("cc-zeros-loo-rounds", "zeros.loo-rounds"),
    ):
        part = overviews.where(clean, metric=metric).sort_values("seed")
        found[name] = ", ".join(f"{x:.0f}" for x in part.value)
    # a simulation uses half of the data, and trainings of several seeds ran side by side
    took = [
        record.manifest["seconds"] / len(record.cell.seeds)
        for record in e.store.records(e.records, "fedccea", "learning")
        if record.cell.settings["dataset"] == "mnist" and not record.cell.settings["samples"]
    ]
    hours = f"{100 * 0.5 * float(np.mean(took)) / 3600:.1f}" if took else "an unknown number of"
    return found | {"cc-full-hours": hours}


def _of_times(e: Evaluation) -> dict[str, Any]:
    printed, ours = printed_times(), e.measured
    ratio, over = printed["FedCCEA over TMC-SV"], ours["data trained on"]
    return {
        "cc-ratio-few": f"{ratio.iloc[0]:.0f}",
        "cc-ratio-many": f"{ratio.iloc[-1]:.0f}",
        "cc-over-few": f"{over.iloc[0]:.0f}",
        "cc-over-many": f"{over.iloc[-1]:.1f}",
    }


def _of_fits(e: Evaluation) -> dict[str, Any]:
    means = e.runs.groupby(RUN[:3]).mean()
    first, clean = means["unseen.fedccea"], means.xs("none", level="noise")
    return {
        "cc-unseen-below": int((first < 0).sum()),
        "cc-unseen-of": len(first),
        "cc-unseen-most": f"{100 * first.max():.0f}",
        "cc-unseen-nodes": f"{100 * means['unseen.connected'].max():.0f}",
        "cc-unseen-rival": f"{100 * means['unseen.same_round'].max():.0f}",
        "cc-half-most": f"{clean['rank.0.5'].max():.2f}",
        "cc-half-nodes": f"{clean['rank.0.5.connected'].max():.2f}",
    }


def numbers(e: Evaluation) -> dict[str, Any]:
    """All of them, intervals as text, by the names under which the pages show them."""
    told = overviews.told(leads(e), 2, signed=True)
    told |= overviews.told(points(e), 1, signed=True) | overviews.told(amounts(e), 1)
    return told | counts(e)


def main_claims(e: Evaluation) -> dict[str, dict[str, str]]:
    """Of each of the main claims, what it says, and our number."""
    sentences = {
        "no-zeros.fedccea.strong": "FedCCEA gives no client an index of zero",
        "same-as-base.fedccea.strong": "without FedCCEA's zeros accuracy stays (loss at most 1 "
        "point)",
        "tmc-zeros": "TMC-SV gives 11 clients an index of zero",
        "loo-zeros": "LOO gives 1 client an index of zero",
        "ranks-better.fedccea.tmc-sv": "FedCCEA's removal curves are further apart than TMC-SV's*",
        "ranks-better.fedccea.loo": "FedCCEA's removal curves are further apart than LOO's*",
        "lasting.label-40.fedccea": "FedCCEA's lowest 40% do not count (loss at most 3 points)*",
        "reversal.label-40.loo": "LOO's curves are reversed on average (area at most 0 points)*",
        "separates.partial": "curves are apart with partial participation*",
        "separates.partial-connected": "the same, connected*",
        "fits": "the AAM's error is trivial (at most 1 point; IID)",
    }
    found = {}
    for key, sentence in sentences.items():
        row: Any = e.judged.loc[f"fedccea.{key}"]
        ours = Interval(row["mean"], row.low, row.high, int(row.seeds))
        if key.startswith("same-as-base"):  # a difference, below 0 where there is a loss
            ours = Interval(-ours.mean, -ours.high, -ours.low, ours.n)
        by_seed = ", ".join(f"{x:.0f}" for x in row["values"]) + " (by seed)"
        said = by_seed if "zeros" in key else ours.text(1)
        found[f"fedccea.{key}"] = {"says": sentence, "ours": said}
    return found


# What the figures and tables show

RANKED = (*METHODS[:2], "adam", *METHODS[2:], "same_round", "oracle")
EXCLUDED = (*METHODS, "adam", *BY_ROUNDS)
PARTS_OF_FITS = {
    "0.1": "two tenths", "0.25": "two quarters", "0.5": "two halves", "seeds": "all, two starts",
}  # fmt: skip


def of(metric: str, shown: Iterable[str] = RANKED) -> dict[str, str]:
    """Name a metric of some methods by their labels."""
    return {LABELS[m]: f"{metric}.{m}" for m in shown}


def beyond_random(end: str) -> dict[str, tuple[str, str]]:
    """Name what goes with one end of an order, beside random clients."""
    return {LABELS[m]: (f"{_LOST[end]}.{m}", f"{_LOST[end]}.random") for m in RANKED}


def over_retrained(metric: str) -> dict[str, tuple[str, str]]:
    """Name FedCCEA's leads over those who retrain."""
    return {
        f"{LABELS[a]}\nover {LABELS[b]}": (f"{metric}.{a}", f"{metric}.{b}")
        for a, b in product(FITS, ("tmc-sv", "loo"))
    }


def over_random_exclusion() -> dict[str, tuple[str, str]]:
    """Name accuracy without the zeros, beside that without as many random clients."""
    return {LABELS[m]: (f"excluded.{m}", f"excluded.{m}.random") for m in (*METHODS, "adam")}


def explained() -> dict[str, dict[str, str]]:
    """Name the shares of the variance that sizes explain, in and out of the sample."""
    inside = {LABELS[m]: f"explained.{m}" for m in ("connected", "adam", "same_round")}
    return {
        "in the sample": {LABELS["fedccea"]: "explained", **inside},
        "in the sample, by chance": {LABELS["fedccea"]: "explained.chance"},
        "out of sample": of("unseen", ("fedccea", "connected", "same_round")),
    }


def agreeing() -> dict[str, dict[str, str]]:
    """Name how two fits agree, by the part of the simulations that each has."""
    return {
        LABELS[m]: {
            words: f"rank.{part}{'' if m == 'fedccea' else f'.{m}'}"
            for part, words in PARTS_OF_FITS.items()
        }
        for m in ("fedccea", "connected", "same_round")
    }
