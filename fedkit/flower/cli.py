"""The command ``fedkit flower demo``."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Flower federations, valued round by round.", no_args_is_help=True)


@app.callback()
def _flower() -> None:
    pass


@app.command()
def demo(
    clients: Annotated[int, typer.Option(min=2, max=10, help="Clients.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Root seed.")] = 0,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds that a round may take.")] = 300.0,
) -> None:
    """Value the clients of a simulated Flower federation, and compare with fedkit's loop."""
    from fedkit.flower.demo import Setting, difference, play

    setting = Setting(clients, rounds, seed, timeout)
    theirs, ours = play(setting), setting.own()
    sizes = setting.federation().sizes
    typer.echo("client  samples  value by Flower  value by fedkit")
    totals = [history.contributions() for history in (theirs, ours)]
    for name, one, other in zip(totals[0].names or (), *(v.values for v in totals), strict=True):
        typer.echo(f"{name:>6}  {sizes[int(name)]:7d}  {one:15.6f}  {other:15.6f}")
    final = [history.final_accuracy()[seed] for history in (theirs, ours)]
    typer.echo(f"test accuracy {final[0]:.4f} and {final[1]:.4f}")
    typer.echo(f"largest difference of values, weights, parameters: {difference(theirs, ours):.1e}")
