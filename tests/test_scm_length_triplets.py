"""The task that needs more than 512 tokens: what a reader of the leads sees, and what is shared."""

import pytest

from roformer_zh.tokenizer import WordTokenizer
from tasks.cail2019_scm import length_triplets
from tasks.cail2019_scm.baselines import TfidfScorer
from tasks.cail2019_scm.dataset import load_triplets
from tasks.cail2019_scm.length_triplets import build_length_triplets
from tasks.cail2019_scm.statistics import decide
from tests.texts import jsonl, random_texts, tokenizer, write_vocab

TOKENIZE = tokenizer().tokenize


def documents(count=12):
    """Documents of which every excerpt is different."""
    return {str(i): text for i, text in enumerate(random_texts(count, sentences=40))}


def parts(text):
    """Lead and passage."""
    lead, _, passage = text.partition("\n")
    return lead, passage


def test_only_the_passage_is_shared_and_it_lies_behind_the_lead():
    texts = {name: text.replace("\n", "。") for name, text in documents().items()}
    rows = build_length_triplets(texts, 20, TOKENIZE, lead_tokens=30, passage_tokens=20)
    assert sorted(row.label for row in rows) == ["B"] * 10 + ["C"] * 10
    for row in rows:
        closer, other = (row.B, row.C) if row.label == "B" else (row.C, row.B)
        leads, passages = zip(*map(parts, (row.A, closer, other)), strict=True)
        assert passages[0] == passages[1] != passages[2]
        assert len(set(leads)) == 3
        owners = [next(name for name, text in texts.items() if part in text)
                  for part in (*leads, passages[0], passages[2])]
        assert len(set(owners)) == 5  # nothing before the passage tells
        assert all(30 <= len(TOKENIZE(lead)) <= 33 for lead in leads)
        assert all(20 <= len(TOKENIZE(passage)) <= 22 for passage in passages)


def test_the_same_seed_gives_the_same_rows_and_another_others():
    texts = documents()
    sizes = dict(lead_tokens=30, passage_tokens=20)
    first, again, other = (build_length_triplets(texts, 6, TOKENIZE, seed=seed, **sizes)
                           for seed in (0, 0, 1))
    assert first == again != other


def test_too_few_documents():
    with pytest.raises(ValueError, match=r"documents of 30 tokens or more; \d of 4 are so long"):
        build_length_triplets(documents(4), 3, TOKENIZE, lead_tokens=30, passage_tokens=20)


def test_whole_texts_decide_and_leads_do_not(tmp_path, capsys):
    (tmp_path / "laws.jsonl").write_text(jsonl(documents(120).values()), encoding="utf-8")
    length_triplets.main(length_triplets.Arguments(
        input=(tmp_path / "laws.jsonl",), output=tmp_path / "out", vocab=write_vocab(tmp_path),
        lead_tokens=30, passage_tokens=40, limit=200))
    assert "train: 200 triplets" in capsys.readouterr().out
    rows = load_triplets(tmp_path / "out/train.json")
    ids = WordTokenizer.load(tmp_path / "vocab.txt")
    cut = [row._replace(**{name: ids.decode(ids.encode(getattr(row, name))[:30]) for name in "ABC"})
           for row in rows]
    accuracy = {}
    for name, read in (("whole", rows), ("leads", cut)):
        scorer = TfidfScorer([text for row in read for text in (row.A, row.B, row.C)])
        found = decide(*scorer.score_triplets(read))
        accuracy[name] = sum(a == row.label for a, row in zip(found, read, strict=True)) / len(rows)
    assert accuracy["whole"] > 0.75
    assert 0.35 < accuracy["leads"] < 0.65
