"""FedCCEA's figures: who has what, indices, intervals by setting, and how the model misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedkit.papers.fedccea.settings import (
    DATA,
    DISTRIBUTIONS,
    FITS,
    LABELS,
    METHODS,
    Setting,
)
from fedkit.papers.fedccea.valuing import federation
from fedkit.papers.overviews import where
from fedkit.plots.style import (
    HEAT,
    INK,
    PALETTE,
    Picture,
    finish,
    looks,
    panels,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.lines import Line2D


def splits(bases: Sequence[Setting]) -> Picture:
    """Draw how many samples of each class each client has, by distribution (Figures 8 and 9)."""
    picture, axes = panels(len(bases), 3, height=0.5 + 2.6 * len(bases))
    for row, base in zip(axes, bases, strict=True):
        name = f"{DATA[base.dataset]}\nclient"
        for axis, (distribution, title) in zip(row, DISTRIBUTIONS.items(), strict=True):
            counts = federation(replace(base, distribution=distribution), 0).label_counts
            axis.grid(False)
            shown = np.where(counts > 0, counts, np.nan)
            image = axis.imshow(shown, cmap=HEAT, vmin=0, aspect="auto", interpolation="nearest")
            axis.set_yticks(range(0, base.clients, 5))
            bar = picture.colorbar(image, ax=axis, pad=0.02)
            bar.ax.tick_params(colors=INK, labelsize=7)
            axis.set_title(title)
            finish(axis, "class", name if axis is row[0] else "", [])
    return picture


def noise_injected(base: Setting) -> Picture:
    """Draw the last client with and without label noise, and an image with the pattern (Figure 10).

    The client is one of the strong non-IID split, as in the paper's figure.
    """
    clean, loud, marked = (
        federation(replace(base, distribution="strong", noise=noise), 0)
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
    at = int((images != changed).flatten(1).any(1).int().argmax())  # the first that differs
    pairs = ((images, "clean"), (changed, "20% sample noise"))
    for axis, (x, title) in zip(axes[0, 1:], pairs, strict=True):
        axis.imshow(x[at, 0], cmap="gray_r")
        axis.set_title(title, color=INK, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(True)
    return picture


# From the series of the experiment ``contribution``, means over its seeds


def wide(series: pd.DataFrame, **settings: str) -> pd.DataFrame:
    """Series of one setting, one column each; a row per seed and place."""
    return (
        where(series, **settings)
        .pivot(index=["seed", "index"], columns="series", values="value")
        .reset_index()
    )


def _mean(tidy: pd.DataFrame, by: str, *names: str) -> pd.DataFrame:
    return tidy[[by, *names]].dropna().groupby(by).mean()


def all_indices(series: pd.DataFrame) -> Picture:
    """Client Contribution Indices in falling order, clean clients (Figures 4, 11 and 12)."""
    clean = series[series.noise == "none"]
    datasets = [d for d in DATA if d in set(clean.dataset)]
    look = looks([LABELS[m] for m in METHODS], None)
    height = 0.9 + 2.3 * len(datasets)
    picture, axes = panels(max(1, len(datasets)), 3, height=height, share_y=True)
    for k, dataset in enumerate(datasets):
        for axis, (distribution, title) in zip(axes[k], DISTRIBUTIONS.items(), strict=True):
            tidy = wide(clean, dataset=dataset, distribution=distribution)
            handles: list[Line2D] = []
            for m in METHODS if len(tidy) else ():
                found = tidy.pivot(index="seed", columns="index", values=f"index.{m}")
                found = found.dropna(axis=1, how="all")
                mean = 100 * np.sort(found.to_numpy(), axis=1)[:, ::-1].mean(axis=0)
                style = {**look[LABELS[m]], "markersize": 3.0, "linewidth": 1.2}
                handles += axis.plot(range(1, len(mean) + 1), mean, label=LABELS[m], **style)
            axis.set_title("" if k else title)
            below = "client, by its index" if k == len(datasets) - 1 else ""
            label = f"{DATA[dataset]}\nindex (%)" if axis is axes[k, 0] else ""
            finish(axis, below, label, handles)
    return picture


def misses(series: pd.DataFrame) -> Picture:
    """Approximated less true accuracy by round, clean IID clients (Figure 7).

    Drawn are the median over the simulations and the band from its 5% to its 95% quantile, for both
    readings.
    """
    clean = series[(series.noise == "none") & (series.distribution == "iid")]
    datasets = [name for name in DATA if name in set(clean.dataset)]
    picture, axes = panels(1, max(1, len(datasets)), height=3.2, share_y=True)
    look = looks([LABELS[m] for m in FITS], None)
    for axis, dataset in zip(axes[0], datasets, strict=False):
        tidy = wide(clean, dataset=dataset)
        handles = []
        for m in FITS:
            low, middle, high = names = [f"miss.{m}.{q}" for q in ("low", "middle", "high")]
            cut = _mean(tidy, "round", *names)
            style = {**look[LABELS[m]], "marker": "none", "linewidth": 1.6}
            band = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
            axis.fill_between(cut.index, cut[low], cut[high], **band)
            handles += axis.plot(cut.index, cut[middle], label=LABELS[m], **style)
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.set_title(DATA[dataset])
        finish(axis, "round", "approximated less true (points)", handles)
    return picture
