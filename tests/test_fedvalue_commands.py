"""The commands ``fedkit fedvalue ...``: what they refuse, and what they say."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from countinghouse import House
from test_fedvalue_valuereport import DATA, NOISE, REAL, TASK, Y

from fedkit.fedvalue.cmi import mshapley_cmi
from fedkit.fedvalue.service import demo as show
from fedkit.fedvalue.service.access import issue_tokens
from fedkit.fedvalue.service.client import RemoteCounter
from reproduction import commands as cli

AWAY = "http://127.0.0.1:9"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the tables of three parties and their key, which is where we are."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["fedvalue", "keygen", "federation.key"]) == 0
    for name, columns in (("shop", {"x": TASK, "churn": Y, "same": Y * 0}),
                          ("bank", {"a": REAL.astype(int)}), ("telco", {"b": NOISE})):  # fmt: skip
        lines = [",".join(["id", *columns])]
        rows = zip(*columns.values(), strict=True)
        lines += [",".join([f"{i:03d}", *map(str, row)]) for i, row in enumerate(rows)]
        Path(f"{name}.csv").write_text("\n".join(lines), "utf-8")
    return tmp_path


@pytest.fixture
def house(files):
    """A server whose folder is that of the files."""
    found = House(files)
    yield found
    found.stop()


def command(name, url, *more):
    first = ["party"]
    if name == "shop":
        first = ["value", "--parties", "bank,telco", "--label", "churn"]
    files = ["--data", f"{name}.csv", "--key-file", "federation.key", "--token-file"]
    return [
        "fedvalue", *first, "--name", name, *files, f"{name}.token", "--url", url, *more,
    ]  # fmt: skip


@contextmanager
def answering(house, jobs):
    """The data parties' programs, as threads, until they have answered so many jobs."""
    with ThreadPoolExecutor(2) as pool:
        for name in ("bank", "telco"):
            pool.submit(cli.main, command(name, house.url, "--max-jobs", str(jobs)))
        yield


def test_the_commands_from_files_to_values(house, capsys):
    more = ["--test", "--draws", "199", "--artificial", "90,99", "--json", "values.json"]
    with answering(house, 2):
        assert cli.main(command("shop", house.url, *more)) == 0
    said = capsys.readouterr().out
    found = json.loads(Path("values.json").read_text("utf-8"))
    assert list(found["plugin"]["values"].values()) == mshapley_cmi(DATA).values.tolist()
    assert all(90 <= number <= 99 for number in found["artificial"])
    assert found["tests"]["p"]["bank"] == 1 / 200
    assert "warning: telco has" in said
    assert "taking up" not in said
    assert cli.main(command("bank", house.url, "--once")) == 0
    assert "bank: taking up with the secret in bank.state" in capsys.readouterr().out


SERVE = ["serve", "--folder", "kept", "--tokens", "tokens.db", "--port", "0"]


@pytest.mark.parametrize(
    ("what", "more", "words"),
    [
        (["keygen", "federation.key"], [], "never overwritten"),
        (["tokens", "tokens.db"], [], "no party is named"),
        (["tokens", "bank.csv"], ["--data", "new"], "is not a file of tokens"),
        (SERVE, ["--tokens", "none.json"], "none.json is not there"),
        (SERVE, ["--host", "0.0.0.0"], "without TLS every token could be read"),
        (SERVE, ["--tls-cert", "bank.csv"], "both a certificate and its key"),
        (SERVE, ["--tls-cert", "bank.csv", "--tls-key", "bank.csv"], "cannot be used"),
        (SERVE, ["--max-jobs", "0"], "the limit jobs is 0"),
        (SERVE, ["--max-upload-mb", "nan"], "the limit upload_bytes is nan"),
        ("bank", ["--timeout", "nan"], "timeout is nan; expected a finite number"),
        ("bank", ["--data", "none.csv"], "none.csv"),
        ("bank", ["--columns", "a,z"], "no column 'z'"),
        ("bank", ["--bins", "1"], "bins is 1, and in one bin"),
        ("bank", ["--key-file", "bank.token"], "no key; expected are 64 hexadecimal"),
        ("bank", ["--key-file", "none.key"], "none.key: No such file"),
        ("bank", ["--token-file", "bank.csv"], "holds 91 words"),
        ("bank", ["--token-file", "federation.key"], "federation.key holds no token"),
        ("shop", ["--token-file", "federation.key"], "begins with fkv_; nothing was sent"),
        ("bank", ["--url", "127.0.0.1"], "no address of a server"),
        ("bank", ["--url", "http://example.org"], "in the clear"),
        ("bank", ["--once"], "gave no answer after 7 tries: ConnectError"),
        ("bank", ["--url", "https://127.0.0.1:9", "--ca", "no"], "authority file no cannot be"),
        ("shop", ["--timeout", "nan"], "timeout is nan; expected a finite number"),
        ("shop", ["--label", "Churn"], "name one of these, or write them alike"),
        ("shop", ["--label", "id"], "the label 'id' is the column of the IDs"),
        ("shop", ["--label", "same"], "'same' has the one value 0 in all 90 rows of shop.csv"),
        ("shop", ["--parties", ","], "expected different names, two or more"),
        ("shop", ["--correction", "knn"], "correction is 'knn'"),
        ("shop", ["--artificial", "1,2,3"], "artificial is '1,2,3'; expected LOW,HIGH"),
        ("shop", ["--artificial", "9,3"], "low at most high"),
        ("shop", ["--iterations", "0"], "iterations is 0"),
        ("shop", ["--blocks", "3"], "blocks is 3; expected a power of two"),
        ("shop", ["--json", "none/values.json"], "there is no folder none"),
    ],
)
def test_what_is_refused(files, capsys, monkeypatch, what, more, words):
    issue_tokens(files / "tokens.db", files, task=["shop"], data=["bank"])
    before = set(files.iterdir())
    monkeypatch.setitem(RemoteCounter.__init__.__kwdefaults__, "sleep", lambda _: None)
    capsys.readouterr()
    asked = command(what, AWAY, *more) if isinstance(what, str) else ["fedvalue", *what, *more]
    assert cli.main(asked) == 1
    error = capsys.readouterr().err
    assert error.startswith("fedkit: ")
    assert error.count("\n") == 1
    assert words in error
    assert what[0] == "serve" or set(files.iterdir()) == before  # before anything is written


