"""Vocabulary files: the row number is the id."""

import warnings

import numpy as np
import pytest

from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.tokenizer.extension import extend_tokenizer
from roformer_zh.tokenizer.vocabulary import Vocabulary, read_rows, rows_hash, write_rows
from tests.tokenizer_texts import SPECIALS, VOCABULARY, small, tokenizer


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_tokens(tmp_path):
    """fxsjy/jieba#236."""
    path = tmp_path / "vocab.txt"
    path.write_bytes(bytes.fromhex("EF BB BF 5B 50 41 44 5D 0D 0A 61 0D 0A"))
    assert read_rows(path) == ["[PAD]", "a"]


def test_only_a_line_feed_ends_a_row(tmp_path):
    rows = [*SPECIALS, "\u2028", "\u0085", "甲", "", "\x0c", "\x1e", "\u3000", "乙"]
    for end in ("\n", "\r\n"):
        path = write(tmp_path / "vocab.txt", "".join(row + end for row in rows))
        made = WordTokenizer.load(path)
        assert made.vocabulary == tuple(rows)
        assert made.encode("甲\u2028乙") == [7, 12]
        made.save(tmp_path / "saved")
        assert WordTokenizer.load(tmp_path / "saved").vocabulary == tuple(rows)
    assert read_rows(write(tmp_path / "no_end", "甲\n乙")) == ["甲", "乙"]
    assert read_rows(write(tmp_path / "blanks", "甲 \n\n\t乙\n\n")) == ["甲", "", "乙", ""]


def test_blank_rows_keep_their_number_and_are_never_used():
    made = WordTokenizer(["[PAD]", "", "[UNK]", "[CLS]", "", "[SEP]", "甲", ""])
    assert (made.unk_id, made.sep_id, made.vocabulary_size) == (2, 5, 8)
    assert made.encode("甲 乙") == [6, 2]


def test_the_last_of_several_equal_rows_is_the_id():
    """As in the loaders of BERT and transformers, where later rows overwrite earlier ones."""
    with pytest.warns(UserWarning, match="1 of 8 vocabulary rows repeat an earlier one; the last"):
        made = small("甲", "乙", "甲")
    assert made.encode("甲乙") == [7, 6]
    assert made.decode([5, 7]) == "甲甲"
    assert made.vocabulary_size == 8


@pytest.mark.parametrize(("data", "message"), [
    (b"\xff\xfe[\x00", r":1: a vocabulary must be UTF-8"), ("[PAD]\n甲".encode("gbk"), ":2: "),
    (b"", "holds no tokens"), (b"\xef\xbb\xbf\r\n", "holds no tokens")])
def test_a_file_that_is_no_vocabulary_is_an_error(tmp_path, data, message):
    (tmp_path / "vocab.txt").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        WordTokenizer.load(tmp_path / "vocab.txt")


@pytest.mark.parametrize("rows", [[*SPECIALS, "a\nb"], [*SPECIALS, "a\r"], [*SPECIALS, 3],
                                  ["\ufeff[PAD]", *SPECIALS], "[PAD]"])
def test_rows_that_no_file_could_hold_are_errors(rows):
    with pytest.raises(ValueError, match="vocabulary"):
        WordTokenizer(rows)


def test_special_tokens_are_found_by_name():
    """ZhuiyiTechnology/WoBERT#18: 100 to 103 in BERT's file, other rows in others."""
    made = WordTokenizer(["[PAD]", *(f"[unused{n}]" for n in range(1, 100)), *SPECIALS[1:], "甲"])
    assert (made.pad_id, made.unk_id, made.cls_id, made.sep_id, made.mask_id) == (
        0, 100, 101, 102, 103)
    assert made.special_ids == {0, 100, 101, 102, 103}
    assert made.encode_pair("甲", "乙").token_ids == [101, 104, 102, 100, 102]


def test_a_missing_mask_only_matters_to_those_who_ask_for_it():
    made = WordTokenizer([*SPECIALS[:4], "中"])
    assert made.encode_pair("中", "中").token_ids == [2, 4, 3, 4, 3]
    assert made.special_ids == {0, 1, 2, 3}
    with pytest.raises(ValueError, match=r"'\[MASK\]' is not a token"):
        made.mask_id  # noqa: B018
    with pytest.raises(ValueError, match=r"\[CLS\], \[SEP\] missing among 3 rows"):
        WordTokenizer(["[PAD]", "[UNK]", "中"])


def test_padding_at_another_row_is_said():
    with pytest.warns(UserWarning, match=r"\[PAD\] is row 1 of this vocabulary, not row 0"):
        assert WordTokenizer(["[UNK]", "[PAD]", "[CLS]", "[SEP]"]).pad_id == 1


