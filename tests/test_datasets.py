"""Image data sets: read, checked, fetched, and refused when something is wrong with them."""

import gzip
import hashlib
import io
import pickle
import zipfile
from dataclasses import replace
from urllib.error import URLError

import numpy as np
import pytest
import torch
from tinydata import RNG, idx, write_idx

from fedkit import datasets as data
from fedkit.datasets import files, images


def refused(root, message, name="mnist", verify=False):
    with pytest.raises(data.DamagedDataError, match=message):
        data.load(name, root, verify=verify)


@pytest.fixture
def mnist(tmp_path):
    return tmp_path, write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10)


def test_digits_are_embedded_and_split_by_class():
    digits = data.load("digits")
    assert digits.input_shape == (1, 8, 8)
    assert len(digits.y_train) + len(digits.y_test) == 1797
    share = digits.y_test.bincount() / (digits.y_test.bincount() + digits.y_train.bincount())
    assert torch.all((share - 0.2).abs() < 0.01)
    assert data.load("Digits").fingerprint == digits.fingerprint


def test_to_float_normalises_by_the_training_images():
    digits = data.load("digits")
    x, raw = digits.to_float(digits.x_test), digits.x_train.double()
    expected = (digits.x_test.double() - raw.mean()) / raw.std(unbiased=False)
    np.testing.assert_allclose(x.numpy(), expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="expected uint8"):
        digits.to_float(x)


def test_colour_channels_have_their_own_moments():
    x = torch.zeros(4, 3, 2, 2, dtype=torch.uint8)
    x[:, 1] = 7  # constant: its deviation counts as one
    x[2:, 2] = 10
    y = torch.zeros(4, dtype=torch.int64)
    mean, std = data.Dataset("x", x, y, x, y, ("a",), "made up").moments
    assert mean.tolist() == [0, 7, 5]
    assert std.tolist() == [1, 1, 5]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_test": torch.zeros(3, dtype=torch.int64)}, r"y_test is torch.int64\[3\]; expected 4"),
        ({"y_train": torch.zeros(4)}, r"y_train is torch.float32\[4\]; expected 4 int64 labels"),
        ({"x_test": torch.zeros(4, 3, 2, 1, dtype=torch.uint8)}, "x_test .* images of one shape"),
        ({"x_train": torch.zeros(4, 3, 2, 2)}, "x_train is torch.float32.* expected uint8"),
        ({"y_test": torch.tensor([0, 1, 0, 1])}, r"y_test .* expected 4 int64 labels from 0 to 0"),
    ],
)
def test_a_data_set_of_ones_own_is_checked(changed, message):
    x, y = torch.zeros(4, 3, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    parts = {"x_train": x, "y_train": y, "x_test": x, "y_test": y} | changed
    with pytest.raises(ValueError, match=message):
        data.Dataset("x", **parts, classes=("a",), source="made up")


def test_idx_plain_and_gzipped(mnist):
    root, arrays = mnist
    loaded = data.load("mnist", root, verify=False)
    assert loaded.x_train.shape == (30, 1, 5, 4)
    np.testing.assert_array_equal(loaded.x_train[:, 0].numpy(), arrays["x_train"])
    np.testing.assert_array_equal(loaded.y_test.numpy(), arrays["y_test"])
    assert loaded.source == "idx files in MNIST/raw"
    assert str(root) not in loaded.source + loaded.note


def md5_of(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_what_is_not_published_is_refused_with_both_digests(mnist, monkeypatch):
    root, _ = mnist
    refused(root, r"has md5 .* and not 6bbc.*data get", verify=True)
    (copy,) = data.IMAGES["mnist"].copies
    contents = [path.read_bytes() for path in copy.files(root).values()]
    contents[0] = gzip.decompress(contents[0])  # digests are of the unpacked files
    published = replace(copy, md5=dict(zip(copy.md5, map(md5_of, contents), strict=True)))
    monkeypatch.setitem(data.IMAGES, "mnist", replace(data.IMAGES["mnist"], copies=(published,)))
    data.load("mnist", root)
    labels = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    labels.write_bytes(contents[3][:-1] + bytes([contents[3][-1] ^ 1]))
    refused(root, "t10k-labels", verify=True)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("train-images-idx3-ubyte.gz", lambda b: b[:-20], "found .*end-of-stream"),
        ("train-images-idx3-ubyte.gz", lambda b: b"nonsense" + b[8:], "found Not a gzipped file"),
        ("t10k-images-idx3-ubyte", lambda b: b[:-3], "found .* size 237"),
        ("t10k-images-idx3-ubyte", lambda b: b"", "buffer is smaller"),
        ("t10k-labels-idx1-ubyte", lambda b: b"\x7f" + b[1:], "magic"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(np.arange(11) % 10), "expected 12 int64 labels"),
        (
            "t10k-labels-idx1-ubyte",
            lambda b: idx(np.arange(12)),
            "expected 12 int64 labels from 0 to 9",
        ),
    ],
)
def test_damaged_idx(mnist, file, change, message):
    path = mnist[0] / "MNIST/raw" / file
    path.write_bytes(change(path.read_bytes()))
    refused(mnist[0], f"MNIST/raw.*{message}")


