"""Models from elsewhere: torch modules and scikit-learn's linear models."""

import doctest
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from rounding import assert_close, assert_trained_alike
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.svm import SVC
from test_federation import MLP, toy
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

import fedkit as fk
from fedkit.learning import evaluation, foreign, training

ALL = np.array(list(itertools.product([False, True], repeat=3)))
SIZES = [5, 1, 12]


class Hidden(nn.Module):
    """A chain of layers that a class hides."""

    def __init__(self, chain):
        super().__init__()
        self.chain = chain

    def forward(self, x):
        return self.chain(x)


def Net():
    return Hidden(mlp())


class Moody(Hidden):
    """Looks at its numbers, which torch.vmap cannot."""

    def __init__(self):
        super().__init__(mlp())

    def forward(self, x):
        z = super().forward(x)
        return z if float(z.detach().sum()) < torch.inf else z * 0


def mlp():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 9), nn.Sequential(nn.ReLU(), nn.Dropout(0.9)), nn.Linear(9, 3)
    )


def unsound():
    model = LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True))
    model.coef_[0, 0] = np.nan
    return model


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 2, stride=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("score", "mixes"),
    [
        (lambda out, y: -((out - y) ** 2).mean(), True),
        (lambda out, y: -((out[:, 0] - y) ** 2).mean(), False),
        (lambda out, y: -F.mse_loss(out.squeeze(1), y), False),
        (lambda out, y: -out.var(), False),  # asks for no target
        (lambda out, y: [1.0, 2.0], False),
    ],
)
def test_a_score_that_compares_each_output_with_all_targets_is_told(score, mixes):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fk.Evaluator(nn.Linear(4, 1), x, x.sum(dim=1), score)
        fk.Evaluator(nn.Linear(4, 1), x, x.sum(dim=1, keepdim=True), score)
        fk.Evaluator(nn.Linear(4, 1), x, torch.ones(30), score)
    assert [("outputs[:, 0]" in str(w.message), w.filename) for w in told] == (
        [(True, __file__)] if mixes else []
    )


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), F.cross_entropy, log_loss])
def test_a_loss_is_no_utility(loss):
    with pytest.raises(ValueError, match=r"is the loss .* larger for better"):
        fk.Evaluator(nn.Linear(4, 2), torch.ones(3, 4), [0, 1, 0], loss)


