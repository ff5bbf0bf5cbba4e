"""New models from trained ones: another vocabulary, another position scheme, further words."""

import dataclasses
from typing import Any

from roformer_zh.checkpoints.variables import get_tensors, set_tensors
from roformer_zh.runs import encoder_of, load_run, save_run
from roformer_zh.tokenizer.extension import extend_tokenizer

TABLE, BIAS = "token_embedding/embeddings", "head/output_bias"
POSITIONS = "position_embedding/embeddings"
SAME = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim", "embedding_dim",
        "num_segments", "activation", "layer_norm_epsilon")
"""Fields in which a model must equal the one it starts from."""


@dataclasses.dataclass(frozen=True)
class Start:
    """A model to train, and where its values came from."""

    model: Any
    """A `MaskedLM`."""
    report: list
    """Dicts of `part`, `how` (copied, mean of pieces, new, dropped) and `count`."""


def initialise_from(run, config, tokenizer):
    """A MaskedLM that starts from a trained run under another vocabulary or position scheme.

    From a BERT to words this is WoBERT's start: the row of a word that the old vocabulary has is
    copied, any other is the mean of its pieces' rows under the old tokenizer, and its output bias
    likewise. From learned to rotary positions it is RoFormer's: the position table is dropped.

    Args:
        run: the run folder to start from.
        config: `EncoderConfig` of the new model; its sizes must be the old one's.
        tokenizer: the new model's `WordTokenizer`.

    Returns:
        A `Start`.

    Raises:
        ValueError: the sizes differ.

    Source: github.com/ZhuiyiTechnology/WoBERT; arXiv 2104.09864, section 4.5.
    """
    from roformer_zh.encoder import Encoder
    from roformer_zh.heads import MaskedLM

    old = load_run(run, dtype="float32")
    _check_sizes(encoder_of(old.model).config, config, tokenizer, run)
    source = get_tensors(old.model)
    model = MaskedLM(Encoder(config))
    tensors, report = get_tensors(model), []
    plan = _plan_rows(old.tokenizer, tokenizer)
    for part, name in {"token table rows": TABLE, "output bias rows": BIAS}.items():
        if name in source:
            tensors[name] = _apply_rows(plan, source[name], tensors[name])
            report += [{"part": part, "how": how, "count": len(rows)}
                       for how, rows in plan.items() if len(rows)]
    copied = [name for name in tensors if name in source and name not in (TABLE, BIAS, POSITIONS)]
    tensors.update({name: source[name] for name in copied})
    report.append({"part": "other tensors", "how": "copied", "count": len(copied)})
    report += _carry_positions(source, tensors)
    fresh = [name for name in tensors if name not in source]
    dropped = [name for name in source if name not in tensors and name != POSITIONS]
    for how, names in (("new", fresh), ("dropped", dropped)):
        if names:
            report.append({"part": ", ".join(names), "how": how, "count": len(names)})
    set_tensors(model, tensors)
    return Start(model, report)


def extend_vocabulary(run, words, output):
    """Writes a run whose vocabulary has further words; the old rows keep their bits.

    A new row is the mean of the rows that the word was made of before, its output bias likewise. A
    word that the segmenter would cut also enters the user dictionary.

    Args:
        run: the run folder to start from; a word model.
        words: the words to add, in order.
        output: the run folder to write.

    Returns:
        A list of {"part", "how", "count"}.

    Raises:
        ValueError: a word is in the vocabulary already, is given twice or is no single word, or the
            model reads characters.
    """
    old = load_run(run)
    if old.tokenizer.mode != "word":
        raise ValueError(f"{run} reads characters; only a word model's vocabulary can get words")
    tokenizer = extend_tokenizer(old.tokenizer, words)
    rows = tokenizer.vocabulary_size - old.tokenizer.vocabulary_size
    before, after = (one.options["user_dictionary"] for one in (old.tokenizer, tokenizer))
    fields = old.model.get_config()
    inner = fields if encoder_of(old.model) is old.model else fields["encoder"]
    inner["config"] = {**inner["config"], "vocabulary_size": tokenizer.vocabulary_size}
    model = type(old.model).from_config(fields)
    source, tensors = get_tensors(old.model), get_tensors(model)
    plan = _plan_rows(old.tokenizer, tokenizer)
    for name in tensors:
        tensors[name] = (_apply_rows(plan, source[name], tensors[name])
                         if name in (TABLE, BIAS) else source[name])
    set_tensors(model, tensors)
    kept = {key: value for key, value in old.info.items()
            if key not in ("model", "encoder", "tokenizer")}
    save_run(output, model, tokenizer, **kept, added_words=rows)
    report = [{"part": "token table rows", "how": how, "count": len(rows)}
              for how, rows in plan.items() if len(rows)]
    return [*report, {"part": "user dictionary", "how": "added", "count": len(after) - len(before)}]


def _check_sizes(old, new, tokenizer, run):
    """Sizes must be equal, and the table as long as the vocabulary."""
    different = [f"{name} {getattr(old, name)} there, {getattr(new, name)} here"
                 for name in SAME if getattr(old, name) != getattr(new, name)]
    if different:
        raise ValueError(f"a model that starts from {run} must have its sizes; "
                         f"{'; '.join(different)}")
    if tokenizer.vocabulary_size != new.vocabulary_size:
        raise ValueError(f"vocabulary_size must be {tokenizer.vocabulary_size}, the rows of the "
                         f"vocabulary; got {new.vocabulary_size}")


def _plan_rows(old, new):
    """How each row of a new vocabulary comes about: how -> {new row: list of old rows}."""
    rows = {token: number for number, token in enumerate(old.vocabulary)}
    plan = {"copied": {}, "mean of pieces": {}, "new": {}}
    for number, token in enumerate(new.vocabulary):
        if token in rows:
            plan["copied"][number] = [rows[token]]
            continue
        pieces = [piece for piece in old.encode(token.removeprefix("##"))
                  if piece != old.unk_id] if token else []
        plan["mean of pieces" if pieces else "new"][number] = pieces
    return plan


def _apply_rows(plan, source, fresh):
    """The new table (or bias) by a plan; rows without a source keep their fresh values."""
    result = fresh.copy()
    for number, old in plan["copied"].items():
        result[number] = source[old[0]]
    for number, old in plan["mean of pieces"].items():
        result[number] = source[old].mean(axis=0)
    return result


def _carry_positions(source, tensors):
    """Moves the position table where both models have one; returns what to report."""
    if POSITIONS not in tensors:
        dropped = POSITIONS in source
        return [{"part": "position table", "how": "dropped", "count": 1}] if dropped else []
    if POSITIONS not in source:
        return []
    table, old = tensors[POSITIONS], source[POSITIONS]
    if len(table) > len(old):
        raise ValueError(f"the position table to start from has {len(old)} rows, and {len(table)} "
                         "are asked for; import it with --extend-positions first")
    tensors[POSITIONS] = old[:len(table)]
    return [{"part": "position table rows", "how": "copied", "count": len(table)}]
