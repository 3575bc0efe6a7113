"""The settings of FedValue's evaluation, at every profile.

Section 5 compares MShapley-CMI with SHAP on six tables, section 6 lets a movie agency choose its
suppliers, and the counting protocol is attacked and timed.  What the paper does not give is a field
of a setting.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedkit.datasets import TABLES
from fedkit.fedvalue.protocol.attacks import ATTACKS
from reproduction import common
from reproduction.common import blocks

# ------------------------------------------------------------------- models and correlations

#: MShapley-CMI as printed, and with its bias taken off
ESTIMATES = ("plugin", "permutation")
#: values that need no game: information of each party alone; and two without any look at the
#: true labels: the entropy of a party's cells, and MShapley-CMI of shuffled labels
CONTROLS = ("alone", "entropy", "shuffled")
#: thresholds of SHAP-ensemble by their name in the records
THRESHOLDS = {"ensemble5": 0.05, "ensemble2": 0.02}
#: data parties up to which values are exact: 1024 coalitions (fewer for the 24,000 rows of Credit,
#: where ten parties are left to mshapley_cmi's own 500 permutations)
EXACT = 10


@dataclass(frozen=True)
class Setting(common.Setting):
    """One panel of Figure 4: a data set at a number of features per party."""

    dataset: str  # of TABLES
    features: int = 0  # per party; 0 where it does not matter
    # whether the models see the five bins or the numbers themselves; Table 8 fits "binned"
    inputs: Literal["binned", "raw"] = "binned"
    repetitions: int = 10  # behind one seed; the paper has 50 in all
    sample: float = 0.8  # share of the rows that a repetition draws, trains on and values
    bins: int = 5  # of equal width, over all rows (they do not look at labels)
    rows: int = 100  # of the sample that are explained
    background: int = 25  # that stand for unknown features
    walks: int = 200  # permutations of MShapley-CMI for more than EXACT data parties
    # whether the task party is dealt columns like the others, or has the label only
    task_has: Literal["columns", "label"] = "columns"
    data_parties: int = 0  # the most; 0 for as many as there are columns for
    # whether the models see all columns (as in Table 8) or those that some party has
    trained_on: Literal["all", "dealt"] = "all"


@dataclass(frozen=True)
class Approximation(common.Setting):
    """One data set of Figures 8 and 9; `dataset`, `sample` and `bins` are those of a Setting."""

    dataset: str
    # features per party where permutations are sampled, and where PCA is tried; the paper gives
    # neither
    features: int = 2
    wide: int = 6
    # numbers of permutations (the paper: 100 to more than 1200)
    samplings: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 1200, 1600, 2400)
    components: tuple[int, ...] = (1, 2, 3, 4, 5, 6)  # per party
    sample: float = 0.8
    bins: int = 5


FEATURES = (1, 2, 3)
#: readings of what the paper leaves open; Figure 4's claims are judged on the first, as declared
SHAP_READINGS: dict[str, dict[str, Any]] = {
    "as in Figure 4": {},
    "task party has the label only": {"task_has": "label"},
    "models see the numbers": {"inputs": "raw"},
    "five data parties, models of their columns": {"data_parties": 5, "trained_on": "dealt"},
    "both: five data parties, label only": {
        "data_parties": 5, "trained_on": "dealt", "task_has": "label",
    },
}  # fmt: skip
#: the two that are run in full: the second once fewer repetitions had shown how much hangs on it
FULL = ("as in Figure 4", "task party has the label only")
#: Credit has 30,000 rows and its forest takes half a second per explained row: fewer rows and
#: permutations than elsewhere.
REDUCED: dict[str, dict[str, Any]] = {"credit": {"rows": 25, "walks": 100}}
_DATASETS = {
    "smoke": ("wine", "breast"),
    "laptop": ("wine", "parkinsons", "spect", "breast", "music"),
    "paper": tuple(TABLES),
}
_REPETITIONS = {"smoke": 1, "laptop": 2, "paper": 10}


def models(profile: str) -> list[Setting]:
    """Return the cells of Table 8."""
    found = [Setting(d, repetitions=1) for d in _DATASETS[profile]]
    return found + [replace(s, inputs="raw") for s in found if s.dataset != "credit"]


def correlation(profile: str) -> list[Setting]:
    """Return the panels of Figures 4 and 5, in every reading."""
    found = []
    for name, change in SHAP_READINGS.items() if profile == "paper" else [("as in Figure 4", {})]:
        for dataset in _DATASETS[profile]:
            s = Setting(dataset, repetitions=_REPETITIONS[profile], **REDUCED.get(dataset, {}))
            if profile == "smoke":
                s = replace(s, rows=25, background=5, walks=25)
            if name not in FULL:
                if dataset == "credit":
                    continue
                s = replace(s, repetitions=1)
            found += [replace(s, features=k, **change) for k in FEATURES]
    return found


def approximation(profile: str) -> list[Approximation]:
    """Return the settings of Figures 8 and 9."""
    if profile == "smoke":
        return [Approximation("breast", 3, samplings=(25, 100, 1200), components=(2, 3, 4))]
    return [Approximation("breast", features=2), Approximation("music", features=4)]


def seeds_of_tables(profile: str, s: Any) -> list[tuple[int, ...]]:
    """Return the batches of repetitions on tables."""
    return [tuple(range(3 if profile == "smoke" else 5))]


def seeds_of_models(profile: str, s: Setting) -> list[tuple[int, ...]]:
    """Return the seeds of Table 8."""
    many = profile == "paper" and s.dataset != "credit"
    return blocks(range(50), 10) if many else seeds_of_tables(profile, s)


# ------------------------------------------------------------------- the movie agency

#: incentives of section 6: the same for all, or twice as much for a high volume
SCHEMES = ("fix", "var")
#: in units of alpha
BUDGETS = (1, 2, 3)
PLACES = tuple(itertools.product(SCHEMES, BUDGETS))
#: by score until the budget is used up; those that end in "-thrifty" pay no party of score <= 0
STRATEGIES = (
    "random", "volume", "vf-ps", "fedvalue", "fedvalue-corrected", "fedvalue-thrifty",
    "fedvalue-corrected-thrifty",
)  # fmt: skip
#: name of the share of odd parties among those selected
SHARE = {"redundant": "rpsp", "free-riders": "frsp"}


@dataclass(frozen=True)
class Case:
    """The setting of a repetition: Table 4, and what section 6 does not say."""

    dataset: str = "made-up"  # or "ml-1m", "ml-100k"
    scenario: str = "ideal"  # or "redundant", "free-riders"
    ratio: float = 0.2  # share of redundant or free-riding parties; the text also says 40%
    movies: int = 20  # new ones, N
    candidates: int = 5  # data parties
    features: int = 2  # principal components K of each
    low: float = 0.01  # share of the movies that a low-volume party holds
    high: float = 0.1  # and a high-volume one
    train: float = 0.2  # share of the users whose labels are known
    # What "features are also held by the task party" means.  "own": the task party holds components
    # of ratings of its own, of a low volume, and every redundant party offers these again.  "copy":
    # a redundant party offers the demographics.  "given": a redundant party is like the others, and
    # the task party holds its features already.
    redundancy: str = "own"
    # What a free-rider offers.  "density": random stars in random places, as many as a true table
    # has.  "permuted": a true table whose rows are shuffled.  "uniform": a random number from 0 to
    # 5 in every place.
    fabrication: str = "density"
    # Whether age bands and occupations keep their "levels" in MShapley-CMI, as discrete columns do,
    # or are binned by their codes like continuous ones ("bins").  "gender-age": gender and age band
    # alone, which are the paper's words, with their levels; the occupation is known to nobody.
    demographics: str = "levels"
    # Whose labels the scores are worked out on: those that the task party knows ("train"), or
    # everybody's ("all"), which it cannot have; a simulation may use them by mistake.
    known: str = "train"
    bins: int = 5  # of equal width per component, for MShapley-CMI
    groups: int = 20  # random ones of VF-PS
    validated: bool = True  # whether forward selection takes part as a control
    # gradient-boosted trees; the paper names no settings, so these are XGBoost's own
    trees_rounds: int = 100
    trees_depth: int = 6
    trees_rate: float = 0.3


#: Tables 5, 6 and 7
MAIN = tuple(Case(scenario=scenario) for scenario in ("ideal", "redundant", "free-riders"))
#: Table 9, one parameter at a time
TABLE9 = (
    *(Case(movies=n) for n in (30, 40)),
    *(Case(candidates=n) for n in (4, 6)),
    *(Case(features=n) for n in (1, 3)),
    *(Case(high=share) for share in (0.05, 0.2)),
    *(Case(scenario="redundant", ratio=share) for share in (0.4, 0.6)),
    *(Case(scenario="free-riders", ratio=share) for share in (0.4, 0.6)),
)
#: scikit-learn's settings for gradient boosting
MILD: dict[str, Any] = {"trees_depth": 3, "trees_rate": 0.1}
#: other readings of what is not said, at the default parameters
MARKET_READINGS = (
    *(Case(scenario="redundant", redundancy=how) for how in ("copy", "given")),
    *(Case(scenario="free-riders", fabrication=how) for how in ("permuted", "uniform")),
    *(replace(case, demographics="bins") for case in MAIN),
    *(replace(case, known="all") for case in MAIN),
    *(replace(case, **MILD) for case in MAIN),
)
#: what fits into the made-up ratings
SMALL: dict[str, Any] = {"dataset": "made-up", "movies": 8, "low": 0.02, "high": 0.2}


def recommendation(profile: str) -> list[Case]:
    """Return the cases of Tables 5, 6, 7 and 9, and in other readings."""
    if profile == "smoke":
        return [replace(case, **SMALL) for case in MAIN]
    name = "ml-1m" if profile == "paper" else "ml-100k"
    others = [replace(case, validated=False) for case in (*TABLE9, *MARKET_READINGS)]
    return [replace(case, dataset=name) for case in (*MAIN, *others)]


def gender_age(profile: str) -> list[Case]:
    """Tables 5 to 7 and 9 in the paper's words, and once more with everybody's labels."""
    cases = recommendation(profile)[: len(MAIN) + len(TABLE9)]
    everybody = [replace(case, known="all", validated=False) for case in cases[: len(MAIN)]]
    return [replace(case, demographics="gender-age") for case in (*cases, *everybody)]


def tested(profile: str) -> list[Case]:
    """Return the cases in which only those that pass a test are paid, in both readings."""
    known = (recommendation(profile)[: len(MAIN)], gender_age(profile)[: len(MAIN)])
    return [replace(case, validated=False) for cases in known for case in cases]


def many_repetitions(profile: str, _: Any) -> list[tuple[int, ...]]:
    """Ten times the paper's 20 repetitions, twenty in a record, so that a stop loses few."""
    return blocks(range(200), 20) if profile == "paper" else repetitions(profile, _)


