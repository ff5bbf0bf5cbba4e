"""Pictures of a trained model: rotary decay, attention over distance, an attention map."""

import dataclasses
import warnings
from pathlib import Path

import numpy as np

from roformer_zh import plots
from roformer_zh.command import run_command

SENTENCE_TOKENS = (12, 20)
"""Fewest and most tokens of a sentence that is chosen for the map."""
MAP_HEADS = 4
"""Heads of a layer that the map shows at most."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Draw rotary_decay.png (the paper's Figure 2), attention_over_distance.png, attention_map.png.

    Attention is measured on the longest documents of held-out text, each read by itself.
    """

    model: Path
    """Run folder; any head, full or chunked attention."""
    data: Path
    """Prepared held-out corpus."""
    output: Path
    """Folder for the PNG files."""
    sequence_length: int | None = None
    """Tokens read of a document; None = the longest length that the model was trained on."""
    documents: int = 16
    """Documents whose attention is averaged."""
    sentence: str | None = None
    """Text of the attention map; None = the first sentence of 12 to 20 tokens in the data."""


def main(args):
    """Writes the pictures; returns the `DistanceProfile` of the model."""
    from roformer_zh.attention_maps import attention_over_distance
    from roformer_zh.corpus import Corpus
    from roformer_zh.runs import encoder_of, load_run

    corpus, run = Corpus.open(args.data), load_run(args.model, dtype="float32")
    corpus.require_tokenizer(run.tokenizer)
    encoder = encoder_of(run.model)
    length = choose_length(args.sequence_length, encoder.config)
    texts = longest_texts(corpus, length, args.documents)
    profile = attention_over_distance(encoder, texts, max(map(len, texts)))
    plots.plot_rotary_decay(decay_bounds(encoder.config), args.output / "rotary_decay.png")
    plots.plot_attention_over_distance(profile, args.output / "attention_over_distance.png")
    draw_map(encoder, map_ids(args.sentence, corpus), run.tokenizer, args.output)
    print(profile_text(profile, texts))
    return profile


def choose_length(asked, config):
    """The asked length, or the trained one, or 512; checked against a position table."""
    rows = config.max_sequence_length
    length = asked or min(config.trained_length or 512, rows or np.inf)
    if length < 8 or (rows is not None and length > rows):
        raise ValueError(
            f"--sequence-length must be at least 8 and at most {rows or 'any length'} (the rows "
            f"of the model's position table); got {length}"
        )
    return int(length)


def longest_texts(corpus, length, count):
    """[CLS] document [SEP] of the longest documents, cut to a length: lists of token ids."""
    if count < 1:
        raise ValueError(f"--documents must be at least 1; got {count}")
    sizes = np.diff(corpus.document_starts)
    chosen = np.argsort(-sizes, kind="stable")[:count]
    return [framed(corpus.document(index)[: length - 2], corpus.tokenizer) for index in chosen]


def framed(ids, tokenizer):
    """Token ids between [CLS] and [SEP]."""
    return [tokenizer.cls_id, *map(int, ids), tokenizer.sep_id]


def decay_bounds(config):
    """What `plot_rotary_decay` draws: the paper's setting and, if it is rotary, the model's own."""
    distances = np.arange(251)
    found = {"d = 128, as in the paper": (distances, plots.rotary_decay(128, distances))}
    if config.position == "rotary":
        distances = np.arange(max(2048, config.trained_length or 0) + 1)
        values = plots.rotary_decay(
            config.head_dim, distances / config.position_scale, config.max_wavelength
        )
        found[f"d = {config.head_dim}, this model's heads"] = (distances, values)
    return found


def map_ids(sentence, corpus):
    """Token ids of the given sentence, or of the first fitting one in the corpus."""
    if sentence is not None:
        ids = corpus.tokenizer.encode(sentence)
        if not ids:
            raise ValueError(f"--sentence must have at least one token; got {sentence!r}")
        return framed(ids, corpus.tokenizer)
    total, unknown = corpus.num_tokens, corpus.tokenizer.unk_id
    starts = np.flatnonzero(corpus.bits(corpus.sentence_bits, 0, total))
    low, high = SENTENCE_TOKENS
    for start, stop in zip(starts, [*starts[1:], total], strict=True):
        if low <= stop - start <= high and unknown not in corpus.ids[start:stop]:
            return framed(corpus.ids[start:stop], corpus.tokenizer)
    raise ValueError(
        f"the data have no sentence of {low} to {high} known tokens; give one with --sentence"
    )


def draw_map(encoder, ids, tokenizer, output):
    """Draws attention_map.png, first and last layer; without a Chinese font it only warns."""
    from roformer_zh.attention_maps import attention_probabilities

    row = np.array([ids], np.int32)
    inputs = {
        "token_ids": row,
        "segment_ids": np.zeros_like(row),
        "padding_mask": np.ones(row.shape, bool),
    }
    last, maps = encoder.config.num_layers - 1, {}
    for layer, weights in enumerate(attention_probabilities(encoder, inputs)):
        if layer in (0, last):
            for head, part in enumerate(weights[0, :MAP_HEADS], 1):
                maps[f"layer {layer + 1}, head {head}"] = part
    tokens = [tokenizer.id_to_token(token) for token in ids]
    try:
        plots.plot_attention_map(maps, tokens, output / "attention_map.png")
    except plots.MissingFontError as error:
        warnings.warn(f"attention_map.png is left out: {error}", stacklevel=2)


def profile_text(profile, texts):
    """A line a head: the share of its attention within 8 tokens, and beyond 512."""
    near, far = profile.edges[:-1] <= 8, profile.edges[:-1] > 512
    lines = [
        f"{len(texts)} texts of {min(map(len, texts)):,} to {max(map(len, texts)):,} tokens; even "
        f"attention puts {profile.even_shares[near].sum():.1%} within 8 tokens and "
        f"{profile.even_shares[far].sum():.1%} beyond 512"
    ]
    for layer, heads in enumerate(profile.shares, 1):
        for head, shares in enumerate(heads, 1):
            lines.append(
                f"layer {layer}, head {head}: {shares[near].sum():.1%} within 8 tokens, "
                f"{shares[far].sum():.1%} beyond 512"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(main, Arguments)
