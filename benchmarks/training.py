"""Times a step of MLM training beside the peers', each in a process of its own."""

import contextlib
import dataclasses
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Worker, serve, take_turns, versions
from roformer_zh.command import run_command
from roformer_zh.config import EncoderConfig
from roformer_zh.costs import training_flops
from roformer_zh.reports import markdown_table, percent

VARIANTS = ("full", "chunked", "recompute", "jit")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Times MLM training (forward, backward, clipping, AdamW) and prints a table a size.

    This suite's row is one update as Trainer runs it, dropout on, float32. transformers computes
    logits at every position, the suite at the masked ones. Processes take turns step by step, so
    that other work on the machine falls on both. Useful FLOP/s count what the model needs, without
    recomputation and without unmasked logits, for both; the peak is the best square product of
    float32 matrices that either library reached in this run.
    """

    peer_python: Path | None = None
    """Interpreter of an environment with torch and transformers; None = without the peer."""
    keras_hub_python: Path | None = None
    """Interpreter of an environment with keras-hub; None = without its RoFormerV2."""
    sizes: tuple[str, ...] = ("6x384x6x512x4", "4x256x4x1536x4")
    """Layers x width x heads x length x batch."""
    variants: tuple[str, ...] = VARIANTS
    """What to time: full, chunked, recompute, jit, or several joined, such as chunked+jit."""
    vocabulary: int = 50000
    """Rows of the token table."""
    masked: float = 0.15
    """Share of tokens that are predicted."""
    rounds: int = 3
    """Turns a process takes."""
    steps: int = 2
    """Steps a turn; the median of all counts."""
    warmup: int = 2
    """Steps before the first turn."""
    threads: int = 2
    """Processor threads."""
    dropout: float = 0.1
    """Both dropout rates of the suite's models."""
    worker: str = ""
    """Inside the suite's own worker only: what it is to time."""


def main(args):
    """Prints a table a size; returns its rows."""
    if args.worker:
        return work(json.loads(args.worker))
    print(versions("tensorflow", "keras", "numpy"))
    tables = {}
    for size in args.sizes:
        tables[size] = compare(args, size)
        print(f"\nlayers x width x heads x length x batch: {size}\n")
        print(markdown_table(tables[size]), flush=True)
    return tables


def compare(args, size):
    """The rows of one size: every variant in turn beside the one process of the peer."""
    options = read_size(args, size)
    with contextlib.ExitStack() as stack:
        peer = None
        if args.peer_python:
            command = (args.peer_python, "-m", "benchmarks.transformers_peer", json.dumps(options))
            peer = stack.enter_context(Worker(command, args.threads))
            print(peer.facts["versions"], flush=True)
            peer.run(args.warmup)
            peer.seconds.clear()
        found, peaks = [], [peer.matmul_peak()] if peer else []
        for name, command in timed_commands(args, options).items():
            speed, theirs, memory, peak = measure(args, options, command, peer)
            found.append((name, speed, speed / theirs if peer else None, memory))
            peaks.append(peak)
        if peer:
            speed = options["batch"] * options["length"] / peer.median
            found.append(("transformers", speed, 1.0, peer.close()))
    config = model_config({**options, "variant": "full"})
    batch, length = options["batch"], options["length"]
    flops = training_flops(config, batch, length, mask_slots(options)) / (batch * length)
    return [describe(*row, memory=found[-1][3] if peer else None, flops=flops, peak=max(peaks))
            for row in found]


def timed_commands(args, options):
    """The workers to time beside transformers: row of the table to command."""
    commands = {
        f"roformer_zh, {variant}": (sys.executable, "-m", "benchmarks.training", "--worker",
                                    json.dumps({**options, "variant": variant}))
        for variant in args.variants
    }
    if args.keras_hub_python:
        commands["keras-hub RoFormerV2"] = (
            args.keras_hub_python, "-m", "benchmarks.keras_hub_peer", json.dumps(options))
    return commands


def measure(args, options, command, peer):
    """(tokens/s, transformers' meanwhile, peak memory, matmul peak) of one worker."""
    tokens = options["batch"] * options["length"]
    with Worker(command, args.threads) as ours:
        ours.run(args.warmup)
        ours.seconds.clear()
        before = len(peer.seconds) if peer else 0
        take_turns([ours, peer] if peer else [ours], args.rounds, args.steps)
        theirs = tokens / float(np.median(peer.seconds[before:])) if peer else math.nan
        peak = ours.matmul_peak()
        return tokens / ours.median, theirs, ours.close(), peak


