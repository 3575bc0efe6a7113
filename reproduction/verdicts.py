"""From claims and records to verdicts: the rules of ``book/policy.md`` as functions.

"Reproduced" needs evidence, and "not reproduced" as much; what leaves both open is "inconclusive".
But ten seeds without any reproduce "none", which no number of seeds can show.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import fisher_exact, rankdata
from scipy.stats import t as student

from fedkit.intervals import (
    Interval,
    bounded_interval,
    finite,
    holm,
    kendalls_tau,
    mean_interval,
    paired_interval,
    paired_p_value,
    settled,
)
from reproduction.claims import Claim, Claims
from reproduction.measured import OF_TABLES, Measured, Numbers
from reproduction.printed import printed_statistic
from reproduction.readings import Reading, readings_of, under
from reproduction.records import Store
from reproduction.statistics import difference_half_width, kendalls_w

FloatArray = npt.NDArray[np.float64]

REPRODUCED = "reproduced"
DIRECTION = "reproduced in direction, not in size"
INCONCLUSIVE = "inconclusive"
SIZE_EXCLUDED = "sign open, printed size excluded"
UNDECIDABLE = "cannot be decided"
NOT_REPRODUCED = "not reproduced"
TURNS = "turns on a lost number"
NOT_JUDGED = "run, not judged"
NOT_ATTEMPTED = "not attempted (cost)"
NOT_TESTABLE = "not testable"

ICONS = {
    REPRODUCED: "✓", DIRECTION: "↗", INCONCLUSIVE: "?", SIZE_EXCLUDED: "≠", UNDECIDABLE: "⊘",
    NOT_REPRODUCED: "✗", TURNS: "⇄", NOT_JUDGED: "○", NOT_ATTEMPTED: "–", NOT_TESTABLE: "∅",
}  # fmt: skip
"""Icon of each verdict, always shown with its words."""

VERDICTS = tuple(ICONS)
"""The closed list of verdicts."""

LOOKS = {
    REPRODUCED: ("reproduced", 2), DIRECTION: ("in direction only", 5),
    TURNS: ("turns on a lost number", 0), SIZE_EXCLUDED: ("sign open, size excluded", 3),
    INCONCLUSIVE: ("inconclusive", 4), NOT_REPRODUCED: ("not reproduced", 1),
    "other": ("cannot be decided, or not judged", 6),
}  # fmt: skip
"""How verdicts look in a figure: words, and a place in the palette."""

UNJUDGED = (NOT_JUDGED, NOT_ATTEMPTED, NOT_TESTABLE)
"""Those that say nothing of the claim itself."""

NONE_FROM = 10
"""Seeds from which "none" can be reproduced; of ten without any up to 30.8% may have some."""

HOLDS, FAILS = (REPRODUCED, DIRECTION), (NOT_REPRODUCED,)
"""The verdicts for a claim, and against it."""

DECIDED = (*HOLDS, *FAILS, TURNS)
"""Those that decide it: the last for one reading, and against another."""

COLUMNS = [
    "claim", "finding", "kind", "where", "says", "paper", "unit", "mean", "low", "high", "seeds",
    "difference", "rule", "verdict", "also_fits", "other_rows", "by_construction", "after_runs",
    "note", "profile", "stale", "command", "values", "entry",
]  # fmt: skip
"""Columns of :func:`join`."""


def verdict_text(verdict: str) -> str:
    """Write a verdict as its icon and its words."""
    return f"{ICONS[verdict]} {verdict}"


@dataclass(frozen=True)
class Judgement:
    """One of :data:`VERDICTS`, and what it rests on.

    The difference is ours minus the paper's, in the claim's unit, NaN where there is none; the note
    says why, in a few words, and names the assumption where one was made.
    """

    verdict: str
    difference: float = math.nan
    note: str = ""


# ------------------------------------------------------------------------------ intervals


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

    A bootstrap under the claim: scores with our gaps, less what noise adds to them, are moved
    towards the claimed order (the printed one; of W that of our mean ranks) until they agree as
    claimed, and our seeds' deviations are added, drawn with replacement.
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


def _table_interval(claim: Claim, values: FloatArray, level: float) -> Interval:
    """Return the bootstrap interval, over the seeds, of what the rule says of mean scores.

    That of an order reaches up to the bound unless :func:`_agreement_excluded`.
    """
    draws = np.random.default_rng(0).integers(0, len(values), size=(2000, len(values)))
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(_of_table(claim, values[draws].mean(axis=1)), ends)
    mean = float(_of_table(claim, values.mean(axis=0)))
    low, high = min(low, mean), max(high, mean)
    pulled = claim.rule != "best_share" and high < claim.bound
    if pulled and not _agreement_excluded(values, claim):
        high = claim.bound
    return Interval(mean, float(low), float(high), len(values))


def _levels(claim: Claim, values: FloatArray) -> FloatArray:
    """Return the numbers of a claim by seed; none of a table's."""
    if claim.rule == "place" and values.ndim == 3:  # its own row stands first
        return values[:, 0, 0]
    return values if values.ndim == 1 else np.empty(0)


