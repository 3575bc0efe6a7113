"""``fedkit fedvalue``: what the commands refuse, and all of them together as processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("cryptography")
pytest.importorskip("typer")

from countinghouse import House

from fedkit import cli
from fedkit.fedvalue.service.demo import PARTIES, TASK, Program, write_tables


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key, tokens, and a small table, which is where we are."""
    monkeypatch.chdir(tmp_path)
    for command in (["keygen", "federation.key"],
                    ["tokens", "tokens.db", "--task", "shop", "--data", "bank"]):  # fmt: skip
        assert cli.main(["fedvalue", *command]) == 0
    rows = [f"{i},{i % 3},{i % 2}" for i in range(30)]
    (tmp_path / "bank.csv").write_text("\n".join(["id,a,label", *rows]), "utf-8")
    return tmp_path


BANK = ["party", "--name", "bank", "--data", "bank.csv", "--key-file", "federation.key",
        "--token-file", "bank.token", "--once"]  # fmt: skip
SHOP = ["value", "--name", "shop", "--parties", "bank", "--data", "bank.csv", "--label", "label",
        "--key-file", "federation.key", "--token-file", "shop.token"]  # fmt: skip
SERVE = ["serve", "--folder", "kept", "--tokens", "tokens.db", "--port", "0"]


