"""Every public name, argument by argument: wrong input ends in one clear sentence.

Each row of the table is a call that works and, for its arguments, what they are.  An argument is
then replaced by all that it cannot be: another type, a truth value, NaN, an infinity, a fraction,
nothing, a number beyond its range.  Each must be refused with a ValueError of one sentence that
names the argument (or its word in `WORDS`); nothing may pass in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from toyrounds import a_round

import fedkit as fk
from fedkit import datasets, federated, fedvalue, methods

NAN, INF = float("nan"), float("inf")


class Thing:
    """No number, no text, no array, and without any method."""

    def __repr__(self) -> str:
        return "<a thing>"


OTHER: list[Any] = ["nonsense", None, Thing(), [], {}]
Bad = list[Any]


def whole(least: int | None = None, most: int | None = None) -> Bad:
    ends = [*([] if least is None else [least - 1]), *([] if most is None else [most + 1])]
    return [*OTHER, True, NAN, INF, -INF, 2.5, [1], *ends]


def real(low: float = -INF, high: float = INF, above: bool = False) -> Bad:
    low_end = [] if low == -INF else [low if above else low - 0.5]
    return [*OTHER, True, NAN, INF, -INF, [0.5], *low_end, *([] if high == INF else [high + 0.5])]


def optional(bad: Bad) -> Bad:
    return [value for value in bad if value is not None]


CHOICE: Bad = [*OTHER, True, NAN, 3]
FLAG: Bad = [*OTHER, NAN, 2, 0.5]
OBJECT: Bad = [*OTHER, True, NAN, INF, 3, -1, 2.5]
NUMBERS: Bad = [*OTHER, True, NAN, [NAN], [INF], ["a"], [None], [1j], [[1], [2, 3]]]
SEED = whole(0)
FLIP = federated.LabelFlip(4)

# An argument that a sentence calls by another word.
WORDS = {
    "x": ("images", "features"), "y": ("labels", "label"),
    "federations": ("federation",), "datasets": ("client",), "clients": ("client",),
    "test": ("test data",), "coalitions": ("coalition",),
    "names": ("name",), "x_task": ("task party",), "parties": ("party",),
    "ids": ("IDs",), "updates": ("update",), "games": ("game",), "estimators": ("estimator",),
    "seeds": ("seed",), "rows": ("row", "models"), "scenarios": ("scenario",),
    "rngs": ("generators",),
    "i": ("clients",), "architecture": ("model",), "standard_errors": ("standard errors",),
    "record": ("values",), "policy": ("value",),
}  # fmt: skip


@cache
def world() -> dict[str, Any]:
    """A few things to call with."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8))
    y = torch.arange(40) % 4
    data = fk.Dataset("toy", x, y, x[:20], y[:20], tuple("abcd"), "made up")
    federation = fk.make_federation(data, 4, fk.IID(), 0, validation=0.2)
    arch = fk.build("mlp-2", (1, 4, 4), 4)
    local = fk.LocalSGD(lr=0.1)
    base = arch.init(rng)
    evaluator = fk.Evaluator(arch, federation.x_val, federation.y_val, device="cpu")
    table = fedvalue.VerticalData(rng.integers(0, 2, 30), rng.integers(0, 2, 30),
                                  [rng.integers(0, 3, 30), rng.normal(size=30)])  # fmt: skip
    return {
        "data": data, "federation": federation, "arch": arch, "local": local, "base": base,
        "evaluator": evaluator, "updates": torch.stack([0 * base, 0 * base + 0.1]),
        "game": fk.airport([1, 2, 3]), "columns": table, "rng": rng,
        "strategy": fk.Strategy(fk.UniformSelection(), fk.NoValue(), fk.SizeWeighted()),
        "counts": fedvalue.count_securely(table, seed=0),
    }  # fmt: skip


Row = tuple[str, Callable[..., Any], dict[str, Any], dict[str, Bad]]


