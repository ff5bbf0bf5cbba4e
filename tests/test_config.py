"""Every field is checked where it enters."""

import pytest

from roformer_zh import EncoderConfig
from tests.conftest import tiny_config


@pytest.mark.parametrize(
    "family, position, rows",
    [
        ("roformer", "rotary", 50000),
        ("wobert", "learned", 33586),
        ("bert", "learned", 21128),
        ("nezha", "relative", 21128),
    ],
)
def test_presets_are_the_released_models(family, position, rows):
    base = EncoderConfig.preset(f"{family}_base")
    assert (base.position, base.vocabulary_size) == (position, rows)
    assert (base.num_layers, base.hidden_dim, base.num_heads, base.intermediate_dim) == (
        12,
        768,
        12,
        3072,
    )
    assert (base.layer_norm_epsilon, base.activation) == (1e-12, "gelu")


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(hidden_dim=30, num_heads=6), "head_dim .* = 5. is even; got 30"),
        (dict(hidden_dim=10, num_heads=3), r"a multiple of num_heads \(3\); got 10"),
        (dict(position="relative", max_relative_position=4, hidden_dim=6), "is even; got 6"),
        (dict(position="sinusoidal", embedding_dim=5), "even for sinusoidal positions; got 5"),
        (dict(position="rope"), "one of rotary, learned, .*; got 'rope'"),
        (dict(attention="flash"), "one of full, chunked, fused, linear; got 'flash'"),
        (dict(dropout=1.0), "at least 0 and below 1; got 1.0"),
        (dict(num_layers=0), "num_layers must be a positive integer; got 0"),
        (dict(hidden_dim=12.0), "hidden_dim must be a positive integer; got 12.0"),
        (dict(layer_norm_epsilon=0.0), "above 0; got 0.0"),
        (dict(max_sequence_length=512), "None for every other scheme; got 512"),
        (dict(position="learned", max_sequence_length=None), "set for learned positions"),
        (dict(position="none", rotary_value=True), "False unless position is rotary"),
        (dict(position="none", position_scale=2.0), "1 unless position is rotary"),
        (dict(position="relative", attention="linear"), "full or chunked with relative positions"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(fields, message):
    with pytest.raises(ValueError, match="EncoderConfig.*" + message):
        tiny_config(**fields)


def test_unknown_names_suggest_the_closest():
    with pytest.raises(ValueError, match="no field 'hiden_dim'; did you mean 'hidden_dim'"):
        EncoderConfig.preset("roformer_tiny", hiden_dim=4)
    with pytest.raises(ValueError, match="did you mean 'roformer_tiny'"):
        EncoderConfig.preset("roformer_tiy")
    with pytest.raises(ValueError, match="needs the fields vocabulary_size"):
        EncoderConfig.from_dict(
            {"num_layers": 1, "num_heads": 1, "hidden_dim": 2, "intermediate_dim": 2}
        )


def test_files_round_trip(tmp_path):
    config = tiny_config("relative", embedding_dim=8, trained_length=9)
    config.save(tmp_path / "config.json")
    assert EncoderConfig.load(tmp_path / "config.json") == config
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken.json must be JSON"):
        EncoderConfig.load(tmp_path / "broken.json")
