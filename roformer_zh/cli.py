"""The console script `roformer-zh`."""

import dataclasses
import sys
import unicodedata
from pathlib import Path

from roformer_zh.candidates import read_documents
from roformer_zh.command import run_command

_SHOWN_WIDTH = 60  # columns of a document's beginning


@dataclasses.dataclass(frozen=True)
class Match:
    """Rank candidates by how close they are to a query, best first."""

    model: Path
    """Run folder of a fine-tuned scorer."""
    query: Path
    """The document: a text file, or a JSON file with one line."""
    candidates: tuple[Path, ...]
    """What to rank: text files (a document each), JSON lines, folders of them."""
    top_k: int | None = 10
    """How many to show; None = all."""
    field: str = "text"
    """Key of the text in JSON lines."""
    dtype: str | None = None
    """Keras dtype policy; None keeps the saved one."""
    tokens_per_batch: int = 16384
    """Tokens, padding included, that are computed at once."""


def match(args):
    """Prints the ranking and returns it, `where` added to each entry of DocumentMatcher.rank."""
    queries = read_documents([args.query], args.field)
    if len(queries) != 1:
        raise ValueError(f"--query must hold one document; {args.query} has {len(queries)}")
    candidates = read_documents(args.candidates, args.field)
    from roformer_zh.matching import DocumentMatcher

    matcher = DocumentMatcher.load(args.model, dtype=args.dtype,
                                   tokens_per_batch=args.tokens_per_batch)
    ranked = matcher.rank(queries[0].text, [document.text for document in candidates], args.top_k)
    ranked = [{**row, "where": candidates[row["corpus_id"]].where} for row in ranked]
    print(f"Query: {queries[0].where}  {beginning(queries[0].text)}")
    print(match_table(ranked))
    return ranked


def match_table(ranked):
    """Aligned lines of rank, score, place and beginning of each document.

    Args:
        ranked: entries of `DocumentMatcher.rank` with `where`.
    """
    lines = [("rank", "score", "document", "begins")]
    for number, row in enumerate(ranked, 1):
        lines.append((str(number), f"{row['score']:.3f}", row["where"], beginning(row["text"])))
    widths = [max(display_width(line[i]) for line in lines) for i in range(3)]
    return "\n".join(
        "  ".join([*(cell + " " * (width - display_width(cell))
                     for cell, width in zip(line, widths, strict=False)), line[3]]).rstrip()
        for line in lines)


def beginning(text, width=_SHOWN_WIDTH):
    """The start of a text on one line, at most `width` columns wide.

    Example:
        >>> beginning("原告  甲\\n借款", width=9)
        '原告 甲…'
    """
    words, shown = " ".join(text.split()), ""
    for character in words:
        if display_width(shown + character) > width - (len(shown) + 1 < len(words)):
            return shown.rstrip() + "…"
        shown += character
    return shown


def display_width(text):
    """Columns of a terminal that a text takes; a Chinese character takes two.

    Example:
        >>> display_width("甲a")
        3
    """
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


COMMANDS = {"match": (match, Match)}


def main(argv=None):
    """Runs the command that the first word names."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and argv[0] in COMMANDS:
        run_command(*COMMANDS[argv[0]], argv=argv[1:])
        return
    lines = [f"  {name}  {arguments.__doc__}" for name, (_, arguments) in COMMANDS.items()]
    usage = "\n".join(["usage: roformer-zh COMMAND [--help] ...", "", "commands:", *lines])
    if argv in (["-h"], ["--help"]):
        print(usage)
        return
    came = f"got {argv[0]!r}" if argv else "got nothing"
    print(f"error: the first word must be one of {', '.join(COMMANDS)}; {came}\n{usage}",
          file=sys.stderr)
    sys.exit(2)
