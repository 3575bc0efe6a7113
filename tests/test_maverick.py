from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_trained_alike
from test_federation import MLP, toy

from fedkit.federated.rounds import Plan, run
from fedkit.federated.selection import ClientTable
from fedkit.games.valuation import Valuation
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedms import Accumulate, CoresetWeights, FedMS, ScoreSelection, rewards
from fedkit.methods.fedms_classwise import MaverickMR, MaverickTMR, class_difficulty
from fedkit.methods.fedms_gtg import MaverickGTG
from fedkit.streams import Streams

PLAN = Plan(4, 3, LocalSGD(lr=0.2, batch_size=4), utility="class_accuracy")


def table(n=4, classes=2):
    clients = ClientTable.new(np.ones(n, dtype=int), np.ones((n, classes), dtype=int), classes)
    clients.round = 1
    return clients


def valuation(values, accuracy=(0.5, 0.5), coreset=None, **info):
    values = np.array(values, dtype=float)
    coreset = np.ones(len(values), dtype=bool) if coreset is None else np.array(coreset)
    info |= {"coreset": coreset, "coreset_accuracy": np.array(accuracy)}
    info["beta"] = class_difficulty(np.array(accuracy), 0.1)
    return Valuation(values, np.zeros_like(values), 0, 0, "made up", info=info)


def test_values_accumulate_with_decay_and_start_from_the_query():
    clients, rule = table(), Accumulate(alpha=0.6)
    clients.round = 0
    rule(clients, np.arange(4), valuation(np.arange(8).reshape(4, 2), initial=True))
    assert clients.values.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    clients.round = 1
    rule(clients, np.array([1, 3]), valuation([[10, 0], [0, 10]]))
    np.testing.assert_allclose(clients.values, [[0, 1], [5.2, 1.8], [4, 5], [3.6, 8.2]])


def test_a_coreset_much_worse_than_the_last_is_discarded():
    clients, rule = table(), Accumulate(tolerance=(3.0, 0.1), rounds=11, against="kept")
    assert rule.threshold(0) == pytest.approx(3.0)
    assert rule.threshold(5) == pytest.approx(np.sqrt(0.3))
    assert rule.threshold(10) == rule.threshold(99) == pytest.approx(0.1)
    kept = []
    for t, accuracy in ((1, 0.80), (2, 0.79), (9, 0.785), (10, 0.7899), (11, 0.7891)):
        clients.round = t
        rule(clients, np.array([0]), valuation([[1, 1]], accuracy=(accuracy, accuracy)))
        kept.append(bool(clients.memory["coreset kept"]))
    # from 80 to 79 points is within 1.5; 78.5 is not; 78.99 and 78.91 are within 0.1 of 79
    assert kept == [True, True, False, True, True]


def test_against_the_coreset_as_found_a_discarded_one_is_forgotten_after_a_round():
    for against, expected in (("found", [True, False, True]), ("kept", [True, False, False])):
        clients, rule = table(), Accumulate(rounds=11, against=against)
        kept = []
        for t, accuracy in ((9, 0.80), (10, 0.70), (11, 0.71)):
            clients.round = t
            rule(clients, np.array([0]), valuation([[1, 1]], accuracy=(accuracy, accuracy)))
            kept.append(bool(clients.memory["coreset kept"]))
        assert kept == expected


def test_weights_of_the_two_readings():
    class R:
        sizes = np.array([10, 30, 60])

    clients = table()
    clients.memory["coreset kept"] = np.array(1.0)
    v = valuation(np.ones((3, 2)), coreset=[True, False, True])
    np.testing.assert_allclose(CoresetWeights("all")(R, v, clients), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(CoresetWeights()(R, v, clients), [1 / 7, 0, 6 / 7])
    clients.memory["coreset kept"] = np.array(0.0)
    assert CoresetWeights()(R, v, clients).tolist() == [0, 0, 0]
    first = valuation(np.ones((3, 2)), initial=True)
    assert CoresetWeights()(R, first, clients).tolist() == [0, 0, 0]
    assert CoresetWeights(first="aggregate")(R, first, clients)[1] == pytest.approx(0.3)


def test_selection_frequencies_are_the_softmax_of_the_scores():
    clients = table()
    clients.values[:, 0] = [0.0, 1.0, 2.0, 3.0]
    clients.memory["beta"] = np.array([0.5, 0.5])
    p = np.exp([0, 0.5, 1, 1.5])
    p /= p.sum()
    hits, draws = np.zeros(4), 4000
    rng = np.random.default_rng(0)
    for _ in range(draws):
        hits[ScoreSelection().select(clients, 1, rng)] += 1
    z = (hits - draws * p) / np.sqrt(draws * p * (1 - p))
    assert np.abs(z).max() < 4.5


def test_selection_survives_huge_scores_and_asks_everybody_first():
    clients = table()
    clients.sizes[2] = 0
    clients.values[:] = [[1e6, 0], [0, 0], [1e9, 0], [-1e6, 0]]
    clients.memory["beta"] = np.array([1.0, 0.0])
    rng = np.random.default_rng(0)
    assert ScoreSelection().select(clients, 2, rng).tolist() == [0, 1]
    clients.round = 0
    assert ScoreSelection().select(clients, 2, rng).tolist() == [0, 1, 3]


def test_units_decide_how_far_the_softmax_reaches():
    """Two points of accuracy in a class: nothing as a fraction, e^2 in percent."""
    ratio = {}
    for units, scale in (("fraction", 1), ("percent", 100)):
        assert FedMS(units=units).strategy(3, 9).value.scale == scale
        ratio[units] = np.exp(0.02 * scale)
    assert ratio["fraction"] < 1.03
    assert ratio["percent"] > 7


@pytest.mark.parametrize("estimator", [MaverickMR(), MaverickTMR(), MaverickGTG()])
def test_end_to_end(estimator):
    federation = toy()
    strategy = FedMS(estimator).strategy(3, PLAN.rounds)
    seen = []

    def probe(r, v):
        seen.append((r.index, rewards(v), v.info["coreset"], r.participants.tolist()))
        return {}

    whole = run([federation], MLP, strategy, PLAN, [5], probe=probe)
    assert seen[0][3] == [0, 2, 3, 4]  # everybody with data
    assert all(len(ids) == 3 for _, _, _, ids in seen[1:])
    assert torch.isfinite(whole.models).all()


def test_the_query_trains_nobody_unless_asked_to():
    federation, plan = toy(), replace(PLAN, rounds=1)
    start = MLP.init(np.random.default_rng(0))
    models = {
        first: run([federation], MLP, FedMS(first=first).strategy(3, 1), plan, [5]).models[0]
        for first in ("query", "aggregate")
    }
    assert models["query"].shape == start.shape
    assert not torch.equal(models["query"], models["aggregate"])


def test_a_class_without_validation_images_is_refused():
    federation = toy()
    kept = federation.y_val != 1
    federation = replace(federation, x_val=federation.x_val[kept], y_val=federation.y_val[kept])
    with pytest.raises(ValueError, match=r"classes \[1\] have no validation image"):
        run([federation], MLP, FedMS().strategy(3, 4), PLAN, [5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedMS(units="points"), "units is 'points'"),
        (lambda: CoresetWeights("core"), "aggregate is 'core'"),
        (lambda: CoresetWeights(first="no"), "first is 'no'"),
        (lambda: Accumulate(alpha=-0.1), "alpha is -0.1"),
        (lambda: Accumulate(tolerance=(3.0, 0.0)), "two positive numbers"),
        (lambda: Accumulate(rounds=0), "rounds is 0"),
        (lambda: Accumulate(against="last"), "against is 'last'"),
    ],
)
def test_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_accuracy_as_utility_is_refused():
    with pytest.raises(ValueError, match="class_accuracy"):
        run([toy()], MLP, FedMS().strategy(3, 4), replace(PLAN, utility="accuracy"), [5])


