"""WordTokenizer: what becomes which token, and back."""

import copy
import json
import pickle

import numpy as np
import pytest

from roformer_zh.tokenizer import WordTokenizer
from tests.tokenizer_texts import SPECIALS, VOCABULARY, small, tokenizer

UNK, CLS, SEP, MASK = 1, 2, 3, 4


def test_words_of_the_vocabulary_are_one_token_and_others_are_characters():
    assert tokenizer().tokenize("今天法院判决。") == ["今天", "法院", "判决", "。"]
    # jieba has the word 今天天气, which is too rare for a row
    assert tokenizer().tokenize("今天天气非常好") == ["今", "天", "天", "气", "非常", "好"]
    assert small("中", "华", "今天").tokenize("今天中华") == ["今天", "中", "华"]


def test_a_word_takes_fewer_ids_than_its_characters():
    text = "中华人民共和国法院判决"
    assert len(tokenizer().encode(text)) < len(tokenizer(mode="char").encode(text)) == len(text)


def test_no_hmm_guesses_words():
    assert tokenizer().segment("他来到了网易杭研大厦") == [
        "他", "来到", "了", "网易", "杭", "研", "大厦"]


def test_pieces_with_hashes_follow_letters_and_digits_only():
    """weizhepei/CasRel#50: `##乙` is in released vocabularies and is the wrong row."""
    rows = ("甲", "乙", "##乙", "1", "2", "##2", "##b", "a")
    for mode in ("word", "char"):
        assert small(*rows, mode=mode).tokenize("甲乙12 ab乙") == [
            "甲", "乙", "1", "##2", "a", "##b", "乙"]


def test_the_longest_piece_is_taken():
    assert small("c", "contract", "con", "##t", "##tr", "##act").tokenize("contracts contract") == [
        "[UNK]", "contract"]
    assert small("con", "c", "##t", "##tr", "##act").tokenize("contract") == [
        "con", "##tr", "##act"]


@pytest.mark.parametrize("mode", ["word", "char"])
def test_unknown_characters_and_words_become_one_unk_each(mode):
    """PaddlePaddle/PaddleNLP#4863, #3901."""
    made = small("甲", "a", "##a", mode=mode)
    assert made.encode("鿕鿕") == [UNK, UNK]
    assert made.offsets("鿕鿕") == [(0, 1), (1, 2)]
    assert made.encode("a" * 100) == [6] + [7] * 99
    assert made.encode("a" * 101) == [UNK]
    assert made.encode("a" * 201 + "甲") == [UNK, 5]
    assert made.encode("aab甲") == [UNK, 5]  # nothing of the failed match is left


@pytest.mark.parametrize("mode", ["word", "char"])
def test_blanks_and_controls_separate_words_and_give_no_token(mode):
    """JunnYu/RoFormer_pytorch#23, huggingface/transformers#3058."""
    made = tokenizer(mode=mode)
    plain = made.encode("原告 被告")
    assert made.encode("原告\n\u3000被告\r\n") == plain
    assert UNK not in plain
    for blank in ("\u200b", "\ufeff", "\x00", "\x1c", "\x85", "\u2028", "\xa0", "\xad", "\ud800",
                  "\u2002", "\r", "\t\x0b"):
        assert made.encode(f"{blank}原告{blank}被告{blank}") == plain, repr(blank)
        assert made.encode(f"天{blank}气") == made.encode("天") + made.encode("气")
        assert made.encode(f"a{blank}b") == made.encode("a") + made.encode("b")
    assert made.encode("") == made.encode(" \n\u3000\u200b") == []


def test_a_row_that_is_a_blank_is_never_used():
    made = small("\u3000", "\u2028", "", "a")
    assert made.encode("a\u3000\u2028 a") == [8, 8]
    assert made.id_to_token(5) == "\u3000"