def repetitions(profile: str, _: Any) -> list[tuple[int, ...]]:
    """Return the repetitions of a case."""
    return [tuple(range(3 if profile == "smoke" else 20))]


# ------------------------------------------------------------------- the protocol

#: options of the task party behind each name; the first is Algorithm 1 as printed
PROTOCOLS: dict[str, dict[str, Any]] = {
    "printed": {"variant": "cells", "hardened": False},
    "printed, whole table": {"variant": "table", "hardened": False},
    "hardened, cell by cell": {"variant": "cells", "hardened": True},
    "hardened, token per cell": {"variant": "table", "hardened": True, "tokens": "cell"},
    "hardened": {"variant": "table", "hardened": True, "tokens": "row"},
}


@dataclass(frozen=True)
class Attacked:
    """One attack on one protocol."""

    protocol: str  # of PROTOCOLS
    attack: str  # of ATTACKS
    low: int = 2  # of q
    high: int = 9
    artificial_low: int = 1  # of n_r (Table 3: 1 to 50)
    artificial_high: int = 50
    # "example": binary label and task feature, two binary features of one data party (the example
    # behind Proposition 2, 16 cells), drawn at random, the first telling much of the label.
    # "label": the data party's cell is the label itself, the attacker's best case.  "cells": the
    # same with 25 cells of the task party, from small to large.
    data: str = "example"
    people: int = 200  # rows (about, for "cells")
    iterations: int = 2  # tau
    trials: int = 200  # counts that are attacked for each seed


