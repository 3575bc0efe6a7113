"""A ledger of rounds: kept through a kill, each round once, in the utility's units."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import fedkit as fk

SERVER = """
import sys, time
import numpy as np
import fedkit as fk

ledger = fk.Ledger(sys.argv[1])
for number in range(1000):
    game = fk.airport([1.0 + number, 2.0, 4.0])
    ledger.add(number, fk.shapley(game), ["Ada", "Bo", "Cy"])
    print(number, flush=True)
    time.sleep(0.01)
"""


def sampled(seed):
    game = fk.airport([1.0, 2.0, 4.0, 3.0])
    return fk.estimate(game, fk.PermutationSampling(), budget=12, seed=seed, count="calls")


def test_rounds_survive_a_kill_and_the_next_process_goes_on(tmp_path):
    path = tmp_path / "values.db"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    for line in server.stdout:
        if line.strip() == "3":
            server.send_signal(signal.SIGKILL)
            break
    last = [int(line) for line in server.stdout.read().split()]
    server.stdout.close()
    assert server.wait() == -signal.SIGKILL
    ledger = fk.Ledger(path)
    kept = len(ledger)
    assert kept in (max([3, *last]) + 1, max([3, *last]) + 2)  # the kill may fall behind an add
    assert ledger.rounds == list(range(kept))
    ledger.add(kept, fk.shapley(fk.airport([1.0, 2.0])), ["Cy", "Dan"])
    total = ledger.total()
    games = [fk.shapley(fk.airport([1.0 + t, 2.0, 4.0])) for t in range(kept)]
    expected = fk.total([*games, fk.shapley(fk.airport([1.0, 2.0]))],
                        [["Ada", "Bo", "Cy"]] * kept + [["Cy", "Dan"]])  # fmt: skip
    assert total == expected
    assert total.names == ("Ada", "Bo", "Cy", "Dan")


def test_two_writers_share_a_ledger_and_no_round_counts_twice(tmp_path):
    one, two = (fk.Ledger(tmp_path / "values.db") for _ in range(2))
    one.add(1, sampled(1), [3, 0, 1, 2])
    refused(r"round 1 is in .* already; a round counts once", two.add, 1, sampled(2))
    two.add("last", sampled(2), np.arange(4))
    refused(r"sampled with the seed 2; .*its own", one.add, 3, sampled(2))
    one.add(3, fk.shapley(fk.airport([1.0])), [7])
    one.add(4, fk.shapley(fk.airport([1.0])), [7])  # exact values have no seed to share
    assert two.rounds == [1, "last", 3, 4]
    expected = fk.total([sampled(1), sampled(2)], [[3, 0, 1, 2], [0, 1, 2, 3]])
    total = two.total()
    np.testing.assert_array_equal(total.values[:4], expected.values)
    np.testing.assert_array_equal(total.interval()[0][:4], expected.interval()[0])
    assert total.has_intervals == expected.has_intervals
    assert repr(one).endswith("values.db', 4 rounds)")


def test_rounds_of_unlike_gain_count_by_their_gain(tmp_path):
    large = fk.Game(2, lambda rows: rows @ [0.4, 0.1])
    small = fk.Game(2, lambda rows: rows @ [0.0002, 0.0008])
    plain = fk.total([fk.shapley(large), fk.shapley(small)])
    ways = (
        fk.shapley,
        lambda game: fk.estimate(game, fk.PermutationSampling(), budget=4),
        lambda game: fk.estimate(game, fk.ProxySampling(), budget=4),
        fk.leave_one_out,
    )
    for number, way in enumerate(ways):
        ledger = fk.Ledger(tmp_path / f"{number}.db")
        ledger.add(0, way(fk.normalise(large)))
        ledger.add(1, way(fk.normalise(small)))
        np.testing.assert_allclose(ledger.total().values, plain.values, atol=1e-12)
        frame = ledger.to_frame()
        assert list(frame.columns) == ["round", "client", "value", "standard_error", "low", "high"]
        np.testing.assert_allclose(frame.value, [0.4, 0.1, 0.0002, 0.0008], atol=1e-12)


def test_a_frame_of_several_outputs_and_a_plot_over_rounds(tmp_path):
    import matplotlib.pyplot as plt

    ledger = fk.Ledger(tmp_path / "values.db")
    for number in range(3):
        game = fk.normalise(fk.random_unanimity_sum(3, 5, number, n_outputs=2), no_gain="absolute")
        ledger.add(number, fk.shapley(game), ["Ada", "Bo", "Cy"])
    frame = ledger.to_frame()
    assert len(frame) == 3 * 3 * 2
    sums = frame.groupby(["client", "output"])["value"].sum().to_numpy().reshape(3, 2)
    np.testing.assert_allclose(sums, ledger.total().values)
    axes = ledger.plot()
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    for name, sum_of_means in zip(["Ada", "Bo", "Cy"], sums.mean(axis=1), strict=True):
        assert lines[name][-1] == pytest.approx(sum_of_means)
    assert axes.get_xlabel() == "round"
    plt.close(axes.figure)
    crowd = fk.Ledger(tmp_path / "crowd.db")
    crowd.add(0, fk.Valuation(np.arange(40.0), np.zeros(40), 1, 1, "made", exact=True))
    axes = crowd.plot()
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert told == ["39", "38", "37", "36", "35", "4", "3", "2", "1", "0"]
    plt.close(axes.figure)


def test_what_is_no_ledger_no_round_and_no_client_ends_in_one_sentence(tmp_path):
    (tmp_path / "text").write_text("nothing of the kind, and longer than a head " * 9)
    empty, found = fk.Ledger(tmp_path / "empty.db"), sampled(0)
    for call, words in (
        (lambda: fk.Ledger(tmp_path / "text"), "cannot hold a ledger"),
        (empty.total, "expected a list of fk.Valuation"),
        (empty.to_frame, "holds no round yet"),
        (lambda: empty.add(1.5, found), "number is 1.5; expected a whole number"),
        (lambda: empty.add(1, found, ["Ada", "Bo"]), r"\[2\] different clients .* \[4\] values"),
        (lambda: empty.add(1, found, "Ada"), "participants is"),
        (lambda: empty.add(1, "found"), "valuation is .*expected an fk.Valuation"),
    ):
        refused(words, call)
    assert len(empty) == 0


def test_what_would_spoil_the_totals_is_refused(tmp_path: Path) -> None:
    ledger = fk.Ledger(tmp_path / "values.db")
    found = fk.shapley(fk.airport([1, 2]))
    ledger.add(0, found, [0, 1])
    refused("all by text", ledger.add, 1, found, ["0", "1"])
    refused(r"round 0 is in .* already", ledger.add, 0, found, [0, 1])
    with pytest.raises(ValueError, match="a NaN or an infinity"):
        ledger.add(1, replace(found, values=np.array([1.0, np.nan])), [0, 1])
    assert ledger.rounds == [0]
    wide = replace(found, values=np.ones((2, 3)), standard_errors=np.zeros((2, 3)))
    refused("rounds differ in outputs", ledger.add, 1, wide, [0, 1])
    assert ledger.rounds == [0]
    refused("all by text", fk.Ledger(tmp_path / "other.db").add, 0, found, [0, "b"])


def test_errors_and_bounds_of_a_round_that_loses_are_in_order(tmp_path: Path) -> None:
    game = fk.Game(6, lambda rows: -np.sqrt(rows @ np.arange(1.0, 7.0)))
    losing = fk.normalise(game, no_gain="divide")
    ledger = fk.Ledger(tmp_path / "values.db")
    ledger.add(0, fk.estimate(losing, fk.PermutationSampling(), budget=200, count="calls"))
    frame = ledger.to_frame()
    assert (frame.standard_error > 0).all()
    assert (frame.low < frame.value).all()
    assert (frame.value < frame.high).all()


def test_values_of_another_semivalue_or_utility_are_not_added_up(tmp_path: Path) -> None:
    game = fk.Game(4, lambda rows: rows @ [1.0, 2.0, 4.0, 3.0])
    lossy = fk.Game(4, game.function, utility="negative_loss")
    walks = {"budget": 12, "count": "calls"}
    semivalues = {
        "[0.333333, 0.166667, 0.333333]": [
            fk.shapley(game),
            fk.estimate(game, fk.PermutationSampling(), **walks),
            fk.estimate(game, fk.ProxySampling(), 14),
        ],
        "[0.25, 0.25, 0.25]": [
            fk.banzhaf(game),
            fk.estimate(game, fk.BanzhafSampling(), 14),
            fk.estimate(game, fk.ProxySampling(value="banzhaf"), 14),
        ],
        "[0.0, 0.0, 1.0]": [fk.leave_one_out(game)],
        "[0.666667, 0.133333, 0.066667]": [
            fk.beta_shapley(game, 4.0, 1.0),
            fk.estimate(game, fk.PermutationSampling(beta=(4.0, 1.0)), **walks),
        ],
    }
    made = (lossy, fk.remember(lossy), fk.tabulate(lossy), fk.normalise(lossy))
    utilities = {
        "negative_loss": [fk.shapley(one) for one in made],
        "accuracy": [fk.shapley(fk.Game(4, game.function, utility="accuracy"))],
    }
    for kinds in (semivalues, utilities):
        for kind, alike in kinds.items():
            fk.total([replace(found, seed=place) for place, found in enumerate(alike)])
            for other in kinds.keys() - {kind}:
                ledger = fk.Ledger(tmp_path / f"{kind}, {other}.db")
                ledger.add(0, alike[0])
                told = re.escape(f"{kind} and {other};")
                refused(f"rounds differ in .* {told}", ledger.add, 1, kinds[other][-1])
                assert ledger.rounds == [0]


def test_rounds_without_a_known_kind_are_added_and_seen_by_the_next(tmp_path: Path) -> None:
    own = fk.Valuation([1.0, 2.0], [0.0, 0.0], 4, 3, "a rule of my own", exact=True)
    game = fk.airport([1, 2])
    one, two = (fk.Ledger(tmp_path / "values.db") for _ in range(2))
    one.add(0, own)
    two.add(1, fk.shapley(game))
    refused("rounds differ in semivalue", one.add, 2, fk.banzhaf(game))
    assert one.rounds == two.rounds == [0, 1]


def test_threads_that_share_a_ledger_lose_no_round(tmp_path: Path) -> None:
    ledger = fk.Ledger(tmp_path / "values.db")
    found = fk.shapley(fk.airport([1, 2]))
    ledger.add("first", found)
    with ThreadPoolExecutor(4) as threads:
        added = threads.map(lambda number: ledger.add(number, found), range(80))
        read = [threads.submit(lambda: [len(ledger.to_frame()) for _ in range(60)]) for _ in "ab"]
        list(added)
        for reader in read:  # sees whole rounds, of two clients each
            assert not any(seen % 2 for seen in reader.result())
    assert sorted(fk.Ledger(tmp_path / "values.db").rounds, key=str) == [
        *sorted(range(80), key=str),
        "first",
    ]
