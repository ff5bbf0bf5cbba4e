"""Input of preparation: every format, and damaged rows and files counted and named."""

import gzip

import pytest

from roformer_zh.corpus import Corpus
from roformer_zh.corpus.reading import find_files, read_rows
from tests.texts import DECODED, TEXTS, jsonl, prepare, random_texts, texts_of


def test_every_format_gives_the_same_documents(tmp_path):
    flat = [text.replace("\n", "") for text in TEXTS]
    files = {
        "a.jsonl": jsonl(TEXTS).encode(),
        "b.json": b"\xef\xbb\xbf" + jsonl(TEXTS).replace("\n", "\r\n").encode(),
        "c.txt": "\n".join(flat).encode(),
        "d.txt": "\r\n".join(flat).encode() + b"\r\n",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data))
        for number, source in enumerate((name, f"{name}.gz")):
            prepare(tmp_path, source, output=f"{name}{number}")
            assert texts_of(tmp_path / f"{name}{number}") == DECODED
    (tmp_path / "e.txt").write_text("\n\n" + "\n \t\n\n".join(TEXTS) + "\n\n", encoding="utf-8")
    prepare(tmp_path, "e.txt", output="e", format="blank-lines")
    assert texts_of(tmp_path / "e") == DECODED
    hashes = {
        Corpus.open(tmp_path / name).meta["corpus_hash"] for name in ("a.jsonl0", "b.json1", "e")
    }
    assert len(hashes) == 1


def test_files_folders_and_globs_keep_the_given_order(tmp_path):
    for name in ("b/2.jsonl", "b/1.txt", "b/c/3.json.gz", "b/.hidden.txt", "b/x.csv", "a/4.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_files([tmp_path / "b", str(tmp_path / "?/*.txt"), tmp_path / "b" / "x.csv"])
    names = [str(path.relative_to(tmp_path)) for path in found]
    expected = ["b/1.txt", "b/2.jsonl", "b/c/3.json.gz", "a/4.txt", "b/x.csv"]
    assert names == expected


@pytest.mark.parametrize("name", ["nothing.txt", "no*.txt", "empty"])
def test_a_name_that_stands_for_nothing_is_an_error(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=rf"found nothing at .*{name[:2]}"):
        prepare(tmp_path, name)


def test_damaged_rows_are_counted_by_kind_with_places(tmp_path, capsys):
    rows = [
        b'{"text": "\xff\xfe"}',
        b"{",
        b'{"body": "a"}',
        b'{"text": 5}',
        b'{"text": " \\n"}',
        b"[1]",
        b'{"text": "\\ud800"}',
        b'{"text": "\\u0000\\u200b"}',
        b"[" * 100_000,
        b'{"text": ' + b"9" * 5000 + b"}",
        b"",
    ]
    good = jsonl(TEXTS).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(rows) + b"\n" + good)
    result = prepare(tmp_path, "a.jsonl")
    assert result["damage_counts"] == {
        "invalid UTF-8": 2,
        "not JSON": 3,
        "no such key": 2,
        "not a string": 1,
        "empty": 3,
        "over 64 MiB": 0,
    }
    assert texts_of(tmp_path / "out") == DECODED
    assert Corpus.open(tmp_path / "out").meta["damage"] == result["damage_counts"]
    printed = capsys.readouterr().out
    assert "2 invalid UTF-8 (" in printed and "a.jsonl:1, " in printed and "a.jsonl:7)" in printed
    with pytest.raises(ValueError, match=r"--strict allows no damaged rows; found 2 invalid UTF-8"):
        prepare(tmp_path, "a.jsonl", output="strict", strict=True)
    assert not (tmp_path / "strict").exists()


def test_one_bad_line_one_empty_line_one_document(tmp_path):
    # deepcs233/jieba_fast#5: bytes that are no UTF-8
    (tmp_path / "a.txt").write_bytes(b"\xff\xfeA\n\n" + "今天好。\n".encode())
    result = prepare(tmp_path, "a.txt")
    assert result["metas"]["train"]["num_documents"] == 1
    counts = {kind: count for kind, count in result["damage_counts"].items() if count}
    assert counts == {"invalid UTF-8": 1, "empty": 1}


def test_nothing_left_is_an_error_that_says_why(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS, field="body"))
    with pytest.raises(ValueError, match=r"of 3 rows none is left.*3 no such key.*--field"):
        prepare(tmp_path, "a.jsonl")
    assert not (tmp_path / "out").exists()
    assert prepare(tmp_path, "a.jsonl", field="body")["documents"] == 3


def test_a_huge_line_is_skipped_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("roformer_zh.corpus.reading.MAX_ROW_BYTES", 100)
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n" + b"b" * 1050 + b"\nc\n" + b"d" * 99 + b"\n" + b"e" * 350)
    lengths = [(row.line, row.data and len(row.data)) for row in read_rows(path, "lines")]
    assert lengths == [(1, 1), (2, None), (3, 1), (4, 99), (5, None)]
    path.write_bytes(b"a\nb\n\n" + b"c" * 60 + b"\n" + b"d" * 60 + b"\n\ne\n")
    rows = [(row.line, row.data) for row in read_rows(path, "blank-lines")]
    assert rows == [(1, b"a\nb"), (4, None), (7, b"e")]


@pytest.mark.parametrize("cut", [slice(None, -20), slice(None, 40), slice(5, None)])
def test_a_damaged_gzip_file_is_named(tmp_path, cut):
    data = gzip.compress(jsonl(random_texts(50)).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(data[cut])
    with pytest.raises(ValueError, match=r"a.jsonl.gz must be a whole gzip file and breaks after"):
        prepare(tmp_path, "a.jsonl.gz")
    assert not (tmp_path / "out").exists()
