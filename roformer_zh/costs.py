"""What a model costs, from its configuration alone: parameters and floating-point operations.

Counting rule: one multiply-add is 2 operations; matrix products only (dense layers, attention,
vocabulary head), no additions, softmax, LayerNorm, activation or rotation; the head at the masked
positions only; padding counts like text. A backward pass costs twice its forward pass: a product
has two factors, each with a gradient. NEZHA's fixed vectors have none: their products count once.

Dimension letters: B batch, T length, N heads, H head_dim, D hidden_dim, E embedding_dim,
I intermediate_dim, V vocabulary, P masked positions a row. Nothing here imports Keras.
"""

QUERY_CHUNK = 256
"""Queries a chunk; must be `attention.QUERY_CHUNK` (a test compares them)."""


def parameters(config, head=True):
    """Trainable numbers of `MaskedLM(Encoder(config))`, or of the encoder alone without `head`.

    Example:
        >>> from roformer_zh import EncoderConfig
        >>> f"{parameters(EncoderConfig.preset('roformer_base')):,}"
        '124,099,664'
    """
    d, e, i = config.hidden_dim, config.embedding_dim, config.intermediate_dim
    count = (config.vocabulary_size + config.num_segments) * e + 2 * e
    count += (config.max_sequence_length or 0) * e
    count += (e * d + d) * (e != d)
    count += config.num_layers * (4 * (d * d + d) + 2 * 2 * d + (d * i + i) + (i * d + d))
    count += (d * d + d) * config.pooler
    if head:
        count += (d * e + e) + 2 * e + config.vocabulary_size
    return count


def forward_flops(config, batch_size, sequence_length, masked_positions=0):
    """Operations of one forward pass over a batch.

    Args:
        config: an `EncoderConfig`. Chunked attention counts as full attention: a last chunk that
            is filled up costs more than is counted.
        batch_size: rows, B.
        sequence_length: tokens a row, T.
        masked_positions: predicted slots a row, P; 0 = the encoder alone.

    Example:
        >>> from roformer_zh import EncoderConfig
        >>> config = EncoderConfig.preset("roformer_base")
        >>> round(forward_flops(config, 1, 512, 77) / 512 / 1e6)
        200
    """
    tokens = batch_size * sequence_length
    encoder = config.num_layers * block_flops(config, sequence_length)
    if config.embedding_dim != config.hidden_dim:
        encoder += 2 * config.embedding_dim * config.hidden_dim
    return tokens * encoder + batch_size * masked_positions * head_flops(config)


def training_flops(config, batch_size, sequence_length, masked_positions):
    """Useful operations of a forward and a backward pass: nothing computed twice is counted.

    The update itself (a few operations a parameter) is no matrix product and not counted.
    """
    forward = forward_flops(config, batch_size, sequence_length, masked_positions)
    fixed = batch_size * sequence_length * config.num_layers * relative_flops(config)
    return 3 * forward - fixed


def executed_training_flops(
    config, batch_size, sequence_length, masked_positions, recompute=False
):
    """`training_flops`, what the backward pass computes again, and what NEZHA computes beside.

    Args:
        recompute: whether each block is computed again in the backward pass; without it, chunked
            attention still computes its own products again.
    """
    tokens = batch_size * sequence_length
    total = training_flops(config, batch_size, sequence_length, masked_positions)
    chunked = config.attention == "chunked" and sequence_length > QUERY_CHUNK
    wide = 0
    if config.position == "relative":
        width = sequence_length + (QUERY_CHUNK if chunked else sequence_length)
        wide = 4 * width * config.hidden_dim - relative_flops(config)
        total += 2 * tokens * config.num_layers * wide
    again = 0
    if recompute:
        again += block_flops(config, sequence_length) + wide
    if chunked:
        again += attention_flops(config, sequence_length) + wide
    return total + tokens * config.num_layers * again


def block_flops(config, sequence_length):
    """Forward operations a token of one block."""
    dense = 2 * config.hidden_dim * (4 * config.hidden_dim + 2 * config.intermediate_dim)
    return dense + attention_flops(config, sequence_length)


def attention_flops(config, sequence_length):
    """Forward operations a token of one block's attention, without its dense layers.

    Full and chunked: q k and weights v. Linear: the sum of k v, its product with q, and the
    denominator (equation 19 of arXiv 2104.09864).
    """
    d = config.hidden_dim
    if config.attention == "linear":
        return 4 * d * config.head_dim + 2 * d
    return 4 * d * sequence_length + relative_flops(config)


def relative_flops(config):
    """Forward operations a token of NEZHA's vectors: 2 m + 1 of them, on keys and on values.

    The built model multiplies with the vectors of all T + S distances instead where positions are
    0 .. T - 1; `executed_training_flops` counts that.
    """
    if config.position != "relative":
        return 0
    return 4 * config.hidden_dim * (2 * config.max_relative_position + 1)


def head_flops(config):
    """Forward operations a masked position: transform and vocabulary."""
    return 2 * config.embedding_dim * (config.hidden_dim + config.vocabulary_size)
