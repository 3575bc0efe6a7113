"""Trainings that are remembered, so that nobody pays for the same federation twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from fedkit.atomic import write_arrays
from fedkit.checks import Floats, Ints
from fedkit.federated.federation import Federation
from fedkit.federated.retraining import check_sizes, train_with_sizes
from fedkit.learning.models import Model
from fedkit.learning.training import LocalSGD

#: remembered and repeated accuracies may differ so much; other code differs by more
TOLERANCE = 0.01


class RetrainingCache:
    """``train_with_sizes`` with a memory in a folder on disk.

    It has one file per federation, test set, named network, local training and seed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._checked: set[Path] = set()

    def __call__(
        self,
        federation: Federation,
        architecture: Model,
        local: LocalSGD,
        sizes: npt.ArrayLike,
        *,
        seed: int = 0,
        every_round: bool = True,
        device: str | torch.device | None = None,
        progress: bool = False,
    ) -> Floats:
        """Return test accuracies as ``train_with_sizes`` does, training only what is new.

        When a file is first used one of its federations is trained again, and a ValueError tells
        if it reaches another accuracy.
        """
        used = check_sizes(federation, sizes)
        tests = len(federation.y_test)
        path = self.folder / _file_name(federation, architecture, local, seed)
        known = _read(path)
        keys = [_key(row, every_round) for row in used]
        new = list({k: i for i, k in reversed([*enumerate(keys)]) if k not in known}.values())
        old = [i for i, k in enumerate(keys) if k in known][: path not in self._checked]
        if new or old:
            accuracy = train_with_sizes(
                federation, architecture, local, used[[*new, *old]], seed=seed,
                every_round=every_round, device=device, progress=progress,
            )  # fmt: skip
            found = np.rint(accuracy * tests).astype(np.int64)
            for i, hits in zip(old, found[len(new) :], strict=True):
                far = np.abs(known[keys[i]] - hits).max() / tests
                if far > TOLERANCE:
                    raise ValueError(
                        f"a federation of {path} reaches another accuracy when it is trained again "
                        f"(by {100 * far:.1f} points): the code has changed since; delete the file"
                    )
            fresh = {keys[i]: hits for i, hits in zip(new, found, strict=False)}
            known |= fresh
            if fresh:
                kept = _read(path) | fresh
                write_arrays(
                    path,
                    keys=np.array(list(kept), dtype=np.uint64),
                    ends=np.cumsum([len(hits) for hits in kept.values()]),
                    hits=np.concatenate(list(kept.values())).astype(np.int32),
                )
            self._checked.add(path)
        rounds = used.shape[1] if every_round else 1
        return np.array([known[k] for k in keys]).reshape(len(keys), rounds) / tests


def _file_name(f: Federation, arch: Model, local: LocalSGD, seed: int) -> str:
    """Name a file after everything but the sizes that decides how good a federation gets."""
    digest = hashlib.blake2b(digest_size=8)
    shape = (arch.name, arch.input_shape, arch.n_classes)
    digest.update(repr((shape, local, seed, f.sizes.tolist())).encode())
    if f.attacks:
        digest.update(repr(sorted(f.attacks.items())).encode())
    for x, y in (*map(f.client_data, range(f.n_clients)), (f.x_test, f.y_test)):
        digest.update(x.cpu().numpy().tobytes())
        digest.update(y.cpu().numpy().tobytes())
    return f"{f.name}-{arch.name}-s{seed}-{digest.hexdigest()}.npz"


def _key(row: Ints, every_round: bool) -> int:
    """Name one federation by the samples that each client uses in each round."""
    digest = hashlib.blake2b(row.tobytes(), digest_size=8, key=b"rounds" if every_round else b"")
    return int.from_bytes(digest.digest(), "little")


def _read(path: Path) -> dict[int, Ints]:
    """Return right answers, after each round or the last, by federation."""
    if not path.is_file():
        return {}
    try:
        with np.load(path) as file:
            keys, ends, hits = (file[name] for name in ("keys", "ends", "hits"))
    except Exception as error:  # numpy raises many kinds for a damaged file
        raise ValueError(f"{path} cannot be read ({type(error).__name__}); delete it") from error
    parts = np.split(hits.astype(np.int64), ends[:-1])
    return dict(zip(map(int, keys), parts, strict=True))
