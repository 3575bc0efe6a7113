"""What a GPU that is there for minutes at a time is to do, in order of worth.

Three commands, from the root of the checkout::

    python -m benchmarks.gpu carry carried [STEP ...]    # at home: the data sets of the steps
    python -m benchmarks.gpu run --data carried --out FOLDER [STEP ...]  # there; again until done
    python -m benchmarks.gpu bring FOLDER                # at home: its records into results/

Without steps these are all but the last, whose data would need a journey of their own.  A run ends
before ``--minutes``, in the middle of a cell if it must: finished cells are kept, and the next run
goes on behind them; of a cell that trains many federations (FedCCEA) the trainings are.  What all
runs into a folder wrote lies in its ``log.txt`` and ``records.tar.gz``.  The same arguments with
``--device cpu`` rehearse it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: what the steps need of ``FEDKIT_DATA``; MNIST, FashionMNIST and the letters are 55 MiB together
DATA = {
    "fedowen": ("MNIST/raw", "FashionMNIST/raw"),
    "fedccea": ("MNIST/raw", "EMNIST-subset/raw"),
    "resnet": ("cifar10",),
}
KEEP = 15.0  # seconds at the end, to pack
LIMIT = 60 * 2**20  # bytes: what comes back in one piece, and its log, are 64 MiB at the most
WANTED = 100.0  # times a plain loop, which each line of the throughput is to reach


def _fedowen(*settings: str) -> list[str]:
    tables = ("table1", "table2", "table3", "classwise")
    return [f"fedowen {table} --only {each}" for each in settings for table in tables]


#: fedkit's commands of each step, without profile and device; most wanted first.
STEPS: dict[str, list[str]] = {
    "equality": ["golden"],
    "throughput": [],
    "fedowen": [
        f"run {cells}"
        for cells in _fedowen("model=lenet5,dataset=fashionmnist", "model=lenet5,dataset=mnist")
    ],
    "fedccea": [
        "run fedccea contribution --only dataset=mnist",
        "run fedccea dealt --only dataset=mnist",
        "run fedccea contribution",
    ],
    "resnet": [
        f"run fedowen {table} --only model=resnet18" for table in ("table1", "table2", "table3")
    ],
}
USUAL = [step for step in STEPS if step != "resnet"]
BENCHMARKS = (["benchmarks.speed", "coalitions"], ["benchmarks.speed", "rounds"])


def commands(step: str, device: str, profile: str) -> list[list[str]]:
    """Return what a step calls: arguments of the Python that runs this."""
    if step == "throughput":
        return [["-m", *words, "--device", device] for words in BENCHMARKS]
    tail = ["--profile", profile, "--stale", "--keep-going"] if step != "equality" else []
    return [
        ["-m", "reproduction.commands", *words.split(), "--device", device, *tail]
        for words in STEPS[step]
    ]


def carry(folder: Path, steps: list[str]) -> None:
    """Copy the data sets of the steps into a folder, in torchvision's layout."""
    named = os.environ.get("FEDKIT_DATA")
    if not named:
        raise SystemExit("FEDKIT_DATA names no folder with data sets; see README.md")
    for part in dict.fromkeys(part for step in steps for part in DATA.get(step, ())):
        source = Path(named) / part
        if not source.is_dir():
            raise SystemExit(f"{source} is not there; fedkit data get brings it")
        shutil.copytree(source, folder / part, dirs_exist_ok=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{size / 2**20:.0f} MiB in {folder}")


def pack(results: Path, since: float, out: Path, limit: int = LIMIT) -> tuple[int, int, int]:
    """Write what changed since into ``records.tar.gz``: all records, and the trainings that fit.

    Returns how many records and trainings are in it, and how many trainings are left out.  The
    latest trainings come first, for a cell that was stopped goes on from them.
    """
    changed = {path: path.stat() for path in results.rglob("*.*") if path.is_file()}
    new = [path for path in sorted(changed) if changed[path].st_mtime >= since]
    records = [path for path in new if path.suffix == ".json"]
    held = [path for path in new if path.match("trainings/*/*.npz") and path.name[0] != "."]
    held.sort(key=lambda path: changed[path].st_mtime, reverse=True)
    left, fit = limit - sum(changed[path].st_size for path in records), []
    for path in held:  # counted as they are: a file of arrays hardly gets smaller
        if changed[path].st_size <= left:
            left -= changed[path].st_size
            fit.append(path)
    with tarfile.open(out / "records.tar.gz", "w:gz") as archive:
        for path in [*records, *fit]:
            archive.add(path, path.relative_to(results))
    return len(records), len(fit), len(held) - len(fit)


def beside(log: str) -> list[str]:
    """Return the ratios of a throughput's log by the heads of their rows, beside what was asked."""
    found = []
    for line in log.splitlines():
        if ratio := re.search(r"\s(\d+\.\d+)x\s", line):
            name, times = " ".join(line.split()[:3]), float(ratio[1])
            reached = "reached" if times >= WANTED else "not reached"
            found.append(f"{name}: {times:g} times the loop, {WANTED:g} asked: {reached}")
    return found


def bring(out: Path, results: Path) -> None:
    """Unpack the records of a run into the results of this checkout."""
    with tarfile.open(out / "records.tar.gz") as archive:
        archive.extractall(results, filter="data")
        print(f"{len(archive.getnames())} records and trainings into {results}")


def run(steps: list[str], device: str, profile: str, minutes: float, data: Path, out: Path) -> None:
    """Do the steps until all are done or the time is up."""
    end = time.monotonic() + 60 * minutes - KEEP
    out.mkdir(parents=True, exist_ok=True)
    started = out / "started"  # the first run's: what any run into this folder made comes home
    if not started.exists():
        started.write_text(str(time.time()))
    since = float(started.read_text())
    results = Path(os.environ.get("FEDKIT_RESULTS", ROOT / "results"))
    env = os.environ | {"FEDKIT_DATA": str(data.resolve()), "PYTHONUNBUFFERED": "1"}
    path = out / "log.txt"
    with path.open("a", encoding="utf-8") as log:
        for step in steps:
            for words in commands(step, device, profile):
                left, start = end - time.monotonic(), time.monotonic()
                if left <= 0:
                    break
                log.write(f"\n=== {step}: python {' '.join(words)}\n")
                log.flush()
                before = path.stat().st_size
                try:
                    code = subprocess.run(
                        [sys.executable, *words], cwd=ROOT, env=env, timeout=left, stdout=log,
                        stderr=subprocess.STDOUT,
                    ).returncode  # fmt: skip
                    told = f"exit {code}"
                except subprocess.TimeoutExpired:
                    told = "out of time"
                seconds = time.monotonic() - start
                line = f"{step}: {' '.join(words)}: {told} after {seconds:.0f} s, "
                records, trainings, over = pack(results, since, out)
                line += f"{records} new records, {trainings} of trainings"
                line += f" ({over} more do not fit)" if over else ""
                said = path.read_bytes()[before:].decode(errors="replace")
                for told in (beside(said) if step == "throughput" else []) + [line]:
                    log.write(f"=== {told}\n")
                    print(told, flush=True)


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    called = parser.add_subparsers(dest="command", required=True)
    there = called.add_parser("carry", help="copy the data sets that the steps need")
    there.add_argument("folder", type=Path)
    there.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    runs = called.add_parser("run", help="do the steps")
    runs.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    runs.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    runs.add_argument("--profile", default="paper")
    runs.add_argument("--minutes", type=float, default=9.5)
    runs.add_argument("--data", type=Path, required=True)
    runs.add_argument("--out", type=Path, required=True)
    back = called.add_parser("bring", help="unpack the records of a run")
    back.add_argument("folder", type=Path)
    given = parser.parse_args()
    if given.command == "bring":
        bring(given.folder, ROOT / "results")
        return
    unknown = set(given.steps) - set(STEPS)
    if unknown:
        parser.error(f"no step {sorted(unknown)}; choose from {', '.join(STEPS)}")
    steps = given.steps or USUAL
    if given.command == "carry":
        carry(given.folder, steps)
    else:
        if not given.data.is_dir():
            parser.error(f"{given.data} is no folder; make it with: carry {given.data}")
        run(steps, given.device, given.profile, given.minutes, given.data, given.out)


if __name__ == "__main__":
    main()
