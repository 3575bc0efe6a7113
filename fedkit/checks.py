"""What the public boundary asks of numbers: whole, real, one of several; one sentence where not.

What is taken with a doubt is warned of (:func:`warn`).
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Collection
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
C = TypeVar("C", bound=type)


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return `value` as an int, or refuse what is not a whole number within the bounds.

    Truth values, fractions and text are refused; numpy's integers are taken.
    """
    if isinstance(value, Integral) and not isinstance(value, bool | np.bool_):
        number = int(value)
        if (least is None or number >= least) and (most is None or number <= most):
            return number
    raise ValueError(f"{name} is {_shown(value)}; expected a whole number{_range(least, most)}")


def whole_or_none(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is neither None nor a whole number of at least so much."""
    if value is not None:
        whole(name, value, least)


def real(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False
) -> float:
    """Return `value` as a finite float within the bounds, or refuse it.

    With `above` the lower bound itself is refused.
    """
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:  # of a whole number of more than 308 digits
            number = math.inf
        if math.isfinite(number) and low <= number <= high and not (above and number == low):
            return number
    low_end, high_end = (end if math.isfinite(end) else None for end in (low, high))
    ends = _range(low_end, high_end, above)
    raise ValueError(f"{name} is {_shown(value)}; expected a finite number{ends}")


def choice(name: str, value: Any, options: Collection[Any]) -> Any:
    """Return `value` if it is one of the options, or say which there are."""
    plain = value.item() if isinstance(value, np.generic) else value
    for option in options:
        if type(option) is type(plain) and option == plain:
            return option
    *first, last = [repr(option) for option in options]
    listed = f"{', '.join(first)} or {last}" if first else last
    raise ValueError(f"{name} is {_shown(value)}; expected {listed}")


def flag(name: str, value: Any) -> bool:
    """Return a truth value, or refuse what merely counts as one."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise ValueError(f"{name} is {_shown(value)}; expected True or False")


def function(name: str, value: Any) -> Any:
    """Return what can be called, or refuse it."""
    if callable(value):
        return value
    raise ValueError(f"{name} is {_shown(value)}; expected a function")


def having(name: str, value: Any, *attributes: str) -> Any:
    """Return an object that has all of these attributes, or refuse it; a class is no object."""
    plain = isinstance(value, type | str | bytes)  # text has `split` too
    if not plain and all(hasattr(value, one) for one in attributes):
        return value
    lacking = " and no ".join(one for one in attributes if not hasattr(value, one))
    reason = f"it has no {lacking}"
    if isinstance(value, type):
        reason = f"make one: {value.__name__}(...)"
    elif plain:
        reason = "text is none"
    wanted = " and ".join(attributes)
    raise ValueError(f"{name} is {_shown(value)}; expected an object with {wanted}; {reason}")


def plain_array(values: Any) -> npt.NDArray[Any]:
    """Return an array, of a tensor without its gradient; rows of unequal lengths are objects.

    What a masked array hides is missing.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # numpy has none
            values = values.float()
    if not isinstance(values, np.ma.MaskedArray):
        try:
            return np.asarray(values)
        except ValueError:
            return np.fromiter(values, dtype=object)
    shown = np.asarray(values.data)
    floats = shown.dtype.kind == "f"
    held = shown.astype(shown.dtype if floats else object)  # whole numbers stay whole
    held[np.ma.getmaskarray(values)] = np.nan if floats else None
    return held if np.ma.is_masked(values) else shown


def unboxed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Objects that are numbers and truth values, as a data frame of both gives, as float64."""
    plain = array.dtype.kind == "O" and all(isinstance(v, Real | np.bool_) for v in array.flat)
    return array.astype(np.float64) if plain else array


def same_rows(name: str, *tables: Any) -> None:
    """Refuse data frames and series whose rows are in different orders."""
    indexes = [table.index for table in tables if hasattr(table, "iloc")]
    if any(not one.equals(indexes[0]) for one in indexes[1:]):
        raise ValueError(f"{name} have different indexes; align them, or pass x.to_numpy()")


def numbers(name: str, values: Any) -> Floats:
    """Return numbers as ``float64``, NaN where one is missing, or refuse what is none."""
    try:
        array = plain_array(values)
        if array.dtype.kind in "cmM":
            raise TypeError("neither complex numbers nor dates are values")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        reason = " ".join(repr(values).split())[:60]
        raise ValueError(f"{name} is {reason}; expected an array of numbers") from error


def vector(name: str, values: Any, length: int | None = None) -> Floats:
    """Return `values` as a new read-only ``float64[n]`` of finite numbers, or refuse them."""
    given = plain_array(values)
    plain = given.dtype.kind in "iuf" and given.ndim == 1 and len(given) > 0
    if not plain or not np.isfinite(given).all() or length not in (None, len(given)):
        count = "finite numbers, at least one" if length is None else f"{length} finite numbers"
        raise ValueError(f"{name} is {_shown(values)}; expected {count}")
    array = given.astype(np.float64)
    array.setflags(write=False)
    return array


def one_line(kind: C) -> C:
    """Let a dataclass print itself in one line: arrays by type and shape, collections by number."""

    def text(self: Any) -> str:
        parts = [f"{f.name}={brief(getattr(self, f.name))}" for f in fields(self) if f.repr]
        return f"{type(self).__name__}({', '.join(parts)})"

    kind.__repr__ = text  # type: ignore[method-assign,assignment]
    return kind


def brief(value: Any) -> str:
    """Return a value in one line: arrays by type and shape, what is long by its kind and number."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(shape, tuple):  # an array, a tensor or a frame
        if hasattr(value, "tolist") and len(shape) < 2 and math.prod(shape) <= _FEW:
            held = np.ravel(value).tolist()
            numbers = [f"{x:.4g}" if isinstance(x, float) else str(x) for x in held]
            return f"[{', '.join(numbers)}]" if shape else numbers[0]
        dtype = str(getattr(value, "dtype", kind)).removeprefix("torch.")
        return f"{dtype}[{', '.join(map(str, shape))}]"
    if isinstance(value, dict | list | tuple):
        text = repr(value) if len(value) <= _FEW else ""
        if 0 < len(text) <= 80 and "\n" not in text:
            return text
        names = ", ".join(map(str, value)) if text and isinstance(value, dict) else ""
        return f"{kind} of {len(value)}" + (f" ({names})" if 0 < len(names) <= 80 else "")
    return " ".join(_shown(value).split())


#: entries that are written out
_FEW = 8


def warn(sentence: str) -> None:
    """Warn at the line that called fedkit, however deep within it the doubt arose."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "fedkit":
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, stacklevel=level)


def _range(low: float | None, high: float | None, above: bool = False) -> str:
    if low is not None and high is not None:
        return f" above {low:g} and up to {high:g}" if above else f" from {low:g} to {high:g}"
    if low is not None:
        return f" above {low:g}" if above else f" of at least {low:g}"
    return "" if high is None else f" of at most {high:g}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
