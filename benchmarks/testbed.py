"""Estimators on the test bed: ``python -m benchmarks.testbed --half choosing|final``.

Every estimator, and of shapiq what is installed, on recorded rounds (blind, with the clients' data
sizes, with sizes and margins, where ``benchmarks.recorded`` left these), on retraining and
attribution, and on games in closed form of 12 to 200 players.  Each estimate is a line of the file
``--kept``, so that the same command goes on where it was stopped.  An earlier version stands beside
this one if it is measured from its own checkout with ``--as before``.  ``--save`` puts the files
together into ``results/testbed.csv``, which the book shows; ``--report`` prints that.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedkit as fk
from fedkit.games.exact import banzhaf_weights, beta_weights, semivalue, shapley_weights

Floats = NDArray[np.float64]

RECORD = Path(__file__).parents[1] / "results" / "testbed.csv"
KEPT = Path("_rounds") / "testbed.csv"
MARGINS = Path("_rounds")
BUDGETS = {12: (60, 100, 300, 1000), 30: (90, 300, 1000), 50: (150, 300, 1000), 200: (600, 1200)}
SEEDS = {12: 3, 30: 3, 50: 2, 200: 1}
WEIGHTS = {
    "shapley": shapley_weights,
    "banzhaf": banzhaf_weights,
    "beta": lambda n: beta_weights(n, 4.0, 1.0),
}
FIELDS = ["half", "kind", "game", "way", "value", "players", "budget", "estimator", "seed"]
FOUND = ["error", "equal", "covered", "seconds"]  # as shares of the mean absolute value


@dataclass(frozen=True, eq=False)
class Case:
    """A game as an estimator is shown it, with its exact values."""

    half: str
    kind: str
    game: str
    way: str  # blind, sizes or margins
    value: str  # shapley, banzhaf or beta
    play: fk.Game
    exact: Floats


def recorded_cases(half: str, folder: Path, values: tuple[str, ...]) -> Iterator[Case]:
    """Yield the recorded games of a half, rounds in three ways."""
    for name in fk.games.RECORDED[half]:
        game = fk.games.recorded(name)
        plain = replace(game, sizes=None)
        kind = name.rpartition("-")[2]
        for other in ("retrained", "attribution"):
            kind = other if other in name else kind
        for value in values:
            exact = semivalue(game, WEIGHTS[value](game.n_players))
            yield Case(half, kind, name, "blind", value, plain, exact)
            if value != "shapley" or kind not in ("accuracy", "loss"):
                continue
            yield Case(half, kind, name, "sizes", value, game, exact)
            path = folder / f"{name.removesuffix('-accuracy')}.npz"
            if kind == "accuracy" and path.exists():
                margins = fk.table_game(np.load(path)["margins"])
                lifted = replace(game, lifted=(margins, fk.share_right))
                yield Case(half, kind, name, "margins", value, lifted, exact)


def averaging(n: int, seed: int) -> tuple[fk.Game, Floats]:
    """Return a round of clients of one size whose loss is a square, and its Shapley values.

    The utility of S is ``2 m t - m m`` with m the mean of the members' updates.
    """
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(n, 10)) + rng.normal(size=10)
    target = rng.normal(size=10)

    def utility(rows: NDArray[np.bool_]) -> Floats:
        mean = (rows @ updates) / np.maximum(rows.sum(axis=1, keepdims=True), 1)
        return np.asarray(2 * mean @ target - (mean**2).sum(axis=1))

    along, square = updates @ target, (updates**2).sum(axis=1)
    others = updates.sum(axis=0) - updates
    cross = (updates * others).sum(axis=1)
    square_others = square.sum() - square
    pairs = (others**2).sum(axis=1) - square_others
    values = np.zeros(n)
    for size in range(n):  # of the others in the coalition that is joined
        one, two = size / (n - 1), size * (size - 1) / ((n - 1) * (n - 2))
        if size:
            values -= 2 * (along.sum() - along) / (n - 1)
            values += (one * square_others + two * pairs) / size**2
        values += 2 * (along + one * (along.sum() - along)) / (size + 1)
        values -= (square + one * square_others + 2 * one * cross + two * pairs) / (size + 1) ** 2
    return fk.Game(n, utility), values / n


def closed_cases(half: str, n: int) -> Iterator[Case]:
    """Yield games in closed form of n players; halves differ in seeds and numbers."""
    seed = {"choosing": 1, "final": 2}[half]
    rng = np.random.default_rng([n, seed])
    weights = rng.integers(1, 8, size=n)
    games: dict[str, Any] = {
        "unanimity": fk.random_unanimity_sum(n, 30 * seed, seed),
        "airport": fk.airport(rng.permutation(np.arange(1.0, n + 1)) ** seed),
        "vote": fk.weighted_majority(weights, int(weights.sum() * (0.4 + 0.1 * seed)) + 1),
        "gloves": fk.glove(n // (2 + seed), n - n // (2 + seed)),
    }
    for name, game in games.items():
        plain = fk.Game(n, game.function)
        yield Case(half, "closed", f"{name}-{n}", "blind", "shapley", plain, game.shapley())
    play, exact = averaging(n, seed)
    yield Case(half, "closed", f"averaging-{n}", "blind", "shapley", play, exact)


# --- estimators, each as (case, budget, seed) -> values and ends of intervals, if it has them ---

Run = Callable[[Case, int, int], tuple[Floats, Floats | None]]


def of_fedkit(make: Callable[[Case], Any]) -> Run:
    """Return a run of one of our estimators."""

    def run(case: Case, budget: int, seed: int) -> tuple[Floats, Floats | None]:
        found = fk.estimate(case.play, make(case), budget, seed)
        return found.values, np.array(found.interval()) if found.has_intervals else None

    return run


def regression(case: Case) -> Any:
    """Return the regression for what a case values."""
    if case.value == "shapley":
        return fk.ProxySampling()
    weights = WEIGHTS[case.value](case.play.n_players)
    return fk.ProxySampling(value=case.value if case.value == "banzhaf" else tuple(weights))


def sampler(case: Case) -> Any:
    """Return the best of our estimators that fit nothing."""
    if case.value == "beta":
        return fk.PermutationSampling(antithetic=True, beta=(4.0, 1.0))
    return fk.BanzhafSampling() if case.value == "banzhaf" else fk.MultilinearSampling()


def peers() -> dict[str, Run]:
    """Return shapiq's estimators that learn (of 1.8.0), and its best samplers; none without it."""
    try:
        import shapiq.approximator as shapiq
    except ImportError:
        return {}
    index = {"shapley": "SV", "banzhaf": "BV"}

    def run(make: Callable[[int, int, str], Any], values: tuple[str, ...]) -> Run:
        def one(case: Case, budget: int, seed: int) -> tuple[Floats, Floats | None]:
            if case.value not in values:
                raise ValueError("it has no such value")
            approximator = make(case.play.n_players, seed, index[case.value])

            def utility(rows: Any) -> Floats:
                return case.play(np.atleast_2d(rows).astype(bool))

            found = approximator.approximate(budget, utility)
            return np.asarray(found.get_n_order_values(1)), None

        return one

    one, two = ("shapley",), ("shapley", "banzhaf")
    makers: dict[str, tuple[Callable[[int, int, str], Any], tuple[str, ...]]] = {
        "KernelSHAP": (
            lambda n, s, _: shapiq.KernelSHAP(n, pairing_trick=True, random_state=s),
            one,
        ),
        "LeverageSHAP": (lambda n, s, _: shapiq.LeverageSHAP(n, random_state=s), one),
        "PolySHAP": (lambda n, s, _: shapiq.PolySHAP(n, random_state=s), one),
        "OddSHAP": (lambda n, s, _: shapiq.OddSHAP(n, random_state=s), one),
        "RegressionMSR": (lambda n, s, i: shapiq.RegressionMSR(n, i, random_state=s), two),
        "RegressionMSR, lightgbm": (
            lambda n, s, i: shapiq.RegressionMSR(n, i, proxy_model="lightgbm", random_state=s),
            two,
        ),
        "kernel Banzhaf": (lambda n, s, _: shapiq.RegressionFBII(n, 1, random_state=s), two[1:]),
        "permutations": (lambda n, s, _: shapiq.PermutationSamplingSV(n, random_state=s), one),
        "SVARM": (lambda n, s, _: shapiq.SVARM(n, random_state=s), one),
    }
    return {f"shapiq {name}": run(make, values) for name, (make, values) in makers.items()}


