"""FedCCEA's evaluation: indices, exclusion, removal, partial participation; seconds; scale."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.aam import Simulations, contribution_index, fit_aam, sample_sizes
from fedkit.experiments import Cell
from fedkit.experiments.fedccea import (
    CONTROLS,
    METHODS,
    Setting,
    Valued,
    architecture,
    federation,
    identity,
    kept_after_removal,
    setting,
    value_clients,
)
from fedkit.partition import Federation
from fedkit.retraining import train_with_sizes

__all__ = ["PROPORTIONS", "removal_curves", "run_base", "run_cell", "run_cost", "stability"]

FloatArray = npt.NDArray[np.float64]
#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])


def removal_curves(valued: Valued) -> dict[str, FloatArray]:
    """Accuracy after the lowest, or the highest, clients have gone, by every method's values.

    Returns
    -------
    dict of str to float64[len(PROPORTIONS)]
        Keys "method.lowest" and "method.highest"; in percent.
    """
    names = [(m, high) for m in (*METHODS, *CONTROLS) for high in (False, True)]
    kept = [kept_after_removal(valued.values[m], PROPORTIONS, high) for m, high in names]
    found = 100 * valued.game.value(np.concatenate(kept))
    rows = found.reshape(len(names), len(PROPORTIONS))
    return {
        f"{m}.{'highest' if high else 'lowest'}": row
        for (m, high), row in zip(names, rows, strict=True)
    }


def partial_participation(
    s: Setting, f: Federation, quality: FloatArray, seed: int, device: str | None
) -> dict[str, FloatArray]:
    """The same for FedCCEA where clients use random shares of their data (section 4.4).

    In every round the clients are ranked by what they bring in that round, ``x_i omega_i``.
    """
    drawn = sample_sizes(f.sizes, 1, s.rounds, seed + 1)[0]
    kept = np.stack(
        [
            [kept_after_removal(used * quality, PROPORTIONS, high) for used in drawn]
            for high in (False, True)
        ]
    )  # [lowest or highest, round, proportion, client]
    sizes = np.moveaxis(kept * drawn[None, :, None], 1, 2)
    # Where nobody goes, highest and lowest are one federation.
    jobs = np.concatenate([sizes[0], sizes[1, 1:]])
    reached = 100 * train_with_sizes(
        f, architecture(s, f), s.local, jobs, seed=seed, every_round=False, device=device
    ).reshape(-1)
    lowest, highest = reached[: len(PROPORTIONS)], reached[len(PROPORTIONS) :]
    return {"partial.lowest": lowest, "partial.highest": np.append(lowest[:1], highest)}


def area_between(curves: dict[str, FloatArray], method: str) -> float:
    """Mean difference of the two removal curves in points: how well a ranking ranks."""
    return float((curves[f"{method}.lowest"] - curves[f"{method}.highest"])[1:].mean())


def stability(s: Setting, valued: Valued, seed: int) -> dict[str, float]:
    """Rank correlation of the shared weights from fewer simulations with those from all."""
    from scipy.stats import spearmanr

    found = {}
    for share in (0.1, 0.25, 0.5):
        some = max(-(-s.clients // s.rounds), round(share * s.simulations))
        part = Simulations(valued.simulations.sizes[:some], valued.simulations.accuracy[:some])
        quality = fit_aam(part, lr=s.aam_lr, seed=seed).quality
        constant = np.ptp(quality) == 0 or np.ptp(valued.fit.quality) == 0
        rank = float("nan") if constant else spearmanr(quality, valued.fit.quality).statistic
        found[f"rank.{share:g}"] = float(rank)
    return found


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting, one seed after another."""
    s, results = setting(cell), []
    for seed in cell.seeds:
        f = federation(s, seed)
        valued = value_clients(s, f, seed, device=device, progress=progress)
        index = {m: contribution_index(valued.values[m]) for m in METHODS}
        without_zeros = valued.game.value(np.stack([index[m] > 0 for m in METHODS]))
        curves = removal_curves(valued)
        curves |= partial_participation(s, f, valued.fit.quality, seed, device)
        noisy = np.isin(np.arange(s.clients), s.noisy_clients())
        metrics = {"base": 100 * valued.base, "aam_error": 100 * valued.fit.error}
        for m, excluded in zip(METHODS, without_zeros, strict=True):
            v = valued.values[m]
            metrics |= {
                f"excluded.{m}": 100 * float(excluded),
                f"zeros.{m}": float((index[m] == 0).sum()),
                f"smallest.{m}": float(index[m].min()),
                f"trained.{m}": valued.trained[m],
            }
            if noisy.any():
                above = v[~noisy][:, None] - v[noisy][None]
                metrics[f"auc.{m}"] = float(((above > 0) + 0.5 * (above == 0)).mean())
        for m in (*METHODS, *CONTROLS, "partial"):
            metrics[f"area.{m}"] = area_between(curves, m)
        results.append(
            {
                "seed": int(seed),
                "metrics": metrics | stability(s, valued, seed),
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
        metrics = {}
        for name, sizes in jobs.items():
            start = perf_counter()
            simulated = name in ("simulation", "lockstep")
            train_with_sizes(
                f, arch, s.local, sizes, seed=seed, every_round=simulated, device=device
            )
            share = s.simulations if name == "lockstep" else 1
            metrics[f"seconds.{name}"] = (perf_counter() - start) / share / s.rounds
            metrics[f"trained.{name}"] = float(sizes.sum() / f.sizes.sum()) / share / s.rounds
        results.append({"seed": int(seed), "metrics": metrics, "data": identity(s)})
    return results
