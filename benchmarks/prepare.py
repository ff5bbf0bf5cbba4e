"""Times text preparation and batches, and measures their memory at several sizes of corpus."""

import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roformer_zh.batches import MaskedLMBatches, Stage
from roformer_zh.batches.packing import pack_rows
from roformer_zh.command import run_command
from roformer_zh.corpus import Corpus
from roformer_zh.corpus.reading import file_format, find_files, read_rows
from roformer_zh.reports import markdown_table

_CHILD = """
import json, resource, sys, time
from pretrain.prepare import Arguments, main
started = time.monotonic()
metas = main(Arguments(input=(sys.argv[1],), vocab=sys.argv[2], output=sys.argv[3],
                       workers=int(sys.argv[4])))["metas"]
peak = [resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([time.monotonic() - started, *peak, metas["train"]["num_documents"]]))
"""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Time preparation, packing and batches; show that memory does not grow with the corpus.

    A corpus of each size is made by repeating the input, each time with other words in every
    document, so that no document is a duplicate.
    """

    input: tuple[str, ...]
    """JSON-lines files or folders with real text."""
    vocab: str = "vocab/vocab.txt"
    """Vocabulary file."""
    megabytes: tuple[float, ...] = (40.0, 2000.0)
    """Sizes of the corpora, in MB of text files."""
    workers: tuple[int, ...] = (1, 2)
    """Numbers of processes to try."""
    folder: str | None = None
    """Where the corpora are written and removed again; the default is the system's."""


def main(args):
    """Prints one table of preparations and one of batches; returns their rows."""
    runs, batches = [], []
    for size in args.megabytes:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            source = Path(folder) / "text.jsonl"
            write_text(source, find_files(args.input), size * 1e6)
            for workers in args.workers:
                output = Path(folder) / f"corpus-{workers}"
                runs.append(time_preparation(source, args.vocab, output, workers))
                print(markdown_table(runs[-1:]), flush=True)
            batches += time_batches(output)
    print(markdown_table(runs), markdown_table(batches), sep="\n\n")
    return {"preparation": runs, "batches": batches}


def write_text(path, files, size):
    """Writes JSON lines of about `size` bytes: the files' documents, again and again, changed."""
    texts = [
        json.loads(row.data)["text"] for file in files for row in read_rows(file, file_format(file))
    ]
    written, turn = 0, 0
    with open(path, "w", encoding="utf-8") as file:
        while written < size:
            turn += 1
            for number, text in enumerate(texts):
                changed = f"第{turn}卷第{number}号。{text.replace('。', f'。{turn}', 3)}"
                line = json.dumps({"text": changed}, ensure_ascii=False) + "\n"
                written += len(line.encode())
                file.write(line)
                if written >= size:
                    break


def time_preparation(source, vocab, output, workers):
    """Prepares a corpus in a process of its own: seconds, MB/s and peak memory."""
    command = [sys.executable, "-c", _CHILD, source, vocab, output, workers]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"preparing {source} failed: {result.stderr[-500:]}")
    seconds, own, worker, documents = json.loads(result.stdout.splitlines()[-1])
    size = source.stat().st_size
    return {
        "MB": f"{size / 1e6:,.0f}",
        "documents": f"{documents:,}",
        "workers": workers,
        "seconds": f"{seconds:.1f}",
        "MB/s": f"{size / 1e6 / seconds:.2f}",
        "peak MB": f"{own:.0f}",
        "peak MB of a worker": f"{worker:.0f}" if workers > 1 else "-",
    }


def time_batches(folder, steps=40):
    """Packs a corpus and makes batches of 32,768 slots at several lengths."""
    corpus, rows = Corpus.open(folder), []
    for length in (128, 512, 1536):
        started = time.monotonic()
        pack_rows(corpus, length)
        packing = time.monotonic() - started
        batches = MaskedLMBatches(corpus, Stage("s", length, 32768 // length, steps, 1e-3))
        batches.batch(0)
        started = time.monotonic()
        for step in range(steps):
            batches.batch(step + 1)
        rows.append(
            {
                "million tokens": f"{corpus.num_tokens / 1e6:,.1f}",
                "length": length,
                "packing, million tokens/s": f"{corpus.num_tokens / packing / 1e6:.0f}",
                "ms a batch of 32,768 slots": f"{(time.monotonic() - started) / steps * 1e3:.1f}",
                "peak MB so far": f"{_peak():.0f}",
            }
        )
    return rows


def _peak():
    """Most memory that this process has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    run_command(main, Arguments)
