"""Rows of a stage: no token lost or doubled, sentences whole where they fit, every row once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer_zh.batches import EvaluationBatches, MaskedLMBatches, Stage
from roformer_zh.batches.packing import pack_rows, permuted
from roformer_zh.corpus import Corpus, write_corpus
from tests.texts import random_corpus, random_texts, tokenizer

USED = tokenizer()


class PlainCorpus:
    """What packing needs of a corpus, from lists of words, sentences and documents."""

    def __init__(self, documents):
        # documents: lists of sentences; a sentence: list of clauses; a clause: list of word lengths
        words, sentences, clauses, starts = [], [], [], [0]
        for document in documents:
            for sentence in document:
                for number, clause in enumerate(sentence):
                    for place, word in enumerate(clause):
                        begins = place == 0
                        words += [1] + [0] * (word - 1)
                        clauses += [begins] + [0] * (word - 1)
                        sentences += [begins and number == 0] + [0] * (word - 1)
            starts.append(len(words))
        self.num_tokens = len(words)
        self.document_starts = np.array(starts)
        self.word_bits, self.sentence_bits, self.clause_bits = (
            np.packbits(np.array(bits, bool), bitorder="little")
            for bits in (words, sentences, clauses)
        )

    bits = Corpus.bits

    def starts(self, name):
        return set(np.flatnonzero(self.bits(getattr(self, name), 0, self.num_tokens)).tolist())


CLAUSES = st.lists(st.integers(1, 4), min_size=1, max_size=12)
DOCUMENTS = st.lists(
    st.lists(st.lists(CLAUSES, min_size=1, max_size=4), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)


def slots(corpus, start, stop):
    """[CLS], the tokens, a [SEP] at each document's end inside, and the last [SEP]."""
    inside = corpus.document_starts[1:]
    return 2 + stop - start + int(np.count_nonzero((inside > start) & (inside < stop)))


@settings(deadline=None, max_examples=150)
@given(
    documents=DOCUMENTS,
    length=st.integers(3, 40),
    clause_breaks=st.booleans(),
    single=st.booleans(),
    chunk=st.integers(1, 200),
)
def test_rows_hold_every_token_once_and_sentences_whole(
    documents, length, clause_breaks, single, chunk
):
    corpus = PlainCorpus(documents)
    way = {"clause_breaks": clause_breaks, "single_documents": single}
    rows = pack_rows(corpus, length, **way)
    assert rows[0] == 0 and rows[-1] == corpus.num_tokens and (np.diff(rows) > 0).all()
    assert (pack_rows(corpus, length, **way, chunk=chunk) == rows).all()
    breaks = sorted(
        corpus.starts("clause_bits" if clause_breaks else "sentence_bits") | {corpus.num_tokens}
    )
    clauses = sorted(corpus.starts("clause_bits") | {corpus.num_tokens})
    ends = corpus.document_starts[1:].tolist()
    for start, stop in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
        assert slots(corpus, start, stop) <= length
        if single:
            assert not any(start < end < stop for end in ends)
        if stop not in breaks:  # cut inside a sentence: only if the sentence is longer than a row
            assert span_around(breaks, stop) > length - 2
            assert stop in clauses or span_around(clauses, stop) > length - 2
        following = next((place for place in breaks if place > stop), None)
        if following and not (single and stop in ends):  # the next sentence did not fit
            assert slots(corpus, start, following) > length


def span_around(places, inside):
    """The distance between the two places around a token."""
    right = np.searchsorted(places, inside)
    return places[right] - (places[right - 1] if right else 0)


@settings(deadline=None)
@given(documents=DOCUMENTS, length=st.integers(6, 40))
def test_words_are_cut_only_if_longer_than_a_row(documents, length):
    corpus = PlainCorpus(documents)
    assert set(pack_rows(corpus, length)[:-1].tolist()) <= corpus.starts("word_bits")


def test_a_long_text_of_short_sentences_loses_nothing(tmp_path):
    # bojone/bert4keras#12: cutting before segmenting loses and changes tokens
    text = "今天天气非常好，原告认为。" * 250
    corpus = write_corpus(tmp_path / "c", USED, [text])
    stage = Stage("s", 128, 4, 1, 1e-3)
    real = 0
    for batch in EvaluationBatches(corpus, stage):
        special = np.isin(batch["token_ids"], [USED.cls_id, USED.sep_id, USED.pad_id])
        real += np.count_nonzero(~special)
    assert len(text) > 3000 and real == len(USED.encode(text)) == corpus.num_tokens


def unmasked(batch):
    """token_ids with the original ids back in place."""
    ids = batch["token_ids"].copy()
    rows, slots = np.nonzero(batch["mask_weights"])
    ids[rows, batch["mask_positions"][rows, slots]] = batch["mask_ids"][rows, slots]
    return ids


