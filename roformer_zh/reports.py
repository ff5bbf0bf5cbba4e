"""Tables and plots."""

import json
from pathlib import Path

from roformer_zh.files import atomic_path


def markdown_table(rows):
    """A GitHub table of a list of dicts; columns in order of first appearance, missing cells empty.

    Example:
        >>> print(markdown_table([{"stage": "a", "loss": 1.5}]))
        | stage | loss |
        |---|---|
        | a | 1.5 |
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |")
    return "\n".join(lines)


def percent(share):
    """A share as percent with one decimal.

    Example:
        >>> percent(0.6549)
        '65.5'
    """
    return f"{100 * share:.1f}"


def wilson(correct, judged, confidence=0.95):
    """An accuracy and its interval: (accuracy, low, high), fractions.

    Args:
        correct: right decisions.
        judged: all decisions, at least 1.
        confidence: probability that the interval covers the true accuracy.

    Example:
        >>> [round(value, 4) for value in wilson(803, 1536)]
        [0.5228, 0.4978, 0.5477]
    """
    from scipy import stats

    if judged < 1 or judged % 1 or not 0 <= correct <= judged:
        raise ValueError(
            "correct must lie in 0..judged and the judged rows be at least 1, a whole number; got "
            f"{correct} of {judged}"
        )
    interval = stats.binomtest(int(correct), int(judged)).proportion_ci(confidence, method="wilson")
    return correct / judged, float(interval.low), float(interval.high)


def stage_table(stages):
    """Rows for `markdown_table`, one a stage of pretraining, in the form of the paper's Table 4.

    Published columns appear when a stage has published figures.

    Args:
        stages: the dicts in `stages` of what `Trainer.fit` returned.
    """
    rows, tokens = [], 0
    for stage in stages:
        row = {
            "stage": stage["name"],
            "length": stage["sequence_length"],
            "batch": stage["batch_size"],
            "updates": f"{stage['steps']:,}",
            "tokens": f"{stage['tokens'] - tokens:,}",
            "loss": f"{stage['loss']:.3f}" if "loss" in stage else "",
            "accuracy, %": percent(stage["accuracy"]) if "accuracy" in stage else "",
        }
        if "val_loss" in stage:
            row["held-out loss"] = f"{stage['val_loss']:.3f}"
            row["held-out accuracy, %"] = percent(stage["val_accuracy"])
        if stage.get("published_loss") is not None:
            row["published loss"] = f"{stage['published_loss']:.2f}"
        if stage.get("published_accuracy") is not None:
            row["published accuracy, %"] = percent(stage["published_accuracy"])
        tokens = stage["tokens"]
        rows.append(row)
    return rows


def read_metrics(path):
    """The lines of a `metrics.jsonl` as dicts."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def plot_training(lines, path):
    """Draws loss and accuracy over the updates, with the stages marked, into a PNG file.

    Args:
        lines: what `read_metrics` gives.
        path: the PNG file; written atomically.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, name in zip(figure.subplots(2, 1, sharex=True), ("loss", "accuracy"), strict=True):
        for kind, key, style in (("train", name, "-"), ("validation", f"val_{name}", "o")):
            points = [(line["update"], line[key]) for line in lines if key in line]
            label = "training" if kind == "train" else "held-out"
            if points:
                axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
        for start, stage in stage_starts(lines):
            axes.axvline(start, color="grey", linewidth=0.5)
            axes.annotate(stage, (start, 0.97), xycoords=("data", "axes fraction"), fontsize=7)
        axes.set_ylabel(name)
        axes.legend(fontsize=8)
    axes.set_xlabel("update")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def stage_starts(lines):
    """(update, name) where each stage begins.

    Example:
        >>> stage_starts([{"stage": "a", "update": 5}, {"stage": "a", "update": 9},
        ...               {"stage": "b", "update": 12}])
        [(0, 'a'), (9, 'b')]
    """
    starts, update, stage = [], 0, None
    for line in lines:
        if line["stage"] != stage:
            stage = line["stage"]
            starts.append((update, stage))
        update = line["update"]
    return starts
