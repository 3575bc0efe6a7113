"""Values of many rounds: added up, and kept in a file as a server goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkit.atomic import file_at, open_table
from fedkit.checks import brief, whole
from fedkit.extras import need
from fedkit.games.valuation import Valuation, satterthwaite

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Ledger", "total"]

NAMED = 10  # clients whose lines a plot tells apart


class Ledger:
    """The book of a federation: the values of each round, by client, in the utility's units.

    Parameters
    ----------
    path : str or Path
        A file, new or of an earlier ledger.  A round is in it, whole, once ``add`` returns: also
        after a kill, and for other processes.

    Examples
    --------
    >>> import tempfile, fedkit as fk
    >>> ledger = fk.Ledger(tempfile.mkdtemp() + "/values.db")
    >>> ledger.add(1, fk.shapley(fk.airport([1, 2])), ["Ada", "Bo"])
    >>> ledger.add(2, fk.shapley(fk.airport([3, 1])), ["Cy", "Ada"])
    >>> print(ledger.total())
    sum of 2 rounds: 8 evaluations
    Cy   2.5
    Bo   1.5
    Ada  1
    """

    def __init__(self, path: str | Path) -> None:
        self.path = file_at(path)
        columns = "round TEXT UNIQUE, clients TEXT, valuation TEXT, seed TEXT UNIQUE"
        self._file = open_table(self.path, "rounds", columns, "a ledger")

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {len(self)} rounds)"

    def __len__(self) -> int:
        return len(self.rounds)

    def __contains__(self, number: object) -> bool:
        return number in self.rounds

    @property
    def rounds(self) -> list[int | str]:
        """The rounds that are in, in the order in which they were added."""
        told = self._file.execute("SELECT round FROM rounds ORDER BY number")
        return [json.loads(text) for (text,) in told]

    def add(
        self,
        number: int | str,
        valuation: Valuation,
        clients: Sequence[int | str] | NDArray[Any] | None = None,
    ) -> None:
        """Write the values of a round down.

        Parameters
        ----------
        number : int or str
            The round, which must not be in the ledger yet.
        valuation : Valuation
            Where it is sampled, with a seed of its own.
        clients : sequence of int or str, optional
            Who took part, in the order of the values; by default the valuation's names, or else
            0, 1, ...

        Raises
        ------
        ValueError
            If the round is in the ledger, another one was sampled with the same seed, a value is
            not finite, or clients go by numbers in one round and by text in another.
        """
        if not isinstance(number, str):
            number = whole("number", number, 0)
        if not isinstance(valuation, Valuation):
            raise ValueError(f"valuation is {brief(valuation)}; expected an fk.Valuation")
        (who,) = _clients([valuation], None if clients is None else [clients])
        self._check(number, valuation, who)
        stream = _stream_of(valuation)
        seed = None if stream is None else json.dumps(stream)
        entry = json.dumps(number), json.dumps(who), json.dumps(valuation.to_dict()), seed
        try:
            with self._file:
                self._file.execute(
                    "INSERT INTO rounds (round, clients, valuation, seed) VALUES (?, ?, ?, ?)",
                    entry,
                )
        except sqlite3.IntegrityError as error:
            if number in self:
                told = f"round {number!r} is in {self.path} already, and a round counts once"
            else:
                told = (
                    f"round {number!r} was sampled with the seed {valuation.seed}, as another one "
                    "was, which makes their errors alike: give each round a seed of its own"
                )
            raise ValueError(told) from error

    def _check(self, number: int | str, valuation: Valuation, who: Sequence[int | str]) -> None:
        """Refuse what would spoil the totals: a ledger cannot be mended by hand."""
        if not np.isfinite(valuation.values).all():
            raise ValueError(
                f"the values of round {number!r} hold a NaN or an infinity; leave out the clients "
                "who have no value"
            )
        for there in self.rounds:
            if str(there) == str(number) and there != number:
                raise ValueError(f"round {there!r} is in {self.path}, as a {type(there).__name__}")
        entries = self._entries()
        kinds = {type(client).__name__ for client in (*who, *(entries[0][1] if entries else ()))}
        if len(kinds) > 1:
            raise ValueError(
                f"clients are {brief(list(who))}, and in this ledger some go by number and some by "
                "text; name them all by numbers, or all by text"
            )
        if number not in self:  # what cannot be added up is not written down; seeds are seen later
            found = [replace(one, seed=None) for one in (*(v for _, _, v in entries), valuation)]
            total(found, [*(clients for _, clients, _ in entries), who])

    def total(self) -> Valuation:
        """Return the sum over the rounds, one per client, with intervals, as ``fk.total`` does."""
        entries = self._entries()
        if not entries:
            raise ValueError(f"{self.path} holds no round yet; add one first")
        return total([found for _, _, found in entries], [who for _, who, _ in entries])

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy table: round, then per client value, standard_error, low and high.

        All in the utility's units, with intervals of 95%.
        """
        pandas = need("pandas", "run")
        frames = []
        for number, who, found in self._entries():
            frame = found.to_frame([str(client) for client in who])
            scale = np.broadcast_to(found.scale, found.values.shape).ravel()
            columns = ["value", "standard_error", "low", "high"]
            frame[columns] = frame[columns].mul(scale, axis=0)
            frame["standard_error"] = frame["standard_error"].abs()
            frame[["low", "high"]] = np.sort(frame[["low", "high"]].to_numpy(), axis=1)
            frame.insert(0, "round", number)
            frames.append(frame)
        if not frames:
            raise ValueError(f"{self.path} holds no round yet; add one first")
        joined: pd.DataFrame = pandas.concat(frames, ignore_index=True)
        return joined.rename(columns={"player": "client"})

    def plot(self, ax: Any = None) -> Any:
        """Draw what each client has brought, summed up to each round; return matplotlib's axes.

        The ten clients with the most and the least are told apart; the others are grey.  Of
        several outputs the mean is drawn.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.
        """
        if ax is None:
            _, ax = need("matplotlib.pyplot", "run").subplots(layout="constrained")
        frame = self.to_frame()
        sums = (
            frame.pivot_table("value", "round", "client", "mean", sort=False).fillna(0.0).cumsum()
        )
        order = sums.iloc[-1].sort_values(ascending=False, kind="stable").index
        told = {*order[: NAMED // 2], *order[-(NAMED // 2) :]}
        for client in order:
            look = {"label": client, "zorder": 2} if client in told else {"color": "0.85"}
            ax.plot([str(number) for number in sums.index], sums[client], marker=".", **look)
        ax.axhline(0.0, color="0.6", linewidth=0.8)
        ax.set(xlabel="round", ylabel="contribution so far")
        ax.legend(title="client")
        return ax

    def _entries(self) -> list[tuple[int | str, list[int | str], Valuation]]:
        told = self._file.execute("SELECT round, clients, valuation FROM rounds ORDER BY number")
        return [
            (json.loads(number), json.loads(who), Valuation.from_dict(json.loads(valuation)))
            for number, who, valuation in told
        ]


def total(
    valuations: Sequence[Valuation],
    participants: Sequence[Sequence[int | str] | NDArray[Any]] | None = None,
) -> Valuation:
    """Add the valuations of rounds up, one total per client.

    Values of a normalised game are shares of the round's own gain: the valuation knows it as its
    `scale`, and it is added up in the utility's units.

    Parameters
    ----------
    valuations : sequence of Valuation
        One per round, each sampled with a seed of its own.
    participants : sequence of int arrays, or of lists of names, optional
        The clients' numbers or names in each round, in the order of its values; by default the
        names of the valuations, or where they have none the same clients in every round.

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
    outputs = rounds[0].values.shape[1:]
    units = [np.broadcast_to(np.asarray(v.scale, dtype=np.float64), outputs) for v in rounds]

    values, variances, freedom = [], [], []
    for client in ids:
        mine = [
            (v, each.index(client), unit)
            for v, each, unit in zip(rounds, who, units, strict=True)
            if client in each
        ]
        own = np.array([np.square(v.standard_errors[j] * unit) for v, j, unit in mine])
        known = np.array([v.freedom[j] for v, j, _ in mine])
        nothing = np.array([unit == 0 for _, _, unit in mine])
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
    streams = [stream for v in valuations if (stream := _stream_of(v)) is not None]
    if len(set(streams)) < len(streams):
        seeds = [seed for seed, _ in streams]
        raise ValueError(
            f"valuations were sampled with the seeds {seeds}; one that serves "
            "two rounds makes their errors alike: give each round a seed of its own"
        )
    return list(valuations)


def _stream_of(valuation: Valuation) -> tuple[int, str] | None:
    """Return what tells the random numbers behind sampled values apart from those of others."""
    if valuation.exact or valuation.seed is None:
        return None
    return valuation.seed, str(valuation.info.get("stream"))


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
