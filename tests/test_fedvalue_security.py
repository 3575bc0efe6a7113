"""FedValue's security, leaks, times and their pictures: examples, records and what tables show."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedkit.fedvalue.protocol.attacks import ATTACKS, attempt
from fedkit.streams import Streams
from reproduction.experiments import get
from reproduction.fedvalue import security
from reproduction.fedvalue.experiments import PROTOCOLS
from reproduction.fedvalue.figures import server_view, watched
from reproduction.fedvalue.security import contingency


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
    assert contingency(codes)[3].tolist() == [10, 30]
