"""One function for each room of the project, and only it knows the names of that room today.

Each returns rows: dictionaries of text, whole numbers, numbers and lists of numbers.  The words in
the rows are the snapshots' own, so that a class may be renamed without a change of the files.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from inspect import isfunction, signature
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "results"
Row = dict[str, Any]


def listed() -> list[str]:
    """Return the records that the snapshots stand on."""
    return (HERE / "records.txt").read_text().split()


@contextmanager
def _listed_store() -> Iterator[Any]:
    """Hold the listed records alone."""
    from reproduction.records import Store

    with tempfile.TemporaryDirectory() as folder:
        for name in listed():
            link = Path(folder, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(RESULTS / name)
        yield Store(folder)


def claims() -> Iterator[Row]:
    """Judge every claim by the listed records alone."""
    from reproduction.claims import all_claims
    from reproduction.verdicts import join

    columns = ["claim", "verdict", "seeds", "mean", "low", "high"]
    with _listed_store() as store:
        for paper, told in all_claims().items():
            for row in join(told, store)[columns].to_dict("records"):
                yield {"paper": paper, **row}


def pages() -> Iterator[Row]:
    """Work out every number, table and figure of the papers' pages from the listed records alone.

    Of each its words, how many numbers there are, how many below zero, and the sum of their sizes
    with weights from 1 to 2 by place: another last digit, as processors have, is no difference.
    """
    with _listed_store() as store:
        for paper in ("fedccea", "fedms", "fedowen", "fedtsv", "fedvalue"):
            rooms = {
                name: import_module(f"reproduction.{paper}.{name}")
                for name in ("findings", "tables", "figures")
            }
            e = rooms["findings"].Evaluation("paper", store)
            for name, function in _of_evaluation(rooms.pop("findings")):
                if name.startswith("numbers"):
                    for key, number in function(e).items():
                        yield {"paper": paper, "item": key, **_read_off(str(number))}
            shown = {
                f"{room}.{name}": function
                for room, module in rooms.items()
                for name, function in _of_evaluation(module)
            }
            parts = rooms["tables"].PAGE.parts[1:]  # the first is on readings, of `claims`
            for k, (title, _, show) in enumerate(parts):
                if show not in shown.values():
                    shown[f"part {k} {title}".strip()] = show
            for name, function in shown.items():
                made = function(e) if "e" in signature(function).parameters else function()
                yield {"paper": paper, "item": name, **_read_off(_read(made))}


def _of_evaluation(module: Any) -> Iterator[tuple[str, Any]]:
    """List the functions of a module that need nothing, or an evaluation and nothing else."""
    for name, function in sorted(vars(module).items()):
        if isfunction(function) and function.__module__ == module.__name__ and name[0] != "_":
            needed = [p for p in signature(function).parameters.values() if p.default is p.empty]
            needed = [p.name for p in needed if p.kind is not p.VAR_POSITIONAL]
            if needed in ([], ["e"]):
                yield name, function


def _read_off(text: str) -> Row:
    number = r"[-−+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
    found = np.array([float(x.replace("−", "-")) for x in re.findall(number, text)])
    words = sha256(re.sub(number, "", text).encode()).hexdigest()[:12]
    places = 1 + np.arange(len(found)) / max(len(found), 1)
    total = float(np.abs(found) @ places)
    negative = int((found < 0).sum())
    return {"words": words, "numbers": len(found), "negative": negative, "total": total}


def _read(shown: Any) -> str:
    """Write what can be read off a table or a figure as text; lengths with four digits."""
    if not hasattr(shown, "savefig"):
        return str(getattr(shown, "html", shown))
    told = [shown.get_supxlabel(), *(t.get_text() for lg in shown.legends for t in lg.get_texts())]
    for axis in shown.axes:
        told += [axis.get_title(), axis.get_xlabel(), axis.get_ylabel()]
        told += [label.get_text() for label in (*axis.get_xticklabels(), *axis.get_yticklabels())]
        told += [f"{text.get_text()} {_lengths(text.get_position())}" for text in axis.texts]
        told += [f"{line.get_color()} {_lengths(line.get_xydata())}" for line in axis.lines]
        told += [_lengths(path.vertices) for part in axis.collections for path in part.get_paths()]
        told += [_lengths(part.get_offsets()) for part in axis.collections]
        told += [_lengths(patch.get_path().vertices) for patch in axis.patches]
        told += [_lengths(image.get_array()) for image in axis.images]
    return "\n".join(told)


def _lengths(lengths: Any) -> str:
    return " ".join(f"{x:.4g}" for x in np.ma.filled(np.ma.asarray(lengths, float), 0).ravel())


def record_names() -> Iterator[Row]:
    """Derive the name of every listed record from what it says of itself."""
    from reproduction.records import Cell

    for name in listed():
        cell = Cell(**json.loads((RESULTS / name).read_text())["cell"])
        yield {"record": f"{cell.profile}/{cell.paper}/{cell.experiment}/{cell.key}.json"}


def experiments() -> Iterator[Row]:
    """List the records of every setting of every experiment, by the digests that end their names.

    A digest is of the settings and the seeds; :func:`record_names` has the words before it.
    """
    from reproduction.experiments import all_experiments

    for experiment in sorted(all_experiments(), key=lambda item: (item.paper, item.name)):
        for profile in ("smoke", "laptop", "paper"):
            place = f"{profile}/{experiment.paper}/{experiment.name}"
            keys = sorted(cell.key.rpartition("-")[2] for cell in experiment.cells(profile, None))
            yield {"experiment": place, "records": keys}


def estimations() -> Iterator[Row]:
    """Estimate three asymmetric games by fifteen estimators, counted in two ways."""
    import fedkit as fk

    rng = np.random.default_rng(0)
    estimators = {
        "permutations": fk.PermutationSampling(),
        "permutations, antithetic": fk.PermutationSampling(antithetic=True),
        "beta 4 1": fk.PermutationSampling(beta=(4, 1)),
        "truncated walks": fk.TruncatedMonteCarlo(0.05),
        "guided truncation, as printed": fk.TruncatedMonteCarlo(0.05, from_zero=True),
        "guided truncation": fk.GTGShapley(0.05, 0.001),
        "owen, 2 levels, truncated": fk.OwenSampling(2, eta=0.05),
        "owen, 4 levels": fk.OwenSampling(4, eta=None),
        "multilinear": fk.MultilinearSampling(),
        "multilinear, 2 levels": fk.MultilinearSampling(levels=2),
        "multilinear, gauss": fk.MultilinearSampling("gauss"),
        "banzhaf": fk.BanzhafSampling(),
        "banzhaf, marginal": fk.BanzhafSampling("marginal"),
        "banzhaf, as printed": fk.BanzhafSampling("as_printed"),
        "complementary": fk.ComplementarySampling(),
    }
    for n, columns in ((5, None), (8, None), (7, 3)):
        shape = (2**n,) if columns is None else (2**n, columns)
        game = fk.normalise(fk.table_game(rng.normal(size=shape).cumsum(0) * 0.05))
        budgets = 4 * n + 6, 25 * n, 2**n
        for name, count, budget, seed in product(
            estimators, ("distinct", "calls"), budgets, (0, 1)
        ):
            row = {"players": n, "estimator": name, "count": count, "budget": budget, "seed": seed}
            own = np.random.default_rng(seed)
            try:
                found = fk.estimate(game, estimators[name], budget, own, count=count)
            except ValueError:
                yield row | {
                    "evaluations": "refused",
                    "calls": "refused",
                    "values": [],
                    "errors": [],
                }
                continue
            yield row | {
                "evaluations": found.evaluations,
                "calls": found.calls,
                "values": np.ravel(found.values).tolist(),
                "errors": np.ravel(found.standard_errors).tolist(),
            }


NETWORKS = {
    "mlp-16": (1, 8, 8),
    "mlp-16-8": (1, 8, 8),
    "lenet5": (1, 28, 28),
    "lenet5 ": (3, 32, 32),
    "cnn": (1, 28, 28),
    "cnn ": (3, 32, 32),
    "resnet20": (3, 32, 32),
}
TRAININGS = {
    "plain": {"lr": 0.05, "batch_size": 16, "epochs": 2},
    "momentum": {
        "lr": 0.05,
        "batch_size": 16,
        "epochs": 1,
        "momentum": 0.9,
        "weight_decay": 1e-3,
    },
}


def models() -> Iterator[Row]:
    """Draw, train and judge seven networks; of a model a few numbers that all of it goes into."""
    import fedkit as fk

    for name, shape in NETWORKS.items():
        large = name.startswith("resnet")
        clients, samples, checked = (2, 4, 8) if large else (4, 14, 40)
        rng = np.random.default_rng(7)
        network = fk.build(name.strip(), shape, 10)
        first = network.init(np.random.default_rng(1))
        data = [_data(rng, samples + 3 * i, shape) for i in range(clients)]
        x, y = _data(rng, checked, shape)
        start = first.expand(clients, -1).clone()
        for kind, training in list(TRAININGS.items())[: 1 if large else 2]:
            rngs = [np.random.default_rng(i) for i in range(clients)]
            config = fk.LocalSGD(**training)
            trained = fk.train_clients(network, start, data, config, rngs, device="cpu")
            updates, sizes = trained - start, np.arange(1, clients + 1.0)
            judged = {}
            for utility in ("accuracy", "negative_loss"):
                judge = fk.Evaluator(network, x, y, utility, device="cpu")
                game = fk.round_game(judge, first, None, sizes, updates=updates)
                judged[utility] = game(fk.all_coalitions(clients)).tolist()
            yield {
                "network": name.strip(),
                "shape": "x".join(map(str, shape)),
                "training": kind,
                "parameters": int(first.numel()),
                "initial": _numbers(first.numpy()),
                "change": [x for row in updates for x in _numbers(row.numpy())],
                "right": [round(checked * share) for share in judged["accuracy"]],
                "negative loss": judged["negative_loss"],
            }


def _data(rng: np.random.Generator, n: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    import torch

    x = rng.normal(size=(n, *shape)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(10, size=n))


def _numbers(row: np.ndarray) -> list[float]:
    """Return a length and three projections of a vector."""
    row = row.astype(np.float64)
    places = np.arange(len(row))
    return [float(np.linalg.norm(row)), *(float(row @ np.cos(k * places)) for k in (0.1, 1, 2))]


def protocol() -> Iterator[Row]:
    """Count seeded people by every form of the protocol, honestly and under every attack."""
    from fedkit.fedvalue.protocol.attacks import ATTACKS, attempt
    from fedkit.fedvalue.protocol.counting import CountingServer
    from fedkit.fedvalue.protocol.parties import parties_of

    forms: dict[str, dict[str, Any]] = {
        "printed": {"variant": "cells", "hardened": False},
        "printed, whole table": {"variant": "table", "hardened": False},
        "hardened, cell by cell": {"variant": "cells", "hardened": True},
        "hardened, token per cell": {"variant": "table", "hardened": True, "tokens": "cell"},
        "hardened": {"variant": "table", "hardened": True, "tokens": "row"},
    }

    class Watched(CountingServer):
        def submit(self, job: str, party: str, upload: Any) -> None:
            sent.append(upload.to_bytes())
            super().submit(job, party, upload)

        def table(self, job: str) -> Any:
            found = super().table(job)
            if found is not None:
                tables.append(found.to_bytes())
            return found

    for form, options in forms.items():
        for seed in (0, 1):
            rng = np.random.default_rng(seed)
            x, y, *others = (rng.integers(0, levels, 60) for levels in (2, 2, 3, 2))
            codes = (x, y, others)
            sent: list[bytes] = []
            tables: list[bytes] = []
            server = Watched()
            task, parties = parties_of(codes, seed=seed, **options)
            found = task.count(server, wait=lambda: [p.serve(server) for p in parties])  # noqa: B023
            row = {"form": form, "seed": seed, "attack": "none", "uploads": "", "tables": ""}
            honest = {"uploads": _digest(sent), "tables": _digest(tables)}
            yield row | honest | {"outcome": " ".join(map(str, found.counts.tolist()))}
            for attack in ATTACKS:
                trial = attempt(ATTACKS[attack], codes, seed=seed, **options)
                told = "deceived" if trial.changed else trial.check or "true table"
                yield row | {"attack": attack, "outcome": told}


def _digest(messages: list[bytes]) -> str:
    return f"{len(messages)} {sha256(b''.join(messages)).hexdigest()[:16]}"


ROOMS = {
    "claims": claims,
    "pages": pages,
    "record_names": record_names,
    "experiments": experiments,
    "estimations": estimations,
    "models": models,
    "protocol": protocol,
}
