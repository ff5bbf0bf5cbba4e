"""Times `DocumentMatcher.rank` over thousands of candidates, and counts the padding it computes."""

import dataclasses
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import versions
from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table, percent


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Ranks candidates with a run folder, or with an untrained SiameseScorer of a preset's size.

    The first query encodes every candidate; the second one uses their kept vectors. Beside the
    tokens that the matcher computes stand those of batches in the order given, each padded to its
    longest row: `--naive-batch` rows at once.
    """

    model: str | None = None
    """Run folder of a scorer; None = untrained, of `preset`."""
    preset: str = "roformer_tiny"
    """Size of the untrained model."""
    vocab: str = "vocab/vocab.txt"
    """Vocabulary of the untrained model."""
    sequence_length: int = 1024
    """Tokens it reads of two texts together."""
    input: tuple[Path, ...] = ()
    """Files of candidates (JSON lines with "text"); none = made-up texts of the vocabulary."""
    candidates: int = 3000
    """How many candidates, evenly spread over the files."""
    tokens_per_batch: int = 16384
    """Tokens computed at once."""
    naive_batch: int = 32
    """Rows of a batch in the order given."""
    seed: int = 0
    """Of made-up texts."""


def main(args):
    """Prints the table; returns what it holds."""
    matcher = make_matcher(args)
    texts = read_texts(args) if args.input else make_texts(args, matcher.tokenizer)
    query, texts = texts[0], texts[1:]
    found = {**naive_padding(args, matcher, texts), **time_queries(matcher, query, texts)}
    print(versions("tensorflow", "keras", "numpy"))
    print(markdown_table(in_words(found)))
    return found


class Counter:
    """Counts what a matcher's model computes: rows of different texts, slots, tokens, traces."""

    def __init__(self, matcher):
        self.rows = self.slots = self.tokens = self.traces = 0
        engine, model = matcher._engine, matcher.model
        vectors, call = engine.vectors, model.call

        def count(inputs):
            mask = inputs["padding_mask"]
            different = np.unique(np.where(mask, inputs["token_ids"], -1), axis=0)
            self.rows += len(different)  # a batch is filled up with its last row
            self.slots += mask.size
            self.tokens += int((different >= 0).sum())
            return vectors(inputs)

        def trace(inputs, training=False):
            self.traces += 1
            return call(inputs, training=training)

        engine.vectors, model.call = count, trace


def make_matcher(args):
    """The matcher to time."""
    from roformer_zh import DocumentMatcher, Encoder, EncoderConfig, SiameseScorer, WordTokenizer
    from roformer_zh.layout import Layout

    options = dict(tokens_per_batch=args.tokens_per_batch)
    if args.model is not None:
        matcher = DocumentMatcher.load(args.model, **options)
        if matcher.layout.kind != "siamese":
            raise ValueError(f"--model must be a run of a SiameseScorer, which encodes each text "
                             f"once; {args.model} holds a {type(matcher.model).__name__}")
        return matcher
    tokenizer = WordTokenizer.load(args.vocab)
    config = EncoderConfig.preset(args.preset, vocabulary_size=tokenizer.vocabulary_size)
    layout = Layout("siamese", args.sequence_length)
    return DocumentMatcher(SiameseScorer(Encoder(config)), tokenizer, layout, **options)


def read_texts(args):
    """A query and the candidates, evenly spread over the documents of the files."""
    from roformer_zh.candidates import read_documents

    texts = list(dict.fromkeys(document.text for document in read_documents(args.input)))
    if len(texts) < args.candidates + 1:
        raise ValueError(f"--input must hold {args.candidates + 1} different documents, the query "
                         f"among them; got {len(texts)}; lower --candidates")
    chosen = np.arange(args.candidates + 1) * len(texts) // (args.candidates + 1)
    return [texts[place] for place in chosen]


def make_texts(args, tokenizer):
    """A query and different candidates of random Chinese words, of 5 to 2,000 words each."""
    rng = np.random.default_rng(args.seed)
    words = [tokenizer.id_to_token(i) for i in range(5, tokenizer.vocabulary_size)]
    words = [word for word in words if all("\u4e00" <= c <= "\u9fff" for c in word)]
    lengths = np.clip(rng.lognormal(5.3, 0.9, args.candidates + 1), 5, 2000).astype(int)
    return ["".join(words[i] for i in rng.integers(0, len(words), n)) for n in lengths]


def time_queries(matcher, query, texts):
    """Seconds of a first encoding, of a warm one and of queries; what the first one computed."""
    counter = Counter(matcher)
    reading, _ = timed(matcher._ids, texts)
    first, vectors = timed(matcher.encode, texts)
    found = {
        "candidates": len(texts),
        "texts encoded": counter.rows,
        "traces": counter.traces,
        "shapes": len(matcher.shapes),
        "share of padding computed": 1 - counter.tokens / counter.slots,
    }
    matcher.rank(query, texts, vectors=vectors)  # traces the shape of one text
    kept, ranked = timed(matcher.rank, query, texts, vectors=vectors)
    warm, again = timed(matcher.rank, query, texts)
    scores = [np.array([row["score"] for row in sorted(rows, key=lambda row: row["corpus_id"])])
              for rows in (ranked, again)]
    return {
        **found,
        "largest difference of a score, kept or new": float(np.abs(scores[0] - scores[1]).max()),
        "seconds, text to ids": reading,
        "seconds, first time": first,
        "seconds of a query, nothing kept": warm,
        "seconds of a query, vectors kept": kept,
        "documents/s": len(texts) / warm,
    }


def timed(function, *args, **options):
    """(seconds, answer) of one call."""
    started = time.perf_counter()
    answer = function(*args, **options)
    return time.perf_counter() - started, answer


def naive_padding(args, matcher, texts):
    """The share of padding if texts were computed in the order given."""
    rows = [matcher.layout.single(ids, 0, 0) for ids in matcher._ids(texts).values()]
    lengths = np.array([len(row.token_ids) for row in rows])
    parts = np.split(lengths, range(args.naive_batch, len(lengths), args.naive_batch))
    slots = sum(len(part) * int(part.max()) for part in parts)
    return {
        "tokens read": int(lengths.sum()),
        "median tokens of a text": int(np.median(lengths)),
        "share of padding in the order given": 1 - int(lengths.sum()) / slots,
    }


def in_words(found):
    """Rows of the table."""
    rows = []
    for name, value in found.items():
        if name.startswith("share"):
            value = percent(value) + " %"
        elif isinstance(value, float):
            value = f"{value:.2g}" if value < 1 else f"{value:,.1f}"
        else:
            value = f"{value:,}"
        rows.append({"": name, "value": value})
    return rows


if __name__ == "__main__":
    run_command(main, Arguments)
