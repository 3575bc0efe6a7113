"""The settings of FedTSV's evaluation (section IV) and of the study around it, at every profile.

What the paper does not give is a field of :class:`Setting`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from reproduction import common

if TYPE_CHECKING:
    from fedkit.methods.fedtsv import Utility

PAPER_METHODS = ("fedavg", "cgsv", "loo", "tsv")
#: LOO by the other utility of Eq. 5; TSV by sampling as in the paper; CGSV by its game, and without
#: its normalisation
READINGS = ("loo-loss", "tsv-sampled", "cgsv-game", "cgsv-raw")
#: exact values of the round by accuracy; FedTSV's values, shuffled; values that know nothing; a
#: server that knows who lies
CONTROLS = ("mr", "shuffled", "random", "oracle")
METHODS = PAPER_METHODS + READINGS + CONTROLS
KINDS = ("iid", "skewed", "malicious")
#: kinds of clients, of which the first should weigh more
PAIRS = (("iid", "malicious"), ("skewed", "malicious"), ("iid", "skewed"))


@dataclass(frozen=True)
class Setting(common.Setting):
    """One run of FedTSV's evaluation, all seeds apart."""

    method: str  # a method of the paper, another reading of one, or a control
    dataset: str  # column of the paper's figures
    data: str  # the data set that was loaded for it
    model: str = "mlp-64"
    clients: int = 100
    skewed: int = 10  # clients with a Dirichlet split of their own
    malicious: int = 20  # clients with permuted labels
    gamma: float = 0.5  # the Dirichlet parameter, lost in every copy of the paper
    participants: int = 5
    rounds: int = 400  # 1000 for CIFAR-10
    lr: float = 0.01  # lost too
    batch_size: int = 64  # 8 for CIFAR-10; one local epoch
    validation: int = 1000  # images that the server holds, of the test set
    one_sided: float = 1.0  # share of the second half of the classes that stays among these
    scale: float = 1.0  # factor of what malicious clients send
    # True: the server brings the updates of a round to the length of the median one before it does
    # anything else, as CGSV's authors do before they average; "clip": it shortens those that are
    # longer.  The paper names "gradient clipping or norm regularization" and tries neither
    # (section IV-B).
    even: bool | Literal["clip"] = False
    # one permutation for all malicious clients: "a fixed label-shuffling mapping" can mean it
    collusion: bool = False
    utility: Utility = "exponential"  # of the trajectory game
    evaluate_every: int = 10  # rounds until test accuracy and loss are measured again

    @property
    def honest(self) -> int:
        """Number of clients that do not misbehave; they come first."""
        return self.clients - self.malicious

    def kinds(self) -> np.ndarray:
        """Kind of every client, as a place in :data:`KINDS`: IID first, malicious last."""
        iid = self.honest - self.skewed
        return np.repeat([0, 1, 2], [iid, self.skewed, self.malicious])


_MNIST = Setting("fedavg", "mnist", "mnist")
_CIFAR = Setting(
    "fedavg", "cifar10", "cifar10", model="resnet20", rounds=1000, batch_size=8, lr=0.1
)
#: CIFAR-10 for a machine without a GPU: a smaller network, larger batches, a tenth of the rounds
_CIFAR_REDUCED = replace(_CIFAR, model="lenet5", rounds=100, batch_size=32, lr=0.05)
_DIGITS = Setting(
    "fedavg", "digits", "digits", model="mlp-32", clients=20, skewed=3, malicious=5, rounds=40,
    lr=0.1, batch_size=16, validation=100, evaluate_every=5,
)  # fmt: skip
BASES = {
    "smoke": (_DIGITS,),
    "laptop": (replace(_MNIST, rounds=100), _CIFAR_REDUCED),
    "paper": (_MNIST, _CIFAR),
}
SEEDS = {"smoke": (0, 1, 2), "laptop": (0, 1, 2), "paper": tuple(range(10))}
#: one change at a time of what the paper leaves open or does not try
CHANGES: dict[str, dict[str, Any]] = {
    "as in Figure 1": {},
    "utility 1 / (1 + d / sigma)": {"utility": "rational"},
    "utility exp(-(d / sigma)^2)": {"utility": "gaussian"},
    "utility of the angle": {"utility": "angular"},
    "100 validation images": {"validation": 100},
    "validation short of five classes": {"one_sided": 0.1},
    "40% malicious": {"malicious": 40},
    "malicious updates times 10": {"scale": 10.0},
    "updates of equal length": {"even": True},
    "long updates clipped": {"even": "clip"},
    "one permutation for all": {"collusion": True},
    "Dirichlet parameter 0.1": {"gamma": 0.1},
    "Dirichlet parameter 0.05": {"gamma": 0.05},  # 0.5 as Hsu et al. write it
    "learning rate 0.0002": {"lr": 0.0002},
    "learning rate 0.001": {"lr": 0.001},
    "learning rate 0.1": {"lr": 0.1},
}
#: changes on which a sentence turns: ten seeds at paper scale, where the others have three
TEN_SEEDS = (
    "malicious updates times 10", "updates of equal length", "long updates clipped",
    "learning rate 0.0002",
)  # fmt: skip
STUDIED = ("fedavg", "cgsv", "cgsv-raw", "loo", "loo-loss", "tsv", "oracle")
#: participants, parameters, and draws of the sampling
TIMINGS = {"smoke": ((3, 5), 200, 3), "laptop": ((), 0, 0), "paper": ((5, 10, 15, 20), 50_890, 20)}
TINY = replace(_DIGITS, clients=10, skewed=2, malicious=2, participants=4, rounds=4,
                evaluate_every=1)  # fmt: skip


def changed(s: Setting, change: dict[str, Any]) -> Setting:
    """Apply a change of the study, in proportion where the federation is a small one."""
    if "malicious" in change:
        change = {"malicious": change["malicious"] * s.clients // 100}
    if "validation" in change:
        change = {"validation": min(change["validation"], s.validation // 2)}
    return replace(s, **change)


def figures(profile: str) -> list[Setting]:
    """Every method; of CIFAR-10 those of the paper and the oracle."""
    found = common.crossed(BASES[profile], method=METHODS)
    return [s for s in found if s.dataset != "cifar10" or s.method in (*PAPER_METHODS, "oracle")]


def study(profile: str) -> list[Setting]:
    """One change at a time, with the methods that it can touch."""
    found = [
        replace(changed(BASES[profile][0], change), method=method)
        for change in CHANGES.values()
        if change  # the figures have the runs without one
        for method in (("tsv",) if "utility" in change else STUDIED)
    ]
    return list(dict.fromkeys(found))


def figures_seeds(profile: str, s: Setting) -> list[tuple[int, ...]]:
    """The profile's seeds, and on MNIST at `paper` fifty."""
    more = common.blocks(range(10, 50), 10) if (profile, s.dataset) == ("paper", "mnist") else []
    return [SEEDS[profile], *more]


def study_seeds(profile: str, s: Setting) -> list[tuple[int, ...]]:
    """Three seeds, or ten where a sentence turns on it, and for the utilities.

    The rate at which FedAvg ends as printed has fifty, as the figures have.
    """
    base = replace(BASES[profile][0], method=s.method)
    if profile != "paper" or s.utility != base.utility:
        return [SEEDS[profile]]
    ten = s in [changed(base, CHANGES[name]) for name in TEN_SEEDS]
    more = common.blocks(range(10, 50), 10) if s == changed(base, {"lr": 0.0002}) else []
    return [(0, 1, 2), tuple(range(3, 10)), *more] if ten else [(0, 1, 2)]
