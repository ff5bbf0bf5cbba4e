"""What stands on the encoder: MaskedLM, PairScorer, SiameseScorer; importing it registers them."""

import math
import zipfile
from pathlib import Path

import keras
from keras import ops

from roformer_zh import gradients
from roformer_zh.encoder import Encoder, activate, check_inputs, dense, layer_norm
from roformer_zh.whole_model import WholeModel

POOLINGS = ("mean", "cls", "pooler")


class _Head(WholeModel):
    """A model over one encoder; saves the encoder's config and rebuilds it."""

    def __init__(self, encoder, **kwargs):
        kwargs.setdefault("dtype", encoder.dtype_policy)
        super().__init__(**kwargs)
        self.encoder = encoder

    def get_config(self):
        return {
            "name": self.name,
            "encoder": self.encoder.get_config(),
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config):
        encoder = Encoder.from_config({**config["encoder"], "dtype": config["dtype"]})
        return cls(**{**config, "encoder": encoder})


@keras.saving.register_keras_serializable("roformer_zh")
class MaskedLM(_Head):
    """Predicts the tokens at masked positions; the decoder is the token table, plus a bias.

    Args:
        encoder: an `Encoder`.

    Call arguments:
        inputs: the encoder's dict and `mask_positions`, integers (B, P) below T.

    Returns:
        float32 logits of shape (B, P, vocabulary_size).

    Example:
        >>> from roformer_zh import Encoder, EncoderConfig
        >>> config = EncoderConfig.preset("roformer_tiny", vocabulary_size=31)
        >>> ids = ops.ones((3, 7), dtype="int32")
        >>> logits = MaskedLM(Encoder(config))({
        ...     "token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0,
        ...     "mask_positions": ops.zeros((3, 2), dtype="int32")})
        >>> tuple(logits.shape)
        (3, 2, 31)
    """

    def __init__(self, encoder, name="masked_lm", **kwargs):
        super().__init__(encoder, name=name, **kwargs)
        config = encoder.config
        self.transform = dense(config, config.embedding_dim, self.dtype_policy, "transform")
        self.transform_norm = layer_norm(config, self.dtype_policy, "transform_norm")
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        config = self.encoder.config
        self.transform.build((None, None, config.hidden_dim))
        self.transform_norm.build((None, None, config.embedding_dim))
        self.output_bias = self.add_weight(
            shape=(config.vocabulary_size,), name="output_bias", initializer="zeros"
        )
        self.built = True

    def call(self, inputs, training=False):
        check_inputs(inputs, also=("mask_positions",))
        hidden = self.encoder(encoder_inputs(inputs), training=training)
        batch, length, width = ops.shape(hidden)
        positions = ops.cast(inputs["mask_positions"], "int32")
        rows = positions + ops.arange(batch, dtype="int32")[:, None] * length
        masked = ops.take(ops.reshape(hidden, (-1, width)), rows, axis=0)  # (B, P, D)
        activation = self.encoder.config.activation
        transformed = activate(self.transform(masked), activation, training)
        transformed = self.transform_norm(transformed, training=training)
        table = ops.cast(self.encoder.token_embedding.embeddings, transformed.dtype)
        product = gradients.times_table if training else _times_table
        logits = ops.cast(product(transformed, table), "float32")
        return ops.add(logits, ops.cast(self.output_bias, "float32"))


@keras.saving.register_keras_serializable("roformer_zh")
class PairScorer(_Head):
    """Scores two texts that lie in one sequence, [CLS] a [SEP] b [SEP]: the paper's way.

    Args:
        encoder: an `Encoder`.
        pooling: "mean" over real tokens ([CLS] and [SEP] among them), "cls", or "pooler".

    Call arguments:
        inputs: the encoder's dict.

    Returns:
        float32 logit of shape (B, 1); higher is closer.
    """

    def __init__(self, encoder, pooling="mean", name="pair_scorer", **kwargs):
        super().__init__(encoder, name=name, **kwargs)
        self.pooling = check_pooling(pooling, encoder)
        self.score = dense(encoder.config, 1, "float32", "score")
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            self.score.build((None, self.encoder.config.hidden_dim))
            self.built = True

    def call(self, inputs, training=False):
        hidden = self.encoder(inputs, training=training)
        return self.score(pool(self.encoder, hidden, inputs["padding_mask"], self.pooling))

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling}


