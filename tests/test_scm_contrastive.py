import numpy as np
import pytest

from tasks.cail2019_scm.batches import TripletBatches
from tasks.cail2019_scm.dataset import Triplet
from tests.scm_models import Layout, scorer, start_run, tokenizer, triplets


def grouped(rows, size, group, **options):
    return TripletBatches(rows, tokenizer(), Layout("siamese", 32), size, group=group, **options)


def loss_by_hand(model, rows):
    """The contrastive loss of one group, one A at a time."""
    texts = sorted({text for row in rows for text in row[:3]})
    layout, words = Layout("siamese", 32), tokenizer()
    encoded = [layout.single(words.encode(text), words.cls_id, words.sep_id) for text in texts]
    vectors = np.array(model(layout.stack(encoded, 16, words.pad_id)), np.float64)
    vector, scale = dict(zip(texts, vectors, strict=True)), np.exp(float(model.log_scale))
    total = 0.0
    for row in rows:
        closer = row.B if row.label == "B" else row.C
        rest = [text for other in rows for text in other[:3] if text not in (row.A, closer)]
        scores = np.array([scale * vector[row.A] @ vector[text] for text in (closer, *rest)])
        total += np.log(np.exp(scores - scores[0]).sum())
    return total


def test_a_row_holds_a_group_and_is_filled_up_with_weight_zero():
    source = grouped(triplets(7), size=4, group=2)
    shapes = [source.batch(step)["token_ids"].shape[:3] for step in range(2)]
    assert shapes == [(2, 2, 3), (2, 2, 3)]
    weights = [source.batch(step)["weights"] for step in range(2)]
    assert weights[0].sum() == 4 and weights[1].tolist() == [[1, 1], [1, 0]]
    with pytest.raises(ValueError, match="multiple of the group; got 4 and 3"):
        grouped(triplets(7), size=4, group=3)


def test_the_contrastive_loss_is_what_its_docstring_says():
    from tasks.cail2019_scm.objectives import ContrastiveObjective

    rows, model, objective = triplets(3), scorer("siamese"), ContrastiveObjective()
    rows = [*rows, Triplet(rows[0].A, rows[1].B, rows[0].C, "B")]  # texts that come twice
    batch = next(grouped(rows, size=4, group=4).in_order())
    found = objective(model, batch, False)
    assert float(found["loss"]) == pytest.approx(loss_by_hand(model, rows), rel=1e-4)
    assert float(found["weight"]) == objective.weight(batch) == 4


def test_groups_add_up_and_filling_changes_nothing():
    from tasks.cail2019_scm.objectives import ContrastiveObjective

    rows, model, objective = triplets(5), scorer("siamese"), ContrastiveObjective()
    batch = next(grouped(rows, size=6, group=3).in_order())  # the second group has one to spare
    parts = [objective(model, {name: array[i:i + 1] for name, array in batch.items()}, False)
             for i in range(2)]
    whole = objective(model, batch, False)
    expected = loss_by_hand(model, rows[:3]) + loss_by_hand(model, rows[3:])
    for name, value in whole.items():
        assert float(value) == pytest.approx(sum(float(part[name]) for part in parts), rel=1e-5)
    assert float(whole["loss"]) == pytest.approx(expected, rel=1e-4)
    assert float(whole["weight"]) == 5


def test_the_contrastive_loss_counts_the_same_decisions_as_the_ranking_loss():
    from tasks.cail2019_scm.objectives import ContrastiveObjective, TripletObjective

    rows, model = triplets(6, seed=4), scorer("siamese", seed=3)
    batch = next(grouped(rows, size=6, group=6).in_order())
    plain = next(TripletBatches(rows, tokenizer(), Layout("siamese", 32), 6).in_order())
    assert float(ContrastiveObjective()(model, batch, False)["correct"]) == float(
        TripletObjective()(model, plain, False)["correct"])


def test_a_projection_is_the_identity_until_it_is_set_and_is_saved(tmp_path):
    from roformer_zh import SiameseScorer, load_model

    plain = scorer("siamese")
    model = SiameseScorer(plain.encoder, projection=True)
    inputs = {name: array[:, 0] for name, array in next(TripletBatches(
        triplets(3), tokenizer(), Layout("siamese", 32), 3).in_order()).items()
        if name in ("token_ids", "segment_ids", "padding_mask")}
    np.testing.assert_allclose(model(inputs), plain(inputs), atol=1e-6)
    kernel = np.random.default_rng(0).normal(size=(12, 12)).astype("float32")
    model.projection.kernel.assign(kernel)
    assert np.abs(np.array(model(inputs)) - np.array(plain(inputs))).max() > 0.1
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(load_model(tmp_path / "model.keras")(inputs), model(inputs),
                               atol=1e-6)


def test_whitening_spreads_the_vectors_of_the_training_texts():
    import tensorflow as tf

    from roformer_zh import DocumentMatcher, SiameseScorer
    from tasks.cail2019_scm.whitening import whiten

    encoder, rows = scorer("siamese").encoder, triplets(40)
    texts = [text for row in rows for text in row[:3]]
    model = SiameseScorer(encoder, projection=True)
    matcher = DocumentMatcher(model, tokenizer(), Layout("siamese", 32), verbose=False)
    before = matcher.encode(texts)
    whiten(tf.distribute.get_strategy(), model, grouped(rows, size=4, group=None))
    after = matcher.encode(texts)
    assert np.linalg.norm(before.mean(axis=0)) > 0.5 > 0.2 > np.linalg.norm(after.mean(axis=0))
    shares = np.linalg.eigvalsh(np.cov(after.T)) * 12 / np.trace(np.cov(after.T))
    # The last LayerNorm leaves one direction without any variance; the others count alike.
    assert shares[1] > 0.1 and shares.max() < 3


def test_whitening_needs_more_than_one_vector():
    from tasks.cail2019_scm.whitening import whitening

    with pytest.raises(ValueError, match=r"at least two vectors; got shape \(1, 4\)"):
        whitening(np.ones((1, 4)))


def test_a_whitened_contrastive_run_learns_and_loads(tmp_path):
    from roformer_zh import DocumentMatcher
    from roformer_zh.training import TrainingOptions
    from tasks.cail2019_scm import finetune
    from tasks.cail2019_scm.dataset import save_triplets

    start_run(tmp_path / "start")
    save_triplets(tmp_path / "train.json", triplets(60))
    save_triplets(tmp_path / "valid.json", triplets(30, seed=1))
    args = finetune.Arguments(tmp_path / "start", tmp_path, tmp_path / "run", sequence_length=32,
                              learning_rate=1e-3, epochs=3, batch_size=8, group=4, whiten=True,
                              loss="contrastive", training=TrainingOptions(verbose=False))
    metrics = finetune.main(args)
    assert metrics["accuracy"] == metrics["best"]["value"] > 0.9
    matcher = DocumentMatcher.load(tmp_path / "run")
    assert matcher.model.projection is not None
    assert matcher.score("甲乙丙", "乙丁") > matcher.score("甲乙丙", "丑寅卯")


@pytest.mark.parametrize("options, message", [
    ({"scorer": "pair", "whiten": True}, "need vectors; use --scorer siamese"),
    ({"scorer": "pair", "loss": "contrastive"}, "need vectors; use --scorer siamese"),
    ({"group": 4}, "--group belongs to --loss contrastive"),
])
def test_options_that_do_not_belong_together_are_an_error(tmp_path, options, message):
    from tasks.cail2019_scm import finetune

    args = finetune.Arguments(tmp_path, tmp_path, tmp_path, **options)
    with pytest.raises(ValueError, match=message):
        finetune.group_size(args)
