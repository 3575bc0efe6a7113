"""Vertical data: binning, joint cells, PCA, and every kind of bad input."""

import doctest
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusals, refused
from scipy import sparse

from fedkit.columnfiles import read_columns
from fedkit.fedvalue import columns as module
from fedkit.fedvalue.columns import VerticalData, discretise, joint_codes, pca
from fedkit.fedvalue.information import cmi_game, entropy, mshapley_cmi
from fedkit.streams import Streams

TEN = np.arange(10)
HIDDEN = [False, True, False]
TIED = np.r_[np.full(850, 9.0), np.arange(150) / 20]
FRAME = pd.DataFrame({
    "n": np.linspace(0, 1, 6), "t": list("xyxyxz"), "b": [True, False] * 3,
    "category": pd.Categorical(range(6)),
})  # fmt: skip


@pytest.mark.parametrize(
    ("x", "options", "codes"),
    [
        ([0.0, 0.9, 1.0, 2.5, 4.9, 5.0, 10.0], {}, [0, 0, 0, 1, 2, 2, 4]),
        ([0.0, 0.9, 1.0, 2.5, 4.9, 5.0, 10.0], {"bins": 2, "how": "quantile"}, [0] * 4 + [1] * 3),
        # ties at either end are a bin of their own
        (TIED, {"how": "quantile"}, np.r_[[1] * 850, [0] * 150]),
        (-TIED, {"how": "quantile"}, np.r_[[0] * 850, [1] * 150]),
        # what keeps its levels
        (np.array([True, False, True]), {}, [1, 0, 1]),
        (list("bacdef"), {}, [1, 0, 2, 3, 4, 5]),
        ([0, 100, 1, 100], {}, [0, 2, 1, 2]),  # few
        (TEN, {}, TEN // 2),
        (TEN, {"discrete": True}, TEN),
        ([1.0, 2.0, 9.0], {"discrete": False}, [0, 0, 4]),
        (np.stack([TEN, TEN], axis=1), {"discrete": [True, False]}, np.stack([TEN, TEN // 2]).T),
        (FRAME, {}, [[0, 0, 1, 0], [1, 1, 0, 1], [2, 0, 1, 2], [3, 1, 0, 3], [4, 0, 1, 4],
                     [4, 2, 0, 5]]),
        # what is missing is a level of its own
        ([[0.0, np.nan], [np.nan, np.nan], [1.0, np.nan]], {}, [[0, 0], [2, 0], [1, 0]]),
        (np.r_[np.linspace(0, 1, 9), np.nan], {}, [0, 0, 1, 1, 2, 3, 3, 4, 4, 5]),
        (np.array(["a", None, "b", float("nan")], dtype=object), {}, [0, 2, 1, 2]),
        (pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int64")}), {}, [[0], [2], [1]]),
        (np.ma.array([0.5, 999.0, 0.75], mask=HIDDEN), {}, [0, 2, 1]),
        (np.ma.array(["b", "x", "a"], mask=HIDDEN), {}, [1, 2, 0]),
        # large whole numbers, and the largest of all
        (np.array([2**60, 2**60 + 1, None], dtype=object), {}, [0, 1, 2]),
        ((TEN - 4.5) * 3.8e307, {}, TEN // 2),
        (np.arange(6) + 2**62, {}, [0, 1, 2, 3, 4, 4]),
        (torch.nn.Linear(1, 1)(torch.zeros(3, 1)), {}, np.zeros((3, 1))),
    ],
)  # fmt: skip
def test_what_a_column_becomes(x, options, codes):
    assert discretise(x, **options).tolist() == np.asarray(codes).tolist()


@pytest.mark.parametrize("bins", [5, 22, 23, 26])
def test_whole_numbers_on_an_edge_belong_above_it(bins):
    assert discretise(np.arange(bins + 1), bins).tolist() == [*range(bins), bins - 1]


@pytest.mark.parametrize("bins", [3, 5, 10])
@pytest.mark.parametrize(("unit", "zero"), [(0.01, 0.0), (0.1, 0.3), (2.54, -17.0), (1e-9, 0)])
def test_another_unit_leaves_bins_as_they_are(bins, unit, zero):
    x = np.random.default_rng(bins).integers(150, 201, size=500)
    for how in ("width", "quantile"):
        assert discretise(unit * x + zero, bins, how).tolist() == discretise(x, bins, how).tolist()


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=40),
    st.integers(1, 7),
    st.sampled_from(["width", "quantile"]),
)
def test_bins_are_intervals_in_order(values, bins, how):
    x = np.array(values)
    codes = discretise(x, bins, how)
    assert codes.min() >= 0
    assert codes.max() < bins or len(np.unique(x)) <= bins
    assert (np.diff(codes[np.argsort(x, kind="stable")]) >= 0).all()


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from([0, 1, 2, -7, 10**15]), min_size=n, max_size=n),
            min_size=1, max_size=5,
        )
    )
)  # fmt: skip
def test_joint_codes_are_dense_and_tell_rows_apart(columns):
    codes = joint_codes(*map(np.array, columns))
    rows = list(zip(*columns, strict=True))
    assert set(codes.tolist()) == set(range(len(set(rows))))
    assert len({*zip(codes.tolist(), rows, strict=True)}) == len(set(rows))
    assert np.array_equal(codes, joint_codes(np.array(columns).T))
    assert np.array_equal(codes, joint_codes(np.zeros((len(rows), 0), dtype=int), *columns))


