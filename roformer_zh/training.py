"""The one training loop: pretraining and fine-tuning, one device, many GPUs, many machines.

Its promise: the same global batches give the same model, whatever the hardware. The global batch of
an update is cut over replicas and micro-batches; losses and gradients are sums divided once by the
weight of the whole batch; the summed gradient is tested, clipped and applied on every replica alike.

How a script uses it:

    trainer = Trainer(build_model, objective, run_folder, options, identity={...})
    result = trainer.fit([Phase(stage, batches, validation), ...], Selection("accuracy", every=100))
    if trainer.is_chief:
        save the model of `trainer.model` into the run folder
    trainer.finish(result)

The parts it is given:

- `build_model()` makes (or loads) the Keras model; it is called once, in the strategy's scope and
  under the dtype policy.
- an objective: `objective(model, batch, training)` -> dict of scalar float32 *sums* over the rows of
  a part of a batch: `loss`, `weight`, and others (`correct` is reported as accuracy) that are
  reported divided by `weight`. `objective.weight(batch)` -> the weight of a numpy batch, known
  before it is cut. `objective.fingerprint()` -> JSON-able dict. Rows that the trainer adds hold
  zeros in every array, so each array of weights must weigh them 0.
- batches: `batches.batch(step)` -> dict of numpy arrays with equally many rows, a pure function of
  the step (0-based in its phase): the *global* batch, the same in every worker process.
  `batches.fingerprint()` -> JSON-able dict.
- `validation()` -> iterable of such dicts: held-out batches, fixed.
"""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from roformer_zh.files import write_text
from roformer_zh.train_checkpoints import Checkpoints, difference
from roformer_zh.train_log import add_sums, means


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to run; nothing here but the seed and the dtype policy changes what is computed."""

    strategy: Literal["one", "mirrored", "multiworker"] = "one"
    """one device, several GPUs of this machine, or several machines (TF_CONFIG)."""
    devices: tuple[str, ...] = ()
    """Devices of `mirrored`, such as GPU:0 GPU:1, or CPU:0 CPU:1 (logical); none = all GPUs."""
    micro_batch_size: int | None = None
    """Rows that a replica computes at once; more are accumulated. None = its whole share."""
    dtype_policy: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "float32"
    """Keras dtype policy; mixed_float16 adds dynamic loss scaling."""
    recompute: bool = False
    """Compute activations again in the backward pass: less memory, a third more time."""
    jit: bool = False
    """Compile the forward and backward pass with XLA."""
    skip_nonfinite: int = 0
    """Updates with a NaN or infinite loss or gradient to skip before stopping with an error."""
    seed: int = 0
    """Seed of initial weights and dropout masks."""
    checkpoint_every: int = 200
    """Updates between checkpoints."""
    keep_checkpoints: int = 2
    """Newest checkpoints to keep."""
    log_every: int = 10
    """Updates between lines of metrics.jsonl."""
    startup_timeout: float = 300.0
    """Seconds to wait for the other workers."""
    verbose: bool = True
    """Whether to show progress."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training with one stage's settings; a stage of pretraining, or a fine-tuning."""

    stage: Any
    """Has name, steps, batch_size, learning_rate, warmup_steps, schedule (a `batches.Stage` does)."""
    batches: Any
    """The global batch of each step; see the module's docstring."""
    validation: Callable[[], Iterable[dict]] | None = None
    """Makes the held-out batches."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which weights a fit ends with: the best on the held-out batches instead of the last."""

    monitor: str = "accuracy"
    """What is compared; for `loss` less is better, for everything else more."""
    every: int | None = None
    """Updates between evaluations; None = only at the end of each phase."""
    patience: int | None = None
    """Evaluations without improvement before the fit ends; None = never."""

    def improves(self, value, best):
        """Whether `value` is better than `best`; None is worse than anything."""
        return best is None or (value < best if self.monitor == "loss" else value > best)


@dataclasses.dataclass
class Progress:
    """Where a fit stands: all that a checkpoint holds beside arrays."""

    phase: int = 0
    """Phase in progress."""
    step: int = 0
    """Updates done in it."""
    update: int = 0
    """Updates done altogether."""
    epoch: int = 0
    """Evaluations done, or phases without any: what Keras callbacks call an epoch."""
    examples: int = 0
    """Rows seen."""
    tokens: int = 0
    """Tokens seen, without padding."""
    seconds: float = 0.0
    """Time spent in updates."""
    skipped: int = 0
    """Updates skipped because something was not finite."""
    sums: dict = dataclasses.field(default_factory=dict)
    """Sums since the last log line, in the epoch, and over the last tenth of the phase."""
    rows: list = dataclasses.field(default_factory=list)
    """The report of each finished phase."""
    best: dict | None = None
    """Update and value of the best evaluation."""
    waited: int = 0
    """Evaluations since then."""
    finished: bool = False
    """Whether all phases are done, or patience ended them."""


