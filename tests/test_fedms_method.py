"""FedMS's method: class-wise values on closed-form games, and the rules of its rounds."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refusals, refused
from rounding import assert_trained_alike
from test_federation import MLP, toy

import fedkit as fk
import fedkit.methods.fedms as module
from fedkit.methods.fedms import (
    Accumulate,
    CoresetWeights,
    MaverickValues,
    ScoreSelection,
    class_difficulty,
    distance,
)

CLASSES = 3
PLAN = fk.Plan(4, 3, fk.LocalSGD(lr=0.2, batch_size=4), utility="class_accuracy")


def saturating():
    """Accuracies that saturate at another speed per class; client 0 alone knows class 2."""
    skill = np.linspace(0.2, 1.1, 5)[:, None] * np.array([1.0, 0.6, 0.0])
    skill[0] = [0.1, 0.05, 1.7]

    def value(coalitions):
        return 0.05 + 0.9 * (1 - np.exp(-coalitions.astype(float) @ skill))

    return fk.Game(5, value)


GAME = saturating()
EXACT = fk.shapley(GAME).values


def test_difficulty_is_a_softmax_of_error_rates():
    beta = class_difficulty(np.array([0.9, 0.5, 0.7]), temperature=0.2)
    raw = np.exp((1 - np.array([0.9, 0.5, 0.7])) / 0.2)
    np.testing.assert_allclose(beta, raw / raw.sum())
    assert class_difficulty(np.array([0.9, 0.2, 0.2]), 1e-300).tolist() == [0, 0.5, 0.5]
    beta = class_difficulty(np.array([0.91, 0.94, 0.97]))  # the paper's temperature
    assert beta[0] > 0.95
    assert beta[1] / beta[0] == pytest.approx(np.exp(-3))


def test_mr_is_the_exact_shapley_value_of_every_class():
    v = fk.estimate(GAME, fk.MaverickMR())
    np.testing.assert_allclose(v.values, EXACT, atol=1e-14)
    assert (v.standard_errors == 0).all()
    assert v.evaluations == 32
    np.testing.assert_allclose(v.values.sum(axis=0), GAME(np.ones((1, 5), bool))[0] - 0.05)


def test_the_coreset_is_the_best_non_empty_coalition():
    def value(coalitions):
        c = coalitions.astype(float)
        return np.stack([0.5 - 0.1 * c[:, 0] + 0.2 * c[:, 2], 0.4 - 0.3 * c[:, 1]], axis=1)

    info = fk.estimate(fk.Game(3, value), fk.MaverickMR(temperature=0.1)).info
    assert info["coreset"].tolist() == [False, False, True]
    assert info["coreset_accuracy"] == pytest.approx([0.7, 0.4])
    np.testing.assert_allclose(info["beta"], class_difficulty(np.array([0.7, 0.4]), 0.1))
    worse = fk.Game(2, lambda c: np.stack([0.9 - 0.1 * c.sum(1)] * 2, axis=1))
    info = fk.estimate(worse, fk.MaverickMR()).info
    assert info["coreset"].sum() == 1  # never empty, though nobody helps


def test_tmr_truncates_exactly_where_the_round_moved_too_little():
    ends = GAME(np.array([[False] * 5, [True] * 5]))
    gap = float(distance(ends[1], ends[0]))
    whole = fk.estimate(GAME, fk.MaverickTMR(between=gap * 0.999))
    np.testing.assert_allclose(whole.values, EXACT, atol=1e-14)
    cut = fk.estimate(GAME, fk.MaverickTMR(between=gap * 1.001))
    assert (cut.values == 0).all()
    assert cut.values.shape == (5, CLASSES)
    assert cut.evaluations == 2
    assert cut.info["coreset"].all()
    small = fk.Game(5, lambda c: 1e-4 * GAME(c))  # MR has no such rule
    np.testing.assert_allclose(fk.estimate(small, fk.MaverickMR()).values, 1e-4 * EXACT, atol=1e-12)


def test_one_client_gets_the_whole_change_and_nobody_anything_of_none():
    one = fk.Game(1, lambda c: 0.1 + 0.5 * np.repeat(c.astype(float), 2, axis=1))
    for estimator in (fk.MaverickMR(), fk.MaverickTMR(), fk.MaverickGTG()):
        for count in ("distinct", "calls"):
            found = fk.estimate(one, estimator, estimator.minimum(1, count), count=count)
            np.testing.assert_allclose(found.values, [[0.5, 0.5]])
    still = fk.Game(4, lambda c: np.full((len(c), 2), 0.3))
    for estimator in (fk.MaverickGTG(), fk.MaverickGTG(within=0.0, between=0.0)):
        v = fk.estimate(still, estimator)
        assert (v.values == 0).all()
        assert v.values.shape == (4, 2)
        assert v.evaluations == 2
        assert v.info["coreset"].all()


def table():
    clients = fk.ClientTable.new(np.ones(4, dtype=int), np.ones((4, 2), dtype=int), 2)
    clients.round = 1
    return clients


def valuation(values, **info):
    values, half = np.array(values, dtype=float), np.full(2, 0.5)
    info |= {"coreset": np.ones(len(values), dtype=bool), "coreset_accuracy": half}
    info["beta"] = class_difficulty(half, 0.1)
    return fk.Valuation(values, np.zeros_like(values), 0, 0, "made up", info=info)


def test_values_accumulate_with_decay_and_start_from_the_query():
    clients, rule = table(), Accumulate(alpha=0.6)
    clients.round = 0
    rule(clients, np.arange(4), valuation(np.arange(8).reshape(4, 2), initial=True))
    assert clients.values.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    clients.round = 1
    rule(clients, np.array([1, 3]), valuation([[10, 0], [0, 10]]))
    np.testing.assert_allclose(clients.values, [[0, 1], [5.2, 1.8], [4, 5], [3.6, 8.2]])


def test_selection_survives_huge_scores_and_asks_everybody_first():
    clients = table()
    clients.sizes[2] = 0
    clients.values[:] = [[1e6, 0], [0, 0], [1e9, 0], [-1e6, 0]]
    clients.memory["beta"] = np.array([1.0, 0.0])
    rng = np.random.default_rng(0)
    assert ScoreSelection()(clients, 2, rng).tolist() == [0, 1]
    clients.round = 0
    assert ScoreSelection()(clients, 2, rng).tolist() == [0, 1, 3]


def test_contributions_are_gains_of_accuracy_and_not_own_accuracies():
    totals = [
        fk.run([toy()], MLP, fk.FedMS(fk.MaverickMR(), units=units).strategy(3, 3), PLAN, [5])
        for units in ("percent", "fraction")
    ]
    percent, fraction = (h.contributions() for h in totals)
    for found, history in ((percent, totals[0]), (fraction, totals[1])):
        later = history.clients_frame().query("round > 1").groupby("client").contribution
        later = later.apply(lambda rows: np.sum(rows.tolist(), axis=0))
        for name, values in zip(found.names, found.values, strict=True):
            told = later[int(name)] if int(name) in later else np.zeros(CLASSES)
            np.testing.assert_allclose(values, told, atol=1e-12)
    assert np.abs(percent.values).max() < 3
    assert np.isfinite(percent.standard_errors).all()


def test_parts_of_fedms_without_its_memory_are_refused():
    blind = fk.UniformSelection(), CoresetWeights()
    for select, aggregate in ((ScoreSelection(), fk.SizeWeighted()), blind):
        values = MaverickValues(fk.MaverickMR(), 100.0)
        strategy = fk.Strategy(select, values, aggregate, outputs=CLASSES)
        refused("remember=Accumulate", fk.run, [toy()], MLP, strategy, PLAN, [5])


test_bad_settings = refusals(
    (lambda: fk.FedMS(tolerance=(3.0, 0.0)), "tolerance is 0.0"),
    (lambda: fk.FedMS(tolerance=(3.0,)), "2 finite numbers"),
    (
        lambda: fk.run([toy()], MLP, fk.FedMS(fk.GTGShapley()).strategy(3, 2), PLAN, [5]),
        "take one of FedMS's",
    ),
    (lambda: fk.estimate(fk.airport([1, 2, 3]), fk.MaverickMR()), "use the utility"),
    (lambda: fk.estimate(GAME, fk.MaverickMR(), budget=20), "at least 32"),
    (
        lambda: fk.run(
            [toy()], MLP, fk.FedMS().strategy(3, 4), replace(PLAN, utility="accuracy"), [5]
        ),
        "class_accuracy",
    ),
)


def test_many_participants_are_not_tabulated(monkeypatch):
    federation, strategy = toy(), fk.FedMS(fk.MaverickGTG()).strategy(3, 4)
    before = fk.run([federation], MLP, strategy, PLAN, [5])
    monkeypatch.setattr(module, "_TABULATED", 0)
    after = fk.run([federation], MLP, strategy, PLAN, [5])
    start = MLP.init(fk.Streams(5).generator("model"))
    assert_trained_alike(after.models, before.models, start)
    assert [r["evaluations"] for r in before.rounds] == [r["evaluations"] for r in after.rounds]
