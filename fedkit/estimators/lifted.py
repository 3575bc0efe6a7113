"""Proxies one step before the utility: predict what a model says of every image, then count.

An accuracy is a count of images, and hard to predict from few coalitions; the margin by which a
model is right on an image (its logit less the best other) is smooth in the averaging weights.  A
utility evaluation computes all margins anyway.  So the proxy game is ``score(margins that a
Gaussian process predicts)``: no published estimator looks behind the utility.

The margins of a round lie near a space of few dimensions, in which they are predicted: their
principal components over the coalitions of the half that chooses the kernel.

A model that has learned nothing has margins near zero, all of which change sides together, and
its accuracy is better predicted as a number.  So a proxy is a mixture of both, by the share that
would have served best for the other folds of its half, each left out with the proxy's own fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.proxies import Fit, Mixture, Proxy, choose, fit

__all__ = ["Blend", "Lifted", "Plain", "Score"]

Floats = NDArray[np.float64]
Score = Callable[[NDArray[np.floating]], Floats]

COMPONENTS = 32
LEADING = 8  # of them are what kernels are chosen by
FOLDS = 4  # of each half

Folds = list[NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Folded:
    """A proxy fitted to all rows, and its weights without each of some folds."""

    fitted: Fit
    values: Floats  # [B, m]
    weights: Floats  # [folds, B, m]

    @classmethod
    def fit(
        cls, proxy: Proxy | Mixture, rows: NDArray[np.bool_], values: Floats, folds: Folds
    ) -> Folded:
        """Fit a proxy to the values ``[B, m]`` of rows, and leave out fold by fold."""
        found = fit(proxy, rows, values)
        weights = np.empty((len(folds), *found.weights.shape))
        for k, fold in enumerate(folds):
            left = found.left_out(fold[None])[0]
            weights[k] = found.weights - found.precision[:, fold] @ left
        return cls(found, values, weights)

    def without(self, group: NDArray[np.int64]) -> Floats:
        """Return the predictions of a group of rows by a fit without them."""
        result: Floats = self.values[group] - self.fitted.left_out(group[None])[0]
        return result

    def kernel(self, coalitions: NDArray[np.bool_]) -> Floats:
        """Return the kernel ``[C, B]`` between coalitions and the rows."""
        return np.asarray(self.fitted.proxy.kernel(coalitions, self.fitted.rows))


@dataclass(frozen=True, eq=False)
class Plain:
    """Predictor of the utility itself, up to a constant."""

    folded: Folded
    middle: Floats  # [q]

    @classmethod
    def choose(
        cls, families: Sequence[str], shares: Floats, rows: NDArray[np.bool_], utilities: Floats
    ) -> Callable[[NDArray[np.bool_], Floats, Floats, Folds], Plain]:
        """Choose a kernel by rows; return what fits it to others and leaves out their folds."""
        middle = (utilities[0] + utilities[1]) / 2
        proxy = choose(families, shares, rows, utilities - middle)

        def fitted(
            rows: NDArray[np.bool_], outputs: Floats, utilities: Floats, folds: Folds
        ) -> Plain:
            return cls(Folded.fit(proxy, rows, utilities - middle, folds), middle)

        return fitted

    def without(self, group: NDArray[np.int64]) -> Floats:
        """Return the utilities of a group of rows, predicted without them."""
        return self.folded.without(group) + self.middle

    def mean(self, coalitions: NDArray[np.bool_], shares: Floats) -> Floats:
        """Return the sum of the folds' predictions, by shares ``[folds, q]``."""
        weights = (shares[:, None] * self.folded.weights).sum(axis=0)
        result: Floats = self.folded.kernel(coalitions) @ weights
        return result + self.middle * shares.sum(axis=0)


