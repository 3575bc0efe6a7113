"""What the pages on FedCCEA say in numbers, each computed here from the records.

Most tables begin with a :func:`seed_table`, all runs of an experiment side by side:
:func:`intervals` are means over the seeds of a setting, differences paired by seed.  A pool is a
seed's mean over several settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.intervals import Interval, bounded_interval, mean_interval
from reproduction import overviews
from reproduction.claims import Claims, load_claims
from reproduction.common import chance_above
from reproduction.fedccea import experiments as given
from reproduction.fedccea.experiments import DATA, DISTRIBUTIONS, FITS, LABELS, METHODS
from reproduction.overviews import by_metric, lead, told, view, where
from reproduction.readings import readings_of, under
from reproduction.verdicts import NOT_REPRODUCED, REPRODUCED, join

RUN = ["dataset", "distribution", "noise", "seed"]
#: the setting that the chapter shows
PLACE = ("mnist", "strong", "label-40")
RANKED = (*METHODS[:2], "adam", *METHODS[2:], "same_round", "oracle")
EXCLUDED = (*METHODS, "adam", *given.BY_ROUNDS)


def seed_table(frame: pd.DataFrame, series: pd.DataFrame | None = None) -> pd.DataFrame:
    """Put the runs of an experiment below each other, their metrics side by side, a column each.

    `series` adds "lost40.highest.M", "lost40.random" and "lost40.highest.random", points lost;
    "clean.M", the chance that clients that stay clean are above those that others' runs make noisy,
    where all are clean, and "gain.M", how much more it is with noise.
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


def _losses(series: Any) -> pd.DataFrame:
    """Points lost when 40% of the clients have gone, the highest or random ones."""
    names = {f"{m}.highest": f"lost40.highest.{m}" for m in RANKED}
    names["random"] = "lost40.random"
    drawn = series[series.series.isin(["removed", *names])]
    curves = drawn.pivot(index=[*RUN, "index"], columns="series", values="value")
    curves = curves.set_index("removed", append=True).droplevel("index")
    everybody, rest = (curves.xs(gone, level="removed") for gone in (0.0, 40.0))
    lost = (everybody - rest).reindex(columns=[*names]).rename(columns=names)
    return lost.assign(**{"lost40.highest.random": lost["lost40.random"]})


def _without_noise(series: pd.DataFrame) -> pd.DataFrame:
    """How the clients that others' runs make noisy stand where all are clean.

    They need not be like the others: where classes are few, theirs may be held by others too.
    """

    def chance(part: pd.DataFrame) -> float:
        values = part.sort_values("index").value.to_numpy()
        first = len(values) - round(part.noisy.iloc[0] * len(values))  # as Setting.noisy_clients
        return chance_above(values[:first], values[first:])

    names = {f"value.{m}": f"clean.{m}" for m in METHODS}
    clean = series[(series.noise == "none") & series.series.isin(names)]
    rows = clean.groupby([RUN[0], RUN[1], "seed", "series"])[["index", "value", "noisy"]]
    return rows.apply(chance).unstack("series").reindex(columns=[*names]).rename(columns=names)