def test_a_softmax_before_the_cross_entropy_is_told():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)), torch.randn(9, 4)
    for given, path in ((net, True), (net[0], False)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            fk.Evaluator(given, x, torch.arange(9) % 3, "negative_loss")
            fk.Evaluator(given, x, torch.arange(9) % 3)  # which class is highest is the same
        assert ["gives probabilities" in str(w.message) for w in told] == [True] * path


def test_a_forward_of_ones_own_is_called():
    net = nn.Sequential(nn.Linear(4, 3))
    net.forward = lambda x: nn.Sequential.forward(net, x).flip(1)
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    evaluator = fk.Evaluator(net, x, net(x).argmax(dim=1))
    assert evaluator.path.startswith("module")
    assert evaluator.utilities(parameters_to_vector(net.parameters()).detach()[None]) == [1.0]


def setting(n_parameters, shape=(1, 8, 8), n=61):
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((n, *shape), dtype=np.float32), rng.integers(0, 3, n)
    base = 0.2 * rng.standard_normal(n_parameters)
    return base, 0.5 * rng.standard_normal((3, n_parameters)), x, y


def values(model, utility, path="auto", **more):
    count = sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else 612 + 3
    base, updates, x, y = setting(count)
    evaluator = fk.Evaluator(model, x, y, utility, path=path, device="cpu", **more)
    return fk.RoundGame(evaluator, base, updates, SIZES)(ALL), evaluator


@pytest.mark.parametrize("utility", ["accuracy", "negative_loss", "class_accuracy"])
@pytest.mark.parametrize(
    ("make", "path", "way"),
    [
        (mlp, "auto", "first layer, stacked"),
        (Net, "auto", "module, stacked"),
        (Net, "loop", "module, loop"),
        (Moody, "auto", "module, loop"),
    ],
)
def test_a_module_has_the_values_of_our_architecture(make, path, way, utility):
    ours, _ = values(fk.build("mlp-9", (1, 8, 8), 3), utility)
    got, evaluator = values(make(), utility, path)
    assert evaluator.path == way
    assert len(np.unique(got, axis=0)) > 4
    assert_close(got, ours)


@pytest.mark.parametrize("path", ["auto", "stacked", "loop"])
def test_a_network_is_served_alike_as_a_chain_and_as_a_whole(path):
    chain, fast = values(convolutions(), "negative_loss", path)
    whole, slow = values(Hidden(convolutions()), "negative_loss", path)
    assert fast.path.startswith("first layer")
    assert slow.path.startswith("module")
    assert path != "auto" or slow.path == "module, loop"
    assert_close(whole, chain)
    net = convolutions()
    base, updates, x, y = setting(parameters_to_vector(net.parameters()).numel())
    nn.utils.vector_to_parameters(torch.tensor(base + updates[2]).float(), net.parameters())
    loss = F.cross_entropy(net(torch.tensor(x)), torch.tensor(y)).item()
    assert chain[1] == pytest.approx(-loss, rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.append(nn.Softmax(1)),
        lambda net: net.__setitem__(2, nn.MaxPool2d(2, stride=2, ceil_mode=True)),
        lambda net: net.__setitem__(2, nn.MaxPool2d(2, padding=1)),
        lambda net: net.__setitem__(2, nn.MaxPool2d(1, stride=2)),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, 3, padding=2, dilation=2)),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")),
        lambda net: net.__setitem__(0, nn.Conv2d(1, 4, 3, padding="same")),
        lambda net: net[0].register_forward_hook(lambda part, given, out: 2 * out),
    ],
)
def test_what_is_no_known_chain_is_called_as_a_whole(change):
    net = convolutions()
    change(net)
    assert values(net, "accuracy")[1].path == "module, loop"


@pytest.mark.parametrize("path", ["auto", "stacked", "loop"])
def test_a_pool_may_come_first(path):
    for net in (
        nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(4), nn.Conv2d(1, 3, 2), nn.Flatten()),
    ):
        evaluator = fk.Evaluator(net, X, Y, "negative_loss", path=path)
        flat = parameters_to_vector(net.parameters()).detach()
        loss = F.cross_entropy(net(torch.as_tensor(X).float()), torch.as_tensor(Y)).item()
        found = evaluator.utilities(flat.expand(3, -1))
        np.testing.assert_allclose(found, -loss, rtol=1e-5)


@pytest.mark.parametrize("path", ["auto", "loop"])
def test_a_module_that_works_in_place_gets_its_own_input(path):
    class Shifts(Hidden):
        def forward(self, x):
            x -= 1.0
            return super().forward(x)

    x, y = torch.as_tensor(X).float().clone(), torch.as_tensor(Y).clone()
    kept, net = x.clone(), Shifts(mlp())
    evaluator = fk.Evaluator(net, x, y, "negative_loss", path=path)
    flat = parameters_to_vector(net.parameters()).detach()
    found = [evaluator.utilities(flat.expand(3, -1)) for _ in range(2)]
    np.testing.assert_allclose(found, found[0][0], rtol=1e-6)
    assert torch.equal(x, kept)
    x *= 0  # nor does the caller reach the evaluator's
    y *= 0
    np.testing.assert_allclose(evaluator.utilities(flat[None]), found[0][:1], rtol=1e-6)


def test_what_a_utility_returned_is_told_of_a_series_too():
    with pytest.raises(ValueError, match=r"utility returned \[a\]"):
        values(NET, lambda out, y: pd.Series(["a"]))


def test_arrays_may_be_reversed_and_of_another_byte_order():
    x, y = np.asarray(X, dtype=np.float32), np.asarray(Y)
    flat = parameters_to_vector(NET.parameters()).detach()[None]
    plain = fk.Evaluator(NET, x, y, "negative_loss").utilities(flat)
    for turned in (x[::-1][::-1], x.astype(">f4"), np.asfortranarray(x)):
        assert fk.Evaluator(NET, turned, y, "negative_loss").utilities(flat) == plain
    turned = fk.Evaluator(NET, x[::-1], y[::-1], "negative_loss").utilities(flat)
    assert turned == pytest.approx(plain, rel=1e-6)


