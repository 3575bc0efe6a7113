"""Torch modules as people bring them, against averaging whole state_dicts by hand."""

import copy
import doctest
import gc
import itertools
import re

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from rounding import assert_close, assert_trained_alike
from test_federation import MLP, toy
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector
from torch.utils.data import DataLoader, TensorDataset

import fedkit as fk
from fedkit.federated import round_games
from fedkit.learning import evaluation, training
from fedkit.learning.models import Model, classifier, model_of

ALL = np.array(list(itertools.product([False, True], repeat=3)))
SIZES = np.array([5.0, 1.0, 12.0])


class Hidden(nn.Module):
    """A chain of layers that a class hides."""

    def __init__(self, chain):
        super().__init__()
        self.chain = chain

    def forward(self, x):
        return self.chain(x)


class Moody(Hidden):
    """Looks at its numbers, which torch.vmap cannot."""

    def forward(self, x):
        z = super().forward(x)
        return z if float(z.detach().sum()) < torch.inf else z * 0


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.last(self.two(torch.tanh(self.one(x))))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(2, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.lstm(x.unflatten(1, (3, 2)))[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(2, 2, 8, dropout=0.0, batch_first=True)
        self.last = nn.Linear(2, 3)
        self.register_buffer("mask", torch.triu(torch.full((3, 3), -torch.inf), 1))

    def forward(self, x):
        return self.last(self.layer(x.unflatten(1, (3, 2)), self.mask)[:, -1])


class Adapted(nn.Module):
    """A frozen body with a low-rank adapter."""

    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Linear(6, 300), nn.Linear(300, 3)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 300, bias=False)
        for part in (self.body, self.last):
            part.requires_grad_(False)

    def forward(self, x):
        return self.last(torch.relu(self.body(x) + self.up(self.down(x))))


def small(middle=None):
    return nn.Sequential(nn.Linear(6, 8), middle or nn.ReLU(), nn.Linear(8, 3))


MODULES = {
    "chain": small,
    "hidden": lambda: Hidden(small()),
    "moody": lambda: Moody(small()),
    "batch norm": lambda: small(nn.Sequential(nn.BatchNorm1d(8), nn.ReLU())),
    "cumulative": lambda: small(nn.BatchNorm1d(8, momentum=None)),
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.ReLU(), nn.Linear(8, 3)
    ),
    "tied": Tied,
    "lstm": Recurrent,
    "attention": Attention,
    "float64": lambda: small().double(),
    "bfloat16": lambda: small().bfloat16(),
    "adapters": Adapted,
}


def samples(n=60, seed=0, features=6):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=draws)
    return x, torch.randint(3, (n,), generator=draws)


def made(name):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return MODULES[name]()


def trained_by_hand(net, x, y, lr=0.2, steps=4):
    """Full batches, as a client would; of state_dict and training mode."""
    net.train()
    free = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(free, lr)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(net(x.to(free[0].dtype)), y).backward()
        optimiser.step()
    return {key: tensor.detach().clone() for key, tensor in net.state_dict().items()}


def averaged(base, states, weights):
    """State_dicts averaged key by key; whole numbers and masks are the base's."""
    if not sum(weights):
        return base
    mean = dict(base)
    for key, tensor in base.items():
        if tensor.is_floating_point() and tensor.isfinite().all():
            parts = [w * state[key].double() for w, state in zip(weights, states, strict=True)]
            mean[key] = (sum(parts) / sum(weights)).to(tensor.dtype)
    return mean


def clients_of(name):
    base = {key: tensor.clone() for key, tensor in made(name).state_dict().items()}
    return base, [trained_by_hand(made(name), *samples(20, seed)) for seed in (1, 2, 3)]


@pytest.mark.parametrize("name", MODULES)
def test_coalitions_are_averaged_state_dicts(name):
    base, states = clients_of(name)
    x, y = samples()
    net, expected = made(name), []
    for row in ALL:
        net.load_state_dict(averaged(base, states, row * SIZES))
        with torch.no_grad():
            out = net.eval()(x.to(next(net.parameters()).dtype))
        expected.append(-float(F.cross_entropy(out.float(), y)))
    module = made(name)
    game = fk.round_game(module, base, states, SIZES, x, y, "negative_loss", device="cpu")
    assert len(set(expected)) > 4
    assert_close(game(ALL), expected, 1e-2 if name == "bfloat16" else 1e-5)
    assert module.training
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, base[key])


