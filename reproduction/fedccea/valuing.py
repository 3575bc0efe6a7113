"""FedCCEA's federations, and their clients valued by every method on equal terms (section 4).

FedCCEA in both readings, what else can be read off its simulations and how far its fits can be
trusted, and truncated Monte Carlo (TMC-SV) and leave-one-out (LOO) on retraining.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
import torch

from fedkit.checks import Bools, Floats, Ints
from fedkit.estimators import TruncatedMonteCarlo, estimate_many
from fedkit.extras import bar
from fedkit.federated.adversaries import Backdoor, LabelNoise
from fedkit.federated.federation import Federation, Transform, make_federation
from fedkit.federated.partition import IID, ClassesPerClient, Partitioner
from fedkit.federated.retraining import InOrder, TrainWithSizes, federation_game, train_with_sizes
from fedkit.federated.round_games import round_game
from fedkit.games.exact import leave_one_out
from fedkit.games.game import Game
from fedkit.games.memory import remember
from fedkit.learning.evaluation import Evaluator
from fedkit.learning.models import Model, build
from fedkit.learning.training import train_clients
from fedkit.methods import fedccea
from fedkit.methods.fedccea import Fit, Simulations, contribution_values, fit_aam
from fedkit.streams import Streams
from reproduction import common
from reproduction.fedccea.experiments import FITS, PARTS, RANDOM_ORDERS, Setting

# ------------------------------------------------------------------- who has what


@dataclass(frozen=True)
class Pattern:
    """A bright square in the corner of a share of the images, whose labels stay (appendix B.2)."""

    share: float

    def __call__(
        self, x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Some images with the pattern, and their own labels."""
        return Backdoor(self.share)(x, y, rng)[0], y


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting; the noisy ones come last."""
    schemes: dict[str, Partitioner] = {
        "iid": IID(), "weak": ClassesPerClient(s.weak), "strong": ClassesPerClient(s.strong),
    }  # fmt: skip
    made = make_federation(
        common.dataset(s.data), s.clients, schemes[s.distribution], seed, validation=s.validation,
        validation_from="train", empty="refill",
    )  # fmt: skip
    clients = made.clients
    if s.samples is not None:
        rng = Streams(seed).generator("fedccea", "samples")
        clients = tuple(np.sort(rng.permutation(c)[: s.samples]) for c in clients)
    # "the order of samples": drawn once, and kept for every simulation and test (appendix B.1)
    rng = Streams(seed).generator("fedccea", "order")
    made = replace(made, clients=tuple(rng.permutation(c) for c in clients))
    if s.noise == "none":
        return made
    kind, percent = s.noise.split("-")
    share = int(percent) / 100
    attacks: dict[str, Transform] = {
        "label": LabelNoise(share, n_classes=made.n_classes),
        "pattern": Pattern(share), "backdoor": Backdoor(share),
    }  # fmt: skip
    return made.with_adversaries(dict.fromkeys(s.noisy_clients().tolist(), attacks[kind]))


@dataclass(frozen=True)
class Trial:
    """One seed of a setting: its federation, and how federations like it are trained."""

    s: Setting
    seed: int
    train: TrainWithSizes = train_with_sizes
    device: str | None = None
    progress: bool = False

    @cached_property
    def federation(self) -> Federation:
        """The clients with all test images."""
        return federation(self.s, self.seed)

    @cached_property
    def network(self) -> Model:
        """The network of the setting."""
        return build(self.s.model, self.federation.input_shape, self.federation.n_classes)

    @cached_property
    def halves(self) -> list[Federation]:
        """Two halves of the test images: one values the clients, one scores what comes of it."""
        f = self.federation
        order = Streams(self.seed).generator("fedccea", "halves").permutation(len(f.y_test))
        halves = (torch.from_numpy(np.sort(part)) for part in np.array_split(order, 2))
        return [replace(f, x_test=f.x_test[h], y_test=f.y_test[h]) for h in halves]

    def simulate(self) -> Simulations:
        """Return FedCCEA's simulations, tested on the half that values."""
        return fedccea.simulate(
            self.halves[0], self.network, self.s.local, simulations=self.s.simulations,
            rounds=self.s.rounds, seed=self.seed, device=self.device, progress=self.progress,
            train=self.train,
        )  # fmt: skip

    def game(self, half: Federation) -> Game:
        """Return the game of the final accuracy of those who stay; each coalition trains once."""
        game = federation_game(
            half, self.network, self.s.local, self.s.rounds, self.seed, device=self.device,
            train=self.train,
        )  # fmt: skip
        return remember(game)


