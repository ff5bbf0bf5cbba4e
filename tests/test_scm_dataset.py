import json

import pytest

from tasks.cail2019_scm.dataset import (
    OFFICIAL_COUNTS,
    Triplet,
    describe,
    load_triplets,
    official_split,
    save_triplets,
    warnings_about,
)

GOOD = {"A": "原告甲。", "B": "被告乙。", "C": "本院丙。", "label": "C"}


def write(path, *lines):
    path.write_bytes(b"".join(
        (line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode()) + b"\n"
        for line in lines))
    return path


def test_rows_come_in_the_files_order_and_survive_a_round_trip(tmp_path):
    path = write(tmp_path / "a.json", GOOD, {**GOOD, "A": "", "label": "B"})
    rows = load_triplets(path)
    assert rows == [Triplet("原告甲。", "被告乙。", "本院丙。", "C"),
                    Triplet("", "被告乙。", "本院丙。", "B")]
    save_triplets(tmp_path / "b.json", rows)
    assert (tmp_path / "b.json").read_bytes() == path.read_bytes()


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = write(tmp_path / "a.json", b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert load_triplets(path)[0].A == "原告甲。"


@pytest.mark.parametrize("damaged, message", [
    (b"{", "must be a JSON object"),
    (b"", "must be a JSON object"),
    (b"[1]", "must be a JSON object; got list"),
    ({**GOOD, "label": "A"}, 'label must be "B" or "C"; got "A"'),
    ({**GOOD, "label": 1}, 'label must be "B" or "C"; got 1'),
    ({**GOOD, "B": None}, "B must be a text; got NoneType"),
    ({key: GOOD[key] for key in "ABC"}, "missing: label"),
    ({"a": "", **GOOD}, "unknown: a"),
    ({"A": "", "B": "", "label": "B"}, "missing: C"),
    (json.dumps(GOOD, ensure_ascii=False).encode()[:12], "must be UTF-8; byte 0xe5 at column 11"),
])
def test_a_damaged_row_is_fatal_with_file_and_line(tmp_path, damaged, message):
    path = write(tmp_path / "train.json", GOOD, damaged)
    with pytest.raises(ValueError, match=r"train\.json:2: ") as error:
        load_triplets(path)
    assert message in str(error.value)


def test_a_missing_or_empty_file_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tasks\.cail2019_scm\.download"):
        load_triplets(tmp_path / "none.json")
    with pytest.raises(ValueError, match="at least one triplet"):
        load_triplets(write(tmp_path / "empty.json"))


def test_rows_without_labels_are_read_only_when_asked(tmp_path):
    path = write(tmp_path / "input.txt", {key: GOOD[key] for key in "ABC"})
    assert load_triplets(path, labelled=False)[0].label is None
    with pytest.raises(ValueError, match="unknown: label"):
        load_triplets(write(tmp_path / "labelled.txt", GOOD), labelled=False)


def test_invalid_bytes_are_replaced_and_counted_when_asked(tmp_path):
    line = json.dumps(GOOD, ensure_ascii=False).encode().replace("原".encode(), b"\xff\xfe")
    path = write(tmp_path / "a.json", line)
    rows = load_triplets(path, invalid_bytes="replace")
    assert describe(rows)["replaced_characters"] == 2
    assert any("2 characters replace invalid bytes" in text for text in warnings_about(rows, path))
    with pytest.raises(ValueError, match="invalid_bytes"):
        load_triplets(path, invalid_bytes="ignore")


@pytest.mark.parametrize("name", OFFICIAL_COUNTS)
def test_only_size_and_class_counts_of_the_official_data_pass_as_official(name):
    counts = OFFICIAL_COUNTS[name]
    rows = [Triplet("a", "b", "c", label) for label in "BC" for _ in range(counts[label])]
    assert official_split(rows) == name
    assert not warnings_about(rows, "x")
    assert official_split(rows[1:]) is None
    swapped = [*rows[1:], rows[-1]]
    assert official_split(swapped) is None
    assert "not the official data" in warnings_about(swapped, "x")[0]


@pytest.mark.parametrize("rows", [2596, 837, 803])
def test_the_republished_files_with_one_label_are_not_official(rows):
    # ExpressAI/DataLab pull request 229 lists exactly these sizes: the B rows alone.
    triplets = [Triplet("a", "b", "c", "B")] * rows
    assert official_split(triplets) is None
    texts = " ".join(warnings_about(triplets, "x"))
    assert "constant label" in texts and "not the official data" in texts


def test_empty_texts_and_identical_candidates_are_counted():
    rows = [Triplet("", "乙", "乙", "B"), Triplet("甲", " \n", "丙", "C")]
    counts = describe(rows)
    assert (counts["empty_texts"], counts["identical_b_and_c"]) == (2, 1)
    assert (counts["B"], counts["C"]) == (1, 1)


@pytest.mark.parametrize("line, message", [
    ('{"A": "a\\ud800", "B": "b", "C": "c", "label": "B"}', "A must be Unicode text; character 2"),
    ('{"A": "a", "A": "x", "B": "b", "C": "c", "label": "B"}', "repeated: A"),
])
def test_broken_text_and_repeated_keys_are_named(tmp_path, line, message):
    (tmp_path / "rows.json").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows.json:1: .*" + message):
        load_triplets(tmp_path / "rows.json")


def test_an_unlabelled_official_file_is_not_called_fake():
    assert not warnings_about([Triplet("a", "b", "c", None)] * 1536, "test.json")
