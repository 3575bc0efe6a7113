"""The arena: planted truths are what they say, rows are counted and guarded, measures are right."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused

pytest.importorskip("sklearn")

import fedkit as fk
from fedkit.arena import (
    METHODS,
    View,
    World,
    accuracy_and_loss,
    agreement,
    find_methods,
    play,
    sees,
)
from fedkit.federated.adversaries import (
    FreeRider,
    RandomUpdate,
    ScaledUpdate,
)
from fedkit.federated.policies import NoValue, SizeWeighted
from fedkit.federated.retraining import train_with_sizes
from fedkit.streams import Streams
from reproduction import arena
from reproduction.arena import experiments, measures, rows
from reproduction.arena.federations import SCENARIOS, TRICKS, Scenario, plant
from reproduction.arena.measures import measure, measure_all, summary
from reproduction.records import Cell, Store

SMALL = replace(
    experiments._DIGITS, clients=5, participants=5, rounds=3, samples=20, validation=120, seen=120,
    test=60, model="mlp-8",
)  # fmt: skip


def world(s: Scenario, seed: int) -> World:
    return plant(s, seed).world


def small(name: str, **changes) -> Scenario:
    return replace(SMALL, scenario=name, **changes)


# ------------------------------------------------------------------------- planted truths


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_planted_federation_is_what_it_says(name) -> None:
    p, again = (plant.__wrapped__(small(name), 3) for _ in range(2))
    n = p.world.federation.n_clients
    assert n == 5 + (name in TRICKS)
    assert sorted(p.role) == list(range(n))
    assert 0 <= p.quality.min() <= p.quality.max() <= 1
    assert len(p.world.federation.y_val) == 120
    np.testing.assert_array_equal(p.role, again.role)
    for i in range(n):
        mine, other = (f.world.federation.client_data(i) for f in (p, again))
        assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    assert {tuple(plant(small(name), s).role) for s in range(6)} != {tuple(p.role)}


# ------------------------------------------------------------------- retraining with more


def test_weights_and_tampering_of_retraining_are_those_of_the_round_loop() -> None:
    """Full batches, so that the order of the samples does not matter."""
    f = fk.make_federation(fk.load("digits"), 4, fk.Dirichlet(1.0), 0, validation=0.1)
    f = replace(f, clients=tuple(c[: 20 + 10 * i] for i, c in enumerate(f.clients)))
    arch, local = fk.build("mlp-8", f.input_shape, 10), fk.LocalSGD(lr=0.3, batch_size=50)
    cast = f.with_adversaries({0: RandomUpdate(), 1: ScaledUpdate(3.0), 2: FreeRider()})
    sizes = np.broadcast_to(f.sizes, (1, 2, 4))
    plan = fk.Plan(2, 4, local)

    def looped(f, aggregate):
        strategy = fk.Strategy(fk.UniformSelection(), NoValue(), aggregate)
        run = fk.run([f], arch, strategy, plan, [5], device="cpu")
        return run.final_accuracy()[5]

    def trained(f, sizes, **options):
        return train_with_sizes(f, arch, local, sizes, seed=5, device="cpu", **options)

    count, w = 1.01 / len(f.y_test), np.array([[0.1, 0.0, 0.6, 0.3]])
    tampered, weighted = looped(cast, SizeWeighted()), looped(f, lambda r, *_: r.average(w[0]))
    assert trained(cast, sizes)[0, -1] == pytest.approx(tampered, abs=count)
    assert trained(f, sizes, weights=w)[0, -1] == pytest.approx(weighted, abs=count)
    reached = trained(cast, sizes, utility=accuracy_and_loss)[0, -1]
    assert reached[0] == pytest.approx(tampered, abs=count)
    assert reached[1] < 0
    refused("of at least 0", trained, f, sizes, weights=-w)


# ----------------------------------------------------------------------------------- rows


@pytest.fixture(scope="module")
def noisy():
    return world(small("label-noise"), 0)


def test_a_series_of_values_is_by_client_in_whatever_order(noisy) -> None:
    def said_so(given):
        return play(method("Own", lambda view: given)(), noisy).values

    given = pd.Series([3.0, 1.0, 5.0, 2.0, 4.0])
    for order in (given, given.sort_values()):
        assert said_so(order).tolist() == given.tolist()
    for wrong, words in ((given[:4], "expected 5 finite"), (given * 1j, "an array of numbers")):
        refused(words, said_so, wrong)


@pytest.mark.parametrize("name", METHODS)
def test_every_row_values_clients_and_declares_what_it_asks_for(name, noisy) -> None:
    method = METHODS[name]
    found = play(method, noisy)
    assert found.values.shape == (5,)
    np.testing.assert_array_equal(found.values, play(method, noisy).values)
    assert "validation" in method.sees or not found.evaluations
    # fedtsv trains on the server's images
    assert "training" in method.sees or name == "fedtsv" or not found.trainings


def test_what_is_spent_is_counted(noisy) -> None:
    assert play(METHODS["exact"], noisy).evaluations == 3 * 2**5
    assert play(METHODS["loo"], noisy).evaluations == 3 * 6
    retrained = play(METHODS["loo-retrained"], noisy)
    assert retrained.trainings == pytest.approx(5.0)  # everybody, and 5 times all but one
    assert play(METHODS["size"], noisy).held == 0
    view = View(noisy)
    for _ in range(2):  # the same coalition again costs nothing
        view.rounds()[1].game()(np.ones((2, 5), dtype=bool))
    assert view.evaluations == 1
    view.rounds()[1].evaluator.utilities(noisy.rounds[1].base[None])
    assert view.evaluations == 2
    p = noisy.rounds[0].updates.nbytes / 2**20
    assert play(METHODS["cgsv"], noisy).held == pytest.approx(p)


def test_the_exact_row_is_the_exact_value(noisy) -> None:
    mean = sum(fk.shapley(r.game()).values for r in noisy.rounds) / 3
    found = play(METHODS["exact"], noisy)
    np.testing.assert_allclose(found.values, mean, atol=1.01 / 120)
    assert found.fidelity == 1
    assert play(METHODS["exact-loss"], noisy).fidelity == 1  # by its own utility
    assert np.isnan(play(METHODS["loo-retrained"], noisy).fidelity)
    assert play(METHODS["uniform"], noisy).fidelity == 0
    minus = method("Minus", lambda view: -METHODS["exact"].values(view), ("validation",))
    backwards = play(minus(), noisy)
    assert np.isnan(backwards.fidelity)  # what it says is not what it averaged


def test_values_are_means_per_participation_and_the_unasked_have_none() -> None:
    w = world(small("twenty", clients=8, participants=2, rounds=3), 0)
    view = View(w)
    sums = np.zeros(8)  # of how often each was drawn
    for r in w.rounds:
        sums[r.participants] += r.index + 10 * r.participants
    seen = view.times > 0
    assert len(set(view.times[seen])) > 1
    averaged = view.mean([r.index + 10 * r.participants for r in w.rounds])
    np.testing.assert_allclose(averaged[seen], sums[seen] / view.times[seen])
    found = play(METHODS["uniform"], w).values
    assert np.isnan(found[~seen]).all()
    assert (~seen).any()
    assert all(np.isfinite(x) for x in rows.worth(w, found).values())


def test_variants_have_streams_of_their_own_that_tell_no_roles() -> None:
    s = small("sizes")
    one, other = (View(world(x, 0)) for x in (s, replace(s, lr=s.lr / 2)))
    assert one.streams.seed != other.streams.seed
    assert one.streams == View(world(s, 0)).streams
    assert one.rounds()[0].streams.seed not in (0, other.streams.seed)
    told = Streams(one.streams.seed).generator("arena", "roles").permutation(5)
    assert told.tolist() != plant(s, 0).role.tolist()


def test_models_are_not_priced_beside_the_time_they_took(noisy, monkeypatch) -> None:
    def evaluates(view):
        for r in view.rounds():
            r.evaluator.utilities(r.base[None])
        return np.zeros(view.n_clients)

    _ = noisy.seconds_per_evaluation
    monkeypatch.setattr(type(noisy), "seconds_per_evaluation", 1e6)
    found = play(method("Models", evaluates, ("updates", "validation"))(), noisy)
    assert found.evaluations == 3
    assert found.seconds < 1e6


def test_the_worth_of_values_is_that_of_training_so() -> None:
    w = world(small("label-noise"), 0)
    value = np.array([4.0, -1.0, 3.0, 1.0, 0.5])  # of clients 0 to 4
    found = rows.worth(w, value)
    judge = replace(w, seed=rows.APART)  # another first model on the same data
    kept = {
        "selection": [1, 0, 1, 1, 0],
        "without_worst": [1, 0, 1, 1, 1],
        "without_best": [0, 1, 1, 1, 1],
        "everybody": [1, 1, 1, 1, 1],
    }
    alone = 100 * judge.value(np.array(list(kept.values()), dtype=bool))[:, 0]
    assert [found[f"accuracy.{name}"] for name in kept] == pytest.approx(alone, abs=101 / 60)
    sizes, weights = w.federation.sizes[None], np.maximum(value, 0)[None]
    mine = 100 * judge.train(sizes, weights=weights)[0, 0, 0]
    assert found["accuracy.weights"] == pytest.approx(mine, abs=101 / 60)


def method(name, values, sees=()):
    """A class of this name, whose values are a function of what it is shown."""
    return type(name, (), {"sees": sees, "values": lambda self, view: values(view)})


Nan = method("Nan", lambda view: np.full(view.n_clients, np.nan))


class Backwards:
    """Worth more, the more like the server's images its loss is: 15 lines are enough."""

    sees = ("validation",)

    def values(self, view):
        return view.mean([fk.shapley(r.game()).values for r in view.rounds("negative_loss")])


