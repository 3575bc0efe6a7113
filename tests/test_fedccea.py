from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

import fedkit as fk
from fedkit.aam import Fit, Simulations, sample_sizes
from fedkit.experiments import Cell, get
from fedkit.experiments import fedccea as paper
from fedkit.experiments import fedccea_fits as fits
from fedkit.experiments import fedccea_tables as tables
from fedkit.experiments.fedccea_fits import READINGS, by_chance, explained, same_round, stability
from fedkit.experiments.fedccea_removal import (
    PARTIAL,
    PROPORTIONS,
    TIE_ORDERS,
    area_between,
    kept_after_removal,
    partial_participation,
    removal_curves,
)
from fedkit.experiments.fedccea_runs import index_metrics, run_base, run_cell, run_cost
from fedkit.experiments.fedccea_times import measured_times
from fedkit.retraining import RetrainingGame, train_with_sizes

BASE = paper.Setting(
    "digits", "digits", "strong", model="mlp-8", clients=5, rounds=3, simulations=6, samples=30,
    epochs=1, batch_size=16, lr=0.3,
)  # fmt: skip


def run(profile):
    """One small run with few fits."""
    s = replace(BASE, noise="label-40")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPLITS", "PERMUTATIONS", "FEW_PERMUTATIONS"):
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
        assert 0 <= metrics[f"auc.{m}"] <= 1
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
    for name in READINGS:
        assert metrics[f"explained.{name}"] <= 1
        assert -1 <= metrics[f"rank.{name}"] <= 1
    assert metrics["explained"] >= metrics["explained.adam"]
    assert 0 <= metrics["falling"] <= 1
    for m in (*paper.METHODS, *READINGS):
        zeros = metrics[f"zeros.{m}"]
        assert zeros == sum(x == 0 for x in series[f"index.{m}"])
        assert np.isnan(metrics[f"excluded.{m}.random"]) == (zeros / BASE.clients > 0.5)
    assert "area.size" not in metrics  # all sizes are equal, so nobody is ranked
    assert {f"area.random{k}" for k in range(paper.RANDOM_ORDERS)} < set(metrics)


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


def test_removal_keeps_the_right_clients():
    values = np.array([0.3, -1.0, 2.0, 0.0, 1.0])
    ties = np.arange(5)
    kept = kept_after_removal(values, np.array([0.0, 0.4]), False, ties)
    assert kept.tolist() == [[True] * 5, [True, False, True, False, True]]
    kept = kept_after_removal(values, np.array([0.2]), True, ties)
    assert kept.tolist() == [[True, True, False, True, True]]
    # of tied clients the one that `ties` puts first goes first, from either end
    tied = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    order = np.array([4, 3, 1, 0, 2])
    for high, gone in ((False, [2, 4]), (True, [3, 1])):
        for k in (1, 2):
            kept = kept_after_removal(tied, np.array([k / 5]), high, order)
            assert set(np.flatnonzero(~kept[0])) == set(gone[:k])


def test_a_tally_adds_up_shares():
    game = fk.TableGame(np.arange(8.0))
    tally = paper.Tally(game, np.array([10, 30, 60]))
    tally.value(np.array([[True, False, True], [False, False, False], [True, True, True]]))
    assert tally.trained == pytest.approx(0.7 + 0 + 1)


def test_cells_cover_the_papers_settings():
    cells = get("fedccea", "contribution").cells("paper")
    places = {
        (c.settings["dataset"], c.settings["distribution"], c.settings["noise"]) for c in cells
    }
    assert len(places) == len(cells) == 2 * 3 * 5
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
    np.testing.assert_allclose(valued.parts["fedccea"][at], alone, rtol=1e-6, atol=1e-9)
    game = RetrainingGame(
        paper.halves(f, 0)[0], paper.architecture(BASE, f), BASE.local, BASE.rounds, 0, device="cpu"
    )
    limit = valued.trained["fedccea"] / 2
    alone = paper.truncated_walks(s, game, f.sizes, 0, limit)[0]
    np.testing.assert_allclose(valued.parts["tmc-sv"][at], alone, rtol=1e-6, atol=1e-9)