@pytest.mark.parametrize("mode", ["word", "char"])
def test_special_tokens_in_a_text_are_text_unless_asked_for(mode):
    """keras-team/keras-hub#1395."""
    made = tokenizer(mode=mode)
    pair = made.encode_pair("我[SEP]你[PAD]", "[CLS]他[MASK]")
    assert pair.token_ids.count(SEP) == 2 and pair.token_ids[-1] == SEP
    assert not {0, MASK} & set(pair.token_ids) and pair.token_ids.count(CLS) == 1
    me, you = made.token_to_id("我"), made.token_to_id("你")
    assert made.encode("我[MASK]你", allow_special=True) == [me, MASK, you]
    assert made.tokenize("我[MASK][mask]", allow_special=True)[:2] == ["我", "[MASK]"]
    assert made.encode("我[MASK][mask]", allow_special=True).count(MASK) == 1
    assert made.offsets("我 [MASK]你", allow_special=True) == [(0, 1), (2, 8), (8, 9)]
    assert made.encode("我[MASK]你", max_length=2, allow_special=True) == [me, MASK]


def test_full_width_digits_stay_apart_unless_a_unicode_form_is_chosen():
    """PaddlePaddle/PaddleNLP#875: the released weights read text without NFKC."""
    wide, narrow = "利率１０％", "利率10%"
    assert tokenizer().encode(wide) != tokenizer().encode(narrow)
    made = tokenizer(unicode_form="NFKC")
    assert made.encode(wide) == made.encode(narrow)
    assert made.offsets(wide) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_offsets_count_characters_of_the_text_as_given():
    """huggingface/transformers#12244; a UTF-16 implementation says 4 after the emoji."""
    text = "被告😀欠𠮷野家100元"
    made = tokenizer(mode="char")
    spans = made.offsets(text)
    assert spans[3] == (3, 4)
    assert [text[a:b] for a, b in spans] == list(text)
    assert tokenizer().offsets(text)[:3] == [(0, 2), (2, 3), (3, 4)]


def test_offsets_survive_changes_of_length():
    made = tokenizer(unicode_form="NFKC", strip_accents=True)
    text = "İ\x00㈱cafe\u0301ﬁ ＡＢ½"
    tokens, spans = made.tokenize(text), made.offsets(text)
    found = [(token, text[a:b]) for token, (a, b) in zip(tokens, spans, strict=True)]
    assert found[:4] == [("i", "İ"), ("(", "㈱"), ("株", "㈱"), (")", "㈱")]
    assert ("##e", "e\u0301") in found and ("##f", "ﬁ") in found and ("##i", "ﬁ") in found
    assert ("a", "Ａ") in found and ("##b", "Ｂ") in found


def test_cleaning_options():
    assert tokenizer().tokenize("ÀＢ") == ["à", "ｂ"]
    assert tokenizer(strip_accents=True).tokenize("À É한") == ["a", "e", "[UNK]"]
    assert small("A", "a", lowercase=False).tokenize("A a") == ["A", "a"]
    with pytest.raises(ValueError, match=r"unicode_form must be None or one of NFC.*'nfkc'"):
        small(unicode_form="nfkc")


def test_decode_is_readable():
    text = "原告张三 hello world，2018年借款50,000.00元。"
    for mode in ("word", "char"):
        made = tokenizer(mode=mode)
        assert made.decode(made.encode(text)) == "原告张三hello world，2018年借款50,000.00元。"
        assert made.decode(np.array(made.encode("原告"))) == "原告"
    pair = tokenizer().encode_pair("原告", "被告")
    assert tokenizer().decode(pair.token_ids) == "[CLS]原告[SEP]被告[SEP]"
    assert tokenizer().decode(pair.token_ids, skip_special=True) == "原告被告"


def test_an_id_out_of_range_is_an_error():
    made = small("甲")
    for bad in (6, -1):
        with pytest.raises(ValueError, match=rf"0\.\.5.*got {bad}"):
            made.decode([bad])
    with pytest.raises(TypeError):
        made.id_to_token(1.5)


def test_an_unknown_token_is_an_error_with_a_hint():
    with pytest.raises(ValueError, match=r"'\[MSAK\]' is not a token.*mean '\[MASK\]'"):
        small().token_to_id("[MSAK]")


def test_encode_words_marks_where_words_start_in_both_modes():
    rows = ("今天", "今", "天", "气", "a", "##b", "。")
    text = "今天气天气 AB。"
    assert small(*rows).encode_words(text) == (
        [5, 8, 7, 8, 9, 10, 11], [True, True, True, False, True, False, True])
    assert small(*rows, mode="char").encode_words(text) == (
        [6, 7, 8, 7, 8, 9, 10, 11], [True, False, True, True, False, True, False, True])


