"""What a federation of columns holds, in memory and in each party's file.

The metric needs only which rows share a value, so every column becomes whole numbers, and the
columns of a party become one number per row: its cell.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import having, one_line, plain_array, warn, whole
from fedkit.extras import need
from fedkit.fedvalue.binning import (
    How,
    Missing,
    cells_doubt,
    column_doubts,
    columns_of,
    discretise,
    each_discrete,
    is_missing,
    label_codes,
    label_doubt,
)
from fedkit.fedvalue.cells import CoalitionCells, joint_codes
from fedkit.games.coalitions import numbers_of

__all__ = [
    "Columns", "How", "Missing", "VerticalData", "coalition_cells", "discretise", "joint_codes",
    "label_codes", "pca", "read_columns", "vertical_data",
]  # fmt: skip

Codes = NDArray[np.int64]


class VerticalData:
    """A task party's columns and label beside the columns of data parties, row by row.

    Parameters
    ----------
    x_task : array or data frame, shape (n, f), or None
        Features of the task party; None (or no columns) where it has only the label.  Row `i` is
        the same person in all arrays: pass `ids` to have that checked.  Otherwise only the
        indexes of pandas objects are compared.
    y : array, shape (n,)
        Label: whole numbers, truth values or text.
    parties : sequence of arrays or data frames, each of shape (n,) or (n, f_d), or a dict
        Features of the data parties, one entry per party: a list, not one matrix.  The keys of a
        dict are the parties' names.
    ids : sequence of 1 + d arrays, each of shape (n,), optional
        Who each row is: one list per party, the task party first, which must agree.  The
        attribute is the common list, ``0..n-1`` by default.
    names : sequence of str, optional
        Names of the data parties; "party 1", "party 2", ... by default.
    discrete : sequence of 1 + d entries, optional
        Which columns keep their levels, the task party first: for each party what
        :func:`~fedkit.fedvalue.binning.discretise` takes.

    Raises
    ------
    ValueError
        If the parties, their rows, IDs, indexes or names do not fit together, or the label is
        continuous or has missing values.

    Warns
    -----
    UserWarning
        If the label is the same in all rows (every value is then 0), or has more than 5 levels
        and more than one for every five rows (an amount or an ID: any columns seem to tell it); if
        a column is missing in all rows; if a column of a data frame looks like a forgotten ID: text
        that differs in every row, or the whole numbers from some first to some last, each once.

    Examples
    --------
    Six people, four columns: the task party owns the first, two suppliers the others.

    >>> x = np.array([[0, 0, 5.1, 1], [0, 1, 4.9, 0], [1, 0, 3.0, 1],
    ...               [1, 1, 2.2, 0], [0, 1, 6.3, 1], [1, 0, 1.7, 0]])
    >>> offers = {"bank": x[:, [1]], "shop": x[:, [2, 3]]}
    >>> data = VerticalData(x[:, [0]], [0, 1, 1, 0, 1, 1], offers)
    >>> data.names, data.n_rows
    (('bank', 'shop'), 6)
    """

    def __init__(
        self, x_task: Any, y: Any, parties: Any, ids: Any = None,
        names: Iterable[str] | None = None, discrete: Sequence[Any] | None = None,
    ) -> None:  # fmt: skip
        self.y = plain_array(y)
        if self.y.ndim != 1 or len(self.y) == 0:
            raise ValueError(
                f"y has shape {self.y.shape}; expected one label per row, at least one row"
            )
        doubt = label_doubt(label_codes(self.y), "y")
        if doubt is not None:
            warn(doubt)
        self.x_task = np.zeros((self.n_rows, 0)) if x_task is None else x_task
        self.parties, self.names = _each_party(parties, names)
        owners = ("the task party", *self.names)
        self.discrete = (None,) * len(owners) if discrete is None else discrete
        if not isinstance(self.discrete, list | tuple) or len(self.discrete) != len(owners):
            raise ValueError(
                f"discrete is {discrete!r}; expected {len(owners)} entries, one for the task "
                "party and one per data party"
            )
        for owner, x, keep in self._held():
            columns = columns_of(x, owner)
            if len(x) != self.n_rows:
                raise ValueError(
                    f"{owner} has {len(x)} rows and y has {self.n_rows}; keep the rows that all "
                    "parties share, in one order"
                )
            each_discrete(keep, len(columns), owner)
            for doubt in column_doubts(x, owner):
                warn(doubt)
        if ids is None:
            framed = [x.index for x in (x_task, y, *self.parties) if hasattr(x, "iloc")]
            if not all(index.equals(framed[0]) for index in framed):
                raise ValueError(
                    "the indexes of two data frames (or series) differ, so their rows may not be "
                    "the same people; align them and reset_index(drop=True), or pass ids, one list "
                    "per party"
                )
            self.ids = np.arange(self.n_rows)
        else:
            self.ids = _common_ids(ids, self.n_rows, owners)

    def _held(self) -> Iterator[tuple[str, Any, Any]]:
        owners = ("the task party", *self.names)
        return zip(owners, (self.x_task, *self.parties), self.discrete, strict=True)

    @classmethod
    def from_frame(
        cls, frame: Any, *, label: str, parties: Mapping[str, Sequence[str]],
        task: Sequence[str] = (), on: str | None = None, **options: Any,
    ) -> VerticalData:  # fmt: skip
        """Columns of one data frame, divided among parties.

        `label`, `parties` and `task` name columns, each once, and `on` the one that says who a row
        is.  Columns that nobody is given are left out; `options` are as above.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"id": [3, 5, 8], "age": [31, 40, 52], "debt": [0, 1, 1],
        ...                       "paid": [1, 0, 0]})
        >>> VerticalData.from_frame(frame, label="paid", parties={"bank": ["debt"]}, on="id")
        VerticalData(3 rows; columns: task 0, bank: 1)
        """
        groups = {"the task party": task, **_groups(parties)}
        for owner, names in groups.items():
            if isinstance(names, str) or not isinstance(names, Sequence | np.ndarray):
                raise ValueError(f"{owner} has the columns {names!r}; expected a list of names")
        given = [label, *([] if on is None else [on]), *(n for own in groups.values() for n in own)]
        held = list(having("frame", frame, "columns", "iloc").columns)
        for name in given:
            if held.count(name) != 1 or given.count(name) != 1:
                raise ValueError(
                    f"column {name!r} is not there, or it is there or given twice; label, ID and "
                    f"features are different columns of {', '.join(map(str, held))}"
                )
        first, *others = (frame[list(names)] for names in groups.values())
        ids = None if on is None else [frame[on].to_numpy()] * len(groups)
        return cls(first, frame[label], dict(zip(parties, others, strict=True)), ids, **options)

    @classmethod
    def join(
        cls, task: Any, parties: Mapping[str, Any], *, on: str, label: str, **options: Any
    ) -> VerticalData:
        """A data frame of each party, joined on an ID: the rows that all parties hold.

        Every column of the task party but `on` and `label` is a feature, of the others every one
        but `on`, and none is called as the label; `options` are as above.  An ID stands once in a
        frame; rows that are left out are warned of, with how many each party loses.
        """
        frames = {"the task party": task, **_groups(parties)}
        if label == on:
            raise ValueError(
                f"label is {label!r} and on is, too; the label is not the ID: name two columns"
            )
        for owner, frame in frames.items():
            columns = having(owner, frame, "columns", "iloc", "set_index").columns
            for name in (on, label) if frame is task else (on,):
                if list(columns).count(name) != 1:
                    raise ValueError(
                        f"{owner} has no column {name!r}, or two; it has "
                        f"{', '.join(map(str, columns))}"
                    )
            if frame[on].isna().any() or frame[on].duplicated().any():
                raise ValueError(
                    f"{owner} has rows without a {on!r}, or one that stands twice; it must tell "
                    "whose a row is"
                )
            if frame is not task and label in columns:
                raise ValueError(
                    f"{owner} has a column {label!r}, as the label is called, and the label is no "
                    "feature: leave it out, or rename it"
                )
        kinds = {frame[on].dtype.kind for frame in frames.values()}
        if len(kinds) > 1 or kinds & set("fc"):
            told = ", ".join(f"{o}: {f[on].dtype}" for o, f in frames.items())
            raise ValueError(f"the types of {on!r} differ or are fractions ({told}); 7 is not '7'")
        known = set(task[on]).intersection(*(frame[on] for frame in frames.values()))
        kept = task[on][task[on].isin(known)]
        if not len(kept):
            raise ValueError(f"no {on!r} stands with every party; write them alike")
        lost = [f"{o}: {len(f) - len(kept)}" for o, f in frames.items() if len(f) > len(kept)]
        if lost:
            warn(
                f"{len(kept)} rows are common to all parties; left out are {', '.join(lost)}",
            )
        own, *others = (frame.set_index(on).loc[list(kept)] for frame in frames.values())
        return cls(
            own.drop(columns=label), own[label], dict(zip(parties, others, strict=True)),
            [kept.to_numpy()] * len(frames), **options,
        )  # fmt: skip

    def __repr__(self) -> str:
        task, *others = (len(columns_of(x)) for _, x, _ in self._held())
        held = ", ".join(f"{name}: {n}" for name, n in zip(self.names, others, strict=True))
        return f"VerticalData({self.n_rows} rows; columns: task {task}, {held})"

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def codes(
        self, bins: int = 5, how: How = "width", missing: Missing = "own"
    ) -> tuple[Codes, Codes, list[Codes]]:
        """Return one dense code per row for the task party, the label, and each data party.

        A task party is warned of that has more than 10 cells, and more than one for every two
        rows, beside which the others seem to add less than they do; and a data party that has more
        than three for every four rows, of which neither the printed value nor a corrected one can
        be trusted.
        """
        task, *parties = (
            joint_codes(discretise(x, bins, how, missing, discrete=keep, name=owner))
            for owner, x, keep in self._held()
        )
        owners = (None, *self.names)
        for owner, codes in zip(owners, (task, *parties), strict=True):
            doubt = cells_doubt(codes, owner)
            if doubt is not None:
                warn(doubt)
        return task, label_codes(self.y), parties


def _groups(parties: Any) -> Mapping[str, Any]:
    if not isinstance(parties, Mapping) or not parties or "the task party" in parties:
        raise ValueError(
            f"parties is {parties!s:.60}; expected a dict of each data party's name to what it "
            "holds"
        )
    return parties


def vertical_data(x_task: Any, y: Any, parties: Any, names: Any) -> Any:
    """Return the data of a call: what holds all of them as it is, or one made of its parts."""
    if not isinstance(x_task, VerticalData | CoalitionCells):
        if y is None and parties is None:
            raise ValueError(
                f"x_task is a {type(x_task).__name__}; expected VerticalData, or the task party's "
                "columns with y and parties"
            )
        return VerticalData(x_task, y, parties, names=names)
    if any(part is not None for part in (y, parties, names)):
        raise ValueError(
            f"{type(x_task).__name__} holds the label, the parties and their names; pass nothing "
            "beside it"
        )
    return x_task


def coalition_cells(
    x_task: Any, y: Any, parties: Any, names: Any, bins: int, how: How, missing: Missing
) -> CoalitionCells:
    """Return the cells of a call: those of :class:`CoalitionCells`, or those of the data."""
    data = vertical_data(x_task, y, parties, names)
    if isinstance(data, CoalitionCells):
        return data.apart()
    task, label, others = data.codes(bins, how, missing)
    return CoalitionCells(task, label, others, names=data.names)


def _each_party(
    parties: Any, names: Iterable[str] | None
) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    if hasattr(parties, "shape") or isinstance(parties, str) or not isinstance(parties, Iterable):
        raise ValueError(
            f"parties is one {type(parties).__name__}; pass a list with one array or data frame "
            "per party, such as [x[:, [0, 1]], x[:, [2]]]"
        )
    if isinstance(parties, Mapping):
        if names is not None:
            raise ValueError("the keys of parties are the names; do not pass names beside a dict")
        parties, names = parties.values(), parties.keys()
    each = tuple(parties)
    if not each:
        raise ValueError("there are no data parties; pass the columns of at least one")
    if names is None:
        names = [f"party {i + 1}" for i in range(len(each))]
    many = isinstance(names, Iterable) and not isinstance(names, str)
    titles = tuple(map(str, names or ())) if many else ()
    if len(titles) != len(each) or len(set(titles)) != len(titles):
        raise ValueError(f"names is {names!r}; expected {len(each)} different names")
    return each, titles


def _common_ids(ids: Any, rows: int, owners: tuple[str, ...]) -> NDArray[Any]:
    if not isinstance(ids, list | tuple) or len(ids) != len(owners):
        raise ValueError(
            f"ids is {ids!s:.60}; expected a list of {len(owners)}: one list of IDs per party, the "
            "task party's first"
        )
    first, *_ = each = [plain_array(own) for own in ids]
    for owner, own in zip(owners, each, strict=True):
        if own.shape != (rows,):
            raise ValueError(f"{owner} has IDs of shape {own.shape} for {rows} rows")
        lacking = [row for row, one in enumerate(own.tolist()) if is_missing(one)]
        if lacking:
            raise ValueError(f"{owner} has no ID in row {lacking[0]}; an ID tells whose a row is")
        if len(set(own.tolist())) != rows:  # which compares numbers with text, too
            raise ValueError(f"{owner} holds an ID more than once; an ID is one row")
        if not np.array_equal(own, first):
            row = int(np.argmin(own == first))
            raise ValueError(
                f"{owner} has ID {own[row]!r} in row {row} where the task party has "
                f"{first[row]!r}; align the parties' rows first, or write the IDs alike"
            )
    return first


def pca(x: ArrayLike, components: int) -> NDArray[np.float64]:
    """Return ``float64[n, components]``: the rows' scores on the first principal components.

    One half of the paper's fast-FedValue; the other is the sampling of permutations (Eq. 16).  By
    scikit-learn's exact PCA of ``float[n, f]``: columns are centred and not scaled, and the loading
    of largest size of a component is positive.
    """
    matrix = numbers_of("x is", x)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise ValueError(
            f"x has shape {matrix.shape} and {np.sum(~np.isfinite(matrix))} entries that are "
            "missing or infinite; expected numbers [n, f]: fill what is missing, or leave it out"
        )
    if not np.isfinite(np.square(matrix).sum()):
        raise ValueError("x holds numbers whose squares are too large; give it in other units")
    whole("components", components, 1, min(matrix.shape))
    solver = "covariance_eigh" if len(matrix) > matrix.shape[-1] else "full"
    model = need("sklearn.decomposition", "run").PCA(components, svd_solver=solver)
    return model.fit_transform(matrix)


@one_line
@dataclass(frozen=True, eq=False)
class Columns:
    """What one party's file holds: IDs as text, a data frame of features, a task party's label."""

    ids: list[str]
    x: Any
    y: NDArray[Any] | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.x.columns))


def read_columns(
    path: Path, *, id_column: str = "id", label: str | None = None,
    columns: Sequence[str] | None = None,
) -> Columns:  # fmt: skip
    """Read a CSV file with a line of names.

    Features are the `columns` named, by default all but the ID and the label; without a label
    there must be one.  IDs stay text, as they stand there: leading zeros count.  In other columns
    an empty cell is a missing value, and so is a word for one: NA, None, null, NaN and the like.
    """
    if label == id_column:
        raise ValueError(
            f"the label {label!r} is the column of the IDs; expected is what to tell about a row: "
            "name another column (--label, --id-column)"
        )
    frame, own = _csv(path, id_column), [id_column, *([] if label is None else [label])]
    chosen = [c for c in frame.columns if c not in own] if columns is None else list(columns)
    if len({*own, *chosen}) < len(own) + len(chosen):
        raise ValueError(
            "a column is asked for twice: name each once, and not the ID or the label, which are "
            "not features"
        )
    for name in [*own, *chosen]:
        if name not in frame.columns:
            raise ValueError(
                f"{path} has no column {name!r}; it has {', '.join(map(str, frame.columns))}: name "
                "one of these, or write them alike (--id-column, --label, --columns)"
            )
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows")
    if label is None and not chosen:
        raise ValueError(f"{path} has no features: only {', '.join(map(str, frame.columns))}")
    for name in chosen:  # with decimal commas every number would be a level
        if frame[name].dropna().astype(str).str.fullmatch(r"\s*[-+]?\d+,\d+\s*").mean() > 0.5:
            raise ValueError(
                f"column {name!r} of {path} holds numbers with a decimal comma; write a point"
            )
    y = None if label is None else frame[label].to_numpy()
    if y is not None:
        gaps = int(frame[label].isna().sum())
        if gaps:
            raise ValueError(
                f"{path}: the label {label!r} is missing in {gaps} of {len(y)} rows; leave these "
                "out, or rename a class that is read as missing, such as NA, None or null"
            )
        try:
            codes = label_codes(y, f"the label {label!r}")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not codes.any():
            raise ValueError(
                f"the label {label!r} has the one value {y[0]} in all {len(y)} rows of {path}, so "
                "there is nothing to tell about it; take rows with two labels or more"
            )
    return Columns(_ids(frame[id_column], f"{path}: the {id_column}"), frame[chosen], y)


def _csv(path: Path, id_column: str) -> Any:
    pandas = need("pandas", "service")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
            if "" in names:
                raise ValueError(
                    f"column {names.index('') + 1} has no name; it may be row numbers: leave them "
                    "out (to_csv(..., index=False)), or name it"
                )
            if len(set(names)) < len(names):
                raise ValueError("two columns have one name")
            if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
                raise ValueError("save it with commas between its columns")
            file.seek(0)
            with warnings.catch_warnings():
                # a row has more fields than there are names
                warnings.simplefilter("error", pandas.errors.ParserWarning)
                # IDs are text: no lost zeros, and 'NA' is one like any other
                # all rows at once: of a long column, one part could become numbers, another text
                return pandas.read_csv(
                    file, index_col=False, converters={id_column: str}, low_memory=False
                )
    except (ValueError, pandas.errors.ParserWarning) as error:  # what is no text, or no table
        raise ValueError(
            f"{path} is not a CSV file in UTF-8 with a line of names: {error}"
        ) from error


def _ids(column: Any, what: str) -> list[str]:
    rows: dict[str, int] = {}
    for row, one in enumerate(column.tolist(), 1):
        if not one or one != one.strip():
            raise ValueError(f"{what} of row {row} is {one!r}; it is empty, or padded")
        if rows.setdefault(one, row) != row:
            raise ValueError(f"{what} {one!r} comes twice (row {row}); one row per ID")
    return list(rows)
