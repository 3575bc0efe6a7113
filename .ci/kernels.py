"""Run the suite and the book as other processors would compute them, on this machine.

The libraries below torch and numpy choose their kernels by processor, and each has a variable
that makes it choose as on an older one: sums then round in another order, while no result that
anyone reads may change.  ``make kernels`` runs every configuration; ``ONLY="sse4-1 avx2-2"``
some of them, ``WHAT=suite``, ``WHAT=book`` or ``WHAT="tests/test_x.py fedms"`` a part.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

#: What each generation of processors lets torch, oneDNN, MKL, OpenBLAS and numpy use.
GENERATIONS = {
    "own": {},
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_CBWR": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "AVX512",
    },
    "sse4": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "AVX512 AVX2 FMA3",
    },
}
CONFIGURATIONS = [f"{name}-{threads}" for name in GENERATIONS for threads in (1, 2)]


def environment(configuration: str) -> dict[str, str]:
    """Return the environment variables of one configuration, such as ``sse4-2``."""
    name, threads = configuration.split("-")
    values = {**os.environ, **GENERATIONS[name], **dict.fromkeys(THREADS, threads)}
    if "NPY_DISABLE_CPU_FEATURES" in values:  # numpy warns of a feature that it could not use
        wanted = tuple(values["NPY_DISABLE_CPU_FEATURES"].split())
        ask = (
            "import sys, numpy; m = getattr(numpy, '_core', None) or numpy.core;"
            "m = m._multiarray_umath; print(*(f for f in m.__cpu_dispatch__"
            " if m.__cpu_features__[f] and f.startswith(tuple(sys.argv[1:]))))"
        )
        plain = {k: v for k, v in values.items() if k != "NPY_DISABLE_CPU_FEATURES"}
        found = subprocess.check_output([sys.executable, "-c", ask, *wanted], env=plain, text=True)
        values["NPY_DISABLE_CPU_FEATURES"] = found.strip()
    return values


def run(command: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a command; return its status and what it printed."""
    out = subprocess.PIPE
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def suite(paths: list[str], jobs: int, env: dict[str, str]) -> list[str]:
    """Run the tests; return those that fail."""
    which = ["-n", str(jobs), "-m", "not book and not weekly", "-rfE"]
    command = [sys.executable, "-m", "pytest", *which, *paths]
    code, said = run(command, env)
    failed = [line for line in said.splitlines() if re.match(r"(FAILED|ERROR) ", line)]
    return failed or ([f"pytest ended with {code}: {said[-2000:]}"] if code else [])


def notebook(name: str, env: dict[str, str]) -> list[str]:
    """Run one notebook at profile smoke; return why it fails."""
    with tempfile.TemporaryDirectory() as folder:
        output = str(Path(folder) / f"{name}.ipynb")
        step = ["book", "run", name, "--output", output, "--limit", "7200"]
        code, said = run([sys.executable, "-m", "reproduction.commands", *step], env)
    return [f"FAILED notebook {name}: {said.strip()}"] if code else []


def parts(
    tests: list[str], names: list[str], jobs: int, env: dict[str, str]
) -> Iterator[tuple[str, list[str], float]]:
    """Run the tests, then notebooks; yield name, failures and seconds of each."""
    if tests:
        yield "suite", *timed(suite, tests, jobs, env)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(timed, notebook, name, env): name for name in names}
        for done in concurrent.futures.as_completed(runs):
            yield runs[done], *done.result()


def timed(part: Callable[..., list[str]], *given: object) -> tuple[list[str], float]:
    """Run a part; return its failures and its seconds."""
    begin = time.monotonic()
    return part(*given), time.monotonic() - begin


def main() -> int:
    """Print one line for each configuration and part, then what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help="suite, book, files of tests, names of notebooks")
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, default=CONFIGURATIONS)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    args = parser.parse_args()
    known = sorted(path.stem for path in (ROOT / "notebooks").glob("*.md"))
    what = args.what or ["suite", "book"]
    tests = ["tests"] if "suite" in what else [w for w in what if w.startswith("tests/")]
    names = known if "book" in what else [w for w in what if w in known]
    strange = [w for w in what if w not in ("suite", "book", *tests, *names)]
    if strange:
        parser.error(f"neither a test file nor a notebook: {', '.join(strange)}")
    failures: list[str] = []
    print(f"{'configuration':14} {'part':28} failures seconds", flush=True)
    for configuration in args.only:
        env = environment(configuration)
        for part, failed, seconds in parts(tests, names, args.jobs, env):
            row = f"{configuration:14} {part:28} {len(failed):8} {seconds:7.0f}"
            print(row, flush=True)
            failures += [f"{configuration}: {text}" for text in failed]
    print("\n".join(["", *failures, f"{len(failures)} failures"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
