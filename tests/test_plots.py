"""The figures: what is drawn is what was given, on any page, with no global state."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import re
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib.colors import same_color, to_rgb
from PIL import Image
from refusals import refusals, refused
from scipy import stats

from reproduction import figures as plots


@pytest.fixture
def tidy() -> pd.DataFrame:
    rows = [
        (name, budget, seed, scale * (1 + seed) / budget)
        for name, scale in (("plain", 1.0), ("paired", 0.5))
        for budget in (16, 64, 256)
        for seed in range(4)
    ]
    return pd.DataFrame(rows, columns=["estimator", "evaluations", "seed", "error"])


def legend_of(picture: plots.Picture) -> list[str]:
    return [text.get_text() for legend in picture.legends for text in legend.get_texts()]


def every_picture(tidy: pd.DataFrame) -> dict[str, plots.Picture]:
    table = pd.DataFrame(
        {"mean": [1.0, 3.0], "low": [0.5, 2.0], "high": [1.5, 4.0], "paper": [1.2, np.nan]},
        ["a", "b"],
    )
    values = {"Shapley": [0.3, 0.5], "Banzhaf": [0.2, 0.6]}
    return {
        "error": plots.error_against_evaluations(tidy, exact=1024),
        "curves": plots.curves_with_bands(tidy, "evaluations", "error", "estimator"),
        "dots": plots.dots_with_intervals(table, xlabel="accuracy (%)"),
        "circles": plots.circles_of_clients({"a": [[3, 0], [0, 2]], "b": [[1, 1], [9, 0]]}, 1),
        "bars": plots.bars_with_errors(values, {"Shapley": [0.01, np.nan]}, names=["A", "B"]),
        "scatter": plots.scatter_estimates([1.0, 2.0], {"x": [1.1, 1.8]}),
    }


def test_every_axis_is_labelled_and_every_background_transparent(tidy: pd.DataFrame) -> None:
    for name, picture in every_picture(tidy).items():
        axis = picture.axes[0]
        assert axis.get_xlabel(), name
        assert axis.get_ylabel() or name == "dots", name  # its rows are labelled instead
        image = np.asarray(Image.open(io.BytesIO(picture.png(50))).convert("RGBA"))
        assert image[0, 0, 3] == 0, name
        assert np.mean(image[..., 3] == 0) > 0.15, name


def test_text_is_legible_on_white_and_on_dark(tidy: pd.DataFrame) -> None:
    def luminance(colour: str) -> float:
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(one), luminance(other)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    assert min(contrast(plots.INK, page) for page in ("white", "#121212")) > 4
    for colour in plots.PALETTE:
        assert contrast(colour, "white") > 2, colour
        assert contrast(colour, "#121212") > 3, colour
    for picture in every_picture(tidy).values():
        for axis in picture.axes:
            texts = [axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels()]
            assert {text.get_color() for text in texts if text.get_text()} <= {plots.INK}
        for legend in picture.legends:
            assert all(same_color(text.get_color(), plots.INK) for text in legend.get_texts())


def test_series_differ_by_marker_and_by_dash_not_by_colour_alone() -> None:
    names = [f"method {i}" for i in range(11)]
    table = pd.DataFrame({"x": 1.0, "y": 1.0, "m": names})
    lines = plots.curves_with_bands(table, "x", "y", "m").axes[0].get_lines()
    assert len({line.get_marker() for line in lines}) == 11
    looks = {(line.get_color(), str(line._dash_pattern)) for line in lines}
    assert len(looks) == 11


def test_band_is_students_interval_of_the_seeds(tidy: pd.DataFrame) -> None:
    sample = tidy.query("estimator == 'plain' and evaluations == 64").error
    low, high = stats.t.interval(0.95, 3, sample.mean(), stats.sem(sample))
    axis = plots.curves_with_bands(tidy, "evaluations", "error", "estimator").axes[0]
    band = axis.collections[0].get_paths()[0].vertices
    at = band[band[:, 0] == 64][:, 1]
    assert np.isclose(at.min(), low)
    assert np.isclose(at.max(), high)
    assert np.isclose(axis.get_lines()[0].get_ydata()[1], sample.mean())
    alone = plots.error_against_evaluations(tidy[tidy.seed == 0]).axes[0]
    assert not alone.collections[0].get_paths()


NAMES = ("evaluations", "error", "estimator")


def test_a_band_stays_within_what_the_quantity_can_be(tidy: pd.DataFrame) -> None:
    def ends(within: tuple[float, float]) -> list[float]:
        picture = plots.curves_with_bands(tidy, *NAMES, within=within)
        bands = [c.get_paths()[0].vertices[:, 1] for c in picture.axes[0].collections]
        return [np.min(np.concatenate(bands)), np.max(np.concatenate(bands))]

    low, high = ends((-np.inf, np.inf))
    assert low < 0.01 < 0.2 < high
    assert ends((0.01, 0.2)) == [0.01, 0.2]


def test_look_of_a_method_is_fixed_by_order(tidy: pd.DataFrame) -> None:
    picture = plots.curves_with_bands(tidy, *NAMES, order=["absent", "paired", "plain"])
    assert legend_of(picture) == ["paired", "plain"]
    assert picture.axes[0].get_lines()[0].get_color() == plots.PALETTE[1]
    refused("misses", plots.curves_with_bands, tidy, *NAMES, order=["plain"])


def test_zero_error_has_no_place_on_a_log_axis_and_nothing_breaks(tidy: pd.DataFrame) -> None:
    tidy.loc[tidy.evaluations == 256, "error"] = 0.0
    picture = plots.error_against_evaluations(tidy, exact=1024)
    assert list(picture.axes[0].get_lines()[0].get_xdata()) == [16, 64]
    assert any("1,024" in text.get_text() for text in picture.axes[0].texts)


def test_paper_is_hollow_beside_our_interval() -> None:
    table = pd.DataFrame({"mean": [1.0, 3.0], "low": [0.5, 2], "high": [2, 4]}, ["a", "b"])
    axis = plots.dots_with_intervals(table.assign(paper=[1.2, np.nan]), xlabel="x (%)").axes[0]
    paper = next(line for line in axis.get_lines() if line.get_label() == "paper")
    assert paper.get_markerfacecolor() == "none"
    assert paper.get_xdata()[0] == 1.2
    ends = np.array([path.vertices[:, 0] for path in axis.collections[0].get_paths()])
    assert np.allclose(ends, [[0.5, 2], [2, 4]])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b"]
    assert axis.yaxis_inverted()


def test_bars_have_the_given_height_and_error_bars_only_where_there_is_an_error() -> None:
    picture = plots.bars_with_errors([0.3, 0.5, -0.1], [0.2 / 1.96, np.nan, 0.0])
    axis = picture.axes[0]
    assert [bar.get_height() for bar in axis.patches] == [0.3, 0.5, -0.1]
    (bars,) = [c for c in axis.collections if len(c.get_paths())]
    assert np.allclose(bars.get_paths()[0].vertices[:, 1], [0.1, 0.5])
    assert len(bars.get_paths()) == 1


def test_circles_are_where_clients_hold_examples_three_panels_in_a_row() -> None:
    tables = {name: [[3, 0, 1], [0, 2, 9]] for name in "abcd"}
    picture = plots.circles_of_clients(tables)
    assert len(picture.axes) == 4  # the rest of the second row is empty
    others, special = picture.axes[3].collections
    assert others.get_offsets().tolist() == [[0, 0], [0, 2], [1, 1], [1, 2]]
    assert others.get_sizes().max() == 9 * others.get_sizes()[1]
    assert not len(special.get_offsets())
    assert not picture.legends
    assert [axis.get_xlabel() for axis in picture.axes[:4]] == ["", "client", "client", "client"]
    assert legend_of(plots.circles_of_clients(tables, 1)) == ["others", "special"]


def test_panels_share_one_legend() -> None:
    picture, axes = plots.panels(1, 2)
    for axis, names in zip(axes[0], (["a", "b"], ["b", "c"]), strict=True):
        table = pd.DataFrame({"x": [0, 0], "y": [1, 2], "m": names})
        assert plots.curves_with_bands(table, "x", "y", "m", axis=axis) is picture
    assert len(picture.legends) == 1
    assert legend_of(picture) == ["a", "b", "c"]


def test_no_pyplot_and_no_settings_are_touched(tidy: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    every_picture(tidy)
    assert dict(mpl.rcParams) == before
    code = "import sys, reproduction.figures as p; p.bars_with_errors([1]).png(); "
    code += "sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_table_says_what_it_shows_and_no_number_is_nothing() -> None:
    frame = pd.DataFrame(
        {"n": [1, 2], "x": [2.0**-32, np.nan], "y": [-0.5, 1.91e11], "who": ["a<b", None]}
    )
    html = plots.table(frame, "What `x` is.", decimals=1).html
    assert "<caption>What <code>x</code> is.</caption>" in html
    cells = re.findall(r"<td>(.*?)</td>", html)
    first, second = ["1", "2.3·10<sup>−10</sup>", "−0.5", "a&lt;b"], ["1.9·10<sup>11</sup>", "–"]
    assert cells == [*first, "2", "–", *second]
    odd = pd.DataFrame({"x": [-3, -0.0, -0.0123, "-1.5 [-2.0, 0.5] *"]}).rename_axis("id")
    html = plots.table(odd, "What.", decimals=1).html
    cells = ["−3", "0.0", "−0.012", "−1.5 [−2.0,\u00a00.5]\u00a0*"]  # no hyphens, no breaks
    assert re.findall(r"<td>(.*?)</td>", html) == cells
    assert re.findall(r"<th>(.*?)</th>", html)[:3] == ["id", "x", "0"]
    text = plots.table("| who | gain |\n|---|---|\n| A | **1.2** \\* |", "Gains.").html
    assert re.findall(r"<t[hd]>(.*?)</t[hd]>", text) == ["", "gain", "A", "1.2 *"]


def test_what_is_missing_is_a_dash_whatever_its_type_and_a_series_may_be_empty() -> None:
    for kind in ("string", "boolean", "Int64"):
        frame = pd.DataFrame({"a": pd.array([None, None], dtype=kind)})
        assert re.findall(r"<td>(.*?)</td>", plots.table(frame, "c").html) == ["–", "–"]
    empty = TWO.assign(mean=NAN, low=NAN, high=NAN)
    assert isinstance(plots.forests({"x": TWO, "y": empty}, "v"), plots.Picture)


def test_a_table_of_cards_tells_each_cell_its_column() -> None:
    frame = pd.DataFrame({'take "it"': ["a", "b"], "cost": [1, 2]}, index=["here", "there"])
    page = BeautifulSoup(plots.table(frame, "What.", cards=True).html, "html.parser")
    assert "fedkit-cards" in page.table["class"]
    assert [td["data-label"] for td in page.find_all("td")] == ['take "it"', "cost"] * 2
    assert "data-label" not in plots.table(frame, "What.").html
    long = frame.rename({"here": "a row with a long name"})
    assert ["fedkit-named" in plots.table(x, "What.").html for x in (frame, long)] == [False, True]


def test_sliders_hold_a_picture_for_every_position_and_show_the_first_without_script() -> None:
    drawn = []

    def draw(a, b):
        drawn.append((a, b))
        picture, axes = plots.panels(height=1.0)
        axes[0, 0].plot([0, a], [0, b])
        return picture

    shown = plots.slider(draw, {"a < 1": [0.1, 0.2], "b": [1, 2, 3]}, "Turn & see.", start={"b": 2})
    assert drawn == [(a, b) for a in (0.1, 0.2) for b in (1, 2, 3)]
    bundle = shown._repr_mimebundle_()
    page = BeautifulSoup(bundle["text/html"], "html.parser")
    data = json.loads(page.find("script", type="application/json").string)
    assert data["values"] == [["0.1", "0.2"], ["1", "2", "3"]]
    assert base64.b64decode(data["pictures"][0]) == draw(0.1, 1).png(100)  # the same bytes again
    assert len(set(data["pictures"])) == 6
    # position (0, 2) is the third picture, and the one that is there without script and kernel
    assert page.img["src"].endswith(data["pictures"][2])
    assert bundle["image/png"] == data["pictures"][2]
    assert [i["value"] for i in page.find_all("input")] == ["0", "2"]
    assert page.img["alt"] == page.figcaption.string == "Turn & see."
    assert page.find("div", class_="fedkit-ranges").has_attr("hidden")
    assert not re.search(r"https?:", bundle["text/html"])


NAN = math.nan
TIDY = pd.DataFrame({"x": [1, 2], "y": [1.0, 2.0], "m": ["a", "b"]})
ROW = pd.DataFrame({"label": ["a"], "mean": [1.0], "low": [0.5], "high": [2.0]})
TWO = ROW.assign(setting="s").set_index(["setting", "label"])


def curves(frame: object, **options: object) -> plots.Picture:
    return plots.curves_with_bands(frame, "x", "y", "m", **options)


test_what_cannot_be_drawn_is_told = refusals(
    (lambda: plots.bars_with_errors({}), "values hold no number"),
    (lambda: plots.bars_with_errors([NAN, NAN]), "values hold no number"),
    (lambda: plots.bars_with_errors(["a"]), "values of '' is"),
    (lambda: plots.bars_with_errors(3), "values of '' have shape"),
    (lambda: plots.bars_with_errors([1, 2], [1]), "values or errors of '' have shape"),
    (lambda: plots.bars_with_errors([1, 2], [-1, 1]), "of at least 0"),
    (lambda: plots.bars_with_errors({"a": [1]}, {"b": [1]}), "values or errors of 'b'"),
    (lambda: plots.bars_with_errors([1, 2], names=3), "names are 3 for 2"),
    (lambda: plots.bars_with_errors({"a": [1, 2], "b": [1]}), "values or errors of 'b'"),
    (lambda: plots.bars_with_errors([1, 2], names=["A"]), r"names are \['A'\] for 2"),
    (lambda: plots.panels(0, 1), "rows is 0"),
    (lambda: plots.panels(height=0), "height is 0"),
)


def test_a_panel_beside_others_may_be_empty() -> None:
    picture, axes = plots.panels(1, 2)
    assert curves(TIDY, axis=axes[0, 0]) is curves(TIDY[:0], axis=axes[0, 1]) is picture


@pytest.mark.parametrize("n", [3, 40, 200])
@pytest.mark.parametrize("named", [False, True])
def test_names_of_many_clients_do_not_touch(n: int, named: bool) -> None:
    names = [f"hospital {i}" for i in range(n)] if named else [str(i) for i in range(n)]
    picture = plots.bars_with_errors(np.arange(n), names=names if named else None)
    picture.draw_without_rendering()
    labels = picture.axes[0].get_xticklabels()
    assert len(labels) >= min(n, 10)
    boxes = [label.get_window_extent() for label in labels]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    assert min(box.y0 for box in boxes) > 0
    for label in labels:  # a name stands below its own bar
        assert label.get_text() == names[round(label.get_position()[0])]
    assert len(picture.axes[0].patches) == n


def test_nobody_who_holds_anything_is_a_picture_without_circles() -> None:
    (axis,) = plots.circles_of_clients({"a": [[0, 0]]}).axes
    assert all(len(dots.get_offsets()) == 0 for dots in axis.collections)


def test_heads_of_a_table_are_text_as_its_cells_are() -> None:
    frame = pd.DataFrame({"v < w": [1], "a": [2]}, index=["<b>"]).rename_axis("i & j")
    html = plots.table(frame, "What.").html
    assert "<th>v &lt; w</th>" in html
    assert "<th>&lt;b&gt;</th>" in html
    assert "i &amp; j" in html


def test_a_finder_is_a_table_without_script_and_escapes_what_it_shows() -> None:
    frame = pd.DataFrame({"paper": ["a", "b"], "claim": ["x < 1", "y"], "ours": ["1.5", "–"]})
    more = {"keys": {"ours": [1.5, math.nan]}, "fold": {"claim": ["rule: `r`\nnote", "none"]}}
    shown, again = (plots.finder(frame, "All & every.", ["paper"], **more) for _ in range(2))
    html = shown.html
    assert "<caption>All &amp; every.</caption>" in html
    assert "<summary>x &lt; 1</summary>rule: <code>r</code><br>note</details>" in html
    assert html.count("<select") == 1
    assert "name='paper' data-column='0'" in html
    assert "<td data-key='1.5'>1.5</td>" in html
    assert "<td>–</td>" in html
    assert html == again.html
    assert len(re.findall(r"</script>", html)) == 1
    assert "x < 1" in repr(shown)


def test_names_with_dollars_are_no_mathematics(tmp_path):
    names = [rf"$\foo {k}$ of a long name" for k in range(12)]
    picture = plots.bars_with_errors({"value": np.arange(12.0)}, names=names)
    picture.savefig(tmp_path / "bars.png")
    assert len(picture.axes[0].get_xticklabels()) == 12
