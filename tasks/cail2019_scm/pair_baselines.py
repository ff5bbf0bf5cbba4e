"""Word CNN and LSTM that read each document by itself: the neural baselines of the task's paper.

One encoder of trained word vectors turns A, B and C into vectors; B is closer when the bilinear
score of (A, B) is at least that of (A, C). The loss is the cross-entropy of the softmax over the
two scores, which exchanging B and C leaves as it is.

Source: the baselines of arXiv 1911.08962; the bilinear score as in thunlp/CLAIM, model/scm/CNN.py.
"""

import time

import keras
import numpy as np
from keras import ops

from roformer_zh.layout import Layout
from tasks.cail2019_scm.batches import encode_triplets, shares_cut

KINDS = ("cnn", "lstm")
EMBEDDING_DIM = 64
FILTERS = 32
"""Filters of each width of the CNN."""
WIDTHS = (2, 3, 4, 5)
LSTM_UNITS = 64
SCALE = 10.0
"""The bilinear form starts as so many times the cosine."""


def score_baseline(
    kind,
    train,
    valid,
    test,
    tokenizer,
    seed,
    learning_rate=1e-3,
    epochs=20,
    batch_size=32,
    sequence_length=1024,
    patience=5,
):
    """Trains a baseline and scores triplets with the weights of its best epoch on valid.

    The best epoch is the first with the highest accuracy on valid; test is only scored. Seeds
    Python, NumPy and the backend for the whole process.

    Args:
        kind: "cnn" or "lstm".
        train, valid: labelled rows as `load_triplets` gives them.
        test: rows, labelled or not, or None.
        tokenizer: a `WordTokenizer`.
        seed: of weights and order; the same seed gives the same scores on the same machine.
        learning_rate: of Adam, constant.
        epochs: passes over train at most.
        batch_size: triplets an update.
        sequence_length: tokens of two texts; each text gives half, as to a siamese scorer.
        patience: epochs without a better one after which training ends.

    Returns:
        dict: valid_scores and test_scores, each (first, second), float32 scores of (A, B) and
        (A, C) of shape (rows,) (test_scores None without test); epochs, the number of the chosen
        one from 1, and epochs_run; parameters; seconds of training with its validation;
        tokens_per_second, real training tokens over that time; text_cut, the share of the
        training tokens that the length leaves out.

    Raises:
        ValueError: the kind is unknown, a number is out of range, or labels are missing.
    """
    _check(kind, train, valid, epochs, batch_size)
    keras.utils.set_random_seed(seed)
    layout = Layout("siamese", sequence_length)
    rows, tokens = encode_triplets(train, tokenizer, layout)
    valid_rows, _ = encode_triplets(valid, tokenizer, layout)
    length = max(len(row.token_ids) for texts in rows + valid_rows for row in texts)
    encoder, model = build_baseline(kind, tokenizer.vocabulary_size, tokenizer.pad_id, length)
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    best = keras.callbacks.EarlyStopping(
        monitor="val_accuracy", mode="max", patience=patience, restore_best_weights=True
    )
    started = time.perf_counter()
    history = model.fit(
        _arrays(rows, length, layout, tokenizer.pad_id),
        _targets(train),
        batch_size=batch_size,
        epochs=epochs,
        validation_data=(
            _arrays(valid_rows, length, layout, tokenizer.pad_id),
            _targets(valid),
        ),
        callbacks=[best],
        verbose=0,
    )
    seconds = time.perf_counter() - started
    read = sum(len(row.token_ids) for texts in rows for row in texts) * len(history.epoch)
    kernel = model.get_layer("bilinear").kernel

    def scores(triplets):
        return _score(encoder, kernel, triplets, tokenizer, layout)

    return {
        "valid_scores": scores(valid),
        "test_scores": None if test is None else scores(test),
        "epochs": best.best_epoch + 1,
        "epochs_run": len(history.epoch),
        "parameters": model.count_params(),
        "seconds": seconds,
        "tokens_per_second": read / seconds,
        "text_cut": shares_cut(rows, tokens)[0],
    }


