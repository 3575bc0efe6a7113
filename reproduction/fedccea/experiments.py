"""The settings of FedCCEA's evaluation at every scale (section 4, appendix B), and their words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedkit.checks import Ints
from reproduction import common

if TYPE_CHECKING:
    from fedkit.learning.training import LocalSGD


#: FedCCEA in both readings: where the sigmoid of its model stands.  Appendix A has it "in the first
#: layer of the AAM", the one with the shared weights; but by section 3.2.1 that one is linear, and
#: what it returns "is the input" of the connected layers
FITS: dict[str, Literal["shared", "connected"]] = {"fedccea": "shared", "connected": "connected"}
METHODS = (*FITS, "tmc-sv", "loo")
#: the rivals in the other reading, valued round by round with this many walks a round
BY_ROUNDS, WALKS = ("tmc-sv-rounds", "loo-rounds"), 2
#: what else is read off the same simulations: the first reading trained by Adam, a straight line
READINGS = ("adam", "same_round")
#: controls of the removal experiments: they know nothing, or what the server may not know
CONTROLS = ("random", "size", "oracle")
#: FedCCEA's ranking with partial participation in both readings, and by amounts alone (control)
PARTIAL = ("partial", "partial-connected", "partial-size")
#: random orders whose removal curves are averaged; each costs as many retrainings as a method
RANDOM_ORDERS = 3
#: shares of the simulations, and of TMC-SV's coalitions, from which clients are valued as well
PARTS = (0.25, 0.5, 0.75)
#: random assignments of the learnt qualities to the clients, and what ends a metric's name
DEALS, ENDS = 6, {"fedccea": "", "connected": "-connected"}

#: in the order of the figures; "connected" is the second reading
LABELS = {
    "fedccea": "FedCCEA", "connected": "FedCCEA connected", "adam": "FedCCEA by Adam",
    "tmc-sv": "TMC-SV", "loo": "LOO", "tmc-sv-rounds": "TMC-SV by rounds",
    "loo-rounds": "LOO by rounds", "same_round": "same round", "oracle": "oracle",
    "partial": "partial", "partial-connected": "partial connected",
    "partial-size": "amounts alone",
}  # fmt: skip

DATA = {"mnist": "MNIST", "emnist": "EMNIST", "digits": "digits"}
DISTRIBUTIONS = {"iid": "IID", "weak": "weak non-IID", "strong": "strong non-IID"}
NOISES = ("none", "label-10", "label-20", "label-40", "pattern-20")


def setting_name(dataset: str, distribution: str, noise: str = "none") -> str:
    """Return a setting in words."""
    place = f"{DATA[dataset]}, {DISTRIBUTIONS[distribution]}"
    if noise == "none":
        return place
    kind, _, share = noise.partition("-")
    words = {"label": "label noise", "pattern": "pattern", "backdoor": "backdoor"}
    return f"{place}, {share}% {words[kind]}"


@dataclass(frozen=True)
class Setting(common.Setting):
    """One run of FedCCEA's evaluation, all seeds apart."""

    dataset: str  # column of the paper's tables
    data: str  # the data set that was loaded for it
    distribution: str  # of DISTRIBUTIONS
    # "none", "label-S", "pattern-S" or "backdoor-S", S percent of a noisy client's samples; the
    # paper: label-10, -20, -40, and "sample noise", which we read as pattern-20
    noise: str = "none"
    weak: int = 5  # classes per client; 30 for EMNIST
    strong: int = 2  # 5 for EMNIST
    noisy: float = 0.2  # share of the clients
    model: str = "mlp-128-64"
    clients: int = 20
    rounds: int = 50
    simulations: int = 100
    samples: int | None = None  # for training per client; None for all there are
    # The paper has (3, 32, 0.001) for MNIST and (1, 256, 0.05) for EMNIST, with plain SGD.  With
    # fewer samples a client makes fewer steps: the reduced settings take a larger rate (MNIST) or
    # smaller batches (EMNIST).
    epochs: int = 3
    batch_size: int = 32
    lr: float = 0.001
    aam_lr: float = 0.01  # of the AAM; 0.05 for EMNIST
    tolerance: float = 0.01  # truncation of TMC-SV, in accuracy
    validation: float = 0.01  # unused images, so that every data set is cut in the same way

    @property
    def local(self) -> LocalSGD:
        """Local training."""
        from fedkit.learning.training import LocalSGD  # imports torch, which no table needs

        return LocalSGD(lr=self.lr, batch_size=self.batch_size, epochs=self.epochs)

    def noisy_clients(self) -> Ints:
        """The clients whose data are noisy: the last ones.

        Classes are dealt in turn, so noisy clients hold different ones where that is possible, and
        noise is spread over the classes as evenly as it can be.
        """
        noisy = 0 if self.noise == "none" else round(self.noisy * self.clients)
        return np.arange(self.clients - noisy, self.clients)


