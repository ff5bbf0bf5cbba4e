"""Batches of masked-language-model training: pure functions of a step number."""

import functools

import numpy as np

from roformer_zh.batches.masking import FlatRows, Masker, mask_slots
from roformer_zh.batches.packing import pack_rows, permuted
from roformer_zh.hashing import make_key


class MaskedLMBatches:
    """The global batches of a stage.

    `batch(step)` depends on the corpus, the stage, the seed and `step` alone: not on earlier calls,
    devices or workers. Rows are shuffled over the whole corpus, each is seen once an epoch, and a
    batch that reaches the end of an epoch goes on in the next. Masks differ from epoch to epoch.

    Args:
        corpus: a `Corpus`.
        stage: a `Stage`.
        seed: changes the order of the rows and the masks.

    Attributes:
        num_rows: rows an epoch.
        mask_slots: masked slots a row (P).
        fill_rate: text tokens over slots.
    """

    def __init__(self, corpus, stage, seed=0):
        self.corpus = corpus
        self.stage = stage
        self.seed = seed
        self._rows = _Rows(corpus, stage)
        self._masker = _masker(corpus, stage)
        self.num_rows = len(self._rows)
        self.mask_slots = self._masker.slots(stage.sequence_length)
        self.fill_rate = corpus.num_tokens / (self.num_rows * stage.sequence_length)

    def batch(self, step):
        """The batch of update `step`, counted from 0 inside the stage.

        Returns: dict of numpy arrays: token_ids and segment_ids (B, T) int32, padding_mask (B, T)
            bool, mask_positions and mask_ids (B, P) int32, mask_weights (B, P) float32, 0 in
            unused slots.
        """
        if step < 0:
            raise ValueError(f"step must be at least 0; got {step}")
        counter = step * self.stage.batch_size + np.arange(self.stage.batch_size, dtype=np.int64)
        epoch, place = np.divmod(counter, self.num_rows)
        rows = permuted(place, self.num_rows, self._keys("order", epoch))
        batch, flat = self._rows.assemble(rows)
        keys = self._keys("mask", epoch)
        selected = self._masker.select_share(flat, keys, self.mask_slots)
        return _mask(batch, flat, selected, self._masker.replacements(flat, keys), self.mask_slots)

    def evaluation_batches(self, batch_size=None, max_rows=None):
        """Every row once, in order, with masks that never change; see `EvaluationBatches`."""
        return EvaluationBatches(self.corpus, self.stage, batch_size, max_rows, self._rows)

    def describe(self):
        """One line for people: rows, epochs, share of text in the slots."""
        stage = self.stage
        epochs = stage.steps * stage.batch_size / self.num_rows
        return (
            f"{stage.name}: {self.num_rows:,} rows of {stage.sequence_length:,} slots, "
            f"{100 * self.fill_rate:.1f} % of them text; {stage.steps:,} updates of "
            f"{stage.batch_size:,} rows are {epochs:.2f} epochs"
        )

    def fingerprint(self):
        """What decides the batches, for comparison when a run resumes."""
        stage = {
            key: value
            for key, value in self.stage.to_dict().items()
            if not key.startswith("published")
        }
        return {"seed": self.seed, "stage": stage, **_corpus_fingerprint(self.corpus)}

    def _keys(self, purpose, epochs):
        """The key of each row, (B,) uint64."""
        keys = {
            int(epoch): make_key(purpose, self.seed, self.stage.name, int(epoch))
            for epoch in np.unique(epochs)
        }
        return np.array([keys[int(epoch)] for epoch in epochs], np.uint64)