def policies() -> Iterator[Row]:
    """Frozen settings: estimators, valuers, selections, weights, training, partitioners."""
    walks = optional(whole(1))
    yield "BanzhafSampling", fk.BanzhafSampling, {}, {"variant": CHOICE, "draws": walks}
    yield "ComplementarySampling", fk.ComplementarySampling, {}, {"rounds": walks}
    yield "CosineValues", fk.CosineValues, {}, {"exact": FLAG, "normalised": FLAG}
    yield "Dirichlet", fk.Dirichlet, {"alpha": 0.5}, {"alpha": real(0, above=True), "by": CHOICE}
    yield "EpsilonGreedy", fk.EpsilonGreedy, {}, {
        "epsilon": real(0, 1), "confidence": real(0), "floor": real(), "low_gain": real(0),
    }  # fmt: skip
    yield "Estimated", fk.Estimated, {"estimator": fk.PermutationSampling()}, {
        "estimator": OBJECT, "budget": walks, "count": CHOICE, "normalised": FLAG,
        "no_gain": CHOICE,
    }  # fmt: skip
    yield "Exact", fk.Exact, {}, {"normalised": FLAG, "no_gain": CHOICE}
    yield "FedMS", fk.FedMS, {}, {
        "estimator": OBJECT, "alpha": real(0, 1), "units": CHOICE, "aggregate": CHOICE,
        "tolerance": NUMBERS, "against": CHOICE,
    }  # fmt: skip
    yield "FedOwen", fk.FedOwen, {}, {
        "estimator": OBJECT, "budget": whole(1), "select": OBJECT, "aggregate": OBJECT,
    }  # fmt: skip
    yield "FedTSV", fk.FedTSV, {}, {"value": OBJECT, "select": OBJECT}
    yield "GTGShapley", fk.GTGShapley, {}, {
        "within": real(0), "between": real(0), "convergence": real(0), "walks": walks,
    }  # fmt: skip
    yield "LocalSGD", fk.LocalSGD, {"lr": 0.1}, {
        "lr": real(0), "momentum": [*real(0), 1.0, 1.5], "weight_decay": real(0),
        "batch_size": whole(1), "epochs": whole(0), "steps": optional(whole(0)),
        "proximal": real(0),
    }  # fmt: skip
    maverick = {"between": real(0), "temperature": real(0, above=True)}
    yield "MaverickGTG", fk.MaverickGTG, {}, maverick | {
        "within": real(0), "convergence": real(0), "last": whole(1), "walks": walks,
    }  # fmt: skip
    yield "MaverickMR", fk.MaverickMR, {}, {"temperature": real(0, above=True)}
    yield "MaverickTMR", fk.MaverickTMR, {}, maverick
    yield "Mavericks", fk.Mavericks, {}, {
        "n_mavericks": whole(1), "others": OBJECT, "shared": FLAG, "mixed": FLAG,
    }  # fmt: skip
    yield "MultilinearSampling", fk.MultilinearSampling, {}, {
        "nodes": CHOICE, "levels": walks, "antithetic": FLAG, "draws": walks,
    }  # fmt: skip
    yield "OwenSampling", fk.OwenSampling, {}, {
        "levels": whole(1), "draws": walks, "eta": optional(real(0, 1)),
    }  # fmt: skip
    yield "OwenTwins", fk.OwenTwins, {}, {"levels": whole(1), "draws": walks}
    yield "PermutationSampling", fk.PermutationSampling, {}, {
        "antithetic": FLAG, "walks": walks, "beta": optional([*NUMBERS, (0, 1)]),
    }  # fmt: skip
    local = world()["local"]
    yield "Plan", fk.Plan, {"rounds": 1, "participants": 2, "local": local}, {
        "rounds": whole(1), "participants": whole(1), "local": OBJECT,
        "utility": [*CHOICE, dict], "weighting": CHOICE, "evaluate_every": whole(1),
    }  # fmt: skip
    yield "ProxySampling", fk.ProxySampling, {}, {
        "sizes": optional([*NUMBERS, [0, 0]]), "value": CHOICE, "shrink": FLAG,
        "score": optional(OBJECT),
    }  # fmt: skip
    yield "Softmax", fk.Softmax, {}, {"scale": real(0)}
    yield "Softmax.weights", fk.Softmax().weights, {"values": [1.0]}, {"values": NUMBERS}
    yield "EpsilonGreedy.probabilities", fk.EpsilonGreedy().probabilities, {
        "values": [1.0], "counts": [0], "t": 0,
    }, {"values": NUMBERS, "counts": [*NUMBERS, [1, 2]], "t": whole(0)}  # fmt: skip
    fair = {"select": fk.UniformSelection(), "value": fk.NoValue(), "aggregate": fk.SizeWeighted()}
    yield "Strategy", fk.Strategy, fair, {
        "select": OBJECT, "value": OBJECT, "aggregate": OBJECT, "remember": OBJECT,
        "outputs": walks,
    }  # fmt: skip
    yield "Streams", fk.Streams, {"seed": 0}, {"seed": SEED}
    yield "TrajectoryValues", fk.TrajectoryValues, {}, {
        "estimator": optional(OBJECT), "budget": walks, "utility": CHOICE,
    }  # fmt: skip
    yield "TruncatedMonteCarlo", fk.TruncatedMonteCarlo, {}, {
        "tolerance": real(0), "walks": walks, "from_zero": FLAG,
    }  # fmt: skip
    yield "share_right", fk.share_right, {"margins": [[1.0, -1.0]]}, {
        "margins": [*OTHER, True, ["a"]],
    }  # fmt: skip
    yield "LabelFlip", federated.LabelFlip, {"n_classes": 3}, {"n_classes": whole(2)}


