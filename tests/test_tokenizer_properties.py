"""What holds for every text."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roformer_zh.tokenizer.cleaning import UNICODE_FORMS, Cleaner
from roformer_zh.tokenizer.segmenter import make_segmenter
from tests.tokenizer_texts import texts, tokenizer

UNK = 1
OPTIONS = [dict(mode="word"), dict(mode="char"), dict(mode="word", strip_accents=True),
           dict(mode="word", unicode_form="NFKC"), dict(mode="char", unicode_form="NFD"),
           dict(mode="word", lowercase=False)]
BLANK = ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")

in_all_modes = pytest.mark.parametrize(
    "options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
quickly = settings(deadline=None, max_examples=60)


@settings(deadline=None, max_examples=300)
@given(texts)
@example("他来到了网易杭研大厦")
@example("4s店c++江南style1号店①％\u3000\r\n𠮷👨\u200d👩\u200d👧")
def test_rjieba_and_jieba_give_the_same_words_and_ids(text):
    """messense/rjieba-py#34, yanyiwu/cppjieba#114: ports that differ from jieba."""
    plain = text.encode("utf-8", "ignore").decode()  # rjieba takes no lone surrogates
    words = make_segmenter("rjieba")(plain)
    assert words == make_segmenter("jieba")(plain)
    assert "".join(words) == plain
    for mode in ("word", "char"):
        assert (tokenizer(mode=mode, segmenter="rjieba").encode_words(text)
                == tokenizer(mode=mode, segmenter="jieba").encode_words(text))


@in_all_modes
@quickly
@given(text=texts)
def test_offsets_point_to_the_source_of_each_token(options, text):
    made = tokenizer(**options)
    tokens, spans = made.tokenize(text), made.offsets(text)
    assert len(tokens) == len(spans)
    last = 0
    for token, (start, end) in zip(tokens, spans, strict=True):
        assert last <= start < end <= len(text)
        last = start
        source = made.clean(text[start:end])
        assert source.strip()
        if token != "[UNK]":
            piece = token[2:] if token.startswith("##") and len(token) > 2 else token
            assert piece in source
            if "unicode_form" not in options and len(source) == end - start:
                assert piece == source


@in_all_modes
@quickly
@given(text=texts)
def test_the_ways_to_encode_agree(options, text):
    made = tokenizer(**options)
    ids, starts = made.encode_words(text)
    assert ids == made.encode(text) == [made.token_to_id(token) for token in made.tokenize(text)]
    assert len(starts) == len(ids) and all(starts[:1])
    assert not set(ids) & (made.special_ids - {UNK})
    for length in (0, 1, 3, len(ids)):
        assert made.encode(text, max_length=length) == ids[:length]
    words = made.segment(text)
    if made.mode == "word":
        assert sum(starts) == len(words)
    assert sum(starts) <= len(words) <= len(made.clean(text))


@quickly
@given(first=texts, second=texts, blank=st.sampled_from("\n \u3000\x00\u200b\ufeff\u2028"))
def test_a_blank_separates_whatever_stands_beside_it(first, second, blank):
    for mode in ("word", "char"):
        made = tokenizer(mode=mode)
        assert made.encode(first + blank + second) == made.encode(first) + made.encode(second)


@quickly
@given(text=texts)
def test_decode_gives_the_text_back_but_for_blanks(text):
    for mode in ("word", "char"):
        made = tokenizer(mode=mode)
        ids = made.encode(text)
        if UNK not in ids:
            assert "".join(made.decode(ids).split()) == "".join(made.clean(text).split())


@quickly
@given(first=texts, second=texts, length=st.integers(5, 40),
       truncation=st.sampled_from(["longest_first", "head", "tail", "head_tail"]))
def test_pairs_fit_and_keep_a_part_of_both(first, second, length, truncation):
    made = tokenizer()
    pair = made.encode_pair(first, second, length, truncation)
    assert len(pair.token_ids) == len(pair.segment_ids) <= length
    middle = pair.segment_ids.index(1)
    assert pair.segment_ids == [0] * middle + [1] * (len(pair.token_ids) - middle)
    a, b = pair.token_ids[1:middle - 1], pair.token_ids[middle:-1]
    assert bool(a) == bool(made.encode(first)) and bool(b) == bool(made.encode(second))
    assert (pair.token_ids[0], pair.token_ids[middle - 1], pair.token_ids[-1]) == (2, 3, 3)
    whole = len(made.encode(first)) + len(made.encode(second)) + 3
    if truncation == "longest_first":
        assert len(pair.token_ids) == min(whole, length)


@pytest.mark.parametrize("form", UNICODE_FORMS)
@settings(deadline=None, max_examples=200)
@given(text=st.text(st.one_of(
    st.characters(exclude_categories=BLANK),
    st.sampled_from("가각각ｶﾞﾊﾟか\u3099\u309aeé\u0301\u0323\u0345İſΩ"),
    st.characters(categories=["Mn"]), st.characters(min_codepoint=0x0900, max_codepoint=0x0DFF)),
    max_size=12).filter(lambda text: not any(unicodedata.category(c) in BLANK for c in text)))
def test_a_unicode_form_applied_by_clusters_is_the_form_of_the_text(form, text):
    cleaner = Cleaner(lowercase=False, unicode_form=form)
    expected = unicodedata.normalize(form, text)
    expected = "".join(" " if unicodedata.category(c) in BLANK else c for c in expected)
    assert cleaner.clean(text) == expected
    aligned, starts, ends = cleaner.align(text)
    assert aligned == expected and len(starts) == len(ends) == len(aligned)
