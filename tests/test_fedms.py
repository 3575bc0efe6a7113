from dataclasses import asdict, replace

import numpy as np
import pytest
from rounding import assert_close
from tinyrecords import records

import fedkit as fk
from fedkit.learning.evaluation import Evaluator
from reproduction.experiments import get
from reproduction.fedms import runs as paper
from reproduction.fedms.runs import scores_of_round
from reproduction.fedms.settings import PAPER_METHODS, READINGS, tuned
from reproduction.fedms.tables import readings, study, tuned_on_validation
from reproduction.records import Cell, Store

BASE = paper.Setting(
    "fedavg", "digits", "digits", "dir1", model="mlp-8", clients=8, participants=3, rounds=4,
    batch_size=8, validation=0.4, evaluate_every=2,
)  # fmt: skip


def test_hyper_parameters_are_those_of_section_5_1():
    even, dir1, last = (
        tuned(replace(BASE, dataset="mnist", scenario=x)) for x in ("dir10", "dir1", "dir0.1")
    )
    assert (even.alpha, even.poc_decay, dir1.emd_beta, last.last_tolerance) == (0.8, 1.0, 0.01, 0.2)


def test_cells_cover_the_papers_tables():
    cells = get("fedms", "table1").cells("paper", None)
    for local, owned in READINGS:
        places = {
            (c.settings["method"], c.settings["scenario"], c.settings["dataset"])
            for c in cells
            if (c.settings["local"], c.settings["owned"]) == (local, owned)
            and c.settings["method"] in PAPER_METHODS
        }
        assert len(places) == 42
    table2 = get("fedms", "table2").cells("paper", None)
    assert {c.settings["dataset"] for c in table2} == {"mnist"}


def test_scores_of_a_round_agree_with_each_other():
    seen = []
    s = replace(BASE, method="uniform-coreset", lr=0.5, rounds=1, clients=3, mavericks=1)
    f = paper.federation(s, 0)
    paper.simulate(s, [f], [0], probe=lambda r, v: seen.append(r) or {})
    r = seen[0]
    frequency = np.bincount(f.y_val.numpy(), minlength=f.n_classes) / len(f.y_val)
    scores = scores_of_round(r, 0.01, frequency)
    plain = Evaluator(r.architecture, f.x_val, f.y_val, "accuracy", device="cpu")
    exact = fk.shapley(fk.RoundGame(plain, r.base, r.updates, r.sizes)).values
    assert_close(scores["MR"], 100 * exact)
    assert set(scores) >= {"GTG", "MS-MR", "MS-GTG", "class mean", "cosine", "size"}
    assert all(v.shape == (3,) for v in scores.values())


def test_a_maverick_can_own_less_of_its_class():
    whole, tenth = (paper.federation(replace(BASE, owned=x), 2) for x in (1.0, 0.1))
    rare = paper.maverick_classes(whole, BASE)
    assert rare.sum() == 2
    assert (rare == paper.maverick_classes(tenth, BASE)).all()
    before, after = whole.label_counts, tenth.label_counts
    np.testing.assert_array_equal(before[:, ~rare], after[:, ~rare])
    np.testing.assert_allclose(
        after[:2, rare].sum(axis=1), 0.1 * before[:2, rare].sum(axis=1), atol=1
    )


def test_the_study_changes_one_thing_at_a_time():
    found = [c.settings for c in get("fedms", "study").cells("laptop", None)]
    plain = next(s for s in found if s["method"] == "fedms")
    assert max(len({k for k in s if s[k] != plain[k]} - {"method"}) for s in found) == 1
    points = [c.settings for c in get("fedms", "tuning").cells("laptop", None)]
    assert len({tuple(sorted(p.items())) for p in points}) == len(points) == 69
    rates = sorted({p["lr"] for p in points})
    assert rates[0] < 0.2 < rates[-1]  # where the records have their best
    temperatures = {p["temperature"] for p in points if p["method"] == "fedms"}
    assert min(temperatures) < BASE.temperature < max(temperatures)


def test_readings_are_judged_one_by_one(tmp_path):
    store = Store(tmp_path)
    for method, value, change in (
        ("fedavg", 79.0, {}),
        ("fedms", 92.9, {}),
        ("fedms", 50.0, {"local": "epochs", "owned": 1.0}),
    ):
        setting = paper.Setting(method, "mnist", "mnist", "dir10", adversaries=0)
        settings = asdict(setting) | {"local": "steps", "owned": 0.1} | change
        results = [
            {"seed": i, "metrics": {"accuracy": value + i / 10}, "series": {}} for i in range(4)
        ]
        store.save(Cell("paper", "fedms", "table1", settings, (0, 1, 2, 3)), results)
    table = readings(store)
    assert table["cells"].tolist() == [2, 1]
    assert table["FedMS first"].tolist() == ["–", "–"]  # not all seven rows
    assert table["mean distance"].iloc[0] == pytest.approx((0.02 + 0.09) / 2)
    assert table["within 3 points"].tolist() == [2, 0]
    assert table["on the 1 common cells"].tolist() == pytest.approx([0.09, 42.81])


def test_the_study_and_the_tuning_as_tables():
    common = {"shared": False, "poisoned": False, "estimator": "gtg", "temperature": 0.01}
    rows = [
        (
            {**common, "owned": 0.1, "mavericks": mavericks, "method": method},
            {"accuracy": [80 + more, 81 + more, 82 + more], "rate.maverick": [40.0] * 3},
        )
        for mavericks, gain in ((2, 3.0), (5, -1.0))
        for method, more in (("fedms", gain), ("uniform-coreset", 0.0))
    ]
    table = study(records(rows))
    assert table.index.tolist() == ["as in Table 1", "five Mavericks"]
    assert table["gain"].tolist() == pytest.approx([3.0, -1.0])

    common = {"method": "fedms", "mu": 1.0, "poc_decay": 0.9, "emd_beta": 0.01, "sv_alpha": 0.7}
    rows = [
        (
            {**common, "temperature": 0.01, "lr": lr, "alpha": alpha},
            {
                "accuracy": [100 * lr + alpha + 10 * (lr < 0.1)] * 3,
                "accuracy_validation": [100 * lr + alpha] * 3,
            },
        )
        for lr in (0.05, 0.2)
        for alpha in (0.6, 0.8)
    ]
    best = tuned_on_validation(records(rows)).iloc[0]
    assert best["chosen"] == "lr 0.2, alpha 0.8"  # not the one that tests best
    assert (best["points"], best["inside"], best["seeds"]) == (4, False, 3)
    assert best["mean"] == pytest.approx(20.8)
    begun = records([line for line in rows if (line[0]["lr"], line[0]["alpha"]) == (0.2, 0.6)])
    assert tuned_on_validation(begun).iloc[0]["chosen"] == "lr 0.2"