def describe(name, speed, ratio, bytes_used, memory, flops, peak):
    """A row of the table."""
    row = {"model": name, "tokens/s": f"{speed:,.0f}"}
    if memory:
        row["x transformers"] = f"{ratio:.2f}"
    row["peak memory, MB"] = f"{bytes_used / 1e6:,.0f}"
    if memory:
        row["x its memory"] = f"{bytes_used / memory:.2f}"
    row["useful GFLOP/s"] = f"{speed * flops / 1e9:.1f}"
    row["% of matmul peak"] = percent(speed * flops / peak)
    row["matmul peak, GFLOP/s"] = f"{peak / 1e9:.1f}"
    return row


def read_size(args, size):
    """A worker's options from "layers x width x heads x length x batch"."""
    names = ("layers", "width", "heads", "length", "batch")
    parts = size.split("x")
    if len(parts) != len(names) or not all(part.isdigit() for part in parts):
        raise ValueError(
            f"a size must be layers x width x heads x length x batch, such as 6x384x6x512x4; "
            f"got {size!r}"
        )
    shared = ("vocabulary", "masked", "threads", "dropout")
    return {"task": "training", **dict(zip(names, map(int, parts), strict=True)),
            **{name: getattr(args, name) for name in shared}}


def model_config(options):
    """The configuration of a worker's model."""
    parts = options["variant"].split("+")
    unknown = sorted(set(parts) - set(VARIANTS))
    if unknown:
        raise ValueError(
            f"a variant must be of {', '.join(VARIANTS)}, or some joined by +; got {unknown[0]!r}"
        )
    return EncoderConfig(
        vocabulary_size=options["vocabulary"],
        num_layers=options["layers"],
        num_heads=options["heads"],
        hidden_dim=options["width"],
        intermediate_dim=4 * options["width"],
        dropout=options["dropout"],
        attention_dropout=options["dropout"],
        attention="chunked" if "chunked" in parts else "full",
    )


def work(options):
    """Serves steps of the suite's trainer."""
    import tensorflow as tf

    from roformer_zh import Encoder, MaskedLM, Trainer
    from roformer_zh.training.objectives import MaskedLMObjective
    from roformer_zh.training.options import TrainingOptions

    tf.config.threading.set_intra_op_parallelism_threads(options["threads"])
    parts, config = options["variant"].split("+"), model_config(options)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            lambda: MaskedLM(Encoder(config)),
            MaskedLMObjective(),
            folder,
            TrainingOptions(recompute="recompute" in parts, jit="jit" in parts, verbose=False),
        )
        rng, updates = np.random.default_rng(0), iter(range(10**9))

        def step():
            batch = make_batch(rng, options)
            weight, update = trainer.objective.weight(batch), next(updates)
            result = trainer.train_step(
                trainer.train_step.distribute(batch), weight, 1e-4, update, 0.0
            )
            result["gradient_norm"].numpy()

        serve(step, matmul)


def mask_slots(options):
    """Predicted tokens a row."""
    return math.ceil(options["masked"] * options["length"])


def make_batch(rng, options):
    """A batch of random tokens, every row full; equally many masked in each."""
    shape = options["batch"], options["length"]
    slots = mask_slots(options)
    token_ids = rng.integers(5, options["vocabulary"], shape, dtype=np.int32)
    positions = np.argsort(rng.random(shape), axis=1)[:, :slots].astype(np.int32)
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros(shape, np.int32),
        "padding_mask": np.ones(shape, bool),
        "mask_positions": positions,
        "mask_ids": np.take_along_axis(token_ids, positions, axis=1),
        "mask_weights": np.ones(positions.shape, np.float32),
    }


def matmul(size):
    """One square product on TensorFlow."""
    import tensorflow as tf

    left = right = tf.random.uniform((size, size))
    product = tf.function(lambda: tf.reduce_sum(tf.linalg.matmul(left, right)[:1]), autograph=False)
    return lambda: product().numpy()


if __name__ == "__main__":
    run_command(main, Arguments)
