"""Two texts in one sequence."""

import dataclasses

from roformer_zh.tokenizer.checks import require_whole

TRUNCATIONS = ("longest_first", "head", "tail", "head_tail")


@dataclasses.dataclass(frozen=True)
class EncodedPair:
    """Two texts in one sequence, [CLS] a [SEP] b [SEP], without padding."""

    token_ids: list
    """Row numbers of the vocabulary."""
    segment_ids: list
    """0 up to the first [SEP], 1 behind it."""


def encode_to_fit(encode, a, b, sequence_length, truncation):
    """Ids of two texts that fit into `sequence_length` together with [CLS] and two [SEP].

    Args:
        encode: function of a text and the number of ids to keep (None = all).
        a: first text.
        b: second text.
        sequence_length: at least 5, or None for no limit.
        truncation: see `truncate_pair`.
    """
    if truncation not in TRUNCATIONS:
        raise ValueError(f"truncation must be one of {', '.join(TRUNCATIONS)}; got {truncation!r}")
    if sequence_length is None:
        return encode(a, None), encode(b, None)
    require_whole(sequence_length, 5, "sequence_length (three of it are special tokens)")
    room = sequence_length - 3
    limit = room if truncation in ("longest_first", "head") else None
    return truncate_pair(encode(a, limit), encode(b, limit), room, truncation)


def join_pair(first, second, cls_id, sep_id):
    """The `EncodedPair` of two lists of ids."""
    first = [cls_id, *first, sep_id]
    second = [*second, sep_id]
    return EncodedPair(first + second, [0] * len(first) + [1] * len(second))


def truncate_pair(first, second, room, truncation="longest_first"):
    """Cuts two lists of ids so that both together take at most `room`; both keep a part.

    Args:
        first: ids of the first text.
        second: ids of the second text.
        room: most ids, at least 2.
        truncation: "longest_first": a text that takes less than half stays whole, the other gets
            the rest; both keep their start. "head", "tail", "head_tail": each is cut to half of the
            room by itself, so that what is kept of a text does not depend on the other; it keeps
            its start, its end, or half of each.

    Example:
        >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5)
        ([1, 2, 3], [6, 7])
        >>> truncate_pair([1, 2, 3, 4, 5], [6, 7], 5, "tail")
        ([3, 4, 5], [6, 7])
    """
    shares = room - room // 2, room // 2
    if truncation == "longest_first":
        shares = max(shares[0], room - len(second)), max(shares[1], room - len(first))
        return first[:shares[0]], second[:shares[1]]
    return tuple(_keep(ids, share, truncation) for ids, share in zip((first, second), shares,
                                                                      strict=True))


def _keep(ids, count, part):
    """`count` ids of the start, of the end, or of both."""
    if len(ids) <= count:
        return ids
    ending = {"head": 0, "tail": count, "head_tail": count // 2}[part]
    return ids[:count - ending] + ids[len(ids) - ending:]