def test_methods_are_found_by_what_they_are() -> None:
    (size, policy, mine) = find_methods(["size", fk.SizeAsValue, Backwards]).items()
    assert size == ("size", METHODS["size"])
    assert policy[0] == "SizeAsValue"
    assert sees(policy[1]) == ("updates", "sizes", "validation")
    assert mine[0] == "Backwards"
    for wrong, sentence in (
        ("nothing", "a method is 'nothing'"), (object(), "no values"),
        (type("Greedy", (Nan,), {"sees": ("everything",)}), "has sees="),
        (type("Text", (Nan,), {"sees": "sizes"}), "has sees="),
    ):  # fmt: skip
        refused(sentence, find_methods, [wrong])
    refused("with a name for each", arena.run, [Nan, Nan])
    refused("called 'exact', as a row", arena.run, [type("exact", (Nan,), {})], rows=["size"])
    refused("a scenario is 'rain'", arena.run, [Nan], scenarios=["rain"])


# ------------------------------------------------------------------------------- measures


def said(value, **more):
    accuracy = {"weights": 80.0, "selection": 70.0, "without_worst": 82.0, "without_best": 60.0}
    metrics = {f"accuracy.{k}": v for k, v in (accuracy | {"everybody": 75.0}).items()}
    metrics |= dict.fromkeys(("evaluations", "trainings", "seconds", "held", "fidelity"), 1.0)
    return {"metrics": metrics, "series": {"value": value, **more}}


