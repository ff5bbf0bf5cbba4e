"""One cell of a comparison: a system and a seed, trained, judged once and kept on disk."""

import dataclasses
import gc
import json
import re
import shutil
import time
import warnings
from pathlib import Path

import numpy as np

from roformer_zh.files import atomic_folder, sha256, write_text
from roformer_zh.layout import Layout
from roformer_zh.runs import read_info
from roformer_zh.tokenizer import WordTokenizer
from roformer_zh.training.checkpoint_files import difference, in_one_line
from tasks.cail2019_scm import finetune
from tasks.cail2019_scm.batches import encode_triplets, shares_cut
from tasks.cail2019_scm.dataset import load_triplets

PARTS = ("valid", "test")
HELD_OUT_EVERY = 10
"""Where valid.json is judged, each so manieth training row chooses weights, if any are chosen."""


@dataclasses.dataclass(frozen=True)
class Data:
    """The triplets of a comparison."""

    train: list
    """Training triplets."""
    valid: list
    """valid.json."""
    test: list | None
    """test.json; None if valid.json is judged."""
    hashes: dict
    """SHA-256 of each file that is read."""

    @classmethod
    def load(cls, folder, judge="test"):
        """The splits of a folder; test.json is read only if it is there and to be judged."""
        folder = Path(folder)
        parts = ["train", "valid"]
        if judge == "test" and (folder / "test.json").is_file():
            parts.append("test")
        paths = {part: folder / f"{part}.json" for part in parts}
        rows = {part: load_triplets(path) for part, path in paths.items()}
        return cls(rows["train"], rows["valid"], rows.get("test"),
                   {part: sha256(path) for part, path in paths.items()})

    @property
    def judged(self):
        """The rows that are judged."""
        return self.valid if self.test is None else self.test

    @property
    def selects(self):
        """Whether valid.json chooses weights: only if something else is judged."""
        return self.test is not None

    def to_choose(self):
        """(training rows, rows that choose weights).

        Those are valid.json, or if that is judged every tenth training row, which then is left out.
        """
        if self.selects:
            return self.train, self.valid
        rest = [row for place, row in enumerate(self.train) if place % HELD_OUT_EVERY]
        return rest, self.train[::HELD_OUT_EVERY]


@dataclasses.dataclass(frozen=True)
class Cell:
    """What one system did with one seed."""

    identity: dict
    """All that decides the result: data, weights, tokenizer, settings, seed."""
    facts: dict
    """Parameters, speed, time, shares cut."""
    scores: dict
    """"valid" and, if judged, "test": (first, second), scores of (A, B) and (A, C)."""

    @property
    def system(self):
        """The row of the table that it belongs to."""
        return self.identity["system"]


class CellStore:
    """Finished cells in a folder; each appears whole or not at all."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def get(self, identity):
        """The cell of this identity, or None if it is not finished.

        Raises:
            ValueError: the cell was made from something else; the differences are named.
        """
        path = self._path(identity)
        if not (path / "result.json").is_file():
            return None
        record = json.loads((path / "result.json").read_text(encoding="utf-8"))
        wanted = json.loads(json.dumps(identity))
        lines = difference(record["identity"], wanted, words=("made with", "now"))
        if lines:
            raise ValueError(f"{path} holds another result: {in_one_line(lines)}; choose another "
                             "--output, or remove that folder")
        with np.load(path / "scores.npz") as arrays:
            scores = {part: (arrays[f"{part}_first"], arrays[f"{part}_second"])
                      for part in PARTS if f"{part}_first" in arrays}
        return Cell(wanted, record["facts"], scores)

    def put(self, cell):
        """Keeps a finished cell."""
        arrays = {f"{part}_{place}": np.asarray(values) for part, pair in cell.scores.items()
                  for place, values in zip(("first", "second"), pair, strict=True)}
        with atomic_folder(self._path(cell.identity)) as temporary:
            np.savez(temporary / "scores.npz", **arrays)
            write_text(temporary / "result.json", json.dumps(
                {"identity": cell.identity, "facts": cell.facts}, indent=1, ensure_ascii=False)
                + "\n")

    def _path(self, identity):
        """The folder of a cell."""
        return self.folder / slug(identity["system"], identity["seed"])


def slug(label, seed):
    """A folder's name for a system and a seed.

    Example:
        >>> slug("RoFormer-512, layer decay 0.8", 2)
        'RoFormer-512-layer-decay-0.8-seed2'
    """
    return re.sub(r"[^\w.]+", "-", label).strip("-") + ("" if seed is None else f"-seed{seed}")


class CachedTokenizer:
    """A tokenizer that reads each text once; everything else is the tokenizer's own."""

    def __init__(self, tokenizer):
        self._tokenizer, self._ids = tokenizer, {}

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode(self, text, max_length=None):
        """As `WordTokenizer.encode`."""
        if text not in self._ids:
            self._ids[text] = np.array(self._tokenizer.encode(text), np.int32)
        return self._ids[text][:max_length].tolist()


