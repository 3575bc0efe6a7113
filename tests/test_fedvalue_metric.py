"""The metric: MShapley-CMI against its definitions, its properties, exact against sampled."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedkit as fk
from fedkit.fedvalue.cells import CoalitionCells, densify, sum_clogc
from fedkit.fedvalue.cmi import (
    CMIGame,
    conditional_mutual_information,
    entropy,
    mshapley_cmi,
    mshapley_from_table,
    mutual_information,
)
from fedkit.fedvalue.data import discretise, joint_codes

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


@settings(max_examples=30, deadline=None)
@given(tables(least=3))
def test_a_marginal_contribution_is_equation_13_as_printed(data):
    x_t, y, (a, b, c) = data
    game = CMIGame(x_t, y, [a, b, c])
    pairs = [tuple(row) for row in np.stack([a, b], axis=1)]
    slow = by_the_printed_sums(list(c), pairs, list(x_t), list(y))
    fast = np.diff(game.value([[1, 1, 0], [1, 1, 1]]))[0]
    assert fast == pytest.approx(slow, abs=1e-12)
    z = np.stack([x_t, a, b], axis=1)
    assert conditional_mutual_information(c, y, z) == pytest.approx(slow, abs=1e-12)


def test_values_are_the_mean_over_orders_of_equation_13():
    x_t, y, parties = federation()
    expected = np.zeros(3)
    names = [joint_codes(p) for p in parties]
    for order in permutations(range(3)):
        for place, party in enumerate(order):
            before = [tuple(int(names[q][i]) for q in order[:place]) for i in range(len(y))]
            expected[party] += by_the_printed_sums(
                list(names[party]), before, list(x_t[:, 0]), list(y)
            )
    result = mshapley_cmi(x_t, y, parties)
    assert result.values == pytest.approx(expected / 6, abs=1e-12)
    assert result.exact
    assert result.evaluations == 8
    assert (result.standard_errors == 0).all()


# ------------------------------------------------------------------- Proposition 1


@settings(max_examples=50, deadline=None)
@given(tables())
def test_master_aware_efficiency(data):
    x_t, y, parties = data
    result = mshapley_cmi(x_t, y, parties)
    everything = mutual_information(np.stack([x_t, *parties], axis=1), y)
    assert result.values.sum() == pytest.approx(everything - result.task_value, abs=1e-12)
    assert result.task_value == pytest.approx(mutual_information(x_t, y), abs=1e-12)
    assert (result.values >= -1e-12).all()


@settings(max_examples=50, deadline=None)
@given(tables(), st.permutations([0, 1, 2]))
def test_symmetry(data, renaming):
    """A party whose columns are another's with its values renamed is worth the same."""
    x_t, y, parties = data
    twin = np.array(renaming)[parties[0]]
    result = mshapley_cmi(x_t, y, [*parties, twin])
    assert result.values[0] == pytest.approx(result.values[-1], abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_null_player(data):
    """Who adds nothing to any coalition gets 0: a constant, or a function of the task party."""
    x_t, y, parties = data
    result = mshapley_cmi(x_t, y, [*parties, np.zeros(len(y)), x_t % 2])
    assert result.values[-2:] == pytest.approx([0, 0], abs=1e-13)
    assert mshapley_cmi(x_t, y, parties).values == pytest.approx(result.values[:-2], abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(tables(), st.integers(1, 3))
def test_null_duplication(data, copies):
    x_t, y, parties = data
    forged = np.stack([parties[0]] * (1 + copies), axis=1)
    assert np.array_equal(
        mshapley_cmi(x_t, y, [forged, *parties[1:]]).values, mshapley_cmi(x_t, y, parties).values
    )


# ------------------------------------------------------------- Example 1, by hand


def test_example_1_and_appendix_a():
    """A data party that repeats the task party: v / 2 by Eq. 1, nothing by Eq. 2."""
    x = np.array([0, 0, 1, 1])
    y = np.array([0, 0, 1, 1])
    bit = np.log(2)
    plain = fk.shapley(CMIGame(None, y, [x, x]))  # the task party as a player among others
    assert plain.values == pytest.approx([bit / 2, bit / 2])
    result = mshapley_cmi(x, y, [x])
    assert result.task_value == pytest.approx(bit)
    assert result.values[0] == 0.0
    # three owners of one attribute: 1/3 each by Eq. 1 (section 2)
    assert fk.shapley(CMIGame(None, y, [x, x, x])).values == pytest.approx([bit / 3] * 3)


def test_exclusive_or_by_hand():
    """Two parties that are worthless alone and decide the label together share one bit."""
    a, b = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    result = mshapley_cmi(None, a ^ b, [a, b])
    assert result.task_value == 0.0
    assert result.values == pytest.approx([np.log(2) / 2] * 2)
    assert mshapley_cmi(a, a ^ b, [b]).values == pytest.approx([np.log(2)])


# ------------------------------------------------------------------------ entropies


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


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.randoms())
def test_the_sum_does_not_depend_on_the_order_of_the_cells(counts, random):
    shuffled = counts.copy()
    random.shuffle(shuffled)
    assert sum_clogc(np.array(counts)) == sum_clogc(np.array(shuffled))
    big = np.array([*counts, 10**9])  # sorted instead of tabulated
    assert sum_clogc(big) == pytest.approx(sum(c * np.log(c) for c in big if c), rel=1e-12)


def test_sorting_and_tabulating_cells_agree(monkeypatch):
    task, label, parties = federation(n=200)
    codes = [joint_codes(p) for p in parties]
    fast = fk.tabulate(CMIGame.from_codes(task[:, 0], label, codes)).values
    import fedkit.fedvalue.cells as module

    monkeypatch.setattr(module, "_fits", lambda size, rows: False)
    assert np.array_equal(fk.tabulate(CMIGame.from_codes(task[:, 0], label, codes)).values, fast)
    key, m = densify(np.array([9, 2, 9, 4]), 10)
    assert m == 3
    assert key.tolist() == [2, 0, 2, 1]


def test_coalitions_in_any_order_have_the_same_value():
    x_t, y, parties = federation(d=4, n=80)
    rows = fk.all_coalitions(4)
    table = CMIGame(x_t, y, parties).value(rows)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(16)
        assert np.array_equal(CMIGame(x_t, y, parties).value(rows[order]), table[order])


def test_each_coalition_costs_one_pass(monkeypatch):
    x_t, y, parties = federation(d=5, n=4000, levels=2)
    cells = CoalitionCells(x_t[:, 0], y, [joint_codes(p) for p in parties])
    made = []
    original = CoalitionCells.at

    def counted(self, members):
        found = original(self, members)
        made.append(len(self._stack))
        return found

    monkeypatch.setattr(CoalitionCells, "at", counted)
    passes = [0]
    monkeypatch.setattr(
        "fedkit.fedvalue.cells.densify",
        lambda key, size, real=densify: (passes.__setitem__(0, passes[0] + 1), real(key, size))[1],
    )
    fk.tabulate(CMIGame.of(cells))
    assert passes[0] == 2**5 - 1  # the empty coalition is at hand
    assert max(made) <= 6


# ------------------------------------------------------------------ exact and sampled


def test_sampling_is_unbiased_and_its_errors_are_right():
    x_t, y, parties = federation(d=5, n=70)
    truth = mshapley_cmi(x_t, y, parties).values
    walks, game = fk.PermutationSampling(walks=40), CMIGame(x_t, y, parties)
    runs = [fk.estimate(game, walks, seed=seed) for seed in range(150)]
    same = mshapley_cmi(x_t, y, parties, estimator=walks, seed=149)
    assert np.array_equal(same.values, runs[-1].values)
    assert np.array_equal(same.standard_errors, runs[-1].standard_errors)
    values = np.array([r.values for r in runs])
    errors = np.array([r.standard_errors for r in runs])
    assert not runs[0].exact
    z = (values.mean(axis=0) - truth) / (values.std(axis=0, ddof=1) / np.sqrt(len(runs)))
    assert np.abs(z).max() < 4
    assert errors.mean(axis=0) == pytest.approx(values.std(axis=0, ddof=1), rel=0.25)
    assert values.sum(axis=1) == pytest.approx(np.full(150, truth.sum()))  # every walk telescopes


def test_the_full_budget_is_exact_and_a_seed_repeats():
    x_t, y, parties = federation(d=4)
    truth = mshapley_cmi(x_t, y, parties)
    full = mshapley_cmi(x_t, y, parties, estimator=fk.PermutationSampling(), budget=16)
    assert full.exact
    assert full.values == pytest.approx(truth.values, abs=1e-14)
    one, two = (mshapley_cmi(x_t, y, parties, budget=9, seed=3) for _ in range(2))
    assert np.array_equal(one.values, two.values)
    assert one.evaluations <= 9
    with pytest.raises(ValueError, match="budget is 2"):
        mshapley_cmi(x_t, y, parties, budget=2)


def test_many_parties_are_sampled():
    x_t, y, parties = federation(n=40, d=18)
    result = mshapley_cmi(x_t, y, parties)
    assert not result.exact
    assert (result.standard_errors[np.abs(result.values) > 1e-9] > 0).all()
    everything = mutual_information(np.concatenate([x_t, *parties], axis=1), y)
    assert result.values.sum() == pytest.approx(everything - result.task_value)


# --------------------------------------------------------------- contingency tables


@settings(max_examples=30, deadline=None)
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
        clear = mshapley_cmi(x_t, y, parties, correction=correction, draws=0)
        table = mshapley_from_table(tokens, task_cells, counts, correction=correction, draws=0)
        if correction == "permutation":
            assert table.values == pytest.approx(clear.values, abs=1e-12)
        else:
            assert np.array_equal(table.values, clear.values)
            assert table.task_value == clear.task_value


def test_the_rows_of_the_table_decide_whether_it_is_exact(monkeypatch):
    rng = np.random.default_rng(0)
    x_t, y, *parties = rng.integers(2, size=(5, 400))
    tokens, counts = np.unique(
        np.stack([2 * x_t + y, *parties], axis=1), axis=0, return_counts=True
    )
    task_cells = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    monkeypatch.setattr("fedkit.fedvalue.cmi.EXACT_WORK", 2**3 * (5000 + len(counts)))
    assert mshapley_from_table(tokens, task_cells, counts).exact
    assert not mshapley_cmi(x_t, y, parties).exact


def test_a_table_that_is_no_table_is_refused():
    tokens, cells, counts = np.array([[0, 1], [1, 0]]), np.array([[0, 0], [0, 1]]), np.array([3, 4])
    assert mshapley_from_table(tokens, cells, counts).values[0] > 0
    for bad, message in (
        ((tokens[:, :1], cells, counts), "at least one data party"),
        ((tokens, cells, counts[:1]), "counts"),
        ((tokens, cells[:1], counts), "task token 1"),
        ((tokens, cells[:, :1], counts), "features and label"),
        ((tokens, cells, -counts), "negative"),
        ((tokens, cells, 0 * counts), "positive"),
        ((tokens, cells, counts / 2), "whole numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            mshapley_from_table(*bad)
    with pytest.raises(ValueError, match="1 data parties"):
        mshapley_from_table(tokens, cells, counts, names=["a", "b"])
    with pytest.raises(ValueError, match="table of counts"):
        mshapley_from_table(tokens, cells, counts, correction="knn")


def test_the_frame_names_the_parties():
    x_t, y, parties = federation()
    result = mshapley_cmi(x_t, y, parties, names=["bank", "shop", "phone"])
    frame = result.to_frame()
    assert list(frame["party"]) == ["bank", "shop", "phone"]
    assert list(frame.columns) == ["party", "value", "standard_error"]
    assert result.ranking[0] == frame.sort_values("value")["party"].iloc[-1]


def test_the_game_answers_for_binned_columns():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    game = CMIGame(None, y, [x], bins=4, how="quantile")
    code = joint_codes(discretise(x, 4, "quantile"))
    assert game.value([[True]])[0] == pytest.approx(mutual_information(code, y))
    with pytest.raises(ValueError, match="correction is 'knn'"):
        CMIGame(None, y, [x], correction="knn")
    with pytest.raises(ValueError, match="correction is 'bayes'"):
        mshapley_cmi(None, y, [x], correction="bayes")
