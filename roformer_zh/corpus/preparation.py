"""From text files to a corpus: chunks encoded by workers, duplicates dropped, one folder."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import threading
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
from tqdm import tqdm

from roformer_zh.corpus.documents import DocumentEncoder, Documents, count_characters
from roformer_zh.corpus.reading import Damage, file_format, read_rows, row_text
from roformer_zh.corpus.writer import FORMAT, CorpusWriter
from roformer_zh.files import atomic_folder, atomic_path
from roformer_zh.tokenizer import WordTokenizer

CHUNK_BYTES = 4 << 20
HOLDOUT = "holdout"


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """What decides which texts a file gives."""

    form: str = "auto"
    """jsonl, lines, blank-lines or auto (by suffix)."""
    field: str = "text"
    """Key of the text in a JSON row."""
    min_characters: int = 1
    """Shorter documents are left out; characters without white space."""
    max_characters: int | None = None
    """Longer documents are left out; None keeps all."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Some consecutive rows of a file."""

    path: str
    form: str
    rows: list
    size: int


def encode_files(files, work, tokenizer, options, workers=1, chunk_bytes=CHUNK_BYTES):
    """Encodes text files into part files, in the order of the text.

    A part is named by the hash of its text and of all that decides its contents, and appears whole.
    Parts that are there are not made again, so a killed run goes on where it stopped.

    Args:
        files: paths.
        work: folder of the parts.
        tokenizer: a `WordTokenizer`.
        options: `TextOptions`.
        workers: processes; 1 works in this process. Does not change the parts.
        chunk_bytes: text a part; also decides the parts' names.

    Returns: paths of the parts, and the bytes of text that were encoded in this call.
    """
    work = Path(work)
    tokenizer.save(work / "tokenizer")
    head = json.dumps(
        [FORMAT, tokenizer.fingerprint(), dataclasses.asdict(options)], sort_keys=True
    )
    parts, encoded = [], 0
    sizes = [Path(path).stat().st_size for path in files]
    total = None if any(str(path).endswith(".gz") for path in files) else sum(sizes)
    with (
        tqdm(total=total, unit="B", unit_scale=True, desc="encoding", mininterval=1) as bar,
        _Workers(work / "tokenizer", options, workers) as pool,
    ):
        for chunk in read_chunks(files, options.form, chunk_bytes):
            parts.append(work / f"{_chunk_hash(head, chunk)}.npz")
            if not parts[-1].exists():
                encoded += chunk.size
                pool.submit(parts[-1], chunk)
            bar.update(chunk.size)
    return parts, encoded


def read_chunks(files, form, chunk_bytes=CHUNK_BYTES):
    """Yields the rows of all files in `Chunk`s of about chunk_bytes; none spans two files."""
    for path in files:
        kind = file_format(path, form)
        rows, size = [], 0
        for row in read_rows(path, kind):
            rows.append(row)
            size += len(row.data or b"") + 1
            if size >= chunk_bytes:
                yield Chunk(str(path), kind, rows, size)
                rows, size = [], 0
        if rows:
            yield Chunk(str(path), kind, rows, size)


def assemble(parts, output, tokenizer, holdout=0.0, extra=None, finish=None):
    """Writes the corpus of all parts at `output`, its held-out share at `output`/holdout; atomic.

    The first of equal documents is kept. Memory: 16 bytes a document, and a part.

    Args:
        parts: paths that `encode_files` returned.
        output: folder of the corpus; an older one is replaced at the end.
        tokenizer: the `WordTokenizer` of the parts.
        holdout: share of the documents, chosen by the hash of their text.
        extra: dict that goes into meta.json.
        finish: called with the folder and the dict of metas before the folder gets its name.

    Returns: dict of the metas by name, "train" and, with a share, "holdout".
    """
    keep = first_occurrences(np.concatenate([load_part(part, "digests") for part in parts]))
    extra = {**(extra or {}), "duplicates": int(np.count_nonzero(~keep))}
    with atomic_folder(output) as folder:
        writers = {"train": CorpusWriter(folder, tokenizer)}
        if holdout:
            (folder / HOLDOUT).mkdir()
            writers[HOLDOUT] = CorpusWriter(folder / HOLDOUT, tokenizer)
        done = 0
        for part in tqdm(parts, desc="writing", unit="part", mininterval=1):
            documents = load_part(part)
            kept = keep[done : done + len(documents.lengths)]
            done += len(kept)
            held = documents.digests[:, 1] < np.float64(holdout) * 2.0**64
            writers["train"].append(documents.select(kept & ~held))
            if holdout:
                writers[HOLDOUT].append(documents.select(kept & held))
        metas = {name: _finish(writer, name, extra) for name, writer in writers.items()}
        if finish:
            finish(folder, metas)
    return metas


