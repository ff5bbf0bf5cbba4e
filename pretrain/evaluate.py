"""Held-out loss and accuracy of a masked language model, by length and by position."""

import dataclasses
import warnings

import numpy as np

from pretrain.evaluation_report import plot_by_position, report_text
from roformer_zh import lazy_tensorflow as tf
from roformer_zh.command import run_command
from roformer_zh.files import write_text


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measure a pretrained run on held-out text, at several lengths and by position.

    The same words are masked at every length. The unigram baseline knows how often each token
    stands in the held-out text itself, more than any model of single tokens could learn elsewhere.
    `--position-scale 2 4` sets position interpolation (arXiv 2306.15595) beside the model as it is,
    on the same masked tokens, up to 4 times the trained length.
    """

    model: str
    """Run folder."""
    data: str
    """Prepared held-out corpus."""
    sequence_length: tuple[int, ...] = ()
    """Lengths to pack the text to, in tokens; the default is 512, the longest one trained, and, if
    no position table ends there, a third more. With --position-scale: the longest one trained and
    so many times as much."""
    position_scale: tuple[float, ...] = ()
    """Also divide positions by these, without further training; rotary models only."""
    batch_size: int = 8
    """Rows computed at once."""
    max_rows: int | None = None
    """Rows a length at most, spread evenly; None = all."""
    bucket: int = 128
    """Positions a bucket."""
    mask_selection_rate: float = 0.15
    """Share of the tokens that are masked."""
    output: str | None = None
    """Markdown file for the tables; None only prints them."""
    plot: str | None = None
    """PNG file for the loss by position at the longest length; None draws none."""


def main(args):
    """Prints the tables; returns a dict: length -> metrics and their `buckets`.

    `scales` in the metrics is a dict: position scale -> loss, accuracy and buckets; the model's own
    scale comes first.
    """
    from roformer_zh.corpus import Corpus
    from roformer_zh.runs import load_run

    corpus, run = Corpus.open(args.data), load_run(args.model, dtype="float32")
    corpus.require_tokenizer(run.tokenizer)
    lengths = args.sequence_length or default_lengths(run, args.position_scale)
    check_lengths(lengths, run)
    models = at_scales(run, args.position_scale, args.model)
    found = {length: evaluate(models, corpus, length, args) for length in lengths}
    text = report_text(args, corpus, run, found)
    print(text)
    if args.output:
        write_text(args.output, text)
    if args.plot:
        plot_by_position(found, run.model.encoder.config.trained_length, args.plot)
    return found


def default_lengths(run, scales=()):
    """512, the trained length and a third more, or `scales` times it, as far as the model reads."""
    config = run.model.encoder.config
    trained = config.trained_length or 512
    if scales:
        return sorted({trained, *(round(scale * trained) for scale in scales if scale > 1)})
    most = config.max_sequence_length or 4 * trained
    return sorted({min(length, most) for length in (512, trained, trained * 4 // 3)})


def check_lengths(lengths, run):
    """Refuses what a position table cannot hold; warns once of what was never trained."""
    config, longest = run.model.encoder.config, max(lengths)
    if type(run.model).__name__ != "MaskedLM":
        raise ValueError(f"--model must be a pretrained MaskedLM; got a {type(run.model).__name__}")
    rows = config.max_sequence_length
    if rows is not None and longest > rows:
        raise ValueError(
            f"--sequence-length must be at most {rows}, the rows of this model's position table; "
            f"got {longest}"
        )
    if config.trained_length is not None and longest > config.trained_length:
        warnings.warn(
            f"the model was trained on at most {config.trained_length} tokens; length {longest} "
            "measures how it extrapolates",
            stacklevel=2,
        )


def at_scales(run, scales, where):
    """A dict of position scale -> model: the run's own, and a copy for each other scale."""
    from roformer_zh.heads import copy_model

    config = run.model.encoder.config
    if scales and config.position != "rotary":
        raise ValueError(
            f"--position-scale needs a model with rotary positions; {where} has "
            f"{config.position} positions; leave the option out"
        )
    models = {config.position_scale: run.model}
    for scale in scales:
        config.replace(position_scale=scale)
    for scale in sorted(set(scales) - set(models)):
        models[scale] = copy_model(run.model, position_scale=scale)
    return models


