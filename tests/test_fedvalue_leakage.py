"""What counts give away, and the defences."""

import math

import numpy as np
import pytest

from fedkit.fedvalue.protocol.leakage import claims, geometric_noise, measure, suppress, with_decoys
from fedkit.streams import Streams
from reproduction.fedvalue.security import contingency


def codes(n: int = 60, seed: int = 0):
    rng = Streams(seed).generator("codes")
    x, y, first, second = (rng.integers(0, m, n) for m in (8, 2, 3, 4))
    return x, y, [first, second]


def noise():
    return Streams(4).generator("noise")


def test_claims_by_hand():
    #        one person   two alike    two unlike    nobody left
    cells = np.array([[0, 2], [1, 1], [2, 0], [2, 1], [3, 1]])
    counts = np.array([1, 2, 1, 1, 0])
    best, certain = claims(cells, counts, [1, 2, 2, 1])
    assert best.ravel().tolist() == [2, 1, 0, -1]
    assert certain.ravel().tolist() == [True, True, False, False]
    # three people of its own, and only two of them in the table: the third may be anywhere
    best, certain = claims(cells[1:2], counts[1:2], [0, 3])
    assert (best[1, 0], certain[1, 0]) == (1, False)
    best, certain = claims(cells[:0], counts[:0], [1])
    assert (best.tolist(), certain.tolist()) == ([[-1]], [[False]])


def test_an_empty_table_leaves_the_guess_that_needs_none():
    nothing = np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.int64)
    leak = measure(np.array([0, 1, 2, 2]), [np.array([0, 1, 1, 1])], *nothing)
    assert (leak.unique, leak.certain, leak.guessed, leak.blind) == (0.5, 0.0, 0.75, 0.75)


@pytest.mark.parametrize("minimum", [2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_table_with_less_in_it_tells_no_more(minimum, seed):
    """Who is left out is a function of the exact table, so nothing new can be learned from it."""
    _, task, cells, counts = contingency(given := codes(seed=seed))
    bare = measure(task, given[2], cells, counts)
    less = measure(task, given[2], *suppress(cells, counts, minimum))
    assert less.certain <= bare.certain
    assert less.guessed <= bare.guessed
    sizes = np.bincount(task)
    best, certain = claims(*suppress(cells, counts, minimum), sizes)
    true = np.stack(given[2], axis=1)
    assert np.array_equal(best[task][certain[task]], true[certain[task]])  # certain is certain


def test_the_task_party_counts_decoys_among_its_rows():
    x = y = np.zeros(3, dtype=int)
    _, task, cells, counts = contingency(with_decoys((x, y, [x]), 2, noise()))
    assert measure(task[:3], [x], cells, counts, sizes=np.bincount(task)).certain == 1


def test_decoys_blur_and_keep_the_table():
    given = codes(40)
    before = contingency(given)
    x, y, parties = with_decoys(given, 3, noise())
    pairs, task, cells, counts = contingency((x, y, parties))
    assert np.array_equal(pairs, before[0])
    assert counts.sum() == len(x) == 40 + 3 * len(pairs)
    assert np.array_equal(np.bincount(task[40:]), np.full(len(pairs), 3))
    for d in (0, 1):  # decoys have cells that the party has
        assert set(parties[d].tolist()) == set(given[2][d].tolist())
    bare = measure(before[1], given[2], *before[2:])
    blurred = measure(task[:40], given[2], cells, counts, sizes=np.bincount(task))
    assert blurred.certain < bare.certain
    assert blurred.guessed < bare.guessed


def test_noise_has_the_stated_distribution():
    found = geometric_noise(np.array([[49, 399]]), np.array([1]), 1.0, noise())
    alpha = math.exp(-1.0)
    for k in (1, 2, 3):
        expected = (1 - alpha) / (1 + alpha) * alpha**k
        assert np.mean(found[1] == k) * len(found[1]) / 20_000 == pytest.approx(expected, rel=0.15)


def test_noise_on_a_public_domain_reaches_cells_that_nobody_is_in():
    cells, counts, rng = np.array([[0, 1], [1, 0]]), np.array([3, 2]), noise()

    def reached(rows, sizes):
        draws = [geometric_noise(cells[:rows], counts[:rows], 0.3, rng, sizes) for _ in range(20)]
        return {tuple(cell) for found, _ in draws for cell in found.tolist()}

    assert reached(2, None) <= {(0, 0), (0, 1), (1, 0), (1, 1)}
    # a table without a person, or with one in a new cell, has the same cells to be noisy in
    for rows in (2, 1, 0):
        assert reached(rows, (2, 30)) == set(np.ndindex(2, 30))