@pytest.mark.parametrize("name", MODULES)
def test_a_client_trains_as_torch_would(name):
    x, y = samples(20, 1)
    model = model_of(made(name), x, trained_only=True)
    local, rng = fk.LocalSGD(0.2, batch_size=20, epochs=4), np.random.default_rng(0)
    ended = fk.train_clients(model, model.start[None], [(x, y)], local, [rng], device="cpu")[0]
    expected = model.row(trained_by_hand(made(name), x, y), others=True)
    assert not torch.equal(ended, model.start)
    assert_trained_alike(ended[None], expected[None], model.start[None])
    buffers = ended[model.n_parameters :]
    assert_close(buffers, expected[model.n_parameters :], 1e-4)


def test_adapters_travel_alone():
    base, states = clients_of("adapters")
    x, y = samples()
    parts = [{key: s[key] for key in ("up.weight", "down.weight")} for s in states]
    whole, part = (
        fk.round_game(made("adapters"), base, given, SIZES, x, y, "negative_loss")
        for given in (states, parts)
    )
    assert_close(part(ALL), whole(ALL))
    assert model_of(made("adapters"), x, parts[0].keys(), base=base).size == 2 * (6 + 300)
    less = {"down.weight": parts[1]["down.weight"]}
    with pytest.raises(ValueError, match=r"trained\[1\] .* missing keys \['up.weight'\]"):
        fk.round_game(made("adapters"), base, [parts[0], less], [1, 1], x, y)


def test_ten_adapters_are_valued_without_ten_copies_of_the_body():
    class Wide(Adapted):
        def __init__(self):
            nn.Module.__init__(self)
            self.body, self.last = nn.Linear(1000, 1000), nn.Linear(1000, 3)
            self.down, self.up = nn.Linear(1000, 5, bias=False), nn.Linear(5, 1000, bias=False)

    def bodies():
        """Tensors of a body's size, by where in memory they lie."""
        return {
            tensor.untyped_storage().data_ptr(): tensor
            for tensor in gc.get_objects()
            if isinstance(tensor, torch.Tensor) and tensor.numel() >= 10**6
        }

    others = bodies()  # what tests before this one left, held so that its place is not used anew
    net, (x, y) = Wide(), samples(20, features=1000)
    keys = ("down.weight", "up.weight")
    base, most = net.state_dict(), []
    sent = [{key: base[key] + 0.01 * i for key in keys} for i in range(10)]

    def score(out, y):
        most.append(len(bodies().keys() - others.keys()))
        return float(out.mean())

    found = fk.value(net, base, sent, np.arange(1, 11), x, y, score, budget=40, device="cpu")
    assert np.ptp(found.values) > 0
    assert max(most) <= 3  # the caller's, that of the game, and one that is loaded


def test_states_come_in_every_form_and_differences_by_their_own_name(tmp_path):
    base, states = clients_of("chain")
    net, (x, y) = made("chain"), samples()
    modules = [made("chain") for _ in states]
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state)
    torch.save(states[2], tmp_path / "third.pt")
    rows = [parameters_to_vector(module.parameters()).detach() for module in modules]
    mixed = [modules[0], dict(reversed(states[1].items())), tmp_path / "third.pt"]
    start = parameters_to_vector(net.parameters()).detach()
    expected = fk.round_game(net, base, states, SIZES, x, y, "negative_loss")(ALL)
    loader = DataLoader(TensorDataset(x, y), batch_size=7)
    for game in (
        fk.round_game(net, net, mixed, SIZES, x, y, "negative_loss"),
        fk.round_game(
            net, start, [r.numpy() for r in rows], SIZES, loader, utility="negative_loss"
        ),
        fk.round_game(
            net, start, None, SIZES, TensorDataset(x, y), utility="negative_loss",
            updates=torch.stack(rows) - start,
        ),
    ):  # fmt: skip
        assert_close(game(ALL), expected)
    local, rngs = fk.LocalSGD(0.1), [np.random.default_rng(0) for _ in range(2)]
    model = model_of(net, x)
    data = [(x, y), TensorDataset(x, y)]
    one, other = fk.train_clients(model, start.expand(2, -1), data, local, rngs)
    assert torch.equal(one, other)