@keras.saving.register_keras_serializable("roformer_zh")
class SiameseScorer(_Head):
    """Turns each text into a unit vector; the score of two texts is their scaled cosine.

    Args:
        encoder: an `Encoder`.
        pooling: "mean" over real tokens ([CLS] and [SEP] among them), "cls", or "pooler".
        projection: whether a dense layer, the identity at first, stands between pooling and unit
            length; `tasks.cail2019_scm.whitening` sets it so that directions count alike.

    Call arguments:
        inputs: the encoder's dict, one text a sequence.

    Returns:
        float32 unit vectors of shape (B, hidden_dim), the same as `encode`.
    """

    def __init__(
        self, encoder, pooling="mean", projection=False, name="siamese_scorer", **kwargs
    ):
        super().__init__(encoder, name=name, **kwargs)
        self.pooling = check_pooling(pooling, encoder)
        self.projection = None
        if projection:
            width = encoder.config.hidden_dim
            self.projection = keras.layers.Dense(
                width, kernel_initializer="identity", dtype="float32", name="projection"
            )
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            if self.projection is not None:
                self.projection.build((None, self.encoder.config.hidden_dim))
            self.log_scale = self.add_weight(
                shape=(), name="log_scale", initializer=keras.initializers.Constant(math.log(20.0))
            )
            self.built = True

    def call(self, inputs, training=False):
        hidden = self.encoder(inputs, training=training)
        pooled = pool(self.encoder, hidden, inputs["padding_mask"], self.pooling)
        return unit(pooled if self.projection is None else self.projection(pooled))

    def encode(self, inputs):
        """Unit vectors (B, hidden_dim) of the texts in `inputs`."""
        return self(inputs)

    def similarity(self, first, second):
        """The score of unit vectors (B, hidden_dim): exp(log_scale) times their cosine, (B,)."""
        return ops.exp(self.log_scale) * ops.sum(first * second, axis=-1)

    def get_config(self):
        options = {"pooling": self.pooling, "projection": self.projection is not None}
        return {**super().get_config(), **options}


def _times_table(x, table):
    """x times the transposed table, as exports hold it."""
    return ops.matmul(x, ops.transpose(table))


def encoder_inputs(inputs):
    """The entries of `inputs` that the encoder reads."""
    return {name: value for name, value in inputs.items() if name != "mask_positions"}


def check_pooling(pooling, encoder):
    """`pooling` if the encoder can do it, else an error."""
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}")
    if pooling == "pooler" and not encoder.config.pooler:
        raise ValueError(
            "pooling='pooler' needs a model with a pooler; this one has none: use 'mean' or 'cls'"
        )
    return pooling


def pool(encoder, hidden, padding_mask, pooling):
    """One float32 vector a sequence, (B, T, D) -> (B, D); the mean of padding only is zero."""
    if pooling == "pooler":
        return ops.cast(encoder.pooled(hidden), "float32")
    hidden = ops.cast(hidden, "float32")
    if pooling == "cls":
        return hidden[:, 0]
    real = ops.cast(padding_mask, "float32")[..., None]  # (B, T, 1)
    return ops.sum(hidden * real, axis=1) / ops.maximum(ops.sum(real, axis=1), 1.0)


def unit(vectors):
    """Vectors divided by their length; the zero vector stays zero."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))


def load_model(path, dtype=None):
    """Loads a `.keras` file, or the one in a run folder.

    Args:
        path: a `.keras` file, or a folder that holds `model.keras`.
        dtype: a Keras dtype policy, such as "float32"; None keeps the saved one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is no Keras model.
    """
    path = Path(path)
    path = path / "model.keras" if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(
            f"no model at {path}; give a .keras file or a run folder that holds model.keras"
        )
    try:
        model = keras.saving.load_model(path, compile=False)
    except (ValueError, TypeError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no whole .keras file of this library: {error}") from error
    if dtype is None or keras.dtype_policies.get(dtype) == model.dtype_policy:
        return model
    return copy_model(model, dtype=dtype)


def copy_model(model, dtype="float32", **fields):
    """A model of the same class and weights, free of any distribution strategy.

    Args:
        model: an `Encoder`, or a head on one.
        dtype: its Keras dtype policy.
        **fields: fields of its `EncoderConfig` to change, such as dropout=0.0.
    """
    config = {**model.get_config(), "dtype": dtype}
    inner = config if isinstance(model, Encoder) else {**config["encoder"]}
    inner["config"] = {**inner["config"], **fields}
    if inner is not config:
        config["encoder"] = inner
    other = type(model).from_config(config)
    other.set_weights(model.get_weights())
    return other
