"""Chinese long-text RoFormer in Keras 3; names load on first use, so the import loads no Keras."""

import importlib

_HOMES = {
    "EncoderConfig": "config",
    "Encoder": "encoder",
    "MaskedLM": "heads",
    "PairScorer": "heads",
    "SiameseScorer": "heads",
    "load_model": "heads",
    "WordTokenizer": "tokenizer",
    "Trainer": "training",
    "DocumentMatcher": "matching",
}
__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'roformer_zh' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"roformer_zh.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
