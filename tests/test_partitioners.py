import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinydata import is_partition

import fedkit as fk
from fedkit.federated.partition import (
    IID,
    ClassesPerClient,
    Dirichlet,
    Mavericks,
    Mixed,
    QuantitySkew,
    fill_empty,
    hold_out,
    long_tail,
)

R = np.random.default_rng


def schemes(n_clients, n_classes):
    alphas = (1e-3, 0.05, 5.0)
    found = [IID(), QuantitySkew(0.3), ClassesPerClient(min(2, n_classes))]
    found += [Dirichlet(a, by=b) for a in alphas for b in ("class", "capped", "client", "blocks")]
    if n_clients >= 2:
        found.append(Mixed(((1, IID()), (n_clients - 1, Dirichlet(0.1)))))
        if n_classes >= 2:
            found.append(Mavericks(1))
            found.append(Mavericks(1, others=Dirichlet(0.1), mixed=True))
    return found


@settings(max_examples=40)
@given(
    labels=st.lists(st.integers(0, 6), min_size=12, max_size=120),
    n_clients=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_every_scheme_makes_a_partition(labels, n_clients, seed):
    y = np.array(labels)
    n_classes = len(np.unique(y))
    refusals = ("cannot hold", "but there are", "leave no clients")
    for scheme in schemes(n_clients, n_classes):
        try:
            parts = scheme.split(y, n_clients, R(seed))
        except ValueError as error:
            if not any(reason in str(error) for reason in refusals):
                raise
            continue
        assert len(parts) == n_clients
        assert is_partition(parts, len(y)), scheme
        again = scheme.split(y, n_clients, R(seed))
        assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True)), scheme


POOL = np.repeat(np.arange(5), [400, 250, 200, 100, 50])


def counts_of(parts):
    return np.array([np.bincount(POOL[p], minlength=5) for p in parts])


def test_iid_sizes_and_labels():
    counts = counts_of(IID().split(POOL, 7, R(0)))
    assert np.ptp(counts.sum(1)) <= 1
    shares = counts / counts.sum(1, keepdims=True)
    assert np.abs(shares - [0.4, 0.25, 0.2, 0.1, 0.05]).max() < 0.12


def test_dirichlet_by_client_is_equal_in_size_and_skewed_in_label():
    counts, even = (
        counts_of(Dirichlet(alpha, by="client").split(POOL, 20, R(0))) for alpha in (0.05, 1000.0)
    )
    assert counts.sum(1).tolist() == [50] * 20
    assert counts.max(1).mean() / 50 > 0.75 > 0.55 > even.max(1).mean() / 50


def test_dirichlet_by_class_has_the_moments_of_its_law():
    """Shares of Dir(a) over n have mean 1/n and variance (1/n)(1 - 1/n) / (n a + 1)."""
    n, alpha, y = 4, 0.5, np.zeros(2000, dtype=np.int64)
    rng = R(3)
    shares = np.array(
        [[len(p) / 2000 for p in Dirichlet(alpha).split(y, n, rng)] for _ in range(600)]
    )
    variance = (1 / n) * (1 - 1 / n) / (n * alpha + 1)
    assert np.abs(shares.mean(0) - 1 / n).max() < 5 * np.sqrt(variance / 600)
    assert shares.var() == pytest.approx(variance, rel=0.1)


def test_dirichlet_capped_stops_dealing_to_full_clients():
    largest = 0
    for seed in range(20):
        for counts in counts_of(Dirichlet(0.05, by="capped").split(POOL, 10, R(seed))):
            # Before its last class a client was below the mean size.
            last = np.flatnonzero(counts)[-1] if counts.any() else 0
            assert counts.sum() - counts[last] < 100
            largest = max(largest, counts.sum())
    assert largest > 100  # one class may still carry a client beyond the mean


def test_dirichlet_blocks_are_equal_in_size():
    counts = counts_of(Dirichlet(0.01, by="blocks").split(POOL, 23, R(1)))
    assert np.ptp(counts.sum(1)) <= 1
    assert (counts > 0).sum(1).mean() < 4


def test_classes_per_client():
    counts = counts_of(ClassesPerClient(2).split(POOL, 10, R(0)))
    assert ((counts > 0).sum(1) == 2).all()
    assert ((counts > 0).sum(0) == 4).all()
    for held in counts.T:
        assert np.ptp(held[held > 0]) <= 1


