"""Own words as new rows of a vocabulary."""

from roformer_zh.tokenizer.vocabulary import SPECIALS


def extend_tokenizer(tokenizer, words):
    """A tokenizer with a new row for each word, behind the rows that are there.

    Words that jieba's dictionary would split are added to the tokenizer's user dictionary, with the
    frequency they need; jieba is used from then on, as rjieba knows no words of one's own.

    Args:
        tokenizer: a `WordTokenizer`; it is not changed.
        words: the words, cleaned like any text (lower-cased where the tokenizer does so). In
            character mode: single characters.

    Returns:
        The new `WordTokenizer`; its last `len(words)` rows are the words, in order.

    Raises:
        ValueError: there are no words, a word is a row already or twice in the list, or no text can
            give it as one token (a blank, full-width digits, ...).

    Example:
        >>> from roformer_zh.tokenizer import WordTokenizer
        >>> old = WordTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "借", "贷", "宝"])
        >>> extend_tokenizer(old, ["借贷宝"]).encode("借贷宝借")
        [7, 4]
    """
    words = [tokenizer.clean(word) for word in words]
    if not words:
        raise ValueError("extending a vocabulary needs at least one word")
    known = set(tokenizer.vocabulary)
    for number, word in enumerate(words):
        if word in known or word in words[:number]:
            raise ValueError(f"a new word must not be in the vocabulary yet; {word!r} is row "
                             f"{(list(tokenizer.vocabulary) + words).index(word)}: leave it out")
        if word in SPECIALS or word.startswith("##"):
            raise ValueError(f"a new word must be text; {word!r} has a meaning of its own")
    options = tokenizer.options
    if tokenizer.mode == "word":
        split = [word for word in words if tokenizer.segment(word) != [word]]
        options["user_dictionary"] = [*options["user_dictionary"], *split]
    first = tokenizer.vocabulary_size
    extended = type(tokenizer)([*tokenizer.vocabulary, *words], **options)
    for number, word in enumerate(words, first):
        if extended.encode(word) != [number]:
            raise ValueError(f"no text gives {word!r} as one token (it is read as "
                             f"{extended.tokenize(word)}); a word must be Chinese characters, "
                             "letters and digits without blanks, in character mode one character")
    return extended
