"""Vocabulary files: the row number is the id."""

import difflib
import functools
import hashlib
import operator
import re
import warnings
from pathlib import Path

from roformer_zh.files import write_text

PAD, UNK, CLS, SEP, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_CHARACTER_ROW = re.compile("##[A-Za-z0-9]|.", re.DOTALL)
_LATIN_ROW = re.compile("(?:##)?[A-Za-z0-9]+")
_LATIN_RUN_OR_CHARACTER = re.compile("[A-Za-z0-9]+|.", re.DOTALL)
_LONGEST_LATIN_WORD = 100


def read_rows(path):
    """The rows of a vocabulary file, one token a row, as a list whose index is the id.

    Only a line feed ends a row (U+2028 or U+0085 may be tokens); a BOM at the start and a carriage
    return or blanks around a token are dropped. Blank rows keep their number and are never used.

    Raises:
        ValueError: the file is not UTF-8, or is empty.
    """
    data = Path(path).read_bytes()
    rows = data.removesuffix(b"\n").split(b"\n")
    for number, row in enumerate(rows):
        try:
            rows[number] = row.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}:{number + 1}: a vocabulary must be UTF-8 text; save the file "
                             f"as UTF-8 ({error.reason})") from error
    rows[0] = rows[0].removeprefix("\ufeff")
    rows = [row.strip(" \t\r") for row in rows]
    if not any(rows):
        raise ValueError(f"{path} holds no tokens; a vocabulary has one token a row")
    return rows


def write_rows(path, rows):
    """Writes rows as a file that `read_rows` reads back."""
    write_text(path, "".join(f"{row}\n" for row in rows))


def rows_hash(rows):
    """SHA-256 of the rows, each ended by a line feed: of the file, where `write_rows` wrote it."""
    return hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()


