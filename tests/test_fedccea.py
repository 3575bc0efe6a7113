"""FedCCEA's experiment, on a small federation."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from rounding import assert_close

import fedkit as fk
from fedkit.federated.retraining import RetrainingGame, train_with_sizes
from fedkit.methods.fedccea import contribution_index, sample_sizes
from fedkit.papers.fedccea import cells, fits
from fedkit.papers.fedccea import settings as paper
from fedkit.papers.fedccea.dealt import DEALS, ENDS, run_dealt
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.removal import (
    PROPORTIONS,
    area_between,
    partial_participation,
)
from fedkit.papers.fedccea.runs import run_base, run_cell, run_cost
from fedkit.papers.fedccea.walks import Tally, truncated_walks
from fedkit.papers.registry import Cell, get

BASE = paper.Setting(
    "digits", "digits", "strong", model="mlp-8", clients=5, rounds=3, simulations=6, samples=30,
    epochs=1, batch_size=16, lr=0.3,
)  # fmt: skip


def run(profile):
    """One small run with few fits."""
    s = replace(BASE, noise="label-40")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPLITS", "PERMUTATIONS", "FOLDS"):
            patch.setattr(fits, name, 2)
        return run_cell(Cell(profile, "fedccea", "contribution", asdict(s), (0,)), "cpu", False)[0]


@pytest.fixture(scope="module")
def result():
    return run("smoke")


def test_a_run_measures_what_the_tables_show(result):
    metrics, series = result["metrics"], result["series"]
    for m in paper.METHODS:
        assert sum(series[f"index.{m}"]) == pytest.approx(1)
        assert metrics[f"zeros.{m}"] == sum(x == 0 for x in series[f"index.{m}"])
        if metrics[f"zeros.{m}"] == 0:
            assert metrics[f"excluded.{m}"] == pytest.approx(metrics["base"])
        # nobody removed: everybody's accuracy
        assert series[f"{m}.lowest"][0] == series[f"{m}.highest"][0]
        assert series[f"{m}.lowest"][0] == pytest.approx(metrics["base"], abs=0.3)
    assert metrics["trained.loo"] == pytest.approx(1 + 4)  # N, and each N without one
    assert metrics["trained.fedccea"] == pytest.approx(6 / 2, rel=0.3)
    assert len(series["partial.lowest"]) == len(PROPORTIONS)
    assert {"area.partial-size", "rank.seeds", "explained"} <= set(metrics)
    assert 0.05 <= metrics["explained.p"] <= 1
    for m in paper.METHODS:
        values = np.array(series[f"value.{m}"])
        np.testing.assert_allclose(contribution_index(values), series[f"index.{m}"])
        assert metrics[f"spread.{m}"] == pytest.approx(np.std(series[f"index.{m}"]) * BASE.clients)
        clean, noisy = np.split(values, [BASE.clients - round(0.2 * BASE.clients)])
        above = [(a > b) + (a == b) / 2 for a in clean for b in noisy]
        assert metrics[f"auc.{m}"] == pytest.approx(np.mean(above))
        lost = series[f"{m}.lowest"][0] - series[f"{m}.lowest"][4]
        assert metrics[f"lost40.{m}"] == pytest.approx(lost)
    for m in (*paper.FITS, "same_round"):
        assert metrics[f"unseen.{m}"] < 1
    for m in paper.FITS:
        assert (
            np.diff([series[f"miss.{m}.{q}"] for q in ("low", "middle", "high")], axis=0) >= 0
        ).all()
        assert len(series[f"miss.{m}.low"]) == BASE.rounds
    for name in READINGS:
        assert metrics[f"explained.{name}"] <= 1
        assert -1 <= metrics[f"rank.{name}"] <= 1
    assert metrics["explained"] >= metrics["explained.adam"]
    assert 0 <= metrics["falling"] <= 1
    for m in (*paper.METHODS, *READINGS):
        zeros = metrics[f"zeros.{m}"]
        assert zeros == sum(x == 0 for x in series[f"index.{m}"])
        assert 0 <= metrics[f"auc.{m}"] <= 1
        assert np.isnan(metrics[f"excluded.{m}.random"]) == (zeros / BASE.clients > 0.5)
    assert "area.size" not in metrics  # all sizes are equal, so nobody is ranked
    assert {f"area.random{k}" for k in range(paper.RANDOM_ORDERS)} < set(metrics)


def test_dealt_qualities_stand_beside_the_same_learnt_ones(result):
    s = replace(BASE, noise="label-40")
    found = run_dealt(Cell("smoke", "fedccea", "dealt", asdict(s), (0,)), "cpu", False)[0]
    same = {"learnt": "partial", "learnt-connected": "partial-connected"}
    same |= {"amounts": "partial-size"}
    for here, there in same.items():
        for name in ("area", "lost40"):
            expected = result["metrics"][f"{name}.{there}"]
            assert found["metrics"][f"{name}.{here}"] == pytest.approx(expected)
    for end in ENDS.values():
        areas = [found["metrics"][f"area.dealt{end}{k}"] for k in range(DEALS)]
        assert len(set(areas)) > 1
    cells = get("fedccea", "dealt").cells("laptop")
    assert {c.settings["distribution"] for c in cells} == {"strong"}
    assert len(cells) == 2 * 2 * 3  # data sets, clean and noisy, seeds


def test_trainings_at_scale_are_kept_and_change_nothing(result, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    for _ in range(2):
        again = run("laptop")
        assert again["metrics"] == pytest.approx(result["metrics"], nan_ok=True)
        assert again["series"] == result["series"]
    assert len(list((tmp_path / "trainings" / "fedccea").iterdir())) == 2  # the two halves


def test_areas_by_hand():
    rising = {"a.lowest": np.array([90.0, 90, 90]), "a.highest": np.array([90.0, 60, 30])}
    assert area_between(rising, "a") == pytest.approx((30 + 60) / 2)


def test_distributions_and_noise_are_those_of_the_paper():
    for distribution, classes in (("iid", 10), ("weak", 5), ("strong", 2)):
        s = replace(BASE, distribution=distribution, samples=None, clients=20)
        counts = paper.federation(s, 0).label_counts
        assert (counts > 0).sum(axis=1).max() <= classes
    s = replace(BASE, noise="label-40", clients=10, distribution="iid")
    assert s.noisy_clients().tolist() == [8, 9]
    f = paper.federation(s, 0)
    wrong = [(f.client_data(i)[1] != f.y[f.clients[i]]).float().mean() for i in range(10)]
    np.testing.assert_allclose(wrong, [0] * 8 + [0.4] * 2, atol=0.02)
    assert paper.federation(replace(s, samples=7), 0).sizes.tolist() == [7] * 10
    for noise, relabelled in (("pattern-20", 0.0), ("backdoor-20", 0.18)):
        f = paper.federation(replace(s, noise=noise), 0)
        (x, y), rows = f.client_data(9), f.clients[9]
        changed = (x != f.x[rows]).flatten(1).any(dim=1).float().mean()
        assert changed == pytest.approx(0.2, abs=0.02)
        assert (y != f.y[rows]).float().mean() == pytest.approx(relabelled, abs=0.05)


def test_the_order_of_samples_is_drawn_once():
    f, again = (paper.federation(BASE, 0) for _ in range(2))
    assert all((a == b).all() for a, b in zip(f.clients, again.clients, strict=True))
    assert any((np.diff(c) < 0).any() for c in f.clients)  # mixed, so that a prefix is a sample


def test_a_tally_adds_up_shares():
    game = fk.TableGame(np.arange(8.0))
    tally = Tally(game, np.array([10, 30, 60]))
    tally.value(np.array([[True, False, True], [False, False, False], [True, True, True]]))
    assert tally.trained == pytest.approx(0.7 + 0 + 1)


def test_cells_cover_the_papers_settings():
    cells = get("fedccea", "contribution").cells("paper")
    places = {
        (c.settings["dataset"], c.settings["distribution"], c.settings["noise"]) for c in cells
    }
    assert len(places) == 2 * 3 * 5
    assert [c.seeds for c in cells] == [(seed,) for seed in (0, 1, 2) for _ in places]
    mnist = next(c.settings for c in cells if c.settings["dataset"] == "mnist")
    assert (mnist["epochs"], mnist["batch_size"], mnist["lr"]) == (3, 32, 0.001)
    assert (mnist["clients"], mnist["rounds"], mnist["simulations"]) == (20, 50, 100)
    with pytest.raises(ValueError, match="unknown profile"):
        get("fedccea", "contribution").cells("huge")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"distribution": "skewed"}, "distribution is 'skewed'"),
        ({"noise": "label"}, "noise is 'label'"),
        ({"noise": "salt-20"}, "noise is 'salt-20'"),
        ({"clients": 0}, "clients is 0"),
        ({"rounds": 0}, "rounds 0"),
        ({"simulations": 0}, "simulations 0"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        replace(BASE, **change)


def test_a_reduced_run_keeps_all_but_samples_and_rate_or_batches():
    full = get("fedccea", "contribution").cells("paper")
    reduced = get("fedccea", "contribution").cells("laptop")
    assert len(reduced) == len(full)
    for a, b in zip(full, reduced, strict=True):
        differ = {k for k in a.settings if a.settings[k] != b.settings[k]}
        assert differ == {"samples", "lr" if a.settings["dataset"] == "mnist" else "batch_size"}


def test_parts_are_the_values_of_smaller_budgets():
    s = replace(BASE, simulations=24)
    f = paper.federation(s, 0)
    valued = paper.value_clients(s, f, 0, device="cpu")
    half = replace(s, simulations=12)
    alone = paper.value_clients(half, f, 0, device="cpu").values["fedccea"]
    at = paper.PARTS.index(0.5)
    for values in valued.parts.values():
        assert values.shape == (len(paper.PARTS), BASE.clients)
        assert np.ptp(values, axis=0).max() > 0
    assert_close(valued.parts["fedccea"][at], alone, 0.02)  # an image may change sides
    game = RetrainingGame(
        paper.halves(f, 0)[0], paper.architecture(BASE, f), BASE.local, BASE.rounds, 0, device="cpu"
    )
    for m in (*paper.FITS, "tmc-sv"):
        for share in paper.PARTS:
            assert valued.trained[f"{m}.{share:g}"] == pytest.approx(
                share * valued.trained["fedccea"], rel=0.3
            ), (m, share)
    limit = valued.trained["fedccea"] / 2
    alone = truncated_walks(game, f.sizes, tolerance=s.tolerance, seed=0, limit=limit)[0]
    assert_close(valued.parts["tmc-sv"][at], alone, 0.02)


def test_walks_cost_what_the_simulations_cost():
    """Walks that are cut early ask for small coalitions; more of them are due."""
    saturating = fk.FunctionGame(10, lambda rows: 1 - 0.5 ** rows.sum(axis=1))
    sizes = np.full(10, 30)
    values, spent = truncated_walks(saturating, sizes, tolerance=0.15, seed=0, limit=20.0)
    assert 18.0 <= spent <= 22.0
    once = Tally(saturating, sizes)
    fk.estimate(once, fk.TruncatedMonteCarlo(0.15), budget=40, seed=0)
    assert once.trained < 12.0  # what as many coalitions as simulations cost
    assert values.sum() == pytest.approx(1 - 0.5**3, abs=1e-9)
    # the number of whole walks that comes closest: the grand coalition, and 4.5 federations each
    additive = fk.FunctionGame(10, lambda rows: rows.sum(axis=1) / 10.0)
    for limit, cost in ((9.0, 10.0), (7.5, 5.5), (12.0, 10.0), (13.0, 14.5)):
        found = truncated_walks(additive, sizes, tolerance=0.0, seed=0, limit=limit)[1]
        assert found == pytest.approx(cost), limit
    # where nothing is left to ask for, it ends
    flat = fk.FunctionGame(10, lambda rows: np.zeros(len(rows)))
    values, spent = truncated_walks(flat, sizes, tolerance=0.15, seed=0, limit=20.0)
    assert spent <= 1.0
    assert not values.any()
    for limit in (np.nan, np.inf, 0.0, -1.0):
        with pytest.raises(ValueError, match="expected a positive number of federations"):
            truncated_walks(flat, sizes, tolerance=0.15, seed=0, limit=limit)


def test_learning_is_the_base_of_a_run_on_both_halves_of_the_test_images():
    cell = Cell("smoke", "fedccea", "learning", asdict(BASE), (0,))
    found = run_base(cell, "cpu", False)[0]
    f = paper.federation(BASE, 0)
    valuing, scoring = paper.halves(f, 0)
    valued = paper.value_clients(BASE, f, 0, device="cpu")
    both = len(valuing.y_test), len(scoring.y_test)
    sizes = np.broadcast_to(f.sizes, (1, BASE.rounds, BASE.clients))
    first = (
        100
        * train_with_sizes(
            valuing, paper.architecture(BASE, f), BASE.local, sizes, every_round=False, device="cpu"
        ).item()
    )
    total = (both[0] * first + both[1] * 100 * valued.base) / sum(both)
    assert found["metrics"]["base"] == pytest.approx(total, abs=0.3)
    assert found["series"]["accuracy"][-1] == found["metrics"]["base"]


def test_test_images_are_split_in_halves():
    f = paper.federation(BASE, 0)
    valuing, scoring = paper.halves(f, 0)
    assert abs(len(valuing.y_test) - len(scoring.y_test)) <= 1
    rows = {tuple(x.flatten().tolist()) for x in f.x_test}
    parts = [{tuple(x.flatten().tolist()) for x in h.x_test} for h in (valuing, scoring)]
    assert parts[0] | parts[1] == rows
    assert len(parts[0] & parts[1]) <= len(f.x_test) - len(rows)  # but for images that occur twice


def test_partial_participation_has_a_control_that_ranks_by_amounts():
    f = paper.federation(BASE, 0)
    ones = np.ones(BASE.clients)

    def curves_of(weights):
        given = {"partial": weights, "partial-size": ones}
        return partial_participation(BASE, f, given, 0, device="cpu")

    curves = curves_of(ones)
    for end in ("lowest", "highest"):
        np.testing.assert_allclose(curves[f"partial.{end}"], curves[f"partial-size.{end}"])
    upside = curves_of(np.array([1.0, 0, 0, 0, 0]))
    assert (upside["partial-size.lowest"] == curves["partial-size.lowest"]).all()
    assert (upside["partial.lowest"] != curves["partial.lowest"]).any()


def test_partial_participation_draws_amounts_that_no_fit_has_seen():
    f, asked = paper.federation(BASE, 0), []

    def train(federation, architecture, local, sizes, **_):
        asked.append(np.asarray(sizes))
        return np.zeros((len(sizes), 1))

    partial_participation(BASE, f, {"partial-size": np.ones(BASE.clients)}, 0, train=train)
    everybody = asked[0][0]
    drawn = sample_sizes(f.sizes, BASE.simulations + 1, BASE.rounds, 0)
    assert (everybody == drawn[-1]).all()
    for other in (*drawn[:-1], *sample_sizes(f.sizes, BASE.simulations, BASE.rounds, 1)):
        assert (everybody != other).any()


def test_costs_are_counted_per_simulation_and_round():
    found = run_cost(Cell("smoke", "fedccea", "cost", asdict(BASE), (0,)), "cpu", False)[0]
    metrics = found["metrics"]
    assert metrics["trained.loo"] == pytest.approx(1 + 4)
    assert metrics["trained.walk"] == pytest.approx(3)
    assert metrics["trained.lockstep"] == pytest.approx(0.5, rel=0.3)
    assert all(metrics[f"seconds.{m}"] > 0 for m in ("simulation", "lockstep", "loo", "walk"))


def test_the_papers_emnist_is_by_class_where_that_is_there(monkeypatch):
    def emnist(there, profile):
        monkeypatch.setattr(cells, "available", lambda name: there)
        found = get("fedccea", "contribution").cells(profile)
        settings = [c.settings for c in found if c.settings["dataset"] == "emnist"]
        return {(s["data"], s["weak"], s["strong"]) for s in settings}

    assert emnist(None, "paper") == emnist("by class", "laptop") == {("emnist-letters", 13, 2)}
    assert emnist("by class", "paper") == {("femnist", 30, 5)}
