"""The cells of FedValue's security, leaks and scaling, at every profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fedkit.datasets.tabular import find_table
from fedkit.fedvalue.protocol.attacks import ATTACKS
from fedkit.papers.fedvalue.leak import Leaking, run_leak
from fedkit.papers.fedvalue.scaling import Timed, run_scaling
from fedkit.papers.fedvalue.security import PROTOCOLS, Attacked, run_security
from fedkit.papers.registry import Cell, Experiment, RunFunction, register
from fedkit.records.golden import Tiny

SEEDS = {"smoke": (0,), "laptop": (0, 1, 2), "paper": tuple(range(5))}
#: attacks that move people between cells of a whole table
SWAPS = ("random swap", "rank linking", "weak cells")
TRIALS = {"smoke": 6, "laptop": 60, "paper": 100}


def _profile(profile: str) -> str:
    if profile not in SEEDS:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(SEEDS)}")
    return profile


def _security(profile: str) -> list[Attacked]:
    trials = TRIALS[profile]
    found = []
    for protocol, options in PROTOCOLS.items():
        single = options["variant"] == "cells"
        # cell by cell there is nothing to swap; such counts take 20 times as long
        attacks = [a for a in ATTACKS if not (single and a in SWAPS)]
        some = max(1, trials // 2) if single else trials
        found += [Attacked(protocol, attack, trials=some) for attack in attacks]
    # q known, or nearly: Table 3 has one q; q = tau = 2 is the example behind Proposition 2
    for low, high in ((2, 2), (3, 3), (2, 3), (2, 5)):
        for protocol in ("printed", "hardened"):
            found.append(Attacked(protocol, "best bet", low, high, trials=max(1, trials // 2)))
    # the attacker's best case: every swap does the same, and the server is told all it can know
    best = Attacked("hardened", "rank linking", 2, 3, data="label", people=100, trials=10 * trials)
    for extra in (5, 20, 50, 100, 200):
        found.append(replace(best, artificial_low=extra, artificial_high=extra))
    # and the same with 25 task cells, where those with the fewest artificial IDs are the target
    many = replace(best, attack="weak cells", data="cells", people=400, trials=3 * trials)
    for extra in (25, 100, 400, 1600):
        found.append(replace(many, artificial_low=extra, artificial_high=extra))
    return found


def _leak(profile: str) -> list[Leaking]:
    datasets = [d for d in ("wine", "breast", "credit") if profile == "paper" or d != "credit"]
    if profile == "smoke" or find_table("credit") is None:
        datasets = [d for d in datasets if d != "credit"]
    found = []
    for dataset in datasets:
        found += [
            Leaking(dataset, features) for features in ((1, 2) if dataset == "wine" else (1, 2, 3))
        ]
        base = Leaking(dataset)
        for minimum in (2, 5):
            found.append(replace(base, defence="joint", level=minimum))
        for minimum in (2, 5, 20):
            found.append(replace(base, defence="task", level=minimum))
        for decoys in (1, 3, 10):
            found.append(replace(base, defence="decoys", level=decoys))
        narrow = replace(base, features=1, parties=3)  # few enough cells for noise on all
        found.append(narrow)
        for epsilon in (2.0, 1.0, 0.5):
            found.append(replace(narrow, defence="noise", level=epsilon))
        for decoys in (1, 3, 10):
            found.append(replace(narrow, defence="decoys", level=decoys))
    return found


#: what is varied in Figures 6 and 7, for whole tables and cell by cell
TABLE: dict[str, tuple[int, ...]] = {
    "rows": (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    "parties": (1, 2, 3, 4, 5, 6, 7, 8), "features": (1, 2, 3, 4, 5),
    "duplications": (1, 2, 3, 5, 7, 9), "iterations": (1, 2, 3, 4, 6, 8),
    "artificial": (1, 50, 1_000, 10_000, 30_000, 100_000),
}  # fmt: skip
CELLS: dict[str, tuple[int, ...]] = {
    "rows": (300, 1_000, 3_000, 10_000, 30_000), "parties": (1, 2, 3, 4, 5),
    "features": (1, 2, 3), "duplications": (1, 2, 3, 5, 7, 9), "iterations": (1, 2, 3, 4, 6, 8),
    "artificial": (1, 50, 300, 1_000, 3_000),
}  # fmt: skip


def _scaling(profile: str) -> list[Timed]:
    few = {"smoke": 2, "laptop": -1, "paper": None}[profile]
    table = Timed("", rows=1_000) if profile == "smoke" else Timed("")
    cells = Timed("", "printed", parties=2, features=1, levels=3, rows=1_000)
    found = []
    for base, points in ((table, TABLE), (cells, CELLS)):
        for name, values in points.items():
            for value in values[:few]:
                change: dict[str, Any] = {"varied": name, name: value}
                if base is cells and name == "features":
                    change["levels"] = 2  # three values each would be 78,732 queries
                found.append(replace(base, **change))
    return found


SECURITY = Tiny(
    "security",
    run_security,
    asdict(Attacked("hardened", "best bet", trials=4, people=60)),
    by="attack",
    switches={"protocol": {}, "data": {"attack": "weak cells"}},
)
LEAK = Tiny(
    "leak",
    run_leak,
    asdict(Leaking("wine", features=1, parties=3)),
    switches={"defence": {"level": 2.0}},
)
SCALING = Tiny(
    "scaling",
    run_scaling,
    asdict(Timed("rows", rows=200, parties=2, features=1, levels=3)),
    switches={"protocol": {}},
)


def _register(name: str, title: str, run: RunFunction, settings: Any, golden: Tiny) -> None:
    def cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
        own = SEEDS[_profile(profile)]
        if name == "leak" and profile == "paper":
            own = tuple(range(10))
        if name == "scaling":
            own = own[:3]
        chosen = own if seeds is None else tuple(seeds)
        return [Cell(profile, "fedvalue", name, asdict(s), chosen) for s in settings(profile)]

    register(Experiment("fedvalue", name, title, cells, run, (golden,)))


_register("security", "Cheating servers (Proposition 2)", run_security, _security, SECURITY)
_register("leak", "What counts reveal of people", run_leak, _leak, LEAK)
_register("scaling", "Time of the protocol (Figures 6 and 7)", run_scaling, _scaling, SCALING)