def games() -> Iterator[Row]:
    """Games, exact values and estimates."""
    game = world()["game"]
    yield "Game", fk.Game, {"n_players": 3, "function": len}, {
        "n_players": whole(1), "function": OBJECT,
    }  # fmt: skip
    yield "remember", fk.remember, {"game": game}, {
        "game": OBJECT, "path": [Thing(), [], {}, True, 3],
    }  # fmt: skip
    asked = {"coalitions": [[True, False, True]]}
    rows: Bad = [*OTHER, True, NAN, [True] * 3, [[True]], [[2, 0, 1]], [["a"] * 3], [[0.5] * 3]]
    function = fk.Game(3, lambda rows: rows.sum(axis=1))
    for kind in (game, function, fk.remember(game), fk.tabulate(game), fk.normalise(game)):
        yield f"{type(kind).__name__}()", kind.__call__, asked, {"coalitions": rows}
    numbers: Bad = [*OTHER, True, ["a"] * 3, [1j] * 3, [1, 2], [[1], [2, 3]]]
    facts = {"values": [1, 2, 3], "standard_errors": [0, 0, 0], "evaluations": 8, "calls": 7}
    yield "Valuation", fk.Valuation, facts | {"method": "own"}, {
        "values": numbers, "standard_errors": numbers, "evaluations": whole(0), "calls": whole(0),
        "degrees_of_freedom": optional(numbers),
        "names": [*optional(OBJECT), ["a"], ["a", "b", "b"]],
    }  # fmt: skip
    found = fk.shapley(game)
    yield (
        "Valuation.named",
        found.named,
        {"names": list("abc")},
        {"names": [*OBJECT, "abc", ["a", "b", "b"]]},
    )
    yield "Valuation.ranking", found.ranking, {}, {"output": whole(0, 0)}
    yield "Valuation.interval", found.interval, {}, {"level": [*real(0, 1, above=True), 1.0]}
    yield "Valuation.from_dict", fk.Valuation.from_dict, {"record": found.to_dict()}, {
        "record": OBJECT,
    }  # fmt: skip
    yield "table_game", fk.table_game, {"values": [0.0, 1.0]}, {
        "values": [[], [0.0], [1, 2, 3]],
    }  # fmt: skip
    yield "trajectory_game", fk.trajectory_game, {"gram": np.eye(3)}, {
        "gram": [*NUMBERS, np.zeros((2, 3)), np.full((2, 2), NAN)], "utility": CHOICE,
        "eps": real(0),
    }  # fmt: skip
    yield "airport", fk.airport, {"costs": [1, 2]}, {"costs": NUMBERS}
    yield "all_coalitions", fk.all_coalitions, {"n_players": 3}, {"n_players": whole(0, 10**6)}
    yield "tabulate", fk.tabulate, {"game": game}, {"game": OBJECT, "batch_size": whole(1)}
    yield "beta_shapley", fk.beta_shapley, {"game": game, "alpha": 1.0, "beta": 1.0}, {
        "game": OBJECT, "alpha": real(0, above=True), "beta": real(0, above=True),
    }  # fmt: skip
    yield "parallel", fk.parallel, {"game": game}, {"game": OBJECT, "n_jobs": [*whole(), 0]}
    for exact in (fk.banzhaf, fk.leave_one_out, fk.shapley):
        yield exact.__name__, exact, {"game": game}, {"game": OBJECT}
    yield "coalition_index", fk.coalition_index, {"coalitions": [[True, False]]}, {
        "coalitions": [*OTHER, NAN, [[2, 0]], [[NAN, 0]], ["a"], [[0.5, 1]]],
    }  # fmt: skip
    yield "estimate(proxy)", fk.estimate, {
        "game": game, "estimator": fk.ProxySampling(), "budget": 8,
    }, {"game": OBJECT, "budget": [*optional(whole(1)), np.array(8)]}  # fmt: skip
    yield "estimate", fk.estimate, {
        "game": game, "estimator": fk.PermutationSampling(), "budget": 6,
    }, {
        "game": OBJECT, "estimator": OBJECT, "budget": optional(whole(1)), "seed": SEED,
        "count": CHOICE, "stop": optional(OBJECT), "progress": FLAG,
    }  # fmt: skip
    yield "estimate_many", fk.estimate_many, {
        "games": [game], "estimators": fk.PermutationSampling(), "budget": 6,
    }, {
        "games": OBJECT, "estimators": OBJECT,
        "budget": [v for v in optional(whole(1)) if v != [1]],
        "seeds": [v for v in SEED if v != [1]],
        "count": CHOICE, "stop": optional(OBJECT), "progress": FLAG,
    }  # fmt: skip
    yield "total", fk.total, {"valuations": [found, found]}, {
        "valuations": OBJECT, "participants": [*optional(OBJECT), [[0, 1, 2]], [3, 3]],
    }  # fmt: skip

    def add(**given: Any) -> None:
        fk.Ledger(":memory:").add(**given)

    yield "Ledger", fk.Ledger, {"path": ":memory:"}, {"path": [None, Thing(), [], {}, True, 3]}
    yield "Ledger.add", add, {"number": 0, "valuation": found}, {
        "number": [v for v in whole(0) if v != "nonsense"], "valuation": OBJECT,
        "clients": [*optional(OBJECT), [0, 1], [0, 1, 1]],
    }  # fmt: skip
    yield "glove", fk.glove, {"left": 1, "right": 2}, {"left": whole(1), "right": whole(1)}
    yield "gram_matrix", fk.gram_matrix, {"vectors": torch.ones(2, 3)}, {
        "vectors": OBJECT,
    }  # fmt: skip
    yield "normalise", fk.normalise, {"game": game}, {
        "game": OBJECT, "no_gain": CHOICE,
    }  # fmt: skip
    yield "precise", fk.precise, {"standard_error": 0.1}, {"standard_error": real(0, above=True)}
    yield "settled", fk.settled, {}, {"level": [*real(0, 1, above=True), 1.0]}
    yield "random_unanimity_sum", fk.random_unanimity_sum, {
        "n_players": 3, "terms": 2, "seed": 0,
    }, {
        "n_players": whole(1), "terms": whole(1), "seed": SEED, "n_outputs": optional(whole(1)),
    }  # fmt: skip
    yield "unanimity", fk.unanimity, {"n_players": 3, "carrier": [0, 1]}, {
        "n_players": whole(1), "carrier": [*NUMBERS, [0.5], [3], [-1], [True]],
    }  # fmt: skip
    yield "weighted_majority", fk.weighted_majority, {"weights": [1, 2], "quota": 2}, {
        "weights": [*NUMBERS, [0.5, 1]], "quota": whole(),
    }  # fmt: skip


