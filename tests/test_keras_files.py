"""`.keras` and `.weights.h5` files of every class: fresh processes, other policies, wrong files."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from roformer_zh.encoder import Encoder
from roformer_zh.heads import MaskedLM, PairScorer, SiameseScorer, load_model
from tests.conftest import V, randomise, tiny_config, tiny_inputs

SCHEMES = {"rotary": {"embedding_dim": 8}, "learned": {"pooler": True}, "relative": {}}
HEADS = {"encoder": Encoder, "masked_lm": lambda encoder: MaskedLM(encoder),
         "pair": lambda encoder: PairScorer(encoder),
         "siamese": lambda encoder: SiameseScorer(encoder)}


def make_model(head, position, dtype=None, **fields):
    """A random model of one class and scheme."""
    encoder = Encoder(tiny_config(position, **{**SCHEMES[position], **fields}), dtype=dtype)
    return randomise(encoder if head == "encoder" else HEADS[head](encoder))


def inputs_of(model):
    """The fixed inputs, with mask positions where the model takes them."""
    return tiny_inputs(mask_positions=isinstance(model, MaskedLM))


def arrays_of(group):
    """Every array in an HDF5 group."""
    for item in group.values():
        yield from [item[()]] if isinstance(item, h5py.Dataset) else arrays_of(item)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with every class under every scheme: NAME.keras, and outputs.npz."""
    folder, outputs = tmp_path_factory.mktemp("keras"), {}
    for position in SCHEMES:
        for head in HEADS:
            model = make_model(head, position)
            model.save(folder / f"{position}-{head}.keras")
            outputs[f"{position}-{head}"] = np.array(model(inputs_of(model)))
    np.savez(folder / "outputs.npz", **outputs)
    np.savez(folder / "inputs.npz", **tiny_inputs(mask_positions=True))
    return folder


FRESH = """
import sys, numpy as np, keras
import roformer_zh.heads
outputs, inputs = np.load(sys.argv[1] + "/outputs.npz"), dict(np.load(sys.argv[1] + "/inputs.npz"))
for name in reversed(outputs.files):
    model = keras.saving.load_model(f"{sys.argv[1]}/{name}.keras", compile=False, safe_mode=True)
    taken = {k: v for k, v in inputs.items() if k != "mask_positions" or "masked" in name}
    difference = np.abs(np.array(model(taken)) - outputs[name]).max()
    print(name, type(model).__name__, difference)
    assert difference < 1e-6, name
"""


def test_fresh_process_loads_every_class_in_any_order(saved):  # bert-for-tf2#48, bert4keras#25
    root = Path(__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", FRESH, str(saved)], cwd=root, text=True,
                            capture_output=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stdout.splitlines()) == len(SCHEMES) * len(HEADS)


def test_files_hold_no_lambda_and_one_table(saved):  # CVE-2025-9906, keras#15510
    for path in saved.glob("*.keras"):
        with zipfile.ZipFile(path) as archive:
            assert "Lambda" not in archive.read("config.json").decode()
            with archive.open("model.weights.h5") as file, h5py.File(file) as weights:
                tables = [array for array in arrays_of(weights) if array.ndim == 2
                          and array.shape[0] == V]
        assert len(tables) == 1, (path, tables)


def test_reloaded_decoder_is_tied_and_padding_still_masked(saved):
    model = load_model(saved / "rotary-masked_lm.keras")
    inputs = inputs_of(model)
    before = np.array(model(inputs))
    padded = {**inputs, "token_ids": np.where(inputs["padding_mask"], inputs["token_ids"], 9)}
    np.testing.assert_allclose(np.array(model(padded)), before, atol=1e-6)
    table = model.encoder.token_embedding.embeddings
    used = set(inputs["token_ids"].ravel().tolist())
    free = next(row for row in range(V) if row not in used)
    values = np.array(table)
    values[free] += 1
    table.assign(values)
    assert np.abs(np.array(model(inputs)) - before)[..., free].min() > 1e-3


