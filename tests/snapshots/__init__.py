"""What must stay the same while the code changes: written by ``python -m tests.snapshots``."""
