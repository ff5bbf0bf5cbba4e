"""Token shards on disk: write, verify, memory-map."""

import json
from pathlib import Path

import numpy as np

from roformer_zh.corpus.documents import DocumentEncoder, id_dtype
from roformer_zh.corpus.writer import BLOCK, FORMAT, CorpusWriter, meta_checksum
from roformer_zh.files import atomic_folder, sha256
from roformer_zh.tokenizer import WordTokenizer


class Corpus:
    """A prepared corpus, memory-mapped; opens in milliseconds whatever its size.

    Files of the folder: `ids.bin` (token ids of all documents, joined), `documents.bin`
    (where each begins), `characters.bin` (its length in characters), one bit a token for word,
    sentence and clause starts, `word_counts.bin` (words before every 1,024th token), the tokenizer,
    and `meta.json` with counts and checksums. Sizes are checked here, checksums by `verify`.

    Attributes:
        meta: the contents of `meta.json`.
        ids: token ids, (num_tokens,).
        document_starts: token at which each document begins, and num_tokens, (num_documents + 1,).
        document_characters: characters of each document without white space, (num_documents,).
        sentence_bits, clause_bits, word_bits: one bit a token, lowest bit first.
    """

    def __init__(self, folder, meta):
        self.folder = Path(folder)
        self.meta = meta
        self._check_sizes()
        self.ids = self._map("ids.bin", id_dtype(meta["vocabulary_size"]))
        self.document_starts = self._map("documents.bin", np.dtype("<i8"))
        self.document_characters = self._map("characters.bin", np.dtype("<u4"))
        self.word_bits = self._map("words.bits", np.dtype(np.uint8))
        self.sentence_bits = self._map("sentences.bits", np.dtype(np.uint8))
        self.clause_bits = self._map("clauses.bits", np.dtype(np.uint8))
        self._word_counts = self._map("word_counts.bin", np.dtype("<i8"))
        self._tokenizer = None

    @classmethod
    def open(cls, folder):
        """Opens a folder that `pretrain.prepare` or `write_corpus` wrote.

        Raises:
            FileNotFoundError: there is no corpus.
            ValueError: a file is damaged; the message names it.
        """
        path = Path(folder) / "meta.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} must be a prepared corpus and has no meta.json; "
                "make one with `python -m pretrain.prepare`"
            )
        return cls(folder, _read_meta(path))

    @property
    def num_tokens(self):
        """Tokens of all documents."""
        return self.meta["num_tokens"]

    @property
    def num_documents(self):
        """Documents."""
        return self.meta["num_documents"]

    @property
    def tokenizer(self):
        """The tokenizer that made the ids, loaded on first use."""
        if self._tokenizer is None:
            self._tokenizer = WordTokenizer.load(self.folder)
        return self._tokenizer

    @property
    def token_characters(self):
        """Characters of each row of the vocabulary, (vocabulary_size,); [UNK] counts as 1."""
        tokenizer = self.tokenizer
        tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.vocabulary_size)]
        counts = [len(token.removeprefix("##")) if token != "##" else 2 for token in tokens]
        for special in tokenizer.special_ids:
            counts[special] = int(special == tokenizer.unk_id)
        return np.array(counts, np.int32)

    def document(self, index):
        """The token ids of one document."""
        start, stop = self.document_starts[index : index + 2]
        return self.ids[start:stop]

    def bits(self, bits, start, stop):
        """The bits of tokens start to stop as booleans; `bits` is one of the `_bits` attributes."""
        first = start // 8
        unpacked = np.unpackbits(bits[first : (stop + 7) // 8], bitorder="little")
        return unpacked[start - 8 * first : stop - 8 * first].view(bool)

    def words_before(self, tokens):
        """How many words begin before each of the given tokens.

        Args:
            tokens: token indices, (n,) int64.

        Returns: (n,) int64. Plus 1 if a word begins at the token, minus 1: the number of its word,
            the same in a word and in a character preparation of one text.
        """
        tokens = np.asarray(tokens, np.int64)
        block = tokens // BLOCK
        byte = block[:, None] * (BLOCK // 8) + np.arange(BLOCK // 8)  # (n, 128)
        packed = self.word_bits[np.minimum(byte, len(self.word_bits) - 1)]
        valid = np.clip(tokens[:, None] - 8 * byte, 0, 8)  # bits of each byte that lie before
        packed = packed & ((1 << valid) - 1).astype(np.uint8)
        return self._word_counts[block] + np.bitwise_count(packed).sum(1, dtype=np.int64)

    def require_tokenizer(self, tokenizer):
        """Raises ValueError unless `tokenizer` gives the ids that the corpus holds."""
        tokenizer.check(self.meta["tokenizer"], self.folder / "meta.json")

    def verify(self):
        """Reads every file and compares its checksum; raises ValueError that names all bad ones."""
        bad = [
            name
            for name, file in self.meta["files"].items()
            if sha256(self.folder / name) != file["sha256"]
        ]
        if bad:
            raise ValueError(
                f"{self.folder}: the contents of {', '.join(bad)} must match the "
                "checksums in meta.json and do not; prepare the corpus again"
            )

    def _map(self, name, dtype):
        """One file as a read-only array."""
        return np.memmap(self.folder / name, dtype, mode="r").view(np.ndarray)

    def _check_sizes(self):
        """Raises unless every file is there with the size that meta.json gives."""
        for name, file in self.meta["files"].items():
            path = self.folder / name
            size = path.stat().st_size if path.is_file() else None
            if size != file["bytes"]:
                came = "is missing" if size is None else f"has {size:,}"
                raise ValueError(
                    f"{path} must have {file['bytes']:,} bytes and {came}; "
                    "prepare the corpus again or copy the file whole"
                )


def write_corpus(folder, tokenizer, texts):
    """Writes a small corpus of texts in memory, atomically, and opens it.

    Args:
        folder: the new corpus; an older one there is replaced.
        tokenizer: a `WordTokenizer`.
        texts: documents; those without a single token are left out.
    """
    documents = DocumentEncoder(tokenizer).encode(texts)
    with atomic_folder(folder) as temporary:
        writer = CorpusWriter(temporary, tokenizer)
        writer.append(documents.select(documents.lengths > 0))
        writer.finish()
    return Corpus.open(folder)


def _read_meta(path):
    """The contents of a meta.json, checked."""
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
        checksum = meta.pop("checksum")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} must be the JSON that pretrain.prepare wrote and is damaged "
            f"({error}); prepare the corpus again"
        ) from error
    if meta.get("format") != FORMAT:
        raise ValueError(
            f"{path} must have format {FORMAT}; got {meta.get('format')!r}; prepare the "
            "corpus again with this version"
        )
    if checksum != meta_checksum(meta):
        raise ValueError(
            f"{path} must match its own checksum and does not; prepare the corpus again"
        )
    return meta