# ------------------------------------------------------------------- values at equal cost


@dataclass(frozen=True)
class Values:
    """The clients of one federation, valued by some methods."""

    values: dict[str, Floats]
    """Contribution values; FedCCEA's are at full participation.  "random" has a row per order."""
    scored: Game
    """Final accuracy, on the scoring half, of the federations that keep some clients."""


@dataclass(frozen=True)
class Valued(Values):
    """Clients that are valued by whole trainings."""

    trained: dict[str, float]
    """Cost: data that went through R rounds of training, in units of everybody's; by method, and
    "M.SHARE" of each part."""
    simulations: Simulations
    fits: dict[str, Fit]
    """In each reading, and by Adam."""
    parts: dict[str, Floats]
    """Values by both readings of FedCCEA and by TMC-SV from the first simulations, or coalitions,
    only: a row per entry of PARTS."""


def value_clients(trial: Trial) -> Valued:
    """Value the clients of a federation by all methods, on one half of the test images.

    The retraining methods share a memory, so no coalition is trained twice; each pays for what it
    asks. Adam makes 200 epochs.
    """
    s, f, seed, sims = trial.s, trial.federation, trial.seed, trial.simulate()
    fits = {m: fit_aam(sims, sigmoid=place, seed=seed) for m, place in FITS.items()}
    # Not the seed of the converged fit: its starts would be among this one's.
    fits["adam"] = fit_aam(sims, solver="adam", lr=s.aam_lr, seed=seed + 2 * OTHER_SEED)
    game, scored = map(trial.game, trial.halves)
    for_loo = Tally(game, f.sizes)
    loo = leave_one_out(for_loo).values

    def cca(method: str, share: float) -> tuple[Floats, float]:
        first = max(fedccea.fewest_simulations(s.clients, s.rounds), round(share * s.simulations))
        part = _some(sims, slice(first))
        fit = fit_aam(part, sigmoid=FITS[method], seed=seed)
        return contribution_values(fit.quality, f.sizes), _trained(part)

    def tmc(share: float) -> tuple[Floats, float]:
        limit = share * _trained(sims)
        return truncated_walks(game, f.sizes, tolerance=s.tolerance, seed=seed, limit=limit)

    parts = {m: [cca(m, share) for share in PARTS] for m in FITS}
    parts["tmc-sv"] = [tmc(share) for share in PARTS]
    sampled, walked = tmc(1.0)
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
            "random": _random_orders(s, seed),
            "size": sizes,
            "oracle": sizes * ~np.isin(np.arange(s.clients), s.noisy_clients()),
        },
        trained=trained,
        simulations=sims,
        fits=fits,
        scored=scored,
        parts={m: np.stack([values for values, _ in found]) for m, found in parts.items()},
    )


def _random_orders(s: Setting, seed: int) -> Floats:
    rng = Streams(seed).generator("fedccea", "random", s.dataset, s.distribution, s.noise)
    return rng.random((RANDOM_ORDERS, s.clients))


def _some(sims: Simulations, rows: Any) -> Simulations:
    return Simulations(sims.sizes[rows], sims.accuracy[rows])


def _trained(sims: Simulations) -> float:
    """What simulations cost, in units of everybody's data."""
    return float(sims.sizes.mean(axis=2).sum() / sims.sizes.shape[1])


class Tally(Game):
    """A game that adds up the data of coalitions that are asked for, in units of everybody's."""

    def __init__(self, game: Game, sizes: Ints) -> None:
        self.game, self.share, self.trained = game, sizes / sizes.sum(), 0.0
        super().__init__(game.n_players, self._utilities)

    def _utilities(self, coalitions: Bools) -> Floats:
        self.trained += float((coalitions @ self.share).sum())
        return self.game(coalitions)


