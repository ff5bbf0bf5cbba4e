"""What any model must beat: the majority label and TF-IDF cosine."""

import collections

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from roformer_zh.tokenizer.segmenter import make_segmenter


def majority_label(triplets):
    """The label that most rows have; B if there are as many of each."""
    counts = collections.Counter(row.label for row in triplets)
    return "B" if counts["B"] >= counts["C"] else "C"


class TfidfScorer:
    """Cosine of TF-IDF vectors over jieba's words, the way of the task's first baseline.

    Words are weighted 1 + ln(count) times the smoothed inverse document frequency of scikit-learn.

    Args:
        documents: texts to count document frequencies in: those of the training split only. Each
            different text counts once.

    Example:
        >>> scorer = TfidfScorer(["原告借款未还。", "被告盗窃车辆。", "双方签订合同。"])
        >>> first, second = scorer.score_triplets([("原告借款", "借款未还", "盗窃车辆", "B")])
        >>> bool(first[0] > second[0])
        True
    """

    def __init__(self, documents):
        self._segment = make_segmenter()
        self._vectorizer = TfidfVectorizer(analyzer=self._words, sublinear_tf=True)
        self._vectorizer.fit(dict.fromkeys(documents))

    def vectors(self, documents):
        """Sparse rows of unit length; a text without any known word gives zeros."""
        different = {text: number for number, text in enumerate(dict.fromkeys(documents))}
        table = self._vectorizer.transform(different)
        return table[[different[text] for text in documents]]

    def score_triplets(self, triplets):
        """Cosines of (A, B) and of (A, C), two float64 arrays of shape (rows,)."""
        a, b, c = (self.vectors([row[i] for row in triplets]) for i in range(3))
        return tuple(np.asarray(a.multiply(other).sum(axis=1)).ravel() for other in (b, c))

    def _words(self, text):
        """Words that hold a letter, a digit or a Chinese character, in lower case."""
        return [word for word in self._segment(text.lower()) if any(map(str.isalnum, word))]
