"""RoFormer in Hugging Face files: the names of transformers' RoFormerForMaskedLM."""

import numpy as np

from roformer_zh.checkpoints import google_roformer, huggingface_bert
from roformer_zh.checkpoints.mapping import NameMap, Skipped


def is_rotary_table(array, config):
    """Whether rows are sin and cos, in two halves, of position * max_wavelength^(-2i / H)."""
    rates = config.max_wavelength ** (-np.arange(0, config.head_dim, 2) / config.head_dim)
    angles = np.arange(len(array))[:, None] * rates
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return array.shape == table.shape and np.allclose(array, table, atol=5e-3)


TABLE = {
    **{ours: huggingface_bert.from_google(theirs)
       for ours, theirs in google_roformer.TABLE.items()},
    "embedding_projection/kernel": "embeddings_project.weight",
    "embedding_projection/bias": "embeddings_project.bias",
}
MAP = NameMap(
    "Hugging Face RoFormer", "roformer.", TABLE, transposed=True,
    spellings=huggingface_bert.SPELLINGS, copies=huggingface_bert.COPIES,
    skipped=(*huggingface_bert.SKIPPED,
             Skipped(r"encoder\.embed_positions\.weight", "constant position table",
                     is_rotary_table)))
