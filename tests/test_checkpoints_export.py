"""Weights out: names, and the same bits when they come back in."""

import json

import numpy as np
import pytest

from roformer_zh.checkpoints import __main__ as command
from roformer_zh.checkpoints import export_run, import_checkpoint
from roformer_zh.checkpoints.foreign_config import write_config
from roformer_zh.checkpoints.variables import get_tensors
from roformer_zh.command import run_command
from roformer_zh.encoder import Encoder
from roformer_zh.heads import PairScorer, SiameseScorer, pool, unit
from roformer_zh.runs import load_run, save_run
from roformer_zh.tokenizer.vocabulary import read_rows
from tests.conftest import randomise, tiny_config
from tests.foreign import (
    FIXTURES,
    GOOGLE_BLOCK,
    GOOGLE_REST,
    NAMES,
    case_inputs,
    load_outputs,
    load_tensors,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Each fixture as a run folder, and the words model as both scorers and as a bare encoder."""
    root = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        found = import_checkpoint(FIXTURES / name)
        save_run(root / name, found.model, found.tokenizer)
    found = import_checkpoint(FIXTURES / "roformer_word")
    other = import_checkpoint(FIXTURES / "bert_char_pooler")
    save_run(root / "pair", randomise(PairScorer(found.model.encoder)), found.tokenizer)
    save_run(root / "siamese", randomise(SiameseScorer(other.model.encoder, pooling="pooler")),
             other.tokenizer)
    projected = SiameseScorer(found.model.encoder, projection=True)
    save_run(root / "projected", randomise(projected), found.tokenizer)
    save_run(root / "encoder", found.model.encoder, found.tokenizer)
    return root


@pytest.mark.parametrize("format", ["huggingface", "google"])
@pytest.mark.parametrize("name", [*NAMES, "pair", "siamese", "projected", "encoder"])
def test_import_after_export_is_bit_equal(runs, tmp_path, name, format):
    if (name, format) == ("roformer_char_value", "google"):
        pytest.skip("refused: see test_what_cannot_be_exported")
    export_run(runs / name, tmp_path / "out", format)
    back, before = import_checkpoint(tmp_path / "out"), load_run(runs / name)
    assert type(back.model) is type(before.model)
    assert back.model.get_config() == before.model.get_config()
    after = get_tensors(back.model)
    assert after.keys() == get_tensors(before.model).keys()
    for tensor, value in get_tensors(before.model).items():
        assert value.tobytes() == after[tensor].tobytes(), tensor
    assert back.tokenizer.vocabulary == before.tokenizer.vocabulary
    assert back.tokenizer.mode == before.tokenizer.mode


@pytest.mark.parametrize("name", NAMES)
def test_hugging_face_names_are_the_writers(runs, tmp_path, name):
    from safetensors.numpy import load_file
    export_run(runs / name, tmp_path / "out", "huggingface")
    expected = {theirs: value for theirs, value in load_tensors(name).items()
                if "seq_relationship" not in theirs and "positions_encoding" not in theirs}
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == expected.keys()
    for theirs, value in expected.items():
        if "embed_positions" in theirs:
            np.testing.assert_allclose(written[theirs][:140], value, atol=1e-6)
        else:
            np.testing.assert_array_equal(written[theirs], value)


def google_names(layers=2, *more):
    """The published list for a model of so many layers."""
    blocks = [f"bert/encoder/layer_{i}/{name}" for i in range(layers) for name in GOOGLE_BLOCK]
    return {*GOOGLE_REST, *blocks, *more}


@pytest.mark.parametrize("name, more", [
    ("bert_word_sharded", ["bert/embeddings/position_embeddings"]), ("nezha_char", ["pooler"]),
    ("bert_char_pooler", ["bert/embeddings/position_embeddings", "pooler"]),
    ("roformer_word", ["bert/encoder/embedding_hidden_mapping_in/kernel",
                       "bert/encoder/embedding_hidden_mapping_in/bias"])])
def test_google_names_are_the_published_ones(runs, tmp_path, name, more):  # bert4keras#84, #171
    import tensorflow as tf
    export_run(runs / name, tmp_path / "out", "google")
    reader = tf.train.load_checkpoint(str(tmp_path / "out" / "bert_model.ckpt"))
    if "pooler" in more:
        more = [*more[:-1], "bert/pooler/dense/kernel", "bert/pooler/dense/bias"]
    assert set(reader.get_variable_to_shape_map()) == google_names(2, *more)
    theirs = load_tensors(name)
    query = next(key for key in theirs if key.endswith("layer.0.attention.self.query.weight"))
    np.testing.assert_array_equal(
        reader.get_tensor("bert/encoder/layer_0/attention/self/query/kernel"), theirs[query].T)


def test_config_and_vocabulary_are_written(runs, tmp_path):
    export_run(runs / "roformer_word", tmp_path / "out", "huggingface")
    fields = json.loads((tmp_path / "out" / "config.json").read_text())
    original = json.loads((FIXTURES / "roformer_word" / "config.json").read_text())
    for key in ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "hidden_act",
                "num_attention_heads", "intermediate_size", "layer_norm_eps", "model_type",
                "rotary_value", "architectures"):
        assert fields[key] == original[key], key
    rows = read_rows(FIXTURES / "roformer_word" / "vocab.txt")
    assert read_rows(tmp_path / "out" / "vocab.txt") == rows
    words = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert words["tokenizer_class"] == "RoFormerTokenizer"


def test_edited_config_of_an_export_is_refused(runs, tmp_path):
    export_run(runs / "roformer_word", tmp_path / "out", "huggingface")
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_attention_heads": 1}))
    with pytest.raises(ValueError, match="num_attention_heads and the roformer_zh block"):
        import_checkpoint(tmp_path / "out")


def test_unknown_head_of_an_export_is_refused(runs, tmp_path):
    export_run(runs / "pair", tmp_path / "out", "huggingface")
    path = tmp_path / "out" / "config.json"
    fields = json.loads(path.read_text())
    for block, pattern in (({"model": "TripletScorer"}, "class that does not exist: TripletScorer"),
                           ({"model": "PairScorer", "size": 3}, "does not fit PairScorer")):
        own = {"encoder": fields["roformer_zh"]["encoder"], **block}
        path.write_text(json.dumps({**fields, "roformer_zh": own}))
        with pytest.raises(ValueError, match=pattern):
            import_checkpoint(tmp_path / "out")


@pytest.mark.parametrize("kind, fields, reason", [
    ("huggingface", {"attention": "linear"}, "attention 'linear'"),
    ("huggingface", {"position": "none"}, "position 'none'"),
    ("google", {"position_scale": 2.0}, "position_scale 2.0"),
    ("google", {"max_wavelength": 5e4}, "max_wavelength 50000"),
    ("google", {"rotary_value": True}, "rotary_value"),
    ("google", {"layer_norm_epsilon": 1e-5}, "layer_norm_epsilon"),
    ("google", {"position": "relative", "max_relative_position": 3}, "max_relative_position 3"),
    ("huggingface", {"position": "learned", "max_sequence_length": 9, "embedding_dim": 8},
     "embedding_dim")])
def test_what_cannot_be_exported(kind, fields, reason):
    config = tiny_config(**fields)
    with pytest.raises(ValueError, match=f"{reason}.*other numbers"):
        write_config(config, kind, {})


def test_unknown_format(runs, tmp_path):
    with pytest.raises(ValueError, match="huggingface, google, savedmodel, onnx; got 'pytorch'"):
        export_run(runs / "pair", tmp_path / "out", "pytorch")


def test_failed_export_leaves_the_old_folder(runs, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("old")
    with pytest.raises(ValueError, match="rotary_value"):
        export_run(runs / "roformer_char_value", tmp_path / "out", "google")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["kept"]


LENGTHS = ("1", "7", "130")


def served_outputs(path, inputs):
    """Outputs of an exported folder by name, in numpy."""
    if (path / "model").is_dir():
        import tensorflow as tf
        loaded = tf.saved_model.load(str(path / "model"))
        result = loaded.serve(inputs)
        result = result if isinstance(result, dict) else {"vector": result}
        return {name: np.array(value) for name, value in result.items()}
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path / "model.onnx"))
    feed = {entry.name: inputs[entry.name.split(":")[0]] for entry in session.get_inputs()}
    names = [entry.name for entry in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


@pytest.mark.parametrize("format", ["savedmodel", "onnx"])
@pytest.mark.parametrize("name", ["pair", "siamese"])
def test_served_scores_equal_at_three_lengths(runs, tmp_path, name, format):
    if format == "onnx":
        pytest.importorskip("tf2onnx")
        pytest.importorskip("onnxruntime")
    export_run(runs / name, tmp_path / "out", format)
    fixture = {"pair": "roformer_word", "siamese": "bert_char_pooler"}[name]
    outputs, model = load_outputs(fixture), load_run(runs / name).model
    for case in LENGTHS:
        inputs = case_inputs(outputs, case, head=False)
        served = served_outputs(tmp_path / "out", inputs)
        expected = {"vector": np.array(model(inputs))}
        if name == "pair":
            hidden = model.encoder(inputs)
            mean = unit(pool(model.encoder, hidden, inputs["padding_mask"], "mean"))
            expected = {"score": np.array(model(inputs)), "vector": np.array(mean)}
        for key, value in expected.items():
            found = served[key] if key in served else next(iter(served.values()))
            assert found.dtype == np.float32 and found.shape == value.shape
            assert np.abs(found - value).max() < 1e-5


def test_served_model_of_a_mixed_and_chunked_run_is_float32_and_full(tmp_path):
    found = import_checkpoint(FIXTURES / "roformer_word")
    config = found.model.encoder.config.replace(attention="chunked")
    model = SiameseScorer(Encoder(config, dtype="mixed_bfloat16"))
    model.encoder.set_weights(found.model.encoder.get_weights())
    save_run(tmp_path / "run", model, found.tokenizer)
    export_run(tmp_path / "run", tmp_path / "out", "savedmodel")
    inputs = case_inputs(load_outputs("roformer_word"), "130", head=False)
    vector = next(iter(served_outputs(tmp_path / "out", inputs).values()))
    expected = np.array(SiameseScorer(found.model.encoder)(inputs))
    assert vector.dtype == np.float32 and np.abs(vector - expected).max() < 1e-5


def test_masked_lm_is_served_with_its_positions(tmp_path, runs):
    export_run(runs / "nezha_char", tmp_path / "out", "savedmodel")
    outputs = load_outputs("nezha_char")
    served = served_outputs(tmp_path / "out", case_inputs(outputs, "7"))["vector"]
    assert np.abs(served - outputs["7/logits"]).max() < 1e-5
    record = json.loads((tmp_path / "out" / "serving.json").read_text(encoding="utf-8"))
    assert record["inputs"] == ["token_ids", "segment_ids", "padding_mask", "mask_positions"]


def test_onnx_packages_are_named_when_absent(runs, tmp_path, monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[onnx\]' in the project's folder"):
        export_run(runs / "pair", tmp_path / "out", "onnx")
    assert not (tmp_path / "out").exists()




def test_export_command(runs, tmp_path, capsys):
    run_command(command.main, command.Arguments, [
        "export", "--model", str(runs / "roformer_word"), "--output", str(tmp_path / "out"),
        "--format", "huggingface"])
    assert "config.json, model.safetensors" in capsys.readouterr().out
