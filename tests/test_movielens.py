"""MovieLens in its official layouts, from tiny files that are made up here."""

import hashlib
import io
import urllib.error
import urllib.request
import zipfile
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from refusals import refused

from fedkit import datasets as data
from fedkit.datasets import ratings

FILES = {
    "ml-1m": {
        # users out of order, a movie number that nobody rated (2), years of age in bands
        "users.dat": b"3::M::25::15::55117\n1::F::1::10::48067\n2::M::56::16::70072-1234\n",
        "ratings.dat": b"1::7::5::978300760\n3::1::2::978302109\n1::1::4::0\n2::7::1::0\n",
        "movies.dat": "1::Caf\xe9 (1995)::Comedy\n".encode("latin-1"),
    },
    "ml-100k": {
        "u.user": b"1|24|M|technician|85711\n2|7|F|artist|94043\n3|61|F|technician|V3N4P\n",
        "u.data": b"1\t1\t4\t881250949\n1\t7\t5\t891717742\n2\t7\t1\t878887116\n3\t1\t2\t88\n",
    },
}


@pytest.fixture(autouse=True)
def editions_of_three_users(monkeypatch):
    for name, fingerprint in (("ml-1m", "01632a5f98011c2b"), ("ml-100k", "c6a4e7b5411d628f")):
        changed = replace(ratings.RATINGS[name], size=(4, 3), fingerprint=fingerprint)
        monkeypatch.setitem(ratings.RATINGS, name, changed)


def place(folder, name, **changed):
    (folder / name).mkdir()
    for file, content in {**FILES[name], **changed}.items():
        (folder / name / file).write_bytes(content)
    return folder


def test_both_editions_are_read(tmp_path):
    matrix = [[4, 5], [0, 1], [2, 0]]  # users 1, 2, 3; movies 1 and 7
    large = data.load_movielens("ml-1m", place(tmp_path, "ml-1m"))
    assert large.ratings.dtype == np.uint8
    assert large.ratings.tolist() == matrix
    assert large.demographics.tolist() == [[0, 1, 10], [1, 56, 16], [1, 25, 15]]
    small = data.load_movielens("ml-100k", place(tmp_path, "ml-100k"))
    assert small.ratings.tolist() == matrix
    # ages 24, 7, 61 in the bands of the 1M edition; occupations numbered by name
    assert small.demographics.tolist() == [[1, 18, 1], [0, 1, 0], [0, 56, 1]]
    assert large.fingerprint != small.fingerprint


def test_the_official_archive_is_read_as_it_is(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
        for file, content in FILES["ml-1m"].items():
            archive.writestr(f"ml-1m/{file}", content)
    monkeypatch.setenv("FEDKIT_DATA", str(tmp_path))
    zipped = data.load_movielens("ml-1m")
    assert zipped.source == "ml-1m.zip"
    unpacked = data.load_movielens("ml-1m", place(tmp_path, "ml-1m"))
    assert zipped.fingerprint == unpacked.fingerprint
    (tmp_path / "ml-1m").rename(tmp_path / "aside")
    (tmp_path / "ml-1m.zip").write_bytes(b"PK but not a zip")
    with pytest.raises(data.DamagedDataError, match="expected the official files"):
        data.load_movielens("ml-1m")


def test_altered_files_are_refused_and_may_be_meant(tmp_path):
    altered = FILES["ml-1m"]["ratings.dat"].replace(b"1::7::5", b"1::7::4")
    place(tmp_path, "ml-1m", **{"ratings.dat": altered})
    with pytest.raises(
        data.DamagedDataError, match="expected 4 ratings by 3 users, of fingerprint"
    ):
        data.load_movielens("ml-1m", tmp_path)
    assert data.load_movielens("ml-1m", tmp_path, verify=False).ratings[0].tolist() == [4, 4]
    (tmp_path / "ml-1m/ratings.dat").write_bytes(altered[:30])
    with pytest.raises(data.DamagedDataError, match="found 2 ratings by 3 users"):
        data.load_movielens("ml-1m", tmp_path)


@pytest.mark.parametrize("name", ["ml-1m", "ml-100k"])
def test_an_edition_that_is_there_is_the_known_one(name, monkeypatch):
    monkeypatch.undo()
    if data.find(name) is None:
        pytest.skip(f"{name} is not on this machine")
    held = data.load_movielens(name)
    assert held.fingerprint == ratings.RATINGS[name].fingerprint


def test_missing_data_say_how_to_get_them(tmp_path):
    with pytest.raises(data.MissingDataError, match=r"ml-1m\.zip.*data get ml-1m"):
        data.load_movielens("ml-1m", tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("ratings.dat", b"1::1::6::0\n"),
        ("ratings.dat", b"1::1::x::0\n"),
        ("ratings.dat", b"9::1::4::0\n"),
        ("ratings.dat", b""),
        ("users.dat", b"1::F::1\n"),
    ],
)
def test_damaged_files_are_refused(tmp_path, file, content):
    place(tmp_path, "ml-1m", **{file: content})
    with pytest.raises(data.DamagedDataError, match="is damaged: expected"):
        data.load_movielens("ml-1m", tmp_path)


def test_fetch_checks_what_comes_and_leaves_nothing_behind(tmp_path, monkeypatch):
    urlopen = Mock(return_value=io.BytesIO(b"something else"))
    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    refused("is published", data.get, "ml-100k", tmp_path, error=data.DownloadError)
    assert list(tmp_path.iterdir()) == []
    assert urlopen.call_args.args == ("https://files.grouplens.org/datasets/movielens/ml-100k.zip",)
    urlopen.side_effect = urllib.error.URLError("no network")
    refused(r"no network.*by hand", data.get, "ml-1m", tmp_path, error=data.DownloadError)

    content = b"the archive"
    good = hashlib.md5(content).hexdigest()
    changed = replace(ratings.RATINGS["ml-1m"], md5=good)
    monkeypatch.setitem(ratings.RATINGS, "ml-1m", changed)
    urlopen.side_effect, urlopen.return_value = None, io.BytesIO(content)
    assert (tmp_path / data.get("ml-1m", tmp_path)).read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["ml-1m.zip"]


def test_made_up_ratings_are_of_the_seed_and_hold_taste():
    one, same, other = data.made_up_ratings(), data.made_up_ratings(), data.made_up_ratings(seed=1)
    assert one.fingerprint == same.fingerprint != other.fingerprint
    assert 0.02 < (one.ratings > 0).mean() < 0.3
    assert set(np.unique(one.ratings)) == {0, 1, 2, 3, 4, 5}
    # two halves of the movies know the same about a user
    liked = (one.ratings >= 4).astype(float)
    halves = np.corrcoef(liked[:, ::2].sum(axis=1), liked[:, 1::2].sum(axis=1))[0, 1]
    assert halves > 0.5


@pytest.mark.parametrize(
    ("stars", "people", "why"),
    [
        (np.zeros((2, 3)), 2, "uint8"),
        (np.full((2, 3), 6, dtype=np.uint8), 2, "stars up to 5"),
        (np.ones((2, 3), dtype=np.uint8), 1, "of each user"),
    ],
)
def test_a_made_up_matrix_is_checked(stars, people, why):
    refused(why, data.MovieLens, "x", stars, np.zeros((people, 3), dtype=np.int64))