def test_walks_cost_what_the_simulations_cost():
    """Walks that are cut early ask for small coalitions; more of them are due."""
    s = replace(BASE, clients=10, tolerance=0.15)
    saturating = fk.FunctionGame(10, lambda rows: 1 - 0.5 ** rows.sum(axis=1))
    sizes = np.full(10, 30)
    values, spent = paper.truncated_walks(s, saturating, sizes, 0, 20.0)
    assert 18.0 <= spent <= 22.0
    once = paper.Tally(saturating, sizes)
    fk.estimate(once, fk.TruncatedMonteCarlo(0.15), budget=40, seed=0)
    assert once.trained < 12.0  # what as many coalitions as simulations cost
    assert values.sum() == pytest.approx(1 - 0.5**3, abs=1e-9)
    # where nothing is left to ask for, it ends
    flat = fk.FunctionGame(10, lambda rows: np.zeros(len(rows)))
    values, spent = paper.truncated_walks(s, flat, sizes, 0, 20.0)
    assert spent <= 1.0
    assert not values.any()


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


def test_fits_that_are_compared_share_neither_simulations_nor_seed(monkeypatch):
    rng = np.random.default_rng(0)
    sims = Simulations(rng.random((20, 3, 5)), rng.random((20, 3)))
    asked = []

    def fit(part, *, seed):
        asked.append(({tuple(row.ravel()) for row in part.sizes}, seed))
        return Fit(np.arange(5.0) * (1 if len(asked) % 2 else -1), [0.0], part.accuracy)

    monkeypatch.setattr(fits, "fit_aam", fit)
    monkeypatch.setattr(fits, "SPLITS", 2)
    found = stability(BASE, sims, 7)
    ranks = {"rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds"}
    assert {k for k in found if k.startswith("rank")} == ranks
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


def test_ties_go_in_random_order():
    """Ten clients whose order says who is good; a ranking of two values must not profit by it."""
    game = fk.FunctionGame(10, lambda rows: rows @ np.arange(10.0))
    values = dict.fromkeys((*paper.METHODS, *READINGS, *paper.CONTROLS), np.arange(10.0))
    values |= {"random": np.arange(10.0)[None], "loo": np.repeat([1.0, 0.0], [9, 1])}
    valued = paper.Valued(values, {}, 1.0, None, None, game, {})
    seeds = [removal_curves(valued, seed) for seed in range(40)]
    gone = np.array([c["loo.highest"][0] - c["loo.highest"] for c in seeds]) / 100
    # k of the first nine go, whose qualities are 4 on average
    mean, error = gone.mean(axis=0), gone.std(axis=0, ddof=1) / np.sqrt(len(gone))
    assert (np.abs(mean - 4 * np.arange(6))[1:] < 4 * error[1:]).all()
    one = fk.FunctionGame(10, lambda rows: (~rows[:, 0]).astype(float))
    found = removal_curves(replace(valued, scored=one), 0)["loo.highest"]
    steps = np.round(TIE_ORDERS * found / 100, 9)
    assert (steps == steps.round()).all()  # a mean over the orders
    assert set(steps) - {0.0, TIE_ORDERS}  # which differ
    assert (found == removal_curves(replace(valued, scored=one), 0)["loo.highest"]).all()


