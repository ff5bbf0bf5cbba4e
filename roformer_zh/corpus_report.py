"""The report of a prepared corpus: a page of figures and a picture of the lengths."""

import itertools
from pathlib import Path

import numpy as np

from roformer_zh.batches.packing import pack_rows
from roformer_zh.corpus import Corpus
from roformer_zh.files import write_text
from roformer_zh.reports import markdown_table

LENGTHS = (128, 512, 1024, 1536)
_PACKED_UP_TO = 200_000_000  # tokens; trying eight ways of packing more takes minutes
_PAPER_BYTES = 34e9


def write_corpus_report(folder, facts):
    """Writes `report.md` and `lengths.png` into the folder of a corpus.

    Args:
        folder: the corpus; a held-out share lies in its folder "holdout".
        facts: dict: rows, dropped (counts by kind), damage (a line), bytes (of text), encoded
            (bytes of text that this run encoded), seconds, workers.

    Returns: the text of the report.
    """
    corpus = Corpus.open(folder)
    counts = {"training": corpus.meta}
    if (Path(folder) / "holdout").is_dir():
        counts["held out"] = Corpus.open(Path(folder) / "holdout").meta
    lengths = np.diff(corpus.document_starts)
    draw_lengths(Path(folder) / "lengths.png", lengths)
    sections = [
        "# Prepared corpus",
        markdown_table(_count_rows(counts)),
        "## Input",
        _input_text(facts),
        "## Lengths of the training documents",
        _length_text(lengths),
        "![Documents and tokens by length of the document](lengths.png)",
        "## Packing of the training documents",
        _packing_text(corpus),
        "## Time",
        speed_text(facts),
    ]
    text = "\n\n".join(sections) + "\n"
    write_text(Path(folder) / "report.md", text)
    return text


def speed_text(facts):
    """How fast the text was prepared, and what 34 GB (the paper's corpus) would take."""
    if not facts["encoded"]:
        return "All text had been encoded by an earlier run that was stopped."
    rate = facts["encoded"] / facts["seconds"]
    return (
        f"{facts['encoded'] / 1e6:,.1f} MB of text in {facts['seconds']:,.1f} s with "
        f"{facts['workers']} worker(s): {rate / 1e6:.2f} MB/s. "
        f"34 GB would take {_PAPER_BYTES / rate / 3600:.1f} hours at this rate."
    )


def draw_lengths(path, lengths):
    """Draws how many documents, and how many of all tokens, fall into each class of length."""
    from matplotlib.figure import Figure

    edges = 2.0 ** np.arange(np.floor(np.log2(lengths.min())), np.log2(lengths.max()) + 1)
    edges = np.append(edges, edges[-1] * 2) if edges[-1] <= lengths.max() else edges
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    labels = [f"{int(low):,}-{int(high) - 1:,}" for low, high in itertools.pairwise(edges)]
    place = np.arange(len(labels))
    for shift, weights, label in ((-0.2, None, "documents"), (0.2, lengths, "tokens")):
        counts, _ = np.histogram(lengths, edges, weights=weights)
        axes.bar(place + shift, 100 * counts / counts.sum(), 0.4, label=f"share of {label}")
    axes.set_xticks(place, labels, rotation=45, ha="right")
    axes.set_xlabel("tokens a document")
    axes.set_ylabel("%")
    axes.legend()
    figure.savefig(path, dpi=120)


def _count_rows(counts):
    """Rows of the table of counts."""
    figures = {
        "documents": lambda meta: f"{meta['num_documents']:,}",
        "tokens": lambda meta: f"{meta['num_tokens']:,}",
        "words": lambda meta: f"{meta['num_words']:,}",
        "sentences": lambda meta: f"{meta['num_sentences']:,}",
        "characters without blanks": lambda meta: f"{meta['num_characters']:,}",
        "tokens a character": lambda meta: f"{meta['num_tokens'] / meta['num_characters']:.3f}",
        "unknown tokens": lambda meta: f"{100 * meta['num_unknown'] / meta['num_tokens']:.3f} %",
        "text hash": lambda meta: f"`{meta['corpus_hash'][:16]}`",
        "vocabulary": lambda meta: (
            f"{meta['vocabulary_size']:,} rows, `{meta['vocabulary_hash'][:16]}`"
        ),
    }
    return [
        {"": name, **{kind: figure(meta) for kind, meta in counts.items()}}
        for name, figure in figures.items()
    ]


def _input_text(facts):
    """Rows read and left out."""
    dropped = ", ".join(f"{count:,} {kind}" for kind, count in facts["dropped"].items())
    return (
        f"{facts['bytes'] / 1e6:,.1f} MB, {facts['rows']:,} rows. "
        f"Left out: {dropped}. Damaged rows: {facts['damage']}."
    )


def _length_text(lengths):
    """Shares of long documents."""
    rows = [
        {
            "longer than": f"{length:,} tokens",
            "documents": _percent(lengths > length),
            "tokens in them": f"{100 * lengths[lengths > length].sum() / lengths.sum():.1f} %",
        }
        for length in (512, 1024, 1536)
    ]
    return (
        f"Median {np.median(lengths):,.0f}, 90 % below {np.quantile(lengths, 0.9):,.0f}, longest "
        f"{lengths.max():,} tokens.\n\n{markdown_table(rows)}"
    )


def _packing_text(corpus):
    """Text tokens over slots at several lengths."""
    if corpus.num_tokens > _PACKED_UP_TO:
        return "Each stage prints its own figure when it starts."
    ways = {
        "whole sentences": {},
        "breaks at clause ends": {"clause_breaks": True},
        "single documents": {"single_documents": True},
    }
    rows = []
    for length in LENGTHS:
        row = {"tokens a row": length}
        for name, way in ways.items():
            slots = length * (len(pack_rows(corpus, length, **way)) - 1)
            row[name] = f"{100 * corpus.num_tokens / slots:.1f} %"
        rows.append(row)
    head = "Text tokens over slots; [CLS], [SEP] and padding count as lost:"
    return f"{head}\n\n{markdown_table(rows)}"


def _percent(array):
    """The share of true values."""
    return f"{100 * np.mean(array):.1f} %"
