"""Foreign config files: which model they describe, and the same fields in our words."""

from roformer_zh.checkpoints.bert4keras_weights import MARKER
from roformer_zh.config import EncoderConfig

FAMILIES = {"bert": "learned", "roformer": "rotary", "nezha": "relative"}
"""Model type -> position scheme; WoBERT is a bert with words."""
FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "embedding_dim": "embedding_size",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
}
"""Our field -> the name that Hugging Face and Google give it."""
REQUIRED = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
ACTIVATIONS = {"gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
ONLY = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "use_bias": (True,),
    "norm_type": ("layer_norm",),
    "shared_segment_embeddings": (False,),
}
"""Fields that change what a model computes -> the values this library can represent."""
LONGEST = 1536
"""max_position_embeddings of an exported model without a position table, at least."""
OWN = "roformer_zh"
"""Key of our own block in an exported config: all encoder fields, the head's class and pooling."""


def detect_family(fields, names, where, model_type=None):
    """"bert", "roformer" or "nezha", by tensors and config; a folder's name plays no part.

    Args:
        fields: the foreign config.
        names: every tensor's name, and those of layers without weights.
        where: the source, for errors.
        model_type: what the user says; overrules the config, never the tensors.

    Raises:
        ValueError: they contradict each other, or neither tells.
    """
    declared = model_type or fields.get("model_type")
    if declared is not None and declared not in FAMILIES:
        raise ValueError(f"{where}: the model type must be one of {', '.join(FAMILIES)}; got "
                         f"{declared!r}, whose layers differ")
    seen = {}
    if any("position_embeddings" in name for name in names):
        seen["bert"] = "a table of absolute positions"
    if any("relative_positions_encoding" in name for name in names):
        seen["nezha"] = "relative position constants"
    if any("embed_positions" in name or name.startswith("roformer.") or name == MARKER
           for name in names):
        seen["roformer"] = "RoFormer's names"
    if fields.get("use_relative_position"):
        seen.setdefault("nezha", "use_relative_position in the config")
    if len(seen) > 1:
        raise ValueError(f"{where} contradicts itself: it has "
                         + " and ".join(f"{why} ({family})" for family, why in seen.items()))
    found = next(iter(seen), None)
    if found is None and declared in (None, "bert"):
        raise ValueError(
            f"{where}: this checkpoint has no absolute positions (no position_embeddings), so it "
            "is no BERT, and nothing in it tells NEZHA from RoFormer; use model type nezha or "
            "roformer (--model-type)")
    if found and declared and found != declared:
        raise ValueError(f"{where}: the model type {declared!r} contradicts what is there, "
                         f"{seen[found]}: use model type {found}")
    return found or declared


def read_config(fields, family, where, *, max_sequence_length=None, pooler=False):
    """The `EncoderConfig` of a foreign config.

    Args:
        fields: the foreign config.
        family: what `detect_family` found.
        where: the file, for errors.
        max_sequence_length: rows of the position table (bert only).
        pooler: whether the encoder keeps a pooler.

    Raises:
        ValueError: a field is missing, or asks for something this library does not compute.
    """
    missing = [FIELDS[name] for name in REQUIRED if FIELDS[name] not in fields]
    if missing:
        raise ValueError(f"{where} needs the fields {', '.join(missing)}")
    for key, allowed in ONLY.items():
        if fields.get(key) is not None and fields[key] not in allowed:
            raise ValueError(f"{where}: {key} must be {allowed[0]!r}, the only kind this library "
                             f"computes; got {fields[key]!r}")
    activation = fields.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{where}: hidden_act must be one of {', '.join(ACTIVATIONS)}; got "
                         f"{activation!r}")
    ours = {name: fields[theirs] for name, theirs in FIELDS.items()
            if fields.get(theirs) is not None}
    ours |= {"activation": ACTIVATIONS[activation], "position": FAMILIES[family], "pooler": pooler,
             "trained_length": fields.get("max_position_embeddings")}
    if family == "bert":
        ours["max_sequence_length"] = max_sequence_length
        declared = fields.get("max_position_embeddings", max_sequence_length)
        if declared != max_sequence_length:
            raise ValueError(f"{where}: max_position_embeddings is {declared}, but the position "
                             f"table has {max_sequence_length} rows")
    if family == "nezha":
        ours["max_relative_position"] = fields.get("max_relative_position", 64)
    if family == "roformer":
        ours["rotary_value"] = bool(fields.get("rotary_value", False))
    elif fields.get("rotary_value"):
        raise ValueError(f"{where}: rotary_value is set, but the model type is {family}")
    if OWN in fields:
        return _own_config(fields, family, where)
    try:
        return EncoderConfig.from_dict(ours)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from error


def write_config(config, kind, head):
    """A foreign config with the same fields, and all of ours in a block of its own.

    Args:
        config: an `EncoderConfig`.
        kind: "huggingface" or "google".
        head: dict of the head's class and arguments, kept in our block.

    Raises:
        ValueError: readers of that format would compute other numbers.
    """
    family = next((name for name, scheme in FAMILIES.items() if scheme == config.position), None)
    refused = {
        f"position {config.position!r}": family is None,
        f"attention {config.attention!r}": config.attention == "linear",
        f"position_scale {config.position_scale}": config.position_scale != 1,
        f"max_wavelength {config.max_wavelength}": config.max_wavelength != 10000,
        "embedding_dim unlike hidden_dim": kind == "huggingface" and family != "roformer"
        and config.embedding_dim != config.hidden_dim,
        f"layer_norm_epsilon {config.layer_norm_epsilon}": kind == "google"
        and config.layer_norm_epsilon != 1e-12,
        f"max_relative_position {config.max_relative_position}": kind == "google"
        and config.max_relative_position not in (None, 64),
        "rotary_value": kind == "google" and config.rotary_value,
    }
    reasons = [reason for reason, holds in refused.items() if holds]
    if reasons:
        raise ValueError(f"a model with {' and '.join(reasons)} cannot be exported to {kind}: "
                         "other programs that read it would compute other numbers; use --format "
                         "savedmodel or onnx")
    return {**_foreign_fields(config, family), OWN: {"encoder": config.to_dict(), **head}}


def _foreign_fields(config, family):
    """The fields under the names of Hugging Face and Google."""
    fields = {theirs: getattr(config, ours) for ours, theirs in FIELDS.items()}
    if config.embedding_dim == config.hidden_dim and family != "roformer":
        del fields["embedding_size"]
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    fields |= {"hidden_act": activations[config.activation], "model_type": family,
               "max_position_embeddings": config.max_sequence_length
               or max(config.trained_length or 0, LONGEST)}
    if family == "nezha":
        fields |= {"max_relative_position": config.max_relative_position,
                   "use_relative_position": True}
    if family == "roformer":
        fields["rotary_value"] = config.rotary_value
    return fields


def _own_config(fields, family, where):
    """The encoder fields of our own block; the foreign fields beside it must agree."""
    try:
        config = EncoderConfig.from_dict(fields[OWN]["encoder"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: the {OWN} block must hold encoder fields: {error}") from error
    different = [key for key, value in _foreign_fields(config, family).items()
                 if fields.get(key) != value]
    if different or config.position != FAMILIES[family]:
        raise ValueError(f"{where}: {', '.join(different) or 'model_type'} and the {OWN} block of "
                         "the same file contradict each other; correct one, or delete the block")
    return config
