"""Models out for inference: SavedModel and ONNX files, float32, of any batch size and length."""

import json

import keras
from keras import ops

from roformer_zh.files import atomic_folder, write_text
from roformer_zh.heads import copy_model, pool, unit
from roformer_zh.runs import encoder_of

SERVING_FILE = "serving.json"
FILES = {"savedmodel": ("model", "tf_saved_model"), "onnx": ("model.onnx", "onnx")}
"""Format -> name in the folder, and what Keras calls it."""


def export_serving(run, output, format):
    """Writes an inference model, its tokenizer and serving.json into a folder.

    Args:
        run: a `Run` in float32.
        output: the folder to write.
        format: "savedmodel" or "onnx".

    Raises:
        ValueError: the packages for ONNX are missing, or the attention kernel needs a fixed length.
    """
    model = _full_attention(run.model)
    names = ["token_ids", "segment_ids", "padding_mask"]
    names += ["mask_positions"] if type(model).__name__ == "MaskedLM" else []
    names += ["position_ids"] if run.info.get("layout", {}).get("positions") == "restart" else []
    signature = {name: keras.InputSpec(shape=(None, None), name=name,
                                       dtype="bool" if name == "padding_mask" else "int32")
                 for name in names}
    record = {"format": format, "model": type(model).__name__, "inputs": names, "info": run.info}
    if hasattr(model, "log_scale"):
        record["log_scale"] = float(ops.convert_to_numpy(model.log_scale))
    served = _Scored(model) if type(model).__name__ == "PairScorer" else model
    with atomic_folder(output) as folder:
        run.tokenizer.save(folder)
        write_text(folder / SERVING_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
        if format == "onnx":
            _check_onnx()
        name, kind = FILES[format]
        served.export(folder / name, format=kind, verbose=False, input_signature=[signature])


class _Scored(keras.Model):
    """A PairScorer that also gives each sequence's unit vector, the mean of its hidden states."""

    def __init__(self, scorer):
        super().__init__(dtype=scorer.dtype_policy, name="scored_pairs")
        self.scorer = scorer
        self.built = True

    def call(self, inputs):
        hidden = self.scorer.encoder(inputs)
        mask = inputs["padding_mask"]
        score = self.scorer.score(pool(self.scorer.encoder, hidden, mask, self.scorer.pooling))
        return {"score": score, "vector": unit(pool(self.scorer.encoder, hidden, mask, "mean"))}


def _full_attention(model):
    """The model with full attention, which gives chunked attention's numbers at any length."""
    is_chunked = encoder_of(model).config.attention == "chunked"
    return copy_model(model, attention="full") if is_chunked else model


def _check_onnx():
    """Raises unless the packages that write ONNX are there."""
    try:
        import onnx  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise ValueError("export to ONNX needs the packages of the extra: pip install "
                         "'.[onnx]' in the project's folder") from error