_MNIST = Setting("mnist", "mnist", "iid")
#: The letters of EMNIST are another data set than the paper's EMNIST by class, and marked as such:
#: 13 and 2 of 26 classes per client for the 30 and 5 of 62
_EMNIST = replace(
    _MNIST, dataset="emnist", data="emnist-letters", model="mlp-128", weak=13, strong=2, epochs=1,
    batch_size=256, lr=0.05, aam_lr=0.05,
)  # fmt: skip
_BY_CLASS = replace(_EMNIST, data="femnist", weak=30, strong=5)
_DIGITS = replace(
    _MNIST, dataset="digits", data="digits", model="mlp-16", clients=8, rounds=6, simulations=24,
    samples=60, epochs=2, batch_size=16, lr=0.2,
)  # fmt: skip
#: 300 samples per client (appendix C.1).  MNIST's clients have a tenth of their samples and make up
#: for it by ten times the rate.  At EMNIST's batch size they would make two steps; batches of 32
#: leave the amount of data what it is in the paper, a number of steps.
_MNIST_300, _EMNIST_300 = (
    replace(_MNIST, samples=300, lr=0.01),
    replace(_EMNIST, samples=300, batch_size=32),
)


SCALES = {
    "smoke": (_DIGITS,),
    "laptop": (_MNIST_300, _EMNIST_300),
    "paper": (_MNIST, _EMNIST, _BY_CLASS),
}
#: is a federation with fewer samples trained as far as the paper's?
LEARNING = {
    "smoke": (_DIGITS, replace(_DIGITS, lr=0.02)),
    "laptop": (),
    "paper": (
        *(_MNIST, replace(_MNIST_300, lr=_MNIST.lr), _MNIST_300),
        *(_EMNIST, replace(_EMNIST, samples=300), _EMNIST_300),
    ),
}
#: Table 2: seconds per round with 300 samples per client
COST = {
    "smoke": [replace(_DIGITS, clients=n, rounds=2, simulations=8, samples=20) for n in (4, 8, 16)],
    "laptop": [],
    "paper": [
        replace(_MNIST_300, clients=n, rounds=2, simulations=20) for n in (4, 8, 12, 16, 32, 64)
    ],
}


def learning(profile: str) -> list[Setting]:
    """Every amount of data with all distributions."""
    return common.crossed(LEARNING[profile], distribution=[*DISTRIBUTIONS])


def everywhere(profile: str) -> list[dict[str, Any]]:
    """All distributions with every noise."""
    noises = NOISES if profile != "smoke" else ("none", "label-40")
    bases = common.crossed(SCALES[profile], distribution=[*DISTRIBUTIONS], noise=noises)
    return [asdict(s) for s in bases]


def contribution(profile: str) -> list[dict[str, Any]]:
    """Everywhere, with fewer fits in a small run."""
    # fits of halves, quarters and tenths are most of a small run's time, and no table has them
    few = {"splits": 2} if profile == "smoke" else {}
    return [s | few for s in everywhere(profile)]


def dealt(profile: str) -> list[dict[str, Any]]:
    """Strongly non-IID clients, where who takes turns and who does not matters most."""
    shown = ("strong", "none"), ("strong", "label-40")
    return [s for s in contribution(profile) if (s["distribution"], s["noise"]) in shown]


def by_rounds(profile: str) -> list[dict[str, Any]]:
    """The settings of the tables, with two to four walks of TMC-SV in a round."""
    walks = (2, 3, 4) if profile != "smoke" else (2,)
    return [s | {"permutations": n} for s in everywhere(profile) for n in walks]
