"""What the task party is told: values, what chance alone would give, tests, and warnings."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from fedkit.fedvalue import information
from fedkit.fedvalue import report as valuereport
from fedkit.fedvalue.columns import VerticalData
from fedkit.fedvalue.information import mshapley_cmi
from fedkit.fedvalue.protocol.parties import count_securely
from fedkit.fedvalue.report import assess
from fedkit.fedvalue.significance import permutation_p_values
from fedkit.games import Valuation
from fedkit.streams import Streams

ROWS = 90
DRAWN = Streams(21).generator("report")
Y = DRAWN.integers(2, size=ROWS)
TASK = DRAWN.integers(2, size=ROWS)
REAL, NOISE = Y ^ (DRAWN.random(ROWS) < 0.1), DRAWN.integers(5, size=ROWS)
DATA = VerticalData(TASK, Y, {"bank": REAL, "telco": NOISE})


@pytest.fixture(scope="module")
def counts():
    return count_securely(DATA, seed=1, artificial=ROWS)


def test_values_beside_what_chance_would_give(counts):
    report = assess(counts, test=True, draws=499, label="churn")
    plain = mshapley_cmi(DATA)
    fair = mshapley_cmi(DATA, correction="permutation")
    assert report.plugin.values.tolist() == plain.values.tolist()
    assert report.corrected.values == pytest.approx(fair.values, abs=1e-12)
    rows = permutation_p_values(DATA, draws=499)
    assert report.evidence.p_values[0] == rows.p_values[0] == 1 / 500
    assert report.evidence.p_values[1] == pytest.approx(rows.p_values[1], abs=0.1)
    shown = report.to_frame()
    assert list(shown) == ["party", "plug-in", "permutation", "p", "p (Holm)"]
    assert fair.values[1] < 0 < plain.values[1]  # so there is something to warn of
    assert report.doubtful == ("telco",)
    text = str(report)
    joined = " ".join(text.split())
    assert f"bank {plain.values[0]:.6f}" in joined
    assert "warning: telco is above 0 by the plug-in alone" in joined
    assert "warning: bank" not in text
    assert "information about churn in nats" in text
    assert f"undetected with probability {counts.bound:.2g} at most" in joined
    assert counts.bound < 0.05
    found = json.loads(json.dumps(report.to_json()))  # the file holds all that is printed
    assert Valuation.from_dict(found["plugin"]).values.tolist() == plain.values.tolist()
    assert found["tests"]["p (Holm)"][0] == 2 / 500
    assert (found["rows"], found["label"]) == (ROWS, "churn")
    assert found["undetected_at_most"] == counts.bound
    assert found["doubtful"] == ["telco"]


def test_what_is_not_asked_for_is_not_shown(counts):
    bare = assess(counts, correction="plugin", test=False)
    assert list(bare.to_frame()) == ["party", "plug-in"]
    assert bare.doubtful == bare.unproven == ()
    assert "warning: nothing is tested, and a party of pure noise" in " ".join(str(bare).split())
    assert {bare.to_json()[key] for key in ("corrected", "tests")} == {None}
    first = assess(counts, correction="miller-madow", test=False)
    assert list(first.to_frame()) == ["party", "plug-in", "miller-madow"]
    few = str(assess(count_securely(DATA, seed=1, artificial=1)))
    assert "close to 1 (as many artificial IDs as there are rows" in " ".join(few.split())


def test_parties_are_tested_unasked_where_that_is_quick(counts, monkeypatch):
    report = assess(counts, draws=99)
    assert report.unproven == ("telco",)
    assert "not shown to tell more" not in str(report)  # one warning for a party, the stronger
    text = " ".join(str(replace(report, corrected=None)).split())
    assert "warning: not shown to tell more than chance beside the task party" in text
    assert "above 0.05): telco" in text
    assert "nothing is tested" not in text
    assert report.to_json()["unproven"] == ("telco",)
    monkeypatch.setattr(valuereport, "TEST_WORK", 2 * len(counts.counts) * 99 - 1)
    assert assess(counts, draws=99).evidence is None
    assert assess(counts, draws=98).evidence is not None
    assert assess(counts, draws=99, test=True).evidence is not None


@pytest.mark.parametrize(
    ("options", "made", "queries"),
    [
        ({}, ", consistency, total, margins", 2),
        ({"iterations": 1}, ", total, margins", 1),
        ({"hardened": False}, ", consistency", 2),
    ],
)
def test_only_checks_that_were_made_are_claimed(options, made, queries):
    text = str(assess(count_securely(DATA, seed=1, **options), draws=9))
    told = f"that hold: seals, IDs, non-negativity, divisibility{made} a server that changed"
    assert told in " ".join(text.split())
    assert text.startswith(f"verified (queries: {queries}):")


def test_standard_errors_where_orders_are_sampled(counts, monkeypatch):
    monkeypatch.setattr(information, "EXACT_WORK", 0)
    monkeypatch.setattr(information, "WALKS", 20)
    report = assess(counts)
    errors = report.to_frame()["standard error"]
    assert errors.tolist() == report.corrected.standard_errors.tolist()
    assert "of the sampled orders" in str(report)
    assert report.to_json()["plugin"]["exact"] is False


def test_plug_in_zero_is_nothing_to_warn_of():
    data = VerticalData(TASK, Y, {"copy": TASK, "constant": np.zeros(ROWS)})
    assert assess(count_securely(data, seed=1)).doubtful == ()