def federations() -> Iterator[Row]:
    """Models, training, evaluation, federations, the round loop."""
    w = world()
    f, arch, base, updates = w["federation"], w["arch"], w["base"], w["updates"]
    shapes: Bad = [*OBJECT, (1, 4), (0, 4, 4), (1, -4, 4), (1, 4.5, 4), (1, 4, NAN), (1, 4, 4, 4)]
    yield "build", fk.build, {"name": "mlp-2", "input_shape": (1, 4, 4), "n_classes": 3}, {
        "name": OBJECT, "input_shape": shapes, "n_classes": whole(2),
    }  # fmt: skip
    tensors: Bad = [*OBJECT, np.ones(3), torch.zeros(0), torch.zeros(2, 2)]
    devices: Bad = ["gpu", "cuda:99"]
    yield "Evaluator", fk.Evaluator, {
        "model": arch, "x": f.x_val, "y": f.y_val, "device": "cpu",
    }, {
        "model": OBJECT, "x": [*tensors, f.x_val * NAN, f.x_val + INF],
        "y": [*tensors, f.y_val * NAN, f.y_val + 0.5], "device": devices,
        "utility": CHOICE,
    }  # fmt: skip
    yield "round_game", fk.round_game, {
        "module": w["evaluator"], "base": base, "trained": base + updates, "sizes": [1, 2],
    }, {
        "module": OBJECT, "base": [*tensors, base * NAN, base * 1j],
        "trained": [*OBJECT, *tensors, updates * INF, updates * 1j],
        "sizes": [*NUMBERS, [1, -1], [1, 2, 3]], "weighting": CHOICE,
        "x": [f.x_val], "utility": ["margins"], "device": ["cpu"],
    }  # fmt: skip
    yield "value", fk.value, {
        "module": arch, "base": base, "trained": base + updates, "sizes": [1, 2],
        "x": f.x_val, "y": f.y_val,
    }, {
        "module": OBJECT, "base": [*tensors, base * NAN], "trained": [*OBJECT, *tensors],
        "sizes": [*NUMBERS, [1, -1], [1, 2, 3]], "x": [Thing(), f.x_val * NAN], "y": [[0]],
        "utility": CHOICE, "weighting": CHOICE, "device": devices,
        "budget": optional(whole(1)), "seed": SEED, "progress": FLAG,
    }  # fmt: skip
    yield "Evaluator.utilities", w["evaluator"].utilities, {"rows": base[None]}, {
        "rows": [*tensors, base],
    }  # fmt: skip
    yield "Federation.client_data", f.client_data, {"i": 0}, {"i": whole(0, 3)}
    x, y = f.x[:4], f.y[:4]
    yield "train_clients", fk.train_clients, {
        "model": arch, "start": base[None], "datasets": [(x, y)], "config": w["local"],
        "rngs": [w["rng"]], "device": "cpu",
    }, {
        "model": OBJECT, "start": tensors,
        "datasets": [[(x, y[:2])], [(x, y + 9)]], "device": devices,
    }  # fmt: skip
    yield "make_federation", fk.make_federation, {
        "dataset": w["data"], "n_clients": 4, "scheme": fk.IID(), "seed": 0, "validation": 0.2,
    }, {
        "dataset": OBJECT, "n_clients": whole(1, 99), "scheme": [*OBJECT, fk.IID], "seed": SEED,
        "validation": real(0, 1), "validation_from": CHOICE,
        "imbalance_factor": optional(real(0, 1, above=True)), "empty": CHOICE,
        "min_size": whole(1),
    }  # fmt: skip
    one = (np.ones((4, 2)), [0, 1, 0, 1])
    pairs: Bad = [
        *OBJECT, (one[0],), (one[0], [0, 1]), (one[0], [0, 1, NAN, 1]), (one[0], [0, 1, INF, 1]),
        (one[0], [0.5] * 4), (one[0] * NAN, one[1]), (one[0], "abcd"), ([["a"]], [1]),
    ]  # fmt: skip
    yield "federation_from_arrays", fk.federation_from_arrays, {"clients": [one], "test": one}, {
        "clients": [*OBJECT, *([pair] for pair in pairs)], "test": pairs,
        "validation": optional(pairs), "n_classes": optional(whole(2)), "seed": SEED,
    }  # fmt: skip
    plan = fk.Plan(rounds=1, participants=2, local=w["local"])
    yield "run", fk.run, {
        "federations": [f], "architecture": arch, "strategy": w["strategy"], "plan": plan,
        "seeds": [0], "device": "cpu",
    }, {
        "federations": OBJECT, "architecture": OBJECT, "strategy": OBJECT,
        "plan": [*OBJECT, fk.Plan(1, 5, w["local"])],
        "seeds": [*OBJECT, b"x", [0.5], [-1], [NAN], [True], ["a"], [None]],
        "probe": optional(OBJECT), "attack": optional(OBJECT), "device": devices,
        "progress": FLAG,
    }  # fmt: skip
    r = a_round()
    sums: Bad = [[0.5] * 3, [-0.5, 0.5, 1.0], [NAN, 0.5, 0.5], [1.0, 0.0]]
    yield "Round.average", r.average, {"weights": [1, 0, 0]}, {"weights": [*NUMBERS, *sums]}
    yield "Round.with_updates", r.with_updates, {"updates": r.updates}, {
        "updates": [*OBJECT, r.updates[:1], r.updates * 1j],
    }  # fmt: skip
    yield "Federation.with_adversaries", f.with_adversaries, {"attacks": {}}, {
        "attacks": [v for v in OBJECT if v != {}] + [{0: "a"}, dict.fromkeys(range(4), FLIP)],
    }  # fmt: skip
    yield "federation_game", federated.federation_game, {
        "federation": f, "architecture": arch, "local": w["local"], "rounds": 1,
    }, {
        "federation": OBJECT, "architecture": OBJECT, "local": OBJECT, "rounds": whole(1),
        "seed": SEED, "train": OBJECT, "device": devices,
    }  # fmt: skip
    yield "train_with_sizes", federated.train_with_sizes, {
        "federation": f, "architecture": arch, "local": w["local"], "sizes": [[[8, 8, 8, 8]]],
        "device": "cpu",
    }, {
        "federation": OBJECT, "architecture": OBJECT, "local": OBJECT,
        "sizes": [*NUMBERS, [[[0.5] * 4]], [[[-1] * 4]], [[[99] * 4]]], "seed": SEED,
        "every_round": FLAG, "device": devices, "weights": optional(NUMBERS), "progress": FLAG,
        "utility": CHOICE,
    }  # fmt: skip
    yield "load", fk.load, {"name": "digits"}, {"name": OBJECT, "verify": FLAG}
    yield "load_table", datasets.load_table, {"name": "wine"}, {
        "name": OBJECT, "verify": FLAG,
    }  # fmt: skip
    yield "load_movielens", datasets.load_movielens, None, {"name": OBJECT, "verify": FLAG}  # type: ignore[misc]
    yield "made_up_ratings", datasets.made_up_ratings, {"users": 9, "movies": 9}, {
        "users": whole(1), "movies": whole(1), "seed": SEED,
    }  # fmt: skip