def estimators(name: str) -> dict[str, Run]:
    """Return all estimators by name, the regression under the name given."""
    return {name: of_fedkit(regression), "sampling": of_fedkit(sampler)} | peers()


def measured(run: Run, case: Case, budget: int, seed: int) -> dict[str, Any]:
    """Return error, that of equal shares, coverage and seconds of one estimate."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values, ends = run(case, budget, seed)
    except (ValueError, RuntimeError, np.linalg.LinAlgError):  # below its smallest budget
        return dict.fromkeys(FOUND, "")
    seconds = time.process_time() - start
    size = np.abs(case.exact).mean()
    covered = "" if ends is None else ((ends[0] <= case.exact) & (case.exact <= ends[1])).mean()
    return {
        "error": sqrt(((values - case.exact) ** 2).mean()) / size,
        "equal": case.exact.std() / size,
        "covered": covered,
        "seconds": seconds,
    }


def measure(cases: list[Case], runs: dict[str, Run], kept: Path, seeds: int | None = None) -> None:
    """Add what is missing to the file of estimates."""
    known = {tuple(row[field] for field in FIELDS) for row in read(kept)}
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = not kept.exists()
    with kept.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, *FOUND])
        if new:
            writer.writeheader()
        for case in cases:
            n = case.play.n_players
            for budget in BUDGETS[n]:
                for name, run in runs.items():
                    if case.way != "blind" and (name.startswith("shapiq") or name == "sampling"):
                        continue  # it sees what the blind one sees
                    if n == 200 and budget > 600 and name.startswith("shapiq"):
                        continue
                    for seed in range(seeds or SEEDS[n]):
                        key = (case.half, case.kind, case.game, case.way, case.value)
                        key += (str(n), str(budget), name, str(seed))
                        if key in known:
                            continue
                        found = measured(run, case, budget, seed)
                        writer.writerow(dict(zip(FIELDS, key, strict=True)) | found)
                        file.flush()


def save(files: list[Path]) -> None:
    """Write root mean squared errors over seeds, coverage and seconds into the record.

    What was not measured anew stays as it is there.
    """
    rows: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row in (row for file in files for row in read(file) if row["error"]):
        rows.setdefault(tuple(row[field] for field in FIELDS[:-1]), {})[row["seed"]] = row
    lines = {tuple(row[field] for field in FIELDS[:-1]): [*row.values()] for row in read(RECORD)}
    with RECORD.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*FIELDS[:-1], "seeds", *FOUND])
        for key, by_seed in rows.items():
            some = [*by_seed.values()]
            error = sqrt(np.mean([float(row["error"]) ** 2 for row in some]))
            held = [float(row["covered"]) for row in some if row["covered"]]
            means = [np.mean([float(row[field]) for row in some]) for field in ("equal", "seconds")]
            covered = f"{np.mean(held):.3f}" if held else ""
            found = [f"{error:.4g}", f"{means[0]:.4g}", covered, f"{means[1]:.3f}"]
            lines[key] = [*key, str(len(some)), *found]
        writer.writerows(lines[key] for key in sorted(lines))


def report(rows: list[dict[str, str]]) -> None:
    """Print ratios to the best peer and to the estimator before, coverage and seconds."""
    errors = {tuple(row[field] for field in FIELDS[:-1]): row for row in rows}
    groups: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for key, row in errors.items():
        half, kind, game, way, value, players, budget, name = key
        if name != "ProxySampling":
            continue
        place = (half, kind, game, "blind", value, players, budget)
        peers_of = [
            float(errors[k]["error"]) for k in errors if k[:7] == place and "shapiq" in k[7]
        ]
        before = errors.get((*key[:7], "before"))
        error = float(row["error"])
        group = "rounds" if kind in ("accuracy", "loss") else kind
        groups.setdefault((half, value, group, way, players, budget), []).append(
            (
                error,
                error / min(peers_of, default=np.nan),
                error / float(before["error"]) if before else np.nan,
                float(row["covered"] or np.nan),
                float(row["seconds"]),
            )
        )
    heads = ("error", "/ peer", "/ before", "coverage", "seconds")
    print(f"{'':50}" + "".join(f"{head:>10}" for head in heads))
    order = sorted(groups, key=lambda group: (*group[:4], int(group[4]), int(group[5])))
    for group in order:
        found = np.array(groups[group])
        with np.errstate(divide="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns without numbers
            means = [*np.exp(np.nanmean(np.log(found[:, :3]), axis=0)), *found[:, 3:].mean(axis=0)]
        print(f"{', '.join(group):50}" + "".join(f"{mean:10.3f}" for mean in means))


def read(kept: Path) -> list[dict[str, str]]:
    """Return the rows of a file of estimates."""
    if not kept.exists():
        return []
    with kept.open(newline="") as file:
        return list(csv.DictReader(file))


def main(arguments: list[str] | None = None) -> None:
    """Measure, print what was measured, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=["choosing", "final"], default="final")
    parser.add_argument("--as", dest="name", default="ProxySampling")
    parser.add_argument("--only", nargs="*", default=None, metavar="ESTIMATOR")
    parser.add_argument("--players", type=int, nargs="*", default=list(BUDGETS))
    parser.add_argument("--values", nargs="*", default=["shapley"], choices=list(WEIGHTS))
    parser.add_argument("--kept", type=Path, nargs="+", default=[KEPT])
    parser.add_argument("--margins", type=Path, default=MARGINS)
    parser.add_argument("--seeds", type=int, help="in the place of what suits the players")
    parser.add_argument("--short", action="store_true", help="one seed of three games alone")
    parser.add_argument("--save", action="store_true", help="write results/testbed.csv of --kept")
    parser.add_argument("--report", action="store_true", help="print the record, measure nothing")
    given = parser.parse_args(arguments)
    if given.short:
        given.players = [12]
    if given.save:
        save(given.kept)
    elif not given.report:
        cases: list[Case] = []
        if 12 in given.players:
            cases += recorded_cases(given.half, given.margins, tuple(given.values))
        if "shapley" in given.values:
            for n in given.players:
                cases += closed_cases(given.half, n)
        runs = estimators(given.name)
        if given.only is not None:
            runs = {name: run for name, run in runs.items() if name in given.only}
        if given.short:
            cases, given.seeds = cases[:3], 1
        measure(cases, runs, given.kept[0], given.seeds)
    report(read(RECORD))


if __name__ == "__main__":
    main()
