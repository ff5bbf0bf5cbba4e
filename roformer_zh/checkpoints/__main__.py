"""`python -m roformer_zh.checkpoints import | export | extend`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table


@dataclasses.dataclass(frozen=True)
class Import:
    """Reads foreign weights into a run folder: all of them, or nothing is written."""

    source: Path
    """Hugging Face folder or weight file; TensorFlow checkpoint: prefix, any file, or folder."""
    output: Path
    """Run folder to write."""
    config: Path | None = None
    """Foreign config; None = the one beside the weights."""
    vocabulary: Path | None = None
    """vocab.txt or tokenizer.json; None = the one beside the weights."""
    model_type: Literal["bert", "roformer", "nezha"] | None = None
    """Needed only where weights and config do not tell (Google files without positions)."""
    tokenizer: Literal["word", "char"] | None = None
    """None = what the vocabulary shows."""
    pooler: bool = True
    """Keep the pooler if the file has one."""
    ignored: tuple[str, ...] = ()
    """Regular expressions of tensors to leave out, such as a classifier."""
    extend_positions: int | None = None
    """Rows to extend a BERT's position table to, by hierarchical decomposition."""
    trained_length: int | None = None
    """Longest sequence in training, in tokens; None = the config's max_position_embeddings."""


@dataclasses.dataclass(frozen=True)
class Export:
    """Writes a run folder's model for other programs."""

    model: Path
    """Run folder to read."""
    output: Path
    """Folder to write."""
    format: Literal["huggingface", "google", "savedmodel", "onnx"] = "huggingface"
    """Weights (huggingface, google) or a float32 inference model (savedmodel, onnx)."""


@dataclasses.dataclass(frozen=True)
class Extend:
    """Adds words to a word model: each new row is the mean of the rows it was made of before."""

    model: Path
    """Run folder to read."""
    words: Path
    """Words to add, one a line, UTF-8."""
    output: Path
    """Run folder to write."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Weights in and out of run folders."""

    command: tyro.conf.OmitSubcommandPrefixes[
        Annotated[Import, tyro.conf.subcommand("import", prefix_name=False)]
        | Annotated[Export, tyro.conf.subcommand("export", prefix_name=False)]
        | Annotated[Extend, tyro.conf.subcommand("extend", prefix_name=False)]]


def main(args):
    """Runs the chosen command; returns what it reports as a dict."""
    command = args.command
    return {Import: run_import, Export: run_export, Extend: run_extend}[type(command)](command)


def run_import(args):
    """Reads, checks and writes; prints what became of every tensor."""
    from roformer_zh.checkpoints.importing import import_checkpoint
    from roformer_zh.runs import save_run

    options = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)
               if field.name not in ("source", "output")}
    imported = import_checkpoint(args.source, **options)
    report = {"map": imported.report.map, "tensors": imported.report.filled,
              "parameters": imported.report.parameters,
              "skipped": {reason: len(names) for reason, names in imported.report.skipped.items()}}
    save_run(args.output, imported.model, imported.tokenizer, imported=report)
    print(f"{args.output}: {type(imported.model).__name__}, {imported.tokenizer.mode} tokenizer")
    print("\n".join(imported.report.lines()))
    return report


def run_export(args):
    """Writes the other format."""
    from roformer_zh.checkpoints.exporting import export_run

    export_run(args.model, args.output, args.format)
    print(f"{args.output}: {', '.join(sorted(file.name for file in args.output.iterdir()))}")
    return {"format": args.format}


def run_extend(args):
    """Writes the longer vocabulary; prints where the new rows came from."""
    from roformer_zh.checkpoints.growing import extend_vocabulary

    words = args.words.read_text(encoding="utf-8-sig").split("\n")
    report = extend_vocabulary(args.model, [word.strip() for word in words if word.strip()],
                               args.output)
    print(markdown_table(report))
    return {row["part"] + ", " + row["how"]: row["count"] for row in report}


if __name__ == "__main__":
    run_command(main, Arguments)
