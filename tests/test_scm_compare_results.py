"""What may stand in one table, and what the table may say."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from tasks.cail2019_scm.comparison import results
from tasks.cail2019_scm.comparison.cells import Cell, Data
from tasks.cail2019_scm.comparison.settings import arguments, load_settings, systems
from tasks.cail2019_scm.dataset import Triplet
from tasks.cail2019_scm.finetune import group_size

FOLDER = Path(__file__).parent.parent / "tasks/cail2019_scm/settings"


def cell(system, seed, right, **changes):
    """A fine-tuned cell that is right where `right` says so; every label is B."""
    identity = {"system": system, "kind": "finetuned", "model": system, "length": 512,
                "seed": seed, "data": {"valid": "a"}, "shared": {"epochs": 2},
                "pretraining": {"corpus_hash": "1"}, **changes}
    first = np.where(right, 1.0, -1.0)
    return Cell(identity, {}, {"valid": (first, 0 * first)})


def rows(*systems):
    count = len(systems[0].scores["valid"][0])
    data = Data([], [Triplet("", "", "", "B")] * count, None, {})
    return results.rows_of(systems, data)


@pytest.mark.parametrize("change, message", [
    ({"data": {"valid": "b"}}, "judged on the same files.*one has.*two"),
    ({"shared": {"epochs": 3}}, "share the fine-tuning settings"),
    ({"pretraining": {"corpus_hash": "2"}}, "pretrained on the same text"),
])
def test_rows_that_differ_are_rejected(change, message):
    good, odd = cell("one", 0, [1, 0]), cell("two", 0, [1, 0], **change)
    results.check_comparable([good, cell("two", 0, [1, 0])])
    with pytest.raises(ValueError, match=message):
        results.check_comparable([good, odd])


def test_other_corpora_need_a_reason_unknown_ones_too():
    odd = [cell("one", 0, [1], pretraining={"corpus_hash": "1"}),
           cell("two", 0, [1], pretraining={"corpus_hash": "2"})]
    results.check_comparable(odd, "released checkpoints")
    unknown = [cell(name, 0, [1], pretraining={"corpus_hash": None}) for name in ("one", "two")]
    with pytest.raises(ValueError, match="nothing is known of what one was pretrained on"):
        results.check_comparable(unknown)
    results.check_comparable(unknown[:1])  # alone it stands beside nobody


def test_a_verdict_follows_the_sign_and_needs_two_seeds():
    good = np.arange(60) < 55
    bad = np.arange(60) < 25
    table = rows(cell("good", 0, good), cell("good", 1, good), cell("bad", 0, bad),
                 cell("bad", 1, bad), cell("once", 0, bad))
    up, down, same, once = results.compare_rows(
        table, [("good", "bad"), ("bad", "good"), ("bad", "bad"), ("good", "once")])
    assert (up["verdict"], down["verdict"]) == ("better", "worse")
    assert up["difference"] == pytest.approx(0.5) and up["adjusted"] >= up["p_value"]
    assert "good is better than bad: +50.0 points" in results.sentence(up)
    assert "bad is worse than good: -50.0 points" in results.sentence(down)
    assert "bad and bad are not distinguishable" in results.sentence(same)
    assert once["verdict"] == "one seed: not ranked" and "p_value" not in once
    for word in ("better", "worse"):
        assert word not in results.sentence(once) and word not in results.sentence(same)


def test_a_system_without_a_seed_may_be_compared():
    table = rows(cell("rule", None, [1, 0, 1]), cell("net", 0, [1, 1, 1]),
                 cell("net", 1, [1, 1, 1]))
    assert [row.may_be_ranked for row in table] == [True, True]
    (entry,) = results.compare_rows(table, [("net", "rule")])
    assert entry["p_value"] == 1.0 and entry["verdict"] == "not distinguishable"


def test_accuracy_by_length_counts_every_row_once():
    right = np.arange(40) % 4 > 0
    table = rows(cell("one", 0, right), cell("one", 1, ~right))
    parts = results.by_length(table, np.arange(40) + 100)
    assert sum(part["judged"] for part in parts) == 40 and len(parts) == 4
    assert {part["judged"] for part in parts} <= {9, 10, 11}
    for part in parts:  # half of each: the mean over the two seeds
        assert abs(2 * part["correct"] - part["judged"]) <= 1
    assert parts[0]["length_low"] == 100 and parts[-1]["length_high"] == 139
    assert all(one["length_high"] < two["length_low"]
               for one, two in itertools.pairwise(parts))
    (part,) = results.by_length(table, [7] * 40)
    assert (part["length_low"], part["length_high"], part["judged"]) == (7, 7, 40)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_the_settings_files_can_be_used(path, tmp_path):
    settings = load_settings(path)
    for system in systems(settings):
        args = arguments(system, 3, tmp_path, tmp_path / "out", tmp_path)
        group_size(args)
        assert args.training.seed == 3 and args.sequence_length == system.length
        assert args.learning_rate == settings.finetune["learning_rate"]
    labels = [system.label for system in systems(settings)]
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize("change, message", [
    ({"lenghts": [512]}, "no key 'lenghts'; did you mean 'lengths'"),
    ({"models": [{"name": "a", "runs": "a"}]}, "a model has no key 'runs'; did you mean 'run'"),
    ({"models": [{"name": "a"}]}, "a model needs run"),
    ({"models": [{"name": "a", "run": "a"}] * 2}, "models must have different names"),
    ({"finetune": {"learning_rat": 1}}, "no setting 'learning_rat'; did you mean 'learning_rate'"),
    ({"finetune": {"sequence_length": 5}}, "finetune has no setting 'sequence_length'"),
    ({"finetune": {"loss": "rank"}}, "loss must be one of ranking, binary, contrastive; got"),
    ({"finetune": {"epochs": "2"}}, "epochs must be float; got '2'"),
    ({"models": [{"name": "a", "run": "a", "finetune": {"micro_batch_size": 2}}]},
     "a has settings of its own .*give the reason"),
    ({"baselines": ["cmn"]}, "baselines must be of .*got 'cmn'; did you mean 'cnn'"),
    ({"seeds": [1, 1]}, "seeds must be different whole numbers"),
    ({"seeds": [0.5]}, "seeds must be different whole numbers"),
    ({"judge": "train"}, "judge must be of test, valid; got 'train'"),
    ({"baseline_training": {"steps": 1}}, "baseline_training must be of"),
    ({"variants": [{"name": "v", "finetune": {}, "against": "w"}]},
     "v must be compared with another variant; got 'w'"),
    ("[", "must be JSON"), ("[]", "the settings must be an object"),
])
def test_a_wrong_settings_file_says_what_is_wrong(tmp_path, change, message):
    good = {"models": [{"name": "a", "run": "a"}], "finetune": {}}
    path = tmp_path / "settings.json"
    path.write_text(change if isinstance(change, str) else json.dumps({**good, **change}))
    with pytest.raises(ValueError, match=f"settings.json:? .*{message}"):
        load_settings(path)


def test_a_missing_settings_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no settings file at .*none.json"):
        load_settings(tmp_path / "none.json")
