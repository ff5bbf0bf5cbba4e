import dataclasses
import json

import pytest

from tasks.cail2019_scm import cross_validate, finetune
from tasks.cail2019_scm.dataset import save_triplets
from tests.scm_models import start_run, triplets


@pytest.fixture
def args(tmp_path):
    save_triplets(tmp_path / "data" / "train.json", triplets(12))
    save_triplets(tmp_path / "data" / "valid.json", triplets(5, seed=9))
    return cross_validate.Arguments(
        model=start_run(tmp_path / "start"), data=tmp_path / "data", output=tmp_path / "out",
        scorers=("siamese",), folds=2, seeds=(0, 1), sequence_length=32, learning_rate=1e-2,
        epochs=1, batch_size=4, verbose=False)


def test_every_fold_and_seed_is_judged_once_and_finished_cells_are_kept(args, monkeypatch):
    runs = []
    real = finetune.main
    monkeypatch.setattr(finetune, "main", lambda given: (runs.append(given), real(given))[1])
    first = cross_validate.main(args)
    assert [(run.scorer, run.training.seed) for run in runs] == [("siamese", s) for s in (0, 1)] * 3
    cells = json.loads((args.output / "results.json").read_text())["rows"]
    judged = [(c["seed"], c["cell"], c["rows"]) for c in cells if c["system"] == "siamese"]
    folds = {cell: rows for seed, cell, rows in judged if seed == 0}
    assert set(folds) == {"fold 0", "fold 1", "valid.json"} and folds["valid.json"] == 5
    assert folds["fold 0"] + folds["fold 1"] == 12
    assert sorted(p.name for p in args.output.iterdir()) == ["report.md", "results.json"]

    monkeypatch.setattr(finetune, "main", None)
    assert cross_validate.main(args) == first
    with pytest.raises(ValueError, match=r"results.json was made with .*choose another --output"):
        cross_validate.main(dataclasses.replace(args, learning_rate=1e-3))


def test_the_summary_pools_folds_and_joins_both_errors():
    cells = [dict(system="s", seed=seed, cell=cell, accuracy=accuracy, rows=rows)
             for seed, cell, accuracy, rows in (
                 (0, "fold 0", 0.5, 10), (0, "fold 1", 1.0, 30), (0, "valid.json", 0.5, 4),
                 (1, "fold 0", 0.7, 10), (1, "fold 1", 0.8, 30), (1, "valid.json", 0.5, 4))]
    (row,) = cross_validate.summary(cells)
    # seeds: 35 / 40 and 31 / 40; sqrt(.825 * .175 / 40 + .005 / 2) = 0.078
    assert row["cross-validation"] == "0.825 ± 0.078"
    assert row["cross-validation, seeds"] == "0.875 0.775"
    assert (row["cross-validation, triplets"], row["valid.json, triplets"]) == (40, 4)
    assert row["valid.json"] == "0.500 ± 0.250"
