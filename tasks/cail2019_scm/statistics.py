"""What a count of right decisions allows to say."""

import math

import numpy as np
from scipy import stats


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
    if not (isinstance(rows, int | np.integer) and rows >= 1 and 0 <= correct <= rows):
        raise ValueError(
            f"correct must lie in 0..rows and rows be at least 1; got {correct} of {rows}"
        )
    accuracy = correct / rows
    interval = stats.binomtest(int(correct), int(rows)).proportion_ci(confidence, method="wilson")
    error = math.sqrt(accuracy * (1 - accuracy) / rows)
    return accuracy, float(interval.low), float(interval.high), error


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
