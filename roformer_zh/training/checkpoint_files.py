"""Checkpoints of a training run: whole or absent, the newest readable one wins."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np

from roformer_zh.files import atomic_path

BROKEN = (zipfile.BadZipFile, ValueError, OSError, KeyError, EOFError)


class Checkpoints:
    """The checkpoint files of one folder.

    A checkpoint is one uncompressed `.npz` file, `update-000000123.npz`: all arrays and, under
    `state`, a JSON object. It gets its name when it is complete on disk; each array carries a
    CRC-32 that reading verifies.

    Args:
        folder: where they lie; made on the first save.
        keep: how many of the newest stay.
    """

    def __init__(self, folder, keep=2):
        self.folder, self.keep = Path(folder), keep

    def save(self, update, arrays, state, also_keep=None):
        """Writes the checkpoint of `update`, then removes old ones.

        Args:
            update: number of updates done.
            arrays: dict of numpy arrays.
            state: JSON-able dict.
            also_keep: the update of one more checkpoint that stays, such as the best one.

        Raises:
            OSError: the file could not be written whole; older checkpoints stay.
        """
        text = np.frombuffer(json.dumps(state).encode("utf-8"), np.uint8)
        try:
            with atomic_path(self.path(update)) as temporary, open(temporary, "wb") as file:
                np.savez(file, state=text, **arrays)
        except OSError as error:
            raise OSError(
                f"checkpoint {self.path(update)} could not be written ({error}); {self.newest()}; "
                "make room and run the same command again"
            ) from error
        for old in self.updates()[: -self.keep]:
            if old != also_keep:
                self.path(old).unlink()
        return self.path(update)

    def load(self, update):
        """The (arrays, state) of one checkpoint; raises one of `BROKEN` if it is damaged."""
        with np.load(self.path(update), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return arrays, json.loads(arrays.pop("state").tobytes())

    def latest(self, report=print):
        """The newest readable (arrays, state), or None if there is no checkpoint.

        A damaged one is set aside under another name and reported.

        Raises:
            ValueError: there are checkpoints and none can be read.
        """
        self._remove_leftovers()
        updates = self.updates()
        for update in reversed(updates):
            try:
                return self.load(update)
            except BROKEN as error:
                damaged = self.path(update).with_suffix(".damaged")
                os.replace(self.path(update), damaged)
                report(
                    f"checkpoint {self.path(update)} is damaged ({error}) and set aside as "
                    f"{damaged.name}; using the one before"
                )
        if updates:
            raise ValueError(
                f"no checkpoint in {self.folder} can be read; delete the folder to start again"
            )
        return None

    def updates(self):
        """The updates that have a checkpoint, ascending."""
        return sorted(int(path.stem.partition("-")[2]) for path in self.folder.glob("update-*.npz"))

    def newest(self):
        """Where the newest checkpoint lies, in words."""
        updates = self.updates()
        return f"last good: {self.path(updates[-1])}" if updates else "no checkpoint exists yet"

    def path(self, update):
        """The file of one update's checkpoint."""
        return self.folder / f"update-{update:09d}.npz"

    def _remove_leftovers(self):
        """Removes what a killed process had not finished writing."""
        for path in self.folder.glob(".update-*"):
            path.unlink()


def difference(saved, current, name="", words=("before", "now")):
    """The entries in which two JSON values differ, one line each; `words` say which is which.

    Example:
        >>> difference({"stages": [{"steps": 3}]}, {"stages": [{"steps": 4}]})
        ['stages[0].steps: before 3, now 4']
    """
    if saved == current:
        return []
    if isinstance(saved, dict) and isinstance(current, dict):
        keys = dict.fromkeys([*saved, *current])
        pairs = [(f"{name}.{key}".lstrip("."), saved.get(key), current.get(key)) for key in keys]
        return [line for key, a, b in pairs for line in difference(a, b, key, words)]
    if isinstance(saved, list) and isinstance(current, list):
        if len(saved) != len(current):
            return [f"{name}: {words[0]} {len(saved)}, {words[1]} {len(current)} of them"]
        pairs = [(f"{name}[{i}]", *both) for i, both in enumerate(zip(saved, current, strict=True))]
        return [line for key, a, b in pairs for line in difference(a, b, key, words)]
    return [f"{name}: {words[0]} {_short(saved)}, {words[1]} {_short(current)}"]


def in_one_line(lines, most=3):
    """The first lines of `difference`, and how many more there are."""
    more = f"; and {len(lines) - most} more differences" if len(lines) > most else ""
    return "; ".join(lines[:most]) + more


def _short(value):
    """A JSON value in at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
