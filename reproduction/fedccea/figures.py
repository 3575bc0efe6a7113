"""The figures of the pages on FedCCEA."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedkit.plots import INK, PALETTE, Picture, finish, panels
from reproduction.fedccea import experiments as given
from reproduction.fedccea import findings
from reproduction.fedccea.experiments import DATA, DISTRIBUTIONS, FITS, LABELS, METHODS
from reproduction.fedccea.findings import RUN, Evaluation, intervals, of, wide
from reproduction.figures import curves_with_bands, forests, looks
from reproduction.overviews import where

if TYPE_CHECKING:
    from fedkit.methods.fedccea import Fit


def all_indices(series: pd.DataFrame) -> Picture:
    """Client Contribution Indices in falling order, clean clients (Figures 4, 11 and 12)."""
    names = {f"index.{m}": LABELS[m] for m in METHODS}
    clean = series[(series.noise == "none") & series.series.isin(names)]
    falling = clean.groupby([*RUN, "series"]).value.rank(method="first", ascending=False)
    clean = clean.assign(method=clean.series.map(names), index=100 * clean.value, place=falling)
    datasets = [d for d in DATA if d in set(clean.dataset)]
    picture, axes = panels(len(datasets), 3, height=0.9 + 2.3 * len(datasets), share_y=True)
    for axis, (dataset, place) in zip(axes.flat, product(datasets, DISTRIBUTIONS), strict=True):
        axis.set_title(DISTRIBUTIONS[place])
        curves_with_bands(
            where(clean, dataset=dataset, distribution=place), "place", "index", "method",
            order=list(names.values()), axis=axis, xlabel="client, by its index", within=(0, 100),
            ylabel=f"{DATA[dataset]}\nindex (%)" if axis in axes[:, 0] else "",
        )  # fmt: skip
    return picture


def misses(series: pd.DataFrame) -> Picture:
    """Approximated less true accuracy by round, clean IID clients (Figure 7), means over the seeds.

    Drawn are the median over the simulations and the band from its 5% to its 95% quantile, for both
    readings.
    """
    clean = where(series, noise="none", distribution="iid")
    datasets = [name for name in DATA if name in set(clean.dataset)]
    picture, axes = panels(1, len(datasets), height=3.2, share_y=True)
    look = looks([LABELS[m] for m in FITS], None)
    for axis, dataset in zip(axes[0], datasets, strict=True):
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


# ------------------------------------------------------------------------ from an evaluation


def minute(e: Evaluation) -> Picture:
    """Draw who finds the clients with wrong labels, MNIST."""
    loud = e.runs.query("noise == 'label-40'").loc[["mnist"]]
    costs = {
        LABELS[m]: f"{LABELS[m]}: {e.here[f'trained.{m}'].mean():.0f} trained" for m in METHODS
    }
    titles = {given.setting_name("mnist", d, "label-40"): name for d, name in DISTRIBUTIONS.items()}
    found = intervals(loud, of("auc", METHODS), (0, 1))
    found = found.rename(index=costs, level=1).rename(index=titles, level=0)
    label = "chance that a clean client is above a noisy one"
    return forests({"chance": found}, label, level=0.5)


def sigmoid(fits: Mapping[str, Fit], law: Callable[[float], float]) -> Picture:
    """Draw the two places of the sigmoid: networks, and what the last of ten rounds adds.

    `fits` has by title the printed and the connected fit, `law` the true gain by the share used.
    """
    picture, axes = panels(2, 2, height=3.8)
    axes[0, 0].get_gridspec().set_height_ratios([1, 2.4])
    shares = np.linspace(0.05, 1, 20)
    for column, (title, fit) in enumerate(fits.items()):
        _boxes(axes[0, column], 1 + column, title)
        axis = axes[1, column]
        axis.plot(shares, [law(u) for u in shares], color=INK, linestyle="--", label="law")
        before = np.tile(shares[:, None, None], (10, len(fit.quality)))
        last = np.arange(10)[:, None] == 9
        assert fit.predict is not None
        with_last, without = (fit.predict(np.where(last, u, before))[:, -1] for u in (1.0, 0.0))
        gains = 100 * (with_last - without)
        axis.plot(shares, gains, color=PALETTE[column], linewidth=2, label="fit")
        axis.set_ylim(0, 35)
        axis.set_xlabel("share used in the rounds before", color=INK)
    axes[1, 0].set_ylabel("last round adds (points)", color=INK)
    return picture


def _boxes(axis: Any, bent: int, title: str) -> None:
    """Draw a network as boxes; the one with the sigmoid is filled."""
    axis.set_axis_off()
    axis.set(xlim=(-0.2, 7.5), ylim=(-0.8, 0.6))
    names = ("sizes of\na round", "$X_\\rho$, sum\nwith $\\omega$", "ten nodes", "accuracy")
    for k, name in enumerate(names):
        look = {"color": PALETTE[1] if k == bent else INK}
        box = {"boxstyle": "round,pad=0.5", "edgecolor": look["color"], "linewidth": 1.4}
        box["facecolor"] = PALETTE[1] + "33" if k == bent else "none"
        axis.text(2 * k + 0.65, 0, name, ha="center", va="center", fontsize=8, color=INK, bbox=box)
        if k:
            arrow = {"arrowstyle": "->", "color": INK}
            axis.annotate("", (2 * k - 0.1, 0), (2 * k - 0.6, 0), arrowprops=arrow)
    mark = {"ha": "center", "fontsize": 8, "color": PALETTE[1]}
    axis.text(2 * bent + 0.65, -0.55, "sigmoid here", **mark)
    axis.set_title(title, fontsize=10, color=INK)


def exclusions(e: Evaluation, *datasets: str) -> Picture:
    """Draw accuracy without the clients of index zero beside the paper's, of some data sets."""
    found = e.exclusions
    settings = found.index.get_level_values(0)
    found = found[[name.startswith(datasets or "") for name in settings]]
    return forests({"measured": found}, "test accuracy (%)", level=None)