@pytest.mark.parametrize("mode", ["word", "char"])
@pytest.mark.parametrize("single", [False, True])
def test_a_batch_is_the_text_with_specials_around(tmp_path, mode, single):
    corpus = random_corpus(tmp_path / "c", 30, mode=mode, sentences=3)
    used = corpus.tokenizer
    batches = EvaluationBatches(corpus, Stage("s", 41, 5, 1, 1e-3, single_documents=single))
    rows = [
        row[mask] for b in batches for row, mask in zip(unmasked(b), b["padding_mask"], strict=True)
    ]
    tokens, inner = [], 0
    for row in rows:
        assert row[0] == used.cls_id and row[-1] == used.sep_id and len(row) <= 41
        inner += np.count_nonzero(row[1:-1] == used.sep_id)
        tokens += row.tolist()
    assert [t for t in tokens if t not in (used.cls_id, used.sep_id)] == corpus.ids.tolist()
    assert (inner == 0) == single
    text = used.decode([t for t in tokens if t != used.cls_id]).split("[SEP]")
    documents = [used.decode(corpus.document(i)) for i in range(30)]
    assert not single or all(any(part in d for d in documents) for part in text)


def test_documents_in_a_row_are_parted_by_sep(tmp_path):
    corpus = write_corpus(tmp_path / "c", USED, ["今天好。", "法院判决", "原告"])
    batch = MaskedLMBatches(corpus, Stage("s", 13, 1, 1, 1e-3)).batch(0)
    row = [USED.id_to_token(i) for i in unmasked(batch)[0]]
    expected = "[CLS] 今天 好 。 [SEP] 法院 判决 [SEP] 原告 [SEP] [PAD] [PAD] [PAD]"
    assert row == expected.split()
    assert batch["padding_mask"].tolist() == [[True] * 10 + [False] * 3]
    assert not batch["segment_ids"].any()


def test_padding_is_little_where_sentences_are_short_or_may_break(tmp_path):
    corpus = random_corpus(tmp_path / "c", 60, sentences=60)
    whole = MaskedLMBatches(corpus, Stage("s", 512, 4, 1, 1e-3))
    cut = MaskedLMBatches(corpus, Stage("s", 512, 4, 1, 1e-3, clause_breaks=True))
    single = MaskedLMBatches(corpus, Stage("s", 512, 4, 1, 1e-3, single_documents=True))
    assert cut.fill_rate >= 0.97 and whole.fill_rate >= 0.93 and single.fill_rate < 0.8
    assert f"{100 * whole.fill_rate:.1f} % of them text" in whole.describe()
    tokens = sum(
        np.isin(unmasked(b), [0, 2, 3], invert=True).sum()
        for b in EvaluationBatches(corpus, whole.stage)
    )
    assert whole.fill_rate == tokens / (whole.num_rows * 512)


def test_a_row_of_less_than_three_slots_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 3"):
        pack_rows(random_corpus(tmp_path / "c"), 2)


@given(count=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_a_shuffle_holds_every_index_once(count, key):
    order = permuted(np.arange(count), count, key)
    assert sorted(order.tolist()) == list(range(count))


def test_shuffles_look_random_and_differ():
    # bojone/bert4keras#269: a shuffle inside a small window keeps documents together
    count = 1000
    orders = [permuted(np.arange(count), count, key) for key in range(200)]
    correlations = [np.corrcoef(np.arange(count), order)[0, 1] for order in orders]
    assert np.abs(correlations).max() < 0.15  # standard error 0.032
    assert np.std(correlations) == pytest.approx(0.0316, rel=0.2)
    neighbours = np.corrcoef(orders[0][:-1], orders[0][1:])[0, 1]
    assert abs(neighbours) < 0.15
    first = np.bincount([order[0] // 100 for order in orders], minlength=10)
    assert first.min() >= 5  # 20 expected in each tenth
    assert len({tuple(order) for order in orders}) == 200


def test_every_row_is_seen_once_an_epoch_and_batches_go_on_into_the_next(tmp_path):
    corpus = random_corpus(tmp_path / "c", 40)
    stage = Stage("s", 32, 7, 1, 1e-3)
    batches = MaskedLMBatches(corpus, stage, seed=3)
    assert batches.num_rows % 7  # an epoch ends inside a batch
    steps = range(-(-3 * batches.num_rows // 7))
    rows = np.concatenate([unmasked(batches.batch(step)) for step in steps])
    everything = np.concatenate([unmasked(b) for b in EvaluationBatches(corpus, stage)])
    ordered = sorted(map(tuple, everything.tolist()))
    epochs = [rows[i * batches.num_rows : (i + 1) * batches.num_rows] for i in range(3)]
    for epoch in epochs:
        assert sorted(map(tuple, epoch.tolist())) == ordered
    assert (epochs[0] != epochs[1]).any() and (epochs[1] != epochs[2]).any()


def test_rows_change_with_the_stage(tmp_path):
    corpus = write_corpus(tmp_path / "c", USED, random_texts(60))
    short = MaskedLMBatches(corpus, Stage("a", 32, 6, 3, 1e-3))
    long = MaskedLMBatches(corpus, Stage("b", 64, 3, 2, 1e-3))
    assert short.batch(2)["token_ids"].shape == (6, 32)
    assert long.batch(1)["token_ids"].shape == (3, 64)
    again = MaskedLMBatches(corpus, Stage("c", 32, 6, 3, 1e-3))  # a later stage of one length
    assert (unmasked(short.batch(0)) != unmasked(again.batch(0))).any()
