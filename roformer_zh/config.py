"""Every hyperparameter of the encoder, once."""

import dataclasses
import difflib
import json
from pathlib import Path

from roformer_zh.files import write_text

POSITIONS = ("rotary", "learned", "relative", "sinusoidal", "none")
POSITION_FIELDS = (
    "max_sequence_length",
    "max_relative_position",
    "max_wavelength",
    "rotary_value",
    "position_scale",
)
"""Fields that belong to a position scheme."""
ATTENTIONS = ("full", "chunked", "fused", "linear")
FEATURE_MAPS = ("elu", "softmax")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu")

_SIZES = {
    "tiny": dict(num_layers=2, num_heads=2, hidden_dim=128, intermediate_dim=512),
    "small": dict(num_layers=6, num_heads=6, hidden_dim=384, intermediate_dim=1536),
    "base": dict(num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=3072),
    "large": dict(num_layers=24, num_heads=16, hidden_dim=1024, intermediate_dim=4096),
}
_FAMILIES = {
    "roformer": dict(vocabulary_size=50000, position="rotary"),
    "wobert": dict(vocabulary_size=33586, position="learned", max_sequence_length=512),
    "bert": dict(vocabulary_size=21128, position="learned", max_sequence_length=512),
    "nezha": dict(vocabulary_size=21128, position="relative", max_relative_position=64),
    "nezha_word": dict(vocabulary_size=50000, position="relative", max_relative_position=64),
    "roformer_char": dict(vocabulary_size=12000, position="rotary"),
    "sinusoidal": dict(vocabulary_size=50000, position="sinusoidal"),
    "none": dict(vocabulary_size=50000, position="none"),
}
_CHARACTER_FAMILIES = ("bert", "nezha", "roformer_char")


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Hyperparameters of `roformer_zh.Encoder`.

    Raises:
        ValueError: a value is out of range, or a field does not belong to the position scheme.

    Example:
        >>> EncoderConfig.preset("roformer_tiny").head_dim
        64
    """

    vocabulary_size: int
    """Rows of the token table."""
    num_layers: int
    """Transformer blocks."""
    num_heads: int
    """Attention heads a block; divides hidden_dim."""
    hidden_dim: int
    """Width of the hidden states."""
    intermediate_dim: int
    """Width inside the feed-forward layer."""
    embedding_dim: int | None = None
    """Width of the token table; None = hidden_dim. Another width adds a projection."""
    num_segments: int = 2
    """Rows of the segment table."""
    position: str = "rotary"
    """How positions enter: rotary, learned, relative, sinusoidal or none."""
    max_sequence_length: int | None = None
    """Rows of the position table (learned only); None = no limit."""
    max_relative_position: int | None = None
    """Largest distance told apart, in tokens (relative only)."""
    max_wavelength: float = 10000.0
    """Base of the rotary and sinusoidal angles."""
    rotary_value: bool = False
    """Whether values are rotated too (rotary only)."""
    position_scale: float = 1.0
    """Positions are divided by this: position interpolation (arXiv 2306.15595; rotary only)."""
    trained_length: int | None = None
    """Longest sequence seen in training, in tokens; None = not trained."""
    pooler: bool = False
    """Whether the encoder has BERT's dense tanh layer over [CLS]."""
    attention: str = "full"
    """Kernel: full, chunked (same numbers, memory linear in length), fused (the backend's own,
    for GPUs; neither relative positions nor attention dropout) or linear (equation 19)."""
    feature_map: str = "elu"
    """Map of queries and keys in linear attention: elu (elu + 1) or softmax."""
    dropout: float = 0.1
    """Dropout rate of hidden states."""
    attention_dropout: float = 0.1
    """Dropout rate of attention probabilities; linear attention forms none and drops none."""
    activation: str = "gelu"
    """Feed-forward activation: gelu (erf), gelu_tanh or relu."""
    layer_norm_epsilon: float = 1e-12
    """Added to the variance in every LayerNorm."""
    initializer_range: float = 0.02
    """Standard deviation of initial kernels and tables."""

    def __post_init__(self):
        if self.embedding_dim is None:
            object.__setattr__(self, "embedding_dim", self.hidden_dim)
        for name in (
            "vocabulary_size",
            "num_layers",
            "num_heads",
            "hidden_dim",
            "intermediate_dim",
            "embedding_dim",
            "num_segments",
        ):
            _require(_is_positive_int(getattr(self, name)), name, "a positive integer", self)
        for name in ("max_sequence_length", "max_relative_position", "trained_length"):
            value = getattr(self, name)
            _require(
                value is None or _is_positive_int(value), name, "a positive integer or None", self
            )
        for name, allowed in (
            ("position", POSITIONS),
            ("attention", ATTENTIONS),
            ("activation", ACTIVATIONS),
            ("feature_map", FEATURE_MAPS),
        ):
            _require(getattr(self, name) in allowed, name, "one of " + ", ".join(allowed), self)
        for name in ("dropout", "attention_dropout"):
            _require(0 <= getattr(self, name) < 1, name, "at least 0 and below 1", self)
        for name in ("max_wavelength", "position_scale", "layer_norm_epsilon", "initializer_range"):
            _require(getattr(self, name) > 0, name, "above 0", self)
        _require(
            self.hidden_dim % self.num_heads == 0,
            "hidden_dim",
            f"a multiple of num_heads ({self.num_heads})",
            self,
        )
        _require(
            self.position not in ("rotary", "relative") or self.head_dim % 2 == 0,
            "hidden_dim",
            f"such that head_dim (hidden_dim / num_heads = {self.head_dim}) is even",
            self,
        )
        _require(
            self.position != "sinusoidal" or self.embedding_dim % 2 == 0,
            "embedding_dim",
            "even for sinusoidal positions",
            self,
        )
        self._check_scheme_fields()

    def _check_scheme_fields(self):
        """Fields of one position scheme are set with it, and only with it."""
        learned = self.position == "learned"
        _require(
            learned == (self.max_sequence_length is not None),
            "max_sequence_length",
            "set for learned positions and None for every other scheme",
            self,
        )
        relative = self.position == "relative"
        _require(
            relative == (self.max_relative_position is not None),
            "max_relative_position",
            "set for relative positions and None for every other scheme",
            self,
        )
        rotary = self.position == "rotary"
        _require(
            rotary or not self.rotary_value, "rotary_value", "False unless position is rotary", self
        )
        _require(
            rotary or self.position_scale == 1,
            "position_scale",
            "1 unless position is rotary",
            self,
        )
        _require(
            self.attention not in ("linear", "fused") or self.position != "relative",
            "attention",
            "full or chunked with relative positions",
            self,
        )
        _require(
            self.attention != "fused" or not self.attention_dropout,
            "attention_dropout",
            "0 with fused attention, which shows no probabilities to drop",
            self,
        )

    @property
    def head_dim(self):
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @classmethod
    def preset(cls, name, **overrides):
        """A named configuration, such as "roformer_base".

        Args:
            name: family and size (tiny, small, base, large). Families: roformer, wobert, bert and
                nezha as published; nezha_word, roformer_char, sinusoidal and none (no positions,
                words) change one thing each, to compare with.
            **overrides: fields to change, such as vocabulary_size.

        Raises:
            ValueError: the preset or a field is unknown.
        """
        known = {
            f"{family}_{size}": {**fields, **dims}
            for family, fields in _FAMILIES.items()
            for size, dims in _SIZES.items()
        }
        if name not in known:
            raise ValueError(
                f"preset must be one of {', '.join(known)}; got {name!r}{_closest(name, known)}"
            )
        return cls.from_dict({**known[name], **overrides})

    @classmethod
    def preset_mode(cls, name):
        """The tokenizer mode a preset is meant for: "char" or "word".

        Example:
            >>> EncoderConfig.preset_mode("bert_base"), EncoderConfig.preset_mode("wobert_base")
            ('char', 'word')
        """
        cls.preset(name)
        return "char" if name.rpartition("_")[0] in _CHARACTER_FAMILIES else "word"

    @classmethod
    def from_dict(cls, fields):
        """A configuration from a dict of its fields; an unknown or missing field is an error."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in fields:
            if name not in known:
                raise ValueError(f"EncoderConfig has no field {name!r}{_closest(name, known)}")
        missing = [
            name
            for name, field in known.items()
            if field.default is dataclasses.MISSING and name not in fields
        ]
        if missing:
            raise ValueError(f"EncoderConfig needs the fields {', '.join(missing)}")
        return cls(**fields)

    def to_dict(self):
        """The fields as a dict that `from_dict` and JSON take."""
        return dataclasses.asdict(self)

    def replace(self, **changes):
        """A copy with some fields changed."""
        return self.from_dict({**self.to_dict(), **changes})

    def save(self, path):
        """Writes the fields to a JSON file."""
        write_text(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path):
        """Reads a JSON file that `save` wrote."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} must be JSON: {error}") from error
        return cls.from_dict(fields)


def _is_positive_int(value):
    """Whether `value` is an integer above 0 and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _closest(name, known):
    """A hint that names the known word nearest to `name`, or nothing."""
    match = difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {match[0]!r}?" if match else ""


def _require(holds, name, rule, config):
    """Raises unless `holds`, saying what the field must be and what came."""
    if not holds:
        raise ValueError(f"EncoderConfig.{name} must be {rule}; got {getattr(config, name)!r}")
