"""How the fits of FedCCEA's simulations are compared with one another and with chance."""

import numpy as np
import pytest

from fedkit.methods.fedccea import Fit, Simulations
from fedkit.papers.fedccea import fits
from fedkit.papers.fedccea import settings as paper
from fedkit.papers.fedccea.fits import READINGS, by_chance, explained, same_round, stability

BASE = paper.Setting(
    "digits", "digits", "strong", model="mlp-8", clients=5, rounds=3, simulations=6, samples=30,
    epochs=1, batch_size=16, lr=0.3,
)  # fmt: skip


def test_fits_that_are_compared_share_neither_simulations_nor_seed(monkeypatch):
    rng = np.random.default_rng(0)
    sims = Simulations(rng.random((20, 3, 5)), rng.random((20, 3)))
    asked = []

    def fit(part, *, seed, sigmoid):
        if sigmoid == "connected":
            return Fit(np.arange(5.0), [0.0], part.accuracy)
        asked.append(({tuple(row.ravel()) for row in part.sizes}, seed))
        return Fit(np.arange(5.0) * (1 if len(asked) % 2 else -1), [0.0], part.accuracy)

    monkeypatch.setattr(fits, "fit_aam", fit)
    monkeypatch.setattr(fits, "SPLITS", 2)
    found = stability(BASE, sims, 7)
    ranks = {"rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds"}
    others = {f"{k}.{m}" for k in ranks for m in ("connected", "same_round")}
    assert {k for k in found if k.startswith("rank")} == ranks | others - {"rank.seeds.same_round"}
    assert [found[f"{k}.connected"] for k in ranks] == pytest.approx([1] * 4)
    assert [found[k] for k in sorted(ranks)] == pytest.approx([-1] * 4)
    assert found["spread.0.5"] == pytest.approx(0)
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert all(a[1] != b[1] for a, b in pairs)
    assert all(not (a[0] & b[0]) for a, b in pairs[:-1])
    assert [len(a[0]) for a, _ in pairs] == [3, 3, 5, 5, 10, 10, 20]
    assert pairs[4][0][0] != pairs[5][0][0]  # another split
    assert pairs[-1][0][0] == pairs[-1][1][0]


def test_the_same_round_is_found_and_chance_is_told_from_it():
    rng = np.random.default_rng(0)
    sizes = rng.random((30, 4, 3))
    slope = np.array([0.3, 0.0, 0.1])
    noise = 0.01 * rng.standard_normal((30, 4))
    last = Simulations(sizes, np.linspace(0.1, 0.5, 4) + sizes @ slope + noise)
    found, share = same_round(last)
    np.testing.assert_allclose(found, slope, atol=0.02)
    assert share > 0.9
    assert same_round(Simulations(rng.random((30, 4, 3)), last.accuracy))[1] < 0.1
    lasting = Simulations(sizes, 0.1 + 0.2 * np.cumsum(sizes @ slope, axis=1) + noise)
    assert by_chance(lasting, 0)["explained.p"] == 0.05
    apart = by_chance(Simulations(rng.random((30, 4, 3)), lasting.accuracy), 0)
    assert apart["explained.p"] > 0.05
    assert 0 < apart["explained.chance"] < 0.5


def test_explained_by_hand():
    accuracy = np.array([[0.1, 0.5], [0.3, 0.7]])
    sims = Simulations(np.ones((2, 2, 1)), accuracy)
    fit = Fit(np.ones(1), [0.05**2], accuracy)
    assert explained(sims, fit) == pytest.approx(
        {"aam_error": 5.0, "round_error": 10.0, "explained": 0.75}
    )


def test_adams_fit_starts_elsewhere_than_the_converged_one(monkeypatch):
    rng = np.random.default_rng(0)
    sims, asked = Simulations(rng.random((20, 3, 5)), rng.random((20, 3))), []

    def fit(part, *, solver, lr, seed):
        asked.append((solver, lr, seed))
        return Fit(rng.random(5), [0.0], part.accuracy)

    monkeypatch.setattr(fits, "fit_aam", fit)
    both = {m: Fit(np.arange(5.0), [0.0], sims.accuracy) for m in paper.FITS}
    qualities, found = fits.other_fits(BASE, sims, both, 3)
    assert asked == [("adam", BASE.aam_lr, 3 + 2 * fits.OTHER_SEED)]
    assert set(qualities) == set(READINGS)
    assert found["rank.connected"] == pytest.approx(1)


def test_simulations_that_no_fit_has_seen_tell_knowledge_from_fitting():
    rng = np.random.default_rng(0)
    sizes = rng.random((60, 6, 4))
    drift, noise = np.linspace(0.3, 0.6, 6), 0.01 * rng.standard_normal((60, 6))
    kept = 0.3 ** np.subtract.outer(np.arange(6), np.arange(6)) * np.tri(6)
    fading = np.einsum("qr,sri,i->sq", kept, sizes, np.array([0.0, 0.02, 0.05, 0.1]))
    known = fits.unseen(Simulations(sizes, drift + fading + noise), 0)
    assert known["unseen.connected"] > 0.5
    assert known["unseen.same_round"] > 0.5
    nothing = fits.unseen(Simulations(rng.random(sizes.shape), drift + fading + noise), 0)
    assert max(nothing.values()) < 0
    by_hand = Simulations(np.ones((2, 2, 1)), np.array([[0.1, 0.5], [0.3, 0.7]]))
    missed = fits.misses(by_hand, Fit(np.ones(1), [0.0], by_hand.accuracy + [[0.01, 0.02]] * 2))
    assert missed["middle"] == pytest.approx([1.0, 2.0])
