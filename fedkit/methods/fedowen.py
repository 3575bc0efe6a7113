"""FedOwen: Owen sampling, a selection that follows it, and softmax aggregation.

:class:`FedOwen` puts the three together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betainc
from torch import Tensor

from fedkit.checks import Floats, Ints, brief, real, vector, warn, whole, whole_or_none
from fedkit.estimators.accumulators import MeanAccumulator
from fedkit.estimators.driver import Budget, Count, Estimator, Requests, Rng
from fedkit.estimators.levels import neighbour_marginals, neighbourhoods
from fedkit.estimators.walks import blocks, groups
from fedkit.federated.policies import Estimated, draw
from fedkit.federated.rounds import Aggregate, ClientTable, Round, Select, Strategy
from fedkit.games.coalitions import ends
from fedkit.games.exact import shapley_weights
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation


@dataclass(frozen=True)
class OwenSampling(Estimator):
    """Owen sampling with eta-truncation (FedOwen, Algorithm 1).

    The game should have ``v(empty) = 0`` and, for the truncation, ``v(N) = 1``: pass
    ``normalise(game)``.  With a budget each level gets an equal share, and what truncation saves of
    it is re-spent on fresh walks.

    Parameters
    ----------
    levels : int
        Q, the number of inclusion levels q = 1/Q, 2/Q, ..., 1.
    draws : int, optional
        M, walks per level, for a run without a budget: lines 4 to 20 to the letter.
    eta : float, optional
        Truncation tolerance in [0, 1]; None never truncates.
    """

    levels: int = 2
    draws: int | None = None
    eta: float | None = 0.01

    def __post_init__(self) -> None:
        whole("levels", self.levels, 1)
        whole_or_none("draws", self.draws)
        if self.eta is not None:
            real("eta", self.eta, 0.0, 1.0)

    def minimum(self, n_players: int, count: Count) -> int:
        return self.levels * n_players

    def weights(self, n_players: int) -> Floats | None:
        """Weights of the expectation without truncation; None with it."""
        if self.eta is not None:
            return None
        n, s = n_players, np.arange(n_players)
        q = np.arange(1, self.levels + 1)[:, None] / self.levels
        # the integral of t**s (1 - t)**(n-1-s) from 0 to q is B(s+1, n-s) I_q(s+1, n-s)
        return shapley_weights(n) * betainc(s + 1.0, n - s, q).mean(axis=0)

    def prepare(self, game: Game, budget: int | None) -> tuple[Game, OwenSampling]:
        """Warn of a game that is not normalised, as lines 9 and 15 take it to be."""
        if game.scale is None:
            empty, grand = game(ends(game.n_players))
            truncated = self.eta is not None and bool((np.abs(grand - 1) > 1e-9).any())
            if truncated or np.any(empty != 0):
                warn(
                    f"v(empty) is {brief(empty)} and v(N) {brief(grand)}; Algorithm 1 of FedOwen "
                    "walks from 0 and ends a walk near 1, so that values are far off: give it "
                    "fk.normalise(game)"
                )
        return game, self

    def accumulator(self, n_players: int) -> MeanAccumulator:
        """Divide as line 23, by Q and by walks: those made whole, not the M that were planned."""
        return MeanAccumulator(weights=np.full(self.levels, 1.0 / self.levels))

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        """Run lines 1 to 23; the walks of a group advance together, step by step."""
        n, eta = n_players, -np.inf if self.eta is None else self.eta
        outputs: tuple[int, ...] = ()  # of the game; the first answer shows them
        accumulator.info.update(walks=[0] * self.levels, truncated=0, cut=0)
        for level in range(self.levels):  # line 2
            q = (level + 1) / self.levels
            share = None if budget.total is None else budget.total * (level + 1) // self.levels
            spare = rng.spawn(1)[0]  # draws after the share is spent leave the next level's alone
            for walks in self._groups(budget, share, n):  # line 4, and again for what is saved
                spent = share is not None and not budget.left(share)  # walks of nobody still fit
                draws = (spare if spent else rng).random((walks, 2, n))
                mask = draws[:, 0] < q  # line 5
                orders = np.argsort(np.where(mask, draws[:, 1], 2.0), axis=1)  # line 6
                ranks, length = np.argsort(orders, axis=1), mask.sum(axis=1)
                v_prev = np.zeros((walks, *outputs))  # line 9
                credit = np.zeros((walks, n, *outputs))
                cut, truncated = np.zeros((2, walks), dtype=np.bool_)
                for step in range(n):  # line 10
                    looked_at = ~(1.0 - v_prev < eta)  # lines 8, 14, 15: Delta_left
                    inside = step < length
                    truncated |= inside & ~looked_at.reshape(walks, -1).all(axis=1)
                    going = np.flatnonzero(inside & looked_at.reshape(walks, -1).any(axis=1))
                    if not len(going):
                        continue
                    if share is not None and not budget.left(share):
                        cut[going] = True  # paid for and left out
                        break
                    v = yield ranks[going] <= step  # line 11
                    if v.shape[1:] != outputs:
                        outputs = v.shape[1:]
                        v_prev = np.zeros((walks, *outputs))
                        credit = np.zeros((walks, n, *outputs))
                        looked_at = ~(1.0 - v_prev < eta)
                    gain = np.where(looked_at[going], v - v_prev[going], 0.0)  # line 12
                    credit[going, orders[going, step]] = gain  # line 13
                    v_prev[going] += gain  # line 18
                accumulator.add(credit[~cut], stratum=level)  # line 21, divided in 23
                accumulator.info["walks"][level] += int((~cut).sum())
                accumulator.info["truncated"] += int(truncated[~cut].sum())
                accumulator.info["cut"] += 0 if spent else int(cut.sum())
                if cut.any():
                    break

    def _groups(self, budget: Budget, share: int | None, n: int) -> Iterator[int]:
        """Yield how many walks to draw: M of them, or until the level's share is spent."""
        for size in blocks(self.draws if share is None else None):
            yield from groups(budget, share, size, cost=n)


