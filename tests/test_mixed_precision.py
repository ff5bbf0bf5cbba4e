"""Whole models under mixed_float16 and mixed_bfloat16 on CPU, against float32."""

import numpy as np
import pytest
import tensorflow as tf

from roformer_zh import Encoder, MaskedLM, PairScorer, SiameseScorer, attention
from roformer_zh.config import ATTENTIONS
from roformer_zh.heads import copy_model
from tests.conftest import T, randomise, tiny_config, tiny_inputs

CASES = [
    *((position, "full") for position in ("rotary", "learned", "relative", "sinusoidal", "none")),
    *((position, "chunked") for position in ("relative", "learned")),
    *(("rotary", kernel) for kernel in ATTENTIONS if kernel not in ("full", "linear")),
    ("rotary", "linear"),
]
TOLERANCES = {"mixed_float16": 0.01, "mixed_bfloat16": 0.08}
"""Largest difference from float32, as a share of the largest output: about 10 roundings of 11 and
of 8 bits."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of 4, so that 7 tokens are two of them."""
    monkeypatch.setattr(attention, "QUERY_CHUNK", 4)


def heads_of(encoder):
    """All heads on one encoder."""
    return [randomise(head(encoder), seed) for seed, head in
            enumerate((MaskedLM, PairScorer, SiameseScorer), 1)]


def mixed_copies(models, policy):
    """The heads in another precision, on one encoder again."""
    first = copy_model(models[0], dtype=policy)
    copies = [first]
    for model in models[1:]:
        other = type(model)(first.encoder)
        other.set_weights(model.get_weights())
        copies.append(other)
    first.set_weights(models[0].get_weights())
    return copies


def outputs_and_gradients(models, inputs):
    """float32 outputs of each head, and the gradients of their squares' sum."""
    without = {name: value for name, value in inputs.items() if name != "mask_positions"}
    with tf.GradientTape() as tape:
        outputs = [models[0](inputs), *(model(without) for model in models[1:])]
        loss = tf.add_n([tf.reduce_mean(output**2) for output in outputs])
    variables = {id(v): v.value for model in models for v in model.trainable_variables}
    gradients = tape.gradient(loss, list(variables.values()))
    return outputs, [np.array(tf.convert_to_tensor(g)) for g in gradients if g is not None]


@pytest.mark.parametrize("position, kernel", CASES)
def test_mixed_models_follow_float32_and_their_gradients_are_finite(position, kernel):
    """With a row that is padding only, too."""
    inputs = tiny_inputs(mask_positions=True)
    inputs["padding_mask"][2] = False
    config = tiny_config(position, attention=kernel, num_layers=1, attention_dropout=0.0)
    encoder = randomise(Encoder(config))
    models = heads_of(encoder)
    exact, exact_gradients = outputs_and_gradients(models, inputs)
    for policy, tolerance in TOLERANCES.items():
        mixed, gradients = outputs_and_gradients(mixed_copies(models, policy), inputs)
        for want, got in zip(exact, mixed, strict=True):
            assert got.dtype == tf.float32
            want, got = np.array(want), np.array(got)
            assert np.isfinite(got).all()
            difference = np.abs(want - got)[:2].max()
            assert 0 < difference < tolerance * np.abs(want).max()
        assert len(gradients) == len(exact_gradients)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
        norms = [np.sqrt(sum((g.astype("float64") ** 2).sum() for g in found))
                 for found in (gradients, exact_gradients)]
        assert abs(norms[0] / norms[1] - 1) < 5 * tolerance


@pytest.mark.parametrize("policy", TOLERANCES)
@pytest.mark.parametrize("kernel", ["full", "chunked", "linear"])
def test_what_padding_holds_changes_nothing_in_half_precision(policy, kernel):
    """-1e9 is -inf in float16; as a bias there it would make NaN of a row of padding."""
    inputs = tiny_inputs()
    inputs["padding_mask"][2] = False
    model = SiameseScorer(Encoder(tiny_config(attention=kernel, num_layers=1), dtype=policy))
    randomise(model)
    before = np.array(model(inputs))
    other = np.where(inputs["padding_mask"], inputs["token_ids"], 29).astype("int32")
    np.testing.assert_array_equal(before, np.array(model({**inputs, "token_ids": other})))
    assert np.isfinite(before).all()
    assert np.abs(before[:2]).max() > 0.1


@pytest.mark.parametrize("policy", TOLERANCES)
def test_far_positions_are_as_exact_as_near_ones(policy):
    """bfloat16 has 8 bits: 2,041 and 2,047 would be one position if angles were made in it."""
    inputs = tiny_inputs()
    exact = randomise(PairScorer(Encoder(tiny_config())))
    mixed = copy_model(exact, dtype=policy)
    scores = []
    for start in (0, 2041):
        ids = start + np.tile(np.arange(T, dtype="int32"), (3, 1))
        near = {**inputs, "position_ids": ids}
        scores.append((np.array(exact(near)), np.array(mixed(near))))
    scale = np.abs(scores[0][0]).max()
    for want, got in scores:
        assert np.abs(want - got).max() < TOLERANCES[policy] * scale
    one = {**inputs, "position_ids": np.full((3, T), 2041, "int32")}
    assert np.abs(np.array(mixed(one)) - scores[1][1]).max() > TOLERANCES[policy] * scale
