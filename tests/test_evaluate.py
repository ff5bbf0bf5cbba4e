"""`pretrain.evaluate`: loss and accuracy by length and position, beside the unigram baseline."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from pretrain import evaluate
from roformer_zh.heads import copy_model
from roformer_zh.runs import load_run, save_run
from tests.conftest import tiny_config
from tests.texts import random_corpus, tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A held-out corpus."""
    folder = tmp_path_factory.mktemp("held-out")
    random_corpus(folder / "corpus", 20, sentences=6)
    return folder / "corpus"


def save_model(folder, **fields):
    """A run folder of an untrained MaskedLM."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM

    sizes = dict(num_layers=1, num_heads=2, hidden_dim=12, intermediate_dim=10, **fields)
    config = EncoderConfig(vocabulary_size=tokenizer().vocabulary_size, **sizes)
    save_run(folder, MaskedLM(Encoder(config)), tokenizer())
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A run folder of a model trained, so to say, on 16 tokens."""
    return save_model(tmp_path_factory.mktemp("model") / "run", trained_length=16)


def arguments(model, corpus, **fields):
    """Arguments with small sizes."""
    settings = dict(sequence_length=(16, 40), bucket=16, batch_size=3, **fields)
    return evaluate.Arguments(model=str(model), data=str(corpus), **settings)


def test_tables_by_length_and_position(model, corpus, tmp_path, capsys):
    path = tmp_path / "report.md"
    with pytest.warns(UserWarning, match="trained on at most 16 tokens; length 40") as caught:
        found = evaluate.main(arguments(model, corpus, output=str(path)))
    assert len([w for w in caught if "extrapolates" in str(w.message)]) == 1
    for length, metrics in found.items():
        assert metrics["masked"] == sum(bucket["masked"] for bucket in metrics["buckets"])
        assert len(metrics["buckets"]) == math.ceil(length / 16)
        weighted = sum(b["masked"] * b["loss"] for b in metrics["buckets"] if b["masked"])
        assert weighted / metrics["masked"] == pytest.approx(metrics["loss"])
        assert metrics["loss"] == pytest.approx(math.log(tokenizer().vocabulary_size), abs=0.5)
    assert found[40]["buckets"][1]["masked"] > 0
    text = path.read_text()
    assert text == capsys.readouterr().out.removesuffix("\n")
    assert "| 16-31 (beyond training) |" in text and "| 0-15 |" in text
    assert "unigram loss" in text


def test_interpolation_stands_beside_the_model_as_it_is(tmp_path, corpus, capsys):
    """Column by column, and equal to a model that was saved with the scale."""
    folder = save_model(tmp_path / "run", trained_length=16, initializer_range=0.3)
    plot = tmp_path / "positions.png"
    scaled = dict(sequence_length=(), bucket=16, batch_size=3, max_rows=4)
    args = evaluate.Arguments(
        str(folder), str(corpus), position_scale=(2.0, 1.0), plot=str(plot), **scaled
    )
    with pytest.warns(UserWarning, match="length 32 measures how it extrapolates"):
        found = evaluate.main(args)
    text = capsys.readouterr().out
    assert list(found) == [16, 32] and list(found[32]["scales"]) == [1.0, 2.0]
    assert "a longer row holds several" in text
    assert "| positions | masked tokens | loss | loss, positions / 2 | accuracy, % |" in text
    assert plot.stat().st_size > 1000

    run = load_run(folder)
    save_run(tmp_path / "scaled", copy_model(run.model, position_scale=2.0), run.tokenizer)
    args = dataclasses.replace(args, model=str(tmp_path / "scaled"), position_scale=(1.0,))
    with pytest.warns(UserWarning):
        other = evaluate.main(dataclasses.replace(args, sequence_length=(32,)))
    assert "| loss, positions / 1 instead of 2 |" in capsys.readouterr().out
    for scale in (1.0, 2.0):
        losses = [[b["loss"] for b in f[32]["scales"][scale]["buckets"]] for f in (other, found)]
        assert losses[0] == pytest.approx(losses[1])
    assert abs(found[32]["scales"][2.0]["loss"] / found[32]["loss"] - 1) > 1e-4


@pytest.mark.parametrize(
    "fields, scale, message",
    [
        (dict(position="none"), 2.0, "--position-scale needs a model with rotary.*has none"),
        ({}, 0.0, "position_scale must be above 0"),
    ],
)
def test_scales_that_cannot_be_are_refused(corpus, tmp_path, fields, scale, message):
    folder = save_model(tmp_path / "run", **fields)
    with pytest.raises(ValueError, match=message):
        evaluate.main(arguments(folder, corpus, position_scale=(scale,)))


def test_default_lengths_go_beyond_training_where_the_model_can():
    class Run:
        pass

    for fields, lengths in (
        (dict(trained_length=1536), [512, 1536, 2048]),
        (dict(position="learned", max_sequence_length=512, trained_length=512), [512]),
        (dict(position="learned", max_sequence_length=128, trained_length=128), [128]),
        (dict(), [512, 682]),
    ):
        run = Run()
        run.model, run.model.encoder = Run(), Run()
        run.model.encoder.config = tiny_config(**fields)
        assert evaluate.default_lengths(run) == lengths
    run.model.encoder.config = tiny_config(trained_length=96)
    assert evaluate.default_lengths(run, (0.5, 2.0, 4.0)) == [96, 192, 384]


def test_the_same_words_are_masked_at_every_length(model, corpus):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate.main(arguments(model, corpus))
    assert found[16]["masked"] == found[40]["masked"]
    for name in ("unigram_loss", "unigram_accuracy"):
        assert found[16][name] == pytest.approx(found[40][name])


def test_unigram_baseline_by_hand(corpus):
    from roformer_zh.batches import MaskedLMBatches
    from roformer_zh.batches.stages import Stage
    from roformer_zh.corpus import Corpus

    held_out = Corpus.open(corpus)
    stage = Stage("evaluation", 16, 3, steps=1, learning_rate=1.0)
    batches = MaskedLMBatches(held_out, stage).evaluation_batches()
    labels = np.concatenate([b["mask_ids"][b["mask_weights"] > 0] for b in batches])
    share = {token: float(np.mean(held_out.ids == token)) for token in set(labels.tolist())}
    found = evaluate.unigram(held_out, batches)
    expected = -np.mean([math.log(share[token]) for token in labels.tolist()])
    assert found["unigram_loss"] == pytest.approx(expected)
    most = max(labels.tolist().count(token) for token in share)
    assert found["unigram_accuracy"] == pytest.approx(most / len(labels))


def test_lengths_beyond_a_position_table_are_refused(corpus, tmp_path):
    folder = save_model(tmp_path / "run", position="learned", max_sequence_length=20)
    with pytest.raises(ValueError, match="at most 20, the rows of this model's position table"):
        evaluate.main(arguments(folder, corpus))


def test_another_vocabulary_is_refused(model, tmp_path):
    random_corpus(tmp_path / "char", 4, mode="char")
    with pytest.raises(ValueError, match="tokenizer"):
        evaluate.main(arguments(model, tmp_path / "char"))


def test_a_missing_run_is_named(corpus, tmp_path):
    with pytest.raises(FileNotFoundError, match="must be a run folder"):
        evaluate.main(dataclasses.replace(arguments(tmp_path / "none", corpus)))
