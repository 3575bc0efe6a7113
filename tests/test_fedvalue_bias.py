"""The bias of plug-in values and what takes it off, against closed forms and exhaustion."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import hypergeom, norm

import fedkit as fk
from fedkit.fedvalue import cells as module
from fedkit.fedvalue.bias import (
    KNNGame,
    NullGame,
    expected_clogc,
    knn_information,
    null_information,
    standardise,
)
from fedkit.fedvalue.cells import Cells, CoalitionCells
from fedkit.fedvalue.cmi import (
    CMIGame,
    conditional_mutual_information,
    mshapley_cmi,
    mutual_information,
)
from fedkit.fedvalue.data import discretise


def noisy(seed, n=120):
    """A task column, a label it tells something about, a real party, a noise party, a copy."""
    rng = np.random.default_rng(seed)
    x_t = rng.normal(size=(n, 1))
    real = rng.normal(size=(n, 2))
    y = (x_t[:, 0] + real[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    return x_t, y, [real, rng.normal(size=(n, 2)), x_t.copy()]


# -------------------------------------------------------------------- Miller-Madow


def test_miller_madow_adds_half_a_cell_per_row():
    x, y = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1, 0])
    plugin = mutual_information(x, y)
    game = CMIGame(None, y, [x], correction="miller-madow")
    occupied = 4  # cells (x, y): 00, 01, 11, 20
    assert game.value([[True]])[0] == pytest.approx(plugin + ((3 - 1) + (2 - 1) - (4 - 1)) / 12)
    assert occupied == len({*zip(x, y, strict=True)})
    assert game.master == 0.0


def test_miller_madow_repairs_many_rows_and_not_few():
    """Its first-order term is right with many rows per cell; cells of one row have no cells to
    spare, so there it repairs nothing."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(5, size=(4000, 300)), rng.integers(3, size=(4000, 300))
    plugin = [mutual_information(x[:, j], y[:, j]) for j in range(300)]
    nothing = np.zeros(4000, dtype=int)
    games = (
        CMIGame.from_codes(nothing, y[:, j], [x[:, j]], correction="miller-madow")
        for j in range(300)
    )
    mended = [game.value([[True]])[0] for game in games]
    assert np.mean(plugin) == pytest.approx(4 * 2 / (2 * 4000), rel=0.1)
    assert abs(np.mean(mended)) < 3 * np.std(mended) / np.sqrt(300)
    alone = np.arange(50)
    game = CMIGame.from_codes(0 * alone, alone % 2, [alone], correction="miller-madow")
    assert game.value([[True]])[0] == pytest.approx(np.log(2) + 1 / 100)


# ------------------------------------------------------------------- permutation null


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 1)] * 2, st.integers(0, 2)), min_size=1, max_size=6))
def test_the_null_mean_is_the_mean_over_all_permutations(rows):
    z, x, y = np.array(rows).T
    plugin, mean, _ = null_information(z, x, y)
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
        expected += (hypergeom.pmf(h, total, marked, drawn) * h * np.log(h)).sum()
    assert expected_clogc(n, a, b) == pytest.approx(expected, rel=1e-11)
    assert expected_clogc(n, b, a) == pytest.approx(expected, rel=1e-11)
    monkeypatch.setattr("fedkit.fedvalue.bias.CHUNK", 3)
    assert expected_clogc(n, a, b) == pytest.approx(expected, rel=1e-11)


def from_counts(x, y, z):
    """I(X; Y | Z) of codes below 10, by its entropies."""

    def entropy(*columns):
        counts = np.bincount(sum(10**i * column for i, column in enumerate(columns)))
        return -sum(c / len(x) * np.log(c / len(x)) for c in counts[counts > 0])

    return entropy(x, z) + entropy(y, z) - entropy(x, y, z) - entropy(z)


