"""What a comparison of pretrainings found: tables, curves, and what was equal."""

import dataclasses
import importlib.metadata
import json
import statistics

import pandas

from roformer_zh.config import EncoderConfig
from roformer_zh.costs import parameters
from roformer_zh.files import write_text
from roformer_zh.reports import markdown_table, percent, read_metrics, stage_table
from roformer_zh.runs import read_info

ALL_ROWS = 100_000
"""Held-out rows that an evaluation may have: all of them, or two tokenizers see different text."""
CHARACTER_TOLERANCE = 0.02
"""Largest relative difference of the masked characters: [UNK] is never masked, and differs."""
PACKAGES = ("keras", "tensorflow", "numpy", "jieba", "rjieba")


@dataclasses.dataclass(frozen=True)
class Result:
    """One finished pretraining and its held-out text."""

    encoder: dict
    """Fields of its EncoderConfig."""
    mode: str
    """Tokenizer mode: word or char."""
    tokenizer: dict
    """The tokenizer's fingerprint, with its hashes."""
    corpus_hash: str
    """Of the text that it was trained on."""
    held_out_hash: str
    """Of the text that it was judged on."""
    stages: list
    """What the trainer reported of each stage."""
    parameters: int
    """Numbers in its weights."""
    tokens: int
    """Tokens seen, without padding."""
    characters: int
    """Characters seen: tokens times the corpus' characters a token."""
    hours: float
    """Time in updates, at each stage's median speed."""
    masked_tokens: int
    """Masked tokens of the held-out text."""
    masked_characters: int
    """Their characters."""
    curve: list
    """(update, hours, training loss a token) of each line of metrics.jsonl."""

    def per_character(self, loss):
        """A loss a masked token as one a masked character."""
        return loss * self.masked_tokens / self.masked_characters

    def held_out_points(self):
        """(update, hours, held-out loss a token) at the end of each stage."""
        hours = {update: hours for update, hours, _ in self.curve}
        return [(s["updates"], hours[s["updates"]], s["val_loss"]) for s in self.stages]


def read_result(folder, corpus, held_out):
    """The `Result` of a run folder.

    Args:
        folder: a run of pretrain.run.
        corpus, held_out: the prepared text that it read.
    """
    from roformer_zh.batches import MaskedLMBatches, Stage

    info = read_info(folder)
    curve = training_curve(read_metrics(folder / "metrics.jsonl"))
    done = info["pretraining"]
    last = done["stages"][-1]
    fields = {field.name for field in dataclasses.fields(Stage)}
    stage = Stage(**{name: value for name, value in last.items() if name in fields})
    tokens, characters = count_masked(held_out, MaskedLMBatches(held_out, stage))
    return Result(
        encoder=info["encoder"],
        mode=corpus.tokenizer.mode,
        tokenizer=info["tokenizer"],
        corpus_hash=done["corpus_hash"],
        held_out_hash=held_out.meta["corpus_hash"],
        stages=done["stages"],
        parameters=parameters(EncoderConfig.from_dict(info["encoder"])),
        tokens=last["tokens"],
        characters=round(last["tokens"] * corpus.meta["num_characters"] / corpus.num_tokens),
        hours=curve[-1][1],
        masked_tokens=tokens,
        masked_characters=characters,
        curve=curve,
    )


def count_masked(held_out, batches):
    """Masked tokens of all held-out rows and the characters that they stand for."""
    tokens = characters = 0
    for batch in batches.evaluation_batches(max_rows=ALL_ROWS):
        ids = batch["mask_ids"][batch["mask_weights"] > 0]
        tokens += len(ids)
        characters += int(held_out.token_characters[ids].sum())
    return tokens, characters


def training_curve(lines):
    """(update, hours, training loss a token) of each `train` line of metrics.jsonl.

    Hours are at the median speed of each stage, so that a pause of the machine does not count.
    """
    lines = [line for line in lines if line["kind"] == "train"]
    speeds = {
        stage: statistics.median(
            line["tokens_per_second"] for line in lines if line["stage"] == stage)
        for stage in {line["stage"] for line in lines}
    }
    curve, hours, tokens = [], 0.0, 0
    for line in lines:
        hours += (line["tokens"] - tokens) / speeds[line["stage"]] / 3600
        tokens = line["tokens"]
        if "loss" in line:
            curve.append((line["update"], hours, line["loss"]))
    return curve


