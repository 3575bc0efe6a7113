"""MS-GTG: class-wise Shapley values by guided, truncated walks (FedMS, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.base import Budget, Count, Floats, Requests
from fedkit.estimators.lockstep import Walks, affordable, walk_together
from fedkit.estimators.permutation import check_size
from fedkit.estimators.truncated import guided_orders
from fedkit.methods.fedms_classwise import CoresetTally, Norm, check_settings, distance

__all__ = ["MaverickGTG"]


@dataclass(frozen=True)
class MaverickGTG:
    """MS-GTG: guided sampling with two truncations (FedMS, Algorithm 1).

    Each sweep walks through as many permutations as there are clients; each client leads one.

    Parameters
    ----------
    between, within : float
        eps_b and eps_i (0.001 in the paper): no walk at all if ``|v(N) - v(empty)|`` is not
        above the first; a walk keeps its utility from where ``|v(N) - v(prefix)|`` is below the
        second.  A vector is truncated as a whole.
    temperature : float
        T of Eq. 10.
    norm : {"mean", "max", "sum", "euclidean"}
        Of the vectors in both comparisons; see :func:`distance`.
    convergence, last : float, int
        Eq. 11: stop when the mean relative change of the values from each of the `last` walks
        before is below `convergence` on average.  The paper prints 0.05 and leaves `last` (m)
        open; 10 is that of GTG-Shapley.  The values are weighted with the difficulty of the
        coreset found so far, as the text below Eq. 11 says.
    walks : int, optional
        Exactly this many walks instead.
    max_walks : int, optional
        A cap; by default ``max(30, 2**n)``: more walks than coalitions are a waste.

    Notes
    -----
    Over whole sweeps guided sampling is unbiased: every client stands at every position equally
    often.  Convergence is looked at between sweeps only, so no sweep is left half-way; but the
    stop depends on the values, and truncation skips marginals that need not be zero.
    """

    between: float = 0.001
    within: float = 0.001
    temperature: float = 0.01
    norm: Norm = "mean"
    convergence: float = 0.05
    last: int = 10
    walks: int | None = None
    max_walks: int | None = None

    def __post_init__(self) -> None:
        check_settings(self.temperature, self.norm, between=self.between, within=self.within,
               convergence=self.convergence)  # fmt: skip
        for name in ("last", "walks", "max_walks"):
            check_size(name, getattr(self, name))

    @property
    def stops(self) -> bool:
        """Always: by convergence, or at the cap."""
        return True

    def minimum(self, n_players: int, count: Count) -> int:
        """v(N) and one walk; in distinct evaluations also v(empty)."""
        return n_players + (count == "distinct")

    def weights(self, n_players: int) -> None:
        """None: truncation and the stopping rule decide what is estimated."""
        return None

    def tally(self, n_players: int) -> CoresetTally:
        """Return an empty tally."""
        return CoresetTally(self.temperature)

    def cap(self, n_players: int) -> int:
        """Largest number of walks."""
        if self.walks is not None:
            return self.walks
        return max(30, 2**n_players) if self.max_walks is None else self.max_walks

    def sample(
        self, n_players: int, rng: np.random.Generator, tally: CoresetTally, budget: Budget
    ) -> Requests:
        """Sweep until Eq. 11 holds."""
        n = n_players
        ends = np.zeros((2, n), dtype=np.bool_)
        ends[1] = True
        answers = yield ends
        tally.see(ends, answers)
        empty, grand = answers  # line 5
        tally.info.update(walks=0, converged=True)
        if distance(grand, empty, self.norm) <= self.between:  # line 7
            tally.exact = np.zeros((n, len(grand)))
            return
        tally.info["converged"] = False

        def is_open(previous: Floats) -> NDArray[np.bool_]:  # line 15
            far = distance(grand, previous, self.norm) >= self.within
            return np.broadcast_to(far[:, None], previous.shape)

        history: list[Floats] = []  # phi after each walk, [n, classes]
        total = np.zeros((n, len(grand)))
        cap = self.cap(n)
        while len(history) < cap:  # line 8
            leaders = rng.permutation(n)[: cap - len(history)]
            orders = guided_orders(rng, leaders, n)  # lines 9 to 11
            while len(orders):
                together = affordable(budget, budget.total, n - 1, len(orders))
                walks = yield from _watched(
                    walk_together(
                        orders[:together], np.full(together, n), empty, is_open, budget,
                        budget.total, grand,
                    ),
                    tally,
                )  # fmt: skip
                orders = orders[together:]
                whole = walks.increments[~walks.cut]
                tally.add(whole)  # line 22
                for increments in whole:
                    total = total + increments
                    history.append(total / (len(history) + 1))
                tally.info["walks"] = len(history)
                if budget.exhausted:
                    return
            if self.walks is None and self._converged(history, tally.info["beta"]):
                tally.info["converged"] = True
                return

    def _converged(self, history: list[Floats], beta: Floats) -> bool:
        """Eq. 11, on the difficulty-weighted values."""
        if len(history) <= self.last:
            return False
        recent = np.stack(history[-self.last - 1 :]) @ beta  # [last + 1, n]
        now = recent[-1]
        relative = np.abs(now - recent[:-1]) / np.maximum(np.abs(now), 1e-12)
        return bool(relative.mean() < self.convergence)


def _watched(
    walk: Generator[NDArray[np.bool_], Floats, Walks], tally: CoresetTally
) -> Generator[NDArray[np.bool_], Floats, Walks]:
    """Pass requests and answers through, and look at every coalition on the way."""
    try:
        rows = next(walk)
        while True:
            answers = yield rows
            tally.see(rows, answers)
            rows = walk.send(answers)
    except StopIteration as end:
        finished: Walks = end.value
        return finished
