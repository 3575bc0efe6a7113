"""FedCCEA's evaluation: values and removals, dealt qualities, costs; and its experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedkit.checks import Floats, Ints
from fedkit.federated.retraining import TrainWithSizes, train_with_sizes
from fedkit.learning.evaluation import Evaluator
from fedkit.methods import fedccea
from fedkit.methods.fedccea import Simulations, fit_aam
from fedkit.streams import Streams
from reproduction import common, results_folder
from reproduction.common import blocks, chance_above, experiment
from reproduction.fedccea import experiments as given
from reproduction.fedccea import valuing as fits
from reproduction.fedccea.experiments import FITS, METHODS, PARTIAL, PARTS, READINGS, Setting
from reproduction.fedccea.trainings import RetrainingCache
from reproduction.fedccea.valuing import Trial, Valued, value_clients
from reproduction.golden import Tiny
from reproduction.records import Cell

# ------------------------------------------------------------------- removals (sections 4.3, 4.4)

#: share of the clients that are removed (the paper's figures reach from 0 to about 0.4 and more)
PROPORTIONS = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
#: random orders of tied clients, over which a removal curve is averaged
TIE_ORDERS = 3


def kept_after_removal(
    values: Floats, proportions: Floats, highest: bool, ties: Ints
) -> np.ndarray:
    """Say who stays when the lowest (or highest) clients go, bool[len(proportions), n].

    Of clients with the same value the one with the lower rank in `ties`, int64[n], goes first.
    """
    order = np.lexsort((ties, -values if highest else values))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank >= np.round(proportions * len(values))[:, None]


def removal_curves(
    valued: fits.Values,
    seed: int,
    rankings: Sequence[str] = (*METHODS, *READINGS, *given.CONTROLS),
) -> dict[str, Floats]:
    """Accuracy (%) after the lowest, or the highest, clients have gone, by every method's values.

    Keys are "method.lowest" and "method.highest", "random0.lowest", ..., and "random", the mean of
    all of these; an entry per proportion. A ranking that ranks nobody is left out.
    """
    ranked = {m: valued.values[m] for m in rankings}
    ranked |= {f"random{k}": v for k, v in enumerate(ranked.pop("random"))}
    rng, n = Streams(seed).generator("fedccea", "ties"), valued.scored.n_players
    ties = [rng.permutation(n) for _ in range(TIE_ORDERS)]
    jobs = {
        f"{m}.{end}": [
            kept_after_removal(v, PROPORTIONS, end == "highest", order)
            for order in ties[: 1 if len(np.unique(v)) == n else None]
        ]
        for m, v in ranked.items()
        if np.ptp(v) > 0
        for end in ("lowest", "highest")
    }
    reached = 100 * valued.scored(np.concatenate([row for job in jobs.values() for row in job]))
    rows = iter(reached.reshape(-1, len(PROPORTIONS)))
    curves = {name: np.mean([next(rows) for _ in job], axis=0) for name, job in jobs.items()}
    # An order read from its other end is as random: both curves are draws of the same.
    curves["random"] = np.mean([c for m, c in curves.items() if m.startswith("random")], axis=0)
    return curves


def partial_participation(trial: Trial, qualities: Mapping[str, Floats]) -> dict[str, Floats]:
    """The same for FedCCEA where clients use random shares of their data (section 4.4).

    In every round the clients are ranked by what they bring in it, ``x_i omega_i``: weights of one
    rank by the used amounts ``x_i`` alone.
    """
    s, f, seed = trial.s, trial.halves[1], trial.seed
    *_, drawn = fedccea.sample_sizes(f.sizes, s.simulations + 1, s.rounds, seed)  # a new one
    rng = Streams(seed).generator("fedccea", "ties", "partial")
    ties = [rng.permutation(s.clients) for _ in drawn]
    kept = {
        f"{m}.{end}": np.stack(
            [
                kept_after_removal(used * q, PROPORTIONS, end == "highest", order)
                for used, order in zip(drawn, ties, strict=True)
            ],
            axis=1,
        )
        for m, q in qualities.items()
        for end in ("lowest", "highest")
    }  # bool[proportion, round, client] each
    # Where nobody goes, all curves are one federation.
    jobs = np.concatenate([drawn[None], *(stay[1:] * drawn for stay in kept.values())])
    everybody, *reached = 100 * trial.train(
        f, trial.network, s.local, jobs, seed=seed, every_round=False, device=trial.device
    ).reshape(-1)
    rest = np.reshape(reached, (len(kept), -1))
    return {name: np.append(everybody, row) for name, row in zip(kept, rest, strict=True)}


def curve_metrics(curves: Mapping[str, Floats]) -> dict[str, float]:
    """How well rankings rank, in points.

    "area.M": mean difference of the two removal curves; "lost40.M": what is lost when the 40% with
    the lowest values go (section 4.3).
    """
    at, found = int(np.argmin(np.abs(PROPORTIONS - 0.4))), {}
    for m in (name.removesuffix(".lowest") for name in curves if name.endswith(".lowest")):
        low, high = curves[f"{m}.lowest"], curves[f"{m}.highest"]
        found[f"area.{m}"] = float((low - high)[1:].mean())
        found[f"lost40.{m}"] = float(low[0] - low[at])
    return found


# ------------------------------------------------------------------- runs


def index_metrics(
    valued: fits.Values,
    curves: dict[str, Floats],
    methods: Sequence[str] = (*METHODS, *READINGS),
) -> tuple[dict[str, float], dict[str, Floats]]:
    """Who has an index of zero, and what the federation reaches without these clients.

    "zeros.M", "smallest.M", "spread.M" (of the index, in units of its mean), "excluded.M" in
    percent, and "excluded.M.random" without as many random clients; NaN where nobody has a positive
    value. Also returns the Client Contribution Index by method.
    """
    index = {m: fedccea.contribution_index(valued.values[m]) for m in methods}
    without = 100 * valued.scored(np.stack([v > 0 for v in index.values()]))
    metrics: dict[str, float] = {}
    for (m, v), reached in zip(index.items(), without, strict=True):
        zeros = int((v == 0).sum())
        chance = np.interp(zeros / len(v), PROPORTIONS, curves["random"], right=np.nan)
        found = {
            f"excluded.{m}": reached, f"excluded.{m}.random": chance, f"zeros.{m}": zeros,
            f"smallest.{m}": v.min(), f"spread.{m}": v.std() / v.mean(),
        }  # fmt: skip
        ranked = (valued.values[m] > 0).any()
        metrics |= {name: float(value) if ranked else np.nan for name, value in found.items()}
    return metrics, index


def chances(s: Setting, values: Mapping[str, Floats]) -> dict[str, float]:
    """Probability that a clean client is above a noisy one, "auc.M"; none where all are clean."""
    noisy = np.isin(np.arange(s.clients), s.noisy_clients())
    if not noisy.any():
        return {}
    return {f"auc.{m}": chance_above(v[~noisy], v[noisy]) for m, v in values.items()}


def outcomes(
    s: Setting,
    valued: fits.Values,
    curves: dict[str, Floats],
    methods: Sequence[str] = (*METHODS, *READINGS),
) -> tuple[dict[str, float], dict[str, npt.NDArray[Any]]]:
    """Return metrics and series of what comes of values: of removals, of zeros, and of noise."""
    metrics, index = index_metrics(valued, curves, methods)
    metrics |= curve_metrics(curves) | chances(s, {m: valued.values[m] for m in methods})
    metrics["base"] = 100 * float(valued.scored(np.ones((1, s.clients), dtype=bool))[0])
    return metrics, curves | {f"index.{m}": v for m, v in index.items()}


def _valued_and_removed(
    trial: Trial,
) -> tuple[Valued, dict[str, float], dict[str, npt.NDArray[Any]]]:
    """Return the values of a federation's clients, and a record's metrics and series of them."""
    s, valued = trial.s, value_clients(trial)
    sims, fitted, values = valued.simulations, valued.fits, valued.values
    weights = (*(fitted[m].quality for m in FITS), np.ones(s.clients))
    curves = removal_curves(valued, trial.seed)
    curves |= partial_participation(trial, dict(zip(PARTIAL, weights, strict=True)))
    metrics, series = outcomes(s, valued, curves)
    for m, parts in valued.parts.items():
        metrics |= chances(s, {f"{m}.{x:g}": v for x, v in zip(PARTS, parts, strict=True)})
    metrics |= {f"trained.{m}": spent for m, spent in valued.trained.items()}
    first = fitted["fedccea"]
    metrics |= fits.explained(sims, first)
    others = {m: fitted[m] for m in ("connected", "adam")}
    metrics |= {f"explained.{m}": fits.explained(sims, f)["explained"] for m, f in others.items()}
    slope, metrics["explained.same_round"] = fits.same_round(sims)
    quality = {m: f.quality for m, f in others.items()} | {"same_round": slope}
    metrics |= {f"rank.{m}": fits.agreement(q, first.quality) for m, q in quality.items()}
    # Whether data raise the fitted accuracy at all; if not, the weights are upside down: what all
    # rounds add to the accuracies that follow them, in points, and how many take something off.
    per_round = first.per_round
    assert per_round is not None
    metrics["per_round"] = 100 * float(per_round.sum())
    metrics["falling"] = float((per_round < 0).mean())
    return valued, metrics, series | {f"value.{m}": values[m] for m in METHODS}


@common.each_seed
def run_golden(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Run what a small run of :func:`run_valued` can: all but how far the fits can be trusted."""
    trial = Trial(Setting.of(cell), seed, device=device, progress=progress)
    _, metrics, series = _valued_and_removed(trial)
    return {"metrics": metrics, "series": series}


