"""Files of CAIL2019-SCM: one JSON row a line, A, B and C texts and which of B, C is closer to A.

Source: arXiv 1911.08962; sizes and class counts as printed in the README of thesharing/lfesm.
"""

import collections
import json
import re
from pathlib import Path
from typing import NamedTuple

from roformer_zh.files import write_text

LABELS = ("B", "C")
TEXTS = ("A", "B", "C")
OFFICIAL_COUNTS = {
    "train": {"B": 2596, "C": 2506},
    "valid": {"B": 837, "C": 663},
    "test": {"B": 803, "C": 733},
}


class Triplet(NamedTuple):
    """Three texts and which of B and C is closer to A; label is None if the file has none."""

    A: str
    B: str
    C: str
    label: str | None


def load_triplets(path, *, labelled=True, invalid_bytes="error"):
    """Reads an official file. Empty texts are allowed (see `describe`); anything else odd is fatal.

    Args:
        path: UTF-8 file, one JSON object a line with the keys A, B, C and label.
        labelled: whether every row must have a label ("B" or "C"); if False no row may.
        invalid_bytes: "error", or "replace" to put U+FFFD where bytes are no UTF-8 (`describe`
            counts them), so that a broken row still gets its one prediction.

    Returns:
        A list of `Triplet`, in the order of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row is damaged; the message gives file and line.
    """
    path = Path(path)
    if invalid_bytes not in ("error", "replace"):
        raise ValueError(f"invalid_bytes must be 'error' or 'replace'; got {invalid_bytes!r}")
    if not path.is_file():
        raise FileNotFoundError(
            f"no file of triplets at {path}; get the official ones with "
            "`python -m tasks.cail2019_scm.download`"
        )
    rows = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            rows.append(_parse(_decode(line, number, where, invalid_bytes), where, labelled))
    if not rows:
        raise ValueError(f"{path} must hold at least one triplet and is empty")
    return rows


def _decode(line, number, where, invalid_bytes):
    """One line as text, without a byte order mark at the file's start."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8",
                           "strict" if invalid_bytes == "error" else "replace")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: must be UTF-8; byte {line[error.start]:#04x} at column {error.start + 1} is "
            "not; save the file as UTF-8, or replace such bytes (invalid_bytes='replace')"
        ) from error


def _parse(line, where, labelled):
    """One line as a `Triplet`."""
    try:
        row = json.loads(line, object_pairs_hook=lambda pairs: _without_repeats(pairs, where))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: must be a JSON object; {error.msg} at column {error.colno}"
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: must be a JSON object; got {type(row).__name__}")
    expected = (*TEXTS, "label") if labelled else TEXTS
    missing = [key for key in expected if key not in row]
    unknown = [key for key in row if key not in expected]
    if missing or unknown:
        raise ValueError(
            f"{where}: must have exactly the keys {', '.join(expected)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
        )
    for key in TEXTS:
        if not isinstance(row[key], str):
            raise ValueError(f"{where}: {key} must be a text; got {type(row[key]).__name__}")
        if broken := re.search("[\ud800-\udfff]", row[key]):
            raise ValueError(f"{where}: {key} must be Unicode text; character {broken.start() + 1} "
                             "is half of a surrogate pair: mend the escape in the file")
    if labelled and row["label"] not in LABELS:
        raise ValueError(f"{where}: label must be \"B\" or \"C\"; got {json.dumps(row['label'])}")
    return Triplet(row["A"], row["B"], row["C"], row.get("label"))


def _without_repeats(pairs, where):
    """The dict of a JSON object's pairs; a key that comes twice is an error."""
    repeated = [key for key, count in collections.Counter(k for k, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f"{where}: must have each key once; repeated: {', '.join(repeated)}")
    return dict(pairs)


def save_triplets(path, triplets):
    """Writes triplets in the official format, atomically; tags of augmentation are kept out."""
    lines = []
    for row in triplets:
        record = {"A": row.A, "B": row.B, "C": row.C}
        if row.label is not None:
            record["label"] = row.label
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))


def describe(triplets):
    """Counts that a reader of a score should know.

    Returns:
        dict: rows, B and C (labels), empty_texts, identical_b_and_c (no model can decide these),
        replaced_characters (U+FFFD).

    Example:
        >>> describe([Triplet("甲", "乙", "乙", "B")])["identical_b_and_c"]
        1
    """
    labels = collections.Counter(row.label for row in triplets)
    return {
        "rows": len(triplets),
        "B": labels["B"],
        "C": labels["C"],
        "empty_texts": sum(not text.strip() for row in triplets for text in row[:3]),
        "identical_b_and_c": sum(row.B == row.C for row in triplets),
        "replaced_characters": sum(text.count("\ufffd") for row in triplets for text in row[:3]),
    }


def official_split(triplets):
    """The official split with this size and these class counts: its name, or None."""
    labels = collections.Counter(row.label for row in triplets)
    return next((name for name, counts in OFFICIAL_COUNTS.items() if labels == counts), None)


def warnings_about(triplets, where):
    """Sentences on rows whose score would mislead: one label, not quite official, undecidable."""
    found, counts = [], describe(triplets)
    labelled = counts["B"] + counts["C"] > 0
    if labelled and len(triplets) > 1 and 0 in (counts["B"], counts["C"]):
        label = "B" if counts["B"] else "C"
        found.append(
            f"{where}: constant label, all {counts['rows']:,} rows say {label}; a score on it "
            "means nothing (a known re-publication of the official data lost its C rows)"
        )
    same_size = [name for name, labels in OFFICIAL_COUNTS.items()
                 if counts["rows"] in (sum(labels.values()), labels["B"])]
    if labelled and same_size and official_split(triplets) is None:
        labels = OFFICIAL_COUNTS[same_size[0]]
        found.append(
            f"{where}: looks like the official {same_size[0]} split, which has {labels['B']:,} B "
            f"and {labels['C']:,} C, but has {counts['B']:,} and {counts['C']:,}: not the "
            "official data"
        )
    for key, words in (
        ("empty_texts", "texts are empty"),
        ("identical_b_and_c", "rows have B equal to C"),
        ("replaced_characters", "characters replace invalid bytes"),
    ):
        if counts[key]:
            found.append(f"{where}: {counts[key]:,} {words}")
    return found
