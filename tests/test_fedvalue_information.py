"""MShapley-CMI and its corrections against definitions, closed forms, exhaustion, sampling."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy import stats
from scipy.stats import hypergeom

import fedkit as fk
from fedkit.fedvalue import columns, information
from fedkit.fedvalue.columns import joint_codes
from fedkit.fedvalue.corrections import expected_excess, null_information
from fedkit.fedvalue.information import (
    CoalitionCells,
    cmi_game,
    conditional_mutual_information,
    entropy,
    mshapley_cmi,
    mshapley_from_table,
    mutual_information,
)
from fedkit.games import Valuation

pytestmark = pytest.mark.filterwarnings("ignore:y (is the same|has .* levels)")  # drawn labels


def federation(seed=0, n=30, d=3, levels=3):
    """Codes that depend on each other: a task column, a label, d parties of two columns."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(levels, size=(n, d + 2))
    parties = [
        np.stack([hidden[:, i], (hidden[:, i] * hidden[:, i + 1]) % levels], axis=1)
        for i in range(d)
    ]
    y = (hidden.sum(axis=1) + rng.integers(2, size=n)) % 3
    return hidden[:, d : d + 1], y, parties


@st.composite
def tables(draw, least=1):
    """Small random federations, with ties, empty cells and rows that repeat."""
    n, d = draw(st.integers(1, 25)), draw(st.integers(least, 3))
    column = st.lists(st.integers(0, 2), min_size=n, max_size=n)
    columns = [np.array(draw(column)) for _ in range(d + 2)]
    return columns[0], columns[1], columns[2:]


def by_the_printed_sums(x_d, x_coalition, x_t, y):
    """Eq. 13 literally: for each combination of values, counts by comparing every row."""
    n = len(y)

    def count(**wanted):
        rows = zip(x_d, x_coalition, x_t, y, strict=True)
        names = ("d", "D", "t", "y")
        return sum(all(row[names.index(k)] == v for k, v in wanted.items()) for row in rows)

    values_d, values_y = sorted(set(x_d)), sorted(set(y))
    total = 0.0
    for d, D, t, label in product(values_d, set(x_coalition), set(x_t), values_y):
        joint = count(d=d, D=D, t=t, y=label)
        if joint:
            above = joint * sum(count(d=e, D=D, t=t, y=k) for e, k in product(values_d, values_y))
            below = sum(count(d=d, D=D, t=t, y=k) for k in values_y)
            below *= sum(count(d=e, D=D, t=t, y=label) for e in values_d)
            total += joint * np.log(above / below)
    return total / n


@settings(max_examples=30)
@given(tables(least=3))
def test_a_marginal_contribution_is_equation_13_as_printed(data):
    x_t, y, (a, b, c) = data
    game = cmi_game(x_t, y, [a, b, c])
    pairs = [tuple(row) for row in np.stack([a, b], axis=1)]
    slow = by_the_printed_sums(list(c), pairs, list(x_t), list(y))
    fast = np.diff(game([[1, 1, 0], [1, 1, 1]]))[0]
    assert fast == pytest.approx(slow, abs=1e-12)
    z = np.stack([x_t, a, b], axis=1)
    assert conditional_mutual_information(c, y, z) == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("correction", ["plugin", "permutation"])
@pytest.mark.parametrize(("walks", "told"), [(None, True), (9, False), (10, True)])
def test_values_as_a_valuation(tmp_path, correction, walks, told):
    x_t, y, parties = federation()
    sampler = None if walks is None else fk.PermutationSampling(walks=walks, antithetic=False)
    names = ["bank", "shop", "phone"]
    offers = dict(zip(names, parties, strict=True))
    found = mshapley_cmi(x_t, y, offers, correction=correction, estimator=sampler)
    assert (found.names, found.exact, found.has_intervals) == (tuple(names), not walks, told)
    assert ("plugin" in found.info) == (correction == "permutation")
    if walks == 10:
        low, high = found.interval()
        expected = stats.t.ppf(0.975, 9) * found.standard_errors
        np.testing.assert_allclose((high - low) / 2, expected)
    found.save(tmp_path / "values.json")
    assert Valuation.load(tmp_path / "values.json") == found


@settings(max_examples=50)
@given(tables())
def test_master_aware_efficiency(data):
    x_t, y, parties = data
    result = mshapley_cmi(x_t, y, parties)
    everything = mutual_information(np.stack([x_t, *parties], axis=1), y)
    assert result.values.sum() == pytest.approx(everything - result.task_value, abs=1e-12)
    assert result.task_value == pytest.approx(mutual_information(x_t, y), abs=1e-12)
    assert (result.values >= -1e-12).all()


@settings(max_examples=50)
@given(tables(), st.permutations([0, 1, 2]))
def test_symmetry(data, renaming):
    """A party whose columns are another's with its values renamed is worth the same."""
    x_t, y, parties = data
    twin = np.array(renaming)[parties[0]]
    result = mshapley_cmi(x_t, y, [*parties, twin])
    assert result.values[0] == pytest.approx(result.values[-1], abs=1e-12)


