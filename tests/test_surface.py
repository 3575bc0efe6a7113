"""Every public name, argument by argument: wrong input ends in one clear sentence.

Each row of the table is a call that works and, for its arguments, what they cannot be.  An
argument is then replaced by all of that: another type, a truth value, NaN, an infinity, a fraction,
nothing, a number beyond its range.  Each must be refused with a ValueError of one sentence that
names the argument (or its word in `WORDS`); nothing may pass in silence.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Any, NamedTuple

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


#: What an argument of this name cannot be, wherever it stands; a row may say otherwise.
USUAL: dict[str, Bad] = {
    name: bad
    for names, bad in (
        ("antithetic exact from_zero hardened mixed normalised progress shared shrink", FLAG),
        ("verify", FLAG),
        ("against by correction count empty how no_gain sigmoid solver units utility", CHOICE),
        ("variant weighting", CHOICE),
        ("aggregate architecture data dataset estimator federation federations function", OBJECT),
        ("game games local model module name policy remember select simulations train", OBJECT),
        ("valuation value vectors x_task", OBJECT),
        ("batch_size bins draws evaluate_every epochs iterations last left levels", whole(1)),
        ("min_size movies n_players participants right rounds terms users", whole(1)),
        ("between confidence convergence eps low_gain proximal scale tolerance", real(0)),
        ("weight_decay within", real(0)),
        ("alpha beta lr standard_error temperature", real(0, above=True)),
        ("calls evaluations seed t", SEED),
        ("budget walks", optional(whole(1))),
        ("device", ["gpu", "cuda:99"]),
        ("level", [*real(0, 1, above=True), 1.0]),
        ("n_classes", whole(2)),
        ("stop", optional(OBJECT)),
        ("values", NUMBERS),
    )
    for name in names.split()
}


class Row(NamedTuple):
    """A call that works, and what its arguments cannot be."""

    name: str
    call: Callable[..., Any]
    valid: dict[str, Any] | None
    bad: dict[str, Bad]


def row(
    call: Callable[..., Any], valid: dict[str, Any] | None, usual: str = "", /, **bad: Bad
) -> Row:
    """A row that is called as what it calls, with arguments by their usual names, and its own."""
    return Row(call.__qualname__, call, valid, {n: USUAL[n] for n in usual.split()} | bad)


def policies() -> Iterator[Row]:
    """Frozen settings: estimators, valuers, selections, weights, training, partitioners."""
    some = optional(whole(1))
    yield row(fk.BanzhafSampling, {}, "variant", draws=some)
    yield row(fk.ComplementarySampling, {}, rounds=some)
    yield row(fk.CosineValues, {}, "exact normalised")
    yield row(fk.Dirichlet, {"alpha": 0.5}, "alpha by")
    yield row(fk.EpsilonGreedy, {}, "confidence low_gain", epsilon=real(0, 1), floor=real())
    sampled = {"estimator": fk.PermutationSampling()}
    yield row(fk.Estimated, sampled, "estimator budget count normalised no_gain")
    yield row(fk.Exact, {}, "normalised no_gain")
    shares = {"alpha": real(0, 1), "aggregate": CHOICE, "tolerance": NUMBERS}
    yield row(fk.FedMS, {}, "estimator units against", **shares)
    yield row(fk.FedOwen, {}, "estimator select aggregate", budget=whole(1))
    yield row(fk.FedTSV, {}, "value select")
    yield row(fk.GTGShapley, {}, "within between convergence walks")
    trained = "lr weight_decay batch_size proximal"
    counted = {"epochs": whole(0), "steps": optional(whole(0))}
    yield row(
        fk.LocalSGD, {"lr": 0.1}, trained, **counted, lr=real(0), momentum=[*real(0), 1.0, 1.5]
    )
    yield row(fk.MaverickGTG, {}, "between temperature within convergence last walks")
    yield row(fk.MaverickMR, {}, "temperature")
    yield row(fk.MaverickTMR, {}, "between temperature")
    yield row(fk.Mavericks, {}, "shared mixed", n_mavericks=whole(1), others=OBJECT)
    yield row(fk.MultilinearSampling, {}, "antithetic", nodes=CHOICE, levels=some, draws=some)
    yield row(fk.OwenSampling, {}, "levels", draws=some, eta=optional(real(0, 1)))
    yield row(fk.OwenTwins, {}, "levels", draws=some)
    yield row(fk.PermutationSampling, {}, "antithetic walks", beta=optional([*NUMBERS, (0, 1)]))
    planned = {"rounds": 1, "participants": 2, "local": world()["local"]}
    asked = "rounds participants local weighting evaluate_every"
    yield row(fk.Plan, planned, asked, utility=[*CHOICE, dict])
    sizes, score = optional([*NUMBERS, [0, 0]]), optional(OBJECT)
    yield row(fk.ProxySampling, {}, "shrink", sizes=sizes, value=CHOICE, score=score)
    yield row(fk.Softmax, {}, "scale")
    yield row(fk.Softmax().weights, {"values": [1.0]}, "values")
    drawn, counts = {"values": [1.0], "counts": [0], "t": 0}, [*NUMBERS, [1, 2]]
    yield row(fk.EpsilonGreedy().probabilities, drawn, "values t", counts=counts)
    fair = {"select": fk.UniformSelection(), "value": fk.NoValue(), "aggregate": fk.SizeWeighted()}
    yield row(fk.Strategy, fair, "select value aggregate remember", outputs=some)
    yield row(fk.Streams, {"seed": 0}, "seed")
    yield row(fk.TrajectoryValues, {}, "budget utility", estimator=optional(OBJECT))
    yield row(fk.TruncatedMonteCarlo, {}, "tolerance walks from_zero")
    yield row(fk.share_right, {"margins": [[1.0, -1.0]]}, margins=[*OTHER, True, ["a"]])
    yield row(federated.LabelFlip, {"n_classes": 3}, "n_classes")


def games() -> Iterator[Row]:
    """Games, exact values and estimates."""
    game = world()["game"]
    yield row(fk.Game, {"n_players": 3, "function": len}, "n_players function")
    yield row(fk.remember, {"game": game}, "game", path=[Thing(), [], {}, True, 3])
    asked = {"coalitions": [[True, False, True]]}
    rows: Bad = [*OTHER, True, NAN, [True] * 3, [[True]], [[2, 0, 1]], [["a"] * 3], [[0.5] * 3]]
    function = fk.Game(3, lambda rows: rows.sum(axis=1))
    for kind in (game, function, fk.remember(game), fk.tabulate(game), fk.normalise(game)):
        yield row(kind.__call__, asked, coalitions=rows)
    numbers: Bad = [*OTHER, True, ["a"] * 3, [1j] * 3, [1, 2], [[1], [2, 3]]]
    facts = {"values": [1, 2, 3], "standard_errors": [0, 0, 0], "evaluations": 8, "calls": 7}
    yield row(
        fk.Valuation, facts | {"method": "own"}, "evaluations calls", values=numbers,
        standard_errors=numbers, degrees_of_freedom=optional(numbers),
        names=[*optional(OBJECT), ["a"], ["a", "b", "b"]],
    )  # fmt: skip
    found = fk.shapley(game)
    named = [*OBJECT, "abc", ["a", "b", "b"]]
    yield row(found.named, {"names": list("abc")}, names=named)
    yield row(found.ranking, {}, output=whole(0, 0))
    yield row(found.interval, {}, "level")
    yield row(fk.Valuation.from_dict, {"record": found.to_dict()}, record=OBJECT)
    yield row(fk.table_game, {"values": [0.0, 1.0]}, values=[[], [0.0], [1, 2, 3]])
    gram = [*NUMBERS, np.zeros((2, 3)), np.full((2, 2), NAN)]
    yield row(fk.trajectory_game, {"gram": np.eye(3)}, "utility eps", gram=gram)
    yield row(fk.airport, {"costs": [1, 2]}, costs=NUMBERS)
    yield row(fk.all_coalitions, {"n_players": 3}, n_players=whole(0, 10**6))
    yield row(fk.tabulate, {"game": game}, "game batch_size")
    yield row(fk.beta_shapley, {"game": game, "alpha": 1.0, "beta": 1.0}, "game alpha beta")
    yield row(fk.parallel, {"game": game}, "game", n_jobs=[*whole(), 0])
    for exact in (fk.banzhaf, fk.leave_one_out, fk.shapley):
        yield row(exact, {"game": game}, "game")
    none = [*OTHER, NAN, [[2, 0]], [[NAN, 0]], ["a"], [[0.5, 1]]]
    yield row(fk.coalition_index, {"coalitions": [[True, False]]}, coalitions=none)
    proxy = {"game": game, "estimator": fk.ProxySampling(), "budget": 8}
    yield row(fk.estimate, proxy, "game", budget=[*optional(whole(1)), np.array(8)])
    walks = {"game": game, "estimator": fk.PermutationSampling(), "budget": 6}
    yield row(fk.estimate, walks, "game estimator budget seed count stop progress")
    many = {"games": [game], "estimators": fk.PermutationSampling(), "budget": 6}
    lists = {n: [v for v in USUAL[n] if v != [1]] for n in ("budget", "seed")}
    yield row(
        fk.estimate_many, many, "games count stop progress", estimators=OBJECT,
        budget=lists["budget"], seeds=lists["seed"],
    )  # fmt: skip
    participants = [*optional(OBJECT), [[0, 1, 2]], [3, 3]]
    yield row(fk.total, {"valuations": [found] * 2}, valuations=OBJECT, participants=participants)

    def add(**given: Any) -> None:
        fk.Ledger(":memory:").add(**given)

    yield row(fk.Ledger, {"path": ":memory:"}, path=[None, Thing(), [], {}, True, 3])
    number = [v for v in whole(0) if v != "nonsense"]
    clients = [*optional(OBJECT), [0, 1], [0, 1, 1]]
    yield row(add, {"number": 0, "valuation": found}, "valuation", number=number, clients=clients)
    yield row(fk.glove, {"left": 1, "right": 2}, "left right")
    yield row(fk.gram_matrix, {"vectors": torch.ones(2, 3)}, "vectors")
    yield row(fk.normalise, {"game": game}, "game no_gain")
    yield row(fk.precise, {"standard_error": 0.1}, "standard_error")
    yield row(fk.settled, {}, "level")
    summed = {"n_players": 3, "terms": 2, "seed": 0}
    yield row(fk.random_unanimity_sum, summed, "n_players terms seed", n_outputs=optional(whole(1)))
    carrier = [*NUMBERS, [0.5], [3], [-1], [True]]
    yield row(fk.unanimity, {"n_players": 3, "carrier": [0, 1]}, "n_players", carrier=carrier)
    votes = {"weights": [1, 2], "quota": 2}
    yield row(fk.weighted_majority, votes, weights=[*NUMBERS, [0.5, 1]], quota=whole())


def federations() -> Iterator[Row]:
    """Models, training, evaluation, federations, the round loop."""
    w = world()
    f, arch, base, updates = w["federation"], w["arch"], w["base"], w["updates"]
    shapes: Bad = [*OBJECT, (1, 4), (0, 4, 4), (1, -4, 4), (1, 4.5, 4), (1, 4, NAN), (1, 4, 4, 4)]
    built = {"name": "mlp-2", "input_shape": (1, 4, 4), "n_classes": 3}
    yield row(fk.build, built, "name n_classes", input_shape=shapes)
    tensors: Bad = [*OBJECT, np.ones(3), torch.zeros(0), torch.zeros(2, 2)]
    yield row(
        fk.Evaluator, {"model": arch, "x": f.x_val, "y": f.y_val, "device": "cpu"},
        "model device utility", x=[*tensors, f.x_val * NAN, f.x_val + INF],
        y=[*tensors, f.y_val * NAN, f.y_val + 0.5],
    )  # fmt: skip
    sizes = [*NUMBERS, [1, -1], [1, 2, 3]]
    sent = {"base": base, "trained": base + updates, "sizes": [1, 2]}
    yield row(
        fk.round_game, sent | {"module": w["evaluator"]}, "module weighting",
        base=[*tensors, base * NAN, base * 1j],
        trained=[*OBJECT, *tensors, updates * INF, updates * 1j], sizes=sizes, x=[f.x_val],
        utility=["margins"], device=["cpu"],
    )  # fmt: skip
    yield row(
        fk.value, sent | {"module": arch, "x": f.x_val, "y": f.y_val},
        "module utility weighting device budget seed progress", base=[*tensors, base * NAN],
        trained=[*OBJECT, *tensors], sizes=sizes, x=[Thing(), f.x_val * NAN], y=[[0]],
    )  # fmt: skip
    yield row(w["evaluator"].utilities, {"rows": base[None]}, rows=[*tensors, base])
    yield row(f.client_data, {"i": 0}, i=whole(0, 3))
    x, y = f.x[:4], f.y[:4]
    yield row(
        fk.train_clients,
        {"model": arch, "start": base[None], "datasets": [(x, y)], "config": w["local"],
         "rngs": [w["rng"]], "device": "cpu"},
        "model device", start=tensors, datasets=[[(x, y[:2])], [(x, y + 9)]],
    )  # fmt: skip
    split = {"n_clients": 4, "scheme": fk.IID(), "seed": 0, "validation": 0.2}
    yield row(
        fk.make_federation, split | {"dataset": w["data"]}, "dataset seed empty min_size",
        n_clients=whole(1, 99), scheme=[*OBJECT, fk.IID], validation=real(0, 1),
        validation_from=CHOICE, imbalance_factor=optional(real(0, 1, above=True)),
    )  # fmt: skip
    one = (np.ones((4, 2)), [0, 1, 0, 1])
    pairs: Bad = [
        *OBJECT, (one[0],), (one[0], [0, 1]), (one[0], [0, 1, NAN, 1]), (one[0], [0, 1, INF, 1]),
        (one[0], [0.5] * 4), (one[0] * NAN, one[1]), (one[0], "abcd"), ([["a"]], [1]),
    ]  # fmt: skip
    yield row(
        fk.federation_from_arrays, {"clients": [one], "test": one}, "seed",
        clients=[*OBJECT, *([pair] for pair in pairs)], test=pairs, validation=optional(pairs),
        n_classes=optional(whole(2)),
    )  # fmt: skip
    plan = fk.Plan(rounds=1, participants=2, local=w["local"])
    yield row(
        fk.run,
        {"federations": [f], "architecture": arch, "strategy": w["strategy"], "plan": plan,
         "seeds": [0], "device": "cpu"},
        "federations architecture device progress", strategy=OBJECT,
        plan=[*OBJECT, fk.Plan(1, 5, w["local"])],
        seeds=[*OBJECT, b"x", [0.5], [-1], [NAN], [True], ["a"], [None]],
        probe=optional(OBJECT), attack=optional(OBJECT),
    )  # fmt: skip
    r = a_round()
    sums: Bad = [[0.5] * 3, [-0.5, 0.5, 1.0], [NAN, 0.5, 0.5], [1.0, 0.0]]
    yield row(r.average, {"weights": [1, 0, 0]}, weights=[*NUMBERS, *sums])
    changed = [*OBJECT, r.updates[:1], r.updates * 1j]
    yield row(r.with_updates, {"updates": r.updates}, updates=changed)
    attacks = [v for v in OBJECT if v != {}] + [{0: "a"}, dict.fromkeys(range(4), FLIP)]
    yield row(f.with_adversaries, {"attacks": {}}, attacks=attacks)
    trained = {"federation": f, "architecture": arch, "local": w["local"]}
    asked = "federation architecture local"
    played = f"{asked} rounds seed train device"
    yield row(federated.federation_game, trained | {"rounds": 1}, played)
    used = [*NUMBERS, [[[0.5] * 4]], [[[-1] * 4]], [[[99] * 4]]]
    yield row(
        federated.train_with_sizes, trained | {"sizes": [[[8, 8, 8, 8]]], "device": "cpu"},
        f"{asked} seed device progress utility", sizes=used, every_round=FLAG,
        weights=optional(NUMBERS),
    )  # fmt: skip
    yield row(fk.load, {"name": "digits"}, "name verify")
    yield row(datasets.load_table, {"name": "wine"}, "name verify")
    yield row(datasets.load_movielens, None, "name verify")
    yield row(datasets.made_up_ratings, {"users": 9, "movies": 9}, "users movies seed")


def papers() -> Iterator[Row]:
    """What only one paper's method, or a rival of it, takes."""
    w = world()
    yield row(fk.ShuffledValues, {"policy": fk.Exact()}, "policy")
    yield row(methods.contribution_index, {"values": [1.0]}, "values")
    told = {"quality": [*NUMBERS, [1, 2]], "sizes": [*NUMBERS, [-1], [0]]}
    yield row(methods.contribution_values, {"quality": [1], "sizes": [2]}, **told)
    gram = [*NUMBERS, np.zeros((2, 3)), -np.eye(2)]
    yield row(methods.cosine_game, {"gram": np.eye(2)}, gram=gram)
    sizes, accuracy = np.random.default_rng(0).random((2, 6, 3, 2))
    yield row(
        methods.Simulations, {"sizes": sizes, "accuracy": accuracy[..., 0]},
        sizes=[*NUMBERS, -sizes, sizes * NAN, 9 * sizes, sizes * 1j],
        accuracy=[*NUMBERS, 100 * accuracy[..., 0], accuracy],
    )  # fmt: skip
    sims = methods.Simulations(sizes, accuracy[..., 0])
    fitted = {"simulations": sims, "solver": "adam", "epochs": 2}
    yield row(methods.fit_aam, fitted, "simulations sigmoid solver lr epochs seed")
    yield row(
        methods.simulate,
        {"federation": w["federation"], "architecture": w["arch"], "local": w["local"],
         "simulations": 2, "rounds": 1, "device": "cpu"},
        "federation architecture local rounds seed progress train", simulations=whole(1),
        device=["gpu"],
    )  # fmt: skip


