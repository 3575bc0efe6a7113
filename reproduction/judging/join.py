"""Claimed and measured, side by side: the join of a paper's claims with the records."""

from __future__ import annotations

import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from fedkit.extras import need
from fedkit.intervals import (
    Interval,
    bounded_interval,
    holm,
    kendalls_tau,
    kendalls_w,
    mean_interval,
    paired_interval,
    paired_p_value,
    settled,
)
from reproduction.judging.claim import BOUNDED, Claim, Claims
from reproduction.judging.judge import (
    NOT_ATTEMPTED,
    NOT_JUDGED,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    Judgement,
    judge_bound,
    judge_equal,
    judge_never,
    judge_ordering,
    judge_value,
)
from reproduction.judging.measured import OF_TABLES, Lookup, Numbers, numbers_of
from reproduction.judging.printed import printed_statistic
from reproduction.records.cell import canonical_json
from reproduction.records.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "join", "verdict_of"]

FloatArray = npt.NDArray[np.float64]

COLUMNS = [
    "claim", "kind", "where", "says", "paper", "unit", "mean", "low", "high", "seeds", "difference",
    "rule", "verdict", "also_fits", "other_rows", "by_construction", "after_runs", "note",
    "profile", "stale", "command", "values", "entry",
]  # fmt: skip
"""Columns of :func:`join`."""


def _of_table(claim: Claim, scores: FloatArray) -> FloatArray:
    """Return tau, W, or the share of columns won, of mean scores [..., columns, rows]."""
    scores = settled(scores, of=scores)
    if claim.rule == "best_share":  # the best is better than all others, and ties none
        return np.asarray((scores[..., 0] > scores[..., 1:].max(axis=-1)).mean(axis=-1))
    if claim.rule == "concordance":
        return kendalls_w(scores)
    return np.asarray(kendalls_tau(scores, claim.ours["printed"]).mean(axis=-1))


def _agreement_excluded(values: FloatArray, claim: Claim) -> bool:
    """Whether an order that agrees as claimed would seldom seem to agree as little as ours does.

    Noise pulls tau and W towards 0, so that an interval of resampled seeds lies too low to exclude
    a claim.  Instead scores on the way from ours to the claimed order (the printed one; of W that
    of our mean ranks), with gaps as ours have less what noise adds to them, are moved until they
    agree as claimed; to them our seeds' deviations are added, drawn with replacement (a bootstrap
    under the claim).
    """
    n, mean = len(values), values.mean(axis=0)
    if n < 2:
        return False
    apart = (values - mean) * math.sqrt(n / (n - 1))
    ours = mean - mean.mean(axis=-1, keepdims=True)
    noise = values.var(axis=0, ddof=1).mean(axis=-1, keepdims=True) / n
    spread = ours.var(axis=-1, ddof=1, keepdims=True)
    ours *= np.sqrt(np.clip(1 - noise / np.maximum(spread, 1e-300), 0, 1))
    if claim.rule == "concordance":
        order = np.tile(rankdata(mean, axis=-1).mean(axis=0), (len(mean), 1))
    else:
        order = np.asarray(claim.ours["printed"], dtype=np.float64)
    ranks = np.argsort(np.argsort(order, axis=-1), axis=-1)
    there = np.take_along_axis(np.sort(ours, axis=-1), ranks, axis=-1)
    way = np.linspace(0, 1, 101)[:, None, None]
    truths = ours + way * (there - ours)
    agreeing = _of_table(claim, truths) >= claim.bound
    truth = truths[np.argmax(agreeing)] if agreeing.any() else there
    draws = np.random.default_rng(0).integers(0, n, size=(2000, n))
    found = _of_table(claim, truth + apart[draws].mean(axis=1))
    as_little = found <= _of_table(claim, mean) + 1e-9
    return bool(as_little.mean() < (1 - claim.test.get("level", 0.95)) / 2)


def _interval(claim: Claim, values: FloatArray) -> Interval:
    """Return the interval of the mean; a percentage's cut to [0, 100], a probability's to [0, 1].

    Of a percentage of few things it is exact where all seeds have all or none.  Of the order of
    rows, and of how often a row is the best, it is the bootstrap interval, over the seeds, of their
    mean scores; that of an order reaches up to the bound unless :func:`_agreement_excluded`.
    """
    # an ordering has a test of its own, at the level of its rule
    level = 0.95 if claim.rule == "ordering" else claim.test.get("level", 0.95)
    if claim.rule in OF_TABLES and len(values):
        draws = np.random.default_rng(0).integers(0, len(values), size=(2000, len(values)))
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = np.quantile(_of_table(claim, values[draws].mean(axis=1)), ends)
        mean = float(_of_table(claim, values.mean(axis=0)))
        low, high = min(low, mean), max(high, mean)
        pulled = claim.rule != "best_share" and high < claim.bound
        if pulled and not _agreement_excluded(values, claim):
            high = claim.bound
        return Interval(mean, float(low), float(high), len(values))
    if claim.test.get("of_few"):
        return bounded_interval(values, 0.0, 100.0, level)
    paired = claim.against is not None or {"sweep", "pooled"} & set(claim.ours)
    interval = (paired_interval if paired else mean_interval)(values, level)
    most = 1.0 if claim.unit == "probability" else 100.0
    ranged = not paired and (claim.unit.startswith("%") or claim.unit == "probability")
    if ranged and np.all((values >= 0) & (values <= most)):
        return interval.within(0.0, most)
    return interval


