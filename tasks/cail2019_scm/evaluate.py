"""Scores a fine-tuned run on a file of triplets, and writes predictions."""

import dataclasses
from pathlib import Path
from typing import Literal

from roformer_zh.command import run_command
from roformer_zh.files import write_text
from tasks.cail2019_scm.dataset import load_triplets, official_split, warnings_about
from tasks.cail2019_scm.scores import antisymmetry_error, matcher_row, score_table, score_triplets
from tasks.cail2019_scm.statistics import count_ties, decide

_CHECKED_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Score a run on triplets: accuracy with interval, ties, and how much text was cut.

    Use it once on test data, when nothing is left to choose.
    """

    model: Path
    """Run folder of a fine-tuned scorer."""
    data: Path
    """File of triplets."""
    predictions: Path | None = None
    """File to write, in the competition's format: B or C, one line a row, in the file's order."""
    labelled: bool = True
    """Whether the rows have labels; without them only predictions are made."""
    invalid_bytes: Literal["error", "replace"] = "error"
    """What to do with bytes that are no UTF-8: stop, or replace and count them."""
    dtype: str | None = None
    """Keras dtype policy; None keeps the saved one."""
    tokens_per_batch: int = 16384
    """Tokens, padding included, that are computed at once."""
    verbose: bool = True
    """Whether to show progress."""


def main(args):
    """Scores the file; returns the metrics."""
    from roformer_zh.matching import DocumentMatcher

    triplets = load_triplets(args.data, labelled=args.labelled, invalid_bytes=args.invalid_bytes)
    say(args, *warnings_about(triplets, args.data))
    matcher = DocumentMatcher.load(args.model, dtype=args.dtype, verbose=args.verbose,
                                   tokens_per_batch=args.tokens_per_batch)
    first, second = score_triplets(matcher, triplets)
    if args.predictions:
        write_predictions(args.predictions, decide(first, second))
        say(args, f"{len(triplets):,} predictions: {args.predictions}")
    metrics = {"rows": len(triplets), "ties": count_ties(first, second),
               "antisymmetry_error": antisymmetry_error(matcher, triplets[:_CHECKED_ROWS])}
    if args.labelled:
        row = matcher_row(str(args.model), matcher, triplets, (first, second))
        split = official_split(triplets)
        metrics |= {**row, "official": split}
        say(args, score_table([row]), f"Standard error {row['standard_error']:.3f}. "
            + (f"This is the official {split} split of CAIL2019-SCM." if split else
               "This is not the official CAIL2019-SCM data; do not compare with published scores."))
    say(args, "p(A, B, C) + p(A, C, B) differs from 1 by at most "
        f"{metrics['antisymmetry_error']:.1g} (first {min(len(triplets), _CHECKED_ROWS)} rows).")
    return metrics


def write_predictions(path, decisions):
    """Writes one decision a line, in order."""
    write_text(path, "".join(f"{decision}\n" for decision in decisions))


def say(args, *lines):
    """Prints lines unless the run is quiet."""
    if args.verbose:
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    run_command(main, Arguments)