def removals(e: Evaluation) -> Picture:
    """Draw accuracy when clients are removed, MNIST, strong non-IID, 40% wrong labels."""
    curves = wide(e.drawn, **dict(zip(RUN[:3], findings.PLACE, strict=True)))
    curves = curves.dropna(subset="removed")
    picture, axes = panels(2, 2, height=5.0, share_y=True)
    for axis, m in zip(axes.flat, METHODS, strict=True):
        names = {f"{m}.lowest": "lowest first", f"{m}.highest": "highest first", "random": "random"}
        tidy = curves.melt(["seed", "removed"], [*names], "who", "reached")
        tidy["who"] = tidy["who"].map(names)
        curves_with_bands(
            tidy, "removed", "reached", "who", axis=axis, order=[*names.values()], within=(0, 100),
            xlabel="clients removed (%)" if axis in axes[1] else "",
            ylabel="test accuracy (%)" if axis in axes[:, 0] else "",
        )  # fmt: skip
        axis.set_title(LABELS[m], fontsize=9)
        axis.set_ylim(35, 92)
    return picture


def printed_times() -> Picture:
    """Draw the paper's Table 2, with one and with 100 simulations."""
    printed = findings.printed_times()
    picture, ((axis,),) = panels(height=3.0)
    names = map(str, printed)
    for name, dashes, colour in zip(names, ("--", "-", "-", "-"), (0, 0, 2, 3), strict=False):
        look = {"color": PALETTE[colour], "marker": "o", "markersize": 4}
        label = name.removesuffix(" (s)")
        axis.loglog(printed.index, printed[name], dashes, label=label, **look)
    axis.set_xticks(printed.index, [str(n) for n in printed.index])
    axis.minorticks_off()
    axis.set_xlabel("clients", color=INK)
    axis.set_ylabel("seconds", color=INK)
    picture.legend(loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    return picture


def chance_leads(e: Evaluation) -> Picture:
    """Draw FedCCEA's lead at finding noisy clients over those who retrain."""
    found = {
        title: intervals(findings.compared(e.runs), findings.over_retrained(metric), pooled=True)
        for title, metric in (("chance", "auc"), ("gain", "gain"))
    }
    return forests(found, "FedCCEA's lead", columns=2)


def unseen(e: Evaluation) -> Picture:
    """Draw what sizes explain of unseen simulations, and how two halves agree."""
    clean, series = e.runs.query("noise == 'none'"), {}
    for m, end in (("fedccea", ""), ("connected", ".connected"), ("same_round", ".same_round")):
        r2 = intervals(clean, {"out-of-sample R²": f"unseen.{m}"}, (-np.inf, 1))
        rank = intervals(clean, {"two halves agree": f"rank.0.5{end}"}, (-1, 1))
        series[LABELS[m]] = pd.concat([r2, rank]).swaplevel()
    return forests(series, "R², and rank correlation")


def learning(e: Evaluation) -> Picture:
    """Draw accuracy with everybody beside the paper's."""
    return forests({"measured": e.learnt}, "test accuracy (%)", level=None)


def dealt(e: Evaluation) -> Picture:
    """Draw the areas of learnt qualities, of dealt ones, and of amounts alone."""
    shown = {
        f"{what}{', connected' if end else ''}": f"area.{what}{end}"
        for end, what in product(given.ENDS.values(), ("learnt", "dealt"))
    }
    shown["amounts alone"] = "area.amounts"
    return forests({"": intervals(e.deals, shown)}, "area (points)", columns=2)
