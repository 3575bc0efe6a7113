"""The same jobs in three libraries: lines to write, seconds, error.

Run ``python -m benchmarks.jobs``.  Ten clients trained an MLP on the digits for a round, and each
program below starts from ``net, base, updates, sizes, x, y``.  Lines are those of the program as it
stands, imports apart; what a library does not offer is left out, and so is one that is not
installed.  Payments in the least core are not unique: there is no error of them.  200 evaluations
are of distinct coalitions; pyDVL counts updates, so that it has as many as come to 200, for which
it calls the utility some 330 times (Shapley) and 220 (Banzhaf).  fedkit sees more of a round than
the others, as its users do: the margins behind an accuracy, and the data sizes.
"""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.estimators import version

WEIGHED = """
def value(clients):
    share = sizes[clients] / max(sizes[clients].sum(), 1)
    vector_to_parameters(base + share @ updates[clients], net.parameters())
    return float((net(x).argmax(dim=1) == y).float().mean())
"""
ROUND = """
game = fk.round_game(net, base, None, sizes, x, y, updates=updates)
"""
SHAPIQ = (
    WEIGHED
    + """
def game(coalitions):
    return np.array([value(np.flatnonzero(c)) for c in np.atleast_2d(coalitions)])
"""
)
PYDVL = (
    WEIGHED
    + """
class Utility(UtilityBase):
    def __call__(self, sample):
        return value(np.array([] if sample is None else sample.subset, dtype=int))
data = Dataset(np.zeros((10, 1)), np.zeros(10))
"""
)
FIT = """
found.fit(data)
values = found.result.sort(key="index").values
"""
JOBS: dict[str, dict[str, str]] = {
    "exact Shapley values": {
        "fedkit": ROUND + "values = fk.shapley(game).values",
        "shapiq": SHAPIQ
        + 'values = shapiq.ExactComputer(game=game, n_players=10)("SV").get_n_order_values(1)',
        "pydvl": PYDVL
        + "found = ShapleyValuation(Utility(), DeterministicUniformSampler(), NoStopping(), "
        "progress=False)" + FIT,
    },
    "Shapley values, 200 evaluations": {
        "fedkit": ROUND
        + "values = fk.estimate(game, fk.ProxySampling(sizes=sizes), budget=200).values",
        "shapiq": SHAPIQ
        + "values = shapiq.KernelSHAP(10, random_state=0).approximate(200, game)"
        ".get_n_order_values(1)",
        "pydvl": PYDVL
        + "found = ShapleyValuation(Utility(), AntitheticPermutationSampler(seed=0), "
        "MinUpdates(30), progress=False)" + FIT,
    },
    "with 95% intervals": {
        "fedkit": ROUND
        + "found = fk.estimate(game, fk.ProxySampling(sizes=sizes), budget=200)\n"
        "values, (low, high) = found.values, found.interval()",
        "pydvl": PYDVL
        + "found = ShapleyValuation(Utility(), AntitheticPermutationSampler(seed=0), "
        "MinUpdates(30), progress=False)" + FIT
        + 'errors = found.result.sort(key="index").stderr\n'
        "low, high = values - 1.96 * errors, values + 1.96 * errors",
    },
    "Banzhaf values, 200 evaluations": {
        "fedkit": ROUND
        + 'values = fk.estimate(game, fk.ProxySampling(sizes=sizes, value="banzhaf"), 200).values',
        "shapiq": SHAPIQ
        + 'values = shapiq.RegressionFBII(n=10, max_order=1, random_state=0)'
        ".approximate(200, game).get_n_order_values(1)",
        "pydvl": PYDVL
        + "found = BanzhafValuation(Utility(), MSRSampler(seed=0), MinUpdates(100), "
        "progress=False)" + FIT,
    },
}  # fmt: skip


def world() -> dict[str, Any]:
    """A round of ten clients, as torch users have it."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    x = torch.from_numpy(images[order] / 16).float()
    y = torch.from_numpy(labels[order])
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    base = parameters_to_vector(net.parameters()).detach().clone()
    ends = 400 + np.cumsum(np.concatenate([[0], rng.integers(20, 180, 10)]))
    updates = []
    for first, last in itertools.pairwise(ends):
        vector_to_parameters(base.clone(), net.parameters())  # parameters share its memory
        step = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(20):
            step.zero_grad()
            torch.nn.functional.cross_entropy(net(x[first:last]), y[first:last]).backward()
            step.step()
        updates.append(parameters_to_vector(net.parameters()).detach() - base)
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    return {
        "net": net, "base": base, "updates": torch.stack(updates), "x": x[:400], "y": y[:400],
        "sizes": torch.from_numpy(np.diff(ends)).float(), "np": np, "torch": torch,
        "vector_to_parameters": vector_to_parameters,
    }  # fmt: skip


def names(library: str) -> dict[str, Any]:
    """What a program may use of a library."""
    if library == "fedkit":
        import fedkit as fk

        return {"fk": fk}
    if library == "shapiq":
        import shapiq

        return {"shapiq": shapiq}
    import pydvl.valuation as pydvl
    from pydvl.valuation.utility.base import UtilityBase

    return {**vars(pydvl), "UtilityBase": UtilityBase}


def lines(program: str) -> int:
    """Lines of a program, empty ones apart."""
    return sum(bool(line.strip()) for line in program.splitlines())


def measured() -> list[dict[str, Any]]:
    """One row per job and library: lines, seconds, error relative to the exact answer."""
    rows: list[dict[str, Any]] = []
    there = [name for name in ("fedkit", "shapiq", "pydvl") if name == "fedkit" or version(name)]
    common = world()
    truths: dict[str, np.ndarray] = {}
    for library in there:
        offered = names(library)
        for job, programs in JOBS.items():
            if library not in programs:
                continue
            scope = {**offered, **common}
            code = compile(programs[library], f"{library}: {job}", "exec")
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(code, scope)
            seconds = time.process_time() - start
            values = np.asarray(scope["values"], dtype=np.float64)
            if library == "fedkit":
                truths[job] = values
                if "evaluations" in job or "intervals" in job:
                    import fedkit as fk

                    exact = fk.banzhaf if "Banzhaf" in job else fk.shapley
                    truths[job] = exact(scope["game"]).values
            if job == "least core":
                truths[job] = np.full(10, np.nan)
            error = np.sqrt(np.mean((values - truths[job]) ** 2)) / np.abs(truths[job]).mean()
            rows.append(
                {"job": job, "library": library, "lines": lines(programs[library]),
                 "seconds": seconds, "error": float(error)}
            )  # fmt: skip
    return rows


def main() -> None:
    """Print the table."""
    print(f"{'job':34}{'library':10}{'lines':>6}{'seconds':>10}{'error':>10}")
    for row in measured():
        print(
            f"{row['job']:34}{row['library']:10}{row['lines']:6d}{row['seconds']:10.3f}"
            f"{row['error']:10.4f}".replace("nan", "  -")
        )


if __name__ == "__main__":
    main()
