"""What the pages on FedValue say, from the committed records."""

from dataclasses import replace
from functools import partial

from fedkit.fedvalue.protocol.attacks import ATTACKS
from fedkit.fedvalue.protocol.verification import best_shift
from reproduction.fedvalue import findings
from reproduction.fedvalue.experiments import MAIN
from reproduction.fedvalue.findings import COLUMNS, IDEAL, REDUNDANT, RIDERS, cut, lead, per_seed
from reproduction.verdicts import judge


def test_the_printed_value_pays_free_riders_and_the_corrected_one_hardly_ever(evaluation):
    frame = evaluation.played(RIDERS)
    plain = cut(frame, "frsp", "fedvalue")
    assert 5 < plain.low < plain.high < 20
    assert cut(frame, "frsp", "fedvalue-corrected").mean == 0
    assert sum(cut(frame, "frsp", "fedvalue", [c]).low > 5 for c in COLUMNS) == 5
    assert sum(lead(frame, "fedvalue", "vf-ps", "frsp", [c]).low > 0 for c in COLUMNS) == 5
    assert max(cut(frame, "frsp", "fedvalue-corrected", [c]).mean for c in COLUMNS) < 1
    read = findings.riders_by_reading(evaluation)["mean"].unstack()
    assert read["FedValue"]["occupation too, free-riders draw every place"] == 100
    assert read["FedValue"]["occupation too"] > 2 * read["FedValue"]["gender and age"]
    assert read["FedValue, chance taken off"].max() < 5
    assert evaluation.ours("excluded.free-riders").low > 0


def test_redundant_parties_are_paid_where_nothing_else_can_be_had(evaluation):
    frame = evaluation.played(REDUNDANT)
    paid = [c for c in COLUMNS if per_seed(frame, f"rpsp.{c}.fedvalue").max() > 0]
    assert paid == ["var.3"]
    assert per_seed(frame, "rpsp.worst.fedvalue-thrifty").max() == 0


def test_buying_by_the_printed_value_does_not_predict_better(evaluation):
    ideal, riders = evaluation.played(IDEAL), evaluation.played(RIDERS)
    assert lead(ideal, "fedvalue", "volume").high < 0
    near = lead(ideal, "fedvalue", "random")
    assert near.low < 0 < near.high
    assert lead(riders, "fedvalue", "vf-ps").high < 0
    assert lead(riders, "fedvalue-corrected", "fedvalue").low > 0
    level = lead(riders, "fedvalue-corrected", "vf-ps")
    assert level.low < 0 < level.high
    for measure in ("accuracy", "auc"):
        for column in COLUMNS:
            rivals = ("random", "volume", "vf-ps")
            best = max(rivals, key=lambda n: cut(ideal, measure, n, [column]).mean)
            assert lead(ideal, "fedvalue", best, measure, [column]).low < 0


def test_conditioning_pays_beside_many_redundant_parties_only(evaluation):
    assert evaluation.ours("o9.redundant.r0.6.auc.vs-vf-ps").low > 0
    behind = lead(evaluation.played(REDUNDANT), "vf-ps", "fedvalue", columns=COLUMNS)
    assert behind.low > 0
    most = evaluation.played(replace(RIDERS, ratio=0.4))
    assert lead(most, "fedvalue", "vf-ps", columns=["fix.2"]).high < 0


def test_the_printed_value_follows_cells_more_than_gains(evaluation):
    means, ranks = findings.explanation(evaluation)
    assert means["FedValue"]["odd, high volume"] > means["FedValue"]["high volume"]
    gain = {score: i for (score, other), i in ranks.items() if other == "gain"}
    mine = gain.pop("FedValue")
    assert mine.high < 0.5 < min(i.low for i in gain.values())
    assert ranks["FedValue", "cells"].mean > mine.mean


