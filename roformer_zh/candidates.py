"""Documents to match, out of text files, JSON lines and folders, each with its place."""

import dataclasses
import json
from pathlib import Path

_LINES = (".jsonl", ".json")


@dataclasses.dataclass(frozen=True)
class Document:
    """One text and where it was found."""

    where: str
    """The file, or file:line of JSON lines."""
    text: str
    """The document."""


def read_documents(paths, field="text"):
    """The documents of files and folders, in order.

    A .jsonl or .json file has a document a line; any other file is one document. A folder gives
    the .txt, .jsonl and .json files directly in it, sorted by name.

    Args:
        paths: files and folders.
        field: key of the text in a JSON row.

    Raises:
        FileNotFoundError: there is nothing at a path.
        ValueError: a row or file is damaged, a document is empty, or there is none.
    """
    documents = []
    for path in map(Path, paths):
        for file in _files(path):
            documents += _read_lines(file, field) if file.suffix in _LINES else [_read_text(file)]
    if not documents:
        raise ValueError(f"there must be at least one document; found none in "
                         f"{', '.join(map(str, paths))}")
    empty = [document.where for document in documents if not document.text.strip()]
    if empty:
        raise ValueError(f"{empty[0]}: the document must not be empty")
    return documents


def _files(path):
    """The files that a path stands for."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in (".txt", *_LINES))
    if not path.is_file():
        raise FileNotFoundError(f"no file or folder at {path}")
    return [path]


def _read_text(file):
    """A whole file as one document."""
    try:
        return Document(str(file), file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} must be UTF-8 text: {error.reason} at byte {error.start}"
        ) from error


def _read_lines(file, field):
    """A document for each line of JSON."""
    documents = []
    for number, line in enumerate(_read_text(file).text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: must be a JSON object: {error.msg}") from error
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            keys = ", ".join(row) if isinstance(row, dict) else type(row).__name__
            raise ValueError(f"{where}: must be a JSON object with a text under {field!r}; "
                             f"got {keys}; name the key with --field")
        documents.append(Document(where, row[field]))
    return documents
