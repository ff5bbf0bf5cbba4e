"""NEZHA in Hugging Face files: the names of NezhaForPreTraining, once part of transformers."""

import numpy as np

from roformer_zh.checkpoints import huggingface_bert
from roformer_zh.checkpoints.mapping import NameMap, Skipped


def relative_table(config):
    """Row r of 0 .. 2 max_relative_position holds sin and cos, in turn, of r * 10000^(-2i / H)."""
    rates = 10000.0 ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    angles = np.arange(2 * config.max_relative_position + 1)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(angles), -1)


def is_relative_table(array, config):
    """Whether (query, key) holds row clip(key - query) + m of the sinusoidal table."""
    reach, rows, table = config.max_relative_position, len(array), relative_table(config)
    places = np.arange(rows)
    return array.shape == (rows, rows, config.head_dim) and all(
        np.allclose(array[query], table[np.clip(places - query, -reach, reach) + reach], atol=5e-3)
        for query in {0, rows // 2, rows - 1})


TABLE = {ours: theirs for ours, theirs in huggingface_bert.TABLE.items()
         if not ours.startswith("position_embedding/")}
MAP = NameMap(
    "Hugging Face NEZHA", "nezha.", TABLE, transposed=True,
    spellings=(*huggingface_bert.SPELLINGS, (r"^bert\.", "")), copies=huggingface_bert.COPIES,
    skipped=(*huggingface_bert.SKIPPED,
             Skipped(r".*\.relative_positions_encoding\.positions_encoding",
                     "constant position table", is_relative_table)))
