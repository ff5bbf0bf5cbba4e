"""A tiny MaskedLM and a tiny regression, with batches of unequal weights and stages."""

import dataclasses
import json

import numpy as np

VOCABULARY = 31


@dataclasses.dataclass(frozen=True)
class TinyStage:
    """What the trainer reads of a stage."""

    name: str = "short"
    sequence_length: int = 7
    batch_size: int = 6
    steps: int = 5
    learning_rate: float = 1e-3
    warmup_steps: int = 0
    schedule: str = "constant"


class TinyBatches:
    """Batches of a repeating pattern, which a model can learn; rows have 0 to 3 masked tokens."""

    slots = 3

    def __init__(self, stage, seed=0, rows=None):
        self.stage, self.seed = stage, seed
        self.rows = rows or (lambda step: stage.batch_size)

    def batch(self, step):
        rng = np.random.default_rng((self.seed, self.stage.sequence_length, step))
        rows, length = self.rows(step), self.stage.sequence_length
        first = rng.integers(5, VOCABULARY, (rows, 1))
        tokens = (5 + (first + np.arange(length)) % (VOCABULARY - 5)).astype("int32")
        positions = np.stack([rng.permutation(length)[: self.slots] for _ in range(rows)])
        weights = np.arange(self.slots) < rng.integers(0, self.slots + 1, (rows, 1))
        weights[0, 0] = True
        labels = np.take_along_axis(tokens, positions, 1)
        inputs = tokens.copy()
        np.put_along_axis(inputs, positions, np.where(weights, 4, labels), 1)
        return {
            "token_ids": inputs,
            "segment_ids": np.zeros_like(inputs),
            "padding_mask": np.ones(inputs.shape, bool),
            "mask_positions": positions.astype("int32"),
            "mask_ids": labels,
            "mask_weights": weights.astype("float32"),
        }

    def fingerprint(self):
        return {"seed": self.seed, "length": self.stage.sequence_length}


def build_model(dropout=0.0, **fields):
    """A function that makes the tiny MaskedLM."""

    def build():
        from roformer_zh import Encoder, EncoderConfig, MaskedLM

        sizes = dict(num_layers=1, num_heads=2, hidden_dim=12, intermediate_dim=20, **fields)
        config = EncoderConfig(
            vocabulary_size=VOCABULARY, dropout=dropout, attention_dropout=dropout, **sizes
        )
        return MaskedLM(Encoder(config))

    return build


def build_regression():
    """A LayerNorm and a Dense layer: traces in a moment."""
    import keras

    inputs = keras.Input((3,))
    hidden = keras.layers.LayerNormalization(name="norm")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, dtype="float32", name="score")(hidden))


class RegressionObjective:
    """Squared error; `weights` are 0 on rows that do not count."""

    def __call__(self, model, batch, training):
        import tensorflow as tf

        errors = model(batch["x"], training=training)[:, 0] - batch["y"]
        return {
            "loss": tf.reduce_sum(batch["weights"] * errors**2),
            "weight": tf.reduce_sum(batch["weights"]),
        }

    def weight(self, batch):
        return float(batch["weights"].sum())

    def fingerprint(self):
        return {"kind": "regression"}


class RegressionBatches:
    """Rows of a linear function; `changes` maps a step to a function of its batch."""

    def __init__(self, stage, seed=0, changes=None):
        self.stage, self.seed, self.changes = stage, seed, changes or {}

    def batch(self, step):
        rng = np.random.default_rng((self.seed, step))
        x = rng.standard_normal((self.stage.batch_size, 3)).astype("float32")
        y = x @ np.array([1.0, -2.0, 0.5], "float32")
        batch = {"x": x, "y": y, "weights": np.ones(len(x), "float32")}
        if step in self.changes:
            batch = self.changes[step](batch) or batch
        return batch

    def fingerprint(self):
        return {"seed": self.seed}


def regression(folder, **options):
    """A trainer of the tiny regression."""
    from roformer_zh.training import Trainer, TrainingOptions

    options = {"verbose": False, "log_every": 1, **options}
    return Trainer(build_regression, RegressionObjective(), folder, TrainingOptions(**options))


def masked_lm(folder, dropout=0.0, **options):
    """A trainer of the tiny MaskedLM."""
    from roformer_zh.training import Trainer, TrainingOptions
    from roformer_zh.training.objectives import MaskedLMObjective

    options = TrainingOptions(**{"verbose": False, "log_every": 1, **options})
    return Trainer(build_model(dropout), MaskedLMObjective(), folder, options)


def lines_of(folder, kind="train"):
    """Lines of one kind of metrics.jsonl."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["kind"] == kind]


def phase(steps=5, changes=None, validation=None, **fields):
    """A phase of regression batches."""
    from roformer_zh.training import Phase

    stage = TinyStage(steps=steps, **fields)
    return Phase(stage, RegressionBatches(stage, changes=changes), validation)


def local(variable):
    """One device has one copy."""
    return variable
