from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tinydata import RNG

from fedkit.datasets import dataset as data
from fedkit.datasets import files as datafiles
from fedkit.datasets import layouts as datalayouts


def test_cifar_batches(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        batch = {"data": RNG.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [3, 0, 9, 1]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    loaded = data.load("cifar10", tmp_path, verify=False)
    assert loaded.x_train.shape == (20, 3, 32, 32)
    assert loaded.classes[3] == "cat"
    first = pickle.loads((folder / "test_batch").read_bytes())["data"].reshape(4, 3, 32, 32)
    np.testing.assert_array_equal(loaded.x_test.numpy(), first)
    with pytest.raises(data.DamagedDataError, match="expected md5 c99c"):
        data.load("cifar10", tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps(os.getcwd, protocol=2))
    with pytest.raises(data.DamagedDataError, match="it asks for"):
        data.load("cifar10", tmp_path, verify=False)
    (folder / "test_batch").write_bytes(pickle.dumps(batch, protocol=2)[:-9])
    with pytest.raises(data.DamagedDataError, match="a CIFAR-10 batch"):
        data.load("cifar10", tmp_path, verify=False)
    (folder / "test_batch").write_bytes(pickle.dumps({"labels": [1]}, protocol=2))
    with pytest.raises(data.DamagedDataError, match="3072 columns"):
        data.load("cifar10", tmp_path, verify=False)


@pytest.fixture
def cifar_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two images of each class; image k of class c is flat grey of level 20 c + 8 k."""
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "root" / "cifar10"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "cifar10.zip", "w") as archive:
        for part in ("train", "test"):
            for label, name in enumerate(datalayouts.CIFAR_CLASSES):
                for k in range(2):
                    buffer = io.BytesIO()
                    level = 20 * label + 8 * k
                    image.new("RGB", (32, 32), (level, level, level)).save(buffer, "JPEG")
                    archive.writestr(f"{part}/{name}/{k:04d}.jpg", buffer.getvalue())
    order = [*range(9, -1, -1), *range(10)]
    (folder / "train_labels_official_order.txt").write_text("\n".join(map(str, order)))
    return tmp_path / "root"


def test_cifar_zip_restores_the_official_order(cifar_zip: Path) -> None:
    loaded = data.load("cifar10", cifar_zip, verify=False)
    levels = loaded.x_train.double().mean((1, 2, 3)).round().long()
    expected = [20 * c for c in range(9, -1, -1)] + [20 * c + 8 for c in range(10)]
    assert (levels - torch.tensor(expected)).abs().max() <= 1
    assert loaded.y_train.tolist() == [*range(9, -1, -1), *range(10)]
    assert loaded.y_test.tolist() == [c for c in range(10) for _ in range(2)]
    assert "JPEG" in loaded.note
    assert sorted(p.name for p in cifar_zip.rglob("*")) == [
        "cifar10", "cifar10.zip", "train_labels_official_order.txt",
    ]  # fmt: skip


def test_cifar_zip_damaged(cifar_zip: Path) -> None:
    archive = cifar_zip / "cifar10/cifar10.zip"
    whole = archive.read_bytes()
    with pytest.raises(data.DamagedDataError, match="expected md5 8882"):
        data.load("cifar10", cifar_zip)
    archive.write_bytes(whole[:-100])
    with pytest.raises(data.DamagedDataError, match="a whole zip of images"):
        data.load("cifar10", cifar_zip, verify=False)
    middle = bytearray(whole)
    middle[400] ^= 0xFF
    archive.write_bytes(middle)
    with pytest.raises(data.DamagedDataError, match="a whole zip of images"):
        data.load("cifar10", cifar_zip, verify=False)
    archive.write_bytes(whole)
    order = cifar_zip / "cifar10/train_labels_official_order.txt"
    order.write_text("0\n0\n1\n")
    with pytest.raises(data.DamagedDataError, match="images of the classes of train"):
        data.load("cifar10", cifar_zip, verify=False)
    order.write_text("0\nzero\n")
    with pytest.raises(data.DamagedDataError, match="one label from 0 to 9 per line"):
        data.load("cifar10", cifar_zip, verify=False)


def test_decoded_cifar_is_kept_once_and_made_again_when_damaged(
    cifar_zip: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import hashlib

    files = [cifar_zip / "cifar10" / n for n in ("cifar10.zip", "train_labels_official_order.txt")]
    md5 = tuple(hashlib.md5(f.read_bytes()).hexdigest() for f in files)
    layout = datalayouts.CifarZip(md5=(md5[0], md5[1]))
    raw = layout.read(cifar_zip, verify=True)
    (copy,) = datafiles.user_cache().iterdir()
    calls = []
    decode = datalayouts.read_image_zip
    monkeypatch.setattr(datalayouts, "read_image_zip", lambda *a: calls.append(1) or decode(*a))
    again = layout.read(cifar_zip, verify=True)
    assert not calls
    for one, other in zip(raw, again, strict=True):
        np.testing.assert_array_equal(one, other)
    copy.write_bytes(copy.read_bytes()[:-50])
    layout.read(cifar_zip, verify=True)
    assert len(calls) == 1

    copy.unlink()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(datafiles.np, "savez", full)
    with pytest.warns(UserWarning, match=r"could not be kept.*No space left"):
        layout.read(cifar_zip, verify=True)
    assert not list(datafiles.user_cache().iterdir())  # nothing half-written
