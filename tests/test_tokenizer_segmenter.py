"""The segmenter: its dictionary, words of one's own, and apartness from the rest of the process."""

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import jieba
import pytest

from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.tokenizer.segmenter import make_segmenter
from tests.tokenizer_texts import SPECIALS, small, tokenizer

ROOT = Path(__file__).parent.parent
TEXT = "LPR利率与逾期利率"


def python(code, **environment):
    """Runs code in a fresh process; returns what it printed."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_every_word_of_jiebas_dictionary_is_cut_alike():
    """The dictionaries inside jieba and rjieba are the same."""
    words = Path(jieba.__file__).with_name("dict.txt").read_text(encoding="utf-8").splitlines()
    text = "".join(line.split(" ")[0] for line in words[::23]) + "。".join(
        line.split(" ")[0] for line in words if not line.split(" ")[0].isalpha())
    assert make_segmenter("rjieba")(text) == make_segmenter("jieba")(text)


def test_every_character_is_cut_alike():
    """Ports of jieba differ in which characters they join to a word."""
    rust, plain = make_segmenter("rjieba"), make_segmenter("jieba")
    odd = map(chr, (*range(0x3000), *range(0x3000, 0xD800, 7), *range(0xF900, 0x10000),
                    *range(0x1F000, 0x1FA00), *range(0x20000, 0x32000, 211)))
    text = "".join(f"法院{c}{c}a{c}院" for c in odd)
    assert rust(text) == plain(text)


def test_own_words_are_read_from_any_file_of_the_field(tmp_path):
    """fxsjy/jieba#236, #300: a BOM, a tab or capitals make an entry silently useless."""
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "逾期利率 10000\r\nLPR利率\t9999\n\n".encode())
    made = small("lpr利率", "与", "逾期利率", user_dictionary=path)
    assert made.segment(TEXT) == made.tokenize(TEXT) == ["lpr利率", "与", "逾期利率"]
    assert made.dead_entries == ()
    assert small(user_dictionary=["LPR利率"], lowercase=False).segment("LPR利率") == ["LPR利率"]


