"""WordTokenizer: Chinese text to token ids and back, by words or by characters; needs no Keras."""

import re
import warnings
from pathlib import Path

from roformer_zh.tokenizer import segmenter as segmenters
from roformer_zh.tokenizer.checks import require_text, require_whole
from roformer_zh.tokenizer.cleaning import Cleaner
from roformer_zh.tokenizer.extension import extend_tokenizer
from roformer_zh.tokenizer.folder import (
    TEXT_OPTIONS,
    compare_fingerprints,
    read_folder,
    write_folder,
)
from roformer_zh.tokenizer.pairs import encode_to_fit, join_pair
from roformer_zh.tokenizer.parallel import encode_in_processes
from roformer_zh.tokenizer.pieces import CharacterPieces, WordPieces
from roformer_zh.tokenizer.userdict import find_dead_entries, read_user_dictionary
from roformer_zh.tokenizer.vocabulary import (
    CLS,
    MASK,
    PAD,
    SEP,
    UNK,
    Vocabulary,
    join_tokens,
    read_rows,
)

__all__ = ["WordTokenizer", "extend_tokenizer"]
MODES = ("word", "char")


def _special_id(name):
    """A property: the id of a special token; ValueError in a vocabulary without it."""
    return property(lambda self: self.token_to_id(name), doc=f"Id of {name}.")


