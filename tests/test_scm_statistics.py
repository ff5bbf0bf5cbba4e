import doctest
import importlib

import numpy as np
import pytest

from tasks.cail2019_scm.statistics import (
    accuracy_interval,
    count_ties,
    decide,
    mcnemar,
    seed_interval,
)

MODULES = ("augment", "baselines", "dataset", "demo_triplets", "split", "statistics", "whitening")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    results = doctest.testmod(importlib.import_module(f"tasks.cail2019_scm.{name}"))
    assert results.failed == 0


def test_a_tie_in_float32_goes_to_b_whatever_the_label():
    first = np.array([1.0, 1.0 + 1e-12, 2.0])
    second = np.array([1.0, 1.0, 3.0])
    assert decide(first, second) == ["B", "B", "C"]
    assert decide(second, first) == ["B", "B", "B"]
    assert count_ties(first, second) == 2


def test_scores_that_are_not_finite_are_an_error():
    with pytest.raises(ValueError, match="1 of 2 rows have others, the first is row 2"):
        decide([0.0, np.nan], [0.0, 1.0])


def test_the_standard_error_at_the_official_test_size_is_about_one_point():
    accuracy, low, high, error = accuracy_interval(1072, 1536)
    assert error == pytest.approx(0.0117, abs=1e-4)
    assert low < accuracy < high and high - low == pytest.approx(2 * 1.96 * error, rel=0.01)


def test_the_interval_does_not_shrink_to_nothing_at_the_edges():
    _, low, high, _ = accuracy_interval(10, 10)
    assert low == pytest.approx(0.7225, abs=1e-4) and high == 1.0  # Wilson: n / (n + z^2)
    with pytest.raises(ValueError, match="rows be at least 1"):
        accuracy_interval(0, 0)


def test_mcnemar_counts_disagreement_only():
    both_right = [True] * 500
    assert mcnemar(both_right, both_right) == (0, 0, 1.0)
    first = np.array(both_right + [True] * 9 + [False] * 1)
    second = np.array(both_right + [False] * 9 + [True] * 1)
    only_first, only_second, p_value = mcnemar(first, second)
    assert (only_first, only_second) == (9, 1)
    assert p_value == pytest.approx(2 * (1 + 10) / 2**10)
    assert mcnemar(second, first)[2] == pytest.approx(p_value)
    with pytest.raises(ValueError, match="same rows"):
        mcnemar([True], [True, False])


def test_one_seed_has_no_interval():
    with pytest.raises(ValueError, match="at least two seeds"):
        seed_interval([0.7])
