"""The result of a valuation: intervals, tables, and the way to and from JSON."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from refusals import refused
from scipy import stats

import fedkit as fk
from fedkit.estimators import PermutationSampling, estimate, settled
from fedkit.estimators.accumulators import MeanAccumulator
from fedkit.games import random_unanimity_sum
from fedkit.games.valuation import Valuation


def make(shape=(3,)):
    values = np.arange(np.prod(shape), dtype=float).reshape(shape)
    errors = np.full(shape, 0.5)
    errors.flat[0] = np.nan
    return Valuation(values, errors, 7, 6, "test", seed=3)


def test_facts_may_be_numpys(tmp_path):
    info = {"a": np.float32(0.5), "b": np.array([True, False]), "c": (np.int64(3), np.nan)}
    one, two = (replace(make((3, 2)), info=dict(info)) for _ in range(2))
    assert one == two
    assert one != replace(one, info=info | {"b": np.array([True, True])})
    one.save(tmp_path / "values.json")
    assert Valuation.load(tmp_path / "values.json") == one != replace(one, seed=4)
    assert one.to_dict()["info"] == {"a": 0.5, "b": [True, False], "c": [3, None]}
    assert replace(make(), info={"a": object}) == replace(make(), info={"a": object})
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_frame_is_tidy():
    pytest.importorskip("pandas")
    frame = make((2, 3)).named(["a", "b"]).to_frame()
    assert list(frame.columns) == ["player", "output", "value", "standard_error", "low", "high"]
    assert frame["player"].tolist() == ["a"] * 3 + ["b"] * 3
    assert frame["output"].tolist() == [0, 1, 2] * 2
    assert frame["value"].tolist() == [0, 1, 2, 3, 4, 5]
    assert make().to_frame()["player"].tolist() == [0, 1, 2]
    refused("expected 3 different ones", make().named, ["a", "b"])


def test_bad_results_are_refused(tmp_path):
    zeros, ones = np.zeros(2), np.ones(2)
    refused(
        "standard_errors are negative", Valuation, zeros, np.array([np.nan, -0.1]), 1, 1, "test"
    )
    dates = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")
    refused("values is .*expected an array of numbers", Valuation, dates, zeros, 1, 1, "test")
    negative = {"degrees_of_freedom": -ones}
    refused("degrees_of_freedom are negative", Valuation, zeros, ones, 1, 1, "test", **negative)
    refused("names is 'Ada'; expected a list", make().named, "Ada")
    refused("method is 3", Valuation, zeros, zeros, 1, 1, 3)
    for nobody in (np.zeros(0), np.zeros((0, 2)), np.zeros((2, 0))):
        refused("not empty", Valuation, nobody, nobody, 1, 1, "test")
    record = make().to_dict()
    del record["calls"]
    refused(r"expected what Valuation.to_dict wrote", Valuation.from_dict, record)
    for wrong in ({"info": 5}, {"exact": "no"}, {"seed": "q"}):
        refused(next(iter(wrong)), Valuation.from_dict, make().to_dict() | wrong)
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(make(), values=np.full(3, np.inf)).save(tmp_path / "odd.json")
    assert not (tmp_path / "odd.json").exists()
    refused(r"save writes .json \(to_frame", make().save, tmp_path / "values.csv")
    refused("is a folder; expected the name of a file", make().save, tmp_path)


def test_intervals_know_how_few_units_they_rest_on():
    game = fk.table_game(np.random.default_rng(0).normal(size=64))
    many = fk.estimate(game, fk.PermutationSampling(walks=12))
    low, high = many.interval()
    t = 2.2009851600829493  # Student's t, 11 degrees of freedom
    np.testing.assert_allclose((high - low) / 2, t * many.standard_errors)
    np.testing.assert_array_equal(fk.Valuation.from_dict(many.to_dict()).interval(), (low, high))
    few = fk.estimate(game, fk.PermutationSampling(walks=9))
    assert np.isfinite(few.standard_errors).all()
    assert np.isnan(few.interval()).all()
    exact = fk.shapley(game)
    np.testing.assert_array_equal(exact.interval(), (exact.values, exact.values))
    assert exact.exact
    assert (exact.evaluations, exact.calls) == (64, 63)


def test_the_intervals_of_the_readme_hold():
    data = np.linspace(1, 20, 20)
    game = fk.Game(20, lambda coalitions: 1 - np.exp(-(coalitions @ data) / 50))
    exact = fk.shapley(game).values
    held = []
    for found in fk.estimate_many(game, fk.MultilinearSampling(), 400, range(60)):
        low, high = found.interval()
        held.append((low <= exact) & (exact <= high))
    assert np.mean(held) >= 0.93


def test_names_order_equality_and_files(tmp_path):
    game = fk.table_game([10, 58, 52, 61, 28, 82, 79, 85])
    found = fk.shapley(game).named(["Ada", "Bo", "Cy"])
    assert found.ranking().tolist() == [0, 1, 2]
    assert str(found).splitlines()[1].split() == ["Ada", f"{found.values[0]:.4g}"]
    assert found.to_frame()["player"].tolist() == ["Ada", "Bo", "Cy"]
    found.save(tmp_path / "values.json")
    assert fk.Valuation.load(tmp_path / "values.json") == found != fk.shapley(game)
    sampled = fk.estimate(game, fk.PermutationSampling(walks=3))
    assert sampled == fk.estimate(game, fk.PermutationSampling(walks=3))
    head, *lines = str(sampled).splitlines()  # three walks are too few for an interval
    assert head.endswith(" evaluations, no intervals")
    assert not any("[" in line for line in lines)
    (tmp_path / "other.json").write_text("[1")
    refused("holds no valuation", fk.Valuation.load, tmp_path / "other.json")
    for names in (["a", "b"], ["a", "a", "b"], {"a", "b", "c"}):
        refused(r"different ones|one name per player", found.named, names)


def test_a_valuation_keeps_its_numbers_and_draws_any_name(tmp_path):
    given = np.array([1.0, 2.0])
    found = Valuation(given, np.zeros(2), 3, 3, "test", exact=True, names=(r"$\foo$", "$"))
    given[:] = 99.0
    assert found.values.tolist() == [1.0, 2.0]
    found.plot().figure.savefig(tmp_path / "names.png")


def test_a_save_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    for kept in (fk.shapley(fk.airport([1, 2])), fk.History()):
        kept.save(tmp_path / "file")
        before = (tmp_path / "file").read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr("os.replace", lambda *_: os.stat("/nowhere"))
            with pytest.raises(OSError, match="/nowhere"):
                kept.save(tmp_path / "file")
        assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_valuation_draws_itself():
    pytest.importorskip("matplotlib").use("agg")
    game = random_unanimity_sum(5, 8, 1)
    found = estimate(game, PermutationSampling(walks=20)).named(list("abcde"))
    axes = found.plot()
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == [found.names[i] for i in found.ranking()[::-1]]
    errors = np.array([0.5, np.nan, 0.5])
    unknown = Valuation(np.array([np.nan, 1.0, 2.0]), errors, 7, 6, "test")
    axes = unknown.plot()
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == [str(i) for i in unknown.ranking()[::-1]] == ["0", "1", "2"]
    bars = axes.containers[0].lines[2][0].get_segments()  # low and high end of each
    assert [len(bar) == 2 and np.isfinite(bar).all() for bar in bars] == [False, False, True]
    many = estimate(random_unanimity_sum(4, 8, 1, 3), PermutationSampling(walks=20))
    axes = many.plot()
    assert len(axes.containers) == 3
    assert [t.get_text() for t in axes.get_legend().get_texts()] == [
        f"output {k}" for k in range(3)
    ]
    crowd = Valuation(np.arange(200.0), np.ones(200), 7, 6, "test").plot()
    assert crowd.figure.get_figheight() < 10  # one screen
    labels = [text.get_text() for text in crowd.get_yticklabels()]
    assert labels == [str(i) for i in range(4, 200, 5)]


def test_intervals_have_their_level_and_rankings_their_output():
    values = np.array([[1.0, 5.0], [2.0, 4.0]])
    freedom = np.full((2, 2), 4.0)
    v = Valuation(values, np.ones((2, 2)), 9, 9, "x", degrees_of_freedom=freedom)
    np.testing.assert_allclose(v.interval(0.8)[1] - v.values, stats.t.ppf(0.9, 4))
    assert (v.ranking(0).tolist(), v.ranking(1).tolist()) == ([1, 0], [0, 1])


def test_neighbours_are_settled_when_their_errors_say_so():
    def found(errors, freedom=50.0):
        values, each = np.array([3.0, 1.0, 0.0]), np.full(3, freedom)
        return Valuation(values, np.array(errors), 9, 9, "x", degrees_of_freedom=each)

    # 1.96 sqrt(a^2 + b^2) beside gaps of 2 and 1
    told = [settled()(found(e)) for e in ([0.7, 0.7, 0.1], [0.7, 0.35, 0.35], [0.7, 0.37, 0.37])]
    assert told == [False, True, False]
    assert not settled()(found([0.1] * 3, np.nan))  # too few walks for an interval


def test_a_few_walks_that_are_all_alike_have_no_error():
    for many, known in ((9, False), (10, True)):
        walks = MeanAccumulator()
        walks.add(np.tile([0.3, 0.7], (many, 1)))
        assert np.isnan(walks.standard_errors()).all() == (not known)
    game = fk.table_game([0, 0.1, 0.5, 0.9, 0.2, 0.6, 0.6, 0.82])
    twice = [
        fk.estimate(game, fk.PermutationSampling(antithetic=True), budget=6, seed=s)
        for s in range(40)  # pairs, of which two may be the same
    ]
    assert all(run.exact or not (run.standard_errors < 1e-12).all() for run in twice)
