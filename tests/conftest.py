"""Small models and inputs of odd, unequal sizes that many tests share."""

import numpy as np
import pytest

B, T, P, V = 3, 7, 2, 31
LENGTHS = (7, 5, 3)


def tiny_config(position="rotary", **fields):
    """A two-layer configuration with 2 heads of 6, in which every width differs."""
    from roformer_zh import EncoderConfig

    forced = {"learned": {"max_sequence_length": 9}, "relative": {"max_relative_position": 3}}
    base = dict(
        vocabulary_size=V,
        num_layers=2,
        num_heads=2,
        hidden_dim=12,
        intermediate_dim=10,
        position=position,
        initializer_range=0.5,
    )
    return EncoderConfig(**{**base, **forced.get(position, {}), **fields})


def randomise(model, seed=0):
    """Gives every variable random values, biases and LayerNorms too."""
    rng = np.random.default_rng(seed)
    for variable in model.variables:
        centre = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(centre + 0.3 * rng.standard_normal(variable.shape).astype("float32"))
    return model


def tiny_inputs(seed=0, mask_positions=False):
    """A batch of rows of 7, 5 and 3 real tokens."""
    rng = np.random.default_rng(seed)
    inputs = {
        "token_ids": rng.integers(5, V, (B, T), dtype="int32"),
        "segment_ids": rng.integers(0, 2, (B, T), dtype="int32"),
        "padding_mask": np.arange(T)[None] < np.array(LENGTHS)[:, None],
    }
    if mask_positions:
        inputs["mask_positions"] = rng.integers(0, min(LENGTHS), (B, P), dtype="int32")
    return inputs


@pytest.fixture
def inputs():
    return tiny_inputs()


@pytest.fixture(scope="session")
def imported():
    """Each checkpoint fixture, imported once."""
    from roformer_zh.checkpoints import import_checkpoint
    from tests.foreign import FIXTURES, NAMES

    return {name: import_checkpoint(FIXTURES / name) for name in NAMES}