Y = np.array([0, 1, 0, 1])
X = np.array([[0.1], [0.2], [0.3], [0.4]])
DAYS = pd.Series(pd.date_range("2020-01-01", periods=9))


def of(*arguments):
    return lambda: VerticalData(*arguments)


def binned(x, **options):
    return lambda: discretise(x, **options)


test_what_is_refused = refusals(
    (lambda: joint_codes(), "at least one column of at least one row"),
    (lambda: joint_codes([]), "at least one column of at least one row"),
    (lambda: joint_codes([0, 1], [0, 1, 2]), "3 rows and the first 2"),
    (lambda: joint_codes([0.5, 1.0]), "codes are float64"),
    (of(None, Y, []), "no data parties"),
    (of(X, Y, [X, X[:3]]), "party 2 has 3 rows, y 4"),
    (of(X, Y[:0], [X]), "one at least"),
    (of(X, Y[:, None], [X]), "y has shape \\(4, 1\\)"),
    (of(X, Y, [X], [[1, 2, 3, 4], [1, 2, 2, 4]]), "party 1's ids are not one different ID"),
    (of(X, Y, [X], [[1, 2, 3, 4]] * 3), "expected 2 lists"),
    (of(X, Y, [X], [["1", "2", "3", "4"], [1, 2, 3, 4]]), "write the IDs alike"),
    (of(X, Y, [X], [[1.0, np.nan, 3, 4]] * 2), "ID nan in row 1"),
    (of(X, np.ma.array(Y, mask=[1, 0, 0, 0]), [X]), "y is missing in 1 of 4 rows"),
    (of(X, pd.Series([1, np.nan, 0, 1], name="paid"), [X]), "label 'paid' is missing in 1"),
    (of(X, Y, X), "parties is one ndarray; pass a list with one array"),
    (of(None, Y, [X], None, [None, [True, False]]), "each of the 1 columns of party 1"),
    (binned(np.zeros((0, 2))), "x has shape \\(0, 2\\)"),
    (binned(np.zeros((2, 2, 2))), "x has shape \\(2, 2, 2\\)"),
    (binned(sparse.eye(4).tocsr()), "not sparse"),
    (binned(np.array([1.0, np.inf])), "column 0 of x holds an infinite value"),
    (binned(np.array([1.0, np.nan]), missing="refuse"), "column 0 of x lacks 1 of 2 values"),
    (binned(pd.DataFrame({"a": ["x", "y"]}), discrete=False), "'a' of x holds text.*no bins"),
    (binned(pd.DataFrame({"a": [[1], [2]]})), "column 'a' of x holds int64\\[1\\]"),
    (binned(DAYS.to_frame("day")), "column 'day' of x holds datetime64"),
    (binned(DAYS.dt.date.to_frame("day")), "column 'day' of x holds object"),
)


def test_frames_in_another_order_are_refused_unless_ids_speak():
    frame = pd.DataFrame({"a": range(6), "b": [1.5, 2, 3, 3, 1, 0]}, index=list("abcdef"))
    label = pd.Series([0, 1, 0, 1, 1, 0], index=frame.index)
    shuffled = frame[["b"]].sample(frac=1, random_state=0)
    for arguments in (
        (frame[["a"]], label, [shuffled]),
        (None, label, [shuffled]),
        (None, label.to_numpy(), [frame["a"], shuffled]),
    ):
        refused("have different indexes; align them", mshapley_cmi, *arguments)
    VerticalData(frame[["a"]], label, [frame[["b"]], np.arange(6)])
    ids = list("abcdef")
    with pytest.raises(ValueError, match=r"party 1 has ID .* where the task party has"):
        VerticalData(frame[["a"]], label, [shuffled], ids=[ids, shuffled.index])
    VerticalData(frame[["a"]], label, [shuffled], ids=[ids, ids])


