"""CGSV (Xu et al. 2021) and the other methods and controls that FedTSV is compared with.

Beside it stand leave-one-out and a server that is told who misbehaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedkit.checks import flag, real
from fedkit.federated.selection import ClientTable
from fedkit.federated.valuers import Round
from fedkit.games.coalitions import Coalitions
from fedkit.games.exact import leave_one_out, shapley
from fedkit.games.game import Game
from fedkit.games.valuation import Valuation
from fedkit.methods.fedtsv import check_inner_products, gram_matrix
from fedkit.methods.selection_baselines import clients_of

__all__ = ["CosineValues", "LeaveOneOut", "OracleWeights", "RunningCosine", "cosine_game"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def cosine_game(gram: npt.ArrayLike) -> Game:
    """Return CGSV's game: cosine between a coalition's summed update and everybody's.

    Xu et al. (2021).  The cosine with a sum of length zero is 0; so is that of the empty coalition.

    Parameters
    ----------
    gram : float64[k, k]
        Inner products of the updates, after normalisation if there is any.

    Returns
    -------
    Game

    Raises
    ------
    ValueError
        If the matrix is none of inner products.
    """
    products = check_inner_products(gram, 1)

    def cosines(coalitions: Coalitions) -> FloatArray:
        members = coalitions.astype(np.float64)
        inner = members @ products
        length = np.sqrt(np.maximum((inner * members).sum(axis=1), 0) * max(products.sum(), 0))
        along = inner.sum(axis=1)
        return np.divide(along, length, out=np.zeros_like(along), where=length > 0)

    return Game(len(products), cosines)


@dataclass(frozen=True)
class CosineValues:
    """Cosine-gradient Shapley values of a round's participants, or their approximation.

    Parameters
    ----------
    exact : bool
        True: the Shapley value of :func:`cosine_game`.  False: ``cos(u_i, u_N)``, which Xu et al.
        use in their experiments.
    normalised : bool
        True: updates are brought to equal length before they are averaged, as CGSV does.  False:
        they are averaged as they are, as FedTSV presumes (section IV-B).

    Notes
    -----
    The reference is the plain mean of the round's updates, as FedTSV describes it; Xu et al. weigh
    it with the importances of the rounds before.
    """

    exact: bool = False
    normalised: bool = True

    def __post_init__(self) -> None:
        flag("exact", self.exact)
        flag("normalised", self.normalised)

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [self._one(gram_matrix(r.directions)) for r in rounds]

    def _one(self, gram: FloatArray) -> Valuation:
        if self.normalised:
            length = np.sqrt(np.diag(gram))
            inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
            gram = gram * np.outer(inverse, inverse)
        game = cosine_game(gram)
        if self.exact:
            return shapley(game)
        alone = game(np.eye(len(gram), dtype=bool))
        return Valuation(alone, np.full_like(alone, np.nan), 0, 0, "cosine to the mean")


@dataclass(frozen=True)
class RunningCosine:
    """CGSV's importances: ``r <- alpha r + (1 - alpha) psi``, at least `floor`, then normalised.

    Parameters
    ----------
    alpha, floor : float
        0.95 and 0.001 in the authors' code.

    Notes
    -----
    Xu et al. have all clients take part in all rounds.  Where some do, the rule runs among them,
    and the sum of their importances stays what it was.  They start as the shares of the data.
    Xu et al. also average updates of equal length, and mask what a client gets back; here
    importances weigh the updates as they are sent.
    """

    alpha: float = 0.95
    floor: float = 1e-3

    def __post_init__(self) -> None:
        real("alpha", self.alpha, 0.0, 1.0)
        real("floor", self.floor, 0.0, above=True)

    def __call__(self, clients: ClientTable, ids: IntArray, valuation: Valuation) -> None:
        if "importances" not in clients.memory:
            clients.values[:] = clients.sizes / clients.sizes.sum()
            clients.memory["importances"] = np.ones(1)
        total = clients.values[ids].sum()
        mixed = self.alpha * clients.values[ids] / total + (1 - self.alpha) * valuation.values
        mixed = np.maximum(mixed, self.floor)
        clients.values[ids] = total * mixed / mixed.sum()


@dataclass(frozen=True)
class LeaveOneOut:
    """``v(N) - v(N without i)`` on the round's reconstructed models (Wang et al. 2019)."""

    def value(self, rounds: Sequence[Round]) -> list[Valuation]:
        return [leave_one_out(r.game()) for r in rounds]


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
        clients_of("excluded", self.excluded)

    def __call__(self, r: Round, valuation: Valuation, clients: ClientTable) -> FloatArray:
        good = (~np.isin(r.participants, self.excluded)).astype(np.float64)
        return good / max(good.sum(), 1.0)