class Vocabulary:
    """Rows, and the split of a word into them.

    Where a token stands in several rows the last one is its id, as in BERT's, Hugging Face's and
    keras-hub's loaders; the earlier rows can still be decoded.

    In character mode only rows of one character, and `##` with one letter or digit, are used; if
    they are the first rows of the file, the rows behind them are left out. In a vocabulary without
    Chinese words (BERT's) Latin pieces of any length are used too, and all rows are kept.

    Args:
        rows: one token a row.
        characters: whether this is character mode.

    Raises:
        ValueError: [PAD], [UNK], [CLS] or [SEP] is missing, or a row holds a line end.
    """

    def __init__(self, rows, characters=False):
        rows = _check_rows(rows)
        latin = characters and not any(map(_is_chinese_word, rows))
        is_used = _is_used_by_characters if characters and not latin else bool
        used = [number for number, row in enumerate(rows) if row in SPECIALS or is_used(row)]
        if characters and not latin and used == list(range(len(used))):
            rows = rows[:len(used)]
        self.rows = rows
        self.ids = {rows[number]: number for number in used}
        self._require_specials()
        self.unk_id = self.ids[UNK]
        self._whole = {row: number for row, number in self.ids.items()
                       if row not in SPECIALS and not (row.startswith("##") and len(row) > 1)}
        self._longest = max(map(len, filter(_LATIN_ROW.fullmatch, self.ids)), default=1)

    def __len__(self):
        return len(self.rows)

    @functools.cached_property
    def hash(self):
        """SHA-256 of the rows, in hexadecimal."""
        return rows_hash(self.rows)

    @property
    def specials(self):
        """Names of the special tokens among the rows."""
        return [name for name in SPECIALS if name in self.ids]

    def id_of(self, token):
        """The id of a token; ValueError if it is not a row."""
        if token in self.ids:
            return self.ids[token]
        close = difflib.get_close_matches(str(token), SPECIALS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{token!r} is not a token of this vocabulary of {len(self)} rows{hint}")

    def token_of(self, number):
        """The token of an id; ValueError if there is no such row."""
        number = operator.index(number)
        if not 0 <= number < len(self.rows):
            raise ValueError(f"a token id must be in 0..{len(self.rows) - 1}, the rows of the "
                             f"vocabulary; got {number}")
        return self.rows[number]

    def split(self, word):
        """Pieces of a segmented word: a list of (id, length in characters); blanks give none.

        The whole word if it is a row, else its Chinese characters and symbols one by one, and its
        runs of Latin letters and digits by `split_latin`.
        """
        whole = self._whole.get(word)
        if whole is not None and not word.isspace():
            return [(whole, len(word))]
        pieces = []
        for run in _LATIN_RUN_OR_CHARACTER.findall(word):
            if run.isascii() and run.isalnum():
                pieces.extend(self.split_latin(run))
            elif not run.isspace():
                pieces.append((self._whole.get(run, self.unk_id), 1))
        return pieces

    def split_latin(self, run):
        """Greedy longest pieces, `##` on all but the first; one [UNK] if it is over 100 characters
        long or a part of it is no row."""
        pieces, start = [], 0
        while start < len(run) <= _LONGEST_LATIN_WORD:
            for end in range(min(len(run), start + self._longest), start, -1):
                piece = run[start:end]
                number = self.ids.get(f"##{piece}") if start else self._whole.get(piece)
                if number is not None:
                    pieces.append((number, end - start))
                    start = end
                    break
            else:
                break
        return pieces if start == len(run) else [(self.unk_id, len(run))]

    def _require_specials(self):
        """Specials are found by name; [MASK] is only asked for when it is needed."""
        missing = [name for name in SPECIALS if name not in self.ids and name != MASK]
        if missing:
            raise ValueError(f"a vocabulary must hold the rows {', '.join(SPECIALS[:4])}; "
                             f"{', '.join(missing)} missing among {len(self.rows)} rows")
        if self.ids[PAD] != 0:
            warnings.warn(f"[PAD] is row {self.ids[PAD]} of this vocabulary, not row 0 as in those "
                          "of BERT, WoBERT and RoFormer; that row number is used", stacklevel=4)


def read_chunks(text):
    """Words of character mode: runs of Latin letters and digits, and single characters."""
    return _LATIN_RUN_OR_CHARACTER.findall(text)


def join_tokens(tokens):
    """Readable text: `##` pieces joined, a blank between two Latin words, none beside Chinese.

    Example:
        >>> join_tokens(["原", "告", "hel", "##lo", "world", "100", "元"])
        '原告hello world 100元'
    """
    text = []
    last = ""
    for token in tokens:
        if token.startswith("##") and len(token) > 2 and text:
            token = token[2:]
        elif last.isalnum() and last.isascii() and token[:1].isalnum() and token[:1].isascii():
            text.append(" ")
        text.append(token)
        last = token[-1:]
    return "".join(text)


def _check_rows(rows):
    """The rows as a tuple of text; a row that a file could not hold is an error."""
    if isinstance(rows, str):
        raise ValueError(f"a vocabulary must be a sequence of rows; got the text {rows[:40]!r}; to "
                         "read a file use WordTokenizer.load")
    rows = tuple(rows)
    for number, row in enumerate(rows):
        if not isinstance(row, str) or "\n" in row or row != row.strip(" \t\r"):
            raise ValueError(f"row {number} of a vocabulary must be text without line ends and "
                             f"outer blanks; got {row!r}")
    if rows and rows[0].startswith("\ufeff"):
        raise ValueError("row 0 of a vocabulary starts with a byte order mark; drop it")
    repeated = len(rows) - len(set(rows)) - max(rows.count("") - 1, 0)
    if repeated:
        warnings.warn(f"{repeated} of {len(rows)} vocabulary rows repeat an earlier one; the last "
                      "row of a token is its id", stacklevel=4)
    return rows


def _is_chinese_word(row):
    """Whether a row is a word of several characters with a Chinese one among them."""
    return len(row) > 1 and not row.startswith("##") and bool(_HAN.search(row))


def _is_used_by_characters(row):
    """Whether character mode uses this row of a word vocabulary."""
    return bool(_CHARACTER_ROW.fullmatch(row))
