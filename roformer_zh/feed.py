"""Batches prepared in the background, so that the device does not wait for the host."""

import queue
import threading
import time


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