def test_batches_that_see_each_other_are_never_stacked():
    x, _ = samples()
    for name, alone in (("batch norm", False), ("moody", False), ("tied", True)):
        assert model_of(made(name), x).stackable_in_training == alone
    dropping = model_of(small(nn.Dropout(0.5)), x)
    assert (dropping.stackable, dropping.stackable_in_training) == (True, False)


def test_dropout_draws_from_a_clients_own_stream():
    (x, y), local = samples(), fk.LocalSGD(0.2, batch_size=8)
    model = model_of(small(nn.Dropout(0.5)), x)
    start, before = model.start.expand(3, -1), torch.random.get_rng_state()

    def trained(*seeds):
        rngs = [np.random.default_rng(seed) for seed in seeds]
        return fk.train_clients(model, start[: len(seeds)], [(x, y)] * len(seeds), local, rngs)

    one, other, again = trained(0, 1, 0)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(other, trained(1)[0])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_federation_of_batch_norm_learns_and_a_batch_of_one_is_told():
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    strategy = fk.Strategy(fk.UniformSelection(), fk.Exact(), fk.SizeWeighted())
    plan = fk.Plan(2, 3, fk.LocalSGD(0.1, batch_size=5))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        fk.run([toy(sizes=(11, 5, 5))], net, strategy, plan, [0])
    history = fk.run([toy(sizes=(10, 5, 10))], net, strategy, plan, [0], device="cpu")
    model = model_of(net, toy().x)
    moved = history.models[0][model.n_parameters :]
    assert (moved[8:] > 0).all()  # variances
    assert (moved - model.start[model.n_parameters :]).abs().max() > 1e-3


@pytest.mark.parametrize("path", ["auto", "stacked"])
def test_a_federation_trains_a_module_as_it_trains_a_named_network(path, monkeypatch):
    plan = fk.Plan(rounds=3, participants=3, local=fk.LocalSGD(lr=0.2, batch_size=4, momentum=0.5))
    strategy = fk.Strategy(fk.UniformSelection(), fk.Exact(), fk.SizeWeighted())
    chain = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    net = Hidden(chain)
    start = parameters_to_vector(net.parameters()).detach().clone()
    if path == "stacked":  # as on CUDA
        monkeypatch.setattr(training, "_stack_size", lambda *_: 8)
    monkeypatch.setattr(Model, "init", lambda self, rng: start)
    ours, *others = (
        fk.run([toy(0), toy(1)], model, strategy, plan, [0, 1], device="cpu")
        for model in (MLP, net, chain)
    )
    assert not torch.equal(ours.models[0], start)
    for other in others:
        assert_trained_alike(other.models, ours.models, start)
    assert torch.equal(parameters_to_vector(net.parameters()), start)


# ------------------------------------------------------------------- paths of evaluation


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 9), nn.Sequential(nn.ReLU(), nn.Dropout(0.9)), nn.Linear(9, 3)
    )


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 2, stride=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


X = np.random.default_rng(3).standard_normal((61, 1, 8, 8), dtype=np.float32)
Y = np.random.default_rng(4).integers(0, 3, 61)


def values(model, utility="negative_loss", stacked=None):
    rng = np.random.default_rng(5)
    count = model.size if isinstance(model, Model) else sum(p.numel() for p in model.parameters())
    evaluator = fk.Evaluator(model, X, Y, utility, device="cpu")
    evaluator.stacked = evaluator.stacked if stacked is None else stacked
    base, updates = 0.2 * rng.standard_normal(count), 0.5 * rng.standard_normal((3, count))
    return fk.round_game(evaluator, base, None, SIZES, updates=updates)(ALL), evaluator


@pytest.mark.parametrize("utility", ["accuracy", "negative_loss", "class_accuracy"])
@pytest.mark.parametrize(
    ("make", "stacked", "way"),
    [
        (mlp, None, (True, True)),
        (lambda: Hidden(mlp()), None, (True, False)),
        (lambda: Hidden(mlp()), False, (False, False)),
        (lambda: Moody(mlp()), None, (False, False)),
    ],
)
def test_a_module_has_the_values_of_a_named_network(make, stacked, way, utility):
    ours, _ = values(fk.build("mlp-9", (1, 8, 8), 3), utility)
    got, evaluator = values(make(), utility, stacked)
    assert (evaluator.stacked, evaluator._head is not None) == way
    assert len(np.unique(got, axis=0)) > 4
    assert_close(got, ours)


