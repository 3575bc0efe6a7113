"""FedCCEA's results as tables: exclusion of zeros, ranking, what the fits agree in and explain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedkit.claims import load_claims
from fedkit.experiments.fedccea import CONTROLS, METHODS, PARTS, RANDOM_ORDERS
from fedkit.experiments.fedccea_fits import READINGS
from fedkit.experiments.fedccea_removal import PARTIAL
from fedkit.extras import need
from fedkit.intervals import mean_interval, paired_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABELS", "areas_table", "exclusion_table", "fits_table", "leads_table", "learning_table",
    "methods_table", "partial_table", "parts_table", "random_spread", "setting_name",
    "shares_table",
]  # fmt: skip

LABELS = {
    "fedccea": "FedCCEA",
    "tmc-sv": "TMC-SV, retrained",
    "loo": "LOO, retrained",
    "adam": "FedCCEA, by Adam",
    "connected": "FedCCEA, by Adam, sigmoid behind the nodes",
    "same_round": "sizes of the same round",
    "partial": "FedCCEA, partial participation",
    "partial-connected": "partial participation, sigmoid behind the nodes",
    "partial-size": "control: partial, amounts alone",
    "size": "control: size",
    "oracle": "control: oracle",
}
#: the same at the head of a column; the order of the columns
_SHORT = {
    "fedccea": "FedCCEA", "adam": "by Adam", "connected": "by Adam, behind the nodes",
    "tmc-sv": "TMC-SV", "loo": "LOO", "same_round": "same round", "oracle": "oracle",
    "partial": "FedCCEA", "partial-connected": "behind the nodes", "partial-size": "amounts alone",
}  # fmt: skip
_COLUMNS = {
    "zeros": "zero indices (clients)",
    "excluded": "accuracy without them (%)",
    "area": "area between removal curves (points)",
    "auc": "clean above noisy",
    "trained": "federations trained",
}


_DATA = {"mnist": "MNIST", "emnist": "EMNIST letters", "digits": "digits"}
_SPLIT = {"iid": "IID", "weak": "weak non-IID", "strong": "strong non-IID"}
_PLACE = ["dataset", "distribution", "noise"]


def setting_name(dataset: str, distribution: str, noise: str = "none") -> str:
    """Return a setting in words."""
    kind, _, share = noise.partition("-")
    words = {
        "none": "", "label": f", {share}% label noise", "pattern": f", {share}% pattern",
        "backdoor": f", {share}% backdoor",
    }  # fmt: skip
    return f"{_DATA[dataset]}, {_SPLIT[distribution]}{words[kind]}"


def _places(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Yield every setting with its metrics, one row per seed, in the paper's order."""

    def rank(place: tuple[str, ...]) -> tuple[int, int, bool, str]:
        dataset, distribution, noise = place
        return [*_DATA].index(dataset), [*_SPLIT].index(distribution), noise != "none", noise

    parts = {tuple(map(str, place)): part for place, part in frame.groupby(_PLACE)}
    for place in sorted(parts, key=rank):
        (dataset, distribution, noise), part = place, parts[place]
        yield (
            (dataset, distribution, noise),
            part.pivot(index="seed", columns="metric", values="value"),
        )


