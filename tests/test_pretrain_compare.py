"""`pretrain.compare`: equal terms, losses a character, and what is refused."""

import dataclasses
import json

import pandas
import pytest

from pretrain import compare
from pretrain.compare_report import Result, check_equal, read_result, training_curve
from roformer_zh.corpus import Corpus
from roformer_zh.training import TrainingOptions
from tests.texts import random_corpus

STAGES = [
    {"name": "a", "sequence_length": 24, "batch_size": 4, "steps": 4, "learning_rate": 1e-3},
    {"name": "b", "sequence_length": 32, "batch_size": 4, "steps": 4, "learning_rate": 1e-3},
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The same text in words and in characters, with held-out text inside."""
    folder = tmp_path_factory.mktemp("corpora")
    for mode in ("word", "char"):
        random_corpus(folder / mode, 40, mode=mode)
        random_corpus(folder / mode / "holdout", 8, seed=1, mode=mode)
    return folder


@pytest.fixture
def arguments(corpora, tmp_path):
    """Arguments of a small comparison."""
    (tmp_path / "stages.json").write_text(json.dumps(STAGES))
    return compare.Arguments(
        data=(corpora / "word", corpora / "char"),
        stages=tmp_path / "stages.json",
        models=("roformer_tiny", "bert_tiny"),
        output=tmp_path / "out",
        training=TrainingOptions(log_every=2),
    )


def result(**changes):
    """A `Result` with what `check_equal` reads."""
    stage = dict(sequence_length=8, batch_size=2, steps=3, learning_rate=1e-3, schedule="constant")
    fields = dict(encoder={}, mode="word", tokenizer={}, corpus_hash="x", held_out_hash="y",
                  stages=[stage], parameters=1, tokens=1, characters=1, hours=1.0,
                  masked_tokens=50, masked_characters=100, curve=[])
    return Result(**{**fields, **changes})


def test_two_models_of_words_and_characters(arguments, corpora, capsys):
    found = compare.main(arguments)["models"]
    text = (arguments.output / "report.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert "| roformer_tiny | rotary | words |" in text and "| bert_tiny | learned | chara" in text
    assert "nothing is ranked" in text
    words, characters = found["roformer_tiny"], found["bert_tiny"]
    assert words.masked_characters == pytest.approx(characters.masked_characters, rel=0.02)
    assert words.masked_tokens < characters.masked_tokens
    assert words.per_character(2.0) == 2.0 * words.masked_tokens / words.masked_characters
    assert f"{words.per_character(words.stages[-1]['val_loss']):.3f}" in text
    assert [(u, loss) for u, _, loss in words.held_out_points()] == [
        (stage["updates"], stage["val_loss"]) for stage in words.stages]
    assert words.characters > words.tokens and characters.characters == characters.tokens
    assert (arguments.output / "pretraining.png").stat().st_size > 10_000

    curves = pandas.read_csv(arguments.output / "curves.csv")
    assert list(curves[curves.model == "bert_tiny"]["update"]) == [2, 4, 6, 8]
    record = json.loads((arguments.output / "manifest.json").read_text(encoding="utf-8"))
    assert record["models"]["bert_tiny"]["corpus_hash"] == Corpus.open(
        corpora / "word").meta["corpus_hash"]
    assert record["models"]["bert_tiny"]["tokenizer"] != record["models"]["roformer_tiny"][
        "tokenizer"]

    model = arguments.output / "bert_tiny/model.keras"
    before = model.stat().st_mtime_ns
    again = compare.main(arguments)["models"]
    assert model.stat().st_mtime_ns == before  # a finished run is kept
    assert again == found
    assert read_result(arguments.output / "bert_tiny", Corpus.open(corpora / "char"),
                       Corpus.open(corpora / "char/holdout")) == characters


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(corpus_hash="z"), "equal corpus_hash; first has x, second z"),
        (dict(held_out_hash="z"), "equal held_out_hash"),
        (dict(stages=[]), "equal stages"),
        (dict(masked_characters=97), "same masked words"),
    ],
)
def test_rows_that_are_not_comparable_are_refused(changes, message):
    check_equal({"first": result(), "second": result(masked_characters=99)})
    with pytest.raises(ValueError, match=message):
        check_equal({"first": result(), "second": result(**changes)})


def test_corpora_must_be_one_text_in_different_tokens(arguments, corpora, tmp_path):
    with pytest.raises(ValueError, match="both word"):
        compare.open_corpora((corpora / "word", corpora / "word"))
    with pytest.raises(ValueError, match="same text; their corpus_hash differ"):
        compare.open_corpora((corpora / "word", corpora / "char/holdout"))
    only_words = dataclasses.replace(arguments, data=(corpora / "word",))
    with pytest.raises(ValueError, match="bert_tiny reads char tokens; --data must"):
        compare.main(only_words)
    twice = dataclasses.replace(arguments, models=("bert_tiny", "bert_tiny"))
    with pytest.raises(ValueError, match="--models must differ"):
        compare.main(twice)
    assert not arguments.output.exists()


def test_hours_add_up_and_a_pause_does_not_count():
    line = dict(kind="train", stage="a", update=2, tokens=7200, tokens_per_second=2.0, loss=3.0)
    lines = [
        line,
        dict(kind="validation", stage="a", update=2, val_loss=1.0),
        {**line, "update": 4, "tokens": 14400, "tokens_per_second": 1e-6},
        {**line, "update": 6, "tokens": 21600},
        {**line, "stage": "b", "update": 8, "tokens": 28800, "tokens_per_second": 1.0, "loss": 2.0},
    ]
    assert training_curve(lines) == [(2, 1.0, 3.0), (4, 2.0, 3.0), (6, 3.0, 3.0), (8, 5.0, 2.0)]