def evaluate(models, corpus, length, args):
    """Metrics of one length: the first model's, the unigram baseline, and `scales` of all."""
    from roformer_zh.batches import MaskedLMBatches
    from roformer_zh.batches.stages import Stage

    rates = dict(mask_selection_rate=args.mask_selection_rate)
    stage = Stage("evaluation", length, args.batch_size, steps=1, learning_rate=1.0, **rates)
    batches = MaskedLMBatches(corpus, stage).evaluation_batches(max_rows=args.max_rows)
    scales = {scale: measure(model, batches, args.bucket) for scale, model in models.items()}
    own = next(iter(scales.values()))
    return {**own, "rows": batches.num_rows, **unigram(corpus, batches), "scales": scales}


def measure(model, batches, bucket):
    """Loss, accuracy, masked tokens and buckets of one model."""
    from roformer_zh.training.steps import EvaluationStep

    objective = BucketObjective(bucket, -(-batches.stage.sequence_length // bucket))
    sums = EvaluationStep(tf.distribute.get_strategy(), model, objective).sums(batches)
    total = {name: float(value.sum()) for name, value in sums.items()}
    return {
        "loss": total["loss"] / total["weight"],
        "accuracy": total["correct"] / total["weight"],
        "masked": round(total["weight"]),
        "buckets": buckets(sums, bucket),
    }


class BucketObjective:
    """Sums of loss, hits and weights of the masked tokens, a bucket of positions each.

    Args:
        size: positions a bucket.
        count: buckets.
    """

    def __init__(self, size, count):
        self.size, self.count = size, count

    def __call__(self, model, batch, training):
        from keras import ops

        from roformer_zh.training.objectives import MaskedLMObjective, hits, token_losses

        inputs = {name: batch[name] for name in MaskedLMObjective.inputs}
        logits, weights = model(inputs, training=training), batch["mask_weights"]
        numbers = ops.reshape(batch["mask_positions"] // self.size, (-1,))

        def by_bucket(values):
            return ops.segment_sum(ops.reshape(values, (-1,)), numbers, self.count)

        return {
            "loss": by_bucket(token_losses(batch["mask_ids"], logits) * weights),
            "correct": by_bucket(hits(batch["mask_ids"], logits) * weights),
            "weight": by_bucket(weights),
        }


def buckets(sums, size):
    """A dict a bucket: first and last position, masked tokens, loss, accuracy (None if empty)."""
    rows = []
    for number, weight in enumerate(sums["weight"]):
        means = (
            float(sums[name][number] / weight) if weight else None for name in ("loss", "correct")
        )
        loss, accuracy = means
        first = number * size
        rows.append(
            dict(
                first=first,
                last=first + size - 1,
                masked=round(float(weight)),
                loss=loss,
                accuracy=accuracy,
            )
        )
    return rows


def unigram(corpus, batches):
    """Loss and accuracy of the best guess that sees no context.

    Loss: of the token frequencies of the held-out text itself. Accuracy: the share of the masked
    tokens that are the most frequent one among them.
    """
    counts = np.bincount(corpus.ids, minlength=corpus.meta["vocabulary_size"])
    logs = np.log(np.maximum(counts, 1) / counts.sum())
    masked = np.zeros_like(counts)
    for batch in batches:
        ids = batch["mask_ids"][batch["mask_weights"] > 0]
        masked += np.bincount(ids, minlength=len(counts))
    return {
        "unigram_loss": float(-(masked * logs).sum() / masked.sum()),
        "unigram_accuracy": float(masked.max() / masked.sum()),
    }


if __name__ == "__main__":
    run_command(main, Arguments)