def interval_of(claim: Claim, values: FloatArray) -> Interval:
    """Return the interval of the mean; a percentage's cut to [0, 100], a probability's to [0, 1].

    Of a percentage of few things it is exact where all seeds have all or none.
    """
    # an ordering has a test of its own, at the level of its rule
    level = 0.95 if claim.rule == "ordering" else claim.test.get("level", 0.95)
    if claim.rule in OF_TABLES and len(values):
        return _table_interval(claim, values, level)
    values = _levels(claim, values)
    if claim.test.get("of_few"):
        return bounded_interval(values, 0.0, 100.0, level)
    several = {"sweep", "pooled"} & set(claim.ours) and claim.rule != "place"
    paired = claim.against is not None or several
    interval = (paired_interval if paired else mean_interval)(values, level)
    most = 1.0 if claim.unit == "probability" else 100.0
    ranged = not paired and (claim.unit.startswith("%") or claim.unit == "probability")
    if ranged and np.all((values >= 0) & (values <= most)):
        return interval.within(0.0, most)
    return interval


# ---------------------------------------------------------------------------------- rules


def _compare(difference: float, half_width: float, margin: float) -> str:
    """Judge a size: equivalent, surely beyond the margin, or open.

    The one rule of every size.  At 95% both errors are 2.5% at most: of calling sizes equivalent
    that differ by the margin, and of calling them different that do not.
    """
    edge = margin * (1 + 1e-9)  # a difference of two numbers is at the margin but for rounding
    if abs(difference) + half_width <= edge:
        return REPRODUCED
    if abs(difference) - half_width > edge:
        return NOT_REPRODUCED
    return INCONCLUSIVE