def test_quantity_skew():
    parts = QuantitySkew(proportions=(1.0, 2.0, 7.0)).split(POOL, 3, R(0))
    assert [len(p) for p in parts] == [100, 200, 700]
    parts = QuantitySkew(proportions=(3.6, 4.5, 1.9)).split(POOL[:10], 3, R(0))
    assert [len(p) for p in parts] == [4, 4, 2]  # by largest remainder
    sizes = [len(p) for p in QuantitySkew(0.5).split(POOL, 10, R(0))]
    assert max(sizes) > 3 * np.median(sizes)


def test_proportions_of_any_size():
    parts = QuantitySkew(proportions=(1e308, 1e308, 1e308)).split(np.zeros(60, int), 3, R(0))
    assert [len(part) for part in parts] == [20, 20, 20]


def test_exclusive_mavericks():
    counts = counts_of(Mavericks(2, others=IID()).split(POOL, 6, R(0)))
    held = [int(row.argmax()) for row in counts[:2]]
    assert counts[:2, held].tolist() == np.diag(np.bincount(POOL)[held]).tolist()
    assert counts[:2].sum() == counts[:2, held].sum()
    assert counts[2:, held].sum() == 0
    assert np.ptp(counts[2:].sum(axis=1)) <= 1


def test_shared_and_mixed_mavericks():
    counts = counts_of(Mavericks(2, shared=True).split(POOL, 6, R(0)))
    held = np.flatnonzero(counts[0])
    assert len(held) == 2
    assert counts[0].tolist() == counts[1].tolist()
    assert counts[2:, held].sum() == 0
    counts = counts_of(Mavericks(1, mixed=True).split(POOL, 5, R(0)))
    (alone,) = np.flatnonzero((counts[1:] == 0).all(axis=0))
    assert counts[0, alone] == np.bincount(POOL)[alone]
    assert np.ptp(np.delete(counts, alone, axis=1).sum(axis=1)) <= 1


