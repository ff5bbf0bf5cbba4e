"""Pretrains a masked language model over stages."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from roformer_zh.command import run_command
from roformer_zh.config import POSITION_FIELDS, EncoderConfig
from roformer_zh.files import sha256, write_text
from roformer_zh.runs import check_new_run, read_info, save_run
from roformer_zh.training import OptimizerOptions, Phase, Trainer, TrainingOptions

DEFAULT_MODEL = "roformer_tiny"


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Pretrain a masked language model over stages of different lengths.

    A run that was stopped, by SIGTERM, a crash or a full disk, goes on where its last checkpoint
    stands when the same command is given again.
    """

    data: str
    """Folder that pretrain.prepare wrote."""
    stages: str
    """JSON file of stages, such as pretrain/stages/tiny.json."""
    output: str
    """Run folder."""
    model: str | None = None
    """Preset: roformer, wobert, bert, nezha, nezha_word, roformer_char, sinusoidal or none, and
    _tiny, _small, _base or _large. The default is roformer_tiny, or with --init the run's own
    configuration."""
    validation: str | None = None
    """Prepared held-out corpus; the default is the folder holdout inside --data, if it exists."""
    validation_rows: int = 512
    """Held-out rows to evaluate on after each stage, spread evenly."""
    init: str | None = None
    """Run folder whose weights to start from."""
    attention: str | None = None
    """Attention kernel: full, chunked (less memory) or linear; the default is the preset's."""
    max_sequence_length: int | None = None
    """Rows of a learned position table (bert, wobert); the default is the preset's."""
    dropout: float | None = None
    """Dropout rate of hidden states and attention; the default is the preset's, 0.1. Small models
    on much text learn more without."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=TrainingOptions
    )
    """How to run."""
    optimizer: Annotated[OptimizerOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=OptimizerOptions
    )
    """AdamW."""


def main(args):
    """Trains what is left of the stages and writes the run folder; returns the fit's result."""
    from roformer_zh.batches.stages import load_stages
    from roformer_zh.corpus import Corpus
    from roformer_zh.training.objectives import MaskedLMObjective

    check_new_run(args.output)
    if args.validation_rows < 1:
        raise ValueError(f"--validation-rows must be at least 1; got {args.validation_rows}")
    corpus, stages = Corpus.open(args.data), load_stages(args.stages)
    config = model_config(args, corpus, stages)
    phases = make_phases(args, corpus, stages)
    notes = []
    trainer = Trainer(
        lambda: build_model(config, corpus.tokenizer, args.init, notes),
        MaskedLMObjective(),
        args.output,
        args.training,
        args.optimizer,
        identity=identity(args, config, corpus),
    )
    packing = [phase.batches.describe() for phase in phases]
    for note in [*notes, *describe(config, corpus, stages), *packing]:
        trainer.report(note)
    result = trainer.fit(phases)
    if not result["finished"]:
        trainer.report(
            f"stopped after update {result['updates']}; the same command continues from there"
        )
    elif trainer.is_chief and not result["closed"]:
        write_run(args, trainer, config, corpus, result)
    trainer.finish(result)
    return result


def model_config(args, corpus, stages):
    """The new model's configuration, fit for the corpus' vocabulary and the longest stage."""
    longest = max(stage.sequence_length for stage in stages)
    changes = {
        name: getattr(args, name)
        for name in ("attention", "max_sequence_length")
        if getattr(args, name) is not None
    }
    if args.dropout is not None:
        changes |= {"dropout": args.dropout, "attention_dropout": args.dropout}
    base = starting_config(args)
    config = base.replace(
        vocabulary_size=corpus.tokenizer.vocabulary_size,
        trained_length=max(longest, base.trained_length or 0),
        **changes,
    )
    rows = config.max_sequence_length
    if rows is not None and rows < longest:
        raise ValueError(
            f"the longest stage must fit the model's position table; it has {longest} "
            f"tokens, the table {rows} rows: shorten the stage, pass --max-sequence-length "
            f"{longest}, or use a model without a table (roformer, nezha)"
        )
    return config


def starting_config(args):
    """The preset, or the configuration of the run to start from.

    Where the preset names another position scheme than the run's, the scheme is the preset's and
    everything else the run's.
    """
    if not args.init:
        return EncoderConfig.preset(args.model or DEFAULT_MODEL)
    known = EncoderConfig.from_dict(read_info(args.init)["encoder"])
    if args.model is None:
        return known
    preset = EncoderConfig.preset(args.model)
    different = [
        f"{name} {getattr(known, name)} there, {getattr(preset, name)} in the preset"
        for name in ("num_layers", "num_heads", "hidden_dim", "intermediate_dim")
        if getattr(known, name) != getattr(preset, name)
    ]
    if different:
        raise ValueError(
            f"a model that starts from {args.init} must have its sizes; {'; '.join(different)}: "
            "choose another --model, or leave it out to keep the run's"
        )
    if known.position == preset.position:
        return known
    names = ("position", *POSITION_FIELDS)
    return known.replace(**{name: getattr(preset, name) for name in names})


