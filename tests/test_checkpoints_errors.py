"""Foreign files that do not fit: one clear line, nothing executed, nothing half loaded."""

import json
import os
import pickle
import shutil
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from roformer_zh.checkpoints import __main__ as command
from roformer_zh.checkpoints import import_checkpoint
from roformer_zh.checkpoints.bert4keras_weights import ATTRIBUTES, names_of_objects
from roformer_zh.checkpoints.foreign_config import detect_family
from roformer_zh.checkpoints.source import open_source
from roformer_zh.command import run_command
from roformer_zh.heads import load_model
from tests.foreign import (
    FIXTURES,
    GOOGLE_BLOCK,
    GOOGLE_REST,
    copy_fixture,
    google_folder,
    load_tensors,
    write_tensorflow,
)

QUERY = "bert.encoder.layer.1.attention.self.query.weight"


def fails(path, pattern, **options):
    """Asserts that an import raises one ValueError, and returns its text."""
    with pytest.raises(ValueError, match=pattern) as caught:
        import_checkpoint(path, **options)
    return str(caught.value)


def test_missing_tensor_is_named(tmp_path):  # RoFormer_pytorch#46
    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", lambda t: t.pop(QUERY)),
                    "missing 1")
    assert QUERY in message and "unused" not in message


def test_unknown_tensor_is_named(tmp_path):
    def add(tensors):
        tensors["bert.encoder.layer.2.output.dense.bias"] = np.zeros(12, np.float32)

    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", add), "unused 1")
    assert "bert.encoder.layer.2.output.dense.bias" in message and "missing" not in message


def test_renamed_tensor_shows_both_names(tmp_path):
    other = QUERY.replace("query", "queri")

    def rename(tensors):
        tensors[other] = tensors.pop(QUERY)

    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", rename),
                    "missing 1.*unused 1")
    assert f"{QUERY} (closest: {other})" in message and f"{other} (closest: {QUERY})" in message


def test_missing_unused_and_misshaped_come_together(tmp_path):
    def break_all(tensors):
        del tensors["cls.predictions.bias"]
        tensors["bert.pooler.extra"] = np.zeros(3, np.float32)
        tensors["bert.pooler.dense.weight"] = np.zeros((12, 11), np.float32)

    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", break_all), "missing 1")
    assert "cls.predictions.bias" in message and "bert.pooler.extra" in message
    assert "bert.pooler.dense.weight is (12, 11), must be (12, 12)" in message
    assert "nothing was imported" in message


def test_misshaped_kernel_is_told_in_the_files_layout(tmp_path):
    def cut(tensors):
        name = "bert.encoder.layer.0.output.dense.weight"
        tensors[name] = tensors[name].T

    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", cut), "mis-shaped 1")
    assert "is (20, 12), must be (12, 20)" in message


@pytest.mark.parametrize("fields, listed", [
    ({"num_hidden_layers": 3}, "missing 16"), ({"num_hidden_layers": 1}, "unused 16"),
    ({"intermediate_size": 24}, "mis-shaped 6"), ({"hidden_size": 10}, "mis-shaped")])
def test_config_that_contradicts_its_tensors(tmp_path, fields, listed):
    fails(copy_fixture("bert_char_pooler", tmp_path / "a", **fields), listed)


def test_many_names_are_cut_in_the_message(tmp_path):
    message = fails(copy_fixture("bert_char_pooler", tmp_path / "a", num_hidden_layers=3), "more")
    assert "and 4 more" in message and len(message) < 1500


def test_names_of_bert_without_positions_mention_nezha():  # WoBERT#7, SPACES#10
    names = [*GOOGLE_REST, *(f"bert/encoder/layer_0/{name}" for name in GOOGLE_BLOCK)]
    for fields in ({}, {"model_type": "bert"}):
        with pytest.raises(ValueError, match=r"no absolute positions.*model type nezha"):
            detect_family(fields, names, "x")
    assert detect_family({}, names, "x", "nezha") == "nezha"
    assert detect_family({"use_relative_position": True}, names, "x") == "nezha"


@pytest.mark.parametrize("fields, name", [
    ({"model_type": "nezha"}, "bert_char_pooler"), ({"model_type": "roformer"}, "bert_char_pooler"),
    ({"model_type": "bert"}, "roformer_word"), ({"model_type": "roformer"}, "nezha_char"),
    ({"use_relative_position": True}, "bert_char_pooler")])
