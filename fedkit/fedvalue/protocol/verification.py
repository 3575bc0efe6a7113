"""How the task party checks the server's counts, and how likely a lie passes.

Algorithm 1 has three checks: non-negativity (lines 14 to 17), divisibility (18 to 21) and
consistency (23 to 26).  Ours are the seals, the IDs, the total and the margins.  A check that fails
raises :class:`CheatingDetected` with its name.  The bounds are Proposition 2, and what replaces it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter as Tally
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedkit.checks import Ints
from fedkit.fedvalue.protocol.counting import count_tuples
from fedkit.fedvalue.protocol.crypto import SealError, unseal
from fedkit.fedvalue.protocol.messages import Order, Report, Table

Counts = tuple[Ints, Ints]
#: up to here sums of counts are exact, in integers and in doubles
_LARGEST = 2.0**52


class CheatingDetected(RuntimeError):
    """The server's answer failed a `check` in an `iteration`, from 1.

    "seal", "well-formed", "non-negativity", "divisibility", "consistency", "total", or "margin".
    """

    def __init__(self, check: str, iteration: int, detail: str):
        super().__init__(f"iteration {iteration}, {check}: {detail}")
        self.check, self.iteration = check, iteration


class AlignmentError(ValueError):
    """The parties do not hold the same set of IDs."""


def open_reports(
    table: Table, parties: Sequence[str], key: bytes, job: str, iteration: int
) -> list[Report]:
    """Open the parties' reports ("seal": one is missing, was changed, or is of another job)."""
    if len(table.sealed) != len(parties):
        detail = f"{len(table.sealed)} reports came for {len(parties)} parties"
        raise CheatingDetected("seal", iteration, detail)
    try:
        return [
            Report.from_bytes(unseal(sealed, key, "report", job, name))
            for name, sealed in zip(parties, table.sealed, strict=True)
        ]
    except SealError as error:
        raise CheatingDetected("seal", iteration, str(error)) from error


def check_alignment(reports: Sequence[Report], parties: Sequence[str]) -> None:
    """Refuse parties whose sets of IDs, or of artificial ones, differ from the task party's."""
    for name, report in zip(parties, reports, strict=True):
        if len(report.artificial) != len(reports[0].artificial):
            raise AlignmentError(
                f"{name!r} reports {len(report.artificial)} artificial IDs and {parties[0]!r} "
                f"{len(reports[0].artificial)}; they must answer the same order"
            )
        if report.digest != reports[0].digest:
            raise AlignmentError(
                f"{name!r} holds other IDs ({report.rows} rows) than {parties[0]!r} "
                f"({reports[0].rows} rows); keep the rows that all parties share, or write the "
                "IDs alike (007 is not 7)"
            )


def check_counts(table: Table, reports: Sequence[Report], order: Order, iteration: int) -> Counts:
    """Take off the artificial IDs, merge tokens into cells, and apply lines 14 to 22.

    The table must be of tokens that were sent ("well-formed"), and each artificial ID in it under
    the very tokens that the parties gave it ("non-negativity"); then comes "divisibility".
    Returned are the cells with at least one row, ``int64[C, P]``, ascending, and N of each.
    """
    if table.tokens.shape[1] != len(reports):
        detail = f"tuples have {table.tokens.shape[1]} tokens for {len(reports)} parties"
        raise CheatingDetected("well-formed", iteration, detail)
    sent = list(zip(reports, table.tokens.T, strict=True))
    problem = ""
    if any(column.size and int(column.max()) >= len(report.cells) for report, column in sent):
        problem = "a token was never sent"
    elif any(np.any(report.cells[column] < 0) for report, column in sent):
        problem = "an ID was counted that one party alone has"
    elif float(np.abs(table.counts.astype(np.float64)).sum()) > _LARGEST:
        problem = "the counts are beyond all bounds"
    if problem:
        raise CheatingDetected("well-formed", iteration, problem)

    known = np.ones(len(table.counts), dtype=bool)
    for report, column in sent:
        made = np.zeros(len(report.cells), dtype=bool)
        made[report.artificial] = True
        known &= made[column]
    weights = np.concatenate([table.counts[known], np.full(order.artificial, -1)])
    parts = [np.concatenate([column[known], report.artificial]) for report, column in sent]
    tokens, rest = count_tuples(parts, weights)
    lowest, missing = int(table.counts.min(initial=0)), -int(rest.min(initial=0))
    if lowest < 0 or missing > 0:
        detail = f"{missing} artificial IDs are missing where they must be"
        if lowest < 0:
            detail = f"a count is {lowest}"
        raise CheatingDetected("non-negativity", iteration, detail)
    cells, counts = count_tuples(
        [
            report.cells[np.concatenate([column[~known], left])]
            for (report, column), left in zip(sent, tokens.T, strict=True)
        ],
        np.concatenate([table.counts[~known], rest]),
    )
    odd = counts % order.duplications != 0
    if np.any(odd):
        detail = f"{int(odd.sum())} of {len(odd)} counts are no multiple of the number of copies"
        raise CheatingDetected("divisibility", iteration, detail)
    return cells[counts > 0], counts[counts > 0] // order.duplications