def test_a_label_that_can_hardly_be_meant_is_warned_of():
    x = np.arange(40) % 3
    with pytest.warns(UserWarning, match="y is the same in all 40 rows"):
        assert mshapley_cmi(None, np.ones(40), [x]).values == pytest.approx([0])
    with pytest.warns(UserWarning, match="y has 9 levels in 40 rows: is it an amount, or an ID"):
        VerticalData(None, np.arange(40) % 9, [x])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VerticalData(None, np.arange(40) % 8, [x])
        VerticalData(None, np.arange(5), [np.arange(5)])


def test_a_party_with_hardly_a_row_in_a_cell_is_warned_of():
    r = np.random.default_rng(0)
    y, own = r.integers(2, size=500), r.normal(size=(500, 8))
    with pytest.warns(UserWarning, match="task party's columns make 490 cells of 500 rows"):
        assert mshapley_cmi(own, y, {"knows the label": y}).values[0] < 0.02
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mshapley_cmi(own[:, :3], y, [y]).values[0] > 0.3
        VerticalData(np.arange(8), y[:8], [y[:8]]).codes(bins=8)
    with pytest.warns(UserWarning, match="bank's columns make 500 cells of 500 rows"):
        VerticalData(None, y, {"bank": [f"town {i}" for i in range(500)]}).codes()


def test_parties_as_a_dict_and_levels_that_are_kept():
    """Row numbers 0 to 39 as one column: forty levels if they are kept, else five bins."""
    y, months = np.arange(40) % 2, np.arange(40)
    offers = {"bank": months, "shop": pd.DataFrame({"a": months, "b": months})}
    data = VerticalData(None, y, offers, ids=[range(40)] * 3, discrete=[None, True, [False, True]])
    assert data.names == ("bank", "shop")
    assert [len(np.unique(code)) for code in data.codes()[2]] == [40, 40]
    plain = VerticalData(None, y, offers)
    assert [len(np.unique(code)) for code in plain.codes()[2]] == [5, 5]
    found = mshapley_cmi(data)
    assert found.names == ("bank", "shop")
    assert found.values == pytest.approx([entropy(y) / 2] * 2)
    assert cmi_game(data)([[1, 0]])[0] == pytest.approx(entropy(y))
    assert mshapley_cmi(None, y, offers).values.tolist() == mshapley_cmi(plain).values.tolist()
    for beside in ({"y": y}, {"parties": offers}):
        refused("nothing beside it", mshapley_cmi, data, **beside)


def test_the_example_in_the_docstring():
    found = doctest.testmod(module, extraglobs={"np": np})
    assert found.attempted == 4
    assert found.failed == 0


