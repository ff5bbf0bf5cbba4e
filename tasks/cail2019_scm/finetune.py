"""Fine-tunes a scorer of document pairs on triplets."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Literal

import tyro

from roformer_zh.command import run_command
from roformer_zh.files import sha256
from roformer_zh.layout import Layout, check_fits
from roformer_zh.runs import check_new_run, encoder_of, read_info, save_run
from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.training import Phase, Selection, Trainer, TrainingOptions
from roformer_zh.training.optimizer import layer_rates
from tasks.cail2019_scm.augment import augment
from tasks.cail2019_scm.batches import TripletBatches
from tasks.cail2019_scm.dataset import describe, load_triplets, official_split, warnings_about
from tasks.cail2019_scm.scores import baseline_rows, matcher_row, write_report
from tasks.cail2019_scm.split import leak_table


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Fine-tune on train.json, choose the weights by accuracy on valid.json; test data stay unread.

    The run folder then loads with roformer_zh.DocumentMatcher. A run that was stopped goes on where
    it stopped when the same command is given again.
    """

    model: Path
    """Run folder to start from: a pretrained MaskedLM (its encoder is taken) or a scorer."""
    data: Path
    """Folder with train.json and valid.json in the task's format."""
    output: Path
    """New run folder."""
    sequence_length: int = 1024
    """Tokens read of two texts together; a siamese scorer reads half of it of each."""
    scorer: Literal["siamese", "pair"] = "siamese"
    """siamese: a vector a text, learns fast, ranks many documents; pair: both texts in one
    sequence, the paper's way, needs a well pretrained encoder."""
    loss: Literal["ranking", "binary", "contrastive"] = "ranking"
    """ranking: the closer pair must score higher; binary: each pair by itself, as in the paper;
    contrastive: A must find the closer text among all texts of its group (siamese only)."""
    group: int | None = None
    """Triplets whose texts a contrastive loss compares; None = the whole batch. A device takes
    whole groups, and --micro-batch-size counts them."""
    whiten: bool = False
    """Start a siamese scorer with a projection that makes all directions of its vectors count
    alike (BERT-whitening on the training texts, without labels)."""
    pooling: Literal["mean", "cls"] = "mean"
    """Mean over real tokens, or the first token."""
    learning_rate: float = 2e-5
    """Learning rate after warm-up; small models want more (1e-4 to 5e-4)."""
    layer_decay: float = 1.0
    """Factor on the learning rate from one layer to the one below: the head learns at the full
    rate, the top block at this share of it, and so on down to the embeddings; 1 = all alike."""
    warmup: float = 0.1
    """Share of the updates over which the learning rate rises from 0; then it falls to 0."""
    epochs: float = 3.0
    """Passes over the training triplets."""
    steps: int | None = None
    """Updates, instead of epochs."""
    batch_size: int = 16
    """Triplets an update, over all devices."""
    dropout: float | None = None
    """Dropout rate of hidden states and attention; None keeps the model's."""
    truncation: Literal["longest_first", "head", "tail", "head_tail"] = "longest_first"
    """What is kept of too long texts: the start of both (the shorter one whole if it can be), or
    of each text by itself its start, its end, or half of each."""
    segments: Literal["pair", "zero"] = "pair"
    """Segment ids of the second text in a pair."""
    positions: Literal["continue", "restart"] = "continue"
    """Positions of the second text in a pair."""
    augment: tuple[Literal["antisymmetric", "reflexive"], ...] = ()
    """Rules that add training triplets."""
    evaluate_every: int | None = None
    """Updates between evaluations on valid.json; None = once an epoch."""
    patience: int | None = None
    """Evaluations without improvement before training ends; None = never."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=TrainingOptions
    )
    """How to run; a row is a triplet, or a group of them."""


def main(args):
    """Fine-tunes and reports on valid.json; returns the metrics."""
    check_new_run(args.output)
    train, valid = (load_triplets(args.data / f"{name}.json") for name in ("train", "valid"))
    tokenizer = WordTokenizer.load(args.model)
    job = prepare(args, train, valid, tokenizer)
    facts = data_facts(args, train, valid, job.batches)
    for line in facts["lines"]:
        say(args, line)

    trainer, result = job.fit()
    metrics = {"finished": result["finished"], "updates": result["updates"], "best": result["best"]}
    if not result["finished"]:
        say(args, f"Stopped after update {result['updates']}; give the same command to go on.")
        return metrics
    if trainer.is_chief and not result["closed"]:
        from roformer_zh.heads import copy_model

        model = copy_model(trainer.model)
        save_run(args.output, model, tokenizer, layout=job.layout.to_dict(),
                 arguments=flat_settings(args), data=facts["record"], best=result["best"])
        metrics |= report(args, model, tokenizer, job.layout, train, valid, facts)
    trainer.finish(result)
    return metrics


@dataclasses.dataclass(frozen=True)
class Job:
    """A fine-tuning that is ready to run: what it reads and what chooses its weights."""

    args: Arguments
    """Its arguments."""
    layout: Layout
    """What is read of the texts."""
    batches: TripletBatches
    """The training batches."""
    held_out: TripletBatches | None
    """What the weights are chosen on; None keeps the last ones."""

    def fit(self):
        """Trains what is left; returns the trainer and the result of its fit."""
        args, held_out = self.args, self.held_out
        selection = held_out and Selection(
            "accuracy", args.evaluate_every or self.batches.steps_per_epoch, args.patience)
        identity = {"model": starting_point(args),
                    "validation": held_out and held_out.fingerprint(),
                    "selection": selection and dataclasses.asdict(selection)}
        trainer = make_trainer(args, self.layout, self.batches, identity)
        phase = Phase(FineTuning.of(args, self.batches), self.batches,
                      held_out and held_out.in_order)
        return trainer, trainer.fit([phase], selection)


def prepare(args, train, valid, tokenizer):
    """The `Job` of the arguments.

    Args:
        args: `Arguments`; no file of its data is read.
        train: labelled triplets.
        valid: those that choose the weights; None keeps the last weights.
        tokenizer: that of `args.model`.
    """
    layout = Layout(args.scorer, args.sequence_length, args.truncation, args.segments,
                    args.positions)
    group = group_size(args)
    batches = TripletBatches(augment(train, args.augment), tokenizer, layout, args.batch_size,
                             args.training.seed, group)
    held_out = valid and TripletBatches(valid, tokenizer, layout, args.batch_size, group=group)
    return Job(args, layout, batches, held_out)


def flat_settings(args):
    """All arguments, those of `training` among them, as one dict for JSON."""
    record = dataclasses.asdict(args)
    record |= record.pop("training")
    return {name: str(value) if isinstance(value, Path) else value
            for name, value in record.items()}


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """What the trainer reads of a stage."""

    name: str
    sequence_length: int
    batch_size: int
    steps: int
    learning_rate: float
    warmup_steps: int
    schedule: str = "linear"

    @classmethod
    def of(cls, args, batches):
        """The stage of the arguments."""
        steps = args.steps
        if steps is None:
            steps = math.ceil(args.epochs * batches.steps_per_epoch)
        if steps < 1:
            raise ValueError(f"training needs at least one update; got steps {args.steps} and "
                             f"epochs {args.epochs}")
        rows = args.batch_size // (group_size(args) or 1)
        return cls("finetune", args.sequence_length, rows, steps, args.learning_rate,
                   round(args.warmup * steps))


def group_size(args):
    """Triplets a row: None unless the loss compares texts of different triplets.

    Raises:
        ValueError: an option does not belong to the scorer or the loss.
    """
    if args.scorer == "pair" and (args.whiten or args.loss == "contrastive"):
        raise ValueError("--whiten and --loss contrastive need vectors; use --scorer siamese")
    if args.loss != "contrastive":
        if args.group is not None:
            raise ValueError(f"--group belongs to --loss contrastive; got --loss {args.loss}")
        return None
    return args.group or args.batch_size


def make_trainer(args, layout, batches, identity):
    """The trainer; its scorer is whitened if asked for."""
    from tasks.cail2019_scm.objectives import make_objective

    trainer = Trainer(scorer_builder(args, layout), make_objective(args.loss), args.output,
                      args.training, identity=identity,
                      rate_scales=lambda model: layer_rates(model, args.layer_decay))
    if args.whiten and not (args.output / "training.json").exists():
        from tasks.cail2019_scm.whitening import whiten

        whiten(trainer.strategy, trainer.model, batches)
    return trainer


def scorer_builder(args, layout):
    """A function that makes the scorer: from a scorer of the same kind, or on a run's encoder."""

    def build():
        from roformer_zh.heads import PairScorer, SiameseScorer, copy_model, load_model

        kind = {"siamese": SiameseScorer, "pair": PairScorer}[args.scorer]
        policy = args.training.dtype_policy
        found = load_model(args.model, dtype=policy)
        if args.dropout is not None:
            rates = dict(dropout=args.dropout, attention_dropout=args.dropout)
            found = copy_model(found, policy, **rates)
        encoder = encoder_of(found)
        check_fits(layout, encoder.config, args.model)
        if type(found) is kind and found.pooling == args.pooling and not args.whiten:
            return found
        options = {"projection": True} if args.whiten else {}
        return kind(encoder, pooling=args.pooling, **options)

    return build