def test_own_words_are_cut_as_jieba_cuts_them(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("民间借贷纠纷 500 n\n借新还旧\n砍头息 nz\n利率 0\n张三丰\u30003\n",
                    encoding="utf-8")
    peer = jieba.Tokenizer()
    peer.initialize()
    for word, frequency in (("民间借贷纠纷", 500), ("借新还旧", None), ("砍头息", None),
                            ("利率", 0), ("张三丰", 3)):
        peer.add_word(word, frequency)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = small(user_dictionary=path)
    text = "民间借贷纠纷中借新还旧、砍头息与利率，张三丰称民间借贷的利率过高"
    assert made.segment(text) == peer.lcut(text, HMM=False)
    assert "砍头息" in made.segment(text) and "利率" not in made.segment(text)
    peer.add_word("我的", 1)
    assert peer.lcut("我的", HMM=False) == ["我", "的"]
    peer.add_word("啊啊", 10**12)  # a larger sum of frequencies makes every further word dearer
    assert peer.lcut("我的", HMM=False) == ["我的"]
    assert small(user_dictionary=[("我的", 1), ("啊啊", 10**12)]).segment("我的") == ["我的"]


def test_entries_that_can_never_match_are_reported_with_their_line(tmp_path):
    """fxsjy/jieba#514, #749: entries with blanks or full-width digits, rare ones."""
    path = tmp_path / "words.txt"
    path.write_text("逾期利率 9\nEdu Trust认证 5\n１２号 4\n中国人民 0\n我的 1\n𠮷野家\n",
                    encoding="utf-8")
    with pytest.warns(UserWarning, match=r"4 of 6 .*words\.txt:2: 'edu trust认证'.*words\.txt:3"):
        made = small(user_dictionary=path)
    assert [entry.line for entry, _ in made.dead_entries] == [2, 3, 5, 6]
    assert [reason for _, reason in made.dead_entries][1:3] == [
        "jieba never joins '１' to a word", "frequency 1 is too low to win against its parts"]
    for entry, _ in made.dead_entries:
        assert made.segment(entry.word) != [entry.word]


@pytest.mark.parametrize(("entries", "message"), [
    ([("词", -1)], "frequency of '词'.*0 or more.*-1"), ([("词", 1.5)], "whole number"),
    ([""], "must be text; got ''"), ([(3, 4)], "must be text; got 3")])
def test_bad_entries_are_errors(entries, message):
    with pytest.raises(ValueError, match=message):
        small(user_dictionary=entries)


def test_a_dictionary_that_is_not_utf_8_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("利率\n".encode() + "借款 3\n".encode("gbk"))
    with pytest.raises(ValueError, match=r"words\.txt:2: a user dictionary must be UTF-8"):
        small(user_dictionary=path)


def test_tokenizers_with_different_words_live_side_by_side():
    plain = tokenizer().segment(TEXT)
    one = small(user_dictionary=["逾期利率"])
    two = small(user_dictionary=["lpr利率"])
    assert one.segment(TEXT) == ["lpr", "利率", "与", "逾期利率"]
    assert two.segment(TEXT) == ["lpr利率", "与", "逾期", "利率"]
    assert tokenizer().segment(TEXT) == plain == small(segmenter="jieba").segment(TEXT)
    assert len({one.dictionary_hash, two.dictionary_hash, tokenizer().dictionary_hash}) == 3


def test_own_words_are_given_to_jieba_and_never_lost_in_rjieba():
    assert small().segmenter == small(mode="char").segmenter == "rjieba"
    assert small(user_dictionary=["利率"]).segmenter == "jieba"
    assert small(segmenter="jieba").segmenter == "jieba"
    with pytest.raises(ValueError, match="'rjieba' cannot use a user dictionary"):
        small(segmenter="rjieba", user_dictionary=["利率"])


def test_nothing_done_to_jieba_or_rjieba_changes_the_words():
    printed, _ = python("""
        import re, jieba, rjieba
        from roformer_zh.tokenizer import WordTokenizer
        rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        text = "被告张三 丰欠逾期利率，网易杭研大厦"
        made = [WordTokenizer(rows, segmenter=name) for name in ("rjieba", "jieba")]
        before = made[0].segment(text)
        jieba.add_word("逾期利率", 10**9); jieba.del_word("大厦"); jieba.dt.FREQ.clear()
        jieba.re_han_default = re.compile("(.+)"); jieba.re_skip_default = re.compile("(x)")
        rjieba.add_word("逾期利率", 10**9, None); rjieba.clear()
        made += [WordTokenizer(rows, segmenter=name) for name in ("rjieba", "jieba")]
        print([one.segment(text) == before for one in made])
        """)
    assert printed == "[True, True, True, True]\n"


def test_a_bad_cache_or_temporary_folder_does_not_matter(tmp_path):
    """fxsjy/jieba#903: the cache file of another user. None is read or written here."""
    cache = tmp_path / "jieba.cache"
    cache.write_bytes(b"bad")
    tmp_path.chmod(0o500)
    try:
        printed, errors = python("""
            from roformer_zh.tokenizer import WordTokenizer
            rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "被告"]
            print(WordTokenizer(rows, segmenter="jieba").encode("被告"))
            """, TMPDIR=str(tmp_path))
    finally:
        tmp_path.chmod(0o700)
    assert (printed, errors) == ("[4]\n", "")
    assert cache.read_bytes() == b"bad" and list(tmp_path.iterdir()) == [cache]


def test_without_rjieba_the_ids_are_the_same_and_asking_for_it_is_an_error():
    """huggingface/transformers#16981: an optional accelerator that is missing."""
    printed, _ = python("""
        import sys
        sys.modules["rjieba"] = None  # as if it were not installed
        from roformer_zh.tokenizer import WordTokenizer
        made = WordTokenizer.load("vocab/vocab.txt")
        print(made.encode("中华人民共和国法院判决被告归还借款50,000.00元"))
        try:
            WordTokenizer.load("vocab/vocab.txt", segmenter="rjieba")
        except ModuleNotFoundError as error:
            print(error)
        """)
    ids, message = printed.splitlines()
    assert ids == str(tokenizer().encode("中华人民共和国法院判决被告归还借款50,000.00元"))
    assert "pip install 'rjieba>=0.2.2,<0.3'" in message and "jieba" in message


def test_own_words_need_a_row_to_become_one_token():
    made = WordTokenizer([*SPECIALS, "逾", "期", "利", "率"], user_dictionary=["逾期利率"])
    assert made.encode_words("逾期利率") == ([5, 6, 7, 8], [True, False, False, False])
