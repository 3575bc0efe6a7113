"""The state of a federation in mid-run, kept in one file that is replaced in one step."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from fedkit.atomic import write_bytes
from fedkit.federated.history import History
from fedkit.federated.selection import ClientTable

__all__ = ["CheckpointError", "fingerprint", "load_checkpoint", "save_checkpoint"]

_VERSION = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be continued: damaged, or of another run."""


def fingerprint(architecture: Any, *parts: Any) -> str:
    """Hash what defines a run, so that a checkpoint is only continued by the same run.

    Functions are named by their qualified name; everything else by its ``repr``.
    """
    text = repr((architecture.name, architecture.input_shape, architecture.n_classes, *parts))
    # A function's repr holds its memory address, which changes between processes.
    clean = [word for word in text.split() if not word.startswith("0x")]
    return hashlib.sha256(" ".join(clean).encode()).hexdigest()


def save_checkpoint(
    path: str | Path,
    mark: str,
    rounds_done: int,
    history: History,
    states: list[tuple[torch.Tensor, ClientTable]],
) -> None:
    """Write the checkpoint beside its final place, then move it there."""
    path = Path(path)
    state = {
        "version": _VERSION,
        "mark": mark,
        "rounds_done": rounds_done,
        "history": {
            "rounds": history.rounds,
            "clients": history.clients,
            "seconds": history.seconds,
        },
        "models": [model for model, _ in states],
        "tables": [
            {
                "sizes": torch.as_tensor(table.sizes),
                "label_counts": torch.as_tensor(table.label_counts),
                "values": torch.as_tensor(table.values),
                "counts": torch.as_tensor(table.counts),
                "memory": {k: torch.as_tensor(v) for k, v in table.memory.items()},
            }
            for _, table in states
        ],
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_bytes(path, content.getvalue())


def load_checkpoint(
    path: str | Path, mark: str
) -> tuple[int, History, list[tuple[torch.Tensor, ClientTable]]]:
    """Read a checkpoint of the run whose fingerprint is `mark`.

    Raises
    ------
    CheckpointError
        If the file is damaged, of another version, or of another run.
    """
    try:
        state = torch.load(path, weights_only=True)
        version, found = state["version"], state["mark"]
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CheckpointError(
            f"checkpoint {path} cannot be read ({type(error).__name__}); delete it to start again"
        ) from error
    if version != _VERSION or found != mark:
        raise CheckpointError(
            f"checkpoint {path} belongs to another run (other settings or version); "
            "delete it, or name another file"
        )
    history = History(**state["history"])
    tables = [
        ClientTable(
            t["sizes"].numpy(),
            t["label_counts"].numpy(),
            t["values"].numpy(),
            t["counts"].numpy(),
            state["rounds_done"],
            {k: v.numpy() for k, v in t["memory"].items()},
        )
        for t in state["tables"]
    ]
    return state["rounds_done"], history, list(zip(state["models"], tables, strict=True))
