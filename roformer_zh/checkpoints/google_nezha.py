"""NEZHA in TensorFlow checkpoints: Huawei's names, which are BERT's without positions."""

import dataclasses

from roformer_zh.checkpoints import google_bert, google_roformer
from roformer_zh.checkpoints.huggingface_nezha import relative_table
from roformer_zh.checkpoints.mapping import Skipped


def is_bucket_table(array, config):
    """Whether the rows are the sinusoidal table of all distances."""
    table = relative_table(config)
    return array.shape == table.shape and bool((abs(array - table) < 5e-3).all())


MAP = dataclasses.replace(
    google_bert.MAP, name="Google NEZHA", table=google_roformer.TABLE,
    skipped=(*google_bert.SKIPPED,
             Skipped("relative_positions_encoding", "constant position table", is_bucket_table)))