class WordTokenizer:
    """Token ids of Chinese text.

    The text is cleaned (`cleaning.Cleaner`), segmented by jieba without its HMM, and a
    word that is a row of the vocabulary is one token; any other word is split into its characters,
    and its Latin letters and digits into word pieces. Blanks and control characters separate words
    and give no token. In character mode the segmenter has no say in the tokens; it only tells where
    words start (`encode_words`).

    Special tokens written in a text are ordinary text unless `allow_special` is set.

    Args:
        vocabulary: one token a row; the row number is the id. `vocabulary.Vocabulary`
            says which rows character mode uses.
        mode: "word" or "char".
        lowercase: whether letters are lower-cased, those of the user dictionary too.
        strip_accents: whether combining marks are dropped, as BERT does.
        unicode_form: "NFKC" or another Unicode form; None (the released weights' choice) keeps
            １０％ and 10% apart.
        user_dictionary: path or entries (`userdict.read_user_dictionary`). A word needs
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
        self._special_pattern = re.compile("|".join(map(re.escape, self._vocabulary.specials)))
        if mode == "word" or self._entries or segmenter != "auto":
            self._segment("")  # builds it now, before any fork
        self.dead_entries = find_dead_entries(self._entries, self._segment, user_dictionary)
        """(DictionaryEntry, reason) of the entries that never match."""

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
        if not Path(path).is_dir():
            return cls(read_rows(path), **options)
        rows, settings, recorded = read_folder(path, options)
        tokenizer = _rebuild(cls, rows, settings)
        tokenizer.check(recorded, path)
        return tokenizer

    def save(self, folder):
        """Writes tokenizer.json and vocab.txt into a folder; each appears whole or not at all."""
        write_folder(folder, self.vocabulary, self.fingerprint(), self._entries)

    # What the tokenizer is

    @property
    def options(self):
        """The constructor's options, as a dict."""
        return {"mode": self.mode, "lowercase": self._cleaner.lowercase,
                "strip_accents": self._cleaner.strip_accents,
                "unicode_form": self._cleaner.unicode_form, "user_dictionary": self._entries,
                "segmenter": self._segmenter_name}

    @property
    def segmenter(self):
        """What segments the text: "rjieba", or "jieba" (always with a user dictionary)."""
        self._segment("")
        return self._segmenter.name

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
        return self._vocabulary.hash

    @property
    def dictionary_hash(self):
        """SHA-256 of the segmenter's dictionary, user entries included."""
        return segmenters.dictionary_hash(self._entries)

    def fingerprint(self):
        """What decides the ids, as a dict for JSON; equal dicts give equal ids."""
        text_options = {name: self.options[name] for name in TEXT_OPTIONS}
        return {"kind": f"roformer_zh.WordTokenizer/{self.mode}", "hmm": False, **text_options,
                "vocabulary_size": self.vocabulary_size, "vocabulary_hash": self.vocabulary_hash,
                "dictionary_hash": self.dictionary_hash}

    def check(self, recorded, source):
        """Raises ValueError unless `recorded`, a fingerprint, is this tokenizer's.

        Args:
            recorded: dict that holds a fingerprint; other keys are ignored.
            source: where it was read, for the message.
        """
        compare_fingerprints(self.fingerprint(), recorded, source)

    # Special tokens

    pad_id = _special_id(PAD)
    unk_id = _special_id(UNK)
    cls_id = _special_id(CLS)
    sep_id = _special_id(SEP)
    mask_id = _special_id(MASK)

    @property
    def special_ids(self):
        """Ids of all special tokens that the vocabulary has."""
        return frozenset(map(self.token_to_id, self._vocabulary.specials))

    @property
    def ordinary_ids(self):
        """Ids that a text may give, in order: no special, bracketed ([unused1]) or blank row.

        Raises:
            ValueError: there is none.
        """
        found = sorted(number for row, number in self._vocabulary.ids.items()
                       if row and not re.fullmatch(r"\[.+\]", row))
        if not found:
            raise ValueError(f"a vocabulary must have ordinary rows; all {len(self.vocabulary)} "
                             "are specials")
        return found

    def token_to_id(self, token):
        """The id of a token; ValueError if it is not in the vocabulary."""
        return self._vocabulary.id_of(token)

    def id_to_token(self, token_id):
        """The token of an id; ValueError if it is out of range."""
        return self._vocabulary.token_of(token_id)

    # Text to ids

    def clean(self, text):
        """The text as it is segmented: blanks for controls, lower case, as the options say."""
        require_text(text)
        return self._cleaner.clean(text)

    def segment(self, text):
        """The words of the cleaned text, without blanks."""
        return [word for word in self._segment(self.clean(text)) if not word.isspace()]

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
        if max_length is not None:
            require_whole(max_length, 0, "max_length")
        if allow_special:
            ids = []
            for part, special in self._parts(text):
                ids += [self.token_to_id(part)] if special else self.encode(part)
            return ids[:max_length]
        cleaned = self.clean(text)
        if max_length is None:
            return self._pieces.encode(cleaned)
        return self._pieces.encode_start(cleaned, max_length)

    def encode_words(self, text):
        """Ids of a text, and where its words start.

        Returns:
            `(token_ids, word_starts)`, lists of equal length; `word_starts[i]` tells whether token
            i is the first one of a word of the segmenter, in both modes.
        """
        return self._pieces.encode_words(self.clean(text))

    def encode_batch(self, texts, workers=1):
        """Token ids of every text, in order.

        Args:
            texts: an iterable of strings.
            workers: number of processes; they load no Keras and need no `__main__` guard.
        """
        texts = list(texts)
        for text in texts:
            require_text(text)
        require_whole(workers, 1, "workers")
        if workers == 1 or len(texts) < 2:
            return [self.encode(text) for text in texts]
        return encode_in_processes(self, texts, workers)

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
        first, second = encode_to_fit(
            lambda text, limit: self.encode(text, limit, allow_special), a, b, sequence_length,
            truncation)
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
        skipped = self._vocabulary.specials if skip_special else ()
        tokens = map(self.id_to_token, token_ids)
        return join_tokens([token for token in tokens if token not in skipped])

    # Inside

    def _segment(self, cleaned):
        """Words of a cleaned text; the segmenter is built at its first use."""
        if self._segmenter is None:
            self._segmenter = segmenters.make_segmenter(self._segmenter_name, self._entries)
        return self._segmenter(cleaned)

    def _offsets(self, text):
        """`offsets` of a text without special tokens."""
        require_text(text)
        cleaned, starts, ends = self._cleaner.align(text)
        return [(starts[start], ends[end - 1]) for _, start, end in self._pieces.locate(cleaned)]

    def _parts(self, text):
        """(part, whether it is a special token) of a text, in order."""
        require_text(text)
        position = 0
        for match in self._special_pattern.finditer(text):
            yield text[position:match.start()], False
            yield match.group(), True
            position = match.end()
        yield text[position:], False

    def __reduce__(self):
        return _rebuild, (type(self), self.vocabulary, self.options)


def _rebuild(kind, rows, options):
    """A tokenizer from what pickle kept; warnings were given when it was first made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(rows, **options)
