"""Turns text files into a corpus of token shards."""

import dataclasses
import time
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.corpus import Corpus
from roformer_zh.corpus.preparation import (
    HOLDOUT,
    TextOptions,
    assemble,
    encode_files,
    part_report,
    remove_work,
)
from roformer_zh.corpus.reading import FORMATS, Damage, find_files
from roformer_zh.corpus_report import speed_text, write_corpus_report
from roformer_zh.tokenizer import WordTokenizer


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Turn text files into token shards that every pretraining stage reads.

    The folder appears when it is whole. A run that was stopped goes on where it stopped when the
    same command is given again. With --holdout, train with `--data DIR --validation DIR/holdout`.
    """

    input: tuple[str, ...] = ()
    """Text files (.jsonl, .txt, also .gz), folders or quoted globs."""
    vocab: str = "vocab/vocab.txt"
    """Vocabulary file, or a folder with tokenizer.json."""
    output: str = ""
    """Folder of the corpus."""
    mode: str | None = None
    """word or char; the default is what the vocabulary's folder says, or word."""
    format: str = "auto"
    """auto (by suffix), jsonl, lines (a document a line) or blank-lines (blank lines between)."""
    field: str = "text"
    """Key of the text in a JSON row."""
    min_characters: int = 1
    """Leave out documents with fewer characters (blanks do not count)."""
    max_characters: int | None = None
    """Leave out documents with more characters."""
    holdout: float = 0.0
    """Share of the documents that is held out, chosen by the hash of their text."""
    workers: int = 1
    """Processes; the result is the same for any number."""
    chunk_megabytes: float = 4.0
    """Text that a worker encodes at a time; more takes more memory."""
    strict: bool = False
    """Stop at damaged rows instead of counting them."""
    overwrite: bool = False
    """Replace a corpus that stands at --output."""
    verify: str | None = None
    """Only check the files of this corpus against their checksums."""


def main(args):
    """Prepares a corpus, or verifies one; returns counts."""
    if args.verify is not None:
        return verify(args.verify)
    _check(args)
    files = find_files(args.input)
    output = Path(args.output)
    tokenizer = load_tokenizer(args.vocab, args.mode)
    work = output.with_name(output.name + ".partial")
    options = TextOptions(args.format, args.field, args.min_characters, args.max_characters)
    print(
        f"Reading {len(files)} file(s) with {tokenizer.vocabulary_size:,} vocabulary rows "
        f"({tokenizer.mode} mode), {args.workers} worker(s).",
        flush=True,
    )
    started = time.monotonic()
    parts, encoded = encode_files(
        files, work, tokenizer, options, args.workers, int(args.chunk_megabytes * 1e6)
    )
    facts = gather(parts)
    damage = facts["damage"]
    print(f"{facts['rows']:,} rows. Damaged: {damage}. Left out: {facts['dropped']}.", flush=True)
    _refuse(args, facts)
    facts |= {"encoded": encoded, "workers": args.workers}

    def finish(folder, metas):
        facts["dropped"]["duplicates"] = metas["train"]["duplicates"]
        facts["seconds"] = time.monotonic() - started
        write_corpus_report(folder, facts)

    extra = {
        "dropped": facts["dropped"].copy(),
        "damage": facts["damage_counts"],
        "text_options": dataclasses.asdict(options),
        "holdout": args.holdout,
    }
    metas = assemble(parts, output, tokenizer, args.holdout, extra, finish)
    remove_work(work)
    return _show(output, metas, facts)


def load_tokenizer(vocab, mode):
    """The tokenizer of a vocabulary file or folder, in another mode if one is given."""
    if not Path(vocab).exists():
        raise FileNotFoundError(
            f"--vocab must be a vocabulary file or a folder with tokenizer.json; "
            f"there is nothing at {vocab}"
        )
    return WordTokenizer.load(vocab) if mode is None else WordTokenizer.load(vocab, mode=mode)


def gather(parts):
    """Sums the reports of all parts."""
    damage, rows, size, documents = Damage(), 0, 0, 0
    dropped = {"short": 0, "long": 0}
    for part in parts:
        report = part_report(part)
        damage.merge(Damage(report["damage"], report["examples"]))
        rows += report["rows"]
        size += report["bytes"]
        documents += report["documents"]
        for kind in dropped:
            dropped[kind] += report["dropped"][kind]
    return {
        "rows": rows,
        "bytes": size,
        "documents": documents,
        "dropped": dropped,
        "damage": damage.describe(),
        "damage_counts": damage.counts,
        "damaged": damage.total(),
    }


def verify(folder):
    """Checks every file of a corpus, and of its held-out share, against the checksums."""
    folders = [Path(folder)]
    if (Path(folder) / HOLDOUT).exists():
        folders.append(Path(folder) / HOLDOUT)
    for path in folders:
        corpus = Corpus.open(path)
        corpus.verify()
        print(
            f"{path}: {len(corpus.meta['files'])} files whole, {corpus.num_documents:,} documents, "
            f"{corpus.num_tokens:,} tokens."
        )
    return {"verified": len(folders)}


def _check(args):
    """Raises where the arguments make no sense."""
    if not args.input or not args.output:
        raise ValueError("--input and --output must be given (or --verify DIR alone)")
    if args.format not in ("auto", *FORMATS):
        raise ValueError(f"--format must be auto, {', '.join(FORMATS)}; got {args.format!r}")
    if not 0 <= args.holdout < 1:
        raise ValueError(f"--holdout must be a share from 0 to below 1; got {args.holdout}")
    if not args.chunk_megabytes > 0:
        raise ValueError(f"--chunk-megabytes must be above 0; got {args.chunk_megabytes}")
    if args.workers < 1:
        raise ValueError(f"--workers must be at least 1; got {args.workers}")
    if args.max_characters is not None and args.max_characters < args.min_characters:
        raise ValueError(
            f"--max-characters must be at least --min-characters ({args.min_characters}); "
            f"got {args.max_characters}"
        )
    output = Path(args.output)
    if output.exists() and not args.overwrite and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(
            f"--output must be a new folder; {output} exists: choose another, or give "
            "--overwrite to replace it"
        )


def _refuse(args, facts):
    """Raises when rows are damaged under --strict, or when nothing is left."""
    if args.strict and facts["damaged"]:
        raise ValueError(
            f"--strict allows no damaged rows; found {facts['damage']}. Mend them, or "
            "leave --strict out to skip them"
        )
    if not facts["documents"]:
        raise ValueError(
            f"the input must hold at least one document; of {facts['rows']:,} rows none "
            f"is left. Damaged: {facts['damage']}. Left out: {facts['dropped']}. "
            "Is --format right, is --field the key of the text?"
        )


def _show(output, metas, facts):
    """Prints what was written and how to use it; returns the counts."""
    train = metas["train"]
    print(
        f"{output}: {train['num_documents']:,} documents, {train['num_tokens']:,} tokens, "
        f"{train['duplicates']:,} duplicates left out. {speed_text(facts)}"
    )
    data = f"--data {output}"
    if HOLDOUT in metas:
        held = metas[HOLDOUT]
        data += f" --validation {output / HOLDOUT}"
        print(
            f"{output / HOLDOUT}: {held['num_documents']:,} documents, {held['num_tokens']:,} "
            "tokens held out."
        )
    print(f"Figures: {output / 'report.md'}. Next: python -m pretrain.run {data} ...")
    return {"metas": metas, **facts}


if __name__ == "__main__":
    run_command(main, Arguments)
