"""What the evaluations of all papers share: their data, their cells, and runs of one seed.

A frozen dataclass of settings describes a run, all seeds apart; a cell adds a block of seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedkit.extras import bar
from reproduction.experiments import Experiment, register
from reproduction.golden import RunFunction, Tiny, trace
from reproduction.plugins import load_plugin
from reproduction.records import PROFILES, Cell

if TYPE_CHECKING:
    import pandas as pd

    from fedkit.datasets import Dataset, MovieLens, Tabular
    from fedkit.federated.federation import Federation
    from fedkit.federated.history import History
    from fedkit.federated.rounds import Plan, Strategy, Value

T = TypeVar("T")


@lru_cache(maxsize=2)
def dataset(name: str) -> Dataset:
    """Return an image data set, read once."""
    from fedkit.datasets import load  # imports torch, which no table needs

    return load(name)


def identity(data: Dataset | Tabular | MovieLens) -> dict[str, str]:
    """Return which data were read, for the manifest of a record."""
    return {"name": data.name, "source": data.source, "checksum": data.fingerprint}


def later(default: T) -> T:
    """A field of settings that is younger than some records: no cell holds it at its default.

    So a record that was made before there was the field keeps its name.
    """
    made: T = field(default=default, metadata={"later": True})
    return made


def settings_in_cell(setting: Any) -> dict[str, Any]:
    """Return what a cell holds of a dataclass of settings: all but :func:`later` defaults."""
    left_out = {
        f.name
        for f in fields(setting)
        if f.metadata.get("later") and getattr(setting, f.name) == f.default
    }
    return {name: value for name, value in asdict(setting).items() if name not in left_out}


class Setting:
    """What the settings of all papers, frozen dataclasses, have in common."""

    @classmethod
    def of(cls, cell: Cell) -> Self:
        """Return the setting of a cell; what its class has no field for is left out."""
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{k: v for k, v in cell.settings.items() if k in known})


def result(
    seed: int,
    data: str,
    metrics: dict[str, float],
    series: Mapping[str, Sequence[float] | npt.NDArray[Any]] | None = None,
    rounds: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Put together what a record holds of one seed's run on a data set."""
    found: dict[str, Any] = {"seed": int(seed), "metrics": metrics, "data": identity(dataset(data))}
    if series is not None:
        found["series"] = {name: np.asarray(values).tolist() for name, values in series.items()}
    if rounds is not None:
        found["evaluations"] = int(rounds.evaluations.sum())
    return found


def lockstep(
    s: Any,
    federations: Sequence[Federation],
    rows: Strategy,
    plan: Plan,
    seeds: Sequence[int],
    *,
    remembered: list[Any] | None = None,
    **options: Any,
) -> History:
    """Run federations with the network of their setting, one per seed, in lockstep.

    `remembered` collects what the server keeps of all clients after each round; `options` are those
    of :func:`fedkit.federated.rounds.run`.
    """
    from fedkit.federated.rounds import run  # imports torch, which no table needs
    from fedkit.learning.models import build

    if remembered is not None:
        keep, kept = rows.remember, remembered

        def remember(clients: Any, ids: Any, valuation: Any) -> None:
            keep(clients, ids, valuation)
            kept.append(clients.values.copy())

        rows = replace(rows, remember=remember)
    network = build(s.model, federations[0].input_shape, federations[0].n_classes)
    return run(federations, network, rows, plan, seeds, **options)


def in_place(name: str, row: Strategy, estimated: Callable[[Any], Value]) -> Strategy:
    """Return a paper's strategy with a method from outside in it, or in its place.

    ``package:Name`` is an estimator, which `estimated` gives the paper's budget, a function that
    values rounds, or a whole strategy; `row` is what the paper does where the method says nothing.
    A ValueError says that there is no such method, or that it is none of these.
    """
    from fedkit.federated.rounds import Strategy

    made = load_plugin(name)
    if isinstance(made, Strategy):
        return made
    if hasattr(made, "sample") and hasattr(made, "accumulator"):
        made = estimated(made)
    return replace(row, value=made)


def product(base: T, **axes: Sequence[Any]) -> list[T]:
    """Return a setting with every combination of values of some fields; the last varies fastest."""
    points = itertools.product(*axes.values())
    return [replace(base, **dict(zip(axes, point, strict=True))) for point in points]  # type: ignore[type-var]