def test_a_word_start_inside_a_run_of_letters():
    """jieba knows 4s店, so 14s店 is 1 and 4s店; character mode reads the run 14s."""
    made = tokenizer(mode="char")
    assert made.segment("14s店") == ["1", "4s店"]
    assert made.tokenize("14s店") == ["1", "##4", "##s", "店"]
    assert made.encode_words("14s店")[1] == [True, True, False, False]
    few = small("1", "4", "##s", "店", mode="char")
    assert few.encode_words("14s店") == ([UNK, 8], [True, True])


def test_max_length_gives_the_same_start():
    for mode in ("word", "char"):
        made = tokenizer(mode=mode)
        text = "原告与被告系朋友关系，2018年借款50,000.00元\r\n" * 200 + "ab" * 300 + "。"
        whole = made.encode(text)
        for length in (0, 1, 7, 64, 1000, 10**6):
            assert made.encode(text, max_length=length) == whole[:length]
        thin = "".join("中华人民共和国" + " " * n for n in range(450, 490))
        whole = made.encode(thin)  # mostly blanks, so that many parts are read for few ids
        assert all(made.encode(thin, max_length=n) == whole[:n] for n in range(42))
    for bad in (-1, 1.5, "3"):
        with pytest.raises(ValueError, match="max_length must be a whole number of 0 or more"):
            tokenizer().encode("甲", max_length=bad)


def test_text_cut_at_line_ends_gives_the_tokens_of_the_whole():
    """bert4keras#12: pieces cut at a number of characters lose words."""
    text = "".join(f"原告与被告第{n}次系朋友关系。\n" for n in range(200))
    parts = [number for line in text.split("\n") for number in tokenizer().encode(line)]
    assert parts == tokenizer().encode(text)


@pytest.mark.parametrize("mode", ["word", "char"])
@pytest.mark.parametrize("segmenter", ["rjieba", "jieba"])
def test_long_input_takes_linear_time(mode, segmenter):
    """fxsjy/jieba#782. A quadratic step would take minutes on these."""
    made = tokenizer(mode=mode, segmenter=segmenter)
    text = "原告与被告系朋友关系" * 20_000
    whole = made.encode(text)
    assert len(whole) >= 100_000
    assert made.encode(text, max_length=64) == whole[:64]
    for odd in ("1" * 50_000, "\u0301" * 50_000, "\r\n" * 25_000):
        ids, starts = made.encode_words(odd)
        assert len(ids) == len(starts) == len(made.offsets(odd))


def test_marks_without_end_take_linear_time():
    made = tokenizer(unicode_form="NFKC")
    assert len(made.encode("a" + "\u0301\u0323" * 100_000)) > 1


def test_pairs_keep_both_texts():
    made = tokenizer()
    a, b = "原告" * 300, "被告" * 20
    first, second = made.token_to_id("原告"), made.token_to_id("被告")
    pair = made.encode_pair(a, b, 128)
    assert pair.token_ids == [CLS, *[first] * 105, SEP, *[second] * 20, SEP]
    assert pair.segment_ids == [0] * 107 + [1] * 21
    assert made.encode_pair(b, a, 128).token_ids == [CLS, *[second] * 20, SEP, *[first] * 105, SEP]
    assert made.encode_pair(a, a, 128).token_ids.count(first) == 125
    assert made.encode_pair(a, a, 128).segment_ids.count(0) == 65  # [CLS] and [SEP] included
    assert len(made.encode_pair(a, a).token_ids) == 603
    assert made.encode_pair(a, b, 5).token_ids == [CLS, first, SEP, second, SEP]
    assert made.encode_pair("", b, 128).token_ids == [CLS, SEP, *[second] * 20, SEP]


@pytest.mark.parametrize(("truncation", "kept"), [
    ("head", "甲乙丙丁"), ("tail", "己庚辛壬"), ("head_tail", "甲乙辛壬")])
