"""Token shards: what goes in comes out, and damage is found and named."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer_zh import WordTokenizer
from roformer_zh.corpus import Corpus, write_corpus
from roformer_zh.corpus.documents import CLAUSE, SENTENCE, WORD, DocumentEncoder, id_dtype
from roformer_zh.corpus.writer import CorpusWriter
from tests.texts import ROWS, WORDS, folder_bytes, random_corpus, random_texts, tokenizer

ODD = (
    "今天法院判决认为。！？；，、：“”’」 \t\n\r\x0b\x0c\x1c\x85\u2028\u3000"
    "aAbé\u0301１2３%.-\U00020000😀\ufeff"
)
DOCUMENT = st.lists(st.sampled_from([*ODD, *WORDS, "\r\n", "。”", "abc12"]), max_size=60)
TOKENIZERS = [
    tokenizer(),
    tokenizer("char"),
    tokenizer(unicode_form="NFKC", strip_accents=True),
    tokenizer(unicode_form="NFD", lowercase=False),
]


@pytest.mark.parametrize("index", range(len(TOKENIZERS)))
@settings(deadline=None, max_examples=150)
@given(texts=st.lists(DOCUMENT.map("".join), min_size=1, max_size=3))
def test_ids_are_those_of_the_whole_document(index, texts):
    encoder = DocumentEncoder(TOKENIZERS[index])
    documents = encoder.encode(texts)
    ends = np.cumsum(documents.lengths)
    for text, end, length in zip(texts, ends, documents.lengths, strict=True):
        ids, words = TOKENIZERS[index].encode_words(text)
        part = slice(end - length, end)
        assert documents.ids[part].tolist() == ids == TOKENIZERS[index].encode(text)
        assert (documents.starts[part] & WORD != 0).tolist() == words


def pieces_at(text, bit, mode="word"):
    """The text's tokens, cut where a bit is set."""
    used = tokenizer(mode)
    documents = DocumentEncoder(used).encode([text])
    tokens = [used.id_to_token(i) for i in documents.ids]
    starts = np.flatnonzero(documents.starts & bit).tolist()
    return ["".join(tokens[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True)]


@pytest.mark.parametrize("mode", ["word", "char"])
def test_sentences_end_after_marks_their_closing_quotes_and_lines(mode):
    text = "他说：“今天好。”他笑了！？真的；第一行\n第二行，好"
    sentences = ["他说：“今天好。”", "他笑了！？", "真的；", "第一行", "第二行，好"]
    assert pieces_at(text, SENTENCE, mode) == sentences


def test_a_quote_after_a_line_break_opens_the_next_sentence():
    assert pieces_at("好。\n”今天", SENTENCE) == ["好。", "”今天"]


def test_clauses_end_after_commas_too():
    clauses = ["他说：", "“一、", "二，", "三。”", "好"]
    assert pieces_at("他说：“一、二，三。”好", CLAUSE) == clauses


def test_special_tokens_are_no_closing_brackets():
    # "[UNK]" ends with "]", which must not glue an unknown character to the sentence before it
    assert pieces_at("好。囗好", SENTENCE) == ["好。", "[UNK]好"]


def test_a_corpus_returns_its_documents(tmp_path):
    texts = [*random_texts(30), "\x00\u200b", "好"]
    used = tokenizer()
    corpus = write_corpus(tmp_path / "c", used, texts)
    expected = [used.encode(text) for text in texts if used.encode(text)]
    assert corpus.num_documents == len(expected) == 31
    assert [corpus.document(i).tolist() for i in range(31)] == expected
    assert corpus.num_tokens == sum(map(len, expected))
    assert corpus.document_characters[-1] == 1
    assert corpus.meta["num_characters"] == corpus.document_characters.sum()
    assert corpus.tokenizer.fingerprint() == used.fingerprint()
    assert corpus.ids.dtype == np.uint16


def test_words_are_numbered_from_the_start(tmp_path):
    corpus = random_corpus(tmp_path / "c", 60)
    words = corpus.bits(corpus.word_bits, 0, corpus.num_tokens)
    assert corpus.num_tokens > 3000  # several blocks of 1,024
    before = np.cumsum(words) - words
    assert (corpus.words_before(np.arange(corpus.num_tokens)) == before).all()
    assert corpus.meta["num_words"] == words.sum() < corpus.num_tokens
    assert (corpus.bits(corpus.word_bits, 1013, 2047) == words[1013:2047]).all()


def test_word_and_character_preparations_agree_on_text_and_words(tmp_path):
    word = random_corpus(tmp_path / "w")
    char = random_corpus(tmp_path / "c", mode="char")
    assert word.num_tokens < char.num_tokens
    for key in ("corpus_hash", "num_words", "num_sentences", "num_characters", "num_documents"):
        assert word.meta[key] == char.meta[key]
    other = random_corpus(tmp_path / "o", seed=1)
    assert other.meta["corpus_hash"] != word.meta["corpus_hash"]


def test_many_appends_write_the_same_bytes_as_one(tmp_path):
    texts = random_texts(50)
    used = tokenizer()
    encoder = DocumentEncoder(used)
    for name, size in (("one", 50), ("many", 3)):
        (tmp_path / name).mkdir()
        writer = CorpusWriter(tmp_path / name, used)
        for start in range(0, 50, size):
            writer.append(encoder.encode(texts[start : start + size]))
        writer.finish()
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "many")


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    rows = [*ROWS, *(f"词{i}" for i in range(70_000)), "咱们"]
    used = WordTokenizer(rows)
    corpus = write_corpus(tmp_path / "c", used, ["咱们好"])
    assert corpus.ids.tolist() == [len(rows) - 1, ROWS.index("好")]
    assert (id_dtype(1 << 16), id_dtype((1 << 16) + 1)) == (np.uint16, np.uint32)


