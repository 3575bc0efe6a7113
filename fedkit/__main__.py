"""The command ``fedkit``, also as ``python -m fedkit``."""

import sys


def main() -> int:
    """Run the command line, or say in a sentence what it lacks."""
    try:
        from fedkit import cli
    except ImportError as error:
        print(f"fedkit: {error}", file=sys.stderr)
        return 1
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
