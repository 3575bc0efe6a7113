"""MovieLens 1M and 100K as a dense matrix of ratings, with what is known about each user.

The files are GroupLens's own: research use with acknowledgement, no redistribution, no commercial
use without permission.  fedkit therefore ships none of them and records nothing but metrics made
from them.  Please cite Harper and Konstan (2015).
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedkit.atomic import write_bytes
from fedkit.datasets.catalogue import data_root
from fedkit.datasets.readers import DownloadError, MissingDataError, damaged, read_member
from fedkit.streams import Streams

__all__ = [
    "AGE_BANDS",
    "DEMOGRAPHICS",
    "RATINGS",
    "MovieLens",
    "fetch",
    "find_ratings",
    "load_movielens",
    "made_up_ratings",
]

RATINGS = {"ml-1m": "MovieLens 1M", "ml-100k": "MovieLens 100K"}
#: columns of :attr:`MovieLens.demographics`
DEMOGRAPHICS = ("gender", "age", "occupation")
#: first year of each band of age in MovieLens-1M; the years of the 100K edition are put into these
AGE_BANDS = (1, 18, 25, 35, 45, 50, 56)
_TIMEOUT = 60.0


@dataclass(frozen=True)
class _Edition:
    """Files of one official archive and how they are written."""

    ratings: str
    users: str
    separator: bytes
    md5: str  # of the archive, as published beside it


_EDITIONS = {
    "ml-1m": _Edition("ratings.dat", "users.dat", b"::", "c4d9eecfca2ab87c1945afe126590906"),
    "ml-100k": _Edition("u.data", "u.user", b"\t", "0e33842e24a9c977be4e0107933c0723"),
}


@dataclass(frozen=True, eq=False)
class MovieLens:
    """Who rated what, and who they are.

    Attributes
    ----------
    name : str
        ``"ml-1m"`` or ``"ml-100k"``, or what a made-up matrix is called.
    ratings : uint8[U, M]
        Stars from 1 to 5, 0 where a user has not rated a movie; rated movies only.
    demographics : int64[U, 3]
        Gender (0 female, 1 male), first year of the band of age, code of the occupation.  The zip
        code is left out: the 6,040 users of the 1M edition have 3,439 different ones, so it
        comes close to naming a person and says nothing about people of other zip codes.
    source : str
        Which files were read.
    fingerprint : str
        Sixteen hexadecimal digits of the content.
    """

    name: str
    ratings: npt.NDArray[np.uint8]
    demographics: npt.NDArray[np.int64]
    source: str = "made up"
    fingerprint: str = ""

    def __post_init__(self) -> None:
        users = len(self.ratings)
        if self.ratings.ndim != 2 or self.ratings.dtype != np.uint8 or not self.ratings.size:
            raise ValueError(
                f"ratings are {self.ratings.dtype}{list(self.ratings.shape)}; uint8[users, movies] "
                "with at least one of each is expected"
            )
        if int(self.ratings.max()) > 5:
            raise ValueError(f"a rating is {int(self.ratings.max())}; stars run from 1 to 5")
        if self.demographics.shape != (users, len(DEMOGRAPHICS)):
            raise ValueError(
                f"demographics have shape {self.demographics.shape}; one row for each of the "
                f"{users} users with {', '.join(DEMOGRAPHICS)} is expected"
            )
        if not self.fingerprint:
            digest = hashlib.sha256(np.ascontiguousarray(self.ratings).tobytes())
            digest.update(np.ascontiguousarray(self.demographics, dtype="<i8").tobytes())
            object.__setattr__(self, "fingerprint", digest.hexdigest()[:16])


def find_ratings(name: str, root: str | os.PathLike[str] | None = None) -> str | None:
    """Return the edition that :func:`load_movielens` would read, None where there is none."""
    edition, folder = _edition(name), data_root(root)
    files = [f"{name}/{edition.ratings}", f"{name}/{edition.users}"]
    if all((folder / file).is_file() for file in files):
        return ", ".join(files)
    return f"{name}.zip" if (folder / f"{name}.zip").is_file() else None


def load_movielens(name: str = "ml-1m", root: str | os.PathLike[str] | None = None) -> MovieLens:
    """Read MovieLens from the data folder.

    Parameters
    ----------
    name : {"ml-1m", "ml-100k"}
    root : path, optional
        The data folder; by default FEDKIT_DATA, else the user's cache folder.  It holds the
        unpacked folder ``ml-1m`` or the official archive ``ml-1m.zip``.

    Raises
    ------
    ValueError
        If the name is unknown.
    MissingDataError
        If the files are not there; the message says how to get them.
    DamagedDataError
        If a file is not what it should be.
    """
    edition, folder = _edition(name), data_root(root)
    archive, source = folder / f"{name}.zip", find_ratings(name, root)
    if source is None:
        raise MissingDataError(
            f"data set {name!r} is not in {folder} (looked for {name}/{edition.ratings} and "
            f"{archive.name}); fetch it with `fedkit data get {name}`, or unpack the "
            f"official archive {_url(name)} there, or set FEDKIT_DATA to a folder that has it"
        )
    read = _from_zip(archive, name) if source == archive.name else _from_folder(folder / name)
    users, demographics = _users(name, read(edition.users))
    return MovieLens(name, _ratings(name, read(edition.ratings), users), demographics, source)


def fetch(name: str = "ml-1m", root: str | os.PathLike[str] | None = None) -> Path:
    """Download an official archive from GroupLens into the data folder and check it.

    By calling this you accept GroupLens's licence (research use, no redistribution).  Nothing
    half-written is left behind.

    Returns
    -------
    Path
        The archive; it is read as it is, without unpacking.

    Raises
    ------
    DownloadError
        If GroupLens cannot be reached, or the archive is not the published one.
    """
    edition, folder = _edition(name), data_root(root)
    target, url = folder / f"{name}.zip", _url(name)
    by_hand = f"download {url} by hand, place it in {folder}, and check the licence in its README"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            content = answer.read()
    except (OSError, urllib.error.URLError) as error:
        raise DownloadError(
            f"data set {name!r} could not be fetched: {' '.join(str(error).split())}; {by_hand}"
        ) from error
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 != edition.md5:
        raise DownloadError(
            f"data set {name!r} came with md5 {md5}, and {edition.md5} is published; {by_hand}"
        )
    write_bytes(target, content)
    return target


def _edition(name: str) -> _Edition:
    if name not in _EDITIONS:
        raise ValueError(f"data set {name!r} is unknown; choose from {sorted(_EDITIONS)}")
    return _EDITIONS[name]


def _url(name: str) -> str:
    return f"https://files.grouplens.org/datasets/movielens/{name}.zip"


def _from_folder(folder: Path) -> Callable[[str], bytes]:
    return lambda file: (folder / file).read_bytes()


def _from_zip(path: Path, name: str) -> Callable[[str], bytes]:
    def read(file: str) -> bytes:
        try:
            with zipfile.ZipFile(path) as archive:
                return read_member(path, archive, f"{name}/{file}", most=1 << 26)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise damaged(path, "the official archive", error) from error

    return read


def _users(name: str, content: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the users' IDs, ascending, and their demographics."""
    where = f"{_EDITIONS[name].users} of {name}"
    text = content.decode("latin-1")
    separator, order = ("::", (1, 2, 3)) if name == "ml-1m" else ("|", (2, 1, 3))
    lines = [line.split(separator) for line in text.splitlines() if line]
    if not lines or any(len(line) != 5 for line in lines):
        raise damaged(where, f"five fields between {separator!r} in each line", "another number")
    genders, ages, jobs = ([line[i] for line in lines] for i in order)
    codes = {job: code for code, job in enumerate(sorted(set(jobs)))}  # names in the 100K edition
    try:
        ids = np.array([int(line[0]) for line in lines], dtype=np.int64)
        years = np.array([int(age) for age in ages])
        work = [int(job) for job in jobs] if name == "ml-1m" else [codes[job] for job in jobs]
    except ValueError as error:
        raise damaged(where, "whole numbers", error) from error
    if not set(genders) <= {"F", "M"} or years.min() < 1 or years.max() > 120:
        raise damaged(where, "genders F and M and ages from 1 to 120", "another")
    if len(np.unique(ids)) != len(ids):
        raise damaged(where, "each user once", "a repeated user")
    bands = np.array(AGE_BANDS)[np.searchsorted(AGE_BANDS, years, side="right") - 1]
    table = np.column_stack([[gender == "M" for gender in genders], bands, work]).astype(np.int64)
    order_of_ids = np.argsort(ids)
    return ids[order_of_ids], table[order_of_ids]


