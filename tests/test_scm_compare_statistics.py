"""The paired comparison of systems with several seeds."""

import numpy as np
import pytest
from scipy import stats

from tasks.cail2019_scm.statistics import (
    detectable_difference,
    holm,
    mcnemar,
    paired_difference,
)


def test_one_seed_of_each_is_at_least_as_careful_as_mcnemar():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.random((2, 40)) < [[0.8], [0.6]]
        found = paired_difference([first], [second])
        assert found.p_value >= mcnemar(first, second)[2] - 1e-9
        assert found.difference == pytest.approx(first.mean() - second.mean())
        assert found.p_value == pytest.approx(paired_difference([second], [first]).p_value)


def test_numbers_by_hand():
    first = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], bool)
    second = np.array([[0, 0, 1, 0]], bool)
    found = paired_difference(first, second)
    # rows: 1, 1, -1/2, 0 with variance 0.5625; accuracies of the seeds .75, .5: variance 0.03125
    variance = 0.5625 / 4 + 0.03125 / 2
    freedom = variance**2 / ((0.5625 / 4) ** 2 / 3 + (0.03125 / 2) ** 2 / 1)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    assert found.difference == 0.375
    assert (found.low, found.high) == pytest.approx((0.375 - half, 0.375 + half))
    # signs of 2, 2, -1 (all times two seeds): |sum| >= 3 in 4 of 8
    assert found.p_value >= 0.5


def test_identical_systems_do_not_differ():
    right = np.random.default_rng(0).random((3, 50)) < 0.7
    assert paired_difference(right, right).p_value == 1.0
    assert paired_difference(right[:1], right[:1]) == (0.0, 0.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="same rows, at least two; got 50 and 49"):
        paired_difference(right, right[:, 1:])


@pytest.mark.parametrize("spread", [0.0, 0.6])
def test_equal_systems_are_seldom_called_different_even_if_seeds_differ_much(spread):
    """A test that looks at rows alone would call seed luck a difference."""
    rng, n, calls, by_rows = np.random.default_rng(1), 200, 0, 0
    for _ in range(300):
        ease = rng.normal(1, 1, n)
        systems = [ease + spread * rng.normal(size=(3, 1)) + rng.normal(size=(3, n)) > 0
                   for _ in range(2)]
        calls += paired_difference(*systems).p_value < 0.05
        by_rows += mcnemar(systems[0][0], systems[1][0])[2] < 0.05
    assert calls / 300 < 0.06
    assert spread == 0 or by_rows / 300 > 0.15  # what one seed a system would have claimed


def test_a_true_difference_is_seen():
    rng, calls = np.random.default_rng(2), 0
    for _ in range(50):
        ease = rng.normal(1, 1, 400)
        good, bad = (ease + shift + 0.1 * rng.normal(size=(3, 1)) + rng.normal(size=(3, 400)) > 0
                     for shift in (0.5, 0.0))
        found = paired_difference(good, bad)
        calls += found.p_value < 0.05 and found.low > 0
    assert calls > 35


def test_holm_keeps_the_order_and_never_exceeds_one():
    assert holm([0.5, 0.001, 0.6]) == pytest.approx([1.0, 0.003, 1.0])
    assert holm([]) == []


def test_the_paper_s_gain_needs_many_more_rows_than_the_test_split_has():
    assert detectable_difference(1536, 0.25) > 0.0169 * 2
    assert detectable_difference(8700, 0.25) == pytest.approx(0.015, abs=2e-4)
