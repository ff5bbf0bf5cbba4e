"""Accuracy of fine-tuned runs when they may read so many tokens and no more."""

import dataclasses
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.files import write_text
from roformer_zh.layout import check_fits
from roformer_zh.plots import plot_accuracy_by_length
from roformer_zh.reports import markdown_table
from tasks.cail2019_scm.dataset import load_triplets
from tasks.cail2019_scm.scores import matcher_row


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Judge runs on the same triplets at several lengths: what the later text is worth to them.

    A run is not trained again; it reads less or more of each text than it was fine-tuned on.
    Lengths beyond a run's position table are left out.
    """

    model: tuple[Path, ...]
    """Run folders of fine-tuned scorers."""
    data: Path
    """File of triplets."""
    output: Path
    """Folder that gets report.md and accuracy_by_length.png."""
    sequence_length: tuple[int, ...] = (256, 384, 512, 640, 768, 896, 1024)
    """Tokens of two texts together."""
    verbose: bool = True
    """Whether to show progress."""


def main(args):
    """Writes the report; returns a dict a run and length."""
    from roformer_zh.matching import DocumentMatcher

    triplets = load_triplets(args.data)
    rows = []
    for folder in args.model:
        loaded = DocumentMatcher.load(folder, verbose=False)
        for length in sorted(args.sequence_length):
            layout = dataclasses.replace(loaded.layout, sequence_length=length)
            try:
                check_fits(layout, loaded.model.encoder.config, folder)
            except ValueError:
                continue
            matcher = DocumentMatcher(loaded.model, loaded.tokenizer, layout, verbose=False)
            rows.append(judge(folder.name, length, matcher, triplets))
            if args.verbose:
                print(f"{folder.name}, {length:,} tokens: {rows[-1]['accuracy']:.3f}", flush=True)
    plot_accuracy_by_length(rows, args.output / "accuracy_by_length.png")
    write_text(args.output / "report.md", report_text(args, rows, len(triplets)))
    return rows


def judge(name, length, matcher, triplets):
    """The figures of one run at one length."""
    row = matcher_row(name, matcher, triplets)
    return {**row, "series": name, "length_low": length, "length_high": length,
            "correct": round(row["accuracy"] * row["rows"]), "judged": row["rows"]}


def report_text(args, rows, count):
    """The text of report.md."""
    table = {}
    for row in rows:
        entry = table.setdefault(row["length_low"], {
            "tokens of a pair": f"{row['length_low']:,}", "text cut": f"{row['text_cut']:.0%}"})
        entry[f"{row['series']}, %"] = (f"{100 * row['accuracy']:.1f} "
                                        f"({100 * row['low']:.1f} to {100 * row['high']:.1f})")
    return "\n\n".join([
        "# Accuracy by the tokens read",
        f"{count:,} triplets of {args.data}; percent right with Wilson's 95 % interval. Guessing "
        "is right in 50 %.",
        markdown_table([table[length] for length in sorted(table)]),
        "![accuracy by length](accuracy_by_length.png)",
    ]) + "\n"


if __name__ == "__main__":
    run_command(main, Arguments)
