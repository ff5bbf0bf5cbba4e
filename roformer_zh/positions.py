"""Position schemes: where a token's position enters the encoder. Each is one small class.

A scheme may add vectors to the embeddings (`embed`), rotate queries and keys (`locate`, `rotate`),
or add relative vectors to keys and values (`relative`). What a scheme does not do stays the
identity of `NoPositions`.
"""

import copy

import keras
import numpy as np
from keras import ops

from roformer_zh.rotary import join_pairs, rotary_angles, rotate


class NoPositions(keras.layers.Layer):
    """No position information: the encoder sees a bag of tokens. Base of the other schemes."""

    splits_pairs = False
    """Whether queries and keys arrive with their pairs split (see `rotary.split_pairs`)."""

    def __init__(self, config, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.config = config

    def build(self, input_shape=None):
        self.built = True

    def embed(self, position_ids, length):
        """Vectors added to the embeddings, (B or 1, T, E), or None."""
        return None

    def locate(self, position_ids, length):
        """What every block needs of the positions, computed once a forward pass."""
        return None

    def rotate(self, queries, keys, values, located):
        """The three with the positions applied; each is (B, T, N, H)."""
        return queries, keys, values

    def unrotate(self, context, located):
        """The attention's output (B, T, N, H) with what `rotate` did to the values undone."""
        return context

    def relative(self, position_ids):
        """A `RelativeVectors` that the attention kernel applies, or None."""
        return None


class Rotary(NoPositions):
    """Queries and keys turned by their position's angles (arXiv 2104.09864, section 3.2)."""

    splits_pairs = True

    def locate(self, position_ids, length):
        config = self.config
        angles = rotary_angles(
            _given_or_range(position_ids, length),
            config.head_dim,
            config.max_wavelength,
            config.position_scale,
        )
        angles = angles[:, :, None]  # (B or 1, T, 1, H / 2)
        return ops.cast(ops.cos(angles), self.compute_dtype), ops.cast(
            ops.sin(angles), self.compute_dtype
        )

    def rotate(self, queries, keys, values, located):
        if self.config.rotary_value:
            values = rotate(values, *located)
        return rotate(queries, *located), rotate(keys, *located), values

    def unrotate(self, context, located):
        return join_pairs(context) if self.config.rotary_value else context


class Learned(NoPositions):
    """A trained table of absolute positions, as in BERT."""

    def build(self, input_shape=None):
        config = self.config
        self.embeddings = self.add_weight(
            shape=(config.max_sequence_length, config.embedding_dim),
            name="embeddings",
            initializer=keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        )
        self.built = True

    def embed(self, position_ids, length):
        rows = self.config.max_sequence_length
        if isinstance(length, int) and position_ids is None and length > rows:
            raise ValueError(
                f"a sequence must have at most {rows} tokens, the rows of this model's position "
                f"table; got {length}; cut the text, use a model without a table (roformer, "
                "nezha), or extend this one with "
                "`python -m roformer_zh.checkpoints import --extend-positions`"
            )
        if position_ids is None:
            return self.embeddings[:length][None]
        return ops.take(self.embeddings, position_ids, axis=0)


class Sinusoidal(NoPositions):
    """Fixed sines and cosines added to the embeddings (arXiv 1706.03762, section 3.5)."""

    def embed(self, position_ids, length):
        ids = _given_or_range(position_ids, length)
        angles = rotary_angles(ids, self.config.embedding_dim, self.config.max_wavelength)
        return join_pairs(ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1))


class Relative(NoPositions):
    """NEZHA's fixed relative vectors on keys and values (arXiv 1909.00204, section 2.1)."""

    def relative(self, position_ids):
        return RelativeVectors(self.config, position_ids, self.compute_dtype)


