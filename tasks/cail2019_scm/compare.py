"""Compares pretrained models and baselines on triplets: models x lengths x seeds, one report."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import time
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.files import atomic_path, write_text
from tasks.cail2019_scm import finetune
from tasks.cail2019_scm.comparison import results
from tasks.cail2019_scm.comparison.baselines import baseline_jobs
from tasks.cail2019_scm.comparison.cells import (
    CellStore,
    Data,
    Pretrained,
    layout_of,
    position_limit,
    pretraining_of,
    run_finetuned,
    slug,
    word_run,
)
from tasks.cail2019_scm.comparison.report import report_text, table_rows
from tasks.cail2019_scm.comparison.settings import arguments, load_settings, system_label, systems
from tasks.cail2019_scm.dataset import describe, official_split


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Fine-tune every model at every length with every seed, judge all on the same rows.

    Writes report.md, table.csv and manifest.json. Every finished cell is kept in cells/ when the
    same command is given again, and a cell that was cut short goes on where it stopped.
    """

    data: Path
    """Folder with train.json, valid.json and, if there is one, test.json, which is judged once."""
    output: Path
    """Folder of the cells and the report."""
    settings: Path
    """JSON file: models, lengths, seeds, fine-tuning settings; see settings/comparison.json."""
    runs: Path | None = None
    """Folder that the run folders in the settings are relative to; None = the settings' own."""
    seeds: tuple[int, ...] | None = None
    """Seeds to use instead of those in the settings."""
    verbose: bool = True
    """Whether to show progress."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All that the report tells."""

    name: str
    settings: object
    data: Data
    rows: list
    comparisons: list
    by_length: list
    length_unit: str
    not_run: list
    official: bool
    picture: bool

    @property
    def splits(self):
        """The triplets by split."""
        found = {"train": self.data.train, "valid": self.data.valid}
        return found if self.data.test is None else {**found, "test": self.data.test}


def main(args):
    """Runs what is not finished and writes the report; returns the lines of table.csv."""
    settings = load_settings(args.settings)
    args = dataclasses.replace(args, runs=args.runs or Path(settings.runs))
    settings = dataclasses.replace(settings, seeds=args.seeds or settings.seeds)
    data, pretrained = Data.load(args.data, settings.judge), Pretrained()
    jobs = baseline_jobs(settings, data, pretrained, args.runs)
    tuned, not_run = finetuned_jobs(args, settings, data, pretrained)
    cells = run_cells(args, [*jobs, *tuned], data)
    results.check_comparable(cells, settings.different_corpora)
    comparison = compare(args, settings, data, cells, not_run, pretrained)
    write_text(args.output / "report.md", report_text(comparison))
    lines = table_rows(comparison)
    write_table(args.output / "table.csv", lines)
    write_text(args.output / "manifest.json",
               json.dumps(manifest(comparison, cells), indent=1, ensure_ascii=False) + "\n")
    say(args, f"\n{(args.output / 'report.md').read_text(encoding='utf-8')}")
    return lines


def finetuned_jobs(args, settings, data, pretrained):
    """(identity, function that makes the cell) of every fine-tuning, and what cannot be run."""
    jobs, not_run = [], []
    for system in systems(settings):
        run = pretrained(args.runs / system.model.run)
        for seed in settings.seeds:
            folder = args.output / "work" / slug(system.label, seed)
            given = arguments(system, seed, args.data, folder, args.runs)
            finetune.group_size(given)  # options that do not belong together are an error now
            if reason := position_limit(run["info"], layout_of(given)):
                not_run.append((system.label, reason))
                break
            identity = finetuned_identity(system, settings, data, run, given)
            jobs.append((identity, lambda identity, data, given=given, run=run:
                         run_finetuned(identity, given, run, data)))
    return jobs, not_run


def finetuned_identity(system, settings, data, run, given):
    """All that decides the result of a fine-tuning."""
    everything = finetune.flat_settings(given)
    for name in ("model", "data", "output", "verbose"):
        del everything[name]
    return {
        "system": system.label, "kind": "finetuned", "model": system.model.name,
        "length": system.length, "seed": given.training.seed, "data": data.hashes,
        "tokenizer": run["tokenizer"].fingerprint(), "weights": run["weights"],
        "encoder": run["info"]["encoder"], "pretraining": pretraining_of(run["info"]),
        "shared": settings.finetune, "forced": system.model.finetune,
        "change": system.variant and system.variant.finetune, "selects": data.selects,
        "settings": everything,
    }


