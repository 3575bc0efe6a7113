"""The jobs that people come with, in three libraries: lines to write and seconds.

Run ``python -m benchmarks.jobs``; it writes the table of the page on fourteen jobs.
fedkit's programs are the examples of the book's own pages, run in their order; each program of a
peer starts from what the page has made by then.  Lines are those of the program as it stands,
imports apart.  A program that trains the same forests, or asks for as many coalitions, is timed
beside the other; what a library does not offer is left out, and so is one that is not installed.
Seconds are those of the processor, which other work on the machine hardly changes.
"""

from __future__ import annotations

import copy
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
from joblib.externals.loky import get_reusable_executor

BOOK = Path(__file__).parent.parent / "book"
TABLE = BOOK / "jobs.csv"
LIBRARIES = ("fedkit", "shapiq", "pydvl")


@dataclass(frozen=True)
class Job:
    """A job; `shown` is text of the page's block, or blocks, that do it."""

    name: str
    page: str
    shown: tuple[str, ...]
    peers: dict[str, str] = field(default_factory=dict)


OWN_MODEL = """
own, weights = copy.deepcopy(net).eval(), torch.tensor(sizes, dtype=torch.float32)
def value(clients):
    share = weights[clients] / weights[clients].sum() if len(clients) else weights[clients]
    states = [sent[i] for i in clients] or [net.state_dict()]
    share = share if len(clients) else torch.ones(1)
    own.load_state_dict({k: sum(w * s[k] for w, s in zip(share, states)) for k in states[0]})
    with torch.no_grad():
        return -float(torch.nn.functional.cross_entropy(own(x), y))
"""
SHAPIQ_GAME = """
def game(coalitions):
    return np.array([value(np.flatnonzero(c)) for c in np.atleast_2d(coalitions)])
"""
PYDVL_GAME = """
class Utility(UtilityBase):
    def __call__(self, sample):
        return value(np.array([] if sample is None else sample.subset, dtype=int))
"""
FORESTS = """
def value(members):
    xs, ys = (np.concatenate([clients[i][part] for i in members]) for part in (0, 1))
    return RandomForestClassifier(20, random_state=0).fit(xs, ys).score(*test)
def game(coalitions):
    return np.array([value(np.flatnonzero(c)) if any(c) else 1 / 3 for c in coalitions])
"""
POINTS = """
xs, ys = (np.concatenate([client[part] for client in clients]) for part in (0, 1))
owners = np.repeat(range(4), [len(client[1]) for client in clients])
data, held_out = GroupedDataset(xs, ys, owners), Dataset(*test)
learner = RandomForestClassifier(20, random_state=0)
scorer = SupervisedScorer("accuracy", held_out, default=1 / 3)
"""
CROWD = """
def game(coalitions):
    return 1 - np.exp(-3 * (np.atleast_2d(coalitions) @ sizes) / sizes.sum())
"""
VALUED = """
sampler = DeterministicUniformSampler()
found = ShapleyValuation(utility, sampler, NoStopping(), progress=False).fit(data).result
"""
JOBS = (
    Job("your module and ten state_dicts", "plug-in", ("print(found)  # exact up to",), {
        "shapiq": OWN_MODEL + SHAPIQ_GAME
        + 'found = shapiq.ExactComputer(game=game, n_players=10)("SV")',
        "pydvl": OWN_MODEL + PYDVL_GAME
        + "utility, data = Utility(), Dataset(np.zeros((10, 1)), np.zeros(10))" + VALUED,
    }),
    Job("a server loop of your own, twenty rounds", "plug-in", ("fk.Ledger(",)),
    Job("a game that takes all night, killed", "plug-in", ("fk.remember(fk.parallel(fk.Game",)),
    Job("forests by retraining", "plug-in", ("RandomForestClassifier",), {
        "shapiq": FORESTS + 'found = shapiq.ExactComputer(game=game, n_players=4)("SV")',
        "pydvl": POINTS + "utility = ModelUtility(learner, scorer)" + VALUED,
    }),
    Job("an estimator of your own", "plug-in", ("class Forward(",), {
        "shapiq": """
class Forward(shapiq.approximator.Approximator):
    def __init__(self, n, random_state=None):
        super().__init__(n, max_order=1, index="SV", top_order=False, random_state=random_state)
    def approximate(self, budget, game):
        values, walks = np.zeros(self.n), (budget - 1) // self.n
        for _ in range(walks):
            order = self._rng.permutation(self.n)
            rows = np.zeros((self.n + 1, self.n), dtype=bool)
            for place, player in enumerate(order):
                rows[place + 1 :, player] = True
            values[order] += np.diff(game(rows)) / walks
        return shapiq.InteractionValues(
            {(i,): v for i, v in enumerate(values)},
            index="SV", max_order=1, min_order=1, n_players=self.n,
        )
values = Forward(8).approximate(200, score)
""",
    }),
    Job("a selection and an aggregation of your own", "plug-in",
        ("def least_seen", "def valued_only")),
    Job("three frames with other keys", "plug-in", ("VerticalData.join(",)),
    Job("1,000 clients", "jobs", ("fk.Game(1000",), {
        "shapiq": CROWD
        + "found = shapiq.PermutationSamplingSV(1000, random_state=0).approximate(20_001, game)",
        "pydvl": CROWD + """
class Utility(UtilityBase):
    def __call__(self, sample):
        row = np.isin(np.arange(1000), [] if sample is None else sample.subset)
        return float(game(row)[0])
data = Dataset(np.zeros((1000, 1)), np.zeros(1000))
sampler = AntitheticPermutationSampler(seed=0)
found = ShapleyValuation(Utility(), sampler, MinUpdates(20), progress=False).fit(data).result
""",
    }),
    Job("to shapiq and back", "jobs", ("fk.interop.to_shapiq",)),
    Job("plots", "jobs", (".plot()",), {
        "shapiq": "computer('SV').plot_stacked_bar(show=False)",
    }),
)  # fmt: skip
COMMANDS = {
    "the arena": ("arena --method mine:Agreement --scenario free-riders --against random",),
    "a chapter with other parameters, and its page": ("book run foundations -p seed 7",),
    "a Flower federation": ("flower demo",),
    "a paper of your own as a folder": (
        "golden './toy/*' --accept --why first", "run ./toy table1", "list ./toy",
    ),
}  # fmt: skip


