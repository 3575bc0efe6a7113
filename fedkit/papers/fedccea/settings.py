"""FedCCEA: the federations of its evaluation, and the methods on equal terms (section 4).

One run values the clients of one federation by FedCCEA in both readings, by truncated Monte Carlo
on retraining (TMC-SV) and by leave-one-out on retraining (LOO), and then retrains without some of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from fedkit.datasets.dataset import Dataset, load
from fedkit.estimators import leave_one_out
from fedkit.federated.adversaries import Adversaries, Backdoor, LabelNoise
from fedkit.federated.clients import Federation, Transform, make_federation
from fedkit.federated.partitioners import IID, ClassesPerClient, Partitioner
from fedkit.federated.retraining import RetrainingGame, TrainWithSizes, train_with_sizes
from fedkit.games.game import Game, MemoGame
from fedkit.learning.architectures import Architecture, build
from fedkit.learning.training import LocalSGD
from fedkit.methods.fedccea import (
    Fit,
    Simulations,
    contribution_values,
    fewest_simulations,
    fit_aam,
    simulate,
)
from fedkit.papers.fedccea.walks import Tally, truncated_walks
from fedkit.papers.registry import Cell
from fedkit.streams import Streams

#: FedCCEA in both readings: where the sigmoid of its model stands.  Appendix A has it "in the first
#: layer of the AAM", the one with the shared weights; but by section 3.2.1 that one is linear, and
#: what it returns "is the input" of the connected layers
FITS: dict[str, Literal["shared", "connected"]] = {"fedccea": "shared", "connected": "connected"}
METHODS = (*FITS, "tmc-sv", "loo")
#: controls of the removal experiments: they know nothing, or what the server may not know
CONTROLS = ("random", "size", "oracle")
#: random orders whose removal curves are averaged; each costs as many retrainings as a method
RANDOM_ORDERS = 3
DISTRIBUTIONS = ("iid", "weak", "strong")
#: shares of the simulations, and of TMC-SV's coalitions, from which clients are valued as well
PARTS = (0.25, 0.5, 0.75)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """One run of FedCCEA's evaluation, all seeds apart.

    Attributes
    ----------
    dataset, data : str
        Column of the paper's tables, and the data set that was loaded for it.
    distribution : str
        "iid", "weak" or "strong" (non-IID).
    weak, strong : int
        Classes per client in the two non-IID distributions: 5 and 2 (MNIST), 30 and 5 (EMNIST).
    noise : str
        "none", "label-S", "pattern-S" or "backdoor-S", S percent of a noisy client's samples; the
        paper: label-10, -20, -40, and "sample noise", which we read as pattern-20.
    noisy : float
        Share of noisy clients; 0.2 in the paper.
    clients, rounds, simulations : int
        20, 50 and 100.
    samples : int or None
        Training samples per client; None for all there are.  Appendix C.1 has 300.
    epochs, batch_size, lr : int, int, float
        (3, 32, 0.001) for MNIST and (1, 256, 0.05) for EMNIST, with plain SGD.  With fewer samples
        a client makes fewer steps: the reduced settings take a larger rate (MNIST) or smaller
        batches (EMNIST).
    aam_lr : float
        Learning rate of the AAM: 0.01 (MNIST), 0.05 (EMNIST).
    tolerance : float
        Truncation of TMC-SV, in accuracy.
    validation : float
        Unused images, so that every data set is cut in the same way; the paper tests on all.
    """

    dataset: str
    data: str
    distribution: str
    noise: str = "none"
    weak: int = 5
    strong: int = 2
    noisy: float = 0.2
    model: str = "mlp-128-64"
    clients: int = 20
    rounds: int = 50
    simulations: int = 100
    samples: int | None = None
    epochs: int = 3
    batch_size: int = 32
    lr: float = 0.001
    aam_lr: float = 0.01
    tolerance: float = 0.01
    validation: float = 0.01

    def __post_init__(self) -> None:
        if self.distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"distribution is {self.distribution!r}; there are {', '.join(DISTRIBUTIONS)}"
            )
        if min(self.clients, self.rounds, self.simulations) < 1:
            raise ValueError(
                f"clients is {self.clients}, rounds {self.rounds} and simulations "
                f"{self.simulations}; all are at least 1"
            )
        if not 0 <= self.noisy < 1 or (self.samples is not None and self.samples < 1):
            raise ValueError(
                f"noisy is {self.noisy} and samples {self.samples}; expected a share below 1, and "
                "at least 1 sample or None"
            )
        noise_of(self.noise, 10)

    @property
    def local(self) -> LocalSGD:
        """Local training."""
        return LocalSGD(lr=self.lr, batch_size=self.batch_size, epochs=self.epochs)

    def noisy_clients(self) -> IntArray:
        """The clients whose data are noisy: the last ones.

        Classes are dealt in turn, so noisy clients hold different ones where that is possible, and
        noise is spread over the classes as evenly as it can be.
        """
        if self.noise == "none":
            return np.zeros(0, dtype=np.int64)
        return np.arange(self.clients - round(self.noisy * self.clients), self.clients)


@dataclass(frozen=True)
class Pattern:
    """A bright square in the corner of a share of the images, whose labels stay ("sample noise").

    Appendix B.2 speaks of "a pattern of white pixels in the bottom right corner of the selected
    images" and of no label; a :class:`~fedkit.federated.adversaries.Backdoor` also relabels them.
    """

    share: float

    def __call__(
        self, x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the images, some with the pattern, and their labels."""
        return Backdoor(self.share)(x, y, rng)[0], y


