"""FedMS: clients valued class by class, and selected by it (Yang et al. 2024).

The estimators value any game that answers ``float[B, classes]`` with accuracies in [0, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from fedkit.checks import Bools, Floats, Ints, choice, having, real, vector, whole, whole_or_none
from fedkit.estimators import Estimator, estimate_many
from fedkit.estimators.accumulators import MeanAccumulator
from fedkit.estimators.driver import Budget, Count, Requests, Rng
from fedkit.estimators.walks import RunningMeans, guided_orders, walk
from fedkit.federated.policies import top
from fedkit.federated.rounds import ClientTable, Round, Strategy
from fedkit.games.coalitions import all_coalitions, ends
from fedkit.games.exact import semivalue, shapley_weights
from fedkit.games.game import table_game, tabulate
from fedkit.games.valuation import Valuation

# ------------------------------------------------- Algorithms 3, 4 and 1: values of every class


class _ClassWise(Estimator):
    """What the estimators share: they end by themselves, and look for the coreset."""

    temperature: float
    stops = True

    def __post_init__(self) -> None:
        real("temperature", self.temperature, 0.0, above=True)
        for name in ("between", "within", "convergence"):
            if hasattr(self, name):
                real(name, getattr(self, name), 0.0)

    def accumulator(self, n_players: int) -> CoresetAccumulator:
        return CoresetAccumulator(self.temperature)


class _AllCoalitions(_ClassWise):
    """Those that evaluate all coalitions, after the two ends."""

    def minimum(self, n_players: int, count: Count) -> int:
        # a lone client's v(N) is asked for twice, and neither time is free
        return 2**n_players - (count == "calls" and n_players > 1)

    def everything(self, n_players: int, accumulator: Any) -> Requests:
        utilities = yield all_coalitions(n_players)
        accumulator.exact = semivalue(table_game(utilities), shapley_weights(n_players))


@dataclass(frozen=True)
class MaverickMR(_AllCoalitions):
    """MS-MR: exact class-wise Shapley values of the round (FedMS, Algorithm 3).

    Parameters
    ----------
    temperature : float
        T of Eq. 10.
    """

    temperature: float = 0.01

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        yield ends(n_players)  # seen first, everybody is the coreset where no other is better
        yield from self.everything(n_players, accumulator)


@dataclass(frozen=True)
class MaverickTMR(_AllCoalitions):
    """MS-TMR: all coalitions, unless the round hardly changed anything (FedMS, Algorithm 4).

    Parameters
    ----------
    between : float
        eps_b: where ``|v(N) - v(empty)|`` is not above it every value is 0.
    temperature : float
        T of Eq. 10.
    """

    between: float = 0.001
    temperature: float = 0.01

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        empty, grand = yield ends(n_players)
        truncated = bool(distance(grand, empty) <= self.between)  # line 6
        accumulator.info["truncated"] = truncated
        if truncated:
            accumulator.exact = np.zeros((n_players, len(grand)))
        else:
            yield from self.everything(n_players, accumulator)  # line 11


@dataclass(frozen=True)
class MaverickGTG(_ClassWise):
    """MS-GTG: guided sampling with two truncations (FedMS, Algorithm 1).

    Parameters
    ----------
    between, within : float
        eps_b and eps_i: no walk at all if ``|v(N) - v(empty)|`` is not above the first; a walk
        keeps its utility from where ``|v(N) - v(prefix)|`` is below the second.
    temperature : float
        T of Eq. 10.
    convergence : float
        Eq. 11; stop when the mean relative change of the difficulty-weighted values from each of
        the `last` walks before is below it.
    last : int
        Walks that are looked back on.
    walks : int, optional
        Exactly this many walks instead of at most ``max(30, 2**n)``.
    """

    between: float = 0.001
    within: float = 0.001
    temperature: float = 0.01
    convergence: float = 0.05
    last: int = 10
    walks: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("last", self.last, 1)
        whole_or_none("walks", self.walks)

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        n = n_players
        empty, grand = yield ends(n)  # line 5
        accumulator.info.update(walks=0, converged=True)
        if distance(grand, empty) <= self.between:  # line 7
            accumulator.exact = np.zeros((n, len(grand)))
            return
        accumulator.info["converged"] = False

        def is_open(previous: Floats) -> Bools:  # line 15
            far = distance(grand, previous) >= self.within
            return np.broadcast_to(far[:, None], previous.shape)

        phi = RunningMeans(self.last)  # after each walk, [n, classes]
        cap = self.walks or max(30, 2**n)
        while phi.walks < cap:  # line 8
            leaders = rng.permutation(n)[: cap - phi.walks]
            orders = guided_orders(rng, leaders, n)  # lines 9 to 11
            walked = walk(orders, empty, is_open, budget, accumulator, grand)  # lines 12 to 21
            phi.add((yield from walked))  # line 22
            if budget.exhausted:
                return
            if self.walks is None and self._converged(phi, accumulator.info["beta"]):
                accumulator.info["converged"] = True
                return

    def _converged(self, phi: RunningMeans, beta: Floats) -> bool:
        """Eq. 11, on the difficulty-weighted values."""
        if phi.walks <= self.last:
            return False
        recent = np.stack(phi.means) @ beta  # [last + 1, n]
        now = recent[-1]
        relative = np.abs(now - recent[:-1]) / np.maximum(np.abs(now), 1e-12)
        return bool(relative.mean() < self.convergence)


def distance(a: Floats, b: Floats) -> Floats:
    """Mean of ``|a - b|`` over the last axis, the classes; the paper names no norm."""
    return np.asarray(np.abs(a - b).mean(axis=-1))


class CoresetAccumulator(MeanAccumulator):
    """Values of the classes, and the coreset: the best non-empty coalition so far (line 24).

    Whether a round keeps it is decided by :class:`Accumulate` (section 5.1).
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.exact: Floats | None = None  # where all coalitions were seen

    def see(self, coalitions: Bools, accuracies: Floats) -> None:
        """Look at evaluated coalitions ``bool[b, n]`` with class accuracies ``[b, classes]``."""
        if accuracies.ndim != 2:
            raise ValueError(
                f'utilities have shape {accuracies.shape}; use the utility "class_accuracy"'
            )
        rows = np.flatnonzero(coalitions.any(axis=1))
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
        return super().values() if self.exact is None else self.exact

    def standard_errors(self) -> Floats:
        return super().standard_errors() if self.exact is None else np.zeros_like(self.exact)


