"""Rows, texts and strategies that the tokenizer's tests share."""

import functools
from pathlib import Path

from hypothesis import strategies as st

from roformer_zh.tokenizer import WordTokenizer

VOCABULARY = Path(__file__).parent.parent / "vocab" / "vocab.txt"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

WORDS = ["今天天气", "中华人民共和国", "被告", "原告", "借款", "天气", "网易", "杭研", "法院",
         "4s店", "c++", "１２３", "10.5%", "50,000.00", "①②", "LPR", "T恤", "1号店", "江南style"]
ODD = [*"①％\u3000\t\n\x00\x1c\x85\u200b\u200d\ufeff\u2028\u00ad𠮷鿕㐀豈😀👩é\u0301ﬁ㎡㈱ｶﾞİßΣς",
       *"Ａ９[]#_.-+&% ", "\r\n", "👨\u200d👩\u200d👧", "\ud800", "[SEP]", "[MASK]", "##a"]

texts = st.lists(
    st.one_of(st.sampled_from(WORDS), st.sampled_from(ODD), st.text(max_size=3),
              st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), max_size=4),
              st.text("abcXYZ0189", max_size=5)),
    max_size=12).map("".join)
"""Any text, Chinese and odd characters more often than not; lone surrogates too."""


@functools.cache
def tokenizer(**options):
    """A tokenizer on the committed vocabulary."""
    return WordTokenizer.load(VOCABULARY, **options)


def small(*tokens, **options):
    """A tokenizer on the special tokens and `tokens`."""
    return WordTokenizer([*SPECIALS, *tokens], **options)
