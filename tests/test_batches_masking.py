"""Masks: 15 %, 80/10/10, whole words, no specials, pure functions of key and word."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roformer_zh import WordTokenizer
from roformer_zh.batches import EvaluationBatches, MaskedLMBatches, Stage
from roformer_zh.corpus import Corpus, write_corpus
from tests.texts import random_corpus, random_texts, tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(0x4E00 + i) for i in range(35)]
STAGE = Stage("s", 128, 16, 1, 1e-3)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """200,000 tokens of 35 ordinary characters: V = 40, ids 0 to 4 special."""
    rng = np.random.default_rng(0)
    texts = ["".join(np.array(LETTERS)[rng.integers(0, 35, 2000)]) for _ in range(100)]
    used = WordTokenizer(SPECIALS + LETTERS, mode="char")
    return write_corpus(tmp_path_factory.mktemp("letters") / "c", used, texts)


def drawn(batches, steps):
    """Original and new id of every selected token, and the number of ordinary tokens."""
    old, new, ordinary = [], [], 0
    for step in range(steps):
        batch = batches.batch(step)
        rows, slots = np.nonzero(batch["mask_weights"])
        columns = batch["mask_positions"][rows, slots]
        assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows)
        old.append(batch["mask_ids"][rows, slots])
        new.append(batch["token_ids"][rows, columns])
        ordinary += batch["padding_mask"].sum() - 2 * len(batch["padding_mask"])
    return np.concatenate(old), np.concatenate(new), ordinary


def test_shares_of_selected_masked_random_and_kept_tokens(letters):
    # huggingface/transformers#15342, #10285, #21803: specials selected or drawn, 10 % of the wrong
    # remainder. 35 ordinary ids: a random draw hits the original once in 35.
    batches = MaskedLMBatches(letters, STAGE)
    old, new, ordinary = drawn(batches, -(-batches.num_rows // STAGE.batch_size))
    assert ordinary > 190_000
    assert len(old) / ordinary == pytest.approx(0.15, abs=0.003)
    masked = np.count_nonzero(new == 4)
    changed = np.count_nonzero((new != 4) & (new != old))
    random = changed * 35 / 34
    kept = len(old) - masked - random
    for count, share in ((masked, 0.8), (random, 0.1), (kept, 0.1)):
        assert count / len(old) == pytest.approx(share, abs=0.01)
    expected = len(old) * np.array([0.8, 0.1 * 34 / 35, 0.1 + 0.1 / 35])
    seen = np.array([masked, changed, len(old) - masked - changed])
    assert ((seen - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees, p = 0.001
    assert old.min() >= 5 and set(np.unique(new)) == {4, *range(5, 40)}
    inserted = np.bincount(new[(new != 4) & (new != old)], minlength=40)[5:]
    assert ((inserted - inserted.mean()) ** 2 / inserted.mean()).sum() < 65  # 34 degrees, p = 0.001


def test_other_rates_are_followed(letters):
    stage = Stage("s", 128, 64, 1, 1e-3, 0, "constant", 0.3, 0.5, 0.5)
    old, new, ordinary = drawn(MaskedLMBatches(letters, stage), 8)
    assert len(old) / ordinary == pytest.approx(0.3, abs=0.006)
    assert np.mean(new == 4) == pytest.approx(0.5, abs=0.02)
    assert np.mean((new != 4) & (new == old)) == pytest.approx(0.5 / 35, abs=0.01)


def test_ends_and_padding_are_never_selected(tmp_path):
    corpus = random_corpus(tmp_path / "c", 50)
    special = [corpus.tokenizer.cls_id, corpus.tokenizer.sep_id, corpus.tokenizer.pad_id]
    batches = MaskedLMBatches(corpus, Stage("s", 33, 8, 1, 1e-3))
    for step in range(20):
        batch = batches.batch(step)
        used = batch["mask_weights"] > 0
        rows = np.nonzero(used)[0]
        columns = batch["mask_positions"][used]
        assert not np.isin(batch["mask_ids"][used], special).any()
        assert batch["padding_mask"][rows, columns].all() and (columns > 0).all()
        assert not batch["mask_positions"][~used].any() and not batch["mask_ids"][~used].any()


def test_types_are_integers_from_end_to_end(letters):
    batch = MaskedLMBatches(letters, STAGE).batch(0)
    types = {key: value.dtype.name for key, value in batch.items()}
    assert types == {
        "token_ids": "int32",
        "segment_ids": "int32",
        "padding_mask": "bool",
        "mask_positions": "int32",
        "mask_ids": "int32",
        "mask_weights": "float32",
    }


def test_a_word_with_id_0_counts(tmp_path):
    # roformer's train.py takes target 0 as "not selected"; bert4keras#304, #478
    with pytest.warns(UserWarning, match="PAD"):
        used = WordTokenizer([LETTERS[0], *SPECIALS, *LETTERS[1:]], mode="char")
        corpus = write_corpus(tmp_path / "c", used, ["".join(LETTERS[:3]) * 500])
        batches = MaskedLMBatches(corpus, STAGE)
    batch = batches.batch(0)
    counted = batch["mask_ids"][batch["mask_weights"] > 0]
    assert np.mean(counted == 0) == pytest.approx(1 / 3, abs=0.12)
    assert set(np.unique(counted)) == {0, 6, 7}


def test_rows_that_no_text_gives_are_not_drawn(tmp_path):
    rows = [*SPECIALS, "一", "[unused1]", "", "二", "三", "二"]
    with pytest.warns(UserWarning, match="repeat"):
        used = WordTokenizer(rows, mode="char")
        corpus = write_corpus(tmp_path / "c", used, ["一二三" * 3000])
        batches = MaskedLMBatches(corpus, Stage("s", 128, 64, 1, 1e-3, 0, "constant", 0.5, 0, 1))
    _, new, _ = drawn(batches, 1)
    assert set(np.unique(new)) == {5, 9, 10}


def runs(corpus, batches, steps):
    """For each selected token: its word's tokens in the row and how many of them are selected."""
    multi = 0
    for step in range(steps):
        batch = batches.batch(step)
        flat = batches._rows.flat(batches_rows(batches, step))
        selected = np.zeros(batch["token_ids"].shape, bool)
        rows, slots = np.nonzero(batch["mask_weights"])
        selected[rows, batch["mask_positions"][rows, slots]] = True
        new = batch["token_ids"][flat.row, flat.column]
        chosen = selected[flat.row, flat.column]
        for word in np.unique(flat.word[chosen]):
            tokens = flat.word == word
            assert chosen[tokens].all()
            kinds = {
                "mask" if n == corpus.tokenizer.mask_id else "kept" if n == o else "random"
                for n, o in zip(new[tokens], flat.ids[tokens], strict=True)
            }
            assert len(kinds - {"kept"}) <= 1 and ("mask" not in kinds or len(kinds) == 1)
            multi += tokens.sum() > 1
    return multi


