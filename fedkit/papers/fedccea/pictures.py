"""FedCCEA's figures over all settings: indices, removal curves, and how the model misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedkit.datasets.catalogue import available
from fedkit.papers.fedccea.cells import NOISES, SCALES
from fedkit.papers.fedccea.settings import DISTRIBUTIONS, FITS, METHODS, Setting, federation
from fedkit.papers.fedccea.tables import DATA, SHORT, SPLIT, noise_name
from fedkit.plots.style import HEAT, INK, PALETTE, Picture, finish, looks, panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.lines import Line2D

__all__ = ["all_indices", "all_removals", "at_hand", "misses", "noise_injected", "splits", "wide"]


def wide(series: pd.DataFrame, **settings: str) -> pd.DataFrame:
    """Series of one setting, one column each; a row per seed and place."""
    for name, value in settings.items():
        series = series[series[name] == value]
    return series.pivot(index=["seed", "index"], columns="series", values="value").reset_index()


def _in_order(series: pd.DataFrame) -> list[str]:
    """The data sets on record, in the paper's order."""
    return [name for name in DATA if name in set(series.dataset)]


def at_hand() -> list[Setting]:
    """Return the settings of the runs with 300 samples whose data are there; else the digits."""
    found = [base for base in SCALES["laptop"].bases if available(base.data)]
    return found or list(SCALES["smoke"].bases)


def splits(bases: Sequence[Setting], seed: int = 0) -> Picture:
    """Draw how many samples of each class each client has, by distribution (Figures 8 and 9)."""
    picture, axes = panels(len(bases), 3, height=0.5 + 2.6 * len(bases))
    for row, base in zip(axes, bases, strict=True):
        for axis, distribution in zip(row, DISTRIBUTIONS, strict=True):
            counts = federation(replace(base, distribution=distribution), seed).label_counts
            axis.grid(False)
            shown = np.where(counts > 0, counts, np.nan)
            image = axis.imshow(shown, cmap=HEAT, vmin=0, aspect="auto", interpolation="nearest")
            axis.set_yticks(range(0, base.clients, 5))
            bar = picture.colorbar(image, ax=axis, pad=0.02)
            bar.ax.tick_params(colors=INK, labelsize=7)
            axis.set_title(SPLIT[distribution], color=INK, fontsize=9)
            first = distribution == DISTRIBUTIONS[0]
            finish(axis, "class", f"{DATA[base.dataset]}\nclient" if first else "", [])
    return picture


