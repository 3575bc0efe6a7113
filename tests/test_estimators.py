"""The driver: budgets, determinism, lockstep, refusals."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals, refused

import fedkit as fk
from fedkit.estimators.regression import allocation
from fedkit.games.exact import beta_weights, semivalue

# raw tables serve as well
pytestmark = [
    pytest.mark.filterwarnings(rf"ignore:{told}")
    for told in (r"v\(empty\) is", "tolerance is", "within is")
]
ALL = [
    fk.PermutationSampling(),
    fk.PermutationSampling(antithetic=True),
    fk.TruncatedMonteCarlo(0.0),
    fk.TruncatedMonteCarlo(0.3),
    fk.GTGShapley(),
    fk.TruncatedMonteCarlo(0.001, from_zero=True),
    fk.OwenSampling(levels=2, eta=0.05),
    fk.OwenSampling(levels=3, eta=None),
    fk.OwenTwins(levels=3),
    fk.MultilinearSampling(),
    fk.MultilinearSampling(levels=3, antithetic=False),
    fk.MultilinearSampling("gauss"),
    fk.BanzhafSampling(),
    fk.BanzhafSampling("marginal"),
    fk.BanzhafSampling("as_printed"),
    fk.PermutationSampling(antithetic=True, beta=(4.0, 1.0)),
    fk.ComplementarySampling(),
    fk.ProxySampling(),
]
UNTRUNCATED = [e for e in ALL if e.weights(4) is not None]
PLAIN = [e for e in UNTRUNCATED if not isinstance(e, fk.ProxySampling)]
SHAPLEY_WALKS = [
    fk.PermutationSampling(),
    fk.PermutationSampling(antithetic=True),
    fk.TruncatedMonteCarlo(0.0),
    fk.GTGShapley(0.0, 0.0),
    fk.MultilinearSampling(),
    fk.OwenSampling(levels=1, eta=None, draws=5),
]


def random_table(n, seed, outputs=()):
    return fk.table_game(np.random.default_rng(seed).normal(size=(2**n, *outputs)))


def same(a, b):
    np.testing.assert_array_equal(a.values, b.values)
    np.testing.assert_array_equal(a.standard_errors, b.standard_errors)
    assert (a.evaluations, a.calls, a.info) == (b.evaluations, b.calls, b.info)


seeds = st.integers(0, 10**6)


# --- budgets ----------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    st.sampled_from(ALL),
    st.integers(1, 7),
    st.integers(0, 80),
    st.sampled_from(["distinct", "calls"]),
    seeds,
)
def test_the_budget_is_never_exceeded(estimator, n, extra, count, seed):
    budget = estimator.minimum(n, count) + extra
    asked, answered = [], []

    class Counted(fk.Estimator):
        weights = staticmethod(lambda n: None)  # the enumeration has no requests of its own
        stops = estimator.stops
        minimum = staticmethod(estimator.minimum)
        accumulator = staticmethod(estimator.accumulator)

        def sample(self, *args):
            requests = estimator.sample(*args)
            rows = next(requests, None)
            while rows is not None:
                utilities = yield rows
                answered.append(rows[: len(utilities)])
                try:
                    rows = requests.send(utilities)
                except StopIteration:
                    return

    table = fk.normalise(random_table(n, seed))
    game = fk.Game(n, lambda rows: asked.extend(fk.coalition_index(rows)) or table(rows))
    result = fk.estimate(game, Counted(), budget, seed % 1000, count=count)
    first = answered[0]
    known = n > 1 and len(first) == 2 and not first[0].any() and first[1].all()
    rows = np.concatenate(answered)
    spent = len(asked) if count == "distinct" else rows.any(axis=1).sum() - known
    assert spent <= budget
    assert result.calls == rows.any(axis=1).sum() - (known and count == "calls")
    assert len(asked) == len(set(asked)) == result.evaluations
    assert np.isfinite(result.values).all() or isinstance(estimator, fk.BanzhafSampling)
    assert not (result.standard_errors < 0).any()


@pytest.mark.parametrize("count", ["distinct", "calls"])
@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_below_one_walk_is_refused(estimator, count):
    game = fk.normalise(random_table(5, 0))
    smallest = estimator.minimum(5, count)
    fk.estimate(game, estimator, smallest, count=count)
    with pytest.raises(ValueError, match=f"needs at least {smallest} for 5 players$"):
        fk.estimate(game, estimator, smallest - 1, count=count)


def test_m_whole_walks_cost_n_times_m_calls():
    """A step to the grand coalition is a call; v(N) of Algorithm 5, line 1, is known."""
    game = fk.table_game(fk.all_coalitions(4) @ np.array([0.1, 0.2, 0.3, 0.4]))
    printed = fk.TruncatedMonteCarlo(0.0, from_zero=True)
    for estimator in (fk.PermutationSampling(), fk.OwenSampling(levels=1, eta=None), printed):
        result = fk.estimate(game, estimator, 16, 5, count="calls")
        assert (result.calls, np.sum(result.info["walks"])) == (16, 4)
        np.testing.assert_allclose(result.values, [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("estimator", UNTRUNCATED, ids=repr)
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_the_full_budget_is_exact(estimator, outputs):
    table = random_table(5, 7, outputs)
    result = fk.estimate(table, estimator, 32)
    np.testing.assert_allclose(
        result.values, semivalue(table, estimator.weights(5)), rtol=0, atol=1e-14
    )
    assert result.exact
    assert result.evaluations == 32
    assert (result.standard_errors == 0).all()
    assert not fk.estimate(table, estimator, 31).exact
    assert not fk.estimate(table, estimator, 32, count="calls").exact


def test_patience_ends_a_search_for_what_is_never_drawn():
    anyone = fk.table_game(np.array([0.0] + [1.0] * 63))  # truncation never looks beyond one player
    for estimator, reached in (
        (fk.OwenSampling(eta=0.5), 6),
        (fk.TruncatedMonteCarlo(0.5), 8),
        (fk.TruncatedMonteCarlo(0.001, from_zero=True), 8),
    ):
        result = fk.estimate(anyone, estimator, 60, 1)
        assert result.evaluations == reached
        assert result.calls <= 6200  # patience is looked at between requests
        np.testing.assert_allclose(result.values, 1 / 6, atol=0.05)


def test_owen_sampling_wants_nobody_to_be_worth_nothing():
    """Its walks start from 0: v(empty) goes to whoever comes first, and that is told."""
    for table in (random_table(3, 0), random_table(3, 0, (2,))):
        for budget in (6, 8):
            with pytest.warns(UserWarning, match=r"v\(empty\) is .*fk\.normalise\(game\)$"):
                fk.estimate(table, fk.OwenSampling(), budget)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fk.estimate(fk.tabulate(fk.normalise(table)), fk.OwenSampling(), 6)
        found = fk.estimate(fk.normalise(table), fk.OwenSampling(draws=2, eta=None))
        shifted = fk.table_game(fk.normalise(table)(fk.all_coalitions(3)))
        assert (
            found.evaluations
            == fk.estimate(shifted, fk.OwenSampling(draws=2, eta=None)).evaluations
        )


def test_budget_or_own_stop_is_needed():
    game = random_table(3, 0)
    for estimator in (
        fk.PermutationSampling(),
        fk.OwenSampling(),
        fk.BanzhafSampling(),
        fk.ComplementarySampling(),
        fk.MultilinearSampling(),
        fk.TruncatedMonteCarlo(),
        fk.TruncatedMonteCarlo(0.001, from_zero=True),
    ):
        with pytest.raises(ValueError, match="no stop of its own") as caught:
            fk.estimate(game, estimator)
        named = re.search(r"or set its (\w+)$", str(caught.value))
        assert named is not None
        assert hasattr(estimator, named[1])
    refused(r"pass a budget$", fk.estimate, game, fk.ProxySampling())
    for own in (fk.PermutationSampling(walks=9), fk.TruncatedMonteCarlo(0.0, walks=9)):
        assert fk.estimate(game, own).info["walks"] == 9
    assert fk.estimate(game, fk.PermutationSampling(walks=9), 1000, count="calls").calls == 27
    assert fk.estimate(game, fk.BanzhafSampling(draws=9)).info["draws"] == 9
    assert fk.estimate(game, fk.MultilinearSampling(draws=3)).info["samples"] == 48


FOUR = random_table(4, 0)
test_bad_input_is_refused = refusals(
    (lambda: fk.estimate_many([FOUR, FOUR], [fk.PermutationSampling()] * 3, 20), "common length"),
    (lambda: fk.estimate_many([], fk.PermutationSampling(), 20), "common length"),
    (lambda: fk.PermutationSampling(antithetic=True, walks=3), "pairs"),
    (
        lambda: fk.estimate_many(FOUR, fk.PermutationSampling(), [9, 9], np.random.default_rng(0)),
        "one Generator is the seed of several",
    ),
    # as many as there are coalitions: nothing is drawn
    (lambda: fk.estimate(FOUR, fk.PermutationSampling(), 16, "7"), "seed is '7'"),
    (lambda: fk.estimate(FOUR, fk.PermutationSampling(), 16, -3), "seed is -3"),
    (
        lambda: fk.estimate(FOUR, fk.ProxySampling(), 12, stop=fk.precise(0.1)),
        "ProxySampling has values at its end alone",
    ),
    (
        lambda: fk.estimate(fk.random_unanimity_sum(401, 3, 0), fk.ProxySampling(), 2000),
        "at most 400",
    ),
)


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_diverged_coalition_is_named(estimator):
    def function(rows):
        return np.where(rows.sum(axis=1) == 2, np.nan, rows.sum(axis=1) / 4.0)

    with pytest.raises(ValueError, match=r"utility of coalition \[\d, \d\] is nan"):
        fk.estimate(fk.Game(4, function), estimator, 15, count="calls")


# --- determinism ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_same_seed_same_bits(estimator):
    game = fk.normalise(fk.tabulate(fk.random_unanimity_sum(6, 15, 3)))
    first = fk.estimate(game, estimator, 50, 11)
    same(first, fk.estimate(game, estimator, 50, 11))
    same(first, fk.estimate(game, estimator, 50, fk.Streams(11)))
    assert (first.values != fk.estimate(game, estimator, 50, 12).values).any()
    assert first.seed == 11
    assert type(estimator).__name__ in first.method


def test_lockstep_equals_one_by_one():
    games = [fk.normalise(fk.tabulate(fk.random_unanimity_sum(6, 15, seed))) for seed in range(3)]
    jobs = [(game, e, seed) for game in games for e in ALL for seed in (0, 1)]
    columns = [list(column) for column in zip(*jobs, strict=True)]
    together = fk.estimate_many(columns[0], columns[1], 50, columns[2], count="calls")
    for (game, estimator, seed), result in zip(jobs, together, strict=True):
        same(result, fk.estimate(game, estimator, 50, seed, count="calls"))


class Repeats(fk.Estimator):
    """The same walk, again and again."""

    stops = True

    def sample(self, n_players, rng, accumulator, budget):
        for _ in range(30):
            rows = np.tril(np.ones((n_players, n_players), dtype=bool))
            empty = yield np.zeros((1, n_players), dtype=bool)
            utilities = yield rows
            accumulator.add(np.diff(np.concatenate([empty, utilities]))[None])


def test_the_same_coalitions_again_and_again_have_no_error():
    game = random_table(5, 1)
    repeated = fk.estimate(game, Repeats())
    assert repeated.evaluations == 6
    assert np.isnan(repeated.standard_errors).all()
    additive = fk.Game(5, lambda rows: rows @ np.arange(1.0, 6.0))
    drawn = fk.estimate(additive, fk.PermutationSampling(walks=30))  # of other coalitions each
    np.testing.assert_allclose(drawn.standard_errors, 0.0, atol=1e-12)


def test_more_players_than_a_float_counts_coalitions_of():
    game = fk.Game(1100, lambda rows: rows.sum(axis=1))
    pairs = fk.PermutationSampling(True, walks=2, beta=(2.0, 1.0))
    # weights w_j = 2 (n - j + 1) / (n + 1) of a walk and its reverse add up to 2
    np.testing.assert_allclose(fk.estimate(game, pairs).values, 1.0, rtol=1e-9)
    some = fk.PermutationSampling().weights(1100)
    assert some[0] == pytest.approx(1 / 1100)
    assert (some >= 0).all()
    for rule in (beta_weights(150, 1.0, 1.0), np.full(150, 0.5**149)):
        assert allocation(150, 5000, rule).sum() == 2499


def test_one_player():
    game = fk.table_game(np.array([0.0, 1.0]))
    for estimator in SHAPLEY_WALKS:
        budget = 5 if estimator.weights(1) is None else 2
        np.testing.assert_allclose(fk.estimate(game, estimator, budget).values, [1.0])
        np.testing.assert_allclose(fk.estimate(game, estimator, 5, count="calls").values, [1.0])


# --- stopping early, failing in the middle, several processes ---------------------------------


def test_a_stop_ends_when_it_is_content():
    game = random_table(6, 1)
    near = fk.estimate(game, fk.PermutationSampling(), 10_000, stop=fk.precise(0.2), count="calls")
    assert (near.standard_errors <= 0.2).all()
    assert near.has_intervals
    assert near.calls < 10_000
    apart = fk.estimate(
        fk.airport([1.0, 3.0, 9.0]),
        fk.PermutationSampling(),
        9000,
        stop=fk.settled(),
        count="calls",
    )
    assert apart.ranking().tolist() == [2, 1, 0]
    seen = []
    fk.estimate(game, fk.PermutationSampling(), 40, stop=lambda found: seen.append(found.calls))
    assert seen == sorted(seen)
    assert len(seen) > 1
    kept = []
    fk.estimate(game, fk.PermutationSampling(), 40, stop=lambda found: kept.append(found))
    assert kept[0].info["walks"] < kept[-1].info["walks"]  # each as it was when it was looked at


def test_what_was_found_before_a_failure_is_not_lost():
    table, asked = random_table(6, 2), []

    def value(rows):
        asked.append(len(rows))
        if len(asked) == 4:
            raise ConnectionError("the simulator is gone")
        return table(rows)

    game = fk.remember(fk.Game(6, value))
    with pytest.raises(ConnectionError) as caught:
        fk.estimate(game, fk.PermutationSampling(), 60, seed=5)
    (found,) = caught.value.valuations
    before = sum(asked[:3])
    assert found.evaluations == before > 6  # the request that failed was not answered
    assert f"values of {before} evaluations are in" in caught.value.__notes__[-1]
    assert np.isfinite(found.values).all()
    again = fk.estimate(game, fk.PermutationSampling(), 60, seed=5)
    assert again == fk.estimate(table, fk.PermutationSampling(), 60, seed=5)
    assert sum(asked[4:]) == again.evaluations - before


@pytest.mark.parametrize(
    ("asked", "added", "words"),
    [
        (np.eye(3), np.ones((2, 2)), r"samples of shape \(2, 2\)"),
        (np.eye(3), [[1.0, np.nan, 0.0]], "with a NaN or an infinity"),
        (np.zeros((1, 3)), np.ones((1, 3)), "times for what costs nothing"),
        (np.zeros((0, 3)), np.ones((1, 3)), "times for what costs nothing"),
        (np.eye(4), np.ones((1, 3)), r"asked for what is none: coalitions have shape \(4, 4\)"),
    ],
)
def test_what_an_own_estimator_does_wrong_names_its_class(asked, added, words):
    class Own(fk.Estimator):
        stops = True

        def sample(self, n_players, rng, accumulator, budget):
            while True:
                yield np.asarray(asked, dtype=bool)
                accumulator.add(added)

    refused(f"^Own .*{words}", fk.estimate, fk.airport([1.0, 2.0, 3.0]), Own())


# --- axioms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        *PLAIN,
        fk.TruncatedMonteCarlo(0.3, walks=20),
        fk.GTGShapley(0.3, 0.0, walks=20),
        fk.TruncatedMonteCarlo(0.3, 20, from_zero=True),
        fk.OwenSampling(3, draws=6, eta=0.3),
    ],
    ids=repr,
)
def test_outputs_of_an_estimate_are_columns(estimator):
    table = random_table(5, 3, (3,))
    budget = None if estimator.stops else 40
    together = fk.estimate(table, estimator, budget, 2, count="calls")
    assert together.values.shape == together.standard_errors.shape == (5, 3)
    for column in range(3):
        one = fk.table_game(table.table[:, column])
        alone = fk.estimate(one, estimator, budget, 2, count="calls")
        np.testing.assert_allclose(together.values[:, column], alone.values, atol=1e-12)
        np.testing.assert_allclose(
            together.standard_errors[:, column], alone.standard_errors, atol=1e-12
        )


def test_a_coarse_tolerance_is_told():
    """A gain of 0.01 beside a tolerance of 0.01: a third is handed out, and no interval says so."""
    little = fk.Game(8, lambda rows: 0.001 * (rows @ np.arange(1.0, 9.0)) / 3.6)
    exact = fk.shapley(little).values
    for estimator in (fk.TruncatedMonteCarlo(0.005), fk.GTGShapley(0.005)):
        with pytest.warns(UserWarning, match="50% of what all players gain together") as told:
            found = fk.estimate(little, estimator, 200, count="calls")
        assert told[0].filename == __file__
        assert found.values.sum() < 0.8 * exact.sum()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (quiet,) = fk.estimate_many(little, estimator, 200, count="calls")
            assert quiet.info["doubt"] == found.info["doubt"]
            fk.estimate(fk.normalise(little), estimator, 200, count="calls")


def test_owen_sampling_wants_everybody_to_be_worth_one():
    large = fk.airport([1.0, 25.0, 225.0])  # v(empty) is 0, and the first step ends a walk
    with pytest.warns(UserWarning, match="v\\(N\\) 225"):
        fk.estimate(large, fk.OwenSampling(), 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fk.estimate(large, fk.OwenSampling(eta=None), 6)
        fk.estimate(fk.normalise(large), fk.OwenSampling(), 6)
