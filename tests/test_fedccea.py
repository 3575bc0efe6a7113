"""FedCCEA's evaluation, on a small federation."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from rounding import assert_close

import fedkit as fk
from fedkit.methods import optimisers
from fedkit.methods.fedccea import Fit, contribution_index, fit_aam
from reproduction.fedccea import experiments as n
from reproduction.fedccea import run as runs
from reproduction.fedccea import valuing as fits
from reproduction.fedccea.experiments import Setting
from reproduction.fedccea.run import TIE_ORDERS, curve_metrics, removal_curves
from reproduction.fedccea.valuing import Tally, Trial, federation, truncated_walks, value_clients
from reproduction.records import Cell

BASE = Setting(
    "digits", "digits", "strong", model="mlp-8", clients=5, rounds=3, simulations=6, samples=30,
    epochs=1, batch_size=16, lr=0.3,
)  # fmt: skip
NOISY = replace(BASE, noise="label-40")
FITTED: dict[tuple, Fit] = {}


def fitted_once(simulations, **how):
    """A fit takes longer than all trainings of a run here, and several runs ask for the same."""
    x, y = simulations.sizes, simulations.accuracy
    key = (x.shape, x.tobytes(), y.tobytes(), *sorted(how.items()))
    if key not in FITTED:
        FITTED[key] = fit_aam(simulations, **how)
    return FITTED[key]


@pytest.fixture(autouse=True, scope="module")
def short_fits():
    """Fits of few starts and steps: what they find is for the tests of the method to say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimisers, "_ITERATIONS", 40)
        patch.setattr(optimisers, "_STARTS", optimisers._STARTS[:2])
        yield


