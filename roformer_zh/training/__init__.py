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

from roformer_zh.training.options import OptimizerOptions, Phase, Selection, TrainingOptions
from roformer_zh.training.trainer import Trainer

__all__ = ["OptimizerOptions", "Phase", "Selection", "Trainer", "TrainingOptions"]
