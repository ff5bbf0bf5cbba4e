"""From cleaned text to vocabulary rows: the loops that have to be fast."""

import array
import itertools

from roformer_zh.tokenizer.segmenter import BLOCK_END
from roformer_zh.tokenizer.vocabulary import read_chunks

_MEMO_SIZE = 1 << 17
_LONGEST_MEMO_WORD = 64
_ID_BYTES = 4


class WordPieces:
    """Reads a cleaned text as words, and a word as rows of the vocabulary.

    Args:
        vocabulary: a `roformer_zh.tokenizer.vocabulary.Vocabulary`.
        segment: function from a text to its words.
    """

    def __init__(self, vocabulary, segment):
        self._vocabulary = vocabulary
        self._chunks = segment
        self._memo = _PackedPieces(vocabulary)

    def encode(self, cleaned):
        """All ids."""
        return _unpack(map(self._memo.__getitem__, self._chunks(cleaned)))

    def encode_start(self, cleaned, count):
        """The first `count` ids. Words never cross a character that jieba does not look up, so the
        text may be cut behind one and the rest left unread."""
        ids, position = [], 0
        while len(ids) < count and position < len(cleaned):
            match = BLOCK_END.search(cleaned, position + 2 * (count - len(ids)) + 256)
            end = match.end() if match else len(cleaned)
            ids += self.encode(cleaned[position:end])
            position = end
        return ids[:count]

    def encode_words(self, cleaned):
        """All ids, and for each whether it is the first of its word."""
        packed = list(map(self._memo.__getitem__, self._chunks(cleaned)))
        starts = itertools.chain.from_iterable(map(_STARTS.__getitem__, map(len, packed)))
        return _unpack(packed), list(starts)

    def locate(self, cleaned):
        """(id, start, end) of all pieces; positions in the cleaned text."""
        found, position = [], 0
        for chunk in self._chunks(cleaned):
            start = position
            position += len(chunk)
            for number, length in self._vocabulary.split(chunk):
                found.append((number, start, start + length))
                start += length
        return found


class CharacterPieces(WordPieces):
    """Reads a cleaned text as single characters and runs of Latin letters and digits.

    Args:
        vocabulary: a `roformer_zh.tokenizer.vocabulary.Vocabulary` in character mode.
        segment: function from a text to its words; used to tell where words start, only.
    """

    def __init__(self, vocabulary, segment):
        super().__init__(vocabulary, read_chunks)
        self._segment = segment
        self._words = WordPieces(vocabulary, segment)

    def encode_words(self, cleaned):
        """All ids, and for each whether it is the first in a word of the segmenter."""
        ids = self.encode(cleaned)
        ids_by_word, starts = self._words.encode_words(cleaned)
        if ids_by_word == ids:
            return ids, starts
        # A word such as "4s店" cut a run of Latin letters and digits: look at every position.
        word_of = []
        for number, word in enumerate(self._segment(cleaned)):
            word_of.extend([number] * len(word))
        numbers = [word_of[start] for _, start, _ in self.locate(cleaned)]
        return ids, [number != last for last, number in zip([-1, *numbers], numbers,
                                                            strict=False)]


class _PackedPieces(dict):
    """Word to its ids as the bytes of an integer array; fills itself and stays bounded.

    Bytes are joined and unpacked at the speed of C, where lists would need a loop in Python.
    """

    def __init__(self, vocabulary):
        self._split = vocabulary.split

    def __missing__(self, word):
        packed = array.array("i", [number for number, _ in self._split(word)]).tobytes()
        if len(word) <= _LONGEST_MEMO_WORD:
            if len(self) >= _MEMO_SIZE:
                self.clear()
            self[word] = packed
        return packed


class _WordStarts(dict):
    """Size of a packed word to its flags: True for the first piece, False for the others."""

    def __missing__(self, size):
        flags = tuple(index == 0 for index in range(size // _ID_BYTES))
        if size <= _LONGEST_MEMO_WORD * _ID_BYTES:
            self[size] = flags
        return flags


_STARTS = _WordStarts()


def _unpack(packed):
    """The ids of packed words, as a list."""
    ids = array.array("i")
    ids.frombytes(b"".join(packed))
    return ids.tolist()
