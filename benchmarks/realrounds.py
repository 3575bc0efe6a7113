"""Errors on real federated rounds beside the newest peers.

Run ``python -m benchmarks.realrounds [folder] [--quick | --only NAME ... --save]``: tables of all
utilities of rounds and all errors are kept in the folder (by default `_rounds`), so that the same
command goes on where it was stopped; what no data set or no peer is there for is left out.
shapiq's regression estimators need its version 1.8, which the lock file does not have: it asks for
Python 3.12 (the record names the Python that ran it), two of them for lightgbm and xgboost.
``--quick`` takes two rounds that shaped nothing, three seeds and the two smallest budgets,
``--only`` the estimators of these names.  ``--save`` puts what was computed into
``results/realrounds.json``; rows of estimators that were not stay.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fedkit as fk
from benchmarks.estimators import BUDGETS, saturating, version
from fedkit.atomic import write_text
from fedkit.intervals import geometric_mean

RECORD = Path(__file__).parents[1] / "results" / "realrounds.json"
SEEDS = 5
UTILITIES = ("margins", "negative_loss")  # margins make the accuracy

# data set, clients, model, Dirichlet's alpha (None: equally divided), validation images
ROUNDS: dict[str, tuple[str, int, str, float | None, int]] = {
    "digits10": ("digits", 10, "mlp-64", 0.5, 300),
    "mnist12mlp": ("mnist", 12, "mlp-64", 0.5, 600),
    "fashion12": ("fashionmnist", 12, "mlp-128", 0.3, 600),
    "mnist14iid": ("mnist", 14, "mlp-64", None, 600),
    "mnist10lenet": ("mnist", 10, "lenet5", 0.5, 600),
    "fashion14": ("fashionmnist", 14, "mlp-64", 0.8, 400),
    "digits16": ("digits", 16, "mlp-64", 0.5, 200),
}
SHAPED = ["digits10", "mnist12mlp", "fashion12"]  # seen while the proxies were made
HELD_OUT = [name for name in ROUNDS if name not in SHAPED]

Run = Callable[[fk.Game, int, int, np.ndarray], np.ndarray]


def build(folder: Path, name: str) -> None:
    """Train five rounds and tabulate the first and the fifth."""
    dataset, k, model, alpha, images = ROUNDS[name]
    seed = list(ROUNDS).index(name)
    scheme = fk.IID() if alpha is None else fk.Dirichlet(alpha, by="class")
    share = 0.2 if dataset == "digits" else 0.02
    federation = fk.make_federation(
        fk.load(dataset), k, scheme, seed, validation=share, min_size=10, empty="refill"
    )
    arch = fk.build(model, federation.input_shape, federation.n_classes)
    chosen = np.random.default_rng(seed).permutation(len(federation.x_val))[:images]
    data = [tuple(part[:500] for part in federation.client_data(i)) for i in range(k)]
    sizes = np.array([len(labels) for _, labels in data], dtype=np.float64)
    streams, tables = fk.Streams(seed), {"sizes": sizes}
    base = arch.init(streams.generator("model"))
    for number in range(1, 6):
        batches = [streams.generator("client", number, i) for i in range(k)]
        trained = fk.train_clients(arch, base.repeat(k, 1), data, fk.LocalSGD(lr=0.1), batches)
        for utility in UTILITIES if number in (1, 5) else ():
            scores = fk.Evaluator(arch, federation.x_val[chosen], federation.y_val[chosen], utility)
            game = fk.round_game(scores, base, trained, sizes)
            values = fk.tabulate(game, batch_size=4096).table
            tables[f"{utility}-{number}"] = values.astype(np.float32 if values.ndim > 1 else float)
        weights = trained.new_tensor(sizes / sizes.sum())
        base = base + weights @ (trained - base)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **tables)


def accuracies(margins: np.ndarray) -> fk.Game:
    """Return the table of accuracies; ours asks for the margins behind them, as of a round."""
    lifted = fk.table_game(margins), fk.share_right
    return replace(fk.table_game(fk.share_right(margins)), lifted=lifted)


def rounds(folder: Path, names: list[str]) -> dict[str, tuple[fk.Game, np.ndarray]]:
    """Return the games by name, with the data sizes of their clients."""
    games = {}
    for name in names:
        path = folder / f"{name}.npz"
        if not path.exists():
            try:
                build(folder, name)
            except (ImportError, FileNotFoundError, ValueError) as error:
                print(f"{name} left out: {error}")
                continue
        with np.load(path) as tables:
            for key in tables.files:
                table = tables[key]
                if key == "sizes":
                    continue
                label = f"{name}, {key.replace('margins', 'accuracy')}"
                made = accuracies(table) if key.startswith("margins") else fk.table_game(table)
                games[label] = made, tables["sizes"]
    return games


def synthetic() -> dict[str, tuple[fk.Game, np.ndarray]]:
    """Games on which a round's proxy has no advantage."""
    n = 12
    return {
        "saturating": (saturating(n), np.ones(n)),
        "unanimity sum": (fk.tabulate(fk.random_unanimity_sum(n, 40, 1)), np.ones(n)),
        "airport": (fk.tabulate(fk.airport(np.arange(1.0, n + 1))), np.ones(n)),
    }


