"""The encoder against the reference, and what must never change its result."""

import keras
import numpy as np
import pytest
from keras import ops

from roformer_zh import Encoder, MaskedLM, PairScorer, SiameseScorer
from roformer_zh.config import POSITIONS
from tests import reference
from tests.conftest import LENGTHS, T, randomise, tiny_config, tiny_inputs

VARIANTS = [
    *(dict(position=position) for position in POSITIONS),
    dict(position="rotary", rotary_value=True),
    dict(position="rotary", position_scale=2.0),
    dict(position="rotary", max_wavelength=50.0),
    dict(position="rotary", embedding_dim=8),
    dict(position="learned", embedding_dim=8),
    dict(position="sinusoidal", embedding_dim=6),
    dict(position="rotary", attention="linear"),
    dict(position="rotary", attention="linear", feature_map="softmax", rotary_value=True),
    dict(position="none", attention="linear", feature_map="softmax"),
]


def arrays(encoder):
    """Variable path below the encoder -> float64 array."""
    return {v.path.split("/", 1)[1]: np.array(v, "float64") for v in encoder.variables}


def expected(encoder, inputs, row, positions=None):
    return reference.encode(
        arrays(encoder),
        encoder.config,
        inputs["token_ids"][row],
        inputs["segment_ids"][row],
        inputs["padding_mask"][row],
        positions,
    )


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_hidden_states_equal_the_equations(fields, inputs):
    encoder = randomise(Encoder(tiny_config(**fields)))
    hidden = np.array(encoder(inputs))
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(
            hidden[row, :length], expected(encoder, inputs, row)[:length], atol=2e-5
        )


@pytest.mark.parametrize("position", POSITIONS)
def test_given_positions_equal_the_equations(position, inputs):
    encoder = randomise(Encoder(tiny_config(position)))
    ids = np.array([[3, 1, 0, 8, 4, 4, 2]] * 3, "int32")
    hidden = np.array(encoder({**inputs, "position_ids": ids}))
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(
            hidden[row, :length], expected(encoder, inputs, row, ids[row])[:length], atol=2e-5
        )


@pytest.mark.parametrize("position", ["rotary", "relative", "learned"])
def test_left_padding_with_position_ids_equals_right_padding(position):
    """bert4keras commit 1fae360, transformers#22161: given positions were ignored."""
    encoder = randomise(Encoder(tiny_config(position)))
    zeros = np.zeros((1, 5), "int32")
    right = {
        "token_ids": np.array([[5, 6, 7, 0, 0]], "int32"),
        "segment_ids": zeros,
        "padding_mask": np.array([[1, 1, 1, 0, 0]], bool),
    }
    left = {
        "token_ids": np.array([[0, 0, 5, 6, 7]], "int32"),
        "segment_ids": zeros,
        "padding_mask": np.array([[0, 0, 1, 1, 1]], bool),
        "position_ids": np.array([[0, 0, 0, 1, 2]], "int32"),
    }
    np.testing.assert_allclose(
        np.array(encoder(right))[:, :3], np.array(encoder(left))[:, 2:], atol=1e-5
    )


