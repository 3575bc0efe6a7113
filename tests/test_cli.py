"""The command line, on an experiment made up for the purpose and a store of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedkit import __main__, __version__
from reproduction import experiments
from reproduction.experiments import Experiment
from reproduction.records import Cell, Store

CALLS: list[str] = []
BROKEN: set[str] = set()


def cells(profile: str, seeds: Sequence[int] | None) -> list[Cell]:
    chosen = tuple(range(2) if seeds is None else seeds)
    return [
        Cell(profile, "toy", "table1", {"method": m, "alpha": a, "flag": m == "b"}, chosen)
        for m in ("a", "b")
        for a in (0.1, 1.0)
    ]


def run_cell(cell: Cell, device: object, progress: bool) -> list[dict]:
    method = str(cell.settings["method"])
    if method in BROKEN:
        raise ZeroDivisionError("no clients\nat all")
    CALLS.append(method)
    return [{"seed": s, "metrics": {"accuracy": s + 0.25}} for s in cell.seeds]


def few_cells(profile: str, seeds: Sequence[int] | None) -> list[Cell]:
    asked = (1, 2) if profile == "smoke" else ()
    return [Cell(profile, "toy", "other", {"q": q, "r": 1}, (0,)) for q in asked]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("FEDKIT_RESULTS", str(tmp_path))
    CALLS.clear()
    BROKEN.clear()
    for name, made in (("table1", cells), ("other", few_cells)):
        toy = Experiment("toy", name, f"A toy: {name}", made, run_cell)
        monkeypatch.setitem(experiments._registry, ("toy", name), toy)
    return Store(tmp_path)


@pytest.fixture
def fedkit(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command: its exit status, and what it prints."""
    return lambda *arguments: (__main__.main(arguments), *capsys.readouterr())


