"""Stopping and going on: exactly, from the last good checkpoint, and only with the same run."""

import contextlib
import json
import resource

import numpy as np
import pytest

from roformer_zh.training import OptimizerOptions, Phase, Selection, Trainer, TrainingOptions
from roformer_zh.training.checkpoint_files import Checkpoints, difference, in_one_line
from roformer_zh.training.objectives import MaskedLMObjective
from tests.training_models import (
    RegressionBatches,
    RegressionObjective,
    TinyBatches,
    TinyStage,
    build_model,
    build_regression,
)

TIMES = ("tokens_per_second", "input_wait", "memory_gb")


class Stopped(Exception):
    """Stands for the end of the process."""


class Until:
    """Batches that end with `Stopped` at a step; remembers the steps and shapes it gave."""

    def __init__(self, source, end=None):
        self.source, self.end, self.given = source, end, []

    def batch(self, step):
        if step == self.end:
            raise Stopped
        batch = self.source.batch(step)
        self.given.append((step, *next(iter(batch.values())).shape))
        return batch

    def fingerprint(self):
        return self.source.fingerprint()


def run_masked_lm(folder, ends=(None, None)):
    """Trains 3 updates of length 7 and 2 of length 9 with dropout; returns (trainer, sources)."""
    stages = [TinyStage("short", 7, 6, 3, 1e-2, 2), TinyStage("long", 9, 4, 2, 1e-2)]
    sources = [Until(TinyBatches(stage), end) for stage, end in zip(stages, ends, strict=True)]
    options = TrainingOptions(verbose=False, log_every=2, checkpoint_every=1)
    trainer = Trainer(build_model(0.1), MaskedLMObjective(), folder, options)
    held_out = [TinyBatches(stages[0], seed=7).batch(0)]
    phases = [
        Phase(stage, source, lambda: held_out)
        for stage, source in zip(stages, sources, strict=True)
    ]
    with contextlib.suppress(Stopped):
        trainer.fit(phases)
    return trainer, sources


def metrics(folder):
    """metrics.jsonl without times."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{key: line[key] for key in line if key not in TIMES} for line in lines]


def same_weights(trainer, other):
    """Whether two trainers' models are equal to the bit."""
    pairs = zip(trainer.model.get_weights(), other.model.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path):
    straight, _ = run_masked_lm(tmp_path / "straight")
    run_masked_lm(tmp_path / "stopped", ends=(1, None))
    run_masked_lm(tmp_path / "stopped", ends=(None, 1))
    resumed, (first, second) = run_masked_lm(tmp_path / "stopped")
    assert same_weights(straight, resumed)
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "stopped")
    assert first.given == []
    assert second.given[-1] == (1, 4, 9) and len(second.given) <= 2
    rates = [line["learning_rate"] for line in metrics(tmp_path / "stopped") if "loss" in line]
    assert rates == [1e-2, 1e-2, 1e-2, 1e-2]


def regression(folder, steps=6, end=None, seed=0, optimizer=None, identity=None, **options):
    """Trains the tiny regression; returns (trainer, result or None, lines said)."""
    stage = TinyStage(steps=steps)
    source = Until(RegressionBatches(stage, seed), end)
    options = {"log_every": 1, "checkpoint_every": 2, "verbose": False, **options}
    trainer = Trainer(
        build_regression,
        RegressionObjective(),
        folder,
        TrainingOptions(**options),
        optimizer,
        identity=identity,
    )
    said = []
    trainer.report = said.append
    try:
        result = trainer.fit([Phase(stage, source)])
    except Stopped:
        result = None
    return trainer, result, said


def test_the_last_checkpoints_stay(tmp_path):
    trainer, _, _ = regression(tmp_path, steps=9, keep_checkpoints=2)
    assert trainer.state.files.updates() == [8, 9]


def test_the_best_checkpoint_stays_too(tmp_path):
    stage, losses = TinyStage(steps=8), iter([3.0, 1.0, 2.0, 2.5])
    options = TrainingOptions(verbose=False, checkpoint_every=1, keep_checkpoints=1)
    trainer = Trainer(build_regression, RegressionObjective(), tmp_path, options)
    trainer.evaluate = lambda batches: {"loss": next(losses)}
    trainer.fit([Phase(stage, RegressionBatches(stage), list)], Selection("loss", every=2))
    assert trainer.state.files.updates() == [4, 8]


def damage(path, how):
    """Cuts a file in half, or flips one of its bits."""
    data = bytearray(path.read_bytes())
    if how == "truncated":
        data = data[: len(data) // 2]
    elif how == "flipped":
        data[len(data) // 3] ^= 1
    else:
        data = b""
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, how):
    straight, _, _ = regression(tmp_path / "straight")
    trainer, _, _ = regression(tmp_path / "stopped", end=5)
    assert trainer.state.files.updates() == [2, 4]
    damage(trainer.state.files.path(4), how)
    resumed, result, said = regression(tmp_path / "stopped")
    assert "update-000000004.npz is damaged" in said[0] and "the one before" in said[0]
    assert "after update 2" in said[1]
    assert result["updates"] == 6 and same_weights(straight, resumed)
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "stopped")


def test_only_damaged_checkpoints_are_an_error(tmp_path):
    trainer, _, _ = regression(tmp_path, end=5)
    for update in trainer.state.files.updates():
        damage(trainer.state.files.path(update), "truncated")
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
        regression(tmp_path)


