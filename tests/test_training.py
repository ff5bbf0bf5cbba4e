"""The training loop on one device: how a batch is cut, what is logged, which weights stay."""

import csv
import dataclasses
import os
import signal
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from roformer_zh.training import Phase, Selection
from roformer_zh.training.objectives import MaskedLMObjective
from roformer_zh.training.steps import cut, cut_plan
from tests.training_models import (
    VOCABULARY,
    RegressionBatches,
    TinyBatches,
    TinyStage,
    lines_of,
    masked_lm,
    phase,
    regression,
)

# Cutting


@pytest.mark.parametrize("rows", [1, 5, 7, 100])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("micro_batch_size", [None, 1, 3])
def test_every_row_goes_to_one_replica_once(rows, replicas, micro_batch_size):
    count, size = cut_plan(rows, replicas, micro_batch_size)
    assert size <= (micro_batch_size or rows)
    ids = np.arange(1, rows + 1)
    parts = [cut(ids, replica, count, size) for replica in range(replicas)]
    assert all(part.shape == (count, size) for part in parts)
    seen = np.concatenate([part.ravel() for part in parts])
    assert sorted(seen[seen > 0]) == list(ids)


def test_accumulation_weighs_tokens_not_micro_batches(tmp_path):
    def one_and_nine(batch):
        weights = np.zeros_like(batch["mask_weights"])
        weights[0, 0] = 1
        weights[3:, :] = 1
        return {**batch, "mask_weights": weights}

    class Batches(TinyBatches):
        def batch(self, step):
            return one_and_nine(super().batch(step))

    weights = []
    for size in (None, 3):
        stage = TinyStage(steps=1, batch_size=6, learning_rate=1e-2)
        trainer = masked_lm(tmp_path / str(size), micro_batch_size=size)
        trainer.fit([Phase(stage, Batches(stage))])
        weights.append(trainer.model.get_weights())
    assert max(np.abs(a - b).max() for a, b in zip(*weights, strict=True)) <= 1e-6


# What is measured


def test_first_loss_is_ln_v_and_a_few_rows_are_learned(tmp_path):
    stage = TinyStage(steps=200, batch_size=8, learning_rate=2e-2, warmup_steps=10)
    fixed = TinyBatches(stage).batch(0)
    source = SimpleNamespace(batch=lambda step: fixed, fingerprint=dict)
    trainer = masked_lm(tmp_path)
    trainer.fit([Phase(stage, source)])
    lines = lines_of(tmp_path)
    assert lines[0]["loss"] == pytest.approx(np.log(VOCABULARY), abs=0.5)
    assert MaskedLMObjective.chance_loss(50000) == pytest.approx(10.82, abs=0.005)
    assert trainer.evaluate([fixed])["loss"] < 0.5


def test_accuracy_is_right_tokens_over_masked_tokens(tmp_path):
    trainer = masked_lm(tmp_path)
    source = TinyBatches(TinyStage())
    batches = [source.batch(0), source.batch(1)]
    for batch, chosen in zip(batches, (1, 9), strict=True):
        weights = np.zeros_like(batch["mask_weights"])
        weights.ravel()[:chosen] = 1
        batch["mask_weights"] = weights
    best = [np.argmax(trainer.model(_inputs(batch)), -1) for batch in batches]
    batches[0]["mask_ids"] = best[0].astype("int32")
    batches[1]["mask_ids"] = (best[1].astype("int32") + 1) % VOCABULARY
    assert trainer.evaluate(batches)["accuracy"] == pytest.approx(0.1)
    padded = [
        {name: np.pad(a, [(0, 100)] + [(0, 0)] * (a.ndim - 1)) for name, a in b.items()}
        for b in batches
    ]
    assert trainer.evaluate(padded)["accuracy"] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="nothing to average"):
        trainer.evaluate([{**batches[0], "mask_weights": 0 * batches[0]["mask_weights"]}])


def _inputs(batch):
    """The model's inputs of a batch."""
    return {name: batch[name] for name in MaskedLMObjective.inputs}