def test_help_and_version() -> None:
    result = CliRunner().invoke(__main__.application(), ["--help"])
    assert result.exit_code == 0
    for command in ("list", "run", "compare", "golden", "audit", "data", "fedvalue", "book"):
        assert command in result.output
        assert CliRunner().invoke(__main__.application(), [command, "--help"]).exit_code == 0
    command = [sys.executable, "-m", "fedkit", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"fedkit {__version__}\n"


def test_the_command_says_what_it_lacks() -> None:
    code = (
        "import sys; sys.modules['typer'] = None; import runpy; "
        "runpy.run_module('fedkit', run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fedkit {__version__}\n"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("fedkit: typer is needed here and is not installed: ")
    assert len(done.stderr.splitlines()) == 1


#: what stays out after each of these, in one process: it only ever imports more
QUICK = {
    "import fedkit": ["numpy", "torch", "pandas"],
    "from fedkit.__main__ import main; main(['list'])": (
        ["scipy", "torch", "pandas", "fastapi", "uvicorn", "httpx", "cryptography"]
    ),
    "main(['compare', 'fedms'])": ["torch"],
}
QUICK |= {
    f"import reproduction.{name}": ["torch"]
    for name in (
        "tables", "report", "fedccea.experiments", "fedccea.tables", "fedms.experiments",
        "fedowen.experiments", "fedtsv.experiments", "fedvalue.experiments", "fedvalue.tables",
    )
}  # fmt: skip


def test_what_is_slow_to_import_is_imported_when_it_is_needed() -> None:
    """A list is there at once; verdicts are told, and settings are read, without torch."""
    lines = ["import sys"]
    for code, absent in QUICK.items():
        lines += [code, f"early = [m for m in {absent} if m in sys.modules]"]
        lines.append(f"assert not early, ({code!r}, early)")
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def test_run_and_list(store, fedkit) -> None:
    code, out, _ = fedkit("run", "toy", "table1", "--only", "method=b", "--quiet")
    assert code == 0
    assert "2 computed" in out
    assert CALLS == ["b", "b"]
    assert out.splitlines()[-1] == f"records: {store.root}/smoke/toy/table1; next: fedkit list toy"
    out = fedkit("list", "toy")[1]
    assert "A toy: table1" in out
    assert "smoke   4 cells: 2 done, 2 missing" in out
    assert "laptop  4 cells: 4 missing" in out
    out = fedkit("list")[1]
    assert "\ntoy\n  table1: records 2 at profile smoke\n" in out
    assert "fedms\nfedowen\n" in out
    code, out, _ = fedkit("run", "toy", "table1", "--quiet")
    assert "2 computed, 2 finished before" in out


def test_seeds_only_and_dry_run(store, fedkit) -> None:
    code, out, _ = fedkit(
        "run", "toy", "table1", "--profile", "laptop", "--seeds", "3-5",
        "--only", "method=a,alpha=1.0", "--only", "flag=false", "--dry-run",
    )  # fmt: skip
    assert code == 0
    (line,) = out.splitlines()
    assert line.startswith("table1  a-alpha1-s3-5-")
    assert line.endswith("missing  method=a alpha=1.0 flag=False")
    assert not list(store.root.rglob("*"))
    out = fedkit("run", "toy", "other", "--dry-run")[1]
    assert [line.split("missing")[1] for line in out.splitlines()] == ["  q=1 r=1", "  q=2 r=1"]
    cell = cells("laptop", (3, 4, 5))[1]
    assert fedkit(*cell.command.split()[1:], "--quiet")[0] == 0  # the command of a record
    assert store.results(cell)[2]["metrics"] == {"accuracy": 5.25}
    assert len(CALLS) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nobody"], "paper 'nobody' is unknown; choose from"),
        (["run", "toy", "table9"], "no experiment 'table9'; choose from table1, other"),
        (["run", "toy", "--profile", "huge"], "expected 'smoke', 'laptop' or 'paper'"),
        (["run", "toy", "--device", "abacus", "--dry-run"], "expected 'auto', 'cpu' or 'cuda'"),
        (["run", "toy", "--seeds", "4-0"], "cannot be read; write them as 0-4"),
        (["run", "toy", "--only", "colour=red"], "settings are method, alpha, flag, key"),
        (["run", "toy", "table1", "--only", "method"], "write name=value"),
        (["audit", "--only", "method=a,"], "write name=value"),
        (["run", "toy", "--only", "key=123"], "no cell has key '123'; key is one of"),
        (["audit", "--paper", "toy", "--experiment", "x"], "no record of toy x at profile paper"),
        (["audit", "--paper", "toy"], "no record of toy at profile paper to audit"),
        (["arena", "--method", "nope:Mine"], "method 'nope:Mine' cannot be made"),
        (["arena", "--against", ""], "nothing to run: give --method or --against"),
        (["arena", "--scenario", "rain"], "scenario is 'rain'"),
        (["arena", "--against", "random, nobody"], "against is 'nobody'"),
        (["golden", "nobody/run"], "no golden run is called 'nobody/run'; there are arena/*"),
        (["compare", "--markdown"], "of one paper, such as: fedkit compare"),
        (["book", "run", "nothing"], "there is no notebook 'nothing'; there are arena, "),
        (["run", "toy", "other", "--profile", "paper"], "no cells at profile paper"),
        (["run", "toy", "table1", "--seeds", "0-3000000000"], "more than 100,000; take fewer"),
        (["fedvalue", "serve", "--tokens", "/nowhere/tokens"], "No such file or directory"),
        (["compare", "toy"], "no claims file; choose from fedccea, fedms"),
    ],
)
def test_mistakes_get_one_clear_line(store, fedkit, arguments, words):
    code, _, err = fedkit(*arguments)
    assert code == 1
    assert words in err
    assert len(err.splitlines()) == 1
    assert err.startswith("fedkit: ")


def test_unknown_commands_and_options(store, fedkit) -> None:
    assert fedkit("dance")[0] == 2
    assert fedkit("compar")[2].count("Did you mean") == 1
    code, _, err = fedkit("run", "toy", "--sede", "1")
    assert code == 2
    assert "--sede" in err


def test_a_failing_cell(store, fedkit) -> None:
    BROKEN.add("a")
    code, _, err = fedkit("run", "toy", "table1", "--quiet")
    assert code == 1
    assert "failed: ZeroDivisionError: no clients at all" in err
    assert CALLS == []
    code, out, err = fedkit("run", "toy", "table1", "--quiet", "--keep-going")
    assert code == 1
    assert "2 computed, 0 finished before, 2 failed" in out
    assert out.splitlines()[-1].endswith("next: the same again")
    assert len(err.splitlines()) == 2
    BROKEN.clear()
    code, out, _ = fedkit("run", "toy", "table1", "--quiet")
    assert code == 0
    assert CALLS == ["b", "b", "a", "a"]
    assert "2 computed, 2 finished before" in out


