"""Values of many rounds: added up, and kept in a file as a server goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
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

Client = int | str
NAMED = 10  # clients whose lines a plot tells apart


class Ledger:
    """The book of a federation: the values of each round, by client, in the utility's units.

    Parameters
    ----------
    path : str or Path
        A file, new or of an earlier ledger.  A round is in it once ``add`` returns.

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
        columns = "round TEXT UNIQUE, clients TEXT, valuation TEXT"
        self._file = open_table(self.path, "rounds", columns, "a ledger")
        self._lock = threading.RLock()  # threads that share a ledger share one connection
        self._last = 0
        self._read: dict[int | str, tuple[list[Client], Valuation]] = {}

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {len(self)} rounds)"

    def __len__(self) -> int:
        return len(self._entries())

    @property
    def rounds(self) -> list[int | str]:
        """The rounds that are in, in the order in which they were added."""
        return list(self._entries())

    def add(
        self,
        number: int | str,
        valuation: Valuation,
        clients: Sequence[int | str] | NDArray[Any] | None = None,
    ) -> None:
        """Write the values of a round down, or refuse what :func:`total` would not add up.

        Parameters
        ----------
        number : int or str
            The round, which must not be in the ledger yet.
        valuation : Valuation
            Where it is sampled, with a seed of its own.
        clients : sequence of int or str, optional
            Who took part, in the order of the values; by default its names, or 0, 1, ...
        """
        if not isinstance(number, str):
            number = whole("number", number, 0)
        if not isinstance(valuation, Valuation):
            raise ValueError(f"valuation is {brief(valuation)}; expected an fk.Valuation")
        (who,) = _clients([valuation], None if clients is None else [clients])
        if not np.isfinite(valuation.values).all():
            raise ValueError(
                f"the values of round {number!r} hold a NaN or an infinity; leave such clients out"
            )
        with self._lock, self._file:
            self._file.execute("BEGIN IMMEDIATE")  # nobody else writes after the look
            entries = self._entries()
            if number in entries:
                raise ValueError(f"round {number!r} is in {self.path} already; a round counts once")
            clients, valuations = zip(*entries.values(), (who, valuation), strict=True)
            _check_sum(valuations, clients)
            self._file.execute(
                "INSERT INTO rounds (round, clients, valuation) VALUES (?, ?, ?)",
                (json.dumps(number), json.dumps(who), json.dumps(valuation.to_dict())),
            )

    def total(self) -> Valuation:
        """Return the sum over the rounds, one per client, with intervals, as ``fk.total`` does."""
        entries = self._entries().values()
        return total([found for _, found in entries], [who for who, _ in entries])

    def to_frame(self) -> pd.DataFrame:
        """Return a table: round, then per client value, standard_error, low and high (95%)."""
        frames, entries = [], self._entries()
        if not entries:
            raise ValueError(f"{self.path} holds no round yet; add one first")
        for number, (who, found) in entries.items():
            frame = found.in_units().named([str(client) for client in who]).to_frame()
            frame.insert(0, "round", number)
            frames.append(frame)
        joined = need("pandas", "run").concat(frames, ignore_index=True)
        return joined.rename(columns={"player": "client"})

    def plot(self, ax: Any = None) -> Any:
        """Draw what each client has brought, summed up to each round; return matplotlib's axes."""
        from fedkit.plots import INK

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
        ax.set_xlabel("round", color=INK)
        ax.set_ylabel("contribution so far", color=INK)
        ax.legend(title="client")
        return ax

    def _entries(self) -> dict[int | str, tuple[list[Client], Valuation]]:
        """Return clients and values by round; what was read before is not read again."""
        rows = (
            "SELECT number, round, clients, valuation FROM rounds WHERE number > ? ORDER BY number"
        )
        with self._lock:
            for place, number, who, valuation in self._file.execute(rows, (self._last,)):
                self._last = place
                found = Valuation.from_dict(json.loads(valuation))
                self._read[json.loads(number)] = json.loads(who), found
            return dict(self._read)


def total(
    valuations: Sequence[Valuation],
    participants: Sequence[Sequence[int | str] | NDArray[Any]] | None = None,
) -> Valuation:
    """Add the valuations of rounds up, one total per client, in the utility's units.

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
        float64[clients] or [clients, m], with the clients' numbers or names where there are any.
        Standard errors are those of independent rounds, with Satterthwaite's degrees of freedom.

    Raises
    ------
    ValueError
        If rounds do not match, are of several utilities or semivalues, or two have the same seed.

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
    several = isinstance(valuations, Sequence) and not isinstance(valuations, str) and valuations
    if not several or not all(isinstance(v, Valuation) for v in valuations):
        raise ValueError(f"valuations is {brief(valuations)}; expected a list of fk.Valuation")
    who = _clients(valuations, participants)
    _check_sum(valuations, who)
    rounds = [v.in_units() for v in valuations]
    ids = list(dict.fromkeys(client for each in who for client in each))
    if not any(isinstance(client, str) for client in ids):
        ids.sort()
    values, variances, freedom = [], [], []
    for client in ids:
        mine = [
            (v, each.index(client)) for v, each in zip(rounds, who, strict=True) if client in each
        ]
        own = np.array([np.square(v.standard_errors[place]) for v, place in mine])
        known = np.array([v.freedom[place] for v, place in mine])
        values.append(sum(v.values[place] for v, place in mine))
        variances.append(sum(own))
        sure = ~np.isnan(known).any(axis=0)  # else some round has too few units
        freedom.append(np.where(sure, satterthwaite(own, known + 1), np.nan))
    variance, degrees = np.array(variances), np.array(freedom)
    sampled = not np.isinf(degrees).all()
    unnamed = participants is None and rounds[0].names is None
    return Valuation(
        np.array(values),
        np.sqrt(variance),
        sum(v.evaluations for v in rounds),
        sum(v.calls for v in rounds),
        f"sum of {len(rounds)} rounds",
        exact=not sampled and not variance.any(),
        degrees_of_freedom=degrees if sampled else None,
        names=None if unnamed else tuple(map(str, ids)),
    )


def _clients(rounds: Sequence[Valuation], participants: Any) -> list[list[Client]]:
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
            f"participants are {told} different clients for {[v.n_players for v in rounds]} "
            f"values; pass each once"
        )
    return who


def _check_sum(valuations: Sequence[Valuation], who: Sequence[Sequence[Client]]) -> None:
    """Refuse rounds whose values are not of one kind, or whose errors are alike."""
    clients = list(dict.fromkeys(client for each in who for client in each))
    if len({type(client) for client in clients}) > 1:
        raise ValueError(f"clients are {brief(clients)}; name all by number, or all by text")
    for fact in ("outputs", "utility", "semivalue"):
        told = [v.info.get(fact) if fact != "outputs" else v.values.shape[1:] for v in valuations]
        kinds = list(dict.fromkeys(str(each) for each in told if each is not None))
        if len(kinds) > 1:
            raise ValueError(f"rounds differ in {fact}: {' and '.join(kinds)}; add up each alone")
    sampled = [v for v in valuations if not v.exact and v.seed is not None]
    seeds = [v.seed for v in sampled]
    if len({(v.seed, str(v.info.get("stream"))) for v in sampled}) < len(sampled):
        double = max(seeds, key=seeds.count)
        raise ValueError(f"two rounds were sampled with the seed {double}; give each its own")
