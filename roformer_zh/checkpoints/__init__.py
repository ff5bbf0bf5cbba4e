"""Weights in and out: the only room that knows foreign names.

`import_checkpoint` reads Google's, bert4keras' and Hugging Face's checkpoints, `export_run` writes
them, SavedModel and ONNX; `initialise_from` and `extend_vocabulary` make new models of trained
ones. Each file `google_*.py` and `huggingface_*.py` is one map of names.
"""

import importlib

_HOMES = {"import_checkpoint": "importing", "extend_position_table": "importing",
          "export_run": "exporting", "initialise_from": "growing", "extend_vocabulary": "growing"}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'roformer_zh.checkpoints' has no attribute {name!r}")
    return getattr(importlib.import_module(f"roformer_zh.checkpoints.{_HOMES[name]}"), name)
