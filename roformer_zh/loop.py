"""One call of `Trainer.fit`: the updates, and what happens between them."""

import contextlib
import dataclasses
import math
import signal
import sys
import threading
import time
from typing import Any

import keras
import tensorflow as tf

from roformer_zh.feed import Feed
from roformer_zh.optimizer import learning_rate
from roformer_zh.train_log import MetricsLog, add_sums, means, memory_gb, progress_line


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A batch on the devices, and what the host knows of it."""

    step: int
    parts: Any
    weight: float
    rows: int
    tokens: int


class Loop:
    """Runs what is left of the phases. Arguments as in `Trainer.fit`."""

    def __init__(self, trainer, phases, selection, callbacks):
        self.trainer, self.phases, self.selection = trainer, phases, selection
        self.options = trainer.options
        self.progress = trainer.restore(phases)
        self.log = MetricsLog(trainer.run_folder / "metrics.jsonl", writes=trainer.is_chief)
        self.log.rewind(self.progress.update)
        self.stopping = False
        self.clock = dict(seconds=0.0, tokens=0, waited=0.0)
        bar = trainer.is_chief and self.options.verbose and sys.stdout.isatty()
        self.callbacks = keras.callbacks.CallbackList(
            list(callbacks), add_progbar=bar, model=trainer.model
        )
        self.shows_lines = self.options.verbose and not bar

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
            self.trainer.restore_best(progress)
        return {
            "finished": progress.finished,
            "updates": progress.update,
            "stages": progress.rows,
            "best": progress.best,
            "traces": self.trainer.train_step.traces,
        }

    def _run_phase(self, phase):
        """The rest of one phase."""
        progress, steps = self.progress, phase.stage.steps
        done = progress.phase
        with Feed(
            lambda step: self._prepare(phase, step), range(progress.step, steps)
        ) as self.feed:
            while progress.phase == done and not progress.finished and not self.stopping:
                self._run_epoch(phase)

    def _prepare(self, phase, step):
        """Makes one global batch and puts it onto the devices; runs in the feed's thread."""
        batch = phase.batches.batch(step)
        weight = self.trainer.objective.weight(batch)
        rows = len(next(iter(batch.values())))
        if not weight > 0:
            raise ValueError(
                f"a batch must weigh more than 0; batch {step} of stage {phase.stage.name} ({rows} rows) "
                f"weighs {weight}: nothing in it counts"
            )
        parts = self.trainer.train_step.distribute(batch, phase.stage.batch_size)
        return Prepared(step, parts, weight, rows, real_tokens(batch))

    def _run_epoch(self, phase):
        """The updates up to the next evaluation, and the evaluation."""
        progress = self.progress
        begin, end = self._epoch_bounds(phase)
        self.callbacks.set_params(dict(verbose=1, epochs=len(self.phases), steps=end - begin))
        self.callbacks.on_epoch_begin(progress.epoch)
        while progress.step < end:
            self._run_chunk(phase, begin, self._next_pause(end))
            if progress.update % self.options.log_every == 0 or progress.step == phase.stage.steps:
                self._log(phase)
            if progress.step < end and (self.stopping or self._checkpoint_is_due()):
                self.trainer.save_checkpoint(progress, self.phases)
            if self.stopping and progress.step < end:
                return
        self._close_epoch(phase)

    def _epoch_bounds(self, phase):
        """First step of the epoch in progress, and the step where it ends."""
        every = phase.stage.steps
        if self.selection and self.selection.every and phase.validation:
            every = self.selection.every
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
        new = dict(
            seconds=seconds, tokens=self.progress.tokens - tokens, waited=self.feed.waited - waited
        )
        add_sums(self.clock, new)

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
        progress.examples, progress.tokens = (
            progress.examples + batch.rows,
            progress.tokens + batch.tokens,
        )
        self.stopping = self.stopping or result["stop"] > 0
        if not result["finite"]:
            return self._skip(phase, batch, result)
        if not math.isclose(sums["weight"], batch.weight, rel_tol=1e-4):
            raise ValueError(
                f"the objective must give the weight that its `weight` method gives; batch {batch.step} of stage "
                f"{phase.stage.name} has {batch.weight}, its parts add up to {sums['weight']}"
            )
        self._count(phase, sums, result["gradient_norm"])
        self.last = dict(loss_scale=result["loss_scale"])
        logs = {**means(sums), "learning_rate": learning_rate(phase.stage, batch.step)}
        self.callbacks.on_train_batch_begin(batch.step - begin)
        self.callbacks.on_train_batch_end(batch.step - begin, logs)

    def _count(self, phase, sums, norm):
        """Adds one update's sums to the intervals it belongs to."""
        clip_norm = self.trainer.train_step.optimizer.options.clip_norm
        norms = dict(weight=1, gradient_norm=norm, clipped=float(0 < clip_norm < norm))
        totals = self.progress.sums
        intervals = ["window", "epoch"]
        if self.progress.step > 0.9 * phase.stage.steps:
            intervals.append("last_tenth")
        for interval in intervals:
            add_sums(totals.setdefault(interval, {}), sums)
        add_sums(totals.setdefault("norms", {}), norms)

    def _skip(self, phase, batch, result):
        """An update that no replica applied: a loss scale that was too large, or a fault."""
        loss, norm = result["sums"]["loss"], result["gradient_norm"]
        where = f"update {self.progress.update} (stage {phase.stage.name}, batch {batch.step})"
        loss_scale = self.trainer.train_step.loss_scale
        if loss_scale.dynamic and math.isfinite(loss) and result["loss_scale"] > 1:
            scale = result["loss_scale"]
            return self.trainer.report(
                f"{where}: gradient overflow; loss scale {scale:g} is halved"
            )
        self.progress.skipped += 1
        line = dict(
            kind="skipped",
            stage=phase.stage.name,
            update=self.progress.update,
            batch=batch.step,
            loss=str(loss),
            gradient_norm=str(norm),
        )
        self.log.append(**line)
        fault = (
            f"loss {loss} or gradient norm {norm} is not finite at {where}; no weight was changed"
        )
        if self.progress.skipped > self.options.skip_nonfinite:
            raise RuntimeError(f"{fault}; {self._last_checkpoint()}; {HINT}")
        self.trainer.report(f"{fault}; skipped ({self.progress.skipped} so far)")

    def _last_checkpoint(self):
        """Where the newest checkpoint lies, in words."""
        checkpoints = self.trainer.checkpoints
        newest = max(checkpoints.updates(), default=None)
        return "no checkpoint yet" if newest is None else f"last good: {checkpoints.path(newest)}"

    def _log(self, phase):
        """One line of metrics.jsonl about the updates since the last one."""
        progress, clock, totals = self.progress, self.clock, self.progress.sums
        window, norms = totals.pop("window", {}), totals.pop("norms", {})
        line = dict(
            kind="train",
            stage=phase.stage.name,
            update=progress.update,
            step=progress.step,
            learning_rate=learning_rate(phase.stage, progress.step - 1),
            **(means(window) if window else {}),
            **(means(norms) if norms else {}),
            **self.last,
            tokens_per_second=clock["tokens"] / max(clock["seconds"], 1e-9),
            input_wait=clock["waited"] / max(clock["seconds"], 1e-9),
            examples=progress.examples,
            memory_gb=memory_gb(),
        )
        self.clock = dict(seconds=0.0, tokens=0, waited=0.0)
        self.log.append(**line)
        if self.shows_lines:
            self.trainer.report(progress_line(line, phase.stage.steps))

    def _close_epoch(self, phase):
        """Evaluates, selects, tells the callbacks, closes the phase if it is done, saves."""
        progress = self.progress
        validation = self._validate(phase)
        improved = self._select(validation)
        self.callbacks.on_epoch_end(
            progress.epoch, {**means(progress.sums.pop("epoch")), **validation}
        )
        progress.epoch += 1
        if self.trainer.model.stop_training:
            progress.finished = True
        closed = progress.finished or progress.step == phase.stage.steps
        if closed:
            self._close_phase(phase, validation)
        if closed or improved or self.stopping or self._checkpoint_is_due():
            self.trainer.save_checkpoint(progress, self.phases)

    def _validate(self, phase):
        """The held-out metrics, as `val_loss` and so on; empty without held-out batches."""
        if phase.validation is None:
            return {}
        found = self.trainer.evaluate(phase.validation())
        found = {f"val_{name}": float(value) for name, value in found.items()}
        self.log.append(
            kind="validation",
            stage=phase.stage.name,
            update=self.progress.update,
            step=self.progress.step,
            **found,
        )
        if self.shows_lines:
            words = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
            self.trainer.report(f"{phase.stage.name} after update {self.progress.update}: {words}")
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
        from roformer_zh.training import settings

        progress = self.progress
        row = {**settings(phase.stage), **means(progress.sums.pop("last_tenth", {"weight": 1}))}
        totals = dict(
            updates=progress.update,
            examples=progress.examples,
            tokens=progress.tokens,
            seconds=progress.seconds,
        )
        progress.rows.append({**row, **validation, **totals})
        progress.phase, progress.step, progress.epoch = progress.phase + 1, 0, progress.epoch
        progress.finished = progress.finished or progress.phase == len(self.phases)


HINT = "lower the learning rate, or pass --skip-nonfinite N to skip N such batches"


def real_tokens(batch):
    """Tokens of a numpy batch without padding; its rows if it has no padding mask."""
    masks = [array for name, array in batch.items() if name.endswith("padding_mask")]
    return int(sum(mask.sum() for mask in masks)) if masks else len(next(iter(batch.values())))


@contextlib.contextmanager
def on_sigterm():
    """Yields an event that SIGTERM sets instead of ending the process."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)
