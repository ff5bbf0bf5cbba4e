"""One call of `Trainer.fit`: the updates, and what happens between them."""

import functools
import math
import sys
import time

import keras

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.training.feed import Feed, prepare_batch
from roformer_zh.training.interrupts import on_sigterm
from roformer_zh.training.log import Reporter, add_sums, means
from roformer_zh.training.options import learning_rate, settings


class Loop:
    """Runs what is left of the phases. Arguments as in `Trainer.fit`."""

    def __init__(self, trainer, phases, selection, callbacks):
        if not phases:
            raise ValueError("fit needs at least one phase; got none")
        self.trainer, self.phases, self.selection = trainer, phases, selection
        self.options = trainer.options
        self.progress = trainer.state.restore(phases)
        self.stopping = self.named_unused = False
        bar = trainer.is_chief and self.options.verbose and sys.stdout.isatty()
        self.callbacks = keras.callbacks.CallbackList(
            list(callbacks), add_progbar=bar, model=trainer.model
        )
        self.reporter = Reporter(trainer, self.progress.update, shows_lines=not bar)

    def run(self):
        """Trains to the end, or until SIGTERM; returns `Trainer.fit`'s answer."""
        progress = self.progress
        self.trainer.model.stop_training = False
        with on_sigterm() as self.asked_to_stop:
            self.callbacks.on_train_begin()
            while not progress.finished and not self.stopping:
                self._run_phase(self.phases[progress.phase])
            self.callbacks.on_train_end()
        if progress.finished and progress.best:
            self.trainer.state.restore_best(progress)
        return {
            "finished": progress.finished,
            "closed": False,
            "updates": progress.update,
            "stages": progress.rows,
            "best": progress.best,
            "traces": self.trainer.train_step.traces,
        }

    def _run_phase(self, phase):
        """The rest of one phase."""
        progress, steps = self.progress, phase.stage.steps
        done = progress.phase
        prepare = functools.partial(prepare_batch, self.trainer, phase)
        with Feed(prepare, range(progress.step, steps)) as self.feed:
            while progress.phase == done and not progress.finished and not self.stopping:
                self._run_epoch(phase)

    def _run_epoch(self, phase):
        """The updates up to the next evaluation, and the evaluation."""
        progress = self.progress
        begin, end = self._epoch_bounds(phase)
        self.callbacks.set_params(dict(verbose=1, epochs=self._epochs(), steps=end - begin))
        self.callbacks.on_epoch_begin(progress.epoch)
        while progress.step < end:
            self._run_chunk(phase, begin, self._next_pause(end))
            self._name_unused()
            if progress.update % self.options.log_every == 0 or progress.step == phase.stage.steps:
                self.reporter.updates(phase.stage, progress)
            if progress.step < end and (self.stopping or self._checkpoint_is_due()):
                self.trainer.state.save(progress, self.phases)
            if self.stopping and progress.step < end:
                return
        self._close_epoch(phase)

    def _epoch_length(self, phase):
        """Updates between two evaluations."""
        if self.selection and self.selection.every and phase.validation:
            return self.selection.every
        return phase.stage.steps

    def _epochs(self):
        """How many epochs all phases have."""
        return sum(-(-phase.stage.steps // self._epoch_length(phase)) for phase in self.phases)

    def _epoch_bounds(self, phase):
        """First step of the epoch in progress, and the step where it ends."""
        every = self._epoch_length(phase)
        begin = self.progress.step // every * every
        return begin, min(begin + every, phase.stage.steps)

    def _next_pause(self, end):
        """The step at which the next line or checkpoint is due, at most `end`."""
        update = self.progress.update
        periods = (self.options.log_every, self.options.checkpoint_every)
        return min(end, *(self.progress.step + every - update % every for every in periods))

    def _checkpoint_is_due(self):
        """Whether this update gets a checkpoint of its own."""
        return self.progress.update % self.options.checkpoint_every == 0

    def _run_chunk(self, phase, begin, until):
        """Updates up to step `until`; each result is read while the next one is computed."""
        started, waited, tokens = time.perf_counter(), self.feed.waited, self.progress.tokens
        pending = None
        for _ in range(until - self.progress.step):
            batch = self.feed.next()
            result = self._dispatch(phase, batch)
            if pending:
                self._settle(phase, begin, *pending)
            pending = batch, result
            if self.stopping:
                break
        self._settle(phase, begin, *pending)
        seconds = time.perf_counter() - started
        self.progress.seconds += seconds
        self.reporter.tick(seconds, self.progress.tokens - tokens, self.feed.waited - waited)

    def _name_unused(self):
        """Says once which trainable variables the loss does not depend on."""
        step = self.trainer.train_step
        if step.unused and not self.named_unused:
            self.named_unused = True
            names = [self.trainer.model.trainable_variables[i].path for i in step.unused]
            self.trainer.report(
                f"the loss does not depend on {len(names)} trainable variables, which stay as they "
                f"are: {', '.join(names[:5])}"
            )

    def _dispatch(self, phase, batch):
        """Starts one update; the tensors it returns may still be computed."""
        update = self.progress.update + batch.step - self.progress.step
        rate = learning_rate(phase.stage, batch.step)
        stop = self.asked_to_stop.is_set()
        return self.trainer.train_step(batch.parts, batch.weight, rate, update, stop)

    def _settle(self, phase, begin, batch, result):
        """Reads the result of one update and counts it."""
        progress = self.progress
        result = tf.nest.map_structure(lambda value: value.numpy().item(), result)
        sums = result["sums"]
        progress.step, progress.update = progress.step + 1, progress.update + 1
        progress.examples += batch.rows
        progress.tokens += batch.tokens
        self.stopping = self.stopping or result["stop"] > 0
        if not result["finite"]:
            return self._skip(phase, batch, result)
        if not math.isclose(sums["weight"], batch.weight, rel_tol=1e-4):
            raise ValueError(
                "the objective's sums must have the weight that its `weight` method gives; for "
                f"batch {batch.step} of stage {phase.stage.name} they are {sums['weight']:g} and "
                f"{batch.weight:g}"
            )
        self._count(phase, sums, result["gradient_norm"])
        logs = {**means(sums), "learning_rate": learning_rate(phase.stage, batch.step)}
        self.callbacks.on_train_batch_begin(batch.step - begin)
        self.callbacks.on_train_batch_end(batch.step - begin, logs)

    def _count(self, phase, sums, norm):
        """Adds one update's sums to the intervals it belongs to."""
        clip_norm = self.trainer.train_step.optimizer.options.clip_norm
        norms = dict(weight=1, gradient_norm=norm, clipped=float(0 < clip_norm < norm))
        totals = self.progress.sums
        in_last_tenth = self.progress.step > 0.9 * phase.stage.steps
        for interval in ["window", "epoch"] + ["last_tenth"] * in_last_tenth:
            add_sums(totals.setdefault(interval, {}), sums)
        add_sums(totals.setdefault("norms", {}), norms)

    def _skip(self, phase, batch, result):
        """An update that no replica applied: a loss scale that was too large, or a fault."""
        loss, norm = result["sums"]["loss"], result["gradient_norm"]
        progress, scale = self.progress, result["loss_scale"]
        where = f"update {progress.update} (batch {batch.step} of stage {phase.stage.name})"
        if self.trainer.train_step.loss_scale.dynamic and math.isfinite(loss) and scale > 1:
            self.trainer.report(f"{where}: gradient overflow, the loss scale {scale:g} is halved")
            return
        progress.skipped += 1
        self.reporter.skipped(phase.stage, progress, batch.step, loss, norm)
        fault = f"{where} is not finite: loss {loss}, gradient norm {norm}; no weight was changed"
        if progress.skipped > self.options.skip_nonfinite:
            raise RuntimeError(f"{fault}; {self.trainer.state.files.newest()}; {HINT}")
        self.trainer.report(f"{fault}; skipped ({progress.skipped} so far)")

    def _close_epoch(self, phase):
        """Evaluates, selects, tells the callbacks, closes the phase if it is done, saves."""
        progress = self.progress
        validation = self._validate(phase)
        improved = self._select(validation)
        epoch = progress.sums.pop("epoch", None)
        self.callbacks.on_epoch_end(
            progress.epoch, {**(means(epoch) if epoch else {}), **validation}
        )
        progress.epoch += 1
        if self.trainer.model.stop_training:
            progress.finished = True
        closed = progress.finished or progress.step == phase.stage.steps
        if closed:
            self._close_phase(phase, validation)
        if closed or improved or self.stopping or self._checkpoint_is_due():
            self.trainer.state.save(progress, self.phases)

    def _validate(self, phase):
        """The held-out metrics, as `val_loss` and so on; empty without held-out batches."""
        if phase.validation is None:
            return {}
        found = self.trainer.evaluate(phase.validation())
        found = {f"val_{name}": float(value) for name, value in found.items()}
        self.reporter.validation(phase.stage, self.progress, found)
        return found

    def _select(self, validation):
        """Notes whether this evaluation is the best; patience may end the fit."""
        if not self.selection or not validation:
            return False
        progress, value = self.progress, validation[f"val_{self.selection.monitor}"]
        if self.selection.improves(value, progress.best and progress.best["value"]):
            progress.best = dict(update=progress.update, value=value, **validation)
            progress.waited = 0
            return True
        progress.waited += 1
        if self.selection.patience and progress.waited >= self.selection.patience:
            progress.finished = True
        return False

    def _close_phase(self, phase, validation):
        """Reports the phase and goes on to the next."""
        progress = self.progress
        last = progress.sums.pop("last_tenth", None)
        totals = dict(updates=progress.update, examples=progress.examples, tokens=progress.tokens)
        row = {**settings(phase.stage), **(means(last) if last else {}), **validation, **totals}
        progress.rows.append({**row, "seconds": progress.seconds})
        progress.phase, progress.step = progress.phase + 1, 0
        progress.finished = progress.finished or progress.phase == len(self.phases)


HINT = "lower the learning rate, or pass --skip-nonfinite N to skip N such batches"
