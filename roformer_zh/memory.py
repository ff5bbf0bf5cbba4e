"""What a training step keeps in memory, from a configuration and sizes alone.

`block_tensors`, `embedding_tensors` and `head_tensors` list the tensors that the backward pass
reads, as the layers are written in attention.py, encoder.py, dropout.py and heads.py; a test
compares their sums with the graph that TensorFlow traces. Who changes a layer changes its line.

Not covered: the runtime and its kernels (a CUDA context takes 0.3 to 0.6 GB), the host's batches,
what an allocator holds beyond its tensors (TensorFlow's GPU allocator rounds up and splits; glibc
keeps freed blocks), and what XLA saves or adds by fusing and computing again.

Dimension letters as in costs.py; c is the bytes of a number in the compute dtype. Nothing here
imports Keras.
"""

import dataclasses

from roformer_zh.costs import QUERY_CHUNK, parameters

COMPUTE_BYTES = {"float32": 4, "mixed_float16": 2, "mixed_bfloat16": 2}
"""Bytes of an activation a dtype policy; weights, gradients and optimizer are float32 always."""
PARALLEL_CHUNKS = 10
"""Chunks that TensorFlow's map runs at once, `parallel_iterations` of tf.map_fn."""
_ACTIVATIONS = {"gelu": 2, "gelu_tanh": 5, "relu": 1}
"""(T, I) tensors that an activation keeps, its output among them."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one replica's training step."""

    weights: int
    """Float32 parameters."""
    optimizer: int
    """Adam's two moments."""
    gradients: int
    """One float32 set, and a second one where micro-batches are added up."""
    activations: int
    """Tensors kept for the backward pass, but the head's."""
    logits: int
    """The head's tensors: logits, their gradient, and the table's copy."""
    peak: int
    """The most at one time; parts are not all alive at once, and passing tensors come on top."""


def training_memory(config, batch_size, sequence_length, masked_positions, *,
                    dtype_policy="float32", recompute=False, accumulate=False):
    """The memory of one micro-batch's forward and backward pass and the update.

    The peak is the larger of two moments: the start of the backward pass, when all activations
    live, and the update, when all gradients and their clipped copies do.

    Args:
        config: an `EncoderConfig`.
        batch_size: rows of the micro-batch.
        sequence_length: tokens a row.
        masked_positions: predicted slots a row.
        dtype_policy: a Keras dtype policy.
        recompute: whether a block keeps its input only.
        accumulate: whether gradients of several micro-batches are added up.

    Example:
        >>> from roformer_zh import EncoderConfig
        >>> memory = training_memory(EncoderConfig.preset("roformer_base"), 8, 512, 80)
        >>> print(f"{memory.weights / 1e9:.2f} {memory.peak / 1e9:.1f} GB")
        0.50 7.6 GB
    """
    sizes = (config, batch_size, sequence_length, COMPUTE_BYTES[dtype_policy])
    block = sum(block_tensors(*sizes).values())
    once = sum(embedding_tensors(*sizes).values())
    kept, passing = config.num_layers * block + once, passing_bytes(*sizes)
    if recompute:
        # Equal masks are drawn once: TensorFlow shares them between both passes. Two blocks are
        # whole: the one computed again and the one above, whose kernels' gradients still wait.
        passing += 2 * block
        kept = config.num_layers * (block_tensors(*sizes)["output"] + mask_bytes(*sizes)) + once
    logits = head_tensors(*sizes[:2], masked_positions, sizes[3])
    weights, table = 4 * parameters(config), 4 * config.vocabulary_size * config.embedding_dim
    head_start = sum(logits.values())
    backward = kept + table + max(head_start, passing)
    held = 3 * weights + accumulate * weights
    return Memory(
        weights=weights,
        optimizer=2 * weights,
        gradients=(1 + accumulate) * weights,
        activations=kept,
        logits=head_start,
        peak=held + max(backward, 2 * weights),
    )


