"""The game of clients whose data a learner of scikit-learn is fitted to, coalition by coalition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.checks import Bools, brief, function, having, plain_array, whole
from fedkit.extras import need
from fedkit.games.coalitions import Coalitions, Utilities
from fedkit.games.game import Game, name_of
from fedkit.learning.device import pair_of

Scorer = Callable[[Any, Any, Any], float]


def retraining_game(
    estimator: Any,
    clients: Sequence[Any],
    test: Any,
    score: str | Scorer | None = None,
    *,
    seed: int = 0,
) -> Game:
    """Return the game of retraining: how well `estimator` does after a fit to a coalition's data.

    Nobody's data leave a guess: an accuracy of 1 / classes, or an R^2 of 0.  A coalition whose data
    are of one class says that class, whatever the learner makes of it.

    Parameters
    ----------
    estimator : a learner with the methods of scikit-learn
        A pipeline too; it is cloned for every coalition.
    clients : list of pairs (x, y), DataLoaders or Datasets
        Data of each client: arrays, tensors, sparse matrices or frames of the same columns.
    test : one more of these
    score : str or callable, optional
        A scorer's name, such as ``"roc_auc"``, or ``score(fitted, x, y)``, larger for better; by
        default the learner's own.
    seed : int
        Taken where ``random_state`` is None.

    Returns
    -------
    Game

    Raises
    ------
    ValueError
        If the data do not match.  What a fit or a score raises passes on, with the coalition.

    Examples
    --------
    >>> import fedkit as fk
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> x, y = load_wine(return_X_y=True)
    >>> clients = [(x[i:100:3], y[i:100:3]) for i in range(3)]
    >>> game = fk.retraining_game(DecisionTreeClassifier(), clients, (x[100:], y[100:]))
    >>> game([[False, False, False]]).round(3)
    array([0.333])
    """
    base, dummy = need("sklearn.base", "run"), need("sklearn.dummy", "run")
    having("estimator", estimator, "fit", "get_params", *([] if score else ["score"]))
    whole("seed", seed, 0)
    if not isinstance(clients, list | tuple) or not clients:
        raise ValueError(f"clients is {brief(clients)}; expected a list of a pair (x, y) for each")
    pairs = [_pair(f"clients[{i}]", one) for i, one in enumerate(clients)]
    x_test, y_test = _pair("test", test)
    _check_alike([*(x for x, _ in pairs), x_test])
    x, y = _joined([x for x, _ in pairs]), np.concatenate([y for _, y in pairs])
    owner = np.repeat(np.arange(len(pairs)), [len(y) for _, y in pairs])
    learner = base.clone(estimator)
    steps = learner.get_params()
    learner.set_params(
        **{k: seed for k, v in steps.items() if k.endswith("random_state") and v is None}
    )
    classes = np.unique(np.concatenate([y, y_test])) if base.is_classifier(learner) else None
    measure: Scorer = lambda fitted, x, y: fitted.score(x, y)  # noqa: E731
    if score is not None:
        named = isinstance(score, str)
        measure = (
            need("sklearn.metrics", "run").get_scorer(score) if named else function("score", score)
        )

    def guess(value: Any) -> Any:
        if classes is None:
            return dummy.DummyRegressor(strategy="constant", constant=value).fit(x, y)
        some = np.zeros((len(classes), 1))
        return dummy.DummyClassifier(strategy="constant", constant=[value]).fit(some, classes)

    said_blindly = [y_test.mean()] if classes is None else classes
    nothing = float(np.mean([measure(guess(one), x_test, y_test) for one in said_blindly]))

    def utility(row: Bools) -> float:
        held = row[owner]
        if not held.any():
            return nothing
        said = y[held]
        if classes is not None and (said == said[0]).all():
            fitted = guess(said[0])
        else:
            fitted = base.clone(learner).fit(x[held], said)
        return float(measure(fitted, x_test, y_test))

    def utilities(coalitions: Coalitions) -> Utilities:
        found = np.empty(len(coalitions))
        for place, row in enumerate(coalitions):
            try:
                found[place] = utility(row)
            except Exception as error:
                error.add_note(f"fitted to the data of coalition {np.flatnonzero(row).tolist()}")
                raise
        return found

    measured = "the learner's own score" if score is None else name_of(score)
    return Game(len(pairs), utilities, utility=measured)


def _pair(name: str, given: Any) -> tuple[Any, NDArray[Any]]:
    """Return samples, as an array, a frame or a sparse matrix, and as many labels."""
    x, labels = pair_of(name, given)
    y = plain_array(labels)
    if not (hasattr(x, "iloc") or hasattr(x, "tocsr")):
        x = plain_array(x)
    if y.ndim != 1 or x.ndim < 2 or x.shape[:1] != y.shape:
        raise ValueError(f"{name} has x {brief(x)}, y {brief(y)}; expected x [N, ...] and N labels")
    return x.tocsr() if hasattr(x, "tocsr") else x, y


def _check_alike(parts: list[Any]) -> None:
    kinds = {(type(x), x.shape[1:], tuple(getattr(x, "columns", ()))) for x in parts}
    if len(kinds) > 1:
        raise ValueError(
            f"clients and test have x {', '.join(dict.fromkeys(map(brief, parts)))}; "
            "expected the same columns and one kind of table for all"
        )


def _joined(parts: list[Any]) -> Any:
    if hasattr(parts[0], "iloc"):
        return need("pandas", "run").concat(parts, ignore_index=True)
    if hasattr(parts[0], "tocsr"):
        return need("scipy.sparse", "run").vstack(parts).tocsr()
    return np.concatenate(parts)
