"""Federated recommendation: which suppliers of ratings should a movie agency pay (section 6)?

An agency knows the demographics of all its members, and which members of a small part liked one
of its new movies.  Suppliers offer ratings of other movies.  The agency pays some of them, within
a budget, and trains gradient-boosted trees on what it then has, to find who else would like one.

What the paper leaves open is a field of :class:`Case`, or said where it is decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from fedkit.datasets.movielens import MovieLens
from fedkit.extras import need
from fedkit.fedvalue.baselines import vfps_scores
from fedkit.fedvalue.cmi import Correction, mshapley_cmi
from fedkit.fedvalue.data import discretise, joint_codes, pca
from fedkit.papers.fedvalue.budgets import MOST_PARTIES, members
from fedkit.streams import Streams

__all__ = [
    "FABRICATIONS",
    "REDUNDANCIES",
    "SCENARIOS",
    "Case",
    "Recommender",
    "Repetition",
    "Trees",
    "auc",
    "configure",
    "values",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SCENARIOS = ("ideal", "redundant", "free-riders")
REDUNDANCIES = ("own", "copy", "given")
FABRICATIONS = ("density", "permuted", "uniform")


@dataclass(frozen=True)
class Case:
    """The setting of a repetition: Table 4, and what section 6 does not say.

    Attributes
    ----------
    scenario : {"ideal", "redundant", "free-riders"}
    ratio : float
        Share of redundant or free-riding parties: 0.2 (the text of section 6 also says 40%).
    movies, candidates, features : int
        New movies N, data parties, principal components K of each.
    low, high : float
        Share of the movies that a low-volume and a high-volume party holds.
    train : float
        Share of the users whose labels are known.
    redundancy : {"own", "copy", "given"}
        What "features are also held by the task party" means.  ``own``: the task party holds
        components of ratings of its own, of a low volume, and every redundant party offers these
        again.  ``copy``: a redundant party offers the demographics.  ``given``: a redundant party
        is like the others, and the task party holds its features already.
    fabrication : {"density", "permuted", "uniform"}
        What a free-rider offers.  ``density``: random stars in random places, as many as a true
        table has.  ``permuted``: a true table whose rows are shuffled.  ``uniform``: a random
        number from 0 to 5 in every place.
    demographics : {"levels", "bins"}
        Whether age bands and occupations keep their levels in MShapley-CMI, as discrete columns
        do, or are binned by their codes like continuous ones.
    known : {"train", "all"}
        Whose labels the scores are worked out on: those that the task party knows, or everybody's,
        which it cannot have; a simulation may use them by mistake.
    bins : int
        Equal-width bins per component for MShapley-CMI.
    groups : int
        Random groups of VF-PS.
    """

    scenario: str = "ideal"
    ratio: float = 0.2
    movies: int = 20
    candidates: int = 5
    features: int = 2
    low: float = 0.01
    high: float = 0.1
    train: float = 0.2
    redundancy: str = "own"
    fabrication: str = "density"
    demographics: str = "levels"
    known: str = "train"
    bins: int = 5
    groups: int = 20

    def __post_init__(self) -> None:
        for name, choices in (
            ("scenario", SCENARIOS), ("redundancy", REDUNDANCIES), ("fabrication", FABRICATIONS),
            ("demographics", ("levels", "bins")), ("known", ("train", "all")),
        ):  # fmt: skip
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose from {choices}")
        for name in ("movies", "features", "bins", "groups"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected at least 1")
        if not 2 <= self.candidates <= MOST_PARTIES:
            raise ValueError(f"candidates is {self.candidates}; expected 2 to {MOST_PARTIES}")
        for name in ("low", "high", "train", "ratio"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share within (0, 1)")

    @property
    def odd_parties(self) -> int:
        """How many parties are redundant or ride free."""
        return 0 if self.scenario == "ideal" else round(self.ratio * self.candidates)


@dataclass(frozen=True, eq=False)
class Repetition:
    """One draw of the task and of its candidates.

    Attributes
    ----------
    label : int64[U]
        1 for target customers.
    train : bool[U]
        Users whose label is known; the others are the test set.
    demographics : int64[U, 3]
    own : float64[U, F]
        Further features of the task party; F = 0 but for redundant scenarios.
    features : tuple of float64[U, K]
        What each data party offers.
    high, odd : bool[d]
        Who is of high volume; who is redundant or rides free.
    volume : int64[d]
        Movies that each party says it holds.
    """

    label: IntArray
    train: BoolArray
    demographics: IntArray
    own: FloatArray
    features: tuple[FloatArray, ...]
    high: BoolArray
    odd: BoolArray
    volume: IntArray


def configure(data: MovieLens, case: Case, seed: int) -> Repetition:
    """Draw the new movies, the users with labels, and the data parties.

    The draws do not depend on the scenario, so scenarios are compared on the same movies, users
    and tables of ratings.  Of an odd number of parties the smaller half is of high volume.

    Raises
    ------
    ValueError
        If there are too few movies or users, or all users with labels have the same.
    """
    users, movies = data.ratings.shape
    sizes = [max(1, round(share * movies)) for share in (case.low, case.high)]
    if movies < case.movies + max(sizes):
        raise ValueError(
            f"{movies} movies are too few for {case.movies} new ones and {max(sizes)} at a party"
        )
    if min(sizes) < case.features:
        raise ValueError(
            f"a low-volume party holds {min(sizes)} movies, too few for {case.features} components"
        )
    streams = Streams(seed).child("fedvalue", "recommendation")
    shuffled = streams.generator("movies").permutation(movies)
    new, others = shuffled[: case.movies], shuffled[case.movies :]
    label = (data.ratings[:, new] >= 4).any(axis=1).astype(np.int64)
    train = np.zeros(users, dtype=bool)
    train[streams.generator("users").permutation(users)[: round(case.train * users)]] = True
    if len(np.unique(label[train])) < 2 or len(np.unique(label[~train])) < 2:
        raise ValueError(
            "all users of the training or of the test set have the same label; take more new "
            "movies or more users"
        )

    def table(name: str, size: int) -> npt.NDArray[np.uint8]:
        return data.ratings[:, streams.generator("party", name).permutation(others)[:size]]

    high = np.arange(case.candidates) >= (case.candidates + 1) // 2
    volume = np.where(high, sizes[1], sizes[0])
    odd = np.zeros(case.candidates, dtype=bool)
    odd[streams.generator("roles").permutation(case.candidates)[: case.odd_parties]] = True
    own = np.zeros((users, 0))
    if case.scenario == "redundant" and case.redundancy == "own":
        own = pca(table("own", sizes[0]), case.features)
    offered = []
    for i in range(case.candidates):
        ratings = table(str(i), int(volume[i]))
        if odd[i] and case.scenario == "free-riders":
            ratings = fabricate(ratings, case.fabrication, streams.generator("made up", i))
        if odd[i] and case.scenario == "redundant" and case.redundancy != "given":
            copied = own if case.redundancy == "own" else data.demographics.astype(np.float64)
            offered.append(copied)
        else:
            offered.append(pca(ratings, case.features))
    if case.scenario == "redundant" and case.redundancy == "given" and odd.any():
        own = np.column_stack([x for x, held in zip(offered, odd, strict=True) if held])
    return Repetition(
        label, train, data.demographics, own, tuple(offered), high, odd, volume.astype(np.int64)
    )


def fabricate(
    ratings: npt.NDArray[np.uint8], how: str, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Make up a table of ratings in the place of a true one; see :class:`Case`."""
    if how == "permuted":
        return ratings[rng.permutation(len(ratings))]
    if how == "uniform":
        return rng.integers(0, 6, size=ratings.shape, dtype=np.uint8)
    rated = rng.random(ratings.shape) < (ratings > 0).mean()
    return (rated * rng.integers(1, 6, size=ratings.shape)).astype(np.uint8)