def test_with_fewer_users_taking_chance_off_is_not_enough(evaluation):
    riders, ideal = (evaluation.played(case, "laptop") for case in (RIDERS, IDEAL))
    assert cut(riders, "frsp", "fedvalue-corrected", COLUMNS).low > 0
    paid = lead(riders, "fedvalue", "fedvalue-corrected", "frsp", COLUMNS)
    assert paid.low < 0 < paid.high
    level = lead(ideal, "fedvalue-corrected", "fedvalue")
    assert level.low < 0 < level.high


def test_testing_first_costs_where_users_are_few(evaluation):
    cost = partial(findings.ahead_when_tested, evaluation, rival="fedvalue-corrected")
    for case in (IDEAL, RIDERS):
        assert abs(cost(case).mean) < 0.001
        assert cost(case, records="laptop").high < 0
    low = per_seed(evaluation.played(REDUNDANT, experiment="tested"), "passes.low")
    assert low.mean() < 90


def test_milder_trees_move_the_level_and_not_the_order(evaluation):
    for trees in ({}, {"trees_depth": 3, "trees_rate": 0.1}):
        for case in (MAIN[0], MAIN[2]):
            frame = evaluation.played(replace(case, **trees))
            auc = {n: cut(frame, "auc", n, ["fix.2"]).mean for n in ("volume", "vf-ps", "fedvalue")}
            assert min(auc, key=auc.get) == "fedvalue"


def test_what_the_printed_tables_reveal(evaluation):
    told = findings.printed_market(evaluation)
    assert told["printed-p"] > 0.05
    assert told["printed-redundant"] > told["printed-free-riding"] + 0.1
    auc = {
        (scheme, b, name): evaluation.printed(f"t5.{scheme}.auc.b{b}.{name}")
        for scheme in ("fix", "var") for b in (1, 2) for name in ("volume", "random")
    }  # fmt: skip
    assert auc["var", 1, "volume"] == auc["var", 1, "random"]
    assert auc["var", 2, "volume"] == auc["fix", 1, "volume"]


def test_the_value_agrees_with_models_less_than_printed(evaluation):
    base, label = (findings.reading(evaluation, n) for n in (findings.JUDGED, findings.LABEL_ONLY))
    assert findings.above(base).high < 50
    assert findings.above(label).high < evaluation.printed("correlations-above-70") == 91.7
    assert findings.above(label).low > 1.4 * findings.above(base).high
    for key in ("alone", "permutation"):
        assert findings.above(base, key).low > findings.above(base).high
    assert max(findings.above(frame, "entropy").high for frame in (base, label)) < 30
    read = findings.by_reading(evaluation)
    assert read["above 0.7 (%)"].max() < 91.7
    for frame in (base, label):
        for level in (70, 80):
            batches = frame[frame.metric == f"above.{level}"].groupby("seed").value.mean()
            claim = evaluation.entries[f"fedvalue.correlations-above-{level}"]
            assert judge(claim, batches.to_numpy()).verdict == "not reproduced"


def test_a_simple_rival_and_chance(evaluation):
    base, label = (findings.reading(evaluation, n) for n in (findings.JUDGED, findings.LABEL_ONLY))
    for before in ("plugin", "permutation"):
        assert (findings.gains(base, before, "alone") > 0).mean() > 0.5
    assert (findings.gains(label, "permutation", "alone") > 0).mean() < 0.5
    rise = findings.gains(base, "plugin", "permutation")
    by_size = rise.groupby("features").mean()
    assert by_size.is_monotonic_increasing
    assert by_size.min() > 0
    assert (rise > 0).mean() > 0.75
    per_row = findings.facts(base)["joint cells per row"].groupby(level=0).min()
    assert (per_row > 0.95).sum() == 4


def test_models_saw_bins_and_better_ones_do_not_agree_more(evaluation):
    far = findings.distance(evaluation)
    assert far["binned"] < far["raw"]
    base = findings.reading(evaluation)
    over_sets = evaluation.ours("better-models")
    assert over_sets.n == 6
    assert over_sets.low < 0 < over_sets.high
    bars = findings.bars(base).groupby("benchmark")["mean"].mean()
    assert bars[["svm", "gbt", "rf"]].min() > bars[["lr", "nn"]].max()
    apart = base[base.metric.str.startswith("apart.plugin.")].value.mean()
    together = base[base.metric.str.startswith("pearson.plugin.")].value.mean()
    assert abs(apart - together) < 0.1


