"""FedTSV's claims: the paper's two numbers, and what its text says of its figures."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from fedkit.claims.join import join
from fedkit.papers.claims import load_claims
from fedkit.papers.fedtsv.cells import BASES, CHANGES
from fedkit.papers.fedtsv.settings import METHODS
from fedkit.papers.fedtsv.tables import lead, over_rounds, study, study_text, weights_table
from fedkit.papers.registry import get
from fedkit.records.store import Cell, Store

FEDTSV = load_claims("fedtsv")


def test_the_two_numbers_are_those_of_the_text():
    numbers = {c.id: c.number for c in FEDTSV.claims if c.kind == "value"}
    assert numbers == {"fedtsv.fedavg.mnist": 75.0, "fedtsv.fedavg.cifar10": 65.0}


def test_every_method_that_is_named_exists():
    for claim in FEDTSV.claims:
        for place in (claim.ours, claim.against or {}):
            method = place.get("settings", {}).get("method")
            assert method is None or method in METHODS


def test_every_record_of_the_figures_can_be_judged():
    for cell in get("fedtsv", "figures").cells("paper"):
        for name, value in FEDTSV.protocol.items():
            readings = value if isinstance(value, list) else [value]
            assert cell.settings[name] in readings, (cell.settings["dataset"], name)


def test_weights_tell_less_than_scores_and_ties_count_half():
    kinds, weights = [0, 0, 0, 1, 2, 2], [60.0, 40, 0, 0, 0, 0]
    rows = [
        {"method": "tsv", "seed": seed, "series": name, "index": i, "value": x}
        for seed in (0, 1)
        for name, values in (("kind", kinds), ("weight", weights), ("loss", [1.0]))
        for i, x in enumerate(values)
    ]
    row = weights_table(pd.DataFrame(rows)).loc["FedTSV (exact)"]
    assert row["iid above malicious"].startswith("0.83")  # (2 + 2 + 1/2 + 1/2) / 6
    assert row["skewed above malicious"].startswith("0.50")
    assert row["zero weight, iid (%)"].startswith("33")
    assert row["zero weight, malicious (%)"].startswith("100")


def test_curves_are_compared_by_seed_and_round():
    runs = {  # method, seed: round, accuracy, round of the loss, loss
        ("fedavg", 0): ([2, 4], [50.0, 60], [0, 3], [2.0, 1.0]),
        ("fedavg", 1): ([2, 4], [70.0, 90], [0, 3], [1.5, 0.5]),
        ("tsv", 0): ([2, 4], [51.0, 63], [0, 3], [2.0, 0.7]),
        ("tsv", 1): ([2, 5], [72.0, 91], [0, 3], [1.5, 0.25]),
    }
    names = ("round", "accuracy", "loss_round", "loss")
    rows = [
        {"method": m, "seed": seed, "series": name, "index": i, "value": float(x)}
        for (m, seed), columns in runs.items()
        for name, column in zip((*names, "weight"), (*columns, [1.0]), strict=True)
        for i, x in enumerate(column)
    ]
    plain = over_rounds(pd.DataFrame(rows), ["fedavg", "tsv"])
    assert len(plain) == 8
    assert plain.accuracy.sum() == 50 + 60 + 70 + 90 + 51 + 63 + 72 + 91
    ahead = over_rounds(pd.DataFrame(rows), ["fedavg", "tsv"], "fedavg")
    assert set(ahead.method) == {"FedTSV (exact)"}
    assert ahead.accuracy.tolist()[:3] == [1, 3, 2]
    assert np.isnan(ahead.accuracy.iloc[3])  # tested after another round
    assert ahead.loss.tolist() == pytest.approx([0, -0.3, 0, -0.25])


def test_a_lead_is_paired_by_seed():
    rows = [
        {"method": m, "seed": seed, "metric": "accuracy_late", "value": 90 + 5 * seed + gain}
        for m, gain in (("tsv", 0.0), ("cgsv", 0.5))
        for seed in range(3)
    ]
    cut = lead(pd.DataFrame(rows), "cgsv", "tsv")
    assert (cut.mean, cut.low, cut.high) == pytest.approx((0.5, 0.5, 0.5))


def save(store, method, values):
    settings = {
        "method": method, "dataset": "mnist", "data": "mnist", "clients": 100, "skewed": 10,
        "malicious": 20, "participants": 5, "batch_size": 64, "lr": 0.01, "gamma": 0.5,
        "scale": 1.0, "collusion": False, "even": False,
    }  # fmt: skip
    data = {"name": "mnist", "source": "made up", "checksum": "0"}
    results = [
        {"seed": i, "metrics": {"accuracy_late": x}, "series": {}, "data": data}
        for i, x in enumerate(values)
    ]
    store.save(Cell("paper", "fedtsv", "figures", settings, tuple(range(len(values)))), results)


@pytest.mark.parametrize(("gain", "verdict"), [(2.0, "reproduced"), (-2.0, "not reproduced")])
def test_a_direction_without_a_number_is_judged_by_pairs(tmp_path, gain, verdict):
    store = Store(tmp_path)
    base = [90.0, 91.0, 89.5, 90.4, 90.9, 90.2]
    save(store, "fedavg", base)
    save(store, "tsv", [x + gain + 0.02 * i for i, x in enumerate(base)])
    row = join(load_claims("fedtsv"), store).set_index("claim").loc["fedtsv.above-fedavg.tsv.mnist"]
    assert row["mean"] == pytest.approx(gain + 0.05)
    assert verdict in row.verdict
    assert ("not" in row.verdict) == (gain < 0)


def test_a_run_that_is_given_twice_counts_once():
    store = Store()
    frames = [store.frame("fedtsv", name, "paper") for name in ("study", "figures")]
    lines = [store.series("fedtsv", name, "paper") for name in ("study", "figures")]
    once, drawn = (pd.concat(f[f.dataset == "mnist"] for f in part) for part in (frames, lines))
    table = study(once, drawn)
    assert list(table.index) == list(CHANGES)
    twice = study(pd.concat([once, once]), pd.concat([drawn, drawn]))
    pd.testing.assert_frame_equal(study_text(twice), study_text(table))


def test_the_study_counts_clients_of_weight_zero():
    """By hand: two seeds of the runs of Figure 1, of which one lacks the second method."""
    place = {**asdict(BASES["paper"][0]), "dataset": "mnist"}
    metrics = [("tsv", 0, "accuracy_late", 90.0), ("tsv", 1, "accuracy_late", 92.0)]
    metrics += [("cgsv", 0, "accuracy_late", 95.0), ("tsv", 0, "auc.iid-malicious", 1.0)]
    frame = pd.DataFrame(
        [{**place, "method": m, "seed": s, "metric": k, "value": v} for m, s, k, v in metrics]
    )
    weights = {0: ([0, 0, 1, 2], [60.0, 0, 40, 0]), 1: ([0, 0, 1, 2], [0.0, 0, 0, 100])}
    series = pd.DataFrame(
        [
            {**place, "method": "tsv", "seed": s, "series": n, "index": i, "value": float(x)}
            for s, both in weights.items()
            for n, values in zip(("kind", "weight"), both, strict=True)
            for i, x in enumerate(values)
        ]
    )
    row = study(frame, series).loc["as in Figure 1"]
    assert row["seeds"] == 2
    assert row["IID of weight zero (%)"].mean == 75
    assert row["by weight, IID above malicious"].mean == pytest.approx((0.75 + 0) / 2)
    assert (row["CGSV"].n, row["LOO"].n) == (1, 0)
    words = study_text(study(frame, series)).loc["as in Figure 1"]
    assert (words["CGSV"], words["LOO"], words["seeds"]) == ("95.0", "–", "2")


def test_what_turns_on_the_lost_equation_is_judged_with_both():
    for name in ("positive", "separates-weights.iid-malicious"):
        head, _, pair = name.partition(".")
        other = FEDTSV[f"fedtsv.{head}-rational{'.' + pair if pair else ''}"]
        assert other.ours["settings"]["utility"] == "rational"
        assert other.test == FEDTSV[f"fedtsv.{name}"].test
