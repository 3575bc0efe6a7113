"""What the task party is told, and what the commands refuse before anything is sent or written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")
pytest.importorskip("pandas")
pytest.importorskip("typer")

from countinghouse import House

from fedkit import cli
from fedkit.fedvalue import cmi
from fedkit.fedvalue import report as valuereport
from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.data import VerticalData
from fedkit.fedvalue.protocol.keys import new_key
from fedkit.fedvalue.protocol.secure import SecureCounts, count_securely
from fedkit.fedvalue.report import assess
from fedkit.fedvalue.service import cli as commands
from fedkit.fedvalue.service.client import CounterUnavailable
from fedkit.fedvalue.significance import permutation_p_values
from fedkit.streams import Streams

ROWS = 90
DRAWN = Streams(21).generator("report")
Y = DRAWN.integers(2, size=ROWS)
TASK = DRAWN.integers(2, size=ROWS)
REAL, NOISE = Y ^ (DRAWN.random(ROWS) < 0.1), DRAWN.integers(5, size=ROWS)
DATA = VerticalData(TASK, Y, {"bank": REAL, "telco": NOISE})


@pytest.fixture(scope="module")
def counts() -> SecureCounts:
    return count_securely(DATA, seed=1, artificial=ROWS)


def test_values_beside_what_chance_would_give(counts: SecureCounts) -> None:
    report = assess(counts, test=True, draws=499, label="churn")
    plain = mshapley_cmi(DATA)
    fair = mshapley_cmi(DATA, correction="permutation")
    assert report.plugin.values.tolist() == plain.values.tolist()
    assert report.corrected is not None
    assert report.corrected.values == pytest.approx(fair.values, abs=1e-12)
    assert report.evidence is not None
    rows = permutation_p_values(DATA, draws=499)
    assert report.evidence.p_values[0] == rows.p_values[0] == 1 / 500
    assert report.evidence.p_values[1] == pytest.approx(rows.p_values[1], abs=0.1)
    shown = report.columns()
    assert list(shown) == ["party", "plug-in", "permutation", "p", "p (Holm)"]
    assert shown["plug-in"] == [f"{v:.6f}" for v in plain.values]
    assert fair.values[1] < 0 < plain.values[1]  # so there is something to warn of
    assert report.doubtful == ("telco",)
    text = str(report)
    joined = " ".join(text.split())
    assert f"warning: telco has {plain.values[1]:.6f} by the plug-in and" in joined
    assert "warning: bank" not in text
    assert "information about churn in nats" in text
    for title in list(shown)[1:]:
        assert f"  {title}: " in text
    assert "standard error" not in text
    assert f"undetected with probability {counts.bound:.2g} at most" in joined
    assert counts.bound < 0.05
    assert "--artificial" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "&#x27;s own columns" in report._repr_html_()


def test_what_is_not_asked_for_is_not_shown(counts: SecureCounts) -> None:
    bare = assess(counts, correction="plugin", test=False)
    assert list(bare.columns()) == ["party", "plug-in"]
    assert bare.doubtful == ()
    assert bare.unproven == ()
    assert "warning: nothing is tested, and a party of pure noise" in " ".join(str(bare).split())
    assert bare.to_json()["corrected"] is None
    assert bare.to_json()["tests"] is None
    assert bare.to_json()["unproven"] is None
    first = assess(counts, correction="miller-madow", test=False)
    assert list(first.columns()) == ["party", "plug-in", "miller-madow"]
    few = count_securely(DATA, seed=1, artificial=1)
    assert "close to 1 (as many artificial IDs as there are rows" in " ".join(
        str(assess(few)).split()
    )
    with pytest.raises(ValueError, match="correction is 'knn'"):
        assess(counts, correction="knn")


def test_parties_are_tested_unasked_where_that_is_quick(
    counts: SecureCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = assess(counts, draws=99)
    assert report.evidence is not None
    assert report.unproven == ("telco",)
    text = " ".join(str(report).split())
    assert "warning: telco has 0.0" in text
    assert "not shown to tell more" not in text  # one warning for a party, the stronger
    copy = replace(report, corrected=None)
    text = " ".join(str(copy).split())
    assert "warning: not shown to tell more than chance beside the task party" in text
    assert "above 0.05): telco" in text
    assert "nothing is tested" not in text
    assert report.to_json()["unproven"] == ["telco"]
    monkeypatch.setattr(valuereport, "TEST_WORK", 2 * len(counts.counts) * 99 - 1)
    assert assess(counts, draws=99).evidence is None
    assert assess(counts, draws=98).evidence is not None
    assert assess(counts, draws=99, test=True).evidence is not None


@pytest.mark.parametrize(
    ("options", "made", "queries"),
    [
        ({}, ", consistency, total, margins", "2 queries"),
        ({"iterations": 1}, ", total, margins", "1 query"),
        ({"hardened": False}, ", consistency", "2 queries"),
    ],
)
def test_only_checks_that_were_made_are_claimed(
    options: dict[str, Any], made: str, queries: str
) -> None:
    text = str(assess(count_securely(DATA, seed=1, **options), draws=9))
    told = f"that hold: seals, IDs, non-negativity, divisibility{made} a server that changed"
    assert told in " ".join(text.split())
    assert text.startswith(f"verified: {queries} with")


def test_standard_errors_where_orders_are_sampled(
    counts: SecureCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmi, "EXACT_WORK", 0)
    monkeypatch.setattr(cmi, "WALKS", 20)
    report = assess(counts)
    errors = [title for title in report.columns() if title.startswith("standard error")]
    assert errors == ["standard error (plug-in)", "standard error (permutation)"]
    assert "of the sampled orders" in str(report)
    found = report.to_json()
    assert found["plugin"]["exact"] is False
    assert set(found["plugin"]["standard_errors"]) == {"bank", "telco"}


def test_the_file_holds_all_that_is_printed(counts: SecureCounts) -> None:
    report = assess(counts, test=True, draws=99, label="churn")
    found = json.loads(json.dumps(report.to_json()))
    assert found["parties"] == ["bank", "telco"]
    assert list(found["plugin"]["values"].values()) == report.plugin.values.tolist()
    assert found["plugin"]["task_value"] == report.plugin.task_value
    assert found["plugin"]["standard_errors"] is None
    assert found["corrected"]["correction"] == "permutation"
    assert found["tests"]["p_holm"]["bank"] == 2 / 100
    assert (found["rows"], found["label"], found["unit"]) == (ROWS, "churn", "nats")
    assert found["undetected_at_most"] == counts.bound
    assert found["doubtful"] == ["telco"]


# ------------------------------------------------------------------------------- the commands


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tables of three parties and their key."""
    monkeypatch.chdir(tmp_path)
    Path("federation.key").write_text(new_key().hex(), "ascii")
    for name, columns in (("shop", {"x": TASK, "churn": Y, "same": Y * 0}),
                          ("bank", {"a": REAL.astype(int)}), ("telco", {"b": NOISE})):  # fmt: skip
        lines = [",".join(["id", *columns])]
        rows = zip(*columns.values(), strict=True)
        lines += [",".join([f"{i:03d}", *map(str, row)]) for i, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join(lines), "utf-8")
    return tmp_path