def test_drawn_permutations_agree_with_the_closed_mean(monkeypatch):
    rng = np.random.default_rng(2)
    z, x, y = rng.integers(4, size=90), rng.integers(3, size=90), rng.integers(2, size=90)
    weights = rng.integers(1, 4, size=90)
    for w in (None, weights):
        _, mean, deviation = null_information(z, x, y, w, draws=3000, rng=np.random.default_rng(0))
        z_, x_, y_ = (np.repeat(c, 1 if w is None else w) for c in (z, x, y))
        kept, drawn = np.argsort(z_, kind="stable"), []
        for _ in range(1500):
            order = np.lexsort((rng.random(len(z_)), z_))
            drawn.append(from_counts(x_[kept], y_[order], z_[kept]))
        assert drawn[-1] == pytest.approx(
            conditional_mutual_information(x_[kept], y_[order], z_[kept])
        )
        assert mean == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / np.sqrt(1500))
        assert deviation == pytest.approx(np.std(drawn), rel=0.1)
        monkeypatch.setattr("fedkit.fedvalue.bias.CHUNK", 500)  # in several batches


def test_noise_is_worth_nothing_once_corrected():
    """The plug-in gives noise as much as 0.1 nats; the corrected value is 0 on average."""
    runs = [mshapley_cmi(*noisy(seed), correction="permutation", draws=10) for seed in range(60)]
    plugin = np.array([r.plugin for r in runs])
    corrected = np.array([r.values for r in runs])
    z = np.array([r.z for r in runs])
    error = corrected[:, 1].std(ddof=1) / np.sqrt(60)
    assert plugin[:, 1].mean() > 0.1
    assert abs(corrected[:, 1].mean()) < 3.5 * error
    assert error < 0.005
    assert corrected[:, 0].mean() > 0.05
    # what the task party holds already: 0 either way, not less
    assert plugin[:, 2] == pytest.approx(0, abs=1e-13)
    assert (corrected[:, 2] == 0).all()
    assert (z[:, 2] == 0).all()
    # z errs on the small side for noise and is large for the real party
    assert z[:, 1].std(ddof=1) < 1.2
    assert (z[:, 1] > 2).mean() < 0.1
    assert (z[:, 0] > 2).mean() > 0.9


def test_shuffled_labels_leave_nothing():
    rng = np.random.default_rng(0)
    totals = []
    for seed in range(40):
        x_t, y, parties = noisy(seed)
        y = rng.permutation(y)
        result = mshapley_cmi(x_t, y, parties[:2], correction="permutation", draws=0)
        totals.append([result.task_value, *result.values])
        assert result.z is None
    means, errors = np.mean(totals, axis=0), np.std(totals, axis=0, ddof=1) / np.sqrt(40)
    assert (np.abs(means) < 3.5 * errors).all()


def test_the_plug_in_beside_it_is_the_plug_in():
    x_t, y, parties = noisy(0)
    corrected = mshapley_cmi(x_t, y, parties, correction="permutation")
    plain = mshapley_cmi(x_t, y, parties)
    assert corrected.plugin == pytest.approx(plain.values, abs=1e-12)
    assert corrected.task_value < plain.task_value
    assert list(corrected.to_frame().columns)[-2:] == ["plugin", "z"]
    again = mshapley_cmi(x_t, y, parties, correction="permutation")
    assert np.array_equal(again.z, corrected.z)


def test_corrected_values_from_sampled_orders():
    x_t, y, parties = noisy(1)
    parties = [*parties, np.random.default_rng(5).normal(size=(len(y), 1)) + y[:, None]]
    truth = mshapley_cmi(x_t, y, parties, correction="permutation", draws=0)
    options = {"correction": "permutation", "draws": 0}
    for estimator in (
        fk.PermutationSampling(walks=300),
        fk.PermutationSampling(antithetic=True, walks=300),
    ):
        sampled = mshapley_cmi(x_t, y, parties, estimator=estimator, **options)
        assert not sampled.exact
        free = sampled.standard_errors > 0
        off = np.abs(sampled.values - truth.values)
        assert (off[free] < 4 * sampled.standard_errors[free]).all()
        assert off[~free] == pytest.approx(0, abs=1e-12)
    assert mshapley_cmi(x_t, y, parties, budget=8, **options).evaluations <= 8
    with pytest.raises(ValueError, match="budget is 3"):
        mshapley_cmi(x_t, y, parties, budget=3, **options)
    with pytest.raises(ValueError, match="PermutationSampling only"):
        mshapley_cmi(x_t, y, parties, estimator=fk.OwenSampling(), budget=50, **options)
    with pytest.raises(ValueError, match="draws is 1"):
        mshapley_cmi(x_t, y, parties, correction="permutation", draws=1)


