"""Cases on 1, 2 and 4 logical devices; `test_distribute.py` runs this file in a process of its own.

TensorFlow's devices are fixed at its first operation, so these cannot share a process with others.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

from roformer_zh.dropout import Dropout, dropout_seed
from roformer_zh.training import Phase, Trainer, TrainingOptions
from roformer_zh.training import steps as training_steps
from roformer_zh.training.objectives import MaskedLMObjective
from roformer_zh.training.steps import all_reduce_sum, seed_of
from tests.distribute_worker import train
from tests.training_models import TinyBatches, TinyStage, build_model

NUM_DEVICES = 4
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def strategies():
    """Strategies by their number of replicas."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * NUM_DEVICES,
    )

    def mirrored(count):
        names = [f"CPU:{index}" for index in range(count)]
        return tf.distribute.MirroredStrategy(names, tf.distribute.ReductionToOneDevice())

    return {1: tf.distribute.get_strategy(), 2: mirrored(2), 4: mirrored(4)}


@pytest.fixture(scope="module")
def reference(strategies, tmp_path_factory):
    """The trainer of one device without accumulation, and its loss a step."""
    return fit(strategies[1], tmp_path_factory.mktemp("one"))


def fit(strategy, folder, micro_batch_size=None, **changes):
    """(weights, lines of metrics.jsonl, trainer) after 20 updates of batches of 7 rows."""
    import json

    settings = dict(run_folder=folder, batch_size=7, micro_batch_size=micro_batch_size, **changes)
    trainer, _ = train(settings, strategy)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return trainer.model.get_weights(), [json.loads(line) for line in lines], trainer


def largest_difference(weights, others):
    """The largest absolute difference between two lists of arrays."""
    return max(np.abs(a - b).max() for a, b in zip(weights, others, strict=True))


def clipped(lines):
    """How many updates were clipped."""
    return round(sum(5 * line["clipped"] for line in lines if line["kind"] == "train"))


CUTS = {
    "1 replica, accumulation 2": (1, 4),
    "1 replica, accumulation 4": (1, 2),
    "2 replicas": (2, None),
    "2 replicas, accumulation 2": (2, 2),
    "2 replicas, accumulation 4": (2, 1),
    "4 replicas": (4, None),
    "4 replicas, accumulation 2": (4, 1),
}


@pytest.mark.parametrize("name", CUTS)
def test_same_weights_however_the_batch_is_cut(strategies, reference, tmp_path, name):
    replicas, micro_batch_size = CUTS[name]
    expected, expected_lines, _ = reference
    weights, lines, trainer = fit(strategies[replicas], tmp_path, micro_batch_size)
    difference = largest_difference(expected, weights)
    print(f"{name}: largest difference {difference:.1e}, clipped {clipped(lines)} of 20 updates")
    assert difference <= TOLERANCE
    assert clipped(lines) >= 15
    for line, other in zip(expected_lines, lines, strict=True):
        for key in {"loss", "val_loss", "gradient_norm"} & set(line):
            assert line[key] == pytest.approx(other[key], rel=1e-5)
    for variable in trainer.model.weights:
        copies = strategies[replicas].experimental_local_results(variable.value)
        assert all(np.array_equal(copies[0], copy) for copy in copies)


def test_equality_fails_when_gradients_are_averaged(strategies, reference, tmp_path, monkeypatch):
    def wrong(values):
        values = all_reduce_sum(values)
        if not isinstance(values, tuple):
            return values
        gradients, *rest = values
        return [gradient / 2 for gradient in gradients], *rest

    monkeypatch.setattr(training_steps, "all_reduce_sum", wrong)
    weights, _, _ = fit(strategies[2], tmp_path, validation=False)
    assert largest_difference(reference[0], weights) > 100 * TOLERANCE


def test_equality_fails_when_each_replica_divides_by_its_own_weight(
    strategies, reference, tmp_path, monkeypatch
):
    sum_gradients = training_steps.TrainStep._sum_gradients

    def wrong(self, parts, factor, update, replica):
        factor = factor * 7.0 / tf.maximum(tf.reduce_sum(parts["mask_weights"]), 1.0)
        return sum_gradients(self, parts, factor, update, replica)

    monkeypatch.setattr(training_steps.TrainStep, "_sum_gradients", wrong)
    weights, _, _ = fit(strategies[2], tmp_path, validation=False)
    assert largest_difference(reference[0], weights) > 100 * TOLERANCE


def test_averaged_sums_are_noticed(strategies, tmp_path, monkeypatch):
    def wrong(values):
        return tf.nest.map_structure(lambda value: value / 2, all_reduce_sum(values))

    monkeypatch.setattr(training_steps, "all_reduce_sum", wrong)
    with pytest.raises(ValueError, match="must have the weight that its `weight` method gives"):
        fit(strategies[2], tmp_path)


def test_batches_with_fewer_rows_than_replicas(strategies, tmp_path):
    stage, weights = TinyStage(batch_size=5, steps=4), {}
    for replicas in (1, 4):
        options, folder = TrainingOptions(verbose=False), tmp_path / str(replicas)
        arguments = (build_model(), MaskedLMObjective(), folder, options)
        trainer = Trainer(*arguments, strategy=strategies[replicas])
        trainer.fit([Phase(stage, TinyBatches(stage, rows=lambda step: (1, 5, 3, 2)[step]))])
        assert trainer.train_step.traces == 1
        weights[replicas] = trainer.model.get_weights()
    assert largest_difference(weights[1], weights[4]) <= TOLERANCE


