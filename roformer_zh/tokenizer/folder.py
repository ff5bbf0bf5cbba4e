"""The two files of a saved tokenizer: tokenizer.json and vocab.txt."""

import dataclasses
import json
from pathlib import Path

from roformer_zh.files import write_text
from roformer_zh.tokenizer.userdict import DictionaryEntry
from roformer_zh.tokenizer.vocabulary import read_rows, write_rows

TEXT_OPTIONS = ("mode", "lowercase", "strip_accents", "unicode_form")
"""Options of a tokenizer that a folder keeps, beside its user dictionary."""


def write_folder(folder, rows, fingerprint, entries):
    """Writes both files; each appears whole or not at all."""
    folder = Path(folder)
    record = {**fingerprint, "user_dictionary": [dataclasses.astuple(entry) for entry in entries]}
    write_rows(folder / "vocab.txt", rows)
    write_text(folder / "tokenizer.json", json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def read_folder(folder, options):
    """What `write_folder` wrote, with a caller's `options` checked against it.

    Returns:
        `(rows, settings, fingerprint)`; `settings` are the tokenizer's options.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: tokenizer.json is damaged, or an option (but `segmenter`) is another there.
    """
    path = Path(folder) / "tokenizer.json"
    record = _read_json(path)
    try:
        settings = {name: record[name] for name in TEXT_OPTIONS}
        entries = [DictionaryEntry(*entry) for entry in record["user_dictionary"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a tokenizer.json of this library, with the keys "
                         f"{', '.join(TEXT_OPTIONS)} and user_dictionary: {error}") from error
    for name, value in options.items():
        if name != "segmenter" and settings.get(name) != value:
            raise ValueError(f"{folder} holds a tokenizer with {name} {settings.get(name)!r}; "
                             f"asked for {name} {value!r}; load it without {name}=")
    settings["segmenter"] = options.get("segmenter", "auto")
    return read_rows(path.with_name("vocab.txt")), {**settings, "user_dictionary": entries}, record


def compare_fingerprints(own, recorded, source):
    """Raises ValueError unless all of `own` stands in `recorded`, which `source` holds."""
    different = [f"{name} {recorded.get(name)!r} there, {value!r} here"
                 for name, value in own.items() if recorded.get(name) != value]
    if different:
        raise ValueError(f"{source} was made with another tokenizer ({recorded.get('kind')}) than "
                         f"this one ({own['kind']}): {'; '.join(different)}. Use the tokenizer and "
                         "vocabulary that belong to it")


def _read_json(path):
    """The dict in a JSON file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing; a tokenizer's folder holds tokenizer.json and "
                                "vocab.txt") from error
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(record).__name__}")
    return record
