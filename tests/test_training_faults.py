"""What stops a training run, or does not."""


import keras
import numpy as np
import pytest

from roformer_zh.training import Phase, Trainer, TrainingOptions
from roformer_zh.training.objectives import MaskedLMObjective
from tests.training_models import (
    RegressionObjective,
    TinyBatches,
    TinyStage,
    build_regression,
    lines_of,
    masked_lm,
    phase,
    regression,
)


def not_a_number(batch):
    batch["y"][0] = np.nan


def test_nan_stops_with_update_batch_and_checkpoint(tmp_path):
    trainer = regression(tmp_path, checkpoint_every=2)
    message = r"update 4 \(batch 3 of stage short\) is not finite: loss nan.*update-000000002.npz"
    with pytest.raises(RuntimeError, match=message):
        trainer.fit([phase(changes={3: not_a_number})])
    assert all(np.isfinite(weight).all() for weight in trainer.model.get_weights())


def test_nan_before_the_first_checkpoint(tmp_path):
    with pytest.raises(RuntimeError, match=r"no checkpoint exists yet.*--skip-nonfinite"):
        regression(tmp_path).fit([phase(changes={0: not_a_number})])


def test_skipped_updates_change_nothing_and_are_counted(tmp_path):
    trainer = regression(tmp_path, skip_nonfinite=2)
    result = trainer.fit([phase(steps=3, changes={1: not_a_number, 2: not_a_number})])
    assert result["finished"] and result["updates"] == 3
    assert [line["batch"] for line in lines_of(tmp_path, "skipped")] == [1, 2]
    assert trainer.train_step.optimizer.iterations.numpy() == 1
    with pytest.raises(RuntimeError, match="is not finite"):
        regression(tmp_path / "other", skip_nonfinite=1).fit(
            [phase(steps=3, changes={1: not_a_number, 2: not_a_number})]
        )


def test_float16_overflow_halves_the_loss_scale_and_goes_on(tmp_path):
    def large(batch):
        batch["y"] *= 1e9

    trainer = regression(tmp_path, dtype_policy="mixed_float16")
    trainer.fit([phase(steps=3, changes={1: large})])
    assert [line["loss_scale"] for line in lines_of(tmp_path)] == [2**15, 2**14, 2**14]
    assert not lines_of(tmp_path, "skipped")
    assert trainer.train_step.optimizer.iterations.numpy() == 2


def test_a_batch_without_weight_is_an_error(tmp_path):
    def empty(batch):
        batch["weights"] *= 0

    with pytest.raises(ValueError, match=r"batch 1 of stage short \(6 rows\) weighs 0"):
        regression(tmp_path).fit([phase(changes={1: empty})])


def test_sums_that_do_not_match_the_weight_are_an_error(tmp_path):
    class Wrong(RegressionObjective):
        def weight(self, batch):
            return 2 * super().weight(batch)

    trainer = Trainer(build_regression, Wrong(), tmp_path, TrainingOptions(verbose=False))
    with pytest.raises(ValueError, match="batch 0 of stage short they are 6 and 12"):
        trainer.fit([phase()])


def test_variables_that_the_loss_does_not_depend_on_stay(tmp_path, capsys):
    def build():
        inputs = keras.Input((3,))
        score = keras.layers.Dense(1)(inputs)
        model = keras.Model(inputs, [score, keras.layers.Dense(1, name="spare")(inputs)])
        model.score = keras.Model(inputs, score)
        return model

    class ScoreOnly(RegressionObjective):
        def __call__(self, model, batch, training):
            return super().__call__(model.score, batch, training)

    trainer = Trainer(build, ScoreOnly(), tmp_path, TrainingOptions(micro_batch_size=2))
    before = trainer.model.get_weights()
    trainer.fit([phase()])
    changed = [
        not np.array_equal(a, b) for a, b in zip(before, trainer.model.get_weights(), strict=True)
    ]
    assert changed == [True, True, False, False]
    assert "does not depend on 2 trainable variables" in capsys.readouterr().out


@pytest.mark.parametrize(
    "fields",
    [
        {"micro_batch_size": 0},
        {"log_every": 0},
        {"checkpoint_every": -1},
        {"keep_checkpoints": 0},
        {"skip_nonfinite": -1},
        {"startup_timeout": 0},
    ],
)
def test_options_out_of_range(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))} must be at least|above 0"):
        TrainingOptions(**fields)


def test_another_backend_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="needs Keras on TensorFlow; it runs on jax"):
        Trainer(build_regression, RegressionObjective(), tmp_path)


def test_recomputation_changes_nothing(tmp_path):
    weights = []
    for recompute in (False, True):
        stage = TinyStage(steps=3, learning_rate=1e-2)
        trainer = masked_lm(tmp_path / str(recompute), 0.3, recompute=recompute, micro_batch_size=3)
        trainer.fit([Phase(stage, TinyBatches(stage))])
        assert trainer.model.encoder.recompute is recompute
        weights.append(trainer.model.get_weights())
    assert max(np.abs(a - b).max() for a, b in zip(*weights, strict=True)) <= 1e-6


def test_a_model_of_another_dtype_policy_is_refused(tmp_path):
    def build():
        from roformer_zh import Encoder, EncoderConfig

        sizes = dict(num_layers=1, num_heads=2, hidden_dim=4, intermediate_dim=4)
        return Encoder(EncoderConfig(vocabulary_size=7, **sizes), dtype="float32")

    options = TrainingOptions(dtype_policy="mixed_float16")
    with pytest.raises(ValueError, match="of the dtype policy mixed_float16; got float32"):
        Trainer(build, MaskedLMObjective(), tmp_path, options)


def test_layers_with_random_state_are_refused(tmp_path):
    def build():
        inputs = keras.Input((3,))
        hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(2)(inputs))
        return keras.Model(inputs, keras.layers.Dense(1)(hidden))

    with pytest.raises(ValueError, match="keeps random state"):
        Trainer(build, RegressionObjective(), tmp_path)


def test_a_failing_batch_source_is_reported(tmp_path):
    def fails(batch):
        raise OSError("shard 7 is gone")

    with pytest.raises(OSError, match="shard 7 is gone"):
        regression(tmp_path).fit([phase(changes={2: fails})])


def test_no_phases(tmp_path):
    with pytest.raises(ValueError, match="at least one phase"):
        regression(tmp_path).fit([])
