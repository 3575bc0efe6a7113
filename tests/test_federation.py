from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from refusals import refused
from rounding import assert_close, assert_trained_alike

import fedkit as fk
from fedkit.federated.adversaries import LabelFlip, LabelNoise, LabelPermutation
from fedkit.federated.rounds import keep_latest, keep_total
from fedkit.methods.baselines import GreedyFed

MLP = fk.build("mlp-5", (1, 2, 3), 3)
LOCAL = fk.LocalSGD(lr=0.2, batch_size=4)
PLAN = fk.Plan(rounds=4, participants=3, local=LOCAL)
OWEN = fk.Strategy(
    fk.EpsilonGreedy(0.3),
    fk.Estimated(fk.OwenSampling(levels=2, eta=0.01), 12),
    fk.Softmax(),
    keep_latest,
)

FEDAVG = fk.Strategy(fk.UniformSelection(), fk.NoValue(), fk.SizeWeighted())


def toy(seed=0, sizes=(9, 0, 14, 5, 7)):
    """A separable three-class federation of unequal clients, one of them without data."""
    rng = np.random.default_rng(seed)
    n = sum(sizes) + 60
    y = rng.integers(3, size=n)
    x = rng.normal(size=(n, 6)) + 2 * np.eye(3, 6)[y]
    x, y = torch.tensor(x, dtype=torch.float32).view(n, 1, 2, 3), torch.tensor(y)
    ends = np.cumsum(sizes)
    clients = tuple(np.arange(e - s, e, dtype=np.int64) for s, e in zip(sizes, ends, strict=True))
    m = sum(sizes)
    return fk.Federation(
        x=x[:m], y=y[:m], clients=clients, x_val=x[m : m + 30], y_val=y[m : m + 30],
        x_test=x[m + 30 :], y_test=y[m + 30 :], n_classes=3, name="toy", seed=seed,
    )  # fmt: skip


def ran(strategy=OWEN, *, federations=None, model=MLP, plan=PLAN, seeds=(1,), **more):
    """A run, of one small federation unless others are given."""
    return fk.run(federations or [toy()], model, strategy, plan, seeds, **more)


def test_fedavg_equals_the_written_out_loop():
    federation = toy()
    history = ran(FEDAVG, federations=[federation], plan=replace(PLAN, rounds=3), seeds=[5])
    streams = fk.Streams(5)
    model = MLP.init(streams.generator("model"))
    for t in range(3):
        owners = np.array([0, 2, 3, 4])
        chosen = np.sort(streams.generator("round", t, "select").permutation(owners)[:3])
        local = torch.stack(
            [
                fk.train_clients(
                    MLP, model[None], [federation.client_data(i)], LOCAL,
                    [streams.generator("round", t, "client", int(i))],
                )[0]
                for i in chosen
            ]
        )  # fmt: skip
        sizes = torch.tensor(federation.sizes[chosen], dtype=torch.float32)
        model = (sizes[:, None] * local).sum(0) / sizes.sum()
        assert [r["client"] for r in history.clients if r["round"] == t + 1] == chosen.tolist()
    assert_trained_alike(history.models[0], model, MLP.init(streams.generator("model")))
    hits = MLP.forward(model[None], federation.x_test)[0].argmax(1) == federation.y_test
    assert history.final_accuracy()[5] == pytest.approx(hits.double().mean().item())


@pytest.mark.parametrize(
    "strategy",
    [
        OWEN,
        fk.Strategy(fk.EpsilonGreedy(0.0), fk.Exact(), fk.Proportional(), keep_total),
        fk.Strategy(fk.EpsilonGreedy(0.5), fk.ClassCosine(), fk.Softmax(3.0)),
        fk.Strategy(fk.UniformSelection(), fk.RandomValues(), fk.UniformWeights()),
        fk.FedMS(tolerance=(50.0, 50.0)).strategy(3, PLAN.rounds),
        fk.FedTSV().strategy(),
        fk.FedTSV(fk.TrajectoryValues(fk.PermutationSampling(), 6)).strategy(),
    ],
)
def test_replicates_in_lockstep_equal_replicates_alone(strategy):
    federations = [toy(0), toy(1)]
    plan = PLAN if strategy.outputs is None else replace(PLAN, utility="class_accuracy")
    both = ran(strategy, federations=federations, plan=plan, seeds=[7, 8])
    for i, seed in enumerate((7, 8)):
        alone = ran(strategy, federations=[federations[i]], plan=plan, seeds=[seed])
        start = MLP.init(fk.Streams(seed).generator("model"))
        assert_trained_alike(both.models[i], alone.models[0], start)
        mine = [r for r in both.clients if r["seed"] == seed]
        assert [r["client"] for r in mine] == [r["client"] for r in alone.clients]
        assert_close([r["value"] for r in mine], [r["value"] for r in alone.clients])


