from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from rounding import assert_same_answers

import fedkit as fk
from fedkit.federated.adversaries import ScaledUpdate
from fedkit.federated.retraining import federation_game, train_with_sizes
from fedkit.methods.fedccea import sample_sizes, simulate
from reproduction.experiments import SIZE_LIMIT
from reproduction.fedccea import trainings
from reproduction.fedccea.trainings import RetrainingCache

LOCAL = fk.LocalSGD(lr=0.2, batch_size=8, epochs=1)


@pytest.fixture(scope="module")
def problem():
    f = fk.make_federation(fk.load("digits"), 4, fk.IID(), 0, validation=0.1)
    f = replace(f, clients=tuple(c[:20] for c in f.clients))
    return f, fk.build("mlp-8", f.input_shape, f.n_classes), LOCAL


@pytest.fixture
def asked(monkeypatch):
    """How many federations are trained in each call."""
    calls: list[int] = []

    def counted(f, arch, local, sizes, **more):
        calls.append(len(sizes))
        return train_with_sizes(f, arch, local, sizes, **more)

    monkeypatch.setattr(trainings, "train_with_sizes", counted)
    return calls


def test_what_was_trained_is_not_trained_again(problem, tmp_path, asked):
    sizes = sample_sizes(problem[0].sizes, 6, 3)
    plain, images = train_with_sizes(*problem, sizes, device="cpu"), len(problem[0].y_test)
    first = RetrainingCache(tmp_path)
    assert_same_answers(first(*problem, sizes[:4], device="cpu"), plain[:4], images)
    assert_same_answers(first(*problem, sizes[[5, 1, 5]], device="cpu"), plain[[5, 1, 5]], images)
    assert asked == [4, 1]
    later = RetrainingCache(tmp_path)  # another process: one is trained again to see the same
    assert_same_answers(later(*problem, sizes, device="cpu"), plain, images)
    again = later(*problem, sizes, device="cpu")
    np.testing.assert_array_equal(again[:4], first(*problem, sizes[:4], device="cpu"))
    assert asked == [4, 1, 2]


def test_everything_but_the_sizes_names_the_file(problem, tmp_path):
    f, arch, local = problem
    kept, sizes = RetrainingCache(tmp_path), sample_sizes(f.sizes, 1, 2)
    y = f.y_test.clone()
    y[0] = (y[0] + 1) % 10
    others = [
        (replace(f, y_test=y), arch, local),
        (replace(f, clients=tuple(c[::-1].copy() for c in f.clients)), arch, local),
        (f.with_transforms({0: lambda x, y, rng: (-x, y)}), arch, local),
        (f, fk.build("mlp-4", f.input_shape, f.n_classes), local),
        (f, arch, replace(local, lr=0.1)),
    ]
    for g, a, l in [problem, *others]:
        found = kept(g, a, l, sizes, device="cpu")
        again = train_with_sizes(g, a, l, sizes, device="cpu")
        assert_same_answers(found, again, len(f.y_test))
    kept(*problem, sizes, seed=1, device="cpu")
    assert len(list(tmp_path.iterdir())) == len(others) + 2


def test_code_that_has_changed_is_noticed(problem, tmp_path, monkeypatch):
    sizes = sample_sizes(problem[0].sizes, 3, 2)
    RetrainingCache(tmp_path)(*problem, sizes, device="cpu")
    worse = lambda *a, **k: train_with_sizes(*a, **k) * 0.5  # noqa: E731
    monkeypatch.setattr(trainings, "train_with_sizes", worse)
    with pytest.raises(ValueError, match="the code has changed since; delete the file"):
        RetrainingCache(tmp_path)(*problem, sizes, device="cpu")


def test_bad_input_and_damaged_files(problem, tmp_path):
    sizes = sample_sizes(problem[0].sizes, 1, 2)
    with pytest.raises(ValueError, match="from 0 to what a client owns"):
        RetrainingCache(tmp_path)(*problem, sizes + 100, device="cpu")
    assert not list(tmp_path.iterdir())
    RetrainingCache(tmp_path)(*problem, sizes, device="cpu")
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"half a file")
    refused("cannot be read", RetrainingCache(tmp_path), *problem, sizes, device="cpu")


def test_kept_trainings_of_the_repository_are_whole_and_small():
    files = list((Path(trainings.__file__).parents[2] / "results" / "trainings").rglob("*"))
    for path in filter(Path.is_file, files):
        assert path.suffix == ".npz"
        assert path.stat().st_size < SIZE_LIMIT
        known = trainings._read(path)
        assert known
        assert all((hits >= 0).all() for hits in known.values())


def test_games_and_simulations_remember(problem, tmp_path, asked):
    f, arch, local = problem
    kept = RetrainingCache(tmp_path)
    plain = federation_game(f, arch, local, rounds=2, device="cpu")
    game = federation_game(f, arch, local, rounds=2, device="cpu", train=kept)
    masks = np.tril(np.ones((5, 4), dtype=bool), -1)
    assert_same_answers(game(masks), plain(masks), len(f.y_test))
    assert_same_answers(game(masks[:3]), plain(masks[:3]), len(f.y_test))
    assert asked == [len(masks)]
    few = simulate(f, arch, local, simulations=3, rounds=2, device="cpu", train=kept)
    more = simulate(f, arch, local, simulations=5, rounds=2, device="cpu", train=kept)
    np.testing.assert_array_equal(few.accuracy, more.accuracy[:3])
    assert asked[1:] == [3, 2]


def test_a_game_of_retraining_knows_who_changes_updates(problem, tmp_path):
    f, arch, local = problem
    bad = f.with_adversaries({0: ScaledUpdate(-2.0)})
    game = federation_game(bad, arch, local, rounds=2, train=RetrainingCache(tmp_path))
    honest = federation_game(f, arch, local, rounds=2, device="cpu")
    alone = np.eye(4, dtype=bool)[[1, 0]]
    (kept, spoilt), plain = game(alone), honest(alone)
    assert kept == plain[0]
    assert spoilt != plain[1]
