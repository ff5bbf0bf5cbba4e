"""Foreign weights in: the numbers, the class, the names."""

import json

import keras
import numpy as np
import pytest

from roformer_zh.checkpoints import import_checkpoint
from roformer_zh.checkpoints.variables import get_tensors
from roformer_zh.encoder import Encoder
from roformer_zh.heads import PairScorer
from tests.foreign import (
    CASES,
    FIXTURES,
    NAMES,
    case_inputs,
    copy_fixture,
    google_folder,
    load_outputs,
    load_tensors,
)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_the_writers(imported, name):
    model, outputs = imported[name].model, load_outputs(name)
    for case in CASES:
        logits = np.array(model(case_inputs(outputs, case)))
        inputs = case_inputs(outputs, case, head=False)
        hidden = np.array(model.encoder(inputs))
        real = inputs["padding_mask"]
        assert np.abs(logits - outputs[f"{case}/logits"]).max() < 1e-5
        assert np.abs(hidden - outputs[f"{case}/hidden"])[real].max() < 1e-5
        if f"{case}/pooled" in outputs:
            pooled = np.array(model.encoder.pooled(hidden))
            assert np.abs(pooled - outputs[f"{case}/pooled"]).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_the_writers(imported, name):
    import tensorflow as tf
    model, outputs = imported[name].model, load_outputs(name)
    with tf.GradientTape() as tape:
        logits = model(case_inputs(outputs, "7"))
        labels = outputs["7/mask_ids"].astype("int32")
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(
            labels, logits, from_logits=True))
    weights = model.trainable_variables
    gradients = tape.gradient(loss, weights)
    assert abs(float(loss) - outputs["7/loss"]) < 1e-5
    with_gradient = {variable.path: tf.convert_to_tensor(gradient).numpy()
                     for variable, gradient in zip(weights, gradients, strict=True)
                     if gradient is not None}
    compared = 0
    for theirs, expected in outputs.items():
        if not theirs.startswith("gradient/") or "embed_positions" in theirs:
            continue
        ours = find_gradient(theirs.removeprefix("gradient/"), with_gradient)
        assert np.abs(ours - expected).max() < 1e-4, theirs
        compared += 1
    assert compared >= 41


def find_gradient(theirs, gradients):
    """Our gradient for a Hugging Face name, in torch's layout; written apart from the maps."""
    path = theirs.split(".", 1)[1]
    if theirs.startswith("cls."):
        path = path.replace("predictions.transform.dense", "masked_lm/transform").replace(
            "predictions.transform.LayerNorm", "masked_lm/transform_norm").replace(
            "predictions.bias", "masked_lm/output_bias")
    path = path.replace("embeddings.word_embeddings.weight", "token_embedding/embeddings").replace(
        "embeddings.token_type_embeddings.weight", "segment_embedding/embeddings").replace(
        "embeddings.position_embeddings.weight", "position_embedding/embeddings").replace(
        "embeddings.LayerNorm", "embedding_norm").replace("embeddings_project",
                                                          "embedding_projection")
    path = path.replace("encoder.layer.", "block_").replace("attention.output.dense",
                                                            "attention/output")
    path = path.replace("attention.output.LayerNorm", "attention_norm").replace(
        "output.LayerNorm", "output_norm").replace("output.dense", "output").replace(
        "intermediate.dense", "intermediate").replace(".", "/")
    is_norm = "norm/" in path
    path = path.replace("norm/weight", "norm/gamma").replace("norm/bias", "norm/beta")
    path = path.replace("/weight", "/kernel")
    for part, place in (("query", 0), ("key", 1), ("value", 2)):
        if f"self/{part}/" in path:
            fused = path.replace(f"self/{part}/", "query_key_value_")
            array = np.split(gradients["encoder/" + fused], 3, axis=-1)[place]
            return array.T
    array = gradients[path if path.startswith("masked_lm") else "encoder/" + path]
    return array.T if path.endswith("kernel") and not is_norm else array


@pytest.mark.parametrize("name", NAMES)
def test_report_counts_everything(imported, name):
    report = imported[name].report
    assert report.filled == len(get_tensors(imported[name].model))
    skipped = sum(map(len, report.skipped.values()))
    assert report.filled + skipped == len(load_tensors(name))


@pytest.mark.parametrize("name, reason", [("roformer_word", "constant position table"),
                                          ("nezha_char", "constant position table"),
                                          ("bert_char_pooler", "next-sentence head")])
