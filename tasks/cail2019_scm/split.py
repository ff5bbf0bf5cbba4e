"""Cuts triplets into folds that share no document, and reports what was lost and what leaks.

In the public data most documents stand in many triplets, so rows cut at random share documents,
and a model that only remembers which document was "the similar one" looks good.
"""

import collections
import dataclasses
import hashlib
import math
import random
import unicodedata
from pathlib import Path

from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table
from tasks.cail2019_scm.dataset import load_triplets, save_triplets


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Cut triplets into folds for cross-validation; training and validation share no document."""

    data: Path
    """File of labelled triplets, such as data/cail2019_scm/train.json."""
    output: Path
    """Folder for fold-0/train.json, fold-0/valid.json and so on."""
    folds: int = 5
    """Number of folds."""
    seed: int = 0
    """Seed of the cut."""


def main(args):
    """Writes the folds and prints how many rows straddle them; returns the counts."""
    triplets = load_triplets(args.data)
    counts = []
    for number, (train, valid) in enumerate(document_folds(triplets, args.folds, args.seed)):
        folder = args.output / f"fold-{number}"
        save_triplets(folder / "train.json", train)
        save_triplets(folder / "valid.json", valid)
        counts.append({"fold": number, "train": len(train), "valid": len(valid),
                       "dropped": len(triplets) - len(train) - len(valid),
                       "documents shared": leaks(train, valid)["documents"]})
    print(markdown_table(counts))
    print(
        f"{sum(fold['valid'] for fold in counts):,} of {len(triplets):,} triplets are validated "
        "once; the others join documents of two folds and are trained on where both are in training"
    )
    return {"folds": counts}


def document_key(text):
    """A hash that names a text whatever its white space, letter case and width.

    Example:
        >>> document_key("原告 ABC。") == document_key("原告abc。\\n")
        True
    """
    normal = "".join(unicodedata.normalize("NFKC", text).casefold().split())
    return hashlib.blake2b(normal.encode(), digest_size=16).digest()


def keys_of(triplet):
    """The document keys of A, B and C."""
    return tuple(document_key(text) for text in triplet[:3])


def components(triplets):
    """Lists of row numbers; rows that share a document, directly or over others, stand together.

    The largest comes first; rows keep their order.
    """
    parent = {}

    def root(key):
        while parent.setdefault(key, key) != key:
            parent[key] = key = parent[parent[key]]
        return key

    keys = [keys_of(row) for row in triplets]
    for first, *others in keys:
        for other in others:
            parent[root(other)] = root(first)
    groups = collections.defaultdict(list)
    for number, (first, *_) in enumerate(keys):
        groups[root(first)].append(number)
    return sorted(groups.values(), key=lambda rows: (-len(rows), rows[0]))


def document_folds(triplets, folds, seed=0):
    """Cross-validation by documents.

    The documents are cut into `folds` parts. Fold k is validated on the triplets that lie wholly in
    part k and trained on those with no document of part k; triplets that straddle are dropped from
    that fold. Separate groups of documents go to one part as they are; a group that is too large is
    cut so that few triplets straddle (local search from a seeded start).

    Args:
        triplets: `Triplet` rows.
        folds: number of parts, at least 2.
        seed: of the search.

    Returns:
        A list of (train, valid), lists of triplets in their given order.

    Raises:
        ValueError: the documents cannot be cut so that every fold has training and validation rows.
    """
    if folds < 2:
        raise ValueError(f"folds must be at least 2; got {folds}")
    keys = [keys_of(row) for row in triplets]
    part = _assign_documents(keys, components(triplets), folds, random.Random(seed))
    result = []
    for fold in range(folds):
        inside = [sum(part[key] == fold for key in row) for row in keys]
        train = [row for row, count in zip(triplets, inside, strict=True) if count == 0]
        valid = [row for row, count in zip(triplets, inside, strict=True) if count == 3]
        if not train or not valid:
            raise ValueError(
                f"{folds} folds need more documents: {len(triplets)} triplets over {len(part)} "
                f"documents leave fold {fold} with {len(train)} training and {len(valid)} "
                "validation rows; use fewer folds"
            )
        result.append((train, valid))
    return result


def _assign_documents(keys, groups, folds, chance):
    """A part for each document: whole groups where they fit, large ones cut by search."""
    part, sizes = {}, [0] * folds
    limit = -(-len(keys) // folds)
    for rows in groups:
        documents = list(dict.fromkeys(key for row in rows for key in keys[row]))
        if len(rows) <= limit or len(documents) < 2 * folds:
            smallest = min(range(folds), key=sizes.__getitem__)
            part.update(dict.fromkeys(documents, smallest))
            sizes[smallest] += len(rows)
            continue
        cut = _cut_group([keys[row] for row in rows], documents, folds, chance)
        part.update(cut)
        for row in rows:
            owners = {cut[key] for key in keys[row]}
            if len(owners) == 1:
                sizes[owners.pop()] += 1
    return part


def _cut_group(rows, documents, folds, chance):
    """Parts of one group's documents that keep many rows whole and the parts alike in rows."""
    chance.shuffle(documents)
    part = {key: number % folds for number, key in enumerate(documents)}
    rows_of = collections.defaultdict(list)
    for row in rows:
        for key in set(row):
            rows_of[key].append(row)
    whole = [sum({part[key] for key in row} == {fold} for row in rows) for fold in range(folds)]

    def gain(key, target):
        """Change of the sum of log(1 + whole rows) if `key` moves to `target`."""
        lost = sum(all(part[other] == part[key] for other in row) for row in rows_of[key])
        won = sum(
            all(part[other] == target for other in row if other != key) for row in rows_of[key]
        )
        old, new = whole[part[key]], whole[target]
        change = math.log((1 + old - lost) / (1 + old)) + math.log((1 + new + won) / (1 + new))
        return change, lost, won

    for _ in range(30):
        moved = False
        for key in documents:
            options = [(*gain(key, fold), fold) for fold in range(folds) if fold != part[key]]
            change, lost, won, target = max(options)
            if change > 1e-12:
                whole[part[key]] -= lost
                whole[target] += won
                part[key] = target
                moved = True
        if not moved:
            break
    return part


def leaks(train, other):
    """How many rows of `other` have a text that `train` has too.

    Returns:
        dict: rows of `other` whose A, B, C or any is in train (in any role), and the number of
        shared documents.
    """
    known = {key for row in train for key in keys_of(row)}
    found = [[key in known for key in keys_of(row)] for row in other]
    shared = {key for row in other for key in keys_of(row)} & known
    return {**{name: sum(row[i] for row in found) for i, name in enumerate("ABC")},
            "any": sum(any(row) for row in found), "documents": len(shared)}


def leak_table(splits):
    """A table of `leaks` between every two splits.

    Args:
        splits: dict of name to triplets, training first.
    """
    names = list(splits)
    rows = []
    for i, first in enumerate(names):
        for second in names[i + 1:]:
            found = leaks(splits[first], splits[second])
            rows.append({"known from": first, "in": second, "rows": len(splits[second]),
                         "A known": found["A"], "B known": found["B"], "C known": found["C"],
                         "any known": found["any"], "documents shared": found["documents"]})
    return markdown_table(rows)


if __name__ == "__main__":
    run_command(main, Arguments)
