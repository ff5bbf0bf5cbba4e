"""Where an encoder looks: the attention probabilities of its exact kernels, and over distance.

Dimension letters: B batch, T query length, S key length, N heads, H head_dim.
"""

import dataclasses

import numpy as np
from keras import ops

from roformer_zh.attention import MASKED_SCORE
from roformer_zh.encoder import check_inputs


def attention_probabilities(encoder, inputs):
    """The softmax weights of every block, computed anew from its weights; no dropout.

    Args:
        encoder: an `Encoder` with attention "full" or "chunked".
        inputs: its dict of inputs.

    Yields:
        float32 array (B, N, T, S) a block. Weights of padded keys are 0; rows of padded queries
        mean nothing.

    Raises:
        ValueError: the attention is linear, which has no such weights.
    """
    config = encoder.config
    if config.attention == "linear":
        raise ValueError(
            "attention probabilities need attention='full' or 'chunked'; got 'linear', whose "
            "weights are no probabilities"
        )
    token_ids, segment_ids, padding_mask, position_ids = check_inputs(inputs)
    hidden = encoder.embed(token_ids, segment_ids, position_ids)
    located = encoder.positions.locate(position_ids, ops.shape(token_ids)[1])
    for block in encoder.blocks:
        yield layer_probabilities(block.attention, hidden, padding_mask, position_ids)
        hidden = block(hidden, padding_mask, located, position_ids)


def layer_probabilities(attention, hidden, padding_mask, position_ids=None):
    """The weights of one `SelfAttention`.

    Args:
        attention: the layer.
        hidden: its input, (B, T, hidden_dim).
        padding_mask: (B, T), True for a real token.
        position_ids: (B or 1, T), or None for 0 .. T - 1.

    Returns:
        float32 array (B, N, T, S).
    """
    length = ops.shape(hidden)[1]
    located = attention.scheme.locate(position_ids, length)
    queries, keys, _ = attention.scheme.rotate(*attention.project(hidden), located)
    queries = ops.swapaxes(queries, 1, 2)  # (B, N, T, H), scaled by 1 / sqrt(H)
    scores = ops.matmul(queries, ops.transpose(keys, (0, 2, 3, 1)))
    relative = attention.scheme.relative(position_ids)
    if relative is not None:
        scores = scores + relative.scores(queries, length)
    padded = 1.0 - ops.cast(padding_mask, "float32")
    scores = ops.cast(scores, "float32") + padded[:, None, None] * MASKED_SCORE
    return ops.convert_to_numpy(ops.softmax(scores))


@dataclasses.dataclass(frozen=True)
class DistanceProfile:
    """How much attention goes how far, relative to attention spread evenly over the text."""

    edges: np.ndarray
    """Bin k holds the distances edges[k] <= |query - key| < edges[k + 1], (bins + 1,)."""
    ratios: np.ndarray
    """Mean weight of a pair over that of even attention, 1 / T: (layers, N, bins)."""
    shares: np.ndarray
    """Share of all attention that falls into the bin; sums to 1 over bins: (layers, N, bins)."""
    even_shares: np.ndarray
    """The share that even attention puts there, (bins,)."""


def attention_over_distance(encoder, texts, longest):
    """Mean attention by the distance between query and key.

    Args:
        encoder: an `Encoder` with attention "full" or "chunked".
        texts: lists of token ids, specials included; each is read by itself, without padding.
        longest: tokens of the longest text.

    Returns:
        A `DistanceProfile`.
    """
    edges = distance_edges(longest)
    config, bins = encoder.config, len(edges) - 1
    weight = np.zeros((config.num_layers, config.num_heads, bins))
    ratio, pairs, even, queries = np.zeros_like(weight), np.zeros(bins), np.zeros(bins), 0
    for ids in texts:
        size = len(ids)
        row = np.asarray(ids, np.int32)[None]
        inputs = {
            "token_ids": row,
            "segment_ids": np.zeros_like(row),
            "padding_mask": np.ones(row.shape, bool),
        }
        place = np.arange(size)
        numbers = np.digitize(np.abs(place[:, None] - place), edges).ravel() - 1
        counts = np.bincount(numbers, minlength=bins)
        pairs, even, queries = pairs + counts, even + counts / size, queries + size
        for layer, found in enumerate(attention_probabilities(encoder, inputs)):
            for head, weights in enumerate(found[0]):
                sums = np.bincount(numbers, weights.ravel(), minlength=bins)
                weight[layer, head] += sums
                ratio[layer, head] += sums * size
    return DistanceProfile(edges, ratio / np.maximum(pairs, 1), weight / queries, even / queries)


def distance_edges(longest):
    """Edges of bins that double: 0, 1, 2, 3-4, 5-8, 9-16, ... up to the longest distance.

    Example:
        >>> distance_edges(10).tolist()
        [0, 1, 2, 3, 5, 9, 10]
    """
    if longest < 2:
        raise ValueError(f"the longest text must have at least 2 tokens; got {longest}")
    edges = [0, 1, 2]
    while edges[-1] < longest:
        edges.append(min(2 * edges[-1] - 1 if edges[-1] > 2 else 3, longest))
    return np.array(edges)
