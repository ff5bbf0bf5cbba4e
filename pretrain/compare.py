"""Pretrains several models on equal terms and compares them."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from pretrain import run
from pretrain.compare_report import ALL_ROWS, check_equal, read_result, write_outputs
from roformer_zh.command import run_command
from roformer_zh.config import EncoderConfig
from roformer_zh.training import OptimizerOptions, TrainingOptions


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Pretrain models on the same text, stages, updates and settings, and compare their losses.

    Word and character models read preparations of the same text. Their losses a token cannot be
    compared, as a word is harder to guess than a character: the tables give the loss a character
    of the same masked held-out words. A run that is finished is kept; give the same command again
    to go on.
    """

    data: tuple[Path, ...]
    """Folders that pretrain.prepare wrote of the same text: one with --mode word, one with --mode
    char, or only the one that the models need."""
    stages: Path
    """JSON file of stages, such as pretrain/stages/compare.json."""
    models: tuple[str, ...]
    """Presets, such as roformer_tiny bert_tiny wobert_tiny nezha_tiny."""
    output: Path
    """Folder that gets a run folder a model, report.md, curves.csv, pretraining.png and
    manifest.json."""
    validation: tuple[Path, ...] = ()
    """Held-out text, prepared like --data; the default is the folder holdout in each of them."""
    dropout: float | None = None
    """Dropout rate of hidden states and attention in every model; the default is the presets'."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=TrainingOptions
    )
    """How to run."""
    optimizer: Annotated[OptimizerOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=OptimizerOptions
    )
    """AdamW."""


def main(args):
    """Trains what is left and writes the report; returns its rows."""
    corpora = open_corpora(args.data)
    folders = args.validation or tuple(folder / "holdout" for folder in args.data)
    held_out = open_corpora(folders)
    check_arguments(args, corpora, held_out)
    found = {}
    for model in args.models:
        mode = EncoderConfig.preset_mode(model)
        result = run.main(run_arguments(args, model, corpora[mode].folder, held_out[mode].folder))
        if not result["finished"]:
            return {"finished": False}
        found[model] = read_result(args.output / model, corpora[mode], held_out[mode])
    check_equal(found)
    write_outputs(args, found)
    return {"finished": True, "models": found}


def open_corpora(folders):
    """The corpora of one text by tokenizer mode: {"word": ..., "char": ...}.

    Raises:
        ValueError: two folders have one mode, or not the same text.
    """
    from roformer_zh.corpus import Corpus

    corpora = {}
    for folder in folders:
        corpus = Corpus.open(folder)
        if corpus.tokenizer.mode in corpora:
            other = corpora[corpus.tokenizer.mode].folder
            raise ValueError(f"the folders must differ in tokenizer mode; {other} and {folder} are "
                             f"both {corpus.tokenizer.mode}")
        corpora[corpus.tokenizer.mode] = corpus
    for name in ("corpus_hash", "num_words"):
        values = {str(corpus.folder): corpus.meta[name] for corpus in corpora.values()}
        if len(set(values.values())) > 1:
            raise ValueError(
                f"all folders must be prepared from the same text; their {name} differ: {values}: "
                "prepare the same files with the same options but --mode")
    return corpora


def check_arguments(args, corpora, held_out):
    """Refuses doubled models and modes without a corpus before anything is trained."""
    if len(set(args.models)) < len(args.models):
        raise ValueError(f"--models must differ; got {' '.join(args.models)}")
    for model in args.models:
        mode = EncoderConfig.preset_mode(model)
        for option, found in (("--data", corpora), ("--validation", held_out)):
            if mode not in found:
                raise ValueError(f"{model} reads {mode} tokens; {option} must have a folder that "
                                 f"pretrain.prepare --mode {mode} wrote")


def run_arguments(args, model, data, held_out):
    """The arguments of one model's pretraining: equal but for the model and its tokens."""
    return run.Arguments(
        data=str(data), stages=str(args.stages), output=str(args.output / model), model=model,
        validation=str(held_out), validation_rows=ALL_ROWS, dropout=args.dropout,
        training=args.training, optimizer=args.optimizer)


if __name__ == "__main__":
    run_command(main, Arguments)
