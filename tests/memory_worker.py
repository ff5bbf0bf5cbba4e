"""Measures what one training step adds to a process: `python -m tests.memory_worker JSON`."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

TOY = dict(vocabulary_size=31, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=16)


def batch_of(config, batch_size, sequence_length, masked_positions):
    """A random batch of whole rows."""
    rng = np.random.default_rng(0)
    shape, slots = (batch_size, sequence_length), (batch_size, masked_positions)
    return {
        "token_ids": rng.integers(0, config.vocabulary_size, shape, dtype="int32"),
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": np.ones(shape, bool),
        "mask_positions": rng.integers(0, sequence_length, slots, dtype="int32"),
        "mask_ids": rng.integers(0, config.vocabulary_size, slots, dtype="int32"),
        "mask_weights": np.ones(slots, "float32"),
    }


def train(config, batch_size, sequence_length, masked_positions, updates=2, **options):
    """Some updates of a new model as `Trainer` makes them; returns the trainer."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM
    from roformer_zh.training import Trainer, TrainingOptions
    from roformer_zh.training.objectives import MaskedLMObjective

    config = EncoderConfig(**config)
    trainer = Trainer(
        lambda: MaskedLM(Encoder(config)),
        MaskedLMObjective(),
        tempfile.mkdtemp(),
        TrainingOptions(verbose=False, **options),
    )
    parts = trainer.train_step.distribute(
        batch_of(config, batch_size, sequence_length, masked_positions)
    )
    for update in range(updates):
        trainer.train_step(parts, batch_size * masked_positions, 1e-4, update, 0.0)
    return trainer


def peak_bytes():
    """The largest resident size of this program so far; ru_maxrss would count its parent's too."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def main(job):
    """Prints the growth over a process that has trained a toy."""
    train(TOY, 2, 8, 2)
    before = peak_bytes()
    trainer = train(**job)
    print(json.dumps({"growth": peak_bytes() - before, "updates": 2, "name": trainer.model.name}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