def vertical() -> Iterator[Row]:
    """FedValue: data, values, tests, the protocol."""
    columns, counts = world()["columns"], world()["counts"]
    label, whole_data = columns.y, {"x_task": columns}
    parts = {"x_task": columns.x_task, "y": label, "parties": columns.parties}
    yield row(
        fedvalue.VerticalData, parts, x_task=[*optional(OBJECT), [1, 2]],
        y=[*OBJECT, label * NAN, label + 0.5, label[:5], [None] * 30, [INF] * 30],
        parties=[*OBJECT, [[1]], [3], [None], [[INF] * 3], np.ones((30, 2))],
        ids=[*optional(OBJECT), [[1], [2], [3]]],
        discrete=[*optional(OBJECT), ["a", "b", "c"], [1, 2, 3], [True]],
    )  # fmt: skip
    yield row(fedvalue.cmi_game, whole_data, "bins how x_task correction")
    kept = [v for v in optional(OBJECT) if v is not True] + [[1], ["a"], [True, False]]
    yield row(
        fedvalue.discretise, {"x": [1.0, 2.0]}, "bins how",
        x=[*OTHER, True, NAN, INF, 3, [INF], [[1], [2, 3]], [1j]], missing=CHOICE, discrete=kept,
    )  # fmt: skip
    sampler = optional(OBJECT)
    valued = "bins how x_task correction seed"
    yield row(fedvalue.mshapley_cmi, whole_data, valued, estimator=sampler)
    for call in (fedvalue.cmi_game, fedvalue.mshapley_cmi, fedvalue.permutation_p_values):
        yield row(
            call, parts, x_task=[*optional(OBJECT), [{}] * 30, [[1]] * 29 + [[1, 2]]],
            y=[*OBJECT, label * NAN, label[:5], [{}] * 30],
            parties=[*OBJECT, [[1]], [3], [None], [[{}] * 30]],
        )  # fmt: skip
    yield row(columns.codes, {}, "bins how")
    chance = whole_data | {"correction": "permutation"}
    yield row(fedvalue.mshapley_cmi, chance, "seed", estimator=sampler)
    yield row(
        fedvalue.mshapley_from_table,
        {"tokens": [[0, 0], [1, 1]], "task_cells": [[0, 0], [1, 1]], "counts": [3, 3]},
        tokens=NUMBERS, task_cells=NUMBERS, counts=[*NUMBERS, [-1, 3], [0.5, 3], [0, 0]],
        names=[*optional(OBJECT), ["a", "b"]],
    )  # fmt: skip
    tested = whole_data | {"draws": 39}
    yield row(fedvalue.permutation_p_values, tested, "bins how x_task draws seed")
    yield row(
        fedvalue.count_securely, {"data": columns, "seed": 0},
        "bins how data iterations variant hardened", seed=optional(SEED),
        duplications=[v for v in OBJECT if v != 3] + [(0, 2), (3, 2), (2, 3, 4), (1.5, 2)],
        artificial=[v for v in OBJECT if v not in (3, None)] + [(3, 2), (1, 2, 3), (1.5, 2)],
    )  # fmt: skip
    told = {"counts": OBJECT, "test": optional(FLAG)}
    yield row(fedvalue.assess, {"counts": counts, "draws": 5}, "correction draws seed", **told)


ROWS = [row for part in (policies, games, federations, papers, vertical) for row in part()]
ARGUMENTS = [(row, argument) for row in ROWS for argument in row.bad]


def fault(row: Row, argument: str, value: Any) -> str | None:
    """What is unclear about a call with this value; None where a sentence names the argument."""
    keywords = (row.valid or {}) | {argument: value}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            row.call(**keywords)
    except ValueError as error:
        text = str(error)
        if "\n" not in text and any(w in text for w in (argument, *WORDS.get(argument, ()))):
            return None
        return f"ValueError: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "taken without a word"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_calls_of_the_table_work(row: Row) -> None:
    if row.valid is not None:
        made = row.call(**row.valid)
        if is_dataclass(made) and row.name != "assess":  # which writes a report
            # at a prompt: one line, whatever arrays it holds
            assert len(repr(made)) < 500
            assert "\n" not in repr(made)


@pytest.mark.parametrize(
    ("row", "argument"), [pytest.param(r, a, id=f"{r.name}.{a}") for r, a in ARGUMENTS]
)
def test_wrong_input_is_refused_in_one_sentence(row: Row, argument: str) -> None:
    faults = {repr(v): f for v in row.bad[argument] if (f := fault(row, argument, v)) is not None}
    assert not faults