def told(history):
    """What happened, bit by bit, NaN being equal to NaN."""
    return repr((history.rounds, history.clients, history.models.tolist()))


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    first, again = (ran() for _ in range(2))
    assert told(first) == told(again) != told(ran(seeds=[2]))


def test_a_bar_shows_at_a_terminal_alone_and_changes_nothing(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    quiet = ran(progress=True)
    assert capsys.readouterr().err == ""  # a log file is not filled with bars
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert told(ran(progress=True)) == told(quiet)
    assert "round" in capsys.readouterr().err


def test_the_test_set_decides_nothing():
    swapped = replace(toy(), x_test=-toy().x_test)
    a, b = ran(), ran(federations=[swapped])
    assert torch.equal(a.models, b.models)


NAN = float("nan")


def poison(number):
    """An attack: client 0 sends that number in every place."""

    def attack(r):
        updates = r.updates.clone()
        updates[r.participants == 0] = number
        return updates

    return attack


@pytest.mark.parametrize("number", [NAN, 1e30])  # finite, but its square is not
def test_updates_that_are_not_finite_or_far_too_long_are_left_out(number):
    history = ran(plan=replace(PLAN, rounds=6), seeds=[3], attack=poison(number))
    assert 0 not in {r["client"] for r in history.clients}
    named = [r["left_out"] for r in history.rounds]
    assert [0] in named
    assert all(clients in ([], [0]) for clients in named)
    assert torch.isfinite(history.models).all()
    refused("learning rate", ran, seeds=[3], attack=lambda r: r.updates * float("inf"))
    refused("expected a tensor or array", ran, seeds=[3], attack=lambda r: r.updates[:1])


@pytest.mark.parametrize("select", [GreedyFed(), fk.EpsilonGreedy(0.0, confidence=10.0)])
def test_who_sends_nonsense_was_selected_all_the_same(select):
    tables = []

    @dataclass
    class Watched:
        def __call__(self, clients, k, rng):
            tables.append(clients)
            return select(clients, k, rng)

    strategy = fk.Strategy(Watched(), fk.RandomValues(), fk.UniformWeights(), keep_latest)
    plan = fk.Plan(rounds=8, participants=2, local=LOCAL)
    federations = [toy(sizes=(9, 8, 14, 5))]
    ran(strategy, federations=federations, plan=plan, seeds=[3], attack=poison(np.inf))
    table = tables[-1]
    assert table.counts[0] == 0 < table.selected[0] < 8  # others have their turn
    assert table.selected.sum() == 16
    assert (table.selected[1:] == table.counts[1:]).all()


def test_a_client_has_the_same_data_by_whatever_integer():
    spoilt = toy().with_transforms({2: LabelNoise(0.5, 3)})
    assert torch.equal(spoilt.client_data(2)[1], spoilt.client_data(np.int64(2))[1])
    names = ("client", 3), ("client", np.int32(3)), (np.str_("client"), np.int8(3))
    assert len({fk.Streams(1).generator(*name).random() for name in names}) == 1


def test_labels_beyond_the_classes_of_an_attack_are_refused():
    for attack in (LabelNoise(0.5, 2), LabelFlip(2), LabelPermutation(2)):
        with pytest.raises(ValueError, match=f"{type(attack).__name__} has n_classes=2, and a"):
            toy().with_transforms({2: attack}).client_data(2)


def test_a_probe_gives_numbers_by_name():
    def sizes(r, valuation):
        return {"k": np.int64(len(r.participants))}

    assert type(ran(probe=sizes).rounds[0]["k"]) is int
    quiet = ran(probe=lambda r, v: None)  # it may print alone
    assert set(quiet.rounds[0]) == set(ran().rounds[0])
    refused(r"probe returned \[1\]; expected numbers by name", ran, probe=lambda r, v: [1])
    refused("expected numbers by name", ran, probe=lambda r, v: {1: 2.0})
    mine = ran(probe=lambda r, v: {"accuracy": 2.0, "number": 7})
    assert (mine.rounds[0]["accuracy"], mine.rounds[0]["number"]) == (2.0, 7)
    refused("updates are None; expected a tensor", ran, attack=lambda r: None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.updates.div_(2.0), "Careless changed the updates or the base of round 1"),
        (lambda r: r.base.zero_(), "Careless changed the updates or the base of round 1"),
        (lambda r: r.sizes.fill(1), "read-only"),
        (lambda r: r.participants.fill(0), "read-only"),
    ],
)
def test_a_valuation_cannot_change_what_is_aggregated(change, words):
    class Careless:
        def __call__(self, rounds):
            for r in rounds:
                change(r)
            return fk.NoValue()(rounds)

    refused(words, ran, replace(FEDAVG, value=Careless()))
    with torch.inference_mode():  # which counts no changes
        ran()


