"""Tiny files in the formats of real data sets, for tests of the readers."""

import gzip

import numpy as np

RNG = np.random.default_rng(7)


def idx(array):
    header = (0x800 + array.ndim).to_bytes(4, "big")
    header += b"".join(int(s).to_bytes(4, "big") for s in array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder, prefixes, n_classes, first=0):
    """Write a tiny set: train images gzipped, the rest plain."""
    folder.mkdir(parents=True)
    arrays = {}
    for part, prefix, n in (("train", prefixes[0], 30), ("test", prefixes[1], 12)):
        x = RNG.integers(0, 256, (n, 5, 4))
        y = np.arange(n) % n_classes
        image_name = folder / f"{prefix}-images-idx3-ubyte"
        if part == "train":
            with gzip.open(f"{image_name}.gz", "wb") as stream:
                stream.write(idx(x))
        else:
            image_name.write_bytes(idx(x))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(y + first))
        arrays[f"x_{part}"], arrays[f"y_{part}"] = x, y
    return arrays


def is_partition(parts, n):
    joined = np.concatenate(parts)
    return (
        all(p.dtype == np.int64 and np.all(np.diff(p) > 0) for p in parts)
        and len(joined) == n
        and np.array_equal(np.sort(joined), np.arange(n))
    )
