"""Times siamese scoring of pairs beside transformers' RoFormer, at one length and at mixed ones."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.measure import Worker, serve, take_turns, versions
from benchmarks.training import matmul
from roformer_zh.command import run_command
from roformer_zh.config import EncoderConfig
from roformer_zh.costs import forward_flops
from roformer_zh.reports import markdown_table, percent


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Encodes both texts of pairs with an untrained siamese model, float32, and prints a table.

    The suite computes through DocumentMatcher's batches: rows sorted by length, padded to one of
    few lengths, a budget of tokens a batch. transformers gets batches padded to their longest row,
    once in the order given and once sorted by length. Token ids are ready beforehand for both.
    tokens/s count real tokens, without padding. Processes take turns.
    """

    peer_python: Path | None = None
    """Interpreter of an environment with torch and transformers; None = without the peer."""
    size: str = "6x384x6"
    """Layers x width x heads."""
    length: int = 1024
    """The one length, and the most tokens of a mixed row."""
    pairs: int = 16
    """Pairs to score."""
    batch: int = 8
    """Rows of a batch of transformers'."""
    tokens_per_batch: int = 8192
    """Budget of the suite's batches; the same number of slots as transformers' full ones."""
    input: tuple[Path, ...] = ()
    """JSON-lines files of {"text": ...} whose lengths are taken, in their order; none = lengths
    drawn evenly between length / 16 and length."""
    vocab: Path = Path("vocab/vocab.txt")
    """Vocabulary that splits the input."""
    vocabulary: int = 50000
    """Rows of the token table."""
    rounds: int = 3
    """Turns a process takes; the median counts."""
    threads: int = 2
    """Processor threads."""
    worker: str = ""
    """Inside the suite's own worker only: what it is to time."""


def main(args):
    """Prints a table a kind of lengths; returns their rows."""
    if args.worker:
        return work(json.loads(args.worker))
    print(versions("tensorflow", "keras", "numpy"))
    mixed = text_lengths(args) if args.input else drawn_lengths(args)
    tables = {}
    for name, lengths in (("one length", [args.length] * len(mixed)), ("mixed lengths", mixed)):
        tables[name] = compare(args, lengths, sorts=name == "mixed lengths")
        print(f"\n{name}: {len(lengths)} rows of {min(lengths)} to {max(lengths)} tokens, "
              f"{np.mean(lengths):.0f} on average\n")
        print(markdown_table(tables[name]), flush=True)
    return tables


def drawn_lengths(args):
    """Lengths drawn evenly between a sixteenth of the longest and the longest."""
    rng = np.random.default_rng(0)
    return rng.integers(args.length // 16, args.length, 2 * args.pairs, endpoint=True).tolist()


def text_lengths(args):
    """Tokens of the first texts of the files, [CLS] and [SEP] among them, cut to the longest."""
    from roformer_zh.tokenizer import WordTokenizer

    tokenizer = WordTokenizer.load(args.vocab)
    lines = [line for path in args.input
             for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if len(lines) < 2 * args.pairs:
        raise ValueError(
            f"{args.pairs} pairs need {2 * args.pairs} texts; {', '.join(map(str, args.input))} "
            f"has {len(lines)}: name more files or lower --pairs"
        )
    texts = [json.loads(line)["text"] for line in lines[: 2 * args.pairs]]
    return [min(args.length, len(tokenizer.encode(text, args.length)) + 2) for text in texts]


def compare(args, lengths, sorts):
    """The rows of one table."""
    layers, width, heads = map(int, args.size.split("x"))
    options = {"task": "scoring", "layers": layers, "width": width, "heads": heads,
               "lengths": lengths, "length": args.length, "batch": args.batch,
               "vocabulary": args.vocabulary, "threads": args.threads,
               "tokens_per_batch": args.tokens_per_batch}
    ours = (sys.executable, "-m", "benchmarks.scoring", "--worker")
    workers = {"roformer_zh, DocumentMatcher's batches": Worker((*ours, json.dumps(options)),
                                                                args.threads)}
    if args.peer_python:
        peer = (args.peer_python, "-m", "benchmarks.transformers_peer")
        orders = {"transformers": lengths}
        if sorts:
            orders = {"transformers, order given": lengths, "transformers, sorted": sorted(lengths)}
        for name, order in orders.items():
            command = (*peer, json.dumps({**options, "lengths": order}))
            workers[name] = Worker(command, args.threads)
    take_turns(workers.values(), 1, 1)
    for worker in workers.values():
        worker.seconds.clear()
    take_turns(workers.values(), args.rounds, 1)
    peak = max(worker.matmul_peak() for worker in workers.values())
    config = model_config(options)
    flops = sum(forward_flops(config, 1, length) for length in lengths)
    rows = []
    for name, worker in workers.items():
        row = {"model": name, "tokens/s": f"{sum(lengths) / worker.median:,.0f}"}
        for other, theirs in list(workers.items())[1:]:
            row[f"x {other}"] = f"{theirs.median / worker.median:.2f}"
        row["peak memory, MB"] = f"{worker.close() / 1e6:,.0f}"
        row["useful GFLOP/s"] = f"{flops / worker.median / 1e9:.1f}"
        row["% of matmul peak"] = percent(flops / worker.median / peak)
        rows.append(row)
    return rows


def model_config(options):
    """The configuration of the model."""
    return EncoderConfig(
        vocabulary_size=options["vocabulary"], num_layers=options["layers"],
        num_heads=options["heads"], hidden_dim=options["width"],
        intermediate_dim=4 * options["width"])


def work(options):
    """Serves steps that encode every row once."""
    from roformer_zh import Encoder, SiameseScorer
    from roformer_zh.layout import Layout, Row
    from roformer_zh.matching import DocumentMatcher

    class Tokenizer:
        """Special ids of a matcher that is given rows."""

        cls_id, sep_id, pad_id = 2, 3, 0

    model = SiameseScorer(Encoder(model_config(options)))
    layout = Layout("siamese", sequence_length=2 * options["length"])
    matcher = DocumentMatcher(model, Tokenizer(), layout, verbose=False,
                              tokens_per_batch=options["tokens_per_batch"])
    rng = np.random.default_rng(0)

    def step():
        rows = [Row(rng.integers(5, options["vocabulary"], length).tolist(), [0] * length,
                    list(range(length)), 0) for length in options["lengths"]]
        matcher._compute(matcher._engine.vectors, rows, width=options["width"])

    serve(step, matmul)


if __name__ == "__main__":
    run_command(main, Arguments)