def test_without_validation_data_only_what_does_not_score_models_runs():
    blind = replace(toy(), x_val=toy().x_val[:0], y_val=toy().y_val[:0])
    assert len(ran(FEDAVG, federations=[blind]).rounds) == 4
    refused("the federation holds no validation data", ran, federations=[blind])
    untested = replace(blind, x_test=blind.x_val, y_test=blind.y_val)
    refused("no test data", ran, FEDAVG, federations=[untested])


def test_frozen_parameters_stay_at_home():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4), torch.nn.Linear(4, 3))
    net[1].requires_grad_(False)
    assert ran(model=net).models.shape == (1, 4 * 3 + 3)
    refused("has no trained parameters", ran, model=net.requires_grad_(False))


def test_a_run_depends_on_no_global_setting_of_torch():
    lenet, plan = fk.build("lenet5", (1, 8, 8), 3), fk.Plan(rounds=2, participants=2, local=LOCAL)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(60, 1, 8, 8)), dtype=torch.float32)
    f = replace(
        toy(), x=x[:35], x_val=x[:30], x_test=x[:30], y_val=toy().y_val, y_test=toy().y_test
    )
    usual = ran(federations=[f], model=lenet, plan=plan)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            other = ran(federations=[f], model=lenet, plan=plan)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_close(other.models, usual.models)


def test_cosines_of_a_last_layer_ask_for_one():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3, bias=False))
    strategy = fk.Strategy(fk.UniformSelection(), fk.ClassCosine(), fk.UniformWeights())
    refused("does not end in a linear layer with a bias", ran, strategy, model=net)


def test_bad_calls_are_refused():
    refused("give each one of its own", ran, federations=[toy(), toy()], seeds=[1, 1])
    refused("owns data", ran, federations=[toy(sizes=(0, 0, 0))])
    refused("plan has 3 participants, a federation 2 clients", ran, federations=[toy(sizes=(4, 4))])


@dataclass(frozen=True)
class Chosen:
    """Selects what it was told to, whatever that is."""

    ids: object

    def __call__(self, clients, k, rng):
        return self.ids


@pytest.mark.parametrize(
    "ids",
    [[0, 0], [True, False, True, True, False], [0, 5], [-1, 2], [0.0, 2.0], []],
)
def test_a_selection_that_is_none_is_refused(ids):
    words = "Chosen selected .* expected clients from 0 to 4"
    refused(words, ran, replace(FEDAVG, select=Chosen(ids)))


@pytest.mark.parametrize("weights", [[0.3, 0.3], [1.5, -0.5], [NAN, 1.0], [1.0], None])
def test_weights_that_are_none_are_refused(weights):
    rule = Chosen(np.array([0, 2])), fk.NoValue(), lambda r, valuation, table: r.average(weights)
    strategy = fk.Strategy(*rule)
    refused(r"weights (are .* for 2 participants|is )", ran, strategy)


