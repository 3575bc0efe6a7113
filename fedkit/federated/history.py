"""What a federated run leaves behind, as plain rows that become tidy data frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History"]


@dataclass
class History:
    """What happened: one dictionary per (seed, round) and per (seed, round, participant).

    Attributes
    ----------
    rounds : list of dict
        seed, round (from 1), accuracy (test, fraction, nan where not measured), evaluations,
        calls, left_out (participants dropped for a non-finite update), and what the probe gave.
    clients : list of dict
        seed, round, client, value, standard_error, weight (nan where the aggregation returned the
        next model).
    seconds : dict of str to float
        Wall time by phase, over all rounds; not part of the result.
    models : float32[R, P]
        Final global models.
    """

    rounds: list[dict[str, Any]] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    models: torch.Tensor | None = None

    def rounds_frame(self) -> pd.DataFrame:
        """One row per seed and round."""
        return need("pandas", "run").DataFrame(self.rounds)

    def clients_frame(self) -> pd.DataFrame:
        """One row per seed, round and participant."""
        return need("pandas", "run").DataFrame(self.clients)

    def final_accuracy(self) -> dict[int, float]:
        """Test accuracy after the last round, per seed."""
        return {row["seed"]: row["accuracy"] for row in self.rounds if row["last"]}
