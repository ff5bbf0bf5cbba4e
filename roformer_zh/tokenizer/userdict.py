"""User dictionaries for the segmenter."""

import dataclasses
import os
import re
import warnings
from pathlib import Path

from roformer_zh.tokenizer.segmenter import BLOCK_END

_BLANKS = "[ \t\u3000]+"
_LINE = re.compile(rf"(?P<word>.+?)(?:{_BLANKS}(?P<frequency>[0-9]+))?(?:{_BLANKS}[a-z]{{1,4}})?")


@dataclasses.dataclass(frozen=True)
class DictionaryEntry:
    """A word that the segmenter is to keep whole."""

    word: str
    """The word as the segmenter sees it: cleaned like the text."""
    frequency: int | None = None
    """How often it occurs, on the scale of jieba's dictionary; None = as often as it needs."""
    line: int = 0
    """Where it stands in its file, counted from 1."""


def read_user_dictionary(source, clean):
    """Entries of a user dictionary.

    Args:
        source: path of a UTF-8 file with one `word [frequency] [tag]` a line (jieba's format; a
            BOM, CRLF and tabs are fine), or an iterable of words, (word, frequency) pairs and
            `DictionaryEntry` objects, which are taken as they are.
        clean: function that every word goes through, so that it looks like the cleaned text.

    Returns:
        A tuple of `DictionaryEntry`; of words given twice the last one counts, as in jieba.

    Raises:
        ValueError: the file is not UTF-8, or a frequency is not a whole number of 0 or more.

    Example:
        >>> read_user_dictionary([("LPR利率", 9999), "借贷"], str.lower)[0]
        DictionaryEntry(word='lpr利率', frequency=9999, line=1)
    """
    items = _read_file(Path(source)) if isinstance(source, (str, os.PathLike)) else source
    entries = {}
    for number, item in enumerate(items, 1):
        if item is None:  # an empty line
            continue
        entry = item if isinstance(item, DictionaryEntry) else _make_entry(number, item, clean)
        entries.pop(entry.word, None)
        entries[entry.word] = entry
    return tuple(entries.values())


def find_dead_entries(entries, segment, source):
    """Entries that the segmenter never gives as a word; a warning names the first with their lines.

    What is not kept whole when it stands alone is never kept whole inside a text: the split that
    wins there wins everywhere.

    Returns:
        A tuple of (entry, reason).
    """
    dead = []
    for entry in entries:
        if entry.frequency != 0 and segment(entry.word) != [entry.word]:
            odd = BLOCK_END.search(entry.word)
            dead.append((entry, f"jieba never joins {odd.group()!r} to a word" if odd else
                         f"frequency {entry.frequency} is too low to win against its parts"))
    if dead:
        where = source if isinstance(source, (str, os.PathLike)) else "user dictionary"
        lines = [f"{where}:{entry.line}: {entry.word!r}: {reason}" for entry, reason in dead[:10]]
        warnings.warn(f"{len(dead)} of {len(entries)} user dictionary entries can never match; "
                      "first: " + "; ".join(lines), stacklevel=4)
    return tuple(dead)


def _make_entry(number, item, clean):
    """The entry of a word or a (word, frequency) pair."""
    word, frequency = (item, None) if isinstance(item, str) else item
    if not isinstance(word, str) or not word.strip():
        raise ValueError(f"a user dictionary's word must be text; got {word!r} as entry {number}")
    if frequency is not None and not (type(frequency) is int and frequency >= 0):
        raise ValueError(f"the frequency of {word!r} (entry {number}) must be a whole number of 0 "
                         f"or more, or None; got {frequency!r}")
    return DictionaryEntry(clean(word), frequency, number)


def _read_file(path):
    """(word, frequency or None) of every line, None of an empty one."""
    rows = []
    for number, raw in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            line = raw.decode("utf-8").lstrip("\ufeff" if number == 1 else "").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}:{number}: a user dictionary must be UTF-8; save the file as "
                             f"UTF-8 ({error.reason})") from error
        match = _LINE.fullmatch(line) if line else None
        frequency = match and match["frequency"]
        rows.append(match and (match["word"], None if frequency is None else int(frequency)))
    return rows