def test_missing_set_and_missing_file(mnist, tmp_path, monkeypatch):
    with pytest.raises(data.MissingDataError, match=r"data get cifar10 --root .*, or name a") as e:
        data.load("cifar10", tmp_path)
    assert isinstance(e.value, FileNotFoundError)
    assert str(tmp_path) in str(e.value)
    monkeypatch.setenv("FEDKIT_DATA", str(tmp_path))  # which the command fills by itself
    with pytest.raises(data.MissingDataError, match=r"data get cifar10`, or set FEDKIT_DATA"):
        data.load("cifar10")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))  # another folder than FEDKIT_DATA's
    for elsewhere, written in (
        (files.user_cache(), str(files.user_cache())), (tmp_path / "a b", f"'{tmp_path}/a b'")
    ):  # fmt: skip
        with pytest.raises(data.MissingDataError, match=f"cifar10 --root {written}`, or name a"):
            data.load("cifar10", elsewhere)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(data.MissingDataError, match="t10k-labels"):
        data.load("mnist", tmp_path)
    assert data.find("mnist", tmp_path) is None


def test_emnist_is_turned_upright_and_labels_start_at_zero(tmp_path):
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
    with pytest.raises(data.MissingDataError, match="emnist-byclass"):
        data.load("femnist", tmp_path)  # 26 letters are no 62 characters
    # The whole split goes before the subset.
    write_idx(tmp_path / "EMNIST" / "raw", prefixes, 26, first=1)
    whole = data.load("emnist-letters", tmp_path, verify=False)
    assert whole.source == "idx files in EMNIST/raw"
    assert "whole" in whole.note
    refused(tmp_path, r"\(30, 12\) images.*\(124800, 20800\)", "emnist-letters", verify=True)


def test_femnist_by_class(tmp_path):
    write_idx(tmp_path / "EMNIST" / "raw", ("emnist-byclass-train", "emnist-byclass-test"), 30)
    characters = data.load("femnist", tmp_path, verify=False)
    assert characters.n_classes == 62
    assert (characters.classes[0], characters.classes[10], characters.classes[61]) == tuple("0Az")
    refused(tmp_path, r"\(30, 12\) images.*\(697932, 116323\)", "femnist", verify=True)