def test_pairs_may_keep_other_parts_of_each_text(truncation, kept):
    made = tokenizer(mode="char")
    pair = made.encode_pair("甲乙丙丁戊己庚辛壬", "子丑", 11, truncation)
    assert made.decode(pair.token_ids) == f"[CLS]{kept}[SEP]子丑[SEP]"
    alone = made.encode_pair("甲乙丙丁戊己庚辛壬", "子丑寅卯辰巳午", 11, truncation)
    assert alone.token_ids[:6] == pair.token_ids[:6]  # does not depend on the other text


def test_pair_arguments_are_checked():
    with pytest.raises(ValueError, match=r"truncation must be one of longest_first.*'middle'"):
        tokenizer().encode_pair("a", "b", 9, "middle")
    with pytest.raises(ValueError, match=r"sequence_length .* 5 or more; got 4"):
        tokenizer().encode_pair("a", "b", 4)


def test_only_text_is_encoded():
    for call in (tokenizer().encode, tokenizer().offsets, tokenizer().encode_words,
                 tokenizer().segment, lambda text: list(tokenizer().encode(text, None, True))):
        with pytest.raises(TypeError, match="a text must be a str; got bytes"):
            call(b"abc")


def test_saving_copying_and_pickling_keep_the_words(tmp_path):
    """huggingface/transformers#28164: a reloaded tokenizer that splits into characters."""
    text = "今天天气非常好，LPR利率。"
    made = WordTokenizer.load(VOCABULARY, user_dictionary=[("lpr利率", 9999)])
    made.save(tmp_path)
    expected = made.encode(text)
    assert made.token_to_id("非常") in expected and "lpr利率" in made.segment(text)
    for other in (WordTokenizer.load(tmp_path), pickle.loads(pickle.dumps(made)),
                  copy.deepcopy(made), copy.copy(made)):
        assert other.encode(text) == expected
        assert other.segment(text) == made.segment(text)
        assert other.fingerprint() == made.fingerprint()


def test_a_saved_character_tokenizer_has_the_character_rows_only(tmp_path):
    made = tokenizer(mode="char")
    made.save(tmp_path)
    again = WordTokenizer.load(tmp_path)
    assert again.mode == "char"
    assert again.vocabulary == made.vocabulary == tokenizer().vocabulary[:made.vocabulary_size]
    assert again.encode("今天ab12") == made.encode("今天ab12")


def test_a_tokenizer_of_the_other_kind_is_an_error_that_names_both(tmp_path):
    """JunnYu/RoFormer_pytorch#23: same weights, two tokenizers, two outputs."""
    tokenizer().save(tmp_path)
    with pytest.raises(ValueError, match="mode 'word'; asked for mode 'char'"):
        WordTokenizer.load(tmp_path, mode="char")
    recorded = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match=r"WordTokenizer/word.*WordTokenizer/char"):
        tokenizer(mode="char").check(recorded, "runs/a")
    assert WordTokenizer.load(tmp_path, mode="word", segmenter="jieba").mode == "word"


@pytest.mark.parametrize(("file", "old", "new", "message"), [
    ("vocab.txt", "今天\n", "明天\n", "vocabulary_hash"),
    ("vocab.txt", "今天\n", "", "vocabulary_size 6 there, 5 here"),
    ("tokenizer.json", '"lpr"', '"lpq"', "dictionary_hash"),
    ("tokenizer.json", '"hmm": false', '"hmm": true', "hmm True there, False here"),
    ("tokenizer.json", '"mode"', '"made"', "must be a tokenizer.json of this library"),
    ("tokenizer.json", "{", "[", "must be JSON"),
])
def test_a_folder_whose_parts_do_not_belong_together_is_an_error(tmp_path, file, old, new, message):
    WordTokenizer([*SPECIALS, "今天"], user_dictionary=["lpr"]).save(tmp_path)
    path = tmp_path / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        WordTokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_says_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is missing"):
        WordTokenizer.load(tmp_path)
    small().save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt"):
        WordTokenizer.load(tmp_path)


def test_options_are_checked():
    with pytest.raises(ValueError, match="mode must be one of word, char; got 'words'"):
        small(mode="words")
    with pytest.raises(ValueError, match="segmenter must be one of auto, rjieba, jieba"):
        small(segmenter="pkuseg")
    with pytest.raises(TypeError):
        small(lower_case=True)
