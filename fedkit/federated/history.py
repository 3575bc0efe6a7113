"""What a federated run leaves behind, as plain rows that become tidy data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import torch

from fedkit.atomic import named_as, write_arrays
from fedkit.checks import choice, one_line
from fedkit.extras import need
from fedkit.games.ledger import total
from fedkit.games.valuation import Valuation

if TYPE_CHECKING:
    import pandas as pd

    from fedkit.federated.rounds import Round


@one_line
@dataclass(eq=False)
class History:
    """What happened: one dictionary per (seed, round) and per (seed, round, participant).

    Attributes
    ----------
    rounds : list of dict
        seed, round (from 1), accuracy (test, fraction, NaN where not measured), evaluations, calls,
        scale (turns values into the utility's units), left_out, last, and what the probe gave.
    clients : list of dict
        seed, round, client, value, standard_error, degrees_of_freedom, weight (or NaN).
    seconds : dict of str to float
        Wall time by phase, over all rounds; not part of the result.
    models : float32[R, P]
        Final global models.
    """

    rounds: list[dict[str, Any]] = field(default_factory=list)
    clients: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    models: torch.Tensor | None = None

    def add(
        self, r: Round, v: Valuation, number: int, accuracy: float, more: Mapping[str, Any]
    ) -> None:
        """Add a round of this number, from 1; `more` are the rest of its numbers."""
        key = {"seed": r.streams.seed, "round": number}
        spent = {"evaluations": v.evaluations, "calls": v.calls}
        scale = np.asarray(v.scale).tolist()
        row = {**key, "accuracy": accuracy, **spent, "scale": scale, "left_out": [*r.left_out]}
        self.rounds.append({**row, **more})
        weights = r.noted[-1] if r.noted else np.full(len(r.participants), np.nan)
        arrays = (r.participants, v.values, v.standard_errors, v.freedom, weights)
        columns = zip(*(array.tolist() for array in arrays), strict=True)
        names = ("client", "value", "standard_error", "degrees_of_freedom", "weight")
        self.clients += [key | dict(zip(names, column, strict=True)) for column in columns]

    def rounds_frame(self) -> pd.DataFrame:
        """One row per seed and round."""
        return need("pandas", "run").DataFrame(self.rounds)

    def clients_frame(self) -> pd.DataFrame:
        """One row per seed, round and participant; `contribution` is the value times `scale`."""
        scales = {(row["seed"], row["round"]): row["scale"] for row in self.rounds}
        frame: pd.DataFrame = need("pandas", "run").DataFrame(self.clients)
        if len(frame):
            found = [np.multiply(c["value"], scales[c["seed"], c["round"]]) for c in self.clients]
            at = list(frame.columns).index("value") + 1
            frame.insert(at, "contribution", [each.tolist() for each in found])
        return frame

    def final_accuracy(self) -> dict[int, float]:
        """Test accuracy after the last round, per seed."""
        return {row["seed"]: row["accuracy"] for row in self.rounds if row["last"]}

    def contributions(self, seed: int | None = None) -> Valuation:
        """Add the values of all rounds up, in the units of the utility, per client that took part.

        Parameters
        ----------
        seed : int, optional
            The replicate; the only one by default.

        Returns
        -------
        Valuation
            float64[clients] or [clients, m] with the clients' numbers as names.
        """
        seeds = sorted({row["seed"] for row in self.rounds})
        if not seeds:
            raise ValueError("the history holds no round yet: there is nothing to add up")
        if seed is None and len(seeds) != 1:
            raise ValueError(f"the run has the seeds {seeds}; name one")
        chosen = choice("seed", seeds[0] if seed is None else seed, seeds)
        rounds = {row["round"]: row for row in self.rounds if row["seed"] == chosen}
        clients: dict[int, list[dict[str, Any]]] = {t: [] for t in rounds}
        for row in self.clients:
            if row["seed"] == chosen:
                clients[row["round"]].append(row)
        names = ("value", "standard_error", "degrees_of_freedom")
        valuations = []
        for t, row in rounds.items():
            found, errors, freedom = (
                np.array([each[name] for each in clients[t]], dtype=np.float64) for name in names
            )
            spent = row["evaluations"], row["calls"]
            info = {"scale": row.get("scale", 1.0)}
            valuations.append(
                Valuation(found, errors, *spent, "", info=info, degrees_of_freedom=freedom)
            )
        made = total(valuations, [[each["client"] for each in clients[t]] for t in rounds])
        return replace(made, seed=chosen)

    def save(self, path: str | Path) -> None:
        """Write rows, seconds and models to one ``.npz`` file, which :meth:`load` reads."""
        text = json.dumps({"rounds": self.rounds, "clients": self.clients, "seconds": self.seconds})
        models = np.zeros(0) if self.models is None else self.models.numpy()
        write_arrays(named_as(path, ".npz"), rows=np.array(text), models=models)

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read what :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                rows, models = json.loads(str(file["rows"])), file["models"]
            return cls(**rows, models=torch.from_numpy(models) if models.ndim == 2 else None)
        except (EOFError, KeyError, TypeError, ValueError, BadZipFile) as error:
            raise ValueError(f"{path} is no saved history: {error}") from error
