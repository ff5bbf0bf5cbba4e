"""Held-out loss and accuracy of a masked language model, by length and by position."""

import dataclasses
import warnings

import numpy as np

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.command import run_command
from roformer_zh.files import write_text
from roformer_zh.reports import markdown_table, percent


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Measure a pretrained run on held-out text, at several lengths and by position.

    The same words are masked at every length. The unigram baseline knows how often each token
    stands in the held-out text itself, more than any model of single tokens could learn elsewhere.
    """

    model: str
    """Run folder."""
    data: str
    """Prepared held-out corpus."""
    sequence_length: tuple[int, ...] = ()
    """Lengths to pack the text to, in tokens; the default is 512, the longest one trained, and, if
    no position table ends there, a third more."""
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


def main(args):
    """Prints the tables; returns a dict: length -> metrics, and their `buckets`."""
    from roformer_zh.corpus import Corpus
    from roformer_zh.runs import load_run

    corpus, run = Corpus.open(args.data), load_run(args.model, dtype="float32")
    corpus.require_tokenizer(run.tokenizer)
    lengths = args.sequence_length or default_lengths(run)
    check_lengths(lengths, run)
    found = {length: evaluate(run.model, corpus, length, args) for length in lengths}
    text = report_text(args, corpus, run, found)
    print(text)
    if args.output:
        write_text(args.output, text)
    return found


def default_lengths(run):
    """512, the trained length and a third more, as far as the model can read them."""
    config = run.model.encoder.config
    trained = config.trained_length or 512
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


def evaluate(model, corpus, length, args):
    """Metrics of one length: loss, accuracy, weight, the unigram baseline and the buckets."""
    from roformer_zh.batches import MaskedLMBatches
    from roformer_zh.batches.stages import Stage
    from roformer_zh.training.steps import EvaluationStep

    rates = dict(mask_selection_rate=args.mask_selection_rate)
    stage = Stage("evaluation", length, args.batch_size, steps=1, learning_rate=1.0, **rates)
    batches = MaskedLMBatches(corpus, stage).evaluation_batches(max_rows=args.max_rows)
    objective = BucketObjective(args.bucket, -(-length // args.bucket))
    step = EvaluationStep(tf.distribute.get_strategy(), model, objective)
    sums = step.sums(batches)
    total = {name: float(value.sum()) for name, value in sums.items()}
    return {
        "loss": total["loss"] / total["weight"],
        "accuracy": total["correct"] / total["weight"],
        "rows": batches.num_rows,
        "masked": round(total["weight"]),
        **unigram(corpus, batches),
        "buckets": buckets(sums, args.bucket),
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


def report_text(args, corpus, run, found):
    """The tables as Markdown."""
    trained = run.model.encoder.config.trained_length
    lengths = [
        {
            "length": length,
            "rows": f"{metrics['rows']:,}",
            "masked tokens": f"{metrics['masked']:,}",
            "loss": f"{metrics['loss']:.3f}",
            "accuracy, %": percent(metrics["accuracy"]),
            "unigram loss": f"{metrics['unigram_loss']:.3f}",
            "unigram accuracy, %": percent(metrics["unigram_accuracy"]),
        }
        for length, metrics in found.items()
    ]
    longest = found[max(found)]
    return "\n".join(
        [
            f"# {args.model} on {args.data}",
            "",
            f"{corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens. The model was "
            f"trained on at most {trained or 'an unknown number of'} tokens. The unigram baseline "
            "uses the frequencies of the held-out text itself.",
            "",
            markdown_table(lengths),
            "",
            f"By position, at length {max(found)}:",
            "",
            markdown_table(bucket_rows(longest["buckets"], trained)),
            "",
        ]
    )


def bucket_rows(found, trained):
    """Rows of the table by position."""
    rows = []
    for bucket in found:
        beyond = trained is not None and bucket["last"] >= trained
        empty = bucket["loss"] is None
        rows.append(
            {
                "positions": f"{bucket['first']}-{bucket['last']}" + " (beyond training)" * beyond,
                "masked tokens": f"{bucket['masked']:,}",
                "loss": "" if empty else f"{bucket['loss']:.3f}",
                "accuracy, %": "" if empty else percent(bucket["accuracy"]),
            }
        )
    return rows


if __name__ == "__main__":
    run_command(main, Arguments)