# ------------------------------------------------------------------------------ verdicts


def _judge(
    claim: Claim, values: FloatArray, interval: Interval, p_value: float | None = None
) -> Judgement:
    """Apply a claim's rule to our numbers."""
    rule, test, paper = claim.rule, claim.test, claim.number
    least = int(test.get("min_seeds", 3))
    level = test.get("level", 0.95)
    if claim.rule in BOUNDED:
        at_most = rule == "at_most"
        limit, strict = test.get("limit"), rule == "best_share"
        return judge_bound(
            interval, claim.bound, at_most=at_most, limit=limit, strict=strict, min_seeds=least
        )
    if rule == "never":
        return judge_never(values, paper_seeds=claim.paper_seeds, min_seeds=least)
    if rule == "shown":
        return Judgement(NOT_TESTABLE, note=claim.untestable)
    if rule == "equal":
        assert paper is not None
        return judge_equal(values, paper, tolerance=test["rtol"] * abs(paper), min_seeds=least)
    size = {"margin": test["margin"], "min_seeds": least, "level": level}
    if rule in ("slope", "taper"):
        return judge_ordering(values, paper, sign=test["sign"], **size)
    size["paper_seeds"] = claim.paper_seeds
    if rule == "value":
        assert paper is not None
        spread = None if claim.spread is None else float(claim.spread)
        floor = interval.half_width if test.get("of_few") else 0.0
        return judge_value(values, paper, spread=spread, floor=floor, **size)
    sign = test.get("sign")  # where only a direction is claimed
    return judge_ordering(values, paper, sign=sign, p_value=p_value, **size)


def verdict_of(claim: Claim, values: FloatArray) -> str:
    """Return the verdict that our numbers, one per seed, give a claim on its own."""
    return _judge(claim, values, _interval(claim, values)).verdict


def _on_paper(claim: Claim, claims: Claims) -> tuple[float, Judgement]:
    """Judge a claim that needs no run: on the printed tables, or on an exact game."""
    paper = claim.bound if claim.rule in BOUNDED else claim.number
    assert paper is not None
    if claim.rule == "exact":
        value = float(claim.exact()())
        judged = judge_equal([value], paper, tolerance=float(claim.test["tolerance"]))
        return value, replace(judged, note="exact, no sampling")
    value = printed_statistic(claims, claim.test)
    held = {
        "printed": abs(value - paper) <= claim.test.get("margin", 0.0) + 1e-9,
        "printed_below": value < paper,
        "printed_above": value > paper,
    }[claim.rule]
    verdict = REPRODUCED if held else NOT_REPRODUCED
    return value, Judgement(verdict, value - paper, "computed from the paper's own tables")


def _adjusted(claims: Claims, numbers: dict[str, Numbers]) -> dict[str, float]:
    """Return Holm's p-values of the claims of families, each among those that are tested.

    A printed tie is judged by its size, and runs with too few seeds are not.
    """
    families: dict[str, list[str]] = {}
    for claim in claims.claims:
        if not claim.family or claim.id not in numbers or claim.number == 0:
            continue
        if len(numbers[claim.id].values) >= int(claim.test.get("min_seeds", 3)):
            families.setdefault(claim.family, []).append(claim.id)
    adjusted: dict[str, float] = {}
    for members in families.values():
        p_values = [paired_p_value(numbers[name].values)[0] for name in members]
        adjusted.update(zip(members, holm(p_values).tolist(), strict=True))
    return adjusted


def _rule_text(claim: Claim) -> str:
    # a margin is for a size, and none may be claimed
    unused = {"rule"} | ({"margin"} if claim.paper_value is None else set())
    unused |= {"level"} if claim.test.get("level", 0.95) == 0.95 else set()
    shown = ", ".join(f"{name} {value}" for name, value in claim.test.items() if name not in unused)
    return f"{claim.rule} ({shown})" if shown else claim.rule


def _command(claim: Claim, paper: str, profile: str) -> str:
    experiment = claim.ours.get("experiment")
    if experiment is None:
        return f"fedkit compare {paper} --profile {profile}"
    settings = claim.ours.get("settings", {})
    if claim.against is not None and claim.against["experiment"] == experiment:
        theirs = claim.against.get("settings", {})
        settings = {k: v for k, v in settings.items() if theirs.get(k) == v}
    only = ",".join(f"{name}={value}" for name, value in settings.items())
    return f"fedkit run {paper} {experiment} --profile {profile}" + (
        only and f" --only {shlex.quote(only)}"
    )


