import json
import os
import subprocess
import sys

import numpy as np
import pytest

from roformer_zh.layout import Layout
from roformer_zh.training import TrainingOptions
from tasks.cail2019_scm.augment import augment
from tasks.cail2019_scm.batches import TripletBatches
from tasks.cail2019_scm.dataset import Triplet, save_triplets
from tests.scm_models import CHARACTERS, scorer, start_run, tokenizer, triplets


def batches(rows, kind="siamese", size=3, **options):
    return TripletBatches(rows, tokenizer(), Layout(kind, 32), size, **options)


@pytest.mark.parametrize("size, sizes", [(3, [3, 3, 3, 1]), (1, [1] * 10), (10, [10]), (16, [10])])
def test_a_batch_counts_triplets_and_an_epoch_has_each_once(size, sizes):
    rows = [Triplet(c, "甲甲", "乙乙", "B") for c in CHARACTERS[:10]]
    source = batches(rows, size=size)
    assert source.steps_per_epoch == len(sizes)
    for epoch in range(2):
        found = [source.batch(epoch * len(sizes) + step) for step in range(len(sizes))]
        assert [len(batch["weights"]) for batch in found] == sizes
        first = sorted(int(row) for batch in found for row in batch["token_ids"][:, 0, 1])
        assert first == list(range(5, 15))


def test_a_batch_is_a_function_of_seed_and_step():
    rows = triplets(40)
    one, same, other = batches(rows, seed=1), batches(rows, seed=1), batches(rows, seed=2)
    steps = [30, 2, 14, 2]
    for step in steps:
        for name, array in one.batch(step).items():
            np.testing.assert_array_equal(array, same.batch(step)[name])
    assert any(one.batch(s)["token_ids"].shape != other.batch(s)["token_ids"].shape or
               (one.batch(s)["token_ids"] != other.batch(s)["token_ids"]).any() for s in range(3))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    assert one.fingerprint() != batches(triplets(40, seed=5), seed=1).fingerprint()


def test_rows_of_like_length_share_a_batch():
    rows = triplets(200, longest=120)
    source = TripletBatches(rows, tokenizer(), Layout("siamese", 300), 5)
    real = slots = 0
    for step in range(source.steps_per_epoch):
        mask = source.batch(step)["padding_mask"]
        real, slots = real + mask.any(axis=1).sum(), slots + mask[:, 0].size
    assert real / slots > 0.75


def test_a_pair_batch_holds_a_with_b_and_a_with_c():
    batch = batches([Triplet("甲", "乙乙", "丙", "C")], kind="pair").batch(0)
    assert batch["token_ids"].shape == (1, 2, 32)
    assert batch["token_ids"][0, 0, :6].tolist() == [2, 5, 3, 6, 6, 3]
    assert batch["token_ids"][0, 1, :6].tolist() == [2, 5, 3, 7, 3, 0]
    assert batch["segment_ids"][0, 0, :6].tolist() == [0, 0, 0, 1, 1, 1]
    assert batch["first_is_closer"].tolist() == [0.0]


def test_the_sequences_of_a_triplet_stay_on_one_replica():
    from roformer_zh.training.steps import cut, cut_plan

    batch = batches(triplets(4), kind="pair", size=4).batch(0)
    plan = cut_plan(4, replicas=2)
    for replica in range(2):
        part = cut(batch["token_ids"], replica, *plan).reshape(-1, 2, batch["token_ids"].shape[-1])
        ends = [row.tolist().index(3) for row in part.reshape(-1, part.shape[-1])]
        for (first, second), sequence in zip(np.reshape(ends, (-1, 2)), part, strict=True):
            assert first == second  # both sequences begin with the same A
            np.testing.assert_array_equal(sequence[0, :first], sequence[1, :first])


def test_the_share_of_text_that_is_cut_is_counted():
    source = batches([Triplet("甲" * 20, "乙" * 14, "丙" * 10, "B")])  # 14 ids a text stay
    assert source.cut == pytest.approx(6 / 44) and source.cut_rows == pytest.approx(1 / 3)


