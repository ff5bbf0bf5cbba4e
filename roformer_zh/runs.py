"""The run folder, which every script reads and writes: model, config, tokenizer, what was done."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from roformer_zh.files import atomic_path, write_text

MODEL_FILE = "model.keras"
CONFIG_FILE = "config.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run folder holds."""

    model: Any
    """A MaskedLM, PairScorer or SiameseScorer, or an Encoder alone."""
    tokenizer: Any
    """The WordTokenizer that it was trained with."""
    info: dict
    """config.json: class, encoder fields, tokenizer fingerprint, and what the script recorded."""


def save_run(folder, model, tokenizer, **info):
    """Writes model, config and tokenizer into a run folder, which may hold other files.

    Every file appears whole or not at all; model.keras comes last.

    Args:
        folder: the run folder; made if missing.
        model: a MaskedLM, PairScorer or SiameseScorer, or an Encoder alone.
        tokenizer: the `WordTokenizer` whose ids the model reads.
        **info: JSON values that a later reader needs, such as sequence_length.

    Raises:
        ValueError: vocabulary and model do not fit.
    """
    folder = Path(folder)
    check_vocabulary(model, tokenizer, folder)
    record = {
        "model": type(model).__name__,
        "encoder": encoder_of(model).config.to_dict(),
        "tokenizer": tokenizer.fingerprint(),
        **info,
    }
    tokenizer.save(folder)
    write_text(folder / CONFIG_FILE, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    with atomic_path(folder / MODEL_FILE) as temporary:
        model.save(temporary)


def read_info(folder):
    """The dict in a run folder's config.json."""
    path = Path(folder) / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} must be a run folder, which holds {CONFIG_FILE}; there is none"
        )
    try:
        info = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if not isinstance(info, dict) or not {"model", "encoder", "tokenizer"} <= set(info):
        raise ValueError(
            f"{path} must be a run's, with model, encoder and tokenizer; this one is not: if the "
            "folder is a foreign checkpoint, `python -m roformer_zh.checkpoints import` makes a "
            "run folder of it"
        )
    return info


def load_run(folder, tokenizer=None, dtype=None):
    """Reads a run folder and checks that its parts belong together.

    Args:
        folder: the run folder.
        tokenizer: a `WordTokenizer` to use in place of the saved one; it must be the same kind
            with the same vocabulary and dictionary.
        dtype: a Keras dtype policy; None keeps the saved one.

    Returns:
        A `Run`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: vocabulary, tokenizer and model do not fit.
    """
    from roformer_zh.heads import load_model
    from roformer_zh.tokenizer import WordTokenizer

    info = read_info(folder)
    tokenizer = tokenizer or WordTokenizer.load(folder)
    tokenizer.check(info["tokenizer"], folder)
    model = load_model(folder, dtype=dtype)
    check_vocabulary(model, tokenizer, folder)
    return Run(model, tokenizer, info)


def encoder_of(model):
    """The encoder of a head, or the encoder itself."""
    return getattr(model, "encoder", model)


def check_new_run(folder):
    """Raises unless `folder` is new, or a run of `Trainer` that is unfinished or whole."""
    model = (Path(folder) / MODEL_FILE).exists()
    closed = (Path(folder) / "training.json").exists()
    if closed and not model:
        raise ValueError(
            f"{folder} was finished, but its {MODEL_FILE} is gone; remove the folder to train anew"
        )
    if model and not closed and not (Path(folder) / "checkpoints").exists():
        raise ValueError(
            f"--output must be a new folder or a run of this script; {folder} already holds a "
            "model: choose another folder"
        )


def check_vocabulary(model, tokenizer, where):
    """Raises unless vocabulary rows, configured rows and table rows are the same number."""
    rows = tokenizer.vocabulary_size
    encoder = encoder_of(model)
    configured = encoder.config.vocabulary_size
    table = encoder.token_embedding.embeddings.shape[0]
    if not rows == configured == table:
        raise ValueError(
            f"{where}: vocabulary rows, configured vocabulary_size and token table rows must be "
            f"equal; got {rows}, {configured} and {table}: use the vocabulary that the model was "
            "trained with"
        )
