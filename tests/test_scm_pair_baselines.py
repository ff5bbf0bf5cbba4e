"""Word CNN and LSTM baselines: they learn, and nothing but the texts decides."""

import numpy as np
import pytest

from tasks.cail2019_scm.dataset import Triplet
from tasks.cail2019_scm.pair_baselines import KINDS, build_baseline, score_baseline
from tasks.cail2019_scm.statistics import decide
from tests.texts import tokenizer

TOPICS = (("原告", "法院", "判决"), ("天气", "今天", "非常"))
FILLING = ("的", "好", "一", "二", "，", "笑", "你")


def triplets(count, seed, flip=False):
    """The closer text has a word of A's topic, never A's own word: only training can tell."""
    rng = np.random.default_rng(seed)

    def text(word):
        filling = list(rng.choice(FILLING, rng.integers(3, 9)))
        filling.insert(rng.integers(len(filling) + 1), word)
        return "".join(filling)

    rows = []
    for number in range(count):
        topic = rng.integers(2)
        own, same = rng.choice(TOPICS[topic], 2, replace=False)
        other = rng.choice(TOPICS[1 - topic])
        texts = [text(same), text(other)]
        first = number % 2 == 0
        b, c = texts if first else texts[::-1]
        rows.append(Triplet(text(own), b, c, "B" if first != flip else "C"))
    return rows


def swapped(rows):
    """The rows with B and C exchanged, labels too."""
    return [Triplet(a, c, b, {"B": "C", "C": "B"}[label]) for a, b, c, label in rows]


def accuracy(scores, rows):
    """Share of right decisions."""
    return np.mean([d == row.label for d, row in zip(decide(*scores), rows, strict=True)])


def score(kind, flip=False, seed=3, test=None, **options):
    """A baseline trained on 96 triplets."""
    settings = dict(learning_rate=1e-2, epochs=12, batch_size=16, sequence_length=64, **options)
    rows = (triplets(96, 0, flip), triplets(32, 1, flip), test)
    return score_baseline(kind, *rows, tokenizer(), seed, **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_baseline_learns_what_the_labels_say(kind):
    rows = triplets(60, 2)
    found = score(kind, test=rows)
    assert accuracy(found["test_scores"], rows) > 0.9
    assert accuracy(found["valid_scores"], triplets(32, 1)) > 0.9
    assert 1 <= found["epochs"] <= found["epochs_run"] <= 12
    assert found["seconds"] > 0 and found["tokens_per_second"] > 0 and found["text_cut"] == 0
    assert found["parameters"] == build_baseline(kind, tokenizer().vocabulary_size, 0, 9)[
        1
    ].count_params()
    assert all(s.dtype == np.float32 and s.shape == (60,) for s in found["test_scores"])


def test_reversed_labels_teach_the_opposite():
    rows = triplets(60, 2)
    found = score("cnn", flip=True, test=rows)
    assert accuracy(found["test_scores"], rows) < 0.5


def test_exchanging_texts_exchanges_scores_and_a_seed_repeats_them():
    rows = triplets(32, 1)
    found = score("cnn", test=swapped(rows), patience=1)
    assert np.array_equal(found["valid_scores"][0], found["test_scores"][1])
    assert np.array_equal(found["valid_scores"][1], found["test_scores"][0])
    again = score("cnn", patience=1)
    assert again["test_scores"] is None
    assert np.array_equal(found["valid_scores"], again["valid_scores"])
    other = score("cnn", seed=4, patience=1)
    assert not np.allclose(found["valid_scores"], other["valid_scores"])


def test_the_weights_of_the_best_epoch_are_kept():
    train, valid = triplets(40, 0), triplets(20, 1)
    one = score_baseline("cnn", train, valid, None, tokenizer(), 0, epochs=1, sequence_length=64)
    opposed = triplets(20, 1, flip=True)  # training makes valid worse
    settings = dict(epochs=4, learning_rate=1e-2, batch_size=8, sequence_length=64)
    found = score_baseline("cnn", train * 3, opposed, None, tokenizer(), 0, **settings)
    assert one["epochs"] == one["epochs_run"] == 1
    assert found["epochs"] < found["epochs_run"] == 4
    short = dict(settings, epochs=found["epochs"])
    same = score_baseline("cnn", train * 3, opposed, None, tokenizer(), 0, **short)
    assert np.array_equal(found["valid_scores"], same["valid_scores"])


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    encoder, _ = build_baseline(kind, 31, pad_id=0, length=5)
    for length in (2, 5):
        ids = np.random.default_rng(0).integers(1, 31, (3, length))
        padded = np.concatenate([ids, np.zeros((3, 4), int)], axis=1)
        np.testing.assert_allclose(encoder(ids), encoder(padded), atol=1e-6)
        other = np.concatenate([ids, np.full((3, 4), 7)], axis=1)
        assert np.abs(np.array(encoder(ids)) - np.array(encoder(other))).max() > 1e-3


def test_each_text_gives_half_of_the_length():
    rows = [Triplet("天气" * 40, "判决" * 40, "的" * 40, "B")] * 2
    settings = dict(epochs=1, sequence_length=16)
    found = score_baseline("cnn", rows, rows, None, tokenizer(), 0, **settings)
    assert found["text_cut"] == pytest.approx(1 - 6 / 40)


def test_what_cannot_be_trained_is_refused():
    rows = triplets(4, 0)
    unlabelled = [*rows, Triplet("好", "好", "一", None)]
    with pytest.raises(ValueError, match="kind must be one of cnn, lstm; got 'rnn'"):
        score_baseline("rnn", rows, rows, None, tokenizer(), 0)
    with pytest.raises(ValueError, match="train must hold labelled triplets; got 5 rows, 1 of"):
        score_baseline("cnn", unlabelled, rows, None, tokenizer(), 0)
    with pytest.raises(ValueError, match="valid must hold labelled triplets; got 0 rows"):
        score_baseline("cnn", rows, [], None, tokenizer(), 0)
    with pytest.raises(ValueError, match="epochs and batch_size must be at least 1; got 0 and 32"):
        score_baseline("cnn", rows, rows, None, tokenizer(), 0, epochs=0)