@pytest.mark.parametrize("stacked", [None, True, False])
def test_a_network_is_served_alike_as_a_chain_and_as_a_whole(stacked):
    chain, fast = values(convolutions(), stacked=stacked)
    whole, slow = values(Hidden(convolutions()), stacked=stacked)
    assert fast._head is not None
    assert slow._head is None
    assert stacked is not None or not slow.stacked  # on a CPU
    assert_close(whole, chain)


@pytest.mark.parametrize("stacked", [None, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.append(nn.Softmax(1)),
        lambda net: net.__setitem__(2, nn.MaxPool2d(2, stride=2, ceil_mode=True)),
        lambda net: net.__setitem__(2, nn.MaxPool2d((4, 4), stride=2, padding=1)),
        lambda net: net.__setitem__(2, nn.MaxPool2d(1, stride=2)),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, 3, padding=2, dilation=2)),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, (3, 5), padding="same")),
        lambda net: net[0].register_forward_hook(lambda part, given, out: 2 * out),
        lambda net: net.insert(0, nn.MaxPool2d(1)),
        lambda net: net.insert(0, nn.ReLU(inplace=True)),
    ],
)
def test_whatever_a_layer_does_is_done(change, stacked):
    net = convolutions()
    change(net)
    kept = X.copy()
    found, evaluator = values(net, stacked=stacked)
    module = copy.deepcopy(evaluator.model.module)
    base, _, _, last = np.random.default_rng(5).standard_normal((4, evaluator.model.size))
    row = torch.tensor(0.2 * base + 0.5 * last).float()
    nn.utils.vector_to_parameters(row, module.parameters())
    loss = F.cross_entropy(module(torch.tensor(X)), torch.tensor(Y)).item()
    assert found[1] == pytest.approx(-loss, rel=1e-5)
    assert np.array_equal(X, kept)


@pytest.mark.parametrize("stacked", [True, False])
def test_grouped_convolutions_are_not_laid_side_by_side(stacked):
    net = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(144, 3))
    x = torch.tensor(X).repeat(1, 2, 1, 1)
    rows = parameters_to_vector(net.parameters()).detach() * torch.tensor([[1.0], [2.0], [1.0]])
    evaluator = fk.Evaluator(net, x, Y, "negative_loss")
    evaluator.stacked = stacked
    found = evaluator.utilities(rows)
    expected = -F.cross_entropy(net(x), torch.tensor(Y)).item()
    assert found[[0, 2]] == pytest.approx(expected, rel=1e-5)


def test_a_forward_of_ones_own_is_called():
    net = nn.Sequential(nn.Linear(4, 3))
    net.forward = lambda x: nn.Sequential.forward(net, x).flip(1)
    x, _ = samples(9, features=4)
    evaluator = fk.Evaluator(net, x, net(x).argmax(dim=1))
    assert evaluator.utilities(parameters_to_vector(net.parameters()).detach()[None]) == [1.0]


@pytest.mark.parametrize("stacked", [True, False])
def test_a_module_that_works_in_place_gets_its_own_input(stacked):
    class Shifts(Hidden):
        def forward(self, x):
            x -= 1.0
            return super().forward(x)

    x, y = torch.as_tensor(X).clone(), torch.as_tensor(Y).clone()
    kept, net = x.clone(), Shifts(mlp())
    evaluator = fk.Evaluator(net, x, y, "negative_loss")
    evaluator.stacked = stacked
    flat = parameters_to_vector(net.parameters()).detach()
    found = [evaluator.utilities(flat.expand(3, -1)) for _ in range(2)]
    np.testing.assert_allclose(found, found[0][0], rtol=1e-6)
    assert torch.equal(x, kept)
    x *= 0  # nor does the caller reach the evaluator's
    y *= 0
    np.testing.assert_allclose(evaluator.utilities(flat[None]), found[0][:1], rtol=1e-6)


def test_a_utility_that_works_in_place_leaves_the_labels_alone():
    def euros(outputs, y):
        outputs *= 100
        y *= 100
        return -float((outputs[:, 0] - y).abs().mean())

    labels = torch.tensor(Y).double()
    evaluator = fk.Evaluator(mlp(), X, labels, euros, device="cpu")
    rows = torch.ones(2, evaluator.model.size)
    np.testing.assert_array_equal(evaluator.utilities(rows), evaluator.utilities(rows))
    assert labels.tolist() == Y.tolist()