def test_rules_for_what_is_odd_and_no_error():
    """Constant and empty columns are worth 0; one label leaves nothing to tell."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), rng.integers(2, size=40)
    constant, nothing = np.full((40, 2), 3.0), np.full((40, 1), np.nan)
    for correction in ("plugin", "miller-madow", "permutation"):
        result = mshapley_cmi(x[:, :1], y, [constant, nothing, x], correction=correction)
        assert result.values[:2] == pytest.approx([0, 0], abs=1e-15)
        one_label = mshapley_cmi(x[:, :1], np.zeros(40), [x], correction=correction)
        assert one_label.values[0] == pytest.approx(0, abs=1e-15)
        assert one_label.task_value == pytest.approx(0, abs=1e-15)
        single = mshapley_cmi(x[:1], y[:1], [x[:1]], correction=correction)
        assert single.values[0] == pytest.approx(0, abs=1e-15)
    # far more cells than rows: values stay within what there is to know
    wide = [rng.normal(size=(40, 6)) for _ in range(4)]
    result = mshapley_cmi(x, y, wide)
    assert result.values.sum() + result.task_value == pytest.approx(entropy(y))
    missing = x.copy()
    missing[rng.random((40, 2)) < 0.3] = np.nan
    assert mshapley_cmi(None, y, [missing]).values[0] > 0


@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
def test_pca_keeps_the_largest_spread_with_fixed_signs(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) * np.linspace(5, 1, shape[1]) + 3
    right = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2]
    right *= np.sign(np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], 1))
    assert pca(x, 3) == pytest.approx((x - x.mean(axis=0)) @ right[:3].T, abs=1e-9)


def frame_of(n=20):
    rng = Streams(0).generator("frame")
    return pd.DataFrame({
        "id": [f"u{i}" for i in range(n)], "age": rng.integers(20, 60, n),
        "debt": rng.integers(0, 3, n), "y": np.arange(n) % 2,
    })  # fmt: skip


def test_join_keeps_common_rows_in_the_task_partys_order():
    frame = frame_of()
    bank = frame[["id", "debt"]].iloc[3:].sample(frac=1, random_state=1)
    with pytest.warns(UserWarning, match="17 rows are common .* left out are task: 3$"):
        data = VerticalData.join(frame[["id", "age", "y"]], {"bank": bank}, on="id", label="y")
    assert data.ids.tolist() == frame.id[3:].tolist()
    assert data.parties[0].debt.tolist() == frame.debt[3:].tolist()
    assert data.y.tolist() == frame.y[3:].tolist()
    assert data.x_task.columns.tolist() == ["age"]


@pytest.mark.parametrize("keys", [{"task": "id", "bank": "customer", "telco": "id"}, None])
def test_frames_with_a_key_of_another_name_each(keys):
    frame = frame_of()
    # a column that is called as another party's key is a feature like any other
    bank = frame[["id", "debt"]].rename(columns={"id": "customer"}).assign(id=range(20))
    parties = {"bank": bank.sample(frac=1, random_state=2), "telco": frame[["id", "age"]]}
    given = {"keys": keys} if keys else {"on": "id", "keys": {"bank": "customer"}}
    data = VerticalData.join(frame[["id", "y"]], parties, label="y", **given)
    assert data.ids.tolist() == frame.id.tolist()
    assert data.parties[0].columns.tolist() == ["debt", "id"]
    assert data.parties[0].debt.tolist() == frame.debt.tolist()


@pytest.mark.parametrize(
    ("task", "bank", "options", "sentence"),
    [
        ({}, {}, {"on": None}, "expected its IDs, as keys={'task': None} names them"),
        ({}, {"drop": "id"}, {}, "bank has the columns debt; expected its IDs, as .*'bank': 'id'"),
        ({"drop": "y"}, {}, {}, "task has the columns id; expected .* and the label 'y'"),
        ({"id": "u1"}, {}, {}, "stands twice"),
        ({}, {"id": [None, *range(19)]}, {}, "bank has rows without a 'id'"),
        ({}, {"id": range(20)}, {}, "no ID stands with every party"),
        ({}, {"y": 0}, {}, "bank has the columns id, debt, y; .* with the task party alone"),
        ({}, {}, {"parties": ["debt"]}, "expected frames by name"),
    ],
)
def test_frames_that_cannot_be_joined(task, bank, options, sentence):
    def changed(frame, drop=None, **columns):
        return frame.drop(columns=drop or []).assign(**columns)

    own, other = frame_of()[["id", "y"]], frame_of()[["id", "debt"]]
    given = {"on": "id", "label": "y", "parties": {"bank": changed(other, **bank)}} | options
    refused(sentence, VerticalData.join, changed(own, **task), **given)


# ------------------------------------------------------------------------------ files


def test_columns_from_a_file(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('\ufeffid,age,town,label\n007,3.5,Ulm,yes\n"7",,,no\nNA,1e3,NA,no\n', "utf-8")
    ids, x, y = read_columns(file, label="label")
    assert ids == ["007", "7", "NA"]  # pandas would take the last for missing
    assert x["town"].isna().tolist() == [False, True, True]
    assert y.tolist() == ["yes", "no", "no"]
    assert joint_codes(discretise(x)).tolist() == [0, 2, 1]
    assert list(read_columns(file, columns=["town"])[1]) == ["town"]
    nothing = read_columns(file, label="label", columns=[])[1]
    assert joint_codes(discretise(nothing)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "no CSV file"),
        ('id,a\n1,"2\n', {}, "no CSV file"),
        ("id,a\n1,2,3\n4,5\n", {}, "no CSV file"),
        ("id,a\n", {}, "columns id, a of 0 rows"),
        ("id\n1\n", {}, "two or more different ones of id"),
        ("key,a\n1,2\n", {}, "columns id, key, a of 1 rows; expected .* ones of key, a"),
        ("id;a\n1;2\n", {}, "different ones of id;a"),
        ("id,a\n1,2\n", {"columns": ["a", "a"]}, "columns id, a, a of"),
        ("id,a\n1,2\n", {"label": "id"}, "columns id, id, a of"),
        (",id,a\n0,x,1\n", {}, "a column without a name"),
        ("id,a\n1,2\n,3\n", {}, "the id of row 2 is empty"),
        ("id,a\n1,2\n 2,3\n", {}, "the id of row 2 is empty, or padded"),
    ],
)
def test_files_that_are_refused(tmp_path, text, options, words):
    file = tmp_path / "a.csv"
    file.write_text(text, "utf-8")
    refused(words, read_columns, file, **options)