@pytest.fixture
def house(files: Path) -> Iterator[House]:
    """A server whose folder is that of the files."""
    found = House(files)
    yield found
    found.stop()


def command(name: str, url: str, *more: str) -> list[str]:
    first = ["party"]
    if name == "shop":
        first = ["value", "--parties", "bank,telco", "--label", "churn"]
    files = ["--data", f"{name}.csv", "--key-file", "federation.key", "--token-file"]
    return [
        "fedvalue", *first, "--name", name, *files, f"{name}.token", "--url", url, *more,
    ]  # fmt: skip


def answering(house: House, jobs: int) -> list[threading.Thread]:
    """The data parties' programs, as threads."""
    more = ["--max-jobs", str(jobs)]
    threads = [
        threading.Thread(target=cli.main, args=(command(name, house.url, *more),))
        for name in ("bank", "telco")
    ]
    for thread in threads:
        thread.start()
    return threads


def test_the_commands_from_files_to_values(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    threads = answering(house, 2)
    more = ["--test", "--draws", "199", "--artificial", "90,99", "--json", "values.json"]
    assert cli.main(command("shop", house.url, *more)) == 0
    for thread in threads:
        thread.join(60)
    said = capsys.readouterr().out
    found = json.loads(Path("values.json").read_text("utf-8"))
    assert list(found["plugin"]["values"].values()) == mshapley_cmi(DATA).values.tolist()
    assert all(90 <= number <= 99 for number in found["artificial"])
    assert found["tests"]["p"]["bank"] == 1 / 200
    assert "warning: telco has" in said
    assert "taking up" not in said
    assert cli.main(command("bank", house.url, "--once")) == 0
    assert "bank: taking up with the secret in bank.state" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        (
            "shop",
            ["--label", "same"],
            "label 'same' has the one value 0 in all 90 rows of shop.csv",
        ),
        ("shop", ["--bins", "1"], "bins is 1, and in one bin"),
        ("bank", ["--bins", "1"], "bins is 1, and in one bin"),
        ("shop", ["--artificial", "many"], "artificial is 'many'; expected LOW,HIGH"),
        ("shop", ["--artificial", "1,2,3"], "artificial is '1,2,3'; expected LOW,HIGH"),
        ("shop", ["--artificial", "9,3"], "low at most high"),
        ("shop", ["--artificial", "-1"], "artificial is -1"),
        ("shop", ["--iterations", "0"], "iterations is 0"),
        ("shop", ["--test", "--draws", "0"], "draws is 0"),
        ("shop", ["--draws", "0"], "draws is 0"),
        ("shop", ["--json", "none/values.json"], "there is no folder none"),
        ("shop", ["--label", "Churn"], "name one of these, or write them alike"),
    ],
)
def test_what_is_refused_before_anything_is_asked(
    files: Path, capsys: pytest.CaptureFixture[str], name: str, more: list[str], words: str
) -> None:
    before = set(files.iterdir())
    Path(f"{name}.token").write_text("token", "ascii")
    assert cli.main(command(name, "http://127.0.0.1:9", *more)) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert set(files.iterdir()) - before == {files / f"{name}.token"}


