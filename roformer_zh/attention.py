"""Self-attention: a position scheme times a kernel (full, chunked, fused or linear).

Dimension letters: B batch, T query length, S key length, N heads, H head_dim, D hidden_dim.
"""

import functools

import keras
from keras import ops

from roformer_zh.dropout import Dropout, current_seed, dropout_seed
from roformer_zh.positions import SCHEMES
from roformer_zh.rotary import split_pairs

QUERY_CHUNK = 256
"""Queries a chunk of the chunked kernel, and of the dropout masks of both exact kernels."""
MASKED_SCORE = -1e9
"""Added to the float32 score of a padded key: its weight becomes exactly 0."""


@keras.saving.register_keras_serializable("roformer_zh")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention over the tokens that `padding_mask` marks as real.

    Args:
        config: an `EncoderConfig`.
        salt: number of its dropout; see `Dropout`.
    """

    def __init__(self, config, salt=0, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.config, self.salt = config, salt
        self.scheme = SCHEMES[config.position](config, dtype=self.dtype_policy, name="positions")
        self.output_dense = keras.layers.Dense(
            config.hidden_dim,
            kernel_initializer=initializer(config),
            dtype=self.dtype_policy,
            name="output",
        )
        self.attention_dropout = Dropout(
            config.attention_dropout, salt, dtype=self.dtype_policy, name="attention_dropout"
        )

    def build(self, input_shape=None):
        width = self.config.hidden_dim
        self.kernel = self.add_weight(
            shape=(width, 3 * width),
            name="query_key_value_kernel",
            initializer=initializer(self.config),
        )
        self.bias = self.add_weight(
            shape=(3 * width,), name="query_key_value_bias", initializer="zeros"
        )
        self.output_dense.build((None, None, width))
        self.built = True

    def call(self, hidden, padding_mask, located=None, position_ids=None, training=False):
        """Attends within each row.

        Args:
            hidden: (B, T, D).
            padding_mask: (B, T), True for a real token.
            located: what the scheme's `locate` gave.
            position_ids: (B or 1, T) integers, or None.

        Returns:
            (B, T, D).
        """
        queries, keys, values = self.project(hidden)
        if self.config.attention == "linear":
            context = self._linear(queries, keys, values, padding_mask, located)
        else:
            rotated = self.scheme.rotate(queries, keys, values, located)
            if self.config.attention == "fused":
                context = fused_attention(*rotated, padding_mask)
            else:
                context = self._softmax(*rotated, padding_mask, position_ids, training)
        context = self.scheme.unrotate(context, located)
        return self.output_dense(ops.reshape(context, ops.shape(hidden)))

    def project(self, hidden):
        """Queries, keys and values, each (B, T, N, H), their pairs split where they are turned.

        Unless the attention is linear, queries are scaled by 1 / sqrt(H).

        Three products instead of one of three times the width: nothing is cut out of a wide
        result, whose gradient would be put together again at several times the cost.
        """
        config = self.config
        shape = (*ops.shape(hidden)[:2], config.num_heads, config.head_dim)
        kernels = ops.split(ops.cast(self.kernel, self.compute_dtype), 3, axis=-1)
        biases = ops.split(ops.cast(self.bias, self.compute_dtype), 3, axis=-1)
        turned = (0, 3 if config.rotary_value else 2)[self.scheme.splits_pairs]
        for place in range(turned):
            kernels[place] = self._split(kernels[place])
            biases[place] = self._split(biases[place])
        if config.attention != "linear":  # the scores' 1 / sqrt(H), where it costs least
            kernels[0] = kernels[0] * config.head_dim**-0.5
            biases[0] = biases[0] * config.head_dim**-0.5
        return [
            ops.reshape(ops.matmul(hidden, kernel) + bias, shape)
            for kernel, bias in zip(kernels, biases, strict=True)
        ]

    def _split(self, weights):
        """Splits the pairs of the columns of a kernel (D, D) or bias (D) within each head."""
        shape = ops.shape(weights)
        heads = (*shape[:-1], self.config.num_heads, self.config.head_dim)
        return ops.reshape(split_pairs(ops.reshape(weights, heads)), shape)

    def _softmax(self, queries, keys, values, padding_mask, position_ids, training):
        """The exact kernels: three of (B, T, N, H) -> (B, T, N, H)."""
        by_head = (ops.swapaxes(x, 1, 2) for x in (queries, keys, values))  # (B, N, T, H)
        key_bias = (1.0 - ops.cast(padding_mask, "float32"))[:, None, None] * MASKED_SCORE
        relative = self.scheme.relative(position_ids)
        kernel = chunked_attention if self.config.attention == "chunked" else full_attention
        drops = training and self.config.attention_dropout
        context = kernel(*by_head, key_bias, relative, self.attention_dropout if drops else None)
        return ops.swapaxes(context, 1, 2)

    def _linear(self, queries, keys, values, padding_mask, located):
        """Linear attention: three of (B, T, N, H) -> (B, T, N, H)."""
        real = ops.cast(padding_mask, values.dtype)[:, :, None, None]
        queries, keys = FEATURES[self.config.feature_map](queries, keys, real)
        rotated = self.scheme.rotate(queries, keys, values, located)
        return linear_attention(queries, keys, *rotated)


def full_attention(queries, keys, values, key_bias, relative=None, dropout=None):
    """softmax(q k + relative + key_bias) v with the whole (B, N, T, S) matrix in memory.

    Args:
        queries: (B, N, T, H), already scaled by 1 / sqrt(H).
        keys, values: (B, N, S, H).
        key_bias: float32 (B, 1, 1, S), 0 or `MASKED_SCORE`.
        relative: `RelativeVectors`, or None.
        dropout: a `Dropout`, or None; masks are drawn once a `QUERY_CHUNK` of queries, so that
            the chunked kernel drops the same weights.

    Returns:
        (B, N, T, H).
    """
    def keep(shape):
        return _keep_by_chunk(dropout, shape)

    return _attend(queries, keys, values, key_bias, relative, dropout, keep)


def chunked_attention(queries, keys, values, key_bias, relative=None, dropout=None):
    """The same numbers as `full_attention`, with memory linear in the length.

    Chunks of queries are mapped one after the other; each is recomputed in the backward pass, so
    only one (B, N, QUERY_CHUNK, S) matrix is alive. The arguments are `full_attention`'s.
    """
    num_queries = queries.shape[2]
    if num_queries is None:
        raise ValueError(
            "chunked attention needs a static sequence length; use attention='full' to export"
        )
    if num_queries <= QUERY_CHUNK:
        return full_attention(queries, keys, values, key_bias, relative, dropout)
    count = -(-num_queries // QUERY_CHUNK)
    missing = count * QUERY_CHUNK - num_queries
    batch, heads, _, width = ops.shape(queries)
    padded = ops.pad(queries, [(0, 0), (0, 0), (0, missing), (0, 0)])
    chunks = ops.moveaxis(ops.reshape(padded, (batch, heads, count, QUERY_CHUNK, width)), 2, 0)
    parts = (chunks, ops.arange(count))
    if relative is not None and relative.key_ids is not None:
        ids = ops.pad(relative.query_ids, [(0, 0), (0, missing)])
        ids = ops.reshape(ids, (-1, count, QUERY_CHUNK))
        parts = (*parts, ops.moveaxis(ids, 1, 0))
    seed = current_seed()

    def attend_part(part):
        chunk, number, *ids = part

        def attend(chunk, keys, values):
            with dropout_seed(seed):
                shifted = relative and relative.part(number * QUERY_CHUNK, *ids or [None])
                keep = functools.partial(dropout.keep, part=number) if dropout else None
                return _attend(chunk, keys, values, key_bias, shifted, dropout, keep)

        return keras.remat(attend)(chunk, keys, values)

    context = ops.moveaxis(ops.map(attend_part, parts), 0, 2)  # (B, N, count, QUERY_CHUNK, H)
    return ops.reshape(context, (batch, heads, count * QUERY_CHUNK, width))[:, :, :num_queries]


def fused_attention(queries, keys, values, padding_mask):
    """The backend's own kernel, which keeps no (B, N, T, S) matrix where it has one for the device.

    On GPUs that is flash attention for half precision (JAX, PyTorch); elsewhere Keras computes the
    plain formula. It knows neither relative vectors nor dropout: `EncoderConfig` refuses both.

    Args:
        queries: (B, T, N, H), already scaled by 1 / sqrt(H).
        keys, values: (B, S, N, H).
        padding_mask: (B, S), True for a real token.

    Returns:
        (B, T, N, H).
    """
    mask = ops.cast(padding_mask, "bool")[:, None, None]  # (B, 1, 1, S)
    return ops.dot_product_attention(queries, keys, values, mask=mask, scale=1.0)


def linear_attention(queries, keys, rotated_queries, rotated_keys, values):
    """Attention in time linear in the length: equation 19 of arXiv 2104.09864.

    The rotation enters the numerator only, so the denominator stays positive.

    Args:
        queries: (B, T, N, H), mapped to positive features.
        keys: the same, 0 where padded.
        rotated_queries, rotated_keys: the same with their positions applied.
        values: (B, T, N, H).

    Returns:
        (B, T, N, H).
    """
    dtype = values.dtype
    queries, keys, rotated_queries, rotated_keys, values = (
        ops.cast(x, "float32") for x in (queries, keys, rotated_queries, rotated_keys, values)
    )
    products = ops.einsum("bsnh,bsnv->bnhv", rotated_keys, values)
    numerator = ops.einsum("btnh,bnhv->btnv", rotated_queries, products)
    denominator = ops.einsum("btnh,bnh->btn", queries, ops.sum(keys, axis=1))
    denominator = ops.where(denominator > 0, denominator, 1.0)  # 0 in a row of padding
    return ops.cast(numerator / denominator[..., None], dtype)


def initializer(config):
    """A truncated normal of the configured standard deviation, as BERT's."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def _attend(queries, keys, values, key_bias, relative, dropout, keep):
    """Exact attention of all given queries at once; `keep` draws the mask of a shape."""
    scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2))  # (B, N, T, S)
    if relative is not None:
        scores = scores + relative.scores(queries, ops.shape(keys)[2])
    weights = ops.softmax(ops.cast(scores, "float32") + key_bias, axis=-1)
    weights = ops.cast(weights, values.dtype)
    if dropout is not None:
        weights = ops.where(keep(ops.shape(weights)), weights, 0.0)
    context = ops.matmul(weights, values)  # (B, N, T, H)
    if relative is not None:
        context = context + relative.values(weights)
    return context if dropout is None else context * dropout.scale


def _keep_by_chunk(dropout, shape):
    """A mask of (B, N, T, S) weights, drawn by chunks of queries, the last one cut short."""
    batch, heads, num_queries, num_keys = shape
    if num_queries <= QUERY_CHUNK:
        return dropout.keep(shape)
    chunks = [
        dropout.keep((batch, heads, QUERY_CHUNK, num_keys), part)
        for part in range(-(-num_queries // QUERY_CHUNK))
    ]
    return ops.concatenate(chunks, axis=2)[:, :, :num_queries]


def _elu_features(queries, keys, real):
    """elu + 1 (arXiv 2006.16236)."""
    return ops.elu(queries) + 1, (ops.elu(keys) + 1) * real


def _softmax_features(queries, keys, real):
    """Queries normalised over the head, keys over the real tokens (arXiv 1812.01243)."""
    masked = ops.cast(keys, "float32") + (1.0 - ops.cast(real, "float32")) * MASKED_SCORE
    return ops.softmax(queries, axis=-1), ops.cast(ops.softmax(masked, axis=1), keys.dtype) * real


FEATURES = {"elu": _elu_features, "softmax": _softmax_features}
