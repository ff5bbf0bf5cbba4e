"""Systems scored on the same triplets, as rows of one table."""

import numpy as np

from roformer_zh.files import write_text
from roformer_zh.reports import markdown_table
from tasks.cail2019_scm.baselines import TfidfScorer, majority_label
from tasks.cail2019_scm.batches import encode_triplets, shares_cut
from tasks.cail2019_scm.statistics import accuracy_interval, count_ties, decide


def score_triplets(matcher, triplets):
    """Scores of (A, B) and of (A, C), two float32 arrays of shape (rows,)."""
    pairs = [pair for row in triplets for pair in ((row.A, row.B), (row.A, row.C))]
    scores = matcher.score_pairs(pairs).reshape(-1, 2)
    return scores[:, 0], scores[:, 1]


def system_row(name, first, second, triplets, **extra):
    """One row: accuracy with its 95 % interval (Wilson) and standard error, and ties.

    Args:
        name: the system.
        first, second: its scores of (A, B) and (A, C).
        triplets: labelled rows.
        **extra: further entries.
    """
    decisions = decide(first, second)
    correct = sum(found == row.label for found, row in zip(decisions, triplets, strict=True))
    accuracy, low, high, error = accuracy_interval(correct, len(triplets))
    return {"system": name, "rows": len(triplets), "accuracy": accuracy, "low": low, "high": high,
            "standard_error": error, "ties": count_ties(first, second), **extra}


def matcher_row(name, matcher, triplets, scores=None):
    """The row of a `DocumentMatcher`, with the shares of text and of sequences that it cuts.

    `scores` are those of `score_triplets`, if they are at hand.
    """
    rows, tokens = encode_triplets(triplets, matcher.tokenizer, matcher.layout)
    text_cut, sequences_cut = shares_cut(rows, tokens)
    scores = scores or score_triplets(matcher, triplets)
    return system_row(name, *scores, triplets, text_cut=text_cut, sequences_cut=sequences_cut)


def baseline_rows(train, triplets):
    """Majority label and TF-IDF, both from the training split alone."""
    label = majority_label(train)
    always = np.full(len(triplets), 1.0 if label == "B" else -1.0)
    scorer = TfidfScorer([text for row in train for text in row[:3]])
    return [
        system_row(f"always {label} (majority of train)", always, 0 * always, triplets),
        system_row("TF-IDF cosine", *scorer.score_triplets(triplets), triplets, text_cut=0.0,
                   sequences_cut=0.0),
    ]


def antisymmetry_error(matcher, triplets):
    """Largest |p(A, B, C) + p(A, C, B) - 1| over the rows, p = sigmoid of the score difference.

    The exchanged rows are scored anew, in another order and in other batches.
    """
    first, second = score_triplets(matcher, triplets)
    swapped = [row._replace(B=row.C, C=row.B) for row in reversed(triplets)]
    other = [scores[::-1] for scores in score_triplets(matcher, swapped)]
    total = _sigmoid(first - second) + _sigmoid(other[0] - other[1])
    return float(np.abs(total - 1).max())


def score_table(rows):
    """A GitHub table of such rows."""
    return markdown_table([{
        "system": row["system"],
        "accuracy": f"{row['accuracy']:.3f}",
        "95 % interval": f"{row['low']:.3f} to {row['high']:.3f}",
        "ties": row["ties"],
        "text cut": f"{row['text_cut']:.0%}" if "text_cut" in row else "",
    } for row in rows])


def write_report(path, rows, facts, settings):
    """Writes the report of a fine-tuning.

    Args:
        path: the file.
        rows: of `system_row`, all on valid.json.
        facts: of `finetune.data_facts`.
        settings: dict of all arguments.
    """
    table = markdown_table([{"setting": name, "value": f"`{value}`"}
                            for name, value in settings.items()])
    parts = [
        "# Fine-tuning on triplets",
        " ".join(facts["lines"]),
        f"## valid.json, {rows[0]['rows']:,} rows",
        score_table(rows),
        "The weights were chosen on these rows, so the scorer's accuracy here is a little too "
        "good. A tie decides for B. Intervals are Wilson's for one run; another seed gives another "
        "run.",
        "## Documents that training and validation share",
        facts["leaks"],
        "## Settings",
        table,
    ]
    write_text(path, "\n\n".join(parts) + "\n")


def _sigmoid(x):
    """The logistic function, in float64 and without overflow."""
    return 0.5 * (1 + np.tanh(np.asarray(x, np.float64) / 2))
