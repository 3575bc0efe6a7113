"""FedCCEA's results as tables: exclusion of zeros, ranking, what the fits agree in and know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkit.extras import need
from fedkit.intervals import mean_interval
from fedkit.papers.claims import load_claims
from fedkit.papers.fedccea.fits import READINGS
from fedkit.papers.fedccea.settings import CONTROLS, FITS, METHODS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LABELS", "SHORT", "errors_table", "exclusion_table", "fits_table", "learning_table",
    "methods_table", "noise_name", "places", "pool_name", "pooled", "seed_text", "setting_name",
    "shares_table", "titled",
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
    "partial": "partial", "partial-connected": "partial, behind the nodes",
    "partial-size": "amounts alone",
}  # fmt: skip
_COLUMNS = {
    "zeros": "zero indices (clients)",
    "excluded": "accuracy without them (%)",
    "area": "area between removal curves (points)",
    "auc": "clean above noisy",
    "trained": "federations trained",
}


DATA = {"mnist": "MNIST", "emnist": "EMNIST letters", "digits": "digits"}
BY_CLASS = "EMNIST by class"
SPLIT = {"iid": "IID", "weak": "weak non-IID", "strong": "strong non-IID"}
_PLACE = ["dataset", "distribution", "noise"]


def setting_name(dataset: str, distribution: str, noise: str = "none") -> str:
    """Return a setting in words."""
    words = "" if noise == "none" else f", {noise_name(noise)}"
    return f"{DATA[dataset]}, {SPLIT[distribution]}{words}"


def noise_name(noise: str) -> str:
    """Return a kind of noise in words."""
    kind, _, share = noise.partition("-")
    words = {"label": "label noise", "pattern": "pattern", "backdoor": "backdoor"}
    return "clean" if noise == "none" else f"{share}% {words[kind]}"


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


def pool_name(dataset: str, distribution: str) -> str:
    """Name the pool of a setting: where few classes per client decide much, or not."""
    group = SPLIT["strong"] if distribution == "strong" else f"{SPLIT['iid']} and {SPLIT['weak']}"
    return f"{DATA[dataset]}, {group}"


def pooled(parts: Iterable[tuple[str, pd.DataFrame]]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield a seed's mean over the settings of a pool that have all seeds.

    Parameters
    ----------
    parts : iterable of (str, DataFrame)
        A setting's pool, and its metrics, one row per seed.

    Yields
    ------
    (str, DataFrame)
        The pool with its number of settings, and the means, one row per seed; NaN where one of the
        settings lacks a metric, as the others would differ.  Nothing for one setting, or one seed.
    """
    pd = need("pandas", "run")
    pools: dict[str, list[Any]] = {}
    for name, seeds in parts:
        pools.setdefault(name, []).append(seeds)
    for name, members in pools.items():
        most = max(len(seeds) for seeds in members)
        whole = [seeds for seeds in members if len(seeds) == most]
        if most > 1 and len(whole) > 1:
            mean = pd.concat(whole).groupby(level=0).agg(lambda found: found.mean(skipna=False))
            yield f"{name}, mean of {len(whole)} settings", mean


