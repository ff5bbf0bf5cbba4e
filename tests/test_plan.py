"""The plan of a pretraining: figures that follow from one another, and every error."""

import json

import pytest

from pretrain.plan import Arguments, check, largest_micro_batch, main, masked_slots, step_memory
from roformer_zh import EncoderConfig, costs
from roformer_zh.batches.masking import Masker
from roformer_zh.batches.stages import load_stages
from roformer_zh.training.steps import cut_plan

PAPER = "pretrain/stages/paper.json"
PLAN = Arguments(PAPER, "roformer_base", "v100-32gb", replicas=8)


@pytest.fixture
def stages_of(tmp_path):
    def write(**fields):
        stage = dict(name="s", sequence_length=512, batch_size=256, steps=10, learning_rate=1e-5)
        path = tmp_path / "stages.json"
        path.write_text(json.dumps([{**stage, **fields}]))
        return str(path)

    return write


def test_the_papers_stages_on_eight_v100(capsys):
    plan = main(PLAN)
    printed = capsys.readouterr().out
    assert plan["updates"] == 200_000 + 12_500 + 120_000 + 80_000 + 10_000 + 30_000
    assert "124,099,664 parameters" in printed
    assert "25% of the peak is reached" in printed
    for stage in plan["stages"]:
        assert f"| {stage['name']} |" in printed
        assert stage["micro_batch_size"] * stage["accumulation"] * 8 == stage["batch_size"]
        assert stage["peak"] < 0.9 * 32e9
    assert plan["hours"] == pytest.approx(sum(stage["hours"] for stage in plan["stages"]))
    assert plan["all_reduce_bytes"] == 2 * 7 * 4 * 124_099_664 // 8


def test_time_follows_from_operations_peak_and_efficiency(stages_of):
    args = Arguments(stages_of(), device="a100-40gb", efficiency=0.5, dtype_policy="mixed_bfloat16")
    stage = main(args)["stages"][0]
    useful = costs.training_flops(EncoderConfig.preset("roformer_base"), 256, 512, 80)
    assert stage["compute_seconds"] == pytest.approx(useful / (0.5 * 312e12))
    assert stage["all_reduce_seconds"] == 0
    assert stage["hours"] == pytest.approx(10 * stage["compute_seconds"] / 3600)


def test_computing_again_takes_less_memory_and_more_time(stages_of):
    path = stages_of(batch_size=4, sequence_length=1536)
    plain, again = (
        main(Arguments(path, recompute=recompute))["stages"][0] for recompute in (False, True)
    )
    assert again["peak"] < 0.6 * plain["peak"]
    assert 1.2 < again["compute_seconds"] / plain["compute_seconds"] < 1.35
    assert again["flops_per_token"] == plain["flops_per_token"]


def test_micro_batches_are_what_the_trainer_cuts(stages_of):
    args = Arguments(stages_of(batch_size=250), replicas=8, device="v100-16gb")
    stage = load_stages(args.stages)[0]
    row = main(args)["stages"][0]
    count, rows = cut_plan(250, 8, row["micro_batch_size"])
    assert (row["accumulation"], row["micro_batch_size"]) == (count, rows)
    assert row["filled_rows"] == 8 * count * rows - 250 > 0
    config = EncoderConfig.preset(args.model)
    larger = step_memory(args, config, stage, 2 * rows, True).peak
    assert larger > 0.9 * 16e9, "twice as many rows must not fit, or the choice is no largest one"
    assert largest_micro_batch(args, config, check(args), stage) == (rows, count)


@pytest.mark.parametrize("length, rate", [(8, 0.15), (512, 0.15), (1536, 0.15), (64, 1.0)])
def test_masked_slots_are_those_of_the_batches(stages_of, length, rate):
    stage = load_stages(stages_of(sequence_length=length, mask_selection_rate=rate))[0]

    class Tokenizer:
        mask_id, special_ids, ordinary_ids, vocabulary_size = 4, {0}, [5], 6

    assert masked_slots(stage) == Masker(Tokenizer(), rate).slots(length)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(device="v100"), "--device must be one of v100-16gb, .*; got 'v100'"),
        (dict(replicas=0), "--replicas must be at least 1; got 0"),
        (dict(efficiency=1.5), "--efficiency must be above 0 and at most 1; got 1.5"),
        (dict(bandwidth=0.0), "--bandwidth must be above 0 GB/s; got 0"),
        (
            dict(dtype_policy="mixed_bfloat16"),
            "v100-32gb has no fast mixed_bfloat16; use --dtype-policy float32 or mixed_float16",
        ),
        (
            dict(model="bert_base"),
            "stage '2: 1536' has 1536 tokens, bert_base 512 rows: pass --max-sequence-length 1536",
        ),
        (dict(model="roformer_bass"), "preset must be one of"),
        (dict(attention="flash"), "EncoderConfig.attention must be one of"),
    ],
)
def test_errors_say_what_to_do(fields, message):
    with pytest.raises(ValueError, match=message):
        main(Arguments(PAPER, **fields))


def test_a_row_that_does_not_fit_names_what_saves_memory(stages_of):
    path = stages_of(sequence_length=16384, batch_size=8)
    message = (
        r"one row of stage 's' \(16384 tokens\) must fit into 14.4 GB, 90% of v100-16gb's memory; "
        "it needs .* GB: try --recompute, --attention chunked, --dtype-policy mixed_float16, "
        "a larger --device"
    )
    with pytest.raises(ValueError, match=message):
        main(Arguments(path, device="v100-16gb", dtype_policy="float32"))
    row = main(Arguments(path, device="v100-32gb", attention="chunked", recompute=True))
    assert row["stages"][0]["micro_batch_size"] >= 1


def test_a_position_table_that_is_long_enough(stages_of):
    args = Arguments(
        stages_of(sequence_length=1024), "bert_base", max_sequence_length=1024, replicas=8
    )
    assert main(args)["parameters"] == costs.parameters(
        EncoderConfig.preset("bert_base", max_sequence_length=1024)
    )