@pytest.mark.parametrize("kind", ["siamese", "pair"])
@pytest.mark.parametrize("loss", ["ranking", "binary"])
def test_the_objective_adds_up_and_exchanging_b_and_c_flips_it(kind, loss):
    from tasks.cail2019_scm.objectives import TripletObjective, pair_scores

    rows, model, objective = triplets(6), scorer(kind), TripletObjective(loss)
    batch = next(batches(rows, kind, size=6).in_order())
    whole = {name: float(value) for name, value in objective(model, batch, False).items()}
    parts = [objective(model, {n: a[i:i + 2] for n, a in batch.items()}, False) for i in (0, 2, 4)]
    for name, value in whole.items():
        assert sum(float(part[name]) for part in parts) == pytest.approx(value, rel=1e-5)
    assert whole["weight"] == objective.weight(batch) == 6
    swapped = [Triplet(a, c, b, "C" if label == "B" else "B") for a, b, c, label in rows]
    other = next(batches(swapped, kind, size=6).in_order())
    assert float(objective(model, other, False)["loss"]) == pytest.approx(whole["loss"], rel=1e-5)
    first, second = (np.asarray(s, np.float64) for s in pair_scores(model, batch, False))
    closer = batch["first_is_closer"]
    if loss == "ranking":
        expected = np.log1p(np.exp(-(2 * closer - 1) * (first - second)))
    else:
        p, q = 1 / (1 + np.exp(-first)), 1 / (1 + np.exp(-second))
        expected = -(np.log(np.where(closer, p, 1 - p)) + np.log(np.where(closer, 1 - q, q))) / 2
    assert whole["loss"] == pytest.approx(expected.sum(), rel=1e-4)
    assert whole["correct"] == np.sum((first >= second) == closer)


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_rows_of_weight_zero_count_nothing_even_when_they_are_padding(kind):
    import tensorflow as tf

    from tasks.cail2019_scm.objectives import TripletObjective

    model, objective = scorer(kind), TripletObjective()
    batch = next(batches(triplets(3), kind).in_order())
    padded = {name: np.concatenate([array, 0 * array[:2]]) for name, array in batch.items()}

    def gradients(part):
        with tf.GradientTape() as tape:
            loss = objective(model, part, False)["loss"]
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(
            loss, [v.value for v in model.trainable_variables]) if g is not None]

    loss, plain = gradients(batch)
    same_loss, same = gradients(padded)
    assert float(loss) == pytest.approx(float(same_loss), rel=1e-5)
    for one, other in zip(plain, same, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def matcher_of(kind):
    from roformer_zh import DocumentMatcher

    return DocumentMatcher(scorer(kind), tokenizer(), Layout(kind, 32), verbose=False)


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_decisions_are_antisymmetric(kind):
    from tasks.cail2019_scm.scores import antisymmetry_error, score_triplets
    from tasks.cail2019_scm.statistics import decide

    rows, matcher = triplets(20), matcher_of(kind)
    assert antisymmetry_error(matcher, rows) < 1e-6
    flipped = decide(*score_triplets(matcher, [row._replace(B=row.C, C=row.B) for row in rows]))
    assert all(x != y for x, y in zip(decide(*score_triplets(matcher, rows)), flipped, strict=True))


@pytest.mark.parametrize("kind", ["siamese", "pair"])
def test_identical_candidates_tie_and_are_right_half_of_the_time(kind):
    from tasks.cail2019_scm.scores import matcher_row

    rows = [Triplet("甲", "乙丙", "乙丙", "B"), Triplet("甲", "乙丙", "乙丙", "C")]
    row = matcher_row("x", matcher_of(kind), rows)
    assert (row["accuracy"], row["ties"]) == (0.5, 2)


def test_evaluation_gives_one_line_a_row_in_order_whatever_the_row(tmp_path):
    from tasks.cail2019_scm import evaluate

    start_run(tmp_path / "run", "pair")
    rows = [Triplet("", "甲", "", None), *(row._replace(label=None) for row in triplets(9))]
    save_triplets(tmp_path / "input.txt", rows)
    with open(tmp_path / "input.txt", "ab") as file:
        file.write('{"A": "甲'.encode() + b'\xff", "B": "", "C": "\xfe"}\n')

    def run(data, name, **options):
        args = evaluate.Arguments(tmp_path / "run", data, tmp_path / name, verbose=False, **options)
        metrics = evaluate.main(args)
        return metrics, (tmp_path / name).read_text().splitlines()

    with pytest.raises(ValueError, match=r"input\.txt:11: must be UTF-8"):
        run(tmp_path / "input.txt", "none", labelled=False)
    metrics, lines = run(tmp_path / "input.txt", "a", labelled=False, invalid_bytes="replace")
    assert metrics["rows"] == len(lines) == 11 and set(lines) == {"B", "C"}
    assert "accuracy" not in metrics
    save_triplets(tmp_path / "reversed", rows[:10][::-1])
    assert run(tmp_path / "reversed", "b", labelled=False)[1] == lines[:10][::-1]
    truth = [row._replace(label=line) for row, line in zip(rows, lines[:10], strict=False)]
    save_triplets(tmp_path / "truth", truth)
    assert run(tmp_path / "truth", "c")[0]["accuracy"] == 1.0


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A siamese run, trained with all augmentation on triplets that can be learnt."""
    from tasks.cail2019_scm import finetune

    folder = tmp_path_factory.mktemp("finetuned")
    start_run(folder / "start")
    save_triplets(folder / "train.json", triplets(60))
    save_triplets(folder / "valid.json", triplets(30, seed=1))
    save_triplets(folder / "test.json", triplets(60, seed=2))
    args = finetune.Arguments(folder / "start", folder, folder / "run", sequence_length=32,
                              learning_rate=3e-3, epochs=10, batch_size=8,
                              augment=("antisymmetric", "reflexive"), truncation="tail",
                              training=TrainingOptions(seed=3, verbose=False))
    return folder, args, finetune.main(args)


def test_finetuning_learns_what_can_be_learnt(finetuned):
    from tasks.cail2019_scm import evaluate

    folder, _, metrics = finetuned
    assert metrics["finished"] and metrics["accuracy"] == metrics["best"]["value"] > 0.9
    test = evaluate.main(evaluate.Arguments(folder / "run", folder / "test.json", verbose=False))
    assert test["accuracy"] > 0.9 and test["rows"] == 60 and test["official"] is None
    assert test["antisymmetry_error"] < 1e-6


def test_the_run_folder_records_how_texts_are_read_and_on_what_it_was_trained(finetuned):
    from roformer_zh import DocumentMatcher

    folder, args, _ = finetuned
    info = json.loads((folder / "run" / "config.json").read_text())
    assert info["layout"] == Layout("siamese", 32, "tail").to_dict()
    assert DocumentMatcher.load(folder / "run").layout == Layout("siamese", 32, "tail")
    assert info["arguments"]["learning_rate"] == args.learning_rate
    assert info["data"]["official"] is False
    assert info["data"]["train"]["rows"] == 60 and info["data"]["valid"]["rows"] == 30
    assert not (folder / "run" / "checkpoints").exists()


def test_augmented_rows_are_for_training_only(finetuned):
    _, _, metrics = finetuned
    assert len(augment(triplets(60), ["antisymmetric", "reflexive"])) == 180
    assert metrics["updates"] == 10 * -(-180 // 8)
    assert metrics["rows"] == 30


def test_the_report_has_baselines_interval_ties_and_leaks(finetuned):
    folder, _, metrics = finetuned
    report = (folder / "run" / "report.md").read_text()
    for words in ("majority of train", "TF-IDF cosine", "siamese, 32 tokens", "95 % interval",
                  "| train | valid | 30 | 0 | 0 | 0 | 0 | 0 |", "not the official CAIL2019-SCM"):
        assert words in report
    assert f"{metrics['accuracy']:.3f}" in report
    assert "better" not in report  # one seed ranks nothing


def test_the_paired_scorer_starts_from_the_encoder_and_a_scorer_goes_on(finetuned, tmp_path):
    from roformer_zh import load_model
    from tasks.cail2019_scm import finetune

    folder, args, _ = finetuned
    changes = dict(learning_rate=1e-9, epochs=None, steps=1, augment=())
    options = {**vars(args), **changes}
    pair = {**options, "scorer": "pair", "output": tmp_path / "pair", "loss": "binary",
            "positions": "restart", "segments": "zero", "dropout": 0.0}
    finetune.main(finetune.Arguments(**pair))
    found = load_model(tmp_path / "pair")
    assert type(found).__name__ == "PairScorer" and found.encoder.config.dropout == 0.0
    for one, other in zip(found.encoder.get_weights(),
                          load_model(folder / "start").encoder.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    layout = json.loads((tmp_path / "pair" / "config.json").read_text())["layout"]
    assert (layout["positions"], layout["segments"]) == ("restart", "zero")

    on = {**options, "model": folder / "run", "output": tmp_path / "on"}
    finetune.main(finetune.Arguments(**on))
    for one, other in zip(load_model(tmp_path / "on").get_weights(),
                          load_model(folder / "run").get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


@pytest.mark.parametrize("changes, message", [
    ({"steps": None, "epochs": 0.0}, "at least one update"),
    ({"model": "learned"}, "table of 9 positions"),
    ({"data": "nowhere"}, "no file of triplets"),
])
def test_what_cannot_work_is_said_before_training(finetuned, tmp_path, changes, message):
    from tasks.cail2019_scm import finetune

    _, args, _ = finetuned
    if changes.get("model"):
        start_run(tmp_path / "learned", position="learned", max_sequence_length=9)
    for name in ("model", "data"):
        if name in changes:
            changes = {**changes, name: tmp_path / changes[name]}
    options = {**vars(args), "output": tmp_path / "out", "steps": 1, **changes}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        finetune.main(finetune.Arguments(**options))
    assert not (tmp_path / "out" / "model.keras").exists()


def test_a_run_loads_without_a_network(finetuned):
    folder, *_ = finetuned
    dead = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
                         "http://192.0.2.1:9")
    code = ("import sys, roformer_zh\n"
            "print(roformer_zh.DocumentMatcher.load(sys.argv[1]).score('甲乙', '丙丁'))")
    done = subprocess.run([sys.executable, "-c", code, str(folder / "run")], timeout=60, text=True,
                          capture_output=True, env={**os.environ, **dead}, check=False)
    assert done.returncode == 0, done.stderr
    assert np.isfinite(float(done.stdout))


def test_accuracy_by_the_tokens_read(finetuned):
    from tasks.cail2019_scm import read_lengths

    folder, _, _ = finetuned
    rows = read_lengths.main(read_lengths.Arguments(
        (folder / "run",), folder / "test.json", folder / "lengths", (8, 32), verbose=False))
    short, whole = rows
    assert (short["length_low"], whole["length_low"]) == (8, 32)
    assert short["text_cut"] > whole["text_cut"] and whole["accuracy"] > 0.9
    text = (folder / "lengths/report.md").read_text(encoding="utf-8")
    assert f"| 32 | {whole['text_cut']:.0%} | {100 * whole['accuracy']:.1f} (" in text
    assert (folder / "lengths/accuracy_by_length.png").stat().st_size > 5_000