def test_contradicting_model_type(tmp_path, fields, name):
    fails(copy_fixture(name, tmp_path / "a", **fields), "contradicts")


def test_unknown_model_type(tmp_path):
    fails(copy_fixture("bert_char_pooler", tmp_path / "a", model_type="albert"),
          "must be one of bert, roformer, nezha; got 'albert'")


@pytest.mark.parametrize("fields, pattern", [
    ({"position_embedding_type": "relative_key"}, "position_embedding_type must be 'absolute'"),
    ({"is_decoder": True}, "is_decoder"), ({"hidden_act": "silu"}, "hidden_act must be one of"),
    ({"num_attention_heads": 5}, "multiple of num_heads"), ({"hidden_size": None}, "hidden_size"),
    ({"hidden_size": "12"}, "positive integer"), ({"rotary_value": True}, "rotary_value"),
    ({"max_position_embeddings": 512}, "512, but the position table has 140 rows"),
    ({"hidden_dropout_prob": "0.1"}, "config.json: "),
    ({"tie_word_embeddings": False}, "tie_word_embeddings")])
def test_config_fields_that_cannot_be_represented(tmp_path, fields, pattern):
    fails(copy_fixture("bert_char_pooler", tmp_path / "a", **fields), pattern)


def test_wrong_rotary_constant(tmp_path):
    def scale(tensors):
        tensors["roformer.encoder.embed_positions.weight"] *= 1.1

    fails(copy_fixture("roformer_word", tmp_path / "a", scale), "trained with other positions")


def test_wrong_relative_constant(tmp_path):
    def swap(tensors):  # query - key in place of key - query
        name = next(name for name in tensors if "positions_encoding" in name)
        tensors[name] = tensors[name].transpose(1, 0, 2)

    fails(copy_fixture("nezha_char", tmp_path / "a", swap), "trained with other positions")


def test_untied_decoder(tmp_path):
    def untie(tensors):
        tensors["cls.predictions.decoder.weight"] = (
            tensors["bert.embeddings.word_embeddings.weight"] + 1)

    fails(copy_fixture("bert_char_pooler", tmp_path / "a", untie), "tied to the word table")


def test_values_that_are_not_finite(tmp_path):
    def spoil(tensors):
        tensors[QUERY][0, 0] = np.nan

    fails(copy_fixture("bert_char_pooler", tmp_path / "a", spoil), f"{QUERY} holds values")


