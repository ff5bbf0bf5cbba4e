"""What the checkpoint tests share: the stored fixtures, and files made from them."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("roformer_word", "roformer_char_value", "bert_char_pooler", "bert_word_sharded",
         "nezha_char")
CASES = ("1", "7", "130")
GOOGLE_BLOCK = (
    "attention/self/query/kernel", "attention/self/query/bias",
    "attention/self/key/kernel", "attention/self/key/bias",
    "attention/self/value/kernel", "attention/self/value/bias",
    "attention/output/dense/kernel", "attention/output/dense/bias",
    "attention/output/LayerNorm/beta", "attention/output/LayerNorm/gamma",
    "intermediate/dense/kernel", "intermediate/dense/bias",
    "output/dense/kernel", "output/dense/bias",
    "output/LayerNorm/beta", "output/LayerNorm/gamma",
)
"""The 16 names of one layer in google-research/bert's checkpoints."""
GOOGLE_REST = (
    "bert/embeddings/word_embeddings", "bert/embeddings/token_type_embeddings",
    "bert/embeddings/LayerNorm/beta", "bert/embeddings/LayerNorm/gamma",
    "cls/predictions/transform/dense/kernel", "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/LayerNorm/beta", "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/output_bias",
)
"""The names outside the layers that BERT, WoBERT, RoFormer and NEZHA have in common."""


def load_outputs(name):
    """outputs.npz of a fixture as a dict."""
    return dict(np.load(FIXTURES / name / "outputs.npz"))


def case_inputs(outputs, case, head=True):
    """The model inputs of one stored case."""
    keys = ["token_ids", "segment_ids", *(["mask_positions"] if head else [])]
    inputs = {key: outputs[f"{case}/{key}"].astype("int32") for key in keys}
    return {**inputs, "padding_mask": outputs[f"{case}/padding_mask"]}


def load_tensors(name):
    """Every tensor of a fixture, shards joined."""
    tensors = {}
    for file in sorted((FIXTURES / name).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def copy_fixture(name, folder, change=None, **fields):
    """A fixture's folder with one weight file, changed.

    Args:
        name: the fixture.
        folder: where to write.
        change: function that edits the dict of tensors in place.
        **fields: config fields to set; None removes one.
    """
    folder = Path(folder)
    folder.mkdir(parents=True)
    shutil.copy(FIXTURES / name / "vocab.txt", folder)
    tensors = load_tensors(name)
    if change:
        change(tensors)
    save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()},
              folder / "model.safetensors")
    write_config(folder / "config.json", name, fields)
    return folder


def google_folder(name, folder, change=None, **fields):
    """A fixture rewritten as a TensorFlow checkpoint `bert_model.ckpt` in Google's names."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    shutil.copy(FIXTURES / name / "vocab.txt", folder)
    tensors = {}
    for theirs, value in load_tensors(name).items():
        if "embed_positions" in theirs or "positions_encoding" in theirs:
            continue
        is_kernel = theirs.endswith(("dense.weight", "query.weight", "key.weight", "value.weight",
                                     "project.weight"))
        tensors[google_name(theirs)] = value.T if is_kernel else value
    if change:
        change(tensors)
    write_config(folder / "bert_config.json", name, {"model_type": None, **fields})
    write_tensorflow(folder / "bert_model.ckpt", tensors)
    return folder


def google_name(theirs):
    """The Google name of a Hugging Face name, by hand."""
    name = theirs.replace("roformer.", "bert.").replace("nezha.", "bert.")
    name = name.replace("embeddings_project", "encoder.embedding_hidden_mapping_in")
    name = name.replace("layer.", "layer_", 1).replace("LayerNorm.weight", "LayerNorm.gamma")
    name = name.replace("LayerNorm.bias", "LayerNorm.beta")
    name = name.replace("_embeddings.weight", "_embeddings")
    if name == "cls.predictions.bias":
        name = "cls.predictions.output_bias"
    name = name.replace("seq_relationship.", "seq_relationship.output_")
    name = name.replace("output_weight", "output_weights").replace(".weight", ".kernel")
    return name.replace(".", "/")


def write_tensorflow(prefix, tensors):
    """A TensorFlow checkpoint of a dict of arrays."""
    import tensorflow as tf
    names = sorted(tensors)
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names),
                      tensors=[tf.constant(np.ascontiguousarray(tensors[name])) for name in names])


def write_config(path, name, fields):
    """A fixture's config with other fields."""
    config = json.loads((FIXTURES / name / "config.json").read_text())
    config.update(fields)
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