# -------------------------------------------------------------------------- Eq. 9, 10 and 13


def class_difficulty(accuracy: Floats, temperature: float = 0.01) -> Floats:
    """Softmax of error rates, of accuracies float64[classes] in [0, 1] (FedMS, Eq. 10)."""
    # Differences before the division: no temperature overflows.
    weights = np.exp((accuracy.min() - accuracy) / temperature)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def class_scores(values: Floats, difficulty: Floats) -> Floats:
    """Weighted sum over classes, float64[n], of values float64[n, classes] (Eq. 9 and 13)."""
    return np.asarray(values @ difficulty)


def rewards(valuation: Valuation) -> Floats:
    """Shapley rewards ``sum_c beta^c phi_i^c``, float64[k] (Eq. 13); NaN for the query."""
    paid = class_scores(valuation.values, valuation.info["beta"])
    return np.full_like(paid, np.nan) if valuation.info.get("initial") else paid


# ------------------------------------------------------------------- Algorithm 2: the four policies


def sample_by_score(pool: Ints, scores: Floats, k: int, rng: Rng) -> Ints:
    """Draw k clients one after another, each with probability ``softmax(scores)`` of the rest."""
    # the k largest with Gumbel noise, so that no difference of scores underflows
    return top(pool, scores + rng.gumbel(size=len(pool)), k)


@dataclass(frozen=True)
class ScoreSelection:
    """Sample clients with probability ``softmax(S beta)`` (FedMS, Eq. 12), all in round 0."""

    def __call__(self, table: ClientTable, k: int, rng: Rng) -> Ints:
        pool = table.available
        if table.round == 0:
            return pool
        if "beta" not in table.memory:
            raise ValueError("ScoreSelection needs the difficulty, of remember=Accumulate(...)")
        scores = class_scores(table.values, table.memory["beta"])  # Eq. 9
        return sample_by_score(pool, scores[pool], k, rng)


#: participants of whose game a walk would ask for most; it is tabulated, in one batch
_TABULATED = 7


