"""The rows of a comparison's tables, out of its cells: what was right, and what that shows."""

import dataclasses
import json

import numpy as np

from tasks.cail2019_scm.comparison.settings import system_label
from tasks.cail2019_scm.statistics import (
    accuracy_interval,
    count_ties,
    decide,
    holm,
    paired_difference,
    seed_interval,
)

LEVEL = 0.05
LENGTH_BINS = 4


@dataclasses.dataclass(frozen=True)
class Row:
    """One system with all its seeds."""

    label: str
    """Its name."""
    cells: list
    """Its cells, by seed."""
    right: dict
    """"valid" and, if judged, "test": booleans (seeds, n), whether each decision was right."""

    @property
    def kind(self):
        """finetuned, or the kind of baseline."""
        return self.cells[0].identity["kind"]

    @property
    def judged(self):
        """The decisions on the rows that are judged."""
        return self.right["test" if "test" in self.right else "valid"]

    @property
    def may_be_ranked(self):
        """Whether chance in training is absent or measured: no seed, or at least two."""
        return self.cells[0].identity["seed"] is None or len(self.cells) > 1


def check_comparable(cells, reason=""):
    """Raises unless the cells may stand in one table.

    All must be judged on the same files; fine-tuned ones must share their settings and, unless a
    reason is given, the text that they were pretrained on.

    Args:
        cells: list of `Cell`.
        reason: why pretraining corpora may differ; "" = they must not.

    Raises:
        ValueError: the rows differ; the systems are named.
    """
    _require_equal(cells, lambda cell: cell.identity["data"],
                   "all systems must be judged on the same files (SHA-256)")
    tuned = [cell for cell in cells if cell.identity["kind"] == "finetuned"]
    _require_equal(tuned, lambda cell: cell.identity["shared"],
                   "all models must share the fine-tuning settings")
    if not reason:
        _require_equal(
            tuned, lambda cell: cell.identity["pretraining"]["corpus_hash"],
            "all models must be pretrained on the same text (corpus hash), or the settings must "
            "say under different_corpora why not")
        unknown = [cell.system for cell in tuned
                   if cell.identity["pretraining"]["corpus_hash"] is None]
        if unknown and len({cell.identity["model"] for cell in tuned}) > 1:
            raise ValueError(f"nothing is known of what {unknown[0]} was pretrained on; the "
                             "settings must say under different_corpora why it may stand beside "
                             "others")


def _require_equal(cells, key, rule):
    """Raises unless `key` of all cells is the same."""
    groups = {}
    for cell in cells:
        groups.setdefault(json.dumps(key(cell), sort_keys=True), []).append(cell.system)
    if len(groups) > 1:
        (one, first), (other, second), *_ = groups.items()
        raise ValueError(f"{rule}; {first[0]} has {one[:200]}, {second[0]} {other[:200]}")


def rows_of(cells, data):
    """The `Row` of each system, in the order of its first cell."""
    groups = {}
    for cell in cells:
        groups.setdefault(cell.system, []).append(cell)
    labels = {"valid": np.array([row.label for row in data.valid])}
    if data.test is not None:
        labels["test"] = np.array([row.label for row in data.test])
    return [Row(label, found, {
        part: np.stack([np.array(decide(*cell.scores[part])) == truth for cell in found])
        for part, truth in labels.items()}) for label, found in groups.items()]


def accuracy_of(right):
    """What decisions (seeds, n) say of the accuracy.

    Returns:
        dict: mean; seed_low, seed_high, Student's t over seeds (None with one); item_low,
        item_high, Wilson's for n rows (of the mean over seeds, as if it were one run).
    """
    means = right.mean(axis=1)
    _, low, high, _ = accuracy_interval(round(float(means.mean()) * right.shape[1]), right.shape[1])
    seeds = seed_interval(means)[1:] if len(means) > 1 else (None, None)
    return {"mean": float(means.mean()), "seed_low": seeds[0], "seed_high": seeds[1],
            "item_low": low, "item_high": high}