def test_a_token_of_another_party_is_refused_before_a_secret_is_made(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(Path().iterdir())
    for name, other in (("bank", "telco"), ("shop", "rival")):
        assert cli.main(command(name, house.url, "--token-file", f"{other}.token")) == 1
        error = capsys.readouterr().err
        assert f"the token is that of {other!r} and not of {name!r}" in error
    for name, odd, words in (
        ("shop", ["--parties", "bank,telko"], "no token was ever made for telko"),
        (
            "bank",
            ["--parties", "telco", "--label", "a"],
            "by its token, bank is a data party: fedkit fedvalue party",
        ),
    ):
        asked = command("shop", house.url, "--name", name, "--data", f"{name}.csv", *odd)
        assert cli.main([*asked, "--token-file", f"{name}.token"]) == 1
        assert words in capsys.readouterr().err
    asked = command("bank", house.url, "--name", "shop", "--data", "shop.csv")
    assert cli.main([*asked, "--token-file", "shop.token"]) == 1
    assert "shop is a task party: fedkit fedvalue value" in capsys.readouterr().err
    assert set(Path().iterdir()) == before
    assert house.jobs() == []


def test_other_ids_may_be_the_same_written_otherwise(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path("bank.csv")
    file.write_text(file.read_text("utf-8").replace("\n007,", "\n7,"), "utf-8")
    threads = answering(house, 1)
    assert cli.main(command("shop", house.url)) == 1
    for thread in threads:
        thread.join(60)
    error = capsys.readouterr().err
    assert "'bank' holds other IDs" in error
    assert "or write the IDs alike (007 is not 7)" in error
    assert house.jobs() == []


def test_a_party_waits_for_its_server_and_then_asks_who_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def pending(name: str) -> list[Any]:
        asked.append(name)
        if len(asked) < 3:
            raise CounterUnavailable("no answer")
        return []

    monkeypatch.setattr(commands.time, "sleep", lambda _: None)
    counter: Any = SimpleNamespace(pending=pending, role="data")
    commands.admit(counter, "bank", "data", wait=True)
    assert asked == ["bank"] * 3
    assert capsys.readouterr().out == "bank: no answer; trying on\n"
    asked.clear()
    with pytest.raises(CounterUnavailable):
        commands.admit(counter, "bank", "data")


def test_what_a_command_says_of_its_file(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    Path("odd.csv").write_text("id,amount\n" + "".join(f"{i},{i}\n" for i in range(30)), "utf-8")
    more = ["--data", "odd.csv", "--label", "amount", "--parties", "bank", "--timeout", "0.05"]
    assert cli.main(command("shop", house.url, *more)) == 1
    said = capsys.readouterr().out
    assert "shop: 30 rows, features: 0, label: amount, data parties: bank\n" in said
    assert "shop: warning: the label 'amount' has 30 levels in 30 rows: is it an amount" in said
    assert cli.main(command("bank", house.url, "--once")) == 0
    assert "bank: 90 rows, features: 1; waiting" in capsys.readouterr().out


def test_plug_in_zero_is_nothing_to_warn_of() -> None:
    data = VerticalData(TASK, Y, {"copy": TASK, "constant": np.zeros(ROWS)})
    assert assess(count_securely(data, seed=1)).doubtful == ()