def join(
    claims: Claims, store: Store | None = None, *, profile: str = "paper", scale: str = "paper"
) -> pd.DataFrame:
    """Judge every claim of a paper by the records of one profile.

    Only records of the ``paper`` profile, made by the paper's protocol on the paper's data, are
    judged; numbers of other runs, where there are no others (reduced runs that the claims name,
    then those of the profile ``laptop``), are shown with the verdict "run, not judged" and what
    sets them apart.  Claims about the printed
    tables and about exact games need no records.

    Parameters
    ----------
    claims : Claims
        E.g. ``reproduction.claimfiles.load_claims("fedms")``.
    profile : {"smoke", "laptop", "paper"}
        Which records are looked up first.
    scale : {"paper", "smoke", "laptop"}
        The profile whose records are judged; another one than the paper's for claims whose protocol
        says in what these runs are reduced.  Such verdicts have no place in a report of the paper.

    Returns
    -------
    pandas.DataFrame
        One row per claim, in the order of the file, with the columns :data:`COLUMNS`; ``mean``,
        ``low``, ``high`` and ``difference`` are in the claim's unit and NaN where there is none.
        ``also_fits``, of a reproduced cell of a table, counts those of the ``other_rows`` of its
        column whose printed number ours would have reproduced as well.  ``values`` are ours, one
        per seed, and ``entry`` is the :class:`~reproduction.judging.claim.Claim`.
    """
    pd = need("pandas", extra="run")
    store = Store() if store is None else store
    key = str(claims.paper["key"])
    found: dict[str, Numbers] = {}
    origin: dict[str, str] = {}  # the profile of those numbers
    stale: set[str] = set()
    passes = [(profile, False)]
    if profile == scale:
        passes += [(profile, True)] * bool(claims.reduced)
        passes += [("laptop", False)] * (profile != "laptop")
    for size, reduced in passes:
        open_ = [claim for claim in claims.claims if claim.id not in found]
        lookup = Lookup(claims, store, size, reduced=reduced)
        there = {claim.id: numbers_of(claim, lookup) for claim in open_}
        found |= {
            name: numbers
            for name, numbers in there.items()
            if numbers is not None and (len(numbers.values) or not reduced)
        }
        origin |= {name: size for name in found.keys() - origin.keys()}
        stale |= lookup.stale
    judgeable = {
        claim.id: found[claim.id]
        for claim in claims.claims
        if origin.get(claim.id) == scale and not (found[claim.id].bar or claim.untestable)
    }
    adjusted = _adjusted(claims, judgeable)
    columns: dict[str, list[Claim]] = {}  # cells of each column of the printed tables
    for claim in claims.claims:
        if claim.place.get("table") in claims.tables:
            columns.setdefault(_column(claim), []).append(claim)
    rows = []
    for claim in claims.claims:
        numbers = found.get(claim.id, Numbers(np.empty(0)))
        size = origin.get(claim.id, "")
        interval = _interval(claim, numbers.values)
        if claim.rule == "exact" or claim.rule.startswith("printed"):
            value, judged = _on_paper(claim, claims)
            interval = Interval(value, math.nan, math.nan, 0)
        elif claim.untestable:
            judged = Judgement(NOT_TESTABLE, note=claim.untestable)
        elif not size:
            judged = Judgement(NOT_ATTEMPTED, note=f"no record at profile {profile}")
        elif claim.id not in judgeable:
            other = f"profile {size}, not {scale}" if size != scale else ""
            judged = Judgement(NOT_JUDGED, note="; ".join(filter(None, (other, numbers.bar))))
        else:
            judged = _judge(claim, numbers.values, interval, adjusted.get(claim.id))
        # What our number would have reproduced as well: a tick that tells rows apart fits none.
        others: list[Claim] = []
        if judged.verdict == REPRODUCED and claim.rule == "value":
            others = [c for c in columns.get(_column(claim), ()) if c.id != claim.id]
        fitting = (
            _judge(
                replace(claim, paper_value=c.paper_value, spread=c.spread), numbers.values, interval
            )
            for c in others
        )
        none = claim.untestable and not size  # no run could make its record
        same = ("kind", "where", "says", "unit", "by_construction", "after_runs")
        row: dict[str, Any] = {name: getattr(claim, name) for name in same} | {
            "claim": claim.id,
            "paper": claim.paper_value,
            "mean": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "seeds": interval.n,
            # from a number of the paper's, not from a bound of ours
            "difference": math.nan if claim.paper_value is None else judged.difference,
            "rule": _rule_text(claim),
            "verdict": judged.verdict,
            "also_fits": sum(j.verdict == REPRODUCED for j in fitting) if others else math.nan,
            "other_rows": len(others) or math.nan,
            "note": judged.note,
            "profile": size,
            "stale": bool(numbers.keys & stale),
            "command": "" if none else _command(claim, key, size or profile),
            "values": tuple(numbers.values.tolist()) if numbers.values.ndim == 1 else (),
            "entry": claim,
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def _column(claim: Claim) -> str:
    return canonical_json({name: v for name, v in claim.place.items() if name != "row"})
