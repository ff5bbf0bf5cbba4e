"""DocumentMatcher from an ONNX export: the same answers, without TensorFlow and Keras."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roformer_zh.checkpoints import export_run, import_checkpoint
from roformer_zh.engines import OnnxEngine
from roformer_zh.heads import PairScorer, SiameseScorer
from roformer_zh.layout import Layout
from roformer_zh.matching import DocumentMatcher
from roformer_zh.runs import save_run
from tests.conftest import randomise
from tests.foreign import FIXTURES

TEXTS = ["今天天气非常好。", "原告被告在北京法院，判决书一二三。", "我们",
         "今天在法院判决原告，我们。" * 9]
SCRIPT = """
import json, sys
sys.modules["keras"] = sys.modules["tensorflow"] = None
from roformer_zh import DocumentMatcher
matcher = DocumentMatcher.load(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps({"scores": [matcher.score(texts[0], text) for text in texts],
                  "vectors": matcher.encode(texts).tolist(),
                  "order": [found["corpus_id"] for found in matcher.rank(texts[1], texts)]}))
"""


@pytest.fixture(scope="module", params=["pair", "siamese"])
def run(request, tmp_path_factory):
    """A run folder with a random scorer, the second text's positions starting anew."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    found = import_checkpoint(FIXTURES / "roformer_word")
    scorer = {"pair": PairScorer, "siamese": SiameseScorer}[request.param]
    layout = Layout(request.param, sequence_length=96, positions="restart")
    save_run(folder, randomise(scorer(found.model.encoder)), found.tokenizer,
             layout=layout.to_dict())
    return folder


def test_same_answers_without_keras(run, tmp_path):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    export_run(run, tmp_path / "out", "onnx")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "out"), json.dumps(TEXTS)],
        cwd=Path(__file__).parent.parent, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    found, matcher = json.loads(result.stdout), DocumentMatcher.load(run)
    expected = [matcher.score(TEXTS[0], text) for text in TEXTS]
    np.testing.assert_allclose(found["scores"], expected, atol=2e-5)
    np.testing.assert_allclose(found["vectors"], matcher.encode(TEXTS), atol=1e-5)
    assert found["order"] == [one["corpus_id"] for one in matcher.rank(TEXTS[1], TEXTS)]


def test_other_exports_are_refused(run, tmp_path):
    (tmp_path / "serving.json").write_text(json.dumps(
        {"format": "savedmodel", "model": "PairScorer", "info": {}}))
    with pytest.raises(ValueError, match="PairScorer as savedmodel; a DocumentMatcher needs"):
        DocumentMatcher.load(tmp_path)
    with pytest.raises(ValueError, match="computes in float32; got 'mixed_float16'"):
        DocumentMatcher.load(tmp_path, dtype="mixed_float16")


def test_missing_onnxruntime_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "serving.json").write_text(json.dumps(
        {"format": "onnx", "model": "PairScorer", "info": {}}))
    with pytest.raises(ValueError, match=r"pip install '\.\[onnx\]' in the project's folder"):
        OnnxEngine(tmp_path)
