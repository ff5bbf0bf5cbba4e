"""Times WordTokenizer from text to ids beside jieba, rjieba and transformers' RoFormerTokenizer."""

import dataclasses
import json
import time
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table
from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.tokenizer.segmenter import make_segmenter


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Times tokenizers on one core over the same texts; prints a table of MB of UTF-8 a second.

    Every method reads every text in each of several rounds; the best round counts, in processor
    time of this process, so that other work on the machine matters less. transformers is timed
    where it is installed; it is not needed.
    """

    input: tuple[Path, ...]
    """JSON-lines files of {"text": ...}."""
    vocab: Path = Path("vocab/vocab.txt")
    """Vocabulary file."""
    megabytes: float = 2.0
    """Text to read, taken evenly from the whole input."""
    rounds: int = 5
    """Rounds over the texts."""


def main(args):
    """Prints the table; returns its rows."""
    texts = read_texts(args.input, args.megabytes)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} texts, {size:.2f} MB, best of {args.rounds} rounds\n")
    methods = make_methods(args.vocab)
    seconds = {name: [] for name in methods}
    results = {}
    for _ in range(args.rounds):
        for name, method in methods.items():
            started = time.process_time()
            results[name] = [method(text) for text in texts]
            seconds[name].append(time.process_time() - started)
    rows = [describe(name, size, seconds, results) for name in methods]
    print(markdown_table(rows))
    return rows


def read_texts(paths, megabytes):
    """Texts of the files, every n-th one, so that they come to about `megabytes`."""
    texts = [json.loads(line)["text"] for path in paths
             for line in Path(path).read_text(encoding="utf-8").split("\n") if line]
    total = sum(len(text.encode()) for text in texts) / 1e6
    if not texts:
        raise ValueError(f"there is no text in {', '.join(map(str, paths))}")
    return texts[::max(1, round(total / megabytes))]


def make_methods(vocab):
    """Name to function of a text. Segmenters give words, the others ids."""
    import jieba
    import rjieba

    jieba.setLogLevel("ERROR")
    plain = jieba.Tokenizer()
    plain.initialize()
    make_segmenter("jieba")
    words = {name: WordTokenizer.load(vocab, segmenter=name) for name in ("jieba", "rjieba")}
    characters = WordTokenizer.load(vocab, mode="char")
    methods = {
        "jieba (words only)": lambda text: plain.lcut(text, HMM=False),
        "WordTokenizer, jieba": words["jieba"].encode,
        "rjieba (words only)": lambda text: rjieba.cut(text, False),
        "WordTokenizer, rjieba": words["rjieba"].encode,
        "the same, encode_words": words["rjieba"].encode_words,
        "the same, offsets": words["rjieba"].offsets,
        "WordTokenizer, characters": characters.encode,
    }
    try:
        from transformers import RoFormerTokenizer
    except ImportError:
        print("transformers is not installed: RoFormerTokenizer is left out")
        return methods
    rows = words["rjieba"].vocabulary
    peer = RoFormerTokenizer(vocab={row: number for number, row in enumerate(rows)})
    return {**methods, "transformers' RoFormerTokenizer":
            lambda text: peer(text, add_special_tokens=False, verbose=False)["input_ids"]}


def describe(name, size, seconds, results):
    """A row of the table."""
    peer = "transformers' RoFormerTokenizer"
    row = {"from text": name, "MB/s": f"{size / min(seconds[name]):.2f}",
           "first round": f"{size / seconds[name][0]:.2f}"}
    if peer in seconds:
        row["times RoFormerTokenizer"] = f"{min(seconds[peer]) / min(seconds[name]):.1f}"
    if name == peer:
        ours = results["WordTokenizer, rjieba"]
        same = sum(a == b for a, b in zip(ours, results[peer], strict=True))
        row["note"] = f"same ids on {same} of {len(ours)} texts"
    return row


if __name__ == "__main__":
    run_command(main, Arguments)