def test_the_module_is_left_alone_and_evaluated_without_chance():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    net[2].running_mean += 3.0
    before = {k: v.clone() for k, v in net.state_dict().items()}
    first, evaluator = values(net, "negative_loss")
    assert evaluator.path == "module, stacked"
    assert net.training
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    evaluated, _ = values(net.eval(), "negative_loss", "loop")
    assert_close(first, evaluated)


def accuracy(outputs, y):
    return (outputs.argmax(1) == y).double().mean()


def loss(outputs, y):
    return [-float(F.cross_entropy(outputs, y)), float(len(y))]


@pytest.mark.parametrize("make", [lambda: fk.build("mlp-9", (1, 8, 8), 3), mlp, Net])
def test_any_scoring_function_is_a_utility(make):
    for memory_mb in (None, 1):
        by_name = values(make(), "accuracy", memory_mb=memory_mb)[0]
        assert_close(values(make(), accuracy, memory_mb=memory_mb)[0], by_name)
    both, _ = values(make(), loss)
    assert both.shape == (8, 2)
    assert (both[:, 1] == 61).all()
    assert_close(both[:, 0], values(make(), "negative_loss")[0])


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


DIGITS, LABELS = load_digits(return_X_y=True)
SMALL = DIGITS / 16


@pytest.mark.parametrize(
    ("model", "classes", "score"),
    [
        (LogisticRegression(max_iter=30), 10, "accuracy"),
        (LogisticRegression(max_iter=30), 2, "accuracy"),
        (SGDClassifier(loss="log_loss", random_state=0), 4, "accuracy"),
        (LinearRegression(), 2, None),
        (Ridge(fit_intercept=False), 5, None),
    ],
)
@pytest.mark.filterwarnings("ignore:lbfgs failed:UserWarning")
def test_scikit_learn_models_are_vectors(model, classes, score):
    pick = classes > LABELS
    x, y = SMALL[pick], LABELS[pick]
    model.fit(x, y)
    linear = fk.ScikitLinear(model)
    vector = linear.vector(model)

    def squares(out, target):
        return -float((out[:, 0] - target).square().mean())

    evaluator = fk.Evaluator(linear.architecture, x, y, score or squares, device="cpu")
    assert evaluator.path == "first layer, stacked"
    expected = model.score(x, y) if score else -np.mean((model.predict(x) - y) ** 2)
    assert evaluator.utilities(vector[None])[0] == pytest.approx(expected, rel=1e-4)
    back = linear.model(vector)
    assert np.shape(back.coef_) == np.shape(model.coef_)
    np.testing.assert_allclose(back.predict(x), model.predict(x), rtol=1e-4, atol=1e-4)
    half = linear.model(vector / 2)
    np.testing.assert_allclose(half.coef_, model.coef_ / 2, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("path", ["auto", "stacked"])
def test_a_federation_trains_a_module_as_it_trains_our_architecture(path, monkeypatch):
    plan = fk.Plan(rounds=3, participants=3, local=fk.LocalSGD(lr=0.2, batch_size=4, momentum=0.5))
    strategy = fk.Strategy(fk.UniformSelection(), fk.Exact(), fk.SizeWeighted())
    chain = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    net = Hidden(chain)
    start = parameters_to_vector(net.parameters()).detach().clone()
    if path == "stacked":  # as on CUDA
        monkeypatch.setattr(training, "_stack_size", lambda *_: 8)
    monkeypatch.setattr(type(MLP), "init", lambda self, rng: start)
    ours, *others = (
        fk.run([toy(0), toy(1)], model, strategy, plan, [0, 1], device="cpu")
        for model in (MLP, net, chain)
    )
    assert not torch.equal(ours.models[0], start)
    for other in others:
        assert_trained_alike(other.models, ours.models, start)
    assert torch.equal(parameters_to_vector(net.parameters()), start)


NET = Net()
_, _, X, Y = setting(615)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: fk.Evaluator(nn.ReLU(), X, Y), "ReLU has no parameters"),
        (lambda: fk.Evaluator(nn.Linear(5, 3), X, Y), "Linear fails on inputs of shape"),
        (lambda: fk.Evaluator(nn.LSTM(8, 3), X[:, 0], Y), "LSTM returns no tensor"),
        (lambda: fk.Evaluator(nn.Linear(8, 3), X, Y), "Linear gives outputs"),
        (lambda: fk.Evaluator(NET, X, Y + 0.5), "float64; accuracy needs"),
        (lambda: fk.Evaluator(Moody(), X, Y, path="stacked"), "torch.vmap does not take Moody"),
        (lambda: values(NET, lambda out, y: None), "utility returned None"),
        (lambda: values(NET, lambda out, y: out), r"utility returned float32\[\d+, 3\];"),
        (lambda: values(NET, lambda out, y: [1.0] * (1 + (out[0, 0] > 0))), "several lengths"),
        (lambda: fk.ScikitLinear(Ridge()), "Ridge has no coef_"),
        (
            lambda: fk.ScikitLinear(SVC(kernel="linear").fit(*load_iris(return_X_y=True))),
            "LinearSVC",
        ),
        (lambda: fk.ScikitLinear(unsound()), "hold a NaN"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        make()


def test_a_utility_that_works_in_place_leaves_the_labels_alone():
    def euros(outputs, y):
        outputs *= 100
        y *= 100
        return -float((outputs[:, 0] - y).abs().mean())

    labels = torch.tensor(Y).double()
    base, updates, x, _ = setting(612 + 3)
    evaluator = fk.Evaluator(mlp(), x, labels, euros, device="cpu")
    once, again = (fk.RoundGame(evaluator, base, updates, SIZES)(ALL) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert labels.tolist() == Y.tolist()


@pytest.mark.parametrize("labels", [bool, np.uint8, np.uint16])
def test_labels_may_be_of_any_whole_type(labels):
    y = (Y > 0).astype(labels)
    one, other = (
        fk.Evaluator(Net(), X, each, "negative_loss", device="cpu").utilities(torch.ones(1, 615))
        for each in (y, y.astype(np.int64))
    )
    assert one == other


def test_frames_in_another_order_are_refused_and_mixed_ones_are_numbers():
    pd = pytest.importorskip("pandas")
    x = pd.DataFrame({"dose": [0.5, 1.5, 2.0, 3.0], "adult": [True, False, True, True]})
    y = pd.Series([0, 1, 0, 1])
    net = nn.Linear(2, 2)
    fk.Evaluator(net, x, y, device="cpu")
    with pytest.raises(ValueError, match="x and y have different indexes"):
        fk.Evaluator(net, x, y[::-1], device="cpu")
    with pytest.raises(ValueError, match=r"if these are no indices, pass x.float\(\)"):
        fk.Evaluator(net, x.astype(int), y, device="cpu")
    orders = ["dose", "adult"], ["adult", "dose"]
    one, other = (LogisticRegression().fit(x[columns], y) for columns in orders)
    with pytest.raises(ValueError, match=r"feature_names_in_ are \['adult', 'dose'\]"):
        fk.ScikitLinear(one).vector(other)
    fk.ScikitLinear(one).vector(LogisticRegression().fit(x.to_numpy(), y))  # no names, no order


def test_clients_of_other_classes_are_refused():
    fits = [LinearRegression().fit(SMALL[:, :n], LABELS) for n in (64, 63)]
    with pytest.raises(ValueError, match="same features and classes"):
        fk.ScikitLinear(fits[0]).vector(fits[1])
    first, other = (LogisticRegression().fit(SMALL[:4], np.array([0, 1, 0, 1]) + i) for i in (0, 1))
    with pytest.raises(ValueError, match=r"classes_ are \[1 2\]; \[0 1\] are expected"):
        fk.ScikitLinear(first).vector(other)
    with pytest.raises(ValueError, match="the vector has shape"):
        fk.ScikitLinear(fits[0]).model(np.zeros(3))


@pytest.mark.parametrize("module", [evaluation, foreign])
def test_the_examples_of_the_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 5
    assert not found.failed
