import warnings

import numpy as np
import pytest

from roformer_zh.heads import copy_model
from roformer_zh.layout import Layout, check_fits
from roformer_zh.tokenizer import WordTokenizer
from tests.conftest import randomise, tiny_config

ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"甲乙丙丁戊己庚辛壬癸原告被本院借款还"]
TEXTS = ["甲乙丙", "丁戊己庚", "辛", "原告借款甲" * 9, "被告还款" * 30, "乙" * 40, ""]


def tokenizer():
    return WordTokenizer(ROWS)


def matcher(kind="siamese", length=400, position="rotary", pooling="mean", **options):
    from roformer_zh import DocumentMatcher, Encoder, PairScorer, SiameseScorer

    layout = Layout(kind, length, **{name: options.pop(name) for name in
                                     ("truncation", "segments", "positions") if name in options})
    head = {"siamese": SiameseScorer, "pair": PairScorer}[kind]
    config = tiny_config(position, vocabulary_size=len(ROWS))
    model = randomise(head(Encoder(config), pooling=pooling))
    return DocumentMatcher(model, tokenizer(), layout, verbose=False, **options)


def test_a_pair_gets_the_papers_segments_and_going_on_positions():
    row = Layout("pair", 8).pair([11], [12, 13], cls_id=2, sep_id=3)
    assert row.token_ids == [2, 11, 3, 12, 13, 3]
    assert row.segment_ids == [0, 0, 0, 1, 1, 1]
    assert row.position_ids == [0, 1, 2, 3, 4, 5]
    other = Layout("pair", 8, segments="zero", positions="restart")
    row = other.pair([11], [12, 13], cls_id=2, sep_id=3)
    assert row.segment_ids == [0] * 6 and row.position_ids == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("truncation, kept, cut", [
    ("longest_first", [1, 2, 3, 4], 4), ("head", [1, 2, 3, 4], 4),
    ("tail", [5, 6, 7, 8], 4), ("head_tail", [1, 2, 7, 8], 4)])
def test_a_siamese_text_keeps_what_the_truncation_says(truncation, kept, cut):
    row = Layout("siamese", 12, truncation).single(list(range(1, 9)), cls_id=2, sep_id=3)
    assert row.token_ids == [2, *kept, 3] and row.cut == cut


def test_both_texts_of_a_pair_stay_and_what_is_cut_is_counted():
    row = Layout("pair", 9, "tail").pair([1, 2, 3, 4, 5], [6, 7, 8, 9], cls_id=2, sep_id=3)
    assert row.token_ids == [2, 3, 4, 5, 3, 7, 8, 9, 3] and row.cut == 3
    assert len(row.segment_ids) == 9


def test_the_layout_reads_a_pair_as_the_tokenizer_does():
    words = tokenizer()
    for truncation in ("longest_first", "head", "tail", "head_tail"):
        pair = words.encode_pair(TEXTS[3], TEXTS[1], 20, truncation)
        ids = [words.encode(text) for text in (TEXTS[3], TEXTS[1])]
        row = Layout("pair", 20, truncation).pair(*ids, words.cls_id, words.sep_id)
        assert (row.token_ids, row.segment_ids) == (pair.token_ids, pair.segment_ids)


@pytest.mark.parametrize("fields, message", [
    ({"kind": "joint"}, "kind must be one of siamese, pair; got 'joint'"),
    ({"sequence_length": 7}, "at least 8; got 7"), ({"sequence_length": True}, "got True"),
    ({"truncation": "middle"}, "longest_first, head"), ({"segments": "one"}, "pair, zero"),
    ({"positions": "reset"}, "continue, restart")])
def test_a_wrong_layout_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        Layout(**{"kind": "pair", "sequence_length": 64, **fields})