def test_report_names_what_is_left_out(imported, name, reason):
    assert any(line.endswith(reason) for line in imported[name].report.lines())


@pytest.mark.parametrize("name, fields", [
    ("roformer_word", {"model_type": "roformer"}), ("roformer_word", {"model_type": None}),
    ("bert_char_pooler", {}), ("bert_word_sharded", {}),
    ("nezha_char", {"use_relative_position": True}), ("nezha_char", {"model_type": "nezha"})])
def test_google_names_give_the_same_model(imported, tmp_path, name, fields):
    folder = google_folder(name, tmp_path / "ckpt", **fields)
    model_type = None if fields or name.startswith("bert") else "roformer"
    if fields == {"model_type": None}:
        model_type = "roformer"
    found = import_checkpoint(folder, model_type=model_type)
    expected = get_tensors(imported[name].model)
    for tensor, value in get_tensors(found.model).items():
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor)
    assert found.model.encoder.config.position == imported[name].model.encoder.config.position
    assert "bert4keras" in found.report.map or "Google" in found.report.map


def test_all_spellings_of_a_tensorflow_checkpoint(tmp_path):  # castorini/duobert#6
    folder = google_folder("bert_char_pooler", tmp_path / "ckpt")
    prefix = folder / "bert_model.ckpt"
    counts = [import_checkpoint(path).report.filled for path in
              (prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001", folder)]
    assert len(set(counts)) == 1


@pytest.mark.parametrize("file, name, model_type", [
    ("roformer_word.weights", "roformer_word", "roformer"), ("nezha_char.h5", "nezha_char", None)])
def test_weights_that_bert4keras_saved(imported, file, name, model_type):  # bert4keras#119, #247
    found = import_checkpoint(
        FIXTURES / "bert4keras" / file, model_type=model_type, pooler=False,
        config=FIXTURES / name / "config.json", vocabulary=FIXTURES / name / "vocab.txt")
    expected = get_tensors(imported[name].model)
    for tensor, value in get_tensors(found.model).items():
        np.testing.assert_array_equal(value, expected[tensor], err_msg=tensor)


def test_optimizer_slots_are_skipped_and_counted(tmp_path):  # huggingface/transformers#8242
    def add(tensors):
        table = tensors["bert/embeddings/word_embeddings"]
        tensors["bert/embeddings/word_embeddings/adam_m"] = table
        tensors["bert/embeddings/word_embeddings/lamb_v"] = table
        tensors["global_step"] = np.array(7, np.int64)

    found = import_checkpoint(google_folder("bert_char_pooler", tmp_path / "ckpt", add))
    assert len(found.report.skipped["optimizer slot"]) == 3
    assert len(found.report.skipped["next-sentence head"]) == 2


def test_one_optimizer_slot_is_counted_once(tmp_path):
    def add(tensors):
        table = tensors["bert/embeddings/word_embeddings"]
        tensors["bert/embeddings/word_embeddings/adam_m"] = table

    found = import_checkpoint(google_folder("bert_word_sharded", tmp_path / "ckpt", add))
    assert found.report.skipped == {
        "optimizer slot": ["bert/embeddings/word_embeddings/adam_m"]}


def test_folder_name_plays_no_part(tmp_path):  # ymcui/Chinese-BERT-wwm#52
    kinds = {import_checkpoint(copy_fixture("bert_char_pooler", tmp_path / name)
                               ).model.encoder.config.position
             for name in ("roberta_x", "roformer_y", "nezha_z")}
    assert kinds == {"learned"}


@pytest.mark.parametrize("name, mode", [("roformer_word", "word"), ("bert_word_sharded", "word"),
                                        ("roformer_char_value", "char"), ("nezha_char", "char")])
def test_tokenizer_kind_follows_the_vocabulary(imported, name, mode):
    assert imported[name].tokenizer.mode == mode
    config = imported[name].model.encoder.config
    assert imported[name].tokenizer.vocabulary_size == config.vocabulary_size


def test_vocabulary_from_tokenizer_json(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    rows = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    (folder / "vocab.txt").unlink()
    ids = {row: number for number, row in enumerate(rows)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ids}}))
    assert import_checkpoint(folder).tokenizer.vocabulary == tuple(rows)


