"""Writing token shards: documents appended file by file, checksums at the end."""

import hashlib
import json
from pathlib import Path

import numpy as np

from roformer_zh.corpus.documents import CLAUSE, SENTENCE, WORD
from roformer_zh.files import sha256, write_text

FORMAT = 1
BLOCK = 1024  # tokens between two stored word counts
_BITS = {"words.bits": WORD, "sentences.bits": SENTENCE, "clauses.bits": CLAUSE}
_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")


class CorpusWriter:
    """Appends documents to the files of a new corpus; memory does not grow with the corpus.

    Args:
        folder: an existing empty folder.
        tokenizer: the `WordTokenizer` that made the ids; it is saved beside them.
    """

    def __init__(self, folder, tokenizer):
        self.folder = Path(folder)
        self._tokenizer = tokenizer
        names = ("ids.bin", "documents.bin", "characters.bin", "word_counts.bin", *_BITS)
        self._files = {name: _HashedFile(self.folder / name) for name in names}
        self._files["documents.bin"].write(np.zeros(1, "<i8"))
        self._waiting = np.zeros(0, np.uint8)  # start bits of the tokens of an unfinished block
        self._text_hash = hashlib.sha256()
        self.counts = dict.fromkeys(
            (
                "num_documents",
                "num_tokens",
                "num_words",
                "num_sentences",
                "num_characters",
                "num_unknown",
            ),
            0,
        )

    def append(self, documents):
        """Adds `Documents`; none may be of length 0."""
        counts = self.counts
        offsets = counts["num_tokens"] + np.cumsum(documents.lengths)
        self._files["ids.bin"].write(documents.ids)
        self._files["documents.bin"].write(offsets.astype("<i8"))
        self._files["characters.bin"].write(documents.characters.astype("<u4"))
        self._text_hash.update(documents.digests.tobytes())
        self._waiting = np.concatenate([self._waiting, documents.starts])
        counts["num_documents"] += len(documents.lengths)
        counts["num_tokens"] += len(documents.ids)
        counts["num_sentences"] += int(np.count_nonzero(documents.starts & SENTENCE))
        counts["num_characters"] += int(documents.characters.sum(dtype=np.int64))
        counts["num_unknown"] += int(np.count_nonzero(documents.ids == self._tokenizer.unk_id))
        whole = len(self._waiting) // BLOCK * BLOCK
        self._write_bits(self._waiting[:whole])
        self._waiting = self._waiting[whole:]

    def finish(self, **extra):
        """Writes what is left and `meta.json`; returns the meta data. `extra` goes into it."""
        if not self.counts["num_tokens"]:
            self.close()
            raise ValueError("a corpus must hold at least one document and got none")
        self._write_bits(self._waiting)
        self.close()
        files = {name: file.summary() for name, file in sorted(self._files.items())}
        self._tokenizer.save(self.folder)
        for name in _TOKENIZER_FILES:
            path = self.folder / name
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
        meta = {
            "format": FORMAT,
            **self.counts,
            "vocabulary_size": self._tokenizer.vocabulary_size,
            "vocabulary_hash": self._tokenizer.vocabulary_hash,
            "tokenizer": self._tokenizer.fingerprint(),
            "corpus_hash": self._text_hash.hexdigest(),
            **extra,
            "files": files,
        }
        meta = json.loads(json.dumps(meta))
        text = json.dumps({**meta, "checksum": meta_checksum(meta)}, indent=2, ensure_ascii=False)
        write_text(self.folder / "meta.json", text + "\n")
        return meta

    def close(self):
        """Closes the files."""
        for file in self._files.values():
            file.close()

    def _write_bits(self, starts):
        """Writes the start bits of whole blocks, or of the corpus' end."""
        for name, bit in _BITS.items():
            self._files[name].write(np.packbits(starts & bit != 0, bitorder="little"))
        words = np.add.reduceat(
            starts & WORD != 0, np.arange(0, len(starts), BLOCK), dtype=np.int64
        )
        before = self.counts["num_words"] + np.cumsum(words) - words
        self._files["word_counts.bin"].write(before.astype("<i8"))
        self.counts["num_words"] += int(words.sum())


class _HashedFile:
    """A file that knows its size and SHA-256 while it is written."""

    def __init__(self, path):
        self._file = open(path, "wb")  # noqa: SIM115
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, array):
        """Appends the array's bytes."""
        view = memoryview(np.ascontiguousarray(array)).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self._bytes += len(view)

    def summary(self):
        """Size and hash for meta.json."""
        return {"bytes": self._bytes, "sha256": self._hash.hexdigest()}

    def close(self):
        """Closes the file."""
        self._file.close()


def meta_checksum(meta):
    """The checksum by which a changed meta.json is recognised."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