class EvaluationBatches:
    """Every row of a corpus once, in order, with fixed masks; the last batch may be short.

    Masks depend on the number of a word in the corpus alone, not on seed, stage or packing: the
    same words are masked at every length, and in a word and a character preparation of one text
    (but for [UNK], which is never masked and may cover a word in one and a character in the other).

    Args:
        corpus: a `Corpus`.
        stage: a `Stage`; gives the length, the rates and how rows are packed.
        batch_size: rows a batch; None = the stage's.
        max_rows: at most so many rows, spread evenly; None = all.
        rows: rows of the same corpus and stage if they are at hand.

    Iterate, or call `batch(step)` for step < len(batches).
    """

    def __init__(self, corpus, stage, batch_size=None, max_rows=None, rows=None):
        self.corpus = corpus
        self.stage = stage
        self.batch_size = batch_size or stage.batch_size
        self._rows = rows or _Rows(corpus, stage)
        self._masker = _masker(corpus, stage)
        self._key = make_key("evaluation")
        if max_rows is not None and max_rows < 1:
            raise ValueError(f"max_rows must be None or at least 1; got {max_rows}")
        self.num_rows = min(len(self._rows) if max_rows is None else max_rows, len(self._rows))
        self._chosen = np.arange(self.num_rows) * len(self._rows) // self.num_rows

    def __len__(self):
        return -(-self.num_rows // self.batch_size)

    def __iter__(self):
        return map(self.batch, range(len(self)))

    @functools.cached_property
    def mask_slots(self):
        """Masked slots a row: what the fullest row needs."""
        most = 1
        for start in range(0, self.num_rows, 1024):
            flat = self._rows.flat(self._chosen[start : start + 1024])
            selected = self._masker.select_all(flat, self._key)
            most = max(most, int(np.bincount(flat.row[selected], minlength=1).max()))
        return most

    def batch(self, step):
        """The batch `step`, as `MaskedLMBatches.batch`."""
        if not 0 <= step < len(self):
            raise ValueError(f"step must be from 0 to {len(self) - 1}; got {step}")
        chosen = self._chosen[step * self.batch_size : (step + 1) * self.batch_size]
        batch, flat = self._rows.assemble(chosen)
        selected = self._masker.select_all(flat, self._key)
        keys = np.full(len(chosen), self._key, np.uint64)
        return _mask(batch, flat, selected, self._masker.replacements(flat, keys), self.mask_slots)

    def fingerprint(self):
        """What decides the batches."""
        return {
            "evaluation": True,
            "batch_size": self.batch_size,
            "num_rows": self.num_rows,
            "sequence_length": self.stage.sequence_length,
            **_corpus_fingerprint(self.corpus),
        }


class _Rows:
    """The packed rows of a corpus at a stage's length."""

    def __init__(self, corpus, stage):
        self._corpus = corpus
        self._length = stage.sequence_length
        tokenizer = corpus.tokenizer
        self._cls_id, self._sep_id, self._pad_id = (
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.pad_id,
        )
        self._starts = pack_rows(
            corpus,
            stage.sequence_length,
            clause_breaks=stage.clause_breaks,
            single_documents=stage.single_documents,
        )

    def __len__(self):
        return len(self._starts) - 1

    def flat(self, rows):
        """The tokens of the given rows as `FlatRows`."""
        corpus, starts, stops = self._corpus, self._starts[rows], self._starts[np.add(rows, 1)]
        spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
        lengths = stops - starts
        row = np.repeat(np.arange(len(rows)), lengths)
        first = np.cumsum(lengths) - lengths  # place of each row's first token in the flat arrays
        index = np.arange(len(row)) + (starts - first)[row]
        words = np.concatenate([corpus.bits(corpus.word_bits, *span) for span in spans])
        begun = np.cumsum(words)
        word = begun - (begun - words)[first][row] + corpus.words_before(starts)[row] - 1
        column = 1 + index - starts[row] + self._separators(starts, stops, first, len(row))
        return FlatRows(
            np.concatenate([corpus.ids[slice(*span)] for span in spans]).astype(np.int32),
            row,
            column,
            index,
            word,
            len(rows),
        )

    def assemble(self, rows):
        """The given rows as an unmasked batch (token_ids, segment_ids, ...) and `FlatRows`."""
        flat = self.flat(rows)
        shape = (len(rows), self._length)
        last = np.append(np.flatnonzero(np.diff(flat.row)), len(flat.row) - 1)
        end = flat.column[last] + 1  # slot of each row's last [SEP]
        padding_mask = np.arange(self._length) <= end[:, None]
        token_ids = np.where(padding_mask, self._sep_id, self._pad_id).astype(np.int32)
        token_ids[:, 0] = self._cls_id
        token_ids[flat.row, flat.column] = flat.ids
        batch = {
            "token_ids": token_ids,
            "segment_ids": np.zeros(shape, np.int32),
            "padding_mask": padding_mask,
        }
        return batch, flat

    def _separators(self, starts, stops, first, num_tokens):
        """How many documents ended in each token's row before it."""
        inner = self._corpus.document_starts
        begin = np.searchsorted(inner, starts, "right")
        count = np.searchsorted(inner, stops, "left") - begin
        row = np.repeat(np.arange(len(starts)), count)
        document = np.arange(len(row)) + (begin - np.cumsum(count) + count)[row]
        ended = np.zeros(num_tokens, np.int64)
        ended[inner[document] - starts[row] + first[row]] = 1
        ended = np.cumsum(ended)
        return ended - np.repeat(ended[first], stops - starts)


def _masker(corpus, stage):
    """The stage's `Masker`."""
    return Masker(
        corpus.tokenizer, stage.mask_selection_rate, stage.mask_token_rate, stage.random_token_rate
    )


def _mask(batch, flat, selected, replacements, slots):
    """The finished batch: selected tokens replaced, the originals as targets."""
    positions, ids, weights = mask_slots(flat, selected, slots)
    batch["token_ids"][flat.row[selected], flat.column[selected]] = replacements[selected]
    return {**batch, "mask_positions": positions, "mask_ids": ids, "mask_weights": weights}


def _corpus_fingerprint(corpus):
    """The corpus and tokenizer of a source of batches."""
    return {
        "corpus_hash": corpus.meta["corpus_hash"],
        "num_tokens": corpus.num_tokens,
        "tokenizer": corpus.meta["tokenizer"],
    }