def noise_of(name: str, n_classes: int) -> Transform | None:
    """Return what a noisy client does to its data; ValueError for a name that there is not."""
    kind, _, percent = name.partition("-")
    if name == "none":
        return None
    if kind not in ("label", "pattern", "backdoor") or not percent.isdigit():
        raise ValueError(f'noise is {name!r}; expected "none", "label-40" or "pattern-20", say')
    share = int(percent) / 100
    if kind == "label":
        return LabelNoise(share, n_classes)
    return Pattern(share) if kind == "pattern" else Backdoor(share)


@lru_cache(maxsize=2)
def _dataset(name: str) -> Dataset:
    return load(name)


def identity(s: Setting) -> dict[str, str]:
    """Return which data a setting runs on, for the record's manifest."""
    data = _dataset(s.data)
    return {"name": data.name, "source": data.source, "checksum": data.fingerprint}


def federation(s: Setting, seed: int) -> Federation:
    """Return the clients of a setting; the noisy ones come last."""
    schemes: dict[str, Partitioner] = {
        "iid": IID(), "weak": ClassesPerClient(s.weak), "strong": ClassesPerClient(s.strong),
    }  # fmt: skip
    made = make_federation(
        _dataset(s.data), s.clients, schemes[s.distribution], seed, validation=s.validation,
        validation_from="train", empty="refill",
    )  # fmt: skip
    if s.samples is not None:
        rng = Streams(seed).generator("fedccea", "samples")
        kept = [np.sort(rng.permutation(c)[: s.samples]) for c in made.clients]
        made = replace(made, clients=tuple(kept))
    # "the order of samples": drawn once, and kept for every simulation and test (appendix B.1)
    rng = Streams(seed).generator("fedccea", "order")
    made = replace(made, clients=tuple(rng.permutation(c) for c in made.clients))
    part = noise_of(s.noise, made.n_classes)
    if part is None:
        return made
    return Adversaries.of((part, s.noisy_clients().tolist())).data(made)


def architecture(s: Setting, f: Federation) -> Architecture:
    """Return the network of a setting."""
    return build(s.model, f.input_shape, f.n_classes)


