"""`pretrain.pictures`: a trained model's pictures from its run folder."""

import numpy as np
import pytest

from pretrain import pictures
from roformer_zh import Encoder, EncoderConfig, MaskedLM, plots
from roformer_zh.runs import save_run
from tests.conftest import randomise, tiny_config
from tests.texts import random_corpus, tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out") / "corpus"
    random_corpus(folder, 12, sentences=6)
    return folder


def save_model(folder, **fields):
    config = EncoderConfig(vocabulary_size=tokenizer().vocabulary_size, num_layers=2, num_heads=2,
                           hidden_dim=12, intermediate_dim=10, **fields)
    save_run(folder, MaskedLM(randomise(Encoder(config))), tokenizer())
    return folder


def test_pictures_of_a_run(corpus, tmp_path, capsys, monkeypatch):
    maps = {}
    monkeypatch.setattr(plots, "plot_attention_map",
                        lambda found, tokens, path: maps.update(found, tokens=tokens))
    run = save_model(tmp_path / "run", trained_length=24)
    args = pictures.Arguments(run, corpus, tmp_path / "out", documents=3, sentence="原告认为好。")
    profile = pictures.main(args)
    assert profile.ratios.shape[:2] == (2, 2) and profile.edges[-1] == 24
    np.testing.assert_allclose(profile.shares.sum(-1), 1, atol=1e-4)
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["attention_over_distance.png", "rotary_decay.png"]
    tokens = maps.pop("tokens")
    assert tokens == ["[CLS]", "原告", "认为", "好", "。", "[SEP]"]
    assert list(maps) == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    assert all(part.shape == (6, 6) for part in maps.values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 texts of 24 to 24 tokens; even attention puts ")
    share = profile.shares[1, 0][profile.edges[:-1] <= 8].sum()
    assert lines[3] == f"layer 2, head 1: {share:.1%} within 8 tokens, 0.0% beyond 512"


def test_without_a_font_the_map_is_left_out_with_a_word(corpus, tmp_path, monkeypatch):
    def refuse(text):
        raise plots.MissingFontError("needs a font")

    monkeypatch.setattr(plots, "chinese_font", refuse)
    encoder = Encoder(EncoderConfig(vocabulary_size=tokenizer().vocabulary_size, num_layers=1,
                                    num_heads=2, hidden_dim=12, intermediate_dim=10))
    with pytest.warns(UserWarning, match="attention_map.png is left out: needs a font"):
        pictures.draw_map(encoder, [2, 5, 6, 3], tokenizer(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_sentence_comes_from_the_data(corpus):
    from roformer_zh.corpus import Corpus

    held_out = Corpus.open(corpus)
    ids = pictures.map_ids(None, held_out)
    low, high = pictures.SENTENCE_TOKENS
    assert low <= len(ids) - 2 <= high and held_out.tokenizer.unk_id not in ids
    text = " ".join(map(str, held_out.ids))
    assert " ".join(map(str, ids[1:-1])) in text
    with pytest.raises(ValueError, match="--sentence must have at least one token; got ''"):
        pictures.map_ids("", held_out)


def test_data_without_a_fitting_sentence_are_named(tmp_path):
    from roformer_zh.corpus import write_corpus

    with pytest.raises(ValueError, match="no sentence of 12 to 20 known tokens"):
        pictures.map_ids(None, write_corpus(tmp_path / "short", tokenizer(), ["原告认为好。"]))


def test_lengths_are_checked():
    assert pictures.choose_length(None, tiny_config(trained_length=1536)) == 1536
    assert pictures.choose_length(None, tiny_config()) == 512
    table = tiny_config("learned")
    assert pictures.choose_length(None, table) == 9
    with pytest.raises(ValueError, match=r"at least 8 and at most 9 .* got 10"):
        pictures.choose_length(10, table)
    with pytest.raises(ValueError, match="--documents must be at least 1; got 0"):
        pictures.longest_texts(None, 24, 0)


def test_the_decay_of_the_models_own_heads():
    bounds = pictures.decay_bounds(tiny_config(position_scale=2.0, max_wavelength=50.0))
    assert list(bounds) == ["d = 128, as in the paper", "d = 6, this model's heads"]
    distances, values = bounds["d = 6, this model's heads"]
    assert distances[-1] == 2048
    assert values[100] == pytest.approx(plots.rotary_decay(6, [50], 50.0)[0])
    assert len(pictures.decay_bounds(tiny_config("learned"))) == 1