def exclusion_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What Table 3 shows, one row per method: accuracy without the clients of index zero.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``; clean settings are shown.
    """
    pd = need("pandas", "run")
    claims = load_claims("fedccea")
    table, clients = claims.tables["t3"], float(frame.clients.max())
    rows = {}
    for (dataset, distribution, noise), seeds in places(frame):
        if noise != "none":
            continue
        place = {"dataset": dataset, "distribution": distribution}
        # the paper's numbers belong to its own data: not to the letters
        used = set(frame[frame.dataset == dataset]["data"])
        same = place in table.columns and used <= set(claims.data[dataset])
        column = table.columns.index(place) if same else None
        for m in ("base", *METHODS, "adam"):
            base, printed = m == "base", "fedccea" if m in (*FITS, "adam") else m
            shown = {
                "accuracy (%)": ("base" if base else f"excluded.{m}", 1, (0.0, 100.0)),
                "without as many random clients (%)": (f"excluded.{m}.random", 1, (0.0, 100.0)),
                "less these (points)": (f"over random.{m}", 1, None),
                "clients of index zero": (f"zeros.{m}", 1, (0.0, clients)),
                "spread of the index": (f"spread.{m}", 2, (0.0, np.inf)),
            }
            if f"excluded.{m}.random" in seeds:
                over = seeds[f"excluded.{m}"] - seeds[f"excluded.{m}.random"]
                seeds = seeds.assign(**{f"over random.{m}": over})
            rows[setting_name(dataset, distribution), "everybody" if base else LABELS[m]] = {
                "seeds": str(len(seeds)),
                "paper (%)": "–" if column is None else str(table.rows[printed][column]),
                **{title: seed_text(seeds, *how) for title, how in shown.items()},
            }
    return pd.DataFrame.from_dict(rows, orient="index").fillna("–")


def fits_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Rank correlation of the weights of two fits; one row per setting and kind of fit.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.
    """
    pd = need("pandas", "run")
    shares = {"rank.0.1": "two tenths", "rank.0.25": "two quarters", "rank.0.5": "two halves"}
    columns = {**shares, "rank.seeds": "all, two starts"}
    rows = {}
    for place, seeds in places(frame):
        for m in ("fedccea", "connected", "same_round", "adam"):
            end = "" if m == "fedccea" else f".{m}"
            rows[setting_name(*place), LABELS[m]] = {
                **{
                    title: seed_text(seeds, f"{k}{end}", 2, (-1, 1)) for k, title in columns.items()
                },
                "and FedCCEA": seed_text(seeds, f"rank.{m}", 2, (-1, 1)),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def shares_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What the sizes explain of the accuracies within a round, to the AAM and to others.

    Parameters
    ----------
    frame : DataFrame
        Records of the experiment ``contribution``.

    Returns
    -------
    DataFrame
        Two rows per setting: the simulations of the fit, and such as it has not seen.
    """
    pd = need("pandas", "run")
    names = {"": "fedccea", ".connected": "connected", ".adam": "adam", ".same_round": "same_round"}
    rows = {}
    for place, seeds in places(frame):
        fitted = {SHORT[m]: f"explained{end}" for end, m in names.items()}
        unseen = {SHORT[m]: f"unseen.{m}" for m in names.values()}
        for title, kinds in (
            ("in the sample", fitted | {"FedCCEA, by chance": "explained.chance"}),
            ("unseen", unseen | {"FedCCEA, by chance": ""}),
        ):
            row = {
                column: seed_text(seeds, metric, 2, (-np.inf, 1.0))
                for column, metric in kinds.items()
            }
            rows[setting_name(*place), title] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def errors_table(frame: pd.DataFrame) -> pd.DataFrame:
    """Error of the AAM beside that of the round's mean, and in how many seeds chance does worse.

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
        },
        count=True,
    )
    off = titled(frame, {"falling": "rounds that take off"}, bounds=(0.0, 1.0))
    table = table.join(off)
    above = {
        setting_name(*place): f"{(seeds['explained.p'] <= 0.05).sum()} of {len(seeds)}"
        for place, seeds in places(frame)
    }
    title = "FedCCEA, more than chance (seeds)"
    return table.assign(**{title: [above[name] for name in table.index]})


def seed_text(
    seeds: pd.DataFrame, metric: str, digits: int, bounds: tuple[float, float] | None = None
) -> str:
    """A metric's mean with its interval over the seeds; a dash where there is none.

    Where not all seeds have a finite number, how many do is said.
    """
    found = mean_interval(seeds.get(metric, []))
    words = (found.within(*bounds) if bounds else found).text(digits)
    return f"{words}, n = {found.n}" if 0 < found.n < len(seeds) else words


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
        | {title: seed_text(seeds, metric, digits, bounds) for metric, title in titles.items()}
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
    scale = ["dataset", "data", "samples", "batch_size", "lr"]
    part = part.sort_values(scale, ascending=False, kind="stable")
    for (dataset, data, samples, batch, lr, distribution), seeds in part.groupby(
        [*scale, "distribution"], sort=False
    ):
        amount = "all samples" if str(samples) == "inf" else f"{samples:.0f} samples"
        name = BY_CLASS if data == "femnist" else DATA[str(dataset)]
        words = f"{name}, {amount}, batches of {batch}, learning rate {lr:g}"
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
