"""Preparation: nothing half-written, nothing done twice, the same bytes always."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.prepare import Arguments, main
from roformer_zh.corpus import Corpus, preparation
from roformer_zh.corpus.preparation import first_occurrences
from tests.texts import (
    DECODED,
    TEXTS,
    folder_bytes,
    jsonl,
    prepare,
    random_texts,
    texts_of,
    tokenizer,
    write_vocab,
)

ROOT = Path(__file__).parent.parent


def test_duplicates_and_lengths_are_filtered(tmp_path):
    texts = ["今天好。", "好", " 今天好。 ", "今天 好。", "法院判决。" * 9, "今天好。"]
    (tmp_path / "a.jsonl").write_text(jsonl(texts), encoding="utf-8")
    result = prepare(tmp_path, "a.jsonl", min_characters=2, max_characters=40)
    assert result["dropped"] == {"short": 1, "long": 1, "duplicates": 2}
    corpus = Corpus.open(tmp_path / "out")
    assert corpus.num_documents == 2 and corpus.meta["duplicates"] == 2


def test_duplicates_are_found_across_files_and_the_first_stays(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS[:2]), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(jsonl(TEXTS[::-1]), encoding="utf-8")
    prepare(tmp_path, "a.jsonl", "b.jsonl")
    assert texts_of(tmp_path / "out") == DECODED


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=60), st.booleans())
def test_first_occurrences(rows, grouped):
    digests = np.array(rows, np.uint64).reshape(-1, 2)
    seen, expected = set(), []
    for row in rows:
        expected.append(row not in seen)
        seen.add(row)
    assert first_occurrences(digests, 0 if grouped else 1 << 20).tolist() == expected


def test_the_held_out_share_is_the_same_for_words_and_characters(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(random_texts(400)), encoding="utf-8")
    for mode in ("word", "char"):
        prepare(tmp_path, "a.jsonl", output=mode, mode=mode, holdout=0.1)
    metas = [Corpus.open(tmp_path / mode).meta for mode in ("word", "char")]
    held = [Corpus.open(tmp_path / mode / "holdout").meta for mode in ("word", "char")]
    for pair in (metas, held):
        assert pair[0]["corpus_hash"] == pair[1]["corpus_hash"]
        assert pair[0]["num_words"] == pair[1]["num_words"]
    assert 20 < held[0]["num_documents"] < 65
    assert held[0]["num_documents"] + metas[0]["num_documents"] + metas[0]["duplicates"] == 400
    assert not set(texts_of(tmp_path / "word")) & set(texts_of(tmp_path / "word" / "holdout"))
    (tmp_path / "b.jsonl").write_text(jsonl(random_texts(400)[::-1]), encoding="utf-8")
    prepare(tmp_path, "b.jsonl", output="reversed", holdout=0.1)
    assert set(texts_of(tmp_path / "reversed" / "holdout")) == set(
        texts_of(tmp_path / "word" / "holdout")
    )


def test_an_empty_held_out_share_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS), encoding="utf-8")
    with pytest.raises(ValueError, match="holdout corpus must hold at least one document"):
        prepare(tmp_path, "a.jsonl", holdout=1e-9)
    assert not (tmp_path / "out").exists()


def test_any_number_of_workers_and_any_chunk_write_the_same_bytes(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(random_texts(200)), encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    options = {"holdout": 0.1, "chunk_megabytes": 0.01}
    one = prepare(tmp_path, "a.jsonl", "b.txt.gz", output="one", **options)
    prepare(tmp_path, "a.jsonl", "b.txt.gz", output="three", workers=3, **options)
    prepare(tmp_path, "a.jsonl", "b.txt.gz", output="large", holdout=0.1)
    assert one["bytes"] > 50_000
    files = folder_bytes(tmp_path / "one")
    assert files == folder_bytes(tmp_path / "three") == folder_bytes(tmp_path / "large")
    assert {"ids.bin", "holdout/ids.bin", "meta.json", "lengths.png"} <= set(files)
    assert not (tmp_path / "one.partial").exists()


def start(tmp_path, workers):
    """A preparation in a process of its own."""
    command = [sys.executable, "-m", "pretrain.prepare", "--input", str(tmp_path / "a.jsonl")]
    command += [
        "--vocab",
        write_vocab(tmp_path),
        "--output",
        str(tmp_path / "out"),
        "--workers",
        str(workers),
    ]
    command += ["--chunk-megabytes", "0.02"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def children(pid):
    """Processes that a process started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_run_goes_on_where_it_stopped(tmp_path, workers):
    (tmp_path / "a.jsonl").write_text(jsonl(random_texts(4000)), encoding="utf-8")
    process = start(tmp_path, workers)
    work = tmp_path / "out.partial"
    while len(list(work.glob("*.npz"))) < 4:
        assert process.poll() is None
        time.sleep(0.01)
    orphans = children(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out").exists()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in orphans) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in orphans)
    done = {path: path.stat().st_mtime_ns for path in work.glob("*.npz")}
    assert len(done) >= 4
    size = (tmp_path / "a.jsonl").stat().st_size
    result = prepare(tmp_path, "a.jsonl", chunk_megabytes=0.02)
    assert result["encoded"] < size
    assert not work.exists()
    whole = prepare(tmp_path, "a.jsonl", output="whole", chunk_megabytes=0.02)
    assert whole["encoded"] == size
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_parts_of_an_earlier_run_are_used_only_if_text_and_options_are_the_same(tmp_path):
    source = tmp_path / "a.jsonl"
    source.write_text(jsonl(random_texts(100)), encoding="utf-8")

    def encode(**options):
        arguments = preparation.TextOptions(**options)
        _, encoded = preparation.encode_files(
            [source], tmp_path / "work", tokenizer(), arguments, chunk_bytes=10_000
        )
        return encoded

    size = source.stat().st_size
    assert encode() == size and encode() == 0
    assert encode(min_characters=5) == size
    with source.open("a", encoding="utf-8") as file:
        file.write(jsonl(["今天好。"]))
    assert 0 < encode() < 20_000


def test_a_full_disk_leaves_nothing_under_the_final_name(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS), encoding="utf-8")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("roformer_zh.corpus.writer.write_text", full)
        with pytest.raises(OSError, match="No space left"):
            prepare(tmp_path, "a.jsonl")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["a.jsonl", "out.partial", "vocab.txt"]
    assert prepare(tmp_path, "a.jsonl")["encoded"] == 0
    assert texts_of(tmp_path / "out") == DECODED