@dataclass(frozen=True)
class OwenTwins(Estimator):
    """The estimator of FedOwen's text: present/absent twins at Q inclusion levels (Eq. 10, 11).

    A mask at level q is evaluated together with the n coalitions that differ from it by one
    client.  Under a budget the levels take turns, the lowest first, as long as whole masks fit.

    Parameters
    ----------
    levels : int
        Q, the number of inclusion levels q = 1/Q, 2/Q, ..., 1.
    draws : int, optional
        M, masks per level, for a run without a budget.
    """

    levels: int = 2
    draws: int | None = None

    def __post_init__(self) -> None:
        whole("levels", self.levels, 1)
        whole_or_none("draws", self.draws)

    def minimum(self, n_players: int, count: Count) -> int:
        return self.levels * (n_players + 1)

    def weights(self, n_players: int) -> Floats:
        """Weights of the sum of Eq. 10."""
        q = np.arange(1, self.levels + 1)[:, None] / self.levels
        s = np.arange(n_players)
        return np.asarray((q**s * (1.0 - q) ** (n_players - 1 - s)).mean(axis=0))

    def accumulator(self, n_players: int) -> MeanAccumulator:
        return MeanAccumulator(np.full(self.levels, 1.0 / self.levels))

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        q = np.arange(1, self.levels + 1)[:, None] / self.levels
        for _ in itertools.count() if self.draws is None else range(self.draws):
            masks = rng.random((self.levels, n_players)) < q
            utilities = yield neighbourhoods(masks)
            for level, marginals in enumerate(neighbour_marginals(masks, utilities)):
                accumulator.add(marginals[None], level)