def papers() -> Iterator[Row]:
    """What only one paper's method, or a rival of it, takes."""
    w = world()
    yield "ShuffledValues", fk.ShuffledValues, {"policy": fk.Exact()}, {"policy": OBJECT}
    yield "contribution_index", methods.contribution_index, {"values": [1.0]}, {"values": NUMBERS}
    yield "contribution_values", methods.contribution_values, {"quality": [1], "sizes": [2]}, {
        "quality": [*NUMBERS, [1, 2]], "sizes": [*NUMBERS, [-1], [0]],
    }  # fmt: skip
    yield "cosine_game", methods.cosine_game, {"gram": np.eye(2)}, {
        "gram": [*NUMBERS, np.zeros((2, 3)), -np.eye(2)],
    }  # fmt: skip
    sizes, accuracy = np.random.default_rng(0).random((2, 6, 3, 2))
    yield "Simulations", methods.Simulations, {"sizes": sizes, "accuracy": accuracy[..., 0]}, {
        "sizes": [*NUMBERS, -sizes, sizes * NAN, 9 * sizes, sizes * 1j],
        "accuracy": [*NUMBERS, 100 * accuracy[..., 0], accuracy],
    }  # fmt: skip
    sims = methods.Simulations(sizes, accuracy[..., 0])
    yield "fit_aam", methods.fit_aam, {"simulations": sims, "solver": "adam", "epochs": 2}, {
        "simulations": OBJECT, "sigmoid": CHOICE, "solver": CHOICE, "lr": real(0, above=True),
        "epochs": whole(1), "seed": SEED,
    }  # fmt: skip
    yield "simulate", methods.simulate, {
        "federation": w["federation"], "architecture": w["arch"], "local": w["local"],
        "simulations": 2, "rounds": 1, "device": "cpu",
    }, {
        "federation": OBJECT, "architecture": OBJECT, "local": OBJECT, "simulations": whole(1),
        "rounds": whole(1), "seed": SEED, "device": ["gpu"], "progress": FLAG, "train": OBJECT,
    }  # fmt: skip


