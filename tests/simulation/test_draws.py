"""The draws are those of the standard library."""

import random

import pytest

from tests.simulation.draws import randint


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (3, 7), (50, 100), (0, 1_000), (-5, 5), (10, 1 << 40)])
def test_draws_are_those_of_the_generator_itself(low, high):
    ours, its = random.Random(7), random.Random(7)

    assert [randint(ours, low, high) for _ in range(200)] == [its.randint(low, high) for _ in range(200)]
    assert ours.getstate() == its.getstate()