def setting(cell: Cell) -> Setting:
    """Return the setting of a cell."""
    known = {f.name for f in fields(Setting)}
    return Setting(**{k: v for k, v in cell.settings.items() if k in known})


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
    base : float
        Accuracy with everybody on the scoring half of the test images, in [0, 1].
    simulations, fits
        What FedCCEA measured, and fitted in each reading.
    scored : Game
        Final accuracy, on the scoring half, of the federations that keep some clients.
    parts : dict of str to float64[len(PARTS), n]
        Values by both readings of FedCCEA and by TMC-SV from the first simulations, or coalitions,
        only.
    """

    values: dict[str, FloatArray]
    trained: dict[str, float]
    base: float
    simulations: Simulations
    fits: dict[str, Fit]
    scored: Game
    parts: dict[str, FloatArray]


def halves(f: Federation, seed: int) -> tuple[Federation, Federation]:
    """Split the test images: one half values the clients, the other scores what comes of it.

    The paper does both on all test images, so its values are fitted to what they are judged by.

    Returns
    -------
    valuing, scoring : Federation
        The same clients with disjoint halves of the test images.
    """
    order = Streams(seed).generator("fedccea", "halves").permutation(len(f.y_test))
    first, second = (torch.from_numpy(np.sort(part)) for part in np.array_split(order, 2))
    return (
        replace(f, x_test=f.x_test[first], y_test=f.y_test[first]),
        replace(f, x_test=f.x_test[second], y_test=f.y_test[second]),
    )


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
    asks.  All methods see one half of the test images only (:func:`halves`).
    """
    arch = architecture(s, f)
    valuing, scoring = halves(f, seed)
    sims = simulate(
        valuing, arch, s.local, simulations=s.simulations, rounds=s.rounds, seed=seed,
        device=device, progress=progress, train=train,
    )  # fmt: skip
    fits = {m: fit_aam(sims, sigmoid=place, seed=seed) for m, place in FITS.items()}
    game, scored = (
        MemoGame(RetrainingGame(half, arch, s.local, s.rounds, seed, device=device, train=train))
        for half in (valuing, scoring)
    )
    spent, for_loo = float(sims.sizes.mean(axis=2).sum() / s.rounds), Tally(game, f.sizes)
    loo = leave_one_out(for_loo)

    def tmc(share: float) -> tuple[FloatArray, float]:
        return truncated_walks(game, f.sizes, tolerance=s.tolerance, seed=seed, limit=share * spent)

    def cca(method: str, share: float) -> tuple[FloatArray, float]:
        first = max(fewest_simulations(s.clients, s.rounds), round(share * s.simulations))
        part = Simulations(sims.sizes[:first], sims.accuracy[:first])
        fit = fit_aam(part, sigmoid=FITS[method], seed=seed)
        cost = float(part.sizes.mean(axis=2).sum() / s.rounds)
        return contribution_values(fit.quality, f.sizes), cost

    parts = {m: [cca(m, share) for share in PARTS] for m in FITS}
    parts["tmc-sv"] = [tmc(share) for share in PARTS]
    (sampled, walked), sizes = tmc(1.0), f.sizes / f.sizes.mean()
    honest = ~np.isin(np.arange(s.clients), s.noisy_clients())
    return Valued(
        values={
            **{m: contribution_values(fit.quality, f.sizes) for m, fit in fits.items()},
            "tmc-sv": sampled,
            "loo": loo.values,
            "random": Streams(seed)
            .generator("fedccea", "random", s.dataset, s.distribution, s.noise)
            .random((RANDOM_ORDERS, s.clients)),
            "size": sizes,
            "oracle": sizes * honest,
        },
        trained={
            **dict.fromkeys(FITS, spent),
            "tmc-sv": walked,
            "loo": for_loo.trained,
            **{
                f"{m}.{share:g}": cost
                for m, found in parts.items()
                for share, (_, cost) in zip(PARTS, found, strict=True)
            },
        },
        base=float(scored.value(np.ones((1, s.clients), dtype=bool))[0]),
        simulations=sims,
        fits=fits,
        scored=scored,
        parts={m: np.stack([values for values, _ in found]) for m, found in parts.items()},
    )
