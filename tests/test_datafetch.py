from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tinydata import write_idx

from fedkit.datasets import catalogue as dataregistry
from fedkit.datasets import dataset as data
from fedkit.datasets import fetch as datafetch
from fedkit.datasets import layouts as datalayouts


@pytest.fixture
def mnist(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    return tmp_path, write_idx(tmp_path / "MNIST" / "raw", ("train", "t10k"), 10)


def test_get_puts_only_checked_files_in_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        datafetch, "_fetch", lambda n, w: write_idx(w / "MNIST" / "raw", ("train", "t10k"), 10)
    )
    with pytest.raises(data.DownloadError, match=r"'mnist' could not be fetched.*damaged"):
        data.get("mnist", tmp_path)
    assert list(tmp_path.iterdir()) == []

    plain = datalayouts.IdxLayout("MNIST/raw", "train", "t10k", 10)
    spec = dataregistry.SETS["mnist"]
    monkeypatch.setitem(
        dataregistry.SETS,
        "mnist",
        dataregistry.Spec(spec.title, spec.classes, spec.licence, spec.citation, (plain,)),
    )
    assert data.get("mnist", tmp_path) == "idx files in MNIST/raw"
    assert [p.name for p in tmp_path.iterdir()] == ["MNIST"]
    assert data.load("mnist", tmp_path).x_train.shape == (30, 1, 5, 4)
    monkeypatch.setattr(datafetch, "_fetch", lambda n, w: pytest.fail("fetched again"))
    data.get("mnist", tmp_path)


def test_get_without_network_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from urllib.error import URLError

    def offline(name: str, work: Path) -> None:
        (work / "half").write_bytes(b"x")
        raise URLError("no route to host")

    monkeypatch.setattr(datafetch, "_fetch", offline)
    with pytest.raises(data.DownloadError, match=r"no route to host.*by hand, or try again"):
        data.get("fashionmnist", tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(data.DownloadError, match="cannot be written"):
        data.get("mnist", tmp_path / "file")


def test_every_set_has_a_fetcher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[str] = []

    def set_of(kind: str) -> Callable[..., None]:
        return lambda root, split="", download=False: seen.append(kind + split)

    kinds = ("MNIST", "FashionMNIST", "CIFAR10", "EMNIST")
    info = {name: {"python_class": name} for name in data.names()[6:]}
    fakes = {
        "torchvision.datasets": SimpleNamespace(**{kind: set_of(kind) for kind in kinds}),
        "medmnist": SimpleNamespace(
            INFO=info,
            **{n: lambda split, download, root, n=n: seen.append(n) for n in info},
        ),
    }
    monkeypatch.setattr(datafetch, "need", lambda module, extra: fakes[module])
    for position, name in enumerate(data.names()[1:]):
        work = tmp_path / str(position)
        work.mkdir()
        datafetch._fetch(name, work)
    assert seen[:5] == ["MNIST", "FashionMNIST", "CIFAR10", "EMNISTletters", "EMNISTbyclass"]
    assert seen[5:] == data.names()[6:]


@pytest.mark.slow
def test_registry_agrees_with_the_packages() -> None:
    medmnist = pytest.importorskip("medmnist")
    sets = pytest.importorskip("torchvision.datasets")
    for name in data.names()[6:]:
        spec, info = dataregistry.SETS[name], medmnist.INFO[name]
        assert spec.layouts[0].digest("") == info["MD5"]
        assert len(spec.classes) == len(info["label"])
        assert spec.licence == info["license"]
        assert hasattr(medmnist, info["python_class"])
    batches = dataregistry.SETS["cifar10"].layouts[0]
    for file, md5 in sets.CIFAR10.train_list + sets.CIFAR10.test_list:
        assert batches.digest(f"{sets.CIFAR10.base_folder}/{file}") == md5
    assert {"letters", "byclass"} <= set(sets.EMNIST.splits)
    assert sets.MNIST.__name__ in dataregistry.SETS["mnist"].layouts[0].source
    assert sets.FashionMNIST.__name__ in dataregistry.SETS["fashionmnist"].layouts[0].source


def test_commands(mnist: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("typer.testing")
    from fedkit.datasets.cli import app

    root, runner = str(mnist[0]), testing.CliRunner()
    listed = runner.invoke(app, ["list", "--root", root])
    assert listed.exit_code == 0
    assert "idx files in MNIST/raw" in listed.output
    heads = [line for line in listed.output.splitlines() if line.endswith(":")]
    assert [head.split(",")[0] for head in heads] == ["images", "tables", "ratings"]
    assert listed.output.index("tables, read by") < listed.output.index("wine ")
    assert "missing" in listed.output
    checked = runner.invoke(app, ["verify", "--root", root])
    assert checked.exit_code == 1
    assert "damaged    mnist" in checked.output
    assert runner.invoke(app, ["verify", "digits"]).exit_code == 0
    assert runner.invoke(app, ["verify", "cifar10", "--root", root]).exit_code == 1
    odd = runner.invoke(app, ["verify", "minst"])
    assert odd.exit_code == 2
    assert "did you mean 'mnist'?" in odd.output
    table = runner.invoke(app, ["get", "Wines"])  # tables and ratings are known too
    assert "did you mean 'wine'?" in table.output
    assert "credit, ml-1m, ml-100k" in table.output
    assert "several labels per image" in runner.invoke(app, ["get", "chestmnist"]).output
    assert runner.invoke(app, ["get", "digits"]).exit_code == 0
    assert "missing" in listed.output.split("ml-1m")[1]
    assert runner.invoke(app, ["verify", "ml-1m", "--root", root]).exit_code == 1
    (mnist[0] / "ml-100k.zip").write_bytes(b"no archive")
    assert "ml-100k: ml-100k.zip" in runner.invoke(app, ["get", "ml-100k", "--root", root]).output
    damaged = runner.invoke(app, ["verify", "ml-100k", "--root", root])
    assert damaged.exit_code == 1
    assert "damaged    ml-100k" in damaged.output

    def offline(name: str, root: Path | None) -> str:
        raise data.DownloadError("data set 'cifar10' could not be fetched: no network")

    monkeypatch.setattr("fedkit.datasets.cli.get", offline)
    failed = runner.invoke(app, ["get", "cifar10", "--root", root])
    assert failed.exit_code == 1
    assert "no network" in failed.output
