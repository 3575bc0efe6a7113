"""Speed and memory, side by side with other libraries: ``python -m benchmarks``."""
