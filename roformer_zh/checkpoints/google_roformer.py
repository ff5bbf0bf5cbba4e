"""RoFormer in TensorFlow checkpoints: bert4keras' names, which are BERT's without positions."""

import dataclasses

from roformer_zh.checkpoints import google_bert

TABLE = {ours: theirs for ours, theirs in google_bert.TABLE.items()
         if not ours.startswith("position_embedding/")}
MAP = dataclasses.replace(google_bert.MAP, name="bert4keras RoFormer", table=TABLE)
