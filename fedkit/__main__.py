"""The command ``fedkit``, also as ``python -m fedkit``."""

import sys

from fedkit import __version__


def main() -> int:
    """Run the command line, or say in a sentence what it lacks."""
    if sys.argv[1:] == ["--version"]:  # the core alone can say it
        print(f"fedkit {__version__}")
        return 0
    try:
        from fedkit import cli
    except ImportError as error:
        print(f"fedkit: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while libraries are read
        return 130
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
