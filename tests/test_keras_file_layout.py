"""Where a `.keras` file keeps each weight: what older files rely on."""

import io
import zipfile

import h5py
import pytest

from roformer_zh import Encoder, MaskedLM, load_model
from tests.conftest import tiny_config


@pytest.fixture
def file(tmp_path):
    MaskedLM(Encoder(tiny_config())).save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def test_layers_of_a_head_are_filed_under_keras_names(file):
    with zipfile.ZipFile(file) as archive:
        weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")))
        assert {"dense", "layer_normalization"} <= set(weights["layers"])
        assert {"embedding_norm", "blocks"} <= set(weights["encoder"])
    assert load_model(file).count_params() > 0