def settings(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every setting's name and metrics, one row per seed."""
    for place, seeds in table.groupby(RUN[:3], sort=False):
        yield given.setting_name(*map(str, place)), seeds.droplevel([0, 1, 2])


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
            yield f"{name}, mean of {len(whole)} settings", sum(whole[1:], whole[0]) / len(whole)


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
        if not isinstance(what, str):
            return lead(seeds.reindex(columns=[*what]), *what)
        found: Any = seeds.get(what, [])
        exact = np.isfinite(bounds).all()
        return bounded_interval(found, *bounds) if exact else mean_interval(found).within(*bounds)

    rows = {
        (place, label): asdict(one(seeds, what))
        for place, seeds in (pools if pooled else settings)(table)
        for label, what in shown.items()
    }
    return overviews.table(rows)


def as_text(found: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Write :func:`intervals` as text, a row per setting and a column per label.

    Where not all seeds have a finite number, how many do is said.
    """
    most, words = found["n"].max(), {}
    for place, (mean, low, high, n) in found.iterrows():
        said = Interval(mean, low, high, int(n)).text(digits)
        words[place] = f"{said}, n = {n:.0f}" if 0 < n < most else said
    wide = pd.Series(words).unstack(sort=False)
    return wide.loc[:, (wide != "–").any()]


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the noisy runs that have a clean one beside them, for every method."""
    noisy = table[table.index.get_level_values("noise") != "none"]
    return noisy.dropna(subset=[f"gain.{m}" for m in METHODS])


#: how many simulations FedCCEA needs
SIMULATIONS = 100


def printed_times() -> pd.DataFrame:
    """The paper's Table 2 by clients, FedCCEA's times multiplied by its simulations too."""
    printed = load_claims("fedccea").tables["t2"]
    clients = pd.Index([int(c["clients"]) for c in printed.columns], name="clients")
    rows = pd.DataFrame(printed.rows, clients).astype(float)
    return pd.DataFrame({
        "FedCCEA, one simulation (s)": rows["fedccea"],
        f"FedCCEA, {SIMULATIONS} simulations (s)": SIMULATIONS * rows["fedccea"],
        "TMC-SV (s)": rows["tmc-sv"],
        "LOO (s)": rows["loo"],
        "FedCCEA over TMC-SV": SIMULATIONS * rows["fedccea"] / rows["tmc-sv"],
    })  # fmt: skip


class Evaluation(overviews.Evaluation):
    """The records: clients with 300 samples, and trainings with all at the profile `records`."""

    paper = "fedccea"
    #: metrics, and series, of the clients that were valued and removed; their runs, a row each
    valued = view(lambda e: e.frame("contribution", "laptop"))
    drawn = view(lambda e: e.series("contribution", "laptop"))
    runs = view(lambda e: seed_table(e.valued, e.drawn))
    #: the setting that the chapter shows: two classes each, 40% wrong labels, MNIST
    here = view(lambda e: e.at(*PLACE))
    #: the claims on MNIST, judged by the runs with 300 samples
    judged = view(lambda e: e.judge(reduced_claims()))

    @view
    def deals(self) -> pd.DataFrame:
        """Runs with qualities dealt at random, and a seed's mean area over its deals."""
        table = seed_table(self.frame("dealt", "laptop"))
        for end in given.ENDS.values():
            dealt = table[[f"area.dealt{end}{k}" for k in range(given.DEALS)]]
            table[f"area.dealt{end}"] = dealt.mean(axis=1)
        return table

    @view
    def measured(self) -> pd.DataFrame:
        """Our Table 2: milliseconds per round, by number of clients."""
        found = self.frame("cost").pivot_table(index="clients", columns="metric", values="value")
        total, loo = SIMULATIONS * found["seconds.lockstep"], found["seconds.loo"]
        training = {m: found[f"seconds.{m}"] - found[f"testing.{m}"] for m in ("lockstep", "loo")}
        return pd.DataFrame({
            "one simulation (ms)": 1000 * found["seconds.simulation"],
            "one of many in lockstep (ms)": 1000 * found["seconds.lockstep"],
            f"FedCCEA, {SIMULATIONS} simulations (ms)": 1000 * total,
            "one walk of Monte Carlo (ms)": 1000 * found["seconds.walk"],
            "LOO (ms)": 1000 * loo,
            "FedCCEA over LOO": total / loo,
            "training alone": SIMULATIONS * training["lockstep"] / training["loo"],
            "data trained on": SIMULATIONS * found["trained.lockstep"] / found["trained.loo"],
        })  # fmt: skip

    @view
    def learnt(self) -> pd.DataFrame:
        """Accuracy with everybody beside the paper's: all samples, fewer, fewer with more steps.

        All samples have the printed batches and rate.
        """
        part, rows = where(self.frame("learning"), metric="base"), {}
        part = part.assign(samples=part.samples.astype(float).fillna(np.inf))
        for dataset, distribution in product(DATA, DISTRIBUTIONS):
            place = {"dataset": dataset, "distribution": distribution}
            here = where(part, **place)
            here = here.sort_values(["samples", "lr", "batch_size"], ascending=[False, True, False])
            for (samples, *how), seeds in here.groupby(["samples", "batch_size", "lr"], sort=False):
                amount = "all samples" if samples == np.inf else f"{samples:.0f} samples"
                as_printed = how == [here.batch_size.iloc[0], here.lr.iloc[0]]
                label = amount if as_printed else f"{amount}, as run here"
                rows[given.setting_name(**place), label] = {
                    **asdict(bounded_interval(seeds.value, 0, 100)),
                    "paper": self.table3("base", place, here["data"]),
                }
        return overviews.table(rows)

    def table3(self, row: str, place: Mapping[str, str], data: Iterable[str]) -> float:
        """Return a number of Table 3; NaN where it has none, or other data than ours.

        The letters are another data set.
        """
        printed, same = self.entries.tables["t3"], self.entries.data.get(place["dataset"], ())
        if place not in printed.columns or not {*data} <= {*same}:
            return np.nan
        return float(printed.rows[row][printed.columns.index(place)])

    @view
    def excluded(self) -> pd.DataFrame:
        """Metrics of zeros and exclusions, of the rivals in both readings."""
        rounds = self.frame("rounds", "laptop")
        own = rounds.metric.str.endswith(given.BY_ROUNDS)
        return pd.concat([self.valued, rounds[own & (rounds.permutations == given.WALKS)]])

    @view
    def exclusions(self) -> pd.DataFrame:
        """Accuracy without the clients of index zero, clean clients, beside Table 3."""
        clean, paper = where(self.excluded, noise="none"), {}
        rows = {"everybody": "base"} | {LABELS[m]: m for m in EXCLUDED}
        shown = {t: m if m == "base" else f"excluded.{m}" for t, m in rows.items()}
        for (dataset, distribution), part in clean.groupby(RUN[:2]):
            place = {"dataset": str(dataset), "distribution": str(distribution)}
            for label, m in rows.items():
                row = "fedccea" if m in (*FITS, "adam") else m.removesuffix("-rounds")
                paper[given.setting_name(**place), label] = self.table3(row, place, part["data"])
        found = intervals(seed_table(clean), shown, (0, 100))
        found = found.assign(paper=[paper[place] for place in found.index])
        few = found.index.isin([LABELS[m] for m in given.BY_ROUNDS], level=1)
        return found[~few | (found["n"] > 0)]  # not everything was valued round by round

    @view
    def judged_by_rounds(self) -> pd.DataFrame:
        """The claims whose rivals are valued round by round, of those that are on record so."""
        claims = reduced_claims()
        for reading in readings_of("fedccea"):
            if "experiment=rounds" in reading.other:
                claims = under(claims, reading)
        moved = [c.id for c in claims.claims for p in (c.ours, c.against or {})
                 if p.get("experiment") == "rounds"]  # fmt: skip
        there = self.judge(claims)
        return there[there.index.isin(moved)]

    def at(self, dataset: str, distribution: str, noise: str) -> pd.DataFrame:
        """Return the runs of one setting."""
        return pd.DataFrame(self.runs.xs((dataset, distribution, noise), level=[0, 1, 2]))

    def judge(self, claims: Claims) -> pd.DataFrame:
        """Judge claims on MNIST by the runs with 300 samples, but for those on times."""
        found = join(claims, self.store, profile="laptop", scale="laptop")
        found = found[(found.seeds > 0) & ~found.claim.str.contains(r"\.t2\.|emnist")]
        return found.set_index("claim", drop=False)


def reduced_claims() -> Claims:
    """Return the claims as the chapter judges them: with 300 samples per client."""
    claims = load_claims("fedccea")
    return replace(claims, protocol={**claims.protocol, "samples": 300})


def pool(table: pd.DataFrame, data: str) -> pd.DataFrame:
    """Return a seed's mean over the settings of a data set with few classes per client."""
    return next(mean for name, mean in pools(table) if name.startswith(f"{data}, strong"))


def leads(e: Evaluation) -> dict[str, Interval]:
    """FedCCEA's leads over leave-one-out with few classes, in chance and in gain."""
    noisy = compared(e.runs)
    letters = pool(noisy, "EMNIST")
    return {
        "cc-mnist-chance": lead(pool(noisy, "MNIST"), "auc.fedccea", "auc.loo"),
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
    pooled, highest = pool(e.runs, "MNIST"), "lost40.highest"
    return {
        "cc-zeros-cca": bounded_interval(clean["zeros.fedccea"], 0, 20),
        "cc-zeros-drop": lead(clean, "base", "excluded.fedccea"),
        "cc-lost-random": bounded_interval(e.here["lost40.random"], 0, 100),
        "cc-area-partial": mean_interval(iid["area.partial"]),
        "cc-area-partial-size": mean_interval(iid["area.partial-size"]),
        "cc-both-low": lead(pooled, "lost40.fedccea", "lost40.random"),
        "cc-both-high": lead(pooled, f"{highest}.fedccea", f"{highest}.random"),
    }


def counts(e: Evaluation) -> dict[str, Any]:
    """Means without an interval, whole numbers, and lists in words."""
    verdicts = e.judged[~e.judged.by_construction].verdict
    means, seeds = e.runs.groupby(RUN[:3]).mean(), e.runs.groupby(RUN[:3]).size()
    base = pd.DataFrame(e.learnt.xs("all samples", level=1)).dropna(subset="paper")
    easy, clean = e.at("mnist", "iid", "none"), means.xs("none", level="noise")
    first = means["unseen.fedccea"]
    ratio, over = printed_times()["FedCCEA over TMC-SV"], e.measured["data trained on"]
    listed = [f"zeros.{m}" for m in (*METHODS[2:], *given.BY_ROUNDS)]
    listed += [f"excluded.{m}" for m in ("tmc-sv", "tmc-sv-rounds")]
    strong = by_metric(where(e.excluded, dataset="mnist", distribution="strong", noise="none"))
    by_seed = {m.replace("excluded", "left"): strong[m] for m in listed}
    return {
        "cc-judged": len(verdicts),
        "cc-good": int((verdicts == REPRODUCED).sum()),
        "cc-bad": int((verdicts == NOT_REPRODUCED).sum()),
        "cc-base-off": f"{(base['mean'] - base.paper).abs().max():.1f}",
        "cc-runs-seeds": int(seeds.max()),
        "cc-runs-settings": len(seeds),
        "cc-error": f"{easy.aam_error.mean():.2f}",
        "cc-error-mean": f"{easy.round_error.mean():.2f}",
        "cc-mean-loo": f"{e.here['auc.loo'].mean():.2f}",
        "cc-mean-cca": f"{e.here['auc.fedccea'].mean():.2f}",
        "cc-ratio-few": f"{ratio.iloc[0]:.0f}",
        "cc-ratio-many": f"{ratio.iloc[-1]:.0f}",
        "cc-over-few": f"{over.iloc[0]:.0f}",
        "cc-over-many": f"{over.iloc[-1]:.1f}",
        "cc-unseen-below": int((first < 0).sum()),
        "cc-unseen-of": len(first),
        "cc-unseen-most": f"{100 * first.max():.0f}",
        "cc-unseen-nodes": f"{100 * means['unseen.connected'].max():.0f}",
        "cc-unseen-rival": f"{100 * means['unseen.same_round'].max():.0f}",
        "cc-half-most": f"{clean['rank.0.5'].max():.2f}",
        "cc-half-nodes": f"{clean['rank.0.5.connected'].max():.2f}",
        **{f"cc-crossed-{m}": crossed(e, m, "label-40") for m in ("loo", "tmc-sv", "fedccea")},
        **{f"cc-{name.replace('.', '-')}": in_order(x) for name, x in by_seed.items()},
    }


def in_order(values: Iterable[float]) -> str:
    """Write whole numbers, one per seed."""
    return ", ".join(f"{x:.0f}" for x in values)


def crossed(e: Evaluation, method: str, noise: str) -> int:
    """In how many seeds removing the lowest costs more than the highest at some place."""
    curves = wide(e.drawn, dataset="mnist", distribution="strong", noise=noise)
    curves = curves[curves.removed > 0]
    above = curves[f"{method}.lowest"] < curves[f"{method}.highest"]
    return int(above.groupby(curves.seed).any().sum())


def wide(series: pd.DataFrame, **settings: str) -> pd.DataFrame:
    """Series of one setting, one column each; a row per seed and place."""
    part = where(series, **settings)
    return part.pivot(index=["seed", "index"], columns="series", values="value").reset_index()


def numbers(e: Evaluation) -> dict[str, Any]:
    """All of them, intervals as text, by the names under which the pages show them."""
    signed = told(leads(e), 2, signed=True) | told(points(e), 1, signed=True)
    return signed | told(amounts(e), 1) | counts(e)


#: the main claims, and what each says
MAIN_CLAIMS = {
    "no-zeros.fedccea.strong": "FedCCEA gives no client an index of zero",
    "same-as-base.fedccea.strong": "without FedCCEA's zeros accuracy stays (loss at most 1 point)",
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


# What the figures and tables show


def of(metric: str, shown: Iterable[str] = RANKED) -> dict[str, str]:
    """Name a metric of some methods by their labels."""
    return {LABELS[m]: f"{metric}.{m}" for m in shown}


def over_retrained(metric: str) -> dict[str, tuple[str, str]]:
    """Name FedCCEA's leads over those who retrain."""
    return {
        f"{LABELS[a]}\nover {LABELS[b]}": (f"{metric}.{a}", f"{metric}.{b}")
        for a, b in product(FITS, ("tmc-sv", "loo"))
    }
