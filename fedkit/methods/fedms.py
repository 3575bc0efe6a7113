"""FedMS: clients selected by their Maverick-Shapley scores (Algorithm 2).

The class-wise values of a round come from an estimator of :mod:`fedkit.methods.fedms_classwise`.
The server remembers S, one accumulated value per client and class (Eq. 8), and the difficulty beta
of the classes (Eq. 10); the score of a client is S beta (Eq. 9).  What the paper says twice and
differently is an argument here: `aggregate` and `units`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.estimators import Estimator, estimate_many
from fedkit.federated.rounds import Strategy
from fedkit.federated.selection import ClientTable
from fedkit.federated.valuers import Round
from fedkit.games.game import Game, tabulate
from fedkit.games.valuation import Valuation
from fedkit.methods.fedms_classwise import accumulate, class_difficulty, class_scores
from fedkit.methods.fedms_gtg import MaverickGTG

__all__ = [
    "Accumulate",
    "CoresetWeights",
    "FedMS",
    "MaverickValues",
    "ScoreSelection",
    "game_of",
    "rewards",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def rewards(valuation: Valuation) -> FloatArray:
    """Shapley rewards of a round's participants: ``R_i = sum_c beta^c phi_i^c`` (Eq. 13).

    Parameters
    ----------
    valuation : Valuation
        Made by :class:`MaverickValues`.

    Returns
    -------
    float64[k]
        In the units of the values.
    """
    return class_scores(valuation.values, valuation.info["beta"])


@dataclass(frozen=True)
class MaverickValues:
    """Class-wise values of the participants, and in round 0 everybody's own accuracy.

    Parameters
    ----------
    estimator : Estimator
        ``MaverickMR``, ``MaverickTMR`` or ``MaverickGTG``.
    scale : float
        Factor of all values: 1 leaves accuracies in [0, 1], 100 gives percent.

    Notes
    -----
    The first round queries all clients and "initializes contribution scores based on the
    class-wise accuracy of these updates" (footnote 1): the value of a client is then the accuracy
    of its own model on each class, and beta is that of the average of all models.
    """

    estimator: Estimator
    scale: float = 1.0

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Return one valuation ``[k, classes]`` per round, with beta and coreset in its info."""
        later = [r for r in rounds if r.index > 0]
        seeds = [r.streams.child("valuation") for r in later]
        games = [game_of(r.game()) for r in later]
        found = iter(estimate_many(games, self.estimator, seeds=seeds) if later else [])
        return [self._scaled(next(found) if r.index else self._first(r)) for r in rounds]

    def _first(self, r: Round) -> Valuation:
        k = len(r.participants)
        own = r.evaluator.utilities(r.base + r.updates)
        if own.ndim != 2:
            raise ValueError('FedMS values classes; set the plan\'s utility to "class_accuracy"')
        together = r.game().value(np.ones((1, k), dtype=bool))[0]
        temperature = getattr(self.estimator, "temperature", 0.01)
        info: dict[str, Any] = {
            "initial": True,
            "beta": class_difficulty(together, temperature),
            "coreset": np.ones(k, dtype=bool),
            "coreset_accuracy": together,
        }
        nothing = np.full_like(own, np.nan)
        return Valuation(own, nothing, k + 1, k + 1, "own accuracy per class", info=info)

    def _scaled(self, v: Valuation) -> Valuation:
        return replace(
            v, values=self.scale * v.values, standard_errors=self.scale * v.standard_errors
        )


def game_of(game: Game) -> Game:
    """Tabulate a game of few players, in one batch, where a walk would ask for most of it.

    The numbers are the same, and a batch shares the first layer among the coalitions.
    """
    return tabulate(game) if game.n_players <= _TABULATED else game


_TABULATED = 7


