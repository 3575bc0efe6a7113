"""Remembered games: each coalition once, also after a kill, and beside another process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import fedkit as fk

SLOW = """
import sys, time
import numpy as np
import fedkit as fk

def score(coalitions):
    time.sleep(0.05 * len(coalitions))
    return coalitions @ np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])

game = fk.remember(fk.Game(6, score), sys.argv[1])
print("ready", flush=True)
print(fk.shapley(game).values.tolist())
"""


def counted(n, outputs=None):
    """A game, and the coalitions that it was asked for."""
    base, asked = fk.random_unanimity_sum(n, 30, 1, outputs), []
    return fk.Game(n, lambda rows: asked.extend(rows) or base(rows)), base, asked


def run(path):
    env = {**os.environ, "PYTHONPATH": str(Path(fk.__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(path)], env=env, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("n", [3, 21, 63, 70])
@pytest.mark.parametrize("outputs", [None, 2])
def test_each_coalition_is_asked_once_and_found_by_the_next_call(n, outputs, tmp_path):
    game, base, asked = counted(n, outputs)
    rng = np.random.default_rng(0)
    rows = rng.random((90, n)) < rng.random((90, 1))
    rows[:3], rows[1], rows[2, -1] = False, True, True  # the last bit of a key counts
    distinct = len(np.unique(rows, axis=0))
    for path in (None, tmp_path / "new" / "utilities.db"):
        asked.clear()
        memory = fk.remember(game, path)
        for some in (np.concatenate([rows, rows]), rows[::-1], rows[:0]):
            np.testing.assert_allclose(memory(some), base(some), atol=1e-12)
        assert len(asked) == distinct
    asked.clear()
    again = fk.remember(game, path)
    known = len(asked)
    assert known <= 3  # by which the game is recognised
    np.testing.assert_allclose(again(rows[::-1]), base(rows[::-1]), atol=1e-12)
    assert len(asked) == known
    more = rng.random((300, n)) < 0.5  # beyond what was kept, and its first allocation
    np.testing.assert_allclose(again(more), base(more), atol=1e-12)
    assert len(asked) == known + len(np.unique(np.concatenate([rows, more]), axis=0)) - distinct


def test_another_game_or_file_is_refused(tmp_path):
    path = tmp_path / "utilities.db"
    game = fk.normalise(fk.airport([1.0, 2.0, 4.0]))
    fk.shapley(fk.remember(game, path))
    fk.remember(game, path)
    for other, words in (
        (fk.normalise(fk.airport([1.0, 3.0, 4.0])), "is of another game"),  # equal ends
        (fk.airport([1.0, 2.0]), "of 3 players, and this one has 2"),
        (fk.random_unanimity_sum(3, 4, 0, 2), "is of another game"),
    ):
        refused(words, fk.remember, other, path)
    (tmp_path / "text").write_text("no file of a game, and longer than its head" * 9)
    for bad in (tmp_path / "text", tmp_path):
        refused("cannot hold a game", fk.remember, game, bad)


def test_what_was_evaluated_before_a_failure_is_kept_and_told(tmp_path):
    base, asked = fk.airport([1.0, 2.0, 4.0, 3.0, 2.5]), []

    def score(rows):
        if len(asked) + len(rows) > 24:
            raise ConnectionError("the simulator is gone")
        asked.extend(rows)
        return base(rows)

    for path, kept in ((None, 0), (tmp_path / "db", 15)):  # pieces of 1, 2, 4, 8, and then 16
        asked.clear()
        game = fk.remember(fk.Game(5, score), path)
        with pytest.raises(ConnectionError) as caught:
            fk.estimate(game, fk.PermutationSampling(), 32)
        told = " ".join(caught.value.__notes__)
        assert len(asked) == kept
        assert (f"{kept} coalitions are remembered" in told) == (kept > 0)
        assert caught.value.valuations == [None]
        assert "values of 0 evaluations" in told


def test_a_killed_run_goes_on_and_two_processes_share_a_file(tmp_path):
    path = tmp_path / "utilities.db"
    killed = run(path)
    assert killed.stdout.readline() == "ready\n"
    time.sleep(0.6)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    begun = [run(path) for _ in range(2)]  # both from what the first one kept
    found = [process.communicate(timeout=60)[0].splitlines() for process in begun]
    assert found[0] == found[1] == ["ready", "[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]"]
    asked = []
    game = fk.Game(6, lambda rows: asked.extend(rows) or rows @ 2.0 ** np.arange(6))
    assert fk.shapley(fk.remember(game, path)).evaluations == 64
    assert len(asked) <= 3


def test_processes_and_a_memory_work_together(tmp_path):
    pytest.importorskip("joblib")
    game = fk.random_unanimity_sum(6, 20, 2)
    alone = fk.estimate(game, fk.PermutationSampling(), 50)
    inside = fk.remember(fk.parallel(game, 2), tmp_path / "one.db")
    outside = fk.parallel(fk.remember(game, tmp_path / "two.db"), 2)
    for both in (inside, outside):
        for progress in (False, True):
            found = fk.estimate(both, fk.PermutationSampling(), 50, progress=progress)
            np.testing.assert_allclose(found.values, alone.values)
            assert (found.evaluations, found.calls) == (alone.evaluations, alone.calls)


def test_memory_keeps_what_a_game_knows_of_itself_and_refuses_changing_outputs():
    sized = fk.Game(2, lambda rows: rows.sum(axis=1), sizes=np.array([1.0, 2.0]))
    assert fk.remember(fk.normalise(fk.remember(sized))).sizes is sized.sizes
    assert fk.remember(fk.normalise(sized)).scale == 2
    game = fk.remember(fk.Game(3, lambda rows: np.zeros((len(rows), len(rows)))))
    game(np.eye(3, dtype=bool))
    refused("must not change", game, fk.all_coalitions(3))


def test_progress_shows_evaluations_their_rate_and_the_time_left(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    game = fk.Game(6, lambda rows: [time.sleep(0.02) or float(row.sum()) for row in rows])
    fk.estimate(game, fk.PermutationSampling(), 60, progress=True)
    told = capsys.readouterr().err
    assert re.search(r"/60 \[\d\d:\d\d<\d\d:\d\d, +[\d.]+evaluation/s\]", told), told