def known(quality, bad=None, group=None, retraining=None):
    n = len(quality)
    return {
        "metrics": {},
        "series": {
            "quality": quality,
            "bad": [0.0] * n if bad is None else bad,
            "group": [np.nan] * n if group is None else group,
            "retraining.accuracy": quality if retraining is None else retraining,
            "retraining.loss": quality,
        },
    }


def frame_of(scenarios, seeds, truth, rows):
    """Measures of methods that say the same in every federation and seed."""
    places = [("digits", scenario, seed) for scenario in scenarios for seed in seeds]
    made = {(*place, name): mine for place in places for name, mine in rows.items()}
    return measure_all(made, dict.fromkeys(places, truth))


def test_measures_against_closed_forms() -> None:
    mine = said([3.0, 1.0, 2.0, 0.0], **{"value.rounds": [0.0, 2.0, 1.0, 3.0]})
    truth = known([1.0, 0.7, 0.4, 0.0], bad=[0, 0, 1, 1], retraining=[4.0, 3.0, 2.0, 1.0])
    found = measure("label-noise", mine, truth)
    assert found["fidelity.rounds"] == 1
    assert found["fidelity.retraining"] == pytest.approx(4 / 6)  # one of six pairs is reversed
    assert found["fidelity.planted"] == pytest.approx(4 / 6)
    assert found["detection"] == 3 / 4  # 3 and 1 against 2 and 0
    assert found["stability.rounds"] == -1
    assert (found["worth.weights"], found["worth.selection"]) == (5, -5)
    assert (found["worth.worst"], found["worth.best"], found["worth.removal"]) == (7, -15, 22)
    assert "fairness.alike" not in found