def test_a_table_of_positions_cannot_read_further():
    layout = Layout("pair", 64)
    with pytest.raises(ValueError, match="table of 9 positions and cannot read sequences of 64"):
        check_fits(layout, tiny_config("learned"), "the run")
    with pytest.raises(ValueError, match="segments must be 'zero'"):
        check_fits(layout, tiny_config(num_segments=1), "the run")
    check_fits(Layout("pair", 64, segments="zero"), tiny_config(num_segments=1), "the run")
    with pytest.warns(UserWarning, match="was trained on at most 32 tokens and will read 64"):
        check_fits(Layout("pair", 64), tiny_config(trained_length=32), "the run")


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_scores_do_not_depend_on_order_or_company(kind):
    one = matcher(kind, tokens_per_batch=400)
    pairs = [(a, b) for a in TEXTS for b in TEXTS]
    scores = one.score_pairs(pairs)
    order = np.random.default_rng(0).permutation(len(pairs))
    np.testing.assert_allclose(one.score_pairs([pairs[i] for i in order]), scores[order],
                               rtol=1e-6, atol=1e-6)
    for place in (0, 17, 30):
        assert one.score(*pairs[place]) == pytest.approx(scores[place], abs=1e-6)
    large = matcher(kind, tokens_per_batch=10**6)
    np.testing.assert_allclose(large.score_pairs(pairs), scores, rtol=1e-6, atol=1e-6)
    assert len(np.unique(scores.round(4))) > 10


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_a_chunked_model_reads_several_lengths_and_gives_the_same(kind, monkeypatch):
    """Keras' predict_on_batch forgets the length at the second shape, which chunks need."""
    monkeypatch.setattr("roformer_zh.attention.QUERY_CHUNK", 16)
    full = matcher(kind)
    chunked = type(full)(copy_model(full.model, attention="chunked"), full.tokenizer, full.layout,
                         tokens_per_batch=200, verbose=False)
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[3], TEXTS[4]), (TEXTS[5], TEXTS[2])]
    np.testing.assert_allclose(chunked.score_pairs(pairs), full.score_pairs(pairs), atol=1e-5)
    assert len({length for _, length in chunked.shapes}) >= 2
    np.testing.assert_allclose(chunked.encode(TEXTS), full.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_vectors_are_unit_and_repeatable(kind):
    one = matcher(kind, tokens_per_batch=300)
    vectors = one.encode(TEXTS)
    assert vectors.shape == (7, 12) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(one.encode(TEXTS[::-1])[::-1], vectors, atol=1e-6)
    np.testing.assert_array_equal(one.encode([TEXTS[0]] * 2)[0], one.encode([TEXTS[0]] * 2)[1])


def test_a_pair_scorers_vector_is_the_masked_mean_of_its_encoder():
    one = matcher("pair")
    vector = one.encode(["甲乙"])[0]
    ids = np.array([[2, 5, 6, 3]], "int32")
    hidden = np.asarray(one.model.encoder({"token_ids": ids, "segment_ids": 0 * ids,
                                           "padding_mask": ids > 0}))[0].mean(axis=0)
    np.testing.assert_allclose(vector, hidden / np.linalg.norm(hidden), atol=1e-5)


def test_the_siamese_score_of_a_text_with_itself_is_the_scale():
    one = matcher()
    scale = float(np.exp(np.asarray(one.model.log_scale)))
    assert one.score(TEXTS[1], TEXTS[1]) == pytest.approx(scale, rel=1e-5)
    assert max(one.score_pairs([(TEXTS[1], text) for text in TEXTS if text != TEXTS[1]])) < scale


def test_the_siamese_score_is_what_the_model_says():
    one = matcher()
    ids = np.array([[2, 5, 6, 3], [2, 8, 9, 3]], "int32")
    vectors = one.model.encode({"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0})
    expected = float(one.model.similarity(vectors[:1], vectors[1:])[0])
    assert one.score("甲乙", "丁戊") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_rank_is_the_scores_sorted(kind):
    one = matcher(kind)
    scores = one.score_pairs([(TEXTS[0], text) for text in TEXTS])
    ranked = one.rank(TEXTS[0], TEXTS)
    assert [row["corpus_id"] for row in ranked] == np.argsort(-scores, kind="stable").tolist()
    assert all(row["text"] == TEXTS[row["corpus_id"]] for row in ranked)
    assert [row["score"] for row in ranked] == sorted(scores.tolist(), reverse=True)
    assert one.rank(TEXTS[0], TEXTS, top_k=2) == ranked[:2]
    assert one.rank(TEXTS[0], []) == []


def test_equal_documents_keep_their_order():
    ranked = matcher().rank("甲", ["乙", "丙丁", "乙", "乙"])
    assert [row["corpus_id"] for row in ranked if row["text"] == "乙"] == [0, 2, 3]


def test_rank_takes_vectors_that_were_kept():
    one = matcher()
    kept = one.encode(TEXTS)
    computed = []
    one.model.predict_on_batch, plain = (
        lambda inputs: computed.append(inputs) or plain(inputs)), one.model.predict_on_batch
    ranked = one.rank("戊己", TEXTS, vectors=kept)
    assert len(computed) == 1 and len(computed[0]["token_ids"]) == 1  # the query alone
    expected = one.rank("戊己", TEXTS)
    assert [row["corpus_id"] for row in ranked] == [row["corpus_id"] for row in expected]
    with pytest.raises(ValueError, match=r"of shape \(7, 12\); got \(6, 12\)"):
        one.rank("戊己", TEXTS, vectors=kept[1:])
    with pytest.raises(ValueError, match="cannot rank by vectors"):
        matcher("pair").rank("戊己", TEXTS, vectors=kept)
    with pytest.raises(ValueError, match="top_k must be None or a whole number"):
        one.rank("戊己", TEXTS, top_k=0)


def test_few_shapes_are_computed():
    one = matcher("siamese", length=256, tokens_per_batch=512)
    rng = np.random.default_rng(1)
    one.encode(["甲乙丙"[: rng.integers(1, 4)] * rng.integers(1, 42) for _ in range(200)])
    assert {length for _, length in one.shapes} == {32, 64, 96, 128}
    assert len(one.shapes) <= 4 * 5  # lengths x powers of two


def test_a_siamese_list_encodes_each_different_text_once():
    one = matcher()
    rows = []
    plain = one.model.predict_on_batch
    one.model.predict_on_batch = lambda x: rows.append(len(x["token_ids"])) or plain(x)
    one.score_pairs([("甲", "乙"), ("甲", "丙"), ("甲", "乙")])
    assert sum(rows) == 4  # three texts, in a batch of a power of two


def test_long_texts_are_cut_as_recorded_with_one_warning():
    one = matcher("siamese", length=24)
    with pytest.warns(UserWarning, match=r"longer than what the model reads \(12 tokens") as caught:
        cut = one.encode(["甲乙丙丁戊" * 9])
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.encode(["乙乙丙丁戊" * 9])
        np.testing.assert_allclose(one.encode(["甲乙丙丁戊" * 2]), cut, atol=1e-6)
    tail = matcher("siamese", length=24, truncation="tail")
    with pytest.warns(UserWarning):
        difference = np.abs(tail.encode(["甲" * 20 + "乙" * 20]) - tail.encode(["乙" * 10])).max()
    assert difference < 1e-6


@pytest.mark.parametrize("change", [{"positions": "restart"}, {"segments": "zero"}])
def test_positions_and_segments_of_the_layout_reach_the_model(change):
    pairs = [("甲乙丙", "丁戊己"), ("辛", "乙丙")]
    plain, changed = matcher("pair"), matcher("pair", **change)
    assert np.abs(plain.score_pairs(pairs) - changed.score_pairs(pairs)).min() > 1e-4


def test_a_long_list_shows_a_bar(capsys):
    one = matcher(tokens_per_batch=32)
    one.encode([f"甲{character}" for character in ROWS[5:]])
    assert "matching" not in capsys.readouterr().err
    one.verbose = True
    one.encode([a + b for a in ROWS[5:12] for b in ROWS[5:12]])
    assert "matching" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_a_run_folder_gives_the_same_scores(tmp_path, kind):
    from roformer_zh import DocumentMatcher
    from roformer_zh.runs import save_run

    one = matcher(kind, truncation="tail")
    save_run(tmp_path, one.model, one.tokenizer, layout=one.layout.to_dict())
    loaded = DocumentMatcher.load(tmp_path)
    assert loaded.layout == one.layout
    assert loaded.score(*TEXTS[3:5]) == pytest.approx(one.score(*TEXTS[3:5]), abs=1e-6)


def test_a_folder_without_a_scorer_is_an_error(tmp_path):
    from roformer_zh import DocumentMatcher, Encoder, MaskedLM
    from roformer_zh.runs import save_run

    one = matcher()
    save_run(tmp_path / "mlm", MaskedLM(Encoder(tiny_config(vocabulary_size=len(ROWS)))),
             one.tokenizer)
    with pytest.raises(ValueError, match="it holds a MaskedLM; fine-tune it first"):
        DocumentMatcher.load(tmp_path / "mlm")
    save_run(tmp_path / "bare", one.model, one.tokenizer)
    with pytest.raises(ValueError, match="must record how its scorer reads texts"):
        DocumentMatcher.load(tmp_path / "bare")
    with pytest.raises(FileNotFoundError):
        DocumentMatcher.load(tmp_path / "none")
    with pytest.raises(ValueError, match="needs a layout of kind 'siamese'; got 'pair'"):
        DocumentMatcher(one.model, one.tokenizer, Layout("pair", 64))
    with pytest.raises(ValueError, match="needs a PairScorer or a SiameseScorer; got Encoder"):
        DocumentMatcher(one.model.encoder, one.tokenizer, one.layout)
