"""Where models are computed: devices, threads, and what comes from outside as tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from fedkit.checks import brief, plain_array, same_rows, unboxed

T = TypeVar("T")


def as_tensor(name: str, values: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor, an array or a list of rows as a tensor without gradient, or refuse it."""
    try:
        if isinstance(values, list | tuple) and values:
            values = torch.stack([torch.as_tensor(row) for row in values])
        if hasattr(values, "to_numpy"):  # a data frame
            values = unboxed(values.to_numpy())
        if not isinstance(values, Tensor):  # torch takes no other order, and warns of read-only
            values = plain_array(values)
            values = np.require(values, values.dtype.newbyteorder("="), ["C", "W"])
        return torch.as_tensor(values, dtype=dtype).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is no tensor and no array of numbers: {error}") from error


def real_tensor(name: str, values: Any) -> Tensor:
    """Return a tensor of real numbers, or refuse what has an imaginary part to lose."""
    tensor = as_tensor(name, values)
    if tensor.is_complex():
        raise ValueError(f"{name} has complex numbers; expected real ones")
    return tensor


def samples_of(x: Any, y: Any = None) -> tuple[Tensor, Tensor]:
    """Return samples and labels ``[N, ...]``, of two arrays or of one torch data set or loader."""
    if y is None and isinstance(x, Dataset | DataLoader):
        x, y = _loaded(x)
    elif y is None:
        raise ValueError("y is missing beside x; give labels, a DataLoader or a Dataset of pairs")
    same_rows("x and y", x, y)
    return as_tensor("x", x), as_tensor("y", y)


def pair_of(name: str, given: Any) -> tuple[Any, Any]:
    """Return samples and labels as they are, of a pair, a torch data set or a loader."""
    if isinstance(given, Dataset | DataLoader):
        return samples_of(given)
    if isinstance(given, list | tuple) and len(given) == 2:
        return given[0], given[1]
    raise ValueError(f"{name} is {brief(given)}; expected a pair (x, y), DataLoader or Dataset")


def _loaded(data: Any) -> tuple[Tensor, Tensor]:
    """All pairs of a data set or a loader, in its order."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return data.tensors[0], data.tensors[1]
    with torch.random.fork_rng(devices=[]):  # a loader draws a seed, even where it shuffles nothing
        loader = data if isinstance(data, DataLoader) else DataLoader(data, batch_size=256)
        batches = list(loader)
    if not batches or not all(isinstance(b, list | tuple) and len(b) == 2 for b in batches):
        raise ValueError("a loader of pairs (samples, labels) is expected, and not an empty one")
    samples, labels = zip(*batches, strict=True)
    return torch.cat(samples), torch.cat(labels)


def find_device(device: str | torch.device | None) -> torch.device:
    """Return the device asked for; None is CUDA if there is one, otherwise the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ValueError(f"device is {device!r}; expected 'cpu', or 'cuda' with a GPU") from error
    return found


def for_each(work: Callable[[T], None], items: Iterable[T], *, parallel: bool = True) -> None:
    """Call ``work(item)`` for all items, on ``torch.get_num_threads()`` threads if `parallel`."""
    todo, threads = list(items), torch.get_num_threads()
    if threads == 1 or len(todo) < 2 or not parallel:
        for item in todo:
            work(item)
        return
    inference = torch.is_inference_mode_enabled()  # threads do not inherit it

    def alike(item: T) -> None:
        with torch.inference_mode(inference):
            work(item)

    # set_num_threads counts for the calling thread in OpenMP, and for the process in MKL.
    count = min(threads, len(todo))
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(alike, todo))
    finally:
        torch.set_num_threads(threads)