@dataclass(frozen=True, eq=False)
class Lifted:
    """Predictor of outputs, by their components, and of the utility that a score makes of them."""

    folded: Folded  # of the components
    basis: NDArray[np.float32]  # [r + 1, m]: components, then a constant one, back to outputs
    score: Score

    @classmethod
    def choose(
        cls,
        families: Sequence[str],
        shares: Floats,
        rows: NDArray[np.bool_],
        outputs: Floats,
        score: Score,
    ) -> Callable[[NDArray[np.bool_], Floats, Floats, Folds], Lifted]:
        """Choose components and kernel by rows, nobody and everybody first; see :class:`Plain`."""
        middle = (outputs[0] + outputs[1]) / 2
        spread = outputs.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        centred = (outputs - middle) / scale
        basis = np.linalg.svd(centred, full_matrices=False)[2][:COMPONENTS]
        proxy = choose(families, shares, rows, centred @ basis[:LEADING].T)
        back = np.concatenate([basis * scale, middle[None]]).astype(np.float32)

        def fitted(
            rows: NDArray[np.bool_], outputs: Floats, utilities: Floats, folds: Folds
        ) -> Lifted:
            parts = ((outputs - middle) / scale) @ basis.T
            return cls(Folded.fit(proxy, rows, parts, folds), back, score)

        return fitted

    def scores(self, components: Floats) -> Floats:
        """Return the score ``[B]`` or ``[B, q]`` of components ``[B, r]``, as ``[B, q]``."""
        outputs = components.astype(np.float32) @ self.basis[:-1]
        outputs += self.basis[-1]
        return np.asarray(self.score(outputs), dtype=np.float64).reshape(len(components), -1)

    def without(self, group: NDArray[np.int64]) -> Floats:
        """Return the scores of a group of rows, predicted without them."""
        return self.scores(self.folded.without(group))

    def mean(self, coalitions: NDArray[np.bool_], shares: Floats) -> Floats:
        """Return the sum of the folds' predictions, by shares ``[folds, q]``."""
        kernel, result = self.folded.kernel(coalitions), np.zeros(1)
        for share, weights in zip(shares, self.folded.weights, strict=True):
            if share.any():
                result = result + share * self.scores(kernel @ weights)
        return result


@dataclass(frozen=True, eq=False)
class Blend:
    """Both, with a share of each fold and utility."""

    lifted: Lifted
    plain: Plain
    share: Floats  # [folds, q] of `lifted`, from 0 to 1

    @classmethod
    def choose(
        cls,
        lifted: Lifted,
        plain: Plain,
        folds: Folds,
        cost: Callable[[NDArray[np.int64], Floats], Floats],
    ) -> Blend:
        """Choose each fold's share by the other folds, left out together with it.

        ``cost(rows, predictions)`` gives residuals ``[K, n, q]`` in units of what they do to the
        error of each value.
        """
        # left[k][j]: residuals of fold j by what has seen neither j nor k
        left: list[list[list[Floats]]] = [[[], []] for _ in folds]
        models: tuple[Lifted | Plain, ...] = (lifted, plain)
        for k, j in combinations([k for k, fold in enumerate(folds) if len(fold)], 2):
            group, cut = np.concatenate([folds[k], folds[j]]), len(folds[k])
            for which, each in enumerate(models):
                found = each.without(group)
                left[j][which].append(cost(folds[k], found[:cut]))
                left[k][which].append(cost(folds[j], found[cut:]))
        shares = np.ones((len(folds), plain.middle.shape[0]))
        for share, both in zip(shares, left, strict=True):
            if both[0]:
                share[:] = best_share(*map(np.concatenate, both))
        return cls(lifted, plain, shares)

    @property
    def name(self) -> str:
        """What it is made of, for people: "80% score of mixture, linear"."""
        share = float(self.share.mean())
        families = [each.folded.fitted.proxy.family for each in (self.lifted, self.plain)]
        if share == 1.0:
            return f"score of {families[0]}"
        return families[1] if share == 0.0 else f"{share:.0%} score of {families[0]}, {families[1]}"

    def predict(self, coalitions: NDArray[np.bool_], fold: int) -> Floats:
        """Return the utilities ``[C, q]`` of coalitions, from what has not seen a fold."""
        one = np.zeros_like(self.share)
        one[fold] = 1.0
        return self.mean(coalitions, one)

    def mean(self, coalitions: NDArray[np.bool_], shares: Floats) -> Floats:
        """Return the sum of the folds' predictions, by shares ``[folds, 1]`` or ``[folds, q]``."""
        result = np.zeros((len(coalitions), self.share.shape[1]))
        for each, part in ((self.lifted, self.share), (self.plain, 1.0 - self.share)):
            if (shares * part).any():
                result += each.mean(coalitions, shares * part)
        return result


def best_share(lifted: Floats, plain: Floats) -> Floats:
    """Return the share of `lifted`, within 0 and 1, that makes mixed residuals smallest."""
    apart = plain - lifted
    square = (apart**2).sum(axis=(0, 1))
    share = np.divide(
        (plain * apart).sum(axis=(0, 1)), square, out=np.ones_like(square), where=square > 0
    )
    share = np.clip(share, 0.0, 1.0)
    return np.where(np.abs(share - 0.5) > 0.49, np.round(share), share)  # not both for a hundredth
