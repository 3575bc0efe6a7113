"""The figures of the pages on FedValue."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from fedkit.checks import Floats, Ints
from fedkit.fedvalue.columns import joint_codes
from fedkit.fedvalue.corrections import null_information
from fedkit.fedvalue.information import conditional_mutual_information as conditional
from fedkit.fedvalue.information import entropy, mshapley_cmi, mutual_information
from fedkit.fedvalue.protocol.attacks import ATTACKS, View, attempt
from fedkit.fedvalue.protocol.messages import Table
from fedkit.intervals import Interval
from fedkit.streams import Streams
from reproduction import figures as plots
from reproduction import overviews
from reproduction.fedvalue import findings
from reproduction.fedvalue.experiments import FEATURES, Case
from reproduction.fedvalue.findings import COLUMNS, IDEAL, RIDERS, STRATEGIES, Evaluation
from reproduction.fedvalue.recommendation import Repetition, prices
from reproduction.figures import INK, PALETTE, Picture, Shown, finish

_DOTTED: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (2, 3))}


def _dots(
    found: Mapping[str, Interval], xlabel: str, printed: Mapping[str, float] | None = None
) -> Picture:
    """Draw means with their intervals, a line each."""
    return plots.dots_with_intervals(overviews.intervals(found, printed), xlabel)


# ------------------------------------------------------------------------ the value


def paid_to_free_riders(e: Evaluation) -> Picture:
    """Draw what free-riders get of the money for one party."""
    found, printed = {}, {}
    crowds = {"MovieLens-1M": e.records, "MovieLens-100K": "laptop"}
    for crowd, name in product(crowds, ("fedvalue", "fedvalue-corrected", "vf-ps")):
        label = f"{crowd}, {STRATEGIES[name]}"
        found[label] = findings.cut(e.played(RIDERS, crowds[crowd]), "frsp", name)
        if crowd == "MovieLens-1M":
            printed[label] = e.printed(f"t7s.fix.b1.{name}")
    picture = _dots(found, "paid to free-riders (%)", printed)
    picture.axes[0].axvline(20, **_DOTTED)
    return picture


def overlap(own: Ints, a: Ints, b: Ints, label: Ints) -> Picture:
    """Draw what a buyer and two suppliers tell as bars on one axis, and what FedValue pays."""
    known, both = mutual_information(own, label), conditional(joint_codes(a, b), label, own)
    blue, red, green = PALETTE[:3]
    bars: list[Any] = [
        (0, INK, 0, entropy(label), "", "all about the label"),
        (1, blue, 0, known, "full", "the buyer knows"),
    ]
    for row, color, x, name in ((2, red, a, "A"), (3, green, b, "B")):
        adds = conditional(x, label, own)
        overlapping = mutual_information(x, label) - adds
        start = known if row == 2 else known + both - adds
        bars += [(row, color, known - overlapping, overlapping, "////", "")]
        bars += [(row, color, start, adds, "full", f"{name} adds")]
    paid = mshapley_cmi(own, label, [a, b]).values
    bars += [
        (4, blue, 0, known, "full", "the buyer's own"),
        (4, red, known, paid[0], "full", "paid to A"),
        (4, green, known + paid[0], paid[1], "full", "paid to B"),
    ]
    axis = plots.panels(height=3.1)[1][0, 0]
    for row, color, start, width, fill, text in bars:
        look = {"facecolor": color} if fill == "full" else {"facecolor": "none", "hatch": fill}
        axis.barh(row, width, 0.62, left=start, edgecolor=color, **look)
        words = {"ha": "center", "va": "center", "fontsize": 8.5}
        axis.text(start + width / 2, row, text, color="black" if row else INK, **words)
    for at in (known + both - conditional(b, label, own), known + conditional(a, label, own)):
        axis.plot([at, at], [1.5, 4.4], color=INK, linestyle=(0, (2, 3)))
    axis.set_yticks([])
    axis.invert_yaxis()
    return finish(axis, "information about the label (nats)", "", ())


_FINE = 120  # points per axis of the known population: all numbers of bins below divide it
_CUTS, _ROWS = (2, 3, 4, 5, 6, 8, 10), (100, 300, 1000, 3000, 10_000)
_SERIES = ("real, plug-in", "real, corrected", "noise, plug-in", "noise, corrected")


def known_population(cut: int) -> tuple[Floats, float]:
    """Return a population's chance of label 1 by fine cell of both columns, and a true value.

    The value is I(X_d; Y | X_t) with `cut` bins, in nats.
    """
    grid = (np.arange(_FINE) + 0.5) / _FINE
    chance = 1 / (1 + np.exp(-3 * (grid[:, None] - grid[None, :])))
    p = chance.reshape(cut, _FINE // cut, cut, _FINE // cut).mean(axis=(1, 3))
    joint = np.stack([1 - p, p], axis=-1) / cut**2

    def h(q: Any) -> float:
        return float(-(q * np.log(q)).sum())

    told = h(joint.sum(axis=1)) - h(joint.sum(axis=(1, 2))) - h(joint) + h(joint.sum(axis=2))
    return chance, told


def bias_of_sample(columns: int, cut: int, rows: int, seed: int) -> list[float]:
    """Return how far values of a sample are off, in the order of the slider's series."""
    rng = Streams(0).child("fedvalue", "chapter").generator("slider", columns, cut, rows, seed)
    chance, truth = known_population(cut)
    t, s = rng.integers(_FINE, size=(2, rows))
    y = (rng.random(rows) < chance[t, s]).astype(int)
    more = rng.integers(cut ** (columns - 1), size=(2, rows))  # columns that tell nothing
    of_t, of_s = (joint_codes(v * cut // _FINE, w) for v, w in zip((t, s), more, strict=True))
    off = []
    for cells, value in ((of_s, truth), (rng.integers(cut**columns, size=rows), 0.0)):
        plugin, mean = null_information(of_t, cells, y)
        off += [plugin - value, plugin - mean - value]
    return off


def slider_of_bias(repeats: int) -> Shown:
    """Draw how far a supplier's value is off, with sliders for columns and bins."""
    bias = pd.DataFrame(
        {"columns": k, "cut": cut, "rows": n, "series": name, "bias": off}
        for k in (1, 2) for cut in _CUTS for n in _ROWS for seed in range(max(4, repeats // 2))
        for name, off in zip(_SERIES, bias_of_sample(k, cut, n, seed), strict=True)
    )  # fmt: skip

    def turned(columns: int, cut: int) -> Picture:
        axis, cells = plots.panels(height=3.5)[1][0, 0], cut ** (2 * columns)
        part = bias[(bias["columns"] == columns) & (bias["cut"] == cut)]
        plots.curves_with_bands(
            part, "rows", "bias", "series", order=_SERIES, axis=axis, log_x=True
        )
        axis.axhline(0, color=INK, linewidth=0.8)
        axis.axhline(known_population(cut)[1], color=INK, linestyle=(0, (2, 3)))
        axis.set_ylim(-0.15, 0.55)
        axis.set_title(f"{cells:,} joint cells: of 1,000 rows {1000 / cells:,.1f} in each")
        return finish(axis, "rows", "bias (nats)", (), below=True)

    return plots.slider(
        turned,
        {"columns of each party": (1, 2), "bins of each column": _CUTS},
        "How far the estimated value of a supplier is off, against the number of rows, for a real "
        "supplier and for one that sells random numbers, by the plug-in and with chance taken "
        "off. Dashed: the true value of the real supplier. Means over samples from a known "
        "population, with 95% bands.",
        alt="Four curves of bias against rows. The two plug-in curves start far above zero and "
        "come down as rows grow, later with more bins and columns; the corrected ones stay near "
        "zero.",
        start={"columns of each party": 1, "bins of each column": 3},
    )


# ------------------------------------------------------------------------ the market

_PLAYED = ("random", "volume", "vf-ps", "fedvalue", "fedvalue-corrected")
_TABLES = {"ideal": "t5", "redundant": "t6", "free-riders": "t7"}


def market(draw: Repetition, scores: Mapping[str, Floats]) -> Picture:
    """Draw five sellers: what they offer and ask, and their places by three scores."""
    axis, sellers = plots.panels(height=3.6)[1][0, 0], np.arange(len(draw.volume))
    for i in sellers:
        look = {"color": PALETTE[0]}
        if draw.odd[i]:
            look = {"facecolor": "none", "edgecolor": PALETTE[1], "hatch": "///"}
        axis.bar(i, draw.volume[i], 0.6, **look)
    columns = [["", "asks, FIX", "asks, VAR", *(STRATEGIES[n] for n in _PLAYED[1:4])]]
    for i in sellers:
        asks = [f"{prices(draw.high, scheme)[i]}α" for scheme in ("fix", "var")]
        places = [f"{1 + (scores[n] > scores[n][i]).sum()}." for n in _PLAYED[1:4]]
        columns.append([f"seller {i}", *asks, *places])
    axis.set_xticks([-1, *sellers], ["\n".join(column) for column in columns])
    axis.tick_params(axis="x", length=0)
    axis.grid(False, axis="x")
    return finish(axis, "", "movies offered", ())


def _strategies(e: Evaluation, axis: Any, case: Case, measure: str, column: str, title: str) -> Any:
    """Draw a line per strategy, with the paper's number; return the frame of the case."""
    frame, (scheme, budget) = e.played(case), column.split(".")
    middle = f"s.{scheme}" if measure == "frsp" else f".{scheme}.{measure}"
    found, printed = {}, {}
    for name in _PLAYED:
        found[STRATEGIES[name]] = findings.cut(frame, measure, name, [column])
        claim = f"{_TABLES[case.scenario]}{middle}.b{budget}.{name}"
        printed[STRATEGIES[name]] = e.printed(claim)
    others = [STRATEGIES[name] for name in _PLAYED[:3]]
    plots.lines(axis, found, second=others, printed=printed)
    axis.set_title(title, fontsize=9, color=INK)
    if measure == "frsp":
        axis.set_xlim(-3, 62)
    return frame


def market_in_one_minute(e: Evaluation) -> Picture:
    """Draw shares of free-riders and AUC of one α under FIX."""
    picture, axes = plots.panels(1, 3, height=2.9, share_y=True)
    _strategies(e, axes[0, 0], RIDERS, "frsp", "fix.1", "paid free-riders (%)")
    _strategies(e, axes[0, 1], RIDERS, "auc", "fix.1", "AUC, one free-rider")
    _strategies(e, axes[0, 2], IDEAL, "auc", "fix.1", "AUC, all honest")
    return picture


def free_riders_paid(e: Evaluation) -> Picture:
    """Draw how many of the paid are free-riders, a panel per price list and budget."""
    picture, axes = plots.panels(2, 3, height=4.6, share_y=True)
    for axis, column in zip(axes.flat, COLUMNS, strict=True):
        frame = _strategies(e, axis, RIDERS, "frsp", column, _place(column))
        axis.axvline(findings.cut(frame, "frsp", "random", [column]).mean, **_DOTTED)
    return picture


def _place(column: str) -> str:
    scheme, budget = column.split(".")
    return f"{scheme.upper()}, {budget}α"


def free_riders_by_reading(e: Evaluation) -> Picture:
    """Draw what free-riders receive by reading of the paper."""
    found = findings.riders_by_reading(e)
    frames = {
        STRATEGIES[name]: pd.concat({"": found.xs(STRATEGIES[name], level=1)})
        for name in ("fedvalue", "fedvalue-corrected")
    }
    picture = plots.forests(frames, "paid to free-riders (%)", columns=1, level=None)
    picture.axes[0].axvline(20, **_DOTTED)
    return picture


def leads(e: Evaluation) -> Picture:
    """Draw FedValue's lead over the best benchmark of each column, all honest."""
    frame, found = e.played(IDEAL), {}
    for measure, column in product(("accuracy", "auc"), COLUMNS):
        best = max(_PLAYED[:3], key=lambda n: findings.cut(frame, measure, n, [column]).mean)
        words = {"auc": "AUC"}.get(measure, measure)
        label = f"{words}, {_place(column)}, against {STRATEGIES[best]}"
        found[label] = findings.lead(frame, "fedvalue", best, measure, [column])
    picture = _dots(found, "FedValue's lead over the best benchmark")
    picture.axes[0].axvline(0, **_DOTTED)
    return picture


def what_scores_follow(e: Evaluation) -> Picture:
    """Draw which scores follow the gain of a party, and which its cells."""
    found = findings.explanation(e)[1]
    lines = {
        f"{score}, with the {other}": found[score, other]
        for other in ("gain", "cells")
        for score in dict.fromkeys(score for score, _ in found)
    }
    return _dots(lines, "rank correlation")


# ------------------------------------------------------------------------ SHAP


def above_a_level(e: Evaluation) -> Picture:
    """Draw how many correlations are above 0.7, by value and by what the task party holds."""
    picture, axes = plots.panels(1, 2, height=2.8, share_y=True)
    readings = {"has columns": findings.JUDGED, "has the label only": findings.LABEL_ONLY}
    for axis, (title, name) in zip(axes[0], readings.items(), strict=True):
        frame, found = findings.reading(e, name), {}
        for key, words in findings.ESTIMATES.items():
            found[words.replace("control: ", "")] = findings.above(frame, key)
        plots.lines(axis, found, second=[*found][-2:])
        axis.set_title(f"task party {title}", fontsize=9, color=INK)
        axis.axvline(e.printed("correlations-above-70"), **_DOTTED)
        axis.set_xlim(-3, 100)
    return picture


def correlations(e: Evaluation) -> Picture:
    """Draw mean correlations as numbers on a map: data sets by models, a panel per features."""
    shown = findings.bars(findings.reading(e))
    picture, axes = plots.panels(1, 3, height=3.6, share_y=True)
    names = list(findings.BENCHMARK_LABELS)
    for axis, features in zip(axes[0], FEATURES, strict=True):
        part = shown[shown.features == features]
        table = part.pivot(index="dataset", columns="benchmark", values="mean")
        table = table.loc[list(dict.fromkeys(part.dataset)), names]
        axis.imshow(table, cmap=plots.HEAT, vmin=-0.2, vmax=1, aspect="auto")
        for (row, column), mean in np.ndenumerate(table.to_numpy()):
            look = {"fontsize": 8, "weight": "bold" if mean > 0.7 else "normal"}
            text = f"{mean:.2f}".replace("-", "−").replace("0.", ".")
            axis.text(column, row, text, ha="center", va="center", **look)
        axis.grid(False)
        axis.set_yticks(range(len(table)), [name.capitalize() for name in table.index])
        labels = [findings.BENCHMARK_LABELS[name] for name in names]
        axis.set_xticks(range(len(names)), labels, rotation=90)
        axis.set_title(f"{features} feature{'s' * (features > 1)} per party", fontsize=9, color=INK)
    return picture


def approximations(e: Evaluation) -> Picture:
    """Draw the errors of sampled permutations and of principal components."""
    sampling = findings.approximations(e, "sampling", "permutations")
    pca = findings.approximations(e, "pca", "components")
    picture, axes = plots.panels(1, 3, height=3.0)
    error: Any = {"y": "mape", "ylabel": "error, MAPE (%)", "within": (0, np.inf)}
    rank: Any = {"y": "rank", "ylabel": "rank correlation", "within": (-1, 1)}
    for axis, tidy, x, how in (
        (axes[0, 0], sampling, "permutations", error | {"log_x": True, "log_y": True}),
        (axes[0, 1], pca, "components", error),
        (axes[0, 2], pca, "components", rank),
    ):
        plots.curves_with_bands(tidy, x, hue="dataset", xlabel=x, axis=axis, **how)
    axes[0, 0].set_xticks([20, 200, 2000])
    return picture


# ------------------------------------------------------------------------ the protocol


def lies(e: Evaluation) -> Picture:
    """Draw how often lies pass as printed, and the best of all attacks when hardened."""
    told = {
        "as printed, it gives the size of an upload": ("upload size", {}),
        "the same, q from 2 to 40, four iterations": ("upload size", {"high": 40, "iterations": 4}),
        "as printed, it reads q off": ("gcd", {}),
        "as printed, it bets blindly, q is 2": ("best bet", {"high": 2}),
        "as printed, it bets blindly, q is 2 to 3": ("best bet", {"high": 3}),
        "as printed, it bets blindly, q is 2 to 5": ("best bet", {"high": 5}),
        "as printed, it bets blindly, q is 2 to 9": ("best bet", {}),
    }  # fmt: skip
    found = {
        label: findings.attacked(e, "printed", attack, **settings)
        for label, (attack, settings) in told.items()
    }
    printed = dict.fromkeys(found, 0.0)
    hardened = [findings.attacked(e, "hardened", attack) for attack in ATTACKS]
    found["hardened, the best of all attacks"] = max(hardened, key=lambda i: i.mean)
    return _dots(found, "counts falsified unnoticed (%)", printed=printed)


def attacks(e: Evaluation) -> Picture:
    """Draw all attacks on three protocols for whole tables."""
    titles = {"printed, whole table": "as printed", "hardened, token per cell": "token per cell",
              "hardened": "hardened"}  # fmt: skip
    picture, axes = plots.panels(1, 3, height=4.0, share_y=True)
    for axis, (protocol, title) in zip(axes[0], titles.items(), strict=True):
        plots.lines(axis, {attack: findings.attacked(e, protocol, attack) for attack in ATTACKS})
        axis.set_title(title, fontsize=9, color=INK)
        axis.set_xlim(-4, 104)
        finish(axis, "deceived (%)", "", ())
    return picture


def known_answers(e: Evaluation) -> Picture:
    """Draw the attacker's best case against the number of artificial IDs, and the bound."""
    picture, axes = plots.panels(1, 2, height=3.4)
    titles = {"label": "2 task cells", "cells": "25 task cells"}
    for axis, (data, title) in zip(axes[0], titles.items(), strict=True):
        table = findings.known_answers(e, data)
        x, mean = table.index.to_numpy(), table["deceived (%)"].to_numpy()
        handles = axis.plot(x, table["bound (%)"], color=PALETTE[1], label="bound")
        ends = np.abs(table[["low", "high"]].to_numpy().T - mean)
        look = {"fmt": "o", "capsize": 3, "label": "measured", "color": PALETTE[0]}
        handles.append(axis.errorbar(x, np.maximum(mean, 1e-9), ends, **look))
        axis.set_title(title)
        plots.logarithmic(axis.xaxis, "x")
        axis.set_yscale("log")
        axis.set_ylim(0.02, 150)
        finish(axis, "artificial IDs", "deceived (%)", handles)
    return picture


_DEFENCES = {
    ("none", 0): "nothing", ("joint", 2): "joint cells of 2", ("joint", 5): "joint cells of 5",
    ("task", 5): "task cells of 5", ("task", 20): "task cells of 20",
    ("decoys", 1): "1 decoy per cell", ("decoys", 10): "10 decoys per cell",
}  # fmt: skip


def leaks(e: Evaluation) -> Picture:
    """Draw what the task party knows for certain and guesses, and what a defence costs."""
    found = findings.leaks(e)
    picture, axes = plots.panels(1, 3, height=4.2, share_y=True)
    sides = {"certain": "certain (%)", "guessed": "best guess right (%)", "error": "error (%)"}
    for axis, (metric, xlabel) in zip(axes[0], sides.items(), strict=True):
        handles = []
        for j, name in enumerate(("wine", "breast", "credit")):
            first = int(metric == "error")  # what nothing costs
            cuts = [found[metric, name, *at] for at in [*_DEFENCES][first:]]
            rows = np.arange(first, len(_DEFENCES)) + 0.22 * (j - 1)
            low, high = [i.low for i in cuts], [i.high for i in cuts]
            dots = [":" if min(i.mean, 100 - i.mean) < 1e-9 else "-" for i in cuts]
            axis.hlines(rows, low, high, color=PALETTE[j], linewidth=1.6, linestyles=dots)
            look = {"color": PALETTE[j], "markersize": 5, "label": name.capitalize()}
            handles += axis.plot([i.mean for i in cuts], rows, plots.MARKERS[j], **look)
        axis.set_yticks(range(len(_DEFENCES)), _DEFENCES.values())
        axis.set_ylim(len(_DEFENCES) - 0.5, -0.5)
        finish(axis, xlabel, "", handles)
    return picture


def times(e: Evaluation, shown: Mapping[str, str]) -> Picture:
    """Draw the time of the protocol against some of its parameters, a panel each, two in a row.

    `shown`: what is varied, and what the axis is called.
    """
    frame, rows = e.frame("scaling"), -(-len(shown) // 2)
    picture, axes = plots.panels(rows, 2, height=0.4 + 3.0 * rows)
    names = {"hardened": "whole table, hardened", "printed": "cell by cell, printed"}
    seconds = frame[frame.metric == "core_seconds"].assign(name=frame.protocol.map(names))
    for axis, (varied, label) in zip(axes.flat, shown.items(), strict=True):
        part = seconds[seconds.varied == varied]
        plots.curves_with_bands(
            part, varied, "value", "name", xlabel=label, ylabel="seconds of one core", axis=axis,
            order=list(names.values()),
        )  # fmt: skip
        if varied == "rows":  # the one time that the paper prints
            plots.logarithmic(axis.xaxis, "x")
            axis.plot(1e6, 4 * 3600, "D", color=PALETTE[2], markersize=7)
            look = {"color": INK, "textcoords": "offset points"}
            axis.annotate("paper", (1e6, 4 * 3600), xytext=(-38, -4), **look)
        if varied in ("rows", "parties", "features"):
            plots.logarithmic(axis.yaxis, "y")
    return picture


def watched(codes: Any, **options: Any) -> list[Table]:
    """Return what an honest server answers to the queries of a count."""
    seen: list[Table] = []

    def honest(view: View) -> Table:
        seen.append(view.table)
        return view.table

    attempt(honest, codes, **options)
    return seen


def server_view(clear: Ints, tables: Mapping[str, Table]) -> Picture:
    """Draw the true table and, beside it, what the server holds under each protocol.

    Counts stand by token of the task party and of the first data party.
    """
    shown = {"the true table": clear}
    for name, table in tables.items():
        rows, columns = (np.unique(column, return_inverse=True)[1] for column in table.tokens.T[:2])
        shown[name] = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
        np.add.at(shown[name], (rows, columns), table.counts)
    picture, axes = plots.panels(1, len(shown), height=2.9)
    for axis, (name, counts) in zip(axes[0], shown.items(), strict=True):
        axis.imshow(counts, cmap=plots.HEAT, aspect="auto", interpolation="nearest")
        axis.grid(False)
        axis.set_title(name)
        few = counts.size <= 36
        for (i, j), n in np.ndenumerate(counts) if few else ():
            axis.text(j, i, str(n), ha="center", va="center", weight="bold")
        axis.set_xticks(range(counts.shape[1]) if few else [])
        axis.set_yticks(range(counts.shape[0]))
        cell = "cell" if name == "the true table" else "token"
        finish(axis, f"{cell} of the data party", f"{cell} of the task party", ())
    return picture