def lines(program: str) -> int:
    """Lines of a program, empty ones and imports apart."""
    told = [line.strip() for line in program.splitlines()]
    return sum(bool(line) and not line.startswith(("import ", "from ", "#")) for line in told)


def blocks(page: str) -> list[str]:
    """The examples of a page, in their order."""
    text = (BOOK / f"{page}.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def programs(job: Job) -> dict[str, str]:
    """What is written for a job in each library that offers it."""
    shown = [block for block in blocks(job.page) if any(text in block for text in job.shown)]
    return {"fedkit": "".join(shown), **job.peers}


def names(library: str) -> dict[str, Any]:
    """What a program may use of a peer."""
    if library == "shapiq":
        import shapiq

        return {"shapiq": shapiq}
    import pydvl.valuation as pydvl
    from pydvl.valuation.utility.base import UtilityBase

    return {**vars(pydvl), "UtilityBase": UtilityBase}


def spent() -> float:
    """Seconds of the processor so far, of this process and of those it started that have ended."""
    return sum(psutil.Process().cpu_times()[:4])


def seconds_of(program: str, scope: dict[str, Any]) -> float:
    """Run a program; return the seconds of the processor that it took."""
    start = spent()
    with redirect_stdout(io.StringIO()):
        exec(compile(program, "<a job>", "exec"), scope)
    if "fk.parallel" in program:  # its processes count once they have ended
        get_reusable_executor().shutdown(wait=True)
    return spent() - start


def seconds_of_command(line: str, folder: Path, env: Mapping[str, str]) -> float:
    """Run fedkit; return the seconds of the processor of all processes that it takes."""
    command = [sys.executable, "-m", "fedkit", *shlex.split(line)]
    process = psutil.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL)
    seconds: dict[int, float] = {}
    while process.poll() is None:
        with suppress(psutil.Error):  # some end while they are looked at
            for each in (process, *process.children(recursive=True)):
                times = each.cpu_times()
                seconds[each.pid] = times.user + times.system
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"fedkit {line} ended with {process.returncode}")
    return sum(seconds.values())


