"""Estimators beside pyDVL and shapiq: overhead, error against evaluations, exact values.

Run ``python -m benchmarks.estimators``.  All games are tables, so a utility costs next to
nothing and what is timed is the estimator's own work.  Peers that are not installed are left
out.  ``main()`` returns everything that is printed.
"""

from __future__ import annotations

import importlib.metadata
import platform
import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import fedkit.estimators as ours
from fedkit.games import (
    Game,
    all_coalitions,
    coalition_index,
    normalise,
    random_unanimity_sum,
    table_game,
    tabulate,
)
from fedkit.methods.fedowen import OwenSampling

SEEDS = 20
PEER_SEEDS = 6  # they are slower
BUDGETS = (100, 300, 1000, 3000)


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def saturating(n: int) -> Game:
    """An accuracy-like game: diminishing returns of unequal clients, and a little noise."""
    rng = np.random.default_rng(0)
    share = rng.exponential(size=n) * 2.0 / n
    rows = all_coalitions(n)
    return table_game(1.0 - np.exp(-(rows @ share)) + 0.004 * rng.normal(size=2**n))


class Counted:
    """A table game for the peers, counting rows asked for and distinct coalitions."""

    def __init__(self, table: Game) -> None:
        self.table = table
        self.rows = 0
        self.codes: list[np.ndarray] = []

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        codes = coalition_index(np.atleast_2d(coalitions))
        self.rows += len(codes)
        self.codes.append(codes)
        return self.table.table[codes]

    @property
    def distinct(self) -> int:
        return len(np.unique(np.concatenate(self.codes)))


# --- the peers, each as (table, budget, seed) -> (values, rows asked for, distinct) -----------

Run = Callable[[Game, int, int], tuple[np.ndarray, int, int]]


def shapiq_runs() -> dict[str, Run]:
    if version("shapiq") is None:
        return {}
    import shapiq

    def run(make: Callable[[int, int], Any]) -> Run:
        def one(table: Game, budget: int, seed: int) -> tuple[np.ndarray, int, int]:
            game = Counted(table)
            result = make(table.n_players, seed).approximate(budget, game)
            return result.get_n_order_values(1), game.rows, game.distinct

        return one

    return {
        "shapiq permutation": run(lambda n, s: shapiq.PermutationSamplingSV(n, random_state=s)),
        "shapiq Owen, 10 anchors": run(lambda n, s: shapiq.OwenSamplingSV(n, 10, random_state=s)),
        "shapiq stratified": run(lambda n, s: shapiq.StratifiedSamplingSV(n, random_state=s)),
        "shapiq SVARM": run(lambda n, s: shapiq.SVARM(n, random_state=s)),
        "shapiq KernelSHAP, paired": run(
            lambda n, s: shapiq.KernelSHAP(n, pairing_trick=True, random_state=s)
        ),
    }