def changed(command: list[str], option: str, value: str) -> list[str]:
    """The command with another value of an option."""
    if option not in command:
        return [*command, option, value]
    at = command.index(option)
    return [*command[: at + 1], value, *command[at + 2 :]]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["keygen", "federation.key"], "never overwritten"),
        (["tokens", "tokens.db"], "no party is named"),
        (["tokens", "tokens.db", "--data", "bank"], "--renew"),
        (["tokens", "tokens.db", "--data", "shop", "--task", "shop"], "named twice"),
        (["tokens", "bank.csv", "--data", "new"], "is not a file of tokens"),
        (changed(SERVE, "--tokens", "none.json"), "none.json"),
        (changed(SERVE, "--tokens", "bank.csv"), "not a file of tokens"),
        (changed(SERVE, "--folder", "bank.csv"), "bank.csv"),
        (changed(SERVE, "--host", "0.0.0.0"), "without TLS every token could be read"),
        (changed(SERVE, "--tls-cert", "bank.csv"), "both a certificate and its key"),
        ([*SERVE, "--tls-cert", "bank.csv", "--tls-key", "bank.csv"], "cannot be used"),
        (changed(SERVE, "--max-jobs", "0"), "the limit jobs is 0"),
        (changed(SERVE, "--port", "99999"), "port is 99999; expected is a number from 0 to 65535"),
        (changed(SERVE, "--port", "-1"), "port is -1; expected is a number from 0 to 65535"),
        (changed(SERVE, "--max-upload-mb", "nan"), "max-upload-mb is nan"),
        (changed(SERVE, "--job-days", "inf"), "the limit lifetime is inf"),
        (changed(BANK, "--timeout", "nan"), "timeout is nan; expected is a number from 0.001"),
        (changed(BANK, "--poll", "0"), "poll is 0.0; expected is a number from 0.01"),
        (changed(BANK, "--max-jobs", "0"), "max-jobs is 0"),
        (changed(SHOP, "--timeout", "nan"), "timeout is nan; expected is a number from 0.01"),
        (changed(SHOP, "--seed", "-1"), "seed is -1"),
        (changed(BANK, "--data", "none.csv"), "none.csv"),
        (changed(BANK, "--id-column", "key"), "no column 'key'"),
        (changed(BANK, "--columns", "a,z"), "no column 'z'"),
        (changed(BANK, "--bins", "0"), "bins is 0"),
        (changed(BANK, "--how", "odd"), "how is 'odd'"),
        (changed(BANK, "--key-file", "bank.token"), "no key; expected are 64 hexadecimal"),
        (changed(BANK, "--key-file", "none.key"), "key file none.key cannot be read"),
        (changed(BANK, "--token-file", "bank.csv"), "holds 31 words"),
        (changed(BANK, "--url", "127.0.0.1"), "no address of a server"),
        (changed(BANK, "--url", "http://example.org"), "in the clear"),
        (BANK, "gave no answer after 7 tries: ConnectError"),
        (changed(changed(BANK, "--url", "https://127.0.0.1:9"), "--ca", "no"), "authority file no"),
        (changed(SHOP, "--label", "y"), "no column 'y'"),
        (changed(SHOP, "--parties", ","), "expected different names, two or more"),
        (changed(SHOP, "--parties", "bank,bank"), "expected different names"),
        (changed(SHOP, "--correction", "knn"), "correction is 'knn'"),
        (changed(SHOP, "--iterations", "0"), "iterations is 0"),
    ],
)
def test_what_is_refused(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    command: list[str], words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("time.sleep", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    if command[0] in ("party", "value"):
        command = [*command[:1], "--url", nobody, *command[1:]]
    code = cli.main(["fedvalue", *command])
    error = capsys.readouterr().err
    assert code == 1
    assert error.startswith("fedkit: ")
    assert error.count("\n") == 1
    assert words in error


def test_a_port_that_is_taken(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.main(["fedvalue", *changed(SERVE, "--port", port)]) == 1
    assert "in use" in capsys.readouterr().err


def test_a_task_party_names_who_is_missing(
    tmp_path: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "house").mkdir()
    house = House(tmp_path / "house")
    try:
        command = [*SHOP, "--url", house.url, "--timeout", "0.2"]
        command = changed(command, "--token-file", str(house.folder / "shop.token"))
        assert cli.main(["fedvalue", *command]) == 1
        error = capsys.readouterr().err
        assert "missing: bank" in error
        assert "the same command goes on" in error
        command = changed(command, "--token-file", "shop.token")  # of another server
        assert cli.main(["fedvalue", *command]) == 1
        assert "refuses (401): this token is unknown here" in capsys.readouterr().err
        assert house.token("shop") not in error
    finally:
        house.stop()


def test_help_is_there_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("keygen", "tokens", "serve", "party", "value", "demo"):
        assert cli.main(["fedvalue", name, "--help"]) == 0
        assert name in capsys.readouterr().out


def test_the_command_line_starts_without_the_service() -> None:
    code = "import sys, fedkit.cli; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for module in ("fastapi", "uvicorn", "httpx", "cryptography", "torch"):
        assert f"'{module}'" not in done.stdout


@pytest.mark.slow
def test_the_demo_with_processes_that_are_killed(tmp_path: Path) -> None:
    """Server, three data parties and a task party; the server and a party get SIGKILL."""
    pytest.importorskip("sklearn")
    keep = tmp_path / "demo"
    demo = Program(tmp_path / "log", "demo", "--keep", keep)
    try:
        code = demo.process.wait(900)
        said = demo.text()
        assert code == 0, said
    finally:
        demo.stop()
    assert "listens at http://" in said
    assert "IDs of patients found in them: 0" in said
    assert "equal, to the last bit" in said
    logs = {name: (keep / f"{name}.log").read_text("utf-8") for name in ("server", TASK, *PARTIES)}
    assert "took up 1 open jobs" in logs["server"]
    assert "Traceback" not in "".join(logs.values())
    # acknowledged uploads were not asked for again: of two jobs each party sent one upload each
    for name in (TASK, *PARTIES):
        assert logs["server"].count(f"upload of {name},") == 2
    secrets = [(keep / f"{name}.token").read_text("ascii").strip() for name in (TASK, *PARTIES)]
    secrets.append((keep / "federation.key").read_text("ascii").strip())
    assert not [s for s in secrets for log in (*logs.values(), said) if s in log]
    # the values printed are those of the columns in one place
    _, clear = write_tables(tmp_path)
    for value in clear.values:
        assert said.count(f"{value:.6f}") == 2
    assert cli.main(["fedvalue", "demo", "--keep", str(keep)]) == 1
