"""Weights out: a run folder as a Hugging Face folder or a Google checkpoint."""

import json
from pathlib import Path

import numpy as np

from roformer_zh.checkpoints.foreign_config import write_config
from roformer_zh.checkpoints.importing import MAPS
from roformer_zh.checkpoints.serving import export_serving
from roformer_zh.checkpoints.variables import get_tensors
from roformer_zh.files import atomic_folder, write_text
from roformer_zh.runs import encoder_of, load_run
from roformer_zh.tokenizer.vocabulary import write_rows

FORMATS = ("huggingface", "google", "savedmodel", "onnx")
CLASSES = {"bert": "Bert", "roformer": "RoFormer", "nezha": "Nezha"}


def export_run(run, output, format):
    """Writes a run folder's model in another format, with its vocabulary and config.

    Args:
        run: a run folder.
        output: the folder to write; it appears whole or not at all.
        format: "huggingface" or "google" (weights that other programs and `import_checkpoint`
            read back bit for bit), "savedmodel" or "onnx" (float32 inference, any batch size and
            length).

    Raises:
        ValueError: the format is unknown, or cannot hold this model.
    """
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; got {format!r}")
    loaded = load_run(run, dtype="float32")
    if format in ("savedmodel", "onnx"):
        export_serving(loaded, output, format)
        return
    config = encoder_of(loaded.model).config
    fields = write_config(config, format, head_fields(loaded.model))
    tensors = get_tensors(loaded.model)
    with atomic_folder(output) as folder:
        write_rows(folder / "vocab.txt", loaded.tokenizer.vocabulary)
        if format == "huggingface":
            write_huggingface(folder, fields, tensors, loaded)
        else:
            write_google(folder, fields, tensors)


def head_fields(model):
    """The class of a model and the arguments it needs besides the encoder."""
    shared = ("name", "dtype", "encoder", "config")
    options = {name: value for name, value in model.get_config().items() if name not in shared}
    return {"model": type(model).__name__, **options}


def rename_tensors(name_map, tensors):
    """Our tensors under a map's names and in its layout."""
    renamed = {name_map.theirs(name): np.array(name_map.convert(name, array), order="C")
               for name, array in tensors.items()}
    if None in renamed:
        lost = [name for name in tensors if name_map.theirs(name) is None]
        raise ValueError(f"{name_map.name} has no names for {', '.join(lost)}")
    return renamed


def write_huggingface(folder, fields, tensors, run):
    """config.json, model.safetensors and tokenizer_config.json."""
    from safetensors.numpy import save_file
    family = fields["model_type"]
    renamed = rename_tensors(MAPS["huggingface", family], tensors)
    if family == "roformer":
        renamed["roformer.encoder.embed_positions.weight"] = rotary_table(
            fields["max_position_embeddings"], encoder_of(run.model).config.head_dim)
    has_head = type(run.model).__name__ == "MaskedLM"
    fields["pad_token_id"] = run.tokenizer.pad_id
    fields["architectures"] = [CLASSES[family] + ("ForMaskedLM" if has_head else "Model")]
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    write_text(folder / "config.json", json.dumps(fields, indent=2) + "\n")
    options = run.tokenizer.fingerprint()
    is_word_roformer = options["mode"] == "word" and family == "roformer"
    words = {"tokenizer_class": "RoFormerTokenizer" if is_word_roformer else "BertTokenizer",
             "do_lower_case": options["lowercase"], "strip_accents": options["strip_accents"],
             "tokenize_chinese_chars": True,
             "model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    write_text(folder / "tokenizer_config.json", json.dumps(words, indent=2) + "\n")


def write_google(folder, fields, tensors):
    """bert_config.json and the TensorFlow checkpoint bert_model.ckpt."""
    import tensorflow as tf
    renamed = rename_tensors(MAPS["google", fields["model_type"]], tensors)
    write_text(folder / "bert_config.json", json.dumps(fields, indent=2) + "\n")
    names = sorted(renamed)
    tf.raw_ops.SaveV2(prefix=str(Path(folder) / "bert_model.ckpt"), tensor_names=names,
                      shape_and_slices=[""] * len(names),
                      tensors=[tf.constant(renamed[name]) for name in names])


def rotary_table(rows, head_dim):
    """The constant that transformers keeps with a RoFormer: sines, then cosines, of each row."""
    rates = 10000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.arange(rows)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


