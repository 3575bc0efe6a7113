"""The command ``fedkit``, also as ``python -m fedkit``.

The library has the commands of :data:`OWN_COMMANDS`; a checkout adds those of the reproduction.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from fedkit import __version__

OWN_COMMANDS = {
    "data": "fedkit.datasets.commands",
    "fedvalue": "fedkit.fedvalue.commands",
    "flower": "fedkit.flower.cli",
}
"""The library's commands, and the module of each."""

CHECKOUT = ["arena", "audit", "book", "compare", "golden", "list", "run"]
"""Commands of the reproduction, which is not installed with the library."""

INTERRUPTED = 130  # the exit status of Ctrl-C in a shell


def complain(message: object) -> None:
    """Print one line on standard error, whatever line breaks the message holds."""
    print(f"fedkit: {' '.join(str(message).split())}", file=sys.stderr)


def application() -> Any:
    """Return the typer application: the library's commands, and those of a checkout."""
    import typer

    app = typer.Typer(
        name="fedkit",
        help="Who contributed what in federated learning. --version shows the version.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.suggest_commands = False  # click does; earlier versions of typer know no such argument
    app.callback()(lambda: None)
    groups = dict(OWN_COMMANDS)
    if find_spec("reproduction") is not None:
        from reproduction import commands

        app.registered_commands += commands.app.registered_commands
        groups |= commands.GROUPS
    for name, module in groups.items():  # modules import what their commands need when called
        app.add_typer(importlib.import_module(module).app, name=name)
    return app


def _run(words: Sequence[str]) -> int:
    """Run the application; return its exit status, with one line on what went wrong."""
    import typer

    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **more: complain(message)
            code = application()(args=list(words), standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OSError as error:  # of a file, without the number of the error
        of_file = error.filename and error.strerror
        complain(f"{error.filename}: {error.strerror}" if of_file else error)
        code = 1
    except (ValueError, ImportError) as error:  # a sentence; others keep their traceback
        complain(error)
        code = 1
    except Exception as error:
        # click's own errors (unknown command or option) know how to show themselves
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        code = getattr(error, "exit_code", 2)
    if code == INTERRUPTED:  # typer, too, makes this of Ctrl-C
        complain("stopped; what was finished is kept, the same command goes on")
    return int(code or 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, or say in a sentence what it lacks."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["--version"]:  # the core alone can say it
        print(f"fedkit {__version__}")
        return 0
    if words and words[0] in CHECKOUT and find_spec("reproduction") is None:
        complain(
            f"{words[0]} is a command of the reproduction of the papers, which the installed "
            "library does not carry: run it in a checkout of fedkit, after make setup"
        )
        return 1
    try:
        from fedkit.extras import need

        need("typer", "run")
        return _run(words)
    except ImportError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:  # while libraries are read
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
