"""Class-wise values: Maverick-Shapley on games whose utility is a vector, one entry per class.

FedMS (section 4.1) values every client once per class, and adds the classes up with weights that
are large where the model is bad.  Here is the part that needs no federation: the weights, the
scores, and the estimators MS-MR and MS-TMR (MS-GTG: :mod:`fedkit.methods.fedms_gtg`) for any game
that answers ``float[B, classes]`` with accuracies in [0, 1].

Every estimator also names the *coreset*: among the non-empty coalitions that it evaluated, the
one with the largest sum of class accuracies (Algorithm 1, line 24); of several, the one that was
evaluated first.  The empty coalition, the model as it was, is not a candidate: with it no coreset
could ever be worse than the model before, and the paper's rule that discards bad coresets
(section 5.1) could never apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import Budget, Count, Floats, MeanTally, Requests
from fedkit.games.coalitions import all_coalitions
from fedkit.games.exact import semivalue, shapley_weights
from fedkit.games.game import TableGame

__all__ = [
    "CoresetTally",
    "MaverickMR",
    "MaverickTMR",
    "accumulate",
    "check_settings",
    "class_difficulty",
    "class_scores",
    "distance",
]

Norm = Literal["mean", "max", "sum", "euclidean"]


def class_difficulty(accuracy: Floats, temperature: float = 0.01) -> Floats:
    """Weight of each class: a softmax of the error rates (FedMS, Eq. 10).

    Parameters
    ----------
    accuracy : float64 array, shape (classes,)
        Accuracy on each class, in [0, 1].
    temperature : float
        T; the paper's 0.01 puts nearly all weight on the worst class: a class that is three
        points better weighs ``exp(-3)`` = 5% of it.

    Returns
    -------
    float64 array, shape (classes,)
        Positive (up to underflow), summing to 1.

    Raises
    ------
    ValueError
        If the temperature is not positive, or an accuracy is not a number.
    """
    accuracy = np.asarray(accuracy, dtype=np.float64)
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature is {temperature}; expected a positive number")
    if accuracy.ndim != 1 or not np.isfinite(accuracy).all():
        raise ValueError(f"accuracies are {accuracy}; expected one finite number per class")
    # Differences before the division: no temperature overflows.
    weights = np.exp((accuracy.min() - accuracy) / temperature)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def class_scores(values: Floats, difficulty: Floats) -> Floats:
    """Weighted sum over classes: the score of Eq. 9, the Shapley reward of Eq. 13.

    Parameters
    ----------
    values : float64 array, shape (n, classes)
        Accumulated class-wise values S (score), or those of one round (reward).
    difficulty : float64 array, shape (classes,)
        beta, from :func:`class_difficulty`.

    Returns
    -------
    float64 array, shape (n,)
    """
    values, difficulty = np.asarray(values), np.asarray(difficulty)
    if values.ndim != 2 or difficulty.shape != values.shape[1:]:
        raise ValueError(
            f"values have shape {values.shape} and the difficulty {difficulty.shape}; "
            "(n, classes) and (classes,) are expected"
        )
    return np.asarray(values @ difficulty, dtype=np.float64)


def accumulate(old: Floats, new: Floats, alpha: float) -> Floats:
    """``alpha old + (1 - alpha) new`` (FedMS, Eq. 8)."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; it is a share, from 0 to 1")
    return alpha * old + (1 - alpha) * new


def distance(a: Floats, b: Floats, norm: Norm = "mean") -> Floats:
    """Size of ``a - b`` over the last axis, the classes.

    The paper writes ``|v_N - v_0| > eps`` of two vectors without naming the norm.  "mean" is the
    one in which its threshold means what it means for GTG-Shapley's single accuracy; "max"
    truncates only when no class moves.
    """
    gap = np.abs(np.asarray(a) - np.asarray(b))
    if norm == "mean":
        return np.asarray(gap.mean(axis=-1))
    if norm == "max":
        return np.asarray(gap.max(axis=-1))
    if norm == "sum":
        return np.asarray(gap.sum(axis=-1))
    if norm == "euclidean":
        return np.asarray(np.sqrt((gap**2).sum(axis=-1)))
    raise ValueError(f'norm is {norm!r}; expected "mean", "max", "sum" or "euclidean"')