def build_baseline(kind, vocabulary_size, pad_id, length):
    """The encoder of one text, and the model of triplets that is trained; both share weights.

    Args:
        kind: "cnn" or "lstm".
        vocabulary_size: rows of the table of word vectors.
        pad_id: id of padding, which may follow a text and changes nothing.
        length: tokens T of the triplets' texts; the encoder reads any length.

    Returns:
        (encoder, model). encoder: token ids (B, T) -> unit vectors (B, D). model: token ids of
        A, B and C, (B, 3, T) -> scores of (A, B) and (A, C), (B, 2).
    """
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    real = ops.cast(ops.not_equal(token_ids, pad_id), "float32")[..., None]  # (B, T, 1)
    embedded = keras.layers.Embedding(vocabulary_size, EMBEDDING_DIM)(token_ids) * real
    read = {"cnn": _convolve, "lstm": _recur}[kind]
    states = ops.where(real > 0, read(embedded), -1e9)
    encoder = keras.Model(token_ids, ops.normalize(ops.max(states, axis=1)), name=kind)

    texts = keras.Input((3, length), dtype="int32", name="texts")
    vectors = encoder(ops.reshape(texts, (-1, length)))
    width = vectors.shape[-1]
    vectors = ops.reshape(vectors, (-1, 3, width))
    bilinear = keras.layers.Dense(
        width,
        use_bias=False,
        kernel_initializer=keras.initializers.Identity(SCALE),
        name="bilinear",
    )
    scores = ops.sum(bilinear(vectors[:, :1]) * vectors[:, 1:], axis=-1)
    return encoder, keras.Model(texts, scores, name=f"{kind}_pair_baseline")


def _convolve(embedded):
    """Filters of several widths (arXiv 1408.5882): (B, T, E) -> (B, T, D)."""
    maps = [
        keras.layers.Conv1D(FILTERS, width, padding="same", activation="relu")(embedded)
        for width in WIDTHS
    ]
    return ops.concatenate(maps, axis=-1)


def _recur(embedded):
    """LSTM states; none depends on the padding behind it: (B, T, E) -> (B, T, D)."""
    return keras.layers.LSTM(LSTM_UNITS, return_sequences=True)(embedded)


def _score(encoder, kernel, triplets, tokenizer, layout):
    """Scores of (A, B) and of (A, C); exchanging B and C exchanges them to the last bit.

    Each different text is read once, in an order that does not depend on its place in a row.
    """
    rows, _ = encode_triplets(triplets, tokenizer, layout)
    ids = {
        text: row
        for triplet, sequences in zip(triplets, rows, strict=True)
        for text, row in zip(triplet[:3], sequences, strict=True)
    }
    places = {text: place for place, text in enumerate(sorted(ids))}
    length = max(len(row.token_ids) for row in ids.values())
    arrays = _arrays([[ids[text]] for text in places], length, layout, tokenizer.pad_id)[:, 0]
    vectors = encoder.predict(arrays, batch_size=64, verbose=0)
    a, b, c = (vectors[[places[row[text]] for row in triplets]] for text in range(3))
    turned = a @ ops.convert_to_numpy(kernel)
    return tuple(np.sum(turned * other, axis=-1, dtype=np.float32) for other in (b, c))


def _arrays(rows, length, layout, pad_id):
    """Token ids of lists of `Row`, padded: (rows, texts, length) int32."""
    flat = [row for texts in rows for row in texts]
    return layout.stack(flat, length, pad_id)["token_ids"].reshape(len(rows), -1, length)


def _targets(triplets):
    """0 where B is closer, 1 where C is: (rows,)."""
    return np.array([row.label == "C" for row in triplets], np.int32)


def _check(kind, train, valid, epochs, batch_size):
    """Raises ValueError unless the arguments allow training."""
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if epochs < 1 or batch_size < 1:
        raise ValueError(
            f"epochs and batch_size must be at least 1; got {epochs} and {batch_size}"
        )
    for name, rows in (("train", train), ("valid", valid)):
        unlabelled = sum(row.label not in ("B", "C") for row in rows)
        if not rows or unlabelled:
            raise ValueError(
                f"{name} must hold labelled triplets; got {len(rows)} rows, {unlabelled} of them "
                "without a label: choose files with labels"
            )
