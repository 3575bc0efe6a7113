"""The tables of FedValue's evaluation: found, checked, fetched, and refused when they are wrong."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
from refusals import refused

import fedkit
from fedkit import datasets as data


@pytest.mark.parametrize("name", data.TABLES)
def test_a_table_that_is_there(name):
    if data.find(name) is None:
        pytest.skip(f"table {name} is not on this machine")
    table = data.load_table(name)
    assert (data.TABLES[name].content or table.content) == table.content
    kept = [f for f, d in zip(table.features, table.discrete, strict=True) if d]
    if name == "credit":
        assert kept[:3] == ["SEX", "EDUCATION", "MARRIAGE"]
        assert [k[:4] for k in kept[3:]] == ["PAY_"] * 6
    else:
        assert len(kept) == (22 if name == "spect" else 0)
    assert "length" not in table.features


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Two small tables in the files of Parkinsons and SPECT."""
    with_names = replace(
        data.TABLES["parkinsons"], features=3, counts=(2, 3), discrete=(2,),
        fingerprint="d23f0d1a89a6e99f",
    )  # fmt: skip
    without = replace(
        data.TABLES["spect"], features=2, counts=(2, 2), discrete=range(2),
        fingerprint="a291b30c0de57f8b",
    )  # fmt: skip
    monkeypatch.setitem(data.TABLES, "parkinsons", with_names)
    monkeypatch.setitem(data.TABLES, "spect", without)
    folder = tmp_path / "uci"
    folder.mkdir()
    (folder / "parkinsons.data").write_text(
        "name,a,status,b,c\np1,1.5,1,2,0\np2,1,0,2,1\np3,0,1,7,0\np4,4,1,2,1\np5,1,0,3,1\n"
    )
    (folder / "SPECT.train").write_text("1,0,1\n0,1,1\n")
    (folder / "SPECT.test").write_text("0,0,0\n1,1,0\n")
    return tmp_path


def test_label_and_names_are_taken_out(tiny):
    table = data.load_table("parkinsons", tiny)
    assert table.features == ("a", "b", "c")
    assert table.y.tolist() == [1, 0, 1, 1, 0]
    assert table.x[2].tolist() == [0, 7, 0]
    assert table.discrete.tolist() == [False, False, True]
    assert table.source == "uci/parkinsons.data"
    table = data.load_table("spect", tiny)  # of two files, one below the other
    assert table.y.tolist() == [1, 0, 0, 1]
    assert table.x.tolist() == [[0, 1], [1, 1], [0, 0], [1, 0]]
    assert table.classes == ("0", "1")


def test_the_fingerprint_is_of_the_values(tiny):
    before = data.load_table("parkinsons", tiny).fingerprint
    file = tiny / "uci/parkinsons.data"
    file.write_text(file.read_text().replace("1.5", "1.50"))
    assert data.load_table("parkinsons", tiny).fingerprint == before
    file.write_text(file.read_text().replace("1.50", "1.51"))
    assert data.load_table("parkinsons", tiny, verify=False).fingerprint != before
    with pytest.raises(data.DamagedDataError, match=f"values of fingerprint {before}, found"):
        data.load_table("parkinsons", tiny)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("p5,1,0,3,1\n", "", r"\(5, 3\) rows and features .* found \(4, 3\)"),
        ("p5,1,0,3,1", "p5,1,1,3,1", r"\(2, 3\) rows per class, found .* \(1, 4\)"),
        ("p5,1,0,3,1", "p5,1,0,,1", "found .* with 1 gaps"),
        ("p5,1,0,3,1", "p5,1,0,x,1", "found could not convert"),
        ("p5,1,0,3,1", "p5,1,0,3,1,9", "found Error tokenizing"),
        ("status", "state", "a column 'status'"),
    ],
)
def test_damaged_files_are_refused(tiny, old, new, words):
    file = tiny / "uci/parkinsons.data"
    file.write_text(file.read_text().replace(old, new))
    refused(words, data.load_table, "parkinsons", tiny, error=data.DamagedDataError)


def test_missing_tables_say_how_to_get_them(tmp_path):
    with pytest.raises(
        data.MissingDataError, match=r"SPECT\.train and uci/SPECT\.test.*data get spect"
    ):
        data.load_table("spect", tmp_path)
    with pytest.raises(data.MissingDataError, match=r"GTZAN Dataset.*Kaggle"):
        data.load_table("music", tmp_path)
    refused(r"has no download.*Kaggle", data.get, "music", tmp_path, error=data.DownloadError)
    assert data.find("credit", tmp_path) is None
    assert data.get("wine", tmp_path) == "embedded in scikit-learn"


def test_a_table_is_fetched_checked_and_read_again(tiny, monkeypatch):
    ucimlrepo = pytest.importorskip("ucimlrepo")
    file = tiny / "uci/parkinsons.data"
    frame = pd.read_csv(file)
    file.unlink()
    answer = SimpleNamespace(original=frame[:4], targets=frame[["status"]][:4], ids=frame[["name"]])
    fetch = Mock(return_value=SimpleNamespace(data=answer))
    monkeypatch.setattr(ucimlrepo, "fetch_ucirepo", fetch)
    refused(r"\(5, 3\) rows and features", data.get, "parkinsons", tiny, error=data.DownloadError)
    fetch.side_effect = ConnectionError("Error connecting to server")
    with pytest.raises(data.DownloadError, match=r"Error connecting.*place uci/parkinsons\.data"):
        data.get("parkinsons", tiny)
    assert sorted(f.name for f in (tiny / "uci").iterdir()) == ["SPECT.test", "SPECT.train"]
    fetch.side_effect = None
    answer.original, answer.targets = frame, frame[["status"]]
    assert data.get("parkinsons", tiny) == "uci/parkinsons.csv"
    with pytest.warns(UserWarning, match="uci/parkinsons.csv holds other values than the copy"):
        table = data.load_table("parkinsons", tiny)
    assert table.features == ("a", "b", "c")
    assert table.y.tolist() == [1, 0, 1, 1, 0]
    fetch.side_effect = AssertionError("fetched again")
    with pytest.warns(UserWarning, match="other values"):
        assert data.get("parkinsons", tiny) == "uci/parkinsons.csv"
    known = replace(data.TABLES["parkinsons"], content=table.content)
    monkeypatch.setitem(data.TABLES, "parkinsons", known)
    fetched = tiny / "uci/parkinsons.csv"
    frame = pd.read_csv(fetched).sample(frac=1, random_state=0)[["c", "label", "b", "a"]]
    frame.to_csv(fetched, index=False)  # rows and columns in another order
    with warnings.catch_warnings(action="error"):
        moved = data.load_table("parkinsons", tiny)
    assert moved.fingerprint != table.fingerprint
    frame.assign(a=frame.a + (frame.index == 0)).to_csv(fetched, index=False)
    with pytest.warns(UserWarning, match="other values"):
        data.load_table("parkinsons", tiny)
    fetch.assert_called_with(id=174)


def test_the_loader_of_images_names_the_other_loaders():
    refused(r"no images; .*datasets\.load_table\('wine'\)", fedkit.load, "Wine")
    refused(r"fedkit\.datasets\.load_movielens\('ml-1m'\)", fedkit.load, "ml_1m")
