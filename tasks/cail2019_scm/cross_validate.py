"""Fine-tunes on folds that share no document, and once on all of train.json."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Literal

import numpy as np

from roformer_zh.command import run_command
from roformer_zh.files import write_text
from roformer_zh.reports import markdown_table
from roformer_zh.training import TrainingOptions
from tasks.cail2019_scm import finetune
from tasks.cail2019_scm.dataset import load_triplets, save_triplets
from tasks.cail2019_scm.scores import baseline_rows
from tasks.cail2019_scm.split import document_folds

RESULTS_FILE = "results.json"
BASELINES = ("majority of the training rows", "TF-IDF cosine")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measure scorers by cross-validation over documents, then once on valid.json, several seeds.

    Nothing is selected: every run trains for the same epochs and is judged once, at its end. Runs
    that are finished are kept in results.json when the same command is given again.
    """

    model: Path
    """Run folder to start from."""
    data: Path
    """Folder with train.json and valid.json in the task's format."""
    output: Path
    """Folder of results.json and report.md."""
    scorers: tuple[Literal["siamese", "pair"], ...] = ("siamese", "pair")
    """Scorers to measure."""
    folds: int = 3
    """Parts of the documents of train.json."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One fine-tuning a seed and fold."""
    sequence_length: int = 1024
    """Tokens read of two texts together."""
    learning_rate: float = 3e-4
    """Learning rate after warm-up."""
    epochs: float = 3.0
    """Passes over the training triplets."""
    batch_size: int = 8
    """Triplets an update."""
    augment: tuple[Literal["antisymmetric", "reflexive"], ...] = ()
    """Rules that add training triplets."""
    whiten: bool = False
    """Start siamese scorers with a whitening projection."""
    jit: bool = False
    """Compile the forward and backward pass with XLA."""
    verbose: bool = True
    """Whether to show progress."""


def main(args):
    """Runs what is not finished, writes the report; returns its rows."""
    train, valid = (load_triplets(args.data / f"{name}.json") for name in ("train", "valid"))
    cells = [(f"fold {number}", *split)
             for number, split in enumerate(document_folds(train, args.folds))]
    cells.append(("valid.json", train, valid))
    results = _Results(args)
    for name, inside, outside in cells:
        for system, row in zip(BASELINES, baseline_rows(inside, outside), strict=True):
            results.put(system, 0, name, row["accuracy"], len(outside))
        for scorer in args.scorers:
            for seed in args.seeds:
                if results.has(scorer, seed, name):
                    continue
                accuracy = run_cell(args, scorer, seed, inside, outside)
                results.put(scorer, seed, name, accuracy, len(outside))
                if args.verbose:
                    print(f"{scorer}, seed {seed}, {name}: {accuracy:.3f} of {len(outside)}",
                          flush=True)
    rows = summary(results.rows)
    write_text(args.output / "report.md", report_text(args, rows, train, cells))
    if args.verbose:
        print(markdown_table(rows))
    return {"rows": rows}


def run_cell(args, scorer, seed, train, valid):
    """The accuracy of one fine-tuning on `valid`, judged after its last update."""
    folder = args.output / "cell"
    shutil.rmtree(folder, ignore_errors=True)
    for name, triplets in (("train", train), ("valid", valid)):
        save_triplets(folder / "data" / f"{name}.json", triplets)
    shared = {name: getattr(args, name) for name in (
        "model", "sequence_length", "learning_rate", "epochs", "batch_size", "augment")}
    metrics = finetune.main(finetune.Arguments(
        **shared, data=folder / "data", output=folder / "run", scorer=scorer,
        whiten=args.whiten and scorer == "siamese", evaluate_every=10**9,
        training=TrainingOptions(seed=seed, jit=args.jit, verbose=False)))
    if not metrics["finished"]:
        raise RuntimeError("a fine-tuning was interrupted; give the same command to go on")
    shutil.rmtree(folder)
    return metrics["accuracy"]


class _Results:
    """The accuracy of every finished cell, on disk."""

    def __init__(self, args):
        self.path = args.output / RESULTS_FILE
        settings = {name: str(value) if isinstance(value, Path) else value for name, value
                    in dataclasses.asdict(args).items() if name not in ("scorers", "seeds")}
        self.settings = json.loads(json.dumps(settings))
        self.rows = []
        if self.path.exists():
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if found["settings"] != self.settings:
                raise ValueError(f"{self.path} was made with {found['settings']}; got "
                                 f"{self.settings}: choose another --output")
            self.rows = found["rows"]

    def has(self, system, seed, cell):
        """Whether a cell is finished."""
        return any((row["system"], row["seed"], row["cell"]) == (system, seed, cell)
                   for row in self.rows)

    def put(self, system, seed, cell, accuracy, rows):
        """Adds a cell, once."""
        if not self.has(system, seed, cell):
            self.rows.append(dict(system=system, seed=seed, cell=cell, accuracy=accuracy,
                                  rows=rows))
            write_text(self.path, json.dumps(
                {"settings": self.settings, "rows": self.rows}, indent=1) + "\n")


def summary(cells):
    """One row a system: mean accuracy over seeds, by folds together and on valid.json.

    The standard error joins the spread of n judged triplets, sqrt(p (1 - p) / n), and that of the
    mean over seeds: the first is by far the larger on small data.
    """
    rows = []
    for system in dict.fromkeys(cell["system"] for cell in cells):
        row = {"system": system}
        for title, on_folds in (("cross-validation", True), ("valid.json", False)):
            found = [cell for cell in cells if cell["system"] == system
                     and cell["cell"].startswith("fold") == on_folds]
            seeds = sorted({cell["seed"] for cell in found})
            right = [sum(c["accuracy"] * c["rows"] for c in found if c["seed"] == seed)
                     for seed in seeds]
            judged = sum(cell["rows"] for cell in found if cell["seed"] == seeds[0])
            means = np.array(right) / judged
            mean = means.mean()
            spread = means.var(ddof=1) / len(means) if len(means) > 1 else 0.0
            error = np.sqrt(mean * (1 - mean) / judged + spread)
            row[title] = f"{mean:.3f} ± {error:.3f}"
            row[f"{title}, seeds"] = " ".join(f"{value:.3f}" for value in means)
            row[f"{title}, triplets"] = judged
        rows.append(row)
    return rows


def report_text(args, rows, train, cells):
    """The text of report.md."""
    judged = sum(len(outside) for name, _, outside in cells if name.startswith("fold"))
    return "\n".join([
        f"# Scorers on {args.data}",
        "",
        f"{args.folds} folds that share no document: {judged} of {len(train)} triplets are judged "
        "once a seed; those that straddle two folds are dropped. Every run has "
        f"{args.epochs:g} epochs at {args.sequence_length} tokens, learning rate "
        f"{args.learning_rate:g}, {args.batch_size} triplets an update, and is judged once. "
        "± is one standard error.",
        "",
        markdown_table(rows),
        "",
    ])


if __name__ == "__main__":
    run_command(main, Arguments)