def vertical() -> Iterator[Row]:
    """FedValue: data, values, tests, the protocol."""
    columns, counts = world()["columns"], world()["counts"]
    binning = {"bins": whole(1), "how": CHOICE}
    label = columns.y
    yield "VerticalData", fedvalue.VerticalData, {
        "x_task": columns.x_task, "y": label, "parties": columns.parties,
    }, {
        "x_task": [*optional(OBJECT), [1, 2]],
        "y": [*OBJECT, label * NAN, label + 0.5, label[:5], [None] * 30, [INF] * 30],
        "parties": [*OBJECT, [[1]], [3], [None], [[INF] * 3], np.ones((30, 2))],
        "ids": [*optional(OBJECT), [[1], [2], [3]]],
        "discrete": [*optional(OBJECT), ["a", "b", "c"], [1, 2, 3], [True]],
    }  # fmt: skip
    yield "cmi_game", fedvalue.cmi_game, {"x_task": columns}, binning | {
        "x_task": OBJECT, "correction": CHOICE,
    }  # fmt: skip
    yield "discretise", fedvalue.discretise, {"x": [1.0, 2.0]}, binning | {
        "x": [*OTHER, True, NAN, INF, 3, [INF], [[1], [2, 3]], [1j]], "missing": CHOICE,
        "discrete": [v for v in optional(OBJECT) if v is not True] + [[1], ["a"], [True, False]],
    }  # fmt: skip
    yield "mshapley_cmi", fedvalue.mshapley_cmi, {"x_task": columns}, binning | {
        "x_task": OBJECT, "correction": CHOICE, "estimator": optional(OBJECT),
        "seed": SEED,
    }  # fmt: skip
    parts = {"x_task": columns.x_task, "y": label, "parties": columns.parties}
    for call in (fedvalue.cmi_game, fedvalue.mshapley_cmi, fedvalue.permutation_p_values):
        yield f"{call.__name__}(parts)", call, parts, {
            "x_task": [*optional(OBJECT), [{}] * 30, [[1]] * 29 + [[1, 2]]],
            "y": [*OBJECT, label * NAN, label[:5], [{}] * 30],
            "parties": [*OBJECT, [[1]], [3], [None], [[{}] * 30]],
        }  # fmt: skip
    yield "VerticalData.codes", columns.codes, {}, binning
    yield "mshapley_cmi(permutation)", fedvalue.mshapley_cmi, {
        "x_task": columns, "correction": "permutation",
    }, {"estimator": optional(OBJECT), "seed": SEED}  # fmt: skip
    yield "mshapley_from_table", fedvalue.mshapley_from_table, {
        "tokens": [[0, 0], [1, 1]], "task_cells": [[0, 0], [1, 1]], "counts": [3, 3],
    }, {
        "tokens": NUMBERS, "task_cells": NUMBERS,
        "counts": [*NUMBERS, [-1, 3], [0.5, 3], [0, 0]],
        "names": [*optional(OBJECT), ["a", "b"]],
    }  # fmt: skip
    yield (
        "permutation_p_values",
        fedvalue.permutation_p_values,
        {
            "x_task": columns,
            "draws": 39,
        },
        binning | {"x_task": OBJECT, "draws": whole(1), "seed": SEED},
    )
    yield "count_securely", fedvalue.count_securely, {"data": columns, "seed": 0}, binning | {
        "data": OBJECT, "iterations": whole(1),
        "duplications": [v for v in OBJECT if v != 3] + [(0, 2), (3, 2), (2, 3, 4), (1.5, 2)],
        "artificial": [v for v in OBJECT if v not in (3, None)] + [(3, 2), (1, 2, 3), (1.5, 2)],
        "seed": optional(SEED), "variant": CHOICE, "hardened": FLAG,
    }  # fmt: skip
    yield "assess", fedvalue.assess, {"counts": counts, "draws": 5}, {
        "counts": OBJECT, "correction": CHOICE, "test": optional(FLAG), "draws": whole(1),
        "seed": SEED,
    }  # fmt: skip


