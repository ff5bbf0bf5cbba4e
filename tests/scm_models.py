"""Triplets that can be learnt, and tiny scorers and runs, for the tests of the task."""

import random

from roformer_zh.layout import Layout
from roformer_zh.tokenizer import WordTokenizer
from tasks.cail2019_scm.dataset import Triplet
from tests.conftest import randomise, tiny_config

CHARACTERS = "甲乙丙丁戊己庚辛壬癸子丑寅卯辰巳午未申酉"
ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *CHARACTERS]


def tokenizer():
    return WordTokenizer(ROWS)


def text(chance, half, count):
    """A text whose characters come from one half of the alphabet."""
    return "".join(chance.choice(CHARACTERS[10 * half:10 * half + 10]) for _ in range(count))


def triplets(count, seed=0, longest=12):
    """Triplets that a reader of characters can decide: the closer text uses A's half of them."""
    chance, found = random.Random(seed), []
    for number in range(count):
        half = chance.randrange(2)
        a, closer = (text(chance, half, chance.randint(3, longest)) for _ in range(2))
        third = text(chance, 1 - half, chance.randint(3, longest))
        found.append(Triplet(a, closer, third, "B") if number % 2 else
                     Triplet(a, third, closer, "C"))
    return found


def scorer(kind, seed=0, **fields):
    from roformer_zh import Encoder, PairScorer, SiameseScorer

    fields = {"dropout": 0.0, "attention_dropout": 0.0, **fields}
    encoder = Encoder(tiny_config(vocabulary_size=len(ROWS), **fields))
    return randomise({"siamese": SiameseScorer, "pair": PairScorer}[kind](encoder), seed)


def start_run(folder, kind=None, **fields):
    """A run folder to start from: an untrained MaskedLM, or a scorer with its layout."""
    from roformer_zh import Encoder, EncoderConfig, MaskedLM
    from roformer_zh.runs import save_run

    if kind:
        save_run(folder, scorer(kind), tokenizer(), layout=Layout(kind, 32).to_dict())
        return folder
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=24)
    config = EncoderConfig(vocabulary_size=len(ROWS), **{**sizes, **fields})
    save_run(folder, MaskedLM(Encoder(config)), tokenizer())
    return folder
