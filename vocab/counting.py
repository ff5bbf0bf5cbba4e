"""Counts of words and characters in texts of any size, exact and in bounded memory."""

import collections
import functools
import heapq
import itertools
import tempfile
from pathlib import Path

import joblib
from tqdm import tqdm

from roformer_zh.corpus.reading import Damage, file_format, find_files, read_rows, row_text
from roformer_zh.tokenizer.cleaning import Cleaner
from roformer_zh.tokenizer.segmenter import make_segmenter

BLOCK_BYTES = 2_000_000
WORDS_IN_MEMORY = 1_000_000


def count_corpus(paths, workers=1, words_in_memory=WORDS_IN_MEMORY, field="text"):
    """Counts the characters and words of text files.

    Counts are exact sums, so neither the order of the lines nor the number of workers matters.
    Lines that are no UTF-8, no JSON object or have no text are left out and reported.

    Args:
        paths: files, folders or globs; see `vocab.build.Arguments.corpus`.
        workers: number of processes.
        words_in_memory: different words held at a time; beyond, counts go to a temporary file.
        field: key of the text in a JSON row.

    Returns:
        `(characters, words)`: a dict, and an iterator of (word, count) in order of the words.

    Raises:
        FileNotFoundError: a name stands for no file.
        ValueError: there is no text in the files.
    """
    characters, damage = collections.Counter(), Damage()
    words = _SpillingCounter(words_in_memory)
    run = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1, return_as="generator",
                          pre_dispatch=2 * workers)
    files = find_files(paths)
    counted = run(joblib.delayed(count_block)(*block, field) for block in _blocks(files))
    for block_characters, block_words, block_damage in counted:
        characters.update(block_characters)
        words.update(block_words)
        damage.merge(block_damage)
    if damage.counts != Damage().counts:
        print(f"Left out: {damage.describe()}")
    if not characters:
        raise ValueError(f"there is no text in {', '.join(map(str, paths))} "
                         f"({damage.describe()}); JSON lines must hold the key {field!r}")
    return dict(characters), words.totals()


def count_block(path, form, rows, field):
    """Counts of one block of `Row`s: (characters, words, `Damage`)."""
    clean, segment = _reader()
    characters, words, damage = collections.Counter(), collections.Counter(), Damage()
    for row in rows:
        text = row_text(row, form, field, f"{path}:{row.line}", damage)
        if text is not None:
            text = clean(text)
            characters.update(text)
            words.update(segment(text))
    return ({c: n for c, n in characters.items() if not c.isspace()},
            {word: n for word, n in words.items() if len(word) > 1 and not word.isspace()}, damage)


@functools.cache
def _reader():
    """Cleaner and segmenter of this process."""
    return Cleaner().clean, make_segmenter()


def _blocks(files):
    """(path, format, rows) of about `BLOCK_BYTES` each, over all files; plain text is by lines."""
    with tqdm(unit="B", unit_scale=True, desc="counting") as bar:
        for path in files:
            form = file_format(path)
            rows, size = [], 0
            for row in read_rows(path, form):
                rows.append(row)
                size += len(row.data or b"")
                if size >= BLOCK_BYTES:
                    yield path, form, rows
                    bar.update(size)
                    rows, size = [], 0
            yield path, form, rows
            bar.update(size)


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
