"""Name maps as data, and the one strict rule by which tensors and variables are paired."""

import dataclasses
import difflib
import re
from collections.abc import Callable

import numpy as np

LISTED = 12
"""Names a list in an error message shows before it says how many more there are."""


@dataclasses.dataclass(frozen=True)
class Skipped:
    """Tensors of a file that are not weights of the model."""

    pattern: str
    """Regular expression of whole names, without the map's prefix."""
    reason: str
    """What they are, as the report names them."""
    holds: Callable | None = None
    """Function of (array, EncoderConfig): whether a constant is the one the model computes."""


@dataclasses.dataclass(frozen=True)
class NameMap:
    """The names that one family of files gives to our variables."""

    name: str
    """What the report and errors call it."""
    prefix: str
    """Start of the encoder's names; a file may leave it out."""
    table: dict
    """Our name -> theirs, without the prefix; `{i}` is the block's number."""
    transposed: bool = False
    """Whether kernels are stored (out, in), as torch does."""
    spellings: tuple = ()
    """(regular expression, replacement) pairs that turn other spellings into the table's."""
    copies: dict = dataclasses.field(default_factory=dict)
    """Their name of a second copy -> their name of the tensor that it must equal."""
    skipped: tuple = ()
    """`Skipped` rules."""

    def theirs(self, ours):
        """Their name of one of our variables, with the prefix; None if the map has none."""
        block = re.match(r"block_(\d+)/", ours)
        name = self.table.get(ours if block is None else
                              "block_{i}/" + ours[block.end():])
        if name is None:
            return None
        name = name if block is None else name.replace("{i}", block[1])
        return name if self.is_head(name) else self.prefix + name

    def is_head(self, name):
        """Whether a name without prefix lies outside the encoder, where no prefix stands."""
        return re.match(r"cls[./]|roformer_zh[./]", name) is not None

    def normal(self, name):
        """A file's name in the table's spelling, with the prefix."""
        bare = name.removeprefix(self.prefix)
        for pattern, replacement in self.spellings:
            bare = re.sub(pattern, replacement, bare)
        return bare if self.is_head(bare) else self.prefix + bare

    def skip_rule(self, name):
        """The `Skipped` rule that a normal name falls under, or None."""
        bare = name.removeprefix(self.prefix)
        return next((rule for rule in self.skipped if re.fullmatch(rule.pattern, bare)), None)

    def convert(self, ours, array):
        """An array of ours in their layout, or of theirs in ours: the change is its own inverse."""
        return array.T if self.transposed and ours.endswith("/kernel") else array


@dataclasses.dataclass(frozen=True)
class Report:
    """What an import did with every tensor of the file."""

    map: str
    """Name of the map."""
    filled: int
    """Our tensors that were filled."""
    parameters: int
    """Their values."""
    skipped: dict
    """Reason -> names of the tensors left out."""

    def lines(self):
        """The report as text."""
        text = [f"{self.filled} tensors, {self.parameters:,} parameters, names of {self.map}"]
        text += [f"skipped {len(names)}: {reason}" for reason, names in self.skipped.items()]
        return text


def pair_tensors(name_map, expected, shapes, read, config, ignored=(), where="the file"):
    """Reads every variable from a file, or raises one error that names all that do not fit.

    Args:
        name_map: a `NameMap`.
        expected: our name -> shape, every variable of the model.
        shapes: the file's name -> shape, every tensor of the file.
        read: function of a file's name -> array.
        config: the `EncoderConfig`, which constants are compared with.
        ignored: regular expressions of further names to leave out.
        where: the file, for errors.

    Returns:
        (our name -> float32 array, `Report`).

    Raises:
        ValueError: a tensor is missing, unused, has another shape, holds no finite numbers, or is
            a copy or a constant with other values.
    """
    names = _normal_names(name_map, shapes, where)
    sources, copies, missing = _find_sources(name_map, expected, names)
    skipped, unused = _sort_rest(name_map, names, set(sources.values()) | set(copies), ignored)
    misshaped = [f"{names[theirs]} is {tuple(shapes[names[theirs]])}, must be "
                 f"{_their_shape(name_map, ours, expected[ours])}"
                 for ours, theirs in sources.items()
                 if tuple(shapes[names[theirs]]) != _their_shape(name_map, ours, expected[ours])]
    if missing or unused or misshaped:
        raise ValueError(_describe_misfit(name_map, where, missing, unused, misshaped))
    tensors = {}
    for ours, theirs in sources.items():
        array = np.asarray(read(names[theirs]))
        if not np.isfinite(array).all():
            raise ValueError(f"{where}: {names[theirs]} holds values that are not finite")
        tensors[ours] = np.array(name_map.convert(ours, array), np.float32, order="C")
    _check_copies(name_map, copies, names, read, where)
    _check_constants(name_map, skipped, names, read, config, where)
    reasons = {}
    for theirs, reason in skipped.items():
        reasons.setdefault(reason, []).append(names[theirs])
    count = sum(array.size for array in tensors.values())
    return tensors, Report(name_map.name, len(tensors), count, reasons)


