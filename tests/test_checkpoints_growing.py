"""Starts from trained models: WoBERT's, RoFormer's, and further words."""

import json

import numpy as np
import pytest

from roformer_zh import WordTokenizer
from roformer_zh.checkpoints import __main__ as command
from roformer_zh.checkpoints import extend_vocabulary, import_checkpoint, initialise_from
from roformer_zh.checkpoints.variables import get_tensors
from roformer_zh.command import run_command
from roformer_zh.heads import SiameseScorer
from roformer_zh.runs import load_run, save_run
from tests.foreign import FIXTURES

TABLE, BIAS = "token_embedding/embeddings", "head/output_bias"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The characters BERT and the words BERT as run folders."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("bert_char_pooler", "bert_word_sharded", "roformer_word"):
        found = import_checkpoint(FIXTURES / name)
        save_run(root / name, found.model, found.tokenizer)
    return root


@pytest.fixture(scope="module")
def words():
    """The tokenizer of a vocabulary in another order, with words and unknown characters."""
    rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "法院", "院", "今", "今天", "天",
            "判决书", "曲率", "天曲", "##今"]
    return WordTokenizer(rows)


def start(runs, words, **fields):
    """WoBERT's start from the characters BERT."""
    old = load_run(runs / "bert_char_pooler")
    config = old.model.encoder.config.replace(vocabulary_size=words.vocabulary_size, pooler=False,
                                              **fields)
    made = initialise_from(runs / "bert_char_pooler", config, words)
    return old, made, get_tensors(old.model), get_tensors(made.model)


def test_word_rows_are_the_mean_of_their_characters(runs, words):
    old, _, before, after = start(runs, words)
    for tensor in (TABLE, BIAS):
        for row, word in ((5, "法院"), (8, "今天"), (10, "判决书")):
            ids = [old.tokenizer.token_to_id(character) for character in word]
            expected = before[tensor][ids].mean(axis=0)
            np.testing.assert_allclose(after[tensor][row], expected, rtol=1e-6, err_msg=word)
        for row, token in ((0, "[PAD]"), (4, "[MASK]"), (6, "院"), (9, "天")):
            np.testing.assert_array_equal(after[tensor][row],
                                          before[tensor][old.tokenizer.token_to_id(token)])


def test_unknown_characters_do_not_count(runs, words):
    old, _, before, after = start(runs, words)
    known = before[TABLE][old.tokenizer.token_to_id("天")]
    np.testing.assert_array_equal(after[TABLE][12], known)
    np.testing.assert_array_equal(after[TABLE][13],
                                  before[TABLE][old.tokenizer.token_to_id("今")])
    unknown = before[TABLE][old.tokenizer.unk_id]
    assert np.abs(after[TABLE][11] - unknown).max() > 1e-3
    assert after[BIAS][11] == 0


def test_report_says_what_was_initialised_how(runs, words):
    _, made, _, _ = start(runs, words)
    counts = {(row["part"], row["how"]): row["count"] for row in made.report}
    assert counts["token table rows", "copied"] == 8
    assert counts["token table rows", "mean of pieces"] == 5
    assert counts["token table rows", "new"] == counts["output bias rows", "new"] == 1
    assert counts["position table rows", "copied"] == 140
    assert counts["pooler/kernel, pooler/bias", "dropped"] == 2


def test_everything_else_is_copied(runs, words):
    _, _, before, after = start(runs, words)
    for tensor in set(after) - {TABLE, BIAS}:
        np.testing.assert_array_equal(after[tensor], before[tensor], err_msg=tensor)


def test_roformer_start_drops_the_position_table(runs):
    old = load_run(runs / "bert_word_sharded")
    config = old.model.encoder.config.replace(position="rotary", max_sequence_length=None)
    made = initialise_from(runs / "bert_word_sharded", config, old.tokenizer)
    before, after = get_tensors(old.model), get_tensors(made.model)
    assert set(before) - set(after) == {"position_embedding/embeddings"}
    for tensor, value in after.items():
        np.testing.assert_array_equal(value, before[tensor])
    assert {"part": "position table", "how": "dropped", "count": 1} in made.report