def check_equal(found):
    """Raises unless all models saw the same text, stages and masked words.

    Args:
        found: dict of model name to `Result`.
    """
    settings = ("sequence_length", "batch_size", "steps", "learning_rate", "schedule")
    facts = {
        "corpus_hash": lambda row: row.corpus_hash,
        "held_out_hash": lambda row: row.held_out_hash,
        "stages": lambda row: [[stage[name] for name in settings] for stage in row.stages],
    }
    for name, value in facts.items():
        values = {model: value(row) for model, row in found.items()}
        first, *rest = values
        for model in rest:
            if values[model] != values[first]:
                raise ValueError(
                    f"models to compare must have equal {name}; {first} has {values[first]}, "
                    f"{model} {values[model]}: train them again with one command")
    counts = {model: row.masked_characters for model, row in found.items()}
    if min(counts.values()) < (1 - CHARACTER_TOLERANCE) * max(counts.values()):
        raise ValueError("models to compare must be judged on the same masked words; the masked "
                         f"characters are {counts}: prepare the held-out text with one vocabulary")


def summary_rows(found):
    """A table row a model."""
    return [
        {
            "model": model,
            "positions": row.encoder["position"],
            "tokens": {"word": "words", "char": "characters"}[row.mode],
            "parameters, M": f"{row.parameters / 1e6:.2f}",
            "tokens seen, M": f"{row.tokens / 1e6:.2f}",
            "characters seen, M": f"{row.characters / 1e6:.2f}",
            "held-out loss a character": f"{row.per_character(row.stages[-1]['val_loss']):.3f}",
            "held-out loss a token": f"{row.stages[-1]['val_loss']:.3f}",
            "held-out accuracy a token, %": percent(row.stages[-1]["val_accuracy"]),
            "tokens/s": f"{row.tokens / row.hours / 3600:,.0f}",
            "hours": f"{row.hours:.2f}",
        }
        for model, row in found.items()
    ]


def curve_table(found):
    """All curves as a pandas table: model, update, hours, loss a token and a character."""
    return pandas.DataFrame(
        [
            dict(model=model, update=update, hours=hours, loss=loss,
                 loss_per_character=row.per_character(loss))
            for model, row in found.items()
            for update, hours, loss in row.curve
        ]
    )


def manifest(args, found):
    """What was run on what, as JSON values."""
    return {
        "arguments": json.loads(json.dumps(dataclasses.asdict(args), default=str)),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "models": {
            model: {**dataclasses.asdict(row), "curve": f"{len(row.curve)} points in curves.csv"}
            for model, row in found.items()
        },
    }


def write_outputs(args, found):
    """Writes report.md, curves.csv, pretraining.png and manifest.json."""
    from roformer_zh.plots import plot_pretraining

    table = curve_table(found)
    write_text(args.output / "curves.csv", table.to_csv(index=False))
    write_text(args.output / "manifest.json",
               json.dumps(manifest(args, found), indent=1, ensure_ascii=False) + "\n")
    curves = {
        model: [(u, h, row.per_character(loss)) for u, h, loss in row.curve]
        for model, row in found.items()
    }
    held_out = {
        model: [(u, h, row.per_character(loss)) for u, h, loss in row.held_out_points()]
        for model, row in found.items()
    }
    plot_pretraining(curves, args.output / "pretraining.png", held_out)
    text = report_text(args, found)
    write_text(args.output / "report.md", text)
    print(text)


def report_text(args, found):
    """The text of report.md."""
    some = next(iter(found.values()))
    updates = sum(stage["steps"] for stage in some.stages)
    parts = [
        "# Pretraining compared",
        "",
        f"Equal for all: text (corpus {some.corpus_hash[:12]}, held out "
        f"{some.held_out_hash[:12]}), "
        f"{updates:,} updates of the stages in {args.stages}, slots an update, optimizer, dropout "
        f"({'each preset' if args.dropout is None else args.dropout}), seed {args.training.seed}. "
        "Not equal, because the model forces it: word models read words of the vocabulary, "
        "character models its characters, so that the same number of tokens is less text.",
        "",
        "A loss a character divides the loss of the masked held-out words, the same for every "
        "model, by their characters; only this loss may be compared between words and characters. "
        "One seed a model: small differences may be chance, and nothing is ranked. Hours are at "
        "the median speed of each stage, on a machine with other work.",
        "",
        markdown_table(summary_rows(found)),
        "",
        "![training loss a character](pretraining.png)",
        "",
        "The stages, in the form of the paper's Table 4. Losses of different lengths cannot be "
        "compared with each other, nor those of new models with published ones that started from "
        "trained weights.",
    ]
    for model, row in found.items():
        stages = [
            {**line, "held-out loss a character": f"{row.per_character(stage['val_loss']):.3f}"}
            for line, stage in zip(stage_table(row.stages), row.stages, strict=True)
        ]
        parts += ["", f"## {model}", "", markdown_table(stages)]
    return "\n".join(parts) + "\n"
