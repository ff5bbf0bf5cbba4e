"""Foreign weights in: spellings, precisions, shards and lengths that a source may have."""

import json
import shutil

import numpy as np
import pytest

from roformer_zh.checkpoints import extend_position_table, import_checkpoint
from roformer_zh.checkpoints.variables import get_tensors
from roformer_zh.heads import MaskedLM
from tests.foreign import (
    FIXTURES,
    case_inputs,
    copy_fixture,
    google_folder,
    load_outputs,
    load_tensors,
    write_tensorflow,
)


def test_old_hugging_face_spellings(tmp_path, imported):
    def rename(tensors):
        for name in list(tensors):
            bare = name.removeprefix("bert.")
            bare = bare.replace("LayerNorm.weight", "LayerNorm.gamma")
            tensors[bare.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)
        tensors["embeddings.position_ids"] = np.arange(140)[None]
        tensors["cls.predictions.decoder.weight"] = tensors["embeddings.word_embeddings.weight"]
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    found = import_checkpoint(copy_fixture("bert_char_pooler", tmp_path / "a", rename))
    expected = get_tensors(imported["bert_char_pooler"].model)
    for name, value in get_tensors(found.model).items():
        np.testing.assert_array_equal(value, expected[name])
    assert found.report.skipped["buffer"] == ["embeddings.position_ids"]


def test_half_precision_weights(tmp_path):
    def halve(tensors):
        for name in tensors:
            tensors[name] = tensors[name].astype(np.float16)

    model = import_checkpoint(copy_fixture("bert_word_sharded", tmp_path / "a", halve)).model
    outputs = load_outputs("bert_word_sharded")
    logits = np.array(model(case_inputs(outputs, "7")))
    assert logits.dtype == np.float32
    assert 1e-7 < np.abs(logits - outputs["7/logits"]).max() < 0.02


def test_bfloat16_weights(tmp_path):
    folder = copy_fixture("bert_word_sharded", tmp_path / "a")
    header, data = {}, b""
    for name, value in load_tensors("bert_word_sharded").items():
        bits = (np.ascontiguousarray(value).view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": value.shape,
                        "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    table = get_tensors(import_checkpoint(folder).model)["token_embedding/embeddings"]
    expected = load_tensors("bert_word_sharded")["bert.embeddings.word_embeddings.weight"]
    assert 0 < np.abs(table - expected).max() < 0.01


def test_nezha_table_does_not_depend_on_the_configured_length(tmp_path, imported):
    found = import_checkpoint(copy_fixture("nezha_char", tmp_path / "a",
                                           max_position_embeddings=512))
    inputs = case_inputs(load_outputs("nezha_char"), "130")
    np.testing.assert_array_equal(np.array(found.model(inputs)),
                                  np.array(imported["nezha_char"].model(inputs)))
    assert found.model.count_params() == imported["nezha_char"].model.count_params()


def test_positions_are_extended_on_request_only(tmp_path):
    def cut(tensors):
        name = "bert.embeddings.position_embeddings.weight"
        tensors[name] = tensors[name][:8]

    folder = copy_fixture("bert_char_pooler", tmp_path / "a", cut, max_position_embeddings=8)
    outputs = load_outputs("bert_char_pooler")
    nine = {name: value[:, :9] for name, value in case_inputs(outputs, "130", head=False).items()}
    short = import_checkpoint(folder).model.encoder
    with pytest.raises(ValueError, match=r"at most 8 tokens.*extend-positions"):
        short(nine)
    longer = import_checkpoint(folder, extend_positions=20).model.encoder
    assert longer(nine).shape == (2, 9, 12)
    eight = {name: value[:, :8] for name, value in nine.items()}
    np.testing.assert_array_equal(np.array(longer(eight)), np.array(short(eight)))


def test_extended_table_by_hand():
    table = np.array([[1.0], [2.0], [4.0]], np.float32)
    longer = extend_position_table(table, 6)
    base = (table - 0.4 * table[0]) / 0.6
    expected = [0.4 * base[1] + 0.6 * base[0], 0.4 * base[1] + 0.6 * base[1],
                0.4 * base[1] + 0.6 * base[2]]
    np.testing.assert_array_equal(longer[:3], table)
    np.testing.assert_allclose(longer[3:], expected, rtol=1e-6)
    for rows in (3, 10):
        with pytest.raises(ValueError, match=r"4 \.\. 9 rows"):
            extend_position_table(table, rows)


def test_trained_length_follows_the_config(imported):
    assert imported["roformer_word"].model.encoder.config.trained_length == 140
    found = import_checkpoint(FIXTURES / "roformer_word", trained_length=1536)
    assert found.model.encoder.config.trained_length == 1536


def test_a_classifier_is_left_out_only_when_named(tmp_path):
    def add(tensors):
        tensors["classifier.weight"] = np.zeros((2, 12), np.float32)

    folder = copy_fixture("bert_char_pooler", tmp_path / "a", add)
    with pytest.raises(ValueError, match=r"unused 1: bert\.classifier\.weight|classifier\.weight"):
        import_checkpoint(folder)
    found = import_checkpoint(folder, ignored=[r"classifier\..*"])
    assert found.report.skipped["left out on request"] == ["classifier.weight"]


def test_one_shard_of_several_files(tmp_path):
    folder = tmp_path / "a"
    shutil.copytree(FIXTURES / "bert_word_sharded", folder)
    by_index = import_checkpoint(folder / "model.safetensors.index.json")
    assert type(by_index.model) is MaskedLM


def test_checkpoint_with_its_folder_elsewhere(tmp_path):
    folder = google_folder("bert_char_pooler", tmp_path / "weights")
    other = tmp_path / "other"
    other.mkdir()
    for name in ("vocab.txt", "bert_config.json"):
        (folder / name).rename(other / name)
    found = import_checkpoint(folder, config=other / "bert_config.json",
                              vocabulary=other / "vocab.txt")
    assert type(found.model) is MaskedLM


def test_tensors_written_by_a_tf1_saver(tmp_path):
    import tensorflow as tf
    folder = google_folder("bert_char_pooler", tmp_path / "a")
    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    for file in folder.glob("bert_model.ckpt*"):
        file.unlink()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in tensors.items():
            tf.compat.v1.get_variable(name, initializer=value)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(folder / "model.ckpt-20"))
    assert import_checkpoint(folder).report.filled == 44
    assert import_checkpoint(folder / "model.ckpt-20.meta").report.filled == 44
    write_tensorflow(folder / "second.ckpt", tensors)
    with pytest.raises(ValueError, match=r"model\.ckpt-20, second\.ckpt"):
        import_checkpoint(folder)
