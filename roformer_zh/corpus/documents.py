"""Texts as flat arrays: token ids, and where words, sentences and clauses begin."""

import dataclasses
import hashlib
import re

import numpy as np

WORD, SENTENCE, CLAUSE = 1, 2, 4
_SENTENCE_ENDS = "。！？；!?;"
_CLAUSE_ENDS = "，、：,:"
_CLOSERS = "”’」』）】》〉)]"
_LINE_BREAKS = re.compile(r"[\r\n]+")


@dataclasses.dataclass(frozen=True)
class Documents:
    """Several encoded texts, one after the other."""

    ids: np.ndarray
    """Token ids, (tokens,)."""
    starts: np.ndarray
    """Bits of each token, (tokens,) uint8: WORD, SENTENCE, CLAUSE where one begins."""
    lengths: np.ndarray
    """Tokens of each document, (documents,) int64."""
    characters: np.ndarray
    """Characters of each document without white space, (documents,) uint32."""
    digests: np.ndarray
    """Hash of each text, (documents, 2) uint64."""

    def select(self, keep):
        """The documents for which the boolean array `keep` is true."""
        tokens = np.repeat(keep, self.lengths)
        return Documents(
            self.ids[tokens],
            self.starts[tokens],
            self.lengths[keep],
            self.characters[keep],
            self.digests[keep],
        )


class DocumentEncoder:
    """Encodes texts and marks words, sentences and clauses without changing any token.

    A sentence ends after 。！？； (and closing quotes that follow) and at a line break; a
    clause also after ，、：. Text is segmented line by line, which gives the ids of the whole text
    because no word crosses a line break.

    Args:
        tokenizer: a `WordTokenizer`.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]
        for special in tokenizer.special_ids:
            tokens[special] = ""
        self._ends = _endings(tokens, _SENTENCE_ENDS)
        self._clause_ends = _endings(tokens, _CLAUSE_ENDS)
        self._closers = _endings(tokens, _CLOSERS)
        self.dtype = id_dtype(tokenizer.vocabulary_size)

    def encode(self, texts):
        """The texts as `Documents`; one without a single token has length 0."""
        ids, words, lines, lengths, characters, digests = [], [], [0], [], [], []
        for text in texts:
            before = len(ids)
            for line in _LINE_BREAKS.split(text):
                line_ids, line_words = self._tokenizer.encode_words(line)
                ids += line_ids
                words += line_words
                lines.append(len(ids))
            lengths.append(len(ids) - before)
            characters.append(count_characters(text))
            digests.append(text_digest(text))
        ids = np.array(ids, self.dtype)
        starts = np.array(words, bool) * np.uint8(WORD) | self._boundaries(ids, lines)
        return Documents(
            ids,
            starts,
            np.array(lengths, np.int64),
            np.array(characters, np.uint32),
            np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2),
        )

    def _boundaries(self, ids, lines):
        """SENTENCE and CLAUSE bits of each token; `lines` are the tokens at which lines begin."""
        if not len(ids):
            return np.zeros(0, np.uint8)
        position = np.arange(len(ids))
        line_starts = np.zeros(len(ids) + 1, bool)
        line_starts[lines] = True
        line_starts = line_starts[:-1]
        ends, closers = self._ends[ids], self._closers[ids]
        last_end = np.maximum.accumulate(np.where(ends, position, -1))
        barrier = np.where(ends | closers, -1, position)
        barrier = np.maximum.accumulate(
            np.maximum(barrier, np.where(line_starts, position - 1, -1))
        )
        closing = last_end > barrier  # an end, or closing quotes after one
        sentence = line_starts.copy()
        sentence[1:] |= closing[:-1] & ~closing[1:]
        clause = sentence.copy()
        clause[1:] |= self._clause_ends[ids[:-1]]
        return (sentence * np.uint8(SENTENCE) | clause * np.uint8(CLAUSE)).astype(np.uint8)


def id_dtype(vocabulary_size):
    """The smallest unsigned type that holds every id: uint16 or uint32."""
    return np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.uint32)


def count_characters(text):
    """Characters of a text without white space."""
    return len("".join(text.split()))


def text_digest(text):
    """16 bytes that name a text, whatever the tokenizer; equal texts are duplicates."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()


def _endings(tokens, marks):
    """For each token, whether its last character is one of `marks`."""
    return np.array([token != "" and token[-1] in marks for token in tokens], bool)
