from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tinydata import RNG, idx, write_idx

from fedkit.datasets import catalogue as dataregistry
from fedkit.datasets import dataset as data
from fedkit.datasets import files as datafiles
from fedkit.datasets import layouts as datalayouts


@pytest.fixture
def mnist(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    return tmp_path, write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10)


def test_digits_are_embedded_and_split_by_class() -> None:
    digits = data.load("digits")
    assert digits.input_shape == (1, 8, 8)
    assert digits.n_classes == 10
    assert digits.x_train.dtype == torch.uint8
    assert digits.y_train.dtype == torch.int64
    assert len(digits.y_train) + len(digits.y_test) == 1797
    share = digits.y_test.bincount() / (digits.y_test.bincount() + digits.y_train.bincount())
    assert torch.all((share - 0.2).abs() < 0.01)
    assert data.load("digits").fingerprint == digits.fingerprint


def test_to_float_normalises_by_the_training_images() -> None:
    digits = data.load("digits")
    x = digits.to_float(digits.x_train)
    assert x.dtype == torch.float32
    assert abs(float(x.mean())) < 1e-4
    assert abs(float(x.std(unbiased=False)) - 1) < 1e-4
    test = digits.to_float(digits.x_test)
    raw = digits.x_train.double()
    expected = (digits.x_test.double() - raw.mean()) / raw.std(unbiased=False)
    np.testing.assert_allclose(test.numpy(), expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="expected uint8"):
        digits.to_float(x)


def test_colour_channels_have_their_own_moments() -> None:
    x = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    x[:, 1] = 7  # constant: its deviation counts as one
    x[2:, 2] = 10
    y = torch.zeros(4, dtype=torch.int64)
    mean, std = data.Dataset("x", x, y, x, y, ("a",), "made up").moments
    assert mean.tolist() == [0, 7, 5]
    assert std.tolist() == [1, 1, 5]


def test_idx_plain_and_gzipped(mnist: tuple[Path, dict[str, np.ndarray]]) -> None:
    root, arrays = mnist
    loaded = data.load("mnist", root, verify=False)
    assert loaded.x_train.shape == (30, 1, 5, 4)
    np.testing.assert_array_equal(loaded.x_train[:, 0].numpy(), arrays["x_train"])
    np.testing.assert_array_equal(loaded.y_test.numpy(), arrays["y_test"])
    assert loaded.source == "idx files in MNIST/raw"
    assert str(root) not in loaded.source + loaded.note


def test_altered_file_is_refused_with_both_digests(mnist: tuple[Path, dict]) -> None:
    with pytest.raises(data.DamagedDataError, match=r"expected md5 6bbc.*found md5 .*data get"):
        data.load("mnist", mnist[0])
    reports = data.verify("mnist", mnist[0])
    assert [r.status for r in reports] == ["damaged"] * 4


def test_right_digest_is_accepted_and_a_later_change_is_seen(
    mnist: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    root, _ = mnist
    layout = datalayouts.IdxLayout("MNIST/raw", "train", "t10k", 10)
    md5 = tuple(
        hashlib.md5(datafiles.read_bytes(path)).hexdigest()
        for path in layout.files(root).values()
        if path is not None
    )
    layout = datalayouts.IdxLayout("MNIST/raw", "train", "t10k", 10, md5)
    spec = dataregistry.SETS["mnist"]
    monkeypatch.setitem(
        dataregistry.SETS,
        "mnist",
        dataregistry.Spec(spec.title, spec.classes, spec.licence, spec.citation, (layout,)),
    )
    data.load("mnist", root)
    assert {r.status for r in data.verify("mnist", root)} == {"ok"}
    labels = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    content = bytearray(labels.read_bytes())
    content[-1] ^= 1
    labels.write_bytes(content)
    os.utime(labels, ns=(1, 1))
    with pytest.raises(data.DamagedDataError, match="t10k-labels"):
        data.load("mnist", root)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("train-images-idx3-ubyte.gz", lambda b: b[:-20], "a whole gzip file"),
        ("train-images-idx3-ubyte.gz", lambda b: b"nonsense" + b[8:], "a whole gzip file"),
        ("t10k-images-idx3-ubyte", lambda b: b[:-3], "240 bytes of data.*found 237"),
        ("t10k-images-idx3-ubyte", lambda b: b[:11], "header of 16 bytes, found 11"),
        ("t10k-images-idx3-ubyte", lambda b: b"", "header.*found 0 bytes"),
        ("t10k-labels-idx1-ubyte", lambda b: b"\x7f" + b[1:], "magic"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(np.arange(11) % 10), "expected 12 labels"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(np.arange(12)), "labels 0 to 9, found 0 to 11"),
        ("t10k-images-idx3-ubyte", lambda b: idx(np.arange(12)), "expected images"),
    ],
)
def test_damaged_idx(mnist: tuple[Path, dict], file: str, change, message: str) -> None:
    path = mnist[0] / "MNIST/raw" / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(data.DamagedDataError, match=message) as error:
        data.load("mnist", mnist[0], verify=False)
    assert file.split(".")[0] in str(error.value)


def test_missing_set_and_missing_file(mnist: tuple[Path, dict], tmp_path: Path) -> None:
    with pytest.raises(data.MissingDataError, match=r"fedkit data get cifar10.*FEDKIT_DATA") as e:
        data.load("cifar10", tmp_path)
    assert isinstance(e.value, FileNotFoundError)
    assert str(tmp_path) in str(e.value)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(data.MissingDataError, match="t10k-labels"):
        data.load("mnist", tmp_path)
    assert data.available("mnist", tmp_path) is None
    assert [r.status for r in data.verify("mnist", tmp_path)].count("missing") == 1


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match=r"'minst' \(did you mean 'mnist'\?\).*digits.*femnist"):
        data.load("minst")
    with pytest.raises(ValueError, match="several labels"):
        data.load("chestmnist")
    assert data.load("Digits").name == "digits"


