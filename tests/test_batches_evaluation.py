"""Evaluation: every row once, masks that never change, the same words whatever the rows."""

import numpy as np
import pytest

from roformer_zh.batches import EvaluationBatches, MaskedLMBatches, Stage
from tests.texts import random_corpus


def masked_words(corpus, length):
    """The words that evaluation masks: number -> decision, seen through rows of a length."""
    batches = EvaluationBatches(corpus, Stage("any", length, 5, 1, 1e-3))
    words = {}
    for step, batch in enumerate(batches):
        flat = batches._rows.flat(np.arange(step * 5, min(step * 5 + 5, batches.num_rows)))
        selected = np.zeros(batch["token_ids"].shape, bool)
        rows, slots = np.nonzero(batch["mask_weights"])
        selected[rows, batch["mask_positions"][rows, slots]] = True
        chosen = selected[flat.row, flat.column]
        masked = batch["token_ids"][flat.row, flat.column] == corpus.tokenizer.mask_id
        for word, mask in zip(flat.word[chosen].tolist(), masked[chosen].tolist(), strict=True):
            assert words.setdefault(word, mask) == mask
    return words


def test_evaluation_masks_the_same_words_at_every_length_and_by_character(tmp_path):
    word = random_corpus(tmp_path / "w", 60)
    char = random_corpus(tmp_path / "c", 60, mode="char")
    masked = masked_words(word, 64)
    assert masked == masked_words(word, 100) == masked_words(char, 64) == masked_words(char, 200)
    assert len(masked) / word.meta["num_words"] == pytest.approx(0.15, abs=0.02)


def test_evaluation_batches_never_change_and_the_last_is_short(tmp_path):
    corpus = random_corpus(tmp_path / "c", 300)
    stage = Stage("s", 128, 16, 1, 1e-3)
    batches = MaskedLMBatches(corpus, stage, seed=5).evaluation_batches(batch_size=48)
    sizes = [len(batch["token_ids"]) for batch in batches]
    assert (
        sum(sizes) == batches.num_rows
        and set(sizes[:-1]) == {48}
        and sizes[-1] == batches.num_rows % 48 > 0
    )
    again = EvaluationBatches(corpus, Stage("t", 128, 48, 9, 1e-2))
    for a, b in zip(batches, again, strict=True):
        assert all((a[key] == b[key]).all() for key in a)
    shares = [batch["mask_weights"].sum() for batch in batches]
    assert sum(shares) / corpus.num_tokens == pytest.approx(0.15, abs=0.006)
    some = EvaluationBatches(corpus, stage, max_rows=20)
    assert [len(batch["token_ids"]) for batch in some] == [16, 4]
    with pytest.raises(ValueError, match=r"step must be from 0 to 1; got 2"):
        some.batch(2)
