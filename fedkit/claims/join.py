"""Claimed and measured, side by side: the join of a paper's claims with the records."""

from __future__ import annotations

import importlib
import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedkit.claims.claim import BOUNDED, Claim, Claims, ClaimsError, load_claims
from fedkit.claims.judge import (
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
from fedkit.claims.measured import Lookup, numbers_of
from fedkit.claims.printed import printed_statistic
from fedkit.extras import need
from fedkit.intervals import (
    Interval,
    holm,
    kendalls_tau,
    kendalls_w,
    mean_interval,
    paired_interval,
    paired_p_value,
)
from fedkit.records.cell import canonical_json
from fedkit.records.store import Store

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "join"]

FloatArray = npt.NDArray[np.float64]

COLUMNS = [
    "claim", "kind", "where", "says", "paper", "unit", "mean", "low", "high", "seeds", "difference",
    "rule", "verdict", "also_fits", "other_rows", "by_construction", "after_runs", "note",
    "profile", "stale", "command",
]  # fmt: skip
"""Columns of :func:`join`."""


def _interval(claim: Claim, values: FloatArray) -> Interval:
    level = claim.test.get("level", 0.95)
    rule = claim.test["rule"]
    if rule in ("concordance", "rank_agreement"):
        if not len(values):
            return Interval(math.nan, math.nan, math.nan, 0)

        def statistic(scores: FloatArray) -> FloatArray:
            """Of mean scores [..., columns, rows]."""
            if rule == "concordance":
                return kendalls_w(scores)
            return np.asarray(kendalls_tau(scores, claim.ours["printed"]).mean(axis=-1))

        rng = np.random.default_rng(0)
        draws = rng.integers(0, len(values), size=(2000, len(values)))
        spread = statistic(values[draws].mean(axis=1))
        low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(statistic(values.mean(axis=0))), float(low), float(high), len(values))
    if claim.against is not None or "sweep" in claim.ours or "pooled" in claim.ours:
        return paired_interval(values, level)
    return mean_interval(values, level)


def _within(claim: Claim, interval: Interval, values: FloatArray) -> Interval:
    """Cut a percentage's interval to [0, 100], a probability's to [0, 1]; differences stay."""
    most = 1.0 if claim.unit == "probability" else 100.0
    ranged = claim.unit.startswith("%") or claim.unit == "probability"
    if not ranged or np.any((values < 0) | (values > most)):
        return interval
    return interval.within(0.0, most)


# ------------------------------------------------------------------------------ verdicts


def _judge_size(
    claim: Claim, values: FloatArray, seeds: int, printed: Claim | None = None
) -> Judgement:
    """Judge our numbers by a claim's rule of sizes, on its own printed number or another's."""
    number = claim if printed is None else printed
    assert number.number is not None
    return judge_value(
        values,
        number.number,
        margin=claim.test["margin"],
        spread=None if number.spread is None else float(number.spread),
        paper_seeds=seeds,
        min_seeds=int(claim.test.get("min_seeds", 3)),
        level=claim.test.get("level", 0.95),
    )


def _judge(claim: Claim, values: FloatArray, p_value: float | None, seeds: int) -> Judgement:
    """Apply a claim's rule to our numbers."""
    test, paper = claim.test, claim.number
    least = int(test.get("min_seeds", 3))
    common = {"min_seeds": least, "level": test.get("level", 0.95)}
    rule = test["rule"]
    if rule == "value":
        assert paper is not None
        return _judge_size(claim, values, seeds)
    if rule in ("ordering", "mean_gain"):
        sign = test.get("sign")  # where only a direction is claimed
        return judge_ordering(
            values, paper, margin=test["margin"], sign=sign, p_value=p_value, paper_seeds=seeds,
            **common,
        )  # fmt: skip
    if rule in ("slope", "taper"):
        return judge_ordering(values, paper, margin=test["margin"], sign=test["sign"], **common)
    if rule in ("at_most", "at_least", "concordance", "rank_agreement", "best_share"):
        interval = _within(claim, _interval(claim, values), values)
        return judge_bound(
            interval, claim.bound, at_most=rule == "at_most", limit=test.get("limit"),
            min_seeds=least,
        )  # fmt: skip
    if rule == "never":
        return judge_never(values, min_seeds=least)
    if rule == "equal":
        assert paper is not None
        tolerance = float(test["rtol"]) * abs(paper)
        return judge_equal(values, paper, tolerance=tolerance, min_seeds=least)
    return Judgement(NOT_TESTABLE, note=claim.untestable)


