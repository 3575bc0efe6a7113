"""Running estimates: what an estimator adds its samples to, and the driver reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedkit.checks import Bools, Floats, Ints
from fedkit.games.valuation import satterthwaite

FEWEST_UNITS = 10  # independent samples that an interval needs, by measured coverage
BORROWED = 6  # samples as which the players' mean variance counts, by the same


class Accumulator(Protocol):
    """Running estimate of the values.

    Before the first sample there are no values (None), and nobody asks for their errors.  One with
    a method ``see(coalitions, utilities)`` is shown all that the estimator is answered.
    """

    info: dict[str, Any]

    def values(self) -> Floats | None: ...

    def standard_errors(self) -> Floats: ...

    def degrees_of_freedom(self) -> Floats | None:
        """Return those of the standard errors, infinite where these are exact."""
        ...


class MeanAccumulator:
    """Mean of independent samples ``[n]`` or ``[n, m]``, within weighted strata.

    Means and sums of squares are merged block by block (Chan, Golub & LeVeque 1983).  Each player's
    sum of squares counts the players' mean variance as six samples more where that makes it larger.
    `weights` are those of the strata's means, of which the first `certain` are not sampled.
    """

    def __init__(self, weights: Floats | None = None, certain: int = 0) -> None:
        self.weights = np.ones(1) if weights is None else weights
        self.certain = certain
        self.counts = np.zeros(len(self.weights), dtype=np.int64)
        self.info: dict[str, Any] = {}
        self.owner = "the estimator"  # this and the next two are set by the driver
        self.n_players: int | None = None
        self.met_few = False  # the coalitions that were met are hardly more than a walk's
        self._mean: Floats | None = None
        self._squares: Floats = np.zeros(0)

    def add(self, samples: Floats, stratum: int = 0) -> None:
        """Add ``[k, n]`` or ``[k, n, m]`` independent samples of one stratum."""
        samples = np.asarray(samples, dtype=np.float64)
        if samples.ndim not in (2, 3) or self.n_players not in (None, samples.shape[1]):
            fault = f"of shape {samples.shape}"
        else:
            fault = "" if np.isfinite(samples).all() else "with a NaN or an infinity"
        if fault:
            raise ValueError(f"{self.owner} added samples {fault}; expected finite [k, n(, m)]")
        k = len(samples)
        if k == 0:
            return
        if self._mean is None:
            self._mean = np.zeros((len(self.weights), *samples.shape[1:]))
            self._squares = np.zeros_like(self._mean)
        # walks of nobody are zeros that do not know yet how many outputs the game has
        if samples.ndim > self._mean.ndim:
            self._mean = np.repeat(self._mean[..., None], samples.shape[-1], axis=-1)
            self._squares = np.repeat(self._squares[..., None], samples.shape[-1], axis=-1)
        elif samples.ndim < self._mean.ndim:
            samples = np.repeat(samples[..., None], self._mean.shape[-1], axis=-1)
        before = int(self.counts[stratum])
        mean = samples.mean(axis=0)
        shift = mean - self._mean[stratum]
        self._mean[stratum] += shift * (k / (before + k))
        self._squares[stratum] += ((samples - mean) ** 2).sum(axis=0)
        self._squares[stratum] += shift**2 * (before * k / (before + k))
        self.counts[stratum] += k

    def values(self) -> Floats | None:
        """Return the weighted sum of the strata's means; NaN while a stratum is empty."""
        if self._mean is None:
            return None
        result: Floats = np.tensordot(self.weights, self._mean, axes=1)
        return np.full_like(result, np.nan) if (self.counts == 0).any() else result

    def standard_errors(self) -> Floats:
        """Return the standard errors; NaN where a stratum has less than two samples, or repeats."""
        if (self.counts < 2).any() or self._repeats():
            return np.full(self._squares.shape[1:], np.nan)
        return np.asarray(np.sqrt(self._variances().sum(axis=0)))

    def _repeats(self) -> bool:
        """Whether all samples are the same, and too few, or of hardly more than one walk."""
        sampled = slice(self.certain, None)
        count = self.counts[sampled].sum()
        if self._mean is None or not count or not (count < FEWEST_UNITS or self.met_few):
            return False
        size = np.square(self._mean[sampled]).max(initial=0.0)
        return bool(self._squares[sampled].max(initial=0.0) <= 1e-24 * size)

    def degrees_of_freedom(self) -> Floats | None:
        """Return Satterthwaite's; NaN if all strata together have too few samples beyond one."""
        if (self.counts < 2).any():
            return None
        sampled = self.counts[self.certain :]
        if len(sampled) and (sampled - 1).sum() < FEWEST_UNITS - 1:
            return np.full(self._squares.shape[1:], np.nan)
        return satterthwaite(self._variances(), self.counts)

    def _variances(self) -> Floats:
        """Return what each stratum adds to the variance."""
        counts = self.counts.reshape(-1, *(1,) * (self._squares.ndim - 1))
        weights = self.weights.reshape(counts.shape)
        own = self._squares / (counts - 1.0)
        pooled = own.mean(axis=1, keepdims=True)
        borrowed = (self._squares + BORROWED * pooled) / (counts - 1.0 + BORROWED)
        return weights**2 / counts * np.maximum(own, borrowed)


