"""The benchmarks of linear attention, ranking, input and GPU training run at toy size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks import gpu_training, input_time, linear, ranking
from tests.texts import random_corpus

ROOT = Path(__file__).parent.parent


def test_linear_times_every_kernel_as_far_as_it_may_go(tmp_path, capsys):
    plot = tmp_path / "linear.png"
    args = linear.Arguments(
        kernels=("linear, elu", "full"), lengths=(8, 16), tokens=32, width=8, longest_full=8,
        rounds=1, plot=str(plot))
    found = linear.main(args)
    for mode in ("forward", "training"):
        assert list(found[mode]["linear, elu"]) == [8, 16] and list(found[mode]["full"]) == [8]
        assert all(time > 0 for times in found[mode].values() for time in times.values())
    assert "| full | " in capsys.readouterr().out and plot.stat().st_size > 1000


@pytest.mark.parametrize("fields, message", [
    ({"kernels": ("quadratic",)}, "--kernels must be of linear, elu.*got 'quadratic'"),
    ({"lengths": (24,), "tokens": 32}, "every length must divide --tokens 32.*got 24")])
def test_linear_refuses_what_it_cannot_time(fields, message):
    with pytest.raises(ValueError, match=message):
        linear.main(linear.Arguments(**fields))


def test_ranking_counts_each_text_once_and_less_padding_than_the_order_given(tmp_path):
    texts = ["原告" * n for n in np.random.default_rng(0).permutation(np.arange(1, 61))]
    path = tmp_path / "texts.jsonl"
    rows = [json.dumps({"text": text}, ensure_ascii=False) for text in [*texts, texts[0]]]
    path.write_text("\n".join(rows), encoding="utf-8")
    args = ranking.Arguments(input=(path,), candidates=40, sequence_length=256, naive_batch=8)
    found = ranking.main(args)
    assert found["candidates"] == found["texts encoded"] == 40
    assert found["traces"] <= 3
    assert found["largest difference of a score, kept or new"] < 1e-3
    with pytest.raises(ValueError, match=r"must hold 61 different documents.*got 60"):
        ranking.read_texts(ranking.Arguments(input=(path,), candidates=60))


def test_input_time_reads_the_wait_of_a_short_run(tmp_path):
    random_corpus(tmp_path / "corpus", 30)
    stages = [dict(name=name, sequence_length=length, batch_size=2, steps=900, learning_rate=1e-3)
              for name, length in (("short", 16), ("long", 24))]
    (tmp_path / "stages.json").write_text(json.dumps(stages))
    args = input_time.Arguments(
        str(tmp_path / "corpus"), str(tmp_path / "stages.json"), steps=5, batches=3)
    rows = input_time.main(args)
    assert [row["stage"] for row in rows] == ["short", "long"]
    for row in rows:
        assert row["batch_ms"] > 0 and 0 < row["step_ms"] < 60_000 and 0 <= row["waited"] < 1
    with pytest.raises(ValueError, match="--steps must be above 4"):
        input_time.main(input_time.Arguments("none", steps=4))


def test_gpu_training_needs_jax_and_says_so():
    assert keras.backend.backend() == "tensorflow"
    with pytest.raises(ValueError, match="needs Keras' jax backend; it runs on tensorflow"):
        gpu_training.use_jax()
    assert os.environ.get("KERAS_BACKEND") != "jax"  # other tests go on with theirs


def test_gpu_training_learns_on_jax_without_tensorflow():
    code = ("import sys; from benchmarks import gpu_training as g; "
            "rows = g.main(g.arguments(sys.argv[1:])); "
            "assert 'tensorflow' not in sys.modules; "
            "assert all(row['loss'] < 7 and row['peak memory'] > 0 for row in rows)")
    options = ["--preset", "roformer_tiny", "--vocabulary", "300", "--policies", "float32",
               "--lengths", "300", "--tokens", "300", "--seconds", "0.1", "--matmul", "64"]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    result = subprocess.run([sys.executable, "-c", code, *options], cwd=ROOT, env=environment,
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-800:]
