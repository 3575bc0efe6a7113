"""Provenance: what makes a record stale, and what the stamp may tell."""

from __future__ import annotations

import getpass
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fedkit import provenance
from fedkit.provenance import changed_sources, hash_source, make_manifest, source_hashes, sources_of

CODE = '''
"""Module."""
import math

def f(x: float, *, y=2) -> float:
    """Add."""
    return math.exp(x) + y  # why

class A:
    """Doc."""
    z = {"a": 1, **{}}
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# why", "# because"),
        ('"""Add."""', '"""Add two numbers.\n\n    At length.\n    """'),
        ('"""Module."""', ""),
        ("x: float, *, y=2", "\n    x: float,\n    *,\n    y=2,\n"),
        ('"a": 1', "'a': 0x1"),
        ("import math\n", "import math\n\n\n# a comment\n"),
    ],
)
def test_words_and_layout_do_not_matter(old: str, new: str) -> None:
    assert old in CODE
    assert hash_source(CODE.replace(old, new)) == hash_source(CODE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y=2", "y=3"),
        ("+ y", "- y"),
        ('"a": 1', '"a": True'),
        ('"a": 1', '"a": 1.0'),
        ("*, y", "y"),
    ],
)
def test_what_code_does_matters(old: str, new: str) -> None:
    assert old in CODE
    assert hash_source(CODE.replace(old, new)) != hash_source(CODE)


def test_hash_does_not_depend_on_the_python_version() -> None:
    # A typed-in value: every supported Python must give it.
    assert hash_source(
        "def f(x, *a, **k):\n    return {**k, 'a': f'{x!r:>3}'}, x[1:2], None\n"
    ) == ("cc3a3623632bfd43")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "toypackage"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text("x = 1\n")
    (folder / "two.py").write_text("y = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_changes_are_named(package: Path) -> None:
    manifest = make_manifest(["toypackage"])
    assert list(manifest["sources"]) == ["toypackage", "toypackage.one", "toypackage.two"]
    assert changed_sources(manifest) == []
    (package / "one.py").write_text("# words\nx = 1\n")
    assert changed_sources(manifest) == []
    (package / "one.py").write_text("x = 11\n")
    (package / "two.py").unlink()
    (package / "three.py").write_text("z = 3\n")
    assert changed_sources(manifest) == ["toypackage.one", "toypackage.three", "toypackage.two"]


def test_a_record_without_sources_is_never_fresh() -> None:
    assert changed_sources({}) == ["(no sources recorded)"]
    assert changed_sources(make_manifest(["fedkit.streams"])) == []


def test_sources_are_followed_through_imports() -> None:
    found = sources_of("fedkit._running")
    assert found == ()  # bookkeeping computes nothing
    found = sources_of("fedkit.streams")
    assert found == ("fedkit.streams",)
    imports = provenance._imports(
        Path(provenance.__file__).with_name("records.py"), "fedkit.records"
    )
    assert {"fedkit._cells", "fedkit.extras"} <= imports
    assert source_hashes(["fedkit.no_such_module"]) == {}


def test_relative_imports_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("from . import b\nfrom .c import d\nfrom ..e import f\nimport fedkit.g\n")
    found = provenance._imports(file, "fedkit.pack.a")
    assert {"fedkit.pack.b", "fedkit.pack.c", "fedkit.e", "fedkit.g"} <= found
    package = tmp_path / "__init__.py"
    package.write_text("from .c import d\n")
    assert "fedkit.pack.c" in provenance._imports(package, "fedkit.pack")


def test_manifest_tells_how_and_never_where() -> None:
    manifest = make_manifest(["fedkit.streams"], device="cuda:3", seconds=1.23456, evaluations=7)
    assert manifest["device"] == "cuda"
    assert manifest["seconds"] == 1.235
    assert manifest["evaluations"] == 7
    assert manifest["versions"]["python"] == platform.python_version()
    assert manifest["threads"] >= 1
    assert 1 < manifest["peak_memory_mib"] < 1e6
    text = repr(manifest)
    assert platform.node() not in text or len(platform.node()) < 4
    assert str(Path.home()) not in text
    assert str(Path(provenance.__file__).parent) not in text


def test_stamp_is_small_and_repeatable() -> None:
    table = provenance.stamp("smoke")
    assert table.equals(provenance.stamp("smoke"))
    assert table.loc["profile", "value"] == "smoke"
    assert {"fedkit", "python", "numpy", "torch", "threads", "device", "commit"} <= set(table.index)
    text = table.to_string()
    assert "/" not in text
    user = getpass.getuser()
    assert len(user) < 5 or user not in text


def test_provenance_does_not_import_torch() -> None:
    code = "import sys, fedkit.provenance as p; p.make_manifest(['fedkit.streams']); " + (
        "sys.exit('torch' in sys.modules and 'fedkit._api' not in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