def test_mixed_groups():
    scheme = Mixed(((6, IID()), (4, Dirichlet(0.01, by="client"))))
    counts = counts_of(scheme.split(POOL, 10, R(0)))
    top = counts.max(1) / counts.sum(1)
    assert top[:6].max() < 0.6 < top[6:].mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuantitySkew(proportions=(1.0, 2.0)).split(POOL, 4, R(0)), "a number above 0"),
        (lambda: ClassesPerClient(6).split(POOL, 10, R(0)), "k is 6 but there are 5 classes"),
        (lambda: ClassesPerClient(1).split(POOL, 4, R(0)), "cannot hold 5 classes"),
        (lambda: Mavericks(2).split(POOL, 2, R(0)), "leave no clients"),
        (lambda: Mavericks(2, mixed=True).split(POOL, 1, R(0)), "leave no clients"),
        (lambda: Mavericks(5).split(POOL, 8, R(0)), "no classes for the others"),
        (lambda: Mixed(((6, IID()),)).split(POOL, 9, R(0)), "groups have 6 clients and n_clients"),
        (lambda: Dirichlet(1e308), "alpha is 1e.308; expected .* up to 1e.12"),
        (lambda: QuantitySkew(1e308), "alpha is 1e.308; expected .* up to 1e.12"),
        (lambda: QuantitySkew(proportions=(1, np.nan)).split(POOL, 2, R(0)), "proportions"),
        (lambda: Mixed(((2, IID),)), "a partitioner in groups"),
        (lambda: fk.make_federation(fk.load("digits"), 5000, IID(), 0), "n_clients is 5000 but"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@settings(max_examples=60)
@given(
    labels=st.lists(st.integers(0, 5), min_size=2, max_size=80).filter(
        lambda v: max(v.count(c) for c in set(v)) > 1
    ),
    fraction=st.floats(0.001, 0.9),
    seed=st.integers(0, 2**32),
)
def test_hold_out_covers_every_class_it_can(labels, fraction, seed):
    y = np.array(labels)
    single = [c for c in set(labels) if labels.count(c) == 1]
    rng = R(seed)
    if single:
        with pytest.warns(UserWarning, match="no validation image"):
            train, held = hold_out(y, fraction, rng)
    else:
        train, held = hold_out(y, fraction, rng)
    assert is_partition([np.sort(np.concatenate([train, held]))], len(y))
    assert set(y[held]) == set(labels) - set(single)
    assert set(y[train]) == set(labels)
    assert len(held) <= max(1, round(fraction * len(y))) + len(set(labels))


@settings(max_examples=60)
@given(
    factor=st.floats(1e-3, 1.0),
    n_classes=st.integers(1, 12),
    per_class=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_long_tail_counts(factor, n_classes, per_class, seed):
    y = R(seed).permutation(np.repeat(np.arange(n_classes), per_class))
    kept = long_tail(y, factor, R(seed))
    counts = np.bincount(y[kept], minlength=n_classes)
    assert np.all(np.diff(kept) > 0)
    assert np.all(np.diff(counts) <= 0)
    assert counts[0] == per_class
    exact = per_class * factor ** (np.arange(n_classes) / max(n_classes - 1, 1))
    assert np.all(counts >= np.maximum(1, np.floor(exact) - 1e-6))
    assert np.all(counts <= np.maximum(1, exact + 1e-6))


def test_long_tail_by_hand():
    y = np.repeat([0, 1, 2], 100)
    kept = long_tail(y, 0.01, R(0))
    assert np.bincount(y[kept]).tolist() == [100, 10, 1]  # 100 * 0.01 ** (0, 1/2, 1)
    uneven = np.repeat([0, 1], [50, 150])  # a class never gives more than it has
    kept = long_tail(uneven, 0.5, R(0))
    assert np.bincount(uneven[kept]).tolist() == [50, 50]


def test_dirichlet_by_class_leaves_clients_empty_and_the_rules_mend_it():
    y = POOL
    rng = R(0)
    parts = Dirichlet(0.01).split(y, 50, rng)
    assert sum(len(p) == 0 for p in parts) > 10
    assert fill_empty(parts, "keep", rng)[0] is parts[0]
    filled = fill_empty(parts, "refill", rng, min_size=3)
    assert min(len(p) for p in filled) == 3
    assert is_partition(filled, len(y))
    with pytest.raises(ValueError, match="cannot give 50 clients 21 each"):
        fill_empty(parts, "refill", rng, min_size=21)


def test_refill_takes_from_the_largest():
    parts = [np.arange(6), np.arange(6, 10), np.empty(0, dtype=np.int64)]
    filled = fill_empty(parts, "refill", R(0), min_size=2)
    assert [len(p) for p in filled] == [4, 4, 2]


@pytest.mark.parametrize("alpha", [0.5, 4.0])
def test_shares_of_a_quantity_skew_vary_as_dirichlets_do(alpha):
    rng, labels = np.random.default_rng(1), np.zeros(4000, dtype=np.int64)
    draws = [QuantitySkew(alpha).split(labels, 5, rng) for _ in range(300)]
    shares = np.array([[len(part) / 4000 for part in draw] for draw in draws])
    assert shares.var() == pytest.approx(0.2 * 0.8 / (5 * alpha + 1), rel=0.15)


def test_blocks_keep_the_most_even_of_twenty_draws(monkeypatch):
    drawn, plain = [], Dirichlet._by_class
    monkeypatch.setattr(
        Dirichlet, "_by_class", lambda self, *rest: drawn.append(plain(self, *rest)) or drawn[-1]
    )
    labels = np.repeat(np.arange(5), 100)
    parts = Dirichlet(0.05, by="blocks").split(labels, 10, np.random.default_rng(0))
    least = [min(sum(map(len, pieces)) for pieces in draw) for draw in drawn]
    assert len(drawn) == 20
    assert max(least) > least[0]
    line = np.concatenate([piece for pieces in drawn[int(np.argmax(least))] for piece in pieces])
    for part, expected in zip(parts, np.array_split(line, 10), strict=True):
        np.testing.assert_array_equal(part, np.sort(expected))


def test_blocks_are_drawn_again_until_the_smallest_has_half_its_share(monkeypatch):
    drawn, plain = [], Dirichlet._by_class
    monkeypatch.setattr(
        Dirichlet, "_by_class", lambda self, *rest: drawn.append(plain(self, *rest)) or drawn[-1]
    )
    for seed in range(10):
        drawn.clear()
        Dirichlet(0.3, by="blocks").split(np.repeat(np.arange(10), 100), 10, R(seed))
        least = [min(sum(map(len, pieces)) for pieces in draw) for draw in drawn]
        assert all(k < 50 for k in least[:-1])
        assert least[-1] >= 50 or len(drawn) == 20


def test_blocks_are_of_ten_clients_and_as_many_images(monkeypatch):
    drawn, plain = [], Dirichlet._by_class

    def by_class(self, labels, pool, members, rng):
        drawn.append((members, len(pool)))
        return plain(self, labels, pool, members, rng)

    monkeypatch.setattr(Dirichlet, "_by_class", by_class)
    labels = np.repeat(np.arange(5), 100)
    Dirichlet(100.0, by="blocks").split(labels, 25, np.random.default_rng(0))
    assert set(drawn) == {(9, 180), (8, 160)}
