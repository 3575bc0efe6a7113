"""Proxies one step before the utility: predict what a model says of every image, then count.

An accuracy is a count of images, and hard to predict from few coalitions; the margin by which a
model is right on an image (its logit less the best other) is smooth in the averaging weights.  A
utility evaluation computes all margins anyway.  So the proxy game is ``score(margins that a
Gaussian process predicts)``: no published estimator looks behind the utility.

The margins of a round lie near a space of few dimensions, in which they are predicted: their
principal components over the coalitions of the half that chooses the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkit.estimators.proxies import Fit, choose, fit

__all__ = ["Lifted", "Score"]

Floats = NDArray[np.float64]
Score = Callable[[NDArray[np.floating]], Floats]

COMPONENTS = 32
LEADING = 8  # of them are what kernels are chosen by
FOLDS = 4  # of each half


@dataclass(frozen=True, eq=False)
class Lifted:
    """Predictors of one half's folds: each has seen everything but its fold.

    Attributes
    ----------
    fitted : fedkit.estimators.proxies.Fit
        Of the components, on all rows.
    basis, scale, middle : float32 arrays, shapes (r, m), (m,) and (m,)
        Components back to outputs: ``(z @ basis) * scale + middle``.
    score : callable
    weights : float64 array, shape (folds, B, r)
        Those of `fitted` without the fold.
    """

    fitted: Fit
    basis: NDArray[np.float32]
    scale: NDArray[np.float32]
    middle: NDArray[np.float32]
    score: Score
    weights: Floats

    @classmethod
    def fit(
        cls,
        families: Sequence[str],
        shares: Floats,
        rows: NDArray[np.bool_],
        outputs: Floats,
        seen: NDArray[np.int64],
        folds: list[NDArray[np.int64]],
        score: Score,
    ) -> Lifted:
        """Choose components and kernel by the rows `seen`, fit all rows, leave out fold by fold.

        Parameters
        ----------
        families, shares
            As of :func:`~fedkit.estimators.proxies.choose`.
        rows : bool array, shape (B, n)
            Nobody and everybody first.
        outputs : float64 array, shape (B, m)
        seen : int64 array
            Rows outside all folds, from which the choice is made.
        folds : list of int64 array
        score : callable
        """
        middle = (outputs[0] + outputs[1]) / 2
        spread = outputs[seen].std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        centred = (outputs - middle) / scale
        basis = np.linalg.svd(centred[seen], full_matrices=False)[2][:COMPONENTS]
        parts = centred @ basis.T
        proxy = choose(families, shares, rows[seen], parts[seen, :LEADING])
        found = fit(proxy, rows, parts)
        weights = np.empty((len(folds), *found.weights.shape))
        for k, fold in enumerate(folds):
            left = found.left_out(fold[None])[0]
            weights[k] = found.weights - found.precision[:, fold] @ left
        single = [np.asarray(each, dtype=np.float32) for each in (basis, scale, middle)]
        return cls(found, single[0], single[1], single[2], score, weights)

    def scores(self, components: Floats) -> Floats:
        """Return the score ``[B]`` or ``[B, q]`` of components ``[B, r]``, as ``[B, q]``."""
        outputs = components.astype(np.float32) @ self.basis
        outputs *= self.scale
        outputs += self.middle
        return np.asarray(self.score(outputs), dtype=np.float64).reshape(len(components), -1)

    def predict(self, coalitions: NDArray[np.bool_], fold: int) -> Floats:
        """Return the scores ``[C, q]`` of coalitions, from what has not seen a fold."""
        return self.scores(self._kernel(coalitions) @ self.weights[fold])

    def mean(self, coalitions: NDArray[np.bool_], shares: Floats) -> Floats:
        """Return the mean of the folds' predictions, by `shares`."""
        kernel, result = self._kernel(coalitions), np.zeros(1)
        for share, weights in zip(shares, self.weights, strict=True):
            if share:
                result = result + share * self.scores(kernel @ weights)
        return result

    def _kernel(self, coalitions: NDArray[np.bool_]) -> Floats:
        return self.fitted.proxy.kernel(coalitions, self.fitted.rows)