def test_what_a_killed_process_left_is_removed(tmp_path):
    regression(tmp_path, end=5)
    leftover = tmp_path / "checkpoints" / ".update-000000006.npz.abc.npz"
    leftover.write_bytes(b"half")
    regression(tmp_path)
    assert not leftover.exists()


def test_a_full_disk_stops_with_the_last_good_checkpoint(tmp_path):
    straight, _, _ = regression(tmp_path / "straight")
    regression(tmp_path / "full", end=3)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))  # a checkpoint has some 4 kB
    try:
        with pytest.raises(OSError, match=r"could not be written .*last good: .*update-000000002"):
            regression(tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    names = sorted(path.name for path in (tmp_path / "full" / "checkpoints").iterdir())
    assert names == ["update-000000002.npz"]
    resumed, result, _ = regression(tmp_path / "full")
    assert result["finished"] and same_weights(straight, resumed)


def test_a_log_line_that_was_cut_short_is_dropped(tmp_path):
    regression(tmp_path / "straight")
    regression(tmp_path / "stopped", end=5)
    with open(tmp_path / "stopped" / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "upd')
    regression(tmp_path / "stopped")
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "stopped")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"steps": 7}, r"stages\[0\].steps: it had 6, now 7"),
        ({"seed": 1}, r"data\[0\].seed: it had 0, now 1"),
        (
            {"optimizer": OptimizerOptions(epsilon=1e-8)},
            "optimizer.epsilon: it had 1e-06, now 1e-08",
        ),
        ({"identity": {"vocabulary": "b"}}, "vocabulary: it had 'a', now 'b'"),
        ({"dtype_policy": "mixed_bfloat16"}, "dtype_policy: it had 'float32'"),
    ],
)
def test_another_run_is_refused_and_the_difference_named(tmp_path, changes, difference):
    settings = {"identity": {"vocabulary": "a"}}
    regression(tmp_path, end=5, **settings)
    with pytest.raises(ValueError, match=f"holds another run: .*{difference}"):
        regression(tmp_path, **{**settings, **changes})


def test_what_does_not_change_the_result_may_change(tmp_path):
    regression(tmp_path, end=5)
    _, result, _ = regression(tmp_path, micro_batch_size=2, checkpoint_every=3, log_every=2)
    assert result["finished"]


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    regression(tmp_path, end=5)
    files = Checkpoints(tmp_path / "checkpoints")
    arrays, state = files.load(4)
    arrays["weights/0000"] = np.zeros(2)
    files.save(5, arrays, state)
    with pytest.raises(ValueError, match="does not fit the model: weights/0000"):
        regression(tmp_path)


def test_a_finished_run_says_so(tmp_path):
    trainer, result, _ = regression(tmp_path)
    trainer.finish(result)
    assert not (tmp_path / "checkpoints").exists()
    _, closed, said = regression(tmp_path)
    assert said[-1] == f"{tmp_path} is finished: 6 updates, none left"
    assert closed == {**result, "closed": True}
    with pytest.raises(ValueError, match="steps: it had 6, now 8"):
        regression(tmp_path, steps=8)


def test_selection_survives_an_interruption(tmp_path):
    stage = TinyStage(steps=8, learning_rate=1e-2)
    held_out = [RegressionBatches(stage, seed=5).batch(0)]

    def train(folder, end=None):
        options = TrainingOptions(verbose=False, checkpoint_every=3, keep_checkpoints=1)
        trainer = Trainer(build_regression, RegressionObjective(), folder, options)
        source = Until(RegressionBatches(stage), end)
        with contextlib.suppress(Stopped):
            return trainer, trainer.fit([Phase(stage, source, lambda: held_out)], Best())
        return trainer, None

    class Best(Selection):
        def improves(self, value, best):
            return best is None or value > best  # the first evaluation is the best

    Best.__init__.__defaults__ = ("loss", 2, None)
    straight, result = train(tmp_path / "straight")
    train(tmp_path / "stopped", end=6)
    resumed, again = train(tmp_path / "stopped")
    assert result["best"] == again["best"] and result["best"]["update"] == 2
    assert same_weights(straight, resumed)


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    stage = TinyStage(steps=3)
    outer = Trainer(
        build_regression, RegressionObjective(), tmp_path, TrainingOptions(verbose=False)
    )

    class Second(RegressionBatches):
        def batch(self, step):
            with pytest.raises(RuntimeError, match="another process trains in"):
                regression(tmp_path)
            return super().batch(step)

    assert outer.fit([Phase(stage, Second(stage))])["finished"]
    assert not (tmp_path / ".lock").exists()


def test_difference_names_what_differs():
    assert difference({"a": [1, 2]}, {"a": [1, 2]}) == []
    assert difference({"a": 1}, {"b": 1}) == ["a: before 1, now None", "b: before None, now 1"]
    assert difference({"a": [1]}, {"a": [1, 2]}) == ["a: before 1, now 2 of them"]
    assert len(difference({"a": "x" * 200}, {"a": "y"})[0]) < 120
    assert in_one_line(list("abcde")) == "a; b; c; and 2 more differences"


def test_workers_with_different_commands_are_told(tmp_path, monkeypatch):
    from roformer_zh.training import state as training_state

    other = {"stages": [{"steps": 3}]}
    monkeypatch.setattr(training_state, "share", lambda strategy, value: value and other)
    with pytest.raises(ValueError, match=r"must run the same command: stages.*worker 0"):
        regression(tmp_path)