def values(repetition: Repetition, case: Case, seed: int) -> dict[str, FloatArray]:
    """Score the data parties by each strategy, on the users whose labels are known.

    Returns
    -------
    dict of str to float64[d]
        ``random`` scores all alike and ``volume`` all of one size: such ties are broken at
        random.  ``fedvalue`` is the plug-in value of Eq. 6, ``fedvalue-corrected`` the same with
        the mean of a permutation null taken off.
    """
    d = len(repetition.features)
    train = repetition.train | (case.known == "all")
    keep = True if case.demographics == "levels" else None
    # Text keeps its levels: what the task party knows is one column of joint cells.
    known = discretise(repetition.demographics[train], case.bins, discrete=keep)
    if repetition.own.shape[1]:
        known = np.column_stack([known, discretise(repetition.own[train], case.bins)])
    task, label = joint_codes(known).astype(str), repetition.label[train]
    offered = [x[train] for x in repetition.features]

    def fedvalue(correction: Correction) -> FloatArray:
        found = mshapley_cmi(
            task, label, offered, bins=case.bins, correction=correction, seed=seed, draws=2
        )
        return found.values

    return {
        "random": np.zeros(d),
        "volume": repetition.volume.astype(np.float64),
        "vf-ps": vfps_scores(offered, label, groups=case.groups, seed=seed),
        "fedvalue": fedvalue("plugin"),
        "fedvalue-corrected": fedvalue("permutation"),
    }


