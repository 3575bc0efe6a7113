"""The game of learners that are fitted anew to each coalition's data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from scipy.sparse import csr_matrix

pytest.importorskip("sklearn")

from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch.utils.data import DataLoader, TensorDataset

import fedkit as fk

ORDER = np.random.default_rng(0).permutation(178)
X, Y = (each[ORDER] for each in load_wine(return_X_y=True))
TEST = (X[110:], Y[110:])
PARTS = [slice(0, 20), slice(20, 30), slice(30, 70), slice(70, 110)]
CLIENTS = [(X[part], Y[part]) for part in PARTS]
ROWS = fk.all_coalitions(4)


def test_a_coalition_is_worth_what_a_fit_to_its_data_scores():
    tree = DecisionTreeClassifier(max_depth=2, random_state=3)
    game = fk.retraining_game(tree, CLIENTS, TEST)
    expected = [1 / 3]
    for row in ROWS[1:]:
        x = np.concatenate([CLIENTS[i][0] for i in np.flatnonzero(row)])
        y = np.concatenate([CLIENTS[i][1] for i in np.flatnonzero(row)])
        expected.append(DecisionTreeClassifier(max_depth=2, random_state=3).fit(x, y).score(*TEST))
    np.testing.assert_array_equal(game(ROWS), expected)
    assert not hasattr(tree, "tree_")  # the caller's is left alone


def test_a_learner_of_chance_has_one_utility_per_coalition_and_a_seed():
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=3))
    games = [fk.retraining_game(forest, CLIENTS, TEST, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (game(ROWS) for game in games)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, games[0](ROWS))
    assert (first != other).any()
    fixed = RandomForestClassifier(n_estimators=3, random_state=5)
    games = [fk.retraining_game(fixed, CLIENTS, TEST, seed=seed) for seed in (0, 1)]
    np.testing.assert_array_equal(games[0](ROWS), games[1](ROWS))


def test_nobody_guesses_and_one_class_says_that_class():
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    alone = [tuple(each[c == Y] for each in (X, Y)) for c in range(3)]
    game = fk.retraining_game(logistic, alone, TEST)
    shares = [(TEST[1] == c).mean() for c in range(3)]
    np.testing.assert_allclose(game(np.eye(3, dtype=bool)), shares)
    assert game([[False] * 3])[0] == pytest.approx(1 / 3)
    assert game([[True] * 3])[0] > 0.9

    two = [(x[y < 2], y[y < 2]) for x, y in CLIENTS[:2]]
    test = (X[110:][TEST[1] < 2], TEST[1][TEST[1] < 2])
    chance = fk.retraining_game(logistic, two, test, "roc_auc")
    assert chance([[False, False]])[0] == pytest.approx(0.5)
    assert chance([[True, True]])[0] > 0.9

    ridge = fk.retraining_game(Ridge(), CLIENTS, TEST)
    assert ridge([[False] * 4])[0] == pytest.approx(0.0)
    error = fk.retraining_game(Ridge(), CLIENTS, TEST, "neg_mean_squared_error")
    assert error([[False] * 4])[0] == pytest.approx(-TEST[1].var())


def test_a_score_of_ones_own_sees_the_fit_and_the_test_data():
    def score(fitted, x, y):
        return roc_auc_score(y, fitted.predict_proba(x), multi_class="ovr")

    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    found = fk.retraining_game(tree, CLIENTS, TEST, score)([[True] * 4])
    assert found[0] == score(tree.fit(X[:110], Y[:110]), *TEST)


def test_frames_sparse_matrices_tensors_and_loaders_are_the_same_game():
    tree = DecisionTreeRegressor(max_depth=2, random_state=0)
    expected = fk.retraining_game(tree, CLIENTS, TEST)(ROWS)
    wholes = {
        "frame": lambda x, y: (pd.DataFrame(x).add_prefix("c"), pd.Series(y)),
        "sparse": lambda x, y: (csr_matrix(x), y),
        "tensor": lambda x, y: (torch.tensor(x), torch.tensor(y)),
        "dataset": lambda x, y: TensorDataset(torch.tensor(x), torch.tensor(y)),
        "loader": lambda x, y: DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), 7),
    }
    for name, made in wholes.items():
        game = fk.retraining_game(tree, [made(*one) for one in CLIENTS], made(*TEST))
        np.testing.assert_array_equal(game(ROWS), expected, err_msg=name)


def test_text_in_columns_and_labels_goes_through_a_pipeline():
    kinds = np.array(["red", "white"])
    frames = [
        (pd.DataFrame({"kind": kinds[(y > 0).astype(int)], "acid": x[:, 1]}), kinds[y % 2])
        for x, y in [*CLIENTS, TEST]
    ]
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    learner = make_pipeline(columns, DecisionTreeClassifier(max_depth=3))
    game = fk.retraining_game(learner, frames[:-1], frames[-1])
    assert game(ROWS)[0] == 0.5
    assert game(ROWS)[-1] > 0.6


def test_in_parallel_and_remembered_it_is_the_same_game(tmp_path):
    forest = RandomForestClassifier(n_estimators=3)
    game = fk.retraining_game(forest, CLIENTS, TEST)
    both = fk.remember(fk.parallel(game, 2), tmp_path / "forest.db")
    assert fk.shapley(both) == fk.shapley(game)
    again = fk.retraining_game(forest, CLIENTS, TEST)
    assert fk.shapley(fk.remember(again, tmp_path / "forest.db")) == fk.shapley(game)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_names_the_coalition(jobs):
    few = [(x[:3], np.array([0, 1, 1])) for x, _ in CLIENTS[:2]]

    class Picky(DecisionTreeClassifier):
        def fit(self, x, y):
            if len(y) < 6:
                raise ArithmeticError("too few")
            return super().fit(x, y)

    game = fk.parallel(fk.retraining_game(Picky(), few, TEST), jobs)
    with pytest.raises(ArithmeticError, match="too few") as caught:
        game([[True, True], [False, True]])
    assert any("coalition [1]" in note for note in caught.value.__notes__)


def test_what_is_no_data_ends_in_one_sentence():
    tree, narrow = DecisionTreeClassifier(), (X[:5, :3], Y[:5])
    frame = (pd.DataFrame(X[:5]), Y[:5])
    for call, words in (
        (lambda: fk.retraining_game(tree, X, TEST), "clients is .*expected a list"),
        (lambda: fk.retraining_game(tree, [], TEST), "clients is .*expected a list"),
        (lambda: fk.retraining_game(tree, [X[0]], TEST), "a pair"),
        (lambda: fk.retraining_game(tree, [(X, Y[:3])], TEST), "N labels"),
        (lambda: fk.retraining_game(tree, [(X[:, 0], Y)], TEST), "N labels"),
        (lambda: fk.retraining_game(tree, [*CLIENTS, narrow], TEST), "same columns"),
        (lambda: fk.retraining_game(tree, [*CLIENTS, frame], TEST), "one kind of table"),
        (lambda: fk.retraining_game(tree, CLIENTS, narrow), r"float64\[5, 3\]; .*same columns"),
        (lambda: fk.retraining_game(DecisionTreeClassifier, CLIENTS, TEST), "make one"),
        (lambda: fk.retraining_game(tree, CLIENTS, TEST, 3), "score is 3"),
        (lambda: fk.retraining_game(tree, CLIENTS, TEST, "acuracy"), "acuracy"),
    ):
        refused(words, call)


@pytest.mark.parametrize("kind", [float, bool, str])
def test_labels_of_any_kind_have_a_guess_of_nobody(kind: type) -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(kind)
    clients = [(x[:15], y[:15]), (x[15:30], y[15:30])]
    game = fk.retraining_game(LogisticRegression(), clients, (x[30:], y[30:]))
    assert game(np.zeros((1, 2), dtype=bool))[0] == pytest.approx(0.5)