def truncated_walks(
    game: Game, sizes: Ints, *, tolerance: float, seed: int, limit: float
) -> tuple[Floats, float]:
    """Run TMC-SV for as much training as `limit`, in units of everybody's data.

    Whole walks, in the number whose cost comes closest.  Returns the Shapley values and their cost.
    """

    def run(walks: int) -> tuple[Floats, float]:
        tally, streams = Tally(game, sizes), Streams(seed).child("tmc")
        (found,) = estimate_many(tally, TruncatedMonteCarlo(tolerance, walks), seeds=streams)
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


# ------------------------------------------------------------------- values round by round


def value_by_rounds(trial: Trial, permutations: int) -> tuple[Values, dict[str, float]]:
    """Value the clients by LOO and TMC-SV in every round of one training, and add the values.

    A coalition's model of a round is the mean of its members' models of that round.  Also returns
    seconds of valuing and utilities asked for by method, and the last model's accuracy.
    """
    s, f, device = trial.s, trial.federation, trial.device
    valuing, scoring = trial.halves
    test = Evaluator(trial.network, valuing.x_test, valuing.y_test, "accuracy", device=device)
    data = [f.client_data(i) for i in range(f.n_clients)]
    walks, streams = TruncatedMonteCarlo(s.tolerance, permutations), Streams(trial.seed)
    model = trial.network.init(streams.generator("model"))
    added = {"loo-rounds": np.zeros(f.n_clients), "tmc-sv-rounds": np.zeros(f.n_clients)}
    metrics = defaultdict[str, float](float)
    for t in bar(range(s.rounds), trial.progress, "round"):
        starts, orders = model.repeat(f.n_clients, 1), [InOrder()] * f.n_clients
        ended = train_clients(trial.network, starts, data, s.local, orders, device=device)
        game = round_game(test, model, ended, f.sizes)
        for method in added:
            start = perf_counter()
            found = (
                leave_one_out(game)
                if method == "loo-rounds"
                else estimate_many(game, walks, seeds=streams.child("tmc", "round", t))[0]
            )
            metrics[f"seconds.{method}"] += perf_counter() - start
            metrics[f"evaluations.{method}"] += found.evaluations
            added[method] += found.values
        share = torch.as_tensor(f.sizes / f.sizes.sum(), dtype=torch.float32)
        model = share @ ended
    added["random"] = _random_orders(s, trial.seed)
    metrics["accuracy"] = 100 * float(test.utilities(model[None])[0])
    return Values(added, trial.game(scoring)), metrics


# ------------------------------------------------------------------- how far fits can be trusted

#: of the simulations, for the explained share by chance
PERMUTATIONS = 19
#: random pairs of parts of the simulations whose fits are compared
SPLITS = 20
#: of which each is predicted by a fit of the others
FOLDS = 5
#: distance of the two seeds of the AAM that are compared
OTHER_SEED = 1_000_003


def same_round(sims: Simulations) -> tuple[Floats, float]:
    """Regress what is left after the means of the rounds on the sizes of the same round.

    Returns one coefficient per client, in accuracy per scaled size, and the adjusted share
    explained.
    """
    rounds, n = sims.sizes.shape[1:]
    x = (sims.sizes - sims.sizes.mean(axis=0)).reshape(-1, n)
    y = (sims.accuracy - sims.accuracy.mean(axis=0)).reshape(-1)
    slope = np.linalg.lstsq(x, y, rcond=None)[0]
    free = y.size - rounds
    left, total = np.square(y - x @ slope).sum() / (free - n), np.square(y).sum() / free
    return slope, float(1 - left / total) if free > n and total > 0 else float("nan")


def agreement(a: Floats, b: Floats) -> float:
    """Rank correlation of two fits' weights; NaN where all weights of one are equal."""
    from scipy.stats import spearmanr

    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return float("nan") if constant else float(spearmanr(a, b).statistic)