def test_a_scorer_gives_its_encoder_and_the_head_is_new(runs, tmp_path):
    old = load_run(runs / "roformer_word")
    save_run(tmp_path / "run", SiameseScorer(old.model.encoder), old.tokenizer)
    made = initialise_from(tmp_path / "run", old.model.encoder.config, old.tokenizer)
    how = {row["how"]: row["part"] for row in made.report}
    assert "head/transform/kernel" in how["new"] and "head/log_scale" in how["dropped"]
    np.testing.assert_array_equal(get_tensors(made.model)[TABLE], get_tensors(old.model)[TABLE])


@pytest.mark.parametrize("fields, pattern", [
    ({"num_layers": 3}, "num_layers 2 there, 3 here"),
    ({"hidden_dim": 14, "embedding_dim": 14}, "hidden_dim 12 there, 14 here"),
    ({"activation": "relu"}, "activation"),
    ({"max_sequence_length": 200}, "140 rows, and 200 are asked for")])
def test_sizes_that_differ(runs, words, fields, pattern):
    with pytest.raises(ValueError, match=pattern):
        start(runs, words, **fields)


def test_vocabulary_that_differs_from_the_config(runs, words):
    config = load_run(runs / "bert_char_pooler").model.encoder.config
    with pytest.raises(ValueError, match="vocabulary_size must be 14"):
        initialise_from(runs / "bert_char_pooler", config, words)


@pytest.mark.parametrize("name", ["roformer_word", "bert_word_sharded"])
def test_extended_vocabulary(runs, tmp_path, name):
    old = load_run(runs / name)
    report = extend_vocabulary(runs / name, ["被告", "今天天气", "好气"], tmp_path / "out")
    new = load_run(tmp_path / "out")
    before, after = get_tensors(old.model), get_tensors(new.model)
    rows = old.tokenizer.vocabulary_size
    assert new.tokenizer.vocabulary == (*old.tokenizer.vocabulary, "被告", "今天天气", "好气")
    for tensor in (TABLE, BIAS):
        assert after[tensor][:rows].tobytes() == before[tensor].tobytes()
        for place, characters in enumerate(("被告", "今天天气", "好气")):
            ids = [old.tokenizer.token_to_id(character) for character in characters]
            np.testing.assert_allclose(after[tensor][rows + place],
                                       before[tensor][ids].mean(axis=0), rtol=1e-6)
    for tensor in set(after) - {TABLE, BIAS}:
        assert after[tensor].tobytes() == before[tensor].tobytes()
    assert new.tokenizer.tokenize("今天天气好气") == ["今天天气", "好气"]
    assert {"part": "token table rows", "how": "mean of pieces", "count": 3} in report
    assert new.info["added_words"] == 3


@pytest.mark.parametrize("words, pattern", [
    (["今天"], "must not be in the vocabulary yet; '今天' is row"),
    (["被告", "被告"], "'被告' is row"), (["被 告"], "no text gives '被 告' as one token"),
    ([], "at least one word"), (["１２号"], "no text gives '１２号'")])
@pytest.mark.filterwarnings("ignore:.*user dictionary entries")
def test_words_that_cannot_be_added(runs, tmp_path, words, pattern):
    with pytest.raises(ValueError, match=pattern):
        extend_vocabulary(runs / "roformer_word", words, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_characters_model_gets_no_words(runs, tmp_path):
    with pytest.raises(ValueError, match="reads characters"):
        extend_vocabulary(runs / "bert_char_pooler", ["被告"], tmp_path / "out")


def test_extend_command(runs, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("被告\n\n好气\n", encoding="utf-8")
    run_command(command.main, command.Arguments, [
        "extend", "--model", str(runs / "roformer_word"), "--words", str(tmp_path / "words.txt"),
        "--output", str(tmp_path / "out")])
    assert "| token table rows | mean of pieces | 2 |" in capsys.readouterr().out
    info = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert info["encoder"]["vocabulary_size"] == 39
