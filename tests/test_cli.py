import json
import subprocess
import sys

import pytest

from roformer_zh import cli
from roformer_zh.candidates import read_documents
from tests.test_matching import matcher


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run folder and documents as files, JSON lines and a folder."""
    from roformer_zh.runs import save_run

    folder = tmp_path_factory.mktemp("cli")
    one = matcher()
    save_run(folder / "run", one.model, one.tokenizer, layout=one.layout.to_dict())
    (folder / "query.txt").write_text("原告借款\n甲", encoding="utf-8")
    (folder / "one.txt").write_text("被告还款\n第二行", encoding="utf-8")
    rows = [{"text": "原告借款甲", "fact": "子"}, {"text": "丁戊己", "fact": "丑"}]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "cases.jsonl").write_text("\ufeff" + lines, encoding="utf-8")
    (folder / "more").mkdir()
    (folder / "more" / "b.txt").write_text("庚辛", encoding="utf-8")
    (folder / "more" / "a.txt").write_text("壬癸", encoding="utf-8")
    (folder / "more" / "image.png").write_bytes(b"\xff")
    return folder


def test_a_text_file_is_one_document_and_a_json_line_another(folder):
    found = read_documents([folder / "one.txt", folder / "cases.jsonl", folder / "more"])
    assert [document.text for document in found] == [
        "被告还款\n第二行", "原告借款甲", "丁戊己", "壬癸", "庚辛"]
    assert [document.where.rsplit("/", 1)[1] for document in found] == [
        "one.txt", "cases.jsonl:1", "cases.jsonl:2", "a.txt", "b.txt"]
    assert [d.text for d in read_documents([folder / "cases.jsonl"], "fact")] == ["子", "丑"]


@pytest.mark.parametrize("name, data, message", [
    ("a.jsonl", b'{"text": "x"}\n{', r"a\.jsonl:2: must be a JSON object"),
    ("a.jsonl", b'{"body": "x"}\n', r"a\.jsonl:1: .*text under 'text'; got body; .*--field"),
    ("a.jsonl", b"[1]\n", "got list"),
    ("a.txt", b"\xff\xfe", r"a\.txt must be UTF-8"),
    ("a.txt", b" \n", r"a\.txt: the document must not be empty"),
    ("a.jsonl", b"\n", "at least one document"),
])
def test_a_damaged_document_is_an_error_with_its_place(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_documents([tmp_path / name])


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file or folder at"):
        read_documents([tmp_path / "none"])


def test_match_prints_the_ranking(folder, capsys):
    cli.main(["match", "--model", str(folder / "run"), "--query", str(folder / "query.txt"),
              "--candidates", str(folder / "cases.jsonl"), str(folder / "more"), "--top-k", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Query: ") and "原告借款 甲" in lines[0]
    assert lines[1].split() == ["rank", "score", "document", "begins"]
    assert [line.split()[0] for line in lines[2:]] == ["1", "2", "3"]
    scores = [float(line.split()[1]) for line in lines[2:]]
    assert scores == sorted(scores, reverse=True)
    assert "cases.jsonl:1" in lines[2] and lines[2].endswith("原告借款甲")
    assert len({line.index(line.split()[2]) for line in lines[1:]}) == 1  # aligned


def test_match_needs_one_query(folder, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["match", "--model", str(folder / "run"), "--query", str(folder / "cases.jsonl"),
                  "--candidates", str(folder / "one.txt")])
    assert "--query must hold one document" in str(stopped.value)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["match", "--model", str(folder / "none"), "--query", str(folder / "query.txt"),
                  "--candidates", str(folder / "one.txt")])
    assert str(stopped.value).startswith("error: ") and "\n" not in str(stopped.value)


def test_the_first_word_is_a_command(capsys):
    cli.main(["--help"])
    assert "match" in capsys.readouterr().out
    for argv in ([], ["march"]):
        with pytest.raises(SystemExit) as stopped:
            cli.main(argv)
        assert stopped.value.code == 2
        assert "the first word must be one of match" in capsys.readouterr().err


def test_help_shows_every_default_and_loads_no_keras():
    code = ("import sys\nfrom roformer_zh import cli\n"
            "try:\n    cli.main(['match', '--help'])\nexcept SystemExit as end:\n"
            "    print(end.code, 'keras' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False"
    for words in ("--model", "--query", "--candidates", "--top-k", "(default: 10)", "16384"):
        assert words in done.stdout


def test_a_long_text_is_shown_by_its_beginning():
    assert cli.beginning("甲" * 50, width=20) == "甲" * 9 + "…"
    assert cli.display_width(cli.beginning("甲a" * 50, width=21)) <= 21
    assert cli.beginning("甲" * 10, width=20) == "甲" * 10
