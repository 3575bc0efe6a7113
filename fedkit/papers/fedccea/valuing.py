"""FedCCEA's clients valued by every method on equal terms (section 4).

FedCCEA in both readings, what else can be read off its simulations, and truncated Monte Carlo
(TMC-SV) and leave-one-out (LOO) on retraining.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedkit.estimators import TruncatedMonteCarlo, estimate, leave_one_out
from fedkit.federated.clients import Federation
from fedkit.federated.retraining import RetrainingGame, TrainWithSizes, train_with_sizes
from fedkit.games.game import Game, MemoGame
from fedkit.methods.fedccea import (
    Fit,
    Simulations,
    contribution_values,
    fewest_simulations,
    fit_aam,
    simulate,
)
from fedkit.papers.fedccea.federations import architecture, halves
from fedkit.papers.fedccea.fits import OTHER_SEED, same_round
from fedkit.papers.fedccea.names import FITS, PARTS, RANDOM_ORDERS
from fedkit.papers.fedccea.settings import Setting
from fedkit.streams import Streams

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Valued:
    """The clients of one federation, valued by each method.

    Attributes
    ----------
    values : dict of str to float64[n]
        Contribution values; FedCCEA's are at full participation.  "random" has a row per order.
    trained : dict of str to float
        Cost: data that went through R rounds of training, in units of everybody's; by method, and
        "M.SHARE" of each part.
    simulations, fits
        What FedCCEA measured, and fitted in each reading and by Adam.
    scored : Game
        Final accuracy, on the scoring half, of the federations that keep some clients.
    parts : dict of str to float64[len(PARTS), n]
        Values by both readings of FedCCEA and by TMC-SV from the first simulations, or coalitions,
        only.
    """

    values: dict[str, FloatArray]
    trained: dict[str, float]
    simulations: Simulations
    fits: dict[str, Fit]
    scored: Game
    parts: dict[str, FloatArray]


def value_clients(
    s: Setting,
    f: Federation,
    seed: int,
    *,
    train: TrainWithSizes = train_with_sizes,
    device: str | None = None,
    progress: bool = False,
) -> Valued:
    """Value the clients of a federation by all methods.

    The retraining methods share a memory, so no coalition is trained twice; each pays for what it
    asks.  All methods see one half of the test images only.

    Adam makes 200 epochs, not as many as the loss would need: it is the paper's rate in one of many
    ways to use it, and says whether a verdict turns on the optimiser.
    """
    arch = architecture(s, f)
    valuing, scoring = halves(f, seed)
    sims = simulate(
        valuing, arch, s.local, simulations=s.simulations, rounds=s.rounds, seed=seed,
        device=device, progress=progress, train=train,
    )  # fmt: skip
    fits = {m: fit_aam(sims, sigmoid=place, seed=seed) for m, place in FITS.items()}
    # Not the seed of the converged fit: its starts would be among this one's.
    fits["adam"] = fit_aam(sims, solver="adam", lr=s.aam_lr, seed=seed + 2 * OTHER_SEED)
    game, scored = (
        MemoGame(RetrainingGame(half, arch, s.local, s.rounds, seed, device=device, train=train))
        for half in (valuing, scoring)
    )
    for_loo = Tally(game, f.sizes)
    loo = leave_one_out(for_loo).values

    def cca(method: str, share: float) -> tuple[FloatArray, float]:
        first = max(fewest_simulations(s.clients, s.rounds), round(share * s.simulations))
        part = Simulations(sims.sizes[:first], sims.accuracy[:first])
        fit = fit_aam(part, sigmoid=FITS[method], seed=seed)
        return contribution_values(fit.quality, f.sizes), _trained(part)

    def tmc(share: float) -> tuple[FloatArray, float]:
        limit = share * _trained(sims)
        return truncated_walks(game, f.sizes, tolerance=s.tolerance, seed=seed, limit=limit)

    parts = {m: [cca(m, share) for share in PARTS] for m in FITS}
    parts["tmc-sv"] = [tmc(share) for share in PARTS]
    sampled, walked = tmc(1.0)
    rng = Streams(seed).generator("fedccea", "random", s.dataset, s.distribution, s.noise)
    sizes = f.sizes / f.sizes.mean()
    trained = dict.fromkeys(FITS, _trained(sims)) | {"tmc-sv": walked, "loo": for_loo.trained}
    for m, found in parts.items():
        trained |= {f"{m}.{share:g}": cost for share, (_, cost) in zip(PARTS, found, strict=True)}
    return Valued(
        values={
            **{m: contribution_values(fit.quality, f.sizes) for m, fit in fits.items()},
            "same_round": contribution_values(same_round(sims)[0], f.sizes),
            "tmc-sv": sampled,
            "loo": loo,
            "random": rng.random((RANDOM_ORDERS, s.clients)),
            "size": sizes,
            "oracle": sizes * ~np.isin(np.arange(s.clients), s.noisy_clients()),
        },
        trained=trained,
        simulations=sims,
        fits=fits,
        scored=scored,
        parts={m: np.stack([values for values, _ in found]) for m, found in parts.items()},
    )


def _trained(sims: Simulations) -> float:
    """What simulations cost, in units of everybody's data."""
    return float(sims.sizes.mean(axis=2).sum() / sims.sizes.shape[1])


class Tally:
    """A game that adds up the data of the coalitions that are asked for.

    Parameters
    ----------
    sizes : int64[n]
        Samples per client.

    Attributes
    ----------
    trained : float
        Sum of the coalitions' shares of all data: federations trained, in units of everybody's.
    """

    def __init__(self, game: Game, sizes: IntArray) -> None:
        self.game, self.share, self.trained = game, sizes / sizes.sum(), 0.0
        self.n_players = game.n_players

    def value(self, coalitions: npt.NDArray[np.bool_]) -> FloatArray:
        """Utilities of the coalitions."""
        self.trained += float((coalitions @ self.share).sum())
        return self.game.value(coalitions)


def truncated_walks(
    game: Game, sizes: IntArray, *, tolerance: float, seed: int, limit: float
) -> tuple[FloatArray, float]:
    """Run TMC-SV for as much training as `limit`, in units of everybody's data.

    Whole walks are run, in the number whose cost comes closest.  Returns the Shapley values and
    what they cost; that is less where walks find nothing new to ask for.
    """
    if not (np.isfinite(limit) and limit > 0):
        raise ValueError(f"limit is {limit}; expected a positive number of federations")

    def run(walks: int) -> tuple[FloatArray, float]:
        tally, streams = Tally(game, sizes), Streams(seed).child("tmc")
        found = estimate(tally, TruncatedMonteCarlo(tolerance, walks), seed=streams)
        return found.values, tally.trained

    walks, idle = max(1, round(2 * limit / len(sizes))), 0  # an uncut walk trains n / 2 federations
    best = run(walks)
    step = 1 if best[1] < limit else -1
    while walks + step and idle < len(sizes):
        walks += step
        other = run(walks)
        idle = idle + 1 if other[1] == best[1] else 0
        if abs(other[1] - limit) > abs(best[1] - limit):
            break
        best = other
    return best