def _columns(claims: Claims) -> dict[str, list[Claim]]:
    """Return the cells of each column of the printed tables, by what their places share."""
    columns: dict[str, list[Claim]] = {}
    for claim in claims.claims:
        if claim.place.get("table") in claims.tables:
            columns.setdefault(_column(claim), []).append(claim)
    return columns


def _column(claim: Claim) -> str:
    return canonical_json({name: v for name, v in claim.place.items() if name != "row"})


def _on_paper(claim: Claim, claims: Claims) -> tuple[float, Judgement]:
    """Judge a claim that needs no run: on the printed tables, or on an exact game."""
    test = claim.test
    paper = claim.bound if test["rule"] in BOUNDED else claim.number
    assert paper is not None
    if test["rule"] == "exact":
        module, _, name = str(claim.ours["check"]).partition(":")
        if not module.startswith("fedkit."):
            raise ClaimsError(f"claim {claim.id} names the check {module}; checks are of fedkit")
        value = float(getattr(importlib.import_module(module), name)())
        judged = judge_equal([value], paper, tolerance=float(test["tolerance"]))
        return value, Judgement(judged.verdict, judged.difference, "exact, no sampling")
    value = printed_statistic(claims, test)
    difference = value - paper
    held = {
        "printed": abs(difference) <= test.get("margin", 0.0) + 1e-9,
        "printed_below": value < paper,
        "printed_above": value > paper,
    }[test["rule"]]
    verdict = REPRODUCED if held else NOT_REPRODUCED
    return value, Judgement(verdict, difference, "computed from the paper's own tables")


def _rule_text(claim: Claim) -> str:
    test = dict(claim.test)
    rule = test.pop("rule")
    # a margin is for a size, and none may be claimed
    unused = {"level"} if claim.paper_value is not None else {"level", "margin"}
    shown = ", ".join(f"{name} {value}" for name, value in test.items() if name not in unused)
    return f"{rule} ({shown})" if shown else rule


def _command(claim: Claim, paper: str, profile: str) -> str:
    experiment = claim.ours.get("experiment")
    if experiment is None:
        return f"fedkit compare {paper} --profile {profile}"
    settings = {**claim.ours.get("settings", {})}
    if claim.against is not None and claim.against["experiment"] == experiment:
        settings = {
            k: v for k, v in settings.items() if claim.against.get("settings", {}).get(k) == v
        }
    only = ",".join(f"{name}={value}" for name, value in settings.items())
    return f"fedkit run {paper} {experiment} --profile {profile}" + (only and f" --only {only}")


