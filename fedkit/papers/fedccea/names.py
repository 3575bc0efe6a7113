"""The methods and settings of FedCCEA's evaluation: keys of the records, and words for a reader."""

from __future__ import annotations

from typing import Literal

#: FedCCEA in both readings: where the sigmoid of its model stands.  Appendix A has it "in the first
#: layer of the AAM", the one with the shared weights; but by section 3.2.1 that one is linear, and
#: what it returns "is the input" of the connected layers
FITS: dict[str, Literal["shared", "connected"]] = {"fedccea": "shared", "connected": "connected"}
METHODS = (*FITS, "tmc-sv", "loo")
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
    "tmc-sv": "TMC-SV", "loo": "LOO", "same_round": "same round", "oracle": "oracle",
    "partial": "partial", "partial-connected": "partial connected",
    "partial-size": "amounts alone",
}  # fmt: skip

DATA = {"mnist": "MNIST", "emnist": "EMNIST letters", "digits": "digits"}
DISTRIBUTIONS = {"iid": "IID", "weak": "weak non-IID", "strong": "strong non-IID"}
NOISES = ("none", "label-10", "label-20", "label-40", "pattern-20")


def noise_name(noise: str) -> str:
    """Return a kind of noise in words."""
    kind, _, share = noise.partition("-")
    words = {"label": "label noise", "pattern": "pattern", "backdoor": "backdoor"}
    return "clean" if noise == "none" else f"{share}% {words[kind]}"


def setting_name(dataset: str, distribution: str, noise: str = "none") -> str:
    """Return a setting in words."""
    words = "" if noise == "none" else f", {noise_name(noise)}"
    return f"{DATA[dataset]}, {DISTRIBUTIONS[distribution]}{words}"
