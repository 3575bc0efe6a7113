import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedkit as fk
from fedkit.methods.fedms_classwise import (
    MaverickMR,
    MaverickTMR,
    accumulate,
    class_difficulty,
    class_scores,
    distance,
)
from fedkit.methods.fedms_gtg import MaverickGTG

CLASSES = 3


def saturating(n=5):
    """Accuracies that saturate at another speed per class; client 0 alone knows class 2."""
    skill = np.linspace(0.2, 1.1, n)[:, None] * np.array([1.0, 0.6, 0.0])
    skill[0] = [0.1, 0.05, 1.7]

    def value(coalitions):
        return 0.05 + 0.9 * (1 - np.exp(-coalitions.astype(float) @ skill))

    return fk.FunctionGame(n, value)


GAME = saturating()
EXACT = fk.shapley(GAME).values


def test_difficulty_is_a_softmax_of_error_rates():
    beta = class_difficulty(np.array([0.9, 0.5, 0.7]), temperature=0.2)
    raw = np.exp((1 - np.array([0.9, 0.5, 0.7])) / 0.2)
    np.testing.assert_allclose(beta, raw / raw.sum())
    assert class_difficulty(np.array([0.9, 0.5, 0.7]), 1e-300).tolist() == [0, 1, 0]
    np.testing.assert_allclose(class_difficulty(np.array([0.3, 0.3]), 1e-300), 0.5)


def test_the_papers_temperature_is_nearly_one_hot():
    beta = class_difficulty(np.array([0.91, 0.94, 0.97]))
    assert beta[0] > 0.95
    assert beta[1] / beta[0] == pytest.approx(np.exp(-3))


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.floats(1e-6, 10),
)
def test_difficulty_is_a_distribution_that_follows_the_error(accuracy, temperature):
    beta = class_difficulty(np.array(accuracy), temperature)
    assert beta.sum() == pytest.approx(1)
    order = np.argsort(accuracy, kind="stable")
    assert (np.diff(beta[order]) <= 1e-12).all()


def test_scores_and_accumulation_by_hand():
    values = np.array([[0.3, 0.0], [0.1, 0.4]])
    np.testing.assert_allclose(class_scores(values, np.array([0.25, 0.75])), [0.075, 0.325])
    np.testing.assert_allclose(accumulate(values, np.ones((2, 2)), 0.8)[0], [0.44, 0.2])


def test_norms_of_a_vector():
    a, b = np.array([0.3, 0.5]), np.array([0.0, 0.9])
    found = [float(distance(a, b, norm)) for norm in ("mean", "max", "sum", "euclidean")]
    assert found == pytest.approx([0.35, 0.4, 0.7, 0.5])


def test_mr_is_the_exact_shapley_value_of_every_class():
    v = fk.estimate(GAME, MaverickMR())
    np.testing.assert_allclose(v.values, EXACT, atol=1e-14)
    assert (v.standard_errors == 0).all()
    assert v.evaluations == 32
    np.testing.assert_allclose(v.values.sum(axis=0), GAME.value(np.ones((1, 5), bool))[0] - 0.05)


def test_the_coreset_is_the_best_non_empty_coalition():
    def value(coalitions):
        c = coalitions.astype(float)
        return np.stack([0.5 - 0.1 * c[:, 0] + 0.2 * c[:, 2], 0.4 - 0.3 * c[:, 1]], axis=1)

    info = fk.estimate(fk.FunctionGame(3, value), MaverickMR(temperature=0.1)).info
    assert info["coreset"].tolist() == [False, False, True]
    assert info["coreset_accuracy"] == pytest.approx([0.7, 0.4])
    np.testing.assert_allclose(info["beta"], class_difficulty(np.array([0.7, 0.4]), 0.1))
    worse = fk.FunctionGame(2, lambda c: np.stack([0.9 - 0.1 * c.sum(1)] * 2, axis=1))
    info = fk.estimate(worse, MaverickMR()).info
    assert info["coreset"].sum() == 1  # never empty, though nobody helps


