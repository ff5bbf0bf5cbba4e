"""A worker of keras-hub's RoFormerV2 on TensorFlow; runs in an environment of its own.

    PYTHON -m benchmarks.keras_hub_peer '{"layers": 6, "width": 384, ...}'

RoFormerV2 is the nearest model that keras-hub has: RMS normalisation, ReLU, no biases, dropout of
hidden states only, logits at the masked positions.
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf
from keras_hub.models import RoformerV2Backbone, RoformerV2MaskedLM

from benchmarks.measure import serve, versions
from benchmarks.training import make_batch, matmul


def main(options):
    """Makes the model and serves updates of it by Keras' own training step."""
    tf.config.threading.set_intra_op_parallelism_threads(options["threads"])
    backbone = RoformerV2Backbone(
        vocabulary_size=options["vocabulary"],
        num_layers=options["layers"],
        num_heads=options["heads"],
        hidden_dim=options["width"],
        intermediate_dim=4 * options["width"],
        head_size=options["width"] // options["heads"],
        dropout=options["dropout"],
    )
    model = RoformerV2MaskedLM(backbone, preprocessor=None)
    model.compile(
        optimizer=keras.optimizers.AdamW(
            1e-4, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    rng = np.random.default_rng(0)

    def step():
        batch = make_batch(rng, options)
        inputs = {name: batch[name] for name in ("token_ids", "segment_ids", "mask_positions")}
        model.train_on_batch(inputs, batch["mask_ids"])

    serve(step, matmul, versions=versions("keras", "keras-hub"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
