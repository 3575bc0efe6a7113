"""Flower clients valued round by round: the strategy without processes, then by simulation."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import refused
from rounding import assert_close, assert_trained_alike

import fedkit as fk

pytest.importorskip("flwr", reason="Flower is not installed (extra 'flower')")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp.strategy import FedAdam, FedAvg
from flwr.supercore.task_identity import TaskIdentity

from fedkit.flower import Valued, to_arrays, to_row
from fedkit.flower.demo import Setting, client_app, difference, play

SETTING = Setting(clients=4, rounds=3, timeout=60.0)
CLIENT = client_app(SETTING)
NODES = [901, 17, 555, 40]  # of the clients 0, 1, ...


@pytest.fixture(autouse=True)
def a_task(monkeypatch):
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Loop:
    """A grid that calls the ClientApp in this process; `spoil` alters replies."""

    def __init__(self, spoil=None):
        self.spoil, self.asked = spoil, []

    def get_node_ids(self):
        return NODES

    def send_and_receive(self, messages, *, timeout=None):
        replies, self.asked = [], [*self.asked, []]
        for message in messages:
            node = message.metadata.dst_node_id
            i = NODES.index(node)
            self.asked[-1].append(i)
            context = Context(1, node, {"partition-id": i}, RecordDict(), {})
            reply = CLIENT(message, context)
            replies.append(self.spoil(i, message, reply) if self.spoil else reply)
        return replies[::-1]


def strategy(inner=None, value=None, **more):
    f, arch = SETTING.federation(), SETTING.architecture()
    judge = fk.Evaluator(arch, f.x_val, f.y_val, "negative_loss", device="cpu")
    test = fk.Evaluator(arch, f.x_test, f.y_test, device="cpu")
    inner = inner or FedAvg(fraction_evaluate=0.0)
    return Valued(inner, value or fk.Exact(), judge, test=test, seed=SETTING.seed, **more)


def first_model():
    return SETTING.architecture().init(fk.Streams(SETTING.seed).generator("model"))


def start(valued, grid, rounds=SETTING.rounds):
    return valued.start(grid, to_arrays(SETTING.architecture(), first_model()), rounds)


def assert_models_alike(found, expected):
    found, expected = map(torch.as_tensor, (found, expected))
    assert_trained_alike(found, expected, first_model())


def assert_runs_alike(one, other):
    """Rounds of the same clients, values and weights, which trained apart."""
    for name in ("round", "client"):
        assert [row[name] for row in one.clients] == [row[name] for row in other.clients]
    for name in ("value", "weight"):
        assert_close(*([row[name] for row in run.clients] for run in (one, other)), relative=1e-3)
    assert_models_alike(one.models, other.models)


def own(value, aggregate, select=None, participants=4):
    rule = fk.Strategy(select or fk.UniformSelection(), value, aggregate)
    local, utility = SETTING.plan().local, SETTING.plan().utility
    plan = fk.Plan(SETTING.rounds, participants, local, utility)
    arch = SETTING.architecture()
    return fk.run([SETTING.federation()], arch, rule, plan, [SETTING.seed], device="cpu")


def test_without_validation_data_a_model_will_do_for_values_of_updates():
    inner, arch = FedAvg(fraction_evaluate=0.0), SETTING.architecture()
    valued = Valued(inner, fk.CosineValues(), arch, seed=SETTING.seed)
    start(valued, Loop())
    beside = strategy(value=fk.CosineValues())
    start(beside, Loop())
    ours, theirs = ([row["value"] for row in v.history.clients] for v in (valued, beside))
    assert ours == theirs
    with pytest.raises(ValueError, match="asks for a utility, and Valued got a model alone"):
        start(Valued(inner, fk.Exact(), arch), Loop(), rounds=1)


def test_a_ledger_keeps_each_round_and_counts_on(tmp_path):
    ledger = fk.Ledger(tmp_path / "values.db")
    estimated = fk.Estimated(fk.PermutationSampling(), 30)
    valued = strategy(value=estimated, ledger=ledger)
    start(valued, Loop(), rounds=2)
    assert ledger.rounds == [1, 2]
    shares = np.array([row["value"] for row in valued.history.clients]).reshape(2, 4)
    frame = fk.Ledger(tmp_path / "values.db").to_frame()
    assert frame.client.tolist() == ["0", "1", "2", "3"] * 2
    scale = frame.value.to_numpy().reshape(2, 4) / shares  # the ledger has the utility's units
    assert_close(scale, scale[:, :1].repeat(4, 1), relative=1e-6)
    again = strategy(value=estimated, ledger=ledger)  # a server that is started again
    start(again, Loop(), rounds=1)
    start(again, Loop(), rounds=1)
    assert ledger.rounds == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="cosines of updates"):
        start(strategy(value=fk.CosineValues(), ledger=ledger), Loop(), rounds=1)


@pytest.mark.parametrize("value", [fk.Exact(), fk.Estimated(fk.PermutationSampling(), 30)])
def test_values_and_weights_are_those_of_our_own_loop(value):
    ours = own(value, fk.Softmax())
    valued = strategy(value=value, aggregate=fk.Softmax())
    result = start(valued, Loop())
    assert_runs_alike(valued.history, ours)
    assert valued.numbers == {node: i for i, node in enumerate(NODES)}
    assert_models_alike(to_row(SETTING.architecture(), result.arrays), ours.models[0])
    for one, other in zip(valued.history.rounds, ours.rounds, strict=True):
        assert one.pop("left_out") == other.pop("left_out") == []
        assert one == pytest.approx(other, abs=1e-3)


def test_the_example_of_the_page_values_the_clients(tmp_path, monkeypatch):
    page = (Path(__file__).parent.parent / "book" / "flower.md").read_text("utf-8")
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "Valued(" in b)
    monkeypatch.chdir(tmp_path)
    f = SETTING.federation()
    names = {"model": SETTING.architecture().module, "x_val": f.x_val, "y_val": f.y_val}
    exec(block, names)
    names["main"](Loop(), None)
    history = fk.History.load("values.npz")
    assert len(history.rounds) == 10
    assert history.contributions().n_players == len(NODES)


def spoiled(bad):
    """Replies of some clients with another content, or an error."""

    def spoil(i, message, reply):
        if i in bad and isinstance(bad[i], str):
            return Message(Error(0, bad[i]), reply_to=message)
        if i in bad:
            bad[i](reply.content)
        return reply

    return spoil


def instead(key, record):
    """Send another record under a key."""
    return lambda content: content.update({key: record})


def arrays(change):
    """Send other names and arrays."""

    def spoil(content):
        pairs = [change(k, a.numpy()) for k, a in content["arrays"].items()]
        content["arrays"] = ArrayRecord({k: Array(x) for k, x in pairs})

    return spoil


def numbers(factor):
    return arrays(lambda k, x: (k, factor * x))


def test_what_is_no_update_is_left_out():
    def broken(content):
        next(iter(content["arrays"].values())).data = b"PK"

    renamed = arrays(lambda k, x: (f"my.{k}", x))
    turned = arrays(lambda k, x: (k, x.T))
    unsized = instead("metrics", MetricRecord({"loss": 1.0}))
    huge = instead("metrics", MetricRecord({"num-examples": 1e300}))
    for bad in (numbers(float("nan")), numbers(1 + 0j), broken, renamed, turned, unsized, huge):
        valued = strategy(aggregate=fk.Softmax())
        start(valued, Loop(spoil=spoiled({1: bad})), rounds=1)
        assert [row["left_out"] for row in valued.history.rounds] == [[1]]
        assert {row["client"] for row in valued.history.clients} == {0, 2, 3}
        assert np.isfinite([row["value"] for row in valued.history.clients]).all()
    valued = strategy(aggregate=fk.Softmax())
    start(valued, Loop(spoil=spoiled({2: "a crash"})), rounds=1)
    assert [row["left_out"] for row in valued.history.rounds] == [[]]  # it sent nothing
    assert {row["client"] for row in valued.history.clients} == {0, 1, 3}


def test_the_table_of_clients_outlives_a_round():
    remembered = []

    class Counting:
        def __call__(self, clients, k, rng):
            clients.memory["asked"] = clients.memory.get("asked", 0) + 1
            remembered.append(clients.memory["asked"])
            return clients.available[:k]

    valued = strategy(aggregate=fk.Softmax(), select=Counting(), participants=4)
    start(valued, Loop(spoil=spoiled({1: numbers(float("nan"))})), rounds=3)
    assert valued.table.missed.tolist() == [0, 3, 0, 0]
    assert remembered == list(range(1, len(remembered) + 1))
    assert len(remembered) > 1


def test_arrays_in_another_order_are_the_same_update():
    def backwards(content):
        content["arrays"] = ArrayRecord(dict(reversed(content["arrays"].items())))

    runs = [strategy(aggregate=fk.Softmax()) for _ in range(2)]
    for valued, bad in zip(runs, ({}, {0: backwards, 2: backwards}), strict=True):
        start(valued, Loop(spoil=spoiled(bad)))
    assert not any(row["left_out"] for row in runs[1].history.rounds)
    assert difference(runs[0].history, runs[1].history) == 0


def test_running_statistics_of_batch_normalisation_are_valued_and_averaged():
    f, sizes = SETTING.federation(), [10, 20, 30, 40]
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 10)
    )
    base = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    sent = [{k: t + (i + 1) * t.is_floating_point() for k, t in base.items()} for i in range(4)]

    class Trained(Loop):
        def send_and_receive(self, messages, *, timeout=None):
            told = ((m, NODES.index(m.metadata.dst_node_id)) for m in messages)
            return [
                Message(
                    RecordDict(
                        {
                            "arrays": ArrayRecord(sent[i]),
                            "metrics": MetricRecord({"num-examples": sizes[i]}),
                        }
                    ),
                    reply_to=message,
                )
                for message, i in told
            ]

    judge = fk.Evaluator(net, f.x_val, f.y_val, "negative_loss", device="cpu")
    valued = Valued(FedAvg(fraction_evaluate=0.0), fk.Exact(), judge)
    result = valued.start(Trained(), ArrayRecord(base), 1)
    assert valued.history.rounds[0]["left_out"] == []
    found = {row["client"]: row["value"] for row in valued.history.clients}
    expected = fk.value(judge, base, sent, sizes).values
    assert_close([found[valued.numbers[node]] for node in NODES], expected, relative=1e-4)
    mean = result.arrays.to_torch_state_dict()["2.running_mean"]
    assert_close(mean, np.full(5, np.average([1, 2, 3, 4], weights=sizes)))


def test_a_round_without_any_update_keeps_the_model():
    valued = strategy()
    result = start(valued, Loop(spoil=spoiled(dict.fromkeys(range(4), numbers(float("nan"))))))
    assert valued.history.rounds == []
    assert valued.table is not None
    assert valued.table.counts.tolist() == [0, 0, 0, 0]
    assert not result.arrays


def test_without_a_rule_the_inner_strategy_decides():
    results = []
    for wrap in (False, True):
        inner = FedAdam(fraction_evaluate=0.0)
        valued = strategy(inner, aggregate=None)
        results.append(start(valued if wrap else inner, Loop()))
    both = [to_row(SETTING.architecture(), result.arrays) for result in results]
    assert_models_alike(*both)
    assert np.isnan([row["weight"] for row in valued.history.clients]).all()
    assert valued.history.contributions().names == ("0", "1", "2", "3")


def test_weights_reach_an_inner_optimiser_and_zeros_keep_the_model():
    only = lambda r, valuation, table: r.average(r.participants == 2)  # noqa: E731
    models = []
    for spoil in (None, spoiled(dict.fromkeys((0, 1, 3), "away"))):
        valued = strategy(FedAdam(fraction_evaluate=0.0), aggregate=only)
        models.append(to_row(SETTING.architecture(), start(valued, Loop(spoil=spoil)).arrays))
    assert_models_alike(*models)

    valued = strategy(aggregate=lambda r, valuation, table: r.average(0 * r.sizes))
    result = start(valued, Loop())
    assert not result.arrays
    assert len({row["accuracy"] for row in valued.history.rounds}) == 1
    assert [row["last"] for row in valued.history.rounds] == [False, False, True]


class Best:
    """The clients of the highest values; all in the first round."""

    def __call__(self, clients, k, rng):
        pool = clients.available
        if clients.round == 0:
            return pool
        return np.sort(pool[np.argsort(-clients.values[pool], kind="stable")][:k])


def test_values_select_the_next_participants():
    ours = own(fk.Exact(), fk.Softmax(), Best(), 2)
    valued = strategy(aggregate=fk.Softmax(), select=Best(), participants=2)
    grid = Loop()
    start(valued, grid)
    trained = [asked for asked in grid.asked if asked]
    assert [len(asked) for asked in trained] == [4, 2, 2]
    assert_runs_alike(valued.history, ours)


@pytest.mark.parametrize("newcomers", [None, 2])
def test_few_nodes_that_never_replied_are_asked(newcomers):
    def first_known(table, k, rng):
        return table.available[:k]

    valued = strategy(select=first_known, participants=1, newcomers=newcomers)
    away = spoiled(dict.fromkeys((1, 2, 3), "away"))
    grid = Loop(spoil=away)
    start(valued, grid)
    first, *later = [asked for asked in grid.asked if asked]
    assert len(first) == 4
    assert [0 in asked for asked in later] == [True, True]
    assert {len(asked) for asked in later} == {1 + (1 if newcomers is None else newcomers)}


def test_numbers_of_clients_are_theirs_where_free():
    calls = {0: 2, 1: -5, 2: 2, 3: 10**9}
    claims = {i: instead("fedkit", ConfigRecord({"client": n})) for i, n in calls.items()}
    valued = strategy()
    start(valued, Loop(spoil=spoiled(claims)))
    assert sorted(valued.numbers.values()) == [0, 1, 2, 3]
    assert valued.numbers[min(NODES[0], NODES[2])] == 2  # the second to ask for it gets another
    assert valued.table is not None
    assert valued.table.counts.tolist() == [3, 3, 3, 3]


def test_what_does_not_fit_is_told_in_a_sentence():
    refused("belong together", strategy, select=Best())
    for wrong, words in (
        ({"select": Best(), "participants": -2}, "participants is -2"),
        ({"select": Best, "participants": 2}, "select is"), ({"newcomers": 3}, "give select"),
        ({"aggregate": fk.Softmax}, "aggregate is"), ({"remember": 3}, "remember is 3"),
        ({"outputs": -1}, "outputs is -1"), ({"weighting": "foo"}, "weighting is 'foo'"),
        ({"local": 3}, "local is 3"),
    ):  # fmt: skip
        refused(words, strategy, **wrong)
    refused("inner is 3", strategy, 3)
    valued = strategy()
    with pytest.raises(ValueError, match="arrays is no state of mlp-16: missing keys"):
        valued.start(Loop(), ArrayRecord([np.zeros(3, np.float32)]), 1)

    class Steps:
        def __call__(self, rounds):
            return [r.local.n_steps(10) for r in rounds]

    refused("give local=", start, strategy(value=Steps()), Loop())


@pytest.mark.weekly
def test_a_simulation_gives_what_our_own_loop_gives():
    pytest.importorskip("ray")
    setting = Setting(clients=2, rounds=2)
    assert difference(play(setting), setting.own()) < 1e-5
