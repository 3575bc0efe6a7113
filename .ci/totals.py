"""Add up the totals that pytest printed into several logs, and print them in its own form.

With ``--skipped FILE``: print the tests that a JUnit report calls skipped, a line each.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

KINDS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")


def totals(text: str) -> tuple[dict[str, int], float]:
    """Read the last summary line of one run of pytest."""
    lines = re.findall(r"^=*\s*((?:\d+ \w+, )*\d+ \w+) in ([\d.]+)s", text, flags=re.MULTILINE)
    if not lines:
        return {}, 0.0
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", lines[-1][0])}
    return counts, float(lines[-1][1])


def skipped(report: Path) -> list[str]:
    """Read which tests a JUnit report calls skipped, as pytest names them."""
    cases = [
        case
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("skipped") is not None
    ]
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in cases
    ]


def main(paths: list[str]) -> None:
    """Print one line for all logs together."""
    added: dict[str, int] = {}
    seconds = 0.0
    for path in map(Path, paths):
        counts, took = totals(path.read_text(encoding="utf-8")) if path.is_file() else ({}, 0.0)
        seconds += took
        for kind, n in counts.items():
            kind = kind.rstrip("s") if kind in ("errors", "warnings") else kind
            added[kind] = added.get(kind, 0) + n
    added.pop("deselected", None)
    parts = []
    for kind in KINDS:
        if added.get(kind):
            plural = "s" if kind in ("warning", "error") and added[kind] > 1 else ""
            parts.append(f"{added[kind]} {kind}{plural}")
    print(f"{', '.join(parts) or 'no tests ran'} in {seconds:.2f}s")


if __name__ == "__main__":
    if sys.argv[1] == "--skipped":
        print("\n".join(skipped(Path(sys.argv[2]))))
    else:
        main(sys.argv[1:])