@pytest.mark.parametrize("folder", ["medmnist", "."])
@pytest.mark.parametrize(("name", "colour"), [("breastmnist", False), ("retinamnist", True)])
def test_medmnist_npz(tmp_path, folder, name, colour):
    path = tmp_path / folder / f"{name}.npz"
    path.parent.mkdir(exist_ok=True)
    shape = (3, 2, 3) if colour else (3, 2)
    whole = {}
    for part, n in (("train", 9), ("test", 4)):
        whole[f"{part}_images"] = RNG.integers(0, 256, (n, *shape), dtype=np.uint8)
        whole[f"{part}_labels"] = (np.arange(n) % 2)[:, None].astype(np.uint8)
    np.savez(path, **whole)
    loaded, x = data.load(name, tmp_path, verify=False), whole["test_images"]
    expected = x.transpose(0, 3, 1, 2) if colour else x[:, None]
    np.testing.assert_array_equal(loaded.x_test.numpy(), expected)
    assert loaded.y_train.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    refused(tmp_path, "has md5", name, verify=True)
    path.write_bytes(path.read_bytes()[:-40])
    refused(tmp_path, "expected MedMNIST npz file", name)
    for changed, message in (
        (
            {"train_images": whole["train_images"] / 255},
            "x_train is torch.float64.* expected uint8",
        ),
        ({"train_labels": whole["train_labels"].astype(str)}, "Cannot cast array data from"),
    ):
        np.savez(path, **(whole | changed))
        refused(tmp_path, message, name)


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDKIT_DATA", str(tmp_path / "a"))
    assert data.data_root() == tmp_path / "a"
    assert data.data_root(tmp_path) == tmp_path
    monkeypatch.delenv("FEDKIT_DATA")
    assert data.data_root() == files.user_cache()


@pytest.mark.parametrize("name", data.IMAGES)
def test_real_files_are_the_published_ones(name):
    if data.find(name) is None:
        pytest.skip(f"{name} is not in FEDKIT_DATA")
    loaded = data.load(name)
    assert loaded.y_train.unique().tolist() == list(range(loaded.n_classes))


def test_get_puts_only_checked_files_in_place(monkeypatch, tmp_path):
    def offline(name, work):
        (work / "half").write_bytes(b"x")
        raise URLError("no route to host")

    def made_up(name, work):
        write_idx(work / "MNIST" / "raw", ("train", "t10k"), 10)

    for fetch, message in ((offline, r"no route to host>; place .*by hand"), (made_up, "damaged")):
        monkeypatch.setattr(images, "_download_images", fetch)
        with pytest.raises(data.DownloadError, match=f"'mnist' could not be fetched.*{message}"):
            data.get("mnist", tmp_path / "new")
        assert list((tmp_path / "new").iterdir()) == []

    copy = data.IMAGES["mnist"].copies[0]
    plain = replace(copy, md5=dict.fromkeys(copy.md5))
    monkeypatch.setitem(data.IMAGES, "mnist", replace(data.IMAGES["mnist"], copies=(plain,)))
    assert data.get("mnist", tmp_path) == "idx files in MNIST/raw"
    assert data.load("mnist", tmp_path).x_train.shape == (30, 1, 5, 4)
    monkeypatch.setattr(images, "_download_images", lambda n, w: pytest.fail("fetched again"))
    data.get("mnist", tmp_path)


@pytest.mark.slow
def test_catalogue_agrees_with_the_packages():
    medmnist = pytest.importorskip("medmnist")
    sets = pytest.importorskip("torchvision.datasets")
    for name in [*data.IMAGES][1:]:
        spec = data.IMAGES[name]
        kind, *split = spec.fetcher
        if name in medmnist.INFO:
            assert spec.copies[0].md5 == {f"medmnist/{name}.npz": medmnist.INFO[name]["MD5"]}
            assert len(spec.classes) == len(medmnist.INFO[name]["label"])
            assert hasattr(medmnist, kind)
        else:
            assert set(split) <= set(getattr(getattr(sets, kind), "splits", ()))
    files = [sets.CIFAR10.train_list, sets.CIFAR10.test_list]
    names = [name for listed in files for name, _ in listed]
    assert (*names, sets.CIFAR10.meta["filename"]) == images._BATCHES