def _value(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge a printed number, with or without its spread (T3), by the whole interval.

    The interval of ours minus the paper's is Welch's with a printed standard deviation of its
    runs; without it the prediction interval, which takes the paper's runs to spread like ours.
    """
    spread = None if claim.spread is None else float(claim.spread)
    level, margin = claim.test.get("level", 0.95), claim.test["margin"]
    d = float(x.mean()) - claim.bound
    h = difference_half_width(x, spread, claim.paper_seeds, level)
    name = "prediction" if spread is None else "Welch"
    if claim.test.get("of_few") and cut.half_width > h:  # of shares that are all 0, say
        name, h = "exact", cut.half_width
    note = f"{name} half-width {h:.2g}, margin {margin:g}"
    if h == 0:
        note += ", all seeds alike: the margin alone decides"
    verdict = _compare(d, h, margin)
    if verdict == INCONCLUSIVE and (theirs := printed_half_width(claim)) > margin:
        return Judgement(
            UNDECIDABLE, d, f"{note}; by the printed spread alone at least {theirs:.2g}"
        )
    return Judgement(verdict, d, note)


def printed_half_width(claim: Claim) -> float:
    """Least half-width that any seeds of ours could have beside a printed spread; 0 without one.

    It is Welch's for endless seeds of ours, with the variance, as a multiple of that of the paper's
    mean, that makes it least.
    """
    if claim.spread is None or claim.paper_seeds < 2:
        return 0.0
    level, runs = claim.test.get("level", 0.95), claim.paper_seeds
    ours = np.linspace(0, 4, 401)
    factor = student.ppf((1 + level) / 2, (1 + ours) ** 2 * (runs - 1)) * np.sqrt(1 + ours)
    return float(factor.min() * float(claim.spread) / math.sqrt(runs))


def cannot_be_decided(claim: Claim) -> bool:
    """Whether the printed spread forbids every run of ours to reproduce a number.

    It needs no record, so such claims can be listed before there is one.
    """
    if claim.rule != "value" or claim.untestable:
        return False
    return printed_half_width(claim) > claim.test["margin"]


def _ordering(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge a difference, a slope or a contrast by its direction, then its size (T4, T5).

    The direction is by the interval of our mean paired difference and the test, the size, where
    one is printed, as that of a number.
    """
    sign = claim.test.get("sign")
    if sign is None and claim.number == 0:  # a printed tie is a value, not an order
        tie = _value(claim, x, cut, None)
        if len(x) and not x.any() and tie.verdict == REPRODUCED:
            return replace(tie, note="the two are equal in every seed: it holds trivially")
        return tie
    sign = sign or math.copysign(1, claim.bound)
    level = claim.test.get("level", 0.95)
    raw, test = paired_p_value(x)
    p = raw if p_value is None else p_value
    interval = paired_interval(x, level)
    note = f"{test}, p = {p:.2g}" + (" (Holm)" if p_value is not None else "")
    sure = p < 1 - level and not interval.low <= 0 <= interval.high
    difference, agrees, fits_none = math.nan, REPRODUCED, False
    if claim.number is not None:
        margin = claim.test["margin"]
        difference = interval.mean - claim.number
        h = difference_half_width(x, None, claim.paper_seeds, level)
        agrees = _compare(difference, h, margin)
        fits_none = _compare(interval.mean, h, margin) == REPRODUCED
        note += f"; size: half-width {h:.2g}, margin {margin:g}"
    if not sure:
        verdict = SIZE_EXCLUDED if agrees == NOT_REPRODUCED else INCONCLUSIVE
    elif interval.mean * sign < 0:
        verdict, note = NOT_REPRODUCED, f"the other sign; {note}"
    else:
        verdict = REPRODUCED if agrees == REPRODUCED else DIRECTION
        if verdict == REPRODUCED and fits_none:
            note += "; no difference would fit the size as well: the sign alone tells"
    return Judgement(verdict, difference, note)


def _place(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge a cell by how far its row is from the mean of the column's other rows (T3, places).

    Where the printed distance is within what rounding can be, only its size is judged.
    """
    rows = x[:, 0]
    apart = settled(rows[:, 0] - rows[:, 1:].mean(axis=1), of=rows)
    (printed,) = claim.ours["printed"]
    place = printed[0] - float(np.mean(printed[1:]))
    digits = len(str(claim.paper_value).partition(".")[2])
    as_place = replace(claim, paper_value=f"{place:+.{digits + 1}f}", spread=None)
    rule = _value if abs(place) <= 10.0**-digits * (1 + 1e-9) else _ordering
    told = rule(as_place, apart, cut, None)
    note = (
        f"{apart.mean():+.{digits + 1}f} from the other rows' mean, printed {place:+.{digits + 1}f}"
    )
    return replace(told, difference=cut.mean - claim.bound, note=f"{note}; {told.note}")


def _bound(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge "at most" or "at least" by the side of the bound on which the interval lies (T5, T6).

    "Best in most settings" excludes the bound itself.  The limit is the other end of what the
    sentence can mean.  "Tells them apart only partially" is at most 0.9, and not below chance
    either: what lies beyond the limit is upside down.
    """
    bound, limit = claim.bound, claim.test.get("limit")
    d = cut.mean - bound
    sign = 1 if claim.rule == "at_most" else -1
    # signed so that low numbers are inside; a mean of equal numbers may round
    low, high = sorted((sign * (cut.low - bound), sign * (cut.high - bound)))
    slack = 1e-9 * abs(bound)
    reach = -slack if claim.rule == "best_share" else slack
    inside, outside = high <= reach, low > reach
    note = f"bound {bound:g}"
    if cut.half_width <= slack:
        note += ", all seeds or draws of them alike: no spread to judge by"
    if limit is not None:
        end = sign * (limit - bound)
        inside &= low >= end - slack
        if high < end - slack:
            return Judgement(NOT_REPRODUCED, d, f"{note}, upside down: beyond {limit:g}")
        note += f", limit {limit:g}"
    if inside:
        return Judgement(REPRODUCED, d, note)
    return Judgement(NOT_REPRODUCED if outside else INCONCLUSIVE, d, note)


def _equal(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge an identity: every value equals the expected one within the tolerance (T0)."""
    expected = claim.bound
    tolerance = claim.test.get("tolerance", claim.test.get("rtol", 0.0) * abs(expected))
    worst = float(x[np.argmax(np.abs(x - expected))] - expected)
    verdict = REPRODUCED if abs(worst) <= tolerance else NOT_REPRODUCED
    note = f"worst seed off by {worst:g}, tolerance {tolerance:g}"
    return Judgement(verdict, float(x.mean()) - expected, note)


def _never(claim: Claim, x: FloatArray, cut: Interval, p_value: float | None) -> Judgement:
    """Judge "none" by counts, which cannot be negative (T3).

    It is not reproduced where every seed has some, or more than chance gives beside the paper's
    seeds, none of which has (Fisher's exact test, one-sided).
    """
    some = int((x != 0).sum())
    note = f"in {some} of {len(x)} seeds"
    if not some:
        note += f": at most {bounded_interval(x, 0.0, 100.0).high:.1f}%, by the exact interval"
        if len(x) >= NONE_FROM:
            return Judgement(REPRODUCED, 0.0, note)
        return Judgement(INCONCLUSIVE, 0.0, f"{note}; a tick needs {NONE_FROM} seeds")
    runs = claim.paper_seeds
    p = float(fisher_exact([[some, len(x) - some], [0, runs]], alternative="greater").pvalue)
    note += f", of the paper's in 0 of {runs}: Fisher's exact test, p = {p:.2g}"
    surely = some == len(x) or p < 0.025
    return Judgement(NOT_REPRODUCED if surely else INCONCLUSIVE, float(x.mean()), note)


RULES: dict[str, Callable[[Claim, FloatArray, Interval, float | None], Judgement]] = {
    "value": _value, "place": _place, "ordering": _ordering, "mean_gain": _ordering,
    "slope": _ordering, "taper": _ordering, "at_most": _bound, "at_least": _bound,
    "concordance": _bound, "rank_agreement": _bound, "best_share": _bound, "equal": _equal,
    "exact": _equal, "never": _never,
}  # fmt: skip
"""What judges finite numbers of ours, one per seed, by the rule of a claim."""


def judge(
    claim: Claim, values: FloatArray, cut: Interval | None = None, p_value: float | None = None
) -> Judgement:
    """Apply a claim's rule to our numbers, one per seed; `p_value` is adjusted for its family."""
    cut = interval_of(claim, values) if cut is None else cut
    # of identities one seed tells, of all others no single one
    least = int(claim.test.get("min_seeds", 3))
    least = max(least, 1 if RULES[claim.rule] is _equal else 2)
    if cut.n < least:
        verdict, note = INCONCLUSIVE, f"{cut.n} of at least {least} seeds"
        if cannot_be_decided(claim):
            verdict = UNDECIDABLE
            note += f"; by the printed spread alone at least {printed_half_width(claim):.2g}"
        return Judgement(verdict, note=note)
    return RULES[claim.rule](
        claim, values if claim.rule == "place" else finite(values), cut, p_value
    )


# ------------------------------------------------------------------------------- the join


def _on_paper(claim: Claim, claims: Claims) -> tuple[float, Judgement]:
    """Judge a claim that needs no run: on the printed tables, or on an exact game."""
    if claim.rule == "exact":
        exact = np.array([claim.exact()])
        judged = _equal(claim, exact, mean_interval(exact), None)
        return float(exact[0]), replace(judged, note="exact, no sampling")
    value, paper = printed_statistic(claims, claim.test), claim.bound
    held = {
        "printed": abs(value - paper) <= claim.test.get("margin", 0.0) + 1e-9,
        "printed_below": value < paper,
        "printed_above": value > paper,
    }[claim.rule]
    verdict = REPRODUCED if held else NOT_REPRODUCED
    return value, Judgement(verdict, value - paper, "computed from the paper's own tables")


def _adjusted(claims: Claims, numbers: Mapping[str, Numbers]) -> dict[str, float]:
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


def judge_all(
    claims: Claims,
    numbers: Mapping[str, Numbers],
    profile: str = "paper",
    scale: str = "paper",
    only: Container[str] | None = None,
) -> dict[str, tuple[Interval, Judgement]]:
    """Judge every claim, or those named, by our numbers: the interval of the mean, the verdict."""
    judgeable = {
        claim.id: numbers[claim.id]
        for claim in claims.claims
        if claim.id in numbers
        and numbers[claim.id].profile == scale
        and not (numbers[claim.id].bar or claim.untestable)
    }
    adjusted = _adjusted(claims, judgeable)
    judged = {}
    for claim in claims.claims:
        if only is not None and claim.id not in only:
            continue
        found = numbers.get(claim.id, Numbers(np.empty(0)))
        if claim.rule == "exact" or claim.rule.startswith("printed"):
            value, told = _on_paper(claim, claims)
            judged[claim.id] = Interval(value, math.nan, math.nan, 0), told
            continue
        cut = interval_of(claim, found.values)
        if claim.untestable:
            told = Judgement(NOT_TESTABLE, note=claim.untestable)
        elif not found.profile:
            told = Judgement(NOT_ATTEMPTED, note=f"no record at profile {profile}")
        elif claim.id not in judgeable:
            other = f"profile {found.profile}, not {scale}" if found.profile != scale else ""
            told = Judgement(NOT_JUDGED, note="; ".join(filter(None, (other, found.bar))))
        else:
            told = judge(claim, found.values, cut, adjusted.get(claim.id))
        judged[claim.id] = cut, told
    return judged


@dataclass(frozen=True)
class Moved:
    """A claim that is judged in another reading too: what is said there, and here."""

    claim: str
    reading: Reading
    before: str
    after: str

    @property
    def turned(self) -> bool:
        """Whether it is true in one of the two and false in the other."""
        here, there = ((v in HOLDS) - (v in FAILS) for v in (self.before, self.after))
        return here * there < 0


class Judged:
    """A paper's claims, judged by the records of one profile, in our reading and in others."""

    def __init__(self, claims: Claims, store: Store, profile: str, scale: str) -> None:
        self.claims, self.profile, self.scale = claims, profile, scale
        self.measured = Measured(claims, store, profile, scale)
        self.numbers = self.measured.numbers()
        self.verdicts = judge_all(claims, self.numbers, profile, scale)
        self._moved: dict[Reading, list[Moved]] = {}

    def otherwise(self) -> Iterator[tuple[Reading, list[Moved]]]:
        """Yield each other reading with the claims that are judged in it as well."""
        for reading in readings_of(self.claims.paper["key"]):
            yield reading, self.moved(reading)

    def moved(self, reading: Reading) -> list[Moved]:
        """Return the claims that are judged in another reading as well; each is asked once."""
        if reading not in self._moved:
            self._moved[reading] = list(self._judge(reading))
        return self._moved[reading]

    def _judge(self, reading: Reading) -> Iterator[Moved]:
        """Judge the claims in another reading, where it has other records that are judged too."""
        other, numbers = under(self.claims, reading), self.numbers
        asked = {
            claim.id
            for claim, elsewhere in zip(self.claims.claims, other.claims, strict=True)
            if claim != elsewhere
            or claim.rule == "concordance"
            or self.claims.protocol != other.protocol
        }
        found = self.measured.numbers(other, asked)
        there = {name: x for name, x in numbers.items() if name not in asked} | found
        changed = [
            claim.id
            for claim in self.claims.claims
            if claim.id in numbers.keys() & found.keys() and not claim.by_construction
            if not numbers[claim.id].alike(found[claim.id])
            and numbers[claim.id].values.shape[1:] == found[claim.id].values.shape[1:]
        ]
        after = judge_all(other, there, scale=self.scale, only=set(changed))
        for name in changed:
            pair = self.verdicts[name][1].verdict, after[name][1].verdict
            if not set(pair) & set(UNJUDGED):
                yield Moved(name, reading, *pair)

    def frame(self) -> pd.DataFrame:
        """Return a row for each claim, as :func:`join` says; some turn in another reading."""
        claims, verdicts = self.claims, dict(self.verdicts)
        for reading in readings_of(claims.paper["key"]):
            for moved in self.moved(reading) if reading.admissible else ():
                if moved.turned:
                    cut, told = verdicts[moved.claim]
                    note = f"{moved.before} here, {moved.after} with {reading.other}; {told.note}"
                    verdicts[moved.claim] = cut, replace(told, verdict=TURNS, note=note)
        columns: dict[str, list[Claim]] = {}  # cells of each column of the printed tables
        for claim in claims.claims:
            if claim.place.get("table") in claims.tables:
                columns.setdefault(_column(claim), []).append(claim)
        rows = []
        for claim in claims.claims:
            found = self.numbers.get(claim.id, Numbers(np.empty(0)))
            cut, told = verdicts[claim.id]
            # What our number would have reproduced as well: a tick that tells rows apart fits none.
            others: list[Claim] = []
            if told.verdict == REPRODUCED and claim.rule == "value":
                others = [c for c in columns.get(_column(claim), ()) if c.id != claim.id]
            stead = (replace(claim, paper_value=c.paper_value, spread=c.spread) for c in others)
            fitting = [judge(c, found.values, cut).verdict == REPRODUCED for c in stead]
            none = claim.untestable and not found.profile  # no run could make its record
            rows.append({
                **{name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)},
                "claim": claim.id,
                "paper": claim.paper_value,
                "mean": cut.mean,
                "low": cut.low,
                "high": cut.high,
                "seeds": cut.n,
                # from a number of the paper's, not from a bound of ours
                "difference": math.nan if claim.paper_value is None else told.difference,
                "rule": _rule_text(claim),
                "verdict": told.verdict,
                "also_fits": sum(fitting) if others else math.nan,
                "other_rows": len(others) or math.nan,
                "note": "; ".join(filter(None, (told.note, found.profile and copy_told(claim)))),
                "profile": found.profile,
                "stale": found.stale,
                "command": "" if none else _command(claim, claims, found.profile or self.profile),
                "values": tuple(_levels(claim, found.values).tolist()),
                "entry": claim,
            })  # fmt: skip
        return pd.DataFrame(rows, columns=COLUMNS)


def join(
    claims: Claims, store: Store | None = None, *, profile: str = "paper", scale: str = "paper"
) -> pd.DataFrame:
    """Judge every claim of a paper by the records of one profile: a row each, with :data:`COLUMNS`.

    Only records of the ``paper`` profile, made by the paper's protocol on the paper's data, are
    judged; with `scale`, those of another profile, whose verdicts have no place in a report of the
    paper. Numbers of other runs, where there are no others, are shown as "run, not judged". Numbers
    are in the claim's unit, NaN where there is none; ``also_fits``, of a reproduced cell of a
    table, counts those of the ``other_rows`` of its column that ours would have reproduced as well.
    """
    return Judged(claims, Store() if store is None else store, profile, scale).frame()


def _column(claim: Claim) -> str:
    return repr([(name, value) for name, value in claim.place.items() if name != "row"])


def copy_told(claim: Claim) -> str:
    """Say of what copy of the paper's data our numbers are, where it is one."""
    asked = repr((claim.ours, claim.against))  # also of the parts of what is pooled
    return "ours on a JPEG copy of CIFAR-10 (quality 75)" if "'cifar10'" in asked else ""


def _rule_text(claim: Claim) -> str:
    unused = {"rule", "named"} | ({"level"} if claim.test.get("level", 0.95) == 0.95 else set())
    shown = ", ".join(f"{name} {value}" for name, value in claim.test.items() if name not in unused)
    return f"{claim.rule} ({shown})" if shown else claim.rule


def _command(claim: Claim, claims: Claims, profile: str) -> str:
    paper, experiment = claims.paper["key"], claim.ours.get("experiment")
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
