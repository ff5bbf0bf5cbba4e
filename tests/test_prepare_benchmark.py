"""The benchmark of preparation runs and reports what it measured."""

import json

from benchmarks.prepare import Arguments, main
from tests.texts import random_texts, write_vocab


def test_the_tables_hold_every_size_and_number_of_workers(tmp_path):
    vocab = write_vocab(tmp_path)
    lines = [json.dumps({"text": text}) for text in random_texts(20)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines) + "\n")
    result = main(
        Arguments(
            input=(str(tmp_path / "text.jsonl"),),
            vocab=vocab,
            megabytes=(0.05, 0.1),
            workers=(1,),
            folder=str(tmp_path),
        )
    )
    first, second = result["preparation"]
    assert int(second["documents"]) > 1.5 * int(first["documents"]) > 30
    assert float(first["MB/s"]) > 0 and float(first["peak MB"]) > 20
    assert [row["length"] for row in result["batches"]] == [128, 512, 1536] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.jsonl", "vocab.txt"]
