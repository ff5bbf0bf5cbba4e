"""Kernels against each other: the same numbers, gradients and dropped weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from roformer_zh import Encoder, MaskedLM, attention
from roformer_zh.dropout import dropout_seed
from tests.conftest import randomise, tiny_config

CHUNK = 16
LENGTH = 2 * CHUNK + 9
FIELDS = {
    "rotary": {},
    "relative": {"max_relative_position": 20},
    "learned": {"max_sequence_length": LENGTH},
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(attention, "QUERY_CHUNK", CHUNK)


def long_inputs(given_positions):
    """Two rows of `LENGTH` tokens, one of them mostly padding, as tensors."""
    rng = np.random.default_rng(0)
    inputs = {
        "token_ids": rng.integers(5, 31, (2, LENGTH)),
        "segment_ids": rng.integers(0, 2, (2, LENGTH)),
        "padding_mask": np.arange(LENGTH)[None] < np.array([[LENGTH], [19]]),
        "mask_positions": rng.integers(0, 19, (2, 5)),
    }
    if given_positions:
        inputs["position_ids"] = np.stack([np.arange(LENGTH), np.arange(LENGTH)[::-1]])
    return {
        name: tf.constant(value if value.dtype == bool else value.astype("int32"))
        for name, value in inputs.items()
    }


def loss_and_gradients(model, inputs, seed=(5, 1)):
    """In graph mode, as training runs."""

    @tf.function
    def step(inputs, seed):
        with tf.GradientTape() as tape, dropout_seed(seed):
            loss = tf.reduce_sum(model(inputs, training=True) ** 2)
        return loss, tape.gradient(loss, [v.value for v in model.trainable_variables])

    loss, gradients = step(inputs, tf.constant(seed, tf.int32))
    return float(loss), [np.array(tf.convert_to_tensor(g)) for g in gradients]


@pytest.mark.parametrize(
    "position, given_positions",
    [("rotary", False), ("relative", False), ("relative", True), ("learned", True)],
)
def test_chunks_and_recomputation_change_nothing_with_dropout_on(position, given_positions):
    """keras#19003: recomputation drew other dropout masks, so that gradients were wrong."""
    inputs = long_inputs(given_positions)
    results = []
    for kernel, recompute in (("full", False), ("full", True), ("chunked", True)):
        config = tiny_config(
            position, attention=kernel, dropout=0.3, attention_dropout=0.2, num_layers=1
        )
        config = config.replace(**FIELDS[position])
        model = randomise(MaskedLM(Encoder(config)))
        model.encoder.recompute = recompute
        results.append(loss_and_gradients(model, inputs))
    (loss, gradients), *others = results
    for other_loss, other_gradients in others:
        assert abs(other_loss / loss - 1) < 1e-5
        for one, two in zip(gradients, other_gradients, strict=True):
            assert np.abs(one - two).max() <= 1e-5 * max(1.0, np.abs(one).max())
    assert abs(loss_and_gradients(model, inputs, seed=(5, 2))[0] / loss - 1) > 1e-4


@pytest.mark.parametrize("position, given_positions", [("rotary", True), ("learned", False)])
def test_the_fused_kernel_is_the_full_one(position, given_positions):
    inputs = long_inputs(given_positions)
    results = []
    for kernel in ("full", "fused"):
        config = tiny_config(position, attention=kernel, dropout=0.3, attention_dropout=0.0)
        config = config.replace(num_layers=1, rotary_value=position == "rotary", **FIELDS[position])
        results.append(loss_and_gradients(randomise(MaskedLM(Encoder(config))), inputs))
    (loss, gradients), (other_loss, other_gradients) = results
    assert abs(other_loss / loss - 1) < 1e-5
    for one, two in zip(gradients, other_gradients, strict=True):
        assert np.abs(one - two).max() <= 1e-5 * max(1.0, np.abs(one).max())


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(position="relative", attention_dropout=0.0), "attention must be full or chunked"),
        (dict(), "attention_dropout must be 0 with fused attention"),
    ],
)
def test_what_the_fused_kernel_cannot_do_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(attention="fused", **fields)


def test_every_gradient_is_there():
    """A closure over a mapped chunk silently got gradients of zero on TensorFlow."""
    config = tiny_config(attention="chunked", dropout=0.0, attention_dropout=0.0)
    model = randomise(MaskedLM(Encoder(config)))
    _, gradients = loss_and_gradients(model, long_inputs(False))
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_a_dropped_chunk_is_drawn_by_its_number():
    class Numbered:
        def keep(self, shape, part=0):
            return np.full(shape, part)

    mask = attention._keep_by_chunk(Numbered(), (1, 1, CHUNK + 3, 4))
    assert np.array(mask)[0, 0, :, 0].tolist() == [0] * CHUNK + [1] * 3


def test_chunked_attention_needs_a_static_length():
    inputs = {
        name: keras.Input((None,), dtype=dtype)
        for name, dtype in (
            ("token_ids", "int32"),
            ("segment_ids", "int32"),
            ("padding_mask", "bool"),
        )
    }
    with pytest.raises(ValueError, match="static sequence length"):
        Encoder(tiny_config(attention="chunked"))(inputs)