def test_nothing_is_not_below_zero_and_who_comes_late_may_raise_an_alarm() -> None:
    bad = known([1.0] * 2 + [0.0] * 2, bad=[0, 0, 1, 1])
    assert measure("free-riders", said([2.0, 1.0, 0.0, -1.0]), bad)["detection.below"] == 1 / 2
    late = known([1.0, 0.5, 0.5, 0.5])
    assert measure("late", said([2.0, 1.0, -1.0, -2.0]), late)["detection.alarm"] == 1 / 2


def test_mavericks_and_late_clients_are_told_apart_and_the_unasked_left_out() -> None:
    assert agreement([1, 1, 1], [1, 2, 3]) == 0
    assert np.isnan(agreement([1, np.nan], [1, 2]))
    with pytest.raises(
        ValueError, match=r"shapes \(2,\) and \(3,\); expected one number per client"
    ):
        agreement([1, 2], [1, 2, 3])
    for name, quality in (("mavericks", [1.0, 1.0, 0.0]), ("late", [1.0, 1.0, 0.5])):
        found = measure(name, said([5.0, 0.0, 1.0]), known(quality))
        assert found[name] == 0.5
        assert not {"detection", "fidelity.planted"} & set(found)
        assert ("fidelity.retraining" in found) == (name == "mavericks")
    truth = known([1.0, 0.7, 0.4, 0.0], bad=[0, 0, 1, 1])
    found = measure("twenty", said([3.0, np.nan, 1.0, 2.0]), truth)
    assert found["detection"] == 1
    assert found["fidelity.planted"] == pytest.approx(1 / 3)


def test_a_constant_is_not_stable_and_stability_has_no_reference() -> None:
    mine = said([1.0, 1.0, 1.0], **{"value.rate": [1.0, 1.0, 1.0]})
    truth = known([1.0, 0.5, 0.0])
    assert np.isnan(measure("sizes", mine, truth)["stability.rate"])
    moved = said([1.0, 2.0, 3.0], **{"value.rate": [1.0, 3.0, 2.0]})
    rows = {"size": mine, "random": moved, "loo": moved}
    frame = frame_of(["sizes", "labels"], (0, 1), truth, rows)
    assert set(frame[frame.measure == "stability.seeds"].scenario) == {"sizes"}  # others are drawn
    for name in ("stability.rate", "stability.seeds"):
        assert list(summary(frame, name).columns) == ["mean", "low", "high", "units"]
        assert frame[(frame.measure == name) & (frame.method == "size")].value.isna().all()
    assert "gain" in summary(frame, "fidelity.planted")


def test_nothing_positive_is_not_fair_and_a_trick_should_not_matter() -> None:
    truth = known([1.0] * 3, group=[np.nan, 0, 0])
    found = measure("duplicates", said([-1.0, -2.0, -30.0], **{"value.before": [1.0, 1.0]}), truth)
    assert all(np.isnan(x) for m, x in found.items() if m.startswith("fairness"))
    assert sum(m.startswith("fairness") for m in found) == 3
    for name in TRICKS:
        p = plant(small(name), 0)
        (group,) = p.groups
        assert sorted(p.role[list(group)]) == [1, 2, 3, 4]
    before = {"value.before": [2.0, 1.0, 1.0]}
    loses, gains = said([0.1, 2.0, 2.0, 0.1], **before), said([1.4, 1.0, 1.0, 1.0], **before)
    frame = frame_of(["duplicates"], (0, 1), known([1.0] * 4), {"loses": loses, "gains": gains})
    assert list(summary(frame, "fairness.copying").index) == ["gains", "loses"]


def test_scenarios_are_the_unit_and_seeds_where_there_is_one() -> None:
    rows, truths = {}, {}
    for data in ("mnist", "fashionmnist"):
        for scenario in ("sizes", "labels", "duplicates"):
            for seed in range(4):
                truths[data, scenario, seed] = known([1.0, 0.5, 0.0])
                before = {"value.before": [1.0, 1.0]} if scenario == "duplicates" else {}
                rows[data, scenario, seed, "loo"] = said([3.0, 2.0, 1.0 + seed / 9], **before)
    frame = measure_all(rows, truths)
    assert summary(frame, "fidelity.planted").loc["loo", "units"] == 3
    assert summary(frame, "fairness.copying").loc["loo", "units"] == 4


