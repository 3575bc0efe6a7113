import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedkit.federated.aggregation import Proportional, SizeWeighted, UniformWeights
from fedkit.methods.fedowen import Softmax

ALL = [SizeWeighted(), UniformWeights(), Softmax(), Softmax(50.0), Proportional()]


def test_softmax_by_hand():
    w = Softmax().weights(np.array([0.0, math.log(2), math.log(5)]), np.array([9, 1, 1]))
    assert w == pytest.approx(np.array([1, 2, 5]) / 8)


def test_size_and_proportional_by_hand():
    sizes = np.array([1, 3, 0])
    values = np.array([-1.0, 0.5, 1.5])
    assert SizeWeighted().weights(values, sizes) == pytest.approx([0.25, 0.75, 0])
    assert Proportional().weights(values, sizes) == pytest.approx([0, 0.25, 0.75])
    assert Proportional().weights(-np.ones(3), sizes) == pytest.approx(np.full(3, 1 / 3))


def test_values_between_0_and_1_give_weights_within_a_factor_of_e():
    w = Softmax().weights(np.array([0.0, 1.0] + [0.0] * 8), np.ones(10, dtype=int))
    assert w.max() / w.min() == pytest.approx(math.e)


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=10))
def test_weights_are_a_convex_combination(values):
    sizes = np.arange(1, len(values) + 1)
    for rule in ALL:
        w = rule.weights(np.array(values), sizes)
        assert np.isfinite(w).all()
        assert (w >= 0).all()
        assert w.sum() == pytest.approx(1)