def test_emnist_is_turned_upright_and_labels_start_at_zero(tmp_path: Path) -> None:
    prefixes = ("emnist-letters-train", "emnist-letters-test")
    arrays = write_idx(tmp_path / "EMNIST-subset" / "raw", prefixes, 26, first=1)
    letters = data.load("emnist-letters", tmp_path, verify=False)
    assert letters.classes[0] == "A"
    assert letters.input_shape == (1, 4, 5)
    np.testing.assert_array_equal(
        letters.x_train[:, 0].numpy(), arrays["x_train"].transpose(0, 2, 1)
    )
    np.testing.assert_array_equal(letters.y_train.numpy(), arrays["y_train"])
    assert "subset" in letters.note
    with pytest.raises(data.MissingDataError, match="'emnist-letters' is present there"):
        data.load("femnist", tmp_path)
    # The whole split goes before the subset.
    write_idx(tmp_path / "EMNIST" / "raw", prefixes, 26, first=1)
    whole = data.load("emnist-letters", tmp_path, verify=False)
    assert whole.source == "idx files in EMNIST/raw"
    assert "whole" in whole.note
    with pytest.raises(data.DamagedDataError, match="expected 124800 images, found 30"):
        data.load("emnist-letters", tmp_path)


def test_femnist_by_class(tmp_path: Path) -> None:
    write_idx(tmp_path / "EMNIST" / "raw", ("emnist-byclass-train", "emnist-byclass-test"), 30)
    characters = data.load("femnist", tmp_path, verify=False)
    assert characters.n_classes == 62
    assert (characters.classes[0], characters.classes[10], characters.classes[61]) == tuple("0Az")
    reports = data.verify("femnist", tmp_path)
    assert [r.status for r in reports] == ["unchecked"] * 4 + ["damaged"]


@pytest.mark.parametrize("folder", ["medmnist", "."])
@pytest.mark.parametrize(("name", "colour"), [("breastmnist", False), ("retinamnist", True)])
def test_medmnist_npz(tmp_path: Path, folder: str, name: str, colour: bool) -> None:
    path = tmp_path / folder / f"{name}.npz"
    path.parent.mkdir(exist_ok=True)
    shape = (3, 2, 3) if colour else (3, 2)
    x = {
        p: RNG.integers(0, 256, (n, *shape), dtype=np.uint8) for p, n in (("train", 9), ("test", 4))
    }
    y = {p: (np.arange(len(x[p])) % 2)[:, None].astype(np.uint8) for p in x}
    np.savez(
        path, train_images=x["train"], train_labels=y["train"],
        test_images=x["test"], test_labels=y["test"],
    )  # fmt: skip
    loaded = data.load(name, tmp_path, verify=False)
    assert loaded.input_shape == (3 if colour else 1, 3, 2)
    expected = x["test"].transpose(0, 3, 1, 2) if colour else x["test"][:, None]
    np.testing.assert_array_equal(loaded.x_test.numpy(), expected)
    assert loaded.y_train.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    with pytest.raises(data.DamagedDataError, match="expected md5"):
        data.load(name, tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(data.DamagedDataError, match="a whole npz file"):
        data.load(name, tmp_path, verify=False)
    path.write_bytes(b"")
    with pytest.raises(data.DamagedDataError, match="a whole npz file"):
        data.load(name, tmp_path, verify=False)
    np.savez(path, train_images=x["train"])
    with pytest.raises(data.DamagedDataError, match="arrays train_images"):
        data.load(name, tmp_path, verify=False)
    np.savez(
        path, train_images=x["train"] / 255, train_labels=y["train"],
        test_images=x["test"], test_labels=y["test"],
    )  # fmt: skip
    with pytest.raises(data.DamagedDataError, match="uint8 images, found float64"):
        data.load(name, tmp_path, verify=False)


def test_data_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDKIT_DATA", str(tmp_path / "a"))
    assert data.data_root() == tmp_path / "a"
    assert data.data_root(tmp_path) == tmp_path
    monkeypatch.delenv("FEDKIT_DATA")
    assert data.data_root() == datafiles.user_cache()


REAL = {
    "mnist": (60_000, 10_000, [5, 0, 4, 1, 9, 2, 1, 3]),
    "fashionmnist": (60_000, 10_000, [9, 0, 0, 3, 0, 2]),
    "emnist-letters": (None, None, [22, 6, 15, 14, 22, 16, 12, 10, 21, 23]),
    "pneumoniamnist": (4_708, 624, None),
    "breastmnist": (546, 156, None),
    "retinamnist": (1_080, 400, None),
}


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_files(name: str) -> None:
    if data.available(name) is None:
        pytest.skip(f"{name} is not in FEDKIT_DATA")
    n_train, n_test, labels = REAL[name]
    loaded = data.load(name)
    assert n_train is None or (len(loaded.x_train), len(loaded.x_test)) == (n_train, n_test)
    assert labels is None or loaded.y_train[: len(labels)].tolist() == labels
    assert loaded.y_train.unique().tolist() == list(range(loaded.n_classes))
    if name == "emnist-letters":
        # Upright: the mean "T" has its bar at the top.
        mean = loaded.x_train[loaded.y_train == 19, 0].double().mean(0)
        assert mean[4:9].mean() > 1.5 * mean[19:24].mean()


def test_cifar10_files_verify() -> None:
    if data.available("cifar10") is None:
        pytest.skip("cifar10 is not in FEDKIT_DATA")
    assert {report.status for report in data.verify("cifar10")} == {"ok"}
