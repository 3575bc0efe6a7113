"""How often 95% intervals hold the exact value: ``python -m benchmarks.coverage [--save]``.

Every estimator that gives intervals, over games, numbers of players and budgets.  ``--save`` writes
the table into ``results/coverage.json``, which the book shows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fedkit as fk
from benchmarks.speed import saturating

RECORD = Path(__file__).parents[1] / "results" / "coverage.json"
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
    }
    return found if n > 12 else found | {"digits round": real_round(n)}


def coverage(n: int, repeats: int, only: list[str] | None = None) -> list[dict[str, Any]]:
    """Return rows: how often intervals hold the values, the least of one player, and are given."""
    rows = []
    for label, game in games(n).items():
        for name, (estimator, solve) in ESTIMATORS.items():
            if only is not None and name not in only:
                continue
            if n > 12 and isinstance(estimator, fk.ProxySampling):
                continue  # minutes for each budget
            exact = solve(game).values
            for budget in BUDGETS[n]:
                if budget < estimator.minimum(n, "distinct"):
                    continue
                seeds = repeats // (FEWER if isinstance(estimator, fk.ProxySampling) else 1)
                runs = fk.estimate_many(game, estimator, budget, range(max(1, seeds)))
                ends = np.array([run.interval() for run in runs])
                given = np.isfinite(ends).all(axis=1)
                held = (ends[:, 0] <= exact) & (exact <= ends[:, 1])
                often = np.where(given, held, 0).sum(axis=0) / np.maximum(given.sum(axis=0), 1)
                least = round(float(np.where(given.mean(axis=0) < 0.5, np.nan, often).min()), 4)
                rows.append(
                    {
                        "estimator": name,
                        "players": n,
                        "game": label,
                        "budget": budget,
                        "runs": len(runs),
                        "held": round(float(held[given].mean()), 4) if given.any() else None,
                        "least": least if np.isfinite(least) else None,
                        "given": round(float(given.mean()), 4),
                    }
                )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print one line per estimator and number of players: budgets of each game."""
    print("coverage of intervals of 95%, in percent (* less than half of them are given)")
    for n in dict.fromkeys(row["players"] for row in rows):
        here = [row for row in rows if row["players"] == n]
        labels = list(dict.fromkeys(row["game"] for row in here))
        head = "".join(f"{label:>20}" for label in labels)
        print(f"\n{n} players, budgets {BUDGETS[n]}\n{'':24}{head}")
        for name in dict.fromkeys(row["estimator"] for row in here):
            cells = ""
            for label in labels:
                mine = [r for r in here if (r["estimator"], r["game"]) == (name, label)]
                shown = [
                    "-" if r["held"] is None else f"{100 * r['held']:.0f}{'*' * (r['given'] < 0.5)}"
                    for r in mine
                ]
                cells += f"{' '.join(shown):>20}"
            print(f"{name:24}{cells}")


def main(
    repeats: int = REPEATS,
    players: tuple[int, ...] = tuple(BUDGETS),
    save: bool = False,
    only: list[str] | None = None,
) -> None:
    """Measure, print, and keep; with `only` what is on record of the others stays."""
    if save and (repeats, set(players)) != (REPEATS, set(BUDGETS)):
        raise SystemExit("a record is of all games: leave --players and --repeats, or --save, out")
    rows = [row for n in players for row in coverage(n, repeats, only)]
    show(rows)
    if save:
        kept = json.loads(RECORD.read_text()) if only is not None else []
        new = {(row["estimator"], row["players"], row["game"], row["budget"]): row for row in rows}
        old = {(row["estimator"], row["players"], row["game"], row["budget"]): row for row in kept}
        lines = ",\n".join(json.dumps(row) for row in (old | new).values())
        RECORD.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="write results/coverage.json")
    parser.add_argument("--only", nargs="+", metavar="ESTIMATOR")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--players", type=int, nargs="*", default=tuple(BUDGETS))
    given = parser.parse_args()
    main(given.repeats, tuple(given.players), given.save, given.only)
