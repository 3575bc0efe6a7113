"""What the page on methods says holds in the records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedkit.arena import METHODS, sees
from fedkit.intervals import paired_interval
from reproduction.arena import findings, tables
from reproduction.arena.federations import SKEWED
from reproduction.arena.findings import (
    ALIKE_RIDERS,
    CONTROLS,
    LABELS,
    RETRAIN,
    SAMPLERS,
    SKEWED_RIDERS,
    TAKEN,
    TESTS,
    Evidence,
)  # fmt: skip
from reproduction.arena.measures import summary


@pytest.fixture(scope="module")
def e() -> Evidence:
    return Evidence("paper")


def test_every_row_has_a_name_and_the_tests_of_a_round_are_counted(e: Evidence) -> None:
    assert set(METHODS) | {"kernel-shap"} == set(LABELS) == set(e.measures.method)
    assert (e.measures.seed.nunique(), e.measures.dataset.nunique()) == (10, 2)
    for method, tests in TESTS.items():
        assert e.units("cost.evaluations").loc["labels", method] == 8 * tests(10)
    assert 2 * e.units("cost.trainings").loc["labels", "proxy-retrained"] == 60


def test_proxysampling_leads_the_samplers_at_one_budget(e: Evidence) -> None:
    """By so much that a correction for all methods leaves it."""
    spent = e.units("cost.evaluations").mean()
    same = [m for m in SAMPLERS if m not in ("random", "tmc", "gtg", "owen")]
    assert (spent[same] == spent["proxy"]).all()
    assert (spent[["gtg", "owen", "tmc"]] < spent["proxy"]).all()
    assert findings.ranked(e, "fidelity.rounds", SAMPLERS)[:2] == ["proxy", "complementary"]
    for other in ("complementary", "kernel-shap"):
        assert e.lead("fidelity.rounds", "proxy", other).low > 0
    assert e.chance("fidelity.rounds", "proxy", "complementary") * len(LABELS) < 0.05
    assert abs(e.lead("fidelity.rounds", "owen", "permutation").mean) < 0.03
    assert e.moved("proxy").high < e.moved("complementary").low < 15
    assert e.moved("exact-loss").low > e.moved("proxy").high


def test_retraining_is_met_by_sampling_it(e: Evidence) -> None:
    fidelity = "fidelity.retraining"
    assert e.lead(fidelity, "proxy-retrained", "exact-loss").low > 0
    assert e.mean(fidelity, "tmc-retrained").mean < e.mean(fidelity, "exact-loss").mean
    for other in ("proxy", "cgsv", "loo-loss"):
        gap = e.lead(fidelity, "exact-loss", other)
        assert gap.low < 0 < gap.high
    gap = e.lead(f"{fidelity}-loss", "proxy-retrained", "exact-loss")
    assert gap.low < 0 < gap.high
    assert e.lead(f"{fidelity}-loss", "exact-loss", "exact").low > 0
    assert e.chance(f"{fidelity}-loss", "exact-loss", "exact") < 0.01
    both = findings.other_seed(e)
    for method in both["value"]:  # nobody loses by another seed beyond doubt
        assert paired_interval(both["agreement"][method] - both["value"][method]).high > 0
    known = findings.known(e)
    assert (known["standard error"].drop("twenty") == 0).all()
    assert known.loc["mavericks", "accuracy and planted"] < -0.3


def test_who_finds_bad_clients_and_who_is_fooled(e: Evidence) -> None:
    kinds = e.units("detection")
    assert e.mean("detection", "loo-loss").mean > 0.9
    for other in ("exact-loss", "cgsv"):
        gap = e.lead("detection", other, "loo-loss")
        assert gap.low < 0 < gap.high
    assert kinds["fedtsv"].idxmin() == ALIKE_RIDERS
    assert kinds["shapfed"].idxmin() == "scaled-updates" == kinds["loo-loss"].idxmin()
    assert kinds[["fedtsv", "shapfed"]].min().max() < 0.2
    assert kinds["ms-mr"].max() < 0.7
    assert (kinds["fedtsv"] - kinds["loo-loss"]).drop([ALIKE_RIDERS, SKEWED_RIDERS]).min() > -0.01
    scaled = e.measures[(e.measures.measure == "detection") & (e.measures.method == "loo-loss")]
    scaled = scaled[scaled.scenario == "scaled-updates"].groupby("dataset").value
    assert scaled.min()["fashionmnist"] == 1 > scaled.mean()["mnist"]
    assert min(kinds.loc["scaled-updates", ["exact-loss", "proxy", "fedtsv"]]) > 0.95
    assert e.changed("rate", "loo-loss", "scaled-updates") < 0.5
    assert e.changed("rate", "exact-loss", "scaled-updates") > 0.95
    unvalidated = [m for m in LABELS if m in METHODS
                   and not {"validation", "training"} & {*sees(METHODS[m])}]  # fmt: skip
    assert kinds[unvalidated].mean().idxmax() == "cgsv"
    assert -0.1 < e.fedccea_gap().low < 0 < e.fedccea_gap().high < 0.1


def test_shapley_values_of_rounds_prefer_a_client_that_sends_nothing(e: Evidence) -> None:
    for method in ("exact", "exact-loss", "proxy"):
        assert e.inside("detection", method, SKEWED_RIDERS).high < 0.5
        assert e.changed("rate", method, SKEWED_RIDERS) < 0.5
    for method in ("loo-loss", "cgsv"):
        assert e.inside("detection", method, SKEWED_RIDERS).low > 0.6
    sizes = findings.sizes()
    again = findings.by_weights(sizes, SKEWED_RIDERS, "shapley")
    assert abs(again.mean - e.units("detection").loc[SKEWED_RIDERS, "exact-loss"]) < 0.02
    assert findings.by_weights(sizes, SKEWED_RIDERS, "not-first").low > 0.5 > again.high
    assert findings.by_weights(sizes, ALIKE_RIDERS, "shapley", (1,)).high < 0.5
    assert findings.by_weights(sizes, ALIKE_RIDERS, "loo", (1,)).low > 0.9


def test_thresholds_and_mavericks(e: Evidence) -> None:
    alarm, below = e.units("detection.alarm"), e.units("detection.below").mean()
    bad = e.units("detection.below").index
    assert below["loo-loss"] > 0.75
    assert below["cgsv"] < 0.03
    assert below["proxy-retrained"] > 0.4
    assert alarm.loc[[k for k in bad if k not in SKEWED], "loo-loss"].max() < 0.05
    assert alarm.loc[[k for k in bad if k in SKEWED], "loo-loss"].min() > 0.05
    assert alarm.drop(bad)["loo-loss"].min() > 0.15
    assert alarm["proxy-retrained"].max() < 0.05
    order = ["exact", "ms-mr", "loo-loss"]
    means = [e.mean("mavericks", m).mean for m in order]
    assert means == sorted(means)
    assert means[0] < 0.3
    assert means[-1] > 0.9
    assert max(e.mean("mavericks", m).mean for m in ("cgsv", "proxy-retrained")) < 0.1


def test_what_acting_on_values_is_worth(e: Evidence) -> None:
    weights, half = e.units("worth.weights"), e.units("worth.selection")
    against = summary(e.measures, "worth.weights", "uniform")
    assert not ((against["gain low"] > 0) & (against.p < 0.05)).any()
    assert e.inside("worth.weights", "exact-loss", "label-noise").low > 0
    for kind in ("labels", "mavericks"):
        assert e.inside("worth.weights", "exact-loss", kind).high < 0
    assert e.inside("worth.weights", "exact-loss", "skewed-wrong-labels").low < 0
    assert weights.loc["mavericks", "loo-loss"] < -20
    assert weights.loc["labels", "proxy"] < 0
    for kind in ("label-noise", "twenty"):
        assert e.inside("worth.selection", "exact-loss", kind).low > 0
    rest = half.drop(index=["label-noise", "twenty"], columns=[*CONTROLS])
    assert rest["exact-loss"].max() < 0
    assert (rest.mean() < 0).all()
    removal = e.units("worth.removal").mean().sort_values(ascending=False)
    assert list(removal.index[:2]) == ["loo-retrained", "loo-loss"]
    for measure in ("worth.removal", "worth.weights"):
        assert e.chance(measure, "banzhaf", "exact") > 0.05
        assert e.lead(measure, "banzhaf", "exact").mean > 0


def test_tricks(e: Evidence) -> None:
    copying, splitting = (
        {m for m in LABELS if e.mean(f"fairness.{trick}", m).low > 0}
        for trick in ("copying", "splitting")
    )
    assert len(copying) > len(LABELS) / 2 > len(splitting)
    assert {"exact", "exact-loss", "proxy", "cgsv", "shapfed", "size"} <= copying
    assert e.lead("fairness.copying", "cgsv", "uniform").low > 0
    assert e.mean("fairness.splitting", "loo-loss").high < 0
    assert e.units("fairness.splitting").mean().idxmax() == "fedtsv"
    for method in ("exact", "exact-loss", "proxy", "fedtsv"):
        assert e.bad_pay(method, "scaled-updates").high < 0.005
    assert e.bad_pay("shapfed", "scaled-updates").low > 1
    assert e.bad_pay("exact-loss", SKEWED_RIDERS).low > 1
    assert e.bad_pay("loo-loss", SKEWED_RIDERS).high < 0.1
    assert 0.5 < e.twins().mean() < 0.9


def test_what_valuing_costs_beside_a_round() -> None:
    for took in findings.costs().values():
        assert max(took["cgsv"], took["shapfed"], took["fedtsv"]) < took["fedavg"] / 4
        assert took["loo-loss"] < took["fedavg"] < 1.3 * took["proxy"]
        assert took["banzhaf"] > 0.8 * took["fedavg"]
    assert findings.costs()["10"]["exact-loss"] > 5 * findings.costs()["10"]["proxy"]


def test_numbers_and_tables_are_there(e: Evidence) -> None:
    found = findings.numbers(e)
    assert found["w-exact"] == "-1.8 [-4.3, +0.8]"
    assert found["w-skew-mean"] == "-8.7"
    assert {*TAKEN} & {*RETRAIN} == {"proxy-retrained"}
    page = replace(tables.PAGE, evaluation=lambda _: e)
    titles = [title for title, _, _ in page.every() if title]
    assert {"Fairness", "Stability", "Cost", "Weights", "What each measure says"} <= {*titles}
    assert "FedAvg, the round itself" in tables.beside_fedavg().text
    everybody = [tables.evidence, tables.planted, tables.kinds]
    assert all(table(e).text for table in everybody)
