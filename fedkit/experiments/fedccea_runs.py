"""FedCCEA's evaluation: indices, exclusion, removal, partial participation; seconds; scale."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.aam import contribution_index, contribution_values, sample_sizes
from fedkit.coalitions import Evaluator
from fedkit.experiments import Cell
from fedkit.experiments.fedccea import (
    CONTROLS,
    METHODS,
    PARTS,
    Setting,
    Valued,
    architecture,
    federation,
    halves,
    identity,
    kept_after_removal,
    setting,
    value_clients,
)
from fedkit.experiments.fedccea_fits import READINGS, by_chance, explained, other_fits, stability
from fedkit.experiments.fedtsv_runs import chance_above
from fedkit.partition import Federation
from fedkit.retraining import train_with_sizes
from fedkit.streams import Streams

__all__ = [
    "PARTIAL",
    "PROPORTIONS",
    "removal_curves",
    "run_base",
    "run_cell",
    "run_cost",
]

FloatArray = npt.NDArray[np.float64]
#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
#: FedCCEA's ranking with partial participation, and its control by amounts alone
PARTIAL = ("partial", "partial-size")


def removal_curves(valued: Valued) -> dict[str, FloatArray]:
    """Accuracy after the lowest, or the highest, clients have gone, by every method's values.

    The random control is the mean over its orders.

    Returns
    -------
    dict of str to float64[len(PROPORTIONS)]
        Keys "method.lowest" and "method.highest"; in percent.
    """
    jobs = [
        (f"{m}.{'highest' if high else 'lowest'}", kept_after_removal(v, PROPORTIONS, high))
        for m in (*METHODS, *READINGS, *CONTROLS)
        for v in np.atleast_2d(valued.values[m])
        for high in (False, True)
    ]
    found = 100 * valued.scored.value(np.concatenate([kept for _, kept in jobs]))
    rows: dict[str, list[FloatArray]] = {}
    for (name, _), row in zip(jobs, found.reshape(len(jobs), len(PROPORTIONS)), strict=True):
        rows.setdefault(name, []).append(row)
    return {name: np.mean(curves, axis=0) for name, curves in rows.items()}  # random orders


def partial_participation(
    s: Setting, f: Federation, quality: FloatArray, seed: int, device: str | None
) -> dict[str, FloatArray]:
    """The same for FedCCEA where clients use random shares of their data (section 4.4).

    In every round the clients are ranked by what they bring in that round, ``x_i omega_i``.  The
    control "partial-size" ranks by the used amounts ``x_i`` alone, which nobody had to learn.
    """
    drawn = sample_sizes(f.sizes, 1, s.rounds, seed + 1)[0]
    names = [f"{m}.{end}" for m in PARTIAL for end in ("lowest", "highest")]
    kept = np.stack(
        [
            [kept_after_removal(used * q, PROPORTIONS, high) for used in drawn]
            for q in (quality, np.ones_like(quality))
            for high in (False, True)
        ]
    )  # [curve, round, proportion, client]
    sizes = np.moveaxis(kept * drawn[None, :, None], 1, 2)
    # Where nobody goes, all curves are one federation.
    jobs = np.concatenate([sizes[0, :1], *sizes[:, 1:]])
    reached = 100 * train_with_sizes(
        f, architecture(s, f), s.local, jobs, seed=seed, every_round=False, device=device
    ).reshape(-1)
    rest = reached[1:].reshape(len(names), -1)
    return {name: np.append(reached[0], row) for name, row in zip(names, rest, strict=True)}


def area_between(curves: dict[str, FloatArray], method: str) -> float:
    """Mean difference of the two removal curves in points: how well a ranking ranks."""
    return float((curves[f"{method}.lowest"] - curves[f"{method}.highest"])[1:].mean())


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting, one seed after another."""
    s, results = setting(cell), []
    for seed in cell.seeds:
        f = federation(s, seed)
        valued = value_clients(s, f, seed, device=device, progress=progress)
        noisy = np.isin(np.arange(s.clients), s.noisy_clients())
        qualities, others = other_fits(s, valued.simulations, valued.fit, seed, noisy)
        read = {m: contribution_values(qualities[m], f.sizes) for m in READINGS}
        valued = replace(valued, values=valued.values | read)
        index = {m: contribution_index(valued.values[m]) for m in METHODS}
        without_zeros = valued.scored.value(np.stack([index[m] > 0 for m in METHODS]))
        curves = removal_curves(valued)
        scoring = halves(f, seed)[1]
        curves |= partial_participation(s, scoring, valued.fit.quality, seed, device)
        metrics = {"base": 100 * valued.base, **explained(valued.simulations, valued.fit)}
        for m, excluded in zip(METHODS, without_zeros, strict=True):
            v = valued.values[m]
            metrics |= {
                f"excluded.{m}": 100 * float(excluded),
                f"zeros.{m}": float((index[m] == 0).sum()),
                f"smallest.{m}": float(index[m].min()),
                f"trained.{m}": valued.trained[m],
            }
            if noisy.any():
                metrics[f"auc.{m}"] = chance_above(v[~noisy], v[noisy])
                for share, part in zip(PARTS, valued.parts.get(m, ()), strict=False):
                    metrics[f"auc.{m}.{share:g}"] = chance_above(part[~noisy], part[noisy])
        for m in (*METHODS, *READINGS, *CONTROLS, *PARTIAL):
            metrics[f"area.{m}"] = area_between(curves, m)
        metrics |= stability(s, valued.simulations, seed) | by_chance(valued.simulations, seed)
        metrics |= others
        results.append(
            {
                "seed": int(seed),
                "metrics": metrics,
                "series": {
                    "removed": (100 * PROPORTIONS).tolist(),
                    **{name: curve.tolist() for name, curve in curves.items()},
                    **{f"index.{m}": index[m].tolist() for m in METHODS},
                    "round": list(range(1, s.rounds + 1)),
                    "accuracy": (100 * valued.simulations.accuracy.mean(axis=0)).tolist(),
                    "predicted": (100 * valued.fit.predicted.mean(axis=0)).tolist(),
                },
                "data": identity(s),
            }
        )
    return results


