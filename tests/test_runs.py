"""A run folder loads as it was saved, and its parts must belong together."""

import json

import numpy as np
import pytest

from roformer_zh import Encoder, MaskedLM, WordTokenizer
from roformer_zh.runs import load_run, save_run
from tests.conftest import randomise, tiny_config, tiny_inputs

ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"今天气非常好案件法院被告原", "##a"]
WORDS = ["今天", "天气", "非常", "法院", "被告", "原告", "案件", "今天天气"]


@pytest.fixture
def tokenizer():
    return WordTokenizer([*ROWS, *WORDS])


def model_for(tokenizer, **options):
    return randomise(
        MaskedLM(Encoder(tiny_config(vocabulary_size=tokenizer.vocabulary_size), **options))
    )


def inputs_for(tokenizer):
    inputs = tiny_inputs(mask_positions=True)
    return {**inputs, "token_ids": inputs["token_ids"] % tokenizer.vocabulary_size}


def test_a_run_loads_as_it_was_saved(tmp_path, tokenizer):
    model = model_for(tokenizer)
    save_run(tmp_path / "run", model, tokenizer, sequence_length=512)
    run = load_run(tmp_path / "run")
    inputs = inputs_for(tokenizer)
    np.testing.assert_array_equal(np.array(run.model(inputs)), np.array(model(inputs)))
    assert run.info["sequence_length"] == 512 and run.info["model"] == "MaskedLM"
    assert run.info["encoder"] == model.encoder.config.to_dict()
    assert run.tokenizer.encode("今天天气非常好") == tokenizer.encode("今天天气非常好")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {"model.keras", "config.json", "tokenizer.json", "vocab.txt"}


def test_another_dtype_on_request(tmp_path, tokenizer):
    """keras#18979: a file saved under mixed_float16 stays mixed."""
    model = model_for(tokenizer, dtype="mixed_float16")
    save_run(tmp_path, model, tokenizer)
    inputs = inputs_for(tokenizer)
    kept = load_run(tmp_path).model
    assert kept.encoder.blocks[0].attention.compute_dtype == "float16"
    exact = load_run(tmp_path, dtype="float32").model
    assert exact.encoder.blocks[0].attention.compute_dtype == "float32"
    assert exact.encoder(dict(list(inputs.items())[:3])).dtype == "float32"
    assert 0 < np.abs(np.array(exact(inputs)) - np.array(model(inputs))).max() < 2e-2


def test_a_character_tokenizer_does_not_open_a_word_model(tmp_path, tokenizer):
    """RoFormer_pytorch#23: the same weights with two tokenizers gave two outputs."""
    save_run(tmp_path, model_for(tokenizer), tokenizer)
    characters = WordTokenizer([*ROWS, *WORDS], mode="char")
    with pytest.raises(ValueError, match=r"WordTokenizer/word.*this one .*WordTokenizer/char"):
        load_run(tmp_path, tokenizer=characters)


def test_the_three_row_numbers_must_agree(tmp_path, tokenizer):
    model = MaskedLM(Encoder(tiny_config(vocabulary_size=12)))
    with pytest.raises(ValueError, match=f"must be equal; got {len(ROWS + WORDS)}, 12 and 12"):
        save_run(tmp_path / "run", model, tokenizer)
    assert not (tmp_path / "run").exists()


def test_a_changed_vocabulary_file_is_refused(tmp_path, tokenizer):
    save_run(tmp_path, model_for(tokenizer), tokenizer)
    rows = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    rows[10], rows[11] = rows[11], rows[10]
    (tmp_path / "vocab.txt").write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(ValueError, match="vocabulary_hash"):
        load_run(tmp_path)


def test_a_folder_that_is_no_run_says_what_is_missing(tmp_path, tokenizer):
    with pytest.raises(FileNotFoundError, match=r"must be a run folder.*config.json"):
        load_run(tmp_path)
    save_run(tmp_path, model_for(tokenizer), tokenizer)
    (tmp_path / "model.keras").unlink()
    with pytest.raises(FileNotFoundError, match=r"no model at .*model.keras"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    with pytest.raises(ValueError, match=r"checkpoints import` makes a run folder"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json must be JSON"):
        load_run(tmp_path)


def test_a_full_disk_leaves_the_old_run(tmp_path, tokenizer, monkeypatch):
    model = model_for(tokenizer)
    save_run(tmp_path, model, tokenizer, note="first")
    before = (tmp_path / "model.keras").read_bytes()

    def fails(path, *_, **__):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "save", fails)
    with pytest.raises(OSError, match="No space left"):
        save_run(tmp_path, model, tokenizer, note="second")
    assert (tmp_path / "model.keras").read_bytes() == before
    assert json.loads((tmp_path / "config.json").read_text())["model"] == "MaskedLM"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
