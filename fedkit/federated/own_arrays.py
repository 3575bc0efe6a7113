"""Federations of your own arrays, checked before anything is trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedkit.federated.clients import Federation

__all__ = ["federation_from_arrays"]

Pair = tuple[Any, Any]

#: labels below this are classes; a larger one is an identifier, or not finite
_MOST = 1_000_000


def federation_from_arrays(
    clients: Sequence[Pair],
    test: Pair,
    validation: Pair | None = None,
    *,
    n_classes: int | None = None,
    name: str = "own data",
    seed: int = 0,
) -> Federation:
    """Make a federation of arrays that are already divided among clients.

    Parameters
    ----------
    clients : sequence of pairs
        Features and labels of each client.  Features are finite numbers of the shape (N, columns),
        (N, H, W) or (N, C, H, W), alike for all but N, and scaled as you want them; labels are
        whole numbers from 0, of the shape (N,).  A client may have no samples: (0, columns), (0,).
    test, validation : pair
        The server's test and validation data, in the same form; without `validation` it is empty.
    n_classes : int, optional
        By default one more than the largest label.
    name : str
        Name of the data.
    seed : int
        Root seed of what clients do to their data (see :meth:`Federation.with_transforms`).

    Returns
    -------
    Federation
        Columns become images of one channel and one row, so that ``fk.build("mlp-16",
        federation.input_shape, federation.n_classes)`` takes them.

    Raises
    ------
    ValueError
        If there are no clients with data, or an array is not as above; the message names whose.
    """
    given = {f"client {i}": pair for i, pair in enumerate(clients)} | {"the test data": test}
    if validation is not None:
        given["the validation data"] = validation
    checked = {whose: _check(whose, pair) for whose, pair in given.items()}
    shape = next((x.shape[1:] for x, _ in checked.values() if len(x)), None)
    held = [checked[f"client {i}"] for i in range(len(clients))]
    if shape is None or not any(len(x) for x, _ in held):
        raise ValueError("no client has data; give at least one client samples")
    for whose, (x, _) in checked.items():
        if len(x) and x.shape[1:] != shape:
            raise ValueError(
                f"{whose}: a sample has the shape {x.shape[1:]}, others have {shape}; give all the "
                "same features"
            )
    most = 1 + max(int(y.max()) for _, y in checked.values() if len(y))
    if n_classes is not None and n_classes < most:
        raise ValueError(f"there is a label {most - 1}; n_classes is {n_classes}, and labels are "
                         "whole numbers from 0")  # fmt: skip
    nothing = (np.empty((0, *shape), np.float32), np.empty(0, np.int64))
    x, y = (np.concatenate(part) for part in zip(*(h for h in held if len(h[1])), strict=True))
    ends = np.cumsum([len(y_i) for _, y_i in held])
    parts = tuple(np.arange(end - len(h[1]), end) for end, h in zip(ends, held, strict=True))
    server = [checked.get(f"the {which} data", nothing) for which in ("validation", "test")]
    arrays = (x, y, *(array for pair in server for array in pair))
    pool, labels, x_val, y_val, x_test, y_test = (torch.from_numpy(a) for a in arrays)
    return Federation(
        _images(pool), labels, parts, _images(x_val), y_val, _images(x_test), y_test,
        n_classes or most, name, {"dataset": name, "seed": seed, "source": "own arrays"},
    )  # fmt: skip


def _images(x: torch.Tensor) -> torch.Tensor:
    return x if x.dim() == 4 else x.unsqueeze(1) if x.dim() == 3 else x[:, None, None]


def _check(whose: str, pair: Pair) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    if len(pair) != 2:
        raise ValueError(f"{whose}: {len(pair)} arrays; expected features and labels")
    x, y = (np.asarray(a.detach().cpu() if isinstance(a, torch.Tensor) else a) for a in pair)
    if x.ndim not in (2, 3, 4) or y.shape != x.shape[:1]:
        raise ValueError(
            f"{whose}: features of shape {x.shape} and labels of shape {y.shape}; expected (N, "
            "columns), (N, H, W) or (N, C, H, W), and (N,)"
        )
    if any(a.dtype.kind not in "biuf" for a in (x, y)):
        raise ValueError(f"{whose}: {x.dtype} and {y.dtype}; expected numbers, encode text first")
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ValueError(
            f"{whose}: features that are not finite in single precision; fill, drop or scale them"
        )
    if not ((y == np.floor(y)) & (y >= 0) & (y < _MOST)).all():
        raise ValueError(f"{whose}: labels are not whole numbers from 0; encode them first")
    return narrow, y.astype(np.int64)