def test_character_mode_uses_the_leading_character_rows():
    rows = [*SPECIALS, "a", "##b", "今", "天"]
    made = WordTokenizer([*rows, "今天", "ab"], mode="char")
    assert made.vocabulary == tuple(rows)
    assert made.tokenize("今天ab") == ["今", "天", "a", "##b"]


def test_character_mode_never_uses_words_that_stand_between_characters():
    made = small("今天", "今", "ab", "天", "a", "##b", mode="char")
    assert made.vocabulary_size == 11
    assert made.encode("今天ab") == [6, 8, 9, 10]


def test_a_vocabulary_without_chinese_words_keeps_its_latin_pieces():
    """BERT's own file: 21128 rows of characters, Latin pieces and ##characters."""
    made = small("中", "##中", "contract", "##s", "2018", "##ing", mode="char")
    assert made.vocabulary_size == 11
    assert made.tokenize("contracts中2018中") == ["contract", "##s", "中", "2018", "中"]


def test_rows_that_text_must_not_reach_are_not_reached():
    made = small("##甲", "##", "#", "甲", user_dictionary=["##甲"])
    assert made.segment("##甲") == ["##甲"]
    assert made.tokenize("##甲") == ["#", "#", "甲"]


def test_vocabulary_model_and_table_must_have_the_same_rows(tmp_path):
    """ZhuiyiTechnology/WoBERT#15, JunnYu/RoFormer_pytorch#12."""
    from roformer_zh import Encoder
    from roformer_zh.runs import check_vocabulary
    from tests.conftest import tiny_config

    encoder = Encoder(tiny_config(vocabulary_size=12))
    ten = small(*"一二三四五")
    with pytest.raises(ValueError, match="got 10, 12 and 12"):
        check_vocabulary(encoder, ten, "runs/a")
    inputs = {"token_ids": np.array([[2, 12, 3]]), "segment_ids": np.zeros((1, 3), "int32"),
              "padding_mask": np.ones((1, 3), bool)}
    with pytest.raises(Exception, match="12"):
        encoder(inputs)


def test_the_committed_vocabulary_is_what_its_readme_says():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = read_rows(VOCABULARY)
        Vocabulary(rows)
    assert len(rows) == len(set(rows)) == 50000 and rows[:5] == SPECIALS
    assert tokenizer(mode="char").vocabulary_size == 12377
    assert all(row == row.lower() for row in rows[5:])
    expected = [rows.index(row) for row in ("中", "a", "，", "1", "。")]
    assert tokenizer().encode("中A，1。") == expected


def test_the_hash_is_that_of_the_file(tmp_path):
    import hashlib

    write_rows(tmp_path / "v", ["甲", "乙"])
    assert rows_hash(["甲", "乙"]) == hashlib.sha256((tmp_path / "v").read_bytes()).hexdigest()
    assert rows_hash(["甲", "乙"]) != rows_hash(["乙", "甲"]) != rows_hash(["甲乙"])


def test_own_words_get_rows_behind_the_others():
    """ZhuiyiTechnology/WoBERT#1, #2: 借贷 is in jieba's dictionary, 砍头息 and LPR利率 are not."""
    old = small("借", "贷", "砍", "头", "息")
    new = extend_tokenizer(old, ["借贷", "砍头息", "LPR利率"])
    assert new.vocabulary == (*old.vocabulary, "借贷", "砍头息", "lpr利率")
    assert new.encode("LPR利率与砍头息的借贷") == [12, 1, 11, 1, 10]
    assert old.vocabulary_size == 10 and old.encode("借贷") == [5, 6]
    assert new.vocabulary_hash != old.vocabulary_hash
    assert new.dead_entries == ()
    assert extend_tokenizer(small("甲", mode="char"), ["鿕"]).encode("鿕甲") == [6, 5]


@pytest.mark.parametrize(("mode", "words", "message"), [
    ("word", [], "at least one word"), ("word", ["甲"], "'甲' is row 5"),
    ("word", ["借贷", "借贷"], "'借贷' is row 6"), ("word", ["[SEP]"], "'\\[sep\\]'"),
    ("word", ["##甲"], "has a meaning of its own"), ("word", ["１２号"], "no text gives '１２号'"),
    ("word", ["edu trust"], "no text gives"), ("word", [""], "must be text; got ''"),
    ("char", ["借贷"], "no text gives '借贷'.*one character")])
@pytest.mark.filterwarnings("ignore:.*user dictionary entries")
def test_own_words_that_no_text_could_reach_are_errors(mode, words, message):
    with pytest.raises(ValueError, match=message):
        extend_tokenizer(small("甲", mode=mode), words)
