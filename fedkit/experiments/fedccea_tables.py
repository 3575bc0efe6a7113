"""FedCCEA's results as tables: exclusion of zeros, ranking, what the fits agree in and know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedkit.claims import load_claims
from fedkit.experiments.fedccea import CONTROLS, FITS, METHODS, PARTS
from fedkit.experiments.fedccea_fits import READINGS
from fedkit.extras import need
from fedkit.intervals import mean_interval

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABELS", "SHORT", "exclusion_table", "fits_table", "learning_table", "methods_table",
    "parts_table", "places", "setting_name", "shares_table", "titled",
]  # fmt: skip

LABELS = {
    "fedccea": "FedCCEA",
    "connected": "FedCCEA, sigmoid behind the nodes",
    "tmc-sv": "TMC-SV, retrained",
    "loo": "LOO, retrained",
    "adam": "FedCCEA, by Adam",
    "same_round": "sizes of the same round",
    "partial": "FedCCEA, partial participation",
    "partial-connected": "partial participation, sigmoid behind the nodes",
    "partial-size": "control: partial, amounts alone",
    "size": "control: size",
    "oracle": "control: oracle",
}
#: the same at the head of a column; the order of the columns
SHORT = {
    "fedccea": "FedCCEA", "connected": "behind the nodes", "adam": "by Adam",
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


DATA = {"mnist": "MNIST", "emnist": "EMNIST letters", "digits": "digits"}
SPLIT = {"iid": "IID", "weak": "weak non-IID", "strong": "strong non-IID"}
_PLACE = ["dataset", "distribution", "noise"]


def setting_name(dataset: str, distribution: str, noise: str = "none") -> str:
    """Return a setting in words."""
    kind, _, share = noise.partition("-")
    words = {
        "none": "", "label": f", {share}% label noise", "pattern": f", {share}% pattern",
        "backdoor": f", {share}% backdoor",
    }  # fmt: skip
    return f"{DATA[dataset]}, {SPLIT[distribution]}{words[kind]}"


def places(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Yield every setting with its metrics, one row per seed, in the paper's order."""

    def rank(place: tuple[str, ...]) -> tuple[int, int, bool, str]:
        dataset, distribution, noise = place
        return [*DATA].index(dataset), [*SPLIT].index(distribution), noise != "none", noise

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
    for (dataset, distribution, noise), seeds in places(frame):
        if noise != "none":
            continue
        place = {"dataset": dataset, "distribution": distribution}
        column = claims.columns.index(place) if place in claims.columns else None
        for m in ("base", *METHODS, "adam"):
            base, printed = m == "base", "fedccea" if m in (*FITS, "adam") else m
            shown = {
                "accuracy (%)": "base" if base else f"excluded.{m}",
                "without as many random clients (%)": f"excluded.{m}.random",
                "clients of index zero": f"zeros.{m}",
            }
            spread = (
                {} if base else {"spread of the index": _text(seeds, f"spread.{m}", 2, (0, np.inf))}
            )
            rows[setting_name(dataset, distribution), "everybody" if base else LABELS[m]] = {
                "seeds": str(len(seeds)),
                "paper (%)": "–" if column is None else str(claims.rows[printed][column]),
                **{title: _text(seeds, name, 1, (0, 100)) for title, name in shown.items()},
                **spread,
            }
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def fits_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of the weights of two fits.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    return titled(
        frame,
        {
            "rank.0.1": "two tenths of the simulations",
            "rank.0.25": "two quarters",
            "rank.0.5": "two halves",
            "rank.seeds": "all, two starts",
            "rank.0.1.connected": "behind the nodes: two tenths",
            "rank.0.25.connected": "behind the nodes: two quarters",
            "rank.0.5.connected": "behind the nodes: two halves",
            "rank.seeds.connected": "behind the nodes: two starts",
            "rank.0.5.same_round": "same round: two halves",
            "rank.connected": "the two readings",
            "rank.adam": "FedCCEA and by Adam",
        },
        bounds=(-1.0, 1.0),
    )


def parts_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Chance of a clean client above a noisy one, by the share of the budget that is spent.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution`` with noisy clients.

    Returns
    -------
    DataFrame
        One row per setting and share; what the simulations, and TMC-SV, trained for it stands
        beside it, in federations.
    """
    pd = need("pandas", "run")
    rows = {}
    for place, seeds in places(frame):
        shares = {f".{share:g}": f"{share:.0%}" for share in PARTS} | {"": "all"}
        for end, title in shares.items():
            sampled = {SHORT[m]: f"auc.{m}{end}" for m in (*FITS, "tmc-sv")}
            others = {} if end else {SHORT[m]: f"auc.{m}" for m in ("loo", *READINGS)}
            row = {name: _text(seeds, k, 2, (0.0, 1.0)) for name, k in (sampled | others).items()}
            trained = {
                "simulations trained": f"trained.fedccea{end}",
                "TMC-SV trained": f"trained.tmc-sv{end}",
            }
            row |= {name: _mean(seeds, metric) for name, metric in trained.items()}
            rows[setting_name(*place), title] = {"seeds": str(len(seeds))} | row
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def shares_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What the AAM explains of the accuracies within a round, and what others do.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    table = titled(
        frame,
        {
            "round_error": "error of the round's mean (points)",
            "aam_error": "error of the AAM (points)",
            "explained": "explained share",
            "explained.chance": "by chance",
            "explained.connected": "behind the nodes",
            "explained.adam": "by Adam",
            "explained.same_round": "same round",
            "unseen.fedccea": "unseen simulations: FedCCEA",
            "unseen.connected": "unseen: behind the nodes",
            "unseen.same_round": "unseen: same round",
            "falling": "rounds that take off",
        },
    )
    above = {
        setting_name(*place): f"{(seeds['explained.p'] <= 0.05).sum()} of {len(seeds)}"
        for place, seeds in places(frame)
    }
    return table.assign(**{"more than chance": [above[name] for name in table.index]})


def _mean(seeds: pd.DataFrame, metric: str) -> str:
    """A metric's mean over the seeds, without an interval; a dash where there is none."""
    return f"{seeds[metric].mean():.1f}" if metric in seeds else "–"


def _text(
    seeds: pd.DataFrame, metric: str, digits: int, bounds: tuple[float, float] | None = None
) -> str:
    """A metric's mean with its interval over the seeds; a dash where there is none."""
    found = mean_interval(seeds.get(metric, []))
    return (found.within(*bounds) if bounds else found).text(digits)


def titled(
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
        for place, seeds in places(frame)
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
        words = f"{DATA[str(dataset)]}, {amount}, batches of {batch}, learning rate {lr:g}"
        row = rows.setdefault(words, {})
        row[SPLIT[str(distribution)]] = mean_interval(seeds.value).within(0, 100).text(1)
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("–")
    return table[[name for name in SPLIT.values() if name in table]]


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
