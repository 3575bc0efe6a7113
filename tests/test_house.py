"""The plan of the house: arrows between rooms point downward only, and rooms have no circles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: What each room may import besides itself and `checks`; the floors from the ground up.
LIBRARY = {
    "checks": "",
    "streams": "",
    "extras": "",
    "atomic": "",
    "threads": "",
    "intervals": "",
    "plots": "extras intervals",
    "games": "streams extras atomic plots",
    "estimators": "games streams extras intervals threads",
    "learning": "streams extras",
    "datasets": "streams extras atomic",
    "federated": "learning estimators games datasets streams extras atomic",
    "methods": "federated learning estimators games streams extras",
    "flower": "federated learning estimators games datasets streams extras",
    "columnfiles": "extras",
    "interop": "games extras",
    "fedvalue": "atomic columnfiles estimators games streams extras intervals",
    "arena": "methods federated learning estimators games streams extras intervals",
    "__main__": "extras",
    "__init__": "games estimators learning datasets federated methods fedvalue arena interop "
    "streams extras",
}

#: The same within the reproduction; of the library it may use everything.
REPRODUCTION = {
    "widgets": "",
    "figures": "widgets",
    "__init__": "",
    "plugins": "",
    "statistics": "",
    "manifest": "__init__",
    "records": "__init__",
    "golden": "plugins __init__ manifest records",
    "experiments": "plugins __init__ golden manifest records",
    "common": "plugins experiments golden records",
    "claims": "__init__ records",
    "printed": "statistics claims",
    "measured": "statistics plugins claims records",
    "readings": "claims",
    "verdicts": "statistics claims measured printed readings records",
    "overviews": "plugins claims verdicts records",
    "tables": "widgets overviews verdicts readings measured claims records __init__",
    **dict.fromkeys(
        ("fedccea", "fedms", "fedowen", "fedtsv", "fedvalue"),
        "plugins statistics common overviews experiments claims readings verdicts tables figures "
        "widgets golden records __init__",
    ),
    "report": "fedccea fedms tables overviews figures verdicts claims records __init__",
    "arena": "common overviews tables experiments figures widgets golden manifest records __init__",
    "foundations": "figures widgets __init__",
    "book": "figures widgets manifest records",
    "commands": "plugins arena book claims verdicts tables experiments golden records __init__",
}
PLANS = {"fedkit": LIBRARY, "reproduction": REPRODUCTION}


def _imports(path: Path, package: str) -> set[str]:
    """Return the rooms of a package that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            if parts[0] == package:
                found |= {parts[1]} if parts[1:] else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found |= {name[1] for name in names if name[0] == package and name[1:]}
    return found


def _files() -> list[Path]:
    return sorted(path for package in PLANS for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", _files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_downward(path: Path) -> None:
    package, *inside = path.relative_to(ROOT).parts
    plan, room = PLANS[package], inside[0].removesuffix(".py")
    assert room in plan, f"room {room} has no place in the plan"
    assert (_imports(path, package) & set(plan)) - {room, "checks"} <= set(plan[room].split())
    if package == "fedkit" and room != "__main__":
        assert not _imports(path, "reproduction")


@pytest.mark.parametrize("package", PLANS)
def test_the_plan_has_floors(package: str) -> None:
    order = list(PLANS[package])
    for room, below in PLANS[package].items():
        if not room.startswith("__"):
            assert all(order.index(other) < order.index(room) for other in below.split())
    rooms = {p.name for p in (ROOT / package).iterdir() if p.is_dir() and p.name[0] != "_"}
    assert rooms <= set(order)


def test_every_room_says_what_lives_there() -> None:
    for package in _files():
        if package.name == "__init__.py":
            assert ast.get_docstring(ast.parse(package.read_text("utf-8"))), package
