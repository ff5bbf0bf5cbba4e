"""Triplets that only a reader of the later half of each text can decide."""

import dataclasses
import random
from pathlib import Path

import numpy as np

from roformer_zh.candidates import read_documents
from roformer_zh.command import run_command
from roformer_zh.tokenizer import WordTokenizer
from tasks.cail2019_scm.dataset import Triplet, save_triplets
from tasks.cail2019_scm.demo_triplets import cut_excerpts, split_names

LEAD_TOKENS = 256
PASSAGE_TOKENS = 210
SHARES = {"train": 0.7, "valid": 0.1, "test": 0.2}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Write train.json, valid.json and test.json of a task that needs more than 512 tokens.

    A text is a lead of one document and then a passage of another. A and the closer text share the
    passage and nothing else; all five excerpts of a triplet are of different documents, drawn
    without regard to the label. A model that reads 512 tokens of a pair sees about 254 of each
    text, all of them lead: it cannot do better than chance, whatever its training.
    """

    input: tuple[Path, ...]
    """JSON-lines files of documents ({"text": ...}), such as the demo's statutes."""
    output: Path
    """Folder of the three files."""
    vocab: Path = Path("vocab/vocab.txt")
    """Vocabulary, or run folder, whose tokens are counted."""
    lead_tokens: int = LEAD_TOKENS
    """Tokens of a lead, at least, and at most an eighth more; whole sentences."""
    passage_tokens: int = PASSAGE_TOKENS
    """Tokens of a passage, at least, and at most an eighth more; whole sentences."""
    limit: int = 2000
    """Training triplets; test takes half and valid a quarter as many."""
    seed: int = 0
    """Of every choice."""


def main(args):
    """Writes the files; returns the number of triplets a part."""
    documents = {found.where: found.text for found in read_documents(args.input)}
    tokenize = WordTokenizer.load(args.vocab).tokenize
    sizes = {"train": args.limit, "valid": args.limit // 4, "test": args.limit // 2}
    for part, names in split_names(documents, SHARES, args.seed).items():
        texts = {name: documents[name] for name in names}
        rows = build_length_triplets(
            texts, sizes[part], tokenize, lead_tokens=args.lead_tokens,
            passage_tokens=args.passage_tokens, seed=args.seed)
        save_triplets(args.output / f"{part}.json", rows)
        tokens = [len(tokenize(text)) for row in rows for text in (row.A, row.B, row.C)]
        print(f"{part}: {len(rows):,} triplets out of {len(names)} documents; a text has "
              f"{np.median(tokens):.0f} tokens in the median, at most {max(tokens)}")
    return sizes


def build_length_triplets(documents, count, tokenize, *, lead_tokens=LEAD_TOKENS,
                          passage_tokens=PASSAGE_TOKENS, seed=0):
    """Triplets whose closer text shares a passage with A, behind a lead that tells nothing.

    Given what stands before the passages, B and C are exchangeable, so the accuracy of a reader of
    the leads is 1/2 by construction.

    Args:
        documents: dict of name to text.
        count: triplets to make; half of them (within one) say B, half C.
        tokenize: function from text to tokens; a character model sees at least as many.
        lead_tokens, passage_tokens: tokens of each part, at least.
        seed: of every choice.

    Returns:
        A list of `Triplet`.

    Raises:
        ValueError: fewer than five documents have a lead and a passage.
    """
    chance = random.Random(seed)
    excerpts = {name: [_excerpts(text, tokens, tokenize) for tokens in (lead_tokens,
                                                                        passage_tokens)]
                for name, text in documents.items()}
    names = [name for name, (leads, passages) in excerpts.items() if leads and passages]
    if len(names) < 5:
        raise ValueError(f"a triplet needs five documents of {lead_tokens} tokens or more; "
                         f"{len(names)} of {len(documents)} are so long")
    rows = []
    for number in range(count):
        *owners, shared, other = chance.sample(names, 5)
        a, closer, further = (chance.choice(excerpts[name][0]) for name in owners)
        passage, distractor = (chance.choice(excerpts[name][1]) for name in (shared, other))
        a, closer, further = f"{a}\n{passage}", f"{closer}\n{passage}", f"{further}\n{distractor}"
        rows.append(Triplet(a, closer, further, "B") if number % 2
                    else Triplet(a, further, closer, "C"))
    chance.shuffle(rows)
    return rows


def _excerpts(text, tokens, tokenize):
    """Excerpts of whole sentences with `tokens` tokens or up to an eighth more."""
    return [found for found in cut_excerpts(text, tokens, tokenize)
            if len(tokenize(found)) <= tokens * 9 // 8]


if __name__ == "__main__":
    run_command(main, Arguments)
