"""The one training loop: pretraining and fine-tuning, one device, many GPUs, many machines.

Its promise: the same global batches give the same model, whatever the hardware. The global batch
of an update is cut over replicas and micro-batches; losses and gradients are sums divided once by
the weight of the whole batch; the summed gradient is tested, clipped and applied on every replica
alike.

How a script uses it:

    trainer = Trainer(build_model, objective, run_folder, options, identity={...})
    result = trainer.fit([Phase(stage, batches, validation), ...], Selection("accuracy", every=100))
    if trainer.is_chief:
        save the model of `trainer.model` into the run folder
    trainer.finish(result)

The parts it is given:

- `build_model()` makes (or loads) the Keras model; it is called once, in the strategy's scope and
  under the dtype policy.
- an objective: `objective(model, batch, training)` -> dict of scalar float32 *sums* over the rows
  of a part of a batch: `loss`, `weight`, and others (`correct` is reported as accuracy) that are
  reported divided by `weight`. `objective.weight(batch)` -> the weight of a numpy batch, known
  before it is cut. `objective.fingerprint()` -> JSON-able dict. Rows that the trainer adds hold
  zeros in every array, padding_mask too, so each array of weights must weigh them 0.
- batches: `batches.batch(step)` -> dict of numpy arrays with equally many rows, a pure function of
  the step (0-based in its phase): the *global* batch, the same in every worker process.
  `batches.fingerprint()` -> JSON-able dict.
- `validation()` -> iterable of such dicts: held-out batches, fixed.
"""

import contextlib
import json
import shutil
from pathlib import Path

from roformer_zh.files import write_text
from roformer_zh.training_log import add_sums, means
from roformer_zh.training_plan import Phase, Selection, TrainingOptions

__all__ = ["Phase", "Selection", "Trainer", "TrainingOptions", "read_result"]

RESULT_FILE = "training.json"


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
        from roformer_zh.training_state import RunState

        self.options, self.objective = options or TrainingOptions(), objective
        self.run_folder = Path(run_folder)
        self.strategy = strategy or open_strategy(self.options)
        self.is_chief = is_chief(self.strategy)
        self.model = self._build(build_model)
        self.train_step, self.evaluation_step = self._steps(optimizer)
        self.state = RunState(self, identity or {})

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
        from roformer_zh.cluster import device_errors_explained
        from roformer_zh.training_loop import Loop

        with device_errors_explained(self.strategy):
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
            write_text(self.run_folder / RESULT_FILE, json.dumps(result, indent=2) + "\n")
            shutil.rmtree(self.state.files.folder, ignore_errors=True)
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
                "build_model must make the model when it is called, so that its variables belong "
                f"to the strategy; these were made before: {', '.join(strangers[:3])}"
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
        from roformer_zh.training_steps import TrainStep

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
        from roformer_zh.training_steps import EvaluationStep

        return EvaluationStep(
            self.strategy, self.model, objective, micro_batch_size=self.options.micro_batch_size
        )

    def report(self, text):
        """Prints a line once, not once a worker."""
        if self.is_chief and self.options.verbose:
            print(text, flush=True)


def read_result(run_folder):
    """What `fit` returned in a run folder that `finish` ended, or None."""
    path = Path(run_folder) / RESULT_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def sum_over(step, batches):
    """Float64 sums of an evaluation step over numpy batches."""
    sums, rows = {}, 0
    for batch in batches:
        rows = max(rows, len(next(iter(batch.values()))))
        result = step(step.distribute(batch, rows))
        add_sums(sums, {name: value.numpy().astype("float64") for name, value in result.items()})
    return sums


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