def ties_of(row):
    """Equal scores on the judged rows, in the mean over seeds."""
    part = "test" if "test" in row.right else "valid"
    return float(np.mean([count_ties(*cell.scores[part]) for cell in row.cells]))


def references_of(rows, references):
    """The labels of the references that are among the rows."""
    labels = {row.label for row in rows}
    return [label for label in (system_label(*one) for one in references) if label in labels]


def compare_rows(rows, pairs):
    """Paired comparisons on the judged rows.

    Args:
        rows: list of `Row`.
        pairs: (label, label of the reference) to compare.

    Returns:
        A list of dicts: system, against, difference, low, high, p_value, adjusted (Holm over all
        of the list) and verdict: "better", "worse" or "not distinguishable"; or, where a trained
        system has one seed, "one seed: not ranked" without any figure but the difference.
    """
    known = {row.label: row for row in rows}
    found = []
    for label, against in pairs:
        one, other = known[label], known[against]
        result = paired_difference(one.judged, other.judged)
        entry = {"system": label, "against": against, "difference": result.difference}
        if one.may_be_ranked and other.may_be_ranked:
            entry |= {"low": result.low, "high": result.high, "p_value": result.p_value}
        found.append(entry)
    tested = [entry for entry in found if "p_value" in entry]
    for entry, adjusted in zip(tested, holm([e["p_value"] for e in tested]), strict=True):
        entry["adjusted"] = adjusted
        differs = adjusted < LEVEL and entry["difference"] != 0
        entry["verdict"] = ("not distinguishable" if not differs else
                            "better" if entry["difference"] > 0 else "worse")
    for entry in found:
        entry.setdefault("verdict", "one seed: not ranked")
    return found


def sentence(entry):
    """One comparison in words."""
    points = f"{100 * entry['difference']:+.1f} points"
    if "p_value" not in entry:
        return (f"{entry['system']} and {entry['against']}: {points} in one seed; not ranked, "
                "because another seed gives another figure.")
    interval = f"95 % interval {100 * entry['low']:+.1f} to {100 * entry['high']:+.1f}"
    chance = f"p = {entry['adjusted']:.2g}"
    if entry["verdict"] == "not distinguishable":
        return (f"{entry['system']} and {entry['against']} are not distinguishable: {points} "
                f"({interval}; {chance}).")
    return (f"{entry['system']} is {entry['verdict']} than {entry['against']}: {points} "
            f"({interval}; {chance}).")


def median_disagreement(rows):
    """Share of the judged rows on which exactly one of two trained systems is right: the median.

    None if there are not two.
    """
    trained = [row.judged[0] for row in rows if row.kind in ("finetuned", "cnn", "lstm")]
    shares = [np.mean(one != other) for place, one in enumerate(trained)
              for other in trained[place + 1:]]
    return float(np.median(shares)) if shares else None


def by_length(rows, lengths, bins=LENGTH_BINS):
    """Accuracy by the length of the pair.

    Args:
        rows: list of `Row`.
        lengths: of each judged row, (n,).
        bins: parts with about equally many rows.

    Returns:
        A list of dicts: series, length_low, length_high (both included), correct (mean over
        seeds, rounded), judged.
    """
    lengths = np.asarray(lengths)
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, bins + 1), method="nearest"))
    places = np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, max(0, len(edges) - 2))
    found = []
    for row in rows:
        for place in np.unique(places):
            inside = places == place
            found.append({
                "series": row.label, "length_low": int(lengths[inside].min()),
                "length_high": int(lengths[inside].max()),
                "correct": round(float(row.judged[:, inside].sum(axis=1).mean())),
                "judged": int(inside.sum())})
    return found


def pair_lengths(triplets, tokenizer):
    """Tokens of A and the longer one of B and C, for each row."""
    counts = [[len(tokenizer.encode(text)) for text in row[:3]] for row in triplets]
    return [a + max(b, c) for a, b, c in counts]