def test_tricks_are_paid_in_mean_pays() -> None:
    mine = said([1.0, 1.0, -3.0, 2.0], **{"value.before": [1.0, 1.0, 2.0]})
    truth = known([1.0] * 4, group=[0, 0, np.nan, 0])
    found = measure("duplicates", mine, truth)
    # pay 1/4, 1/4, 0, 2/4 of 4 clients; 1/4 of 3 before
    assert found["fairness.copying"] == pytest.approx((3 / 4 - 1 / 4) * 3)
    assert found["fairness.apart"] == pytest.approx(1 / 4 * 4)
    assert found["fairness.alike"] == pytest.approx(np.std([1, 1, 2], ddof=1))
    assert "fidelity.planted" not in found
    assert "fairness.splitting" in measure("split", mine, truth)


def test_summaries_pair_federations_and_correct_for_many_methods() -> None:
    rng = np.random.default_rng(0)
    rows, truths = {}, {}
    for scenario in ("sizes", "labels", "feature-noise", "label-noise", "twenty"):
        for seed in (0, 1):
            quality = rng.permutation(6) / 5
            truths["digits", scenario, seed] = known(quality.tolist())
            others = {"exact": quality, "good": quality, "random": rng.random(6), "bad": -quality}
            for name, value in others.items():
                rows["digits", scenario, seed, name] = said(value.tolist())
    frame = measure_all(rows, truths)
    table = summary(frame, "fidelity.planted")
    assert list(table.index[:2]) == ["exact", "good"]
    assert table.loc["good", "mean"] == 1
    assert table.loc["bad", "mean"] == -1
    assert (table["units"] == 5).all()
    each = frame[(frame.measure == "fidelity.planted") & (frame.method == "random")]
    mean = each.groupby("scenario").value.mean()
    assert table.loc["good", "gain"] == pytest.approx((1 - mean).mean())
    raw = [fk.intervals.paired_p_value(np.sign(x) - mean)[0] for x in (1, 1, -1)]
    expected = fk.intervals.holm(raw)
    np.testing.assert_allclose(table.loc[["exact", "good", "bad"], "p"], expected)
    assert summary(frame, "cost.seconds").index.size == 4
    refused("no measure 'beauty'", summary, frame, "beauty")


def test_who_ran_elsewhere_alone_does_not_lead() -> None:
    """One easy federation is no mean over all."""
    truth, right, half = (
        known([1.0, 0.7, 0.4, 0.0]), said([4.0, 3.0, 2.0, 1.0]), said([1.0, 4.0, 3.0, 2.0])
    )  # fmt: skip
    parts = [
        frame_of(["sizes", "labels"], [0], truth, {"exact": half, "proxy": half}),
        frame_of(["free-riders"], [0], truth, dict.fromkeys(("exact", "proxy", "part"), right)),
        frame_of(["split"], [0], truth, {"proxy": right}),
    ]
    frame = pd.concat(parts, ignore_index=True)
    board = measures.board(frame)
    assert list(board.index) == ["exact", "proxy"]
    planted = summary(frame, "fidelity.planted")
    assert sorted(planted.index) == ["exact", "proxy"]
    assert planted["mean"].exact == planted["mean"].proxy  # not by what "exact" has not run


def test_expelling_the_worst_in_closed_form() -> None:
    truth = known([1.0] * 5 + [0.0] * 5, bad=[0] * 5 + [1] * 5)
    found = measure("label-noise", said([9.0, 8, 7, 3, -1, 6, 5, 4, -2, -3]), truth)
    assert found["detection.fifth"] == 1  # the two last
    assert found["detection.lost"] == 2 / 5  # down to 6, which takes 3 and -1 along
    assert found["detection.below"] == 2 / 5
    assert found["detection.alarm"] == 1 / 5
    same = measure("label-noise", said([1.0] * 10), truth)
    assert same["detection.fifth"] == 1 / 2  # by lot
    assert same["detection.lost"] == 1
    part = measure("label-noise", said([5.0, 5, 5, 5, 1, 1, 1, 1, 5, 5]), truth)
    assert part["detection.fifth"] == 3 / 4
    unasked = measure("label-noise", said([1.0] * 5 + [np.nan] * 5), truth)
    assert np.isnan(unasked["detection.fifth"])
    sound = measure("labels", said([1.0, -1.0]), known([1.0, 0.5]))
    assert sound["detection.alarm"] == 1 / 2
    assert "detection.below" not in sound


