"""Layer-wise learning-rate decay: which variable learns how fast, and exactly how."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from roformer_zh import Encoder, PairScorer, SiameseScorer
from roformer_zh.training import OptimizerOptions, TrainingOptions
from roformer_zh.training.optimizer import AdamW, layer_rates
from tests.conftest import tiny_config


def test_each_layer_has_its_rate():
    model = PairScorer(Encoder(tiny_config("learned", pooler=True, embedding_dim=8)))
    names = [variable.path for variable in model.trainable_variables]
    rates = dict(zip(names, layer_rates(model, 0.5), strict=True))
    assert len(rates) == len(model.trainable_variables)

    def of(*words):
        found = {rate for name, rate in rates.items() if any(word in name for word in words)}
        assert found, words
        return found

    assert of("score/", "pooler/") == {1.0}
    assert of("block_1") == {0.5} and of("block_0") == {0.25}  # two blocks, the top one is 1
    assert of("token_embedding", "segment_embedding", "position_embedding", "embedding_norm",
              "embedding_projection") == {0.125}
    assert set(rates.values()) == {1.0, 0.5, 0.25, 0.125}


def test_a_head_s_own_weights_and_no_decay_stay_at_the_full_rate():
    model = SiameseScorer(Encoder(tiny_config()), projection=True)
    inside = {id(variable) for variable in model.encoder.variables}
    own = [rate for variable, rate in zip(model.trainable_variables, layer_rates(model, 0.5),
                                          strict=True) if id(variable) not in inside]
    assert own == [1.0, 1.0, 1.0]  # projection kernel and bias, log_scale
    assert set(layer_rates(model, 1.0)) == {1.0}


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.1])
def test_a_decay_out_of_range_is_an_error(decay):
    with pytest.raises(ValueError, match="layer_decay must be above 0 and at most 1; got"):
        layer_rates(None, decay)


def test_a_scale_acts_like_another_learning_rate_decay_included():
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((3, 2)).astype("float32") for _ in range(2)]
    options = OptimizerOptions(weight_decay=0.1)

    def trained(rates, scales):
        variables = [keras.Variable(value) for value in values]
        optimizer = AdamW(variables, variables[:1], options, scales)
        for step in range(4):
            gradients = [tf.constant(np.cos(value + step)) for value in values]
            optimizer.apply(gradients, tf.constant(rates), lambda variable: variable)
        return [variable.numpy() for variable in variables]

    scaled, half, whole = (trained(*given) for given in (
        (1e-2, [0.5, 1.0]), (5e-3, None), (1e-2, [1.0, 1.0])))
    np.testing.assert_array_equal(scaled[0], half[0])
    np.testing.assert_array_equal(scaled[1], whole[1])
    for one, other in zip(whole, trained(1e-2, None), strict=True):
        np.testing.assert_array_equal(one, other)
    # one step of pure decay: 1 - 0.01 x 0.5 x 0.1
    variable = keras.Variable([1.0])
    AdamW([variable], [variable], options, [0.5]).apply(
        [tf.zeros(1)], tf.constant(1e-2), lambda variable: variable)
    assert variable.numpy() == np.float32(1) - np.float32(1e-2) * np.float32(0.5) * np.float32(0.1)


def test_finetuning_with_decay_resumes_exactly_and_another_decay_is_refused(tmp_path):
    from tasks.cail2019_scm import finetune
    from tasks.cail2019_scm.dataset import save_triplets
    from tests.scm_models import start_run, triplets

    save_triplets(tmp_path / "train.json", triplets(6))
    save_triplets(tmp_path / "valid.json", triplets(4, seed=1))
    args = finetune.Arguments(
        start_run(tmp_path / "start"), tmp_path, tmp_path / "whole", sequence_length=32, steps=4,
        learning_rate=1e-2, batch_size=3, layer_decay=0.5,
        training=TrainingOptions(checkpoint_every=2, verbose=False))
    finetune.main(args)

    class Stop(Exception):
        pass

    def weights(folder):
        from roformer_zh import load_model

        return load_model(folder).get_weights()

    cut = dataclasses.replace(args, output=tmp_path / "cut")
    original = finetune.Trainer

    class Cut(original):
        def fit(self, phases, *rest):
            batches = phases[0].batches
            inner = batches.batch

            def batch(step):
                if step == 3:
                    raise Stop
                return inner(step)

            batches.batch = batch
            return super().fit(phases, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "Trainer", Cut)
        with pytest.raises(Stop):
            finetune.main(cut)
    assert list((tmp_path / "cut" / "checkpoints").iterdir())
    with pytest.raises(ValueError, match=r"holds another run.*layer_decay"):
        finetune.main(dataclasses.replace(cut, layer_decay=0.9))
    finetune.main(cut)
    for one, other in zip(weights(args.output), weights(cut.output), strict=True):
        np.testing.assert_array_equal(one, other)
    plain = dataclasses.replace(args, output=tmp_path / "plain", layer_decay=1.0)
    finetune.main(plain)
    assert any((one != other).any() for one, other in zip(
        weights(args.output), weights(plain.output), strict=True))
