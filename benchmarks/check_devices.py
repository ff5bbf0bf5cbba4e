"""Checks that several devices train the same model as one of them."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np

from roformer_zh.batches.stages import Stage
from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table, read_metrics
from roformer_zh.training import Phase, Trainer, TrainingOptions
from roformer_zh.training.cluster import open_strategy


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Train a small model on one device and on several, and compare losses and weights.

    Run it once on a new machine before a long run: every GPU computes a part of each batch, with
    unequal numbers of masked tokens. `--devices CPU:0 CPU:1` tries it without a GPU.
    """

    devices: tuple[str, ...] = ()
    """Devices such as GPU:0 GPU:1; none = all GPUs."""
    steps: int = 20
    """Updates."""
    batch_size: int = 13
    """Rows an update; a number that the devices do not divide is the harder check."""
    micro_batch_size: int | None = None
    """Rows that a device computes at once."""
    dtype_policy: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    """Keras dtype policy."""
    jit: bool = False
    """Compile with XLA."""
    tolerance: float = 1e-3
    """Largest difference of the losses that passes."""


def main(args):
    """Prints a table of losses; raises if they differ by more than the tolerance."""
    options = TrainingOptions(
        strategy="mirrored",
        devices=args.devices,
        micro_batch_size=args.micro_batch_size,
        dtype_policy=args.dtype_policy,
        jit=args.jit,
        log_every=1,
        verbose=False,
    )
    several = open_strategy(options)
    import tensorflow as tf

    runs = [train(args, options, strategy) for strategy in (tf.distribute.get_strategy(), several)]
    (one, weights), (other, other_weights) = runs
    found = {
        "devices": several.num_replicas_in_sync,
        "loss": float(np.abs(np.subtract(one, other)).max()),
        "weights": max(
            float(np.abs(a - b).max()) for a, b in zip(weights, other_weights, strict=True)
        ),
    }
    steps = zip(one, other, strict=True)
    rows = [
        {"update": n, "1 device": f"{a:.6f}", f"{found['devices']} devices": f"{b:.6f}"}
        for n, (a, b) in enumerate(steps, start=1)
    ]
    print(markdown_table(rows))
    print(f"largest difference: loss {found['loss']:.1e}, weights {found['weights']:.1e}")
    if not found["loss"] <= args.tolerance:
        raise RuntimeError(
            f"the losses must agree within {args.tolerance:g}; they differ by {found['loss']:g}: "
            "do not train on these devices together before the cause is known"
        )
    return found


def train(args, options, strategy):
    """(losses, weights) of a few updates without dropout."""
    from roformer_zh.training.objectives import MaskedLMObjective

    stage = Stage("check", 128, args.batch_size, args.steps, learning_rate=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(build_model, MaskedLMObjective(), folder, options, strategy=strategy)
        trainer.fit([Phase(stage, RandomBatches(stage))])
        lines = read_metrics(Path(folder) / "metrics.jsonl")
    return [line["loss"] for line in lines], trainer.model.get_weights()


def build_model():
    """A tiny RoFormer without dropout."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM

    config = EncoderConfig.preset(
        "roformer_tiny", vocabulary_size=1000, dropout=0.0, attention_dropout=0.0
    )
    return MaskedLM(Encoder(config))


class RandomBatches:
    """Rows of random tokens, of which 1 to 20 are masked."""

    def __init__(self, stage):
        self.stage = stage

    def batch(self, step):
        """The batch of one update."""
        rng = np.random.default_rng(step)
        rows, length = self.stage.batch_size, self.stage.sequence_length
        ids = rng.integers(5, 1000, (rows, length), dtype="int32")
        positions = np.sort(np.argsort(rng.random((rows, length)))[:, :20]).astype("int32")
        return {
            "token_ids": ids,
            "segment_ids": np.zeros_like(ids),
            "padding_mask": np.ones(ids.shape, bool),
            "mask_positions": positions,
            "mask_ids": np.take_along_axis(ids, positions, 1),
            "mask_weights": (np.arange(20) < rng.integers(1, 21, (rows, 1))).astype("float32"),
        }

    def fingerprint(self):
        """Nothing else decides the batches."""
        return {}


if __name__ == "__main__":
    run_command(main, Arguments)
