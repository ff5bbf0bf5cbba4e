"""The settings file of a comparison: which systems, fine-tuned how, judged on what."""

import dataclasses
import difflib
import json
import types
import typing
from pathlib import Path

from roformer_zh.training import TrainingOptions
from tasks.cail2019_scm import finetune

BASELINES = ("majority", "tfidf", "untrained", "cnn", "lstm")
REFERENCES = (("WoBERT", 512), ("RoFormer", 512))
_SET_BY_THE_COMPARISON = ("model", "data", "output", "sequence_length", "seed", "verbose",
                          "training")


@dataclasses.dataclass(frozen=True)
class Model:
    """A pretrained model."""

    name: str
    """What the report calls it."""
    run: str
    """Its run folder, relative to the settings' `runs`."""
    lengths: tuple[int, ...] | None = None
    """Lengths to run it at; None = all."""
    finetune: dict = dataclasses.field(default_factory=dict)
    """Fine-tuning settings that this model forces; the report prints them."""
    reason: str = ""
    """Why it does."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One change of the shared settings."""

    name: str
    """What the report calls it."""
    finetune: dict
    """The fine-tuning settings that it changes."""
    against: str = ""
    """The variant that it is compared with; "" = the shared settings without a change."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """A settings file."""

    models: tuple[Model, ...]
    """The models."""
    finetune: dict
    """Fine-tuning settings that all share: arguments of `finetune` with underscores."""
    runs: str = "."
    """Folder that the run folders are relative to; --runs overrides it."""
    lengths: tuple[int, ...] = (512, 1024)
    """Tokens of two texts together."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """One fine-tuning a system and seed."""
    variants: tuple[Variant, ...] = ()
    """Changes to try one at a time, each against the shared settings."""
    baselines: tuple[str, ...] = BASELINES
    """Systems without pretraining."""
    baseline_training: dict = dataclasses.field(default_factory=dict)
    """learning_rate, epochs and batch_size of the CNN and the LSTM."""
    untrained: tuple[str, ...] = ()
    """Models whose architecture is also judged with random weights; empty = the first one."""
    references: tuple[tuple[str, int], ...] = REFERENCES
    """(model, length) that every system is compared with; those not in the table are left out."""
    judge: str = "test"
    """test: weights are chosen on valid.json and test.json is judged once; valid: test.json is not
    read, no weights are chosen, valid.json is judged. Without a test.json it is valid."""
    different_corpora: str = ""
    """Why models whose pretraining corpora differ, or are not known, may stand in one table."""


@dataclasses.dataclass(frozen=True)
class System:
    """A row of the table: a model at a length, fine-tuned in one way."""

    model: Model
    length: int
    variant: Variant | None
    finetune: dict
    """All fine-tuning settings that are given."""

    @property
    def label(self):
        """Its name in the report, such as "RoFormer-1024"."""
        name = "" if self.variant is None else self.variant.name
        return system_label(self.model.name, self.length, name)


def system_label(name, length, variant=""):
    """The name of a model at a length, fine-tuned in one way.

    Example:
        >>> system_label("RoFormer", 1024)
        'RoFormer-1024'
    """
    return f"{name}-{length}" + (f", {variant}" if variant else "")


def load_settings(path):
    """Reads and checks a settings file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON, a key is unknown or a value out of place.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no settings file at {path}; "
                                "tasks/cail2019_scm/settings/comparison.json is one")
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    try:
        return parse_settings(found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def parse_settings(found):
    """`Settings` out of the dict in a settings file."""
    fields = _known(found, Settings, "the settings")
    models = tuple(Model(**_known(row, Model, "a model")) for row in fields["models"])
    variants = tuple(Variant(**_known(row, Variant, "a variant"))
                     for row in fields.get("variants", ()))
    fields |= {"models": models, "variants": variants}
    for name in ("lengths", "seeds", "baselines", "untrained"):
        fields[name] = tuple(fields[name]) if name in fields else _default(Settings, name)
    if "references" in fields:
        fields["references"] = tuple(tuple(pair) for pair in fields["references"])
    settings = Settings(**fields)
    _check(settings)
    return settings


def _check(settings):
    """Raises unless names are unique and values possible."""
    for kind in ("models", "variants"):
        names = [one.name for one in getattr(settings, kind)]
        if len(set(names)) < len(names) or (kind == "models" and not names):
            raise ValueError(f"{kind} must have different names, at least one; got {names}")
    names = [variant.name for variant in settings.variants]
    for variant in settings.variants:
        if variant.against and (variant.against not in names or variant.against == variant.name):
            raise ValueError(f"{variant.name} must be compared with another variant; got "
                             f"{variant.against!r}{_closest(variant.against, names)}")
    for what, given in (("finetune", settings.finetune), *(
            (f"finetune of {one.name}", one.finetune)
            for one in (*settings.models, *settings.variants))):
        check_finetune(given, what)
    for model in settings.models:
        if model.finetune and not model.reason:
            raise ValueError(f"{model.name} has settings of its own ({', '.join(model.finetune)}); "
                             "give the reason that forces them")
    for what, given, allowed in (
            ("baselines", settings.baselines, BASELINES),
            ("untrained", settings.untrained, [model.name for model in settings.models]),
            ("judge", (settings.judge,), ("test", "valid")),
            ("baseline_training", settings.baseline_training,
             ("learning_rate", "epochs", "batch_size"))):
        for name in given:
            if name not in allowed:
                raise ValueError(f"{what} must be of {', '.join(allowed)}; got {name!r}"
                                 f"{_closest(name, allowed)}")
    for what, numbers in (("lengths", settings.lengths), ("seeds", settings.seeds)):
        whole = all(isinstance(number, int) and number >= 0 for number in numbers)
        if not numbers or not whole or len(set(numbers)) < len(numbers):
            raise ValueError(f"{what} must be different whole numbers, at least one; "
                             f"got {list(numbers)}")


def check_finetune(given, where):
    """Raises unless every key is an argument of `finetune` that a comparison may set, and fits."""
    hints = {**typing.get_type_hints(finetune.Arguments), **typing.get_type_hints(TrainingOptions)}
    allowed = [name for name in hints if name not in _SET_BY_THE_COMPARISON]
    for name, value in given.items():
        if name not in allowed:
            raise ValueError(f"{where} has no setting {name!r}{_closest(name, allowed)}")
        if not _fits(value, hints[name]):
            raise ValueError(f"{where}: {name} must be {_words(hints[name])}; got {value!r}")


def arguments(system, seed, data, output, runs):
    """The `finetune.Arguments` of a system and a seed."""
    training = {field.name for field in dataclasses.fields(TrainingOptions)}
    given = {name: tuple(value) if isinstance(value, list) else value
             for name, value in system.finetune.items()}
    own = {name: value for name, value in given.items() if name not in training}
    options = {name: value for name, value in given.items() if name in training}
    return finetune.Arguments(
        model=Path(runs) / system.model.run, data=Path(data), output=output,
        sequence_length=system.length, **own,
        training=TrainingOptions(**options, seed=seed, verbose=False))


def systems(settings):
    """Every `System` of the settings, in the order of the table."""
    found = []
    for model in settings.models:
        for length in settings.lengths:
            if model.lengths is not None and length not in model.lengths:
                continue
            base = {**settings.finetune, **model.finetune}
            found.append(System(model, length, None, base))
            found += [System(model, length, variant, {**base, **variant.finetune})
                      for variant in settings.variants]
    return found


def _known(found, cls, where):
    """A dict whose keys are all fields of a dataclass; the fields without default are there."""
    if not isinstance(found, dict):
        raise ValueError(f"{where} must be an object; got {found!r}")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in found:
        if name not in fields:
            raise ValueError(f"{where} has no key {name!r}{_closest(name, fields)}")
    missing = [name for name, field in fields.items() if name not in found
               and field.default is dataclasses.MISSING
               and field.default_factory is dataclasses.MISSING]
    if missing:
        raise ValueError(f"{where} needs {', '.join(missing)}")
    return dict(found)


def _default(cls, name):
    """The default of a field."""
    return next(field.default for field in dataclasses.fields(cls) if field.name == name)


def _fits(value, hint):
    """Whether a JSON value fits a type hint."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in parts
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(one, parts[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and value is not True \
            and value is not False
    return value is None if hint is type(None) else isinstance(value, hint)


def _words(hint):
    """A type hint for people."""
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    return getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)


def _closest(name, known):
    """A hint that names the known word nearest to `name`, or nothing."""
    match = difflib.get_close_matches(str(name), list(known), 1)
    return f"; did you mean {match[0]!r}?" if match else ""
