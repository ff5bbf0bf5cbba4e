"""The whole state of a run, in checkpoints that any hardware can continue from."""

import contextlib
import dataclasses
import fcntl
import json
import shutil

from roformer_zh.files import write_text
from roformer_zh.training.checkpoint_files import Checkpoints, difference, in_one_line
from roformer_zh.training.cluster import is_chief, share, share_arrays
from roformer_zh.training.options import Progress, settings

RESULT_FILE = "training.json"


class RunState:
    """Saves and restores the variables, the progress and what a resumed run must share.

    Args:
        trainer: a `Trainer` with its model and training step.
        identity: JSON-able dict of what else must be shared: vocabulary, configuration.
    """

    def __init__(self, trainer, identity):
        self.trainer, self.identity = trainer, identity
        self.strategy, self.chief = trainer.strategy, is_chief(trainer.strategy)
        self.files = Checkpoints(
            trainer.run_folder / "checkpoints", trainer.options.keep_checkpoints
        )

    @contextlib.contextmanager
    def alone(self):
        """Keeps a second process from training in the same folder; ends with the process."""
        if not self.chief:
            yield
            return
        folder = self.trainer.run_folder
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RuntimeError(
                    f"another process trains in {folder} ({error.strerror}); wait for it, or use "
                    "another folder"
                ) from error
            yield
            (folder / ".lock").unlink(missing_ok=True)

    def save(self, progress, phases):
        """Writes a checkpoint; every worker calls it, the chief writes."""
        if not self.chief:
            return
        state = {
            "progress": dataclasses.asdict(progress),
            "fingerprint": self.fingerprint(phases),
            "weights": [variable.path for variable in self.trainer.model.weights],
        }
        arrays = {name: variable.numpy() for name, variable in self._variables().items()}
        best = progress.best and progress.best["update"]
        self.files.save(progress.update, arrays, state, also_keep=best)

    def restore(self, phases):
        """Loads the newest checkpoint; returns its `Progress`, or a new one if there is none.

        Only the chief reads; the others get what it read, so the folder need not be shared.

        Raises:
            ValueError: the checkpoint belongs to another run, or the workers run different
                commands; the difference is named.
        """
        own = self._fingerprint = self.fingerprint(phases)
        lines = difference(share(self.strategy, own), own, words=("worker 0", "this worker"))
        if lines:
            raise ValueError(f"all workers must run the same command: {in_one_line(lines)}")
        found = self.files.latest(self.trainer.report) if self.chief else None
        state = share(self.strategy, found and found[1])
        if state is None:
            return Progress()
        self._require_same(state["fingerprint"], own)
        self._assign(found and found[0])
        progress = Progress(**state["progress"])
        self.trainer.report(f"continuing {self.trainer.run_folder} after update {progress.update}")
        return progress

    def restore_best(self, progress):
        """Loads the weights of the best evaluation."""
        if progress.best["update"] != progress.update:
            found = self.files.load(progress.best["update"]) if self.chief else None
            self._assign(found and found[0])

    def close(self, result):
        """Notes the result of a finished run and removes its checkpoints."""
        if not self.chief:
            return
        if not result["closed"]:
            record = {"result": result, "fingerprint": self._fingerprint}
            write_text(self.trainer.run_folder / RESULT_FILE, json.dumps(record, indent=2) + "\n")
        shutil.rmtree(self.files.folder, ignore_errors=True)

    def closed_result(self, phases):
        """The result of a run that `close` ended, or None."""
        path = self.trainer.run_folder / RESULT_FILE
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        record = share(self.strategy, record if self.chief else None)
        if record is not None:
            self._require_same(record["fingerprint"], self.fingerprint(phases))
        return record and record["result"]

    def _require_same(self, saved, current):
        """Raises unless two fingerprints agree."""
        lines = difference(saved, current, words=("it had", "now"))
        if lines:
            raise ValueError(
                f"{self.trainer.run_folder} holds another run: {in_one_line(lines)}; use the same "
                "settings, or another folder (--init starts from a run's weights)"
            )

    def fingerprint(self, phases):
        """What a resumed run must share with the one that wrote the checkpoint."""
        trainer = self.trainer
        shared = {
            "stages": [settings(phase.stage) for phase in phases],
            **self.identity,
            "data": [phase.batches.fingerprint() for phase in phases],
            "objective": trainer.objective.fingerprint(),
            "optimizer": dataclasses.asdict(trainer.train_step.optimizer.options),
            "seed": trainer.options.seed,
            "dtype_policy": trainer.options.dtype_policy,
        }
        return json.loads(json.dumps(shared))

    def _assign(self, arrays):
        """Sets all variables, in every worker, to the chief's arrays."""
        variables = self._variables()
        if arrays is not None:
            wrong = [
                name
                for name in {**variables, **arrays}
                if name not in arrays
                or name not in variables
                or arrays[name].shape != tuple(variables[name].shape)
            ]
            if wrong:
                raise ValueError(f"the checkpoint does not fit the model: {', '.join(wrong[:3])}")
        for name, value in share_arrays(self.strategy, arrays, variables).items():
            variables[name].assign(value)

    def _variables(self):
        """Every variable of a run by name: weights in the model's order, then the slots."""
        step = self.trainer.train_step
        groups = {
            "weights": [variable.value for variable in self.trainer.model.weights],
            "optimizer": step.optimizer.slots,
            "loss_scale": step.loss_scale.slots,
        }
        return {
            f"{group}/{index:04d}": variable
            for group, variables in groups.items()
            for index, variable in enumerate(variables)
        }
