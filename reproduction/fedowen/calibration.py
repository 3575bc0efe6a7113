"""Which federation had the paper?  FedAvg depends on data and local training alone.

The twelve printed accuracies of FedAvg on MNIST and FashionMNIST (Tables 1 and 2) are held against
FedAvg under every split and local training.  A *reading* is a split, a rate, a batch size, a
momentum, where the long tail is cut (in the training pool alone, or in the test set too) and which
accuracy is reported.  The rule by which one is chosen and confirmed is in the book's policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.checks import Floats
from fedkit.federated.rounds import Round
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import build
from fedkit.plots import INK, PALETTE, Picture, panels
from reproduction import common, overviews
from reproduction.common import dataset
from reproduction.fedowen.experiments import TINY, Setting, calibration, confirmation
from reproduction.fedowen.run import simulate
from reproduction.golden import Tiny
from reproduction.records import Cell

if TYPE_CHECKING:
    import pandas as pd

#: printed accuracies of FedAvg, by data set, alpha and imbalance (Tables 1 and 2)
PRINTED = {
    (data, alpha, imbalance): accuracy
    for (data, imbalance), row in {
        ("mnist", 0.01): (77.60, 83.74, 90.71),
        ("mnist", 0.05): (81.12, 86.96, 93.66),
        ("fashionmnist", 0.01): (59.96, 65.59, 72.97),
        ("fashionmnist", 0.05): (62.67, 69.09, 77.00),
    }.items()
    for alpha, accuracy in zip((0.01, 0.05, 0.1), row, strict=True)
}
#: what a run may report, as places in its tested rounds
REPORTED = ("last", "last_10", "best")
#: what the captions of Tables 1 to 3 may mean by "final"
FINAL = REPORTED[:2]
#: the reading of the records so far: split, rate, batch size, momentum, tail, report
PRESENT = ("blocks", 0.1, 32, 0.0, "train", "last")


def rounds_tested(rounds: int) -> list[int]:
    """Rounds after which the classes are tested: some on the way, and each of the last ten."""
    step = max(rounds // 5, 1)
    return sorted({*range(step, rounds + 1, step), *range(max(rounds - 9, 1), rounds + 1)})


def run_calibration(cell: Cell, device: Any, progress: bool) -> Iterator[dict[str, Any]]:
    """Run FedAvg and record the accuracy of each class after :func:`rounds_tested`."""
    s = Setting.of(cell)
    tested = rounds_tested(s.rounds)
    data = dataset(s.data)
    judge: list[Evaluator] = []
    found: dict[int, list[Floats]] = {seed: [] for seed in cell.seeds}

    def probe(r: Round, valuation: Valuation) -> dict[str, float]:
        if r.index + 1 in tested:
            if not judge:
                network = build(s.model, data.input_shape, data.n_classes)
                x = data.to_float(data.x_test)
                judge.append(Evaluator(network, x, data.y_test, "class_accuracy", device=device))
            share = r.updates.new_tensor(r.sizes / r.sizes.sum())
            after = r.base + share @ r.updates  # FedAvg: weighted by size
            found[r.streams.seed].append(100 * judge[0].utilities(after[None])[0])
        return {}

    simulate(s, cell.seeds, probe=probe, device=device, progress=progress)
    cut = s.imbalance ** (np.arange(data.n_classes) / (data.n_classes - 1))
    # share of each class in the test set: all alike, and cut to the long tail of training
    weights = {"train": np.full(data.n_classes, 1 / data.n_classes), "both": cut / cut.sum()}
    for seed in cell.seeds:
        classes = np.array(found[seed])
        series = {"round": tested, **{f"class.{c}": column for c, column in enumerate(classes.T)}}
        metrics: dict[str, float] = {}
        for tail, weight in weights.items():
            metrics |= {f"{tail}.{name}": x for name, x in reported(classes @ weight).items()}
        yield common.result(seed, s.data, metrics, series)


def reported(curve: Floats) -> dict[str, float]:
    """What a paper may report of the tested rounds of one run, the last ten of which are last."""
    found = zip(REPORTED, (curve[-1], curve[-10:].mean(), curve.max()), strict=True)
    return {name: float(x) for name, x in found}


def fit(gaps: Mapping[tuple[str, float, float], float]) -> dict[str, float]:
    """Measure how one reading fits; `gaps` has our mean minus the printed number by cell.

    Returns root mean squares in points: ``error`` over the cells; ``alpha`` and ``imbalance`` of
    the differences between two cells that differ in one of them alone, NaN where there are no two.
    """
    found: dict[str, list[float]] = {"error": [*gaps.values()], "alpha": [], "imbalance": []}
    for a, b in combinations(gaps, 2):
        differ = [name for name, x, y in zip(("data", "alpha", "imbalance"), a, b, strict=True)
                  if x != y]  # fmt: skip
        if differ in (["alpha"], ["imbalance"]):
            found[differ[0]].append(gaps[a] - gaps[b])
    return {name: float(np.sqrt(np.mean(np.square(x)))) if x else np.nan
            for name, x in found.items()}  # fmt: skip


READING = ["split", "lr", "batch_size", "momentum", "tail", "reported"]


def screen(frame: pd.DataFrame) -> pd.DataFrame:
    """How each reading fits, the best first; one that lacks a cell is left out.

    Index: :data:`READING`.  Columns: those of :func:`fit`, the number of cells and least seeds of a
    cell, and by cell ("mnist 0.01 0.01": data, alpha, imbalance) our mean minus the printed number.
    """
    parts = frame[frame.metric.str.contains(".", regex=False)].copy()
    parts[["tail", "reported"]] = parts.metric.str.split(".", expand=True).to_numpy()
    cells = ["dataset", "alpha", "imbalance"]
    wanted = len(parts.groupby(cells))
    rows = {}
    for reading, runs in parts.groupby(READING):
        ours: Any = runs.groupby(cells).value
        gaps = {cell: float(np.mean(x)) - PRINTED[cell] for cell, x in ours}
        if len(gaps) == wanted:
            counted = {"cells": len(gaps), "seeds": ours.size().min()}
            told = {" ".join(map(str, cell)): gap for cell, gap in gaps.items()}
            rows[reading] = {**fit(gaps), **counted, **told}
    table = overviews.table(rows).rename_axis(READING)
    return table.sort_values("error")


def declared(screened: pd.DataFrame) -> tuple[Any, ...] | None:
    """Return the reading of a :func:`screen` to be judged, None where none has three seeds."""
    final = screened.index.get_level_values("reported").isin(FINAL)
    ready = screened[final & (screened.seeds >= 3)]
    best: Any = None if ready.empty else ready.error.idxmin()
    return best


def in_words(reading: Sequence[Any]) -> str:
    """Say a reading: split, local training, whether the test set is cut, rounds reported."""
    split, rate, batch, momentum, tail, report = reading
    words = [split, f"rate {rate:g}", f"batch {batch}"]
    words += [f"momentum {momentum:g}"] * bool(momentum)
    words += ["test set cut"] * (tail == "both")
    told = {"last": "last", "last_10": "last ten", "best": "best"}
    return ", ".join([*words, told[report]])


def picture(screened: pd.DataFrame, shown: int = 12) -> Picture:
    """Draw our accuracy minus the printed one in every cell, of the readings that fit best.

    The present reading stands last.
    """
    rows = list(dict.fromkeys([*screened.index[:shown], PRESENT]))[: shown + 1]
    drawn, ((axis,),) = panels(height=0.32 * len(rows) + 1.2)
    for k, cell in enumerate(c for c in map(str, screened) if c.startswith(("mnist", "fashion"))):
        _, alpha, imbalance = cell.split()
        gaps = screened[cell].loc[rows]
        axis.plot(gaps, range(len(rows)), "oD^"[k % 3], color=PALETTE[k],
                  label=f"Dirichlet {alpha}, imbalance {imbalance}")  # fmt: skip
    axis.axvline(0, color=INK, linewidth=1)
    axis.set_yticks(range(len(rows)), [in_words(reading) for reading in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("ours minus printed, points", color=INK)
    drawn.legend(loc="outside lower center", ncols=2, frameon=False, labelcolor=INK)
    return drawn


CALIBRATION = Tiny(
    "calibration",
    run_calibration,
    asdict(replace(TINY, split="capped", exact_every=0)),
    switches={"split": {}, "momentum": {}},
    slack={"metrics.*": 3.0, "series.class.*": 6.0},
)
common.experiment(
    "fedowen", "calibration", "FedAvg under every split and local training", calibration,
    lambda *_: [(0,)], CALIBRATION, block=1,
)  # fmt: skip
common.experiment(
    "fedowen", "confirmation", "FedAvg in the other cells, in the reading that is declared",
    confirmation, lambda *_: [tuple(range(5))], CALIBRATION, block=1,
)  # fmt: skip
