"""The encoder that BERT, WoBERT, NEZHA and RoFormer are presets of."""

import keras
from keras import ops

from roformer_zh import gradients
from roformer_zh.attention import SelfAttention, initializer
from roformer_zh.config import EncoderConfig
from roformer_zh.dropout import Dropout, current_seed, dropout_seed
from roformer_zh.positions import SCHEMES
from roformer_zh.whole_model import WholeModel

REQUIRED_INPUTS = ("token_ids", "segment_ids", "padding_mask")
OPTIONAL_INPUTS = ("position_ids",)


@keras.saving.register_keras_serializable("roformer_zh")
class EncoderBlock(keras.layers.Layer):
    """Attention and feed-forward layer, each with dropout, a residual and a LayerNorm behind it.

    Args:
        config: an `EncoderConfig`.
        index: the block's number, from 0; its dropout masks depend on it.
    """

    def __init__(self, config, index=0, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.config, self.index = config, index
        dtype = self.dtype_policy
        self.attention = SelfAttention(config, salt=3 * index + 1, dtype=dtype, name="attention")
        self.attention_norm = layer_norm(config, dtype, "attention_norm")
        self.intermediate_dense = dense(config, config.intermediate_dim, dtype, "intermediate")
        self.output_dense = dense(config, config.hidden_dim, dtype, "output")
        self.output_norm = layer_norm(config, dtype, "output_norm")
        self.dropouts = [
            Dropout(config.dropout, 3 * index + salt, dtype=dtype, name=f"dropout_{salt}")
            for salt in (2, 3)
        ]

    def build(self, input_shape=None):
        shape = (None, None, self.config.hidden_dim)
        for layer in (
            self.attention,
            self.attention_norm,
            self.intermediate_dense,
            self.output_norm,
        ):
            layer.build(shape)
        self.output_dense.build((None, None, self.config.intermediate_dim))
        self.built = True

    def call(self, hidden, padding_mask, located=None, position_ids=None, training=False):
        attended = self.attention(hidden, padding_mask, located, position_ids, training=training)
        hidden = hidden + self.dropouts[0](attended, training=training)
        hidden = self.attention_norm(hidden, training=training)
        inner = activate(self.intermediate_dense(hidden), self.config.activation, training)
        inner = self.dropouts[1](self.output_dense(inner), training=training)
        return self.output_norm(hidden + inner, training=training)


@keras.saving.register_keras_serializable("roformer_zh")
class Encoder(WholeModel):
    """Post-LayerNorm Transformer encoder; its weights exist once it is constructed.

    Args:
        config: an `EncoderConfig`.
        **kwargs: `name`, `dtype` (a Keras dtype policy).

    Call arguments:
        inputs: dict of integer `token_ids` and `segment_ids` (B, T), `padding_mask` (B, T), True
            for a real token, and optionally `position_ids` (B, T), 0 .. T - 1 by default.

    Returns:
        Hidden states of shape (B, T, hidden_dim). Rows at padded positions are finite and
        meaningless.

    Raises:
        ValueError: a key is missing or unknown, ids are no integers, or the sequence is longer
            than a learned position table.

    `recompute = True` keeps only each block's input for the backward pass and computes the rest
    again: less memory for about a third more time, with equal gradients.

    Source: arXiv 2104.09864 and the released Chinese RoFormer.
    """

    def __init__(self, config, **kwargs):
        kwargs.setdefault("name", "encoder")
        super().__init__(**kwargs)
        self.config = (
            config if isinstance(config, EncoderConfig) else EncoderConfig.from_dict(config)
        )
        self.recompute = False
        config, dtype = self.config, self.dtype_policy
        self.token_embedding = embedding(config, config.vocabulary_size, dtype, "token_embedding")
        self.segment_embedding = embedding(config, config.num_segments, dtype, "segment_embedding")
        self.positions = SCHEMES[config.position](config, dtype=dtype, name="position_embedding")
        self.embedding_norm = layer_norm(config, dtype, "embedding_norm")
        self.embedding_dropout = Dropout(config.dropout, 0, dtype=dtype, name="embedding_dropout")
        self.projection = None
        if config.embedding_dim != config.hidden_dim:
            self.projection = dense(config, config.hidden_dim, dtype, "embedding_projection")
        self.blocks = [
            EncoderBlock(config, index, dtype=dtype, name=f"block_{index}")
            for index in range(config.num_layers)
        ]
        self.pooler_dense = (
            dense(config, config.hidden_dim, dtype, "pooler") if config.pooler else None
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        config = self.config
        for layer in (self.token_embedding, self.segment_embedding, self.positions):
            layer.build((None, None))
        self.embedding_norm.build((None, None, config.embedding_dim))
        if self.projection is not None:
            self.projection.build((None, None, config.embedding_dim))
        for block in self.blocks:
            block.build((None, None, config.hidden_dim))
        if self.pooler_dense is not None:
            self.pooler_dense.build((None, config.hidden_dim))
        self.built = True

    def call(self, inputs, training=False):
        token_ids, segment_ids, padding_mask, position_ids = check_inputs(inputs)
        hidden = self.embed(token_ids, segment_ids, position_ids, training=training)
        located = self.positions.locate(position_ids, ops.shape(token_ids)[1])
        for block in self.blocks:
            hidden = self._run(block, hidden, padding_mask, located, position_ids, training)
        return hidden

    def embed(self, token_ids, segment_ids, position_ids=None, training=False):
        """What the first block reads: (B, T), (B, T), (B or 1, T) or None -> (B, T, hidden_dim)."""
        hidden = self.token_embedding(token_ids) + self.segment_embedding(segment_ids)
        positions = self.positions.embed(position_ids, ops.shape(token_ids)[1])
        if positions is not None:
            hidden = hidden + ops.cast(positions, hidden.dtype)
        hidden = self.embedding_norm(hidden, training=training)
        hidden = self.embedding_dropout(hidden, training=training)
        return hidden if self.projection is None else self.projection(hidden)

    def pooled(self, hidden):
        """BERT's pooler: tanh of a dense layer over [CLS], (B, T, D) -> (B, D)."""
        if self.pooler_dense is None:
            raise ValueError("this encoder has no pooler; use pooling 'mean' or 'cls'")
        return ops.tanh(self.pooler_dense(hidden[:, 0]))

    def _run(self, block, hidden, padding_mask, located, position_ids, training):
        """One block, recomputed in the backward pass if asked for."""
        seed = current_seed()

        def run(hidden):
            with dropout_seed(seed):
                return block(hidden, padding_mask, located, position_ids, training=training)

        return keras.remat(run)(hidden) if self.recompute and training else run(hidden)

    def get_config(self):
        return {**_name_and_dtype(self), "config": self.config.to_dict()}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def check_inputs(inputs, also=()):
    """The encoder's tensors in order, `position_ids` None if absent; wrong keys or dtypes raise.

    Args:
        inputs: dict of tensors.
        also: further keys that the calling head reads.
    """
    known = (*REQUIRED_INPUTS, *OPTIONAL_INPUTS, *also)
    names = set(inputs) if isinstance(inputs, dict) else set()
    if not {*REQUIRED_INPUTS, *also} <= names <= set(known):
        raise ValueError(
            f"inputs must be a dict with the keys {', '.join((*REQUIRED_INPUTS, *also))} and, if "
            f"wanted, {', '.join(OPTIONAL_INPUTS)}; got {sorted(names) if names else type(inputs)}"
        )
    for name in ("token_ids", "segment_ids", *OPTIONAL_INPUTS, *also):
        dtype = keras.backend.standardize_dtype(inputs[name].dtype) if name in inputs else "int"
        if "int" not in dtype:
            raise ValueError(f"{name} must hold integers; got dtype {dtype}")
    return tuple(inputs.get(name) for name in (*REQUIRED_INPUTS, *OPTIONAL_INPUTS))


def activate(x, name, training=False):
    """gelu is the exact one, x * Phi(x); in training with the gradient that keeps less."""
    if name == "gelu":
        return gradients.gelu(x) if training else x * gradients.normal_distribution(x)
    return ops.gelu(x, approximate=True) if name == "gelu_tanh" else ops.relu(x)


def dense(config, width, dtype, name):
    """A Dense layer with the config's initial kernel."""
    return keras.layers.Dense(width, kernel_initializer=initializer(config), dtype=dtype, name=name)


def embedding(config, rows, dtype, name):
    """An embedding table with the config's initial values."""
    return keras.layers.Embedding(
        rows,
        config.embedding_dim,
        embeddings_initializer=initializer(config),
        dtype=dtype,
        name=name,
    )


@keras.saving.register_keras_serializable("roformer_zh")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras' own, in float32; in training with the gradient that keeps less.

    A `.keras` file names a layer after its class: under another name older files would not load.
    """

    def call(self, inputs, training=False):
        if not training:
            return super().call(inputs)
        arrays = (ops.cast(x, "float32") for x in (inputs, self.gamma, self.beta))
        return ops.cast(gradients.layer_norm(*arrays, self.epsilon), self.compute_dtype)


def layer_norm(config, dtype, name):
    """A LayerNorm with the config's epsilon."""
    return LayerNormalization(epsilon=config.layer_norm_epsilon, dtype=dtype, name=name)


def _name_and_dtype(model):
    """The arguments that every model's config starts with."""
    return {"name": model.name, "dtype": keras.dtype_policies.serialize(model.dtype_policy)}