def noise_injected(base: Setting, seed: int = 0) -> Picture:
    """Draw the last client with and without label noise, and an image with the pattern (Figure 10).

    The client is one of the strong non-IID split, as in the paper's figure.
    """
    clean, loud, marked = (
        federation(replace(base, distribution="strong", noise=noise), seed)
        for noise in ("none", "label-40", "pattern-20")
    )
    last = base.clients - 1
    picture, axes = panels(1, 3, height=2.8)
    places = np.arange(clean.n_classes)
    for shift, f, name, colour in ((-0.2, clean, "clean", 0), (0.2, loud, "40% label noise", 1)):
        held = np.bincount(f.client_data(last)[1], minlength=len(places))
        axes[0, 0].bar(places + shift, held, 0.4, color=PALETTE[colour], label=name)
    finish(axes[0, 0], "class", "samples", axes[0, 0].containers)
    images, changed = clean.client_data(last)[0], marked.client_data(last)[0]
    differs = (images != changed).flatten(1).any(1).nonzero()
    at = int(differs[0]) if len(differs) else 0
    pairs = ((images, "clean"), (changed, "20% sample noise"))
    for axis, (x, title) in zip(axes[0, 1:], pairs, strict=True):
        axis.imshow(x[at, 0], cmap="gray_r")
        axis.set_title(title, color=INK, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(True)
    return picture


def all_indices(series: pd.DataFrame) -> Picture:
    """Client Contribution Indices in falling order, clean clients (Figures 4, 11 and 12).

    Parameters
    ----------
    series : DataFrame
        Series of the experiment ``contribution``; the means over its seeds are drawn.
    """
    clean = series[series.noise == "none"]
    datasets = _in_order(clean)
    picture, axes = panels(len(datasets), 3, height=0.9 + 2.3 * len(datasets), share_y=True)
    look = looks([SHORT[m] for m in METHODS], None)
    for row, dataset in zip(axes, datasets, strict=True):
        label = f"{DATA[dataset]}\nindex (%)"
        for axis, distribution in zip(row, DISTRIBUTIONS, strict=True):
            axis.set_title(SPLIT[distribution], color=INK, fontsize=9)
            tidy = wide(clean, dataset=dataset, distribution=distribution)
            handles: list[Line2D] = []
            for m in METHODS if len(tidy) else ():
                found = tidy.pivot(index="seed", columns="index", values=f"index.{m}")
                found = found.dropna(axis=1, how="all")
                mean = 100 * np.sort(found.to_numpy(), axis=1)[:, ::-1].mean(axis=0)
                places = range(1, len(mean) + 1)
                style = {**look[SHORT[m]], "markersize": 3.0, "linewidth": 1.2}
                handles += axis.plot(places, mean, label=SHORT[m], **style)
            finish(axis, "client, by its index", label if handles else "", handles, below=True)
            label = "" if handles else label  # at the first panel of the row that is there
            axis.set_axis_on() if handles else axis.set_axis_off()
    return picture


def all_removals(series: pd.DataFrame, dataset: str, methods: Sequence[str] = METHODS) -> Picture:
    """Accuracy after removals in every setting of a data set (Figures 5, 6 and 13 to 24).

    Solid lines: the lowest go first; dotted ones: the highest; grey: random clients.

    Parameters
    ----------
    series : DataFrame
        Series of the experiment ``contribution``; the means over its seeds are drawn.
    dataset : str
    methods : sequence of str
        METHODS, or keys of the curves with partial participation.
    """
    mine = series[series.dataset == dataset]
    noises = [noise for noise in NOISES if noise in set(mine.noise)]
    picture, axes = panels(max(1, len(noises)), 3, height=0.9 + 1.9 * len(noises))
    look = looks([SHORT[m] for m in methods], None)
    for row, noise in zip(axes, noises, strict=False):
        label = f"{noise_name(noise)}\naccuracy (%)"
        for axis, distribution in zip(row, DISTRIBUTIONS, strict=True):
            tidy = wide(mine, noise=noise, distribution=distribution)
            handles: list[Line2D] = []
            if "random" in tidy and "random" not in methods:
                chance = tidy[["removed", "random"]].dropna().groupby("removed").random.mean()
                handles += axis.plot(
                    chance.index, chance, color=INK, linewidth=2.5, alpha=0.5, label="random"
                )
            for m in methods:
                style = {"color": look[SHORT[m]]["color"], "linewidth": 1.3}
                for end, dashes in (("lowest", "-"), ("highest", (0, (1, 1.5)))):
                    if f"{m}.{end}" not in tidy:
                        continue
                    curve = tidy[["removed", f"{m}.{end}"]].dropna().groupby("removed").mean()
                    line = axis.plot(
                        curve.index, curve.iloc[:, 0], linestyle=dashes, label=SHORT[m], **style
                    )
                    handles += line if end == "lowest" else []
            if noise == noises[0]:
                axis.set_title(SPLIT[distribution])
            below = "removed (%)" if noise == noises[-1] else ""
            finish(axis, below, label if handles else "", handles)
            label = "" if handles else label  # at the first panel of the row that is there
            axis.set_axis_on() if handles else axis.set_axis_off()
    return picture


def misses(series: pd.DataFrame, distribution: str = "iid") -> Picture:
    """Approximated less true accuracy by round, clean clients (Figure 7).

    Drawn are the median over the simulations and the band from its 5% to its 95% quantile, for both
    readings.

    Parameters
    ----------
    series : DataFrame
        Series of the experiment ``contribution``; the means over its seeds are drawn.
    distribution : str
    """
    clean = series[(series.noise == "none") & (series.distribution == distribution)]
    datasets = _in_order(clean)
    picture, axes = panels(1, max(1, len(datasets)), height=3.2, share_y=True)
    look = looks([SHORT[m] for m in FITS], None)
    for axis, dataset in zip(axes[0], datasets, strict=False):
        tidy = wide(clean, dataset=dataset)
        handles = []
        for m in FITS:
            names = [f"miss.{m}.{q}" for q in ("low", "middle", "high")]
            cut = tidy[["round", *names]].dropna().groupby("round").mean()
            style = look[SHORT[m]]
            axis.fill_between(
                cut.index, cut[names[0]], cut[names[2]], color=style["color"], alpha=0.18,
                linewidth=0,
            )  # fmt: skip
            style = {**style, "marker": "none", "linewidth": 1.6}
            handles += axis.plot(cut.index, cut[names[1]], label=SHORT[m], **style)
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.set_title(DATA[dataset])
        finish(axis, "round", "approximated less true (points)", handles)
    return picture
