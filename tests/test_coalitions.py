"""Coalition utilities against averaging state dictionaries and running a torch.nn module."""

import copy
import itertools
import warnings

import numpy as np
import pytest
import torch
from refusals import refusals, refused
from rounding import assert_close
from torch import nn

from fedkit.federated.round_games import round_game
from fedkit.games.coalitions import averaging_weights
from fedkit.learning import evaluation
from fedkit.learning.evaluation import Evaluator, share_right
from fedkit.learning.evaluation import _margins as margins_of
from fedkit.learning.models import build

K = 4
ALL = np.array(list(itertools.product([False, True], repeat=K)))
SIZES = [5, 1, 0, 12]
ARCHS = [
    ("mlp-9", (1, 8, 8)),
    ("mlp-9-6", (2, 5, 7)),
    ("lenet5", (1, 28, 28)),
    ("lenet5", (3, 9, 11)),
    ("cnn", (3, 10, 8)),
    ("resnet20", (1, 8, 8)),
]


def setting(name, shape, n=37, seed=0):
    """Model, base, updates large enough to change predictions, images, labels."""
    arch, rng = build(name, shape, 3), np.random.default_rng(seed)
    base = arch.init(rng)
    updates = torch.stack([arch.init(rng) for _ in range(K)]) * torch.tensor([[2], [1], [3], [4]])
    x = torch.from_numpy(rng.standard_normal((n, *shape), dtype=np.float32))
    return arch, base, updates, x, torch.from_numpy(rng.integers(0, 3, n))


def judge(arch, x, y, utility, stacked):
    evaluator = Evaluator(arch, x, y, utility)
    evaluator.stacked = stacked
    return evaluator


def round_of(evaluator, base, updates, sizes=SIZES):
    return round_game(evaluator, base, None, sizes, updates=updates)


def plain_logits(arch, base, updates, x, w):
    """Average, then one forward pass, in double precision (the oracle)."""
    params = base.double() + torch.from_numpy(w) @ updates.double()
    module = copy.deepcopy(arch.module).double()
    nn.utils.vector_to_parameters(params, module.parameters())
    with torch.no_grad():
        return module(x.double())


def plain_utility(utility, logits, y):
    if utility == "negative_loss":
        return np.array(-float(nn.functional.cross_entropy(logits, y)))
    hits = (logits.argmax(1) == y).double()
    if utility == "accuracy":
        return np.array(float(hits.mean()))
    return np.array([float(hits[y == c].mean()) for c in range(3)])


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(("name", "shape"), ARCHS)
def test_values_are_those_of_averaged_models(name, shape, stacked):
    arch, base, updates, x, y = setting(name, shape)
    weights = averaging_weights(ALL, np.array(SIZES))
    logits = [plain_logits(arch, base, updates, x, w) for w in weights]
    for utility in ("accuracy", "negative_loss", "class_accuracy"):
        evaluator = judge(arch, x, y, utility, stacked)
        expected = np.array([plain_utility(utility, z, y) for z in logits])
        assert len(np.unique(expected, axis=0)) > 1
        got = round_of(evaluator, base, updates)(ALL)
        assert got.dtype == np.float64
        assert_close(got, expected)
        few = evaluator.evaluate(evaluator.prepare(base, updates), weights[5:7])  # the direct way
        assert_close(few, expected[5:7])
        models = base + torch.from_numpy(weights[:3]).float() @ updates
        assert_close(evaluator.utilities(models), expected[:3])


def test_a_round_keeps_its_updates_whatever_becomes_of_the_buffers():
    arch, base, updates, x, y = setting("mlp-9", (1, 8, 8))
    evaluator = Evaluator(arch, x, y, "negative_loss")
    kept = round_of(evaluator, base, updates)(ALL)
    for mine in (torch.clone, lambda tensor: tensor.clone().numpy()):
        start, buffer = mine(base), mine(updates)
        game = round_of(evaluator, start, buffer)
        start[:], buffer[:] = 1.0, -1.0
        assert_close(game(ALL), kept)


def test_weights_and_empty_coalitions():
    arch, base, updates, x, y = setting("mlp-9", (1, 8, 8))
    evaluator = Evaluator(arch, x, y, "negative_loss")
    game = round_of(evaluator, base, updates)
    assert game.n_players == K
    weights = averaging_weights(
        np.array([[0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0], [1, 0, 0, 1]]) > 0, game.sizes
    )
    np.testing.assert_allclose(weights[0], 0)
    np.testing.assert_allclose(weights[1], 0)  # client 2 has no data: its coalition is the base
    np.testing.assert_allclose(weights[2], [5 / 6, 1 / 6, 0, 0])
    np.testing.assert_allclose(weights[3], [5 / 17, 0, 0, 12 / 17])
    values = game(ALL)
    assert values[0] == pytest.approx(evaluator.utilities(base[None])[0], rel=1e-5)
    uniform = round_game(evaluator, base, None, updates=updates, weighting="uniform")
    assert (uniform.sizes == 1).all()
    assert uniform(ALL[2:3])[0] != pytest.approx(values[0], rel=1e-4)


