"""benchmarks/tokenizer.py runs and measures what it says."""

import json

import pytest

from benchmarks.tokenizer import Arguments, main, read_texts
from tests.tokenizer_texts import VOCABULARY


def test_the_table_has_a_row_for_every_method(tmp_path, capsys):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": "原告与被告系朋友关系。" * n}) + "\n"
                            for n in range(1, 30)), encoding="utf-8")
    rows = main(Arguments(input=(path,), vocab=VOCABULARY, megabytes=0.005, rounds=2))
    assert {"jieba (words only)", "WordTokenizer, jieba", "rjieba (words only)",
            "WordTokenizer, rjieba"} <= {row["from text"] for row in rows}
    assert all(float(row["MB/s"]) > 0 for row in rows)
    assert "| from text | MB/s |" in capsys.readouterr().out


def test_texts_are_taken_evenly_from_all_files(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f'{{"text": "{n:04}"}}\n' for n in range(1000)), encoding="utf-8")
    assert read_texts([path], 0.0004) == [f"{n:04}" for n in range(0, 1000, 10)]
    path.write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="there is no text in"):
        read_texts([path], 1.0)