@dataclass(frozen=True)
class Trees:
    """Gradient-boosted trees; the paper names no settings, so these are XGBoost's own."""

    rounds: int = 100
    depth: int = 6
    rate: float = 0.3

    def chance(self, x: FloatArray, y: IntArray, wanted: FloatArray) -> FloatArray:
        """Train on (x, y) with one thread and return the probability of label 1."""
        xgboost = need("xgboost", extra="vertical")
        options = {
            "objective": "binary:logistic", "max_depth": self.depth, "eta": self.rate,
            "nthread": 1, "tree_method": "hist", "seed": 0,
        }  # fmt: skip
        model = xgboost.train(options, xgboost.DMatrix(x, y, nthread=1), self.rounds)
        return np.asarray(model.predict(xgboost.DMatrix(wanted, nthread=1)), dtype=np.float64)


def auc(label: IntArray, chance: FloatArray) -> float:
    """Area under the ROC curve: how often a target customer is ranked above another user."""
    positive = label == 1
    n, m = int(positive.sum()), int((~positive).sum())
    ranks = rankdata(chance)[positive].sum()
    return float((ranks - n * (n + 1) / 2) / (n * m))


@dataclass
class Recommender:
    """Models of one repetition, one for each set of parties, trained when first asked for."""

    repetition: Repetition
    trees: Trees = field(default_factory=Trees)

    def __post_init__(self) -> None:
        self._tested: dict[int, tuple[float, float]] = {}
        self._validated: dict[int, float] = {}

    def table(self, mask: int) -> FloatArray:
        """Return what the task party has with these parties, float64[U, F]."""
        r = self.repetition
        return np.column_stack([r.demographics, r.own, *(r.features[i] for i in members(mask))])

    def test(self, mask: int) -> tuple[float, float]:
        """Return accuracy and AUC on the test users."""
        if mask not in self._tested:
            r, x = self.repetition, self.table(mask)
            chance = self.trees.chance(x[r.train], r.label[r.train], x[~r.train])
            label = r.label[~r.train]
            self._tested[mask] = float(((chance > 0.5) == label).mean()), auc(label, chance)
        return self._tested[mask]

    def validate(self, mask: int) -> float:
        """Return the AUC on every third user with a label, of a model of the others (a control)."""
        if mask not in self._validated:
            r, x = self.repetition, self.table(mask)
            x, y = x[r.train], r.label[r.train]
            held = np.arange(len(y)) % 3 == 0
            self._validated[mask] = auc(y[held], self.trees.chance(x[~held], y[~held], x[held]))
        return self._validated[mask]

    def expected(self, selected: dict[int, float]) -> tuple[float, float]:
        """Return accuracy and AUC, averaged over how ties are broken."""
        found = np.array([self.test(mask) for mask in selected])
        accuracy, area = np.array(list(selected.values())) @ found
        return float(accuracy), float(area)