def test_any_scoring_function_is_a_utility(monkeypatch):
    def accuracy(outputs, y):
        return (outputs.argmax(1) == y).double().mean()

    def loss(outputs, y):
        return [-float(F.cross_entropy(outputs, y)), float(len(y))]

    for make in (lambda: fk.build("mlp-9", (1, 8, 8), 3), mlp, lambda: Hidden(mlp())):
        for memory in (1 << 30, 1 << 20):
            monkeypatch.setitem(evaluation._BYTES, "cpu", memory)
            assert_close(values(make(), accuracy)[0], values(make(), "accuracy")[0])
        both, _ = values(make(), loss)
        assert (both[:, 1] == 61).all()
        assert_close(both[:, 0], values(make())[0])


def test_inputs_may_be_whole_numbers_and_outputs_of_any_shape():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 2)

        def forward(self, x):
            return self.table(x).sum((1, 2))

    x = np.arange(12).reshape(4, 3) % 7
    evaluator = fk.Evaluator(Words(), x, x[:, 0], lambda out, y: float(out @ y.float()))
    vector = np.arange(14.0)
    expected = vector.reshape(7, 2)[x].sum((1, 2)) @ x[:, 0]
    np.testing.assert_allclose(evaluator.utilities(vector[None]), [expected])


# ----------------------------------------------------------------------------- refusals


def test_frames_in_another_order_are_refused_and_mixed_ones_are_numbers():
    x = pd.DataFrame({"dose": [0.5, 1.5, 2.0, 3.0], "adult": [True, False, True, True]})
    y, net = pd.Series([0, 1, 0, 1]), nn.Linear(2, 2)
    fk.Evaluator(net, x, y, device="cpu")
    refused("x and y have different indexes", fk.Evaluator, net, x, y[::-1], device="cpu")


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.wave = nn.Parameter(torch.ones(3, dtype=torch.complex64))

    def forward(self, x):
        return x * self.wave.real


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fk.Evaluator(nn.ReLU(), X, Y), "ReLU has no parameters"),
        (lambda: fk.Evaluator(nn.Linear(5, 3), X, Y), "Linear fails on inputs"),
        (lambda: fk.Evaluator(nn.LSTM(8, 3), X[:, 0], Y), "LSTM returns no tensor"),
        (lambda: fk.Evaluator(nn.Linear(8, 3), X, Y), "Linear gives outputs"),
        (lambda: fk.Evaluator(Complex(), X[:, 0, 0, :3], Y), "state['wave'] is"),
        (lambda: fk.Evaluator(nn.Linear, X, Y), "expected a torch.nn.Module"),
        (
            lambda: fk.Evaluator(nn.Linear(3, 1), X[:, 0, 0, :3], Y > 1),
            "needs one logit for each class",
        ),
        (lambda: fk.Evaluator(mlp(), X), "y is missing beside x"),
        (lambda: fk.Evaluator(mlp(), DataLoader(torch.tensor(X))), "pairs (samples, labels)"),
        (lambda: fk.Evaluator(mlp(), X, Y + 0.5), "float64; accuracy needs"),
        (lambda: values(mlp(), lambda out, y: None), "utility returned None"),
        (lambda: values(mlp(), lambda out, y: pd.Series(["a"])), "utility returned [a]"),
        (lambda: values(mlp(), lambda out, y: out), "utility returned float32[61, 3];"),
        (lambda: values(mlp(), lambda out, y: [1.0] * (1 + (out[0, 0] > 0))), "several lengths"),
        (lambda: fk.round_game(mlp(), mlp(), None, [1], X, Y), "as trained, or their differences"),
        (
            lambda: fk.value(mlp(), mlp(), [nn.DataParallel(mlp()).state_dict()], [1], X, Y),
            "that could travel (keys of a wrapper begin with 'module.'",
        ),
        (lambda: classifier("model", nn.Linear(4, 1), torch.ones(2, 4)), "one logit for each"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(make, sentence):
    refused(re.escape(sentence), make)


@pytest.mark.parametrize("module", [evaluation, round_games])
def test_the_examples_of_the_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 5
    assert not found.failed
