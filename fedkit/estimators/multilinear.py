"""Unbiased sampling of Owen's multilinear extension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedkit.checks import choice, flag
from fedkit.estimators.base import (
    FEWEST_UNITS,
    LARGEST_BLOCK,
    Budget,
    Count,
    Estimator,
    Floats,
    MeanAccumulator,
    Requests,
    blocks,
    check_size,
    neighbour_marginals,
    neighbourhoods,
    prefixes,
    random_orders,
    walk_marginals,
)
from fedkit.games.exact import shapley_weights

__all__ = ["MultilinearSampling"]

STRATA = 8
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class MultilinearSampling(Estimator):
    """The Shapley value as ``integral of e_j(q) dq`` (Owen 1972; FedOwen, Eq. 6), unbiased.

    What FedOwen's text describes and its Algorithm 1 does not do: inclusion levels spread over
    [0, 1], and each mask paired with its complement at level 1 - q.

    Parameters
    ----------
    nodes : {"strata", "gauss"}
        ``"strata"``: every player j draws its own level ``u_j``, uniform on [0, 1], and a mask
        at level q holds the players with ``u_j <= q``.  As q grows from 0 to 1 the mask changes
        n times, and player j enters it at ``q = u_j``: one walk, in which each of the n
        evaluations gives a marginal at a level drawn for it.  The levels of a player are then
        shifted by k/levels (modulo 1), k = 0..levels-1, which puts one into every stratum; and
        the n players' levels are a Latin hypercube, so that a shift moves the same number of
        players each time.
        ``"gauss"``: masks at Gauss-Legendre nodes, chosen with the nodes' weights; a mask and
        its n neighbours give every player a marginal.
    levels : int, optional
        Number of strata (default 8: half the error of 2 and fewer on saturating games and sums
        of unanimity games), or of Gauss nodes (default ``ceil(n / 2)``, which removes
        the quadrature bias: the integrand is a polynomial of degree n - 1).
    antithetic : bool
        Pair each mask at q with its complement at 1 - q.
    draws : int, optional
        Number of independent draws, each of `levels` walks (or one mask), twice as many when
        antithetic; where the budget does not stop earlier.

    Notes
    -----
    Every single walk or mask is unbiased by itself, whatever the number of strata, so that the
    pairs which a small budget leaves of a draw still count; half a pair counts only where there
    is no whole one, for it would bring the noise back that pairing removed.  The independent
    unit of the standard errors is the draw; with fewer than ten of them, too few for an interval,
    it is the antithetic pair (or the single walk), which makes the errors conservative: two to five
    times what they are for some players.  An order of n players has n rotations only, so that with
    more levels than players the walks of a draw repeat: then the unit is the draw as soon as there
    are two, there is no interval below ten, and of one draw with more than n pairs no error either.
    Gauss nodes follow a Kronecker sequence with a random start, so that their standard errors are
    conservative too.

    A mask with its n neighbours costs n + 1 evaluations for a marginal of each player; a walk
    costs n, and its marginals share their utilities.  ``benchmarks/estimators.py`` measures the
    error of both per evaluation.
    """

    nodes: Literal["strata", "gauss"] = "strata"
    levels: int | None = None
    antithetic: bool = True
    draws: int | None = None

    def __post_init__(self) -> None:
        choice("nodes", self.nodes, ("strata", "gauss"))
        flag("antithetic", self.antithetic)
        check_size("levels", self.levels)
        check_size("draws", self.draws)

    def minimum(self, n_players: int, count: Count) -> int:
        return n_players + (count == "distinct" or self.nodes == "gauss")

    def rule(self, n_players: int) -> tuple[Floats, Floats]:
        """Return the Gauss-Legendre nodes in (0, 1) and their weights, which sum to 1."""
        points = (n_players + 1) // 2 if self.levels is None else self.levels
        nodes, weights = np.polynomial.legendre.leggauss(points)
        return (nodes + 1.0) / 2.0, weights / 2.0

    def weights(self, n_players: int) -> Floats:
        """Shapley's weights; with too few Gauss nodes, those of the quadrature."""
        if self.nodes == "strata" or self.levels is None:
            return shapley_weights(n_players)
        q, weight = self.rule(n_players)
        s = np.arange(n_players)[:, None]
        result: Floats = (weight * q**s * (1.0 - q) ** (n_players - 1 - s)).sum(axis=1)
        return result

    def accumulator(self, n_players: int) -> GroupAccumulator:
        pair = 2 if self.antithetic else 1
        strata = 1 if self.nodes == "gauss" else (self.levels or STRATA)
        rotations = n_players if strata > n_players else None
        return GroupAccumulator(sorted({1, pair, pair * strata}), pair, rotations)

    def sample(
        self,
        n_players: int,
        rng: np.random.Generator,
        accumulator: GroupAccumulator,
        budget: Budget,
    ) -> Requests:
        walk = self._strata if self.nodes == "strata" else self._gauss
        yield from walk(n_players, rng, accumulator)

    def _strata(self, n: int, rng: np.random.Generator, accumulator: GroupAccumulator) -> Requests:
        empty = yield np.zeros((1, n), dtype=np.bool_)
        strata = self.levels or STRATA
        shifts = np.array(sorted(range(strata), key=_reversed_bits))[:, None] / strata
        largest = max(LARGEST_BLOCK // accumulator.sizes[-1], 1)
        for size in blocks(self.draws, largest=largest):
            ranks = random_orders(rng, size, n)
            levels = (ranks + rng.random((size, 1))) / n  # u_j: a Latin hypercube
            shifted = (levels[:, None, :] + shifts) % 1.0  # one level in every stratum
            orders = np.argsort(shifted, axis=2)  # players in the order in which masks grow
            if self.antithetic:  # u_j -> 1 - u_j: every mask becomes a complement
                orders = np.stack([orders, orders[:, :, ::-1]], axis=2)
            orders = orders.reshape(-1, n)
            utilities = yield prefixes(orders)
            accumulator.add(walk_marginals(orders, utilities, empty[0]))

    def _gauss(self, n: int, rng: np.random.Generator, accumulator: GroupAccumulator) -> Requests:
        q, weight = self.rule(n)
        edges = np.cumsum(weight)[:-1]
        start, visited = rng.random(), 0
        for size in blocks(self.draws, largest=LARGEST_BLOCK // 2):
            turn = (start + GOLDEN * np.arange(visited, visited + size)) % 1.0
            visited += size
            level = q[np.searchsorted(edges, turn)][:, None]
            masks = rng.random((size, n)) < level
            if self.antithetic:
                masks = np.stack([masks, ~masks], axis=1).reshape(-1, n)
            utilities = yield neighbourhoods(masks)
            accumulator.add(neighbour_marginals(masks, utilities))


def _reversed_bits(k: int) -> float:
    """Return the van der Corput number of k: successive shifts then lie far apart."""
    return sum((k >> bit & 1) / 2.0 ** (bit + 1) for bit in range(k.bit_length()))


class GroupAccumulator:
    """Mean of samples that come in dependent groups, with errors from the largest unit.

    `sizes` of the units ascend from 1 to that of the independent group; the mean is taken over
    those of size `pair`, or over single samples where not even one is whole.  Where smaller units
    of a group may repeat, `rotations` is how many of them differ.
    """

    def __init__(self, sizes: list[int], pair: int, rotations: int | None = None) -> None:
        self.sizes = sizes
        self._pair, self._rotations = sizes.index(pair), rotations
        self.info: dict[str, Any] = {}
        self._units = [MeanAccumulator() for _ in sizes]

    def add(self, samples: Floats) -> None:
        """Add whole groups of samples, the last of which may be short once only."""
        for size, unit in zip(self.sizes, self._units, strict=True):
            whole = len(samples) // size
            grouped = samples[: whole * size].reshape(whole, size, *samples.shape[1:])
            unit.add(grouped.mean(axis=1))
        self.info["samples"] = int(self._units[0].counts[0])

    def values(self) -> Floats | None:
        """Return the mean over all whole pairs."""
        paired = self._units[self._pair].values()
        return self._units[0].values() if paired is None else paired

    def standard_errors(self) -> Floats:
        """Return those of the unit; NaN where it stands for a group and surely repeats."""
        unit = self._unit()
        found = unit.standard_errors()
        if self._stands_in(unit) and unit.counts[0] > (self._rotations or 0):
            return np.full_like(found, np.nan)
        return found

    def degrees_of_freedom(self) -> Floats | None:
        """Return those of the unit; NaN where it stands for a group and may repeat."""
        unit = self._unit()
        found = unit.degrees_of_freedom()
        return np.full_like(found, np.nan) if found is not None and self._stands_in(unit) else found

    def _stands_in(self, unit: MeanAccumulator) -> bool:
        return self._rotations is not None and unit is not self._units[-1]

    def _unit(self) -> MeanAccumulator:
        """The largest unit that there is enough of for an interval, or for errors if it repeats."""
        # single walks do not stand in for pairs: a walk and its reverse may be alike
        groups = [unit for unit in self._units[self._pair :] if unit.counts[0] >= 2]
        if self._rotations is not None:
            groups = groups[-1:]
        enough = [unit for unit in groups if unit.counts[0] >= FEWEST_UNITS]
        return enough[-1] if enough else groups[0] if groups else self._units[0]
