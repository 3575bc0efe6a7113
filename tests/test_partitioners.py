import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals, refused
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
    refusals = ("enough to hold all", "leave no clients")
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


test_bad_input_is_refused = refusals(
    (
        lambda: QuantitySkew(proportions=(1.0, 2.0)).split(POOL, 4, R(0)),
        "expected 4 finite numbers",
    ),
    (lambda: ClassesPerClient(6).split(POOL, 10, R(0)), "k is 6 for 10 clients and 5 classes"),
    (lambda: ClassesPerClient(1).split(POOL, 4, R(0)), "enough to hold all"),
    (lambda: Mavericks(2).split(POOL, 2, R(0)), "leave no clients"),
    (lambda: Mavericks(2, mixed=True).split(POOL, 1, R(0)), "leave no clients"),
    (lambda: Mavericks(5).split(POOL, 8, R(0)), "leave no clients or classes"),
    (lambda: Mixed(((6, IID()),)).split(POOL, 9, R(0)), "groups have 6 clients and n_clients"),
    (lambda: Dirichlet(1e308), "alpha is 1e.308; expected .* up to 1e.12"),
    (lambda: QuantitySkew(1e308), "alpha is 1e.308; expected .* up to 1e.12"),
    (lambda: QuantitySkew(proportions=(1, np.nan)).split(POOL, 2, R(0)), "proportions"),
    (lambda: Mixed(((2, IID),)), "a partitioner in groups"),
    (lambda: fk.make_federation(fk.load("digits"), 5000, IID(), 0), "n_clients is 5000 for"),
)


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
    refused("too few: 21 for each of 50", fill_empty, parts, "refill", rng, min_size=21)


def test_refill_takes_from_the_largest():
    parts = [np.arange(6), np.arange(6, 10), np.empty(0, dtype=np.int64)]
    filled = fill_empty(parts, "refill", R(0), min_size=2)
    assert [len(p) for p in filled] == [4, 4, 2]