def _ratings(name: str, content: bytes, users: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the dense matrix: rows in the order of `users`, columns in that of the movies' IDs."""
    edition = _EDITIONS[name]
    where = f"{edition.ratings} of {name}"
    try:
        words = content.replace(edition.separator, b" ").split()
        table = np.array(words, dtype=np.int64).reshape(-1, 4)
    except ValueError as error:
        raise damaged(where, "four whole numbers in each line", error) from error
    if not len(table) or table[:, 2].min() < 1 or table[:, 2].max() > 5:
        raise damaged(where, "ratings from 1 to 5", "others, or none")
    if not np.isin(table[:, 0], users).all():
        raise damaged(where, f"users of {edition.users}", "another user")
    rows = np.searchsorted(users, table[:, 0])
    movies, columns = np.unique(table[:, 1], return_inverse=True)
    if len(np.unique(rows * len(movies) + columns)) != len(table):
        raise damaged(where, "one rating of each movie by a user", "the same movie twice")
    matrix = np.zeros((len(users), len(movies)), dtype=np.uint8)
    matrix[rows, columns] = table[:, 2]
    return matrix


def made_up_ratings(users: int = 2000, movies: int = 300, seed: int = 0) -> MovieLens:
    """Draw a small matrix of ratings from a latent-factor model, for tests and quick runs.

    Users differ in activity and movies in popularity (both log-normal); four factors of taste
    decide what is watched and how it is liked.  Gender follows the first factor a little; age
    and occupation say nothing.  No number of MovieLens is in it.

    Raises
    ------
    ValueError
        If there are fewer than two users or movies.
    """
    if users < 2 or movies < 2:
        raise ValueError(f"{users} users and {movies} movies; at least two of each are needed")
    rng = Streams(seed).generator("movielens", "made-up")
    taste, kind = rng.normal(size=(users, 4)), rng.normal(size=(movies, 4)) / 2
    affinity = taste @ kind.T
    activity = rng.normal(-2.7, 0.8, size=(users, 1))
    popularity = rng.normal(0.0, 1.0, size=(1, movies))
    chance = 1 / (1 + np.exp(-(activity + popularity + 0.5 * affinity)))
    rated = rng.random((users, movies)) < chance
    stars = np.clip(np.rint(3.4 + affinity + rng.normal(0, 0.7, affinity.shape)), 1, 5)
    demographics = np.column_stack(
        [
            rng.random(users) < 1 / (1 + np.exp(-taste[:, 0])),
            rng.choice(AGE_BANDS, size=users),
            rng.integers(0, 6, size=users),
        ]
    ).astype(np.int64)
    return MovieLens("made-up", (rated * stars).astype(np.uint8), demographics)