@pytest.mark.parametrize("model", [np.ones(2), np.full(MLP.size, NAN), 1j * np.ones(MLP.size), 3])
def test_a_next_model_that_is_none_is_refused(model):
    told = r"round.average\(weights\)|complex"
    refused(told, ran, replace(FEDAVG, aggregate=lambda *_: model))


def test_what_is_no_policy_is_shown_its_form():
    new = {"select": fk.UniformSelection(), "value": fk.NoValue(), "aggregate": fk.SizeWeighted()}
    for name, policy, words in (
        ("select", object(), r"expected a function \(table, k, rng\) -> client numbers"),
        ("value", object(), r"expected a function \(rounds\) -> valuations"),
        ("aggregate", object(), r"such as round.average\(weights\)"),
        ("aggregate", fk.SizeWeighted, r"make one: SizeWeighted\(...\)"),
        ("value", fk.GTGShapley(), r"wrap it for rounds: fk.Estimated\(fk.GTGShapley\(\)"),
        ("remember", {}, r"\(table, ids, valuation\)"),
    ):
        refused(f"^{name} is .*{words}", fk.Strategy, **new | {name: policy})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda k: fk.Valuation(*np.ones((2, k - 1)), 0, 0, ""), r"returned \[\(2,\)\]"),
        (lambda k: np.ones(k), "Values returned .*'ndarray'.*; expected a list of one"),
        (lambda k: fk.Valuation(*np.full((2, k), NAN), 0, 0, ""), "Values returned .*nan"),
        (lambda k: fk.Valuation(*np.ones((2, k, 3)), 0, 0, ""), r"\[\(3, 3\)\]; .* \[\(3,\)\]"),
    ],
)
def test_values_that_are_none_are_refused(given, words):
    class Values:
        def __call__(self, rounds):
            return [given(len(r.participants)) for r in rounds]

    refused(words, ran, replace(FEDAVG, value=Values()))
    refused("outputs of the strategy: 2", ran, replace(FEDAVG, outputs=2))


def test_a_step_may_write_into_the_model_that_it_keeps():
    class Step:
        def __call__(self, r, valuation, clients):
            own = clients.memory.setdefault("model", r.base.clone())
            return own.add_(r.updates.mean(dim=0))

    bases = []

    def probe(r, v):
        bases.append(r.base)
        return {}

    ran(replace(FEDAVG, aggregate=Step()), seeds=[5], probe=probe)
    assert not torch.equal(bases[1], bases[2])


def test_a_history_adds_up_and_is_read_again(tmp_path):
    perms = fk.Strategy(
        fk.UniformSelection(), fk.Estimated(fk.PermutationSampling(), 8), fk.SizeWeighted()
    )
    history = ran(perms, federations=[toy(), toy(1)], seeds=[3, 4], device="cpu")
    found = history.contributions(3)
    scale = {row["round"]: row["scale"] for row in history.rounds if row["seed"] == 3}
    mine = [row for row in history.clients if row["seed"] == 3]
    assert found.names == tuple(str(i) for i in sorted({row["client"] for row in mine}))
    for name, value, error in zip(found.names, found.values, found.standard_errors, strict=True):
        of = [row for row in mine if row["client"] == int(name)]
        assert value == pytest.approx(sum(scale[row["round"]] * row["value"] for row in of))
        errors = [scale[row["round"]] * row["standard_error"] for row in of]
        assert error == pytest.approx(np.linalg.norm(errors), nan_ok=True)
    assert found.evaluations == sum(r["evaluations"] for r in history.rounds if r["seed"] == 3)
    history.save(tmp_path / "run.npz")
    again = type(history).load(tmp_path / "run.npz")
    assert told(again) == told(history)
    refused(r"seeds \[3, 4\]; name one", history.contributions)
    refused("seed is 5; expected 3 or 4", history.contributions, 5)
    (tmp_path / "other.npz").write_bytes((tmp_path / "run.npz").read_bytes()[:200])
    refused("is no saved history", type(history).load, tmp_path / "other.npz")


def test_the_last_round_is_tested_whatever_the_interval():
    history = ran(FEDAVG, plan=fk.Plan(5, 2, LOCAL, evaluate_every=2))
    tested = [bool(np.isfinite(row["accuracy"])) for row in history.rounds]
    assert tested == [False, True, False, True, True]