def exclusion_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What Table 3 shows, one row per method: accuracy without the clients of index zero.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``; clean settings are shown.
    """
    pd = need("pandas", "run")
    claims = load_claims("fedccea").tables["t3"]
    rows = {}
    for (dataset, distribution, noise), seeds in _places(frame):
        if noise != "none":
            continue
        place = {"dataset": dataset, "distribution": distribution}
        column = claims.columns.index(place) if place in claims.columns else None
        for m in ("base", *METHODS, "adam", "connected"):
            base, printed = m == "base", "fedccea" if m in ("adam", "connected") else m
            shown = {
                "accuracy (%)": "base" if base else f"excluded.{m}",
                "without as many random clients (%)": f"excluded.{m}.random",
                "clients of index zero": f"zeros.{m}",
            }
            rows[setting_name(dataset, distribution), "everybody" if base else LABELS[m]] = {
                "seeds": str(len(seeds)),
                "paper (%)": "–" if column is None else str(claims.rows[printed][column]),
            } | {title: _text(seeds, name, 1, (0, 100)) for title, name in shown.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def random_spread(seeds: pd.DataFrame) -> float:
    """Root mean squared area of single random orders in one setting, in points.

    An order read from its other end has the opposite area, so a random order's is 0 on average.

    Parameters
    ----------
    seeds : DataFrame
        Metrics, one row per seed.
    """
    areas = seeds[[f"area.random{k}" for k in range(RANDOM_ORDERS)]].to_numpy()
    return float(np.sqrt(np.square(areas).mean()))


def areas_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Area between the removal curves in points, per setting, and what one random order scatters.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    titles = {f"area.{m}": title for m, title in _SHORT.items() if m not in PARTIAL}
    table = _titled(frame, titles, digits=1, count=True)
    spread = {setting_name(*place): random_spread(seeds) for place, seeds in _places(frame)}
    return table.assign(**{"one random order, ±": [f"{spread[name]:.1f}" for name in table.index]})


def _lead(seeds: pd.DataFrame, a: str, b: str) -> str:
    if not {f"area.{a}", f"area.{b}"} <= set(seeds):  # a ranking that ranks nobody has none
        return "–"
    return paired_interval(seeds[f"area.{a}"] - seeds[f"area.{b}"]).text(1)


def leads_table(frame: pd.DataFrame) -> pd.DataFrame:
    """FedCCEA's lead in area over those who retrain, paired by seed.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    pd = need("pandas", "run")
    pairs = [
        (ours, m, f"{_SHORT[ours]}, over {_SHORT[m]}")
        for ours in ("fedccea", "adam")
        for m in ("tmc-sv", "loo")
    ]
    rows = {
        setting_name(*place): {title: _lead(seeds, a, b) for a, b, title in pairs}
        for place, seeds in _places(frame)
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def partial_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Areas with partial participation, and what the qualities add to the amounts.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    table = _titled(frame, {f"area.{m}": _SHORT[m] for m in PARTIAL}, digits=1, count=True)
    for m in PARTIAL[:-1]:
        leads = {setting_name(*place): _lead(s, m, PARTIAL[-1]) for place, s in _places(frame)}
        table[f"{_SHORT[m]}, over {_SHORT[PARTIAL[-1]]}"] = [leads[name] for name in table.index]
    return table


def fits_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of the weights of two fits.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    return _titled(
        frame,
        {
            "rank.0.1": "two tenths of the simulations",
            "rank.0.25": "two quarters",
            "rank.0.5": "two halves",
            "rank.seeds": "all, two starts",
            "rank.adam": "converged and Adam's",
            "rank.connected": "converged and behind the nodes",
            "rank.0.5.adam": "Adam's: two halves",
            "rank.0.5.connected": "sigmoid behind the nodes: two halves",
            "rank.0.5.same_round": "same round: two halves",
        },
        bounds=(-1.0, 1.0),
    )


def parts_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Chance of a clean client above a noisy one, by the share of the budget that is spent.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` with noisy clients.
    """
    spent = {f".{share:g}": f"{share:.0%}" for share in PARTS} | {"": "all"}
    titles = {
        f"auc.{m}{end}": f"{_SHORT[m]}, {title}"
        for m in ("fedccea", "tmc-sv")
        for end, title in spent.items()
    }
    others = {f"auc.{m}": _SHORT[m] for m in ("loo", *READINGS)}
    return _titled(frame, titles | others, count=True, bounds=(0.0, 1.0))


def shares_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What the AAM explains of the accuracies within a round, and what others do.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    table = _titled(
        frame,
        {
            "round_error": "error of the round's mean (points)",
            "aam_error": "error of the AAM (points)",
            "explained": "explained share",
            "explained.chance": "by chance",
            "explained.adam": "Adam's fit",
            "explained.connected": "Adam's, sigmoid behind the nodes",
            "explained.connected.chance": "the same by chance",
            "explained.same_round": "sizes of the same round",
            "falling": "share of rounds that take off",
        },
    )
    above = {
        setting_name(*place): f"{(seeds['explained.p'] <= 0.05).sum()} of {len(seeds)}"
        for place, seeds in _places(frame)
    }
    return table.assign(**{"more than chance": [above[name] for name in table.index]})


def _text(
    seeds: pd.DataFrame, metric: str, digits: int, bounds: tuple[float, float] | None = None
) -> str:
    """A metric's mean with its interval over the seeds; a dash where there is none."""
    found = mean_interval(seeds.get(metric, []))
    return (found.within(*bounds) if bounds else found).text(digits)


def _titled(
    frame: pd.DataFrame,
    titles: dict[str, str],
    digits: int = 2,
    count: bool = False,
    bounds: tuple[float, float] | None = None,
) -> pd.DataFrame:
    """One row per setting, one column per metric with its interval over the seeds."""
    pd = need("pandas", "run")
    rows = {
        setting_name(*place): ({"seeds": str(len(seeds))} if count else {})
        | {title: _text(seeds, metric, digits, bounds) for metric, title in titles.items()}
        for place, seeds in _places(frame)
    }
    return pd.DataFrame.from_dict(rows, orient="index")


def learning_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracy with everybody by samples, batches and rate, one column per distribution.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``learning``.
    """
    pd = need("pandas", "run")
    rows: dict[str, dict[str, str]] = {}
    part = frame[frame.metric == "base"]
    part = part.assign(samples=part.samples.astype(float).fillna(np.inf))
    scale = ["dataset", "samples", "batch_size", "lr"]
    part = part.sort_values(scale, ascending=False, kind="stable")
    for (dataset, samples, batch, lr, distribution), seeds in part.groupby(
        [*scale, "distribution"], sort=False
    ):
        amount = "all samples" if str(samples) == "inf" else f"{samples:.0f} samples"
        words = f"{_DATA[str(dataset)]}, {amount}, batches of {batch}, learning rate {lr:g}"
        row = rows.setdefault(words, {})
        row[_SPLIT[str(distribution)]] = mean_interval(seeds.value).within(0, 100).text(1)
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("–")
    return table[[name for name in _SPLIT.values() if name in table]]


def methods_table(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method and control, means over the seeds of one setting.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` in one setting.
    """
    pd = need("pandas", "run")
    means = frame.groupby("metric").value.mean()
    rows = {
        LABELS[m]: {
            title: float(means.get(f"{name}.{m}", np.nan)) for name, title in _COLUMNS.items()
        }
        for m in (*METHODS, *READINGS, *CONTROLS)
        if f"area.{m}" in means
    }
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis=1, how="all")