class Pretrained:
    """Run folders, each read and hashed once; equal tokenizers are shared."""

    def __init__(self):
        self._known, self._tokenizers = {}, {}

    def __call__(self, run):
        """dict of a run: tokenizer, info, weights (SHA-256)."""
        run = Path(run)
        if run not in self._known:
            info = read_info(run)
            tokenizer = WordTokenizer.load(run)
            tokenizer.check(info["tokenizer"], run)
            key = json.dumps(tokenizer.fingerprint(), sort_keys=True)
            tokenizer = self._tokenizers.setdefault(key, CachedTokenizer(tokenizer))
            self._known[run] = {"tokenizer": tokenizer, "info": info,
                                "weights": sha256(run / "model.keras")}
        return self._known[run]


def word_run(runs):
    """The first run whose tokenizer makes words; the first of all if none does."""
    words = [run for run in runs if run["tokenizer"].fingerprint()["mode"] == "word"]
    return (words or runs)[0]


def position_limit(info, layout):
    """Why a model cannot read the layout's sequences, or None."""
    rows = info["encoder"].get("max_sequence_length")
    if rows is not None and layout.row_length > rows:
        return f"no positions beyond {rows}"
    return None


def pretraining_of(info):
    """What a run's record says of its pretraining; None where it says nothing."""
    record = info.get("pretraining") or {}
    return {name: record.get(name) for name in ("corpus_hash", "updates", "tokens", "characters")}


def run_finetuned(identity, args, run, data):
    """Fine-tunes one system with one seed, judges it, and returns its `Cell`.

    Raises:
        RuntimeError: the process was asked to stop; what is done so far is used the next time.
    """
    import keras

    from roformer_zh.heads import copy_model
    from roformer_zh.matching import DocumentMatcher

    started, tokenizer = time.perf_counter(), run["tokenizer"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "texts are longer")  # the report has a table for it
        chooses = data.selects or args.patience is not None
        rows = data.to_choose() if chooses else (data.train, None)
        job = finetune.prepare(args, *rows, tokenizer)
        trainer, result = job.fit()
        if not result["finished"]:
            raise RuntimeError(f"{identity['system']} was interrupted; give the same command to "
                               "go on")
        model = copy_model(trainer.model)
        matcher = DocumentMatcher(model, tokenizer, job.layout, verbose=False)
        scores = judge(matcher, data)
    (stage,) = result["stages"] or ({},)
    facts = {
        "parameters": model.count_params(), "updates": result["updates"], "best": result["best"],
        "tokens_per_second": stage["tokens"] / max(stage["seconds"], 1e-9) if stage else None,
        "train_seconds": stage.get("seconds"), **shares(data.judged, tokenizer, job.layout),
        "seconds": time.perf_counter() - started,
    }
    del trainer, job, matcher, model
    keras.backend.clear_session()
    gc.collect()
    shutil.rmtree(args.output, ignore_errors=True)
    return Cell(identity, facts, scores)


def judge(matcher, data):
    """The scores of all rows, each different text or pair computed once."""
    from tasks.cail2019_scm.scores import score_triplets

    rows = [*data.valid, *(data.test or ())]
    first, second = score_triplets(matcher, rows)
    cut = len(data.valid)
    found = {"valid": (first[:cut], second[:cut])}
    return found if data.test is None else {**found, "test": (first[cut:], second[cut:])}


def shares(triplets, tokenizer, layout):
    """How much of the rows a layout leaves out.

    Returns:
        dict: text_cut, share of the tokens; pairs_cut, share of the pairs (A, B) and (A, C) in
        which a text loses some.
    """
    rows, tokens = encode_triplets(triplets, tokenizer, layout)
    text_cut, pairs_cut = shares_cut(rows, tokens)
    if layout.kind == "siamese":
        cut = [[row.cut > 0 for row in texts] for texts in rows]
        pairs_cut = float(np.mean([[a or b, a or c] for a, b, c in cut]))
    return {"text_cut": text_cut, "pairs_cut": pairs_cut}


def layout_of(args):
    """The layout of a fine-tuning's arguments."""
    return Layout(args.scorer, args.sequence_length, args.truncation, args.segments,
                  args.positions)