@dataclass(frozen=True)
class Leaking:
    """One data set, one defence."""

    dataset: str
    features: int = 2  # columns of the task party, and of each data party
    parties: int = 5  # data parties
    # "none", "joint" (leave out joint cells below `level`), "task" (leave out cells of the task
    # party below `level`), "noise" (geometric, epsilon = `level`), "decoys" (`level` for each cell
    # of the task party)
    defence: str = "none"
    level: float = 0.0


@dataclass(frozen=True)
class Timed:
    """One point of Figures 6 and 7, where one parameter is varied; the defaults are Table 3's."""

    varied: str
    protocol: str = "hardened"  # of PROTOCOLS
    parties: int = 5  # data parties
    features: int = 2  # of each party
    levels: int = 5  # values of a feature
    rows: int = 10_000  # people
    duplications: int = 3
    iterations: int = 2
    artificial: int = 50


#: attacks that move people between cells of a whole table
SWAPS = ("random swap", "rank linking", "weak cells")
#: what is varied in Figures 6 and 7, for whole tables and cell by cell
TABLE: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    "parties": (1, 2, 3, 4, 5, 6, 7, 8), "features": (1, 2, 3, 4, 5),
    "duplications": (1, 2, 3, 5, 7, 9), "iterations": (1, 2, 3, 4, 6, 8),
    "artificial": (1, 50, 1_000, 10_000, 30_000, 100_000),
}  # fmt: skip
CELLS: dict[str, tuple[int, ...]] = {
    "rows": (300, 1_000, 3_000, 10_000, 30_000), "parties": (1, 2, 3, 4, 5),
    "features": (1, 2, 3), "duplications": (1, 2, 3, 5, 7, 9), "iterations": (1, 2, 3, 4, 6, 8),
    "artificial": (1, 50, 300, 1_000, 3_000),
}  # fmt: skip


