"""fk.value: the clients of a round of one's own, without choosing an estimator."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

import fedkit as fk

X = torch.linspace(-1, 1, 120).reshape(30, 4)
Y = torch.arange(30) % 3
NET = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


def states(count: int) -> list[dict[str, torch.Tensor]]:
    draws = torch.Generator().manual_seed(0)
    sent = []
    for _ in range(count):
        own = copy.deepcopy(NET)
        for parameter in own.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=draws)
        own[1].running_mean += torch.randn(6, generator=draws)
        sent.append(own.state_dict())
    return sent


def test_a_few_clients_have_exact_values_and_the_method_says_so():
    sent, sizes = states(4), [10, 20, 5, 40]
    found = fk.value(NET, NET.state_dict(), sent, sizes, X, Y, "negative_loss", device="cpu")
    game = fk.round_game(NET, NET, sent, sizes, X, Y, "negative_loss", device="cpu")
    np.testing.assert_array_equal(found.values, fk.shapley(game).values)
    assert found.method == "Shapley values by negative_loss, exact"
    assert found.exact
    assert found.has_intervals
    assert found.evaluations == 16
    judge = fk.Evaluator(NET, X, Y, "negative_loss", device="cpu")
    base = NET.state_dict()
    assert fk.value(judge, base, sent, sizes) == found
    moved = [{key: one[key].double() - base[key] for key in one} for one in sent]
    same = fk.value(NET, base, None, sizes, X, Y, "negative_loss", updates=moved, device="cpu")
    np.testing.assert_allclose(same.values, found.values, atol=1e-6)


@pytest.mark.parametrize("count", [13, 50])
def test_many_clients_have_intervals_whatever_is_asked_for(count):
    sent, sizes = states(count), np.arange(1, count + 1)
    score = fk.value(NET, NET, sent, sizes, X, Y, device="cpu")
    assert score.method == "Shapley values by accuracy, by regression"
    assert score.has_intervals
    assert not score.exact
    assert 6 * count <= score.evaluations <= 12 * count + 2
    game = fk.round_game(NET, NET, sent, sizes, X, Y, device="cpu")
    assert score.info["utility"] == "accuracy"
    by_loss, directions = (
        fk.value(NET, NET, sent, sizes, X, Y, "negative_loss"),
        fk.value(NET, NET, sent),
    )
    for other, kind in ((by_loss, "negative_loss"), (directions, "cosines of updates")):
        with pytest.raises(ValueError, match=f"differ in utility: accuracy and {kind}"):
            fk.total([score, replace(other, seed=1)])
    none, everybody = game(np.repeat([[False], [True]], count, axis=1))
    assert score.values.sum() == pytest.approx(everybody - none)


def test_a_budget_is_kept_and_a_few_clients_may_be_sampled_too():
    sent = states(8)
    for budget in (60, 256):
        found = fk.value(NET, NET, sent, range(1, 9), X, Y, "negative_loss", budget=budget, seed=3)
        assert found.evaluations <= budget
        assert found.exact == (budget == 256)


def test_an_interval_is_looked_for_until_every_client_has_one(monkeypatch):
    from fedkit.methods import one_round

    asked = []

    class Shy(fk.PermutationSampling):
        def minimum(self, n_players, count):
            return n_players + 1

    def estimate(game, estimator, budget, seed, **more):
        asked.append(budget)
        return fk.estimate(game, Shy(), budget, seed, **more)

    monkeypatch.setattr(one_round, "estimate", estimate)
    found = fk.value(NET, NET, states(13), range(13), X, Y, "negative_loss", device="cpu")
    assert found.has_intervals
    assert asked == [79 * 2**k for k in range(len(asked))]
    assert len(asked) > 1


def test_without_validation_data_clients_are_ranked_by_their_updates():
    sent = states(5)
    found = fk.value(NET, NET.state_dict(), sent)
    flat = [nn.utils.parameters_to_vector([s[k] for k, _ in NET.named_parameters()]) for s in sent]
    updates = torch.stack(flat) - nn.utils.parameters_to_vector(NET.parameters()).detach()
    unit = nn.functional.normalize(updates.double())
    cosines = nn.functional.cosine_similarity(unit, unit.sum(dim=0))
    np.testing.assert_allclose(found.values, cosines.numpy(), atol=1e-6)
    assert "CGSV" in found.method
    assert "no validation data" in found.method
    base = NET.state_dict()
    moved = [{key: one[key].double() - base[key] for key in one} for one in sent]
    np.testing.assert_allclose(
        fk.value(NET, None, None, updates=moved).values, found.values, atol=1e-6
    )
    part = [{key: one[key] for key in ("0.weight", "0.bias")} for one in sent]
    assert len(fk.value(NET, NET, part).values) == 5
    refused("as trained, or their differences", fk.value, NET, NET, None)


def test_states_that_are_one_and_the_same_model_are_warned_of() -> None:
    net = torch.nn.Linear(4, 2)
    x, y = torch.linspace(-1, 1, 80).reshape(20, 4), torch.arange(20) // 10
    base = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    alive = [net.state_dict() for _ in range(3)]
    with pytest.warns(UserWarning, match="all of trained are the same tensors"):
        fk.value(net, base, alive, [1, 2, 3], x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fk.value(net, base, [copy.deepcopy(one) for one in alive], [1, 2, 3], x, y)


def test_differences_and_models_are_told_apart_with_data_and_without() -> None:
    base = NET.state_dict()
    moved = [{key: 0.1 * (one[key] - base[key]) for key in one} for one in states(3)]
    sent = [{key: base[key] + one[key] for key in one} for one in moved]
    for data in ((), ([1, 2, 3], X, Y)):
        with pytest.warns(UserWarning, match="nearer to zero than to base.*by updates="):
            fk.value(NET, base, moved, *data)
        with pytest.warns(UserWarning, match="nearer to base than to zero.*take base off"):
            fk.value(NET, base, None, *data, updates=sent)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fk.value(NET, base, sent, *data)
            fk.value(NET, base, None, *data, updates=moved)
        broken = [*sent[:2], {key: tensor * np.nan for key, tensor in base.items()}]
        refused(r"trained\[2\] is not finite", fk.value, NET, base, broken, *data)


def test_arrays_without_names_and_paths_of_states(tmp_path) -> None:
    base, sent = NET.state_dict(), states(3)
    arrays = [[tensor.numpy() for tensor in one.values()] for one in sent]
    with pytest.raises(ValueError, match=r"trained\[0\] is list of 9; give dict\(zip\("):
        fk.value(NET, base, arrays, [1, 2, 3], X, Y)
    expected = fk.value(NET, base, sent, [1, 2, 3], X, Y)
    named = [dict(zip(base, one, strict=True)) for one in arrays]
    assert fk.value(NET, base, named, [1, 2, 3], X, Y) == expected
    torch.save(sent[0], tmp_path / "0.pt")
    assert fk.value(NET, base, [tmp_path / "0.pt", *sent[1:]], [1, 2, 3], X, Y) == expected
    (tmp_path / "junk.pt").write_bytes(b"junk")
    with pytest.raises(ValueError, match=r"trained\[0\] is the path .*junk.pt, no checkpoint"):
        fk.value(NET, base, [tmp_path / "junk.pt", *sent[1:]], [1, 2, 3], X, Y)


def test_the_client_that_lacks_a_key_is_the_one_that_is_named() -> None:
    base, sent = NET.state_dict(), states(3)
    lost = dict(list(sent[0].items())[1:])
    key = next(iter(sent[0]))
    with pytest.raises(ValueError, match=rf"trained\[0\] .* missing keys \['{key}'\]"):
        fk.value(NET, base, [lost, *sent[1:]], [1, 2, 3], X, Y)


def test_without_x_nothing_that_needs_it_is_taken_in_silence() -> None:
    net = torch.nn.Linear(4, 2)
    base = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    sent = [{key: tensor + i for key, tensor in base.items()} for i in range(1, 4)]
    for more in ({"y": [0, 1]}, {"budget": 5}, {"utility": "negative_loss"}):
        refused("without x there is no utility", fk.value, net, base, sent, [1, 2, 3], **more)