@dataclass(frozen=True)
class MaverickValues:
    """Class-wise values of the participants; in round 0 everybody's own accuracy (footnote 1)."""

    estimator: Estimator  #: ``MaverickMR``, ``MaverickTMR`` or ``MaverickGTG``
    scale: float = 1.0  #: factor of all values; 1 leaves accuracies in [0, 1], 100 gives percent

    def __call__(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Return one valuation ``[k, classes]`` per round, with beta and coreset in its info."""
        later = [r for r in rounds if r.index > 0]
        seeds = [r.streams.child("valuation") for r in later]
        games = [tabulate(g) if g.n_players <= _TABULATED else g for g in (r.game() for r in later)]
        found = iter(estimate_many(games, self.estimator, seeds=seeds) if later else [])
        valued = []
        for r in rounds:
            v = next(found) if r.index else self._query(r)
            # what turns values into gains of accuracy; own accuracies are none
            scale = 1 / self.scale if r.index else 0.0
            errors = self.scale * v.standard_errors
            info = {**v.info, "scale": scale}
            valued.append(
                replace(v, values=self.scale * v.values, standard_errors=errors, info=info)
            )
        return valued

    def _query(self, r: Round) -> Valuation:
        k = len(r.participants)
        own = r.evaluator.utilities(r.base + r.updates)
        if own.ndim != 2:
            raise ValueError('FedMS values classes; set the plan\'s utility to "class_accuracy"')
        together = r.game()(np.ones((1, k), dtype=bool))[0]
        temperature = getattr(self.estimator, "temperature", 0.01)
        info: dict[str, Any] = {
            "initial": True,
            "beta": class_difficulty(together, temperature),
            "coreset": np.ones(k, dtype=bool),
            "coreset_accuracy": together,
        }
        nothing = np.full_like(own, np.nan)
        return Valuation(own, nothing, k + 1, k + 1, "own accuracy per class", info=info)


@dataclass(frozen=True)
class CoresetWeights:
    """FedAvg's average of all participants, or of the coreset alone; round 0 keeps the model."""

    #: "all" is line 16 of Algorithm 2, "coreset" what section 4.2 describes: the coreset's members,
    #: or nobody where :class:`Accumulate` discards it (section 5.1)
    aggregate: Literal["coreset", "all"] = "coreset"

    def __post_init__(self) -> None:
        choice("aggregate", self.aggregate, ("coreset", "all"))

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        weights = np.asarray(r.sizes, dtype=np.float64)
        if valuation.info.get("initial"):
            weights = np.zeros(len(weights))
        elif self.aggregate == "coreset":
            if "coreset kept" not in table.memory:
                raise ValueError("CoresetWeights needs what remember=Accumulate(...) keeps")
            weights = weights * valuation.info["coreset"] * float(table.memory["coreset kept"])
        return r.average(weights / (weights.sum() or 1.0))


@dataclass(frozen=True)
class Accumulate:
    """What the server remembers of a round: S (Eq. 8), beta, and whether the coreset holds.

    A coreset is discarded if its mean class accuracy fell by more than eps_d (section 5.1).
    """

    alpha: float = 0.8  #: decay of S
    #: eps_d at the first and at the last round, in percentage points
    tolerance: tuple[float, float] = (3.0, 0.1)
    rounds: int = 100  #: over which it decays, exponentially, from the initial query on
    #: the previous coreset is that of the last round, or the last that was not discarded
    against: Literal["found", "kept"] = "found"

    def threshold(self, t: int) -> float:
        """eps_d of round t, in percentage points."""
        first, last = self.tolerance
        return float(first * (last / first) ** min(t / max(self.rounds - 1, 1), 1.0))

    def __call__(self, table: ClientTable, ids: Ints, valuation: Valuation) -> None:
        info, memory = valuation.info, table.memory
        if "beta" not in info:
            raise ValueError("the estimator tells no difficulty of classes; take one of FedMS's")
        memory["beta"] = np.asarray(info["beta"], dtype=np.float64)
        if info.get("initial"):
            table.values[ids] = valuation.values
            return
        mixed = self.alpha * table.values[ids] + (1 - self.alpha) * valuation.values  # Eq. 8
        table.values[ids] = mixed
        accuracy = np.asarray(info["coreset_accuracy"], dtype=np.float64)
        before = memory.get("coreset accuracy")
        change = 0.0 if before is None else 100 * float((accuracy - before).mean())
        kept = change >= -self.threshold(table.round)
        memory["coreset kept"] = np.array(float(kept))
        if kept or self.against == "found":
            memory["coreset accuracy"] = accuracy


@dataclass(frozen=True)
class FedMS:
    """Settings of FedMS; :meth:`strategy` makes the policies of them.

    Parameters
    ----------
    estimator : Estimator
        Class-wise values of a round.
    units : {"percent", "fraction"}
        Unit of the values in Eq. 12's softmax; the paper's eps_d = 3.0 and Table 2 fit percent.
    aggregate, alpha, tolerance, against
        As in :class:`CoresetWeights` and :class:`Accumulate`.
    """

    estimator: Estimator = field(default_factory=MaverickGTG)
    alpha: float = 0.8
    units: Literal["percent", "fraction"] = "percent"
    aggregate: Literal["coreset", "all"] = "coreset"
    tolerance: tuple[float, float] = (3.0, 0.1)
    against: Literal["found", "kept"] = "found"

    def __post_init__(self) -> None:
        having("estimator", self.estimator, "sample", "accumulator")
        real("alpha", self.alpha, 0.0, 1.0)
        choice("units", self.units, ("percent", "fraction"))
        choice("aggregate", self.aggregate, ("coreset", "all"))
        for end in vector("tolerance", self.tolerance, 2):
            real("tolerance", end, 0.0, above=True)
        choice("against", self.against, ("found", "kept"))

    def strategy(self, n_classes: int, rounds: int) -> Strategy:
        """Return the strategy for a federation; its plan needs the utility "class_accuracy"."""
        return Strategy(
            ScoreSelection(),
            MaverickValues(self.estimator, 100.0 if self.units == "percent" else 1.0),
            CoresetWeights(self.aggregate),
            Accumulate(self.alpha, self.tolerance, rounds, self.against),
            outputs=n_classes,
        )
