import json
import zipfile

import pytest

from tasks.cail2019_scm.dataset import OFFICIAL_COUNTS, load_triplets, official_split
from tasks.cail2019_scm.download import Arguments, main

NAMES = {"train": "SCM/train.json", "valid": "SCM/dev.json", "test": "SCM/test.json"}


def rows(split, change=0):
    labels = "B" * (OFFICIAL_COUNTS[split]["B"] + change) + "C" * OFFICIAL_COUNTS[split]["C"]
    return "".join(json.dumps({"A": f"{split}{n}", "B": "乙", "C": "丙", "label": label}) + "\n"
                   for n, label in enumerate(labels))


def make_zip(path, contents):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(name, text)
    return path


def official(**changes):
    return {NAMES[split]: rows(split, changes.get(split, 0)) for split in NAMES}


def test_a_local_archive_with_the_official_counts_is_unpacked(tmp_path, capsys):
    contents = {**official(), "__MACOSX/SCM/train.json": "x", "SCM/readme.txt": "x"}
    archive = make_zip(tmp_path / "a.zip", contents)
    output = tmp_path / "data" / "scm"
    found = main(Arguments(output, archive))
    assert {split: counts["rows"] for split, counts in found.items()} == {
        "train": 5102, "valid": 1500, "test": 1536}
    for split in OFFICIAL_COUNTS:
        assert official_split(load_triplets(output / f"{split}.json")) == split
    assert sorted(path.name for path in output.iterdir()) == [
        "source.json", "test.json", "train.json", "valid.json"]
    assert "| train | test | 1536 | 0 | 1536 | 1536 | 1536 | 2 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"must not hold train\.json"):
        main(Arguments(output, archive))


@pytest.mark.parametrize("contents, message", [
    (official(valid=1), "the official valid split has 837 rows B and 663 C; .* has 838 and 663"),
    ({**official(), "b/train.json": "x"}, "must hold one train file"),
    ({"SCM_5k.json": rows("train")}, "missing: train, valid, test; it has SCM_5k"),
    ({**official(), NAMES["test"]: '{"A": 1}\n'}, r"test\.json:1: "),
])
def test_other_archives_are_refused_and_leave_nothing(tmp_path, contents, message):
    archive = make_zip(tmp_path / "a.zip", contents)
    with pytest.raises(ValueError, match=message):
        main(Arguments(tmp_path / "scm", archive))
    assert not any((tmp_path / "scm").rglob("*.json"))


def test_a_damaged_or_missing_archive_is_an_error(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ValueError, match="must be a whole zip file"):
        main(Arguments(tmp_path / "scm", tmp_path / "a.zip"))
    with pytest.raises(FileNotFoundError, match="no archive at"):
        main(Arguments(tmp_path / "scm", tmp_path / "b.zip"))


def test_a_dead_download_says_how_to_go_on(tmp_path):
    address = "http://127.0.0.1:9/CAIL2019-SCM.zip"  # the discard port: nobody answers
    with pytest.raises(RuntimeError, match="pass it with --archive FILE"):
        main(Arguments(tmp_path / "scm", url=address, timeout=2))
    assert not (tmp_path / "scm.zip").exists()


def test_a_download_is_kept_whole(tmp_path):
    archive = make_zip(tmp_path / "there.zip", official())
    found = main(Arguments(tmp_path / "scm", url=archive.as_uri()))
    assert found["test"]["B"] == 803
    assert (tmp_path / "scm.zip").read_bytes() == archive.read_bytes()