def timed(page: str, there: list[str]) -> dict[tuple[str, str], float]:
    """Seconds of every job of a page in every library, after the page's earlier examples."""
    scope: dict[str, Any] = {}
    jobs = [job for job in JOBS if job.page == page]
    found: dict[tuple[str, str], float] = {}
    for block in blocks(page):
        mine = [job for job in jobs if any(text in block for text in job.shown)]
        if len({name for name, _ in found}) == len(jobs) and not mine:
            break
        took = seconds_of(block, scope)
        for job in mine:
            found[job.name, "fedkit"] = found.get((job.name, "fedkit"), 0.0) + took
            for library in there:
                if library in job.peers:
                    own = {**scope, **names(library), "copy": copy}
                    found[job.name, library] = seconds_of(job.peers[library], own)
    return found


def commands(folder: Path) -> list[dict[str, Any]]:
    """Lines and seconds of what is a command, in a folder with the page's modules."""
    plug_in = blocks("plug-in") + blocks("plug-in-papers")
    (folder / "toy").mkdir()
    paper = next(block for block in plug_in if block.startswith("# toy/"))
    method = next(block for block in plug_in if "class Agreement" in block)
    method = method.split("from reproduction")[0]
    (folder / "toy" / "experiments.py").write_text(paper)
    (folder / "mine.py").write_text(method)
    (flower,) = (block for block in blocks("flower") if "strategy = Valued(" in block)
    results = {"FEDKIT_RESULTS": str(folder / "results")}
    written = {
        "the arena": lines(method),
        "a Flower federation": lines(flower) - len(COMMANDS["a Flower federation"]),
        "a paper of your own as a folder": lines(paper),
    }
    rows = []
    for name, given in COMMANDS.items():
        here, env = (BOOK.parent, {}) if "chapter" in name else (folder, results)
        seconds = sum(seconds_of_command(line, here, os.environ | env) for line in given)
        count = len(given) + written.get(name, 0)
        rows.append({"job": name, "fedkit, lines": count, "fedkit, s": seconds})
    return rows


def main() -> None:
    """Run all, print the table and write it."""
    warnings.simplefilter("ignore")  # of packages about each other
    os.environ["PYTHONPATH"] = str(BOOK.parent)
    import matplotlib

    matplotlib.use("Agg")
    there = [name for name in LIBRARIES[1:] if find_spec(name)]
    home = Path.cwd()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        seconds = timed("plug-in", there) | timed("jobs", there)
        for job in JOBS:
            row: dict[str, Any] = {"job": job.name}
            for library, program in programs(job).items():
                row[f"{library}, lines"] = lines(program)
                row[f"{library}, s"] = seconds.get((job.name, library))
            rows.append(row)
        rows += commands(Path(folder))
        os.chdir(home)
    columns = ["job", *(f"{name}, {what}" for name in LIBRARIES for what in ("lines", "s"))]
    table = pd.DataFrame(rows).reindex(columns=columns)
    for column in columns[1:]:
        form = "{:.0f}" if column.endswith("lines") else "{:.2g}"
        table[column] = ["" if pd.isna(v) else f"{float(form.format(v)):g}" for v in table[column]]
    table = table.rename(columns=lambda name: name.replace("pydvl", "pyDVL"))
    table.to_csv(TABLE, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
