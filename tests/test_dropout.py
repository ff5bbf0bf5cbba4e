"""Masks are pure functions of seed and layer; nothing is kept between calls."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from roformer_zh import Encoder, MaskedLM
from roformer_zh.dropout import Dropout, dropout_seed, fold_in
from tests.conftest import tiny_config, tiny_inputs

ONES = np.ones((64, 100), "float32")


def mask(seed, salt=0, rate=0.5):
    with dropout_seed(seed):
        return np.array(Dropout(rate, salt)(ONES, training=True))


def test_a_mask_repeats_with_the_seed_and_differs_with_seed_and_layer():
    assert (mask([1, 2]) == mask([1, 2])).all()
    for other in (mask([1, 3]), mask([2, 2]), mask([1, 2], salt=1)):
        assert 0.4 < (mask([1, 2]) == other).mean() < 0.6


def test_kept_values_are_scaled_and_the_rate_is_met():
    for rate in (0.1, 0.5):
        values = mask([7, 7], rate=rate)
        np.testing.assert_allclose(np.unique(values), [0, 1 / (1 - rate)], rtol=1e-6)
        assert abs((values == 0).mean() - rate) < 0.03


def test_no_variable_exists_and_inference_draws_nothing():
    model = MaskedLM(Encoder(tiny_config(dropout=0.5)))
    assert not model.non_trainable_variables
    inputs = tiny_inputs(mask_positions=True)
    assert (np.array(model(inputs)) == np.array(model(inputs))).all()


def test_training_without_a_seed_is_an_error():
    with pytest.raises(RuntimeError, match=r"needs a seed.*dropout_seed\(\(seed, step\)\)"):
        Dropout(0.5, salt=0)(ONES, training=True)
    assert (np.array(Dropout(0.0, salt=0)(ONES, training=True)) == 1).all()


def test_fold_in_spreads_every_bit():
    """Neighbouring updates, micro-batches and replicas get unrelated seeds."""
    seeds = {
        tuple(np.array(fold_in(fold_in([3, update], micro), replica)).tolist())
        for update in range(20)
        for micro in range(4)
        for replica in range(4)
    }
    assert len(seeds) == 320
    folded = [np.array(fold_in([0, 0], n)).astype("uint32") for n in range(200)]
    flips = [
        bin(int(a[k] ^ b[k])).count("1") for a, b in itertools.pairwise(folded) for k in (0, 1)
    ]
    assert 14 < np.mean(flips) < 18
    order = [np.array(fold_in(fold_in([0, 0], a), b)) for a, b in ((1, 2), (2, 1))]
    assert (order[0] != order[1]).all()


def test_the_graph_draws_what_eager_mode_draws():
    layer = Dropout(0.5, salt=3)

    @tf.function
    def run(seed):
        with dropout_seed(fold_in(seed, 4)):
            return layer(ONES, training=True)

    with dropout_seed(fold_in([1, 2], 4)):
        eager = layer(ONES, training=True)
    assert (np.array(run(tf.constant([1, 2]))) == np.array(eager)).all()
    assert ops.shape(eager) == (64, 100)


def test_every_value_is_dropped_with_the_exact_rate():
    """0.1 is no multiple of 1 / 256: 25 / 256 or 26 / 256 alone would miss it by 1.6 %."""
    layer = Dropout(0.1, salt=0)
    count = dropped = 0
    for number in range(4):
        with dropout_seed([number, 5]):
            mask = np.array(layer.keep((2000, 501)))
        dropped, count = dropped + (~mask).sum(), count + mask.size
    assert abs(dropped / count - 0.1) < 4 * (0.09 / count) ** 0.5  # 4 standard deviations: 0.0006
    columns = (~mask).mean(axis=0)
    assert abs(columns - 0.1).max() < 5 * (0.09 / 2000) ** 0.5  # in every place


def test_neighbours_are_dropped_independently():
    with dropout_seed([3, 4]):
        dropped = ~np.array(Dropout(0.5, salt=0).keep((4000, 16)))
    centred = dropped - 0.5
    covariance = centred.T @ centred / len(centred)
    assert abs(covariance - 0.25 * np.eye(16)).max() < 0.02


@pytest.mark.parametrize("rate", [-0.1, 0.999])
def test_a_rate_out_of_range_is_an_error(rate):
    with pytest.raises(ValueError, match="must be from 0 to 255 / 256; got"):
        Dropout(rate, salt=0)
