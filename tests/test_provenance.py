"""Provenance: what a record was made with, and what the stamp may tell."""

from __future__ import annotations

import getpass
import platform
import subprocess
import sys
from pathlib import Path

from fedkit.records import manifest as provenance
from fedkit.records.manifest import make_manifest


def test_manifest_tells_how_and_never_where() -> None:
    manifest = make_manifest({"run.fedms": 2}, device="cuda:3", seconds=1.23456, evaluations=7)
    assert manifest["behaviour"] == {"run.fedms": 2}
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
    code = "import sys, fedkit.records.manifest as p; p.make_manifest({}); " + (
        "sys.exit('torch' in sys.modules and 'fedkit.book.api' not in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
