"""What computes for a DocumentMatcher: a Keras scorer, or an exported ONNX file without Keras."""

import json
from pathlib import Path

import numpy as np

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.config import EncoderConfig
from roformer_zh.tokenizer import WordTokenizer

SERVING_FILE, ONNX_FILE = "serving.json", "model.onnx"
KINDS = {"SiameseScorer": "siamese", "PairScorer": "pair"}
"""Class of a scorer -> how it reads two texts."""


def engine_of(model):
    """The engine for a model: an `OnnxEngine` itself, or a `KerasEngine` around a scorer."""
    return model if isinstance(model, OnnxEngine) else KerasEngine(model)


class KerasEngine:
    """A `PairScorer` or `SiameseScorer`.

    Args:
        model: the scorer.

    Raises:
        ValueError: it is something else.
    """

    def __init__(self, model):
        self.name = type(model).__name__
        if self.name not in KINDS:
            raise ValueError(f"a DocumentMatcher needs a PairScorer or a SiameseScorer; got "
                             f"{self.name}; make one of it with "
                             "`python -m tasks.cail2019_scm.finetune`")
        self.kind, self.config, self._model = KINDS[self.name], model.encoder.config, model
        self._vectors = _mean_vectors(model.encoder) if self.kind == "pair" else model
        self._functions = {}

    @property
    def scale(self):
        """Factor of a SiameseScorer's cosine, as it is now."""
        from keras import ops
        return float(np.exp(ops.convert_to_numpy(self._model.log_scale)))

    def scores(self, inputs):
        """Float32 scores of pair rows, (B, 1)."""
        return self._answer(self._model, inputs)

    def vectors(self, inputs):
        """Float32 unit vectors of single rows, (B, hidden_dim)."""
        return self._answer(self._vectors, inputs)

    def _answer(self, model, inputs):
        """The model's output.

        On TensorFlow, Keras traces `predict_on_batch` once more at the second shape, with all sizes
        unknown; chunked attention needs its length, so each length gets a function of its own.
        """
        import keras
        if self.config.attention != "chunked" or keras.backend.backend() != "tensorflow":
            return model.predict_on_batch(inputs)
        key = id(model), inputs["token_ids"].shape[1]
        if key not in self._functions:
            self._functions[key] = tf.function(model, autograph=False, reduce_retracing=True)
        tensors = {name: tf.constant(array) for name, array in inputs.items()}
        return self._functions[key](tensors).numpy()


class OnnxEngine:
    """A scorer exported by `python -m roformer_zh.checkpoints export --format onnx`.

    Needs the package onnxruntime, and neither TensorFlow nor Keras.

    Args:
        folder: the exported folder.

    Raises:
        ValueError: it holds no ONNX scorer, or onnxruntime is missing.
    """

    def __init__(self, folder):
        folder = Path(folder)
        record = json.loads((folder / SERVING_FILE).read_text(encoding="utf-8"))
        self.name, self.info = record["model"], record["info"]
        if record["format"] != "onnx" or self.name not in KINDS:
            raise ValueError(f"{folder} holds a {self.name} as {record['format']}; a "
                             "DocumentMatcher needs a PairScorer or SiameseScorer, as a run folder "
                             "or exported with --format onnx")
        try:
            import onnxruntime
        except ImportError as error:
            raise ValueError(f"{folder} is an ONNX export, which needs onnxruntime: pip install "
                             "'.[onnx]' in the project's folder") from error
        self.kind = KINDS[self.name]
        self.config = EncoderConfig.from_dict(self.info["encoder"])
        self.scale = float(np.exp(record.get("log_scale", 0.0)))
        self.tokenizer = WordTokenizer.load(folder)
        self.tokenizer.check(self.info["tokenizer"], folder)
        self._session = onnxruntime.InferenceSession(str(folder / ONNX_FILE))
        self._outputs = [output.name for output in self._session.get_outputs()]

    def scores(self, inputs):
        """Float32 scores of pair rows, (B, 1)."""
        return self._run(inputs, "score")

    def vectors(self, inputs):
        """Float32 unit vectors of single rows, (B, hidden_dim)."""
        return self._run(inputs, "vector" if self.kind == "pair" else self._outputs[0])

    def _run(self, inputs, output):
        """One output of the file."""
        feed = {entry.name: inputs[entry.name.split(":")[0]]
                for entry in self._session.get_inputs()}
        return self._session.run([output], feed)[0]


def is_export(folder):
    """Whether a folder was written by an export for serving."""
    return (Path(folder) / SERVING_FILE).is_file()


def _mean_vectors(encoder):
    """A model of the normalised mean of an encoder's hidden states."""
    import keras

    from roformer_zh.heads import pool, unit

    class MeanVectors(keras.Model):
        """The normalised mean of hidden states."""

        def __init__(self):
            super().__init__(name="mean_vectors", dtype=encoder.dtype_policy)
            self.encoder = encoder

        def call(self, inputs):
            hidden = self.encoder(inputs)
            return unit(pool(self.encoder, hidden, inputs["padding_mask"], "mean"))

    return MeanVectors()
