"""Token shards on disk: read documents, write shards, verify and memory-map them."""

from roformer_zh.corpus.shards import Corpus, write_corpus

__all__ = ["Corpus", "write_corpus"]
