"""The plan of the house: arrows between rooms point downward only, and rooms have no circles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "fedkit"

#: What each room may import besides itself and `checks`; the floors from the ground up.
MAY_USE = {
    "checks": "",
    "streams": "",
    "extras": "",
    "atomic": "",
    "threads": "",
    "intervals": "",
    "games": "streams extras atomic",
    "estimators": "games streams extras intervals threads",
    "learning": "streams extras",
    "datasets": "streams extras atomic",
    "federated": "learning estimators games datasets streams extras atomic",
    "methods": "federated learning estimators games streams extras",
    "flower": "federated learning estimators games datasets streams extras",
    "plots": "extras intervals",
    "fedvalue": "estimators games streams extras atomic intervals",
    "records": "streams extras atomic",
    "claims": "records intervals extras",
    "papers": "claims records methods federated learning estimators games datasets fedvalue plots "
    "streams extras atomic intervals",
    "arena": "papers records methods federated learning estimators games datasets plots streams "
    "extras intervals",
    "book": "datasets records extras atomic",
    "cli": "arena papers claims records learning book datasets fedvalue flower extras",
    "__main__": "cli",
    "__init__": "games estimators learning datasets federated methods fedvalue arena records "
    "streams extras",
}


def _imports(path: Path) -> set[str]:
    """Return the rooms that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            if parts[0] == "fedkit":
                found |= {parts[1]} if parts[1:] else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[1] for name in names if name[0] == "fedkit" and name[1:]}
    return found & set(MAY_USE)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_downward(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert room in MAY_USE, f"room {room} has no place in the plan"
    assert _imports(path) - {room, "checks"} <= set(MAY_USE[room].split())


def test_the_plan_has_floors() -> None:
    order = list(MAY_USE)
    for room, below in MAY_USE.items():
        if not room.startswith("__"):
            assert all(order.index(other) < order.index(room) for other in below.split())
    assert {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "_"} <= set(order)


def test_every_room_says_what_lives_there() -> None:
    for package in ROOT.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(package.read_text("utf-8"))), package