def closest(name, known):
    """A hint that names the known name nearest to `name`, or nothing."""
    match = difflib.get_close_matches(name, known, 1, 0.75)
    return f" (closest: {match[0]})" if match else ""


def shorten(items):
    """A list as text, cut after `LISTED` items."""
    more = f" and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return ", ".join(items[:LISTED]) + more


def _normal_names(name_map, shapes, where):
    """Normal name -> the file's name; two spellings of one name are an error."""
    names = {}
    for name in shapes:
        normal = name_map.normal(name)
        if normal in names:
            raise ValueError(f"{where} holds one tensor twice: {names[normal]} and {name}")
        names[normal] = name
    return names


def _find_sources(name_map, expected, names):
    """(our name -> normal name, copies in the file, missing names)."""
    def full(bare):
        return bare if name_map.is_head(bare) else name_map.prefix + bare

    copies = {full(copy): full(original) for copy, original in name_map.copies.items()
              if full(copy) in names}
    sources, missing = {}, []
    for ours in expected:
        theirs = name_map.theirs(ours)
        if theirs not in names:
            stand_in = [copy for copy, original in copies.items() if original == theirs]
            theirs = stand_in[0] if stand_in else theirs
        if theirs in names:
            sources[ours] = theirs
        else:
            missing.append(theirs or ours)
    used = set(sources.values())
    return sources, {copy: original for copy, original in copies.items()
                     if copy not in used and original in used}, missing


def _sort_rest(name_map, names, used, ignored):
    """(normal name -> reason of what is skipped, normal names nobody uses)."""
    skipped, unused = {}, []
    for name in names:
        rule = name_map.skip_rule(name)
        if name in used:
            continue
        if rule is not None:
            skipped[name] = rule.reason
        elif any(re.fullmatch(pattern, names[name]) for pattern in ignored):
            skipped[name] = "left out on request"
        else:
            unused.append(name)
    return skipped, unused


def _their_shape(name_map, ours, shape):
    """The shape a variable of ours has in the file."""
    return tuple(shape)[::-1] if name_map.transposed and ours.endswith("/kernel") else tuple(shape)


def _describe_misfit(name_map, where, missing, unused, misshaped):
    """The one message about everything that does not fit."""
    parts = []
    if missing:
        listed = [name + closest(name, unused) for name in missing]
        parts.append(f"missing {len(missing)}: {shorten(listed)}")
    if unused:
        listed = [name + closest(name, missing) for name in unused]
        parts.append(f"unused {len(unused)}: {shorten(listed)}")
    if misshaped:
        parts.append(f"mis-shaped {len(misshaped)}: {shorten(misshaped)}")
    return (f"{where} does not fit its config as {name_map.name}; nothing was imported. "
            + "; ".join(parts))


def _check_copies(name_map, copies, names, read, where):
    """A second copy of a tensor must hold the same values."""
    for copy, original in copies.items():
        if not np.array_equal(read(names[copy]), read(names[original])):
            raise ValueError(
                f"{where}: {names[copy]} must equal {names[original]}, because the decoder is tied "
                "to the word table; this one was trained apart and cannot be represented")


def _check_constants(name_map, skipped, names, read, config, where):
    """A constant in the file must be the one that the model computes."""
    for theirs in skipped:
        rule = name_map.skip_rule(theirs)
        if rule and rule.holds and not rule.holds(np.asarray(read(names[theirs])), config):
            raise ValueError(f"{where}: {names[theirs]} ({rule.reason}) has other values than the "
                             "model computes; it was trained with other positions")
