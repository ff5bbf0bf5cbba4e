"""Global batches of triplets as pure functions of a step number."""

import functools
import hashlib

import numpy as np

from roformer_zh.hashing import hash64, make_key

_POOL = 8  # batches whose rows are sorted by length together


class TripletBatches:
    """Batches of whole triplets: a siamese row holds (A, B, C), a pair row (A, B) and (A, C).

    The sequences of a triplet lie on axis 1 of one row, so they stay on one replica. An epoch has
    each triplet once; rows of like length share a batch, and only an epoch's last batch is smaller.

    With `group`, a row holds so many triplets, so that a loss may compare their texts and still be
    the same on any hardware; the last row of a batch is filled up with triplets of weight 0.

    Args:
        triplets: labelled rows with A, B, C and label.
        tokenizer: a `WordTokenizer`.
        layout: a `roformer_zh.layout.Layout`.
        batch_size: triplets a batch.
        seed: of the order.
        group: triplets a row; None = one, without an axis of its own.

    Attributes:
        steps_per_epoch: batches an epoch.
        cut, cut_rows: share of all tokens that the layout cuts, and of sequences that lose some.
    """

    def __init__(self, triplets, tokenizer, layout, batch_size, seed=0, group=None):
        if batch_size < 1 or not triplets:
            raise ValueError(f"batches need a triplet and a batch size of at least 1; got "
                             f"{len(triplets)} triplets and batch size {batch_size}")
        if group is not None and (group < 1 or batch_size % group):
            raise ValueError("the batch size must be a multiple of the group; got "
                             f"{batch_size} and {group}")
        self.layout, self.batch_size, self.seed, self.group = layout, batch_size, seed, group
        self._pad_id = tokenizer.pad_id
        self._labels = np.array([row.label == "B" for row in triplets], np.float32)
        self._rows, tokens = encode_triplets(triplets, tokenizer, layout)
        self._text_ids = _number_texts(triplets)
        self.cut, self.cut_rows = shares_cut(self._rows, tokens)
        self._lengths = np.array([max(len(row.token_ids) for row in rows) for rows in self._rows])
        self.steps_per_epoch = -(-len(triplets) // batch_size)
        self._hash = _hash_of(triplets)
        self._order = functools.lru_cache(2)(self._epoch_order)

    def __len__(self):
        return len(self._rows)

    def batch(self, step):
        """The batch of a step, counted from 0 over all epochs.

        Returns:
            dict: token_ids, segment_ids (int32), padding_mask (bool) and, if positions restart,
            position_ids, all (rows, 2 or 3, T); first_is_closer and weights (float32), (rows,).
            With a group each has it as a second axis, and text_ids (rows, group, 3) are equal where
            texts are.
        """
        epoch, number = divmod(step, self.steps_per_epoch)
        return self._make(self._order(epoch)[number])

    def in_order(self):
        """Yields batches of all triplets once, in their given order: for evaluation."""
        for start in range(0, len(self), self.batch_size):
            yield self._make(np.arange(start, min(start + self.batch_size, len(self))))

    def fingerprint(self):
        """What a resumed run must share."""
        return {"triplets": self._hash, "layout": self.layout.to_dict(),
                "batch_size": self.batch_size, "seed": self.seed, "group": self.group}

    def texts(self, count, size):
        """Yields encoder inputs of at most `count` different texts, `size` at once (siamese)."""
        numbers, places = np.unique(self._text_ids, return_index=True)
        chosen = places[_shuffle(np.arange(len(numbers)), "texts", self.seed)[:count]]
        rows = [self._rows[place // 3][place % 3] for place in chosen]
        rows.sort(key=lambda row: len(row.token_ids))
        for start in range(0, len(rows), size):
            part = rows[start:start + size]
            length = self.layout.padded_length(len(part[-1].token_ids))
            yield self.layout.stack(part, length, self._pad_id)

    def _epoch_order(self, epoch):
        """The triplets of each batch of an epoch: list of index arrays."""
        size, count = self.batch_size, len(self)
        shuffled = _shuffle(np.arange(count), "rows", self.seed, epoch)
        batches = []
        for start in range(0, count, size * _POOL):
            pool = shuffled[start:start + size * _POOL]
            pool = pool[np.argsort(self._lengths[pool], kind="stable")]
            batches += [pool[at:at + size] for at in range(0, len(pool), size)]
        whole = count // size
        order = _shuffle(np.arange(whole), "batches", self.seed, epoch)
        return [batches[number] for number in order] + batches[whole:]

    def _make(self, indices):
        """The arrays of the chosen triplets."""
        rows = [row for index in indices for row in self._rows[index]]
        length = self.layout.padded_length(int(self._lengths[indices].max()))
        arrays = self.layout.stack(rows, length, self._pad_id)
        shape = (len(indices), -1, length)
        batch = {**{name: array.reshape(shape) for name, array in arrays.items()},
                 "first_is_closer": self._labels[indices],
                 "weights": np.ones(len(indices), np.float32)}
        if self.group is None:
            return batch
        batch["text_ids"] = self._text_ids[indices]
        return {name: _grouped(array, self.group) for name, array in batch.items()}


def encode_triplets(triplets, tokenizer, layout):
    """The rows of each triplet, and how many tokens their texts have; each text is read once.

    Returns:
        (rows, tokens): a list of two `Row` (pair) or three (siamese) for each triplet, and a count.
    """
    texts = dict.fromkeys(text for row in triplets for text in (row.A, row.B, row.C))
    ids = {text: tokenizer.encode(text) for text in texts}
    special = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
    found, tokens = [], 0
    for row in triplets:
        a, b, c = ids[row.A], ids[row.B], ids[row.C]
        if layout.kind == "pair":
            found.append([layout.pair(a, other, **special) for other in (b, c)])
            tokens += 2 * len(a) + len(b) + len(c)
        else:
            found.append([layout.single(one, **special) for one in (a, b, c)])
            tokens += len(a) + len(b) + len(c)
    return found, tokens


def _number_texts(triplets):
    """A number for each text, the same for equal ones: (rows, 3) int32."""
    numbers = {}
    return np.array([[numbers.setdefault(text, len(numbers)) for text in (row.A, row.B, row.C)]
                     for row in triplets], np.int32)


def _grouped(array, group):
    """(n, ...) -> (n / group, group, ...), filled up with zeros."""
    missing = np.zeros((-len(array) % group, *array.shape[1:]), array.dtype)
    return np.concatenate([array, missing]).reshape(-1, group, *array.shape[1:])


def shares_cut(rows, tokens):
    """The share of so many tokens that was cut, and the share of sequences in which some were."""
    cut = np.array([row.cut for sequences in rows for row in sequences])
    return float(cut.sum() / max(1, tokens)), float((cut > 0).mean())


def _shuffle(values, *key):
    """The values in an order that depends on the key alone."""
    return values[np.argsort(hash64(np.arange(len(values)), make_key("triplets", *key)))]


def _hash_of(triplets):
    """SHA-256 of texts and labels, in order."""
    state = hashlib.sha256()
    for row in triplets:
        for text in (row.A, row.B, row.C, str(row.label)):
            data = text.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()
