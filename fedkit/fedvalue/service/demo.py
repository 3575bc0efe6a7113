"""A demonstration: server and parties as separate programs, two of them killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fedkit.extras import need
from fedkit.fedvalue.cmi import PartyValues, mshapley_cmi
from fedkit.fedvalue.protocol.keys import new_key
from fedkit.fedvalue.service.access import issue_tokens
from fedkit.fedvalue.service.files import write_secret
from fedkit.streams import Streams

__all__ = ["Program", "run_demo", "until", "write_tables"]

TASK, PARTIES = "hospital", ("lab", "imaging", "registry")
_PATIENCE = 300.0


class Program:
    """One ``fedkit fedvalue`` command as a process, its output in a file."""

    def __init__(self, log: Path, *arguments: str | Path) -> None:
        self.log = log
        command = [sys.executable, "-m", "reproduction.commands", "fedvalue", *map(str, arguments)]
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, words: str, times: int = 1) -> str:
        """Wait until its log holds some words, and return it; a RuntimeError if it ends before."""
        until(
            lambda: self.process.poll() is not None or self.text().count(words) >= times,
            f"{words!r} in {self.log.name}",
        )
        if self.text().count(words) < times:
            raise RuntimeError(f"the program ended without saying {words!r}: {self.text()}")
        return self.text()

    def kill(self) -> None:
        """End it as a power cut would: it gets no chance to tidy up."""
        self.process.kill()
        self.process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; a RuntimeError says that it does not come true."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {_PATIENCE:g} s in vain for {what}")
        time.sleep(0.05)


def write_tables(folder: Path) -> tuple[dict[str, Path], PartyValues]:
    """Split scikit-learn's breast cancer data by columns, one CSV file per party.

    Return the files, each with its rows in an order of its own, and the values in the clear.
    """
    frame = need("sklearn.datasets", "service").load_breast_cancer(as_frame=True).frame
    random = Streams(5).generator("demo", "columns")
    names = random.permutation([name for name in frame.columns if name != "target"]).tolist()
    frame.insert(0, "id", [f"patient-{i:04d}" for i in random.permutation(len(frame))])
    files, blocks = {}, []
    for i, party in enumerate((TASK, *PARTIES)):
        own = names[3 * i : 3 * (i + 1)]
        blocks.append(frame[own])
        kept = frame[["id", *own, *(["target"] if party == TASK else [])]]
        files[party] = folder / f"{party}.csv"
        kept.iloc[random.permutation(len(kept))].to_csv(files[party], index=False)
    return files, mshapley_cmi(blocks[0], frame["target"], blocks[1:], names=PARTIES)


def run_demo(keep: Path | None, say: Callable[[str], None] = print) -> None:
    """Run the demonstration in an empty folder that is kept, or in a temporary one."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ValueError(f"{keep} is not empty; the demo needs a folder of its own")
    with ExitStack() as stack:
        _play(keep or Path(stack.enter_context(tempfile.TemporaryDirectory())), stack, say)


def _play(folder: Path, stack: ExitStack, say: Callable[[str], None]) -> None:
    started = time.perf_counter()
    files, clear = write_tables(folder)
    rows = [line.split(",") for line in files[TASK].read_text("utf-8").splitlines()[1:]]
    issue_tokens(folder / "tokens.db", folder, task=[TASK], data=PARTIES, days=1)
    write_secret(folder / "federation.key", new_key().hex())

    def note(line: str) -> None:
        say(f"{time.perf_counter() - started:6.1f} s  {line}")

    def start(name: str, *arguments: str | Path) -> Program:
        program = Program(folder / f"{name}.log", *arguments)
        stack.callback(program.kill)
        return program

    def serve(port: str) -> Program:
        return start("server", "serve", "--folder", folder / "kept", "--tokens",
                     folder / "tokens.db", "--port", port)  # fmt: skip

    def play(name: str, command: str, *more: str | Path) -> Program:
        return start(name, command, "--name", name, "--data", files[name], "--key-file",
                     folder / "federation.key", "--token-file", folder / f"{name}.token",
                     "--url", url, *more)  # fmt: skip

    note(f"{TASK} has 3 features and the label of {len(rows)} patients; "
         f"{', '.join(PARTIES)} have 3 features each")  # fmt: skip
    server = serve("0")
    url = server.wait_for("counting server at ").split("counting server at ")[1].split()[0]
    note(f"the counting server listens at {url}")
    task = play(TASK, "value", "--parties", ",".join(PARTIES), "--label", "target", "--test",
                "--artificial", "600,900", "--json", folder / "values.json")  # fmt: skip
    first, second = (play(name, "party") for name in PARTIES[:2])
    server.wait_for(": upload of ", 3)
    first.wait_for("is answered")
    second.wait_for("is answered")
    note(f"{TASK}, {PARTIES[0]} and {PARTIES[1]} have been told that their uploads are kept")
    server.kill()
    first.kill()
    note(f"the server and {PARTIES[0]} are killed, without warning")
    stored = b"".join(path.read_bytes() for path in (folder / "kept").iterdir())
    seen = sum(row[0].encode() in stored for row in rows)
    note(f"the dead server's disk holds {len(stored)} bytes; IDs of patients found in them: {seen}")
    server = serve(url.rsplit(":", 1)[1])
    server.wait_for("counting server at ", 2)
    note("the server is back and takes up the job; nobody uploads again what it had")
    play(PARTIES[0], "party")
    play(PARTIES[2], "party")
    note(f"{PARTIES[0]} is back, and {PARTIES[2]} joins")
    if task.process.wait(_PATIENCE):
        raise RuntimeError(f"the task party failed: {task.text()}")
    note("the task party has all counts and has verified them")
    say(f"\n{task.text().strip()}\n")
    say(f"in the clear, from all columns in one place:\n{clear.to_frame().to_string(index=False)}")
    server.wait_for(" closed", 2)
    note("the server has forgotten the jobs")
    found = json.loads((folder / "values.json").read_text("utf-8"))["plugin"]
    same = [found["values"][name] for name in PARTIES] == clear.values.tolist()
    if not same or found["task_value"] != clear.task_value or seen:
        raise RuntimeError("the values differ, or the server saw an ID")
    note("equal, to the last bit")
