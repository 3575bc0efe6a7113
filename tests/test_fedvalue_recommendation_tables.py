"""Tables of the federated recommendation, from records that are made up here."""

import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from fedkit.experiments import fedvalue_recommendation_tables as tables
from fedkit.experiments.fedvalue_recommendation import Setting
from fedkit.fedvalue.recommendation import Case, Trees


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
    assert row["mean difference"] == pytest.approx(0.1)
    p = ttest_1samp([0.1, 0.2, 0.0], 0.0).pvalue
    assert row["p (paired t)"] == pytest.approx(p)
    assert row["p (Holm)"] == pytest.approx(min(1.0, 6 * p))
    shown = tables.performance(frame_of(numbers), "auc")
    assert shown.loc["VF-PS", "FIX, 1α"] == "0.400 [0.400, 0.400]"
    assert "FedValue, thrifty" not in shown.index


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