@pytest.mark.parametrize(
    "position, attention",
    [*((position, "full") for position in POSITIONS), ("rotary", "linear"), ("none", "linear")],
)
def test_padding_never_changes_a_result(position, attention, inputs):
    """keras-bert#34, keras#18543: more padding changed pooled vectors."""
    fields = {"max_sequence_length": 67} if position == "learned" else {}
    encoder = randomise(Encoder(tiny_config(position, attention=attention, **fields)))
    extra = {"token_ids": 4, "segment_ids": 1, "padding_mask": False}
    padded = {k: np.pad(v, [(0, 0), (0, 60)], constant_values=extra[k]) for k, v in inputs.items()}
    for head in (PairScorer(encoder), SiameseScorer(encoder)):
        randomise(head)
        np.testing.assert_allclose(np.array(head(inputs)), np.array(head(padded)), atol=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("position", ["rotary", "relative"])
def test_a_row_of_padding_and_a_constant_vector_stay_finite(position, policy, inputs):
    """keras-hub#642: float16(1e-12) is 0, so a constant vector gave 0 / 0."""
    encoder = Encoder(tiny_config(position), dtype=policy)
    encoder.token_embedding.embeddings.assign(ops.ones_like(encoder.token_embedding.embeddings))
    encoder.segment_embedding.embeddings.assign(ops.ones_like(encoder.segment_embedding.embeddings))
    inputs["padding_mask"][1] = False
    for head in (PairScorer(encoder), SiameseScorer(encoder)):
        assert np.isfinite(np.array(head(inputs), "float32")).all()


def test_a_row_does_not_depend_on_the_others(inputs):
    encoder = randomise(Encoder(tiny_config()))
    alone = encoder({name: value[1:2] for name, value in inputs.items()})
    np.testing.assert_allclose(np.array(encoder(inputs))[1], np.array(alone)[0], atol=1e-5)


def test_order_of_tokens_matters_unless_there_are_no_positions(inputs):
    """open_lm#4 rotated over heads instead of time."""
    swapped = {name: value[:, [0, 2, 1, *range(3, T)]] for name, value in inputs.items()}
    for position in POSITIONS:
        encoder = randomise(Encoder(tiny_config(position)))
        first, second = np.array(encoder(inputs))[0, 0], np.array(encoder(swapped))[0, 0]
        assert (np.abs(first - second).max() < 1e-5) == (position == "none")


def test_layer_norm_epsilon_is_the_config_s(inputs):
    """keras-hub#728: a default epsilon of 1e-3 shrinks small embeddings."""
    encoder = Encoder(tiny_config())
    x = 1e-3 * np.random.default_rng(0).standard_normal((1, 1, 12)).astype("float32")
    assert abs(np.array(encoder.embedding_norm(x)).std() - 1) < 1e-3


@pytest.mark.parametrize("name, value", [("gelu", -0.04550026), ("gelu_tanh", -0.04540231)])
def test_gelu_is_the_one_that_is_asked_for(name, value):
    from roformer_zh.encoder import activate

    assert abs(float(activate(ops.array(-2.0), name)) - value) < 1e-6


def test_a_learned_table_refuses_longer_input_and_rotary_takes_it():
    inputs = {name: np.pad(value, [(0, 0), (0, 3)]) for name, value in tiny_inputs().items()}
    with pytest.raises(ValueError, match=r"at most 9 tokens.*got 10.*roformer"):
        Encoder(tiny_config("learned"))(inputs)
    assert Encoder(tiny_config())(inputs).shape == (3, 10, 12)
    lengths = [s for v in Encoder(tiny_config()).variables for s in v.shape]
    assert 1536 not in lengths and 512 not in lengths


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"token_ids": np.ones((3, 7), "float32")},
            "token_ids must hold integers; got dtype float32",
        ),
        ({"padding": np.ones((3, 7))}, "inputs must be a dict with the keys token_ids"),
    ],
)
def test_wrong_inputs_are_named(inputs, change, message):
    with pytest.raises(ValueError, match=message):
        Encoder(tiny_config())({**inputs, **change})


def test_missing_padding_mask_is_an_error(inputs):
    del inputs["padding_mask"]
    with pytest.raises(ValueError, match="got \\['segment_ids', 'token_ids'\\]"):
        Encoder(tiny_config())(inputs)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_large_ids_and_positions_survive_half_precision(policy):
    """keras-hub 0.32 makes positions in the compute dtype: 2,048 of them become 641."""
    from roformer_zh.positions import Rotary

    config = tiny_config(vocabulary_size=30_010, trained_length=None)
    encoder = Encoder(config, dtype=policy)
    table = np.zeros((30_010, 12), "float32")
    table[30_001] = 1.0
    encoder.token_embedding.embeddings.assign(table)
    assert float(ops.sum(encoder.token_embedding(np.array([[30_001]], "int32")))) == 12.0
    cos, _ = Rotary(config, dtype=policy).locate(None, 2048)
    first = np.array(ops.cast(cos, "float32"))[0, :, 0, 0]
    assert np.abs(first - np.cos(np.arange(2048))).max() < 5e-3
    one = Rotary(config, dtype=policy).locate(np.array([[2047]]), 1)[0]
    assert abs(float(ops.cast(one, "float32")[0, 0, 0, 0]) - np.cos(2047)) < 5e-3


def test_mixed_policies_stay_close_to_float32(inputs):
    inputs = tiny_inputs(mask_positions=True)
    exact = randomise(MaskedLM(Encoder(tiny_config())))
    for policy, bound in (("mixed_float16", 0.02), ("mixed_bfloat16", 0.15)):
        mixed = MaskedLM(Encoder(tiny_config(), dtype=policy))
        mixed.set_weights(exact.get_weights())
        logits = mixed(inputs)
        assert logits.dtype == "float32"
        assert all(v.dtype == "float32" for v in mixed.variables)
        assert 0 < np.abs(np.array(logits) - np.array(exact(inputs))).max() < bound


