"""Estimators that draw coalitions at inclusion levels or of given sizes, not by walking.

Of Owen's multilinear extension, of the Banzhaf value, and in complementary pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedkit.checks import Bools, Floats, choice, flag, whole_or_none
from fedkit.estimators.accumulators import ContrastAccumulator, GroupAccumulator, MeanAccumulator
from fedkit.estimators.driver import Budget, Count, Estimator, Requests, Rng
from fedkit.estimators.walks import LARGEST_BLOCK, blocks, prefixes, random_orders, walk_marginals
from fedkit.games.exact import banzhaf_weights, shapley_weights

STRATA = 8
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class MultilinearSampling(Estimator):
    """The Shapley value as ``integral of e_j(q) dq`` (Owen 1972; FedOwen, Eq. 6), unbiased.

    Parameters
    ----------
    nodes : {"strata", "gauss"}
        ``"strata"``: every player j draws its own level ``u_j``, uniform on [0, 1], and a mask
        at level q holds the players with ``u_j <= q``: as q grows from 0 to 1 it is one walk.  The
        levels are then shifted by k/levels (modulo 1), which puts one into every stratum; the n
        players' levels are a Latin hypercube.
        ``"gauss"``: masks at Gauss-Legendre nodes, chosen with the nodes' weights; a mask and
        its n neighbours give every player a marginal.
    levels : int, optional
        Number of strata (default 8), or of Gauss nodes (default ``ceil(n / 2)``, which removes
        the quadrature bias).
    antithetic : bool
        Pair each mask at q with its complement at 1 - q.
    draws : int, optional
        Number of draws: ``levels`` walks with strata, one mask with Gauss nodes, twice of either
        if antithetic; where the budget does not stop earlier.

    Notes
    -----
    The independent unit of the standard errors is the draw; with fewer than ten of them it is the
    antithetic pair (or the single walk), which makes the errors conservative.  With more levels
    than players the walks of a draw repeat: then there is no interval below ten draws.
    """

    nodes: Literal["strata", "gauss"] = "strata"
    levels: int | None = None
    antithetic: bool = True
    draws: int | None = None

    def __post_init__(self) -> None:
        choice("nodes", self.nodes, ("strata", "gauss"))
        flag("antithetic", self.antithetic)
        whole_or_none("levels", self.levels)
        whole_or_none("draws", self.draws)

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

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        walk = self._strata if self.nodes == "strata" else self._gauss
        yield from walk(n_players, rng, accumulator)

    def _strata(self, n: int, rng: Rng, accumulator: GroupAccumulator) -> Requests:
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

    def _gauss(self, n: int, rng: Rng, accumulator: GroupAccumulator) -> Requests:
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


def neighbourhoods(coalitions: Bools) -> Bools:
    """Return each coalition and its n neighbours, ``[k * (n + 1), n]`` for ``[k, n]``."""
    k, n = coalitions.shape
    changes = np.concatenate([np.zeros((1, n), dtype=np.bool_), np.eye(n, dtype=np.bool_)])
    rows: Bools = np.logical_xor(coalitions[:, None, :], changes)
    return rows.reshape(k * (n + 1), n)


def neighbour_marginals(coalitions: Bools, utilities: Floats) -> Floats:
    """Return every player's marginal at each coalition whose neighbours are all there."""
    n = coalitions.shape[1]
    whole = len(utilities) // (n + 1)
    outputs = utilities.shape[1:]
    groups = utilities[: whole * (n + 1)].reshape(whole, n + 1, *outputs)
    sign: Floats = np.where(coalitions[:whole], 1.0, -1.0).reshape(whole, n, *(1,) * len(outputs))
    marginals: Floats = sign * (groups[:, :1] - groups[:, 1:])
    return marginals


@dataclass(frozen=True)
class BanzhafSampling(Estimator):
    """Banzhaf values from uniformly random coalitions, the empty and the grand one included.

    Parameters
    ----------
    variant : {"msr", "marginal", "as_printed"}
        ``"msr"`` is Wang & Jia's (2023) maximum sample reuse: mean utility of the coalitions
        with a player minus that of those without.  ``"marginal"`` evaluates a random coalition
        and those that differ from it by one player.  ``"as_printed"`` is FedOwen's Algorithm 4:
        marginals of the absent players alone, but divided by all M draws, half the Banzhaf value.
    draws : int, optional
        Number of random coalitions, where the budget does not stop earlier.
    """

    variant: Literal["msr", "marginal", "as_printed"] = "msr"
    draws: int | None = None

    def __post_init__(self) -> None:
        choice("variant", self.variant, ("msr", "marginal", "as_printed"))
        whole_or_none("draws", self.draws)

    def minimum(self, n_players: int, count: Count) -> int:
        """Two coalitions, a contrast of some players; or one draw with its neighbours."""
        return 2 if self.variant == "msr" else n_players + 1

    def weights(self, n_players: int) -> Floats:
        """Banzhaf's weights; half of them as printed."""
        return banzhaf_weights(n_players) * (0.5 if self.variant == "as_printed" else 1.0)

    def accumulator(self, n_players: int) -> MeanAccumulator | ContrastAccumulator:
        return ContrastAccumulator(n_players) if self.variant == "msr" else MeanAccumulator()

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        n, msr = n_players, self.variant == "msr"
        for size in blocks(self.draws, largest=1024 if msr else LARGEST_BLOCK):
            coalitions = rng.random((size, n)) < 0.5  # Algorithm 4, lines 2 and 3
            if msr:
                utilities = yield coalitions
                accumulator.add(coalitions[: len(utilities)], utilities)
                accumulator.info["draws"] = accumulator.info.get("draws", 0) + len(utilities)
                continue
            if self.variant == "marginal":
                samples = neighbour_marginals(coalitions, (yield neighbourhoods(coalitions)))
            else:
                asked = [  # line 4: each coalition, and with each absent player
                    np.concatenate([row[None], (row | np.eye(n, dtype=np.bool_))[~row]])
                    for row in coalitions
                ]
                lengths = [len(rows) for rows in asked]
                utilities = yield np.concatenate(asked)
                found = np.split(utilities, np.cumsum(lengths)[:-1])
                whole = sum(len(part) == k for part, k in zip(found, lengths, strict=True))
                samples = np.zeros((whole, n, *utilities.shape[1:]))
                for i in range(whole):
                    samples[i, ~coalitions[i]] = found[i][1:] - found[i][0]  # line 5
            accumulator.add(samples)  # line 8: divided by the number of draws
            accumulator.info["draws"] = int(accumulator.counts[0])


