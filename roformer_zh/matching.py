"""DocumentMatcher: which of these documents is closest to mine."""

import warnings
from pathlib import Path

import numpy as np
from tqdm import tqdm

from roformer_zh.engines import KINDS, OnnxEngine, engine_of, is_export
from roformer_zh.layout import Layout, check_fits
from roformer_zh.runs import load_run

_SHOW_BAR_FROM = 20  # batches


class DocumentMatcher:
    """Scores, ranks and encodes texts with a trained PairScorer or SiameseScorer.

    A SiameseScorer encodes each text once, so ranking n documents costs n sequences, and vectors
    can be kept; a PairScorer reads query and document together, n sequences of both.
    Scores do not depend on the order of the texts or on what else is in a list.

    Args:
        model: a `PairScorer` or `SiameseScorer`, or the `OnnxEngine` of an exported one.
        tokenizer: the `WordTokenizer` whose ids the model reads.
        layout: `roformer_zh.layout.Layout`, what is read of a text.
        tokens_per_batch: tokens, padding included, that are computed at once.
        verbose: whether a long list shows a progress bar.

    Raises:
        ValueError: the parts do not fit.
    """

    def __init__(self, model, tokenizer, layout, *, tokens_per_batch=16384, verbose=True):
        engine = self._engine = engine_of(model)
        if layout.kind != engine.kind:
            raise ValueError(f"a {engine.name} needs a layout of kind {engine.kind!r}; "
                             f"got {layout.kind!r}")
        check_fits(layout, engine.config, engine.name)
        self.model, self.tokenizer, self.layout = model, tokenizer, layout
        self.tokens_per_batch, self.verbose = tokens_per_batch, verbose
        self.shapes = set()
        """Shapes that were computed so far; each may cost one compilation."""
        self._special = {"cls_id": tokenizer.cls_id, "sep_id": tokenizer.sep_id}
        self._warned = False

    @classmethod
    def load(cls, folder, *, dtype=None, **options):
        """The matcher of a run folder that fine-tuning wrote, or of its ONNX export.

        Args:
            folder: the run folder, or what `python -m roformer_zh.checkpoints export --format onnx`
                wrote, which needs neither TensorFlow nor Keras.
            dtype: a Keras dtype policy; None keeps the saved one. An export is float32.
            **options: of the constructor.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: the folder holds no scorer, or its parts do not fit.
        """
        if is_export(folder):
            if dtype not in (None, "float32"):
                raise ValueError(f"{folder} is an export and computes in float32; got {dtype!r}")
            engine = OnnxEngine(folder)
            return cls(engine, engine.tokenizer, Layout.of_run(engine.info, Path(folder)),
                       **options)
        run = load_run(folder, dtype=dtype)
        if type(run.model).__name__ not in KINDS:
            raise ValueError(f"{folder} must hold a PairScorer or a SiameseScorer; it holds a "
                             f"{type(run.model).__name__}; fine-tune it first: "
                             "`python -m tasks.cail2019_scm.finetune`")
        return cls(run.model, run.tokenizer, Layout.of_run(run.info, Path(folder)), **options)

    def score(self, a, b):
        """How close two texts are, a float; higher is closer."""
        return float(self.score_pairs([(a, b)])[0])

    def score_pairs(self, pairs):
        """The score of each (a, b), float32 of shape (n,), in the order given.

        Each different text (SiameseScorer) or pair is computed once, so equal ones tie exactly.
        """
        pairs = [(a, b) for a, b in pairs]
        if self.layout.kind == "pair":
            ids = self._ids(text for pair in pairs for text in pair)
            places = _places(pairs)
            rows = [self.layout.pair(ids[a], ids[b], **self._special) for a, b in places]
            self._warn_if_cut(rows)
            scores = self._compute(self._engine.scores, rows, width=1)
            return scores[[places[pair] for pair in pairs], 0]
        places = _places(text for pair in pairs for text in pair)
        vectors = self.encode(places)
        return self._similarity(vectors[[places[a] for a, _ in pairs]],
                                vectors[[places[b] for _, b in pairs]])

    def encode(self, documents):
        """Unit vectors of texts, float32 of shape (n, hidden_dim), in the order given.

        A SiameseScorer gives what its score compares; a PairScorer, which has no such vectors, the
        normalised mean of its encoder's hidden states over all tokens, [CLS] and [SEP] among them.
        Each different text is computed once.
        """
        documents = list(documents)
        ids = self._ids(documents)
        rows = [self.layout.single(found, **self._special) for found in ids.values()]
        self._warn_if_cut(rows)
        vectors = self._compute(self._engine.vectors, rows, width=self._engine.config.hidden_dim)
        places = _places(ids)
        return vectors[[places[text] for text in documents]]

    def rank(self, query, documents, top_k=None, *, vectors=None):
        """The documents by closeness to `query`, best first; equal scores keep their order.

        Args:
            query: a text.
            documents: list of texts.
            top_k: how many to return; None = all.
            vectors: what `encode(documents)` gave earlier, (n, hidden_dim); SiameseScorer only.

        Returns:
            A list of {"corpus_id": place in `documents`, "score": float, "text": the document}.
        """
        documents = list(documents)
        if top_k is not None and not (isinstance(top_k, int) and top_k >= 1):
            raise ValueError(f"top_k must be None or a whole number of at least 1; got {top_k!r}")
        if vectors is None:
            scores = self.score_pairs([(query, document) for document in documents])
        else:
            vectors = self._check_vectors(vectors, len(documents))
            scores = self._similarity(np.broadcast_to(self.encode([query]), vectors.shape), vectors)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [{"corpus_id": int(place), "score": float(scores[place]), "text": documents[place]}
                for place in order]

    def _check_vectors(self, vectors, count):
        """Vectors as an array, if they can stand for so many documents."""
        if self.layout.kind == "pair":
            raise ValueError("a PairScorer reads both texts together and cannot rank by vectors; "
                             "leave vectors out, or fine-tune a SiameseScorer (--scorer siamese)")
        vectors = np.asarray(vectors, np.float32)
        shape = (count, self._engine.config.hidden_dim)
        if vectors.shape != shape:
            raise ValueError(f"vectors must be what encode(documents) gave, of shape {shape}; "
                             f"got {vectors.shape}")
        return vectors

    def _similarity(self, first, second):
        """Scaled cosine of unit vectors, (n, D) and (n, D) -> (n,)."""
        scale = self._engine.scale
        cosines = np.einsum("nd,nd->n", first, second, dtype=np.float64)
        return (scale * cosines).astype(np.float32)

    def _ids(self, texts):
        """Token ids of each different text, as far as they are needed: dict of text to list."""
        limit = self.layout.read_limit
        return {text: self.tokenizer.encode(text, limit) for text in dict.fromkeys(texts)}

    def _warn_if_cut(self, rows):
        """Says once that texts were cut."""
        if not self._warned and any(row.cut for row in rows):
            self._warned = True
            warnings.warn(
                f"texts are longer than what the model reads ({self.layout.row_length} tokens a "
                f"sequence) and are cut (truncation {self.layout.truncation!r}); said once",
                stacklevel=3,
            )

    def _compute(self, answer, rows, width):
        """The float32 answers of an engine to rows, (n, width), in the order given.

        Rows of like length are computed together, padded to one of few lengths, in batches whose
        size is a power of two.
        """
        answers = np.zeros((len(rows), width), np.float32)
        padded = np.array([self.layout.padded_length(len(row.token_ids)) for row in rows], np.int64)
        batches = list(_batches(padded, self.tokens_per_batch))
        hide = not self.verbose or len(batches) < _SHOW_BAR_FROM
        for length, places in tqdm(batches, desc="matching", unit="batch", disable=hide):
            size = 1 << (len(places) - 1).bit_length()
            chosen = [rows[place] for place in places]
            chosen += [chosen[-1]] * (size - len(chosen))
            inputs = self.layout.stack(chosen, length, self.tokenizer.pad_id)
            self.shapes.add((size, length))
            answers[places] = np.asarray(answer(inputs), np.float32)[:len(places)]
        return answers


def _places(things):
    """A dict of each different thing to its place among them, in order of first appearance."""
    return {thing: place for place, thing in enumerate(dict.fromkeys(things))}


def _batches(padded, budget):
    """(length, places) of rows with one padded length, at most `budget` tokens, a power of two."""
    for length in np.unique(padded)[::-1]:
        places = np.flatnonzero(padded == length)
        size = 1 << max(0, int(budget // length).bit_length() - 1)
        for start in range(0, len(places), size):
            yield int(length), places[start:start + size]
