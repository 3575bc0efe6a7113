from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinydata import is_partition

from fedkit.federated.clients import Dirichlet, MissingClassWarning, fill_empty, hold_out, long_tail

POOL = np.repeat(np.arange(5), [400, 250, 200, 100, 50])


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 5), min_size=2, max_size=80).filter(
        lambda v: max(v.count(c) for c in set(v)) > 1
    ),
    fraction=st.floats(0.001, 0.9),
    seed=st.integers(0, 2**32),
)
def test_hold_out_covers_every_class_it_can(labels: list[int], fraction: float, seed: int) -> None:
    y = np.array(labels)
    single = [c for c in set(labels) if labels.count(c) == 1]
    rng = np.random.default_rng(seed)
    if single:
        with pytest.warns(MissingClassWarning, match="no validation image"):
            train, held = hold_out(y, fraction, rng)
    else:
        train, held = hold_out(y, fraction, rng)
    assert is_partition([np.sort(np.concatenate([train, held]))], len(y))
    assert set(y[held]) == set(labels) - set(single)
    assert set(y[train]) == set(labels)
    assert len(held) <= max(1, round(fraction * len(y))) + len(set(labels))


def test_hold_out_follows_the_class_shares() -> None:
    y = np.repeat([0, 1, 2], [5000, 3000, 2000])
    _, held = hold_out(y, 0.01, np.random.default_rng(0))
    assert np.bincount(y[held]).tolist() == [50, 30, 20]
    _, loose = hold_out(y, 0.01, np.random.default_rng(0), stratified=False)
    assert len(loose) == 100
    assert np.bincount(y[loose]).tolist() != [50, 30, 20]


def test_hold_out_refuses() -> None:
    y, rng = np.array([0, 0, 0, 1]), np.random.default_rng(0)
    for fraction in (0.0, 1.0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="validation fraction is"):
            hold_out(y, fraction, rng)
    with pytest.raises(ValueError, match=r"classes \[1\] have no validation image"):
        hold_out(y, 0.5, rng, missing="error")
    with pytest.raises(ValueError, match="expected 'warn' or 'error'"):
        hold_out(y, 0.5, rng, missing="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 for validation"):
        hold_out(np.array([0, 1]), 0.5, rng)


@settings(max_examples=60, deadline=None)
@given(
    factor=st.floats(1e-3, 1.0),
    n_classes=st.integers(1, 12),
    per_class=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_long_tail_counts(factor: float, n_classes: int, per_class: int, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(n_classes), per_class))
    kept = long_tail(y, factor, np.random.default_rng(seed))
    counts = np.bincount(y[kept], minlength=n_classes)
    assert np.all(np.diff(kept) > 0)
    assert np.all(np.diff(counts) <= 0)
    assert counts[0] == per_class
    exact = per_class * factor ** (np.arange(n_classes) / max(n_classes - 1, 1))
    assert np.all(counts >= np.maximum(1, np.floor(exact) - 1e-6))
    assert np.all(counts <= np.maximum(1, exact + 1e-6))


def test_long_tail_by_hand() -> None:
    y = np.repeat([0, 1, 2], 100)
    kept = long_tail(y, 0.01, np.random.default_rng(0))
    assert np.bincount(y[kept]).tolist() == [100, 10, 1]  # 100 * 0.01 ** (0, 1/2, 1)
    reverse = long_tail(y, 0.01, np.random.default_rng(0), order=[2, 1, 0])
    assert np.bincount(y[reverse]).tolist() == [1, 10, 100]
    shuffled = long_tail(y, 0.01, np.random.default_rng(0), order="random")
    assert sorted(np.bincount(y[shuffled])) == [1, 10, 100]
    uneven = np.repeat([0, 1], [50, 150])  # a class never gives more than it has
    assert np.bincount(uneven[long_tail(uneven, 0.5, np.random.default_rng(0))]).tolist() == [
        50,
        50,
    ]
    assert len(long_tail(y, 1.0, np.random.default_rng(0))) == 300


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.01, float("nan")])
def test_long_tail_refuses_factor(factor: float) -> None:
    with pytest.raises(ValueError, match="imbalance_factor is"):
        long_tail(np.array([0, 1]), factor, np.random.default_rng(0))


def test_long_tail_refuses_order() -> None:
    y, rng = np.array([0, 1, 2]), np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"each of \[0, 1, 2\] once"):
        long_tail(y, 0.5, rng, order=[0, 1])
    with pytest.raises(ValueError, match="'index', 'random'"):
        long_tail(y, 0.5, rng, order="size")  # type: ignore[arg-type]


def test_dirichlet_by_class_leaves_clients_empty_and_the_rules_mend_it() -> None:
    y = POOL
    rng = np.random.default_rng(0)
    parts = Dirichlet(0.01).split(y, 50, rng)
    assert sum(len(p) == 0 for p in parts) > 10
    assert fill_empty(parts, "keep", rng)[0] is parts[0]
    with pytest.raises(ValueError, match=r"of 50 clients have fewer than 1 samples.*refill"):
        fill_empty(parts, "error", rng)
    filled = fill_empty(parts, "refill", rng, min_size=3)
    assert min(len(p) for p in filled) == 3
    assert is_partition(filled, len(y))
    with pytest.raises(ValueError, match="cannot give 50 clients 21 each"):
        fill_empty(parts, "refill", rng, min_size=21)
    with pytest.raises(ValueError, match="expected 'keep', 'refill' or 'error'"):
        fill_empty(parts, "drop", rng)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_size is 0"):
        fill_empty(parts, "refill", rng, min_size=0)


def test_refill_takes_from_the_largest() -> None:
    parts = [np.arange(6), np.arange(6, 10), np.empty(0, dtype=np.int64)]
    filled = fill_empty(parts, "refill", np.random.default_rng(0), min_size=2)
    assert [len(p) for p in filled] == [4, 4, 2]
