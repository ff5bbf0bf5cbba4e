"""A .keras file saved on TensorFlow predicts the same on JAX and PyTorch.

Needs jax and torch beside TensorFlow, each in a process of its own:

    python -m benchmarks.backends
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table

SCHEMES = {"rotary": {}, "learned": {"max_sequence_length": 320},
           "relative": {"max_relative_position": 8}, "sinusoidal": {}}
KERNELS = {"full": SCHEMES, "chunked": SCHEMES, "linear": {"rotary": {}}}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Saves every class and scheme on TensorFlow and predicts on the other backends."""

    backends: tuple[str, ...] = ("jax", "torch")
    """Backends to compare with TensorFlow."""
    tolerance: float = 1e-5
    """Largest difference that passes."""
    folder: Path | None = None
    """Inside the child process only: where the files lie."""


def main(args):
    """Prints one row a backend and model; returns them."""
    if args.folder is not None:
        predict(args.folder)
        return {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_models(folder)
        rows = [row for backend in args.backends for row in compare(folder, backend)]
    print(markdown_table(rows))
    worst = max(row["difference"] for row in rows)
    if worst > args.tolerance:
        raise ValueError(f"the largest difference must be at most {args.tolerance}; got {worst}")
    return {"rows": rows, "largest": worst}


def save_models(folder):
    """Every head under every scheme and kernel, with random weights, and what it computes."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM, PairScorer, SiameseScorer
    rng = np.random.default_rng(0)
    inputs = make_inputs(rng)
    np.savez(folder / "inputs.npz", **inputs)
    for kernel, schemes in KERNELS.items():
        for scheme, fields in schemes.items():
            config = EncoderConfig(
                vocabulary_size=61, num_layers=2, num_heads=2, hidden_dim=24, intermediate_dim=40,
                embedding_dim=16, position=scheme, attention=kernel, **fields)
            for head in (MaskedLM, PairScorer, SiameseScorer):
                model = head(Encoder(config))
                for variable in model.variables:
                    center = 1.0 if variable.name == "gamma" else 0.0
                    variable.assign(rng.normal(center, 0.2, variable.shape))
                name = f"{head.__name__}-{scheme}-{kernel}"
                model.save(folder / f"{name}.keras")
                np.save(folder / f"{name}.tensorflow.npy", run(model, inputs))


def make_inputs(rng, batch=3, length=300):
    """A padded batch with mask positions."""
    lengths = np.array([length, length - 9, 4])[:batch]
    return {"token_ids": rng.integers(5, 61, (batch, length), dtype="int32"),
            "segment_ids": rng.integers(0, 2, (batch, length), dtype="int32"),
            "padding_mask": np.arange(length) < lengths[:, None],
            "mask_positions": rng.integers(0, 4, (batch, 2), dtype="int32")}


def run(model, inputs):
    """The model's output as an array."""
    import keras
    masked = type(model).__name__ == "MaskedLM"
    taken = {name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()
             if masked or name != "mask_positions"}
    return keras.ops.convert_to_numpy(model(taken))


def compare(folder, backend):
    """The rows of one backend, computed in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.backends", "--folder", str(folder)]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"the {backend} backend failed: {result.stderr.strip()[-500:]}")
    for path in sorted(folder.glob("*.keras")):
        expected = np.load(folder / f"{path.stem}.tensorflow.npy")
        found = np.load(folder / f"{path.stem}.{backend}.npy")
        yield {"backend": backend, "model": path.stem,
               "difference": float(f"{np.abs(found - expected).max():.2g}")}


def predict(folder):
    """Loads every file on this process' backend and saves what it computes."""
    import keras

    from roformer_zh.heads import load_model
    inputs = dict(np.load(folder / "inputs.npz"))
    for path in sorted(folder.glob("*.keras")):
        output = run(load_model(path), inputs)
        np.save(folder / f"{path.stem}.{keras.backend.backend()}.npy", output)


if __name__ == "__main__":
    run_command(main, Arguments)