def test_log_lines(tmp_path, capsys):
    stage = TinyStage(steps=6, batch_size=4)
    trainer = masked_lm(tmp_path, log_every=4, verbose=True)
    result = trainer.fit([Phase(stage, TinyBatches(stage), lambda: [TinyBatches(stage).batch(9)])])
    first, last = lines_of(tmp_path)
    assert (first["update"], last["update"], last["step"]) == (4, 6, 6)
    expected = {
        "stage",
        "learning_rate",
        "loss",
        "accuracy",
        "gradient_norm",
        "loss_scale",
        "clipped",
        "tokens_per_second",
        "input_wait",
        "memory_gb",
    }
    assert expected <= set(first)
    assert first["examples"] == 16 and first["tokens"] == 16 * 7
    (held_out,) = lines_of(tmp_path, "validation")
    assert result["stages"][0]["val_loss"] == held_out["val_loss"]
    said = capsys.readouterr().out
    assert "weight decay 0.01 on 7 of 21 trainable variables" in said
    assert "short 4/6: loss" in said and "short, after update 6: val_loss" in said


def test_one_trace_a_length(tmp_path):
    rng = np.random.default_rng(0)
    stage = TinyStage(steps=50, batch_size=2)
    lengths = rng.choice([3, 4, 6], 50)

    def batch(step):
        changed = dataclasses.replace(stage, sequence_length=int(lengths[step]))
        return TinyBatches(changed).batch(step)

    source = SimpleNamespace(batch=batch, fingerprint=dict)
    assert masked_lm(tmp_path).fit([Phase(stage, source)])["traces"] == 3


# Callbacks and selection


def test_keras_callbacks_that_need_only_logs(tmp_path):
    validation = [RegressionBatches(TinyStage(), seed=5).batch(0)]
    path = tmp_path / "log.csv"
    callbacks = [
        keras.callbacks.CSVLogger(path),
        keras.callbacks.EarlyStopping("val_loss", patience=1, mode="max"),
    ]
    trainer = regression(tmp_path)
    result = trainer.fit(
        [phase(steps=20, learning_rate=1e-2, validation=lambda: validation)],
        Selection("loss", every=2),
        callbacks,
    )
    assert result["finished"] and result["updates"] == 4
    with open(path) as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert {"loss", "val_loss"} <= set(rows[0])


def test_a_terminal_shows_keras_progress_bar(tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    validation = [RegressionBatches(TinyStage(), seed=5).batch(0)]
    trainer = regression(tmp_path, verbose=True)
    trainer.fit([phase(steps=4, validation=lambda: validation)], Selection("loss", every=2))
    said = capsys.readouterr().out
    assert "Epoch 2/2" in said and "2/2" in said and "val_loss" in said
    assert "short 1/4" not in said


def test_selection_keeps_the_best_weights(tmp_path):
    values = iter([3.0, 1.0, 2.0, 2.0])
    trainer = regression(tmp_path, keep_checkpoints=1)
    seen = []

    def evaluate(batches):
        seen.append(trainer.model.get_weights())
        return {"loss": next(values)}

    trainer.evaluate = evaluate
    phases = [phase(steps=20, validation=list)]
    result = trainer.fit(phases, Selection("loss", every=3, patience=2))
    assert result["updates"] == 12 and result["finished"]
    assert result["best"] == {"update": 6, "value": 1.0, "val_loss": 1.0}
    for weight, best, last in zip(trainer.model.get_weights(), seen[1], seen[3], strict=True):
        assert np.array_equal(weight, best) and not np.array_equal(weight, last)


def test_more_is_better_except_for_loss():
    assert Selection("accuracy").improves(0.6, 0.5)
    assert not Selection("accuracy").improves(0.5, 0.5)
    assert Selection("loss").improves(0.4, 0.5)
    assert Selection("loss").improves(0.4, None)


def test_sigterm_saves_and_the_run_continues(tmp_path):
    def stop(batch):
        os.kill(os.getpid(), signal.SIGTERM)

    straight = regression(tmp_path / "straight")
    straight.fit([phase(steps=9)])
    result = regression(tmp_path / "stopped").fit([phase(steps=9, changes={3: stop})])
    assert not result["finished"] and 2 <= result["updates"] < 9
    again = regression(tmp_path / "stopped")
    result = again.fit([phase(steps=9)])
    assert result["finished"] and result["updates"] == 9
    for one, other in zip(straight.model.get_weights(), again.model.get_weights(), strict=True):
        assert np.array_equal(one, other)
