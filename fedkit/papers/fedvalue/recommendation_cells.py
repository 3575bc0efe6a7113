"""The cells of Tables 5, 6, 7 and 9, and those that read the paper's silences otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedkit.papers.fedvalue.recommendation import Setting, run_cell
from fedkit.papers.fedvalue.recommendation_case import SCENARIOS, Case, Trees
from fedkit.papers.registry import Cell, Experiment, register
from fedkit.records.golden import Tiny

__all__ = ["MAIN", "READINGS", "TABLE9"]

#: Tables 5, 6 and 7
MAIN = tuple(Case(scenario=scenario) for scenario in SCENARIOS)
#: Table 9, one parameter at a time
TABLE9 = (
    *(Case(movies=n) for n in (30, 40)),
    *(Case(candidates=n) for n in (4, 6)),
    *(Case(features=n) for n in (1, 3)),
    *(Case(high=share) for share in (0.05, 0.2)),
    *(Case(scenario="redundant", ratio=share) for share in (0.4, 0.6)),
    *(Case(scenario="free-riders", ratio=share) for share in (0.4, 0.6)),
)
#: other readings of what is not said, at the default parameters
READINGS = (
    *(Case(scenario="redundant", redundancy=how) for how in ("copy", "given")),
    *(Case(scenario="free-riders", fabrication=how) for how in ("permuted", "uniform")),
    *(replace(case, demographics="bins") for case in MAIN),
    *(replace(case, known="all") for case in MAIN),
)
_MILD = Trees(depth=3, rate=0.1)  # scikit-learn's settings for gradient boosting


def _settings(profile: str) -> list[Setting]:
    if profile == "smoke":
        return [
            Setting("made-up", replace(case, movies=8, low=0.02, high=0.2), Trees())
            for case in MAIN
        ]
    if profile not in ("laptop", "paper"):
        raise ValueError(f"unknown profile {profile!r}; there are smoke, laptop and paper")
    name = "ml-1m" if profile == "paper" else "ml-100k"
    return [
        *(Setting(name, case, Trees()) for case in MAIN),
        *(Setting(name, case, Trees(), validated=False) for case in (*TABLE9, *READINGS)),
        *(Setting(name, case, _MILD, validated=False) for case in MAIN),
    ]


def _cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
    own = range(3 if profile == "smoke" else 20)
    chosen = tuple(own if seeds is None else seeds)
    return [
        Cell(profile, "fedvalue", "recommendation", s.to_dict(), chosen) for s in _settings(profile)
    ]


GOLDEN = Tiny(
    "recommendation",
    run_cell,
    Setting(
        "made-up", Case(movies=8, low=0.02, high=0.2, candidates=4), Trees(), validated=False
    ).to_dict(),
    by="scenario",
    switches={
        "redundancy": {"scenario": "redundant"}, "fabrication": {"scenario": "free-riders"},
        "demographics": {}, "known": {}, "validated": {},
    },
)  # fmt: skip
register(
    Experiment(
        "fedvalue",
        "recommendation",
        "Federated recommendation: which parties to pay (Tables 5, 6, 7 and 9)",
        _cells,
        run_cell,
        (GOLDEN,),
    )
)