def peers() -> dict[str, Run]:
    """Return what shapiq has of its regression estimators."""
    if version("shapiq") is None:
        return {}
    import shapiq.approximator as shapiq

    def run(make: Callable[[int, int], Any]) -> Run:
        def one(game: fk.Game, budget: int, seed: int, sizes: np.ndarray) -> np.ndarray:
            def value(rows: np.ndarray) -> np.ndarray:
                return game(np.atleast_2d(rows).astype(bool))

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = make(game.n_players, seed).approximate(budget, value)
            values: np.ndarray = found.get_n_order_values(1)
            return values

        return one

    makers: dict[str, Callable[[int, int], Any]] = {
        "KernelSHAP": lambda n, s: shapiq.KernelSHAP(n=n, random_state=s),
        "LeverageSHAP": lambda n, s: shapiq.LeverageSHAP(n=n, random_state=s),
        "OddSHAP": lambda n, s: shapiq.OddSHAP(n=n, random_state=s),
        "PolySHAP": lambda n, s: shapiq.PolySHAP(n=n, random_state=s),
        "RegressionMSR": lambda n, s: shapiq.RegressionMSR(n=n, index="SV", random_state=s),
    }
    return {f"shapiq {name}": run(make) for name, make in makers.items() if hasattr(shapiq, name)}


def ours() -> dict[str, Run]:
    """Return our estimators, three times the proxies.

    They see all that a round shows; no margins, but sizes, which tell how updates are averaged; and
    utilities alone, as the peers.
    """

    def run(make: Callable[[np.ndarray], Any]) -> Run:
        return lambda game, budget, seed, sizes: fk.estimate(game, make(sizes), budget, seed).values

    return {
        "ProxySampling": run(lambda sizes: fk.ProxySampling(sizes=tuple(sizes))),
        "no margins": lambda game, budget, seed, sizes: (
            fk.estimate(
                fk.table_game(game.table), fk.ProxySampling(sizes=tuple(sizes)), budget, seed
            ).values
        ),
        "utilities alone": lambda game, budget, seed, sizes: (
            fk.estimate(fk.table_game(game.table), fk.ProxySampling(), budget, seed).values
        ),
        "multilinear": run(lambda sizes: fk.MultilinearSampling()),
    }