def test_random_orders_by_hand():
    game = fk.FunctionGame(4, lambda rows: rows @ np.array([0.1, 0.2, 0.3, 0.4]))
    values = dict.fromkeys((*paper.METHODS, *READINGS, *paper.CONTROLS), np.arange(4.0))
    values["random"] = np.array([[0.0, 1, 2, 3], [3.0, 2, 1, 0]])
    valued = paper.Valued(values, {}, 1.0, None, None, game, {})
    curves = removal_curves(valued, 0)
    areas = [area_between(curves, f"random{k}") for k in (0, 1)]
    assert areas[0] > 0
    assert areas[1] == pytest.approx(-areas[0])  # the same order from its other end
    assert area_between(curves, "size") == pytest.approx(areas[0])
    mean = [curves[f"random{k}.{end}"] for k in (0, 1) for end in ("lowest", "highest")]
    np.testing.assert_allclose(curves["random"], np.mean(mean, axis=0))
    values["oracle"] = np.ones(4)
    assert "oracle.lowest" not in removal_curves(valued, 0)  # it ranks nobody
    metrics, index = index_metrics(
        replace(valued, values=values | {"loo": np.array([0, 0, 1, 1]), "adam": -np.ones(4)}),
        curves,
    )
    assert metrics["zeros.loo"] == 2
    # all alike by the rule for nobody: that is no finding of "no zeros"
    assert (index["adam"] == 0.25).all()
    assert np.isnan([metrics[f"{k}.adam"] for k in ("zeros", "smallest", "excluded")]).all()
    assert metrics["excluded.loo"] == pytest.approx(70)
    assert metrics["excluded.loo.random"] == pytest.approx(curves["random"][-1])
    assert index["loo"].tolist() == [0, 0, 0.5, 0.5]


def test_halves_of_adams_fit_share_no_seed(monkeypatch):
    rng = np.random.default_rng(0)
    sims, asked = Simulations(rng.random((20, 3, 5)), rng.random((20, 3))), []

    def fit(part, *, solver, sigmoid, lr, seed):
        asked.append((sigmoid, len(part.sizes), seed))
        return Fit(rng.random(5), [0.0], part.accuracy)

    monkeypatch.setattr(fits, "fit_aam", fit)
    fits.other_fits(BASE, sims, Fit(np.ones(5), [0.0], sims.accuracy), 3, np.zeros(5, dtype=bool))
    for place in ("shared", "connected"):
        seeds = [seed for where, size, seed in asked if where == place and size == 10]
        assert len(seeds) == len(set(seeds)) == 2
    assert 3 not in {seed for *_, seed in asked}


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


def records(rows):
    """A frame of records: settings, and metrics per seed."""
    return pd.DataFrame(
        [
            {**settings, "seed": seed, "metric": name, "value": value}
            for settings, metrics in rows
            for name, values in metrics.items()
            for seed, value in enumerate(values)
        ]
    )


def test_tables_by_hand():
    strong = {"dataset": "mnist", "distribution": "strong", "noise": "none"}
    methods = {f"{k}.{m}": [1.0, 3.0] for k in ("excluded", "zeros", "area") for m in paper.METHODS}
    methods |= {"excluded.tmc-sv.random": [5.0, 5.0], "excluded.adam": [99.0, 97.0]}
    controls = {f"area.{m}": [0.0, 1.0] for m in (*READINGS, *PARTIAL) if m != "partial-connected"}
    controls |= {f"area.random{k}": [3.0, -4.0] for k in range(paper.RANDOM_ORDERS)}
    frame = records([(strong, {"base": [80.0, 82.0], **methods, **controls})])
    table = tables.exclusion_table(frame).loc["MNIST, strong non-IID"]
    everybody, tmc = table.loc["everybody"], table.loc["TMC-SV, retrained"]
    assert everybody["accuracy (%)"].startswith("81.0 [68.3, 93.7]")
    assert (everybody["paper (%)"], tmc["paper (%)"]) == ("85.60", "74.29")
    assert tmc["without as many random clients (%)"].startswith("5.0")
    assert table.loc["FedCCEA, by Adam", "accuracy (%)"] == "98.0 [85.3, 100.0]"
    areas = tables.areas_table(frame)
    assert areas["seeds"].item() == "2"
    assert areas["FedCCEA"].item().startswith("2.0 [")
    assert areas["oracle"].item() == "–"
    assert areas["one random order, ±"].item() == "3.5"
    leads = tables.leads_table(frame)
    assert leads["FedCCEA, over TMC-SV"].item() == "0.0 [0.0, 0.0]"
    assert leads["by Adam, over LOO"].item().startswith("-1.5 [")
    partial = tables.partial_table(frame)
    assert partial["FedCCEA, over amounts alone"].item() == "0.0 [0.0, 0.0]"
    assert partial["behind the nodes, over amounts alone"].item() == "–"
    assert partial["behind the nodes"].item() == "–"
    assert partial["amounts alone"].item().startswith("0.5 [")
    assert (
        tables.setting_name("emnist", "iid", "label-40") == "EMNIST letters, IID, 40% label noise"
    )