class CoresetTally(MeanTally):
    """Values of the classes, and the best coalition among all that were looked at."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.exact: Floats | None = None

    def see(self, coalitions: NDArray[np.bool_], accuracies: Floats) -> None:
        """Look at evaluated coalitions ``bool[b, n]`` with class accuracies ``[b, classes]``."""
        if accuracies.ndim != 2:
            raise ValueError(
                f"utilities have shape {accuracies.shape}; Maverick-Shapley needs one per class, "
                '[B, classes]: use the utility "class_accuracy"'
            )
        rows = np.flatnonzero(coalitions[: len(accuracies)].any(axis=1))
        if not len(rows):
            return
        totals = accuracies[rows].sum(axis=1)
        best = int(rows[totals.argmax()])
        # A rounding error is no improvement.
        if totals.max() > self.info.get("coreset_total", -np.inf) + 1e-12:
            self.info.update(
                coreset=coalitions[best].copy(),
                coreset_accuracy=accuracies[best].copy(),
                coreset_total=float(totals.max()),
                beta=class_difficulty(accuracies[best], self.temperature),
            )

    def values(self) -> Floats | None:
        """Return the exact values where all coalitions were seen, otherwise the means."""
        return super().values() if self.exact is None else self.exact

    def standard_errors(self) -> Floats | None:
        """Return 0 for exact values, otherwise the standard errors of the means."""
        return super().standard_errors() if self.exact is None else np.zeros_like(self.exact)


def check_settings(temperature: float, norm: str = "mean", **tolerances: float) -> None:
    """Refuse a bad temperature, an unknown norm, or a negative tolerance."""
    class_difficulty(np.zeros(1), temperature)
    distance(np.zeros(1), np.zeros(1), norm)  # type: ignore[arg-type]
    for name, value in tolerances.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}; expected a number of at least 0")


@dataclass(frozen=True)
class MaverickTMR:
    """MS-TMR: all coalitions, unless the round hardly changed anything (FedMS, Algorithm 4).

    Parameters
    ----------
    between : float
        eps_b: if ``|v(N) - v(empty)|`` is not larger, every value is 0.
    temperature : float
        T of Eq. 10.
    norm : {"mean", "max", "sum", "euclidean"}
        Of the vectors in that comparison; see :func:`distance`.
    """

    between: float = 0.001
    temperature: float = 0.01
    norm: Norm = "mean"

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.norm, between=self.between)

    @property
    def stops(self) -> bool:
        """Always: the coalitions are all there are."""
        return True

    def minimum(self, n_players: int, count: Count) -> int:
        """All coalitions."""
        return 2**n_players - (count == "calls")

    def weights(self, n_players: int) -> None:
        """None: truncation decides what is computed."""
        return None

    def tally(self, n_players: int) -> CoresetTally:
        """Return an empty tally."""
        return CoresetTally(self.temperature)

    def _moved(self, empty: Floats, grand: Floats) -> bool:
        return bool(distance(grand, empty, self.norm) > self.between)  # line 6

    def sample(
        self, n_players: int, rng: np.random.Generator, tally: CoresetTally, budget: Budget
    ) -> Requests:
        """Ask for v(empty) and v(N), then for all coalitions."""
        rows = all_coalitions(n_players)
        ends = rows[[0, -1]]
        answers = yield ends
        tally.see(ends, answers)
        tally.info["truncated"] = not self._moved(*answers)
        if tally.info["truncated"]:
            tally.exact = np.zeros((n_players, answers.shape[1]))
            return
        utilities = yield rows
        tally.see(rows, utilities)
        tally.exact = semivalue(TableGame(utilities), shapley_weights(n_players))  # line 11


@dataclass(frozen=True)
class MaverickMR(MaverickTMR):
    """MS-MR: exact class-wise Shapley values of the round (FedMS, Algorithm 3).

    Parameters
    ----------
    temperature : float
        T of Eq. 10.
    """

    def _moved(self, empty: Floats, grand: Floats) -> bool:
        return True