def block_tensors(config, batch_size, sequence_length, c):
    """Bytes that one block keeps for its backward pass, a line a tensor or group."""
    d, tokens = config.hidden_dim, batch_size * sequence_length
    kernels = 4 * d * d + 2 * d * config.intermediate_dim
    return {
        "kernels": _kernel_copies(config, kernels, c),
        "attention": tokens * _attention_bytes(config, sequence_length, c),
        "context": tokens * d * c,  # input of the attention's output layer
        "masks": tokens * 2 * d * (config.dropout > 0),  # bool, of both dropouts
        "norms": tokens * 2 * d * 4,  # float32: x of mean 0 and variance 1, of both
        "normed": tokens * d * c,  # input of the feed-forward layer
        "inner": tokens * _ACTIVATIONS[config.activation] * config.intermediate_dim * c,
        "output": tokens * d * c,  # input of the next block
    }


def embedding_tensors(config, batch_size, sequence_length, c):
    """Bytes that the embeddings keep."""
    e, tokens = config.embedding_dim, batch_size * sequence_length
    return {
        "norm": tokens * e * 4,
        "mask": tokens * e * (config.dropout > 0),
        "output": tokens * e * c,  # input of the first block, or of the projection
        "projected": tokens * config.hidden_dim * c * (e != config.hidden_dim),
    }


def head_tensors(config, batch_size, masked_positions, c):
    """Bytes that the head keeps, and the logits that live while it runs."""
    e, rows = config.embedding_dim, batch_size * masked_positions
    return {
        "table": config.vocabulary_size * e * c * (c != 4),  # cast to the compute dtype
        "transform": rows * (config.hidden_dim + (_ACTIVATIONS[config.activation] - 1) * e) * c,
        "norm": rows * (e * 4 + e * c),
        "exponentials": rows * config.vocabulary_size * 4,
        "logits": rows * config.vocabulary_size * 2 * 4,  # with and without bias, then gradients
    }


def passing_bytes(config, batch_size, sequence_length, c):
    """Bytes of the tensors that come and go within one block, at the most.

    Exact attention: the gradient of the weights before and after dropout, three of softmax, and
    the scores'. Chunked attention holds what a chunk keeps beside, for each chunk in progress.
    """
    if config.attention == "linear":
        scores = 6 * 4 * sequence_length * config.hidden_dim
    else:
        queries, alive, width = sequence_length, 1, config.num_heads * sequence_length
        each = 6 * 4 * width
        if config.attention == "chunked" and sequence_length > QUERY_CHUNK:
            queries, alive = QUERY_CHUNK, min(PARALLEL_CHUNKS, -(-sequence_length // QUERY_CHUNK))
            each += _score_bytes(config, sequence_length, c)
        if config.position == "relative":
            each += 3 * c * config.num_heads * (queries + sequence_length)
        scores = alive * queries * each
    return batch_size * max(4 * sequence_length * config.intermediate_dim * c, scores)


def mask_bytes(config, batch_size, sequence_length, c):
    """Bytes of one block's dropout masks."""
    width = 2 * config.hidden_dim * (config.dropout > 0)
    if config.attention == "full" and config.attention_dropout:
        width += config.num_heads * sequence_length
    return batch_size * sequence_length * width


def _attention_bytes(config, sequence_length, c):
    """Bytes a token that the kernel keeps."""
    d = config.hidden_dim
    if config.attention == "linear":
        maps = 2 * d * c if config.feature_map == "elu" else d * c + 4 * d
        return maps + 5 * 4 * d  # float32: q and k rotated, v, q, and the numerator
    heads = 3 * d * c  # q, k, v
    if config.attention == "chunked" and sequence_length > QUERY_CHUNK:
        return heads
    return heads + _score_bytes(config, sequence_length, c)


def _score_bytes(config, sequence_length, c):
    """Bytes a query of exact attention: float32 softmax; with dropout, its bool mask and result."""
    dropped = 1 + c if config.attention_dropout else c * (c != 4)
    return config.num_heads * sequence_length * (4 + dropped)


def _kernel_copies(config, kernels, c):
    """Bytes of kernels cast to the compute dtype, or of the fused one, arranged for the scheme."""
    if c != 4:
        return kernels * c
    return 3 * config.hidden_dim**2 * c
