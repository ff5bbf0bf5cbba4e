"""WordTokenizer: Chinese text to token ids and back, by words or by characters; needs no Keras."""

import dataclasses
import json
import os
import re
import warnings
from pathlib import Path

from roformer_zh import segmenter as segmenters
from roformer_zh.cleaning import Cleaner
from roformer_zh.files import write_text
from roformer_zh.pairs import TRUNCATIONS, join_pair, truncate_pair
from roformer_zh.pieces import CharacterPieces, WordPieces
from roformer_zh.userdict import DictionaryEntry, read_user_dictionary
from roformer_zh.vocabulary import (
    CLS,
    MASK,
    PAD,
    SEP,
    SPECIALS,
    UNK,
    Vocabulary,
    join_tokens,
    read_rows,
    rows_hash,
    write_rows,
)

MODES = ("word", "char")


class WordTokenizer:
    """Token ids of Chinese text.

    The text is cleaned (`roformer_zh.cleaning.Cleaner`), segmented by jieba without its HMM, and a
    word that is a row of the vocabulary is one token; any other word is split into its characters,
    and its Latin letters and digits into word pieces. Blanks and control characters separate words
    and give no token. In character mode the segmenter has no say in the tokens; it only tells where
    words start (`encode_words`).

    Special tokens written in a text are ordinary text unless `allow_special` is set.

    Args:
        vocabulary: one token a row; the row number is the id. `roformer_zh.vocabulary.Vocabulary`
            says which rows character mode uses.
        mode: "word" or "char".
        lowercase: whether letters are lower-cased, those of the user dictionary too.
        strip_accents: whether combining marks are dropped, as BERT does.
        unicode_form: "NFKC" or another Unicode form; None (the released weights' choice) keeps
            １０％ and 10% apart.
        user_dictionary: path or entries (`roformer_zh.userdict.read_user_dictionary`). A word needs
            a row in the vocabulary, too, to become one token. Entries that can never match are
            reported in a warning and in `dead_entries`.
        segmenter: "rjieba", "jieba" (the same words, at a twentieth of the speed), or "auto".

    Raises:
        ValueError: an option is unknown, or the vocabulary misses a special token.

    Example:
        >>> rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "天", "气", "今天", "a", "##b"]
        >>> tokenizer = WordTokenizer(rows)
        >>> tokenizer.tokenize("今天 天气AB。")
        ['今天', '天', '气', 'a', '##b', '[UNK]']
    """

    def __init__(self, vocabulary, *, mode="word", lowercase=True, strip_accents=False,
                 unicode_form=None, user_dictionary=None, segmenter="auto"):
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
        self.mode = mode
        self._cleaner = Cleaner(lowercase, strip_accents, unicode_form)
        self._entries = read_user_dictionary(user_dictionary or (), self._cleaner.clean)
        self._vocabulary = Vocabulary(vocabulary, characters=mode == "char")
        self._segmenter_name = segmenter
        self._segmenter = None
        pieces = WordPieces if mode == "word" else CharacterPieces
        self._pieces = pieces(self._vocabulary, self._segment)
        self._special_pattern = re.compile("|".join(map(re.escape, self._special_rows())))
        self.dead_entries = ()
        """[(DictionaryEntry, reason)] of the entries that never match."""
        if mode == "word" or self._entries or segmenter != "auto":
            self._segment("")  # builds it now, before any fork
        self._report_dead_entries(user_dictionary)

    @classmethod
    def load(cls, path, **options):
        """A tokenizer from a vocabulary file, or from a folder that `save` or a run wrote.

        Args:
            path: a file of rows, or a folder with tokenizer.json and vocab.txt.
            **options: the constructor's. With a folder they come from tokenizer.json: here only
                `segmenter` can be chosen, and `mode` is checked.

        Raises:
            ValueError: the folder's parts do not belong together, or `mode` is another.
        """
        path = Path(path)
        if not path.is_dir():
            return cls(read_rows(path), **options)
        recorded = _read_json(path / "tokenizer.json")
        for name, value in options.items():
            if name != "segmenter" and recorded.get(name) != value:
                raise ValueError(f"{path} holds a tokenizer with {name} {recorded.get(name)!r}; "
                                 f"asked for {name} {value!r}; load it without {name}=")
        try:
            settings = {name: recorded[name] for name in
                        ("mode", "lowercase", "strip_accents", "unicode_form")}
            entries = [DictionaryEntry(*entry) for entry in recorded["user_dictionary"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path / 'tokenizer.json'} must be a tokenizer.json of this library; "
                             f"it misses or garbles {error}") from error
        tokenizer = cls(read_rows(path / "vocab.txt"), **settings, user_dictionary=entries,
                        segmenter=options.get("segmenter", "auto"))
        tokenizer.check(recorded, path / "tokenizer.json")
        return tokenizer

    def save(self, folder):
        """Writes tokenizer.json and vocab.txt into a folder; each appears whole or not at all."""
        folder = Path(folder)
        write_rows(folder / "vocab.txt", self._vocabulary.rows)
        entries = [dataclasses.astuple(entry) for entry in self._entries]
        record = {**self.fingerprint(), "user_dictionary": entries}
        write_text(folder / "tokenizer.json",
                   json.dumps(record, indent=2, ensure_ascii=False) + "\n")

    # What the tokenizer is

    @property
    def vocabulary(self):
        """The rows, as a tuple."""
        return self._vocabulary.rows

    @property
    def vocabulary_size(self):
        """Number of rows; the model's token table needs as many."""
        return len(self._vocabulary)

    @property
    def vocabulary_hash(self):
        """SHA-256 of the rows, in hexadecimal."""
        return rows_hash(self._vocabulary.rows)

    @property
    def dictionary_hash(self):
        """SHA-256 of the segmenter's dictionary, user entries included."""
        return segmenters.dictionary_hash(self._entries)

    def fingerprint(self):
        """What decides the ids, as a dict for JSON; equal dicts give equal ids."""
        return {"kind": f"roformer_zh.WordTokenizer/{self.mode}", "mode": self.mode,
                "vocabulary_size": self.vocabulary_size, "vocabulary_hash": self.vocabulary_hash,
                "dictionary_hash": self.dictionary_hash, "hmm": False,
                "lowercase": self._cleaner.lowercase,
                "strip_accents": self._cleaner.strip_accents,
                "unicode_form": self._cleaner.unicode_form}

    def check(self, recorded, source):
        """Raises ValueError unless `recorded`, a fingerprint, is this tokenizer's.

        Args:
            recorded: dict that holds a fingerprint; other keys are ignored.
            source: where it was read, for the message.
        """
        own = self.fingerprint()
        different = [f"{name} {recorded.get(name)!r} there, {value!r} here"
                     for name, value in own.items() if recorded.get(name) != value]
        if different:
            raise ValueError(f"{source} was made with another tokenizer ({recorded.get('kind')}) "
                             f"than this one ({own['kind']}): {'; '.join(different)}. Use the "
                             "tokenizer that is saved beside it")

    # Special tokens

    @property
    def pad_id(self):
        """Id of [PAD]."""
        return self.token_to_id(PAD)

    @property
    def unk_id(self):
        """Id of [UNK]."""
        return self.token_to_id(UNK)

    @property
    def cls_id(self):
        """Id of [CLS]."""
        return self.token_to_id(CLS)

    @property
    def sep_id(self):
        """Id of [SEP]."""
        return self.token_to_id(SEP)

    @property
    def mask_id(self):
        """Id of [MASK]; ValueError in a vocabulary without it."""
        return self.token_to_id(MASK)

    @property
    def special_ids(self):
        """Ids of all special tokens that the vocabulary has."""
        return frozenset(map(self.token_to_id, self._special_rows()))

    def token_to_id(self, token):
        """The id of a token; ValueError if it is not in the vocabulary."""
        return self._vocabulary.id_of(token)

    def id_to_token(self, token_id):
        """The token of an id; ValueError if it is out of range."""
        return self._vocabulary.token_of(token_id)

    # Text to ids

    def segment(self, text):
        """The words of the cleaned text, without blanks."""
        return [word for word in self._segment(self._clean(text)) if not word.isspace()]

    def tokenize(self, text, allow_special=False):
        """The tokens of a text."""
        return [self._vocabulary.rows[number] for number in
                self.encode(text, allow_special=allow_special)]

    def encode(self, text, max_length=None, allow_special=False):
        """Token ids of a text, without [CLS] and [SEP].

        Args:
            text: any string.
            max_length: keep the first so many ids; the rest of a long text is not segmented.
            allow_special: whether special tokens written in the text ("[MASK]") are recognised.
        """
        if max_length is not None and not (isinstance(max_length, int) and max_length >= 0):
            raise ValueError(f"max_length must be None or a whole number of 0 or more; "
                             f"got {max_length!r}")
        if allow_special:
            ids = []
            for part, special in self._parts(text):
                ids += [self.token_to_id(part)] if special else self.encode(part)
            return ids[:max_length]
        cleaned = self._clean(text)
        if max_length is None:
            return self._pieces.encode(cleaned)
        return self._pieces.encode_start(cleaned, max_length)

    def encode_words(self, text):
        """Ids of a text, and where its words start.

        Returns:
            `(token_ids, word_starts)`, lists of equal length; `word_starts[i]` tells whether token
            i is the first one of a word of the segmenter, in both modes.
        """
        return self._pieces.encode_words(self._clean(text))

    def encode_batch(self, texts, workers=1):
        """Token ids of every text, in order.

        Args:
            texts: an iterable of strings.
            workers: number of processes; they load no Keras and need no `__main__` guard.
        """
        texts = list(texts)
        if not (isinstance(workers, int) and workers >= 1):
            raise ValueError(f"workers must be a whole number of 1 or more; got {workers!r}")
        if workers == 1 or len(texts) < 2:
            return [self.encode(text) for text in texts]
        import joblib

        parts = _even_parts(texts, 4 * workers)
        run = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1)
        done = run(joblib.delayed(_encode_all)(self, part) for part in parts)
        return [ids for part in done for ids in part]

    def encode_pair(self, a, b, sequence_length=None, truncation="longest_first",
                    allow_special=False):
        """Both texts in one sequence: [CLS] a [SEP] b [SEP].

        Args:
            a: first text.
            b: second text.
            sequence_length: most tokens, specials included (at least 5); None = no limit.
            truncation: what is kept when they do not fit. "longest_first": the shorter text whole
                where it takes less than half, both from their start. "head", "tail", "head_tail":
                each text alone is cut to half of the room (to its start, its end, or half of each),
                so that what is kept of a text does not depend on the other.
            allow_special: whether special tokens written in the texts are recognised.

        Returns:
            An `EncodedPair`; nothing is padded.
        """
        if truncation not in TRUNCATIONS:
            raise ValueError(f"truncation must be one of {', '.join(TRUNCATIONS)}; "
                             f"got {truncation!r}")
        if sequence_length is None:
            first, second = (self.encode(text, None, allow_special) for text in (a, b))
        else:
            if not (isinstance(sequence_length, int) and sequence_length >= 5):
                raise ValueError("sequence_length must be None or at least 5: three special tokens "
                                 f"and one token of each text; got {sequence_length!r}")
            room = sequence_length - 3
            limit = room if truncation in ("longest_first", "head") else None
            first, second = (self.encode(text, limit, allow_special) for text in (a, b))
            first, second = truncate_pair(first, second, room, truncation)
        return join_pair(first, second, self.cls_id, self.sep_id)

    def offsets(self, text, allow_special=False):
        """(start, end) of every token of `encode(text)`: `text[start:end]` is what it was made of.

        Positions count characters of the string as it was given, before any cleaning.
        """
        if not allow_special:
            return self._offsets(text)
        found, position = [], 0
        for part, special in self._parts(text):
            spans = [(0, len(part))] if special else self._offsets(part)
            found.extend((position + start, position + end) for start, end in spans)
            position += len(part)
        return found

    def decode(self, token_ids, skip_special=False):
        """Readable text: no blanks between Chinese, `##` pieces joined, blanks between Latin words.

        Args:
            token_ids: list or array of ids.
            skip_special: whether special tokens are left out.
        """
        special = self.special_ids if skip_special else ()
        return join_tokens([self.id_to_token(number) for number in token_ids
                            if int(number) not in special])

    # Inside

    def _segment(self, cleaned):
        """Words of a cleaned text; the segmenter is built at its first use."""
        if self._segmenter is None:
            self._segmenter = segmenters.make_segmenter(self._segmenter_name, self._entries)
        return self._segmenter(cleaned)

    def _clean(self, text):
        """The cleaned text; TypeError unless `text` is a string."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a str; got {type(text).__name__}")
        return self._cleaner.clean(text)

    def _offsets(self, text):
        """`offsets` of a text without special tokens."""
        self._clean(text)
        cleaned, starts, ends = self._cleaner.align(text)
        return [(starts[start], ends[end - 1]) for _, start, end in self._pieces.locate(cleaned)]

    def _parts(self, text):
        """(part, whether it is a special token) of a text, in order."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a str; got {type(text).__name__}")
        position = 0
        for match in self._special_pattern.finditer(text):
            yield text[position:match.start()], False
            yield match.group(), True
            position = match.end()
        yield text[position:], False

    def _special_rows(self):
        """Names of the special tokens that the vocabulary has."""
        return [name for name in SPECIALS if name in self._vocabulary.ids]

    def _report_dead_entries(self, source):
        """Warns of user dictionary entries that never match."""
        if not self._entries:
            return
        self.dead_entries = tuple(segmenters.never_matching(self._entries, self._segment))
        if self.dead_entries:
            where = source if isinstance(source, (str, os.PathLike)) else "user dictionary"
            lines = [f"{where}:{entry.line}: {entry.word!r}: {reason}"
                     for entry, reason in self.dead_entries]
            warnings.warn(f"{len(lines)} of {len(self._entries)} user dictionary entries can never "
                          "match; first: " + "; ".join(lines[:10]), stacklevel=3)

    def __reduce__(self):
        options = {"mode": self.mode, "lowercase": self._cleaner.lowercase,
                   "strip_accents": self._cleaner.strip_accents,
                   "unicode_form": self._cleaner.unicode_form, "user_dictionary": self._entries,
                   "segmenter": self._segmenter_name}
        return _rebuild, (type(self), self._vocabulary.rows, options)


def _rebuild(kind, rows, options):
    """A tokenizer from what pickle kept; warnings were given when it was first made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(rows, **options)


def _encode_all(tokenizer, texts):
    """What a worker process does."""
    return [tokenizer.encode(text) for text in texts]


def _even_parts(texts, count):
    """Consecutive parts of about equal numbers of characters, at most `count`."""
    size = sum(map(len, texts)) / count
    parts, filled = [[]], 0
    for text in texts:
        if parts[-1] and filled + len(text) > size * len(parts):
            parts.append([])
        parts[-1].append(text)
        filled += len(text)
    return parts


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
