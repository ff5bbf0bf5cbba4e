"""What fine-tuning on triplets minimises, as sums over rows (see `roformer_zh.training`)."""

from keras import ops

LOSSES = ("ranking", "binary")
_INPUTS = ("token_ids", "segment_ids", "padding_mask", "position_ids")


class TripletObjective:
    """Loss and right decisions of a scorer over the rows of `TripletBatches`.

    ranking: -log sigmoid(s_closer - s_other). Exchanging B and C exchanges the two scores, so the
        decision flips and the loss stays: antisymmetric by construction.
    binary: the paper's way, each pair by itself: the closer pair is a 1, the other a 0; the mean of
        the two cross-entropies.

    Equal scores decide for B.

    Args:
        loss: "ranking" or "binary".
    """

    def __init__(self, loss="ranking"):
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}; got {loss!r}")
        self.loss = loss

    def __call__(self, model, batch, training):
        first, second = pair_scores(model, batch, training)
        closer, weights = batch["first_is_closer"], batch["weights"]
        if self.loss == "ranking":
            losses = ops.softplus(-(2 * closer - 1) * (first - second))
        else:
            losses = (_cross_entropy(first, closer) + _cross_entropy(second, 1 - closer)) / 2
        decided_first = ops.cast(first >= second, "float32")
        correct = ops.cast(ops.equal(decided_first, closer), "float32")
        return {"loss": ops.sum(losses * weights), "correct": ops.sum(correct * weights),
                "weight": ops.sum(weights)}

    def weight(self, batch):
        """The number of triplets in a numpy batch."""
        return float(batch["weights"].sum(dtype="float64"))

    def fingerprint(self):
        """What a resumed run must share."""
        return {"kind": "triplets", "loss": self.loss}


def pair_scores(model, batch, training):
    """The scores of (A, B) and of (A, C), each of shape (rows,), float32."""
    rows, texts, length = ops.shape(batch["token_ids"])
    inputs = {name: ops.reshape(batch[name], (-1, length)) for name in _INPUTS if name in batch}
    answers = model(inputs, training=training)
    if texts == 2:
        scores = ops.reshape(answers, (rows, 2))
        return scores[:, 0], scores[:, 1]
    vectors = ops.reshape(answers, (rows, 3, -1))
    return tuple(model.similarity(vectors[:, 0], vectors[:, other]) for other in (1, 2))


def _cross_entropy(logits, targets):
    """Sigmoid cross-entropy."""
    return targets * ops.softplus(-logits) + (1 - targets) * ops.softplus(logits)