def test_a_coalition_that_knows_the_label_leaves_nothing():
    y = np.arange(20) % 2
    game = NullGame(CoalitionCells(0 * y, y, [y, np.arange(20) % 5]), draws=0)
    assert game.marginal(np.array([True, False]), 1) == (0.0, 0.0, 0.0)


# ------------------------------------------------------------------ nearest neighbours


def two_normals(distance):
    """I(X; Y) of a fair bit Y and X normal with means 0 and `distance`, by quadrature."""

    def minus_p_log_p(t):
        p = (norm.pdf(t) + norm.pdf(t - distance)) / 2
        return -p * np.log(p)

    return quad(minus_p_log_p, -9, 9 + distance)[0] - np.log(2 * np.pi * np.e) / 2


@pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
def test_neighbours_find_the_information_of_two_normals(distance):
    estimates = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y = rng.integers(2, size=800)
        estimates.append(knn_information(rng.normal(size=800) + distance * y, y))
    error = np.std(estimates, ddof=1) / np.sqrt(12)
    assert np.mean(estimates) == pytest.approx(two_normals(distance), abs=4 * error)
    assert error < 0.02
    if distance == 0:
        assert min(estimates) < 0  # not cut at zero


def test_neighbours_find_a_conditional_information():
    """Given X_1, a second normal column adds what the longer mean vector adds."""
    gains = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y = rng.integers(2, size=800)
        x = rng.normal(size=(800, 2)) + y[:, None]
        game = KNNGame(x[:, :1], y, [x[:, 1:]])
        gains.append(game.value([[True]])[0] - game.master)
    error = np.std(gains, ddof=1) / np.sqrt(12)
    truth = two_normals(np.sqrt(2)) - two_normals(1)
    assert np.mean(gains) == pytest.approx(truth, abs=4 * error)
    assert error < 0.02


def test_neighbours_on_a_discrete_column():
    rng = np.random.default_rng(0)
    x = rng.integers(4, size=4000)
    y = (x + (rng.random(4000) < 0.2)) % 4
    table = mutual_information(x, y)
    assert knn_information(x, y) == pytest.approx(table, abs=0.05)
    assert knn_information(np.zeros(40), np.arange(40) % 2) == pytest.approx(0, abs=0.3)


def test_neighbours_agree_with_a_plain_loop():
    from scipy.special import digamma

    rng = np.random.default_rng(3)
    y = np.array([0] * 12 + [1] * 3 + [2] * 2 + [3])  # the last label stands alone
    x = rng.normal(size=(len(y), 2))
    kept = np.flatnonzero(y != 3)
    terms = []
    for q in kept:
        distance = np.linalg.norm(x - x[q], axis=1)
        own = sorted(distance[i] for i in kept if y[i] == y[q] and i != q)
        k = min(3, len(own))
        near = sum(distance[i] <= own[k - 1] for i in kept if i != q)
        terms.append(digamma(len(kept)) - digamma(len(own) + 1) + digamma(k) - digamma(near))
    assert knn_information(x, y) == pytest.approx(np.mean(terms), abs=1e-12)


def test_noise_is_near_nothing_with_neighbours_too():
    values = np.array(
        [mshapley_cmi(*noisy(seed)[:2], noisy(seed)[2][:2], correction="knn").values
         for seed in range(20)]
    )  # fmt: skip
    assert values[:, 1].mean() < 0.03
    assert values[:, 0].mean() > 0.1


def test_what_neighbours_refuse():
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    gap = x.copy()
    gap[3, 1] = np.nan
    with pytest.raises(ValueError, match="party 1 has missing"):
        mshapley_cmi(None, y, [gap], correction="knn")
    with pytest.raises(ValueError, match="holds text"):
        mshapley_cmi(None, y, [np.array(["a"] * 20)], correction="knn")
    with pytest.raises(ValueError, match="neighbours is 0"):
        knn_information(x, y, 0)
    with pytest.raises(ValueError, match="20 rows and y has 19"):
        knn_information(x, y[1:])
    assert knn_information(x, np.arange(20)) == 0.0  # every label stands alone
    assert standardise(np.column_stack([x, np.full(20, 7.0)])).shape == (20, 2)
    assert standardise(np.column_stack([x, np.full(20, 0.1)])).shape == (20, 2)
    far = 1e9 + 1e-3 * x  # varies by a thousandth around a thousand million
    np.testing.assert_allclose(standardise(far), standardise(x), atol=1e-3)
    with pytest.raises(ValueError, match="parties is one ndarray"):
        KNNGame(None, y, np.zeros((20, 2)))
    with pytest.raises(ValueError, match="party 1 has 19 rows and y has 20"):
        KNNGame(None, y, [np.zeros(19)])
    with pytest.raises(ValueError, match="bank holds text"):
        KNNGame(None, y, {"bank": np.array(["a"] * 20)})
    constant = mshapley_cmi(None, y, [np.full((20, 1), 3.3), x], correction="knn")
    assert constant.values[0] == 0.0


