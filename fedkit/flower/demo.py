"""A small federation in real processes of Flower, and in fedkit's own loop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedkit.datasets import load
from fedkit.extras import need
from fedkit.federated import (
    Exact,
    Federation,
    History,
    Plan,
    Proportional,
    Strategy,
    UniformSelection,
    make_federation,
    run,
)
from fedkit.federated.partition import Dirichlet
from fedkit.learning import LocalSGD, Model, build

__all__ = ["Setting", "difference", "play"]

_APP = """\
from fedkit.flower import apps

client = apps.client
server = apps.server
"""

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "valued"
version = "1.0.0"
description = "Clients valued round by round"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "fedkit"

[tool.flwr.app.components]
serverapp = "app:server"
clientapp = "app:client"

[tool.flwr.app.config]
"""


@dataclass(frozen=True)
class Setting:
    """The federation of the demonstration, in numbers that a Flower run can carry."""

    clients: int = 3
    rounds: int = 2
    seed: int = 0
    timeout: float = 300.0
    out: str = ""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Setting:
        """From the configuration of a Flower run."""
        return cls(**{name: config[name] for name in cls.__dataclass_fields__})

    def federation(self) -> Federation:
        """Digits, uneven in labels and sizes."""
        return make_federation(load("digits"), self.clients, Dirichlet(0.5), seed=self.seed)

    def architecture(self) -> Model:
        """A small perceptron."""
        return build("mlp-16", (1, 8, 8), 10)

    def plan(self) -> Plan:
        """All clients in every round; the loss, which no rounding moves from sample to sample."""
        local = LocalSGD(lr=0.1, batch_size=16)
        return Plan(self.rounds, self.clients, local, utility="negative_loss")

    def strategy(self) -> Strategy:
        """Exact values, which are the weights of the next model."""
        return Strategy(UniformSelection(), Exact(), Proportional())

    def own(self) -> History:
        """What fedkit's own loop gives."""
        return run(
            [self.federation()], self.architecture(), self.strategy(), self.plan(), [self.seed],
            device="cpu",
        )  # fmt: skip


def difference(one: History, other: History) -> float:
    """Return the largest difference between values, weights and models of two runs."""
    gap = 0.0
    for rows in zip(one.clients, other.clients, strict=True):
        if len({(row["round"], row["client"]) for row in rows}) > 1:
            raise ValueError("the two runs had other clients in their rounds")
        for name in ("value", "weight"):
            gap = max(gap, float(np.max(np.abs(np.subtract(*[row[name] for row in rows])))))
    if one.models is None or other.models is None:
        raise ValueError("a run has no model: nothing was trained")
    return max(gap, float((one.models - other.models).abs().max()))


# ------------------------------------------------------------------------------ processes


@contextlib.contextmanager
def _process(name: str, log: IO[str], env: Mapping[str, str], *args: str) -> Iterator[Any]:
    """A process with all that it starts, ended with the block."""
    command = [str(Path(sysconfig.get_path("scripts")) / name), *args]
    process = subprocess.Popen(
        command, stdout=log, stderr=log, env=dict(env), start_new_session=True
    )
    try:
        yield process
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
                process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def _ports(n: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody has."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _alive(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def play(setting: Setting, folder: Path, *, simulation: bool = False) -> History:
    """Run the demonstration on loopback in processes of Flower, and return its history.

    Parameters
    ----------
    setting : Setting
        `out` is set here.
    folder : path
        Where the app, Flower's own files and the log go.
    simulation : bool
        Let the SuperLink simulate the nodes (by Ray) instead of starting SuperNodes.

    Raises
    ------
    RuntimeError
        If Flower does not finish in time or a process ends; the message holds the end of the log.
    """
    need("flwr", extra="flower")
    deadline = time.monotonic() + setting.timeout
    out, failure = folder / "history.npz", folder / "history.npz.error"
    port, *others = _ports(1 + setting.clients)
    values = {**asdict(setting), "out": str(out)}
    pairs = "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    for name, text in {
        "app/app.py": _APP,
        "app/pyproject.toml": _PROJECT + pairs + "\n",
        "home/config.toml": '[superlink]\ndefault = "demo"\n[superlink.demo]\n'
        f'address = "127.0.0.1:{port}"\ninsecure = true\n',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    env = os.environ | {
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")]),
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
    log = folder / "log.txt"

    def wait(what: str, done: Any, processes: Sequence[Any]) -> None:
        while True:
            ended = any(p.poll() is not None for p in processes)
            if done():
                return
            if failure.exists():
                raise RuntimeError(f"Flower's server ended with {failure.read_text('utf-8')}")
            if ended or time.monotonic() > deadline:
                why = "a process ended" if ended else f"{setting.timeout:g} s are over"
                lines = log.read_text("utf-8", "replace").splitlines()[-5:]
                raise RuntimeError(f"Flower gave no {what} ({why}): {' '.join(lines)}")
            time.sleep(0.1)

    local = ("--insecure", "--host", "127.0.0.1", "--port")
    link = [*local, str(port), "--disable-runtime-dependency-installation"]
    nodes = [] if simulation else list(enumerate(others))
    with log.open("w") as file, contextlib.ExitStack() as stack:

        def start(name: str, *args: str) -> Any:
            return stack.enter_context(_process(name, file, env, *args))

        running = [start("flower-superlink", *link, *["--simulation"] * simulation)]
        for i, own in nodes:
            config = f"partition-id={i} num-partitions={setting.clients}"
            where = ["--superlink", f"127.0.0.1:{port}", "--node-config", config]
            running.append(start("flower-supernode", *local, str(own), *where))
        wait("SuperLink", lambda: _alive(f"http://127.0.0.1:{port}/health"), running)
        more = f"num-supernodes={setting.clients} client-resources-num-cpus=1"
        asked = ["--federation-config", more] if simulation else []
        with _process("flwr", file, env, "run", str(folder / "app"), "demo", *asked) as submitted:
            wait("run", lambda: submitted.poll() == 0, [*running, submitted])
        wait("result", out.exists, running)
    return History.load(out)
