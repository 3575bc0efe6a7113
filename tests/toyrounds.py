"""One round of a small federation, as a server sees it."""

import numpy as np

import fedkit as fk
from fedkit.federated.rounds import Round
from fedkit.learning.evaluation import Evaluator


def a_round(k=3, index=2, lr=0.5, validation=0.4):
    """Round of the first k of six clients with IID digits."""
    f = fk.make_federation(fk.load("digits"), 6, fk.IID(), 0, validation=validation)
    arch = fk.build("mlp-8", f.input_shape, f.n_classes)
    base = arch.init(np.random.default_rng(0))
    local = fk.LocalSGD(lr=lr, batch_size=16)
    data = [f.client_data(i) for i in range(k)]
    rngs = [np.random.default_rng(i) for i in range(k)]
    updates = fk.train_clients(arch, base.expand(k, -1), data, local, rngs) - base
    evaluator = Evaluator(arch, f.x_val, f.y_val, "accuracy", device="cpu")
    return Round(
        index, arch, base, updates, np.arange(k), f.sizes[:k], evaluator, local, "uniform",
        fk.Streams(0).child("round", index),
    )  # fmt: skip