class GroupAccumulator:
    """Mean of samples that come in dependent groups, with errors from the largest unit.

    `sizes` are those of the units, ascending from 1 to that of the independent group; the mean is
    over whole units of size `pair`, if there is one.  Where smaller units of a group may repeat,
    `rotations` says how many of them differ.
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


class ContrastAccumulator:
    """Mean utility of the coalitions with a player minus that of those without.

    Every utility informs all players: Wang & Jia's (2023) maximum sample reuse.  The mean variance
    over players and sides counts as six coalitions more on each side where it is larger.
    """

    def __init__(self, n_players: int) -> None:
        self.n_players = n_players
        self.info: dict[str, Any] = {}
        self._counts = np.zeros((2, n_players), dtype=np.int64)  # without, with
        self._sums = self._squares = np.zeros((2, n_players))  # later [2, n(, m)]
        self._origin: Floats | float = 0.0

    def add(self, coalitions: Bools, utilities: Floats) -> None:
        """Add the utilities of independent random coalitions."""
        if len(utilities) == 0:
            return
        if not self._counts.any():
            self._sums = np.zeros((2, self.n_players, *utilities.shape[1:]))
            self._squares = np.zeros_like(self._sums)
            self._origin = utilities[0].copy()  # centred sums of squares do not cancel
        centred = utilities - self._origin
        for side, mask in enumerate((~coalitions, coalitions)):
            self._sums[side] += mask.T.astype(np.float64) @ centred
            self._squares[side] += mask.T.astype(np.float64) @ centred**2
            self._counts[side] += mask.sum(axis=0)

    def values(self) -> Floats | None:
        """Return the contrasts; NaN for a player seen on one side only."""
        if not self._counts.any():
            return None
        counts = self._wide(self._counts)
        means = np.where(counts > 0, self._sums / np.maximum(counts, 1), np.nan)
        return means[1] - means[0]

    def standard_errors(self) -> Floats:
        """Return the standard errors; NaN with fewer than two coalitions on a side."""
        return np.asarray(np.sqrt(self._variances().sum(axis=0)))

    def degrees_of_freedom(self) -> Floats:
        """Return Welch's degrees of freedom; NaN with fewer than ten coalitions on a side."""
        found = satterthwaite(self._variances(), np.maximum(self._counts, 2))
        found[(self._counts < FEWEST_UNITS).any(axis=0)] = np.nan
        return found

    def _wide(self, counts: Ints) -> Ints:
        return counts.reshape(2, self.n_players, *(1,) * (self._sums.ndim - 2))

    def _variances(self) -> Floats:
        counts = self._wide(self._counts)
        safe = np.maximum(counts, 1)
        squares = np.maximum(self._squares - self._sums**2 / safe, 0.0)
        pooled = squares.sum(axis=(0, 1)) / max(int((safe - 1).sum()), 1)
        own = squares / np.maximum(safe - 1, 1)
        borrowed = (squares + BORROWED * pooled) / (safe - 1 + BORROWED)
        return np.where(counts >= 2, np.maximum(own, borrowed) / safe, np.nan)


@dataclass
class FinishedAccumulator:
    """An estimate that comes in one piece: values, standard errors, degrees of freedom."""

    found: tuple[Floats | None, Any, Floats | None] = (None, None, None)
    info: dict[str, Any] = field(default_factory=dict)

    def values(self) -> Floats | None:
        return self.found[0]

    def standard_errors(self) -> Floats:
        return np.asarray(self.found[1])

    def degrees_of_freedom(self) -> Floats | None:
        return self.found[2]
