"""FedCCEA's figures: planted noise, indices, and how the model misses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from reproduction.fedccea.settings import DATA, DISTRIBUTIONS, FITS, LABELS, METHODS, Setting
from reproduction.fedccea.tables import RUN
from reproduction.fedccea.valuing import federation
from reproduction.figures import INK, PALETTE, Picture, curves_with_bands, finish, looks, panels
from reproduction.overviews import where

if TYPE_CHECKING:
    import pandas as pd


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


def wide(series: pd.DataFrame, **settings: str) -> pd.DataFrame:
    """Series of one setting, one column each; a row per seed and place."""
    return (
        where(series, **settings)
        .pivot(index=["seed", "index"], columns="series", values="value")
        .reset_index()
    )


def all_indices(series: pd.DataFrame) -> Picture:
    """Client Contribution Indices in falling order, clean clients (Figures 4, 11 and 12)."""
    names = {f"index.{m}": LABELS[m] for m in METHODS}
    clean = series[(series.noise == "none") & series.series.isin(names)]
    falling = clean.groupby([*RUN, "series"]).value.rank(method="first", ascending=False)
    clean = clean.assign(method=clean.series.map(names), index=100 * clean.value, place=falling)
    datasets = [d for d in DATA if d in set(clean.dataset)]
    picture, axes = panels(max(1, len(datasets)), 3, height=0.9 + 2.3 * len(datasets), share_y=True)
    for row, dataset in zip(axes, datasets, strict=False):
        for axis, (distribution, title) in zip(row, DISTRIBUTIONS.items(), strict=True):
            axis.set_title(title)
            tidy = where(clean, dataset=dataset, distribution=distribution)
            if len(tidy):
                curves_with_bands(
                    tidy, "place", "index", "method", order=list(names.values()), axis=axis,
                    xlabel="client, by its index", within=(0, 100),
                    ylabel=f"{DATA[dataset]}\nindex (%)" if axis is row[0] else "",
                )  # fmt: skip
    return picture


def misses(series: pd.DataFrame) -> Picture:
    """Approximated less true accuracy by round, clean IID clients (Figure 7), means over the seeds.

    Drawn are the median over the simulations and the band from its 5% to its 95% quantile, for both
    readings.
    """
    clean = where(series, noise="none", distribution="iid")
    datasets = [name for name in DATA if name in set(clean.dataset)]
    picture, axes = panels(1, max(1, len(datasets)), height=3.2, share_y=True)
    look = looks([LABELS[m] for m in FITS], None)
    for axis, dataset in zip(axes[0], datasets, strict=False):
        cuts, handles = wide(clean, dataset=dataset).groupby("round").mean(), []
        for m in FITS:
            low, middle, high = (cuts[f"miss.{m}.{q}"] for q in ("low", "middle", "high"))
            style = {**look[LABELS[m]], "marker": "none", "linewidth": 1.6}
            axis.fill_between(cuts.index, low, high, color=style["color"], alpha=0.18, linewidth=0)
            handles += axis.plot(cuts.index, middle, label=LABELS[m], **style)
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.set_title(DATA[dataset])
        finish(axis, "round", "approximated less true (points)", handles)
    return picture
