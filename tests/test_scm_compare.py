"""The comparison as a whole, on tiny models: cells, report, table, manifest."""

import dataclasses
import json

import numpy as np
import pandas
import pytest

from tasks.cail2019_scm import compare, finetune
from tasks.cail2019_scm.comparison import cells
from tasks.cail2019_scm.comparison.settings import BASELINES
from tasks.cail2019_scm.dataset import save_triplets
from tests.scm_models import ROWS, tokenizer, triplets

SETTINGS = {
    "models": [{"name": "RoFormer", "run": "roformer"},
               {"name": "WoBERT", "run": "wobert"}, {"name": "BERT", "run": "bert"}],
    "lengths": [32], "seeds": [0, 1], "references": [["WoBERT", 32], ["RoFormer", 32]],
    "finetune": {"learning_rate": 3e-3, "epochs": 2, "batch_size": 8},
    "baseline_training": {"epochs": 1, "batch_size": 16},
}


def save_pretrained(folder, corpus="1" * 64, **fields):
    """A run folder of an untrained MaskedLM that says what it was pretrained on."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM
    from roformer_zh.runs import save_run

    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=24)
    config = EncoderConfig(vocabulary_size=len(ROWS), **sizes, **fields)
    save_run(folder, MaskedLM(Encoder(config)), tokenizer(), pretraining={
        "corpus_hash": corpus, "updates": 7, "tokens": 1234, "characters": 2345})


def write_settings(folder, **changes):
    path = folder / "settings.json"
    path.write_text(json.dumps({**SETTINGS, **changes}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished comparison: its arguments, the lines of its table, and the folder of all."""
    folder = tmp_path_factory.mktemp("compare")
    for part, count in (("train", 24), ("valid", 12), ("test", 20)):
        save_triplets(folder / "data" / f"{part}.json", triplets(count, seed=len(part) + count))
    save_pretrained(folder / "runs" / "roformer")
    for name, positions in (("wobert", 20), ("bert", 10)):
        save_pretrained(folder / "runs" / name, position="learned", max_sequence_length=positions)
    args = compare.Arguments(folder / "data", folder / "out", write_settings(folder),
                             folder / "runs", verbose=False)
    return args, compare.main(args)


def test_every_system_is_judged_with_every_seed(done):
    args, lines = done
    found = {line["system"]: line for line in lines}
    assert list(found) == [
        "majority of train", "TF-IDF cosine, whole texts", "TF-IDF cosine, 16 words a text",
        "untrained RoFormer-32", "word CNN-32", "word LSTM-32", "RoFormer-32", "WoBERT-32"]
    assert {line["kind"] for line in lines} == {*BASELINES, "finetuned"}
    for name, line in found.items():
        assert line["seeds"] == ("none" if line["kind"] in ("majority", "tfidf") else 2), name
        assert (line["valid_rows"], line["test_rows"]) == (12, 20)
        means = [float(value) for value in line["test_by_seed"].split()]
        assert line["test_mean"] == pytest.approx(np.mean(means), abs=1e-4)
    assert found["majority of train"]["test_mean"] == 0.5
    table = pandas.read_csv(args.output / "table.csv")
    assert list(table["system"]) == list(found)
    assert not (args.output / "work").exists() or not list((args.output / "work").iterdir())


def test_scores_are_kept_an_item_and_are_those_of_a_run_by_hand(done, tmp_path):
    """The same settings through `finetune` and its run folder give the same decisions."""
    from roformer_zh import DocumentMatcher
    from roformer_zh.training import TrainingOptions
    from tasks.cail2019_scm.dataset import load_triplets
    from tasks.cail2019_scm.scores import score_triplets

    args, _ = done
    finetune.main(finetune.Arguments(
        args.runs / "roformer", args.data, tmp_path / "run", sequence_length=32,
        training=TrainingOptions(seed=1, verbose=False), **SETTINGS["finetune"]))
    expected = score_triplets(DocumentMatcher.load(tmp_path / "run"),
                              load_triplets(args.data / "test.json"))
    with np.load(args.output / "cells" / "RoFormer-32-seed1" / "scores.npz") as arrays:
        for name, scores in zip(("test_first", "test_second"), expected, strict=True):
            np.testing.assert_allclose(arrays[name], scores, rtol=1e-5)
        assert arrays["valid_first"].shape == (12,)


def test_a_model_without_positions_for_a_length_is_listed_and_not_run(done):
    args, _ = done
    report = (args.output / "report.md").read_text(encoding="utf-8")
    assert "## Not run\n\n- BERT-32: no positions beyond 10" in report


