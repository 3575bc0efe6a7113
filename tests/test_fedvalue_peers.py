"""FedValue's estimates beside scikit-learn's, and the corners of counting."""

import numpy as np
import pytest

import fedkit as fk
from fedkit.fedvalue import cells as module
from fedkit.fedvalue.bias import null_information
from fedkit.fedvalue.cells import Cells, CoalitionCells
from fedkit.fedvalue.cmi import CMIGame, mshapley_cmi, mutual_information
from fedkit.fedvalue.knn import knn_information

metrics = pytest.importorskip("sklearn.metrics")


def codes(seed, n=150):
    rng = np.random.default_rng(seed)
    x = rng.integers(6, size=n)
    return x, np.where(rng.random(n) < 0.6, x % 3, rng.integers(3, size=n))


@pytest.mark.parametrize("seed", range(3))
def test_information_and_its_expectation_by_chance(seed):
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    x, y = codes(seed)
    plugin, mean, _ = null_information(np.zeros_like(x), x, y)
    table = contingency_matrix(x, y, sparse=True).astype(np.int64)
    assert plugin == pytest.approx(metrics.mutual_info_score(x, y), abs=1e-12)
    assert mutual_information(x, y) == pytest.approx(plugin, abs=1e-12)
    assert mean == pytest.approx(expected_mutual_information(table, len(x)), rel=1e-9)


@pytest.mark.parametrize("neighbours", [1, 3, 7])
def test_neighbours_of_one_column(neighbours):
    from sklearn.feature_selection import mutual_info_classif

    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    x = rng.normal(size=300) + y
    theirs = mutual_info_classif(x[:, None], y, n_neighbors=neighbours, random_state=0)[0]
    assert knn_information(x, y, neighbours) == pytest.approx(theirs, abs=1e-9)


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
