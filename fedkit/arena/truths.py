"""What clients are worth: every round exactly, by retraining, and as it was planted.

A :class:`World` has the utilities of all 2^k coalitions of each round, computed once and shared by
all methods; what each of them asks for is counted (:mod:`fedkit.arena.methods`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from fedkit.arena.federations import Planted, Scenario, plant
from fedkit.estimators import ComplementarySampling, estimate
from fedkit.federated.aggregation import SizeWeighted
from fedkit.federated.history import History
from fedkit.federated.retraining import train_with_sizes
from fedkit.federated.rounds import Plan, Strategy, run
from fedkit.federated.valuers import NoValue, Round
from fedkit.games.exact import shapley
from fedkit.games.game import Game, table_game, tabulate
from fedkit.games.valuation import Valuation
from fedkit.learning.evaluation import Evaluator

__all__ = [
    "EXACT_UP_TO", "World", "accuracy_and_loss", "bounded_loss", "retraining_values", "world",
]  # fmt: skip

FloatArray = npt.NDArray[np.float64]

#: clients whose federations are all trained; beyond, coalitions are sampled
EXACT_UP_TO = 11
#: coalitions that are trained beyond
SAMPLED = 600
#: mean cross-entropy of a model that has diverged, and the worst there is
WORST = 10.0


def accuracy_and_loss(outputs: torch.Tensor, y: torch.Tensor) -> FloatArray:
    """Accuracy, and minus the mean cross-entropy, no worse than minus :data:`WORST`."""
    loss = F.cross_entropy(outputs.double(), y).nan_to_num(nan=WORST)
    accuracy = (outputs.argmax(dim=1) == y).double().mean()
    return np.array([float(accuracy), -min(float(loss), WORST)])


def bounded_loss(r: Round, judge: Evaluator) -> Callable[[npt.NDArray[np.bool_]], FloatArray]:
    """Minus the loss of coalitions, no worse than minus :data:`WORST`."""
    game = replace(r, evaluator=judge).game()

    def value(rows: npt.NDArray[np.bool_]) -> FloatArray:
        return np.maximum(np.nan_to_num(game.function(rows), nan=-WORST, neginf=-WORST), -WORST)

    return value


@dataclass(frozen=True, eq=False)
class World:
    """One scenario with one seed, planted or brought along."""

    scenario: Scenario
    seed: int
    brought: Planted | None = None

    @cached_property
    def planted(self) -> Planted:
        """The federation and what is known of it."""
        return self.brought or plant(self.scenario, self.seed)

    @property
    def rounds(self) -> list[Round]:
        """The rounds of federated averaging, as the server saw them."""
        return self._played[0]

    @property
    def accuracy(self) -> float:
        """Test accuracy of the model after the last round, a fraction."""
        return self._played[1].final_accuracy()[self.seed]

    @cached_property
    def _played(self) -> tuple[list[Round], History]:
        s, p = self.scenario, self.planted
        k = self.n if s.participants >= s.clients else s.participants
        seen: list[Round] = []

        def keep(r: Round, v: Valuation) -> dict[str, float]:
            seen.append(r)
            return {}

        history = run(
            [p.federation], p.architecture, Strategy(p.select, NoValue(), SizeWeighted()),
            Plan(s.rounds, k, s.local, evaluate_every=s.rounds), [self.seed], device="cpu",
            probe=keep, attack=p.adversaries.attack if p.adversaries.tampering else None,
        )  # fmt: skip
        return seen, history

    @property
    def n(self) -> int:
        """Number of clients."""
        return self.planted.federation.n_clients

    def judge(self, utility: Literal["accuracy", "negative_loss", "class_accuracy"]) -> Evaluator:
        """A utility on the server's validation images."""
        f = self.planted.federation
        return Evaluator(self.planted.architecture, f.x_val, f.y_val, utility, device="cpu")

    @cached_property
    def _counts(self) -> npt.NDArray[np.int64]:
        """Validation images of each class."""
        f = self.planted.federation
        return np.bincount(f.y_val.numpy(), minlength=self.planted.architecture.n_classes)

    @cached_property
    def _tables(self) -> tuple[list[Game], list[Game], float]:
        # the accuracies of all classes tell that of all images; a class without images has none
        judges = [self.judge("class_accuracy" if self._counts.all() else "accuracy")]
        judges.append(self.judge("negative_loss"))
        start = time.process_time()
        right = [tabulate(replace(r, evaluator=judges[0]).game()) for r in self.rounds]
        seconds = (time.process_time() - start) / sum(2**t.n_players for t in right)
        losses = [
            tabulate(Game(len(r.participants), bounded_loss(r, judges[1]))) for r in self.rounds
        ]
        return right, losses, seconds

    def tables(self, utility: str) -> list[Game]:
        """The utilities of all coalitions of every round, for one utility."""
        right, losses, _ = self._tables
        if utility == "negative_loss":
            return losses
        if utility == "class_accuracy":
            self.judge("class_accuracy")  # which refuses a class without an image
            return right
        n = self._counts.sum()
        tables = [t.table for t in right if t.table is not None]
        hits = (v @ self._counts if v.ndim > 1 else n * v for v in tables)
        # whole numbers of right answers, so that equal accuracies are equal numbers
        return [table_game(np.rint(each) / n) for each in hits]

    @property
    def seconds_per_evaluation(self) -> float:
        """Processor time of one utility, where all of a round are evaluated together."""
        return self._tables[2]

    def train(
        self,
        sizes: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        on: str = "test",
        every_round: bool = False,
    ) -> FloatArray:
        """Train federations from scratch: accuracy and minus loss, float64[B, R or 1, 2].

        As :func:`~fedkit.federated.retraining.train_with_sizes`, with `sizes` (B, n) or (B, R, n);
        who is not there yet uses none.  Models are judged `on` "test" or "validation" images.
        """
        p, s, f = self.planted, self.scenario, self.planted.federation
        asked = np.asarray(sizes)
        if asked.ndim == 2:
            asked = np.broadcast_to(asked[:, None], (len(asked), s.rounds, asked.shape[1]))
        if on == "validation":
            f = replace(f, x_test=f.x_val, y_test=f.y_val)
        return train_with_sizes(
            f, p.architecture, s.local, asked * p.present, seed=self.seed, every_round=every_round,
            device="cpu", weights=weights, adversaries=p.adversaries, utility=accuracy_and_loss,
        )  # fmt: skip

    def value(self, coalitions: npt.NDArray[np.bool_]) -> FloatArray:
        """Accuracy and minus loss of the federations of some coalitions, float64[B, 2]."""
        return self.train(coalitions * self.planted.federation.sizes)[:, 0]


@lru_cache(maxsize=64)
def world(s: Scenario, seed: int) -> World:
    """One scenario with one seed, made once: neighbouring cells share it."""
    return World(s, seed)


def retraining_values(w: World) -> Valuation:
    """Shapley values of training from scratch, by test accuracy and minus test loss, float64[n, 2].

    Exact for up to :data:`EXACT_UP_TO` clients, otherwise sampled.
    """
    game = Game(w.n, w.value)
    if w.n <= EXACT_UP_TO:
        return shapley(game)
    return estimate(game, ComplementarySampling(), SAMPLED, seed=w.seed)
