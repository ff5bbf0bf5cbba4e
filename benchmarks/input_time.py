"""Shows that input never limits a step: time to make a batch beside the time of an update."""

import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.measure import versions
from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table, read_metrics

LOG_EVERY = 4
"""Updates a line of metrics.jsonl; the last line of a stage counts."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Times the batches of every stage alone, then trains a few updates of each.

    Batches are made by one thread of the host, in the background. The share of the time in which
    training waited for them is what metrics.jsonl calls input_wait.
    """

    data: str
    """Folder that pretrain.prepare wrote."""
    stages: str = "pretrain/stages/tiny.json"
    """JSON file of stages; of each, only the first few updates are trained."""
    model: str = "roformer_tiny"
    """Preset of the model."""
    steps: int = 12
    """Updates of a stage; the last ones count, when nothing is traced any more."""
    batches: int = 20
    """Batches of a stage that are made alone; the median counts."""


def main(args):
    """Prints one row a stage; returns the rows."""
    from roformer_zh.batches.stages import load_stages
    from roformer_zh.corpus import Corpus

    if args.steps <= LOG_EVERY:
        raise ValueError(f"--steps must be above {LOG_EVERY}, so that tracing is left out; "
                         f"got {args.steps}")
    corpus, stages = Corpus.open(args.data), load_stages(args.stages)
    stages = [dataclasses.replace(stage, steps=args.steps, warmup_steps=0) for stage in stages]
    trained = train(args, stages)
    rows = []
    for stage in stages:
        made = batch_seconds(corpus, stage, args.batches)
        slots = stage.batch_size * stage.sequence_length
        rows.append({"stage": stage.name, "length": stage.sequence_length,
                     "batch": stage.batch_size, "batch_ms": 1e3 * made,
                     "step_ms": 1e3 * trained[stage.name]["seconds"],
                     "waited": trained[stage.name]["waited"], "slots_per_second": slots / made})
    print(versions("tensorflow", "keras", "numpy"))
    print(markdown_table(list(map(in_words, rows))))
    return rows


def batch_seconds(corpus, stage, count):
    """Median seconds of making one batch."""
    from roformer_zh.batches import MaskedLMBatches

    batches, seconds = MaskedLMBatches(corpus, stage), []
    for step in range(count):
        started = time.perf_counter()
        batches.batch(step)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def train(args, stages):
    """Stage name -> seconds of an update and the share of the time that input was waited for."""
    from pretrain import run
    from roformer_zh.training import TrainingOptions

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stages.json").write_text(json.dumps([stage.to_dict() for stage in stages]))
        run.main(run.Arguments(
            data=args.data, stages=str(folder / "stages.json"), output=str(folder / "run"),
            model=args.model, training=TrainingOptions(log_every=LOG_EVERY, verbose=False)))
        lines = [line for line in read_metrics(folder / "run" / "metrics.jsonl")
                 if line["kind"] == "train"]
    found = {}
    for before, line in zip([{"step": 0, "tokens": 0}, *lines], lines, strict=False):
        steps = line["step"] - before["step"] if line["step"] > before["step"] else line["step"]
        seconds = (line["tokens"] - before["tokens"]) / line["tokens_per_second"] / steps
        found[line["stage"]] = {"seconds": seconds, "waited": line["input_wait"]}
    return found


def in_words(row):
    """The row as it is printed."""
    return {
        "stage": row["stage"], "length": f"{row['length']:,}", "batch": row["batch"],
        "ms to make a batch": f"{row['batch_ms']:.1f}", "ms an update": f"{row['step_ms']:,.0f}",
        "batch / update": f"{100 * row['batch_ms'] / row['step_ms']:.2f} %",
        "waited for input": f"{100 * row['waited']:.3f} %",
        "million tokens/s that one thread feeds": f"{row['slots_per_second'] / 1e6:.1f}",
    }


if __name__ == "__main__":
    run_command(main, Arguments)