def _trusted(cell: Cell, device: Any) -> dict[str, Any]:
    """Return what tells how far a fit can be trusted, on simulations that determine their fits."""
    rng = Streams(0).generator("fedccea", "law")
    sizes = rng.random((40, 5, 4))
    used = np.cumsum(sizes @ np.linspace(0.1, 1.0, 4), axis=1)
    noise = 0.03 * rng.standard_normal(used.shape)
    sims = Simulations(sizes, np.clip(0.9 * (1 - np.exp(-used / 4)) + noise, 0.0, 1.0))
    first = fit_aam(sims)
    found = fits.stability(sims, 0, splits=2) | fits.unseen(sims, 0)
    found |= fits.by_chance(sims, fits.explained(sims, first)["explained"], 0)
    return found | {f"miss.{name}": q for name, q in fits.misses(sims, first).items()}


@common.each_seed
def run_valued(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Value the clients, remove them, and ask how far the fits can be trusted.

    The setting "splits" says how many pairs of parts of the simulations are compared.
    """
    trial = _trial(cell, seed, device, progress)
    valued, metrics, series = _valued_and_removed(trial)
    s, sims, fitted = trial.s, valued.simulations, valued.fits
    splits = cell.settings.get("splits", fits.SPLITS)
    if splits:
        metrics |= fits.stability(sims, seed, splits) | fits.unseen(sims, seed)
        metrics |= fits.by_chance(sims, metrics["explained"], seed)
    series = {
        "removed": 100 * PROPORTIONS,
        **series,
        "round": np.arange(1, s.rounds + 1),
        "accuracy": 100 * sims.accuracy.mean(axis=0),
        "predicted": 100 * fitted["fedccea"].predicted.mean(axis=0),
    }
    for m in FITS:
        series |= {f"miss.{m}.{name}": q for name, q in fits.misses(sims, fitted[m]).items()}
    return common.result(seed, s.data, metrics, series)


@common.each_seed
def run_by_rounds(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Value by LOO and TMC-SV round by round, and remove clients in their orders.

    A cell's ``permutations`` are the walks of TMC-SV in a round.
    """
    trial, methods = _trial(cell, seed, device, progress), given.BY_ROUNDS
    valued, spent = fits.value_by_rounds(trial, cell.settings["permutations"])
    curves = removal_curves(valued, seed, (*methods, "random"))
    metrics, series = outcomes(trial.s, valued, curves, methods)
    series = {"removed": 100 * PROPORTIONS, **series}
    series |= {f"value.{m}": valued.values[m] for m in methods}
    return common.result(seed, trial.s.data, metrics | spent, series)


def _trial(cell: Cell, seed: int, device: str | None, progress: bool) -> Trial:
    """Return a trial of a cell; trainings are kept on disk, but for small ones."""
    kept = RetrainingCache(results_folder() / "trainings" / "fedccea")
    train: TrainWithSizes = train_with_sizes if cell.profile == "smoke" else kept
    return Trial(Setting.of(cell), seed, train, device, progress)


@common.each_seed
def run_dealt(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Deal FedCCEA's qualities to the clients at random: a control of partial participation.

    Metrics are "area.M" and "lost40.M", M one of "amounts", "learnt", "dealt0", ..., and connected.
    """
    trial = _trial(cell, seed, device, progress)
    s, sims = trial.s, trial.simulate()
    rng = Streams(seed).generator("fedccea", "dealt")
    orders = [rng.permutation(s.clients) for _ in range(given.DEALS)]
    ranked = {"amounts": np.ones(s.clients)}
    for reading, end in given.ENDS.items():
        quality = fit_aam(sims, sigmoid=FITS[reading], seed=seed).quality
        ranked[f"learnt{end}"] = quality
        ranked |= {f"dealt{end}{k}": quality[order] for k, order in enumerate(orders)}
    curves = partial_participation(trial, ranked)
    series = {"removed": 100 * PROPORTIONS, **curves}
    return common.result(seed, s.data, curve_metrics(curves), series)


@common.each_seed
def run_base(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Train a federation with everybody and all data: does a scale learn enough?"""
    trial = Trial(Setting.of(cell), seed)
    s, f = trial.s, trial.federation
    sizes = np.broadcast_to(f.sizes, (1, s.rounds, s.clients))
    (reached,) = 100 * train_with_sizes(
        f, trial.network, s.local, sizes, seed=seed, device=device, progress=progress
    )
    series = {"round": np.arange(1, s.rounds + 1), "accuracy": reached}
    return common.result(seed, s.data, {"base": float(reached[-1])}, series)


@common.each_seed
def run_cost(cell: Cell, seed: int, device: Any, progress: bool) -> dict[str, Any]:
    """Time a simulation, alone and in lockstep, beside leave-one-out and one walk (Table 2)."""
    trial = Trial(Setting.of(cell), seed)
    s, f, arch = trial.s, trial.federation, trial.network
    drawn = fedccea.sample_sizes(f.sizes, s.simulations, s.rounds, seed)
    kept = {
        "loo": ~np.eye(s.clients + 1, s.clients, dtype=bool),
        "walk": np.tril(np.ones((s.clients, s.clients), dtype=bool)),
    }
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
        train_with_sizes(f, arch, s.local, sizes, seed=seed, every_round=simulated, device=device)
        metrics[f"seconds.{name}"] = (perf_counter() - start) / share
        start = perf_counter()
        test.utilities(models.repeat(len(sizes), 1))
        tests = s.rounds if simulated else 1  # a simulation is tested after every round
        metrics[f"testing.{name}"] = tests * (perf_counter() - start) / share
        metrics[f"trained.{name}"] = float(sizes.sum() / f.sizes.sum()) / share
    return common.result(seed, s.data, metrics)


_SEEDS = (0, 1, 2)
_TINY = asdict(replace(given.SCALES["smoke"][0], clients=6, rounds=4, simulations=14, samples=40))
_VALUED = _TINY | {"distribution": "strong", "noise": "label-40", "clients": 4, "strong": 3,
                   "rounds": 2, "simulations": 12, "samples": 30}  # fmt: skip
#: who holds what, and whose data are noisy, shows in a training as well as in all that follows it
_SLACK = {"metrics.*accuracy*": 1.0, "metrics.base": 1.0, "series.accuracy": 1.0}
_TRAINED = Tiny(
    "learning", run_base, _TINY, switches={"distribution": {}, "noise": {}}, slack=_SLACK
)
#: from a part of so few simulations a fit is not determined: who is above whom is rounding's choice
_PARTS = {f"metrics.auc.{m}.0.*": 1.0 for m in FITS}
#: among many fits to parts or to chance there are some that rounding moves
_MANY_FITS = {"more.unseen.*": 0.02, "more.explained.chance": 0.01}

# minutes each, and nothing is shared between seeds: a cell per seed, so a stop loses one
experiment(
    "fedccea", "contribution", "Indices, exclusion and removal (Tables 1 and 3, Figures 4 to 24)",
    given.contribution, lambda *_: blocks(_SEEDS, 1),
    Tiny("contribution", run_golden, _VALUED, slack=_SLACK | _PARTS | _MANY_FITS, more=_trusted),
    _TRAINED,
    run=run_valued, block=1,
)  # fmt: skip
experiment(
    "fedccea", "learning", "Accuracy with everybody, by samples and learning rate",
    given.learning, lambda *_: [_SEEDS], _TRAINED,
)  # fmt: skip
experiment(
    "fedccea", "cost", "Seconds per round for 4 to 64 clients (Table 2)",
    given.COST.__getitem__, lambda *_: [(0,)], Tiny("cost", run_cost, _TINY), _TRAINED,
)  # fmt: skip
experiment(
    "fedccea", "dealt", "Partial participation with qualities dealt at random",
    given.dealt, lambda *_: blocks(_SEEDS, 1), Tiny("dealt", run_dealt, _VALUED, slack=_SLACK),
    _TRAINED, block=1,
)  # fmt: skip
experiment(
    "fedccea", "rounds", "LOO and TMC-SV valued round by round (Tables 1 and 3, Figures 4 to 6)",
    given.by_rounds, lambda *_: blocks(_SEEDS, 1),
    Tiny("rounds", run_by_rounds, _VALUED | {"permutations": 2}, slack=_SLACK), _TRAINED, block=1,
)  # fmt: skip