def test_lower_case_follows_tokenizer_config(tmp_path):
    folder = copy_fixture("bert_char_pooler", tmp_path / "a")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert import_checkpoint(folder).tokenizer.fingerprint()["lowercase"] is False


def test_factorised_embedding_has_a_projection_only_when_needed(imported):
    narrow = get_tensors(imported["roformer_word"].model)
    assert narrow["token_embedding/embeddings"].shape == (37, 8)
    assert narrow["embedding_projection/kernel"].shape == (8, 12)
    assert narrow["head/transform/kernel"].shape == (12, 8)
    assert "embedding_projection/kernel" not in get_tensors(imported["roformer_char_value"].model)


def test_rotary_value_changes_the_hidden_states(tmp_path, imported):
    without = import_checkpoint(copy_fixture("roformer_char_value", tmp_path / "a",
                                             rotary_value=False)).model.encoder
    outputs = load_outputs("roformer_char_value")
    inputs = case_inputs(outputs, "7", head=False)
    assert np.abs(np.array(without(inputs)) - outputs["7/hidden"]).max() > 0.01


def test_mlm_head_is_imported_and_tied(tmp_path):  # bert4keras#84, guwenbert#7
    def edit(tensors):
        tensors["cls.predictions.bias"][:] = 0
        tensors["cls.predictions.bias"][7] = 100

    model = import_checkpoint(copy_fixture("bert_char_pooler", tmp_path / "a", edit)).model
    inputs = case_inputs(load_outputs("bert_char_pooler"), "7")
    before = np.array(model(inputs))
    assert (before.argmax(-1) == 7).all()
    table = model.encoder.token_embedding.embeddings
    values = np.array(table)
    values[9] += 1.0  # not among what follows
    inputs["token_ids"] = np.where(inputs["token_ids"] == 9, 8, inputs["token_ids"])
    before = np.array(model(inputs))
    table.assign(values)
    after = np.array(model(inputs))
    assert np.abs(after - before)[..., 9].min() > 1e-3
    np.testing.assert_array_equal(np.delete(after, 9, -1), np.delete(before, 9, -1))


def test_kernel_orientation(tmp_path):  # RoFormer_pytorch#2: square kernels hide a transposition
    def edit(tensors):
        kernel = np.zeros((12, 12), np.float32)
        kernel[1, 3] = 1.0  # torch: out 1, in 3
        tensors["bert.encoder.layer.0.attention.output.dense.weight"] = kernel
        tensors["bert.encoder.layer.0.attention.output.dense.bias"][:] = 0

    model = import_checkpoint(copy_fixture("bert_char_pooler", tmp_path / "a", edit)).model
    layer = model.encoder.blocks[0].attention.output_dense
    output = np.array(layer(np.eye(12, dtype=np.float32)[3:4]))
    assert output[0].tolist() == np.eye(12)[1].tolist()


def test_query_key_and_value_keep_their_order(imported):
    tensors = load_tensors("bert_char_pooler")
    fused = np.array(imported["bert_char_pooler"].model.encoder.blocks[1].attention.kernel)
    for place, part in enumerate(("query", "key", "value")):
        theirs = tensors[f"bert.encoder.layer.1.attention.self.{part}.weight"]
        np.testing.assert_array_equal(fused[:, 12 * place:12 * (place + 1)], theirs.T)


def test_pooler_is_optional(tmp_path):  # WoBERT#9
    found = import_checkpoint(FIXTURES / "bert_char_pooler", pooler=False)
    assert not found.model.encoder.config.pooler
    assert len(found.report.skipped["pooler, not wanted"]) == 2
    encoder = import_checkpoint(FIXTURES / "bert_word_sharded").model.encoder
    assert PairScorer(encoder, pooling="mean").pooling == "mean"
    with pytest.raises(ValueError, match="pooler"):
        PairScorer(encoder, pooling="pooler")


def test_encoder_alone(tmp_path):
    def drop_head(tensors):
        for name in [name for name in tensors if name.startswith("cls.")]:
            del tensors[name]

    found = import_checkpoint(copy_fixture("bert_char_pooler", tmp_path / "a", drop_head))
    assert type(found.model) is Encoder
    outputs = load_outputs("bert_char_pooler")
    hidden = np.array(found.model(case_inputs(outputs, "7", head=False)))
    assert np.abs(hidden - outputs["7/hidden"])[0].max() < 1e-5
