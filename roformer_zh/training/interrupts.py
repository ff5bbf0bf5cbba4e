"""SIGTERM as a wish that the loop grants, and an end for calls that nothing interrupts."""

import contextlib
import os
import signal
import sys
import threading


@contextlib.contextmanager
def on_sigterm():
    """Yields an event that SIGTERM sets instead of ending the process.

    Outside the main thread, where Python takes no signals, the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def time_limit(seconds, message):
    """Ends the process with `message` if the block takes longer, even inside an endless call."""

    def end():
        print(f"error: {message}", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
