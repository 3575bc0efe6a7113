"""Plain Kernel SHAP, of the package shap, as an entry of the arena from outside.

Run ``fedkit arena --method benchmarks.kernel_shap:KernelSHAP --profile paper``.
"""

from __future__ import annotations

import warnings

import numpy as np

__all__ = ["KernelSHAP"]


class KernelSHAP:
    """Shapley values of each round by Kernel SHAP (Lundberg & Lee 2017), six tests per client.

    Two of the tests are of nobody and of everybody.
    """

    sees = ("validation",)

    def values(self, view):
        """Means over the rounds."""
        return view.mean([self._round(r.game(), r.streams) for r in view.rounds()])

    def _round(self, game, streams):
        import shap

        k = game.n_players
        before = np.random.get_state()  # noqa: NPY002 (shap draws from the global stream)
        np.random.seed(streams.sequence("shap").generate_state(1))  # noqa: NPY002
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of more samples than there are coalitions
                explainer = shap.KernelExplainer(lambda z: game(z > 0.5), np.zeros((1, k)))
                tests = min(6 * k, 2**k) - 2
                return explainer.shap_values(np.ones(k), nsamples=tests, l1_reg=0, silent=True)
        finally:
            np.random.set_state(before)  # noqa: NPY002