def test_the_report_says_all_that_a_reader_needs(done):
    args, _ = done
    report = (args.output / "report.md").read_text(encoding="utf-8")
    assert (args.output / "accuracy_by_length.png").stat().st_size > 1000
    for words in ("not the official CAIL2019-SCM files", "test.json is judged once",
                  "one standard error", "p, adjusted", "Wilson", "RoFormer-32 and WoBERT-32",
                  "| RoFormer-1024 | 66.07 | 69.79 | arXiv 2104.09864, Table 5 |",
                  "epochs 2", "Documents that the splits share", "`11111111`", "1,234", "2,345",
                  "CNN and LSTM: epochs 1"):
        assert words in report, words
    assert "This is the official" not in report


def test_the_manifest_names_data_weights_seeds_and_versions(done):
    args, _ = done
    manifest = json.loads((args.output / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["data"]["files"]) == {"train", "valid", "test"}
    assert manifest["settings"]["seeds"] == [0, 1] and "keras" in manifest["versions"]
    tuned = [cell for cell in manifest["cells"] if cell["identity"]["kind"] == "finetuned"]
    assert len(tuned) == 4
    for cell in tuned:
        identity = cell["identity"]
        assert identity["pretraining"]["tokens"] == 1234 and len(identity["weights"]) == 64
        assert identity["settings"]["learning_rate"] == 3e-3
        assert identity["settings"]["warmup"] == 0.1  # a default is recorded too
        assert cell["facts"]["tokens_per_second"] > 0 and cell["facts"]["parameters"] > 0


def test_finished_cells_are_kept_and_another_seed_adds_its_own(done, monkeypatch):
    args, lines = done
    made = []
    monkeypatch.setattr(compare, "run_finetuned", lambda identity, *rest: made.append(identity))
    assert compare.main(args) == lines and not made
    with pytest.raises(AttributeError):  # the cell of seed 2 is not there, and None was made
        compare.main(dataclasses.replace(args, seeds=(0, 2)))
    assert [(identity["system"], identity["seed"]) for identity in made] == [("RoFormer-32", 2)]


@pytest.mark.parametrize("change, message", [
    ({"finetune": {**SETTINGS["finetune"], "epochs": 3}}, r"holds another result: shared.epochs"),
    ({"baseline_training": {"epochs": 2}}, r"word-CNN-32-seed0 holds another result: settings"),
])
def test_a_cell_of_other_settings_is_refused(done, tmp_path, change, message):
    args, _ = done
    with pytest.raises(ValueError, match=message):
        compare.main(dataclasses.replace(args, settings=write_settings(tmp_path, **change)))


def test_one_seed_ranks_nothing_and_without_test_json_nothing_is_chosen(done, tmp_path):
    args, _ = done
    for part in ("train", "valid"):
        save_triplets(tmp_path / "data" / f"{part}.json", triplets(12, seed=len(part)))
    one = dataclasses.replace(args, data=tmp_path / "data", output=tmp_path / "out", settings=(
        write_settings(tmp_path, seeds=[5], baselines=["majority", "cnn"],
                       models=SETTINGS["models"][:1], references=[["RoFormer", 32]])))
    lines = compare.main(one)
    report = (one.output / "report.md").read_text(encoding="utf-8")
    assert "One seed: trained systems are not ranked" in report
    assert "one seed: not ranked" in report and "so nothing is chosen on it" in report
    ranks = [word for word in (" better than ", " worse than ", "| better |", "| worse |")
             if word in report]
    assert not ranks
    assert all("test_mean" not in line for line in lines)
    record = json.loads((one.output / "cells" / "RoFormer-32-seed5" / "result.json").read_text())
    assert record["facts"]["best"] is None and record["identity"]["selects"] is False


def test_a_study_of_options_compares_each_change_with_its_base(done, tmp_path):
    args, _ = done
    variants = [{"name": "warm", "finetune": {"warmup": 0.5}},
                {"name": "stops", "finetune": {"patience": 1, "evaluate_every": 1},
                 "against": "warm"}]
    study = dataclasses.replace(args, output=tmp_path / "out", settings=write_settings(
        tmp_path, seeds=[0], baselines=["majority"], judge="valid", variants=variants,
        models=SETTINGS["models"][:1]))
    lines = {line["system"]: line for line in compare.main(study)}
    assert list(lines) == ["majority of train", "RoFormer-32", "RoFormer-32, warm",
                           "RoFormer-32, stops"]
    assert "difference from RoFormer-32" in lines["RoFormer-32, warm"]
    assert "difference from RoFormer-32, warm" in lines["RoFormer-32, stops"]
    folder = study.output / "cells" / "RoFormer-32-stops-seed0"
    assert json.loads((folder / "result.json").read_text())["facts"]["best"] is not None


def test_the_cached_tokenizer_gives_the_tokenizer_s_ids():
    plain, cached = tokenizer(), cells.CachedTokenizer(tokenizer())
    for text in ("甲乙丙丁", "", "甲乙丙丁"):
        for limit in (None, 0, 3, 9):
            assert cached.encode(text, limit) == plain.encode(text, limit)
    assert cached.cls_id == plain.cls_id
