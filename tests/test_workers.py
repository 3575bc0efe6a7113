import threading

import numpy as np
import pytest
import torch
from rounding import assert_close, assert_trained_alike

from fedkit.federated.round_games import round_game
from fedkit.learning.device import for_each
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import build
from fedkit.learning.training import LocalSGD, train_clients


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_all_items_once_on_threads_of_one_core_each(two_threads):
    seen, names = [], set()
    both = threading.Barrier(2, timeout=20)

    def work(item):
        if item < 2:
            both.wait()  # passes only if two threads work at the same time
        seen.append((item, torch.get_num_threads()))
        names.add(threading.current_thread().name)

    for_each(work, range(7))
    assert sorted(item for item, _ in seen) == list(range(7))
    assert {threads for _, threads in seen} == {1}
    assert len(names) == 2
    assert torch.get_num_threads() == 2


def test_threads_are_in_the_mode_of_who_calls(two_threads):
    seen = []
    with torch.inference_mode():
        for_each(lambda _: seen.append(torch.is_inference_mode_enabled()), range(3))
    assert seen == [True] * 3


def test_nothing_to_do_is_nothing_done(two_threads):
    for_each(print, [])
    rng, nobody = np.random.default_rng(0), (torch.zeros(0, 1, 3, 3), torch.zeros(0).long())
    arch = build("mlp-4", (1, 3, 3), 2)
    start = arch.init(rng)[None]
    assert torch.equal(train_clients(arch, start, [nobody], LocalSGD(lr=0.1), [rng]), start)


def test_an_exception_is_raised_and_the_threads_are_given_back(two_threads):
    def work(item):
        if item == 1:
            raise ValueError("item 1 is bad")

    with pytest.raises(ValueError, match="item 1 is bad"):
        for_each(work, range(50))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", ["mlp-6", "lenet5"])
def test_two_threads_give_the_numbers_of_one(name, two_threads):
    arch = build(name, (1, 8, 8), 3)
    rng = np.random.default_rng(0)
    sizes = (9, 0, 21, 4, 13)
    data = [
        (
            torch.tensor(rng.normal(size=(n, 1, 8, 8)), dtype=torch.float32),
            torch.tensor(rng.integers(3, size=n)),
        )
        for n in sizes
    ]
    base = arch.init(rng)
    start = base.expand(5, -1)
    x, y = data[2]
    trained, values = [], []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        rngs = [np.random.default_rng(i) for i in range(5)]
        config = LocalSGD(lr=0.1, batch_size=4, epochs=2)
        trained.append(train_clients(arch, start, data, config, rngs, device="cpu"))
        evaluator = Evaluator(arch, x, y, "negative_loss", device="cpu")
        game = round_game(evaluator, base, trained[0], sizes)
        values.append(game(np.random.default_rng(1).random((40, 5)) < 0.5))
    assert_trained_alike(trained[0], trained[1], start)
    assert_close(values[0], values[1])
