"""Writes tests/fixtures/bert4keras: weight files that bert4keras' `model.save_weights` made.

Needs `pip install --no-deps bert4keras==0.11.5 tf_keras==2.21`, which the tests do not. It loads
the other fixtures, rewritten as TensorFlow checkpoints, into bert4keras and compares what it
computes before it saves:

    TF_KERAS=1 TF_USE_LEGACY_KERAS=1 python -m tests.make_bert4keras_fixtures
"""

import tempfile
from pathlib import Path

import numpy as np

from tests.foreign import CASES, FIXTURES, google_folder, load_outputs

FILES = {"roformer_word": "roformer_word.weights", "nezha_char": "nezha_char.h5"}


def main():
    """Writes both files."""
    from bert4keras.models import build_transformer_model
    target = FIXTURES / "bert4keras"
    target.mkdir(exist_ok=True)
    for name, file in FILES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = google_folder(name, Path(temporary) / name)
            model = build_transformer_model(
                str(folder / "bert_config.json"), str(folder / "bert_model.ckpt"),
                model=name.split("_")[0], with_mlm="linear")
        print(name, "largest difference of logits:", largest_difference(model, name))
        model.save_weights(str(target / file))
    (target / "checkpoint").unlink(missing_ok=True)


def largest_difference(model, name):
    """Between bert4keras' logits and those in outputs.npz."""
    outputs, worst = load_outputs(name), 0.0
    for case in CASES:
        logits = model.predict([outputs[f"{case}/token_ids"], outputs[f"{case}/segment_ids"]],
                               verbose=0)
        places = outputs[f"{case}/mask_positions"].astype(int)[..., None]
        picked = np.take_along_axis(logits, places, 1)
        worst = max(worst, float(np.abs(picked - outputs[f"{case}/logits"]).max()))
    return worst


if __name__ == "__main__":
    main()