def test_every_measure_is_described_and_measured() -> None:
    found: set[str] = set()
    for name in ("label-noise", "duplicates", "split", "mavericks", "late"):
        s = small(name, seen=120, validation=120)
        result = rows.method_result(METHODS["loo"], s, 0)
        found |= set(measure(name, result, rows.truth_result(s, 0)))
    assert found | {"stability.seeds", "stability.seen-200"} == set(measures.MEASURES)
    assert set(measures.BETTER) == set(measures.MEASURES)


# -------------------------------------------------------------------------------- records


def test_rows_are_recorded_once_and_entries_join_them(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(experiments.SCALES, "smoke", ((small("sizes"),), 2))
    store = Store(tmp_path)
    options = {"rows": ["exact", "random"], "scenarios": ["free-riders"], "store": store}
    found = arena.run([Backwards], **options)
    assert len(store.paths("smoke", "arena")) == 3
    stamps = [p.stat().st_mtime_ns for p in store.paths()]
    arena.run([], **options)
    assert [p.stat().st_mtime_ns for p in store.paths()] == stamps
    (place,) = [s for s in arena.scenarios("smoke") if s.scenario == "free-riders"]
    entry = {"method": "Backwards", "commit": "abc123", **asdict(place)}
    results = [rows.method_result(Backwards(), place, seed) for seed in (0, 1)]
    whole = Cell("smoke", "arena", "entries", entry, (0, 1))
    store.save(whole, results, {"behaviour": {}})
    again = arena.measures_of(store, "smoke")
    assert list(again.board().index) == ["exact", "random", "Backwards@abc123"]
    assert again.truths.groupby("seed").bad.sum().tolist() == [2, 2]
    assert set(again.truths.role) == set(range(5))
    again.measures["method"] = again.measures.method.replace("Backwards@abc123", "Backwards")
    mine = again.measures[again.measures.measure == "fidelity.rounds"]
    assert mine[mine.method == "exact"].value.tolist() == [1, 1]
    timed = found.measures.measure == "cost.seconds"
    wanted = found.measures[~timed].set_index(["seed", "method", "measure"]).value
    kept = again.measures.set_index(["seed", "method", "measure"]).value
    np.testing.assert_allclose(kept.loc[wanted.index], wanted, rtol=1e-5, atol=1e-6)
    some = replace(whole, seeds=(0,), settings={**entry, "commit": "part"})
    store.save(some, results[:1], {"behaviour": {}})
    again = arena.measures_of(store, "smoke")
    assert list(again.board().index) == ["exact", "random", "Backwards@abc123"]


def own_federation(n=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50 * n + 60, 1, 4, 4))
    y = (x[:, 0, 0, 0] > 0).astype(int) + 2 * (x[:, 0, 1, 1] > 0)
    held = [(x[50 * i : 50 * i + 50], y[50 * i : 50 * i + 50]) for i in range(n)]
    held[1] = (held[1][0], rng.integers(0, 4, 50))  # labels of chance
    rest = slice(50 * n, None)
    return fk.federation_from_arrays(held, (x[rest], y[rest]), (x[rest], y[rest]))


def unfinished():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 4))
    torch.nn.init.constant_(model[1].bias, float("nan"))
    return model


def normed(mean=0.0):
    """A module that takes rows, and flattens nothing."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    model[0].running_mean.fill_(mean)
    return model


def columns(n_classes=None, validation=True):
    """A federation made of tables of four columns."""
    rng = np.random.default_rng(0)
    held = [(rng.normal(size=(30, 4)), rng.integers(0, 2, 30)) for _ in range(5)]
    return fk.federation_from_arrays(
        held[:3], held[3], held[4] if validation else None, n_classes=n_classes
    )


@dataclass(frozen=True)
class Proportional:
    """A multiple of the clients' sizes."""

    factor: float
    sees = ("sizes",)

    def values(self, view):
        return self.factor * view.sizes


