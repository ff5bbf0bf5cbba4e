"""How texts become a scorer's rows: what is cut, which segments and positions they get."""

import dataclasses
import warnings
from typing import NamedTuple

import numpy as np

from roformer_zh.tokenizer.pairs import TRUNCATIONS, join_pair, truncate_pair

KINDS = ("siamese", "pair")
SEGMENTS = ("pair", "zero")
POSITIONS = ("continue", "restart")
_LENGTHS = (32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536)


class Row(NamedTuple):
    """One sequence without padding, and how many tokens of its texts were cut."""

    token_ids: list
    segment_ids: list
    position_ids: list
    cut: int


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a scorer reads of two texts; a run folder records it, so that later use is the same.

    Raises:
        ValueError: a value is out of range.

    Example:
        >>> layout = Layout("pair", sequence_length=8)
        >>> layout.pair([11, 12, 13, 14], [21], cls_id=2, sep_id=3).token_ids
        [2, 11, 12, 13, 14, 3, 21, 3]
    """

    kind: str
    """siamese: one text a sequence; pair: both in one."""
    sequence_length: int
    """Tokens read of two texts together, specials included; siamese reads half of it of each."""
    truncation: str = "longest_first"
    """What is kept of too long texts: longest_first, head, tail or head_tail (see `pairs`)."""
    segments: str = "pair"
    """Segment ids of the second text in a pair: pair (1) or zero (0)."""
    positions: str = "continue"
    """Positions of the second text in a pair: continue behind the first, or restart at 0."""

    def __post_init__(self):
        for name, allowed in (("kind", KINDS), ("truncation", TRUNCATIONS), ("segments", SEGMENTS),
                              ("positions", POSITIONS)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; "
                                 f"got {getattr(self, name)!r}")
        length = self.sequence_length
        if not isinstance(length, int) or isinstance(length, bool) or length < 8:
            raise ValueError(
                f"sequence_length must be a whole number of at least 8; got {length!r}"
            )

    @classmethod
    def of_run(cls, info, where):
        """The layout that a run folder's config.json records."""
        try:
            return cls(**info["layout"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{where} must record how its scorer reads texts (layout); "
                             "make it with `python -m tasks.cail2019_scm.finetune`") from error

    def to_dict(self):
        """The fields as a dict for JSON."""
        return dataclasses.asdict(self)

    @property
    def row_length(self):
        """Tokens of the longest sequence."""
        return self.sequence_length if self.kind == "pair" else self.sequence_length // 2

    @property
    def read_limit(self):
        """Tokens of a text that need to be known; None where its end is kept."""
        return self.sequence_length if self.truncation in ("longest_first", "head") else None

    def pair(self, first, second, cls_id, sep_id):
        """The `Row` of two lists of ids: [CLS] first [SEP] second [SEP]."""
        room = self.sequence_length - 3
        kept = truncate_pair(first, second, room, self.truncation)
        joined = join_pair(*kept, cls_id, sep_id)
        length, start = len(joined.token_ids), len(kept[0]) + 2
        positions = list(range(length))
        if self.positions == "restart":
            positions[start:] = range(length - start)
        segments = joined.segment_ids if self.segments == "pair" else [0] * length
        cut = len(first) + len(second) - len(kept[0]) - len(kept[1])
        return Row(joined.token_ids, segments, positions, cut)

    def single(self, ids, cls_id, sep_id):
        """The `Row` of one list of ids: [CLS] ids [SEP]."""
        room = self.row_length - 2
        kept, _ = truncate_pair(ids, ids, 2 * room, self.truncation)  # equal texts share evenly
        length = len(kept) + 2
        return Row([cls_id, *kept, sep_id], [0] * length, list(range(length)), len(ids) - len(kept))

    def stack(self, rows, length, pad_id):
        """Rows as padded arrays (rows, length): what the encoder reads."""
        shape = (len(rows), length)
        arrays = {
            "token_ids": np.full(shape, pad_id, np.int32),
            "segment_ids": np.zeros(shape, np.int32),
            "padding_mask": np.zeros(shape, bool),
        }
        if self.positions == "restart":
            arrays["position_ids"] = np.zeros(shape, np.int32)
        for number, row in enumerate(rows):
            count = len(row.token_ids)
            arrays["token_ids"][number, :count] = row.token_ids
            arrays["segment_ids"][number, :count] = row.segment_ids
            arrays["padding_mask"][number, :count] = True
            if self.positions == "restart":
                arrays["position_ids"][number, :count] = row.position_ids
        return arrays

    def padded_length(self, tokens):
        """The length to which a row of so many tokens is padded: one of few, to make few shapes.

        Example:
            >>> layout = Layout("pair", sequence_length=1000)
            >>> [layout.padded_length(tokens) for tokens in (5, 33, 600, 900, 1000)]
            [32, 64, 640, 1000, 1000]
        """
        length = next((known for known in _LENGTHS if known >= tokens), -(-tokens // 512) * 512)
        return max(tokens, min(length, self.row_length))


def check_fits(layout, config, where):
    """Raises unless an encoder of this config can read the layout's rows; warns of untried ones."""
    if config.max_sequence_length is not None and layout.row_length > config.max_sequence_length:
        raise ValueError(
            f"{where} has a table of {config.max_sequence_length} positions and cannot read "
            f"sequences of {layout.row_length}; use a smaller sequence_length, or a model whose "
            "positions have no limit (rotary, relative)"
        )
    if config.trained_length is not None and layout.row_length > config.trained_length:
        warnings.warn(
            f"{where} was trained on at most {config.trained_length} tokens and will read "
            f"{layout.row_length}; measure it there first (python -m pretrain.evaluate)",
            stacklevel=3,
        )
    if layout.kind == "pair" and layout.segments == "pair" and config.num_segments < 2:
        raise ValueError(f"{where} has {config.num_segments} segment; segments must be 'zero'")
