"""Gradients that are written out are those of the plain formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from roformer_zh import gradients

RNG = np.random.default_rng(0)
IDS = tf.constant([[1, 6, 0], [3, 3, 2]])


def array(*shape, scale=1.0):
    return tf.constant(scale * RNG.normal(size=shape), tf.float32)


def plain_layer_norm(x, gamma, beta):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return gamma * (x - mean) / tf.sqrt(variance + 1e-6) + beta


CASES = {
    "times_table": (
        gradients.times_table,
        lambda x, table: tf.einsum("bpe,ve->bpv", x, table),
        (array(2, 3, 5), array(7, 5)),
    ),
    "gelu": (gradients.gelu, lambda x: tf.nn.gelu(x), (array(2, 3, 5, scale=3.0),)),
    "layer_norm": (
        lambda x, gamma, beta: gradients.layer_norm(x, gamma, beta, 1e-6),
        plain_layer_norm,
        (array(2, 3, 5), array(5), array(5)),
    ),
    "cross_entropy": (
        lambda logits: gradients.cross_entropy(IDS, logits),
        lambda logits: tf.nn.sparse_softmax_cross_entropy_with_logits(IDS, logits),
        (array(2, 3, 7, scale=30.0),),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit", [False, True])
def test_value_and_gradient_are_the_plain_ones(name, jit):
    *functions, tensors = CASES[name]
    upstream = array(*functions[1](*tensors).shape)

    def run(function):
        @tf.function(jit_compile=jit)
        def step(*tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                value = function(*tensors)
            return value, *tape.gradient(value, tensors, output_gradients=upstream)

        return step(*tensors)

    for one, two in zip(run(functions[0]), run(functions[1]), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_half_precision_and_recomputation():
    """A large float16 input gives no NaN; a recomputed gradient is the same."""
    x = tf.constant([[-300.0, 300.0, 0.5]], tf.float16)
    results = []
    for function in (gradients.gelu, keras.remat(gradients.gelu)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        results.append(np.array(tape.gradient(value, x)))
    np.testing.assert_allclose(results[0], [[0.0, 1.0, 0.8677]], atol=2e-3)
    assert (results[0] == results[1]).all()