@settings(max_examples=50)
@given(tables())
def test_null_player(data):
    """Who adds nothing to any coalition gets 0: a constant, or a function of the task party."""
    x_t, y, parties = data
    result = mshapley_cmi(x_t, y, [*parties, np.zeros(len(y)), x_t % 2])
    assert result.values[-2:] == pytest.approx([0, 0], abs=1e-13)
    assert mshapley_cmi(x_t, y, parties).values == pytest.approx(result.values[:-2], abs=1e-12)


@settings(max_examples=50)
@given(tables(), st.integers(1, 3))
def test_null_duplication(data, copies):
    x_t, y, parties = data
    forged = np.stack([parties[0]] * (1 + copies), axis=1)
    assert np.array_equal(
        mshapley_cmi(x_t, y, [forged, *parties[1:]]).values, mshapley_cmi(x_t, y, parties).values
    )


def test_example_1_and_appendix_a():
    """A data party that repeats the task party: v / 2 by Eq. 1, nothing by Eq. 2."""
    x = np.array([0, 0, 1, 1])
    y = np.array([0, 0, 1, 1])
    bit = np.log(2)
    plain = fk.shapley(cmi_game(None, y, [x, x]))  # the task party as a player among others
    assert plain.values == pytest.approx([bit / 2, bit / 2])
    result = mshapley_cmi(x, y, [x])
    assert result.task_value == pytest.approx(bit)
    assert result.values[0] == 0.0
    # three owners of one attribute: 1/3 each by Eq. 1 (section 2)
    assert fk.shapley(cmi_game(None, y, [x, x, x])).values == pytest.approx([bit / 3] * 3)


def test_entropies_in_nats():
    assert entropy([0, 1, 2, 3]) == pytest.approx(np.log(4))
    assert entropy([7, 7, 7]) == 0.0
    p = np.array([0.5, 0.25, 0.25])
    assert entropy([0, 0, 1, 2]) == pytest.approx(-(p * np.log(p)).sum())
    assert mutual_information([0, 0, 1, 1], [0, 1, 0, 1]) == 0.0
    assert mutual_information([-5, 10**12, 10**12, -5], [1, 0, 0, 1]) == pytest.approx(np.log(2))
    assert conditional_mutual_information([0, 1] * 2, [0, 1, 1, 0], [0, 0, 1, 1]) == pytest.approx(
        np.log(2)
    )


@settings(max_examples=30)
@given(tables(), st.integers(1, 4))
def test_a_table_of_counts_gives_the_same_bits(data, repeat):
    x_t, y, parties = data
    x_t, y = np.tile(x_t, repeat), np.tile(y, repeat)
    parties = [np.tile(p, repeat) for p in parties]
    own = joint_codes(x_t, y)
    task_cells = np.zeros((own.max() + 1, 2), dtype=np.int64)
    task_cells[own, 0], task_cells[own, 1] = x_t, y
    rows = np.stack([own, *parties], axis=1)
    tokens, counts = np.unique(rows, axis=0, return_counts=True)
    for correction in ("plugin", "miller-madow", "permutation"):
        clear = mshapley_cmi(x_t, y, parties, correction=correction)
        table = mshapley_from_table(tokens, task_cells, counts, correction=correction)
        if correction == "permutation":
            assert table.values == pytest.approx(clear.values, abs=1e-12)
        else:
            assert np.array_equal(table.values, clear.values)
            assert table.task_value == clear.task_value


@pytest.mark.parametrize(
    ("tokens", "task_cells", "counts", "options", "words"),
    [
        ([[0], [1]], [[0, 0], [0, 1]], [3, 4], {}, "at least one data party"),
        ([[0, 1], [1, 0]], [[0, 0]], [3, 4], {}, "tokens go up to 1; task_cells have 1 rows"),
        ([[-1, 1], [1, 0]], [[0, 0], [0, 1]], [3, 4], {}, "tokens are .* whole numbers from 0"),
        ([[0, 1]], [[0, 0]], [3], {"correction": "knn"}, "correction is 'knn'"),
    ],
)
def test_a_table_that_is_no_table_is_refused(tokens, task_cells, counts, options, words):
    refused(words, mshapley_from_table, tokens, task_cells, counts, **options)


def test_weighted_rows_are_rows_whether_sorted_or_tabulated(monkeypatch):
    rng = np.random.default_rng(0)
    task, label, a, b = rng.integers(3, size=(4, 40)) * [[1], [1], [10**17], [1]]
    weights = rng.integers(1, 5, size=40)
    rows = CoalitionCells(*np.repeat([task, label], weights, 1), np.repeat([a, b], weights, 1))
    plain = fk.tabulate(cmi_game(rows)).table
    binned = fk.tabulate(cmi_game(task % 3, label, [a, b], bins=3)).table
    both = [[1, 1]]
    mended = cmi_game(rows, correction="miller-madow")(both)
    assert plain[0] == pytest.approx(mutual_information(rows.task.key, rows.label))
    assert not np.array_equal(plain, binned)
    for fits in (columns.fits, lambda size, rows: False):
        for module in (columns, information):
            monkeypatch.setattr(module, "fits", fits)
        cells = CoalitionCells(task, label, [a, b], weights)
        assert np.array_equal(fk.tabulate(cmi_game(cells)).table, plain)
        assert np.array_equal(cmi_game(cells, correction="miller-madow")(both), mended)
        one_each = CoalitionCells(rows.task.key, rows.label, [c for c, _ in rows.parties])
        assert np.array_equal(fk.tabulate(cmi_game(one_each)).table, plain)