def run(how, s=NOISY, profile="smoke"):
    """One small run with few fits."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PERMUTATIONS", "FOLDS"):
            patch.setattr(fits, name, 2)
        for module in (fits, runs):
            patch.setattr(module, "fit_aam", fitted_once)
        settings = asdict(s) | {"splits": 2}
        return how(Cell(profile, "fedccea", "contribution", settings, (0,)), "cpu", False)[0]


@pytest.fixture(scope="module")
def result():
    return run(runs.run_valued)


def test_a_run_measures_what_the_tables_show(result):
    metrics, series = result["metrics"], result["series"]
    for m in n.METHODS:
        values = np.array(series[f"value.{m}"])
        np.testing.assert_allclose(contribution_index(values), series[f"index.{m}"])
        assert metrics[f"spread.{m}"] == pytest.approx(np.std(series[f"index.{m}"]) * BASE.clients)
        if metrics[f"zeros.{m}"] == 0:
            assert metrics[f"excluded.{m}"] == pytest.approx(metrics["base"])
        # nobody removed: everybody's accuracy
        assert series[f"{m}.lowest"][0] == series[f"{m}.highest"][0]
        assert series[f"{m}.lowest"][0] == pytest.approx(metrics["base"], abs=0.3)
        above = [(a > b) + (a == b) / 2 for a in values[:-1] for b in values[-1:]]
        assert metrics[f"auc.{m}"] == pytest.approx(np.mean(above))
        lost = series[f"{m}.lowest"][0] - series[f"{m}.lowest"][4]
        assert metrics[f"lost40.{m}"] == pytest.approx(lost)
    for m in (*n.METHODS, *n.READINGS):
        zeros = metrics[f"zeros.{m}"]
        assert zeros == sum(x == 0 for x in series[f"index.{m}"])
        assert np.isnan(metrics[f"excluded.{m}.random"]) == (zeros / BASE.clients > 0.5)
    assert metrics["trained.loo"] == pytest.approx(1 + 4)  # N, and each N without one
    assert metrics["trained.fedccea"] == pytest.approx(6 / 2, rel=0.3)
    # what no golden run has: how far the fits can be trusted
    assert {"rank.seeds", "rank.0.5.connected", "spread.0.1"} <= set(metrics)
    assert 0.05 <= metrics["explained.p"] <= 1
    for m in n.FITS:
        quantiles = [series[f"miss.{m}.{q}"] for q in ("low", "middle", "high")]
        assert (np.diff(quantiles, axis=0) >= 0).all()
        assert metrics[f"unseen.{m}"] < 1
    assert "area.size" not in metrics  # all sizes are equal, so nobody is ranked


def test_trainings_at_scale_are_kept_and_change_nothing(result, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    again = run(runs.run_valued, profile="laptop")
    assert again["metrics"] == pytest.approx(result["metrics"], nan_ok=True)
    assert again["series"] == result["series"]
    assert len(list((tmp_path / "trainings" / "fedccea").iterdir())) == 2  # the two halves


# Federations and cells


def test_distributions_and_noise_are_those_of_the_paper():
    for distribution, classes in (("iid", 10), ("weak", 5), ("strong", 2)):
        s = replace(BASE, distribution=distribution, samples=None, clients=20)
        counts = federation(s, 0).label_counts
        assert (counts > 0).sum(axis=1).max() <= classes
    s = replace(NOISY, clients=10, distribution="iid")
    assert s.noisy_clients().tolist() == [8, 9]
    f = federation(s, 0)
    wrong = [(f.client_data(i)[1] != f.y[f.clients[i]]).float().mean() for i in range(10)]
    np.testing.assert_allclose(wrong, [0] * 8 + [0.4] * 2, atol=0.02)
    assert federation(replace(s, samples=7), 0).sizes.tolist() == [7] * 10
    for noise, relabelled in (("pattern-20", 0.0), ("backdoor-20", 0.18)):
        f = federation(replace(s, noise=noise), 0)
        (x, y), rows = f.client_data(9), f.clients[9]
        changed = (x != f.x[rows]).flatten(1).any(dim=1).float().mean()
        assert changed == pytest.approx(0.2, abs=0.02)
        assert (y != f.y[rows]).float().mean() == pytest.approx(relabelled, abs=0.05)


# Values at equal cost


def test_parts_are_the_values_of_smaller_budgets():
    s = replace(BASE, simulations=24)
    valued = value_clients(Trial(s, 0, device="cpu"))
    alone = value_clients(Trial(replace(s, simulations=12), 0, device="cpu")).values["fedccea"]
    at = n.PARTS.index(0.5)
    for values in valued.parts.values():
        assert values.shape == (len(n.PARTS), BASE.clients)
        assert np.ptp(values, axis=0).max() > 0
    assert_close(valued.parts["fedccea"][at], alone, 0.02)  # an image may change sides
    for m in (*n.FITS, "tmc-sv"):
        for share in n.PARTS:
            cost = share * valued.trained["fedccea"]
            assert valued.trained[f"{m}.{share:g}"] == pytest.approx(cost, rel=0.3), (m, share)


def test_walks_cost_what_the_simulations_cost():
    """Walks that are cut early ask for small coalitions; more of them are due."""
    saturating = fk.Game(10, lambda rows: 1 - 0.5 ** rows.sum(axis=1))
    sizes = np.full(10, 30)
    values, spent = truncated_walks(saturating, sizes, tolerance=0.15, seed=0, limit=20.0)
    assert 18.0 <= spent <= 22.0
    once = Tally(saturating, sizes)
    fk.estimate(once, fk.TruncatedMonteCarlo(0.15), budget=40, seed=0)
    assert once.trained < 12.0  # what as many coalitions as simulations cost
    assert values.sum() == pytest.approx(1 - 0.5**3, abs=1e-9)
    # the number of whole walks that comes closest: the grand coalition, and 4.5 federations each
    additive = fk.Game(10, lambda rows: rows.sum(axis=1) / 10.0)
    for limit, cost in ((9.0, 10.0), (7.5, 5.5), (12.0, 10.0), (13.0, 14.5)):
        found = truncated_walks(additive, sizes, tolerance=0.0, seed=0, limit=limit)[1]
        assert found == pytest.approx(cost), limit
    # where nothing is left to ask for, it ends
    flat = fk.Game(10, lambda rows: np.zeros(len(rows)))
    values, spent = truncated_walks(flat, sizes, tolerance=0.15, seed=0, limit=20.0)
    assert spent <= 1.0
    assert not values.any()


# Removals


def given(game, values, **others):
    """Values of all methods, alike but for the others."""
    alike = dict.fromkeys((*n.METHODS, *n.READINGS, *n.CONTROLS), values)
    return fits.Values(alike | others, game)


def test_ties_go_in_random_order():
    """Ten clients whose order says who is good; a ranking of two values must not profit by it."""
    game = fk.Game(10, lambda rows: rows @ np.arange(10.0))
    tied = {"random": np.arange(10.0)[None], "loo": np.repeat([1.0, 0.0], [9, 1])}
    valued = given(game, np.arange(10.0), **tied)
    seeds = [removal_curves(valued, seed) for seed in range(40)]
    gone = np.array([c["loo.highest"][0] - c["loo.highest"] for c in seeds]) / 100
    # k of the first nine go, whose qualities are 4 on average
    mean, error = gone.mean(axis=0), gone.std(axis=0, ddof=1) / np.sqrt(len(gone))
    assert (np.abs(mean - 4 * np.arange(6))[1:] < 4 * error[1:]).all()
    one = fk.Game(10, lambda rows: (~rows[:, 0]).astype(float))
    found = removal_curves(replace(valued, scored=one), 0)["loo.highest"]
    steps = np.round(TIE_ORDERS * found / 100, 9)
    assert (steps == steps.round()).all()  # a mean over the orders
    assert set(steps) - {0.0, TIE_ORDERS}  # which differ
    assert (found == removal_curves(replace(valued, scored=one), 0)["loo.highest"]).all()


def test_areas_and_random_orders_by_hand():
    rising = {"a.lowest": np.full(6, 90.0), "a.highest": np.array([90.0, 60, 30, 30, 30, 0])}
    rising["b.lowest"], rising["b.highest"] = rising["a.highest"], rising["a.lowest"]
    area = (30 + 60 + 60 + 60 + 90) / 5
    found = {"area.a": area, "lost40.a": 0, "area.b": -area, "lost40.b": 60}
    assert curve_metrics(rising) == pytest.approx(found)
    game = fk.Game(4, lambda rows: rows @ np.array([0.1, 0.2, 0.3, 0.4]))
    valued = given(game, np.arange(4.0), random=np.array([[0.0, 1, 2, 3], [3.0, 2, 1, 0]]))
    curves = removal_curves(valued, 0)
    assert curves["random0.lowest"] == pytest.approx([100, 100, 90, 90, 70, 70])
    assert curves["random0.highest"] == pytest.approx([100, 100, 60, 60, 30, 30])
    areas = curve_metrics(curves)
    assert areas["area.random0"] > 0
    assert areas["area.random1"] == pytest.approx(-areas["area.random0"])  # from its other end
    assert areas["area.size"] == pytest.approx(areas["area.random0"])
    mean = [curves[f"random{k}.{end}"] for k in (0, 1) for end in ("lowest", "highest")]
    np.testing.assert_allclose(curves["random"], np.mean(mean, axis=0))
    valued.values["oracle"] = np.ones(4)
    assert "oracle.lowest" not in removal_curves(valued, 0)  # it ranks nobody
    valued.values.update(loo=np.array([0, 0, 1, 1]), adam=-np.ones(4))
    metrics, index = runs.index_metrics(valued, curves)
    assert metrics["zeros.loo"] == 2
    assert metrics["excluded.loo"] == pytest.approx(70)
    assert metrics["excluded.loo.random"] == pytest.approx(curves["random"][-1])
    assert index["loo"].tolist() == [0, 0, 0.5, 0.5]
    # all alike by the rule for nobody: that is no finding of "no zeros"
    assert (index["adam"] == 0.25).all()
    assert np.isnan([metrics[f"{k}.adam"] for k in ("zeros", "smallest", "excluded")]).all()
