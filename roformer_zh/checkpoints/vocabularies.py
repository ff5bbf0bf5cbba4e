"""The vocabulary beside foreign weights, and whether it holds words or characters."""

import re
from pathlib import Path

from roformer_zh.checkpoints.source import read_json
from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.tokenizer.vocabulary import read_rows

CHINESE_WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]{2,}")
"""A row of several Chinese characters and nothing else: what only word models have."""


def read_vocabulary(source, path=None):
    """(path, rows) of the vocabulary: `path`, or vocab.txt or tokenizer.json beside the weights.

    Raises:
        FileNotFoundError: there is none.
        ValueError: tokenizer.json holds no WordPiece vocabulary with ids 0, 1, 2, ...
    """
    candidates = [Path(path)] if path is not None else [
        source.folder / "vocab.txt", source.folder / "tokenizer.json"]
    for file in candidates:
        if file.is_file():
            return file, _json_rows(file) if file.suffix == ".json" else read_rows(file)
    raise FileNotFoundError(f"no vocabulary at {' or '.join(map(str, candidates))}; give the "
                            "vocab.txt with --vocabulary")


def choose_tokenizer(rows, where, table_rows, folder=None, kind=None):
    """The `WordTokenizer` of an imported model.

    The kind follows the vocabulary: rows of several Chinese characters make a word model.

    Args:
        rows: the vocabulary.
        where: its file, for errors.
        table_rows: rows of the token table.
        folder: where a tokenizer_config.json may say whether text is lowercased.
        kind: "word" or "char" to overrule; None decides by the rows.

    Raises:
        ValueError: `kind` contradicts the rows, or rows and table differ.
    """
    words = [row for row in rows if CHINESE_WORD.fullmatch(row)]
    if kind not in (None, "word", "char"):
        raise ValueError(f"tokenizer must be word or char; got {kind!r}")
    if kind == "word" and not words:
        raise ValueError(f"{where} has no row of several Chinese characters, so the model reads "
                         "characters; tokenizer must be char")
    mode = kind or ("word" if words else "char")
    tokenizer = WordTokenizer(rows, mode=mode, **_text_options(folder))
    if kind == "char" and words and tokenizer.vocabulary_size != table_rows:
        raise ValueError(
            f"{where} has {len(words)} words, such as {words[0]!r}, and the model has a row for "
            f"each ({table_rows} rows), so it reads words; tokenizer must be word")
    return tokenizer


def check_rows(vocabulary_size, configured, table_rows, where):
    """The three numbers that must be one."""
    if not vocabulary_size == configured == table_rows:
        raise ValueError(
            f"{where}: vocabulary rows, configured vocab_size and rows of the token table must be "
            f"equal; got {vocabulary_size}, {configured} and {table_rows}: use the vocabulary and "
            "config that came with the weights")


def _json_rows(path):
    """The WordPiece vocabulary in a tokenizer.json, by id."""
    model = read_json(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict) or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path} must hold a WordPiece vocabulary with ids from 0 without gaps; "
                         "give a vocab.txt with --vocabulary")
    return sorted(ids, key=ids.get)


def _text_options(folder):
    """Whether text is lowercased and stripped of accents; BERT's default is yes, and the same."""
    path = Path(folder) / "tokenizer_config.json" if folder else None
    fields = read_json(path) if path and path.is_file() else {}
    lowercase = bool(fields.get("do_lower_case", True))
    accents = fields.get("strip_accents")
    accents = lowercase if accents is None else bool(accents)
    return {"lowercase": lowercase, "strip_accents": accents}