@dataclass(frozen=True)
class Accumulate:
    """What the server remembers of a round: S (Eq. 8), beta, and whether the coreset holds.

    Parameters
    ----------
    alpha : float
        Decay of S; 0.8 or 0.6 in the paper.
    tolerance : tuple of float
        eps_d at the first and at the last round, in percentage points: 3.0 and 0.1.
    rounds : int
        Rounds over which it decays, exponentially.
    against : {"found", "kept"}
        Which coreset is the previous one: that of the last round, or the last that was not
        discarded, whose aggregate is the global model.

    Notes
    -----
    "If the model performance of coreset diverges significantly from the global model", the server
    "discards the coreset for this round" (section 5.1): if d is below minus eps_d, where d is "the
    class-wise accuracy difference between the coreset and the previous set".  We take the
    mean over classes, in points.  With "kept" the rule can lock the model: once every coreset is
    worse than a lucky model by more than a shrinking eps_d, none is ever aggregated again.
    """

    alpha: float = 0.8
    tolerance: tuple[float, float] = (3.0, 0.1)
    rounds: int = 100
    against: Literal["found", "kept"] = "found"

    def __post_init__(self) -> None:
        if self.against not in ("found", "kept"):
            raise ValueError(f'against is {self.against!r}; expected "found" or "kept"')
        accumulate(np.zeros(1), np.zeros(1), self.alpha)
        if len(self.tolerance) != 2 or not min(self.tolerance) > 0:
            raise ValueError(f"tolerance is {self.tolerance}; expected two positive numbers")
        if self.rounds < 1:
            raise ValueError(f"rounds is {self.rounds}; it must be at least 1")

    def threshold(self, t: int) -> float:
        """eps_d of round t, in percentage points."""
        first, last = self.tolerance
        return float(first * (last / first) ** min(t / max(self.rounds - 1, 1), 1.0))

    def __call__(self, clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
        """Write the round into the table's values and memory."""
        info, memory = valuation.info, clients.memory
        memory["beta"] = np.asarray(info["beta"], dtype=np.float64)
        if info.get("initial"):
            clients.values[ids] = valuation.values
            return
        clients.values[ids] = accumulate(clients.values[ids], valuation.values, self.alpha)
        accuracy = np.asarray(info["coreset_accuracy"], dtype=np.float64)
        before = memory.get("coreset accuracy")
        change = 0.0 if before is None else 100 * float((accuracy - before).mean())
        kept = change >= -self.threshold(clients.round)
        memory["coreset kept"] = np.array(float(kept))
        if kept or self.against == "found":
            memory["coreset accuracy"] = accuracy


@dataclass(frozen=True)
class ScoreSelection:
    """Sample clients with probability ``softmax(S beta)`` (FedMS, Eq. 12), all in round 0.

    Clients without data are never asked.  Sampling is without replacement; of the largest
    Gumbel-perturbed scores the first k are the clients that drawing one after another would give,
    and no difference of scores underflows.
    """

    def scores(self, clients: ClientTable) -> FloatArray:
        """Return the score of every client (Eq. 9), float64[n]."""
        beta = clients.memory.get("beta")
        if beta is None:
            return np.zeros(len(clients.sizes))
        return class_scores(clients.values, beta)

    def select(self, clients: ClientTable, k: int, rng: np.random.Generator) -> IntArray:
        """Return the participants of the next round."""
        pool = clients.available
        if clients.round == 0:
            return pool
        keys = self.scores(clients)[pool] + rng.gumbel(size=len(pool))
        return np.sort(pool[np.argsort(-keys, kind="stable")[:k]])


@dataclass(frozen=True)
class CoresetWeights:
    """FedAvg's weights over all participants, or over the coreset alone.

    Parameters
    ----------
    aggregate : {"coreset", "all"}
        "all" is line 16 of Algorithm 2; "coreset" is what section 4.2 describes: the coreset, or
        nobody where section 5.1's rule discards it.
    first : {"query", "aggregate"}
        Whether the answers to round 0's query of all clients are aggregated.  Algorithm 2
        initialises its scores before the first round, so by default the model stays.
    """

    aggregate: Literal["coreset", "all"] = "coreset"
    first: Literal["query", "aggregate"] = "query"

    def __post_init__(self) -> None:
        if self.aggregate not in ("coreset", "all"):
            raise ValueError(f'aggregate is {self.aggregate!r}; expected "coreset" or "all"')
        if self.first not in ("query", "aggregate"):
            raise ValueError(f'first is {self.first!r}; expected "query" or "aggregate"')

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        """Return float64[k], summing to 1, or all zero where the model is kept."""
        weights = np.asarray(r.sizes, dtype=np.float64)
        if valuation.info.get("initial"):
            weights = weights * (self.first == "aggregate")
        elif self.aggregate == "coreset":
            weights = weights * valuation.info["coreset"] * float(clients.memory["coreset kept"])
        total = weights.sum()
        return weights / total if total > 0 else np.zeros(len(weights))


@dataclass(frozen=True)
class FedMS:
    """Settings of FedMS; :meth:`strategy` makes the three policies of them.

    Parameters
    ----------
    estimator : Estimator
        Class-wise values of a round.
    alpha : float
        Decay of the accumulated values (Eq. 8).
    units : {"percent", "fraction"}
        Unit of the values in the softmax of Eq. 12.  Fractions let it prefer a client at most
        about e-fold; the paper's eps_d = 3.0 and its Table 2 fit percent.
    aggregate, first
        As in :class:`CoresetWeights`.
    tolerance, against
        As in :class:`Accumulate`.
    """

    estimator: Estimator = field(default_factory=MaverickGTG)
    alpha: float = 0.8
    units: Literal["percent", "fraction"] = "percent"
    aggregate: Literal["coreset", "all"] = "coreset"
    first: Literal["query", "aggregate"] = "query"
    tolerance: tuple[float, float] = (3.0, 0.1)
    against: Literal["found", "kept"] = "found"

    def __post_init__(self) -> None:
        if self.units not in ("percent", "fraction"):
            raise ValueError(f'units is {self.units!r}; expected "percent" or "fraction"')

    def strategy(self, n_classes: int, rounds: int) -> Strategy:
        """Return the strategy for a federation; its plan needs the utility "class_accuracy"."""
        return Strategy(
            ScoreSelection(),
            MaverickValues(self.estimator, 100.0 if self.units == "percent" else 1.0),
            CoresetWeights(self.aggregate, self.first),
            Accumulate(self.alpha, self.tolerance, rounds, self.against),
            outputs=n_classes,
        )
