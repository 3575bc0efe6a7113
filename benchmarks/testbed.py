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
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
PLACE = FIELDS[:-1]
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
        import shapiq.approximator as peer
    except ImportError:
        return {}
    index, one, two = {"shapley": "SV", "banzhaf": "BV"}, ("shapley",), ("shapley", "banzhaf")
    # of players, index and seed; and what it values
    makers: dict[str, tuple[Callable[[int, str, int], Any], tuple[str, ...]]] = {
        "KernelSHAP": (lambda n, i, s: peer.KernelSHAP(n, pairing_trick=True, random_state=s), one),
        "LeverageSHAP": (lambda n, i, s: peer.LeverageSHAP(n, random_state=s), one),
        "PolySHAP": (lambda n, i, s: peer.PolySHAP(n, random_state=s), one),
        "OddSHAP": (lambda n, i, s: peer.OddSHAP(n, random_state=s), one),
        "RegressionMSR": (lambda n, i, s: peer.RegressionMSR(n, i, random_state=s), two),
        "RegressionMSR, lightgbm": (
            lambda n, i, s: peer.RegressionMSR(n, i, proxy_model="lightgbm", random_state=s), two,
        ),
        "kernel Banzhaf": (lambda n, i, s: peer.RegressionFBII(n, 1, random_state=s), two[1:]),
        "permutations": (lambda n, i, s: peer.PermutationSamplingSV(n, random_state=s), one),
        "SVARM": (lambda n, i, s: peer.SVARM(n, random_state=s), one),
    }  # fmt: skip

    def of_shapiq(name: str) -> Run:
        def run(case: Case, budget: int, seed: int) -> tuple[Floats, Floats | None]:
            make, values = makers[name]
            if case.value not in values:
                raise ValueError("it has no such value")
            approximator = make(case.play.n_players, index[case.value], seed)
            found = approximator.approximate(
                budget, lambda rows: case.play(np.atleast_2d(rows).astype(bool))
            )
            return np.asarray(found.get_n_order_values(1)), None

        return run

    return {f"shapiq {name}": of_shapiq(name) for name in makers}


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
        "error": np.sqrt(((values - case.exact) ** 2).mean()) / size,
        "equal": case.exact.std() / size,
        "covered": covered,
        "seconds": seconds,
    }


def asked(cases: list[Case], runs: dict[str, Run], seeds: int | None) -> Iterator[tuple]:
    """Yield each estimate that is to be there: its fields, its run and its case."""
    for case in cases:
        n = case.play.n_players
        for budget, (name, run) in product(BUDGETS[n], runs.items()):
            peer = name.startswith("shapiq")
            if case.way != "blind" and (peer or name == "sampling"):
                continue  # it sees what the blind one sees
            if n == 200 and budget > 600 and peer:
                continue
            for seed in range(seeds or SEEDS[n]):
                place = (case.half, case.kind, case.game, case.way, case.value, n, budget, name)
                yield (*place, seed), run, case


def measure(cases: list[Case], runs: dict[str, Run], kept: Path, seeds: int | None = None) -> None:
    """Add what is missing to the file of estimates."""
    known = {tuple(row) for row in read(kept)[FIELDS].to_numpy()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = not kept.exists()
    with kept.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*FIELDS, *FOUND])
        if new:
            writer.writeheader()
        for place, run, case in asked(cases, runs, seeds):
            if tuple(map(str, place)) not in known:
                found = measured(run, case, place[-3], place[-1])
                writer.writerow(dict(zip(FIELDS, place, strict=True)) | found)
                file.flush()


def save(files: list[Path]) -> None:
    """Write root mean squared errors over seeds, coverage and seconds into the record.

    What was not measured anew stays as it is there.
    """
    found = pd.concat([read(file) for file in files])
    found[FOUND] = found[FOUND].apply(pd.to_numeric)
    groups = found.dropna(subset="error").groupby(PLACE)
    new = groups[FOUND].mean()
    new["error"] = groups["error"].agg(lambda errors: np.sqrt((errors**2).mean()))
    for name, form in zip(FOUND, ("{:.4g}", "{:.4g}", "{:.3f}", "{:.3f}"), strict=True):
        new[name] = [form.format(x) if np.isfinite(x) else "" for x in new[name]]
    new["seeds"] = groups.size().astype(str)
    rows = pd.concat([read(RECORD), new.reset_index()]).drop_duplicates(PLACE, keep="last")
    rows.sort_values(PLACE)[[*PLACE, "seeds", *FOUND]].to_csv(RECORD, index=False)


def report(rows: pd.DataFrame) -> None:
    """Print ratios to the best peer and to the estimator before, coverage and seconds."""
    rows[FOUND] = rows[FOUND].apply(pd.to_numeric)
    game = ["half", "kind", "game", "value", "players", "budget"]
    peer = rows[rows.estimator.str.startswith("shapiq")].groupby(game).error.min()
    before = rows[rows.estimator == "before"].set_index([*game, "way"]).error
    ours = rows[rows.estimator == "ProxySampling"].set_index([*game, "way"])
    ours["/ peer"] = ours.error / peer.reindex(ours.index.droplevel("way")).to_numpy()
    ours["/ before"] = ours.error / before.reindex(ours.index)
    ours = ours.reset_index().replace({"kind": {"accuracy": "rounds", "loss": "rounds"}})
    ours[["players", "budget"]] = ours[["players", "budget"]].astype(int)
    groups = ours.groupby(["half", "value", "kind", "way", "players", "budget"])
    ratios = groups[["error", "/ peer", "/ before"]].agg(lambda x: np.exp(np.log(x).mean()))
    print(ratios.join(groups[["covered", "seconds"]].mean()).round(3).to_string())


def read(kept: Path) -> pd.DataFrame:
    """Return the rows of a file of estimates, all as text."""
    if not kept.exists():
        return pd.DataFrame(columns=[*FIELDS, *FOUND])
    return pd.read_csv(kept, dtype=str, keep_default_na=False)


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
    if given.save:
        save(given.kept)
    elif not given.report:
        cases: list[Case] = []
        players = [12] if given.short else given.players
        if 12 in players:
            cases += recorded_cases(given.half, given.margins, tuple(given.values))
        if "shapley" in given.values:
            cases += chain.from_iterable(closed_cases(given.half, n) for n in players)
        runs = estimators(given.name)
        runs = {name: run for name, run in runs.items() if name in (given.only or runs)}
        most, seeds = (3, 1) if given.short else (None, given.seeds)
        measure(cases[:most], runs, given.kept[0], seeds)
    report(read(RECORD))


if __name__ == "__main__":
    main()
