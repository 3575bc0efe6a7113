"""Values of 50, 200 and 1,000 clients: time, memory, error and how often intervals hold.

Run ``python -m benchmarks.many_clients``; it writes the table of the page *Jobs, and what they
cost*.  The game saturates as an accuracy does, with clients of unequal sizes: what joins, adds
less the more data is there.  Its Shapley values are an integral over Owen's inclusion level, by
Gauss-Legendre quadrature.  The utility costs next to nothing, so that seconds and memory are those
of the estimator.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd

import fedkit as fk

TABLE = Path(__file__).parent.parent / "book" / "many-clients.csv"
SEEDS = (0, 1)
NODES = 200
STEEP = 3.0  # the whole data bring 1 - exp(-3) of what can be had
EVERY = 10**6
METHODS = {  # estimator, evaluations a client, and how many clients it takes in minutes
    "ProxySampling, 6 a client": (fk.ProxySampling(), 6, 400),
    "ProxySampling, 20 a client": (fk.ProxySampling(), 20, 400),
    "MultilinearSampling, 6 a client": (fk.MultilinearSampling(), 6, EVERY),
    "MultilinearSampling, 20 a client": (fk.MultilinearSampling(), 20, EVERY),
    "MultilinearSampling, 100 a client": (fk.MultilinearSampling(), 100, EVERY),
    "PermutationSampling, 100 a client": (fk.PermutationSampling(antithetic=True), 100, EVERY),
}


def shares(clients: int) -> np.ndarray:
    """Data of each client, as a share of all, float64[clients]."""
    sizes = np.random.default_rng(clients).integers(20, 500, clients)
    return sizes / sizes.sum()


def exact(data: np.ndarray) -> np.ndarray:
    """Shapley values: mean marginals where everybody else is in with chance q, over all q."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    left = np.exp(-STEEP * data)  # of what is missing, after a client has joined
    values = np.zeros(len(data))
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        kept = 1 - node + node * left
        values += weight * (1 - left) * np.exp(np.log(kept).sum()) / kept
    return values


def measured(clients: int, method: str, seed: int) -> dict[str, float]:
    """One estimation, in a process of its own."""
    estimator, each, _ = METHODS[method]
    data = shares(clients)
    game = fk.Game(clients, lambda rows: 1 - np.exp(-STEEP * (rows @ data)))
    game([[True] * clients])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    found = fk.estimate(game, estimator, each * clients + 1, seed)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    truth = exact(data)
    low, high = found.interval()
    return {
        "evaluations": found.evaluations,
        "seconds": seconds,
        "MiB": (after - before) / 1024,
        "error, %": 100 * np.sqrt(np.mean((found.values - truth) ** 2)) / truth.mean(),
        "intervals that hold, %": 100 * np.mean((low <= truth) & (truth <= high))
        if np.isfinite(low).any()
        else np.nan,
    }


def main() -> None:
    """Measure all, print the table and write it."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for clients in (50, 200, 1000):
            for method in (name for name, (_, _, most) in METHODS.items() if clients <= most):
                runs = [pool.apply(measured, (clients, method, seed)) for seed in SEEDS]
                mean = pd.DataFrame(runs).mean()
                rows.append({"clients": clients, "estimator": method, **mean})
                print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table["evaluations"] = table["evaluations"].map("{:,.0f}".format)
    for name, form in (("seconds", "{:.2g}"), ("MiB", "{:.0f}"), ("error, %", "{:.2g}")):
        table[name] = [f"{float(form.format(x)):,.6g}" for x in table[name]]
    held = "intervals that hold, %"
    table[held] = ["none" if np.isnan(share) else f"{share:.0f}" for share in table[held]]
    table.to_csv(TABLE, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