def test_normalised_values_are_averaged_in_the_units_of_the_utility() -> None:
    methods = {"shares": fk.Exact(), "gains": fk.Exact(normalised=False)}
    found = fk.arena.compare(own_federation(), "mlp-8", methods=methods, rounds=3, lr=0.5)
    shares, gains = found.values.loc["shares"], found.values.loc["gains"]
    np.testing.assert_allclose(shares, gains, atol=1e-9)


def test_methods_can_be_compared_on_a_federation_of_ones_own() -> None:
    mine = own_federation()
    methods = ["exact-loss", "loo-loss", "size", Nan]
    with pytest.warns(UserWarning, match="^Nan failed: it returned") as caught:
        found = fk.arena.compare(mine, "mlp-8", methods=methods, rounds=3, lr=0.5, retraining=True)
    assert [str(one.message) for one in caught] == [*found.failures.values()]
    assert "(Nan)" in repr(found) or found.failures["Nan"] in repr(found)
    assert list(found.values.index) == ["exact-loss", "loo-loss", "size"]
    assert list(found.values) == [f"client {i}" for i in range(4)]
    assert set(found.failures) == {"Nan"}
    assert (found.values.loc[["exact-loss", "loo-loss"]].idxmin(axis=1) == "client 1").all()
    assert found.measures.loc["exact-loss", "rounds"] == 1
    assert list(found.measures.evaluations) == [48, 15, 0]  # 2^4 and n + 1, three times
    # the same rounds by the federated engine, valued by the library's own function
    history = fk.run(
        [mine], fk.build("mlp-8", (1, 4, 4), 4),
        fk.Strategy(fk.UniformSelection(), METHODS["exact-loss"].policy, fk.SizeWeighted()),
        fk.Plan(
            3, 4, fk.LocalSGD(lr=0.5, batch_size=20, epochs=2), evaluate_every=3,
            utility="negative_loss",
        ), [0], device="cpu",
    )  # fmt: skip
    assert found.accuracy == history.final_accuracy()[0]
    v = history.contributions()
    assert v.values.ravel() / 3 == pytest.approx(found.values.loc["exact-loss"], rel=1e-4)
    assert found.agreement["size"].isna().all()  # equal sizes say nothing
    assert list(np.diag(found.agreement)[:2]) == [1.0, 1.0]


def test_misbehaviour_can_be_tried_on_a_federation_of_ones_own() -> None:
    federation = own_federation().with_adversaries({2: ScaledUpdate(-1.0)})
    options = {"methods": ["loo-loss"], "rounds": 3}
    found = fk.arena.compare(federation, "mlp-8", lr=0.5, **options)
    honest = fk.arena.compare(own_federation(), "mlp-8", lr=0.5, **options)
    assert found.values.loc["loo-loss"].idxmin() == "client 2"
    assert found.values.loc["loo-loss", "client 2"] < 0 < honest.values.loc["loo-loss", "client 2"]


@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_class_without_an_image_stops_only_who_asks_for_its_accuracy(n_classes) -> None:
    methods = ["loo-loss", "exact", "ms-mr", "ms-gtg", "fedtsv", "cgsv"]
    fed = columns(n_classes)
    with pytest.warns(UserWarning, match="ms-.* have no validation image") as caught:
        found = fk.arena.compare(fed, "mlp-4", methods=methods, rounds=2, lr=1.0)
    told = [str(one.message) for one in caught]
    assert [t for t in told if "validation image" in t] == [*found.failures.values()]
    assert list(found.failures) == ["ms-mr", "ms-gtg"]
    assert "failures=dict of 2 (ms-mr, ms-gtg)" in repr(found)
    arch = fk.build("mlp-4", fed.input_shape, n_classes)
    w = World(fed, arch, fk.Plan(2, 3, fk.LocalSGD(lr=1.0, batch_size=20, epochs=2)))
    for r, table in zip(w.rounds, w.tables("accuracy"), strict=True):
        assert table.table == pytest.approx(fk.games.tabulate(r.game()).table, abs=1e-12)


