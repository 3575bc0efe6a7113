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
    "fedvalue": "fedkit.fedvalue.http",
    "flower": "fedkit.flower.cli",
}
"""The library's commands, and the module of each."""

CHECKOUT = ["arena", "audit", "book", "compare", "golden", "list", "run"]
"""Commands of the reproduction, which is not installed with the library."""

INTERRUPTED = 130  # the exit status of Ctrl-C in a shell


def complain(message: object) -> None:
    """Print one line on standard error, whatever line breaks the message holds."""
    print(f"fedkit: {' '.join(str(message).split())}", file=sys.stderr)


def run_application(
    app: Any, arguments: Sequence[str] | None = None, *told: type[Exception]
) -> int:
    """Run a typer application; return its exit status, with one line on what went wrong.

    Errors of the kinds `told` are sentences, as a ValueError is; others keep their traceback.
    """
    import typer

    sentences: tuple[type[Exception], ...] = (ValueError, ImportError, *told)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **more: complain(message)
            code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OSError as error:  # of a file, without the number of the error
        of_file = error.filename and error.strerror
        complain(f"{error.filename}: {error.strerror}" if of_file else error)
        code = 1
    except sentences as error:
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


def _library() -> Any:
    """Return the application of the library alone."""
    import typer

    app = typer.Typer(
        name="fedkit",
        help="Who contributed what in federated learning.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)
    for name, module in OWN_COMMANDS.items():
        app.add_typer(importlib.import_module(module).app, name=name)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, or say in a sentence what it lacks."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["--version"]:  # the core alone can say it
        print(f"fedkit {__version__}")
        return 0
    try:
        if find_spec("reproduction") is not None:
            from reproduction import commands

            return commands.main(words)
        if words and words[0] in CHECKOUT:
            complain(
                f"{words[0]} is a command of the reproduction of the papers, which the installed "
                "library does not carry: run it in a checkout of fedkit, after make setup"
            )
            return 1
        from fedkit.extras import need

        need("typer", "run")
        return run_application(_library(), words)
    except ImportError as error:
        complain(error)
        return 1
    except KeyboardInterrupt:  # while libraries are read
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