@pytest.mark.parametrize("norm", ["mean", "max", "sum", "euclidean"])
def test_tmr_truncates_exactly_when_its_norm_says_so(norm):
    ends = GAME.value(np.array([[False] * 5, [True] * 5]))
    gap = float(distance(ends[1], ends[0], norm))
    whole = fk.estimate(GAME, MaverickTMR(between=gap * 0.999, norm=norm))
    np.testing.assert_allclose(whole.values, EXACT, atol=1e-14)
    cut = fk.estimate(GAME, MaverickTMR(between=gap * 1.001, norm=norm))
    assert (cut.values == 0).all()
    assert cut.values.shape == (5, CLASSES)
    assert cut.evaluations == 2
    assert cut.info["coreset"].all()


def test_gtg_without_truncation_is_unbiased():
    estimator = MaverickGTG(between=0, within=0, walks=40)
    found = fk.estimate_many(GAME, estimator, seeds=list(range(120)))
    values = np.stack([v.values for v in found])
    errors = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    z = (values.mean(axis=0) - EXACT) / np.maximum(errors, 1e-12)
    assert np.abs(z[errors > 1e-9]).max() < 4.5
    np.testing.assert_allclose(values.sum(axis=1), np.tile(EXACT.sum(axis=0), (120, 1)))


def test_gtg_stops_by_itself_near_the_truth():
    v = fk.estimate(GAME, MaverickGTG(), seed=3)
    assert v.info["converged"]
    assert v.info["walks"] % 5 == 0  # whole sweeps
    assert v.info["walks"] > 10
    assert v.evaluations <= 32
    assert np.abs(v.values - EXACT).max() < 0.1
    info = fk.estimate(GAME, MaverickMR()).info
    assert info["coreset_total"] >= v.info["coreset_total"] - 1e-12


def test_gtg_gives_nobody_anything_in_a_round_without_change():
    still = fk.FunctionGame(4, lambda c: np.full((len(c), 2), 0.3))
    v = fk.estimate(still, MaverickGTG())
    assert (v.values == 0).all()
    assert v.values.shape == (4, 2)
    assert v.evaluations == 2
    assert v.info["coreset"].all()


def test_within_truncation_saves_evaluations():
    asked = [
        fk.estimate(saturating(9), MaverickGTG(within=eps, walks=18), seed=1).evaluations
        for eps in (0.0, 0.02, 0.2)
    ]
    assert asked[0] > asked[1] > asked[2]


def test_one_client_gets_the_whole_change():
    one = fk.FunctionGame(1, lambda c: 0.1 + 0.5 * np.repeat(c.astype(float), 2, axis=1))
    for estimator in (MaverickMR(), MaverickTMR(), MaverickGTG()):
        np.testing.assert_allclose(fk.estimate(one, estimator).values, [[0.5, 0.5]])


def test_a_maverick_is_last_with_equal_weights_and_first_with_difficulty():
    """Three clients, two classes: 9 of 10 images show class 1, client 3 alone knows class 2."""
    table = np.array(
        # nobody    1          2          12         3           13          23          123
        [[.0, 0], [.6, 0], [.5, 0], [.9, 0], [.0, .4], [.5, .4], [.4, .4], [.8, .4]]
    )  # fmt: skip
    classes = fk.shapley(fk.TableGame(table)).values
    uniform = fk.shapley(fk.TableGame(table @ [0.9, 0.1])).values
    assert uniform.argmin() == 2
    beta = class_difficulty(table[-1])
    assert class_scores(classes, beta).argmax() == 2
    np.testing.assert_allclose(class_scores(classes, np.array([0.9, 0.1])), uniform)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: class_difficulty(np.array([0.5]), 0.0), "temperature is 0.0"),
        (lambda: class_difficulty(np.array([np.nan])), "one finite number per class"),
        (lambda: class_scores(np.ones((2, 3)), np.ones(2)), r"\(2, 3\) and the difficulty \(2,\)"),
        (lambda: accumulate(np.ones(1), np.ones(1), 1.2), "alpha is 1.2"),
        (lambda: distance(np.ones(1), np.ones(1), "l2"), "norm is 'l2'"),
        (lambda: MaverickMR(temperature=-1), "temperature is -1"),
        (lambda: MaverickTMR(between=-0.1), "between is -0.1"),
        (lambda: MaverickGTG(norm="any"), "norm is 'any'"),
        (lambda: MaverickGTG(last=0), "last is 0"),
        (lambda: fk.estimate(fk.airport([1, 2, 3]), MaverickMR()), "one per class"),
        (lambda: fk.estimate(GAME, MaverickMR(), budget=20), "at least 32"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