def test_an_exception_carries_the_rounds_before_it():
    def fail(r, valuation):
        if r.index == 2:
            raise KeyError("mine")
        return {}

    strategy = fk.Strategy(fk.UniformSelection(), fk.Exact(), fk.UniformWeights())
    with pytest.raises(KeyError, match="mine") as caught:
        ran(strategy, seeds=[3], probe=fail)
    assert caught.value.history.rounds_frame()["round"].tolist() == [1, 2]
    assert "in round 3 of" in caught.value.__notes__[-1]


def test_contributions_are_in_the_units_of_the_utility():
    shares, raw = (
        ran(fk.Strategy(fk.UniformSelection(), fk.Exact(n), fk.UniformWeights()), seeds=[3])
        for n in (True, False)  # normalised or not
    )
    scales = shares.rounds_frame()["scale"]
    assert scales.nunique() > 1
    mine, others = shares.contributions(), raw.contributions()
    np.testing.assert_allclose(mine.values, others.values, atol=1e-9)
    told = shares.clients_frame().groupby("client").contribution.sum()
    np.testing.assert_allclose(told[[int(name) for name in mine.names]], mine.values)
    assert mine.exact
    assert others.exact


def test_an_own_utility_is_that_of_the_rounds():
    def margin(outputs, y):
        return float(outputs[torch.arange(len(y)), y].mean())

    seen = []
    mine = replace(PLAN, utility=margin, rounds=1)
    ran(plan=mine, seeds=[0], probe=lambda r, v: seen.append(r) or {})
    assert seen[0].evaluator.utility is margin
    refused("utility is 'margins'", replace, PLAN, utility="margins")


def test_a_total_of_exact_rounds_is_exact_and_keeps_names():
    one, two = fk.shapley(fk.airport([1, 2])), fk.shapley(fk.airport([4, 2]))
    found = fk.total([one.named(list("ab")), two.named(list("ab"))])
    assert found.values.tolist() == [0.5 + 3, 1.5 + 1]
    assert (found.names, found.exact, found.evaluations) == (("a", "b"), True, 8)
    assert fk.total([replace(one, info={"scale": 2}), two]).values.tolist() == [1 + 3, 3 + 1]
    moved = fk.total([one, two], [[7, 2], [2, 5]])
    assert (moved.names, moved.values.tolist()) == (("2", "5", "7"), [1.5 + 3, 1, 0.5])
    told = [["Ada", "Bo"], ["Bo", "Cy"]]  # names that are given here are those that count
    assert fk.total([one.named(list("01")), two.named(list("01"))], told).names == (
        "Ada",
        "Bo",
        "Cy",
    )
    named = fk.total([one.named(["Ada", "Bo"]), two.named(["Bo", "Cy"])])
    assert named == fk.total([one, two], [["Ada", "Bo"], ["Bo", "Cy"]])
    assert (named.names, named.values.tolist()) == (("Ada", "Bo", "Cy"), [0.5, 1.5 + 3, 1])


def test_a_total_refuses_what_is_no_sum_of_independent_rounds():
    game = fk.airport([1, 2, 4])
    alike = [fk.estimate(game, fk.PermutationSampling(), 6, seed=0) for _ in range(2)]
    exact = [fk.shapley(game)] * 2
    for call, words in (
        (lambda: fk.total(alike), "the seed 0; give each its own"),
        (lambda: fk.total(exact, [[0, 1, 2]]), "participants are"),
        (lambda: fk.total(exact, [[0, 1, 2], ["0", 1, 2]]), "all by text"),
        (lambda: fk.total(exact, [[0, 1, 2], [0, 1, 1]]), "each once"),
        (lambda: fk.total([exact[0], fk.shapley(fk.airport([1, 2]))]), "participants are"),
        (lambda: fk.total([exact[0], exact[0].named(list("abc"))]), "some have|some none"),
        (lambda: fk.total(exact, ["abc", "abd"]), "expected a list of clients"),
    ):
        refused(words, call)
    other = fk.estimate(game, fk.PermutationSampling(), 6, seed=1)
    assert fk.total([alike[0], other, exact[0]]).evaluations == alike[0].evaluations * 2 + 8
