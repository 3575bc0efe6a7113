"""How often 95% intervals hold the exact value: ``python -m benchmarks.coverage [--save]``.

Every estimator that gives intervals, over games, numbers of players and budgets.  ``--save`` writes
``results/coverage.json``, which the book shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import fedkit as fk
from benchmarks.kept import Row, command, save
from benchmarks.speed import saturating

REPEATS = 200
FEWER = 10  # times fewer of ProxySampling, whose fits take seconds
BUDGETS = {6: (20, 40), 12: (100, 300), 20: (300, 1000)}

Solve = Callable[[Any], Any]
ESTIMATORS: dict[str, tuple[Any, Solve]] = {
    "ProxySampling": (fk.ProxySampling(), fk.shapley),
    "permutation": (fk.PermutationSampling(), fk.shapley),
    "antithetic permutation": (fk.PermutationSampling(antithetic=True), fk.shapley),
    "multilinear, strata": (fk.MultilinearSampling(), fk.shapley),
    "multilinear, Gauss": (fk.MultilinearSampling("gauss"), fk.shapley),
    "complementary": (fk.ComplementarySampling(), fk.shapley),
    "Beta(4, 1)": (
        fk.PermutationSampling(antithetic=True, beta=(4.0, 1.0)),
        lambda game: fk.beta_shapley(game, 4, 1),
    ),
    "Banzhaf, proxy": (fk.ProxySampling(value="banzhaf"), fk.banzhaf),
    "Banzhaf": (fk.BanzhafSampling(), fk.banzhaf),
    "Banzhaf, marginal": (fk.BanzhafSampling("marginal"), fk.banzhaf),
}


def real_round(n: int) -> fk.Game:
    """The first round of `n` clients who share the digits; the utility is the accuracy."""
    shared = fk.make_federation(
        fk.load("digits"), n, fk.Dirichlet(0.5, by="class"), n, validation=0.2, min_size=5,
        empty="refill",
    )  # fmt: skip
    arch = fk.build("mlp-16", shared.input_shape, shared.n_classes)
    streams = fk.Streams(n)
    base = arch.init(streams.generator("model"))
    data = [shared.client_data(i) for i in range(n)]
    batches = [streams.generator("client", i) for i in range(n)]
    moved = fk.train_clients(arch, base.repeat(n, 1), data, fk.LocalSGD(lr=0.1), batches)
    scores = fk.Evaluator(arch, shared.x_val[:200], shared.y_val[:200], "accuracy")
    return fk.tabulate(fk.round_game(scores, base, moved, shared.sizes))


def games(n: int) -> dict[str, fk.Game]:
    """Return the games of `n` players; a round of 20 would be a table of a million models."""
    found = {
        "saturating": saturating(n),
        "unanimity sum": fk.tabulate(fk.random_unanimity_sum(n, 30, 1)),
        "airport": fk.tabulate(fk.airport(np.arange(1.0, n + 1))),
        "gloves": fk.tabulate(fk.glove(n // 4, n - n // 4)),  # few bring much, and seldom
        "vote": fk.tabulate(fk.weighted_majority(np.arange(1, n + 1), n * (n + 1) // 4 + 1)),
    }
    return found if n > 12 else found | {"digits round": real_round(n)}


def coverage(n: int, repeats: int, only: list[str] | None = None) -> list[Row]:
    """Return rows: how often intervals hold the values, the least of one player, and are given."""
    rows = []
    for label, game in games(n).items():
        for name, (estimator, solve) in ESTIMATORS.items():
            slow = isinstance(estimator, fk.ProxySampling)
            if name not in (only or ESTIMATORS) or (n > 12 and slow):  # minutes for each budget
                continue
            exact = solve(game).values
            for budget in BUDGETS[n]:
                if budget < estimator.minimum(n, "distinct"):
                    continue
                seeds = range(max(1, repeats // (FEWER if slow else 1)))
                runs = fk.estimate_many(game, estimator, budget, seeds)
                ends = np.array([run.interval() for run in runs])
                given = np.isfinite(ends).all(axis=1)
                held = (ends[:, 0] <= exact) & (exact <= ends[:, 1])
                often = np.where(given, held, 0).sum(axis=0) / np.maximum(given.sum(axis=0), 1)
                least = round(float(np.where(given.mean(axis=0) < 0.5, np.nan, often).min()), 4)
                rows.append({
                    "estimator": name, "players": n, "game": label, "budget": budget,
                    "runs": len(runs),
                    "held": round(float(held[given].mean()), 4) if given.any() else None,
                    "least": least if np.isfinite(least) else None,
                    "given": round(float(given.mean()), 4),
                })  # fmt: skip
    return rows


def show(rows: list[Row]) -> None:
    """Print a line per estimator and number of players: budgets of each game."""
    print("coverage of intervals of 95%, in percent (* less than half of them are given)")
    table = pd.DataFrame(rows)
    mark = np.where(table["given"] < 0.5, "*", "")
    shown = (100 * table["held"].astype(float)).map("{:.0f}".format) + mark
    table["held"] = shown.where(table["held"].notna(), "-")
    places = ["players", "game", "budget"]
    print(table.pivot(index="estimator", columns=places, values="held").fillna("").T.to_string())


def main(
    repeats: int = REPEATS,
    players: tuple[int, ...] = tuple(BUDGETS),
    write: bool = False,
    only: list[str] | None = None,
) -> None:
    """Measure, print, and keep; with `only` what is on record of the others stays."""
    if write and (repeats, set(players)) != (REPEATS, set(BUDGETS)):
        raise SystemExit("a record is of all games: leave --players and --repeats, or --save, out")
    rows = [row for n in players for row in coverage(n, repeats, only)]
    show(rows)
    if write:
        save("coverage.json", rows, ("estimator", "players", "game", "budget") if only else ())


if __name__ == "__main__":
    parser = command(__doc__, repeats=REPEATS)
    parser.add_argument("--only", nargs="+", metavar="ESTIMATOR")
    parser.add_argument("--players", type=int, nargs="*", default=tuple(BUDGETS))
    given = parser.parse_args()
    main(given.repeats, tuple(given.players), given.save, given.only)
