"""Aggregation by contribution, and the baselines of FedTSV: cosine-gradient values, leave-one-out.

Every method here is a :class:`~fedkit.federated.rounds.Strategy`: what a participant's value is,
what the server remembers of it, and which weights follow.  Its controls, and the remedy against
long updates that the paper names and does not try, stand here as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
import numpy.typing as npt
import torch

from fedkit.estimators import leave_one_out, shapley
from fedkit.federated.aggregation import Proportional
from fedkit.federated.rounds import Strategy, keep_total
from fedkit.federated.selection import ClientTable, Selection, UniformSelection
from fedkit.federated.valuers import Round, ValuePolicy
from fedkit.games.coalitions import check_coalitions
from fedkit.games.valuation import Valuation
from fedkit.methods.fedtsv_trajectory import TrajectoryValues, check_inner_products, gram_matrix

__all__ = [
    "ContributionWeights",
    "CosineGame",
    "CosineValues",
    "FedTSV",
    "LeaveOneOut",
    "OracleWeights",
    "RunningCosine",
    "ShuffledValues",
    "equal_lengths",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ContributionWeights:
    """Weights proportional to ``max(c_i, 0)``, c_i the remembered contribution (FedTSV, Eq. 13).

    The sum runs over the round's participants; if none of them has a positive contribution the
    weights are uniform.

    Notes
    -----
    What is remembered is the strategy's to say.  Eq. 12 adds values up over the rounds, which is
    ``remember=keep_total``; a :class:`~fedkit.federated.rounds.Strategy` that names nothing keeps
    the latest value (``keep_latest``), and skips Eq. 12.  :class:`FedTSV` has both.
    """

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        """Return float64[k], non-negative, summing to 1."""
        return Proportional().weights(clients.values[r.participants], r.sizes)


@dataclass(frozen=True)
class FedTSV:
    """Settings of FedTSV; :meth:`strategy` makes Algorithm 2 of them.

    Parameters
    ----------
    values : TrajectoryValues
        Values of a round (Eqs. 9 to 11); exact unless it names an estimator.
    select : Selection
        Who takes part; the paper draws uniformly.
    """

    values: TrajectoryValues = field(default_factory=TrajectoryValues)
    select: Selection = field(default_factory=UniformSelection)

    def strategy(self) -> Strategy:
        """Return the strategy: values are added up (Eq. 12), and weights follow them (Eq. 13)."""
        return Strategy(self.select, self.values, ContributionWeights(), keep_total)


@dataclass(frozen=True)
class OracleWeights:
    """Control: a server that is told who misbehaves, and averages the others.

    Parameters
    ----------
    excluded : tuple of int
        Clients whose updates get weight zero.  Where all participants are such, nobody counts and
        the model stays as it is.
    """

    excluded: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(i, Integral) and i >= 0 for i in self.excluded):
            raise ValueError(f"excluded is {self.excluded!r}; expected clients' numbers, from 0")

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        """Return float64[k], non-negative, summing to 1; zeros where all are excluded."""
        good = (~np.isin(r.participants, self.excluded)).astype(np.float64)
        return good / max(good.sum(), 1.0)


@dataclass(frozen=True)
class ShuffledValues:
    """Control: another policy's values, dealt to the round's participants at random.

    The weights that follow are as uneven as that policy's and know nothing of who did what.
    """

    policy: ValuePolicy

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Return one valuation per round, over its participants."""
        found = []
        for r, v in zip(rounds, self.policy.value(rounds), strict=True):
            order = r.streams.generator("shuffled values").permutation(len(v.values))
            found.append(
                replace(v, values=v.values[order], standard_errors=v.standard_errors[order])
            )
        return found


def equal_lengths(updates: torch.Tensor, clip: bool = False) -> torch.Tensor:
    """Bring all updates of a round to the length of the median one.

    Of an even number of updates the shorter middle one counts.  Updates of length zero, or that are
    not finite, stay what they are.

    Parameters
    ----------
    updates : float32 tensor ``[k, P]``
    clip : bool
        Only shorten those that are longer.

    Returns
    -------
    float32 tensor ``[k, P]``

    Raises
    ------
    ValueError
        If updates are no matrix.
    """
    if updates.dim() != 2:
        raise ValueError(f"updates have shape {tuple(updates.shape)}; expected [k, P]")
    lengths = updates.double().norm(dim=1)  # in float32 the square of a long update overflows
    usable = torch.isfinite(lengths) & (lengths > 0)
    if not bool(usable.any()):
        return updates
    factor = torch.ones_like(lengths)
    factor[usable] = lengths[usable].median() / lengths[usable]
    if clip:
        factor.clamp_(max=1.0)
    return (updates * factor[:, None]).to(updates.dtype)