def pydvl_runs() -> dict[str, Run]:
    if version("pydvl") is None:
        return {}
    from pydvl.valuation import (
        AntitheticPermutationSampler,
        BanzhafValuation,
        Dataset,
        MinUpdates,
        MSRSampler,
        PermutationSampler,
        ShapleyValuation,
    )
    from pydvl.valuation.utility.base import UtilityBase

    class Utility(UtilityBase):
        def __init__(self, table: Game) -> None:
            self.values = table.table.tolist()
            self.codes: list[int] = []

        def __call__(self, sample: Any) -> float:
            code = 0 if sample is None else sum(1 << int(i) for i in sample.subset)
            self.codes.append(code)
            return self.values[code]

    def run(kind: Any, make: Callable[[int], Any], per_update: Callable[[int], int]) -> Run:
        def one(table: Game, budget: int, seed: int) -> tuple[np.ndarray, int, int]:
            n = table.n_players
            utility = Utility(table)
            updates = max(budget // per_update(n), 2)
            valuation = kind(utility, make(seed), MinUpdates(updates), progress=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                valuation.fit(Dataset(np.arange(n, dtype=float)[:, None], np.zeros(n)))
            values = np.empty(n)
            values[np.asarray(valuation.result.indices, dtype=int)] = valuation.result.values
            return values, len(utility.codes), len(set(utility.codes))

        return one

    return {
        "pyDVL permutation": run(
            ShapleyValuation, lambda s: PermutationSampler(seed=s), lambda n: n - 1
        ),
        "pyDVL antithetic": run(
            ShapleyValuation, lambda s: AntitheticPermutationSampler(seed=s), lambda n: n - 1
        ),
        "pyDVL MSR (Banzhaf)": run(BanzhafValuation, lambda s: MSRSampler(seed=s), lambda n: 1),
    }


def our_runs() -> dict[str, tuple[Any, str]]:
    """Our estimators, and the exact values that they are measured against."""
    return {
        "permutation": (ours.PermutationSampling(), "shapley"),
        "antithetic permutation": (ours.PermutationSampling(antithetic=True), "shapley"),
        "truncated Monte Carlo 0.01": (ours.TruncatedMonteCarlo(0.01), "shapley"),
        "GTG-Shapley (own stop)": (ours.GTGShapley(), "shapley"),
        "Owen as printed, Q=2": (OwenSampling(2), "shapley"),
        "multilinear, strata": (ours.MultilinearSampling(), "shapley"),
        "multilinear, Gauss": (ours.MultilinearSampling("gauss"), "shapley"),
        "Banzhaf MSR": (ours.BanzhafSampling(), "banzhaf"),
        "Banzhaf marginal": (ours.BanzhafSampling("marginal"), "banzhaf"),
        "Beta(4, 1)": (ours.PermutationSampling(antithetic=True, beta=(4.0, 1.0)), "beta"),
    }


def clock(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the least CPU seconds of this process, which other processes do not disturb."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def peak_mib(function: Callable[[], Any]) -> float:
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


# --- (a) overhead -----------------------------------------------------------------------------


def overhead(peers: dict[str, Run]) -> list[dict[str, Any]]:
    """Microseconds per coalition asked for, n = 10, some 9,000 of them; the least of three runs."""
    table = saturating(10)
    rows = []
    for name, (estimator, _) in our_runs().items():
        sized = normalise(table) if "Owen" in name else table

        def run(game: Any = sized, estimator: Any = estimator) -> Any:
            return ours.estimate(game, estimator, 9000, count="calls")

        seconds, result = clock(run)
        rows.append({"estimator": name, "calls": result.calls, "seconds": seconds})
    many = [ours.PermutationSampling()] * 50
    seconds, results = clock(
        lambda: ours.estimate_many(table, many, 9000, range(50), count="calls"), 1
    )
    calls = sum(result.calls for result in results)
    rows.append({"estimator": "permutation, 50 seeds at once", "calls": calls, "seconds": seconds})
    for name, peer in peers.items():
        size = 500 if "MSR" in name else 9000  # pyDVL's MSR needs a millisecond per coalition
        seconds, (_, asked, _) = clock(lambda peer=peer, size=size: peer(table, size, 0))
        rows.append({"estimator": name, "calls": asked, "seconds": seconds})
    for row in rows:
        row["us_per_call"] = row["seconds"] / row["calls"] * 1e6
    reference = rows[0]["us_per_call"]
    for row in rows:
        row["ratio_to_our_permutation"] = row["us_per_call"] / reference
    return rows


# --- (b) error against distinct evaluations ---------------------------------------------------


def errors(peers: dict[str, Run]) -> list[dict[str, Any]]:
    """Root mean squared error over the mean absolute value, n = 16, mean over seeds."""
    rows = []
    games = {
        "saturating": saturating(16),
        "unanimity sum": tabulate(random_unanimity_sum(16, 40, 1)),
    }
    for game_name, table in games.items():
        exact = {
            "shapley": ours.shapley(table).values,
            "banzhaf": ours.banzhaf(table).values,
            "beta": ours.beta_shapley(table, 4.0, 1.0).values,
        }
        scaled = normalise(table)

        def note(
            name: str,
            target: str,
            budget: int,
            values: np.ndarray,
            distinct: float,
            exact: dict[str, np.ndarray] = exact,
            game_name: str = game_name,
        ) -> None:
            truth = exact[target]
            error = np.sqrt(np.mean((values - truth) ** 2)) / np.abs(truth).mean()
            rows.append(
                {
                    "game": game_name,
                    "estimator": name,
                    "target": target,
                    "budget": budget,
                    "distinct": distinct,
                    "error": float(error),
                }
            )

        for name, (estimator, target) in our_runs().items():
            owen = isinstance(estimator, OwenSampling)
            for budget in BUDGETS:
                results = ours.estimate_many(
                    scaled if owen else table, estimator, budget, range(SEEDS)
                )
                values = np.array([result.values for result in results])
                distinct = float(np.mean([result.evaluations for result in results]))
                note(name, target, budget, scaled.restore(values) if owen else values, distinct)
        for name, peer in peers.items():
            if "MSR" in name:
                continue
            for budget in BUDGETS:
                found = [peer(table, budget, seed) for seed in range(PEER_SEEDS)]
                distinct = float(np.mean([entry[2] for entry in found]))
                values = np.array([entry[0] for entry in found])
                note(name, "shapley", budget, values, distinct)
    return rows


# --- (c) exact values -------------------------------------------------------------------------


def exact_values() -> list[dict[str, Any]]:
    """Seconds (the least of three runs) and peak MiB on top of a table of utilities."""
    rows = []
    for n in (10, 14, 16, 20):
        table = saturating(n)
        for name, solve in (("shapley", ours.shapley), ("banzhaf", ours.banzhaf)):
            seconds, _ = clock(lambda table=table, solve=solve: solve(table))
            memory = peak_mib(lambda table=table, solve=solve: solve(table))
            rows.append({"method": name, "n": n, "seconds": seconds, "peak_mib": memory})
        if version("shapiq") is not None and n <= 16:
            import shapiq

            def peer(table: Game = table, n: int = n) -> Any:
                return shapiq.ExactComputer(game=Counted(table), n_players=n)("SV")

            seconds, _ = clock(peer)
            memory = peak_mib(peer) if n <= 14 else float("nan")
            rows.append({"method": "shapiq exact", "n": n, "seconds": seconds, "peak_mib": memory})
    return rows


def main() -> dict[str, Any]:
    """Run everything, print it, return it."""
    start = time.perf_counter()
    packages = ("numpy", "scipy", "pydvl", "shapiq")
    found = {package: version(package) for package in packages}
    found["python"] = platform.python_version()
    print("versions:", ", ".join(f"{name} {number}" for name, number in found.items()))
    peers = pydvl_runs() | shapiq_runs()
    result: dict[str, Any] = {"versions": found}

    result["overhead"] = overhead(peers)
    print("\noverhead per call, n = 10, table game (limit: Python's own work per block of walks)")
    print(f"{'estimator':32}{'calls':>9}{'us/call':>10}{'ratio':>8}")
    for row in result["overhead"]:
        print(
            f"{row['estimator']:32}{row['calls']:9d}{row['us_per_call']:10.2f}"
            f"{row['ratio_to_our_permutation']:8.1f}"
        )

    result["errors"] = errors(peers)
    for game in dict.fromkeys(row["game"] for row in result["errors"]):
        print(f"\nrelative error at distinct evaluations, n = 16, {game}")
        print(f"{'estimator':28}{'target':>9}" + "".join(f"{b:>16d}" for b in BUDGETS))
        chosen = [row for row in result["errors"] if row["game"] == game]
        for name in dict.fromkeys(row["estimator"] for row in chosen):
            mine = [row for row in chosen if row["estimator"] == name]
            cells = "".join(f"{row['error']:9.4f} @{row['distinct']:<5.0f}" for row in mine)
            print(f"{name:28}{mine[0]['target']:>9} {cells}")

    result["exact"] = exact_values()
    print("\nexact values on top of the table of utilities")
    print(f"{'method':16}{'n':>4}{'ms':>12}{'peak MiB':>12}")
    for row in result["exact"]:
        print(f"{row['method']:16}{row['n']:4d}{row['seconds'] * 1e3:12.2f}{row['peak_mib']:12.1f}")
    result["seconds"] = time.perf_counter() - start
    print(f"\n{result['seconds']:.0f} s in all")
    return result


if __name__ == "__main__":
    main()
