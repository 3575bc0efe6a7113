"""The report on all papers: counts on one basis each, and numbers that its words agree with."""

import re
from pathlib import Path

import pandas as pd
import pytest

from reproduction import report, tables
from reproduction import verdicts as v
from reproduction.claims import load_claims
from reproduction.experiments import get
from reproduction.fedowen.findings import SETS
from reproduction.readings import choices_of
from reproduction.records import Store
from reproduction.report import HEADLINES, WRITTEN, Report, decided

POLICY = Path(__file__).parents[1] / "book" / "policy.md"


@pytest.fixture(scope="module")
def told():
    return Report()


def test_what_is_decided_of_what():
    verdicts = [v.REPRODUCED, v.DIRECTION, v.NOT_REPRODUCED, v.TURNS, v.INCONCLUSIVE, v.UNDECIDABLE,
                v.NOT_ATTEMPTED, v.NOT_TESTABLE]  # fmt: skip
    assert decided(pd.DataFrame({"verdict": verdicts})) == (4, 5, 7)


def test_claims_and_findings_are_counted_apart_on_one_basis_each(told):
    numbers = report.numbers(told)
    assert numbers["n_claims"] == numbers["n_construction"] + len(told.claims)
    assert tables.by_paper(told.findings).loc[v.TURNS, "all"] == numbers["findings_turn"]
    for frame in (told.claims, told.findings):
        table, (yes, can, testable) = tables.by_paper(frame), decided(frame)
        assert table["all"].sum() == len(frame)
        assert list(table.index) == list(v.VERDICTS)
        assert yes <= can <= testable
    left_out = [numbers[f"findings_{why}"] for why in ("not_run", "shown", "never")]
    assert can + sum(left_out) == testable  # of the findings
    for basis in ("claims", "findings"):
        shares = [float(numbers[f"{basis}_{of}_share"]) for of in ("can", "decidable", "testable")]
        assert shares == sorted(shares, reverse=True)
    assert told.findings["claims"].sum() == len(told.claims)
    assert len(told.findings) < len(told.claims)
    assert set(told.everything["verdict"]) <= set(v.VERDICTS)  # the list is closed


def test_every_paper_has_headlines_that_are_judged(told):
    assert list(told.headlines.index) == list(HEADLINES)
    assert set(told.headlines["paper_key"].str.rstrip("*")) == set(WRITTEN.values())
    assert not told.headlines["verdict"].isin(v.UNJUDGED).any()


def test_a_verdict_on_cifar_10_says_that_ours_is_a_copy(told):
    run = told.everything[told.everything["profile"] != ""]
    there = run["claim"].str.contains("cifar10")
    assert there.sum() > 50
    assert run["note"].str.contains("JPEG copy")[there].all()
    assert not run["note"].str.contains("JPEG copy")[run["claim"].str.contains("mnist")].any()
    frame = told.frames["FedMS"]
    cells = frame["claim"].str.startswith("fedms.t1.") & frame["claim"].str.contains("cifar10")
    shown = cells & (frame["profile"] != "")
    assert tables.comparison_table(frame, "t1").count("JPEG copy") == shown.sum() > 0
    assert (~frame[shown]["verdict"].isin(v.UNJUDGED)).sum() > 5
    assert tables.claims_listing(frame[shown]).count("JPEG copy") == shown.sum()


def test_every_rule_in_use_is_explained_and_every_verdict_is_drawn(told):
    explained = re.findall(r"`(\w+)`", POLICY.read_text("utf-8"))
    assert set(told.judged["rule"].str.split(" ").str[0]) <= set(explained)
    drawn = set(v.LOOKS) - {"other"}
    assert drawn | {v.UNDECIDABLE, *v.UNJUDGED} == set(v.VERDICTS)
    (bars,) = report.bars(told).axes
    assert [t.get_text() for t in bars.get_yticklabels()] == list(WRITTEN.values())
    widths = sum(patch.get_width() for patch in bars.patches)
    assert widths == pytest.approx(100 * len(WRITTEN))


def test_the_words_of_the_report_agree_with_its_numbers(told):
    rows = told.everything
    names = [f"fedowen.{p}.{data}.vs-fedavg" for p in ("p1", "p2") for data in SETS]
    assert (rows.loc[names, "low"] < 0).all()
    assert rows.loc["fedowen.p1.mnist.vs-shapfed", "high"] < 0
    assert rows.loc["fedowen.unbiased", "verdict"] == v.NOT_REPRODUCED
    assert rows.loc["fedms.p1.mnist.vs-fedavg", "low"] > 0
    harm = rows.loc["fedms.p2.vs-fedavg"]
    assert harm["low"] > 0 > float(harm["paper"])
    assert rows.loc["fedtsv.best.cgsv.mnist", "verdict"] == v.TURNS
    assert rows.loc["fedtsv.best.cgsv.mnist", "high"] < 0
    assert rows.loc["fedtsv.best-at-its-rate.cgsv", "low"] > 0
    assert rows.loc["fedvalue.ensemble-above-80.5", "high"] < 50
    assert rows.loc["fedvalue.deceived.3", "low"] > 0.3 > rows.loc["fedvalue.deceived.9", "high"]
    assert report.numbers(told)["find-ccea"].startswith("−")


def test_tables_of_the_report_have_a_row_for_each(told):
    assert report.headlines(told).html.count("<tr") >= len(HEADLINES)
    assert report.verdicts(told).html.count("<tr") >= len(v.VERDICTS)
    assert report.rules(told).html.count("<tr") > 5


def test_every_planned_run_names_an_experiment_that_exists():
    rows = tables.planned()
    assert not rows.isna().any(axis=None)
    for paper, name in zip(rows.index, rows["experiment"], strict=True):
        assert get(paper, name).cells("paper", None)


def test_fedms_stands_with_the_whole_class_beside_the_tenth(told):
    assert f"one setting) {told.fedms['ms-whole'].text(1)}" in report.headlines(told).text


@pytest.mark.parametrize("paper", WRITTEN)
def test_a_chapter_shows_every_choice_and_the_verdicts_under_those_on_record(paper, tmp_path):
    rows = choices_of(paper)
    assert tables.choices(paper).count("\n") == len(rows) + 1
    shown = tables.other_choices(Store(tmp_path), load_claims(paper)).html
    assert shown.count("<tr") == 1  # there is no record, and a head