def stability(sims: Simulations, seed: int, splits: int = SPLITS) -> dict[str, float]:
    """How far two fits agree that share neither simulations nor the fit's seed.

    "rank.0.25": rank correlation of the weights from a quarter of the simulations with those from
    another quarter, mean over random pairs, and "spread.0.25", their standard deviation;
    "rank.seeds": from all simulations, with two seeds.
    """
    total, rounds, clients = sims.sizes.shape
    everybody = np.arange(total)

    def ranked(method: str, *parts: Ints) -> float:
        first, second = (
            same_round(_some(sims, rows))[0]
            if method == "same_round"
            else fit_aam(_some(sims, rows), sigmoid=FITS[method], seed=other).quality
            for rows, other in zip(parts, (seed, seed + OTHER_SEED), strict=True)
        )
        return agreement(first, second)

    found = {}
    for method in (*FITS, "same_round"):
        rng = Streams(seed).generator("fedccea", "splits")  # the same parts for all
        end = "" if method == "fedccea" else f".{method}"
        for share in (0.1, 0.25, 0.5):
            some = min(
                max(fedccea.fewest_simulations(clients, rounds), round(share * total)), total // 2
            )
            orders = [rng.permutation(total) for _ in range(splits)]
            ranks = [ranked(method, order[:some], order[some : 2 * some]) for order in orders]
            found[f"rank.{share:g}{end}"] = float(np.mean(ranks))
            found[f"spread.{share:g}{end}"] = float(np.std(ranks, ddof=1))
        if method in FITS:
            found[f"rank.seeds{end}"] = ranked(method, everybody, everybody)
    return found


def explained(sims: Simulations, fit: Fit) -> dict[str, float]:
    """Error of the AAM beside that of the round's mean, which knows nothing of the sizes."""
    accuracy = 100 * sims.accuracy
    left = np.sqrt(np.square(accuracy - accuracy.mean(axis=0)).mean())
    error = 100 * fit.error
    share = 1 - (error / left) ** 2 if left > 0 else float("nan")
    return {"aam_error": error, "round_error": float(left), "explained": float(share)}


def by_chance(sims: Simulations, share: float, seed: int) -> dict[str, float]:
    """What the AAM explains where sizes and accuracies belong to different simulations.

    "explained.chance" is a mean over permutations, "explained.p" the permutation p-value of
    `share`.
    """
    rng = Streams(seed).generator("fedccea", "permutations")
    null = []
    for _ in range(PERMUTATIONS):
        other = Simulations(sims.sizes, sims.accuracy[rng.permutation(len(sims.sizes))])
        null.append(explained(other, fit_aam(other, seed=seed))["explained"])
    above = sum(chance >= share for chance in null)
    return {
        "explained.chance": float(np.mean(null)), "explained.p": (1 + above) / (1 + PERMUTATIONS),
    }  # fmt: skip


def unseen(sims: Simulations, seed: int) -> dict[str, float]:
    """What the sizes explain of simulations that the fit has not seen, beside the round's mean.

    "unseen.M": one less the ratio of squared errors, in cross-validation over simulations.
    """
    x, y = sims.sizes, sims.accuracy
    fold = Streams(seed).generator("fedccea", "folds").permutation(len(x)) % FOLDS
    errors = dict.fromkeys(("mean", *FITS, "same_round"), 0.0)
    for k in range(FOLDS):
        out = fold == k
        part = _some(sims, ~out)
        mean = part.accuracy.mean(axis=0)
        line = mean + (x[out] - part.sizes.mean(axis=0)) @ same_round(part)[0]
        guesses = {"mean": mean, "same_round": line}
        for method, place in FITS.items():
            predict = fit_aam(part, sigmoid=place, seed=seed).predict
            assert predict is not None
            guesses[method] = np.clip(predict(x[out]), 0.0, 1.0)  # an accuracy, as in section 3.2.1
        for method, guess in guesses.items():
            errors[method] += float(np.square(guess - y[out]).sum())
    least = errors.pop("mean")
    return {f"unseen.{m}": 1 - e / least if least > 0 else float("nan") for m, e in errors.items()}


def misses(sims: Simulations, fit: Fit) -> dict[str, Floats]:
    """Approximated less true accuracy by round, in points: 5%, 50% and 95% quantiles (Figure 7)."""
    quantiles = np.quantile(100 * (fit.predicted - sims.accuracy), (0.05, 0.5, 0.95), axis=0)
    return dict(zip(("low", "middle", "high"), quantiles, strict=True))
