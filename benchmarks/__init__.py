"""Speed and accuracy, side by side with other libraries: ``python -m benchmarks``."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports numpy or torch