def test_sampling_has_its_error_and_components_change_the_values(evaluation):
    numbers = findings.numbers_of_experiments(evaluation)
    assert -0.75 < numbers["fvx-slope"] < -0.25
    pca = findings.approximations(evaluation, "pca", "components")
    wide = pca.pivot_table(index="dataset", columns="components", values=["mape", "rank"])
    assert (wide["mape"][2] > wide["mape"][4]).all()
    assert (wide["mape"][4] > wide["mape"][6]).all()
    assert wide["rank"].max(axis=None) < 0.95
    seconds = findings.approximations(evaluation, "sampling", "permutations")
    seconds = seconds.groupby(["dataset", "permutations"]).seconds.mean().unstack("dataset")
    assert (seconds.loc[1200] / seconds.loc[100]).max() < 12


def test_lies_pass_the_printed_checks_and_none_the_hardened_ones(evaluation):
    def share(protocol, attack, **settings):
        return findings.attacked(evaluation, protocol, attack, **settings)

    wide = {"high": 40, "iterations": 4}
    assert share("printed", "upload size").mean == 100
    assert share("printed", "upload size", **wide).mean == 100
    assert share("printed", "best bet", high=3).low > 40
    assert share("printed", "gcd").low > 70
    assert share("hardened, token per cell", "rank linking").low > 30
    assert max(share("hardened", attack).mean for attack in ATTACKS) == 0
    shift, people = best_shift((2, 9), 2)[1], 200
    assert min(shift) > 9 * people + 50  # more than the task party sends of all people together
    assert best_shift((2, 3), 2)[1] == (6, 6)


def test_known_answers_bound_the_best_attack(evaluation):
    few, many = (findings.known_answers(evaluation, data) for data in ("label", "cells"))
    assert few["low"].iloc[0] > 50
    assert few["bound (%)"].iloc[-1] < 1
    for table in (few, many):
        assert (table["low"] <= table["bound (%)"]).all()
    assert (few["bound (%)"] - few["deceived (%)"]).abs().max() < 5
    assert many["low"][25] > many["by the overall share (%)"][25]  # which is no bound


def test_leaving_small_cells_out_ends_certainty_and_not_guessing(evaluation):
    mean = {at: i.mean for at, i in findings.leaks(evaluation).items()}
    for name in ("wine", "breast", "credit"):  # a table with less in it tells no more
        for m in (2, 5):
            assert mean["certain", name, "joint", m] < 0.01 < mean["certain", name, "none", 0]
            assert mean["guessed", name, "joint", m] <= mean["guessed", name, "none", 0]
    assert mean["error", "wine", "joint", 5] > 99.9
    cheap, dear = ("breast", "decoys", 10), ("breast", "joint", 5)
    assert mean["certain", *cheap] < 0.1 < mean["certain", "breast", "none", 0]
    assert mean["error", *cheap] < mean["error", *dear] / 2
    assert mean["guessed", *dear] < mean["guessed", *cheap] - 3
    assert mean["certain", "credit", "decoys", 10] > 0.5 * mean["certain", "credit", "none", 0]
    lost = mean["guessed", "credit", "none", 0] - mean["guessed", "credit", "joint", 5]
    assert lost < 0.5 < mean["error", "credit", "joint", 5]
    noisy = findings.leaks(evaluation, parties=3, features=1)
    assert max(i.mean for at, i in noisy.items() if at[0] == "certain" and at[2] == "noise") == 0


def test_a_whole_table_is_counted_fast(evaluation):
    numbers = findings.numbers_of_hardening(evaluation)
    assert numbers["fvp-faster"] > 20
    assert numbers["fvp-feature-whole"] < 1.5 < 4 < numbers["fvp-feature-cells"]