def test_token_characters_count_the_text_of_a_row(tmp_path):
    corpus = random_corpus(tmp_path / "c")
    counts = dict(zip(ROWS, corpus.token_characters.tolist(), strict=True))
    assert (counts["今天"], counts["天"], counts["##a"]) == (2, 1, 1)
    assert (counts["[UNK]"], counts["[MASK]"]) == (1, 0)
    total = corpus.token_characters[corpus.ids].sum()
    assert total == corpus.meta["num_characters"]  # every character stands in one token


FILES = [
    *("ids.bin", "documents.bin", "characters.bin", "word_counts.bin", "words.bits"),
    *("sentences.bits", "clauses.bits", "vocab.txt", "tokenizer.json"),
]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_and_named(tmp_path, name):
    random_corpus(tmp_path / "c").verify()
    path = tmp_path / "c" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"contents of {name} must match"):
        Corpus.open(tmp_path / "c").verify()


@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_is_named_at_once(tmp_path, name):
    # NVIDIA/DeepLearningExamples#425: a truncated shard must not hang the input
    random_corpus(tmp_path / "c")
    path = tmp_path / "c" / name
    path.write_bytes(path.read_bytes()[:-10])
    started = time.monotonic()
    with pytest.raises(ValueError, match=rf"{name} must have [\d,]+ bytes and has [\d,]+"):
        Corpus.open(tmp_path / "c")
    assert time.monotonic() - started < 5


def test_a_missing_file_is_named(tmp_path):
    random_corpus(tmp_path / "c")
    (tmp_path / "c" / "ids.bin").unlink()
    with pytest.raises(ValueError, match=r"ids.bin must have .* is missing"):
        Corpus.open(tmp_path / "c")


def test_changed_meta_data_are_found(tmp_path):
    random_corpus(tmp_path / "c")
    path = tmp_path / "c" / "meta.json"
    text = path.read_text()
    path.write_text(text.replace('"num_words": ', '"num_words": 1'))
    with pytest.raises(ValueError, match="own checksum"):
        Corpus.open(tmp_path / "c")
    path.write_text(text[:-30])
    with pytest.raises(ValueError, match=r"meta.json must be the JSON .* damaged"):
        Corpus.open(tmp_path / "c")
    path.write_text("[]")
    with pytest.raises(ValueError, match="damaged"):
        Corpus.open(tmp_path / "c")


def test_no_corpus_and_an_empty_corpus_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no meta.json; make one with"):
        Corpus.open(tmp_path)
    with pytest.raises(ValueError, match="at least one document"):
        write_corpus(tmp_path / "c", tokenizer(), ["\n", ""])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", [tokenizer("char"), tokenizer(rows=[*ROWS, "认识"])])
def test_another_tokenizer_is_refused(tmp_path, other):
    corpus = random_corpus(tmp_path / "c")
    corpus.require_tokenizer(tokenizer())
    with pytest.raises(ValueError, match="vocabulary_hash"):
        corpus.require_tokenizer(other)
