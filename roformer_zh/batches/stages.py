"""Stages of a training: length, batch, updates and rates, read from a JSON list."""

import dataclasses
import difflib
import json
from pathlib import Path

SCHEDULES = ("constant", "linear")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a training.

    Raises:
        ValueError: a value is out of range.

    Example:
        >>> Stage("long", sequence_length=1536, batch_size=256, steps=10, learning_rate=1e-5).steps
        10
    """

    name: str
    """Name in logs and reports; unique in a file. It also seeds the order and masks of the rows."""
    sequence_length: int
    """Tokens a row, [CLS] and [SEP] included."""
    batch_size: int
    """Rows an update, over all devices."""
    steps: int
    """Updates."""
    learning_rate: float
    """Learning rate after warm-up."""
    warmup_steps: int = 0
    """Updates over which the learning rate rises from 0."""
    schedule: str = "constant"
    """Learning rate after warm-up: constant, or linear down to 0 at the stage's end."""
    mask_selection_rate: float = 0.15
    """Share of a row's tokens that must be predicted, as whole words."""
    mask_token_rate: float = 0.8
    """Share of the selected words that [MASK] replaces."""
    random_token_rate: float = 0.1
    """Share of the selected words that random tokens replace; the rest stays as it is."""
    clause_breaks: bool = False
    """Whether a sentence may be cut where a clause ends; else only if it is longer than a row."""
    single_documents: bool = False
    """Whether a row holds one document only."""
    published_loss: float | None = None
    """Loss that a paper gives for this stage; shown in reports."""
    published_accuracy: float | None = None
    """Accuracy that a paper gives for this stage, as a fraction; shown in reports."""

    def __post_init__(self):
        self._require(isinstance(self.name, str) and self.name.strip(), "name", "a word")
        for field, least in (
            ("sequence_length", 8),
            ("batch_size", 1),
            ("steps", 1),
            ("warmup_steps", 0),
        ):
            value = getattr(self, field)
            whole = isinstance(value, int) and not isinstance(value, bool)
            self._require(whole and value >= least, field, f"a whole number of at least {least}")
        for field in ("clause_breaks", "single_documents"):
            self._require(isinstance(getattr(self, field), bool), field, "true or false")
        self._require(
            _is_number(self.learning_rate) and self.learning_rate > 0,
            "learning_rate",
            "a number above 0",
        )
        self._require(self.schedule in SCHEDULES, "schedule", "one of " + ", ".join(SCHEDULES))
        for field in ("mask_selection_rate", "mask_token_rate", "random_token_rate"):
            value = getattr(self, field)
            self._require(_is_number(value) and 0 <= value <= 1, field, "from 0 to 1")
        self._require(self.mask_selection_rate > 0, "mask_selection_rate", "above 0")
        self._require(
            self.mask_token_rate + self.random_token_rate <= 1 + 1e-9,
            "random_token_rate",
            "at most 1 - mask_token_rate",
        )
        for field in ("published_loss", "published_accuracy"):
            value = getattr(self, field)
            self._require(value is None or _is_number(value), field, "a number")

    @classmethod
    def from_dict(cls, fields):
        """A stage from a dict of its fields; an unknown or missing field is an error."""
        if not isinstance(fields, dict):
            raise ValueError(f"a stage must be an object of fields; got {fields!r}")
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in fields:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
                raise ValueError(f"a stage has no field {name!r}{hint}")
        missing = [
            name
            for name, field in known.items()
            if field.default is dataclasses.MISSING and name not in fields
        ]
        if missing:
            raise ValueError(f"a stage needs the fields {', '.join(missing)}")
        return cls(**fields)

    def to_dict(self):
        """The fields as a dict that `from_dict` and JSON take."""
        return dataclasses.asdict(self)

    def _require(self, holds, field, rule):
        """Raises unless `holds`, saying what the field must be and what came."""
        if not holds:
            raise ValueError(
                f"stage {self.name!r}: {field} must be {rule}; got {getattr(self, field)!r}"
            )


def load_stages(path):
    """Reads a JSON list of stages.

    Raises:
        ValueError: no JSON, no list, an unknown key, a value out of range or a repeated name.
    """
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path} must hold a list of stages, [{{...}}, ...]; got {str(rows)[:60]}")
    stages = []
    for number, fields in enumerate(rows, 1):
        try:
            stages.append(Stage.from_dict(fields))
        except ValueError as error:
            raise ValueError(f"{path}, stage {number}: {error}") from error
    names = [stage.name for stage in stages]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path}: names of stages must differ; repeated: {', '.join(repeated)}")
    return stages


def _is_number(value):
    """Whether `value` is a finite number and no bool."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value
        and abs(value) != float("inf")
    )