def test_one_set_of_cells_serves_several_corrections():
    _, y, parties = federation(d=3, n=40)
    held = y, y, [joint_codes(p) for p in parties]  # the task party alone knows the label
    shared = CoalitionCells(*held)
    for correction in ("plugin", "miller-madow", "permutation", "plugin"):
        alone = mshapley_cmi(CoalitionCells(*held), correction=correction)
        again = mshapley_cmi(shared, correction=correction)
        assert np.array_equal(again.values, alone.values)


def noisy(seed, n=120):
    """A task column, a label it tells something about, a real party, a noise party, a copy."""
    rng = np.random.default_rng(seed)
    x_t = rng.normal(size=(n, 1))
    real = rng.normal(size=(n, 2))
    y = (x_t[:, 0] + real[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    return x_t, y, [real, rng.normal(size=(n, 2)), x_t.copy()]


def test_miller_madow_adds_half_a_cell_per_row():
    x, y = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 0])
    plugin = mutual_information(x, y)
    game = cmi_game(None, y, [x], correction="miller-madow")
    # three x, two labels, four cells: 00, 01, 11, 20
    assert game([[True]])[0] == pytest.approx(plugin + ((3 - 1) + (2 - 1) - (4 - 1)) / 12)
    assert game([[False]]) == 0.0


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 2, st.integers(0, 2)), min_size=1, max_size=6))
def test_the_null_mean_is_the_mean_over_all_permutations(rows):
    z, x, y = np.array(rows).T
    plugin, mean = null_information(z, x, y)
    assert plugin == pytest.approx(conditional_mutual_information(x, y, z), abs=1e-12)
    everything = [
        conditional_mutual_information(x[list(order)], y, z)
        for order in permutations(range(len(z)))
        if (z[list(order)] == z).all()
    ]
    assert mean == pytest.approx(np.mean(everything), abs=1e-12)


def test_the_hypergeometric_sum_in_any_chunks(monkeypatch):
    n, a, b = np.array([40, 40, 7, 300]), np.array([10, 10, 7, 120]), np.array([25, 25, 3, 200])
    expected = 0.0
    for total, drawn, marked in zip(n, a, b, strict=True):
        h = np.arange(1, min(drawn, marked) + 1)
        mean = drawn * marked / total
        expected += (hypergeom.pmf(h, total, marked, drawn) * h * np.log(h / mean)).sum()
    assert expected_excess(n, a, b) == pytest.approx(expected, rel=1e-11)
    assert expected_excess(n, b, a) == pytest.approx(expected, rel=1e-11)
    monkeypatch.setattr("fedkit.fedvalue.corrections.CHUNK", 3)
    assert expected_excess(n, a, b) == pytest.approx(expected, rel=1e-11)


def test_an_id_is_worth_nothing_once_chance_is_taken_off():
    rng = np.random.default_rng(0)
    z, y = rng.integers(5, size=300), rng.integers(2, size=300)
    plugin, mean = null_information(z, np.arange(300), y)
    assert plugin == mean > 0.5  # the same number, so that nothing is left


@pytest.mark.parametrize("n", [10**6, 10**7, 10**9])
def test_the_null_mean_of_large_counts_keeps_its_digits(n):
    """A 2 x 2 table of halves: 1 / (2 (n - 1)), and a term of order 1 / n^2."""
    x, y = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    mean = null_information(np.zeros_like(x), x, y, np.full(4, n // 4))[1]
    assert mean == pytest.approx(1 / (2 * (n - 1)), rel=1e-6)


def test_values_and_errors_from_sampled_orders():
    """Beside the exact values, and the spread over seeds: an error too large would hide much."""
    x, y, parties = noisy(1, 60)
    exact = mshapley_cmi(x, y, parties, correction="permutation")
    runs = [
        mshapley_cmi(x, y, parties, correction="permutation", seed=seed,
                     estimator=fk.PermutationSampling(walks=20))
        for seed in range(40)
    ]  # fmt: skip
    assert not runs[0].exact
    values, errors = (
        np.array([getattr(run, name) for run in runs])[:, :2]
        for name in ("values", "standard_errors")
    )
    spread = values.std(axis=0, ddof=1)
    assert np.sqrt((errors**2).mean(axis=0)) == pytest.approx(spread, rel=0.5)
    assert (np.abs(values.mean(axis=0) - exact.values[:2]) < 4 * spread / np.sqrt(40)).all()
    for wrong in (fk.OwenSampling(), fk.PermutationSampling(antithetic=True)):
        with pytest.raises(ValueError, match="PermutationSampling only"):
            mshapley_cmi(x, y, parties, estimator=wrong, correction="permutation")
