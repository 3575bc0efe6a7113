"""Statistics of the rules by which claims are judged."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]


def difference_half_width(x: FloatArray, printed: float | None, runs: int, level: float) -> float:
    """Half-width of the interval of our mean minus the paper's; NaN of less than two seeds.

    `x` are our numbers, float64[n]; `printed` is the standard deviation over the paper's m runs.
    Without one it is the prediction interval's, ``t s sqrt(1/n + 1/m)``; with one it is Welch's.
    """
    n = len(x)
    if n < 2:
        return math.nan
    spread = float(x.std(ddof=1))
    parts = np.array([spread**2 / n, (spread if printed is None else printed) ** 2 / runs])
    freedom = float(n - 1)
    if printed is not None:
        below = float((parts**2 / np.array([n - 1, max(runs - 1, 1)])).sum())
        freedom = float(parts.sum()) ** 2 / below if below else math.inf
    return float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(parts.sum())


def slopes(levels: npt.ArrayLike, values: npt.ArrayLike) -> FloatArray:
    """Least-squares slope of each seed's values, float64[n, k], on k different levels (rule T5)."""
    x = np.asarray(levels, dtype=np.float64)
    y = np.asarray(values, dtype=np.float64)
    centred = x - x.mean()
    if len(x) < 2 or not centred.any():
        raise ValueError(f"levels are {x.tolist()}; a slope needs two different ones")
    # from the first level on: the slope of what is constant is exactly 0
    return np.asarray((y - y[..., :1]) @ centred / (centred @ centred))


def kendalls_w(scores: npt.ArrayLike) -> FloatArray:
    """Kendall's coefficient of concordance of rankings, corrected for ties (rule T6).

    Each column of the scores, float64[..., columns, methods], ranks the methods; the result,
    float64[...], is 1 where all rank alike and about 1 / columns for independent rankings.
    """
    ranks = stats.rankdata(np.asarray(scores, dtype=np.float64), axis=-1)
    columns, methods = ranks.shape[-2:]
    total = ranks.sum(axis=-2)
    spread = ((total - columns * (methods + 1) / 2) ** 2).sum(axis=-1)
    # sum(t**3 - t) of a column's tie groups follows from its ranks' own sum of squares
    ties = methods * (methods**2 - 1) - 12 * ((ranks - (methods + 1) / 2) ** 2).sum(axis=-1)
    scale = columns**2 * methods * (methods**2 - 1) - columns * ties.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return np.asarray(12 * spread / scale)
