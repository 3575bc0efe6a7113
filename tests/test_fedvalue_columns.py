"""A party's own columns, read from files, good and bad."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("httpx")

from fedkit.fedvalue.columns import read_columns
from fedkit.fedvalue.data import discretise
from fedkit.fedvalue.service.parties import cells_of


def test_columns_from_csv_and_npz(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\ufeffid,age,town,label\n007,3.5,Ulm,yes\n7,,,no\nNA,1e3,Bonn,no\n", "utf-8")
    found = read_columns(file, label="label")
    assert found.ids == ["007", "7", "NA"]
    assert found.names == ("age", "town")
    assert found.y is not None
    assert found.y.tolist() == ["yes", "no", "no"]
    assert cells_of(found, 5, "width", "own", "a").tolist() == [0, 2, 1]
    assert read_columns(file, columns=["town"]).names == ("town",)
    nothing = read_columns(file, label="label", columns=[], min_columns=0)
    assert cells_of(nothing, 5, "width", "own", "a").tolist() == [0, 0, 0]
    packed = tmp_path / "a.npz"
    np.savez(packed, id=np.array([7, 8]), age=np.array([1.5, 2.5]))
    assert read_columns(packed).ids == ["7", "8"]
    assert read_columns(packed).x["age"].tolist() == [1.5, 2.5]


def test_ids_that_pandas_would_take_for_missing(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,a\nNA,NA\nnull,1\nnan,2\nNone,\n"01",3\n', "utf-8")
    found = read_columns(file)
    assert found.ids == ["NA", "null", "nan", "None", "01"]
    assert found.x["a"].isna().tolist() == [True, False, False, True, False]
    file.write_text("a,id\n1,x\n2,\n", "utf-8")
    with pytest.raises(ValueError, match="id of row 2 is ''; it is empty"):
        read_columns(file)
    file.write_text("a,id\n1,x\n2\n", "utf-8")  # the row is too short
    with pytest.raises(ValueError, match="id of row 2 is "):
        read_columns(file)
    packed = tmp_path / "a.npz"
    for bad, words in ((np.array([1, np.nan]), "row 1 is 1.0"), (np.array([True, False]), "True")):
        np.savez(packed, id=bad, a=np.arange(2))
        with pytest.raises(ValueError, match=f"{words}; expected text or a whole number"):
            read_columns(packed)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "not a CSV file"),
        ("id,a\n", {}, "has no rows"),
        ("id\n1\n", {}, "has no features"),
        ("key,a\n1,2\n", {}, "no column 'id'; it has key, a: name one of these, or write"),
        ("id,a\n1,2\n", {"label": "y"}, "no column 'y'"),
        ("id,a\n1,2\n", {"columns": ["b"]}, "no column 'b'"),
        ("id,a\n1,2\n", {"columns": ["a", "a"]}, "asked for twice"),
        ("id,a\n1,2\n", {"columns": ["id"]}, "are not features"),
        ("id,a,a\n1,2,3\n", {}, "two columns named 'a'"),
        ("id,a\n1,2\n2,3\n1,4\n", {}, r"'1' comes twice \(row 3\)"),
        ("id,a\n1,2\n,3\n", {}, "row 2 is ''"),
        ("id,a\n1,2\n 2,3\n", {}, "row 2 is ' 2'"),
        ("id,a,y\n1,2,x\n2,3,\n", {"label": "y"}, "no label in row 2"),
        ("id,a,y\n1,2,x\n2,3,x\n", {"label": "y"}, "has the one value x in all 2 rows"),
        ("id,a,y\n1,2,0.5\n2,3,7\n", {"label": "y"}, r"'y' of .* is continuous, .* as 0\.5"),
        ("id;a\n1;2,5\n", {}, "has ';' between its columns; save it with commas"),
        ("id\ta\n1\t2\n", {}, "between its columns"),
        ('id,a\n1,"2\n', {}, "not a CSV file"),
        ("id,a\n1,2\n3,4,5\n", {}, "not a CSV file"),
        ("id,a\n1,2,3\n4,5\n", {}, "more fields than there are names"),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, text: str, options: dict[str, Any], words: str
) -> None:
    file = tmp_path / "a.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=words):
        read_columns(file, **options)


def test_binary_files_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,a\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="UTF-8"):
        read_columns(tmp_path / "a.csv")
    packed = tmp_path / "a.npz"
    packed.write_bytes(b"id,a\n1,2\n")
    with pytest.raises(ValueError, match=r"not an \.npz file"):
        read_columns(packed)
    np.savez(packed, id=np.arange(3), a=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="one array per column"):
        read_columns(packed)
    np.savez(packed, id=np.arange(3), a=np.array([{}, 1, 2], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="plain arrays"):
        read_columns(packed)
    with pytest.raises(OSError, match="none"):
        read_columns(tmp_path / "none.csv")


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
@pytest.mark.parametrize("how", ["width", "quantile"])
def test_whole_numbers_too_large_for_floats_keep_their_bins(kind, how):
    small = np.arange(40).astype(kind)
    codes = discretise(small[:, None], 5, how=how)
    for offset in (2**60, 1_700_000_000_000_000_000):
        large = (small + kind(offset))[:, None]
        np.testing.assert_array_equal(discretise(large, 5, how=how), codes)
    assert len(np.unique(codes)) == 5


def test_the_largest_range_of_whole_numbers_does_not_overflow():
    ends = np.array([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1])[:, None]
    assert discretise(ends, 5).ravel().tolist() == [0, 2, 2, 2, 2, 2, 4]


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(",id,a\n0,x,1\n1,y,2\n", "utf-8")
    with pytest.raises(ValueError, match=r"column 1 of .* has no name; it may be row numbers"):
        read_columns(file)