@dataclass(frozen=True)
class LeaveOneOut:
    """``v(N) - v(N without i)`` on the round's reconstructed models (Wang et al. 2019)."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Return one valuation per round, over its participants."""
        return [leave_one_out(r.game()) for r in rounds]


@dataclass(frozen=True, eq=False)
class CosineGame:
    """CGSV's game: cosine between a coalition's summed update and everybody's (Xu et al. 2021).

    Parameters
    ----------
    gram : float64[k, k]
        Inner products of the updates, after normalisation if there is any.

    Raises
    ------
    ValueError
        If the matrix is none of inner products.

    Notes
    -----
    The cosine with a sum of length zero is 0; so is the value of the empty coalition.
    """

    gram: FloatArray

    def __post_init__(self) -> None:
        gram = np.asarray(self.gram, dtype=np.float64)
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not len(gram):
            raise ValueError(f"gram has shape {gram.shape}; expected (k, k) with k >= 1")
        check_inner_products(gram)
        object.__setattr__(self, "gram", gram)

    @property
    def n_players(self) -> int:
        """Number of updates."""
        return len(self.gram)

    def value(self, coalitions: npt.ArrayLike) -> FloatArray:
        """Cosine per coalition, float64[B], in [-1, 1]."""
        members = check_coalitions(coalitions, self.n_players).astype(np.float64)
        inner = members @ self.gram
        length = np.sqrt(np.maximum((inner * members).sum(axis=1), 0) * max(self.gram.sum(), 0))
        along = inner.sum(axis=1)
        return np.divide(along, length, out=np.zeros_like(along), where=length > 0)


@dataclass(frozen=True)
class CosineValues:
    """Cosine-gradient Shapley values of a round's participants, or their approximation.

    Parameters
    ----------
    exact : bool
        True: the Shapley value of :class:`CosineGame`.  False: ``cos(u_i, u_N)``, which Xu et al.
        use in their experiments.
    normalised : bool
        True: updates are brought to equal length before they are averaged, as CGSV does.  False:
        they are averaged as they are, which is what FedTSV's explanation of CGSV's weakness
        presumes (section IV-B).

    Notes
    -----
    The reference is the plain mean of the round's updates, as FedTSV describes it; Xu et al. weigh
    it with the importances of the rounds before.
    """

    exact: bool = False
    normalised: bool = True

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        """Return one valuation per round, over its participants."""
        return [self._one(gram_matrix(r.updates)) for r in rounds]

    def _one(self, gram: FloatArray) -> Valuation:
        if self.normalised:
            length = np.sqrt(np.diag(gram))
            inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
            gram = gram * np.outer(inverse, inverse)
        game = CosineGame(gram)
        if self.exact:
            return shapley(game)
        alone = game.value(np.eye(len(gram), dtype=bool))
        return Valuation(alone, np.full_like(alone, np.nan), 0, 0, "cosine to the mean")


@dataclass(frozen=True)
class RunningCosine:
    """CGSV's importances: ``r <- alpha r + (1 - alpha) psi``, at least `floor`, then normalised.

    Parameters
    ----------
    alpha, floor : float
        0.95 and 1e-3 in the authors' code.

    Notes
    -----
    Xu et al. have all clients take part in all rounds.  Where some do, the rule runs among them
    as if they were all, and the sum of their importances stays what it was; with everybody present
    this is their rule.  Importances start as the shares of the data.
    """

    alpha: float = 0.95
    floor: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1 or not self.floor > 0:
            raise ValueError(
                f"alpha is {self.alpha} and floor {self.floor}; expected a share and a number > 0"
            )

    def __call__(self, clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
        """Write a round into the table."""
        if "importances" not in clients.memory:
            clients.values[:] = clients.sizes / clients.sizes.sum()
            clients.memory["importances"] = np.ones(1)
        total = clients.values[ids].sum()
        mixed = self.alpha * clients.values[ids] / total + (1 - self.alpha) * valuation.values
        mixed = np.maximum(mixed, self.floor)
        clients.values[ids] = total * mixed / mixed.sum()
