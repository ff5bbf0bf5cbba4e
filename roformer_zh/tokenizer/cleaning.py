"""Text cleaning that remembers where every character came from."""

import functools
import re
import sys
import unicodedata

UNICODE_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_BLANK_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zs", "Zl", "Zp"))
_KEPT_BLANKS = frozenset("\n\r\t \u3000")
_PUNCTUATION = "·—‘’“”…、。《》〈〉【】〔〕（），．：；？！％＋－／"
_IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff"
_LONGEST_CLUSTER = 32
_MEMO_SIZE = 1 << 16


class Cleaner:
    """Turns raw text into the text that is segmented, one small cluster of characters at a time.

    Control and format characters, lone surrogates and every kind of blank become a blank (the
    common ones stay as they are): they separate words and are never read. Lower-casing and accent
    stripping look at one character, so a final Σ becomes σ. A Unicode form is applied to a
    character with the marks that may combine with it, at most 32 together.

    Args:
        lowercase: whether letters are lower-cased.
        strip_accents: whether combining marks are dropped, as BERT does (é to e, が to か).
        unicode_form: "NFC", "NFD", "NFKC", "NFKD", or None to leave the characters alone.

    Example:
        >>> Cleaner(unicode_form="NFKC").clean("Ａ座１０％")
        'a座10%'
    """

    def __init__(self, lowercase=True, strip_accents=False, unicode_form=None):
        if unicode_form not in (None, *UNICODE_FORMS):
            raise ValueError(f"unicode_form must be None or one of {', '.join(UNICODE_FORMS)}; "
                             f"got {unicode_form!r}")
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.unicode_form = unicode_form
        self._memo = {}
        self._find = re.compile(self._pattern(), re.DOTALL)

    def clean(self, text):
        """The cleaned text; the same object when nothing had to change."""
        return self._find.sub(self._replace_match, text)

    def align(self, text):
        """The cleaned text and, for each of its characters, where it came from.

        Returns:
            `(cleaned, starts, ends)`: `text[starts[i]:ends[i]]` is the source of `cleaned[i]`.
        """
        parts, starts, ends, position = [], [], [], 0
        for match in self._find.finditer(text):
            start, end = match.span()
            parts.append(text[position:start])
            starts.extend(range(position, start))
            ends.extend(range(position + 1, start + 1))
            replacement = self._replace_match(match)
            parts.append(replacement)
            starts.extend([start] * len(replacement))
            ends.extend([end] * len(replacement))
            position = end
        parts.append(text[position:])
        starts.extend(range(position, len(text)))
        ends.extend(range(position + 1, len(text) + 1))
        return "".join(parts), starts, ends

    def _pattern(self):
        """A regular expression for the clusters that may have to change."""
        candidates = [chr(code) for code in range(32, 127)] + list(_PUNCTUATION) + list("\n\r\t")
        plain = "".join(c for c in candidates if self._clean_cluster(c) == c)
        plain = _IDEOGRAPHS + re.escape(plain)
        if self.unicode_form is None:
            return f"[^{plain}]"
        marks = f"[{_continuing_characters()}]"
        return (f"[^{plain}]{marks}{{0,{_LONGEST_CLUSTER - 1}}}"
                f"|[{plain}]{marks}{{1,{_LONGEST_CLUSTER - 1}}}")

    def _replace_match(self, match):
        """What a matched cluster becomes; remembered."""
        cluster = match.group()
        replacement = self._memo.get(cluster)
        if replacement is None:
            if len(self._memo) >= _MEMO_SIZE:
                self._memo.clear()
            replacement = self._memo[cluster] = self._clean_cluster(cluster)
        return replacement

    def _clean_cluster(self, cluster):
        """A character and its marks, cleaned."""
        if self.unicode_form:
            cluster = unicodedata.normalize(self.unicode_form, cluster)
        if self.lowercase:
            cluster = "".join(map(str.lower, cluster))
        if self.strip_accents:
            cluster = "".join(map(_without_marks, cluster))
        return "".join(" " if _is_blank(c) else c for c in cluster)


def _is_blank(character):
    """Whether a character is read as a blank and is not one that stays as it is."""
    return (unicodedata.category(character) in _BLANK_CATEGORIES
            and character not in _KEPT_BLANKS)


def _without_marks(character):
    """The character without its combining marks; itself where it has none (Hangul, too)."""
    parts = unicodedata.normalize("NFD", character)
    kept = "".join(c for c in parts if unicodedata.category(c) != "Mn")
    return character if kept == parts else kept


@functools.cache
def _continuing_characters():
    """Regular expression set of all characters that may combine with the one before them."""
    second = {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            second.add(chr(int(parts[1], 16)))
    found = []
    for code in range(sys.maxunicode + 1):
        first = unicodedata.normalize("NFKD", chr(code))[0]
        if unicodedata.combining(first) or first in second:
            found.append(code)
    return _as_ranges(found)


def _as_ranges(codes):
    """Sorted code points as the inside of a regular expression set."""
    ranges = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
