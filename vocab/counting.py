"""Counts of words and characters in texts of any size, exact and in bounded memory."""

import collections
import functools
import gzip
import heapq
import itertools
import json
import tempfile
import zlib
from pathlib import Path

import joblib
from tqdm import tqdm

from roformer_zh.cleaning import Cleaner
from roformer_zh.segmenter import make_segmenter

BLOCK_BYTES = 2_000_000
WORDS_IN_MEMORY = 1_000_000
_JSON_NAMES = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


def count_corpus(paths, workers=1, words_in_memory=WORDS_IN_MEMORY):
    """Counts the characters and words of text files.

    Counts are exact sums, so neither the order of the lines nor the number of workers matters.
    Lines that are no UTF-8, no JSON object or have no text are left out and reported.

    Args:
        paths: files; see `vocab.build.Arguments.corpus`.
        workers: number of processes.
        words_in_memory: different words held at a time; beyond, counts go to a temporary file.

    Returns:
        `(characters, words)`: a dict, and an iterator of (word, count) in order of the words.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: there is no text in the files.
    """
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path} must be a file to count words in; there is none")
    characters, bad = collections.Counter(), collections.Counter()
    words = _SpillingCounter(words_in_memory)
    run = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1, return_as="generator",
                          pre_dispatch=2 * workers)
    counted = run(joblib.delayed(count_block)(lines, is_json) for lines, is_json in _blocks(paths))
    for block_characters, block_words, block_bad in counted:
        characters.update(block_characters)
        words.update(block_words)
        bad.update(block_bad)
    if bad:
        print("Left out: " + ", ".join(f"{n} lines {kind}" for kind, n in sorted(bad.items())))
    if not characters:
        raise ValueError(f"there is no text in {', '.join(map(str, paths))}; JSON lines must hold "
                         '{"text": ...}')
    return dict(characters), words.totals()


def count_block(lines, is_json):
    """Counts of one block of raw lines: (characters, words, lines left out by kind)."""
    clean, segment = _reader()
    characters, words, bad = (collections.Counter() for _ in range(3))
    for line in lines:
        try:
            text = line.decode("utf-8").removeprefix("\ufeff")
            text = json.loads(text)["text"] if is_json and text.strip() else text
            if not isinstance(text, str):
                raise TypeError
        except UnicodeDecodeError:
            bad["that are not UTF-8"] += 1
        except json.JSONDecodeError:
            bad["that are not JSON"] += 1
        except (KeyError, TypeError):
            bad["without a text"] += 1
        else:
            text = clean(text)
            characters.update(text)
            words.update(segment(text))
    return ({c: n for c, n in characters.items() if not c.isspace()},
            {word: n for word, n in words.items() if len(word) > 1 and not word.isspace()}, bad)


@functools.cache
def _reader():
    """Cleaner and segmenter of this process."""
    return Cleaner().clean, make_segmenter()


def _blocks(paths):
    """(lines, whether they are JSON) of about `BLOCK_BYTES` each, over all files."""
    with tqdm(unit="B", unit_scale=True, desc="counting") as bar:
        for path in paths:
            is_json = str(path).endswith(_JSON_NAMES)
            for lines in _read_blocks(path):
                bar.update(sum(map(len, lines)))
                yield lines, is_json


def _read_blocks(path):
    """Lists of whole lines of a file."""
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
            while lines := file.readlines(BLOCK_BYTES):
                yield lines
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a whole gzip file: {error}; fetch it again") from error


class _SpillingCounter:
    """Sums counts of words; sorted parts of them go to disk when there are too many."""

    def __init__(self, limit):
        self._limit = limit
        self._counts = collections.Counter()
        self._folder = tempfile.TemporaryDirectory(prefix="vocab-")
        self._files = []

    def update(self, counts):
        """Adds counts."""
        self._counts.update(counts)
        if len(self._counts) > self._limit:
            path = Path(self._folder.name) / str(len(self._files))
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{word}\t{n}\n" for word, n in sorted(self._counts.items()))
            self._files.append(path)
            self._counts.clear()

    def totals(self):
        """(word, count) of all words, in order of the words."""
        parts = [_read_counts(path) for path in self._files]
        merged = heapq.merge(*parts, sorted(self._counts.items()))
        for word, same in itertools.groupby(merged, key=lambda pair: pair[0]):
            yield word, sum(n for _, n in same)
        self._folder.cleanup()


def _read_counts(path):
    """(word, count) of a file of sorted counts."""
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            word, _, count = line.rstrip("\n").rpartition("\t")
            yield word, int(count)
