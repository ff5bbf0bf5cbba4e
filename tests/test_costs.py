"""Parameters and operations by formula against the built model."""

import pytest

from roformer_zh import EncoderConfig, costs
from tests.conftest import tiny_config

MATMULS = ("MatMul", "BatchMatMulV2", "Einsum")


def tiny_masked_lm(config):
    from roformer_zh import Encoder, MaskedLM

    return MaskedLM(Encoder(config))


@pytest.mark.parametrize(
    "config",
    [
        tiny_config("rotary"),
        tiny_config("learned", embedding_dim=8),
        tiny_config("relative", num_segments=3),
        tiny_config("sinusoidal", pooler=True),
        tiny_config("none", attention="linear"),
        EncoderConfig.preset("roformer_tiny"),
        EncoderConfig.preset("wobert_tiny", vocabulary_size=1000),
        EncoderConfig.preset("nezha_small", vocabulary_size=1000),
    ],
    ids=lambda config: f"{config.position}-{config.hidden_dim}",
)
def test_parameters_are_those_of_the_built_model(config):
    model = tiny_masked_lm(config)
    assert costs.parameters(config) == model.count_params()
    assert costs.parameters(config, head=False) == model.encoder.count_params()
