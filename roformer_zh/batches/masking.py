"""Whole-word masking of packed rows as a pure function of keys and word numbers."""

import dataclasses
import math

import numpy as np

from roformer_zh.hashing import hash64, make_key, uniform

_SLACK = 3  # slots for a word that goes over a row's share


@dataclasses.dataclass(frozen=True)
class FlatRows:
    """The tokens of several rows, one after the other, without special slots."""

    ids: np.ndarray
    """Token ids, (tokens,)."""
    row: np.ndarray
    """Row of each token, (tokens,)."""
    column: np.ndarray
    """Slot of each token in its row, (tokens,)."""
    index: np.ndarray
    """Number of each token in the corpus, (tokens,) int64."""
    word: np.ndarray
    """Number of each token's word in the corpus, (tokens,) int64."""
    num_rows: int
    """Rows; one without tokens counts."""


class Masker:
    """Chooses the words that must be predicted and what stands in their place.

    A word's random numbers depend on (key, number of the word in the corpus) only: not on the
    batch, the worker or how the word was cut into tokens. Whether [MASK], random tokens or the word
    itself stand there is drawn once for all its tokens (as in SpanBERT, arXiv 1907.10529).

    Args:
        tokenizer: gives [MASK] and the special ids; a special token ([UNK] too) is never selected
            and never drawn as a random token; nor is a blank, repeated or [unused...] row drawn.
        selection_rate, mask_rate, random_rate: the stage's rates.
    """

    def __init__(self, tokenizer, selection_rate=0.15, mask_rate=0.8, random_rate=0.1):
        self._mask_id = tokenizer.mask_id
        self._ordinary = np.ones(tokenizer.vocabulary_size, bool)
        self._ordinary[sorted(tokenizer.special_ids)] = False
        self._drawn_ids = np.array(tokenizer.ordinary_ids, np.int32)
        self._selection_rate = selection_rate
        self._mask_rate = mask_rate
        self._random_rate = random_rate

    def slots(self, sequence_length):
        """Masked slots that a row of this length may need in training."""
        return training_slots(self._selection_rate, sequence_length)

    def select_share(self, rows, keys, slots):
        """Selects whole words up to the rate's share of each row, at least one where there is any.

        Words are taken in the order of their random numbers. The word that goes over the share is
        taken with the probability that makes the expected number of tokens equal to the share.

        Args:
            rows: `FlatRows`.
            keys: uint64 key of each row, (rows,).
            slots: most tokens that may be selected in a row.

        Returns: which tokens are selected, (tokens,) bool.
        """
        candidate = self._ordinary[rows.ids]
        start, row, word = _words(rows)
        size = np.add.reduceat(candidate, start, dtype=np.int64) if len(start) else start
        priority = hash64(word, keys[row])
        order = np.argsort(row.astype(np.uint64) << np.uint64(48) | priority >> np.uint64(16))
        order = order[size[order] > 0]
        row, size, chance = row[order], size[order], uniform(hash64(priority[order], 1))
        before = _cumulative_before(size, row, rows.num_rows)
        tokens = np.bincount(row, size, rows.num_rows)
        share = np.floor(self._selection_rate * tokens + uniform(hash64(0, keys)))
        share = np.maximum(share, 1)[row]
        over = (before < share) & (before + size > share)
        taken = before + size <= share
        taken |= over & (chance * size < share - before) & (before + size <= slots)
        none = np.bincount(row, taken, rows.num_rows)[row] == 0
        taken |= none & (before == 0)
        words_taken = np.zeros(len(start), bool)
        words_taken[order[taken]] = True
        selected = np.repeat(words_taken, np.diff(np.append(start, len(rows.ids)))) & candidate
        return selected & (_rank_in_row(selected, rows) < slots)

    def select_all(self, rows, key):
        """Selects every word with the rate's probability: the same words however rows are packed.

        Args:
            rows: `FlatRows`.
            key: one key.

        Returns: which tokens are selected, (tokens,) bool.
        """
        return (uniform(hash64(rows.word, key)) < self._selection_rate) & self._ordinary[rows.ids]

    def replacements(self, rows, keys):
        """What each token becomes if it is selected, (tokens,) int32."""
        keys = keys[rows.row]
        chance = uniform(hash64(rows.word, keys ^ np.uint64(make_key("replacement"))))
        bits = hash64(rows.index, keys ^ np.uint64(make_key("random token")))
        drawn = (bits >> np.uint64(32)) * np.uint64(len(self._drawn_ids)) >> np.uint64(32)
        new = np.where(chance < self._mask_rate, self._mask_id, rows.ids).astype(np.int32)
        random = (chance >= self._mask_rate) & (chance < self._mask_rate + self._random_rate)
        return np.where(random, self._drawn_ids[drawn.astype(np.int64)], new)


def training_slots(selection_rate, sequence_length):
    """Masked slots that a row may need in training.

    Example:
        >>> training_slots(0.15, 512)
        80
    """
    share = math.floor(selection_rate * (sequence_length - 2)) + 1
    return min(share + _SLACK, sequence_length - 2)


def mask_slots(rows, selected, slots):
    """Positions, ids and weights of the selected tokens.

    Returns: mask_positions (rows, slots) int32, mask_ids (rows, slots) int32 and mask_weights
        (rows, slots) float32; unused slots hold 0, 0 and 0.
    """
    rank = _rank_in_row(selected, rows)[selected]
    row = rows.row[selected]
    positions = np.zeros((rows.num_rows, slots), np.int32)
    ids = np.zeros((rows.num_rows, slots), np.int32)
    weights = np.zeros((rows.num_rows, slots), np.float32)
    positions[row, rank] = rows.column[selected]
    ids[row, rank] = rows.ids[selected]
    weights[row, rank] = 1
    return positions, ids, weights


def _words(rows):
    """First token, row and number of each word (or of its part in the row)."""
    changes = (np.diff(rows.word) != 0) | (np.diff(rows.row) != 0)
    start = np.flatnonzero(np.concatenate([[True] * min(1, len(rows.ids)), changes]).astype(bool))
    return start, rows.row[start], rows.word[start]


def _cumulative_before(size, row, num_rows):
    """Sum of the sizes that stand before each entry in its row; entries are sorted by row."""
    before = np.append(0, np.cumsum(size))
    return before[:-1] - before[np.searchsorted(row, np.arange(num_rows))][row]


def _rank_in_row(selected, rows):
    """How many selected tokens stand before each token in its row."""
    return _cumulative_before(selected.astype(np.int64), rows.row, rows.num_rows)
