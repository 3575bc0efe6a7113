"""Benchmarks of speed and accuracy: ``python -m benchmarks [--device cpu|cuda] [--no-flower]``.

Apart are those that make records (``memory``, ``costs``, ``arena_seed``, ``arena_sizes``,
``kernel_shap``, ``recorded``), estimators beside the newest peers (``testbed``, in an environment
of its own), and what a GPU is asked for (``gpu``).  One thread unless ``OMP_NUM_THREADS`` says
otherwise; ``--threads`` is for the parts that train or score models: with two threads on two shared
cores the spinning of OpenMP can cost more than the second core gives.
"""

from __future__ import annotations

import argparse

from benchmarks import (
    coalitions,
    counting,
    coverage,
    estimators,
    jobs,
    lockstep,
    rounds,
    secure_counting,
    trajectory,
)


def main() -> None:
    """Run them, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--no-flower", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print("\n=== coalition values")
    coalitions.main(given.device, given.threads)
    print("\n=== rounds of local training")
    rounds.main(given.device, not given.no_flower, given.threads)
    print("\n=== trajectory values")
    trajectory.main(threads=given.threads)
    print("\n=== simulations in lockstep")
    lockstep.main(given.device, given.threads)
    print("\n=== counting for the values of data parties")
    counting.main()
    print("\n=== the counting protocol")
    secure_counting.main()
    print("\n=== estimators")
    estimators.main()
    print("\n=== the same jobs in three libraries")
    jobs.main()
    print("\n=== intervals of estimators")
    coverage.main()


if __name__ == "__main__":
    main()
