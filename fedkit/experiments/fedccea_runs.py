"""FedCCEA's evaluation: indices, exclusion, removal, partial participation; seconds; scale."""

from __future__ import annotations

from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedkit.aam import Fit, Simulations, contribution_index, fit_aam, sample_sizes
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
    "stability",
]

FloatArray = npt.NDArray[np.float64]
#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
#: FedCCEA's ranking with partial participation, and its control by amounts alone
PARTIAL = ("partial", "partial-size")
#: fits by Adam beside the converged one, by the place of the sigmoid
OTHER_FITS: dict[str, Literal["shared", "connected"]] = {"adam": "shared", "connected": "connected"}
#: of the simulations, for the explained share by chance
PERMUTATIONS = 19
#: random pairs of parts of the simulations whose fits are compared
SPLITS = 20
#: distance of the two seeds of the AAM that are compared
OTHER_SEED = 1_000_003


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
        for m in (*METHODS, *CONTROLS)
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


def agreement(a: FloatArray, b: FloatArray) -> float:
    """Rank correlation of two fits' weights; NaN where all weights of one are equal."""
    from scipy.stats import spearmanr

    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return float("nan") if constant else float(spearmanr(a, b).statistic)


def stability(s: Setting, sims: Simulations, seed: int) -> dict[str, float]:
    """How far two fits agree that share neither simulations nor the fit's seed.

    Returns
    -------
    dict of str to float
        "rank.0.25": rank correlation of the shared weights from a quarter of the simulations with
        those from another quarter, mean over random pairs of quarters, and "spread.0.25", their
        standard deviation; "rank.seeds": from all simulations twice, with two seeds.  NaN where all
        weights of a fit are equal.
    """

    def quality(rows: npt.NDArray[np.int64], other: bool) -> FloatArray:
        part = Simulations(sims.sizes[rows], sims.accuracy[rows])
        return fit_aam(part, seed=seed + OTHER_SEED * other).quality

    rng, total = Streams(seed).generator("fedccea", "splits"), len(sims.sizes)
    found = {}
    for share in (0.1, 0.25, 0.5):
        some = min(max(-(-s.clients // s.rounds), round(share * total)), total // 2)
        orders = [rng.permutation(total) for _ in range(SPLITS)]
        pairs = [(quality(o[:some], False), quality(o[some : 2 * some], True)) for o in orders]
        ranks = [agreement(*pair) for pair in pairs]
        found[f"rank.{share:g}"] = float(np.mean(ranks))
        found[f"spread.{share:g}"] = float(np.std(ranks, ddof=1))
    everybody = np.arange(total)
    found["rank.seeds"] = agreement(quality(everybody, False), quality(everybody, True))
    return found


def other_fits(
    s: Setting, valued: Valued, seed: int, noisy: npt.NDArray[np.bool_]
) -> dict[str, float]:
    """The same AAM trained by Adam, in both readings of the sigmoid, and :func:`same_round`.

    Returns
    -------
    dict of str to float
        Explained share, rank correlation with the converged fit and, with noisy clients, the
        probability that a clean one is above: "explained.adam", ..., "auc.same_round".
    """
    sims, fits, found = valued.simulations, {}, {}
    for name, place in OTHER_FITS.items():
        fit = fit_aam(sims, solver="adam", sigmoid=place, lr=s.aam_lr, seed=seed)
        fits[name] = fit.quality, explained(sims, fit)["explained"]
    fits["same_round"] = same_round(sims)
    for name, (quality, share) in fits.items():
        found[f"explained.{name}"] = share
        found[f"rank.{name}"] = agreement(quality, valued.fit.quality)
        if noisy.any():
            found[f"auc.{name}"] = chance_above(quality[~noisy], quality[noisy])
    half = len(sims.sizes) // 2
    parts = (Simulations(sims.sizes[p], sims.accuracy[p]) for p in (slice(half), slice(half, None)))
    found["rank.0.5.same_round"] = agreement(*(same_round(part)[0] for part in parts))
    return found


def explained(sims: Simulations, fit: Fit) -> dict[str, float]:
    """Error of the AAM beside that of the round's mean, which knows nothing of the sizes."""
    accuracy = 100 * sims.accuracy
    left = np.sqrt(np.square(accuracy - accuracy.mean(axis=0)).mean())
    error = 100 * fit.error
    share = 1 - (error / left) ** 2 if left > 0 else float("nan")
    return {"aam_error": error, "round_error": float(left), "explained": float(share)}


def by_chance(sims: Simulations, seed: int) -> dict[str, float]:
    """What the AAM explains where sizes and accuracies belong to different simulations.

    Returns
    -------
    dict of str to float
        "explained.chance": mean explained share over the permutations; "explained.p": the
        permutation p-value of the share that is explained in truth.
    """
    order = Streams(seed).generator("fedccea", "permutations")

    def share(accuracy: FloatArray) -> float:
        other = Simulations(sims.sizes, accuracy)
        return explained(other, fit_aam(other, seed=seed))["explained"]

    found = share(sims.accuracy)
    null = np.array(
        [share(sims.accuracy[order.permutation(len(sims.sizes))]) for _ in range(PERMUTATIONS)]
    )
    return {
        "explained.chance": float(null.mean()),
        "explained.p": (1 + int((null >= found).sum())) / (1 + PERMUTATIONS),
    }


def same_round(sims: Simulations) -> tuple[FloatArray, float]:
    """Regress what is left after the means of the rounds on the sizes of the same round.

    The AAM gives round rho one weight in all accuracies that follow it, so it cannot say that the
    last round matters most.  This straight line says nothing else.

    Returns
    -------
    float64[n]
        One coefficient per client, in accuracy per scaled size.
    float
        Share of the variance explained, adjusted for the coefficients.
    """
    rounds, n = sims.sizes.shape[1:]
    x = (sims.sizes - sims.sizes.mean(axis=0)).reshape(-1, n)
    y = (sims.accuracy - sims.accuracy.mean(axis=0)).reshape(-1)
    slope = np.linalg.lstsq(x, y, rcond=None)[0]
    free = y.size - rounds
    left, total = np.square(y - x @ slope).sum() / (free - n), np.square(y).sum() / free
    return slope, float(1 - left / total) if free > n and total > 0 else float("nan")


def run_cell(cell: Cell, device: str | None, progress: bool) -> list[dict[str, Any]]:
    """Run one cell: a setting, one seed after another."""
    s, results = setting(cell), []
    for seed in cell.seeds:
        f = federation(s, seed)
        valued = value_clients(s, f, seed, device=device, progress=progress)
        index = {m: contribution_index(valued.values[m]) for m in METHODS}
        without_zeros = valued.scored.value(np.stack([index[m] > 0 for m in METHODS]))
        curves = removal_curves(valued)
        scoring = halves(f, seed)[1]
        curves |= partial_participation(s, scoring, valued.fit.quality, seed, device)
        noisy = np.isin(np.arange(s.clients), s.noisy_clients())
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
        for m in (*METHODS, *CONTROLS, *PARTIAL):
            metrics[f"area.{m}"] = area_between(curves, m)
        metrics |= stability(s, valued.simulations, seed) | by_chance(valued.simulations, seed)
        metrics |= other_fits(s, valued, seed, noisy)
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