@dataclass(frozen=True)
class EpsilonGreedy:
    """FedOwen's hybrid adaptive selection (Algorithm 2; Eq. 13 has the bonus whole: low_gain=1).

    Where fewer than `k` clients have a positive score, all of these and some of the others.

    Parameters
    ----------
    epsilon : float
        Probability of a uniform (exploring) round.
    confidence : float
        Weight `c` of the confidence bonus.
    floor : float
        Contribution floor `tau`: below it a client's gain counts as 0 and its bonus is scaled.
    low_gain : float
        Scale of the bonus below the floor.
    """

    epsilon: float = 0.1
    confidence: float = 0.1
    floor: float = 0.0
    low_gain: float = 0.1

    def __post_init__(self) -> None:
        real("epsilon", self.epsilon, 0.0, 1.0)
        real("floor", self.floor)
        real("confidence", self.confidence, 0.0)
        real("low_gain", self.low_gain, 0.0)

    def probabilities(self, values: npt.ArrayLike, counts: npt.ArrayLike, t: int) -> Floats:
        """Chances in exploiting round `t`, from 0 (Algorithm 2, lines 4 to 14)."""
        values = vector("values", values)
        sigma = vector("counts", counts, len(values))
        whole("t", t, 0)
        low = values < self.floor
        gain = np.where(low, 0.0, values)  # line 6
        bonus = self.confidence * np.sqrt(np.log(t + 1) / (sigma + 1))  # line 7
        score = gain + np.where(low, self.low_gain * bonus, bonus)  # lines 8 to 11
        score = score - score.min()  # line 13
        total = score.sum()
        # Rounding can leave differences of 1e-17 between equal scores; they are no preference.
        if total <= 1e-12 * max(1.0, float(np.abs(gain).max() + bonus.max())):
            return np.full(len(values), 1 / len(values))  # line 14
        return score / total

    def __call__(self, table: ClientTable, k: int, rng: Rng) -> Ints:
        pool = table.available
        whole("k", k, 1)
        if rng.random() < self.epsilon or len(pool) <= k:  # lines 1 and 2
            return draw(pool, k, rng)
        p = self.probabilities(table.values[pool], table.selected[pool], table.round)
        likely = np.flatnonzero(p > 0)
        if len(likely) <= k:
            rest = np.setdiff1d(np.arange(len(pool)), likely)
            chosen = np.concatenate([likely, rng.permutation(rest)[: k - len(likely)]])
        else:
            chosen = rng.choice(len(pool), size=k, replace=False, p=p)  # line 15
        return np.sort(pool[chosen])


@dataclass(frozen=True)
class Softmax:
    """FedOwen's contribution-weighted aggregation over the participants (Eq. 14, 15).

    Parameters
    ----------
    scale : float
        Factor before the exponential; the paper has 1.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        real("scale", self.scale, 0.0)

    def weights(self, values: npt.ArrayLike) -> Floats:
        """Weights of the participants, float64[k], of their values, float64[k]."""
        z = vector("values", values)
        raw = np.exp(self.scale * (z - z.max()))
        return np.asarray(raw / raw.sum())

    def __call__(self, r: Round, valuation: Valuation, table: ClientTable) -> Tensor:
        return r.average(self.weights(valuation.values))


@dataclass(frozen=True)
class FedOwen:
    """Settings of FedOwen; :meth:`strategy` puts its parts together.

    Parameters
    ----------
    estimator : Estimator
        Algorithm 1, or another estimator under the same budget, as in Table 1.
    budget : int
        Utility evaluations per round: N x M, 40 for the paper's ten participants.
    """

    estimator: Estimator = field(default_factory=OwenSampling)
    budget: int = 40
    select: Select = field(default_factory=EpsilonGreedy)
    aggregate: Aggregate = field(default_factory=Softmax)

    def __post_init__(self) -> None:
        whole("budget", self.budget, 1)
        self.strategy()  # refuses the rest

    def strategy(self) -> Strategy:
        """Return the strategy; the latest values of the clients are remembered."""
        return Strategy(self.select, Estimated(self.estimator, self.budget), self.aggregate)
