"""Named random streams grown from one root seed.

Nothing in fedkit touches a global random state.  A stream is named by a path such as
``("round", 7, "client", 3, "batches")``; the same root seed and path always give the same
numbers, whatever else was drawn before, in which order, on which device, or after a resume.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from fedkit.checks import whole


def _word(part: str | int) -> int:
    """Thirty-two stable bits for one part of a path (``hash`` is salted per process)."""
    part = part.item() if isinstance(part, np.generic) else part  # by whatever name
    return int.from_bytes(hashlib.sha256(f"{type(part).__name__}:{part}".encode()).digest()[:4])


@dataclass(frozen=True)
class Streams:
    """A node of the tree of random streams: its root seed, non-negative, and its path below it.

    Notes
    -----
    A path becomes the ``spawn_key`` of a :class:`numpy.random.SeedSequence`, so streams with
    different paths are independent in the same sense as spawned children are.
    """

    seed: int
    path: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0)

    def child(self, *path: str | int) -> Streams:
        """Return the node at `path` below this one."""
        return Streams(self.seed, self.path + path)

    def sequence(self, *path: str | int) -> np.random.SeedSequence:
        """Return the seed sequence of the node at `path` below this one."""
        key = tuple(_word(part) for part in self.path + path)
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def generator(self, *path: str | int) -> np.random.Generator:
        """Return a fresh generator for the node at `path` below this one."""
        return np.random.default_rng(self.sequence(*path))


def as_generator(seed: int | Streams | np.random.Generator) -> np.random.Generator:
    """Turn a seed, a node of the stream tree or a generator into a generator."""
    if isinstance(seed, np.random.Generator):
        return seed
    return (seed if isinstance(seed, Streams) else Streams(seed)).generator()