@pytest.mark.parametrize(("name", "shape"), [("mlp-9", (1, 8, 8)), ("lenet5", (1, 12, 12))])
@pytest.mark.parametrize("stacked", [True, False])
def test_chunks_do_not_change_the_result(name, shape, stacked, monkeypatch):
    arch, base, updates, x, y = setting(name, shape, n=151)

    def game_of(memory):
        monkeypatch.setitem(evaluation._BYTES, "cpu", memory)
        return round_of(judge(arch, x, y, "negative_loss", stacked), base, updates)

    values, tight = game_of(1 << 30)(ALL), game_of(1 << 20)
    assert_close(tight(ALL), values)
    assert_close(tight(ALL[::-1])[::-1], values)
    monkeypatch.setattr("fedkit.learning.evaluation._CPU_TILE_BYTES", 1)
    monkeypatch.setattr("fedkit.learning.evaluation._CPU_GROUP_BYTES", 1)
    monkeypatch.setattr("fedkit.learning.evaluation._CPU_COLUMNS", 100)
    monkeypatch.setattr("fedkit.learning.evaluation._CPU_CONVOLVED", 1)
    assert_close(game_of(1 << 20)(ALL), values)
    assert_close(np.concatenate([game_of(1 << 20)(row[None]) for row in ALL]), values)


def test_small_requests_share_the_first_layer_once_that_pays():
    for (name, shape), shared in ((ARCHS[0], True), (ARCHS[2], False)):  # LeNet: convolves
        arch, base, updates, x, y = setting(name, shape)
        evaluator = Evaluator(arch, x, y, "negative_loss")
        whole = round_of(evaluator, base, updates)(ALL)
        prepared, weights = (
            evaluator.prepare(base, updates),
            averaging_weights(ALL, np.array(SIZES)),
        )
        for i, row in enumerate(weights):
            assert (prepared.first is not None) == (shared and i > K)
            assert_close(evaluator.evaluate(prepared, row[None])[0], whole[i])


@pytest.mark.parametrize("name", ["mlp-9", "lenet5"])
@pytest.mark.parametrize("utility", ["accuracy", "negative_loss", "class_accuracy"])
def test_a_model_of_nan_has_no_utility_and_leaves_its_neighbours_alone(name, utility):
    arch, base, updates, x, y = setting(name, (1, 8, 8))
    evaluator = Evaluator(arch, x, y, utility)
    models = base + updates
    models[1, 5], models[2] = torch.nan, torch.inf
    values = evaluator.utilities(models)
    assert np.isnan(values[1:3]).all()
    assert_close(values[[0, 3]], evaluator.utilities(models[[0, 3]]))
    prepared = evaluator.prepare(base, updates)
    weights = np.full((9, K), 0.25)  # more of them than clients: the first layer is prepared
    weights[4, 2] = np.nan
    for rows in (weights, weights[3:5]):
        values = evaluator.evaluate(prepared, rows)
        assert np.isnan(values[np.isnan(rows).any(axis=1)]).all()
        assert np.isfinite(values[np.isfinite(rows).all(axis=1)]).all()


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(("name", "shape"), ARCHS[:3])
def test_margins_are_positive_where_a_prediction_is_right(name, shape, stacked):
    arch, base, updates, x, y = setting(name, shape)
    right, margins = (
        round_of(judge(arch, x, y, u, stacked), base, updates) for u in ("accuracy", "margins")
    )
    found = margins(ALL)
    assert found.shape == (len(ALL), len(y))
    assert np.array_equal(share_right(found), right(ALL))
    logits = plain_logits(arch, base, updates, x, averaging_weights(ALL[5:6], margins.sizes)[0])
    others = logits.clone()
    others[torch.arange(len(y)), y] = -torch.inf
    plain = logits[torch.arange(len(y)), y] - others.max(dim=1).values
    assert_close(found[5], plain.numpy())
    game, score = right.lifted
    assert np.array_equal(score(game(ALL)), right(ALL))
    assert margins.lifted is None


def test_margins_of_ties_and_of_what_is_not_finite():
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor(
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [inf, 0.0, 0.0], [inf, inf, 0.0], [-inf, -inf, -inf],
         [nan, 1.0, 0.0]]
    )  # fmt: skip
    for label in range(3):
        y = torch.full((len(logits),), label)
        found = margins_of(logits[None], y)[0]
        assert torch.equal(found[:5] > 0, logits[:5].max(dim=1).indices == label)
        assert torch.isfinite(found[:5]).all()
        assert found[5].isnan()
    assert np.isnan(share_right(np.array([[1.0, np.nan]])))
    refused(r"expected \[B, N\]", share_right, [1.0, -1.0])


ARCH, BASE, UPDATES, X, Y = setting("mlp-9", (1, 8, 8))


def game(base=BASE, updates=UPDATES, sizes=SIZES):
    return round_of(Evaluator(ARCH, X, Y), base, updates, sizes)


def test_whole_models_in_the_place_of_updates_are_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        game()
        game(updates=torch.cat([UPDATES[:3] + BASE, UPDATES[3:]]))  # who sends nonsense, perhaps
        game(base=torch.zeros_like(BASE))
    with pytest.warns(UserWarning, match="take base off them"):
        game(updates=BASE + 0.1 * UPDATES)


test_bad_input_is_refused = refusals(
    (lambda: game(updates=UPDATES.clone().index_fill_(0, torch.tensor([2]), torch.nan)),
     r"updates\[2\] is not finite"),
    (lambda: game(base=BASE * torch.inf), "global model has diverged"),
    (lambda: game(updates=UPDATES[:0], sizes=[]), "updates is empty"),
    (lambda: game()(ALL[:, :1]), "coalitions have shape"),
    (lambda: Evaluator(ARCH, X, Y).utilities(UPDATES[:, :1]), "models are"),
    (lambda: Evaluator(ARCH, X, Y + 1), "labels go from"),
    (lambda: Evaluator(ARCH, X[Y < 2], Y[Y < 2], "class_accuracy"),
     r"classes \[2\] have no validation image"),
)  # fmt: skip
