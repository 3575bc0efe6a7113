"""The command ``fedkit flower demo``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from fedkit.checks import real

__all__ = ["app"]

app = typer.Typer(help="Flower federations, valued round by round.", no_args_is_help=True)


@app.callback()
def _flower() -> None:
    pass


@app.command()
def demo(
    clients: Annotated[int, typer.Option(min=2, max=10, help="Clients, a SuperNode each.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Root seed.")] = 0,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Flower's simulation engine, no SuperNodes.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds until Flower is given up.")] = 300.0,
) -> None:
    """Value the clients of a Flower federation on this machine, and compare with fedkit's loop."""
    from fedkit.flower.demo import Setting, difference, play

    real("timeout", timeout, 0.0, above=True)
    setting = Setting(clients, rounds, seed, timeout)
    nodes = "simulated nodes" if simulation else "SuperNodes"
    typer.echo(f"a SuperLink and {clients} {nodes} on 127.0.0.1, {rounds} rounds")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedkit-flower-") as folder:
        try:
            theirs = play(setting, Path(folder), simulation=simulation)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
    typer.echo(f"{time.monotonic() - begin:.0f} s with the start of all processes")
    ours = setting.own()
    sizes = setting.federation().sizes
    typer.echo("client  samples  value by Flower  value by fedkit")
    totals = [history.contributions() for history in (theirs, ours)]
    for name, one, other in zip(totals[0].names, *(v.values for v in totals), strict=True):
        typer.echo(f"{name:>6}  {sizes[int(name)]:7d}  {one:15.6f}  {other:15.6f}")
    final = [history.final_accuracy()[seed] for history in (theirs, ours)]
    typer.echo(f"test accuracy {final[0]:.4f} and {final[1]:.4f}")
    typer.echo(f"largest difference of values, weights, parameters: {difference(theirs, ours):.1e}")
