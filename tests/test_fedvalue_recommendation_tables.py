"""Tables of the federated recommendation, from records that are made up here."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, ttest_1samp

from fedkit.claims.claim import load_claims
from fedkit.intervals import mean_interval
from fedkit.papers.fedvalue import recommendation_tables as tables
from fedkit.papers.fedvalue.recommendation import Setting
from fedkit.papers.fedvalue.recommendation_case import Case, Trees


def frame_of(numbers, settings=None):
    """Records of the default case, float[repetitions] by metric."""
    base = {**Setting("ml-1m", Case(), Trees()).to_dict(), **(settings or {})}
    return pd.DataFrame(
        [
            {**base, "seed": seed, "metric": metric, "value": value}
            for metric, values in numbers.items()
            for seed, value in enumerate(values)
        ]
    )


def test_rows_of_a_case_and_no_other():
    frame = pd.concat(
        [frame_of({"auc.none": [0.5]}), frame_of({"auc.none": [0.7]}, {"movies": 30}),
         frame_of({"auc.none": [0.9]}, {"trees_depth": 3, "trees_rate": 0.1})]
    )  # fmt: skip
    assert tables.rows(frame, Case()).value.tolist() == [0.5]
    assert tables.rows(frame, Case(movies=30)).value.tolist() == [0.7]
    assert tables.rows(frame, Case(), Trees(depth=3, rate=0.1)).value.tolist() == [0.9]
    assert tables.rows(frame, Case(movies=40)).empty


def test_strategies_are_compared_with_the_best_benchmark():
    numbers = {}
    for scheme, budget in tables.PLACES:
        place = f"auc.{scheme}.{budget}"
        numbers |= {
            f"{place}.random": [0.5, 0.6, 0.7], f"{place}.volume": [0.6, 0.7, 0.9],
            f"{place}.vf-ps": [0.4, 0.4, 0.4], f"{place}.fedvalue": [0.7, 0.9, 0.9],
        }  # fmt: skip
    table = tables.against_best(frame_of(numbers), measures=("auc",))
    assert len(table) == 6
    row = table.loc["auc, VAR, 2α"]
    assert row["best benchmark"] == "VOLUME"
    assert row["difference"].startswith("0.100 [")
    p = ttest_1samp([0.1, 0.2, 0.0], 0.0).pvalue
    assert row["p (paired t)"] == pytest.approx(p)
    assert row["p (Holm)"] == pytest.approx(min(1.0, 6 * p))
    shown = tables.performance(frame_of(numbers), "auc")
    assert shown.loc["VF-PS", "FIX, 1α"] == "0.400 [0.400,\N{NO-BREAK SPACE}0.400]"
    assert "FedValue, thrifty" not in shown.index


def test_shares_stay_between_0_and_100_and_none_of_20_is_not_never():
    none = tables.share_interval(np.zeros(20))
    assert (none.mean, none.low) == (0, 0)
    assert binomtest(0, 20).proportion_ci().high == pytest.approx(none.high / 100)
    every = tables.share_interval(np.full(20, 100.0))
    assert (every.low, every.high) == (pytest.approx(100 - none.high), 100)
    few = tables.share_interval(np.array([0.0] * 19 + [50.0]))  # the t-interval starts below 0
    assert few.low == 0
    assert few.high == pytest.approx(mean_interval(np.array([0.0] * 19 + [50.0])).high)
    same = tables.share_interval(np.full(20, 20.0))  # RANDOM: the same share in every repetition
    assert (same.low, same.high) == (20, 20)
    frame = frame_of({"frsp.fix.1.vf-ps": [0.0] * 20, "auc.fix.1.vf-ps": [0.0] * 20})
    shown = tables.performance(frame, "frsp").loc["VF-PS", "FIX, 1α"]
    assert shown == "0.0 [0.0,\N{NO-BREAK SPACE}16.8]"
    assert tables.performance(frame, "auc").loc["VF-PS", "FIX, 1α"].startswith("0.000 [0.000")


def test_levels_are_ours_less_the_printed_numbers():
    claims = load_claims("fedvalue")
    numbers = {
        f"auc.{scheme}.{budget}.{name}": [
            claims[f"fedvalue.t5.{scheme}.auc.b{budget}.{name}"].number + shift
        ]
        for scheme, budget in tables.PLACES
        for name, shift in (("random", 0.1), ("volume", 0.0), ("vf-ps", 0.0), ("fedvalue", -0.2))
    }
    mild = {"trees_depth": 3, "trees_rate": 0.1}
    table = tables.levels(frame_of(numbers, mild), claims)
    assert list(table.index) == [("Table 5", "depth 3, rate 0.1")]
    assert table.iloc[0].round(6).to_dict() == {
        "RANDOM": 0.1, "VOLUME": 0.0, "VF-PS": 0.0, "FedValue": -0.2,
    }  # fmt: skip


def test_readings_and_robustness_name_what_is_changed():
    names = ("random", "volume", "vf-ps", "fedvalue", "fedvalue-corrected")
    numbers = {f"auc.fix.2.{name}": [0.5] for name in names}
    frame = pd.concat(
        [frame_of(numbers), frame_of(numbers, {"high": 0.05}), frame_of(numbers, {"movies": 30}),
         frame_of(numbers, {"known": "all"}),
         frame_of(numbers, {"trees_depth": 3, "trees_rate": 0.1}),
         frame_of(numbers, {"scenario": "redundant", "redundancy": "copy"})]
    )  # fmt: skip
    assert list(tables.robustness(frame, "auc").index) == [
        "ideal", "ideal: 30 new movies", "ideal: high volume 5%",
    ]  # fmt: skip
    assert list(tables.readings(frame, "auc").index) == [
        "ideal", "redundant: they offer the demographics", "ideal: scores from everybody's labels",
        "ideal: milder trees",
    ]  # fmt: skip


def test_explanation_ranks_within_a_repetition():
    records = []
    for seed in (0, 1):
        parties = {"high": [0, 0, 1], "odd": [0, 1, 0], "gain": [0.1, -0.1, 0.3],
                   "cells": [3, 2, 1], "score.fedvalue": [2.0 + seed, 1.0, 0.5],
                   "score.volume": [1, 1, 9]}  # fmt: skip
        records += [
            {"seed": seed, "series": name, "index": i, "value": value}
            for name, values in parties.items()
            for i, value in enumerate(values)
        ]
    means, ranks = tables.explanation(pd.DataFrame(records))
    assert means.loc["odd", "gain"] == pytest.approx(-0.1)
    assert means.loc["low volume", "FedValue"] == pytest.approx(2.5)
    assert ranks.loc["FedValue", "rank correlation with cells"].startswith("1.00")
    assert ranks.loc["FedValue", "rank correlation with gain"].startswith("-0.50")
