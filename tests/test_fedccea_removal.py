from dataclasses import replace

import numpy as np
import pytest

import fedkit as fk
from fedkit.papers.fedccea import settings as paper
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.removal import (
    TIE_ORDERS,
    area_between,
    kept_after_removal,
    removal_curves,
)
from fedkit.papers.fedccea.runs import index_metrics


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