@pytest.mark.parametrize(
    ("what", "option"),
    [(SERVE, ["--port", "99999"]), ("bank", ["--max-jobs", "0"]), ("shop", ["--draws", "0"])],
)
def test_numbers_out_of_range_are_refused(files, capsys, what, option):
    asked = command(what, AWAY, *option) if isinstance(what, str) else ["fedvalue", *what, *option]
    assert cli.main(asked) == 2
    assert f"{option[1]} is not in the range" in capsys.readouterr().err


def test_a_token_of_another_party_is_refused_before_a_secret_is_made(house, capsys):
    before = set(Path().iterdir())
    for name, other in (("bank", "telco"), ("shop", "rival")):
        assert cli.main(command(name, house.url, "--token-file", f"{other}.token")) == 1
        error = capsys.readouterr().err
        assert f"the token is that of {other!r} and not of {name!r}" in error
    for name, odd, words in (
        ("shop", ["--parties", "bank,telko"], "no token was ever made for telko"),
        ("bank", ["--parties", "telco", "--label", "a"], "bank is a data party: fedkit fedvalue p"),
    ):
        asked = command("shop", house.url, "--name", name, "--data", f"{name}.csv", *odd)
        assert cli.main([*asked, "--token-file", f"{name}.token"]) == 1
        assert words in capsys.readouterr().err
    asked = command("bank", house.url, "--name", "shop", "--data", "shop.csv")
    assert cli.main([*asked, "--token-file", "shop.token"]) == 1
    assert "shop is a task party: fedkit fedvalue value" in capsys.readouterr().err
    Path("odd.token").write_text("fkv_of_another_server", "ascii")
    assert cli.main(command("bank", house.url, "--token-file", "odd.token")) == 1
    assert "refuses (401): this token is unknown here" in capsys.readouterr().err
    assert set(Path().iterdir()) == before | {Path("odd.token")}
    assert house.jobs() == []


def test_other_ids_may_be_the_same_written_otherwise(house, capsys):
    file = Path("bank.csv")
    file.write_text(file.read_text("utf-8").replace("\n007,", "\n7,"), "utf-8")
    with answering(house, 1):
        assert cli.main(command("shop", house.url)) == 1
    error = capsys.readouterr().err
    assert "'bank' holds other IDs" in error
    assert "or write the IDs alike (007 is not 7)" in error
    assert house.jobs() == []


def test_what_a_command_says_of_its_file_and_of_who_is_missing(house, capsys):
    rows = "".join(f"{i},{i},t{i},\n" for i in range(30))
    Path("odd.csv").write_text("id,amount,town,income\n" + rows)
    more = ["--data", "odd.csv", "--label", "amount", "--parties", "bank", "--timeout", "0.05"]
    assert cli.main(command("shop", house.url, *more)) == 1
    said, error = capsys.readouterr()
    assert "shop: 30 rows, features: 2, label: amount, data parties: bank\n" in said
    assert "shop: warning: the label 'amount' has 30 levels in 30 rows: is it an amount" in said
    assert "shop: warning: the task party's columns make 30 cells of 30 rows" in said
    assert "missing: bank" in error
    assert "the same command goes on" in error
    assert house.token("shop") not in said + error
    assert cli.main(command("bank", house.url, "--once")) == 0
    assert "bank: 90 rows, features: 1; waiting" in capsys.readouterr().out
    assert cli.main(command("bank", house.url, "--once", "--data", "odd.csv")) == 0
    said = capsys.readouterr().out
    assert "bank: warning: column 'amount' of odd.csv is another in every row: is it an ID" in said
    assert "bank: warning: column 'income' of odd.csv is missing in all 30 rows" in said


@pytest.mark.slow
def test_the_demo_with_processes_that_are_killed(tmp_path):
    """Server, three data parties and a task party; the server and a party get SIGKILL."""
    pytest.importorskip("sklearn")
    keep = tmp_path / "demo"
    demo = show.Program(tmp_path / "log", "demo", "--keep", keep)
    try:
        code = demo.process.wait(900)
        said = demo.text()
        assert code == 0, said
    finally:
        demo.kill()
    assert "listens at http://" in said
    assert "IDs of patients found in them: 0" in said
    assert "equal, to the last bit" in said
    names = (show.TASK, *show.PARTIES)
    logs = {name: (keep / f"{name}.log").read_text("utf-8") for name in ("server", *names)}
    assert "took up 1 open jobs" in logs["server"]
    assert "Traceback" not in "".join(logs.values())
    # acknowledged uploads were not asked for again: of two jobs each party sent one upload each
    for name in names:
        assert logs["server"].count(f"upload of {name},") == 2
    secrets = [(keep / f"{name}.token").read_text("ascii").strip() for name in names]
    secrets.append((keep / "federation.key").read_text("ascii").strip())
    assert not [s for s in secrets for log in (*logs.values(), said) if s in log]
    # the values printed are those of the columns in one place
    _, clear = show.write_tables(tmp_path)
    for value in clear.values:
        assert said.count(f"{value:.6f}") == 2
    assert cli.main(["fedvalue", "demo", "--keep", str(keep)]) == 1