def starting_point(args):
    """What of the run that is started from a resumed run must share."""
    info = read_info(args.model)
    return {"class": info["model"], "encoder": info["encoder"], "tokenizer": info["tokenizer"],
            "weights": sha256(args.model / "model.keras"),
            "scorer": args.scorer, "pooling": args.pooling, "dropout": args.dropout,
            "whiten": args.whiten, "layer_decay": args.layer_decay}


def data_facts(args, train, valid, batches):
    """Sentences about the data for people, and a record of it for the run folder."""
    official = official_split(train) == "train" and official_split(valid) == "valid"
    added = f" ({len(batches):,} with {', '.join(args.augment)} ones)" if args.augment else ""
    lines = [f"{len(train):,} training triplets{added}, {len(valid):,} for validation: "
             f"{'' if official else 'not '}the official CAIL2019-SCM split.",
             f"At {args.sequence_length} tokens a comparison {batches.cut:.1%} of the text is cut, "
             f"in {batches.cut_rows:.1%} of the sequences.",
             *warnings_about(train, args.data / "train.json"),
             *warnings_about(valid, args.data / "valid.json")]
    record = {"official": official, "train": describe(train), "valid": describe(valid),
              "text_cut": batches.cut, "sequences_cut": batches.cut_rows,
              "fingerprint": batches.fingerprint()}
    return {"lines": lines, "record": record,
            "leaks": leak_table({"train": train, "valid": valid})}


def report(args, model, tokenizer, layout, train, valid, facts):
    """Scores valid.json beside the baselines, writes report.md; returns the scorer's row."""
    from roformer_zh.matching import DocumentMatcher

    matcher = DocumentMatcher(model, tokenizer, layout, verbose=args.training.verbose)
    name = f"{args.scorer}, {args.sequence_length} tokens"
    rows = [*baseline_rows(train, valid), matcher_row(name, matcher, valid)]
    write_report(args.output / "report.md", rows, facts, flat_settings(args))
    say(args, f"Report: {args.output / 'report.md'}")
    return {key: value for key, value in rows[-1].items() if key != "system"}


def say(args, text):
    """Prints a line unless the run is quiet."""
    if args.training.verbose:
        print(text, flush=True)


if __name__ == "__main__":
    run_command(main, Arguments)