def run_cells(args, jobs, data):
    """The cells of all jobs in the jobs' order; seed by seed, those that are finished are read."""
    store, found = CellStore(args.output / "cells"), {}
    order = sorted(range(len(jobs)), key=lambda place: jobs[place][0]["seed"] or 0)
    missing, spent, made = [], 0.0, 0
    for place in order:
        found[place] = store.get(jobs[place][0])
        if found[place] is None:
            missing.append(place)
    for place in missing:
        identity, make = jobs[place]
        started = time.monotonic()
        cell = found[place] = make(identity, data)
        store.put(cell)
        spent, made = spent + time.monotonic() - started, made + 1
        left = spent / made * (len(missing) - made) / 60
        say(args, f"{made}/{len(missing)} {cell_line(cell, data)}, "
            f"{time.monotonic() - started:.0f} s; about {left:.0f} minutes left")
    return [found[place] for place in range(len(jobs))]


def cell_line(cell, data):
    """A finished cell in words."""
    (row,) = results.rows_of([cell], data)
    seed = "" if cell.identity["seed"] is None else f", seed {cell.identity['seed']}"
    figures = ", ".join(f"{part} {right.mean():.3f}" for part, right in row.right.items())
    return f"{cell.system}{seed}: {figures}"


def compare(args, settings, data, cells, not_run, pretrained):
    """The `Comparison` of finished cells."""
    rows = results.rows_of(cells, data)
    tokenizer = word_run([pretrained(args.runs / model.run) for model in settings.models])[
        "tokenizer"]
    lengths = results.by_length(rows, results.pair_lengths(data.judged, tokenizer))
    official = official_split(data.train) == "train" and official_split(data.valid) == "valid" \
        and (data.test is None or official_split(data.test) == "test")
    return Comparison(
        str(args.data), settings, data, rows,
        results.compare_rows(rows, pairs_to_compare(settings, rows)), lengths,
        f"read by the {tokenizer.fingerprint()['mode']} tokenizer", not_run, official,
        draw(args.output / "accuracy_by_length.png", rows, lengths))


def pairs_to_compare(settings, rows):
    """(system, reference): variants with their base, else every system with every reference."""
    labels = [row.label for row in rows]
    if settings.variants:
        return [(one.label, system_label(one.model.name, one.length, one.variant.against))
                for one in systems(settings) if one.variant is not None and one.label in labels]
    return [(label, against) for against in results.references_of(rows, settings.references)
            for label in labels if label != against]


def draw(path, rows, lengths):
    """Draws the fine-tuned systems' accuracy by length; returns whether there were any."""
    from roformer_zh.plots import plot_accuracy_by_length

    tuned = {row.label for row in rows if row.kind == "finetuned"}
    chosen = [part for part in lengths if part["series"] in tuned]
    if chosen:
        plot_accuracy_by_length(chosen, path)
    return bool(chosen)


def write_table(path, lines):
    """Writes table.csv."""
    import pandas

    with atomic_path(path) as temporary:
        pandas.DataFrame(lines).to_csv(temporary, index=False)


def manifest(comparison, cells):
    """What a later reader needs to repeat the comparison, as JSON values."""
    packages = ("keras", "tensorflow", "numpy", "scipy", "scikit-learn", "jieba", "rjieba")
    return {
        "data": {"files": comparison.data.hashes, "official": comparison.official,
                 "counts": {part: describe(rows) for part, rows in comparison.splits.items()}},
        "settings": dataclasses.asdict(comparison.settings),
        "versions": {"python": platform.python_version(),
                     **{name: importlib.metadata.version(name) for name in packages}},
        "processors": os.cpu_count(),
        "not_run": comparison.not_run,
        "comparisons": comparison.comparisons,
        "accuracy_by_length": comparison.by_length,
        "cells": [{"identity": cell.identity, "facts": cell.facts} for cell in cells],
    }


def say(args, text):
    """Prints a line unless the run is quiet."""
    if args.verbose:
        print(text, flush=True)


if __name__ == "__main__":
    run_command(main, Arguments)