@dataclass(frozen=True)
class ComplementarySampling(Estimator):
    """Coalitions compared with what they leave behind (Zhang et al. 2023, FedTSV's sampler).

    A player's Shapley value is the mean over the sizes s of
    ``E[v(S) - v(N without S) | i in S, |S| = s]``, and a pair informs every player.

    Parameters
    ----------
    rounds : int, optional
        Number of rounds in every size class, where the budget does not stop earlier.

    Notes
    -----
    A size class holds the pairs whose smaller side has s players, ``s = 0 .. floor(n / 2)``.  It is
    sampled in rounds: a random order of the players is cut into ``ceil(n / s)`` coalitions that
    cover all of them (the last takes in some of the one before where s does not divide n; one pair
    is enough where ``2 s = n``).  Rounds are the unit of the standard errors.  The first two
    classes are the same in every round; they are asked for once, without error.  Zhang et al.'s
    Neyman allocation of the pairs to the sizes is left out.
    """

    rounds: int | None = None

    def __post_init__(self) -> None:
        whole_or_none("rounds", self.rounds)

    def minimum(self, n_players: int, count: Count) -> int:
        """One round in every class, both sides of each pair."""
        n = n_players
        return 2 + 2 * sum(_pairs(n, s) for s in range(1, n // 2 + 1)) - (count == "calls")

    def weights(self, n_players: int) -> Floats:
        return shapley_weights(n_players)

    def accumulator(self, n_players: int) -> MeanAccumulator:
        """Return an empty accumulator with one stratum per class, everybody first."""
        return MeanAccumulator(np.ones(1 + n_players // 2), certain=2)

    def sample(self, n_players: int, rng: Rng, accumulator: Any, budget: Budget) -> Requests:
        n = n_players
        done = 0
        for size in blocks(self.rounds, largest=16):
            plan = [
                (s, _round(rng, n, s))
                for r in range(done, done + size)
                for s in range(n // 2 + 1)
                if r == 0 or s > 1  # the first two classes are always the same
            ]
            done += size
            if not plan:
                return  # up to three players nothing is random
            utilities = yield np.concatenate([rows for _, rows in plan])
            start = 0
            for s, rows in plan:
                answers = utilities[start : start + len(rows)]
                start += len(rows)
                if len(answers) < len(rows):
                    return
                sample = _contributions(rows[0::2], answers[0::2] - answers[1::2])
                # what has no error is added twice: two equal samples have none
                accumulator.add(np.stack([sample] * (2 if s < 2 else 1)), s)
                accumulator.info["rounds"] = int(accumulator.counts[-1]) if n > 3 else 1


def _pairs(n: int, s: int) -> int:
    """Return the number of pairs of a round of class s; 0 is that of everybody and nobody."""
    return 1 if s in (0, n / 2) else -(-n // s)


def _round(rng: Rng, n: int, s: int) -> Bools:
    """Return the coalitions of a round, each followed by its complement: ``bool[2 pairs, n]``."""
    pairs = _pairs(n, s)
    rows = np.ones((pairs, n), dtype=np.bool_)
    if s:
        order = random_orders(rng, 1, n)[0]
        first = np.minimum(np.arange(pairs) * s, n - s)  # the last coalition ends with the order
        place = np.argsort(order)
        rows = (place >= first[:, None]) & (place < first[:, None] + s)
    return np.stack([rows, ~rows], axis=1).reshape(2 * pairs, n)


def _contributions(members: Bools, differences: Floats) -> Floats:
    """Return a round's share in every player's value, from the differences ``[pairs(, m)]``."""
    pairs, n = members.shape
    inside = members.T.astype(np.float64)
    if members.sum() == pairs * n:  # everybody and nobody: one size
        return np.asarray(inside @ differences) / n
    if pairs == 1:  # two halves: one size, which half the players meet with the other sign
        return np.asarray((2 * inside - 1) @ differences) / n
    outside = 1 - inside
    inside /= inside.sum(axis=1, keepdims=True)
    outside /= outside.sum(axis=1, keepdims=True)
    return np.asarray((inside - outside) @ differences) / n
