"""What a count of right decisions allows to say."""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from roformer_zh.reports import wilson


def decide(first, second):
    """"B" where the first score is at least the second, else "C"; compared as float32.

    A tie goes to B: a rule that does not look at the label.

    Args:
        first, second: scores of (A, B) and (A, C), shape (n,). A score that is not finite raises.

    Example:
        >>> decide([1.0, 0.5, 0.0], [0.0, 0.5, 1.0])
        ['B', 'B', 'C']
    """
    first, second = np.asarray(first, np.float32), np.asarray(second, np.float32)
    bad = ~(np.isfinite(first) & np.isfinite(second))
    if bad.any():
        raise ValueError(
            f"scores must be finite; {int(bad.sum())} of {len(bad)} rows have others, the first is "
            f"row {int(np.argmax(bad)) + 1}"
        )
    return np.where(first >= second, "B", "C").tolist()


def count_ties(first, second):
    """Rows whose two scores are equal as float32."""
    return int(np.sum(np.asarray(first, np.float32) == np.asarray(second, np.float32)))


def accuracy_interval(correct, rows, confidence=0.95):
    """Accuracy, its lower and upper bound (Wilson), and its standard error.

    Args:
        correct: right decisions.
        rows: all decisions, at least 1.
        confidence: probability that the interval covers the true accuracy.

    Returns:
        (accuracy, low, high, standard_error), fractions.

    Example:
        >>> [round(value, 4) for value in accuracy_interval(803, 1536)]
        [0.5228, 0.4978, 0.5477, 0.0127]
    """
    accuracy, low, high = wilson(correct, rows, confidence)
    return accuracy, low, high, math.sqrt(accuracy * (1 - accuracy) / rows)


def mcnemar(first_correct, second_correct):
    """Exact paired test of two systems on the same rows.

    Only rows on which exactly one of the two is right count; under equal systems each of them is a
    fair coin.

    Args:
        first_correct, second_correct: booleans of shape (n,), whether each system was right.

    Returns:
        (only_first, only_second, p_value), two-sided.

    Example:
        >>> mcnemar([1, 1, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0])
        (5, 0, 0.0625)
    """
    first, second = np.asarray(first_correct, bool), np.asarray(second_correct, bool)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            "both systems must be judged on the same rows; got shapes "
            f"{first.shape} and {second.shape}"
        )
    only_first, only_second = int(np.sum(first & ~second)), int(np.sum(second & ~first))
    different = only_first + only_second
    p_value = stats.binomtest(only_first, different).pvalue if different else 1.0
    return only_first, only_second, float(p_value)


def seed_interval(values, confidence=0.95):
    """Mean of one figure over seeds with its interval (Student's t).

    Args:
        values: one value a seed, at least two: one seed has no spread to measure.

    Returns:
        (mean, low, high).

    Example:
        >>> [round(value, 3) for value in seed_interval([0.68, 0.70, 0.69])]
        [0.69, 0.665, 0.715]
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"an interval over seeds needs at least two seeds; got {values.size}")
    error = values.std(ddof=1) / math.sqrt(len(values))
    half = stats.t.ppf((1 + confidence) / 2, len(values) - 1) * error
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


class Difference(NamedTuple):
    """What the same rows say about two systems."""

    difference: float
    """Accuracy of the first minus that of the second, over all seeds."""
    low: float
    """Lower bound of its 95 % interval."""
    high: float
    """Upper bound."""
    p_value: float
    """Two-sided; the chance of such a difference between equal systems."""


def paired_difference(first, second, confidence=0.95):
    """Compares two systems on the same rows, with all their seeds.

    Two things are chance: which rows were drawn, and which seeds. The p-value is the larger of two:

    - rows: exact sign-flip test of each row's difference of mean correctness over seeds. With one
      seed of each system it is `mcnemar`.
    - rows and seeds: Student's t with the variance of the rows' differences / n plus, for each
      system with several seeds, the variance of its accuracy over seeds / seeds; degrees of freedom
      after Welch and Satterthwaite. A little too careful, as a seed's accuracy has the chance of
      the rows in it already. The interval is this one's.

    Args:
        first, second: booleans (seeds, n), whether each system was right; (1, n) is a system that
            has no seed. A trained system with one seed must not be compared: its seeds' variance
            is unknown.
        confidence: of the interval.

    Returns:
        A `Difference`.

    Example:
        >>> right, wrong = [[1] * 5 + [0]], [[0] * 6]
        >>> round(paired_difference(right, wrong).p_value, 4), mcnemar(right[0], wrong[0])[2]
        (0.0625, 0.0625)
    """
    first, second = (np.atleast_2d(np.asarray(right, bool)) for right in (first, second))
    if first.shape[1] != second.shape[1] or first.shape[1] < 2:
        raise ValueError("both systems must be judged on the same rows, at least two; got "
                         f"{first.shape[1]} and {second.shape[1]}")
    rows = first.mean(axis=0) - second.mean(axis=0)
    counts = first.sum(axis=0) * len(second) - second.sum(axis=0) * len(first)
    parts = [(rows.var(ddof=1) / len(rows), len(rows) - 1)]
    for right in (first, second):
        if len(right) > 1:
            parts.append((right.mean(axis=1).var(ddof=1) / len(right), len(right) - 1))
    difference, variance = float(rows.mean()), sum(part for part, _ in parts)
    if variance == 0:
        p_value = _sign_flip(counts)
        return Difference(difference, difference, difference, p_value)
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts)
    error = math.sqrt(variance)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom) * error)
    p_value = max(_sign_flip(counts), 2 * float(stats.t.sf(abs(difference) / error, freedom)))
    return Difference(difference, difference - half, difference + half, p_value)


def _sign_flip(counts):
    """P(|sum of +-counts| >= |sum of counts|) over fair, independent signs; exact."""
    sizes = np.abs(counts[counts != 0])
    if not len(sizes):
        return 1.0
    total = int(sizes.sum())
    chances = np.zeros(total + 1)  # of the sum of those with a plus
    chances[0] = 1.0
    for size in sizes:
        chances[size:] = (chances[size:] + chances[:-size]) / 2
        chances[:size] /= 2
    sums = 2 * np.arange(total + 1) - total
    return float(min(1.0, chances[np.abs(sums) >= abs(int(np.sum(counts)))].sum()))


def holm(p_values):
    """p-values adjusted for their number (Holm), in the given order.

    Example:
        >>> [round(value, 2) for value in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    adjusted, largest = np.zeros(len(p_values)), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted.tolist()


def detectable_difference(rows, disagreement, power=0.8, confidence=0.95):
    """The true difference of two systems that so many shared rows show with the given power.

    Args:
        rows: rows that both are judged on.
        disagreement: share of them on which exactly one of the two is right.

    Example:
        >>> round(detectable_difference(1536, 0.25), 3)
        0.036
    """
    reach = stats.norm.ppf((1 + confidence) / 2) + stats.norm.ppf(power)
    return float(reach * math.sqrt(disagreement / rows))
