"""What the timed comparisons share: processes that take turns, matmul peak, peak memory, versions.

A worker is a process that makes something ready, then does so many steps of it whenever it is
asked. Workers take turns (A B A B), so that what else the machine does falls on all alike, and one
that waits uses no processor. This file needs nothing but Python and NumPy: a peer's interpreter
reads it too.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
MATMUL_SIZES = (512, 1024, 2048)
"""Widths of the square float32 products whose best rate is called the matmul peak."""


class Worker:
    """A process that `serve`s steps.

    Args:
        command: the program and its arguments; it runs in the checkout's folder.
        threads: processor threads it may use.

    Raises:
        RuntimeError: it ended by itself; the end of its error output is named.
    """

    def __init__(self, command, threads=2):
        count = str(threads)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": count,
            "TF_NUM_INTRAOP_THREADS": count,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self.seconds = []
        self._process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.facts = self._answer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def run(self, steps):
        """Does so many steps; their seconds are added to `seconds` and returned."""
        new = self._ask({"steps": steps})["seconds"]
        self.seconds += new
        return new

    def matmul_peak(self):
        """FLOP/s of the best square product, measured now in that process."""
        return self._ask({"matmul": True})["peak"]

    @property
    def median(self):
        """Median seconds of a step."""
        return statistics.median(self.seconds)

    def close(self):
        """Ends the process; returns its peak memory in bytes."""
        peak = self._ask({"close": True})["peak_memory"]
        self._process.communicate()
        return peak

    def _ask(self, question):
        """Sends one line, reads one."""
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `_answer` says why it ended
        return self._answer()

    def _answer(self):
        """The next answer; other output of the process is passed over."""
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        _, errors = self._process.communicate()
        lines = " ".join(errors.strip().splitlines()[-3:])
        raise RuntimeError(f"{' '.join(self._process.args[:3])} ended by itself: {lines}")


def serve(step, matmul, **facts):
    """Answers a `Worker` until it closes: the other end of it.

    Args:
        step: function of nothing that does one step and waits for its end.
        matmul: function of a width that makes a function of nothing: one square product.
        **facts: what the worker is told once everything is ready.
    """
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if "steps" in question:
            answer = {"seconds": [timed(step) for _ in range(question["steps"])]}
        elif "matmul" in question:
            answer = {"peak": best_rate(matmul)}
        else:
            answer = {"peak_memory": peak_memory()}
        print(json.dumps(answer), flush=True)
        if "close" in question:
            return


def timed(function):
    """Seconds of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def best_rate(matmul, sizes=MATMUL_SIZES, seconds=0.4):
    """FLOP/s of the fastest call over all sizes."""
    best = 0.0
    for size in sizes:
        product = matmul(size)
        product()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            best = max(best, 2 * size**3 / timed(product))
    return best


def take_turns(workers, rounds, steps):
    """Each worker does `steps` steps, one after the other, `rounds` times."""
    for _ in range(rounds):
        for worker in workers:
            worker.run(steps)


def peak_memory():
    """The largest resident size of this process so far, in bytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def versions(*packages):
    """One line: Python, processors, and the packages' versions where they are installed."""
    found = [f"Python {platform.python_version()}", f"{os.cpu_count()} processors"]
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)
