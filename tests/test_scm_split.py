import random

import pytest

from tasks.cail2019_scm.augment import augment
from tasks.cail2019_scm.dataset import Triplet, load_triplets, save_triplets
from tasks.cail2019_scm.split import (
    Arguments,
    components,
    document_folds,
    document_key,
    keys_of,
    leak_table,
    leaks,
    main,
)


def row(a, b, c, label="B"):
    return Triplet(f"案{a}", f"案{b}", f"案{c}", label)


def tangle(rows=120, documents=60, seed=0):
    """Triplets in one connected group, as in the public data."""
    chance = random.Random(seed)
    return [row(*chance.sample(range(documents), 3), chance.choice("BC")) for _ in range(rows)]


def test_rows_that_share_documents_stay_together():
    triplets = [row(1, 2, 3), row(3, 4, 5), row(6, 7, 8)]
    assert components(triplets) == [[0, 1], [2]]
    for seed in range(5):
        for train, valid in document_folds(triplets, 2, seed):
            assert len(train) + len(valid) == 3
            assert {tuple(train), tuple(valid)} == {tuple(triplets[:2]), tuple(triplets[2:])}


def test_the_key_of_a_document_ignores_white_space_case_and_width():
    assert document_key("借款 10万元，ＡＢ") == document_key("借款10万元，ab\n")
    assert document_key("借款10万元") != document_key("借款11万元")


@pytest.mark.parametrize("seed", range(3))
def test_folds_share_no_document_even_in_one_connected_group(seed):
    triplets = tangle(seed=seed)
    assert len(components(triplets)) == 1
    validated = []
    for train, valid in document_folds(triplets, 4, seed):
        assert train and valid
        known = {key for triplet in train for key in keys_of(triplet)}
        assert not any(key in known for triplet in valid for key in keys_of(triplet))
        assert leaks(train, valid)["documents"] == 0
        validated += valid
    assert len(validated) == len(set(validated))


def test_the_search_keeps_far_more_rows_than_chance():
    triplets = tangle()
    kept = sum(len(valid) for _, valid in document_folds(triplets, 4))
    assert kept > 2 * len(triplets) / 4**2  # random parts keep a row with probability 1 / 16


def test_folds_repeat_with_the_seed_and_differ_without():
    triplets = tangle()
    assert document_folds(triplets, 3, 1) == document_folds(triplets, 3, 1)
    assert document_folds(triplets, 3, 1) != document_folds(triplets, 3, 2)


def test_too_few_documents_or_folds_are_an_error():
    with pytest.raises(ValueError, match="use fewer folds"):
        document_folds([row(1, 2, 3)], 2)
    with pytest.raises(ValueError, match="at least 2"):
        document_folds(tangle(), 1)


def test_leaks_are_counted_by_role_and_by_row():
    train = [row(1, 2, 3), row(4, 5, 6)]
    valid = [row(2, 7, 1), row(8, 9, 10), row(11, 6, 12)]
    assert leaks(train, valid) == {"A": 1, "B": 1, "C": 1, "any": 2, "documents": 3}
    table = leak_table({"train": train, "valid": valid, "test": [row(20, 21, 22)]})
    assert "| train | valid | 3 | 1 | 1 | 1 | 2 | 3 |" in table
    assert "| valid | test | 1 | 0 | 0 | 0 | 0 | 0 |" in table


def test_the_script_writes_folds_that_the_loader_reads(tmp_path, capsys):
    save_triplets(tmp_path / "all.json", tangle())
    result = main(Arguments(tmp_path / "all.json", tmp_path / "folds", folds=3))
    for number, fold in enumerate(result["folds"]):
        rows = load_triplets(tmp_path / "folds" / f"fold-{number}" / "valid.json")
        assert len(rows) == fold["valid"] > 0
        assert fold["train"] + fold["valid"] + fold["dropped"] == 120
    assert "triplets are validated once" in capsys.readouterr().out


def test_antisymmetric_augmentation_makes_the_exchanged_row_and_nothing_else():
    assert [tuple(r) for r in augment([Triplet("1", "2", "3", "B")], ["antisymmetric"])] == [
        ("1", "2", "3", "B", "given"), ("1", "3", "2", "C", "antisymmetric")]


def test_reflexive_augmentation_pits_a_against_the_closer_text():
    rows = augment([Triplet("1", "2", "3", "C"), Triplet("1", "1", "3", "B")], ["reflexive"])
    assert [tuple(r) for r in rows] == [
        ("1", "2", "3", "C", "given"), ("1", "1", "3", "B", "reflexive"),
        ("1", "1", "3", "B", "given")]


def test_no_rule_changes_nothing_and_unknown_rules_or_labels_are_errors():
    assert [r[:4] for r in augment([Triplet("1", "2", "3", "C")])] == [("1", "2", "3", "C")]
    with pytest.raises(ValueError, match="antisymmetric, reflexive; got transitive"):
        augment([Triplet("1", "2", "3", "C")], ["transitive"])
    with pytest.raises(ValueError, match="row 1 must have a label"):
        augment([Triplet("1", "2", "3", None)])