def first_occurrences(digests, together=1 << 20):
    """Which rows of a (documents, 2) uint64 array have no equal row before them.

    Args:
        digests: hashes of the documents.
        together: up to so many are sorted at once; more in 256 groups, so that little is copied.
    """
    keep = np.ones(len(digests), bool)
    lowest = digests.view(np.uint8)[:, 0]
    groups = range(256) if len(digests) > together else [None]
    for group in groups:
        index = np.arange(len(digests)) if group is None else np.flatnonzero(lowest == group)
        some = digests[index]
        order = np.lexsort((some[:, 1], some[:, 0]))  # stable: equal rows stay in their order
        equal = (some[order[1:]] == some[order[:-1]]).all(1)
        keep[index[order[1:][equal]]] = False
    return keep


def part_report(part):
    """Documents, damage and filtered rows of a part: a dict."""
    return json.loads(load_part(part, "report").tobytes())


def load_part(part, name=None):
    """The `Documents` of a part, or one of its arrays."""
    with np.load(part) as arrays:
        if name:
            return arrays[name]
        return Documents(*(arrays[field.name] for field in dataclasses.fields(Documents)))


class _PartEncoder:
    """Encodes chunks and writes them as part files."""

    def __init__(self, tokenizer_folder, options):
        self._encoder = DocumentEncoder(WordTokenizer.load(tokenizer_folder))
        self._options = options

    def write(self, part, chunk):
        """Writes one part."""
        damage, dropped, texts, places = Damage(), {"short": 0, "long": 0}, [], []
        most = self._options.max_characters
        for row in chunk.rows:
            place = f"{chunk.path}:{row.line}"
            text = row_text(row, chunk.form, self._options.field, place, damage)
            if text is None:
                continue
            characters = count_characters(text)
            if characters < self._options.min_characters:
                dropped["short"] += 1
            elif most is not None and characters > most:
                dropped["long"] += 1
            else:
                texts.append(text)
                places.append(place)
        documents = self._encoder.encode(texts)
        for index in np.flatnonzero(documents.lengths == 0):
            damage.add("empty", places[index])
        documents = documents.select(documents.lengths > 0)
        report = {
            "rows": len(chunk.rows),
            "documents": len(documents.lengths),
            "bytes": chunk.size,
            "dropped": dropped,
            "damage": damage.counts,
            "examples": damage.examples,
        }
        with atomic_path(part) as temporary:
            np.savez(
                temporary,
                report=np.frombuffer(json.dumps(report).encode(), np.uint8),
                **vars(documents),
            )


class _Workers:
    """Processes that write parts; at most two chunks a worker wait in memory."""

    def __init__(self, tokenizer_folder, options, workers):
        self._arguments = (tokenizer_folder, options)
        self._count = workers
        self._pending = collections.deque()

    def __enter__(self):
        if self._count == 1:
            self._encoder = _PartEncoder(*self._arguments)
        else:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self._count, multiprocessing.get_context("spawn"), _start_worker, self._arguments
            )
        return self

    def submit(self, part, chunk):
        """Encodes a chunk now, or in a worker when one is free."""
        if self._count == 1:
            self._encoder.write(part, chunk)
            return
        if len(self._pending) >= 2 * self._count:
            self._wait_for_one()
        with _broken_pool_named():
            self._pending.append(self._pool.submit(_work, part, chunk))

    def __exit__(self, kind, error, trace):
        if self._count == 1:
            return
        try:
            while self._pending and kind is None:
                self._wait_for_one()
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _wait_for_one(self):
        """Waits for the oldest chunk."""
        with _broken_pool_named():
            self._pending.popleft().result()


@contextlib.contextmanager
def _broken_pool_named():
    """Says what to do when a worker died."""
    try:
        yield
    except concurrent.futures.process.BrokenProcessPool as error:
        raise RuntimeError(
            "a worker ended before its work was done (out of memory?); the same "
            "command goes on where this one stopped, try fewer --workers"
        ) from error


def _start_worker(tokenizer_folder, options):
    """Loads the tokenizer once a process, and ends the process when its parent is gone."""
    global _encoder
    parent = multiprocessing.parent_process().sentinel
    threading.Thread(target=lambda: (wait([parent]), os._exit(1)), daemon=True).start()
    _encoder = _PartEncoder(tokenizer_folder, options)


def _work(part, chunk):
    """Writes a part with the process' tokenizer."""
    _encoder.write(part, chunk)


def _chunk_hash(head, chunk):
    """Names a part by all that decides its contents."""
    digest = hashlib.blake2b(head.encode(), digest_size=12)
    digest.update(json.dumps([chunk.path, chunk.form]).encode())
    for row in chunk.rows:
        data = b"-" if row.data is None else row.data
        digest.update(b"%d:%d:" % (row.line, len(data)) + data)
    return digest.hexdigest()


def _finish(writer, name, extra):
    """Closes a corpus; says what to do when it got nothing."""
    try:
        return writer.finish(**extra)
    except ValueError as error:
        raise ValueError(
            f"the {name} corpus must hold at least one document and got none; choose "
            "another --holdout or give more text"
        ) from error


def remove_work(work):
    """Removes the parts."""
    shutil.rmtree(work)
