"""The numbers that pages quote: all of them are quoted, and missing records are told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from refusals import refused

from reproduction import report
from reproduction.arena import findings as arena
from reproduction.fedccea import findings as fedccea
from reproduction.fedms import findings as fedms
from reproduction.fedowen import findings as fedowen
from reproduction.fedtsv import findings as fedtsv
from reproduction.fedvalue import findings as fedvalue
from reproduction.foundations import findings as foundations
from reproduction.records import Store

ROOT = Path(__file__).resolve().parent.parent
ROLE = r"{glue:text}`(?:[^`]*::)?([\w.-]+)(?::[^`]*)?`"
PAGES = [ROOT / "README.md", *ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.md")]
QUOTED = {name for page in PAGES for name in re.findall(ROLE, page.read_text("utf-8"))}
NUMBERS = {
    "arena": (arena.Evidence, arena.numbers),
    "fedccea": (fedccea.Evaluation, fedccea.numbers),
    "fedms": (fedms.Evaluation, fedms.numbers),
    "fedowen": (fedowen.Evaluation, fedowen.numbers),
    "fedtsv": (fedtsv.Evaluation, fedtsv.numbers),
    "fedvalue": (fedvalue.Evaluation, fedvalue.numbers_of_value),
    "fedvalue market": (fedvalue.Evaluation, fedvalue.numbers_of_market),
    "fedvalue experiments": (fedvalue.Evaluation, fedvalue.numbers_of_experiments),
    "fedvalue protocol": (fedvalue.Evaluation, fedvalue.numbers_of_protocol),
    "fedvalue hardening": (fedvalue.Evaluation, fedvalue.numbers_of_hardening),
}


@pytest.mark.parametrize("page", NUMBERS)
def test_a_page_without_its_records_says_so(page, tmp_path):
    evaluation, numbers = NUMBERS[page]
    said = rf"no record of \w+ at profile '\w+' in {tmp_path}; make it with: fedkit run "
    refused(said + page.split()[0], numbers, evaluation("paper", Store(tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*NUMBERS, "foundations", "claims"])
def test_every_number_is_quoted_by_a_page(page):
    if page == "foundations":
        found = foundations.numbers()
    elif page == "claims":
        found = report.numbers(report.Report())
    else:
        evaluation, numbers = NUMBERS[page]
        found = numbers(evaluation("paper"))
    assert set(found) <= QUOTED, sorted(set(found) - QUOTED)
