"""What ``make bench`` measures in this environment: speed, jobs, and how often intervals hold.

Apart are those that make other records (``memory``, ``costs``, ``arena_seed``, ``arena_sizes``,
``kernel_shap``, ``many_clients``, ``recorded``), and estimators beside the newest peers
(``testbed``, in an environment of its own).  ``--short`` makes little of it, to see that it runs.
"""

from __future__ import annotations

import sys

from benchmarks import coverage, jobs, speed


def main() -> None:
    """Run them, one after another."""
    short = "--short" in sys.argv[1:]
    print("\n=== speed beside the usual way")
    speed.main(["--short"] if short else [])
    if not short:
        print("\n=== the same jobs in three libraries")
        jobs.main()
    print("\n=== how often intervals hold")
    coverage.main(repeats=10, players=(6,)) if short else coverage.main()


if __name__ == "__main__":
    main()
