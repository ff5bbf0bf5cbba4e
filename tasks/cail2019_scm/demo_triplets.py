"""Triplets in the task's format from long documents: two excerpts of one against one of another.

A stand-in for the official data where that is not at hand: real text, labels that need no judge.
"""

import collections
import itertools
import random
import re

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from roformer_zh.tokenizer.segmenter import make_segmenter
from tasks.cail2019_scm.dataset import Triplet

EXCERPT_WORDS = 430
_SENTENCE = re.compile(r"[^。！？\n]+[。！？\n]*")


def split_names(names, shares, seed):
    """Cuts names at random into parts that share none.

    Args:
        names: titles of documents.
        shares: dict of part to share; the shares add up to 1.
        seed: of the shuffle.

    Returns:
        dict of part to list of names.

    Example:
        >>> {part: len(names) for part, names in split_names("abcdefghij",
        ...     {"train": 0.7, "valid": 0.1, "test": 0.2}, seed=0).items()}
        {'train': 7, 'valid': 1, 'test': 2}
    """
    if abs(sum(shares.values()) - 1) > 1e-9:
        raise ValueError(f"shares must add up to 1; got {shares}")
    names = sorted(names)
    random.Random(seed).shuffle(names)
    ends = [round(len(names) * end) for end in itertools.accumulate(shares.values())]
    starts = [0, *ends[:-1]]
    return {part: names[start:end] for part, start, end in zip(shares, starts, ends, strict=True)}


def cut_excerpts(text, words=EXCERPT_WORDS, segment=None):
    """Excerpts of whole sentences, one after the other, without overlap.

    Args:
        text: one document.
        words: jieba words, punctuation included, that each excerpt has at least; a shorter rest
            at the end is left out.
        segment: function from text to words; None = jieba.

    Returns:
        A list of texts.

    Example:
        >>> cut_excerpts("甲方借款。乙方还款。丙方担保。丁方。", words=6)
        ['甲方借款。乙方还款。', '丙方担保。丁方。']
    """
    segment = segment or make_segmenter()
    excerpts, current, count = [], [], 0
    for sentence in _SENTENCE.findall(text):
        current.append(sentence)
        count += len(segment(sentence))
        if count >= words:
            excerpts.append("".join(current).strip())
            current, count = [], 0
    return excerpts


def build_triplets(documents, *, words=EXCERPT_WORDS, per_document=4, limit=None, seed=0):
    """Triplets whose closer text is another excerpt of A's document.

    The third text comes from the document that TF-IDF finds most similar to A's. No excerpt is used
    twice as A or as the closer text. Half of the rows (within one) say B, half C.

    Args:
        documents: dict of name to text; documents with a single excerpt serve as third texts only.
        words: jieba words an excerpt has at least.
        per_document: rows that one document may give at most.
        limit: rows at most, spread over the documents; None = all.
        seed: of every choice.

    Returns:
        A list of `Triplet`.

    Raises:
        ValueError: fewer than two documents have an excerpt, or none has two.
    """
    segment, chance = make_segmenter(), random.Random(seed)
    excerpts = {name: cut_excerpts(text, words, segment) for name, text in documents.items()}
    excerpts = {name: found for name, found in excerpts.items() if found}
    if len(excerpts) < 2 or max(map(len, excerpts.values())) < 2:
        raise ValueError(
            f"triplets need two documents with an excerpt of {words} words, and one with two; of "
            f"{len(documents)} documents {len(excerpts)} have any"
        )
    confusable = _most_similar({name: documents[name] for name in excerpts}, segment)
    rounds = collections.defaultdict(list)
    for name, found in excerpts.items():
        chance.shuffle(found)
        for number in range(min(per_document, len(found) // 2)):
            third = chance.choice(excerpts[confusable[name]])
            rounds[number].append((found[2 * number], found[2 * number + 1], third))
    for rows in rounds.values():
        chance.shuffle(rows)
    chosen = list(itertools.chain.from_iterable(rounds.values()))[:limit]
    chance.shuffle(chosen)
    rows = [Triplet(a, closer, third, "B") if number % 2 else Triplet(a, third, closer, "C")
            for number, (a, closer, third) in enumerate(chosen)]
    chance.shuffle(rows)
    return rows


def _most_similar(documents, segment):
    """For each document the name of the other one with the largest TF-IDF cosine."""
    names = list(documents)
    vectorizer = TfidfVectorizer(analyzer=segment, sublinear_tf=True)
    table = vectorizer.fit_transform(documents.values())
    cosines = (table @ table.T).toarray()
    np.fill_diagonal(cosines, -1.0)
    return {name: names[best] for name, best in zip(names, cosines.argmax(axis=1), strict=True)}