def test_two_models_of_a_class_in_one_process(tmp_path):  # keras#19373, keras#20322
    models = [make_model("masked_lm", "rotary") for _ in range(2)]
    models[1].encoder.token_embedding.embeddings.assign(
        models[1].encoder.token_embedding.embeddings + 1)
    for number, model in enumerate(models):
        model.save(tmp_path / f"{number}.keras")
        model.save_weights(tmp_path / f"{number}.weights.h5")
    for number in (1, 0):
        loaded = load_model(tmp_path / f"{number}.keras")
        other = make_model("masked_lm", "rotary", initializer_range=0.1)
        other.load_weights(tmp_path / f"{number}.weights.h5")
        expected = np.array(models[number](inputs_of(loaded)))
        for found in (loaded, other):
            np.testing.assert_array_equal(np.array(found(inputs_of(found))), expected)


@pytest.mark.parametrize("head, policy", [
    ("encoder", "mixed_bfloat16"), ("masked_lm", "mixed_float16"), ("pair", "mixed_float16"),
    ("siamese", "mixed_bfloat16")])
def test_another_dtype_policy_on_request(tmp_path, head, policy):  # keras#18979, keras#17362
    model = make_model(head, "rotary", dtype=policy)
    model.save(tmp_path / "model.keras")
    mixed = np.array(keras.ops.cast(model(inputs_of(model)), "float32"))
    kept, full = load_model(tmp_path), load_model(tmp_path, dtype="float32")
    assert kept.dtype_policy.name == policy and full.dtype_policy.name == "float32"
    assert {layer.dtype_policy.name for layer in full._flatten_layers()} == {"float32"}
    output = full(inputs_of(full))
    assert keras.backend.standardize_dtype(output.dtype) == "float32"
    assert 0 < np.abs(np.array(output) - mixed).max() < 0.1
    assert all(variable.dtype == "float32" for variable in kept.variables)
    with zipfile.ZipFile(tmp_path / "model.keras") as archive, \
            archive.open("model.weights.h5") as file, h5py.File(file) as weights:
        kinds = {str(array.dtype) for array in arrays_of(weights)}
    assert kinds == {"float32"}


@pytest.mark.parametrize("head, fields", [
    ("encoder", {"num_layers": 3}), ("pair", {"num_layers": 1}), ("siamese", {"num_layers": 1}),
    *(("masked_lm", fields) for fields in (
        {"num_layers": 3}, {"num_layers": 1}, {"hidden_dim": 16}, {"vocabulary_size": 30},
        {"intermediate_dim": 11}))])
def test_weights_of_another_size_change_nothing(tmp_path, head, fields):  # bert4keras#171
    make_model(head, "relative").save_weights(tmp_path / "a.weights.h5")
    other = make_model(head, "relative", **fields)
    before = [np.array(value) for value in other.get_weights()]
    with pytest.raises(ValueError, match="stays as it was"):
        other.load_weights(tmp_path / "a.weights.h5")
    for value, kept in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, kept)


def test_config_in_the_file_is_the_whole_config(saved):
    with zipfile.ZipFile(saved / "relative-pair.keras") as archive:
        config = json.loads(archive.read("config.json"))["config"]
    assert config["encoder"]["config"] == tiny_config("relative").to_dict()
    assert config["pooling"] == "mean"


@pytest.mark.parametrize("damage", ["text", "empty", "truncated", "other zip"])
def test_files_that_are_no_keras_files(saved, tmp_path, damage):
    path = tmp_path / "model.keras"
    whole = (saved / "rotary-pair.keras").read_bytes()
    path.write_bytes({"text": b"hello", "empty": b"", "truncated": whole[:len(whole) // 2],
                      "other zip": b""}[damage])
    if damage == "other zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match=r"no whole \.keras file"):
        load_model(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model at"):
        load_model(tmp_path)
