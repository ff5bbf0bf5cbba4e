"""Batches prepared in the background, so that the device does not wait for the host."""

import dataclasses
import queue
import threading
import time
from typing import Any


class Feed:
    """Calls `prepare(step)` for each step in order, in a thread that runs a little ahead.

    Args:
        prepare: function of a step; what it raises is raised by `next`.
        steps: the steps, in order.
        ahead: how many answers wait at most.

    Example:
        >>> with Feed(lambda step: step * step, range(3)) as feed:
        ...     [feed.next() for _ in range(3)]
        [0, 1, 4]
    """

    def __init__(self, prepare, steps, ahead=2):
        self.waited = 0.0
        self._queue = queue.Queue(ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(prepare, steps), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._thread.join()

    def next(self):
        """The next answer; `waited` grows by the seconds it took to come."""
        started = time.perf_counter()
        answer, error = self._queue.get()
        self.waited += time.perf_counter() - started
        if error is not None:
            raise error
        return answer

    def _work(self, prepare, steps):
        """Fills the queue until the steps end, one fails or the feed is closed."""
        for step in steps:
            try:
                item = prepare(step), None
            except Exception as error:
                item = None, error
            while not self._closed.is_set():
                try:
                    self._queue.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._closed.is_set() or item[1] is not None:
                return


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A global batch on the devices, and what the host knows of it."""

    step: int
    parts: Any
    weight: float
    rows: int
    tokens: int


def prepare_batch(trainer, phase, step):
    """Makes the global batch of one step and puts it onto the devices, as `Prepared`."""
    batch = phase.batches.batch(step)
    weight, rows = trainer.objective.weight(batch), len(next(iter(batch.values())))
    if not weight > 0:
        raise ValueError(
            f"a batch must weigh more than 0; batch {step} of stage {phase.stage.name} "
            f"({rows} rows) weighs {weight:g}: nothing in it counts"
        )
    parts = trainer.train_step.distribute(batch, phase.stage.batch_size)
    return Prepared(step, parts, weight, rows, real_tokens(batch))


def real_tokens(batch):
    """Tokens of a numpy batch without padding; its rows if it has no padding mask.

    Example:
        >>> import numpy as np
        >>> real_tokens({"padding_mask": np.array([[True, True], [True, False]])})
        3
    """
    masks = [array for name, array in batch.items() if name.endswith("padding_mask")]
    return int(sum(mask.sum() for mask in masks)) if masks else len(next(iter(batch.values())))