def test_fits_by_hand():
    place = {"dataset": "mnist", "distribution": "weak", "noise": "label-10"}
    found = {name: [0.5] for name in ("rank.0.1", "rank.0.25", "rank.0.5", "rank.seeds")}
    found |= {f"rank.{n}": [0.3] for n in (*READINGS, *(f"0.5.{r}" for r in READINGS))}
    found |= {"aam_error": [3.0], "round_error": [2.9], "explained": [-0.25]}
    others = ("chance", "p", "same_round", "adam", "connected")
    found |= {f"explained.{n}": [0.1 * i] for i, n in enumerate(others)}
    frame = records([(place, found)])
    row = tables.fits_table(frame).loc["MNIST, weak non-IID, 10% label noise"]
    assert (row["two halves"], row["converged and Adam's"]) == ("0.50", "0.30")
    row = tables.shares_table(frame).loc["MNIST, weak non-IID, 10% label noise"]
    assert (row["explained share"], row["by chance"]) == ("-0.25", "0.00")
    assert row["more than chance"] == "0 of 1"
    assert row["sizes of the same round"] == "0.20"


def test_parts_by_hand():
    place = {"dataset": "mnist", "distribution": "iid", "noise": "label-40"}
    ends = ("", ".0.25", ".0.5", ".0.75")
    found = {f"auc.{m}{e}": [0.1 * i] for m in paper.METHODS for i, e in enumerate(ends)}
    row = tables.parts_table(records([(place, found)])).iloc[0]
    assert (row["FedCCEA, 25%"], row["FedCCEA, all"]) == ("0.10", "0.00")
    assert row["TMC-SV, 75%"] == "0.30"


def test_settings_stand_in_the_papers_order():
    order = [("mnist", "iid", "none"), ("mnist", "strong", "none"), ("mnist", "strong", "label-40"),
             ("emnist", "iid", "none")]  # fmt: skip
    places = [dict(zip(("dataset", "distribution", "noise"), p, strict=True)) for p in order]
    frame = records([(place, {"rank.0.5": [0.1]}) for place in reversed(places)])
    found = tables.fits_table(frame).index.tolist()
    assert found == [tables.setting_name(*place) for place in order]


def test_learning_and_times_by_hand():
    one = {"dataset": "mnist", "distribution": "iid", "lr": 0.01, "batch_size": 32}
    scales = ({"samples": None}, {"samples": 300}, {"samples": 300, "batch_size": 256})
    frame = records([({**one, **s}, {"base": [91.0 - k]}) for k, s in enumerate(scales)])
    table = tables.learning_table(frame)
    assert table["IID"].tolist() == ["91.0", "89.0", "90.0"]
    assert table.index[1] == "MNIST, 300 samples, batches of 256, learning rate 0.01"
    seconds = {"simulation": [0.3], "lockstep": [0.1], "walk": [1.0], "loo": [2.0]}
    trained = {"trained.lockstep": [0.5], "trained.loo": [4.0]}
    cost = records([({"clients": 4}, {f"seconds.{k}": v for k, v in seconds.items()} | trained)])
    times = measured_times(cost, 100)
    assert times["FedCCEA over LOO"].item() == pytest.approx(5)
    assert times["data trained on"].item() == pytest.approx(12.5)
    assert "training alone" not in times
    tested = {"testing.lockstep": [0.05], "testing.loo": [1.0]}
    metrics = {f"seconds.{k}": v for k, v in seconds.items()} | trained | tested
    times = measured_times(records([({"clients": 4}, metrics)]), 100)
    assert times["training alone"].item() == pytest.approx(5)
    assert times["one simulation (ms)"].item() == pytest.approx(300)