def batches_rows(batches, step):
    """The rows of a training batch."""
    from roformer_zh.batches.packing import permuted

    counter = step * batches.stage.batch_size + np.arange(batches.stage.batch_size)
    epoch, place = np.divmod(counter, batches.num_rows)
    return permuted(place, batches.num_rows, batches._keys("order", epoch))


@pytest.mark.parametrize("mode", ["word", "char"])
def test_words_are_masked_whole_and_alike(tmp_path, mode):
    corpus = random_corpus(tmp_path / "c", 90, mode=mode)
    batches = MaskedLMBatches(corpus, Stage("s", 256, 4, 1, 1e-3))
    assert runs(corpus, batches, 5) > 30


def test_whole_words_keep_the_share(tmp_path):
    corpus = random_corpus(tmp_path / "c", 300, mode="char")
    batches = MaskedLMBatches(corpus, Stage("s", 128, 32, 1, 1e-3))
    old, _, ordinary = drawn(batches, batches.num_rows // 32)
    assert ordinary > 50_000
    assert len(old) / ordinary == pytest.approx(0.15, abs=0.005)


def test_every_row_has_a_mask_however_short_or_odd(tmp_path):
    used = tokenizer("char")
    texts = ["好", "一二", "abc12" * 15, "今天好。", "a" * 40, "囗好"]
    corpus = write_corpus(tmp_path / "c", used, texts)
    stage = Stage("s", 16, 8, 1, 1e-3, single_documents=True)
    batches = MaskedLMBatches(corpus, stage)
    for step in range(40):
        batch = batches.batch(step)
        count = batch["mask_weights"].sum(1)
        assert count.min() >= 1 and count.max() <= batches.mask_slots
        assert not (batch["mask_ids"][batch["mask_weights"] > 0] == used.unk_id).any()


def test_a_row_of_unknown_tokens_has_no_mask_and_no_weight(tmp_path):
    corpus = write_corpus(tmp_path / "c", tokenizer("char"), ["囗囗囗"])
    batch = MaskedLMBatches(corpus, Stage("s", 8, 2, 1, 1e-3)).batch(0)
    assert batch["mask_weights"].sum() == 0 and batch["padding_mask"].sum() == 10


def masks_by_row(batches, steps):
    """(epoch, original row) -> masked columns and new ids, for every row of the batches."""
    found = {}
    for step in steps:
        batch = batches.batch(step)
        counter = step * batches.stage.batch_size + np.arange(batches.stage.batch_size)
        for row, number in zip(batches_rows(batches, step), range(len(counter)), strict=True):
            used = batch["mask_weights"][number] > 0
            columns = tuple(batch["mask_positions"][number][used].tolist())
            key = (int(counter[number] // batches.num_rows), int(row))
            found[key] = (columns, tuple(batch["token_ids"][number].tolist()))
    return found


def test_masks_depend_on_epoch_and_row_not_on_the_batch(letters):
    # facebookresearch/fairseq#1383: the same masks each epoch; pytorch/pytorch#5059: in each worker
    small = MaskedLMBatches(letters, Stage("s", 128, 8, 1, 1e-3))
    large = MaskedLMBatches(letters, Stage("s", 128, 24, 1, 1e-3))
    steps = 2 * small.num_rows // 8
    one = masks_by_row(small, range(0, steps - steps % 3))
    four = {}  # four workers, each with its own object, in another order
    for worker in range(4):
        own = MaskedLMBatches(letters, large.stage)
        four |= masks_by_row(own, range(steps // 3 - 1 - worker, -1, -4))
    assert one == four
    pairs = [(one[0, row], one[1, row]) for _, row in one if (1, row) in one]
    assert len(pairs) > 1000 and all(a[0] != b[0] for a, b in pairs)


def test_seed_and_stage_change_order_and_masks(letters):
    base = MaskedLMBatches(letters, STAGE, seed=1).batch(5)
    same = MaskedLMBatches(letters, STAGE, seed=1).batch(5)
    assert all((base[key] == same[key]).all() for key in base)
    stage = Stage("t", 128, 16, 1, 1e-3)
    for other in (MaskedLMBatches(letters, STAGE, 2), MaskedLMBatches(letters, stage, 1)):
        assert (other.batch(5)["mask_ids"] != base["mask_ids"]).any()


CODE = """
import hashlib, sys
from roformer_zh.batches import MaskedLMBatches, Stage
from roformer_zh.corpus import Corpus
batches = MaskedLMBatches(Corpus.open(sys.argv[1]), Stage("s", 64, 9, 1, 1e-3), seed=7)
digest = hashlib.sha256()
for step in (11, 3):
    for key, value in sorted(batches.batch(step).items()):
        digest.update(key.encode() + value.tobytes())
print(digest.hexdigest())
"""


def test_another_process_makes_the_same_batches_without_keras(tmp_path):
    random_corpus(tmp_path / "c")
    code = CODE + "print('keras' in sys.modules)"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, tmp_path / "c"],
            cwd=Path(__file__).parent.parent,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    corpus = Corpus.open(tmp_path / "c")
    batches = MaskedLMBatches(corpus, Stage("s", 64, 9, 1, 1e-3), seed=7)
    digest = hashlib.sha256()
    for step in (11, 3):
        for key, value in sorted(batches.batch(step).items()):
            digest.update(key.encode() + value.tobytes())
    assert outputs == {f"{digest.hexdigest()}\nFalse\n"}


def test_a_negative_step_is_refused(letters):
    with pytest.raises(ValueError, match="at least 0; got -1"):
        MaskedLMBatches(letters, STAGE).batch(-1)


def test_fingerprints_tell_what_differs(letters, tmp_path):
    base = MaskedLMBatches(letters, STAGE, 1).fingerprint()
    assert base == MaskedLMBatches(letters, STAGE, 1).fingerprint()
    corpus = write_corpus(tmp_path / "c", letters.tokenizer, ["".join(LETTERS) * 9])
    changed = [
        MaskedLMBatches(letters, STAGE, 2),
        MaskedLMBatches(letters, Stage("s", 128, 16, 2, 1e-3), 1),
        MaskedLMBatches(corpus, STAGE, 1),
        EvaluationBatches(letters, STAGE),
    ]
    assert all(batches.fingerprint() != base for batches in changed)


def test_a_vocabulary_without_mask_or_without_words_is_refused(tmp_path):
    for rows, message in ((SPECIALS[:4] + LETTERS, "MASK"), (SPECIALS, "ordinary rows")):
        corpus = write_corpus(tmp_path / "c", WordTokenizer(rows, mode="char"), ["一二"])
        with pytest.raises(ValueError, match=message):
            MaskedLMBatches(corpus, STAGE)


def test_texts_are_random_enough_for_these_tests():
    assert len(set(random_texts(50))) > 45


def test_character_mode_draws_no_word_of_a_published_vocabulary():
    """Google's and WoBERT's files have [unused1] at row 1, so all rows are kept."""
    rows = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今天", "甲", "乙"]
    tokenizer = WordTokenizer(rows, mode="char")
    assert tokenizer.vocabulary_size == 9
    assert tokenizer.ordinary_ids == [7, 8]
