"""Words: jieba's segmentation without its HMM, by rjieba or by a private jieba."""

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import re
import warnings
from pathlib import Path

SEGMENTERS = ("auto", "rjieba", "jieba")
WORD_CHARACTERS = "\u4e00-\u9fd5a-zA-Z0-9+#&._%\\-"  # what jieba looks up; the rest stands alone
BLOCK_END = re.compile(f"[^{WORD_CHARACTERS}]")
_BLOCKS = re.compile(f"[{WORD_CHARACTERS}]+|\r\n|.", re.DOTALL)


def make_segmenter(name="auto", entries=()):
    """A function from a text to the list of its words; joined, they give the text back.

    rjieba and jieba give the same words. rjieba does not know words of one's own, so jieba is used
    with them. Nothing that the process does to the jieba and rjieba modules changes the result.

    Args:
        name: "rjieba", "jieba", or "auto": rjieba where it is installed and `entries` is empty.
        entries: `DictionaryEntry` objects to add to jieba's dictionary.

    Raises:
        ValueError: unknown name, or rjieba together with entries.
        ModuleNotFoundError: the library is not installed.

    Example:
        >>> make_segmenter()("他来到了网易杭研大厦")
        ['他', '来到', '了', '网易', '杭', '研', '大厦']
    """
    if name not in SEGMENTERS:
        raise ValueError(f"segmenter must be one of {', '.join(SEGMENTERS)}; got {name!r}")
    if name == "rjieba" and entries:
        raise ValueError("segmenter 'rjieba' cannot use a user dictionary; choose 'jieba' or "
                         "'auto'")
    if name == "jieba" or entries or (name == "auto" and not _has_rjieba()):
        return _PrivateJieba(entries)
    return _RustJieba()


def dictionary_hash(entries=()):
    """SHA-256 of jieba's dictionary file, and of `entries` where there are some."""
    base = _base_dictionary_hash()
    if not entries:
        return base
    own = json.dumps([[entry.word, entry.frequency] for entry in entries])
    return hashlib.sha256((base + own).encode()).hexdigest()


class _RustJieba:
    """rjieba with its HMM off."""

    name = "rjieba"

    def __init__(self):
        self._cut = _rust_instance().cut

    def __call__(self, text):
        return self._cut(text, False)


class _PrivateJieba:
    """jieba with its HMM off, its own dictionary, no cache file and no log lines."""

    name = "jieba"

    def __init__(self, entries=()):
        frequencies, total = _base_frequencies()
        self._jieba = _import_jieba().Tokenizer()
        self._jieba.FREQ = dict(frequencies) if entries else frequencies
        self._jieba.total = total
        self._jieba.initialized = True
        self._cut_block = self._jieba._Tokenizer__cut_DAG_NO_HMM
        for entry in entries:
            self._add(entry)

    def __call__(self, text):
        words = []
        for block in _BLOCKS.findall(text):
            if len(block) == 1 or block == "\r\n":
                words.append(block)
            else:
                words.extend(self._cut_block(block))
        return words

    def _add(self, entry):
        """Adds one entry as jieba's `add_word` does; frequency 0 takes a word out."""
        jieba = self._jieba
        frequency = entry.frequency
        if frequency is None:
            frequency = self._winning_frequency(entry.word)
        jieba.FREQ[entry.word] = frequency
        jieba.total += frequency
        for end in range(1, len(entry.word)):
            jieba.FREQ.setdefault(entry.word[:end], 0)

    def _winning_frequency(self, word):
        """The lowest frequency at which `word` is kept whole (jieba's `suggest_freq`)."""
        share = 1.0
        for part in self(word):
            share *= self._jieba.FREQ.get(part, 1) / self._jieba.total
        return max(int(share * self._jieba.total) + 1, self._jieba.FREQ.get(word, 1))


@functools.cache
def _rust_instance():
    """One rjieba dictionary a process, apart from the module's own."""
    if not _has_rjieba():
        raise ModuleNotFoundError("segmenter 'rjieba' needs the package rjieba 0.2, whose words "
                                  "were compared with jieba's: pip install 'rjieba>=0.2.2,<0.3', "
                                  "or choose 'jieba', which gives the same words")
    return importlib.import_module("rjieba").Jieba()


@functools.cache
def _base_frequencies():
    """jieba's dictionary: word (and prefix, at 0) to frequency, and their sum; never changed."""
    with open(jieba_dictionary_path(), "rb") as file:
        return _import_jieba().Tokenizer.gen_pfdict(file)


@functools.cache
def _base_dictionary_hash():
    """SHA-256 of jieba's dictionary file."""
    return hashlib.sha256(jieba_dictionary_path().read_bytes()).hexdigest()


def jieba_dictionary_path():
    """The dictionary file inside the jieba package, found without importing it."""
    spec = importlib.util.find_spec("jieba")
    if spec is None:
        raise ModuleNotFoundError("the package jieba is needed: pip install 'jieba>=0.42.1,<0.43'")
    return Path(spec.submodule_search_locations[0]) / "dict.txt"


def _import_jieba():
    """The jieba module, without the warnings its source gives on recent Pythons."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("jieba")


def _has_rjieba():
    """Whether rjieba is installed in a version whose words were compared with jieba's."""
    try:
        importlib.import_module("rjieba")
        return importlib.metadata.version("rjieba").startswith("0.2.")
    except ImportError:  # PackageNotFoundError is one
        return False
