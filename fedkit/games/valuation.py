"""The result of valuing a game: values, standard errors, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkit.atomic import named_as, write_text
from fedkit.checks import Floats, Ints, brief, flag, numbers, one_line, real, whole
from fedkit.extras import need

if TYPE_CHECKING:
    import pandas as pd


@one_line
@dataclass(frozen=True, eq=False)
class Valuation:
    """Values of the players of a game, with their uncertainty and cost.

    Attributes
    ----------
    values : float64 array, shape (n,) or (n, m)
        Value of each player, for each of `m` outputs of a vector-valued game; NaN for a player
        about whom the sample says nothing.
    standard_errors : float64 array, same shape
        Standard errors over independent samples; 0 when exact, NaN where not estimable.
    evaluations, calls : int
        Distinct coalitions evaluated, the empty one included; non-empty ones asked for.
    method : str
        The estimator, with its settings.
    seed : int, optional
        Root seed of the estimator's randomness.
    exact : bool
        Whether the values are known to carry no sampling error.
    info : mapping
        Further facts: walks, converged, the `scale` of a normalised game, the `utility` that was
        valued, and the `semivalue` by its weights among three players, ...
    degrees_of_freedom : float64 array, same shape, optional
        Of the standard errors; None where nothing is sampled, NaN where there is no interval.
    names : tuple of str, optional
        Names of the players, all different; see :meth:`named`.
    """

    values: Floats
    standard_errors: Floats
    evaluations: int
    calls: int
    method: str
    seed: int | None = None
    exact: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    degrees_of_freedom: Floats | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        arrays = ["values", "standard_errors"]
        if self.degrees_of_freedom is not None:
            arrays.append("degrees_of_freedom")
        for name in arrays:
            object.__setattr__(self, name, numbers(name, getattr(self, name)).copy())
        shapes = {name: getattr(self, name).shape for name in arrays}
        if self.values.ndim not in (1, 2) or not self.values.size or len(set(shapes.values())) > 1:
            raise ValueError(f"the shapes are {shapes}; expected (n,) or (n, m) for all, not empty")
        for name in arrays[1:]:
            if (getattr(self, name) < 0).any():
                raise ValueError(f"{name} are negative in places; they are 0 or more, or NaN")
        if not isinstance(self.method, str) or not isinstance(self.info, Mapping):
            raise ValueError(
                f"method is {brief(self.method)} and info {brief(self.info)}; expected text, facts"
            )
        for name in ("evaluations", "calls"):
            whole(name, getattr(self, name), 0)
        flag("exact", self.exact)
        if self.seed is not None:
            whole("seed", self.seed)
        if self.names is not None:
            names = (self.names,) if isinstance(self.names, str) else _titles(self.names)
            if len(names) != self.n_players or len(set(names)) < len(names):
                raise ValueError(f"names are {names}; expected {self.n_players} different ones")
            object.__setattr__(self, "names", names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Valuation):
            return NotImplemented
        mine, others = (json.dumps(v.to_dict(), default=repr) for v in (self, other))
        return mine == others

    def __str__(self) -> str:
        """One line per player, the highest value first; intervals where there are any."""
        low, high = self.interval()
        without = "" if self.has_intervals else ", no intervals"
        lines = [f"{self.method}: {self.evaluations} evaluations{without}"]
        width = max(map(len, self._labels()))
        for i in self.ranking():
            cells = [f"{v:.4g}" for v in np.atleast_1d(self.values[i])]
            if not self.exact:
                ends = zip(np.atleast_1d(low[i]), np.atleast_1d(high[i]), strict=True)
                cells = [
                    v if np.isnan(a) else f"{v} [{a:.4g}, {b:.4g}]"
                    for v, (a, b) in zip(cells, ends, strict=True)
                ]
            lines.append(f"{self._labels()[i]:{width}}  {'  '.join(cells)}")
        return "\n".join(lines)

    def _labels(self) -> tuple[str, ...]:
        return self.names or tuple(map(str, range(self.n_players)))

    def named(self, names: Sequence[str]) -> Valuation:
        """Return this valuation with names of the players, one for each in order."""
        return replace(self, names=_titles(names))

    def ranking(self, output: int = 0) -> Ints:
        """Return the players, highest value first; equal ones by number, NaN last."""
        columns = self.values.reshape(self.n_players, -1)
        values = columns[:, whole("output", output, 0, columns.shape[1] - 1)]
        return np.argsort(-values, kind="stable")

    @property
    def n_players(self) -> int:
        return len(self.values)

    @property
    def scale(self) -> Any:
        """What turns values into the utility's units: the gain of a normalised round, else 1."""
        return self.info.get("scale", 1.0)

    def in_units(self) -> Valuation:
        """Return the values in the utility's units, in which rounds add up; 0 where `scale` is."""
        unit = np.broadcast_to(np.asarray(self.scale, dtype=np.float64), self.values.shape)
        freedom = self.degrees_of_freedom
        return replace(
            self,
            values=self.values * unit,
            standard_errors=np.where(unit == 0, 0.0, self.standard_errors * np.abs(unit)),
            degrees_of_freedom=None if freedom is None else np.where(unit == 0, np.inf, freedom),
            info={name: fact for name, fact in self.info.items() if name != "scale"},
        )

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom ``[n]`` or ``[n, m]``, infinite where nothing is sampled."""
        given = self.degrees_of_freedom
        return np.full_like(self.values, np.inf) if given is None else given

    @property
    def has_intervals(self) -> bool:
        """Whether every value has an interval: none where too few units were seen."""
        return self.exact or not np.isnan(self.interval()[0]).any()

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of confidence intervals, one per value.

        Student's t with the degrees of freedom of the standard errors.  NaN where the standard
        error is NaN, and where a mean of fewer than ten walks, pairs or draws is all there is.
        """
        if not 0.0 < real("level", level) < 1.0:
            raise ValueError(f"level is {level}; expected a probability strictly inside (0, 1)")
        from scipy.special import stdtrit

        half = stdtrit(self.freedom, 0.5 + level / 2) * self.standard_errors
        return self.values - half, self.values + half

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy table: player, (output,) value, standard_error, low and high (95 %)."""
        labels = np.arange(self.n_players)
        if self.names is not None:
            labels = np.array(self.names, dtype=object)
        low, high = self.interval(0.95)
        columns = {"value": self.values, "standard_error": self.standard_errors}
        columns |= {"low": low, "high": high}
        flat = {name: each.ravel() for name, each in columns.items()}
        frame: pd.DataFrame = need("pandas", extra="run").DataFrame(flat)
        if self.values.ndim == 2:
            outputs = self.values.shape[1]
            frame.insert(0, "output", np.tile(np.arange(outputs), self.n_players))
            labels = np.repeat(labels, outputs)
        frame.insert(0, "player", labels)
        return frame

    def plot(self, ax: Any = None) -> Any:
        """Draw values with 95% intervals, the highest on top, and return matplotlib's axes."""
        from fedkit.plots import INK, PALETTE, dress

        if ax is None:
            size = (7.2, 1.2 + min(0.3 * self.n_players, 8.0))
            _, ax = need("matplotlib.pyplot", "run").subplots(figsize=size, layout="constrained")
            dress(ax)
        low, high = self.interval()
        halves = ((high - low) / 2).reshape(self.n_players, -1)
        columns = self.values.reshape(self.n_players, -1)
        order = np.argsort(-columns.mean(axis=1), kind="stable")[::-1]  # NaN first, at the bottom
        place = np.arange(self.n_players)
        dot = 6.0 if self.n_players <= 30 else 3.0
        for k, (values, half) in enumerate(zip(columns[order].T, halves[order].T, strict=True)):
            look = {"color": PALETTE[k % len(PALETTE)], "label": f"output {k}"}
            ax.errorbar(values, place, xerr=half, fmt="o", markersize=dot, **look)
        named = np.sort(place[::-1][:: 1 + (self.n_players - 1) // 40])  # from the highest
        labels = self._labels()
        ax.set_yticks(named, [labels[order[i]] for i in named], parse_math=False)
        if columns.shape[1] > 1:
            ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        ax.set_ylim(-0.7, self.n_players - 0.3)
        ax.set_xlabel("value", color=INK)
        ax.set_ylabel("player", color=INK)
        ax.axvline(0.0, color="0.6", linewidth=0.8)
        return ax

    def save(self, path: str | Path) -> None:
        """Write everything to a JSON file, which :meth:`load` reads."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        write_text(named_as(path, ".json", "to_frame() makes a table"), text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Valuation:
        """Read what :meth:`save` wrote."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text("utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} holds no valuation: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, lists and strings, ready for strict JSON (NaN becomes None)."""
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.degrees_of_freedom is not None:
            record["degrees_of_freedom"] = np.minimum(self.degrees_of_freedom, 1e18)
        return dict(_facts(record))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Valuation:
        """Read back what :meth:`to_dict` wrote."""
        known = {each.name for each in fields(cls)}
        needed = {"values", "standard_errors", "evaluations", "calls", "method"}
        if not isinstance(record, Mapping) or not needed <= set(record):
            raise ValueError(f"record is {brief(record)}; expected what Valuation.to_dict wrote")
        return cls(**{name: value for name, value in record.items() if name in known})


def satterthwaite(variances: Floats, counts: NDArray[Any]) -> Floats:
    """Degrees of freedom of a sum of variances ``[strata, ...]`` (1946); infinite where it is 0."""
    each = np.asarray(counts - 1.0)
    each = each.reshape(*each.shape, *(1,) * (variances.ndim - each.ndim))
    squares = (variances**2 / each).sum(axis=0)
    total = variances.sum(axis=0) ** 2
    return np.divide(total, squares, out=np.full_like(total, np.inf), where=squares > 0)


def _facts(value: Any) -> Any:
    """Return facts as JSON has them: numpy's numbers and arrays plain, NaN as None."""
    if isinstance(value, Mapping):
        return {str(name): _facts(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_facts(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _titles(names: Any) -> tuple[str, ...]:
    if isinstance(names, str | Set | Mapping) or not isinstance(names, Iterable):
        raise ValueError(f"names is {brief(names)}; expected a list, one name per player in order")
    return tuple(map(str, names))
