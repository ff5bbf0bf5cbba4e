"""`pretrain.run`: the run folder, resuming, bad input."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import kill_resume
from pretrain import run
from roformer_zh.runs import load_run
from roformer_zh.training import TrainingOptions
from tests.texts import random_corpus, tokenizer

STAGES = [
    {
        "name": "short",
        "sequence_length": 16,
        "batch_size": 6,
        "steps": 8,
        "learning_rate": 1e-3,
        "warmup_steps": 2,
        "published_loss": 1.73,
        "published_accuracy": 0.65,
    },
    {
        "name": "long",
        "sequence_length": 24,
        "batch_size": 4,
        "steps": 4,
        "learning_rate": 1e-3,
        "schedule": "linear",
    },
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A prepared corpus with held-out documents inside."""
    folder = tmp_path_factory.mktemp("corpus") / "corpus"
    random_corpus(folder, 60)
    random_corpus(folder / "holdout", 8, seed=1)
    return folder


@pytest.fixture
def arguments(corpus, tmp_path):
    """Arguments of a small run."""
    stages = tmp_path / "stages.json"
    stages.write_text(json.dumps(STAGES))
    return run.Arguments(
        data=str(corpus),
        stages=str(stages),
        output=str(tmp_path / "run"),
        training=TrainingOptions(log_every=2, checkpoint_every=3, micro_batch_size=3),
    )


def change(arguments, **fields):
    """The arguments with other values."""
    return dataclasses.replace(arguments, **fields)


def test_run_folder(arguments, tmp_path, capsys):
    result = run.main(arguments)
    said = capsys.readouterr().out
    assert "has loss ln V = 4." in said and "2 stages, 12 updates" in said
    assert [stage["name"] for stage in result["stages"]] == ["short", "long"]
    folder = tmp_path / "run"
    loaded = load_run(folder)
    assert loaded.model.encoder.config.trained_length == 24
    assert loaded.tokenizer.vocabulary_size == tokenizer().vocabulary_size
    history = loaded.info["pretraining"]
    assert history["updates"] == 12 and history["tokens"] < history["characters"]
    report = (folder / "report.md").read_text()
    assert "published loss" in report and "| 1.73 | 65.0 |" in report
    assert "| long | 24 | 4 | 4 |" in report
    assert (folder / "training.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "checkpoints").exists()

    again = run.main(arguments)
    assert again == {**result, "closed": True}
    assert "is finished: 12 updates, none left" in capsys.readouterr().out

    with pytest.raises(ValueError, match=r"holds another run: model\.num_layers"):
        run.main(change(arguments, model="roformer_small"))
    start_from(arguments, folder, loaded, capsys)


def start_from(arguments, folder, loaded, capsys):
    """--init copies the weights, at the same vocabulary all of them."""
    stages = [{**STAGES[0], "steps": 1, "warmup_steps": 0, "learning_rate": 1e-12}]
    path = folder.parent / "one.json"
    path.write_text(json.dumps(stages))
    started = folder.parent / "started"
    run.main(change(arguments, init=str(folder), output=str(started), stages=str(path)))
    assert f"other tensors of {folder}" in capsys.readouterr().out
    other = load_run(started).model
    assert other.encoder.config.trained_length == 24
    for weight, copied in zip(loaded.model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(weight, copied, atol=1e-9)
    with pytest.raises(ValueError, match="hidden_dim"):
        run.main(
            change(arguments, init=str(folder), output=str(started) + "2", model="roformer_small")
        )


def test_an_output_that_holds_a_model_is_refused(arguments, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.keras").write_bytes(b"")
    with pytest.raises(ValueError, match="already holds a model"):
        run.main(arguments)


def test_a_stage_longer_than_the_position_table_is_refused(arguments):
    with pytest.raises(ValueError, match="it has 24 tokens, the table 20 rows"):
        run.main(change(arguments, model="bert_tiny", max_sequence_length=20))


def test_unknown_names_and_missing_files(arguments, tmp_path):
    with pytest.raises(ValueError, match="did you mean 'roformer_tiny'"):
        run.main(change(arguments, model="roformer_tiney"))
    with pytest.raises(FileNotFoundError, match="must be a prepared corpus"):
        run.main(change(arguments, data=str(tmp_path / "nothing")))
    (tmp_path / "bad.json").write_text(json.dumps([{**STAGES[0], "length": 3}]))
    with pytest.raises(ValueError, match="no field 'length'"):
        run.main(change(arguments, stages=str(tmp_path / "bad.json")))
    assert not (tmp_path / "run").exists()


def test_held_out_text_of_another_vocabulary_is_refused(arguments, tmp_path):
    random_corpus(tmp_path / "other", 4, mode="char")
    with pytest.raises(ValueError, match="tokenizer"):
        run.main(change(arguments, validation=str(tmp_path / "other")))


@pytest.mark.slow
def test_killed_at_random_moments(corpus, tmp_path):
    stages = tmp_path / "stages.json"
    stages.write_text(json.dumps([{**stage, "steps": 30} for stage in STAGES]))
    found = kill_resume.main(
        kill_resume.Arguments(
            data=str(corpus),
            stages=str(stages),
            output=str(tmp_path / "runs"),
            kills=2,
            longest_wait=0.2,
        )
    )
    assert found["kills"] == 2
    assert found["weights"] == found["metrics"] == 0
