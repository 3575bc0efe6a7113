"""The arena's methods on a federation of one's own, of which nobody knows the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedkit.arena.federations import OWN, Planted, Scenario
from fedkit.arena.methods import METHODS, Entry, MethodError, find_methods, play
from fedkit.arena.truths import World, retraining_values
from fedkit.checks import flag, having, one_line, real, warn, whole
from fedkit.extras import need
from fedkit.federated.adversaries import Adversaries, check_cast
from fedkit.federated.clients import Federation
from fedkit.federated.selection import UniformSelection
from fedkit.intervals import kendalls_tau
from fedkit.learning.models import Model, build, classifier

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Compared", "agreement", "compare"]

#: participants of a round whose 2^k coalitions are all evaluated
MOST = 14


def agreement(a: npt.ArrayLike, b: npt.ArrayLike, silent: float = 0.0) -> float:
    """Kendall's tau-b of two valuations of the same clients; `silent` where one says nothing.

    Clients whom one side leaves out (NaN) do not count; NaN where fewer than two are left.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"valuations have shapes {x.shape} and {y.shape}; expected one number per client"
        )
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 2:
        return float("nan")
    return float(np.nan_to_num(kendalls_tau(x[both], y[both]), nan=silent))


@one_line
@dataclass(frozen=True, eq=False)
class Compared:
    """What methods say of the clients of one federation.

    Attributes
    ----------
    values : DataFrame
        One row per method, one column per client, in units of the method.
    measures : DataFrame
        One row per method: ``rounds`` and ``retraining``, its agreement (Kendall's tau-b) with the
        exact values of the rounds by the same utility and with those of retraining by test
        accuracy, 0 where it says the same of everybody; ``rounds`` is NaN of a method whose values
        are not the means of what it says of the rounds; ``evaluations``, ``trainings``,
        ``seconds`` and ``held`` (MiB), its costs.
    agreement : DataFrame
        Agreement of every method with every other, tau-b; NaN where one says the same of everybody.
    failures : dict of str to str
        One sentence for each method that is out, which is warned of, too.
    accuracy : float
        Test accuracy of the model after the last round, a fraction.  One that does no better than
        a constant answer is warned of.
    """

    values: pd.DataFrame
    measures: pd.DataFrame
    agreement: pd.DataFrame
    failures: dict[str, str]
    accuracy: float


def compare(
    federation: Federation,
    model: str | Model | nn.Module = "mlp-32",
    methods: Sequence[Entry] | Mapping[str, Entry] | None = None,
    *,
    rounds: int = 8,
    participants: int | None = None,
    epochs: int = 2,
    batch_size: int = 20,
    lr: float = 0.1,
    seed: int = 0,
    adversaries: Adversaries | None = None,
    retraining: bool = False,
    limit: float = 600.0,
) -> Compared:
    """Value the clients of one's own federation by many methods, on the same rounds.

    Parameters
    ----------
    federation : Federation
        Such as from :func:`~fedkit.federated.clients.federation_from_arrays`.
    model : str, Model or torch module
        As for ``fk.build``, or what it returns; a module as ``fk.run`` takes it, from its
        parameters on.
    methods : sequence or dict, optional
        Names of ``fk.arena.METHODS``, or methods as for ``reproduction.arena.run``; all of the
        arena's that train nothing anew by default.  A dict gives them names of your own.
    rounds, participants : int
        Rounds of federated averaging and clients asked in each (by default everybody, or 14 of
        them if there are more, since all coalitions of a round are evaluated).
    epochs, batch_size, lr : int, int, float
        Local training, plain SGD.
    adversaries : Adversaries, optional
        Clients who misbehave, to try methods on; `federation` is then
        ``adversaries.data(federation)``.
    retraining : bool
        Also train the federations of all coalitions (of 600 that are drawn, beyond 11 clients)
        from scratch, by the one training `seed` that methods which train again see as well.
    limit : float
        Seconds that a method may take.
    """
    pd = need("pandas", "run")
    having("federation", federation, "n_clients", "client_data")
    n = federation.n_clients
    k = min(n, MOST) if participants is None else whole("participants", participants, 2, n)
    if k > MOST:
        raise ValueError(
            f"{k} clients a round; participants must be at most {MOST} here, where all coalitions "
            "of a round are evaluated to judge the methods by; fk.run values more of them by one"
        )
    real("limit", limit, 0.0, above=True)
    if isinstance(model, str):
        model = build(model, federation.input_shape, federation.n_classes)
    elif isinstance(model, nn.Module):
        model = classifier("model", model, federation.x)
    having("model", model, "init", "name")
    check_cast(federation, adversaries)
    s = Scenario(
        federation.name, OWN, model=model.name, clients=n, participants=k, rounds=rounds,
        epochs=epochs, batch_size=batch_size, lr=lr,
    )  # fmt: skip
    everybody = np.arange(n)
    w = World(s, whole("seed", seed, 0), Planted(
        federation, model, adversaries or Adversaries({}), UniformSelection(), everybody,
        np.ones(n), np.zeros(n, dtype=bool), (), (), np.ones((s.rounds, n), dtype=bool),
    ))  # fmt: skip
    if methods is None:
        methods = [m for m, method in METHODS.items() if "training" not in method.sees]
    elif not methods and isinstance(methods, Sequence | Mapping):
        raise ValueError(f"methods is {methods!r}; expected at least one")
    entered, failures = find_methods(methods)
    truth = retraining_values(w).values[:, 0] if flag("retraining", retraining) else None
    values, measures = {}, {}
    for name, method in entered:
        try:
            played = play(name, method, w, limit)
        except MethodError as error:
            failures[name] = " ".join(str(error).split())
            continue
        values[name] = played.values
        measures[name] = {
            "rounds": played.fidelity,
            "retraining": np.nan if truth is None else agreement(played.values, truth),
            **{c: getattr(played, c) for c in ("evaluations", "trainings", "seconds", "held")},
        }
    for sentence in failures.values():
        warn(sentence)
    lacking = np.isnan(list(values.values())).all(axis=0) if values else np.zeros(n, dtype=bool)
    owns = federation.sizes > 0
    if missing := int((lacking & owns).sum()):
        warn(f"{missing} of {n} clients have no value, as they took part in no round: run more")
    if without := np.flatnonzero(lacking & ~owns).tolist():
        warn(f"clients {without} have no value, as they own no data")
    constant = float(torch.bincount(federation.y_test).max()) / len(federation.y_test)
    if not w.accuracy > constant:
        warn(
            f"after {s.rounds} rounds the model answers {w.accuracy:.0%} of the test data rightly, "
            f"and always the most frequent class {constant:.0%}: try more rounds or another lr, "
            "unless a client spoils it"
        )
    pairs = {a: {b: agreement(x, y, np.nan) for b, y in values.items()} for a, x in values.items()}
    named = [f"client {i}" for i in everybody]
    return Compared(
        pd.DataFrame.from_dict(values, orient="index", columns=named),
        pd.DataFrame.from_dict(measures, orient="index"),
        pd.DataFrame(pairs), failures, w.accuracy,
    )  # fmt: skip