class RelativeVectors:
    """Applies the vectors a(s - t) of clipped distances without a (T, S, head_dim) tensor.

    Row r of the table, 0 <= r <= 2 m, belongs to distance r - m and holds sin and cos of r, not of
    the distance, as NEZHA's released code has it. With default positions the products of a query
    with all distances are one matrix product and a skewed reshape; with given positions they are
    gathered.

    Args:
        config: an `EncoderConfig` with `max_relative_position` m.
        position_ids: (B or 1, T) integers, or None for 0 .. T - 1.
        dtype: dtype of the products.
    """

    def __init__(self, config, position_ids, dtype):
        self.reach = config.max_relative_position
        self.query_ids = self.key_ids = position_ids
        self.dtype, self.first_query = dtype, 0
        angles = np.outer(
            np.arange(2 * self.reach + 1),
            10000.0 ** (-np.arange(0, config.head_dim, 2) / config.head_dim),
        )
        table = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        self.table = table.reshape(len(table), config.head_dim).astype("float32")

    def part(self, first_query, query_ids):
        """The same for a part of the queries: from `first_query` on, or at `query_ids`."""
        part = copy.copy(self)
        part.first_query, part.query_ids = first_query, query_ids
        return part

    def scores(self, queries, num_keys):
        """q_t . a(s - t): (B, N, T, H) -> (B, N, T, S)."""
        if self.key_ids is not None:
            table = ops.cast(ops.transpose(self.table), self.dtype)
            buckets = ops.matmul(queries, table)  # (B, N, T, 2m + 1)
            batch, heads, length, _ = ops.shape(queries)
            rows = ops.broadcast_to(self._buckets(), (batch, heads, length, num_keys))
            return ops.take_along_axis(buckets, rows, axis=-1)
        num_queries = ops.shape(queries)[2]
        wide = ops.matmul(queries, ops.transpose(self._distances(num_queries, num_keys)))
        return _skew(wide, num_queries, num_keys)

    def values(self, weights):
        """sum_s p_ts a(s - t): (B, N, T, S) -> (B, N, T, H)."""
        batch, heads, num_queries, num_keys = ops.shape(weights)
        if self.key_ids is not None:
            size = 2 * self.reach + 1
            rows = ops.reshape(
                ops.arange(batch * heads * num_queries), (batch, heads, num_queries, 1)
            )
            segments = ops.reshape(rows * size + self._buckets(), (-1,))
            sums = ops.segment_sum(
                ops.reshape(weights, (-1,)), segments, batch * heads * num_queries * size
            )
            sums = ops.reshape(sums, (batch, heads, num_queries, size))
            return ops.matmul(sums, ops.cast(self.table, self.dtype))
        return ops.matmul(_unskew(weights), self._distances(num_queries, num_keys))

    def _buckets(self):
        """Table rows of all pairs of given positions: (B or 1, 1, T, S)."""
        query_ids, key_ids = ops.cast(self.query_ids, "int32"), ops.cast(self.key_ids, "int32")
        distances = key_ids[:, None, None, :] - query_ids[:, None, :, None]
        return ops.clip(distances, -self.reach, self.reach) + self.reach

    def _distances(self, num_queries, num_keys):
        """The vectors of distances 1 - T .. S, shifted by the first query: (T + S, H)."""
        distances = ops.arange(num_queries + num_keys) - (num_queries - 1) - self.first_query
        rows = ops.clip(distances, -self.reach, self.reach) + self.reach
        return ops.cast(ops.take(self.table, rows, axis=0), self.dtype)


def _skew(wide, num_queries, num_keys):
    """Picks column s - t + T - 1, distance s - t, of row t: (.., T, T + S) -> (.., T, S)."""
    lead = ops.shape(wide)[:2]
    width = num_queries + num_keys
    flat = ops.reshape(wide, (*lead, num_queries * width))
    flat = flat[:, :, num_queries - 1 : num_queries - 1 + num_queries * (width - 1)]
    return ops.reshape(flat, (*lead, num_queries, width - 1))[..., :num_keys]


def _unskew(scores):
    """The transpose of `_skew`: (.., T, S) -> (.., T, T + S) with zeros where no key lies."""
    batch, heads, num_queries, num_keys = ops.shape(scores)
    width = num_queries + num_keys
    rows = ops.pad(scores, [(0, 0), (0, 0), (0, 0), (0, num_queries - 1)])  # width - 1 columns
    flat = ops.reshape(rows, (batch, heads, num_queries * (width - 1)))
    flat = ops.pad(flat, [(0, 0), (0, 0), (num_queries - 1, 1)])
    return ops.reshape(flat, (batch, heads, num_queries, width))


def _given_or_range(position_ids, length):
    """`position_ids`, or (1, T) positions from 0."""
    return ops.arange(length)[None] if position_ids is None else position_ids


SCHEMES = {
    "rotary": Rotary,
    "learned": Learned,
    "relative": Relative,
    "sinusoidal": Sinusoidal,
    "none": NoPositions,
}