def run_base(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Train a federation with everybody and all data, once per seed: does a scale learn enough?"""
    s, results = setting(cell), []
    for seed in cell.seeds:
        f = federation(s, seed)
        sizes = np.broadcast_to(f.sizes, (1, s.rounds, s.clients))
        reached = (
            100
            * train_with_sizes(
                f, architecture(s, f), s.local, sizes, seed=seed, device=device, progress=progress
            )[0]
        )
        rounds = list(range(1, s.rounds + 1))
        results.append(
            {
                "seed": int(seed),
                "metrics": {"base": float(reached[-1])},
                "series": {"round": rounds, "accuracy": reached.tolist()},
                "data": identity(s),
            }
        )
    return results


def run_cost(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Time a simulation, alone and in lockstep, beside leave-one-out and one walk (Table 2)."""
    s, results = setting(cell), []
    for seed in cell.seeds:
        f = federation(s, seed)
        arch = architecture(s, f)
        drawn = sample_sizes(f.sizes, s.simulations, s.rounds, seed)
        everybody = np.ones((s.clients + 1, s.clients), dtype=bool)
        without = everybody & ~np.eye(s.clients + 1, s.clients, dtype=bool)
        prefixes = np.tril(np.ones((s.clients, s.clients), dtype=bool))
        kept = {"loo": without, "walk": prefixes}
        jobs = {"simulation": drawn[:1], "lockstep": drawn} | {
            name: (rows * f.sizes)[:, None].repeat(s.rounds, axis=1) for name, rows in kept.items()
        }
        test = Evaluator(arch, f.x_test, f.y_test, "accuracy", device=device)
        models = arch.init(Streams(seed).generator("model"))
        test.utilities(models[None])  # what is done once only is not timed
        metrics = {}
        for name, sizes in jobs.items():
            simulated = name in ("simulation", "lockstep")
            share = (s.simulations if name == "lockstep" else 1) * s.rounds
            start = perf_counter()
            train_with_sizes(
                f, arch, s.local, sizes, seed=seed, every_round=simulated, device=device
            )
            metrics[f"seconds.{name}"] = (perf_counter() - start) / share
            start = perf_counter()
            test.utilities(models.repeat(len(sizes), 1))
            tests = s.rounds if simulated else 1  # a simulation is tested after every round
            metrics[f"testing.{name}"] = tests * (perf_counter() - start) / share
            metrics[f"trained.{name}"] = float(sizes.sum() / f.sizes.sum()) / share
        results.append({"seed": int(seed), "metrics": metrics, "data": identity(s)})
    return results
