"""Self-attention: a position scheme times a kernel (full, chunked or linear).

Dimension letters: B batch, T query length, S key length, N heads, H head_dim, D hidden_dim.
"""

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
        config = self.config
        batch, length, width = ops.shape(hidden)
        heads = ops.matmul(hidden, self._kernel()) + self._bias()  # (B, T, 3 D)
        heads = ops.reshape(heads, (batch, length, 3, config.num_heads, config.head_dim))
        if config.attention == "linear":
            context = self._linear(heads, padding_mask, located)
        else:
            context = self._softmax(heads, padding_mask, located, position_ids, training)
        context = self.scheme.unrotate(context, located)
        return self.output_dense(ops.reshape(context, (batch, length, width)))

    def _softmax(self, heads, padding_mask, located, position_ids, training):
        """The exact kernels: (B, T, 3, N, H) -> (B, T, N, H)."""
        queries, keys, values = _by_head(self.scheme.rotate(heads, located))
        queries = queries * self.config.head_dim**-0.5
        key_bias = (1.0 - ops.cast(padding_mask, "float32"))[
            :, None, None
        ] * MASKED_SCORE  # (B, 1, 1, S)
        relative = self.scheme.relative(position_ids)
        kernel = chunked_attention if self.config.attention == "chunked" else full_attention

        def dropout(weights, part):
            return self.attention_dropout(weights, part=part, training=training)

        if not training or not self.config.attention_dropout:
            dropout = None
        context = kernel(queries, keys, values, key_bias, relative, dropout)
        return ops.swapaxes(context, 1, 2)

    def _linear(self, heads, padding_mask, located):
        """Linear attention: (B, T, 3, N, H) -> (B, T, N, H)."""
        real = ops.cast(padding_mask, heads.dtype)[:, :, None, None]
        queries, keys = FEATURES[self.config.feature_map](heads[:, :, 0], heads[:, :, 1], real)
        mapped = ops.stack([queries, keys, heads[:, :, 2]], axis=2)
        return linear_attention(mapped, self.scheme.rotate(mapped, located))

    def _kernel(self):
        """The fused kernel (D, 3 D), query and key pairs split where the scheme turns them."""
        config, kernel = self.config, ops.cast(self.kernel, self.compute_dtype)
        return self._split(kernel, (config.hidden_dim, 3, config.num_heads, config.head_dim))

    def _bias(self):
        """The fused bias (3 D), arranged as the kernel's columns."""
        bias = ops.cast(self.bias, self.compute_dtype)
        return self._split(bias, (3, self.config.num_heads, self.config.head_dim))

    def _split(self, weights, shape):
        """Splits the pairs of the columns that are rotated; the last three axes are (3, N, H)."""
        if not self.scheme.splits_pairs:
            return weights
        turned = 3 if self.config.rotary_value else 2
        parts = ops.reshape(weights, shape)
        split = split_pairs(parts[..., :turned, :, :])
        return ops.reshape(
            ops.concatenate([split, parts[..., turned:, :, :]], axis=-3), ops.shape(weights)
        )


def full_attention(queries, keys, values, key_bias, relative=None, dropout=None):
    """softmax(q k + relative + key_bias) v with the whole (B, N, T, S) matrix in memory.

    Args:
        queries: (B, N, T, H), already scaled by 1 / sqrt(H).
        keys, values: (B, N, S, H).
        key_bias: float32 (B, 1, 1, S), 0 or `MASKED_SCORE`.
        relative: `RelativeVectors`, or None.
        dropout: function of (weights, part), or None; called once a `QUERY_CHUNK` of queries, so
            that the chunked kernel drops the same weights.

    Returns:
        (B, N, T, H).
    """
    num_queries = queries.shape[2]
    if dropout is not None and num_queries > QUERY_CHUNK:
        drop_one = dropout

        def dropout(weights, part):
            return _drop_by_chunk(weights, num_queries, drop_one)

    return _attend(queries, keys, values, key_bias, relative, dropout, 0)


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
        return _attend(queries, keys, values, key_bias, relative, dropout, 0)
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
                return _attend(chunk, keys, values, key_bias, shifted, dropout, number)

        return keras.remat(attend)(chunk, keys, values)

    context = ops.moveaxis(ops.map(attend_part, parts), 0, 2)  # (B, N, count, QUERY_CHUNK, H)
    return ops.reshape(context, (batch, heads, count * QUERY_CHUNK, width))[:, :, :num_queries]


def linear_attention(mapped, rotated):
    """Attention in time linear in the length: equation 19 of arXiv 2104.09864.

    The rotation enters the numerator only, so the denominator stays positive.

    Args:
        mapped: (B, T, 3, N, H): mapped queries, mapped keys (0 where padded), values.
        rotated: the same with queries and keys rotated.

    Returns:
        (B, T, N, H).
    """
    dtype = mapped.dtype
    rotated, mapped = ops.cast(rotated, "float32"), ops.cast(mapped[:, :, :2], "float32")
    products = ops.einsum("bsnh,bsnv->bnhv", rotated[:, :, 1], rotated[:, :, 2])
    numerator = ops.einsum("btnh,bnhv->btnv", rotated[:, :, 0], products)
    denominator = ops.einsum("btnh,bnh->btn", mapped[:, :, 0], ops.sum(mapped[:, :, 1], axis=1))
    return ops.cast(numerator / ops.maximum(denominator, 1e-12)[..., None], dtype)


def initializer(config):
    """A truncated normal of the configured standard deviation, as BERT's."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def _attend(queries, keys, values, key_bias, relative, dropout, part):
    """Exact attention of all given queries at once."""
    scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2))  # (B, N, T, S)
    if relative is not None:
        scores = scores + relative.scores(queries, ops.shape(keys)[2])
    weights = ops.softmax(ops.cast(scores, "float32") + key_bias, axis=-1)
    weights = ops.cast(weights, values.dtype)
    if dropout is not None:
        weights = dropout(weights, part)
    context = ops.matmul(weights, values)  # (B, N, T, H)
    return context if relative is None else context + relative.values(weights)


def _drop_by_chunk(weights, num_queries, dropout):
    """Drops (B, N, T, S) weights by chunks of queries, the last one padded to a whole chunk."""
    missing = -num_queries % QUERY_CHUNK
    padded = ops.pad(weights, [(0, 0), (0, 0), (0, missing), (0, 0)])
    chunks = [
        dropout(padded[:, :, start : start + QUERY_CHUNK], start // QUERY_CHUNK)
        for start in range(0, num_queries, QUERY_CHUNK)
    ]
    return ops.concatenate(chunks, axis=2)[:, :, :num_queries]


def _by_head(heads):
    """(B, T, 3, N, H) -> three of (B, N, T, H)."""
    return ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)), 3, axis=0)


def _elu_features(queries, keys, real):
    """elu + 1 (arXiv 2006.16236)."""
    return ops.elu(queries) + 1, (ops.elu(keys) + 1) * real


def _softmax_features(queries, keys, real):
    """Queries normalised over the head, keys over the real tokens (arXiv 1812.01243)."""
    masked = ops.cast(keys, "float32") + (1.0 - ops.cast(real, "float32")) * MASKED_SCORE
    return ops.softmax(queries, axis=-1), ops.cast(ops.softmax(masked, axis=1), keys.dtype) * real


FEATURES = {"elu": _elu_features, "softmax": _softmax_features}