def check_consistency(counts: Counts, first: Counts, iteration: int) -> None:
    """Compare an iteration with the first, lines 23 to 26 ("consistency")."""
    if not all(np.array_equal(a, b) for a, b in zip(counts, first, strict=True)):
        raise CheatingDetected("consistency", iteration, "the table differs from iteration 1")


def check_margins(
    columns: Sequence[npt.NDArray[np.integer]], counts: Ints,
    margins: Sequence[Ints], parties: Sequence[str], iteration: int,
) -> None:  # fmt: skip
    """Compare the "total" and every "margin" with what the parties know of themselves (ours).

    The parties hold the same IDs, so all that each shares must have been counted, under its own
    tokens.
    """
    total, expected = int(counts.sum()), int(margins[0].sum())
    if total != expected:
        raise CheatingDetected("total", iteration, f"{total} IDs were counted of {expected}")
    for name, column, margin in zip(parties, columns, margins, strict=True):
        found = np.bincount(column, weights=counts, minlength=len(margin))  # exact to 2^53
        if not np.array_equal(found, margin):
            wrong = int((found != margin).sum())
            raise CheatingDetected("margin", iteration, f"{wrong} margins of {name!r} are wrong")


def proposition_2(duplications: int, iterations: int, cells: int) -> float:
    """Return the paper's bound: min(q) to the power of -tau times all cells (Eq. 15)."""
    return float(duplications) ** -(iterations * cells)


def per_cell(duplications: int, iterations: int) -> float:
    """Return min(q)^-tau: the step of the paper's proof for one cardinality."""
    return float(duplications) ** -iterations


def best_shift(
    duplications: tuple[int, int], iterations: int, *, distinct: bool = False
) -> tuple[float, tuple[int, ...]]:
    """Return the best that a server can do which knows the range of q and nothing else.

    It bets on the *direction* of (q_1, ..., q_tau), drawn uniformly from this range, with
    `distinct` without replacement, and shifts one count by a multiple of it that every q divides.
    Returned are the probability of passing, and what to add in each iteration.
    """
    low, high = duplications
    draws: Iterable[tuple[int, ...]] = itertools.product(range(low, high + 1), repeat=iterations)
    if distinct:
        draws = itertools.permutations(range(low, high + 1), iterations)
    directions = Tally(tuple(value // math.gcd(*q) for value in q) for q in draws)
    best, hits = max(directions.items(), key=lambda item: (item[1], [-v for v in item[0]]))
    factor = math.lcm(*range(low, high + 1))
    return hits / directions.total(), tuple(factor * value for value in best)


def spread(artificial: int, sizes: Sequence[int] | Ints) -> Ints:
    """Allocate artificial IDs to cells so that the smallest share of them is as large as can be.

    Adams' rule: the next ID goes where there are fewest per row; larger cells first among equals.
    `sizes` are the rows in each cell, at least one; ``int64[T]``, as what is returned.
    """
    rows = np.asarray(sizes, dtype=np.int64)
    # rounded up, this part is never too many; what is left, fewer than the cells, goes one by one
    sure = max(0, artificial - len(rows))
    given = -(-rows * sure // rows.sum())
    queue = [(g / n, -n, t) for t, (g, n) in enumerate(zip(given, rows, strict=True))]
    heapq.heapify(queue)
    for _ in range(artificial - int(given.sum())):
        t = queue[0][2]
        given[t] += 1
        heapq.heapreplace(queue, (given[t] / rows[t], -rows[t], t))
    return given


def share_known(sizes: Sequence[int], duplications: int, artificial: int) -> float:
    """Return f: the smallest share of artificial IDs of one task cell, as :func:`spread` gives."""
    given, rows = spread(artificial, sizes), np.asarray(sizes, dtype=np.int64)
    return float((given / (rows * duplications + given)).min())


def known_answers(
    sizes: Sequence[int], duplications: Sequence[int], artificial: Sequence[int]
) -> float:
    """Return the bound of the hardened protocol: the product over j of (1 - f_j)^(2 q_j).

    To change the table by q_j times something without touching a margin, at least 2 q_j IDs of
    iteration j must be counted under other tokens, and none of them may be artificial.  Those of
    one task cell are artificial with probability f_j at least (:func:`share_known`).
    """
    return math.prod(
        (1 - share_known(sizes, q, extra)) ** (2 * q)
        for q, extra in zip(duplications, artificial, strict=True)
    )
