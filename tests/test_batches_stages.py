"""Stages are data: strict JSON, and Table 4 of the paper."""

import json
from pathlib import Path

import pytest

from roformer_zh.batches import Stage, load_stages

STAGES = Path(__file__).parent.parent / "pretrain" / "stages"
GOOD = {"name": "a", "sequence_length": 128, "batch_size": 4, "steps": 2, "learning_rate": 1e-3}


def write(path, rows):
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_paper_json_is_table_4():
    stages = load_stages(STAGES / "paper.json")
    rows = [
        (s.sequence_length, s.batch_size, s.steps, s.published_loss, s.published_accuracy)
        for s in stages
    ]
    assert rows == [
        (512, 256, 200_000, 1.73, 0.650),
        (1536, 256, 12_500, 1.61, 0.668),
        (256, 256, 120_000, 1.75, 0.646),
        (128, 512, 80_000, 1.83, 0.634),
        (1536, 256, 10_000, 1.58, 0.674),
        (512, 512, 30_000, 1.66, 0.662),
    ]
    assert {s.learning_rate for s in stages} == {1e-5}
    assert [s.warmup_steps for s in stages] == [20_000, 0, 0, 0, 0, 0]
    assert {s.schedule for s in stages} == {"constant"}


@pytest.mark.parametrize(
    "name, lengths", [("tiny", [128, 512, 1024, 1536]), ("growing", [512, 1024, 1536])]
)
def test_other_files_grow_to_1536(name, lengths):
    stages = load_stages(STAGES / f"{name}.json")
    assert [stage.sequence_length for stage in stages] == lengths


def test_a_stage_survives_its_dict(tmp_path):
    stage = Stage("a", 128, 4, 2, 1e-3, schedule="linear", clause_breaks=True)
    assert load_stages(write(tmp_path / "s.json", [stage.to_dict()])) == [stage]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"sequence_lenght": 5}, "no field 'sequence_lenght'; did you mean 'sequence_length'"),
        ({"zzz": 1}, "no field 'zzz'; known: name"),
        ({"steps": 0}, "steps must be a whole number of at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"sequence_length": True}, "sequence_length must be a whole number of at least 8"),
        ({"learning_rate": -1}, "learning_rate must be a number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a number above 0"),
        ({"schedule": "cosine"}, "schedule must be one of constant, linear; got 'cosine'"),
        ({"mask_selection_rate": 0}, "mask_selection_rate must be above 0"),
        ({"mask_selection_rate": 15}, "mask_selection_rate must be from 0 to 1; got 15"),
        ({"random_token_rate": 0.3}, "random_token_rate must be at most 1 - mask_token_rate"),
        ({"clause_breaks": 1}, "clause_breaks must be true or false"),
        ({"published_loss": "low"}, "published_loss must be a number"),
        ({"name": " "}, "name must be a word"),
    ],
)
def test_a_wrong_value_is_named_with_file_and_stage(tmp_path, change, message):
    path = write(tmp_path / "s.json", [GOOD, {**GOOD, "name": "b", **change}])
    with pytest.raises(ValueError, match=r"s\.json, stage 2: ") as caught:
        load_stages(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "must be JSON"),
        ("{}", "must hold a list of stages"),
        ("[]", "must hold a list of stages"),
        ("[1]", "stage 1: a stage must be an object"),
        ('[{"name": "a"}]', "needs the fields sequence_length, batch_size, steps, learning_rate"),
        (json.dumps([GOOD, GOOD]), "names of stages must differ; repeated: a"),
    ],
)
def test_a_file_that_holds_no_stages_is_refused(tmp_path, text, message):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_stages(path)
