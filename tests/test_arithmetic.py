import numpy as np
import pytest
import torch
from rounding import assert_close, assert_trained_alike

import fedkit as fk
from fedkit.learning.architectures import build
from fedkit.learning.arithmetic import compiled, precision
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.training import LocalSGD, train_clients


def problem(name):
    arch = build(name, (1, 8, 8), 3)
    rng = np.random.default_rng(0)
    data = [
        (
            torch.tensor(rng.normal(size=(n, 1, 8, 8)), dtype=torch.float32),
            torch.tensor(rng.integers(3, size=n)),
        )
        for n in (12, 7)
    ]
    return arch, arch.init(rng), data


def train(arch, start, data, path="auto"):
    rngs = [np.random.default_rng(i) for i in range(len(data))]
    config = LocalSGD(lr=0.1, batch_size=4, epochs=2, momentum=0.5)
    stacked = start.expand(len(data), -1)
    return train_clients(arch, stacked, data, config, rngs, device="cpu", path=path)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("path", ["stacked", "loop"])
@pytest.mark.parametrize("name", ["mlp-6", "lenet5"])
def test_bf16_is_close_to_float32_and_not_the_same(name, path):
    arch, start, data = problem(name)
    exact = train(arch, start, data, path)
    with precision("bf16"):
        rough = train(arch, start, data, path)
    again = train(arch, start, data, path)
    assert torch.equal(exact, again)
    assert rough.dtype == torch.float32
    gap = float((rough - exact).norm() / (exact - start).norm())
    assert 1e-5 < gap < 0.1


def test_bf16_evaluation_keeps_the_coalitions_in_float32():
    arch, start, data = problem("lenet5")
    x, y = data[0]
    updates = train(arch, start, data) - start
    judge = Evaluator(arch, x, y, "negative_loss", device="cpu")
    rows = fk.all_coalitions(2)
    exact = fk.RoundGame(judge, start, 1e-4 * updates, [12, 7]).value(rows)
    with precision("bf16"):
        rough = fk.RoundGame(judge, start, 1e-4 * updates, [12, 7]).value(rows)
        weights = torch.addmm(start, torch.ones(1, 2), updates, out=torch.empty(1, len(start)))
    np.testing.assert_allclose(rough, exact, rtol=0.02)
    assert not np.array_equal(rough, exact)
    torch.testing.assert_close(weights[0], start + updates.sum(0))


def test_tf32_flags_are_set_and_given_back():
    flags = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [f.allow_tf32 for f in flags]
    for mode, wanted in (("tf32", True), ("fp32", False)):
        with precision(mode):
            assert [f.allow_tf32 for f in flags] == [wanted, wanted]
        assert [f.allow_tf32 for f in flags] == before
    with pytest.raises(RuntimeError, match="inside"), precision("tf32"):
        raise RuntimeError("inside")
    assert [f.allow_tf32 for f in flags] == before


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="mode is 'fp16'"), precision("fp16"):
        pass


def test_a_compiled_model_gives_the_same_numbers():
    arch, start, data = problem("lenet5")
    data = [(x[:4], y[:4]) for x, y in data]  # whole batches: each other shape is compiled anew
    fast = compiled(arch, backend="aot_eager")  # the same graph, without a code generator
    assert fast.n_parameters == arch.n_parameters
    x = data[0][0]
    assert_close(fast.forward(start[None], x), arch.forward(start[None], x))
    for path in ("stacked", "loop"):
        trained, expected = (train(a, start, data, path) for a in (fast, arch))
        assert_trained_alike(trained, expected, start)
