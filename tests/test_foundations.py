"""What the page on foundations takes from the record of intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from reproduction.foundations import figures, findings


def test_intervals_hold_about_as_often_as_they_say() -> None:
    every = findings.coverage()
    frame = findings.without_jumps(every)
    many = findings.counted_often(frame)
    pooled = frame.groupby("estimator").held.mean()
    assert pooled.min() > 0.85
    assert pooled[many.estimator.unique()].min() > 0.94
    assert 0.92 < many.held.min() < 0.95
    held = findings.proxy_held(every)
    assert (held.n, held.mean > 90) == (12, True)
    gloves = every[every.game == "gloves"].groupby("estimator").held.min()
    assert set(gloves.index[gloves > 0.93]) == {"Banzhaf", "complementary"}
    assert gloves["Banzhaf, marginal"] < 0.3
    assert set(frame[frame.estimator == "ProxySampling"].players) == {6, 12}


def test_a_single_client_of_twenty_may_fare_worse() -> None:
    many = findings.counted_often(findings.without_jumps(findings.coverage()))
    least = many.loc[many.groupby("estimator").least.idxmin()].set_index("estimator")
    worst = least.least.nsmallest(2)
    assert {*worst.index} == {"permutation", "Banzhaf, marginal"}
    assert worst.max() < 0.82
    assert set(least.players[worst.index]) == {20}
    found = findings.numbers()
    assert found["proxy-held"].startswith(f"{found['proxy-held-mean']} [")


def test_the_slider_is_drawn_at_both_ends() -> None:
    marginals = np.array([[48.0, 31.5, 6.0], [42.0, 27.0, 3.0], [18.0, 25.5, 24.0]])
    for q, title in ((0.0, "worth alone"), (0.3, "between"), (1.0, "leave-one-out")):
        right: Any = figures.slopes(marginals, ["Ada", "Bo", "Cy"], q).axes[1]
        assert right.get_title() == title
        ends = [bar.get_height() for bar in right.patches]
        if q in (0.0, 1.0):
            np.testing.assert_allclose(ends, marginals[:, 0 if q == 0.0 else -1])
