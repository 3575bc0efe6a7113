"""The cells of FedValue's experiments on tables (Figures 4, 5, 8, 9 and Table 8), by profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedkit.datasets.tabular import TABLES
from fedkit.papers.fedvalue.approx import Approximation, run_approximation
from fedkit.papers.fedvalue.runs import run_correlation, run_models
from fedkit.papers.fedvalue.settings import Setting
from fedkit.papers.registry import Cell, Experiment, RunFunction, register
from fedkit.records.golden import Tiny

FEATURES = (1, 2, 3)
#: readings of what the paper leaves open; Figure 4's claims are judged on the first, as declared
READINGS: dict[str, dict[str, Any]] = {
    "as in Figure 4": {},
    "task party has the label only": {"task_has": "label"},
    "models see the numbers": {"inputs": "raw"},
    "five data parties, models of their columns": {"data_parties": 5, "trained_on": "dealt"},
    "both: five data parties, label only": {
        "data_parties": 5, "trained_on": "dealt", "task_has": "label",
    },
}  # fmt: skip
#: the two that are run in full: the second once fewer repetitions had shown how much hangs on it
FULL = ("as in Figure 4", "task party has the label only")


@dataclass(frozen=True)
class Scale:
    """What a profile runs: data sets, repetitions behind a seed, and seeds."""

    datasets: tuple[str, ...]
    repetitions: int
    readings: int  # repetitions behind a seed for the other readings; 0 leaves these out
    seeds: tuple[int, ...]
    models: tuple[int, ...]
    change: dict[str, Any]


SCALES = {
    "smoke": Scale(
        ("wine", "breast"), 1, 0, (0, 1, 2), (0, 1, 2), {"rows": 25, "background": 5, "walks": 25}
    ),
    "laptop": Scale(
        ("wine", "parkinsons", "spect", "breast", "music"), 2, 0, tuple(range(5)),
        tuple(range(5)), {},
    ),
    "paper": Scale(tuple(TABLES), 10, 1, tuple(range(5)), tuple(range(10)), {}),
}  # fmt: skip
#: Credit has 30,000 rows and its forest takes half a second per explained row: fewer rows and
#: permutations than elsewhere.
REDUCED: dict[str, dict[str, Any]] = {"credit": {"rows": 25, "walks": 100}}


def _scale(profile: str) -> Scale:
    if profile not in SCALES:
        raise ValueError(f"unknown profile {profile!r}; there are {', '.join(SCALES)}")
    return SCALES[profile]


def _correlation(profile: str) -> list[Setting]:
    scale = _scale(profile)
    found = []
    for name, change in READINGS.items():
        if change and not scale.readings:
            continue
        for dataset in scale.datasets:
            if name not in FULL and dataset == "credit":
                continue
            base = Setting(dataset, repetitions=scale.repetitions, **scale.change)
            base = replace(base, **(REDUCED.get(dataset, {}) if profile == "paper" else {}))
            base = base if name in FULL else replace(base, repetitions=scale.readings)
            found += [replace(base, features=k, **change) for k in FEATURES]
    return found


def _models(profile: str) -> list[Setting]:
    datasets = _scale(profile).datasets
    found = [Setting(d, repetitions=1) for d in datasets]
    return found + [replace(s, inputs="raw") for s in found if s.dataset != "credit"]


def _approximation(profile: str) -> list[Approximation]:
    if profile == "smoke":
        small = Approximation("breast", features=3, samplings=(25, 100, 1200), components=(2, 3, 4))
        return [small]
    found = [Approximation("breast", features=2), Approximation("music", features=4)]
    return [a for a in found if a.dataset in _scale(profile).datasets]


_TINY = asdict(Setting("wine", features=3, repetitions=1, rows=10, background=5, walks=25))
_SWITCHES: dict[str, dict[str, Any]] = {
    "inputs": {}, "features": {}, "task_has": {}, "data_parties": {}, "trained_on": {},
}  # fmt: skip
CORRELATION = Tiny("correlation", run_correlation, _TINY, switches=_SWITCHES)
MODELS = Tiny("models", run_models, _TINY, switches={"inputs": {}})
APPROXIMATION = Tiny(
    "approximation",
    run_approximation,
    asdict(Approximation("breast", features=4, samplings=(25,), components=(2, 3))),
)


def _register(
    name: str,
    title: str,
    settings: Callable[[str], Sequence[Any]],
    run: RunFunction,
    golden: Tiny,
) -> None:
    def cells(profile: str, seeds: Sequence[int] | None = None) -> list[Cell]:
        scale = _scale(profile)
        found = []
        for s in settings(profile):
            many = name == "models" and s.dataset != "credit"
            own = scale.models if many else scale.seeds
            chosen = tuple(own if seeds is None else seeds)
            found.append(Cell(profile, "fedvalue", name, asdict(s), chosen))
        return found

    register(Experiment("fedvalue", name, title, cells, run, (golden,)))


_register("models", "Accuracy of the models (Table 8)", _models, run_models, MODELS)
_register(
    "correlation", "MShapley-CMI beside SHAP values (Figures 4 and 5)", _correlation,
    run_correlation, CORRELATION,
)  # fmt: skip
_register(
    "approximation", "Shapley sampling and PCA (Figures 8 and 9)", _approximation,
    run_approximation, APPROXIMATION,
)  # fmt: skip
