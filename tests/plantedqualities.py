"""Simulations whose accuracies a known quality of the clients has made."""

import numpy as np

from fedkit.methods.fedccea import Simulations


def planted(simulations, noise=0.005, rounds=10, seed=0):
    """Accuracies that a known quality made, through a saturating law."""
    rng = np.random.default_rng(seed)
    quality = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    sizes = rng.random((simulations, rounds, 6))
    used = np.cumsum(sizes @ quality, axis=1)
    accuracy = 0.9 * (1 - np.exp(-used / 8)) + noise * rng.standard_normal(used.shape)
    return quality, Simulations(sizes, accuracy)
