"""Builds a vocabulary: special tokens, characters, then words by falling frequency."""

import collections
import heapq
from dataclasses import dataclass
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.tokenizer.cleaning import Cleaner
from roformer_zh.tokenizer.segmenter import BLOCK_END, jieba_dictionary_path, make_segmenter
from roformer_zh.tokenizer.vocabulary import SPECIALS, rows_hash, write_rows
from vocab.counting import count_corpus

ASCII = "".join(chr(code) for code in range(33, 127) if not chr(code).isupper())
PIECES = tuple(f"##{c}" for c in ASCII if c.isalnum())
SYMBOLS = "".join((
    "§°±²³·×÷–—‘’“”•…‰′″※€℃№→←↑↓∶≈≠≤≥√∞∑π─━│■□▲△▼▽◆◇○●◎★☆♀♂✓",
    "、。〃々〇〈〉《》「」『』【】〔〕〖〗！＂＃＄％＆＇（）＊＋，－．／：；＜＝＞？＠［＼］＿｀｛｜｝～￠￡￥¥£",
    "０１２３４５６７８９ａｂｃｄｅｆｇｈｉｊｋｌｍｎｏｐｑｒｓｔｕｖｗｘｙｚ",
    "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽㈠㈡㈢㈣㈤㈥㈦㈧㈨㈩ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅺⅻ",
    "αβγδεζηθικλμνξοπρστυφχψωàáèéêìíòóùúüāēěīńňōūǎǐǒǔǖǘǚǜɑɡ㎎㎏㎜㎝㎞㎡㏄",
))
FIXED = (*ASCII, *PIECES, *sorted(set(SYMBOLS)))


@dataclass(frozen=True)
class Arguments:
    """Builds a vocabulary file from jieba's dictionary, or from the words of your own texts.

    Rows: [PAD] [UNK] [CLS] [SEP] [MASK]; ASCII without capitals; ## with a letter or digit;
    punctuation and symbols; Chinese characters by code point; words by falling frequency, ties by
    code point. Texts are lower-cased first, so no row holds a capital. The same input gives the
    same file, byte for byte, with any number of workers.
    """

    output: Path = Path("vocab/vocab.txt")
    """File to write."""
    size: int = 50000
    """Number of rows. Characters take at most half of them, the most frequent first."""
    corpus: tuple[Path, ...] = ()
    """Count words and characters in these files, folders or quoted globs instead of taking jieba's
    frequencies: JSON lines (.jsonl, .json) or plain text (.txt), each also as .gz."""
    field: str = "text"
    """Key of the text in a JSON row."""
    workers: int = 1
    """Processes that count."""


def main(args):
    """Builds and writes the file; returns its size, hash and parts."""
    least = len(SPECIALS) + len(FIXED) + 2
    if args.size < least:
        raise ValueError(f"--size must be at least {least}: special tokens, ASCII and punctuation "
                         f"alone take {least - 2} rows; got {args.size}")
    if args.corpus:
        print(f"Counting words in {len(args.corpus)} files with {args.workers} workers")
        characters, words = count_corpus(args.corpus, args.workers, field=args.field)
    else:
        print("Reading jieba's dictionary")
        characters, words = count_dictionary()
    rows, parts = arrange_rows(characters, words, args.size)
    write_rows(args.output, rows)
    print(f"Wrote {args.output}: {len(rows)} rows ({parts['characters']} character rows, "
          f"{parts['words']} words)")
    if len(rows) < args.size:
        print(f"There are only {parts['words']} words to take: {args.size - len(rows)} rows fewer "
              "than asked for")
    return {"rows": len(rows), "sha256": rows_hash(rows), **parts}


def count_dictionary():
    """Characters and words of jieba's dictionary with their frequencies.

    Words that the segmenter never gives for a cleaned text (with capitals: "T恤", or less frequent
    than their parts) are left out.
    """
    clean, segment = Cleaner().clean, make_segmenter()
    characters, words = collections.Counter(), {}
    for line in jieba_dictionary_path().read_text(encoding="utf-8").splitlines():
        word, frequency, _ = line.split(" ")
        for character in clean(word):
            characters[character] += int(frequency)
        if len(word) > 1 and clean(word) == word and segment(word) == [word]:
            words[word] = int(frequency)
    return {c: n for c, n in characters.items() if "\u3400" <= c <= "\u9fff"}, words.items()


def arrange_rows(characters, words, size):
    """The rows of a vocabulary.

    Args:
        characters: character to count; those that have a fixed row anyway are ignored.
        words: pairs (word, count) of different words.
        size: number of rows.

    Returns:
        `(rows, parts)`: the list of rows, and how many are characters and words.

    Example:
        >>> rows, parts = arrange_rows({"乙": 2, "甲": 2}, [("乙乙", 1), ("甲乙", 1)], 1000)
        >>> rows[-4:]
        ['乙', '甲', '乙乙', '甲乙']
    """
    fixed = [*SPECIALS, *FIXED]
    room = min(max(size // 2 - len(fixed), 1), size - len(fixed))
    counts = [(c, n) for c, n in characters.items() if c not in FIXED]
    chosen = sorted(heapq.nsmallest(room, ((-n, c) for c, n in counts)), key=lambda pair: pair[1])
    rows = fixed + [c for _, c in chosen]
    taken = heapq.nsmallest(size - len(rows), ((-n, w) for w, n in words if is_word(w)))
    parts = {"characters": len(rows) - len(SPECIALS), "words": len(taken)}
    return rows + [w for _, w in taken], parts


def is_word(word):
    """Whether a segmented word can be a row of its own: 2 to 32 characters that jieba joins."""
    return 2 <= len(word) <= 32 and not BLOCK_END.search(word)


if __name__ == "__main__":
    run_command(main, Arguments)