class Trainer:
    """Trains a model over phases; see the module's docstring for the parts it takes.

    Args:
        build_model: function that makes the model.
        objective: what is minimised.
        run_folder: gets `metrics.jsonl`, `checkpoints/` and, at the end, `training.json`.
        options: `TrainingOptions`.
        optimizer: `OptimizerOptions`.
        identity: JSON-able dict of what else a resumed run must share: vocabulary, configuration.
        strategy: a tf.distribute.Strategy to use instead of the one that `options` names.

    Raises:
        ValueError: the model was made outside the strategy's scope, or keeps random state.
    """

    def __init__(
        self,
        build_model,
        objective,
        run_folder,
        options=None,
        optimizer=None,
        identity=None,
        strategy=None,
    ):
        from roformer_zh.cluster import is_chief, open_strategy

        self.options = options or TrainingOptions()
        self.objective, self.identity = objective, identity or {}
        self.run_folder = Path(run_folder)
        self.strategy = strategy or open_strategy(self.options)
        self.is_chief = is_chief(self.strategy)
        self.checkpoints = Checkpoints(
            self.run_folder / "checkpoints", self.options.keep_checkpoints
        )
        self.model = self._build(build_model)
        self.train_step, self.evaluation_step = self._steps(optimizer)

    def fit(self, phases, selection=None, callbacks=()):
        """Trains over the phases, or over what is left of them if a checkpoint exists.

        Args:
            phases: list of `Phase`.
            selection: `Selection`; None keeps the last weights.
            callbacks: Keras callbacks that need only logs; an epoch is what lies between two
                evaluations.

        Returns:
            dict: `finished` (False after SIGTERM), `updates`, `stages` (a dict a finished phase),
            `best` and `traces`. `model` then holds the last weights, or the best ones.

        Raises:
            ValueError: a checkpoint belongs to another run; the difference is named.
            RuntimeError: a loss or gradient is not finite, more than `skip_nonfinite` times.
        """
        from roformer_zh.loop import Loop

        return Loop(self, list(phases), selection, callbacks).run()

    def evaluate(self, batches, objective=None):
        """Means of the objective over all batches together: `loss`, `accuracy`, ...

        Args:
            batches: iterable of numpy batches, the same in every worker.
            objective: another one than the trainer's.
        """
        return means(self.evaluate_sums(batches, objective))

    def evaluate_sums(self, batches, objective=None):
        """The float64 sums that `evaluate` divides; they may be arrays."""
        step = self.evaluation_step
        if objective is not None:
            step = self._evaluation_step(objective)
        return sum_over(step, batches)

    def finish(self, result):
        """Ends the run: notes it in `training.json` and removes the checkpoints.

        Call it when the model is saved; all workers wait here for the chief. Does nothing for a
        fit that was stopped early.
        """
        from roformer_zh.cluster import barrier

        if result["finished"] and self.is_chief:
            write_text(self.run_folder / "training.json", json.dumps(result, indent=2) + "\n")
            shutil.rmtree(self.checkpoints.folder, ignore_errors=True)
        barrier(self.strategy)

    def _build(self, build_model):
        """The model, made in the strategy's scope under the dtype policy."""
        import keras

        keras.utils.set_random_seed(self.options.seed)
        with self.strategy.scope(), dtype_policy(self.options.dtype_policy):
            model = build_model()
        strangers = [
            variable.path
            for variable in model.variables
            if not self.strategy.extended.variable_created_in_scope(variable.value)
        ]
        if strangers:
            raise ValueError(
                "build_model must make the model when it is called, so that its variables belong to the "
                f"strategy; these were made before: {', '.join(strangers[:3])}"
            )
        if len(model.variables) != len(model.weights):
            raise ValueError(
                f"{model.name} keeps random state, which a resumed run would not repeat; use "
                "roformer_zh.dropout.Dropout instead of Keras' random layers"
            )
        if self.options.recompute:
            model.encoder.recompute = True
        return model

    def _steps(self, optimizer):
        """The training and evaluation step with the optimizer's variables."""
        from roformer_zh.optimizer import (
            AdamW,
            LossScale,
            OptimizerOptions,
            decay_summary,
            decayed_variables,
        )
        from roformer_zh.steps import TrainStep

        optimizer = optimizer or OptimizerOptions()
        decayed = decayed_variables(self.model)
        self.report(decay_summary(self.model, decayed, optimizer.weight_decay))
        with self.strategy.scope():
            adamw = AdamW(self.model.trainable_variables, decayed, optimizer)
            loss_scale = LossScale(dynamic=self.options.dtype_policy == "mixed_float16")
        step = TrainStep(
            self.strategy,
            self.model,
            self.objective,
            self.options.micro_batch_size,
            optimizer=adamw,
            loss_scale=loss_scale,
            seed=self.options.seed,
            jit=self.options.jit,
        )
        return step, self._evaluation_step(self.objective)

    def _evaluation_step(self, objective):
        """An evaluation step of the model."""
        from roformer_zh.steps import EvaluationStep

        return EvaluationStep(
            self.strategy, self.model, objective, micro_batch_size=self.options.micro_batch_size
        )

    def report(self, text):
        """Prints a line once, not once a worker."""
        if self.is_chief and self.options.verbose:
            print(text, flush=True)

    def fingerprint(self, phases):
        """What a resumed run must share with the one that wrote the checkpoint."""
        optimizer = self.train_step.optimizer.options
        return json.loads(
            json.dumps(
                {
                    **self.identity,
                    "stages": [settings(phase.stage) for phase in phases],
                    "data": [phase.batches.fingerprint() for phase in phases],
                    "objective": self.objective.fingerprint(),
                    "optimizer": dataclasses.asdict(optimizer),
                    "seed": self.options.seed,
                    "dtype_policy": self.options.dtype_policy,
                }
            )
        )

    def save_checkpoint(self, progress, phases):
        """Writes a checkpoint; every worker calls it, the chief writes."""
        if not self.is_chief:
            return
        state = {
            "progress": dataclasses.asdict(progress),
            "fingerprint": self.fingerprint(phases),
            "variables": [variable.path for variable in self.model.weights],
        }
        best = progress.best and progress.best["update"]
        arrays = {name: variable.numpy() for name, variable in self._variables().items()}
        self.checkpoints.save(progress.update, arrays, state, also_keep=best)

    def restore(self, phases):
        """Loads the newest checkpoint if there is one; returns its `Progress`, or a new one."""
        from roformer_zh.cluster import share

        found = self.checkpoints.latest(self.report) if self.is_chief else None
        state = share(self.strategy, found and found[1])
        if state is None:
            return Progress()
        lines = difference(state["fingerprint"], self.fingerprint(phases))
        if lines:
            raise ValueError(
                f"{self.run_folder} holds a checkpoint of another run: {'; '.join(lines)}; "
                "use the same settings, or another output folder (--init starts from a run's weights)"
            )
        self._assign(found and found[0])
        progress = Progress(**state["progress"])
        self.report(f"continuing after update {progress.update} of {self.run_folder}")
        return progress

    def restore_best(self, progress):
        """Loads the weights of the best evaluation."""
        if progress.best["update"] != progress.update:
            found = self.checkpoints.load(progress.best["update"]) if self.is_chief else None
            self._assign(found and found[0])

    def _assign(self, arrays):
        """Sets all variables, in every worker, to the chief's arrays."""
        from roformer_zh.cluster import share_arrays

        variables = self._variables()
        if arrays is not None:
            wrong = [
                name
                for name, variable in variables.items()
                if name not in arrays or arrays[name].shape != tuple(variable.shape)
            ]
            if wrong or len(arrays) != len(variables):
                raise ValueError(f"the checkpoint does not fit the model: {', '.join(wrong[:3])}")
        for name, value in share_arrays(self.strategy, arrays, variables).items():
            variables[name].assign(value)

    def _variables(self):
        """All variables of a checkpoint by name: weights in the model's order, then the slots."""
        step = self.train_step
        groups = {
            "weights": [variable.value for variable in self.model.weights],
            "optimizer": step.optimizer.slots,
            "loss_scale": step.loss_scale.slots,
        }
        return {
            f"{group}/{index:04d}": variable
            for group, variables in groups.items()
            for index, variable in enumerate(variables)
        }


def sum_over(step, batches):
    """Float64 sums of an evaluation step over numpy batches."""
    sums = {}
    for batch in batches:
        result = step(step.distribute(batch))
        add_sums(sums, {name: value.numpy().astype("float64") for name, value in result.items()})
    return sums


def settings(stage):
    """A stage as a JSON-able dict."""
    return dataclasses.asdict(stage) if dataclasses.is_dataclass(stage) else dict(vars(stage))


@contextlib.contextmanager
def dtype_policy(name):
    """Makes a Keras dtype policy the default inside the block."""
    import keras

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
