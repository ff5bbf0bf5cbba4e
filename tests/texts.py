"""Small vocabularies, texts and corpora that the tests of the data side share."""

import json

import numpy as np

from pretrain.prepare import Arguments, main
from roformer_zh import WordTokenizer
from roformer_zh.corpus import Corpus, write_corpus

CHARACTERS = "今天气非常好原告被法院判决认为的一二三他说笑了你真第行，。！？；、：“”"
WORDS = ("今天", "天气", "非常", "原告", "被告", "法院", "判决", "认为")
ROWS = (
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + list(dict.fromkeys(CHARACTERS))
    + list("abc12")
    + [f"##{c}" for c in "abc12"]
    + list(WORDS)
)
TEXTS = ["今天天气非常好。", "原告认为，\n被告笑了。", "法院判决。"]
DECODED = ["今天天气非常好。", "原告认为，被告笑了。", "法院判决。"]


def tokenizer(mode="word", rows=ROWS, **options):
    """A tokenizer of some sixty rows."""
    return WordTokenizer(rows, mode=mode, **options)


def random_texts(count, seed=0, sentences=12):
    """Documents of 1 to `sentences` sentences of 1 to 30 words."""
    rng = np.random.default_rng(seed)
    words = [*WORDS, "的", "好", "一", "非常好", "abc12", "，", "，"]
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.integers(1, sentences + 1)):
            parts += [words[i] for i in rng.integers(0, len(words), rng.integers(1, 31))]
            parts.append("。" if rng.random() < 0.9 else "\n")
        texts.append("".join(parts).strip() or "好")
    return texts


def random_corpus(folder, count=40, seed=0, mode="word", **kwargs):
    """A corpus of random texts."""
    return write_corpus(folder, tokenizer(mode), random_texts(count, seed, **kwargs))


def folder_bytes(folder, leave_out=("report.md",)):
    """The contents of all files below a folder, by relative name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in leave_out
    }


def jsonl(texts, field="text"):
    """Texts as JSON lines."""
    return "".join(json.dumps({field: text}, ensure_ascii=False) + "\n" for text in texts)


def write_vocab(folder):
    """Writes ROWS as a vocabulary file; returns its path."""
    path = folder / "vocab.txt"
    path.write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    return str(path)


def prepare(folder, *inputs, output="out", **options):
    """Runs pretrain.prepare's main; inputs and output are names below the folder."""
    paths = tuple(str(folder / name) for name in inputs)
    return main(
        Arguments(input=paths, vocab=write_vocab(folder), output=str(folder / output), **options)
    )


def texts_of(folder):
    """The documents of a corpus as decoded text."""
    corpus = Corpus.open(folder)
    return [corpus.tokenizer.decode(corpus.document(i)) for i in range(corpus.num_documents)]
