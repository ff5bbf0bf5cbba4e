"""More training triplets from given ones, each new row tagged with the rule that made it.

For training rows only, after the split. From "A is closer to B than to C" follow only two things:
the same row with B and C exchanged, and that A is closest to itself. It does *not* follow that B is
closer to A than to C, so no such rule exists here.
"""

from typing import NamedTuple

RULES = ("antisymmetric", "reflexive")


class TaggedTriplet(NamedTuple):
    """A `Triplet` and where it comes from: "given", "antisymmetric" or "reflexive"."""

    A: str
    B: str
    C: str
    label: str
    tag: str


def augment(triplets, rules=()):
    """The given rows, each followed by those that the rules make of it.

    antisymmetric: (A, C, B) with the other label. A scorer of pairs trained with this suite's
        ranking loss gains nothing from it, because its decision is antisymmetric by construction.
    reflexive: A against itself and the text that was closer: (A, A, closer), label B. Left out when
        the two are equal.

    Args:
        triplets: labelled `Triplet` rows of a *training* split.
        rules: names out of `RULES`.

    Returns:
        A list of `TaggedTriplet`.

    Raises:
        ValueError: a rule is unknown, or a row has no label.

    Example:
        >>> from tasks.cail2019_scm.dataset import Triplet
        >>> [tuple(row) for row in augment([Triplet("1", "2", "3", "B")], ["antisymmetric"])]
        [('1', '2', '3', 'B', 'given'), ('1', '3', '2', 'C', 'antisymmetric')]
    """
    unknown = [rule for rule in rules if rule not in RULES]
    if unknown:
        raise ValueError(
            f"augmentation rules must be of {', '.join(RULES)}; got {', '.join(unknown)}"
        )
    result = []
    for number, row in enumerate(triplets, 1):
        if row.label not in ("B", "C"):
            raise ValueError(f"row {number} must have a label to be augmented; got {row.label!r}")
        closer = row.B if row.label == "B" else row.C
        result.append(TaggedTriplet(row.A, row.B, row.C, row.label, "given"))
        if "antisymmetric" in rules:
            other = "C" if row.label == "B" else "B"
            result.append(TaggedTriplet(row.A, row.C, row.B, other, "antisymmetric"))
        if "reflexive" in rules and closer != row.A:
            result.append(TaggedTriplet(row.A, row.A, closer, "B", "reflexive"))
    return result
