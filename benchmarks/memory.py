"""Measures the peak memory of a training step as the sequence grows; prints a table, draws it."""

import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.measure import Worker, versions
from benchmarks.training import read_size
from roformer_zh.command import run_command
from roformer_zh.files import atomic_path
from roformer_zh.reports import markdown_table


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Trains two steps of a small model at each length, each in a process of its own.

    Chunked attention keeps one part of the attention matrix alive, so its memory should grow in
    step with the length; full attention keeps all of it, which grows with the square.
    """

    lengths: tuple[int, ...] = (2048, 4096, 8192, 16384)
    """Tokens a row."""
    full_up_to: int = 4096
    """Longest row that full attention is tried at."""
    size: str = "2x128x2"
    """Layers x width x heads."""
    variants: tuple[str, ...] = ("chunked", "chunked+recompute", "full")
    """As in benchmarks.training."""
    batch: int = 1
    """Rows."""
    vocabulary: int = 2000
    """Rows of the token table; small, so that logits do not hide attention."""
    masked: float = 0.15
    """Share of tokens that are predicted."""
    dropout: float = 0.1
    """Both dropout rates."""
    threads: int = 2
    """Processor threads."""
    steps: int = 2
    """Steps at each length."""
    plot: Path | None = None
    """PNG file to draw the curves into."""


def main(args):
    """Prints the table; returns {variant: {length: bytes above the smallest model's}}."""
    print(versions("tensorflow", "keras", "numpy"))
    floor = peak(args, "full", 16)
    found = {}
    for variant in args.variants:
        longest = args.full_up_to if "full" in variant.split("+") else max(args.lengths)
        found[variant] = {length: peak(args, variant, length) - floor
                          for length in args.lengths if length <= longest}
    print(f"\npeak memory of a step in MB, less the {floor / 1e6:,.0f} MB of the same process at "
          "length 16\n")
    rows = [{"length": f"{length:,}", **{variant: f"{sizes[length] / 1e6:,.0f}"
             for variant, sizes in found.items() if length in sizes}} for length in args.lengths]
    print(markdown_table(rows), flush=True)
    if args.plot:
        draw(found, args.plot)
    return found


def peak(args, variant, length):
    """Peak memory, in bytes, of a process that trains at a length."""
    options = read_size(args, f"{args.size}x{length}x{args.batch}")
    command = (sys.executable, "-m", "benchmarks.training", "--worker",
               json.dumps({**options, "variant": variant}))
    with Worker(command, args.threads) as worker:
        worker.run(args.steps)
        return worker.close()


def draw(found, path):
    """The curves as a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for variant, sizes in found.items():
        axes.plot(list(sizes), [size / 1e9 for size in sizes.values()], "o-", label=variant)
    axes.set_xlabel("tokens a row")
    axes.set_ylabel("memory of a training step, GB")
    axes.set_ylim(bottom=0)
    axes.legend()
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


if __name__ == "__main__":
    run_command(main, Arguments)