def test_many_participants_are_not_tabulated(monkeypatch):
    import fedkit.methods.fedms as module

    federation, strategy = toy(), FedMS(MaverickGTG()).strategy(3, 4)
    before = run([federation], MLP, strategy, PLAN, [5])
    monkeypatch.setattr(module, "_TABULATED", 0)
    after = run([federation], MLP, strategy, PLAN, [5])
    start = MLP.init(Streams(5).generator("model"))
    assert_trained_alike(after.models, before.models, start)
    assert [r["evaluations"] for r in before.rounds] == [r["evaluations"] for r in after.rounds]


def test_clients_of_one_class_and_without_data_take_part_or_do_not():
    federation = toy()  # client 1 owns nothing
    y = federation.y.numpy()
    clients = list(federation.clients)
    clients[0] = np.array([i for i in clients[0] if y[i] == y[clients[0][0]]])  # one class
    federation = replace(federation, clients=tuple(clients))
    assert len(np.unique(y[clients[0]])) == 1
    history = run([federation], MLP, FedMS(MaverickMR()).strategy(3, 4), PLAN, [5])
    asked = set(history.clients_frame().client)
    assert 0 in asked
    assert 1 not in asked
    assert torch.isfinite(history.models).all()


def test_zero_rewards_leave_selection_uniform():
    clients = table(5)
    Accumulate(alpha=0.5)(clients, np.arange(5), valuation(np.zeros((5, 2))))
    assert (rewards(valuation(np.zeros((5, 2)))) == 0).all()
    rng = np.random.default_rng(0)
    counts = np.zeros(5)
    for _ in range(4000):
        counts[ScoreSelection().select(clients, 2, rng)] += 1
    np.testing.assert_allclose(counts / 4000, 0.4, atol=4.5 * np.sqrt(0.24 / 4000))


def test_a_coreset_discarded_in_every_round_leaves_the_model_alone(monkeypatch):
    monkeypatch.setattr(Accumulate, "threshold", lambda self, t: -1e9)  # nothing is good enough
    models = []

    def probe(r, v):
        models.append(r.base.clone())
        return {}

    history = run([toy()], MLP, FedMS(MaverickMR()).strategy(3, 4), PLAN, [5], probe=probe)
    assert all(torch.equal(models[0], m) for m in [*models, history.models[0]])
    later = history.clients_frame().query("round > 1")
    assert (later.weight == 0).all()


@pytest.mark.parametrize("temperature", [1e-300, 1e-12])
def test_a_temperature_near_zero_weighs_the_worst_classes_alone(temperature):
    np.testing.assert_array_equal(
        class_difficulty(np.array([0.9, 0.2, 0.2]), temperature), [0, 0.5, 0.5]
    )
    history = run(
        [toy()], MLP, FedMS(MaverickMR(temperature=temperature)).strategy(3, 4), PLAN, [5]
    )
    assert torch.isfinite(history.models).all()


def test_updates_of_a_federation_of_liars_are_left_to_the_server():
    """All clients may send nonsense through the tamper hook: nothing diverges, nothing is NaN."""

    def nonsense(r):
        return torch.zeros_like(r.updates)

    history = run([toy()], MLP, FedMS(MaverickGTG()).strategy(3, 4), PLAN, [5], tamper=nonsense)
    assert torch.isfinite(history.models).all()
    assert np.isfinite(np.stack(history.clients_frame().value.to_list())).all()