def test_an_older_corpus_is_replaced_only_when_asked(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS), encoding="utf-8")
    prepare(tmp_path, "a.jsonl")
    with pytest.raises(ValueError, match=r"--output must be a new folder.*--overwrite"):
        prepare(tmp_path, "a.jsonl", max_characters=6)
    prepare(tmp_path, "a.jsonl", max_characters=6, overwrite=True)
    assert texts_of(tmp_path / "out") == DECODED[2:]


def test_the_report_shows_what_was_prepared(tmp_path):
    texts = [*random_texts(60, sentences=80), "囗囗"]
    (tmp_path / "a.jsonl").write_text(jsonl([*texts, texts[0]]) + "{\n", encoding="utf-8")
    result = prepare(tmp_path, "a.jsonl", holdout=0.1)
    report = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    meta = result["metas"]["train"]
    assert f"| tokens | {meta['num_tokens']:,} |" in report
    assert "0 short, 0 long, 1 duplicates" in report and "1 not JSON" in report
    lengths = np.diff(Corpus.open(tmp_path / "out").document_starts)
    share = 100 * np.mean(lengths > 512)
    assert 10 < share < 90 and f"| 512 tokens | {share:.1f} % |" in report
    for part in ("unknown tokens", "tokens a character", "MB/s", "34 GB would take", "| 1536 |"):
        assert part in report
    assert (tmp_path / "out" / "lengths.png").read_bytes()[:4] == b"\x89PNG"


def command(*arguments):
    """The script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pretrain.prepare", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_verify_names_the_bad_file_of_either_part(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(random_texts(100)), encoding="utf-8")
    prepare(tmp_path, "a.jsonl", holdout=0.1)
    assert main(Arguments(verify=str(tmp_path / "out"))) == {"verified": 2}
    path = tmp_path / "out" / "holdout" / "ids.bin"
    data = path.read_bytes()
    path.write_bytes(data[:50] + bytes([data[50] ^ 4]) + data[51:])
    result = command("--verify", tmp_path / "out")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "holdout: the contents of ids.bin must match" in result.stderr
    path.write_bytes(data[:-10])
    result = command("--verify", tmp_path / "out")
    assert result.returncode == 1 and "ids.bin must have" in result.stderr


def test_a_missing_vocabulary_is_one_line(tmp_path):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS), encoding="utf-8")
    out = tmp_path / "o"
    result = command("--input", tmp_path / "a.jsonl", "--output", out, "--vocab", tmp_path / "no")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert "there is nothing at" in result.stderr


@pytest.mark.parametrize(
    "options, message",
    [
        ({"format": "csv"}, "--format must be auto, jsonl"),
        ({"holdout": 1.0}, "--holdout must be a share"),
        ({"workers": 0}, "--workers must be at least 1"),
        ({"min_characters": 5, "max_characters": 4}, "--max-characters must be at least"),
        ({"chunk_megabytes": 0.0}, "--chunk-megabytes must be above 0"),
    ],
)
def test_arguments_without_sense_are_refused(tmp_path, options, message):
    (tmp_path / "a.jsonl").write_text(jsonl(TEXTS), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path, "a.jsonl", **options)


def test_missing_arguments_and_an_unknown_suffix_are_refused(tmp_path):
    with pytest.raises(ValueError, match="--input and --output must be given"):
        main(Arguments())
    (tmp_path / "a.csv").write_text("好")
    with pytest.raises(ValueError, match=r"a.csv: the format must be given with --format"):
        prepare(tmp_path, "a.csv")
    assert prepare(tmp_path, "a.csv", format="lines")["documents"] == 1
