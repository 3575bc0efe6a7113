"""FedValue's claims on tables: Table 8 as printed, and what the text says of its figures."""

import numpy as np
import pytest

from fedkit.claims.join import join
from fedkit.claims.judge import NOT_ATTEMPTED
from fedkit.datasets.tabular import TABLES
from fedkit.papers.claims import load_claims
from fedkit.records.cell import Cell
from fedkit.records.store import Store

FEDVALUE = load_claims("fedvalue")
# Sum of a row, and sum of place x number, of the numbers as a program read them from the text.
SUMS = {
    "wine": (4.789, 14.367), "parkinsons": (4.41, 13.168), "spect": (4.119, 12.346),
    "breast": (4.735, 14.201), "music": (3.11, 9.356), "credit": (4.029, 12.062),
}  # fmt: skip


@pytest.mark.parametrize("row", SUMS)
def test_rows_of_table_8_add_up(row):
    numbers = [float(n) for n in FEDVALUE.tables["t8"].rows[row]]
    weighted = sum(place * n for place, n in enumerate(numbers, start=1))
    assert (round(sum(numbers), 3), round(weighted, 3)) == SUMS[row]
    assert len(FEDVALUE.tables["t8"].spreads[row]) == 5


def test_table_8_covers_the_six_tables():
    claims = FEDVALUE.select("fedvalue.t8.")
    assert len(claims) == 30
    assert {c.ours["settings"]["dataset"] for c in claims} == set(TABLES)
    assert FEDVALUE["fedvalue.t8.nn.music"].paper_value == "0.613"
    assert FEDVALUE["fedvalue.t8.nn.music"].spread == "0.030"


def test_the_printed_shares_are_of_108_bars():
    above = [FEDVALUE[f"fedvalue.correlations-above-{level}"].number for level in (70, 80)]
    assert above == [round(100 * n / 108, 1) for n in (99, 71)]


def save(store, experiment, metrics, **settings):
    """Save a record with one metric per seed and value."""
    base = {
        "dataset": "wine", "features": 1, "inputs": "binned", "sample": 0.8,
        "task_has": "columns", "data_parties": 0, "trained_on": "all",
    }  # fmt: skip
    seeds = range(len(next(iter(metrics.values()))))
    results = [
        {"seed": i, "metrics": {m: v[i] for m, v in metrics.items()}, "series": {},
         "data": {"name": "x", "source": "made up", "checksum": "0"}}
        for i in seeds
    ]  # fmt: skip
    store.save(Cell("paper", "fedvalue", experiment, base | settings, tuple(seeds)), results)


def verdicts(store):
    return join(load_claims("fedvalue"), store).set_index("claim")


def test_shares_are_pooled_over_the_panels_of_one_reading(tmp_path):
    store = Store(tmp_path)
    for features, share in ((1, 100.0), (2, 83.3), (3, 91.8)):
        save(store, "correlation", {"above.70": [share] * 5}, features=features)
    save(store, "correlation", {"above.70": [0.0] * 5}, inputs="raw")  # another reading
    row = verdicts(store).loc["fedvalue.correlations-above-70"]
    assert row["mean"] == pytest.approx((100 + 83.3 + 91.8) / 3)
    assert row.verdict == "reproduced"


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ([0.5, 0.4, 0.6, 0.5, 0.4, 0.6], "reproduced"),
        ([0.9, -0.9, 0.8, -0.7, 0.9, -0.2], "inconclusive"),
    ],
)
def test_better_models_are_judged_over_data_sets(tmp_path, means, verdict):
    store = Store(tmp_path)
    for dataset, mean in zip(TABLES, means, strict=True):
        for features in (1, 2):  # many deals of a table do not make another table
            spread = [mean + 0.001 * i for i in range(-2, 3)]
            save(store, "correlation", {"better": spread}, dataset=dataset, features=features)
    row = verdicts(store).loc["fedvalue.better-models"]
    assert row["mean"] == pytest.approx(np.mean(means))
    assert row.verdict == verdict


@pytest.mark.parametrize(
    ("claim", "experiment", "good", "bad"),
    [
        ("ensemble-above-80.5", "correlation", {"above.80.ensemble5": 100.0},
         {"above.80.ensemble5": 50.0}),
        ("sampling.breast", "approximation", {"sampling.ratio": 0.3}, {"sampling.ratio": 0.7}),
        ("pca.music", "approximation", {"pca.mape.2": 60.0, "pca.mape.4": 20.0},
         {"pca.mape.2": 20.0, "pca.mape.4": 60.0}),
        ("better-models.parkinsons", "correlation",
         {"pearson.plugin.gbt": 0.9, "pearson.plugin.nn": 0.5},
         {"pearson.plugin.gbt": 0.5, "pearson.plugin.nn": 0.9}),
        ("t8.lr.wine", "models", {"accuracy.lr": 0.967}, {"accuracy.lr": 0.7}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("held", [True, False])
def test_claims_are_judged_by_their_rules(tmp_path, claim, experiment, good, bad, held):
    store = Store(tmp_path)
    dataset = claim.rpartition(".")[2]
    settings = {"dataset": dataset} if dataset in TABLES else {}
    numbers = good if held else bad
    # six seeds that vary a little: pairs of equal differences have no test
    metrics = {m: [v + 0.001 * i * (1 + j) for i in range(6)]
               for j, (m, v) in enumerate(numbers.items())}  # fmt: skip
    assert verdicts(store).loc[f"fedvalue.{claim}"].verdict == NOT_ATTEMPTED
    save(store, experiment, metrics, **settings)
    verdict = verdicts(store).loc[f"fedvalue.{claim}"].verdict
    assert verdict in ({"reproduced"} if held else {"not reproduced", "inconclusive"})
