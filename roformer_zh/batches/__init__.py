"""Batches of masked-language-model training: pure functions of a step number."""

from roformer_zh.batches.masked_lm import EvaluationBatches, MaskedLMBatches
from roformer_zh.batches.stages import Stage, load_stages

__all__ = ["EvaluationBatches", "MaskedLMBatches", "Stage", "load_stages"]
