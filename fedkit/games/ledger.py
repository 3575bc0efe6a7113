"""Values of many rounds, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import brief, whole
from fedkit.games.game import real_numbers
from fedkit.games.valuation import Valuation, satterthwaite

__all__ = ["total"]


def total(
    valuations: Sequence[Valuation],
    participants: Sequence[Sequence[int | str] | NDArray[Any]] | None = None,
    *,
    gains: ArrayLike | None = None,
) -> Valuation:
    """Add the valuations of rounds up, one total per client.

    Parameters
    ----------
    valuations : sequence of Valuation
        One per round, each sampled with a seed of its own.
    participants : sequence of int arrays, or of lists of names, optional
        The clients' numbers or names in each round, in the order of its values; by default the
        names of the valuations, or where they have none the same clients in every round.
    gains : sequence of float, optional
        What the values of each round are multiplied by: by default the `scale` of the valuation,
        for values of a normalised game are shares of the round's own gain.

    Returns
    -------
    Valuation
        float64[clients] or [clients, m], with the clients' numbers or names where there are any;
        numbers in their order, names as they first appear.  Standard errors are those of
        independent rounds, with Satterthwaite's degrees of freedom: the error of sampling
        coalitions, and not what another run would give.

    Raises
    ------
    ValueError
        If rounds do not match, a client has two names, or two rounds were sampled with the same
        seed: their errors would be alike, and not cancel as those of independent rounds do.

    Examples
    --------
    >>> import fedkit as fk
    >>> rounds = [fk.shapley(fk.airport([1, 2])), fk.shapley(fk.airport([4, 2, 2]))]
    >>> print(fk.total(rounds, [[0, 1], [2, 0, 1]]))
    sum of 2 rounds: 12 evaluations
    2  2.667
    1  2.167
    0  1.167
    """
    rounds = _checked(valuations)
    who = _clients(rounds, participants)
    ids = list(dict.fromkeys(i for each in who for i in each))
    if not any(isinstance(i, str) for i in ids):
        ids.sort()
    told = [v.scale for v in rounds] if gains is None else gains
    units = real_numbers("gains are", told)
    shapes = {(len(rounds),), (len(rounds), *rounds[0].values.shape[1:])}
    if units.shape not in shapes or not np.isfinite(units).all():
        raise ValueError(f"gains are {brief(told)}; expected {len(rounds)} finite numbers")

    values, variances, freedom = [], [], []
    for client in ids:
        mine = [
            (v, each.index(client), unit)
            for v, each, unit in zip(rounds, who, units, strict=True)
            if client in each
        ]
        own = np.array([np.square(v.standard_errors[j] * unit) for v, j, unit in mine])
        known = np.array([v.freedom[j] for v, j, _ in mine])
        nothing = np.array([np.broadcast_to(unit == 0, v.values[j].shape) for v, j, unit in mine])
        own[nothing], known[nothing] = 0.0, np.inf  # adds nothing, and no error, known or not
        values.append(sum(v.values[j] * unit for v, j, unit in mine))
        variances.append(sum(own))
        sure = ~np.isnan(known).any(axis=0)  # else some round has too few units
        freedom.append(np.where(sure, satterthwaite(own, known + 1), np.nan))
    variance, degrees = np.array(variances), np.array(freedom)
    sampled = not np.isinf(degrees).all()
    return Valuation(
        np.array(values),
        np.sqrt(variance),
        sum(v.evaluations for v in rounds),
        sum(v.calls for v in rounds),
        f"sum of {len(rounds)} rounds",
        exact=not sampled and not variance.any(),
        degrees_of_freedom=degrees if sampled else None,
        names=_names(rounds, participants, who, ids),
    )


def _names(
    rounds: list[Valuation], participants: Any, who: list[list[Any]], ids: list[Any]
) -> tuple[str, ...] | None:
    """Return what the clients are called: as `participants` says, of numbers by the valuations."""
    if participants is None:
        return None if rounds[0].names is None else tuple(ids)
    called: dict[Any, set[str]] = {i: set() for i in ids}
    for v, each in zip(rounds, who, strict=True):
        for client, name in zip(each, v.names or each, strict=True):
            called[client].add(client if isinstance(client, str) else str(name))
    for client, names in called.items():
        if len(names) > 1:
            raise ValueError(
                f"client {client!r} of participants is called {' and '.join(sorted(names))} by the "
                "valuations; give each its place, or leave participants out: names are enough"
            )
    return tuple(called[client].pop() for client in ids)


def _checked(valuations: Any) -> list[Valuation]:
    several = isinstance(valuations, Sequence) and not isinstance(valuations, str) and valuations
    if not several or not all(isinstance(v, Valuation) for v in valuations):
        raise ValueError(f"valuations is {brief(valuations)}; expected a list of fk.Valuation")
    if len({v.values.shape[1:] for v in valuations}) > 1:
        shapes = [v.values.shape for v in valuations]
        raise ValueError(f"valuations have values of shape {shapes}; expected as many outputs")
    sampled = [v for v in valuations if v.seed is not None and not v.exact]
    if len({(v.seed, str(v.info.get("stream"))) for v in sampled}) < len(sampled):
        raise ValueError(
            f"valuations were sampled with the seeds {[v.seed for v in sampled]}; one that serves "
            "two rounds makes their errors alike: give each round a seed of its own"
        )
    return list(valuations)


def _clients(rounds: list[Valuation], participants: Any) -> list[list[Any]]:
    """Return the clients' numbers or names in each round."""
    if participants is None:
        participants = [v.names or range(rounds[0].n_players) for v in rounds]
        if len({v.names is None for v in rounds}) > 1:
            raise ValueError("some valuations have names and some none; pass participants")
    try:
        who = [
            [i if isinstance(i, str) else whole("a client of participants", i, 0) for i in each]
            for each in participants
        ]
        if any(isinstance(each, str) for each in [participants, *participants]):
            raise TypeError("a name is no list of names")
    except TypeError as error:
        raise ValueError(
            f"participants is {brief(participants)}; expected a list of clients for each round"
        ) from error
    told = [len(set(each)) for each in who]
    if told != [v.n_players for v in rounds] or told != [len(each) for each in who]:
        raise ValueError(
            f"participants are {told} different clients and the valuations have "
            f"{[v.n_players for v in rounds]} values; pass the clients of each round, each once"
        )
    return who