def security(profile: str) -> list[Attacked]:
    """Return every attack on every protocol, and the attacker's best cases."""
    trials = {"smoke": 6, "laptop": 60, "paper": 100}[profile]
    few = max(1, trials // 2)
    found = []
    for protocol, options in PROTOCOLS.items():
        # cell by cell there is nothing to swap; such counts take 20 times as long
        single = options["variant"] == "cells"
        attacks = [a for a in ATTACKS if not (single and a in SWAPS)]
        found += [Attacked(protocol, a, trials=few if single else trials) for a in attacks]
    # q known, or nearly: Table 3 has one q; q = tau = 2 is the example behind Proposition 2
    for low, high in ((2, 2), (3, 3), (2, 3), (2, 5)):
        for protocol in ("printed", "hardened"):
            found.append(Attacked(protocol, "best bet", low, high, trials=few))
    # more q and iterations than Table 3 has: neither helps against the size of another set
    for attack in ("upload size", "gcd"):
        found.append(Attacked("printed", attack, 2, 40, iterations=4, trials=few))
    # the attacker's best case: every swap does the same, and the server is told all it can know
    best = Attacked("hardened", "rank linking", 2, 3, data="label", people=100, trials=10 * trials)
    # and the same with 25 task cells, where those with the fewest artificial IDs are the target
    many = replace(best, attack="weak cells", data="cells", people=400, trials=3 * trials)
    for base, extras in ((best, (5, 20, 50, 100, 200)), (many, (25, 100, 400, 1600))):
        found += [replace(base, artificial_low=n, artificial_high=n) for n in extras]
    return found


def leak(profile: str) -> list[Leaking]:
    """Return the data sets and defences."""
    found = []
    for dataset in ("wine", "breast", *(["credit"] if profile == "paper" else [])):
        base = Leaking(dataset)
        narrow = replace(base, features=1, parties=3)  # few enough cells for noise on all
        found += [replace(base, features=n) for n in ((1, 2) if dataset == "wine" else (1, 2, 3))]
        for s, defence, levels in (
            (base, "joint", (2, 5)), (base, "task", (2, 5, 20)), (base, "decoys", (1, 3, 10)),
            (narrow, "none", (0.0,)), (narrow, "noise", (2.0, 1.0, 0.5)),
            (narrow, "decoys", (1, 3, 10)),
        ):  # fmt: skip
            found += [replace(s, defence=defence, level=level) for level in levels]
    return found


def scaling(profile: str) -> list[Timed]:
    """Return the points of Figures 6 and 7."""
    few = {"smoke": 2, "laptop": -1, "paper": None}[profile]
    table = Timed("", rows=1_000) if profile == "smoke" else Timed("")
    cells = Timed("", "printed", parties=2, features=1, levels=3, rows=1_000)
    found = []
    for base, points in ((table, TABLE), (cells, CELLS)):
        for name, values in points.items():
            for value in values[:few]:
                change: dict[str, Any] = {"varied": name, name: value}
                if base is cells and name == "features":
                    change["levels"] = 2  # three values each would be 78,732 queries
                found.append(replace(base, **change))
    return found


def seeds_of_protocol(profile: str, s: Any) -> list[tuple[int, ...]]:
    """Return the seeds of attacks, leaks and times."""
    many = {"smoke": 1, "laptop": 3, "paper": 5}[profile]
    if isinstance(s, Timed):
        many = min(many, 3)
    elif isinstance(s, Leaking) and profile == "paper":
        many = 10
    return [tuple(range(many))]