class GivenLosses:
    """An objective whose losses lie in the batch; the model only has to be there."""

    def __call__(self, model, batch, training):
        drift = 0.0 * tf.add_n([tf.reduce_sum(v.value) for v in model.trainable_variables])
        return {
            "loss": tf.reduce_sum(batch["losses"] * batch["weights"]) + drift,
            "weight": tf.reduce_sum(batch["weights"]),
        }

    def weight(self, batch):
        return float(batch["weights"].sum())

    def fingerprint(self):
        return {"kind": "given"}


class GivenBatches:
    """The same batch at every step."""

    def __init__(self, **arrays):
        self.arrays = {name: np.asarray(array, "float32") for name, array in arrays.items()}

    def batch(self, step):
        return self.arrays

    def fingerprint(self):
        return {}


def given_trainer(strategy, folder, **options):
    options = TrainingOptions(verbose=False, log_every=1, **options)
    return Trainer(build_model(), GivenLosses(), folder, options, strategy=strategy)


def test_reported_loss_is_weighted_by_tokens_not_by_replicas(strategies, tmp_path):
    batches = GivenBatches(losses=[[1] * 6, [3] * 6], weights=[[1, 1, 0, 0, 0, 0], [1] * 6])
    trainer = given_trainer(strategies[2], tmp_path)
    result = trainer.fit([Phase(TinyStage(batch_size=2, steps=1), batches)])
    assert result["stages"][0]["loss"] == 2.5
    assert trainer.evaluate([batches.batch(0)])["loss"] == 2.5


def test_a_value_that_is_not_finite_on_one_replica_skips_the_update_on_all(strategies, tmp_path):
    batches = GivenBatches(losses=[[1.0], [np.nan]], weights=[[1], [1]])
    trainer = given_trainer(strategies[2], tmp_path, skip_nonfinite=3)
    before = trainer.model.get_weights()
    trainer.fit([Phase(TinyStage(batch_size=2, steps=3), batches)])
    assert trainer.train_step.optimizer.iterations.numpy() == 0
    for variable, value in zip(trainer.model.weights, before, strict=True):
        for copy in strategies[2].experimental_local_results(variable.value):
            assert np.array_equal(copy, value)


def test_dropout_differs_between_replicas_and_repeats_with_the_seed(strategies):
    layer = Dropout(0.5, salt=1)

    @tf.function
    def masks(seed, update):
        def on_replica():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            with dropout_seed(seed_of(tf.stack([seed, 0]), update, 0, replica)):
                return layer(tf.ones((64,)), training=True)

        return strategies[4].experimental_local_results(strategies[4].run(on_replica))

    first, again, later = (np.array(masks(7, update)) for update in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, later)
    assert len({mask.tobytes() for mask in first}) == 4


def test_dropout_in_training_repeats_with_the_seed(strategies, tmp_path):
    settings = dict(dropout=0.3, steps=3, validation=False)
    runs = [fit(strategies[2], tmp_path / str(i), **settings)[0] for i in range(2)]
    assert largest_difference(*runs) == 0


def test_model_made_outside_the_scope_is_refused(strategies, tmp_path):
    model = build_model()()
    with pytest.raises(ValueError, match="build_model must make the model when it is called"):
        Trainer(lambda: model, MaskedLMObjective(), tmp_path, strategy=strategies[2])


def test_resume_on_another_number_of_replicas(strategies, reference, tmp_path):
    stage = TinyStage("first", 7, 7, 20, 1e-3, 3)

    class Stop(TinyBatches):
        def batch(self, step):
            if step == 12:
                raise ValueError("stop here")
            return super().batch(step)

    options = TrainingOptions(verbose=False, checkpoint_every=10, log_every=5)
    arguments = (build_model(), MaskedLMObjective(), tmp_path, options)
    with pytest.raises(ValueError, match="stop here"):
        Trainer(*arguments, strategy=strategies[4]).fit([Phase(stage, Stop(stage))])
    trainer = Trainer(*arguments, strategy=strategies[2])
    result = trainer.fit([Phase(stage, TinyBatches(stage))])
    assert result["updates"] == 20
    assert largest_difference(reference[0], trainer.model.get_weights()) <= TOLERANCE


def test_xla_and_float16_agree_within_their_rounding(strategies, reference, tmp_path):
    stage = TinyStage("first", 7, 7, 20, 1e-3, 3)
    for name, tolerance in (("float32", 1e-5), ("mixed_float16", 2e-2)):
        jit = name == "float32"
        size = None if jit else 2
        options = TrainingOptions(verbose=False, jit=jit, dtype_policy=name, micro_batch_size=size)
        folder = tmp_path / name
        trainer = Trainer(
            build_model(), MaskedLMObjective(), folder, options, strategy=strategies[2]
        )
        trainer.fit([Phase(stage, TinyBatches(stage))])
        difference = largest_difference(reference[0], trainer.model.get_weights())
        print(f"2 replicas, {name}, XLA {jit}: largest difference {difference:.1e}")
        assert difference <= tolerance