def ahead(
    games: dict[str, tuple[fk.Game, np.ndarray]],
    kept: Path,
    seeds: int,
    budgets: list[int],
    only: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Root mean squared error over the mean absolute value, by game, estimator and budget.

    Errors are written to the file `kept`, a line each, and read from there; ours by what the
    estimators' sources are now.
    """
    sources = b"".join(f.read_bytes() for f in sorted(Path(fk.estimators.__path__[0]).glob("*.py")))
    now = hashlib.sha256(sources).hexdigest()[:10]
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {tuple(key): error for key, error in map(json.loads, lines)}
    found = []
    for label, (game, sizes) in games.items():
        exact = fk.shapley(game).values
        for budget in [b for b in budgets if b < 2**game.n_players]:
            for name, run in (ours() | peers()).items():
                if only is not None and name not in only:
                    continue
                errors = []
                for seed in range(seeds):
                    key = (label, budget, name, version(name.split()[0]) or now, seed)
                    if key not in known:
                        try:
                            values = run(game, budget, seed, sizes)
                        except (ValueError, RuntimeError, np.linalg.LinAlgError):
                            break  # a peer below its smallest budget
                        square = np.mean((values - exact) ** 2) / np.abs(exact).mean() ** 2
                        known[key] = float(np.sqrt(square))
                        with kept.open("a") as file:
                            file.write(json.dumps([key, known[key]]) + "\n")
                    errors.append(known[key])
                if errors:
                    row = {"game": label, "budget": budget, "estimator": name}
                    rms = float(np.sqrt(np.mean(np.square(errors))))
                    spread = float(np.std(errors, ddof=1) / len(errors) ** 0.5)
                    found.append(row | {"error": rms, "spread": spread, "seeds": len(errors)})
    return found


def ratios(rows: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """Error of ProxySampling over that of the best peer, by game and budget."""
    result = {}
    for game, budget in dict.fromkeys((row["game"], row["budget"]) for row in rows):
        here = [row for row in rows if (row["game"], row["budget"]) == (game, budget)]
        mine = [row["error"] for row in here if row["estimator"] == "ProxySampling"]
        theirs = [row["error"] for row in here if row["estimator"].startswith("shapiq")]
        if mine and theirs:
            result[game, budget] = mine[0] / min(theirs)
    return result


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print errors with their standard errors over seeds, and geometric means of the ratios.

    Rounds and utilities of one federation are no independent games: intervals are Student's over
    the federations.
    """
    print(f"\n{title}: relative error, seeds: {max(row['seeds'] for row in rows)}")
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    print(f"{'game':28}{'budget':>7}" + "".join(f"{name.split()[-1]:>17}" for name in names))
    found = ratios(rows)
    for game, budget in dict.fromkeys((row["game"], row["budget"]) for row in rows):
        cells = ""
        for name in names:
            mine = [
                row
                for row in rows
                if (row["game"], row["budget"], row["estimator"]) == (game, budget, name)
            ]
            cells += f"{mine[0]['error']:9.4f} ±{mine[0]['spread']:.4f}" if mine else f"{'-':>17}"
        print(f"{game:28}{budget:7d}{cells}  ratio {found.get((game, budget), np.nan):.2f}")
    for budget in BUDGETS:
        here = {game: ratio for (game, b), ratio in found.items() if b == budget}
        if here:
            parts: dict[str, list[float]] = {}
            for game, ratio in here.items():
                parts.setdefault(game.split(",")[0], []).append(ratio)
            mean = geometric_mean([geometric_mean(part).mean for part in parts.values()])
            below = sum(ratio <= 0.5 for ratio in here.values())
            print(
                f"{budget:5d}: ratio {mean.text()} to the best peer (geometric mean over "
                f"federations), at most half in {below} of {len(here)} games"
            )


def keep(record: dict[str, list[dict[str, Any]]]) -> None:
    """Put rows into the record, which keeps those of estimators that were not computed."""
    told = json.loads(RECORD.read_text(encoding="utf-8"))
    for title, rows in record.items():
        place = {(r["game"], r["budget"], r["estimator"]): r for r in told["rows"][title]}
        new = {(r["game"], r["budget"], r["estimator"]): r for r in rows}
        told["rows"][title] = list((place | new).values())
    kept = {r["estimator"] for rows in told["rows"].values() for r in rows}
    if {name for name in kept if name.startswith("shapiq")} <= peers().keys():
        told |= {"python": platform.python_version(), "shapiq": version("shapiq")}
    write_text(RECORD, json.dumps(told, indent=1) + "\n")


def main(
    folder: Path = Path("_rounds"),
    quick: bool = False,
    save: bool = False,
    only: list[str] | None = None,
) -> None:
    """Print the errors beside the peers."""
    if only and set(only) - (ours() | peers()).keys():
        raise SystemExit(f"--only {only}: there are {', '.join(ours() | peers())}")
    if quick and save:
        raise SystemExit("--quick measures a part, and a record is of the whole: leave --save out")
    games = rounds(folder, HELD_OUT[-2:] if quick else list(ROUNDS))
    seeds, budgets = (3, list(BUDGETS)[:2]) if quick else (SEEDS, list(BUDGETS))
    record = {}
    for title, names in (("rounds seen", SHAPED), ("rounds held out", HELD_OUT)):
        some = {label: each for label, each in games.items() if label.split(",")[0] in names}
        if some:
            record[title] = ahead(some, folder / "errors.jsonl", seeds, budgets, only)
    record["other games"] = ahead(synthetic(), folder / "errors.jsonl", seeds, budgets, only)
    for title, rows in record.items():
        show(title, rows)
    if save:
        keep(record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("_rounds"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    main(**vars(parser.parse_args()))
