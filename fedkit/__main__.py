"""``python -m fedkit`` is the command ``fedkit``."""

import sys

from fedkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