def test_three_numbers_of_rows(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a", vocab_size=30)
    with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("新\n样\n")
    assert "got 31, 30 and 29" in fails(folder, "must be equal")


def test_tokenizer_that_contradicts_the_vocabulary(tmp_path):
    fails(FIXTURES / "bert_char_pooler", "reads characters; tokenizer must be char",
          tokenizer="word")
    fails(FIXTURES / "bert_word_sharded", "8 words, such as '今天'.*37 rows", tokenizer="char")
    fails(FIXTURES / "bert_word_sharded", "word or char; got 'words'", tokenizer="words")


def test_character_model_beside_a_vocabulary_of_words(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    with open(folder / "vocab.txt", "a", encoding="utf-8") as file:
        file.write("今天\n判决书\n")
    found = import_checkpoint(folder, tokenizer="char")
    assert found.tokenizer.vocabulary_size == 29
    fails(folder, "got 31, 29 and 29")


def test_ignored_must_be_regular_expressions():
    fails(FIXTURES / "bert_char_pooler", r"must hold regular expressions; got '\('", ignored=["("])


def test_missing_parts(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    (folder / "vocab.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt with --vocabulary"):
        import_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="give the config with --config"):
        import_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="holds no checkpoint: expected model"):
        import_checkpoint(folder)
    with pytest.raises(FileNotFoundError, match=r"expected bert_model\.ckpt\.index"):
        import_checkpoint(folder / "bert_model.ckpt")


def test_two_checkpoints_in_a_folder(tmp_path):
    folder = google_folder("bert_char_pooler", tmp_path / "a")
    write_tensorflow(folder / "other.ckpt", {"x": np.zeros(2, np.float32)})
    fails(folder, r"bert_model\.ckpt, other\.ckpt: give the path of one")


def test_missing_shard(tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(FIXTURES / "bert_word_sharded", folder)
    shutil.copy(folder / "model-00001-of-00004.safetensors",
                folder / "model-00003-of-00004.safetensors")
    fails(folder, "another shard|disagree")
    (folder / "model-00003-of-00004.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"00003-of-00004.*which model\.safetensors\.index"):
        import_checkpoint(folder)


@pytest.mark.parametrize("keep", [0, 4, 300, -1])
def test_truncated_safetensors(tmp_path, keep):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:keep])
    fails(folder, "no whole safetensors file")


def test_truncated_tensorflow_checkpoint(tmp_path):
    folder = google_folder("bert_char_pooler", tmp_path / "a")
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    fails(folder, "cannot be read|no whole TensorFlow checkpoint")
    data.unlink()
    fails(folder, "no whole TensorFlow checkpoint|cannot be read")


def test_keras_objects_are_told_from_names(tmp_path):  # bert4keras#84, #119
    import tensorflow as tf
    tf.train.Checkpoint(table=tf.Variable([1.0])).write(str(tmp_path / "weights"))
    with pytest.raises(ValueError, match="save_weights_as_checkpoint"):
        open_source(tmp_path / "weights")


def object_names(*kinds):
    """Names in a TensorFlow file of Keras layers of these kinds."""
    return [f"layer_with_weights-{number}/{key}/.ATTRIBUTES/VARIABLE_VALUE"
            for number, kind in enumerate(kinds) for key in ATTRIBUTES.get(kind, [kind])]


@pytest.mark.parametrize("kinds, pattern", [
    (["gate"], "has the weights gate"),
    (["embeddings", "norm", "attention", "norm", "dense", "dense", "dense"], "two layers")])
def test_keras_objects_that_fit_no_model(kinds, pattern):
    with pytest.raises(ValueError, match=pattern):
        names_of_objects(object_names(*kinds), "x")


@pytest.mark.parametrize("content", [b"", b"no hdf5", None])
def test_h5_of_another_program(tmp_path, content):
    path = tmp_path / "weights.h5"
    if content is None:
        with h5py.File(path, "w") as file:
            file["layers/x"] = [1.0]
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be an \.h5 file of bert4keras"):
        open_source(path)


def test_damaged_config(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    (folder / "config.json").write_text('{"hidden_size": 12')
    fails(folder, "must be JSON")
    (folder / "config.json").write_text("[1]")
    fails(folder, "must hold a JSON object")


class Bomb:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickle_that_would_run_code(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Bomb(tmp_path / "ran")}))
    fails(folder, r"'.\[hf\]' in the project's folder|holds more than tensors")
    assert not (tmp_path / "ran").exists()


def test_torch_pickle_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    fails(folder, r"needs torch: pip install '\.\[hf\]' in the project's folder")


def test_torch_pickle_with_torch(tmp_path):
    torch = pytest.importorskip("torch")
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    tensors = {name: torch.from_numpy(value.copy())
               for name, value in load_tensors("bert_char_pooler").items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert import_checkpoint(folder).report.filled == 44


def test_zip_that_is_no_keras_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    with pytest.raises(ValueError, match=r"no whole \.keras file"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="run folder of this library already"):
        import_checkpoint(tmp_path)


def test_errors_are_one_line_and_nothing_is_written(tmp_path, capsys):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a", lambda t: t.pop(QUERY))
    run = tmp_path / "run"
    with pytest.raises(SystemExit) as caught:
        run_command(command.main, command.Arguments,
                    ["import", "--source", str(folder), "--output", str(run)])
    assert str(caught.value).startswith("error: ") and "\n" not in str(caught.value)
    assert not run.exists()


def test_command_writes_a_run(tmp_path, capsys):
    run = tmp_path / "run"
    run_command(command.main, command.Arguments,
                ["import", "--source", str(FIXTURES / "nezha_char"), "--output", str(run)])
    assert "skipped 2: next-sentence head" in capsys.readouterr().out
    info = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert info["model"] == "MaskedLM" and info["imported"]["map"] == "Hugging Face NEZHA"
    assert Path(run / "model.keras").is_file()
