"""The trainer: what owns the model, the step and the state of a run."""

import contextlib
from pathlib import Path

from roformer_zh.training.log import means
from roformer_zh.training.options import OptimizerOptions, TrainingOptions


class Trainer:
    """Trains a model over phases; see `roformer_zh.training` for the parts it takes.

    Args:
        build_model: function that makes the model.
        objective: what is minimised.
        run_folder: gets `metrics.jsonl`, `checkpoints/` and, at the end, `training.json`.
        options: `TrainingOptions`.
        optimizer: `OptimizerOptions`.
        identity: JSON-able dict of what else a resumed run must share: vocabulary, configuration.
        strategy: a tf.distribute.Strategy to use instead of the one that `options` names.
        rate_scales: function of the model that gives a factor on the learning rate for each
            trainable variable; None = 1. Name what it depends on in `identity`.

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
        rate_scales=None,
    ):
        from roformer_zh.training.cluster import is_chief, open_strategy
        from roformer_zh.training.state import RunState

        require_tensorflow()
        self.options, self.objective = options or TrainingOptions(), objective
        self.run_folder = Path(run_folder)
        self.strategy = strategy or open_strategy(self.options)
        self.is_chief = is_chief(self.strategy)
        self.model = self._build(build_model)
        self.train_step, self.evaluation_step = self._steps(optimizer, rate_scales)
        self.state = RunState(self, identity or {})

    def fit(self, phases, selection=None, callbacks=()):
        """Trains over the phases, or over what is left of them if a checkpoint exists.

        Args:
            phases: list of `Phase`.
            selection: `Selection`; None keeps the last weights.
            callbacks: Keras callbacks that need only logs; an epoch is what lies between two
                evaluations. A checkpoint does not hold their state: for early stopping that
                survives an interruption use the selection's patience.

        Returns:
            dict: `finished` (False after SIGTERM), `updates`, `stages` (a dict a finished phase),
            `best`, `traces` and `closed`. `model` then holds the last weights, or the best ones;
            but if `closed` is true, `finish` had ended the run before, and the run folder does.

        Raises:
            ValueError: a checkpoint belongs to another run; the difference is named.
            RuntimeError: a loss or gradient is not finite, more than `skip_nonfinite` times.
        """
        from roformer_zh.training.cluster import device_errors_explained
        from roformer_zh.training.loop import Loop

        phases = list(phases)
        with self.state.alone(), device_errors_explained(self.strategy):
            closed = self.state.closed_result(phases)
            if closed:
                updates = closed["updates"]
                self.report(f"{self.run_folder} is finished: {updates} updates, none left")
                return {**closed, "closed": True}
            return Loop(self, phases, selection, callbacks).run()

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
        return step.sums(batches)

    def finish(self, result):
        """Ends a finished run: notes the result in `training.json`, removes the checkpoints.

        Call it in every worker when the chief has saved the model; all wait here for the chief.
        Does nothing to a run that was stopped early.
        """
        from roformer_zh.training.cluster import barrier

        if result["finished"]:
            self.state.close(result)
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
        if model.dtype_policy.name != self.options.dtype_policy:
            raise ValueError(
                f"build_model must make a model of the dtype policy {self.options.dtype_policy}; "
                f"got {model.dtype_policy.name}: load it with load_model(..., dtype=...)"
            )
        if len(model.variables) != len(model.weights):
            raise ValueError(
                f"{model.name} keeps random state, which a resumed run would not repeat; use "
                "roformer_zh.dropout.Dropout instead of Keras' random layers"
            )
        if self.options.recompute:
            model.encoder.recompute = True  # every head has an encoder
        return model

    def _steps(self, optimizer, rate_scales):
        """The training and evaluation step with the optimizer's variables."""
        from roformer_zh.training.optimizer import (
            AdamW,
            LossScale,
            decay_summary,
            decayed_variables,
        )
        from roformer_zh.training.steps import TrainStep

        optimizer = optimizer or OptimizerOptions()
        decayed = decayed_variables(self.model)
        self.report(decay_summary(self.model, decayed, optimizer.weight_decay))
        with self.strategy.scope():
            scales = rate_scales and rate_scales(self.model)
            adamw = AdamW(self.model.trainable_variables, decayed, optimizer, scales)
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
        from roformer_zh.training.steps import EvaluationStep

        return EvaluationStep(
            self.strategy, self.model, objective, micro_batch_size=self.options.micro_batch_size
        )

    def report(self, text):
        """Prints a line once, not once a worker."""
        if self.is_chief and self.options.verbose:
            print(text, flush=True)


def require_tensorflow():
    """Raises unless Keras runs on TensorFlow."""
    import keras

    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"training needs Keras on TensorFlow; it runs on {keras.backend.backend()}: set "
            "KERAS_BACKEND=tensorflow (a trained model loads on every backend)"
        )


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
