"""MovieLens 1M and 100K as a dense matrix of ratings, with what is known about each user.

The files are GroupLens's own: research use with acknowledgement, no redistribution, no commercial
use without permission.  fedkit therefore ships none of them and records nothing but metrics made
from them.  Please cite Harper and Konstan (2015).
"""

from __future__ import annotations

import hashlib
import io
import os
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkit.atomic import write_bytes
from fedkit.checks import Ints, choice, flag, one_line, whole
from fedkit.datasets.files import BROKEN, damaged, data_root, missing, not_fetched
from fedkit.extras import need
from fedkit.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

#: first year of each band of age in MovieLens-1M; the years of the 100K edition are put into these
AGE_BANDS = (1, 18, 25, 35, 45, 50, 56)


@dataclass(frozen=True)
class RatingsSpec:
    """Files of one official archive and how they are written."""

    title: str
    ratings: str
    users: str
    separators: tuple[bytes, bytes]  # of ratings and of users
    columns: tuple[str, ...]  # of users
    md5: str  # of the archive, as published beside it
    size: tuple[int, int]  # ratings and users
    fingerprint: str  # of what is read from the files


RATINGS = {
    "ml-1m": RatingsSpec(
        "MovieLens 1M", "ratings.dat", "users.dat", (b"::", b"::"),
        ("user", "gender", "age", "occupation", "zip"),
        "c4d9eecfca2ab87c1945afe126590906", (1_000_209, 6_040), "dc0682a5c8e3db11",
    ),
    "ml-100k": RatingsSpec(
        "MovieLens 100K", "u.data", "u.user", (b"\t", b"|"),
        ("user", "age", "gender", "occupation", "zip"),
        "0e33842e24a9c977be4e0107933c0723", (100_000, 943), "ef4f833f75e1582a",
    ),
}  # fmt: skip
"""The editions of MovieLens, by name."""


@one_line
@dataclass(frozen=True, eq=False)
class MovieLens:
    """Who rated what, and who they are."""

    name: str  #: ``"ml-1m"`` or ``"ml-100k"``, or what a made-up matrix is called
    #: ``[U, M]``, stars from 1 to 5, 0 where a user has not rated a movie; rated movies only
    ratings: NDArray[np.uint8]
    #: ``[U, 3]``, gender (0 female, 1 male), first year of the band of age, code of the occupation;
    #: not the zip code, which comes close to naming a person
    demographics: Ints
    source: str = "made up"  #: which files were read

    def __post_init__(self) -> None:
        stars, people = self.ratings, self.demographics.shape
        known = stars.ndim == 2 and stars.dtype == np.uint8 and stars.size and stars.max() <= 5
        if not known or people != (len(stars), 3):
            raise ValueError(
                f"ratings are {stars.dtype}{list(stars.shape)} and demographics {list(people)}; "
                "expected uint8[users, movies] with stars up to 5, and gender, age and occupation "
                "of each user"
            )

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits of the sha256 of ratings and demographics."""
        digest = hashlib.sha256(np.ascontiguousarray(self.ratings).tobytes())
        digest.update(np.ascontiguousarray(self.demographics, dtype="<i8").tobytes())
        return digest.hexdigest()[:16]


def load_movielens(
    name: str = "ml-1m", root: str | os.PathLike[str] | None = None, *, verify: bool = True
) -> MovieLens:
    """Read MovieLens from the data folder: the folder ``ml-1m`` or the archive ``ml-1m.zip``.

    Parameters
    ----------
    name : {"ml-1m", "ml-100k"}
    root : path, optional
        The data folder; by default FEDKIT_DATA, else the user's cache folder.
    verify : bool
        Compare the numbers of ratings and users, and the fingerprint of both, with the known ones.
        Switch it off only for files that you changed on purpose.

    Raises
    ------
    ValueError, MissingDataError, DamagedDataError
        If the name is unknown, the files are not there, or one is not what it should be.
    """
    spec, folder = RATINGS[choice("name", name, RATINGS)], data_root(root)
    flag("verify", verify)
    source = ratings_files(name, folder)
    if source is None:
        raise missing(name, folder, f"{name}/{spec.ratings} and {name}.zip")
    try:
        zipped = source == f"{name}.zip"
        place: Any = zipfile.Path(folder / source, f"{name}/") if zipped else folder / name
        users, ratings = ((place / file).read_bytes() for file in (spec.users, spec.ratings))
        held = MovieLens(name, *_parsed(name, users, ratings), source)
    except BROKEN as error:
        raise damaged(source, f"the official files of {spec.title}", error) from error
    found = (int(np.count_nonzero(held.ratings)), len(held.ratings)), held.fingerprint
    if verify and found != (spec.size, spec.fingerprint):
        told = "{0[0]} ratings by {0[1]} users, of fingerprint {1}"
        expected = told.format(spec.size, spec.fingerprint)
        raise damaged(source, expected, told.format(*found))
    return held


def ratings_files(name: str, folder: Path) -> str | None:
    """Return what would be read, the unpacked files or the archive; None where neither is there."""
    files = [f"{name}/{RATINGS[name].ratings}", f"{name}/{RATINGS[name].users}"]
    if all((folder / file).is_file() for file in files):
        return ", ".join(files)
    return f"{name}.zip" if (folder / f"{name}.zip").is_file() else None


def _read_lines(content: bytes, separator: bytes, columns: Sequence[str]) -> pd.DataFrame:
    """Parse lines of fields; a separator of two signs would make pandas slow."""
    text = io.BytesIO(content.replace(separator, b"\t"))
    return need("pandas", "run").read_csv(
        text, sep="\t", header=None, names=columns, index_col=False, encoding="latin-1",
        dtype=dict.fromkeys({"user", "movie", "stars", "age"} & set(columns), np.int64),
    )  # fmt: skip


def _parsed(name: str, users: bytes, ratings: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the dense matrix, users and movies in the order of their IDs, and demographics."""
    spec = RATINGS[name]
    people = _read_lines(users, spec.separators[1], spec.columns).sort_values("user")
    bands = np.array(AGE_BANDS)[np.searchsorted(AGE_BANDS, people["age"], side="right") - 1]
    work = people["occupation"].to_numpy()
    if name == "ml-100k":  # names
        work = np.unique(work.astype(str), return_inverse=True)[1]
    demographics = np.column_stack([people["gender"] == "M", bands, work]).astype(np.int64)
    table = _read_lines(ratings, spec.separators[0], ("user", "movie", "stars", "time"))
    movies, columns = np.unique(table["movie"], return_inverse=True)
    matrix = np.zeros((len(people), len(movies)), dtype=np.uint8)
    matrix[np.searchsorted(people["user"], table["user"]), columns] = table["stars"]
    return matrix, demographics