def blocks(seeds: Sequence[int], size: int | None = None) -> list[tuple[int, ...]]:
    """Cut seeds into blocks of at most `size`; one block where it is None."""
    size = size or max(len(seeds), 1)
    return [tuple(seeds[i : i + size]) for i in range(0, len(seeds), size)]


def experiment(
    paper: str,
    name: str,
    title: str,
    settings: Callable[[str], Sequence[Any]],
    seeds: Callable[[str, Any], Sequence[tuple[int, ...]]],
    *golden: Tiny,
    run: RunFunction | None = None,
    block: int | None = None,
    entry: str | None = None,
) -> Experiment:
    """Register an experiment whose cells are every setting with every block of its seeds.

    ``settings(profile)`` lists dataclasses or mappings, ``seeds(profile, setting)`` a setting's own
    blocks of seeds; of seeds that a caller names at most `block` are in a cell. `run` is by default
    that of the first golden run.
    """

    def cells(profile: str, chosen: Sequence[int] | None = None) -> list[Cell]:
        if profile not in PROFILES:
            raise ValueError(f"unknown profile {profile!r}; there are {', '.join(PROFILES)}")
        return [
            Cell(profile, paper, name, s if isinstance(s, Mapping) else settings_in_cell(s), part)
            for s in settings(profile)
            for part in (seeds(profile, s) if chosen is None else blocks(chosen, block))
        ]

    return register(
        Experiment(paper, name, title, cells, run or golden[0].run, golden, entry=entry)
    )


def each_seed(one: Callable[[Cell, int, Any, bool], dict[str, Any]]) -> RunFunction:
    """Make a run function of ``one(cell, seed, device, progress)``, which runs a single seed."""

    @wraps(one)
    def run(cell: Cell, device: Any, progress: bool) -> list[dict[str, Any]]:
        seeds = bar(cell.seeds, progress, "seed")
        return [{"seed": int(s), **one(cell, s, device, progress)} for s in seeds]

    return run


def tracer(
    kind: type[Setting], federation: Callable[..., Any], simulate: Callable[..., History]
) -> Callable[[Cell, Any], Mapping[str, Any]]:
    """Make what a golden run compares beside the record: what the federations of a cell did."""

    def more(cell: Cell, device: Any) -> Mapping[str, Any]:
        s = kind.of(cell)
        made, remembered = [federation(s, seed) for seed in cell.seeds], list[Any]()
        history = simulate(s, made, cell.seeds, device=device, remembered=remembered)
        return trace(history, remembered)

    return more


def tested_rounds(rounds: pd.DataFrame) -> pd.DataFrame:
    """The rounds of one run whose accuracy was taken; the last is, so there NaN is the outcome."""
    return rounds[rounds.accuracy.notna() | (rounds["round"] == rounds["round"].max())]


def accuracy_curve(rounds: pd.DataFrame) -> dict[str, list[float]]:
    """The tested rounds of one run and their accuracy in percent, as series of a record."""
    tested = tested_rounds(rounds)
    return {"round": tested["round"].tolist(), "accuracy": (100 * tested.accuracy).tolist()}


def accuracies(rounds: pd.DataFrame) -> dict[str, float]:
    """Test accuracy in percent: at the end, mean of the last ten rounds, and the best.

    `rounds` are those of one run; one that ends in NaN has NaN at the end and over the last rounds.
    """
    tested = tested_rounds(rounds)
    late = tested[tested["round"] > rounds["round"].max() - 10]
    return {
        "accuracy": 100 * float(tested.accuracy.iloc[-1]),
        "accuracy_last_10_rounds": 100 * float(late.accuracy.mean(skipna=False)),
        "accuracy_best": 100 * float(tested.accuracy.max()),
    }


def chance_above(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    """Probability that a member of `a` is above one of `b`, ties half; NaN if one is empty.

    The area under the ROC curve; a member that is NaN is above none, and none is above it.
    """
    if not len(a) or not len(b):
        return float("nan")
    numbers, below = np.asarray(a)[~np.isnan(a)], np.sort(b)
    places = [np.searchsorted(below, numbers, side=side) for side in ("left", "right")]
    return float(np.sum(places) / (2 * len(a) * len(b)))


def crossed(bases: Iterable[T], **axes: Sequence[Any]) -> list[T]:
    """Return :func:`product` of each of some settings, which vary the slowest."""
    return [setting for base in bases for setting in product(base, **axes)]
