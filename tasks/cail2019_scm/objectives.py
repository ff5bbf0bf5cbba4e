"""What fine-tuning on triplets minimises, as sums over rows (see `roformer_zh.training`)."""

from keras import ops

LOSSES = ("ranking", "binary", "contrastive")
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
        if loss not in LOSSES[:2]:
            raise ValueError(f"loss must be one of {', '.join(LOSSES[:2])}; got {loss!r}")
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


class ContrastiveObjective:
    """Each A must find its closer text among all texts of its row's triplets.

    -log softmax over the scores of A with every text in the row; texts that equal A or the closer
    one are no candidates. More to learn from a batch than in the ranking loss, as long as texts of
    different triplets are seldom close to each other. For a `SiameseScorer` and rows of groups.

    Source: arXiv 1807.03748, equation 4.
    """

    def __call__(self, model, batch, training):
        rows, group, texts, length = ops.shape(batch["token_ids"])
        inputs = {name: ops.reshape(batch[name], (-1, length)) for name in _INPUTS if name in batch}
        vectors = ops.reshape(model(inputs, training=training), (rows, group * texts, -1))
        a, b, c = (vectors[:, place::texts] for place in range(3))  # (rows, group, D)
        scores = ops.exp(model.log_scale) * ops.matmul(a, ops.transpose(vectors, (0, 2, 1)))
        closer, weights = batch["first_is_closer"], batch["weights"]
        place = 3 * ops.arange(group) + ops.cast(2 - closer, "int32")
        target = ops.one_hot(place, group * texts)  # (rows, group, 3 group)
        losses = ops.logsumexp(scores - 1e9 * _no_candidates(batch, target), axis=-1)
        losses = losses - ops.sum(scores * target, axis=-1)
        decided_first = model.similarity(a, b) >= model.similarity(a, c)
        correct = ops.cast(ops.equal(ops.cast(decided_first, "float32"), closer), "float32")
        return {"loss": ops.sum(losses * weights), "correct": ops.sum(correct * weights),
                "weight": ops.sum(weights)}

    def weight(self, batch):
        """The number of triplets in a numpy batch."""
        return float(batch["weights"].sum(dtype="float64"))

    def fingerprint(self):
        """What a resumed run must share."""
        return {"kind": "triplets", "loss": "contrastive"}


def make_objective(loss):
    """The objective of a loss out of `LOSSES`."""
    return ContrastiveObjective() if loss == "contrastive" else TripletObjective(loss)


def _no_candidates(batch, target):
    """1.0 where a text is no candidate for an A: (rows, group, 3 group).

    A text of weight 0, one that equals A, and one that equals the closer text but stands elsewhere.
    """
    ids = batch["text_ids"]
    rows, group, texts = ops.shape(ids)
    candidates = ops.reshape(ids, (rows, 1, group * texts))
    closer = batch["first_is_closer"] > 0.5
    closer_ids = ops.where(closer, ids[:, :, 1], ids[:, :, 2])[..., None]
    same = ops.logical_or(ops.equal(candidates, ids[:, :, :1]), ops.equal(candidates, closer_ids))
    padding = ops.repeat(batch["weights"] == 0, texts, axis=1)[:, None]
    outside = ops.cast(ops.logical_or(same, padding), "float32")
    return outside * (1 - target)


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