def made_up_ratings(users: int = 2000, movies: int = 300, seed: int = 0) -> MovieLens:
    """Draw a small matrix of ratings from a latent-factor model, for tests and quick runs.

    Users differ in activity and movies in popularity (both log-normal); four factors of taste
    decide what is watched and how it is liked.  Gender follows the first factor a little; age
    and occupation say nothing.
    """
    whole("users", users, 2)
    whole("movies", movies, 2)
    rng = Streams(seed).generator("movielens", "made-up")
    taste, kind = rng.normal(size=(users, 4)), rng.normal(size=(movies, 4)) / 2
    affinity = taste @ kind.T
    activity = rng.normal(-2.7, 0.8, size=(users, 1))
    popularity = rng.normal(0.0, 1.0, size=(1, movies))
    chance = 1 / (1 + np.exp(-(activity + popularity + 0.5 * affinity)))
    rated = rng.random((users, movies)) < chance
    stars = np.clip(np.rint(3.4 + affinity + rng.normal(0, 0.7, affinity.shape)), 1, 5)
    gender = rng.random(users) < 1 / (1 + np.exp(-taste[:, 0]))
    age, work = rng.choice(AGE_BANDS, size=users), rng.integers(0, 6, size=users)
    demographics = np.column_stack([gender, age, work]).astype(np.int64)
    return MovieLens("made-up", (rated * stars).astype(np.uint8), demographics)


def get_ratings(name: str, folder: Path) -> str:
    """Download an official archive of GroupLens; it is read as it is, without unpacking."""
    url = f"https://files.grouplens.org/datasets/movielens/{name}.zip"
    try:
        with urllib.request.urlopen(url, timeout=60.0) as answer:
            content = answer.read()
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if md5 != RATINGS[name].md5:
            raise OSError(f"it came with md5 {md5}, and {RATINGS[name].md5} is published")
        write_bytes(folder / f"{name}.zip", content)
    except OSError as error:
        raise not_fetched(name, folder, error, f"{url} (its README has the licence)") from error
    return f"{name}.zip"
