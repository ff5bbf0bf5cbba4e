"""What a training run is asked to do, and how far it is: plain data."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How to run: only seed and dtype policy change what is computed."""

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

    def __post_init__(self):
        for name in ("micro_batch_size", "checkpoint_every", "keep_checkpoints", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        if self.skip_nonfinite < 0 or self.startup_timeout <= 0:
            raise ValueError(
                "skip_nonfinite must be at least 0 and startup_timeout above 0; got "
                f"{self.skip_nonfinite} and {self.startup_timeout:g}"
            )


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """AdamW; the same in every stage."""

    beta_1: float = 0.9
    """Decay rate of the first moment."""
    beta_2: float = 0.999
    """Decay rate of the second moment."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    weight_decay: float = 0.01
    """Decoupled decay of kernels and tables: an update takes learning rate x this x weight."""
    clip_norm: float = 1.0
    """Largest global norm of the summed gradient; 0 = no clipping."""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training with one stage's settings; a stage of pretraining, or a fine-tuning."""

    stage: Any
    """Has name, steps, batch_size, learning_rate, warmup_steps and schedule, as `batches.Stage`."""
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
        """Whether `value` is better than `best`; None is worse than any finite value."""
        if not math.isfinite(value):
            return False
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


def settings(stage):
    """A stage as a JSON-able dict."""
    return dataclasses.asdict(stage) if dataclasses.is_dataclass(stage) else dict(vars(stage))


def learning_rate(stage, step):
    """The learning rate of update `step` (from 0) of a stage.

    Linear warm-up over `warmup_steps`, then constant, or linear to 0 at the stage's end.

    Example:
        >>> import types
        >>> stage = types.SimpleNamespace(
        ...     steps=6, learning_rate=1.0, warmup_steps=2, schedule="linear")
        >>> [learning_rate(stage, step) for step in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < stage.warmup_steps:
        return stage.learning_rate * (step + 1) / stage.warmup_steps
    if stage.schedule == "constant":
        return stage.learning_rate
    if stage.schedule == "linear":
        left = (stage.steps - step) / (stage.steps - stage.warmup_steps)
        return stage.learning_rate * left
    raise ValueError(f"schedule must be constant or linear; got {stage.schedule!r}")
