"""benchmarks/training.py, scoring.py and memory.py run at toy size and print their columns."""

import json
import sys

import pytest

from benchmarks import memory, scoring, training
from benchmarks.measure import Worker, versions


def test_training_times_the_trainers_step(capsys):
    arguments = training.Arguments(
        sizes=("1x8x2x6x2",), variants=("chunked+recompute",), vocabulary=30, rounds=1, steps=1,
        warmup=1)
    (row,) = training.main(arguments)["1x8x2x6x2"]
    assert row["model"] == "roformer_zh, chunked+recompute"
    assert float(row["tokens/s"].replace(",", "")) > 0 and float(row["% of matmul peak"]) < 100
    assert "| peak memory, MB | useful GFLOP/s | % of matmul peak |" in capsys.readouterr().out


def test_scoring_times_both_kinds_of_lengths(capsys):
    tables = scoring.main(scoring.Arguments(size="1x8x2", length=32, pairs=2, vocabulary=30,
                                            rounds=1))
    assert set(tables) == {"one length", "mixed lengths"}
    assert "4 rows of 32 to 32 tokens" in capsys.readouterr().out


def test_memory_draws_its_curve(tmp_path):
    found = memory.main(memory.Arguments(
        lengths=(512,), full_up_to=512, size="1x16x2", variants=("full",), vocabulary=30,
        plot=tmp_path / "memory.png"))
    assert found["full"][512] > 2 * 2 * 512**2 * 4  # more than a matrix of scores of each head
    assert (tmp_path / "memory.png").stat().st_size > 1000


def test_wrong_sizes_and_variants_are_errors():
    with pytest.raises(ValueError, match="a size must be layers x width x heads x length x batch"):
        training.read_size(training.Arguments(), "6x384")
    options = {**training.read_size(training.Arguments(), "1x8x2x6x2"), "variant": "full+fast"}
    with pytest.raises(ValueError, match=r"a variant must be of .*; got 'fast'"):
        training.model_config(options)


def test_lengths_of_too_few_texts_are_an_error(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"text": "原告"}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"8 pairs need 16 texts; .* has 1"):
        scoring.text_lengths(scoring.Arguments(input=(path,), pairs=8))


def test_a_worker_that_ends_is_an_error():
    with pytest.raises(RuntimeError, match=r"ended by itself: .*no such model"):
        Worker((sys.executable, "-c", "raise SystemExit('no such model')"))


def test_versions_leave_out_what_is_not_installed():
    assert "numpy" in versions("numpy", "no-such-package")
    assert "no-such" not in versions("numpy", "no-such-package")
