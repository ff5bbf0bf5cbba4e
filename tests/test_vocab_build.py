"""python -m vocab.build: the same bytes from the same input."""

import gzip
import json
import random
import subprocess
import sys

import pytest

from roformer_zh.tokenizer.segmenter import jieba_dictionary_path
from roformer_zh.tokenizer.vocabulary import SPECIALS, read_rows
from tests.tokenizer_texts import VOCABULARY
from vocab.build import FIXED, Arguments, arrange_rows, main
from vocab.counting import BLOCK_BYTES, count_corpus

TEXTS = ["原告与被告系朋友关系。", "被告向原告借款50,000.00元，LPR利率。", "[SEP][PAD] 乙 甲 乙 甲",
         "", "𠮷野家\u2028①"]


def build(folder, **options):
    """The rows of a file that `main` wrote, and what it returned."""
    metrics = main(Arguments(output=folder / "vocab.txt", **options))
    return read_rows(folder / "vocab.txt"), metrics


def write_lines(path, texts):
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text(lines, encoding="utf-8")
    return path


def test_the_committed_file_is_rebuilt_byte_for_byte(tmp_path):
    rows, metrics = build(tmp_path)
    assert (tmp_path / "vocab.txt").read_bytes() == VOCABULARY.read_bytes()
    assert metrics == {"rows": 50000, "characters": 12372, "words": 37623,
                       "sha256": metrics["sha256"]}
    assert rows[:5] == list(SPECIALS)


def test_parts_stand_in_their_order():
    rows = read_rows(VOCABULARY)
    first = len(SPECIALS) + len(FIXED)
    assert rows[5:first] == list(FIXED)
    characters, words = rows[first:12377], rows[12377:]
    assert characters == sorted(characters) and set(map(len, characters)) == {1}
    assert min(map(len, words)) == 2 and len(words) == 37623
    counts = {}
    for line in jieba_dictionary_path().read_text(encoding="utf-8").splitlines():
        word, count, _ = line.split(" ")
        counts[word] = int(count)
    assert words == sorted(words, key=lambda word: (-counts[word], word))
    assert {"。", "，", "（", "％", "a", "##z", "##0", "元", "㎡", "①"} <= set(rows[:12377])


def test_frequency_decides_and_code_points_break_ties():
    rows, parts = arrange_rows({"丙": 1, "乙": 1}, [("丙丙", 1), ("乙乙", 1), ("甲甲", 9)], 1000)
    assert rows[-5:] == ["丙", "乙", "甲甲", "丙丙", "乙乙"]
    assert parts == {"characters": len(FIXED) + 2, "words": 3}


def test_characters_take_at_most_half_the_rows():
    characters = {chr(0x4E00 + n): n for n in range(2000)}
    words = [(chr(0x4E00 + n) * 2, n) for n in range(2000)]
    rows, parts = arrange_rows(characters, words, 1200)
    assert len(rows) == 1200 and parts["words"] == 600
    taken = rows[len(SPECIALS) + len(FIXED):600]
    assert taken == [chr(0x4E00 + 2000 - len(taken) + n) for n in range(len(taken))]


def test_neither_order_nor_workers_nor_memory_change_the_counts(tmp_path):
    """ZhuiyiTechnology/WoBERT#15: vocabularies that nobody can build again."""
    texts = TEXTS * 30 + [f"第{n}条 被告{n}" for n in range(300)]
    one = write_lines(tmp_path / "one.jsonl", texts)
    random.Random(0).shuffle(texts)
    halves = [write_lines(tmp_path / "a.jsonl", texts[:100]), tmp_path / "b.jsonl.gz"]
    write_lines(tmp_path / "b.jsonl", texts[100:])
    halves[1].write_bytes(gzip.compress((tmp_path / "b.jsonl").read_bytes()))
    characters, words = count_corpus([one])
    words = list(words)
    for files, workers, memory in ((halves, 2, 10**6), ([*halves[::-1]], 1, 5)):
        other, others = count_corpus(files, workers, words_in_memory=memory)
        assert other == characters and list(others) == words
    counts = dict(words)
    assert counts["被告"] == 60 + 300 and counts["原告"] == 60 and counts["lpr"] == 30
    assert characters["乙"] == 60 and characters["①"] == 30
    assert not {"[SEP]", "[sep]", "[PAD]"} & set(counts)


def test_blocks_end_between_lines(tmp_path):
    texts = ["被告" * (BLOCK_BYTES // 12)] * 5
    _, words = count_corpus([write_lines(tmp_path / "a.jsonl", texts)], workers=2)
    assert dict(words) == {"被告": 5 * (BLOCK_BYTES // 12)}


def test_a_corpus_gives_its_own_characters_and_words(tmp_path):
    rows, metrics = build(tmp_path, size=1000, corpus=(write_lines(tmp_path / "a.jsonl", TEXTS),))
    assert "𠮷" in rows and "鿕" not in rows
    assert rows[-metrics["words"]:][:2] == ["原告", "被告"]
    assert metrics["rows"] == len(rows) < 1000
    (tmp_path / "a.txt").write_text("\ufeff甲方 甲方\n乙方\n", encoding="utf-8")
    rows, _ = build(tmp_path, size=1000, corpus=(tmp_path / "a.txt",))
    assert rows[-2:] == ["甲方", "乙方"]


def test_damaged_lines_are_counted_and_left_out(tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xff\xfeA\n\n{"text": "\xe7\x94\xb2\xe6\x96\xb9"}\n{"txt": 1}\n{"text": 3}\n'
                     b"[1]\n{\n")
    _, words = count_corpus([path])
    assert dict(words) == {"甲方": 1}
    printed = capsys.readouterr().out
    for kind in ("1 invalid UTF-8 (", "a.jsonl:1)", "1 not JSON (", "2 no such key (",
                 "1 not a string (", "1 empty ("):
        assert kind in printed


@pytest.mark.parametrize("damage", [lambda data: data[:-10], lambda data: b"x" + data])
def test_a_damaged_gzip_file_is_an_error_with_its_name(tmp_path, damage):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(damage(gzip.compress(write_lines(tmp_path / "a.jsonl", TEXTS).read_bytes())))
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz must be a whole gzip file"):
        build(tmp_path, corpus=(path,))
    assert not (tmp_path / "vocab.txt").exists()


@pytest.mark.parametrize(("options", "error", "message"), [
    (dict(size=100), ValueError, "--size must be at least"),
    (dict(corpus=("none.jsonl",)), FileNotFoundError, "found nothing at none.jsonl")])
def test_bad_arguments_are_errors(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        build(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_a_corpus_without_text_is_an_error_and_leaves_no_file(tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"\n \n")
    done = subprocess.run(
        [sys.executable, "-m", "vocab.build", "--corpus", empty, "--output", tmp_path / "v.txt"],
        cwd=VOCABULARY.parent.parent, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: there is no text in")
    assert list(tmp_path.iterdir()) == [empty]