def identity(args, config, corpus):
    """What a resumed run must share beside stages, data and optimizer."""
    held_out = held_out_corpus(args, corpus)
    return {
        "model": config.to_dict(),
        "init": weights_hash(args.init),
        "validation": held_out and [held_out.meta["corpus_hash"], args.validation_rows],
    }


def weights_hash(init):
    """The hash of a run's weights, or None without a run."""
    return sha256(Path(init) / "model.keras") if init else None


def make_phases(args, corpus, stages):
    """A `Phase` a stage, with held-out batches at the stage's length if there is held-out text."""
    from roformer_zh.batches import MaskedLMBatches

    held_out = held_out_corpus(args, corpus)

    def validation(stage):
        batches = MaskedLMBatches(held_out, stage)
        return batches.evaluation_batches(max_rows=args.validation_rows)

    for stage in stages if held_out else ():
        if not any(batch["mask_weights"].any() for batch in validation(stage)):
            raise ValueError(
                f"the held-out corpus must have a masked token at length {stage.sequence_length}; "
                f"it has {held_out.num_tokens} tokens: give more text, or none"
            )
    return [
        Phase(
            stage,
            MaskedLMBatches(corpus, stage, args.training.seed),
            held_out and (lambda stage=stage: validation(stage)),
        )
        for stage in stages
    ]


def held_out_corpus(args, corpus):
    """The corpus of --validation, or the one inside --data, or None."""
    from roformer_zh.corpus import Corpus

    folder = args.validation
    if folder is None and (Path(args.data) / "holdout").is_dir():
        folder = Path(args.data) / "holdout"
    held_out = Corpus.open(folder) if folder else None
    if held_out is not None:
        held_out.require_tokenizer(corpus.tokenizer)
    return held_out


def build_model(config, tokenizer, init, notes):
    """A new MaskedLM, or one with the weights of the run `init`; `notes` gets what came from it."""
    from roformer_zh.encoder import Encoder
    from roformer_zh.heads import MaskedLM

    if not init:
        return MaskedLM(Encoder(config))
    from roformer_zh.checkpoints.growing import initialise_from

    start = initialise_from(init, config, tokenizer)
    notes += [f"{part['part']} of {init}: {part['count']} {part['how']}" for part in start.report]
    return start.model


def describe(config, corpus, stages):
    """Lines that say what begins."""
    from roformer_zh.training.objectives import MaskedLMObjective

    chance = MaskedLMObjective.chance_loss(config.vocabulary_size)
    updates, tokens = 0, 0
    for stage in stages:
        updates += stage.steps
        tokens += stage.steps * stage.batch_size * stage.sequence_length
    return [
        f"{len(stages)} stages, {updates:,} updates of {tokens:,} tokens altogether, padding "
        f"included, from a corpus of {corpus.num_tokens:,}",
        f"guessing evenly among {config.vocabulary_size:,} tokens has loss ln V = {chance:.2f}",
    ]


def write_run(args, trainer, config, corpus, result):
    """Writes the model in float32, the report and the plot."""
    from roformer_zh.heads import copy_model
    from roformer_zh.reports import markdown_table, plot_training, read_metrics, stage_table

    folder = Path(args.output)
    model = copy_model(trainer.model)
    table = markdown_table(stage_table(result["stages"]))
    plot_training(read_metrics(folder / "metrics.jsonl"), folder / "training.png")
    write_text(folder / "report.md", report_text(args, config, result, table))
    tokens = result["stages"][-1]["tokens"]
    history = dict(
        corpus_hash=corpus.meta["corpus_hash"],
        updates=result["updates"],
        tokens=tokens,
        characters=round(tokens * corpus.meta["num_characters"] / corpus.num_tokens),
        stages=result["stages"],
        optimizer=dataclasses.asdict(args.optimizer),
        training=dataclasses.asdict(args.training),
        init=args.init,
    )
    save_run(folder, model, corpus.tokenizer, pretraining=history)
    trainer.report(f"\n{table}\n\nwritten to {folder}; the curve is {folder / 'training.png'}")


def report_text(args, config, result, table):
    """The text of report.md."""
    last = result["stages"][-1]
    hours = last["seconds"] / 3600
    return "\n".join(
        [
            f"# {args.model or args.init or DEFAULT_MODEL}, pretrained on {args.data}",
            "",
            f"{result['updates']:,} updates, {last['examples']:,} rows and {last['tokens']:,} "
            f"tokens without padding in {hours:.2f} hours ({last['tokens'] / last['seconds']:,.0f} "
            f"tokens/s), strategy {args.training.strategy}, {args.training.dtype_policy}. "
            f"Vocabulary {config.vocabulary_size:,}. "
            "Loss and accuracy are means over the last tenth of a stage's updates; held-out ones "
            "over rows of the stage's length that were never trained on.",
            "",
            table,
            "",
            "![loss and accuracy](training.png)",
            "",
        ]
    )


if __name__ == "__main__":
    run_command(main, Arguments)
