"""FedValue's security, leaks, times and their pictures: examples, records and what tables show."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedkit.fedvalue.protocol.attacks import ATTACKS, attempt
from fedkit.streams import Streams
from reproduction.experiments import get
from reproduction.fedvalue import findings, security, tables
from reproduction.fedvalue.experiments import PROTOCOLS
from reproduction.fedvalue.figures import sequence_diagram, server_view, watched
from reproduction.fedvalue.security import contingency
from reproduction.records import Store


def test_the_profiles():
    security = get("fedvalue", "security").cells("paper")
    assert {c.settings["attack"] for c in security} == set(ATTACKS)
    for name, cells, seeds in (("security", 78, 5), ("leak", 53, 10), ("scaling", 68, 3)):
        found = get("fedvalue", name).cells("paper")
        assert len({c.key for c in found}) == len(found) == cells
        assert all(len(c.seeds) == seeds for c in found)


def ends(attack, protocol, trials=6, people=80, **options):
    """How attacks on new people each time end."""
    return [
        attempt(
            attack,
            security.example("example", people, Streams(t).generator("people")),
            seed=t,
            **PROTOCOLS[protocol] | options,
        )
        for t in range(trials)
    ]


@pytest.mark.parametrize(
    "drawn",
    [
        {"duplications": (2, 9), "iterations": 2},
        {"duplications": (2, 40), "iterations": 4},
        {"duplications": (97, 97), "iterations": 1, "artificial": 0},
    ],
)
def test_the_size_of_an_upload_passes_the_printed_checks_with_certainty(drawn):
    assert all(end.changed for end in ends(ATTACKS["upload size"], "printed", 4, **drawn))


def test_the_size_of_an_upload_is_the_number_that_the_task_party_has_sent():
    seen = []

    def watched(view):
        answer = ATTACKS["upload size"](view)
        seen.append((answer.counts.sum() == view.sizes[0], view.target))
        return answer

    assert all(end.changed for end in ends(watched, "printed", 2))
    assert all(same for same, target in seen if target)
    # and a server that remembers nothing may say so in every query
    every = ends(lambda view: view.answer(np.array([view.sizes[0]])), "printed", 2)
    assert all(end.changed for end in every)


def test_where_all_sets_are_the_cell_there_is_no_other_size():
    y = np.zeros(8, dtype=int)
    options = PROTOCOLS["printed"]
    end = attempt(ATTACKS["upload size"], (y, y, [y]), seed=0, **options)
    assert (end.changed, end.check) == (False, "")


def test_growth_fits_sizes_that_every_seed_ran():
    frame = pd.DataFrame(
        [
            {"seed": seed, "metric": "core_seconds", "value": 2e-6 * rows**slope,
             "protocol": "hardened", "varied": "rows", "rows": rows}
            for seed, slope in enumerate((1.0, 1.1, 1.2))
            for rows in (10, 100, 1_000, 10_000, 100_000)
            if rows < 100_000 or seed == 0
        ]
    )  # fmt: skip
    e = findings.Evaluation(store=SimpleNamespace(frame=lambda *_: frame))
    found = findings.growth(e).loc[("hardened", "rows")]
    assert (found["from"], found["to"], found["runs"]) == (10, 10_000, 3)
    assert found["exponent"].text() == "1.10 [0.85, 1.35]"  # 1.1 +- 4.303 * 0.1 / sqrt(3)


def test_experiments_run_and_their_tables_read_them(tmp_path):
    store = Store(tmp_path)
    wanted = {
        "security": lambda s: (
            (
                s["protocol"] == "printed"
                and (s["attack"], s["high"]) in {("zeros", 9), ("best bet", 2), ("best bet", 9)}
            )
            or (s["data"], s["artificial_low"]) == ("cells", 400)
        ),
        "leak": lambda s: s["dataset"] == "wine" and s["features"] == 1 and s["level"] in (0, 2),
        "scaling": lambda s: s["varied"] == "rows" and s["protocol"] == "hardened",
    }
    for name, fits in wanted.items():
        cells = [c for c in get("fedvalue", name).cells("smoke", None) if fits(c.settings)]
        get("fedvalue", name).execute(cells, store, progress=False)
    e = findings.Evaluation("smoke", store)
    assert findings.attacked(e, "printed", "zeros").mean == 0
    known = findings.known_answers(e, "cells").loc[400]
    assert known["smallest share f (q = 2)"] == pytest.approx(1 / 3)
    assert known["bound (%)"] == pytest.approx(100 * (2 / 3) ** 4 * 0.75**6)
    told = repr(tables.bets(e))
    assert "100.0 [" in told
    assert "100·2⁻³²" in told
    found = findings.leaks(e, parties=3, features=1)
    certain, guessed = (found[metric, "wine", "none", 0.0] for metric in ("certain", "guessed"))
    assert certain.mean <= guessed.mean + 1e-9
    assert list(findings.growth(e).index) == [("hardened", "rows")]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("defence", ["none", "noise", "decoys"])
def test_exact_values_that_do_not_vary_rank_nobody(monkeypatch, defence):
    x = np.tile(np.indices((2, 2, 2)).reshape(3, 8).T, (5, 1)).astype(float)
    alike = SimpleNamespace(x=x, y=(x.sum(axis=1) >= 2).astype(int))  # whoever gets which column
    monkeypatch.setattr(security, "table", lambda name: alike)
    settings = {"dataset": "alike", "features": 1, "parties": 2, "defence": defence, "level": 1.0}
    (cell, *_) = get("fedvalue", "leak").cells("smoke", [0])
    (ran,) = security.run_leak(replace(cell, settings=settings, seeds=(0,)), None, False)
    assert ran["metrics"]["rank"] == 0


def test_the_server_sees_multiples_of_the_true_table():
    x = np.repeat([0, 1], [10, 30])
    codes = x, x, [x]
    options = {"seed": 0, "duplications": 3, "artificial": 0, "iterations": 1}
    (printed,) = watched(codes, hardened=False, **options)
    assert sorted(printed.counts) == [30, 90]
    picture = server_view(np.diag([10, 30]), {"printed": printed})
    true, seen = (sorted(t.get_text() for t in axis.texts) for axis in picture.axes)
    assert true == ["0", "0", "10", "30"]
    assert seen == ["0", "0", "30", "90"]
    assert picture.axes[1].get_xlabel() == "token of the data party"
    assert len(sequence_diagram().axes[0].texts) == 6 + 9 + 7  # lanes, steps, empty at arrows
    assert contingency(codes)[3].tolist() == [10, 30]
