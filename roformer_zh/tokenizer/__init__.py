"""Words in, ids out: the tokenizer and its vocabulary. Imports no Keras."""

from roformer_zh.tokenizer.word_tokenizer import WordTokenizer

__all__ = ["WordTokenizer"]
