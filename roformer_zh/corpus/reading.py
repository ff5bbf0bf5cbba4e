"""Text files as rows, and rows as texts: which are damaged is counted, never guessed away."""

import contextlib
import dataclasses
import glob
import gzip
import json
import zlib
from pathlib import Path

FORMATS = ("jsonl", "lines", "blank-lines")
SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".txt": "lines"}
MAX_ROW_BYTES = 64 << 20
DAMAGE = ("invalid UTF-8", "not JSON", "no such key", "not a string", "empty", "over 64 MiB")
_EXAMPLES = 3


@dataclasses.dataclass(frozen=True)
class Row:
    """One document of a file, undecoded."""

    line: int
    """Line of the file at which it begins, from 1."""
    data: bytes | None
    """Its bytes without line end; None when it is over MAX_ROW_BYTES."""


class Damage:
    """Counts of damaged rows by kind, with the first places."""

    def __init__(self, counts=None, examples=None):
        self.counts = dict.fromkeys(DAMAGE, 0) | (counts or {})
        self.examples = {kind: list((examples or {}).get(kind, ())) for kind in DAMAGE}

    def add(self, kind, place):
        """Counts one row."""
        self.counts[kind] += 1
        if len(self.examples[kind]) < _EXAMPLES:
            self.examples[kind].append(place)

    def merge(self, other):
        """Adds the counts of rows that come later."""
        for kind in DAMAGE:
            self.counts[kind] += other.counts[kind]
            self.examples[kind] = (self.examples[kind] + other.examples[kind])[:_EXAMPLES]

    def total(self):
        """Damaged rows; empty ones are reported, but nothing is lost with them."""
        return sum(self.counts.values()) - self.counts["empty"]

    def describe(self):
        """One line: counts by kind with the first places; "none" if there are none."""
        parts = [
            f"{count:,} {kind} ({', '.join(self.examples[kind])}{', ...' * (count > _EXAMPLES)})"
            for kind, count in self.counts.items()
            if count
        ]
        return "; ".join(parts) or "none"


def find_files(patterns):
    """The files that names, folders and globs stand for, in the given order, each once.

    A folder stands for its .jsonl, .json and .txt files (also with .gz) at any depth, sorted; a
    glob for its matches, sorted.

    Raises:
        FileNotFoundError: a name stands for nothing.
    """
    found = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            files = sorted(
                file
                for file in path.rglob("*")
                if file.is_file() and _suffix(file) in SUFFIXES and not file.name.startswith(".")
            )
            what = f"a folder with {', '.join(SUFFIXES)} files (also .gz)"
        elif path.exists():
            files, what = [path], ""
        else:
            files = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
            files = [file for file in files if file.is_file()]
            what = "a file, a folder or a glob that matches files"
        if not files:
            raise FileNotFoundError(f"input must be {what}; found nothing at {pattern}")
        found += files
    return list(dict.fromkeys(found))


def file_format(path, chosen="auto"):
    """`chosen`, or what the file's suffix says: JSON lines, or one document a line.

    Raises:
        ValueError: the suffix says nothing.
    """
    if chosen != "auto":
        return chosen
    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{path}: the format must be given with --format ({', '.join(FORMATS)}) "
            f"unless the name ends in {', '.join(SUFFIXES)} (also .gz)"
        )
    return SUFFIXES[suffix]


def read_rows(path, form):
    """Yields the `Row`s of a file; memory is bounded by MAX_ROW_BYTES.

    Args:
        path: a text file, gzip-compressed if it ends in .gz.
        form: one of FORMATS.

    Raises:
        ValueError: a .gz file is damaged or cut; the message names file and line.
    """
    rows = _blank_separated(path) if form == "blank-lines" else _lines(path)
    first = True
    for row in rows:
        if first and row.data is not None:
            row = Row(row.line, row.data.removeprefix(b"\xef\xbb\xbf"))
        first = False
        yield row


def row_text(row, form, field, place, damage):
    """The text of a row without outer white space, or None after counting the damage.

    Args:
        row: a `Row`.
        form: one of FORMATS.
        field: key of the text in a JSON row.
        place: "file:line" for the report.
        damage: a `Damage`.
    """
    try:
        if row.data is None:
            raise _Damaged("over 64 MiB")
        text = row.data.decode("utf-8")
        if form == "jsonl" and text.strip():
            text = _json_text(text, field)
        text.encode("utf-8")  # a lone surrogate, "\ud800" in JSON, is no text
    except UnicodeError:
        damage.add("invalid UTF-8", place)
    except _Damaged as error:
        damage.add(str(error), place)
    else:
        text = text.strip()
        if text:
            return text
        damage.add("empty", place)
    return None


class _Damaged(Exception):
    """Carries the kind of a row's damage."""


def _json_text(line, field):
    """The text of a JSON row."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Damaged("not JSON") from error
    if not isinstance(value, dict) or field not in value:
        raise _Damaged("no such key")
    if not isinstance(value[field], str):
        raise _Damaged("not a string")
    return value[field]


def _lines(path):
    """Each line as a row."""
    with _opened(path) as (file, at):
        while data := file.readline(MAX_ROW_BYTES):
            at[0] += 1
            whole = data.endswith(b"\n") or len(data) < MAX_ROW_BYTES
            while not data.endswith(b"\n") and len(data) == MAX_ROW_BYTES:
                data = file.readline(MAX_ROW_BYTES)
            yield Row(at[0], data.rstrip(b"\r\n") if whole else None)


def _blank_separated(path):
    """Each group of lines without a blank one between as a row."""
    group, size, first = [], 0, None
    for row in _lines(path):
        if row.data is not None and not row.data.strip():
            if first is not None:
                yield Row(first, b"\n".join(group) if size <= MAX_ROW_BYTES else None)
            group, size, first = [], 0, None
            continue
        first = first or row.line
        size += MAX_ROW_BYTES + 1 if row.data is None else len(row.data) + 1
        if size <= MAX_ROW_BYTES:
            group.append(row.data)
        else:
            group.clear()
    if first is not None:
        yield Row(first, b"\n".join(group) if size <= MAX_ROW_BYTES else None)


@contextlib.contextmanager
def _opened(path):
    """The open file and a list with the number of lines read, for the message if it breaks."""
    at = [0]
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rb") as file:
        try:
            yield file, at
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} must be a whole gzip file and breaks after line {at[0]:,} "
                f"({error}); copy or download it again"
            ) from error


def _suffix(path):
    """The suffix that tells the format, .gz left out."""
    return Path(str(path).removesuffix(".gz")).suffix