def test_masked_lm_reads_the_masked_positions_and_its_table_is_tied():
    inputs = tiny_inputs(mask_positions=True)
    model = randomise(MaskedLM(Encoder(tiny_config(embedding_dim=8))))
    weights = arrays(model.encoder)
    logits = np.array(model(inputs))
    gamma, beta = (np.array(v, "float64") for v in model.transform_norm.variables)
    kernel, bias = (np.array(v, "float64") for v in model.transform.variables)
    for row in range(3):
        hidden = expected(model.encoder, inputs, row)[inputs["mask_positions"][row]]
        inner = reference.layer_norm(reference.gelu(hidden @ kernel + bias), gamma, beta, 1e-12)
        want = inner @ weights["token_embedding/embeddings"].T + np.array(model.output_bias)
        np.testing.assert_allclose(logits[row], want, atol=5e-5)
    table = model.encoder.token_embedding.embeddings
    unused = next(i for i in range(5, 31) if i not in inputs["token_ids"])
    changed = np.array(table)
    changed[unused] += 1.0
    table.assign(changed)
    difference = np.abs(np.array(model(inputs)) - logits)
    assert difference[..., unused].min() > 1e-3
    assert np.delete(difference, unused, axis=-1).max() < 1e-5


def test_poolings_and_their_errors(inputs):
    encoder = randomise(Encoder(tiny_config(pooler=True)))
    hidden = np.array(encoder(inputs))
    for pooling, want in (
        ("mean", np.stack([hidden[r, :n].mean(0) for r, n in enumerate(LENGTHS)])),
        ("cls", hidden[:, 0]),
        (
            "pooler",
            np.tanh(
                hidden[:, 0] @ np.array(encoder.pooler_dense.kernel)
                + np.array(encoder.pooler_dense.bias)
            ),
        ),
    ):
        vectors = np.array(SiameseScorer(encoder, pooling=pooling).encode(inputs))
        want = want / np.linalg.norm(want, axis=-1, keepdims=True)
        np.testing.assert_allclose(vectors, want, atol=1e-5)
    with pytest.raises(ValueError, match="needs a model with a pooler"):
        PairScorer(Encoder(tiny_config()), pooling="pooler")
    with pytest.raises(ValueError, match="one of mean, cls, pooler; got 'max'"):
        PairScorer(encoder, pooling="max")


def test_siamese_similarity_is_the_scaled_cosine(inputs):
    model = SiameseScorer(randomise(Encoder(tiny_config())))
    vectors = model.encode(inputs)
    np.testing.assert_allclose(np.array(model.similarity(vectors, vectors)), 20.0, rtol=1e-5)
    want = 20 * (np.array(vectors[0]) * np.array(vectors[1])).sum()
    assert abs(float(model.similarity(vectors[:1], vectors[1:2])[0]) - want) < 1e-4


def test_changing_segments_changes_the_score(inputs):
    model = randomise(PairScorer(Encoder(tiny_config())))
    other = {**inputs, "segment_ids": 1 - inputs["segment_ids"]}
    assert np.abs(np.array(model(inputs)) - np.array(model(other))).max() > 1e-3


def test_construction_order_and_names_do_not_matter():
    """keras#19373: 'expected N variables, got 0' after name counters moved."""
    Encoder(tiny_config())
    first, second = MaskedLM(Encoder(tiny_config())), MaskedLM(Encoder(tiny_config()))
    assert [v.path for v in first.variables] == [v.path for v in second.variables]
    assert len({v.path for v in first.variables}) == len(first.variables)


def test_relative_vectors_are_no_weights():
    """NEZHA's table is constant: no variable, no optimizer slot, nothing that grows with length."""
    relative = Encoder(tiny_config("relative"))
    none = Encoder(tiny_config("none"))
    assert [v.path for v in relative.variables] == [v.path for v in none.variables]


def test_keras_registers_the_classes_under_the_package():
    for cls in (Encoder, MaskedLM, PairScorer, SiameseScorer):
        assert keras.saving.get_registered_name(cls) == f"roformer_zh>{cls.__name__}"