def test_bins_of_a_continuous_party_do_not_reach_the_correction():
    x_t, y, parties = noisy(4)
    five = mshapley_cmi(x_t, y, parties, correction="permutation", draws=0, bins=5)
    two = mshapley_cmi(x_t, y, parties, correction="permutation", draws=0, bins=2)
    assert discretise(parties[0], 2).max() == 1
    assert two.plugin[1] < five.plugin[1] / 2  # noise has fewer cells to fill


# ----------------------------------------------------------------------- other programs


def codes(seed, n=150):
    rng = np.random.default_rng(seed)
    x = rng.integers(6, size=n)
    return x, np.where(rng.random(n) < 0.6, x % 3, rng.integers(3, size=n))


@pytest.mark.parametrize("seed", range(3))
def test_information_and_its_expectation_by_chance_are_scikit_learns(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    x, y = codes(seed)
    plugin, mean, _ = null_information(np.zeros_like(x), x, y)
    table = contingency_matrix(x, y, sparse=True).astype(np.int64)
    assert plugin == pytest.approx(metrics.mutual_info_score(x, y), abs=1e-12)
    assert mutual_information(x, y) == pytest.approx(plugin, abs=1e-12)
    assert mean == pytest.approx(expected_mutual_information(table, len(x)), rel=1e-9)


# --------------------------------------------------------------------------- corners


def test_weighted_rows_are_rows_whether_sorted_or_tabulated(monkeypatch):
    rng = np.random.default_rng(0)
    task, label, a, b = rng.integers(3, size=(4, 40))
    weights = rng.integers(1, 5, size=40)
    repeated = [np.repeat(c, weights) for c in (task, label, a, b)]
    plain = fk.tabulate(CMIGame.from_codes(*repeated[:2], repeated[2:])).values
    for fits in (module._fits, lambda size, rows: False):
        monkeypatch.setattr(module, "_fits", fits)
        game = CMIGame.from_codes(task, label, [a, b], weights)
        assert np.array_equal(fk.tabulate(game).values, plain)
        mended = CMIGame.from_codes(task, label, [a, b], weights, "miller-madow").value([[1, 1]])
        again = CMIGame.from_codes(*repeated[:2], repeated[2:], correction="miller-madow")
        assert np.array_equal(mended, again.value([[1, 1]]))


def test_keys_that_would_overflow_are_relabelled_first():
    cells = CoalitionCells([0, 0, 0, 0], [0, 1, 2, 2], [[0, 1, 2, 3]])
    huge = Cells(np.array([True]), np.array([5, 2**61, 2**61, 2**62 - 1]), 2**62)
    counts, split = cells.counts(huge)
    assert sorted(counts[counts > 0]) == [1, 1, 2]
    assert sorted(split[split > 0]) == [1, 1, 1, 1]


def test_codes_far_apart_cost_no_memory():
    rng = np.random.default_rng(1)
    x = rng.integers(3, size=50) * 10**17
    y = rng.integers(2, size=50)
    assert CMIGame.from_codes(x, y, [x]).master == pytest.approx(mutual_information(x // 10**17, y))


def test_many_parties_are_sampled_by_every_correction():
    rng = np.random.default_rng(2)
    y = rng.integers(2, size=24)
    parties = [rng.normal(size=(24, 1)) + (j < 2) * y[:, None] for j in range(17)]
    walks = fk.PermutationSampling(walks=3)
    for correction in ("plugin", "miller-madow", "permutation", "knn"):
        sampled = mshapley_cmi(None, y, parties, correction=correction, estimator=walks)
        assert not sampled.exact
        assert sampled.correction == correction
        assert np.isfinite(sampled.values).all()
    by_default = mshapley_cmi(None, y, parties[:14], correction="permutation", draws=0)
    assert not by_default.exact
    assert by_default.standard_errors.max() > 0