def test_a_stopped_run_says_what_is_kept(store, fedkit, monkeypatch) -> None:
    def stop(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "execute", stop)
    code, _, err = fedkit("run", "toy", "table1", "--quiet")
    assert code == 130
    assert "what was finished is kept" in err


def test_an_interruption_while_libraries_are_read_is_no_traceback(monkeypatch) -> None:
    def find(name, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["fedkit", "list"])
    monkeypatch.setattr("builtins.__import__", find)
    assert __main__.main() == 130


def test_stale_and_forced_cells(store, fedkit) -> None:
    fedkit("run", "toy", "table1", "--quiet")
    first = cells("smoke", None)[0]
    store.save(first, store.results(first), {})
    code, out, _ = fedkit("run", "toy", "table1", "--quiet")
    assert "1 finished cells are what this code no longer gives; --stale" in out
    assert len(CALLS) == 4
    code, out, _ = fedkit("run", "toy", "table1", "--quiet", "--stale")
    assert code == 0
    assert len(CALLS) == 5
    assert store.state(first) == "done"
    fedkit("run", "toy", "table1", "--quiet", "--force")
    assert len(CALLS) == 9


def test_compare(store, fedkit) -> None:
    code, out, _ = fedkit("compare", "fedowen", "--check")
    assert code == 0
    assert "all records are sound; stale: 0" in out
    assert "no record of fedowen at profile paper" in out
    out = fedkit("compare", "fedowen", "--markdown")[1]
    assert out.index("✓ reproduced") < out.index("| claim | where")
    out = fedkit("compare", "fedccea", "--profile", "smoke")[1]
    assert f"no record of fedccea at profile smoke in {store.root / 'smoke/fedccea'}" in out
    assert "fedkit run fedccea --profile smoke makes them" in out
    fedkit("run", "toy", "table1", "--quiet")
    first = cells("smoke", None)[0]
    store.save(first, store.results(first), {})
    code, out, _ = fedkit("compare", "fedowen", "--check")
    assert code == 0
    assert "all records are sound; stale: 1" in out
    store.path(first).write_text("{")
    assert fedkit("compare", "fedowen", "--check")[0] == 1


LAST_TEN = "accuracy_last_10_rounds"


def _record(store: Store, paper: str, experiment: str, profile: str, **settings: object) -> None:
    cell = Cell(profile, paper, experiment, settings, (0, 1, 2))
    results = [
        {"seed": s, "metrics": dict.fromkeys(("accuracy", LAST_TEN), 88.0 + s / 10)}
        for s in cell.seeds
    ]
    store.save(cell, results, {})


def test_compare_explains_itself(store, fedkit):
    cell = {
        "method": "fedowen", "dataset": "mnist", "data": "mnist", "alpha": 0.05,
        "imbalance": 0.01, "clients": 100, "rounds": 100, "levels": 2, "epsilon": 0.1,
    }  # fmt: skip
    for profile in ("paper", "smoke"):
        for experiment in ("declared", "table1"):  # of Tables 1 and 3
            _record(store, "fedowen", experiment, profile, **cell)
    lines = fedkit("compare", "fedowen")[1].splitlines()
    (line, _) = (line for line in lines if "n = 3 †" in line)  # of Table 1, and of Table 3
    assert line.startswith("    paper 88.12; ours 88.10 [")
    assert line.endswith("✓ reproduced ‡; also fits 3 of 6 other rows")
    assert lines[-2].startswith("claims without a number of ours: ")
    assert lines[-1].startswith("† by records that this code no longer gives")
    assert "fedkit run fedowen --profile paper --stale" in lines[-1]
    assert "never judged" in fedkit("compare", "fedowen", "--profile", "smoke")[1]
    where = "records at profile laptop: reduced runs"
    assert where not in fedkit("compare", "fedccea")[1]
    _record(store, "fedccea", "contribution", "smoke", samples=100)
    out = fedkit("compare", "fedccea", "--profile", "smoke")[1]
    told = f"records at profile smoke in {store.root}/smoke/fedccea: 1; no claim is judged"
    assert told in out
    assert "no record of" not in out
    _record(store, "fedccea", "contribution", "laptop", dataset="mnist")
    assert where in fedkit("compare", "fedccea")[1]
    out = fedkit("compare")[1]
    assert f"no record of fedccea, fedms, fedtsv, fedvalue at profile paper in {store.root}" in out
    assert "results/ of its source: FEDKIT_RESULTS may name it" in out
