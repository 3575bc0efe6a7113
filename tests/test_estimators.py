"""The driver: budgets, determinism, lockstep, refusals."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusals, refused

from fedkit.estimators import (
    BanzhafSampling,
    ComplementarySampling,
    Estimator,
    GTGShapley,
    MultilinearSampling,
    PermutationSampling,
    ProxySampling,
    TruncatedMonteCarlo,
    estimate,
    estimate_many,
    precise,
    settled,
)
from fedkit.estimators.design import PairedDesign
from fedkit.games import (
    Game,
    airport,
    all_coalitions,
    coalition_index,
    normalise,
    random_unanimity_sum,
    remember,
    table_game,
    tabulate,
)
from fedkit.games.exact import beta_weights, semivalue, shapley
from fedkit.methods.fedowen import OwenSampling, OwenTwins
from fedkit.streams import Streams

# raw tables serve as well
pytestmark = [
    pytest.mark.filterwarnings(rf"ignore:{told}")
    for told in (r"v\(empty\) is", "tolerance is", "within is")
]
ALL = [
    PermutationSampling(),
    PermutationSampling(antithetic=True),
    TruncatedMonteCarlo(0.0),
    TruncatedMonteCarlo(0.3),
    GTGShapley(),
    TruncatedMonteCarlo(0.001, from_zero=True),
    OwenSampling(levels=2, eta=0.05),
    OwenSampling(levels=3, eta=None),
    OwenTwins(levels=3),
    MultilinearSampling(),
    MultilinearSampling(levels=3, antithetic=False),
    MultilinearSampling("gauss"),
    BanzhafSampling(),
    BanzhafSampling("marginal"),
    BanzhafSampling("as_printed"),
    PermutationSampling(antithetic=True, beta=(4.0, 1.0)),
    ComplementarySampling(),
    ProxySampling(),
]
UNTRUNCATED = [e for e in ALL if e.weights(4) is not None]
PLAIN = [e for e in UNTRUNCATED if not isinstance(e, ProxySampling)]
SHAPLEY_WALKS = [
    PermutationSampling(),
    PermutationSampling(antithetic=True),
    TruncatedMonteCarlo(0.0),
    GTGShapley(0.0, 0.0),
    MultilinearSampling(),
    OwenSampling(levels=1, eta=None, draws=5),
]


def random_table(n, seed, outputs=()):
    return table_game(np.random.default_rng(seed).normal(size=(2**n, *outputs)))


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

    class Counted(Estimator):
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

    table = normalise(random_table(n, seed))
    game = Game(n, lambda rows: asked.extend(coalition_index(rows)) or table(rows))
    result = estimate(game, Counted(), budget, seed % 1000, count=count)
    first = answered[0]
    known = n > 1 and len(first) == 2 and not first[0].any() and first[1].all()
    rows = np.concatenate(answered)
    spent = len(asked) if count == "distinct" else rows.any(axis=1).sum() - known
    assert spent <= budget
    assert result.calls == rows.any(axis=1).sum() - (known and count == "calls")
    assert len(asked) == len(set(asked)) == result.evaluations
    assert np.isfinite(result.values).all() or isinstance(estimator, BanzhafSampling)
    assert not (result.standard_errors < 0).any()


@pytest.mark.parametrize("count", ["distinct", "calls"])
@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_below_one_walk_is_refused(estimator, count):
    game = normalise(random_table(5, 0))
    smallest = estimator.minimum(5, count)
    estimate(game, estimator, smallest, count=count)
    with pytest.raises(ValueError, match=f"needs at least {smallest} for 5 players$"):
        estimate(game, estimator, smallest - 1, count=count)


def test_m_whole_walks_cost_n_times_m_calls():
    """A step to the grand coalition is a call; v(N) of Algorithm 5, line 1, is known."""
    game = table_game(all_coalitions(4) @ np.array([0.1, 0.2, 0.3, 0.4]))
    printed = TruncatedMonteCarlo(0.0, from_zero=True)
    for estimator in (PermutationSampling(), OwenSampling(levels=1, eta=None), printed):
        result = estimate(game, estimator, 16, 5, count="calls")
        assert (result.calls, np.sum(result.info["walks"])) == (16, 4)
        np.testing.assert_allclose(result.values, [0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("estimator", UNTRUNCATED, ids=repr)
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_the_full_budget_is_exact(estimator, outputs):
    table = random_table(5, 7, outputs)
    result = estimate(table, estimator, 32)
    np.testing.assert_allclose(
        result.values, semivalue(table, estimator.weights(5)), rtol=0, atol=1e-14
    )
    assert result.exact
    assert result.evaluations == 32
    assert (result.standard_errors == 0).all()
    assert not estimate(table, estimator, 31).exact
    assert not estimate(table, estimator, 32, count="calls").exact


def test_patience_ends_a_search_for_what_is_never_drawn():
    anyone = table_game(np.array([0.0] + [1.0] * 63))  # truncation never looks beyond one player
    for estimator, reached in (
        (OwenSampling(eta=0.5), 6),
        (TruncatedMonteCarlo(0.5), 8),
        (TruncatedMonteCarlo(0.001, from_zero=True), 8),
    ):
        result = estimate(anyone, estimator, 60, 1)
        assert result.evaluations == reached
        assert result.calls <= 6200  # patience is looked at between requests
        np.testing.assert_allclose(result.values, 1 / 6, atol=0.05)


def test_owen_sampling_wants_nobody_to_be_worth_nothing():
    """Its walks start from 0: v(empty) goes to whoever comes first, and that is told."""
    for table in (random_table(3, 0), random_table(3, 0, (2,))):
        for budget in (6, 8):
            with pytest.warns(UserWarning, match=r"v\(empty\) is .*fk\.normalise\(game\)$"):
                estimate(table, OwenSampling(), budget)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimate(tabulate(normalise(table)), OwenSampling(), 6)
        found = estimate(normalise(table), OwenSampling(draws=2, eta=None))
        shifted = table_game(normalise(table)(all_coalitions(3)))
        assert found.evaluations == estimate(shifted, OwenSampling(draws=2, eta=None)).evaluations


def test_budget_or_own_stop_is_needed():
    game = random_table(3, 0)
    for estimator in (
        PermutationSampling(),
        OwenSampling(),
        BanzhafSampling(),
        ComplementarySampling(),
        MultilinearSampling(),
        TruncatedMonteCarlo(),
        TruncatedMonteCarlo(0.001, from_zero=True),
    ):
        with pytest.raises(ValueError, match="no stop of its own") as caught:
            estimate(game, estimator)
        named = re.search(r"or set its (\w+)$", str(caught.value))
        assert named is not None
        assert hasattr(estimator, named[1])
    refused(r"pass a budget$", estimate, game, ProxySampling())
    for own in (PermutationSampling(walks=9), TruncatedMonteCarlo(0.0, walks=9)):
        assert estimate(game, own).info["walks"] == 9
    assert estimate(game, PermutationSampling(walks=9), 1000, count="calls").calls == 27
    assert estimate(game, BanzhafSampling(draws=9)).info["draws"] == 9
    assert estimate(game, MultilinearSampling(draws=3)).info["samples"] == 48


FOUR = random_table(4, 0)
test_bad_input_is_refused = refusals(
    (lambda: estimate_many([FOUR, FOUR], [PermutationSampling()] * 3, 20), "common length"),
    (lambda: estimate_many([], PermutationSampling(), 20), "common length"),
    (lambda: PermutationSampling(antithetic=True, walks=3), "pairs"),
    (
        lambda: estimate_many(FOUR, PermutationSampling(), [9, 9], np.random.default_rng(0)),
        "one Generator is the seed of several",
    ),
    # as many as there are coalitions: nothing is drawn
    (lambda: estimate(FOUR, PermutationSampling(), 16, "7"), "seed is '7'"),
    (lambda: estimate(FOUR, PermutationSampling(), 16, -3), "seed is -3"),
    (lambda: semivalue(FOUR, np.ones(3)), "expected 4 finite numbers"),
    (
        lambda: estimate(FOUR, ProxySampling(), 12, stop=precise(0.1)),
        "ProxySampling has values at its end alone",
    ),
    (lambda: estimate(random_unanimity_sum(401, 3, 0), ProxySampling(), 2000), "at most 400"),
)


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_a_diverged_coalition_is_named(estimator):
    def function(rows):
        return np.where(rows.sum(axis=1) == 2, np.nan, rows.sum(axis=1) / 4.0)

    with pytest.raises(ValueError, match=r"utility of coalition \[\d, \d\] is nan"):
        estimate(Game(4, function), estimator, 15, count="calls")


# --- determinism ------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ALL, ids=repr)
def test_same_seed_same_bits(estimator):
    game = normalise(tabulate(random_unanimity_sum(6, 15, 3)))
    first = estimate(game, estimator, 50, 11)
    same(first, estimate(game, estimator, 50, 11))
    same(first, estimate(game, estimator, 50, Streams(11)))
    draws = [
        Streams(0).generator(*path).random() for path in (("a", 3), (np.str_("a"), np.int8(3)))
    ]
    assert draws[0] == draws[1]
    assert (first.values != estimate(game, estimator, 50, 12).values).any()
    assert first.seed == 11
    assert type(estimator).__name__ in first.method


def test_lockstep_equals_one_by_one():
    games = [normalise(tabulate(random_unanimity_sum(6, 15, seed))) for seed in range(3)]
    jobs = [(game, e, seed) for game in games for e in ALL for seed in (0, 1)]
    columns = [list(column) for column in zip(*jobs, strict=True)]
    together = estimate_many(columns[0], columns[1], 50, columns[2], count="calls")
    for (game, estimator, seed), result in zip(jobs, together, strict=True):
        same(result, estimate(game, estimator, 50, seed, count="calls"))


class Repeats(Estimator):
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
    repeated = estimate(game, Repeats())
    assert repeated.evaluations == 6
    assert np.isnan(repeated.standard_errors).all()
    additive = Game(5, lambda rows: rows @ np.arange(1.0, 6.0))
    drawn = estimate(additive, PermutationSampling(walks=30))  # of other coalitions each
    np.testing.assert_allclose(drawn.standard_errors, 0.0, atol=1e-12)


def test_more_players_than_a_float_counts_coalitions_of():
    game = Game(1100, lambda rows: rows.sum(axis=1))
    pairs = PermutationSampling(True, walks=2, beta=(2.0, 1.0))
    # weights w_j = 2 (n - j + 1) / (n + 1) of a walk and its reverse add up to 2
    np.testing.assert_allclose(estimate(game, pairs).values, 1.0, rtol=1e-9)
    some = PermutationSampling().weights(1100)
    assert some[0] == pytest.approx(1 / 1100)
    assert (some >= 0).all()
    for rule in (beta_weights(150, 1.0, 1.0), np.full(150, 0.5**149)):
        design = PairedDesign.for_budget(150, 5000, rule)
        assert design.taken.sum() == 2499


def test_one_player():
    game = table_game(np.array([0.0, 1.0]))
    for estimator in SHAPLEY_WALKS:
        budget = 5 if estimator.weights(1) is None else 2
        np.testing.assert_allclose(estimate(game, estimator, budget).values, [1.0])
        np.testing.assert_allclose(estimate(game, estimator, 5, count="calls").values, [1.0])


# --- stopping early, failing in the middle, several processes ---------------------------------


def test_a_stop_ends_when_it_is_content():
    game = random_table(6, 1)
    near = estimate(game, PermutationSampling(), 10_000, stop=precise(0.2), count="calls")
    assert (near.standard_errors <= 0.2).all()
    assert near.has_intervals
    assert near.calls < 10_000
    apart = estimate(
        airport([1.0, 3.0, 9.0]), PermutationSampling(), 9000, stop=settled(), count="calls"
    )
    assert apart.ranking().tolist() == [2, 1, 0]
    seen = []
    estimate(game, PermutationSampling(), 40, stop=lambda found: seen.append(found.calls))
    assert seen == sorted(seen)
    assert len(seen) > 1
    kept = []
    estimate(game, PermutationSampling(), 40, stop=lambda found: kept.append(found))
    assert kept[0].info["walks"] < kept[-1].info["walks"]  # each as it was when it was looked at


def test_what_was_found_before_a_failure_is_not_lost():
    table, asked = random_table(6, 2), []

    def value(rows):
        asked.append(len(rows))
        if len(asked) == 4:
            raise ConnectionError("the simulator is gone")
        return table(rows)

    game = remember(Game(6, value))
    with pytest.raises(ConnectionError) as caught:
        estimate(game, PermutationSampling(), 60, seed=5)
    (found,) = caught.value.valuations
    before = sum(asked[:3])
    assert found.evaluations == before > 6  # the request that failed was not answered
    assert np.isfinite(found.values).all()
    again = estimate(game, PermutationSampling(), 60, seed=5)
    assert again == estimate(table, PermutationSampling(), 60, seed=5)
    assert sum(asked[4:]) == again.evaluations - before
    with pytest.raises(ConnectionError) as caught:
        estimate(Game(6, lambda rows: (_ for _ in ()).throw(ConnectionError)),
                 PermutationSampling(), 60)  # fmt: skip
    assert caught.value.valuations == [None]


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
    class Own(Estimator):
        stops = True

        def sample(self, n_players, rng, accumulator, budget):
            while True:
                yield np.asarray(asked, dtype=bool)
                accumulator.add(added)

    refused(f"^Own .*{words}", estimate, airport([1.0, 2.0, 3.0]), Own())


# --- axioms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [
        *PLAIN,
        TruncatedMonteCarlo(0.3, walks=20),
        GTGShapley(0.3, 0.0, walks=20),
        TruncatedMonteCarlo(0.3, 20, from_zero=True),
        OwenSampling(3, draws=6, eta=0.3),
    ],
    ids=repr,
)
def test_outputs_of_an_estimate_are_columns(estimator):
    table = random_table(5, 3, (3,))
    budget = None if estimator.stops else 40
    together = estimate(table, estimator, budget, 2, count="calls")
    assert together.values.shape == together.standard_errors.shape == (5, 3)
    for column in range(3):
        one = table_game(table.table[:, column])
        alone = estimate(one, estimator, budget, 2, count="calls")
        np.testing.assert_allclose(together.values[:, column], alone.values, atol=1e-12)
        np.testing.assert_allclose(
            together.standard_errors[:, column], alone.standard_errors, atol=1e-12
        )


def test_a_coarse_tolerance_is_told():
    """A gain of 0.01 beside a tolerance of 0.01: a third is handed out, and no interval says so."""
    little = Game(8, lambda rows: 0.001 * (rows @ np.arange(1.0, 9.0)) / 3.6)
    exact = shapley(little).values
    for estimator in (TruncatedMonteCarlo(0.005), GTGShapley(0.005)):
        with pytest.warns(UserWarning, match="50% of what all players gain together") as told:
            found = estimate(little, estimator, 200, count="calls")
        assert told[0].filename == __file__
        assert found.values.sum() < 0.8 * exact.sum()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (quiet,) = estimate_many(little, estimator, 200, count="calls")
            assert quiet.info["doubt"] == found.info["doubt"]
            estimate(normalise(little), estimator, 200, count="calls")


def test_owen_sampling_wants_everybody_to_be_worth_one():
    large = airport([1.0, 25.0, 225.0])  # v(empty) is 0, and the first step ends a walk
    with pytest.warns(UserWarning, match="v\\(N\\) 225"):
        estimate(large, OwenSampling(), 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate(large, OwenSampling(eta=None), 6)
        estimate(normalise(large), OwenSampling(), 6)
