"""What a training step minimises, as sums over rows, so that parts of any size add up exactly."""

import math

from keras import ops

from roformer_zh.gradients import cross_entropy


class MaskedLMObjective:
    """Cross-entropy and accuracy at the masked positions, weighted by `mask_weights`.

    Calling it gives the float32 sums `loss`, `correct` and `weight` over a part of a batch;
    `weight` is the number of masked tokens. Divide once, by the sum over all parts.
    """

    inputs = ("token_ids", "segment_ids", "padding_mask", "mask_positions")

    def __call__(self, model, batch, training):
        logits = model({name: batch[name] for name in self.inputs}, training=training)
        weights = batch["mask_weights"]
        losses = token_losses(batch["mask_ids"], logits)
        return {
            "loss": ops.sum(losses * weights),
            "correct": ops.sum(hits(batch["mask_ids"], logits) * weights),
            "weight": ops.sum(weights),
        }

    def weight(self, batch):
        """The number of masked tokens of a numpy batch."""
        return float(batch["mask_weights"].sum(dtype="float64"))

    def fingerprint(self):
        """What a resumed run must share."""
        return {"kind": "masked_lm"}

    @staticmethod
    def chance_loss(vocabulary_size):
        """The loss of guessing evenly, ln V: where an untrained model starts."""
        return math.log(vocabulary_size)


def token_losses(mask_ids, logits):
    """Cross-entropy of each masked position: (B, P), (B, P, V) -> (B, P)."""
    return cross_entropy(mask_ids, logits)


def hits(mask_ids, logits):
    """1.0 where the largest logit is the masked token's: (B, P), (B, P, V) -> (B, P)."""
    best = ops.argmax(logits, axis=-1)
    return ops.cast(ops.equal(ops.cast(best, "int32"), ops.cast(mask_ids, "int32")), "float32")
