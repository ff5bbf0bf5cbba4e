"""Foreign weights in: from a checkpoint to a model, strictly."""

import dataclasses
import re
from typing import Any

import numpy as np

from roformer_zh.checkpoints import (
    google_bert,
    google_nezha,
    google_roformer,
    huggingface_bert,
    huggingface_nezha,
    huggingface_roformer,
)
from roformer_zh.checkpoints.foreign_config import OWN, detect_family, read_config
from roformer_zh.checkpoints.mapping import Report, Skipped, pair_tensors
from roformer_zh.checkpoints.source import find_config, open_source
from roformer_zh.checkpoints.variables import set_tensors, tensor_shapes
from roformer_zh.checkpoints.vocabularies import check_rows, choose_tokenizer, read_vocabulary

MAPS = {
    ("google", "bert"): google_bert.MAP,
    ("google", "roformer"): google_roformer.MAP,
    ("google", "nezha"): google_nezha.MAP,
    ("huggingface", "bert"): huggingface_bert.MAP,
    ("huggingface", "roformer"): huggingface_roformer.MAP,
    ("huggingface", "nezha"): huggingface_nezha.MAP,
}
TABLE, POSITIONS = "token_embedding/embeddings", "position_embedding/embeddings"
ALPHA = 0.4
"""Weight of the coarse position in the hierarchical decomposition."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import made."""

    model: Any
    """A MaskedLM, the scorer that was exported, or an Encoder if the file has no head."""
    tokenizer: Any
    """The `WordTokenizer` for it."""
    report: Report
    """What became of every tensor."""


def import_checkpoint(source, *, config=None, vocabulary=None, model_type=None, tokenizer=None,
                      pooler=True, ignored=(), extend_positions=None, trained_length=None):
    """Reads foreign weights into a model; every variable is filled and every tensor accounted for.

    Which class it becomes follows the tensors and the config, never a folder's name.

    Args:
        source: a Hugging Face folder or weight file, or a TensorFlow checkpoint: its prefix, one of
            its files, or a folder with exactly one.
        config: the foreign config file; None = the one beside the weights.
        vocabulary: a vocab.txt or tokenizer.json; None = the one beside the weights.
        model_type: "bert", "roformer" or "nezha", where the files do not tell.
        tokenizer: "word" or "char" to overrule what the vocabulary shows.
        pooler: whether to keep a pooler that the file has.
        ignored: regular expressions of tensors to leave out, such as a classifier.
        extend_positions: rows to extend a BERT's position table to; see `extend_position_table`.
        trained_length: longest sequence in training, in tokens; None = what the config says.

    Returns:
        An `Imported`.

    Raises:
        FileNotFoundError: weights, config or vocabulary are missing.
        ValueError: anything does not fit; nothing is half loaded.
    """
    ignored = _compile(ignored)
    opened = open_source(source)
    config_path, fields = find_config(opened, config)
    family = detect_family(fields, [*opened.shapes, *opened.layers], str(opened.path), model_type)
    name_map = MAPS[opened.kind, family]
    shapes = {name_map.normal(name): shape for name, shape in opened.shapes.items()}
    if not pooler:
        rule = Skipped(r"pooler[./].*", "pooler, not wanted")
        name_map = dataclasses.replace(name_map, skipped=(*name_map.skipped, rule))
    encoder_config = _encoder_config(fields, family, config_path, name_map, shapes, pooler)
    table_rows = shapes.get(name_map.theirs(TABLE), (None,))[0]
    vocabulary_path, rows = read_vocabulary(opened, vocabulary)
    chosen = choose_tokenizer(rows, vocabulary_path, table_rows, opened.folder, tokenizer)
    if table_rows is not None:
        check_rows(chosen.vocabulary_size, encoder_config.vocabulary_size, table_rows,
                   vocabulary_path)
    stored_positions = encoder_config.max_sequence_length
    if extend_positions is not None:
        encoder_config = _extended_config(encoder_config, extend_positions)
    if trained_length is not None:
        encoder_config = encoder_config.replace(trained_length=trained_length)
    model = _build(encoder_config, fields.get(OWN), shapes)
    expected = tensor_shapes(model)
    if stored_positions:
        expected[POSITIONS] = (stored_positions, *expected[POSITIONS][1:])
    tensors, report = pair_tensors(name_map, expected, opened.shapes, opened.read, encoder_config,
                                   ignored, str(opened.path))
    if extend_positions is not None:
        tensors[POSITIONS] = extend_position_table(tensors[POSITIONS], extend_positions)
    set_tensors(model, tensors)
    return Imported(model, chosen, report)


def extend_position_table(table, rows):
    """A position table for longer sequences by hierarchical decomposition.

    The first rows stay as they are; row i * n + j becomes 0.4 u_i + 0.6 u_j with
    u = (p - 0.4 p_0) / 0.6. Reaches n * n rows; longer inputs work at once, and better after
    further training.

    Args:
        table: (n, E) trained rows.
        rows: how many rows are wanted, more than n and at most n * n.

    Returns:
        (rows, E), float32.

    Source: J. Su, "Hierarchical decomposition of position embeddings" (kexue.fm/archives/7947).

    Example:
        >>> extend_position_table(np.array([[0.0], [1.0]]), 4)[:, 0].astype(float).round(3).tolist()
        [0.0, 1.0, 0.667, 1.667]
    """
    have = len(table)
    if not have < rows <= have * have:
        raise ValueError(f"a table of {have} positions can be extended to {have + 1} .. "
                         f"{have * have} rows; got {rows}")
    base = (table - ALPHA * table[:1]) / (1 - ALPHA)
    places = np.arange(have, rows)
    further = ALPHA * base[places // have] + (1 - ALPHA) * base[places % have]
    return np.concatenate([table, further]).astype(np.float32)


def _compile(patterns):
    """The regular expressions, if each is one."""
    try:
        return [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise ValueError(f"ignored must hold regular expressions; got {error.pattern!r}: "
                         f"{error}") from error


def _encoder_config(fields, family, path, name_map, shapes, pooler):
    """The encoder's config as config file and tensors have it."""
    positions = shapes.get(name_map.theirs(POSITIONS) or "")
    has_pooler = any(name_map.theirs(f"pooler/{part}") in shapes for part in ("kernel", "bias"))
    config = read_config(fields, family, str(path), pooler=pooler and has_pooler,
                         max_sequence_length=positions[0] if positions else None)
    return config if pooler else config.replace(pooler=False)


def _extended_config(config, rows):
    """The config with a longer position table."""
    if config.position != "learned":
        raise ValueError(f"only a model with a position table can be extended; {config.position} "
                         "positions have no limit: leave out --extend-positions")
    return config.replace(max_sequence_length=rows)


def _build(config, own, shapes):
    """A model of the class that the tensors, or our own block in the config, ask for."""
    from roformer_zh import heads
    from roformer_zh.encoder import Encoder

    head = dict(own or {})
    head.pop("encoder", None)
    kind = head.pop("model", None)
    if kind is None:
        has_head = any(re.match(r"cls[./]predictions[./]", name) for name in shapes)
        kind = "MaskedLM" if has_head else "Encoder"
    encoder = Encoder(config)
    if kind == "Encoder":
        return encoder
    if kind not in ("MaskedLM", "PairScorer", "SiameseScorer"):
        raise ValueError(f"the {OWN} block of the config names a class that does not exist: {kind}")
    try:
        return getattr(heads, kind)(encoder, **head)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the {OWN} block of the config does not fit {kind}: {error}") from error