def join(
    paper: str | Claims,
    store: Store | None = None,
    *,
    profile: str = "paper",
    scale: str = "paper",
) -> pd.DataFrame:
    """Judge every claim of a paper by the records of one profile.

    Only records of the ``paper`` profile, made by the paper's protocol on the paper's data, are
    judged; numbers of other runs are shown with the verdict "run, not judged" and what sets them
    apart.  Claims about the printed tables and about exact games need no records.

    Parameters
    ----------
    paper : str or Claims
        Name of a claims file, or its content.
    store : Store, optional
        By default the store at :func:`fedkit.records.store.default_root`.
    profile : {"smoke", "laptop", "paper"}
        Which records are looked up.
    scale : {"paper", "smoke", "laptop"}
        The profile whose records are judged; another one than the paper's for claims whose protocol
        says in what these runs are reduced.  Such verdicts have no place in a report of the paper.

    Returns
    -------
    pandas.DataFrame
        One row per claim, in the order of the file, with the columns :data:`COLUMNS`; ``mean``,
        ``low``, ``high`` and ``difference`` are in the claim's unit and NaN where there is none.
        ``also_fits``, of a reproduced cell of a table, counts those of the ``other_rows`` of its
        column whose printed number ours would have reproduced as well.  ``frame.attrs`` holds the
        ``claims`` and the ``values`` of each, one per seed.

    Raises
    ------
    ClaimsError
        If a claim's settings fit records of several settings.
    RecordError
        If a record is damaged.
    """
    pd = need("pandas", extra="run")
    claims = load_claims(paper) if isinstance(paper, str) else paper
    lookup = Lookup(claims, Store() if store is None else store, profile)
    found = {claim.id: numbers_of(claim, lookup) for claim in claims.claims}
    blank = partial(Interval, math.nan, math.nan, math.nan, 0)

    def judgeable(claim: Claim) -> bool:
        numbers = found[claim.id]
        return profile == scale and numbers is not None and not (numbers.bar or claim.untestable)

    adjusted: dict[str, float] = {}
    for family in dict.fromkeys(claim.family for claim in claims.claims if claim.family):
        members = [c for c in claims.claims if c.family == family and judgeable(c)]
        p_values = [paired_p_value(found[c.id].values)[0] for c in members]  # type: ignore[union-attr]
        adjusted.update(zip((c.id for c in members), holm(p_values).tolist(), strict=True))

    columns = _columns(claims)
    rows = []
    for claim in claims.claims:
        seeds = int(claim.test.get("paper_seeds") or claims.paper.get("seeds") or 1)
        numbers = found[claim.id]
        interval = blank()
        if numbers is not None:
            interval = _within(claim, _interval(claim, numbers.values), numbers.values)
        if claim.test["rule"] == "exact" or claim.test["rule"].startswith("printed"):
            value, judged = _on_paper(claim, claims)
            interval = Interval(value, math.nan, math.nan, 0)
        elif claim.untestable:
            judged = Judgement(NOT_TESTABLE, note=claim.untestable)
        elif numbers is None:
            judged = Judgement(NOT_ATTEMPTED, note=f"no record at profile {profile}")
        elif not judgeable(claim):
            judged = Judgement(NOT_JUDGED, note=numbers.bar or f"profile {profile}, not {scale}")
        else:
            judged = _judge(claim, numbers.values, adjusted.get(claim.id), seeds)
        # What our number would have reproduced as well: a tick that tells rows apart fits none.
        others = [c for c in columns.get(_column(claim), ()) if c.id != claim.id]
        fits = math.nan
        if others and judged.verdict == REPRODUCED and claim.test["rule"] == "value":
            assert numbers is not None
            fitting = (_judge_size(claim, numbers.values, seeds, other) for other in others)
            fits = sum(other.verdict == REPRODUCED for other in fitting)
        rows.append(
            {
                "claim": claim.id,
                "kind": claim.kind,
                "where": claim.where,
                "says": claim.says,
                "paper": claim.paper_value,
                "unit": claim.unit,
                "mean": interval.mean,
                "low": interval.low,
                "high": interval.high,
                "seeds": interval.n,
                # from a number of the paper's, not from a bound of ours
                "difference": math.nan if claim.paper_value is None else judged.difference,
                "rule": _rule_text(claim),
                "verdict": judged.verdict,
                "also_fits": fits,
                "other_rows": len(others) if math.isfinite(fits) else math.nan,
                "by_construction": claim.by_construction,
                "after_runs": claim.after_runs,
                "note": judged.note,
                "profile": profile if numbers is not None else "",
                "stale": bool(numbers is not None and numbers.keys & lookup.stale),
                "command": _command(claim, str(claims.paper["key"]), profile),
            }
        )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame.attrs["claims"] = claims
    # tuples: pandas copies and compares what a frame carries
    frame.attrs["values"] = {
        name: tuple(n.values.tolist())
        for name, n in found.items()
        if n is not None and n.values.ndim == 1
    }
    return frame
