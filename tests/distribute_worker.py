"""Trains the tiny MaskedLM under one way of cutting the batch; run by the tests as a process.

`python -m tests.distribute_worker JSON` where JSON holds `output` and changes to SETTINGS; the
final weights and what `fit` returned go to `output`. TF_CONFIG makes it one of several workers.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from tests.training_models import TinyBatches, TinyStage, build_model

SETTINGS = dict(
    strategy="one",
    devices=(),
    micro_batch_size=None,
    steps=20,
    batch_size=8,
    dropout=0.0,
    run_folder=None,
    checkpoint_every=1000,
    startup_timeout=120,
    stages=1,
    pause=0.0,
    validation=True,
)


class SlowBatches(TinyBatches):
    """Batches that take `pause` seconds, so that a run can be killed in the middle."""

    pause = 0.0

    def batch(self, step):
        import time

        time.sleep(self.pause)
        return super().batch(step)


def stages_of(settings):
    """One stage, or two of different lengths."""
    first = TinyStage("first", 7, settings["batch_size"], settings["steps"], 1e-3, 3)
    second = TinyStage("second", 9, settings["batch_size"] - 3, settings["steps"], 1e-3)
    return [first, second][: settings["stages"]]


def options_of(settings):
    """The `TrainingOptions` of the settings."""
    from roformer_zh.training import TrainingOptions

    return TrainingOptions(
        strategy=settings["strategy"],
        devices=tuple(settings["devices"]),
        micro_batch_size=settings["micro_batch_size"],
        checkpoint_every=settings["checkpoint_every"],
        startup_timeout=settings["startup_timeout"],
        log_every=5,
    )


def held_out(source):
    """A function that gives two batches which are not trained on."""
    return lambda: [source.batch(1000), source.batch(1001)]


def train(settings, strategy=None):
    """Trains; returns (trainer, result)."""
    from roformer_zh.training import Phase, Trainer
    from roformer_zh.training.objectives import MaskedLMObjective

    settings = {**SETTINGS, **settings}
    trainer = Trainer(
        build_model(settings["dropout"]),
        MaskedLMObjective(),
        settings["run_folder"],
        options_of(settings),
        strategy=strategy,
    )
    sources = [SlowBatches(stage) for stage in stages_of(settings)]
    for source in sources:
        source.pause = settings["pause"]
    phases = [
        Phase(source.stage, source, held_out(source) if settings["validation"] else None)
        for source in sources
    ]
    return trainer, trainer.fit(phases)


def main(settings):
    """Trains once a micro-batch size, on one strategy, and writes the weights of each run."""
    from roformer_zh.training.cluster import open_strategy

    strategy, weights = open_strategy(options_of({**SETTINGS, **settings})), {}
    for size in settings.pop("micro_batch_sizes", [None]):
        folder = os.path.join(settings["run_folder"], str(size))
        trainer, result = train(
            {**settings, "run_folder": folder, "micro_batch_size": size}, strategy
        )
        for number, weight in enumerate(trainer.model.get_weights()):
            weights[f"{size}/{number:03d}"] = weight
    np.savez(settings["output"], **weights, result=json.dumps(result))
    trainer.finish({**result, "finished": False})


if __name__ == "__main__":
    from roformer_zh.command import EXPECTED_ERRORS

    try:
        main(json.loads(sys.argv[1]))
    except EXPECTED_ERRORS as error:
        sys.exit("error: " + " ".join(str(error).split()))
