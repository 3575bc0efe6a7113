"""The six tables of FedValue's evaluation (Table 2), as numbers, labels and names of columns.

Wine and Breast are embedded in scikit-learn.  The others are looked for below the data folder in
the files in which they are usually passed on; three can be fetched from the UCI repository.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkit.atomic import write_text
from fedkit.checks import Bools, Floats, Ints, choice, flag, one_line, warn
from fedkit.datasets.files import damaged, data_root, missing, not_fetched
from fedkit.extras import need


@dataclass(frozen=True)
class TableSpec:
    """What is known of a table before a file is opened."""

    title: str
    features: int  # columns (Table 2)
    counts: tuple[int, ...]  # rows per class, by sorted labels; their sum is Table 2's number
    citation: str
    fingerprint: str  # of the table in `files`, or in scikit-learn
    files: tuple[str, ...] = ()  # read one below the other; none where scikit-learn has it
    label: str | int = 0  # name of the label's column, or place where there is no header
    dropped: tuple[str, ...] = ()  # columns that are no features
    discrete: Sequence[int] = ()  # places of the columns that keep their levels
    uci: int | None = None  # number in the UCI repository
    content: str = ""  # Tabular.content, by which what was fetched is told
    get: str = ""  # how to get it where there is no `uci`


TABLES = {
    "wine": TableSpec(
        "Wine, chemical analysis", 13, (59, 71, 48), "Aeberhard et al. 1994", "3a28849ef2366c4b"
    ),
    "parkinsons": TableSpec(
        "Parkinsons, measures of voice", 22, (48, 147), "Little et al. 2007", "3f1ce991bd240cbb",
        files=("uci/parkinsons.data",), label="status", dropped=("name",), uci=174,
        content="cd542aa88e7898e1",
    ),
    "spect": TableSpec(
        "SPECT, heart images, binary features", 22, (55, 212), "Kurgan et al. 2001",
        "5c518ca5b5576833",
        files=("uci/SPECT.train", "uci/SPECT.test"), label=0, discrete=range(22), uci=95,
        content="d616e466b0ef2c01",
    ),
    "breast": TableSpec(
        "Breast cancer Wisconsin, cell nuclei", 30, (212, 357), "Mangasarian et al. 1995",
        "25e2eb7b7a8745b1",
    ),
    "music": TableSpec(
        "Music, audio features of GTZAN", 57, (100,) * 10, "Tzanetakis and Cook 2002",
        "1bbdef1079798e2a", files=("gtzan/features_30_sec.csv",), label="label",
        dropped=("filename", "length"),
        get="download the data set 'GTZAN Dataset - Music Genre Classification' from Kaggle (an "
        "account is needed) and place its features_30_sec.csv there",
    ),
    "credit": TableSpec(
        "Default of credit card clients", 23, (23_364, 6_636), "Yeh and Lien 2009",
        "59ffef19b83b06bc",
        files=("uci/UCI_Credit_Card.csv",), label="default.payment.next.month", dropped=("ID",),
        discrete=(1, 2, 3, *range(5, 11)),  # sex, education, marriage, six of repayment
        uci=350, content="271d8aed3427955e",
    ),
}  # fmt: skip
"""The tables that can be loaded, by name."""


@one_line
@dataclass(frozen=True, eq=False)
class Tabular:
    """A table with one discrete label."""

    name: str
    x: Floats  #: ``[n, f]``, features
    y: Ints  #: ``[n]``, labels from 0, in the order of the sorted labels
    features: tuple[str, ...]  #: names of the columns
    classes: tuple[str, ...]  #: names of the labels
    discrete: Bools  #: ``[f]``, which columns keep their levels instead of being binned
    source: str  #: which edition was read

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the values and labels, whatever file they came in; of 16 digits."""
        digest = hashlib.sha256(np.ascontiguousarray(self.x).tobytes())
        digest.update(self.y.tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def content(self) -> str:
        """Digest of each column's values with their labels, in any order of rows and columns.

        It has 16 digits.  Values of one column that change places within a class are not seen.
        """
        ordered = (column[np.lexsort((column, self.y))] + 0.0 for column in self.x.T)
        digests = sorted(hashlib.sha256(column.tobytes()).hexdigest() for column in ordered)
        of_labels = ",".join(map(str, np.bincount(self.y)))
        return hashlib.sha256(" ".join([of_labels, *digests]).encode()).hexdigest()[:16]


def load_table(
    name: str, root: str | os.PathLike[str] | None = None, *, verify: bool = True
) -> Tabular:
    """Load one of the tables of FedValue's evaluation and check it against the paper's Table 2.

    Parameters
    ----------
    name : str
        A name of :data:`TABLES`.
    root : path, optional
        The data folder; by default FEDKIT_DATA, else the user's cache folder.
    verify : bool
        Compare the values and labels with the table's fingerprint; of what ``get`` fetched, whose
        rows and columns may stand in another order, the content, of which is only warned.  Switch
        it off only for files that you changed on purpose.

    Raises
    ------
    ValueError, MissingDataError, DamagedDataError
        If the name is unknown, the files are not there, or rows, columns, classes or values are
        not those of Table 2.
    """
    spec, folder = TABLES[choice("name", name, TABLES)], data_root(root)
    expected = spec.fingerprint if flag("verify", verify) else None
    if not spec.files:
        sets = need("sklearn.datasets", "run")
        bunch = {"wine": sets.load_wine, "breast": sets.load_breast_cancer}[name]()
        columns = [*map(str, bunch.feature_names)]
        return _tabular(name, bunch.data, bunch.target, columns, "scikit-learn", expected)
    files = table_files(name, folder)
    if files is None:
        raise missing(name, folder, " and ".join(spec.files), spec.get)
    label, dropped, fetched = spec.label, spec.dropped, files != spec.files
    if fetched:
        label, dropped, expected = "label", (), None
    source, pd = " and ".join(files), need("pandas", "run")
    header = None if isinstance(label, int) else 0
    try:
        # exact, so that the values are the same with any version of pandas
        exact = {"header": header, "float_precision": "round_trip"}
        frame = pd.concat([pd.read_csv(folder / file, **exact) for file in files])
        features = frame.drop(columns=[label, *dropped])
        columns = [f"F{c}" if header is None else str(c) for c in features.columns]
        x = features.to_numpy(dtype=np.float64)
    except (ValueError, KeyError) as error:  # pandas' own errors too
        raise damaged(source, f"the table {name!r} with a column {label!r}", error) from error
    table = _tabular(name, x, frame[label].to_numpy(), columns, source, expected)
    if fetched and verify and table.content != spec.content:
        warn(
            f"{source} holds other values than the copy of {name!r} that the book's records were "
            "made with: of the same size and classes, yet results may differ"
        )
    return table


def table_files(name: str, folder: Path) -> tuple[str, ...] | None:
    """Return the files from which a table would be read: the usual ones, or what was fetched."""
    for files in (TABLES[name].files, (f"uci/{name}.csv",)):
        if all((folder / file).is_file() for file in files):
            return files
    return None


def _tabular(
    name: str, x: Floats, labels: NDArray[Any], features: list[str], source: str,
    fingerprint: str | None = None,
) -> Tabular:  # fmt: skip
    """Check the numbers against Table 2, and a fingerprint if there is one; give them names."""
    spec = TABLES[name]
    classes, y, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shape, gaps = (sum(spec.counts), spec.features), int((~np.isfinite(x)).sum())
    if x.shape != shape or gaps or tuple(counts.tolist()) != spec.counts:
        raise damaged(
            source, f"{shape} rows and features without gaps, {spec.counts} rows per class",
            f"{x.shape} with {gaps} gaps, {tuple(counts.tolist())}",
        )  # fmt: skip
    discrete = np.isin(np.arange(spec.features), list(spec.discrete))
    table = Tabular(
        name, np.ascontiguousarray(x, dtype=np.float64), y.reshape(-1).astype(np.int64),
        tuple(features), tuple(str(c) for c in classes), discrete, source,
    )  # fmt: skip
    if fingerprint not in (None, table.fingerprint):
        raise damaged(source, f"values of fingerprint {fingerprint}", table.fingerprint)
    return table


def get_table(name: str, folder: Path) -> str:
    """Download a table from the UCI repository and check it."""
    spec, target = TABLES[name], f"uci/{name}.csv"
    if spec.uci is None:
        raise not_fetched(name, folder, f"it has no download; {spec.get}", spec.files[0])
    ucimlrepo = need("ucimlrepo", "vertical")
    try:
        data = ucimlrepo.fetch_ucirepo(id=spec.uci).data
        # "features" repeats a column where two share a name; "original" has each once
        label = data.targets.iloc[:, 0].to_numpy()
        others = [part for part in (data.targets, data.ids) if part is not None]
        frame = data.original.drop(columns=[c for part in others for c in part.columns])
        frame.columns = [str(c) for c in frame.columns]
        x = frame.to_numpy(dtype=np.float64)
        _tabular(name, x, label, list(frame.columns), f"UCI data set {spec.uci}")
        write_text(folder / target, frame.assign(label=label).to_csv(index=False))
    except Exception as error:  # ucimlrepo raises errors of its own, derived from Exception
        raise not_fetched(name, folder, error, " and ".join(spec.files)) from error
    return target
