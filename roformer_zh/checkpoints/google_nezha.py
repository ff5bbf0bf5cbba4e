"""NEZHA in TensorFlow checkpoints: Huawei's names, which are BERT's without positions."""

import dataclasses

from roformer_zh.checkpoints import google_bert, google_roformer

MAP = dataclasses.replace(google_bert.MAP, name="Google NEZHA", table=google_roformer.TABLE)