ROWS = [row for part in (policies, games, federations, papers, vertical) for row in part()]
ARGUMENTS = [(row, argument) for row in ROWS for argument in row[3]]


def fault(row: Row, argument: str, value: Any) -> str | None:
    """What is unclear about a call with this value; None where a sentence names the argument."""
    _, call, valid, _ = row
    keywords = (valid or {}) | {argument: value}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**keywords)
    except ValueError as error:
        text = str(error)
        if "\n" not in text and any(w in text for w in (argument, *WORDS.get(argument, ()))):
            return None
        return f"ValueError: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "taken without a word"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_calls_of_the_table_work(row: Row) -> None:
    _, call, valid, _ = row
    if valid is not None:
        made = call(**valid)
        if is_dataclass(made) and row[0] != "assess":  # which writes a report
            # at a prompt: one line, whatever arrays it holds
            assert len(repr(made)) < 500
            assert "\n" not in repr(made)


@pytest.mark.parametrize(
    ("row", "argument"), [pytest.param(r, a, id=f"{r[0]}.{a}") for r, a in ARGUMENTS]
)
def test_wrong_input_is_refused_in_one_sentence(row: Row, argument: str) -> None:
    faults = {repr(v): f for v in row[3][argument] if (f := fault(row, argument, v)) is not None}
    assert not faults