def test_commands(mnist, capsys):
    main, root = pytest.importorskip("fedkit.__main__").main, str(mnist[0])

    def run(status, *words):
        assert main(["data", *words]) == status
        return "".join(capsys.readouterr())

    assert "/lost, which does not exist" in run(0, "list", "--root", f"{root}/lost")
    listed = run(0, "list", "--root", root)
    assert "idx files in MNIST/raw" in listed
    assert listed.index("tables, read by") < listed.index("wine ")
    assert "missing" in listed.split("ml-1m")[1]
    assert "'wine', " in run(1, "get", "Wines")  # tables are known too
    run(0, "get", "digits", "wine")
    (mnist[0] / "ml-100k.zip").write_bytes(b"no archive")
    assert "is damaged" in run(1, "get", "ml-100k", "--root", root)


def test_cifar_batches(tmp_path, monkeypatch):
    cifar = pytest.importorskip("torchvision.datasets").CIFAR10
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in images._BATCHES:
        batch = {"data": RNG.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [3, 0, 9, 1]}
        if name == "batches.meta":
            batch = {"label_names": ["a"]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    refused(tmp_path, "Dataset not found or corrupted", "cifar10")  # a pickle could run code
    files = [[name, md5_of((folder / name).read_bytes())] for name in images._BATCHES]
    monkeypatch.setattr(cifar, "train_list", files[:5])
    monkeypatch.setattr(cifar, "test_list", files[5:6])
    monkeypatch.setattr(cifar, "meta", {**cifar.meta, "md5": files[6][1]})
    loaded = data.load("cifar10", tmp_path)
    assert loaded.x_train.shape == (20, 3, 32, 32)
    assert loaded.classes[3] == "cat"
    first = pickle.loads((folder / "test_batch").read_bytes())["data"].reshape(4, 3, 32, 32)
    np.testing.assert_array_equal(loaded.x_test.numpy(), first)


@pytest.fixture
def cifar_zip(tmp_path):
    """Two images of each class; image k of class c is flat grey of level 20 c + 8 k."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "root" / "cifar10"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "cifar10.zip", "w") as archive:
        for part in ("train", "test"):
            for label, name in enumerate(images._CIFAR):
                for k in range(2):
                    buffer = io.BytesIO()
                    level = 20 * label + 8 * k
                    image.new("RGB", (32, 32), (level, level, level)).save(buffer, "JPEG")
                    archive.writestr(f"{part}/{name}/{k:04d}.jpg", buffer.getvalue())
    order = [*range(9, -1, -1), *range(10)]
    (folder / "train_labels_official_order.txt").write_text("\n".join(map(str, order)))
    return tmp_path / "root"


def test_cifar_zip_restores_the_official_order(cifar_zip):
    loaded = data.load("cifar10", cifar_zip, verify=False)
    levels = loaded.x_train.double().mean((1, 2, 3)).round().long()
    expected = [20 * c for c in range(9, -1, -1)] + [20 * c + 8 for c in range(10)]
    assert (levels - torch.tensor(expected)).abs().max() <= 1
    assert loaded.y_train.tolist() == [*range(9, -1, -1), *range(10)]
    assert loaded.y_test.tolist() == [c for c in range(10) for _ in range(2)]
    assert "JPEG" in loaded.note
    assert loaded.name == "cifar10-jpeg"
    assert sorted(p.name for p in cifar_zip.rglob("*")) == [
        "cifar10", "cifar10.zip", "train_labels_official_order.txt",
    ]  # fmt: skip


def test_cifar_zip_damaged(cifar_zip):
    archive = cifar_zip / "cifar10/cifar10.zip"
    whole = archive.read_bytes()
    refused(cifar_zip, "and not 8882", "cifar10", verify=True)
    middle = bytearray(whole)
    middle[400] ^= 0xFF
    for broken in (whole[:-100], middle):
        archive.write_bytes(broken)
        refused(cifar_zip, r"zip.* is damaged: expected JPEG copies", "cifar10")
    archive.write_bytes(whole)
    order = cifar_zip / "cifar10/train_labels_official_order.txt"
    for text, message in (("0\n0\n1\n", "of the classes of train"), ("0\nzero\n", "invalid")):
        order.write_text(text)
        refused(cifar_zip, message, "cifar10")
