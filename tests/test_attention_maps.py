"""Attention probabilities computed anew, against what the layers themselves give."""

import keras
import numpy as np
import pytest
from keras import ops

from roformer_zh import Encoder
from roformer_zh.attention_maps import (
    attention_over_distance,
    attention_probabilities,
    distance_edges,
    layer_probabilities,
)
from tests.conftest import LENGTHS, B, T, V, randomise, tiny_config, tiny_inputs


def scattered_positions():
    """Positions that skip and fall, so that none can be mistaken for the default."""
    return np.random.default_rng(1).integers(0, 9, (B, T), dtype="int32")


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("position", ["rotary", "learned", "relative", "sinusoidal", "none"])
def test_probabilities_times_values_are_the_layers_output(position, given):
    encoder = randomise(Encoder(tiny_config(position)))
    config, layer = encoder.config, encoder.blocks[0].attention
    hidden = np.random.default_rng(2).standard_normal((B, T, 12)).astype("float32")
    mask, ids = tiny_inputs()["padding_mask"], scattered_positions() if given else None
    weights = layer_probabilities(layer, hidden, mask, ids)  # (B, N, T, S)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert (weights * ~mask[:, None, None, :] == 0).all()
    heads = hidden @ np.array(layer.kernel) + np.array(layer.bias)
    values = heads.reshape(B, T, 3, config.num_heads, config.head_dim)[:, :, 2]
    context = np.einsum("bnts,bsnh->btnh", weights, values)
    relative = layer.scheme.relative(ids)
    if relative is not None:
        context = context + np.swapaxes(relative.values(ops.array(weights)), 1, 2)
    located = encoder.positions.locate(ids, T)
    expected = layer(hidden, mask, located, ids)
    np.testing.assert_allclose(layer.output_dense(context.reshape(B, T, 12)), expected, atol=2e-5)


@pytest.mark.parametrize("fields", [{}, {"embedding_dim": 8}, {"position": "learned"}])
def test_every_block_gets_the_hidden_states_of_the_forward_pass(fields, monkeypatch):
    encoder = randomise(Encoder(tiny_config(**fields)))
    inputs = tiny_inputs()
    found = list(attention_probabilities(encoder, inputs))
    seen = []
    for block in encoder.blocks:
        call = block.attention.call

        def record(hidden, *rest, call=call, layer=block.attention, **options):
            seen.append(layer_probabilities(layer, hidden, inputs["padding_mask"]))
            return call(hidden, *rest, **options)

        monkeypatch.setattr(block.attention, "call", record)
    encoder(inputs)
    assert len(found) == len(seen) == 2
    np.testing.assert_allclose(found, seen, atol=1e-5)


def test_a_scaled_position_and_another_wavelength_count():
    plain = Encoder(tiny_config())
    for fields in ({"position_scale": 2.0}, {"max_wavelength": 50.0}):
        other = Encoder(tiny_config(**fields))
        other.set_weights(plain.get_weights())
        first = next(attention_probabilities(plain, tiny_inputs()))
        assert np.abs(first - next(attention_probabilities(other, tiny_inputs()))).max() > 1e-4


def test_linear_attention_has_none():
    encoder = Encoder(tiny_config(attention="linear"))
    with pytest.raises(ValueError, match="need attention='full' or 'chunked'; got 'linear'"):
        next(attention_probabilities(encoder, tiny_inputs()))


def test_profile_by_hand():
    encoder = randomise(Encoder(tiny_config()))
    rng = np.random.default_rng(3)
    texts = [rng.integers(5, V, length).tolist() for length in (*LENGTHS, 12)]
    profile = attention_over_distance(encoder, texts, 12)
    assert profile.edges.tolist() == [0, 1, 2, 3, 5, 9, 12]
    np.testing.assert_allclose(profile.shares.sum(-1), 1, atol=1e-5)
    assert profile.even_shares.sum() == pytest.approx(1)
    pairs, ratio, share, even = 0, 0.0, 0.0, 0.0
    for ids in texts:
        row = np.array([ids])
        inputs = {"token_ids": row, "segment_ids": 0 * row, "padding_mask": row > 0}
        weights = list(attention_probabilities(encoder, inputs))[1][0, 1]
        for query in range(len(ids)):
            for key in range(len(ids)):
                if abs(query - key) in (3, 4):
                    pairs, even = pairs + 1, even + 1 / len(ids)
                    share += weights[query, key]
                    ratio += weights[query, key] * len(ids)
    queries = sum(map(len, texts))
    assert profile.ratios[1, 1, 3] == pytest.approx(ratio / pairs, rel=1e-4)
    assert profile.shares[1, 1, 3] == pytest.approx(share / queries, rel=1e-4)
    assert profile.even_shares[3] == pytest.approx(even / queries)


def test_even_attention_has_the_ratio_one():
    encoder = Encoder(tiny_config())
    for block in encoder.blocks:
        block.attention.kernel.assign(keras.ops.zeros_like(block.attention.kernel))
    profile = attention_over_distance(encoder, [[5, 6, 7, 8, 9], [5, 6, 7]], 5)
    np.testing.assert_allclose(profile.ratios, 1, atol=1e-5)
    np.testing.assert_allclose(profile.shares[0, 0], profile.even_shares, atol=1e-6)


def test_one_token_has_no_distance():
    with pytest.raises(ValueError, match="at least 2 tokens; got 1"):
        distance_edges(1)
