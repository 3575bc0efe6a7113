"""FedCCEA's evaluation: indices, exclusion, removal, partial participation; seconds; scale."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.federated.retraining_cache import RetrainingCache
from fedkit.learning.evaluation import Evaluator
from fedkit.methods.fedccea import contribution_index, contribution_values, sample_sizes
from fedkit.papers.fedccea.fits import (
    READINGS,
    by_chance,
    explained,
    falling,
    misses,
    other_fits,
    stability,
    unseen,
)
from fedkit.papers.fedccea.removal import (
    PARTIAL,
    PROPORTIONS,
    area_between,
    partial_participation,
    removal_curves,
)
from fedkit.papers.fedccea.settings import (
    FITS,
    METHODS,
    PARTS,
    Setting,
    Valued,
    architecture,
    federation,
    halves,
    identity,
    setting,
    value_clients,
)
from fedkit.papers.registry import Cell
from fedkit.papers.separation import chance_above
from fedkit.records.store import default_root
from fedkit.streams import Streams

__all__ = [
    "index_metrics",
    "ranking_metrics",
    "run_base",
    "run_cell",
    "run_cost",
    "run_golden",
    "valued_and_removed",
]

FloatArray = npt.NDArray[np.float64]


def index_metrics(
    valued: Valued, curves: dict[str, FloatArray]
) -> tuple[dict[str, float], dict[str, FloatArray]]:
    """Who has an index of zero, and what the federation reaches without these clients.

    Returns
    -------
    dict of str to float
        "zeros.M", "smallest.M", "spread.M" (the standard deviation of the index over its mean),
        "excluded.M" in percent, and "excluded.M.random": what is left when as many random clients
        go, off the random curve; NaN beyond its end.  All are NaN where nobody has a positive
        value: the index, then all alike, says nothing.
    dict of str to float64[n]
        Client Contribution Index by method.
    """
    index = {m: contribution_index(valued.values[m]) for m in (*METHODS, *READINGS)}
    without = 100 * valued.scored.value(np.stack([v > 0 for v in index.values()]))
    metrics: dict[str, float] = {}
    for (m, v), reached in zip(index.items(), without, strict=True):
        zeros = int((v == 0).sum())
        chance = np.interp(zeros / len(v), PROPORTIONS, curves["random"], right=np.nan)
        found = {
            f"excluded.{m}": float(reached), f"excluded.{m}.random": float(chance),
            f"zeros.{m}": float(zeros), f"smallest.{m}": float(v.min()),
            f"spread.{m}": float(v.std() / v.mean()),
        }  # fmt: skip
        ranked = bool((valued.values[m] > 0).any())
        metrics |= {name: value if ranked else float("nan") for name, value in found.items()}
    return metrics, index


def ranking_metrics(
    s: Setting, valued: Valued, curves: dict[str, FloatArray], noisy: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """How well values rank.

    Returns
    -------
    dict of str to float
        "area.M": area between the removal curves in points; "lost40.M": what is lost, in points,
        when the 40% with the lowest values go (section 4.3); with noisy clients "auc.M", and
        "auc.M.SHARE" of each part of the budget: the probability that a clean client is above a
        noisy one.
    """
    at = int(np.argmin(np.abs(PROPORTIONS - 0.4)))
    metrics = {
        f"lost40.{name.removesuffix('.lowest')}": float(curve[0] - curve[at])
        for name, curve in curves.items()
        if name.endswith(".lowest")
    }
    metrics |= {
        f"area.{name.removesuffix('.lowest')}": area_between(curves, name.removesuffix(".lowest"))
        for name in curves
        if name.endswith(".lowest")
    }
    if noisy.any():
        ranked = {m: valued.values[m] for m in (*METHODS, *READINGS)}
        ranked |= {
            f"{m}.{share:g}": v
            for m, parts in valued.parts.items()
            for share, v in zip(PARTS, parts, strict=True)
        }
        metrics |= {f"auc.{m}": chance_above(v[~noisy], v[noisy]) for m, v in ranked.items()}
    return metrics


def valued_and_removed(
    s: Setting,
    seed: int,
    train: TrainWithSizes = train_with_sizes,
    device: str | None = None,
    progress: bool = False,
) -> tuple[Valued, dict[str, float], dict[str, FloatArray], dict[str, FloatArray]]:
    """Value the clients of one federation by every method, and remove them in every order.

    Returns
    -------
    Valued
        With the values of the other readings as well.
    dict of str to float
        Metrics of a record, but for those that take many more fits.
    dict of str to float64
        Removal curves; and the Client Contribution Index by method.
    """
    f = federation(s, seed)
    valued = value_clients(s, f, seed, train=train, device=device, progress=progress)
    noisy = np.isin(np.arange(s.clients), s.noisy_clients())
    sims, fits = valued.simulations, valued.fits
    qualities, others = other_fits(s, sims, fits, seed)
    read = {m: contribution_values(qualities[m], f.sizes) for m in READINGS}
    valued = replace(valued, values=valued.values | read)
    curves = removal_curves(valued, seed)
    metrics, index = index_metrics(valued, curves)
    weights = (*(fits[m].quality for m in FITS), np.ones(s.clients))
    curves |= partial_participation(
        s, halves(f, seed)[1], dict(zip(PARTIAL, weights, strict=True)), seed,
        train=train, device=device,
    )  # fmt: skip
    metrics |= ranking_metrics(s, valued, curves, noisy)
    metrics |= {"base": 100 * valued.base, **explained(sims, fits["fedccea"])}
    metrics["explained.connected"] = explained(sims, fits["connected"])["explained"]
    metrics |= {f"trained.{m}": spent for m, spent in valued.trained.items()}
    return valued, metrics | falling(fits["fedccea"]) | others, curves, index


def run_golden(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run what a small run of :func:`run_cell` can: all but how stable its many fits are."""
    s = setting(cell)
    valued, metrics, curves, index = valued_and_removed(s, cell.seeds[0], device=device)
    series = {**curves, **{f"index.{m}": v for m, v in index.items()}}
    series |= {f"value.{m}": valued.values[m] for m in METHODS}
    return [{"seed": cell.seeds[0], "metrics": metrics, "series": series}]


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run a cell: a setting, one seed after another.  Trainings are kept beside the records."""
    s, results = setting(cell), []
    kept = RetrainingCache(default_root() / "trainings" / "fedccea")
    train: TrainWithSizes = train_with_sizes if cell.profile == "smoke" else kept
    for seed in cell.seeds:
        valued, metrics, curves, index = valued_and_removed(s, seed, train, device, progress)
        sims, fits = valued.simulations, valued.fits
        metrics |= stability(s, sims, seed, cell.settings.get("splits"))
        metrics |= by_chance(sims, seed) | unseen(sims, seed)
        results.append(
            {
                "seed": int(seed),
                "metrics": metrics,
                "series": {
                    "removed": (100 * PROPORTIONS).tolist(),
                    **{name: curve.tolist() for name, curve in curves.items()},
                    **{f"index.{m}": v.tolist() for m, v in index.items()},
                    **{f"value.{m}": valued.values[m].tolist() for m in METHODS},
                    "round": list(range(1, s.rounds + 1)),
                    "accuracy": (100 * sims.accuracy.mean(axis=0)).tolist(),
                    "predicted": (100 * fits["fedccea"].predicted.mean(axis=0)).tolist(),
                    **{
                        f"miss.{m}.{name}": q
                        for m, fit in fits.items()
                        for name, q in misses(sims, fit).items()
                    },
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