def test_without_validation_data_methods_that_need_none_are_compared() -> None:
    fed = columns(validation=False)
    with pytest.warns(UserWarning, match="loo-loss failed: it asks for validation"):
        found = fk.arena.compare(fed, "mlp-4", methods=["loo-loss", "cgsv"], rounds=2)
    assert list(found.values.index) == ["cgsv"]
    assert found.measures.rounds.isna().all()


def test_a_module_takes_columns_as_rows() -> None:
    flat = torch.nn.Sequential(torch.nn.Flatten(), *normed())
    flat.register_buffer("mask", torch.full((4,), -torch.inf))  # an infinity may be meant
    assert not fk.arena.compare(columns(), flat, methods=["loo-loss"], rounds=1).failures
    wrong = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 2))
    with pytest.raises(ValueError, match="shapes cannot be multiplied") as caught:
        fk.arena.compare(columns(), wrong)
    assert "Flatten()" not in str(caught.value)


def test_a_module_is_compared_from_its_own_parameters_on() -> None:
    known = fk.build("mlp-8", (1, 4, 4), 4).init(fk.Streams(0).generator("model"))
    chain = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    )
    torch.nn.utils.vector_to_parameters(known, chain.parameters())
    options = {"methods": ["exact-loss", "cgsv"], "rounds": 2, "retraining": True}
    by_name, by_module = (
        fk.arena.compare(own_federation(), model, **options) for model in ("mlp-8", chain)
    )
    assert by_module.values.equals(by_name.values)
    same = ["rounds", "retraining"]
    assert by_module.measures[same].equals(by_name.measures[same])
    chain[2] = torch.nn.Tanh()  # no chain of fedkit's layers
    other = fk.arena.compare(own_federation(), chain, **options)
    assert not other.failures
    assert other.values.loc["exact-loss"].idxmin() == "client 1"


def test_two_objects_of_one_class_are_compared_by_names_of_ones_own() -> None:
    twice = {"once": Proportional(1.0), "size": Proportional(2.0), "row": "size"}
    found = fk.arena.compare(own_federation(), "mlp-8", methods=twice, rounds=2)
    assert not found.failures
    assert list(found.values.index) == [*twice]
    assert np.allclose(found.values.loc["size"], 2 * found.values.loc["once"])
    entered = arena.run({"mine": "size"}, rows=["size"], scenarios=["sizes"], seeds=[0])
    ours = entered.values.groupby("method").value.apply(list)
    assert ours["mine"] == ours["size"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"federation": "digits"}, "federation is 'digits'"),
        ({"participants": 5}, "participants"),
        ({"methods": ["size", "size"]}, "with a name for each"),
        ({"methods": ["nobody"]}, "nobody"),
        ({"methods": []}, r"methods is \[\]; expected at least one"),
        ({"methods": {}}, "expected at least one"),
        ({"methods": {1: "size"}}, "named 1; give a dict"),
        ({"methods": 3}, "in a list or dict"),
        ({"methods": "cgsv"}, "in a list or dict"),
        ({"rounds": 0}, "rounds"),
        ({"lr": -1.0}, "lr"),
        ({"model": 3}, "model"),
        (
            {"model": torch.nn.Linear(4, 4).requires_grad_(False)},
            "no trained parameters that could travel",
        ),
        ({"model": unfinished()}, "model has a NaN in 1.bias"),
        ({"model": torch.nn.Linear(4, 4)}, r"Linear gives outputs of shape \(2, 1, 4, 4\)"),
        ({"model": normed(), "federation": columns()}, "expected 2D or 3D input"),
        ({"model": normed(torch.nan)}, "model has a NaN in 0.running_mean"),
        ({"retraining": "yes"}, "retraining"),
        ({"participants": 15, "federation": own_federation(15)}, "participants must be at most 14"),
    ],
)  # fmt: skip
def test_a_comparison_refuses_what_it_cannot_do(change, says) -> None:
    refused(says, fk.arena.compare, **{"federation": own_federation(), "model": "mlp-8", **change})


def test_measures_know_their_direction_and_their_range():
    less = ("detection.lost", "detection.alarm", "worth.best")
    assert not any(measures.BETTER[name] for name in less)
    assert measures.BETTER["detection"]
    assert measures.BETTER["worth.worst"]
    assert measures.interval("fidelity.rounds", [-1.0, -1.0]).low == -1
    assert measures.interval("detection", [0.2, 0.9]).low == 0
