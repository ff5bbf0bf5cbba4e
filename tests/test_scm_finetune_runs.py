"""What a fine-tuning leaves in its folder, finished, closed or cut over devices."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roformer_zh import load_model
from roformer_zh.training import TrainingOptions
from tasks.cail2019_scm import finetune
from tasks.cail2019_scm.dataset import save_triplets
from tests.scm_models import start_run, triplets


@pytest.fixture
def args(tmp_path):
    save_triplets(tmp_path / "data" / "train.json", triplets(11))
    save_triplets(tmp_path / "data" / "valid.json", triplets(5, seed=9))
    return finetune.Arguments(
        model=start_run(tmp_path / "start", dropout=0.0, attention_dropout=0.0),
        data=tmp_path / "data", output=tmp_path / "out", sequence_length=32, learning_rate=1e-2,
        epochs=1, batch_size=4, training=TrainingOptions(verbose=False))


def test_a_finished_run_is_never_overwritten(args):
    """A closed fit hands back the starting weights: they must not be saved as the result."""
    finetune.main(args)
    before = (args.output / "model.keras").read_bytes()
    assert finetune.main(args)["finished"]
    assert (args.output / "model.keras").read_bytes() == before
    (args.output / "model.keras").unlink()
    with pytest.raises(ValueError, match=r"was finished, but its model.keras is gone"):
        finetune.main(args)
    (args.output / "training.json").unlink()
    (args.output / "model.keras").write_bytes(before)
    with pytest.raises(ValueError, match="already holds a model"):
        finetune.main(args)


@pytest.mark.parametrize("change", ["valid.json", "weights"])
def test_other_validation_data_or_weights_are_refused(args, change):
    finetune.main(args)
    if change == "weights":
        start_run(args.model, dropout=0.0, attention_dropout=0.0)  # other random weights
        name = "weights"
    else:
        save_triplets(args.data / "valid.json", triplets(5, seed=10))
        name = "validation"
    with pytest.raises(ValueError, match=f"holds another run.*{name}"):
        finetune.main(args)


def test_a_mixed_training_serves_float32(args):
    """keras#18979: a model trained in half precision would be served in it."""
    finetune.main(dataclasses.replace(
        args, training=TrainingOptions(dtype_policy="mixed_bfloat16", verbose=False)))
    assert load_model(args.output).encoder.blocks[0].attention.compute_dtype == "float32"


SCRIPT = """
import dataclasses, json, sys
from pathlib import Path
from roformer_zh.training import TrainingOptions
from tasks.cail2019_scm import finetune
fields = json.loads(sys.argv[1])
fields["training"] = TrainingOptions(**fields["training"])
for name in ("model", "data", "output"):
    fields[name] = Path(fields[name])
print(json.dumps(finetune.main(finetune.Arguments(**fields))["accuracy"]))
"""


def test_two_replicas_give_one_device_s_model(args):
    """Eleven triplets in batches of four: the last batch has fewer rows than both micro-batches."""
    single = finetune.main(args)
    fields = {name: value for name, value in dataclasses.asdict(args).items()
              if name in ("model", "data", "sequence_length", "learning_rate", "epochs",
                          "batch_size")}
    training = {"strategy": "mirrored", "devices": ["CPU:0", "CPU:1"], "micro_batch_size": 1,
                "verbose": False}
    fields |= {"output": args.output.with_name("two"), "training": training}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(fields, default=str)], text=True,
        capture_output=True, check=False, cwd=Path(__file__).parent.parent)
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1]) == single["accuracy"]
    one, two = (load_model(folder).get_weights() for folder in (args.output, fields["output"]))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)
