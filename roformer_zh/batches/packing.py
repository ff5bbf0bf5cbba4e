"""Rows of a stage: which tokens each row holds, and the order of the rows in an epoch."""

import numpy as np

from roformer_zh.hashing import hash64

_CHUNK = 1 << 22  # tokens looked at together


def pack_rows(
    corpus, sequence_length, *, clause_breaks=False, single_documents=False, chunk=_CHUNK
):
    """Cuts a corpus into rows `[CLS] sentence ... [SEP] sentence ... [SEP]`; no token is lost.

    A row takes whole sentences in order as long as they fit. Where a document ends inside a row, a
    [SEP] stands and the next document goes on; its tokens attend to each other. A sentence that is
    longer than a row is cut at clause ends, and a longer clause between words.

    Args:
        corpus: a `Corpus`.
        sequence_length: slots of a row, [CLS] and [SEP] included.
        clause_breaks: whether any sentence may be cut where a clause ends; fills rows better.
        single_documents: whether a row ends with its document.
        chunk: tokens looked at together; does not change the result.

    Returns: token at which each row begins, and num_tokens, (rows + 1,) int64.
    """
    if sequence_length < 3:
        raise ValueError(
            f"sequence_length must be at least 3 ([CLS], a token, [SEP]); got {sequence_length}"
        )
    capacity = sequence_length - 2
    rows, carry = [np.zeros(1, np.int64)], np.zeros(1, np.int64)
    for start in range(0, corpus.num_tokens, chunk):
        stop = min(start + chunk, corpus.num_tokens)
        last = stop == corpus.num_tokens
        bits = corpus.clause_bits if clause_breaks else corpus.sentence_bits
        new = start + np.flatnonzero(corpus.bits(bits, start, stop))
        breaks = np.concatenate([carry, new[new > carry[-1]], [stop] if last else []])
        breaks = _cut_long(corpus, breaks.astype(np.int64), capacity)
        found = _fill(breaks, corpus.document_starts, capacity, single_documents, last)
        rows.append(breaks[found])
        carry = breaks[found[-1] :] if len(found) else breaks
    return np.concatenate(rows)


def _cut_long(corpus, breaks, capacity):
    """Adds breaks inside spans of more than `capacity` tokens: clause ends, then between words."""
    long = np.diff(breaks) > capacity
    if not long.any():
        return breaks
    clauses = breaks[0] + np.flatnonzero(corpus.bits(corpus.clause_bits, breaks[0], breaks[-1]))
    span = np.searchsorted(breaks, clauses, "right") - 1
    breaks = _merge(breaks, clauses[long[span]])
    cuts = []  # rare: a clause longer than a row
    for i in np.flatnonzero(np.diff(breaks) > capacity):
        start, stop = breaks[i : i + 2]
        words = start + np.flatnonzero(corpus.bits(corpus.word_bits, start, stop))
        while stop - start > capacity:
            word = (
                words[np.searchsorted(words, start + capacity, "right") - 1]
                if len(words)
                else start
            )
            start = word if word > start else start + capacity
            cuts.append(start)
    return _merge(breaks, np.array(cuts, np.int64))


def _merge(breaks, inside):
    """Both sorted into one without repeats; `inside` lies between the ends of `breaks`."""
    marks = np.zeros(breaks[-1] - breaks[0] + 1, bool)
    marks[breaks - breaks[0]] = True
    marks[inside - breaks[0]] = True
    return breaks[0] + np.flatnonzero(marks)


def _fill(breaks, document_starts, capacity, single_documents, last):
    """Greedy rows from breaks[0] on: indices of the breaks at which the following rows begin."""
    # A document's end takes a slot for its [SEP]: `left` and `right` are the places of a break in
    # the stream with these slots, seen from the token after it and from the token before it.
    inner = document_starts[1:]
    left = breaks + np.searchsorted(inner, breaks, "right")
    right = breaks + np.searchsorted(inner, breaks, "left")
    following = np.searchsorted(right, left + capacity, "right") - 1
    if single_documents:
        ends = np.flatnonzero(left > right)
        ends = np.append(ends, len(breaks) - 1)
        following = np.minimum(
            following,
            ends[np.searchsorted(ends, np.arange(len(breaks)), "right").clip(max=len(ends) - 1)],
        )
    known = len(breaks) if last else np.searchsorted(left + capacity, right[-1], "right")
    found, at, following = [], 0, following.tolist()
    while at < known and at < len(breaks) - 1:
        at = following[at]
        found.append(at)
    return found


def permuted(indices, count, key):
    """Where each index goes under a shuffle of range(count) that needs no memory.

    A Feistel network over the next power of four, walked until the result is in range. Each index
    appears exactly once; another key gives another shuffle.

    Args:
        indices: int array of values in [0, count).
        count: how many there are.
        key: uint64 array of the indices' shape, or one number.

    Example:
        >>> sorted(permuted(np.arange(10), 10, 7).tolist()) == list(range(10))
        True
    """
    half = np.uint64(max(1, (int(count - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    values = np.asarray(indices, np.uint64)
    key = np.broadcast_to(np.asarray(key, np.uint64), values.shape)
    values = _feistel(values, half, mask, key)
    while (outside := values >= count).any():
        values[outside] = _feistel(values[outside], half, mask, key[outside])
    return values.astype(np.int64)


def _feistel(values, half, mask, key):
    """Six rounds of a Feistel network on numbers of 2 * half bits."""
    left, right = values >> half, values & mask
    for number in range(6):
        mixed = hash64(right + np.uint64(number << 40), key)
        left, right = right, left ^ (mixed & mask)
    return (left << half) | right
