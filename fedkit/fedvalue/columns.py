"""The columns of a vertical federation, and their values as whole numbers.

The metric needs only which rows share a value: every column becomes whole numbers (the levels of a
discrete one, the bins of a continuous one), and all columns of a party one number per row, its
cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedkit.checks import Bools, Floats, Ints, choice, numbers, plain_array, same_rows, warn, whole
from fedkit.extras import need

How = Literal["width", "quantile"]

TABLE_FACTOR = 8  # keys in a range of this many times the rows go through a table, others a sort
ROWS_OF_A_CELL = 2  # of the task party's, on average: with fewer, the values are doubted
ROWS_OFFERED = 4 / 3  # and of a data party's
FEW_CELLS = 10  # but not for so few, where rows are few
ON_EDGE = 1e-9  # of a bin: nearer than this is on the edge, which rounding would miss


class VerticalData:
    """A task party's columns and label beside the columns of data parties, row by row.

    Parameters
    ----------
    x_task : array or data frame, shape (n, f), or None
        Features of the task party; None where it has only the label.  Row `i` is the same person
        in all arrays: pass `ids` to have that checked, or else the indexes of pandas objects are.
    y : array, shape (n,)
        Label: whole numbers, truth values or text.
    parties : sequence of arrays or data frames, each of shape (n,) or (n, f_d), or a dict
        Features of the data parties: a list, not one matrix, or a dict by their names.
    ids : sequence of 1 + d arrays, each of shape (n,), optional
        Who each row is: one list per party, the task party first, which must agree.
    discrete : sequence of 1 + d entries, optional
        Which columns keep their levels, the task party first: for each party what
        :func:`discretise` takes.

    Raises
    ------
    ValueError
        If the parties, their rows, IDs or indexes do not fit together, or the label is
        continuous or has missing values.

    Examples
    --------
    >>> x = np.array([[0, 0, 5.1, 1], [0, 1, 4.9, 0], [1, 0, 3.0, 1],
    ...               [1, 1, 2.2, 0], [0, 1, 6.3, 1], [1, 0, 1.7, 0]])
    >>> offers = {"bank": x[:, [1]], "shop": x[:, [2, 3]]}
    >>> data = VerticalData(x[:, [0]], [0, 1, 1, 0, 1, 1], offers)
    >>> data.names, data.n_rows
    (('bank', 'shop'), 6)
    """

    def __init__(
        self, x_task: Any, y: Any, parties: Any, ids: Any = None,
        discrete: Sequence[Any] | None = None,
    ) -> None:  # fmt: skip
        label_name = getattr(y, "name", None)
        self._label = "y" if label_name is None else f"the label {label_name!r}"
        self.y = plain_array(y)
        if self.y.ndim != 1 or len(self.y) == 0:
            raise ValueError(f"y has shape {self.y.shape}; expected a label per row, one at least")
        self.n_rows = len(self.y)
        warn_of_label(label_codes(self.y, self._label), self._label)
        self.x_task = np.zeros((self.n_rows, 0)) if x_task is None else x_task
        self.parties, self.names = _named_parties(parties)
        owners = ("the task party", *self.names)
        self.discrete = (None,) * len(owners) if discrete is None else discrete
        if not isinstance(self.discrete, list | tuple) or len(self.discrete) != len(owners):
            raise ValueError(f"discrete is {discrete!r}; expected {len(owners)}, one per party")
        #: each party's name, columns, and which of them keep their levels
        self._held = list(zip(owners, (self.x_task, *self.parties), self.discrete, strict=True))
        for owner, x, keep in self._held:
            _kept(keep, len(columns_of(x, owner)), owner)
            if len(x) != self.n_rows:
                raise ValueError(f"{owner} has {len(x)} rows, y {self.n_rows}; keep those of all")
        if ids is None:
            same_rows("the parties' rows (without ids)", x_task, y, *self.parties)
            self.ids = np.arange(self.n_rows)
        else:
            self.ids = _common_ids(ids, self.n_rows, owners)

    @classmethod
    def join(
        cls, task: Any, parties: Mapping[str, Any], *, label: str, on: str | None = None,
        keys: Mapping[str, str] | None = None, **options: Any,
    ) -> VerticalData:  # fmt: skip
        """A data frame of each party, joined on the column of IDs: the rows that all parties hold.

        The IDs are the column `on`, or the one that `keys` names for a party (the task party is
        "task").  Every other column is a feature, but for the label.  An ID stands once in a frame;
        rows that are left out are warned of.  `options` are as above.
        """
        if not isinstance(parties, Mapping) or "task" in parties:
            raise ValueError(f"parties is {parties!s:.60}; expected frames by name, none 'task'")
        frames, indexed = {"task": task, **parties}, {}
        key_of = dict.fromkeys(frames, on) | dict(keys or {})
        for owner, frame in frames.items():
            key = key_of[owner]
            if key not in frame or (label in frame) != (owner == "task"):
                raise ValueError(
                    f"{owner} has the columns {', '.join(map(str, frame))}; expected its IDs, as "
                    f"keys={{{owner!r}: {key!r}}} names them, and the label {label!r} with the "
                    "task party alone"
                )
            if frame[key].isna().any() or frame[key].duplicated().any():
                raise ValueError(f"{owner} has rows without a {key!r}, or one that stands twice")
            indexed[owner] = frame.set_index(key)
        known = indexed["task"].index
        for frame in indexed.values():
            known = known[known.isin(frame.index)]
        lost = {owner: len(frame) - len(known) for owner, frame in frames.items()}
        told = ", ".join(f"{owner}: {n}" for owner, n in lost.items() if n)
        if not len(known):
            raise ValueError("no ID stands with every party; write them alike (7 is not '7')")
        if told:
            warn(f"{len(known)} rows are common to all parties; left out are {told}")
        aligned = {owner: frame.loc[known] for owner, frame in indexed.items()}
        own, each_ids = aligned.pop("task"), [known.to_numpy()] * len(frames)
        return cls(own.drop(columns=label), own[label], aligned, each_ids, **options)

    def __repr__(self) -> str:
        task, *others = (len(columns_of(x)) for _, x, _ in self._held)
        held = ", ".join(f"{name}: {n}" for name, n in zip(self.names, others, strict=True))
        return f"VerticalData({self.n_rows} rows; columns: task {task}, {held})"

    def codes(self, bins: int = 5, how: How = "width") -> tuple[Ints, Ints, list[Ints]]:
        """Return one dense code per row for the task party, the label, and each data party.

        A party with so many cells that its value cannot be trusted is warned of.
        """
        codes = []
        for data_party, (owner, x, keep) in zip((None, *self.names), self._held, strict=True):
            codes.append(joint_codes(discretise(x, bins, how, discrete=keep, name=owner)))
            warn_of_cells(codes[-1], data_party)
        return codes[0], label_codes(self.y, self._label), codes[1:]


def _named_parties(parties: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    if hasattr(parties, "shape") or isinstance(parties, str) or not isinstance(parties, Iterable):
        raise ValueError(
            f"parties is one {type(parties).__name__}; pass a list with one array or data frame "
            "per party, such as [x[:, [0, 1]], x[:, [2]]], or a dict by their names"
        )
    if not isinstance(parties, Mapping):
        parties = {f"party {i + 1}": x for i, x in enumerate(parties)}
    if not parties:
        raise ValueError("there are no data parties; pass the columns of at least one")
    return tuple(parties.values()), tuple(map(str, parties))


def _common_ids(ids: Any, rows: int, owners: tuple[str, ...]) -> NDArray[Any]:
    if not isinstance(ids, list | tuple) or len(ids) != len(owners):
        raise ValueError(f"ids is {ids!s:.60}; expected {len(owners)} lists, the task's first")
    first, *_ = each = [plain_array(own) for own in ids]
    for owner, own in zip(owners, each, strict=True):
        if own.shape != (rows,) or len(set(own.tolist())) != rows:
            raise ValueError(f"{owner}'s ids are not one different ID for each of {rows} rows")
        if not np.array_equal(own, first):
            row = int(np.argmin(own == first))
            raise ValueError(
                f"{owner} has ID {own[row]!r} in row {row} where the task party has "
                f"{first[row]!r}; align the parties' rows first, or write the IDs alike"
            )
    return first


def columns_of(x: Any, name: str = "x") -> list[NDArray[Any]]:
    """Return the columns of a vector, a matrix or a data frame as arrays ``[n]``."""
    if hasattr(x, "iloc") and x.ndim == 2:  # a data frame keeps a type per column
        columns, shape = [x.iloc[:, j].to_numpy() for j in range(x.shape[1])], x.shape
    else:
        array = plain_array(x)
        columns, shape = list(np.atleast_2d(array.T)), array.shape
    if len(shape) not in (1, 2) or not shape[0]:
        raise ValueError(f"{name} has shape {shape}; expected (n,) or (n, f), n > 0, not sparse")
    return columns


def discretise(
    x: Any, bins: int = 5, how: How = "width", missing: Literal["own", "refuse"] = "own", *,
    discrete: bool | Sequence[bool] | None = None, name: str = "x",
) -> Ints:  # fmt: skip
    """Replace every column by whole numbers: its levels, or the bins its values fall into.

    Five equal-width bins are the paper's choice (section 5, after Brown et al. 2012).  Edges come
    from the rows at hand.

    Parameters
    ----------
    x : array or data frame, shape (n,) or (n, f)
        Finite numbers, truth values or text.
    bins : int
        Bins of a continuous column, at least one.
    how : {"width", "quantile"}
        Bins of equal width between the smallest and the largest value, or of equal weight
        (fewer where values are tied).
    missing : {"own", "refuse"}
        NaN and None become a level of their own, the last one, or are refused.
    discrete : bool or sequence of bool, optional
        Whether (each) column keeps its levels.  By default truth values do, text, columns that
        pandas calls categories, and numbers with at most `bins` distinct values.
    name : str
        What the data are called in an error.

    Returns
    -------
    int64 array of the shape of `x`
        Codes from 0; a constant column is all 0.
    """
    whole("bins", bins, 1)
    choice("how", how, ("width", "quantile"))
    choice("missing", missing, ("own", "refuse"))
    columns = columns_of(x, name)
    titles = list(x.columns) if hasattr(x, "columns") else range(len(columns))
    given = _kept(discrete, len(columns), name)
    codes = np.zeros((len(x), len(columns)), dtype=np.int64)
    for j, (title, column) in enumerate(zip(titles, columns, strict=True)):
        where = f"column {title!r} of {name}"
        kind = x.dtypes.iloc[j] if hasattr(x, "columns") else getattr(x, "dtype", None)
        keep = True if given[j] is None and kind == "category" else given[j]
        values, absent = _parsed(column, where)
        if missing == "refuse" and absent.any():
            raise ValueError(
                f"{where} lacks {int(absent.sum())} of {len(x)} values; fill them in, or make them "
                "a level of their own (missing='own')"
            )
        codes[~absent, j] = _binned(values, int(bins), how, keep, where)
        codes[absent, j] = codes[~absent, j].max(initial=-1) + 1
    return codes[:, 0] if np.ndim(x) == 1 else codes


def _kept(discrete: Any, columns: int, name: str) -> Any:
    """Return for each column whether it keeps its levels; None where its values decide."""
    if isinstance(discrete, bool | None):
        return [discrete] * columns
    known = (bool, np.bool_, type(None))
    listed = isinstance(discrete, Sequence | np.ndarray) and len(discrete) == columns
    if not listed or not all(isinstance(keep, known) for keep in discrete):
        raise ValueError(
            f"discrete is {discrete!r}; expected True, False or None, or one of them for each of "
            f"the {columns} columns of {name}"
        )
    return discrete


def _parsed(column: NDArray[Any], where: str) -> tuple[NDArray[Any], Bools]:
    """Return the values of a column that are there, as numbers or text, and which are missing."""
    if column.dtype.kind == "O":
        # None, pandas' NA, NaN
        missing = (v is None or type(v).__name__ == "NAType" or bool(v != v) for v in column)
        absent = np.fromiter(missing, np.bool_)
        values = plain_array(column[~absent].tolist())  # whole numbers stay whole
    else:
        absent = column != column
        values = column[~absent]
    if values.ndim != 1 or values.dtype.kind not in "biufUS":
        raise ValueError(
            f"{where} holds {values.dtype}{[*values.shape[1:]]}; expected numbers or text"
        )
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError(f"{where} holds an infinite value; expected finite numbers, or NaN")
    return values, absent


def _binned(values: NDArray[Any], bins: int, how: How, keep: bool | None, where: str) -> Ints:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    text = values.dtype.kind in "US"
    if text and keep is False:
        raise ValueError(f"{where} holds text, which has no bins; pass discrete=True for it")
    if keep is None:
        # an early look at some rows spares sorting a long continuous column
        few = text or values.dtype.kind == "b" or len(np.unique(values[: 50 * bins])) <= bins
        keep = few and (text or len(np.unique(values)) <= bins)
    if keep:
        return np.unique(values, return_inverse=True)[1]
    if values.dtype.kind in "iu":  # float64 has no neighbours of large ones, such as nanoseconds
        values = values.astype(np.uint64) - values.min().astype(np.uint64)  # modulo 2^64
    numbers = values.astype(np.float64)
    low, high = numbers.min(), numbers.max()
    if low == high:
        return np.zeros(len(numbers), dtype=np.int64)
    if how == "quantile":
        # order statistics: an edge between two rows would be moved by rounding, or by a map
        edges = np.unique(np.sort(numbers)[(len(numbers) - 1) * np.arange(1, bins) // bins])
        # ties at the largest value are a bin of their own, as those at the smallest are
        last = (numbers == high) & (len(edges) > 0 and edges[-1] == high)
        return np.searchsorted(edges, numbers, side="left") + last
    place = (numbers / 2 - low / 2) / (high / 2 - low / 2) * bins  # halves do not overflow
    return np.minimum((place + ON_EDGE).astype(np.int64), bins - 1)


def label_codes(y: ArrayLike, name: str = "y") -> Ints:
    """Return dense codes of a discrete label."""
    values, absent = _parsed(plain_array(y), name)
    if absent.any():
        raise ValueError(f"{name} is missing in {absent.sum()} of {len(absent)} rows; drop them")
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        raise ValueError(
            f"{name} is continuous; the metric needs classes, such as low and high: make some, "
            "or pass discretise(y, bins)"
        )
    return np.unique(values, return_inverse=True)[1]


def warn_of_label(codes: Ints, name: str) -> None:
    """Warn of a label that is constant, or has a level for few rows."""
    rows, levels = len(codes), int(codes.max()) + 1
    if levels == 1:
        warn(f"{name} is the same in all {rows} rows, so everybody's value is 0")
    elif levels > max(5, rows / 5):
        warn(
            f"{name} has {levels} levels in {rows} rows: is it an amount, or an ID? Nearly any "
            "columns seem to tell it; put it in a few classes"
        )


def warn_of_cells(codes: Ints, data_party: str | None = None) -> None:
    """Warn of a party, the task party by default, with a row or two in each cell."""
    rows, cells = len(codes), int(codes.max()) + 1
    if cells <= max(FEW_CELLS, rows / (ROWS_OF_A_CELL if data_party is None else ROWS_OFFERED)):
        return
    follows = "its value as printed is too high and a corrected one too low"
    if data_party is None:
        follows = "even a party that knows the label seems to add less than it does"
    warn(
        f"{data_party or 'the task party'}'s columns make {cells} cells of {rows} rows, so that "
        f"{follows}: take fewer columns or bins"
    )


def joint_codes(*columns: ArrayLike) -> Ints:
    """Return dense labels ``0..m-1`` of the rows' joint value over any number of columns.

    Parameters
    ----------
    columns : int array, shape (n,) or (n, f)
        Codes, of equal length; a matrix without columns tells nothing and changes nothing.

    Returns
    -------
    int64 array, shape (n,)
        Equal for two rows if and only if they agree in all columns; in lexicographic order.
    """
    arrays = [np.asarray(column) for column in columns]
    rows = len(arrays[0]) if arrays else 0
    if not rows:
        raise ValueError("the columns have no rows; pass at least one column of at least one row")
    joint, size = np.zeros(rows, dtype=np.int64), 1
    for array in arrays:
        if len(array) != rows:
            raise ValueError(f"a column has {len(array)} rows and the first {rows}; align them")
        for column in array.reshape(rows, -1).T:
            code, levels = from_zero(column)
            joint, size = densify(joint * levels + code, size * levels)
    return joint


def densify(key: Ints, size: int) -> tuple[Ints, int]:
    """Relabel keys in ``0..size-1`` to ``0..m-1`` in their order, and return `m` too.

    Time and memory are of the order of the rows, however large `size` is.
    """
    if not fits(size, len(key)):
        values, inverse = np.unique(key, return_inverse=True)
        return inverse, len(values)
    seen = np.zeros(size, dtype=np.bool_)
    seen[key] = True
    labels = np.cumsum(seen) - 1
    return labels[key], int(labels[-1]) + 1


def from_zero(column: ArrayLike) -> tuple[Ints, int]:
    """Return dense codes from 0, in their order, and how many there are."""
    code = np.asarray(column)
    if code.dtype.kind not in "biu":
        raise ValueError(f"codes are {code.dtype}; expected whole numbers, as of discretise")
    code = code.astype(np.int64)
    low = int(code.min(initial=0))
    return densify(code - low, int(code.max(initial=0)) - low + 1)


def fits(size: int, rows: int) -> bool:
    """Tell whether a table of this size is small beside the rows."""
    return size <= TABLE_FACTOR * rows + 2**12


def pca(x: ArrayLike, components: int) -> Floats:
    """Return ``float64[n, components]``: the rows' scores on the first principal components.

    Half of the paper's fast-FedValue.  By scikit-learn's exact PCA of ``float[n, f]``: columns are
    centred and not scaled, and the loading of largest size of a component is positive.
    """
    matrix = numbers("x", x)
    solver = "covariance_eigh" if len(matrix) > matrix.shape[-1] else "full"
    model = need("sklearn.decomposition", "run").PCA(components, svd_solver=solver)
    return model.fit_transform(matrix)
