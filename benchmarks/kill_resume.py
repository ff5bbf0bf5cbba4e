"""Kills a pretraining at random moments and compares what comes out with an undisturbed run."""

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from roformer_zh.command import run_command

TIMES = ("tokens_per_second", "input_wait", "memory_gb")


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Kill a pretraining with SIGKILL, start it again, and compare with an undisturbed run.

    Each kill falls after one to three new checkpoints, every third one while the next is being
    written. Every start is a new process with another PYTHONHASHSEED. With --workers 2 one of two
    workers is killed; the other has to end by itself with an error.
    """

    data: str
    """Prepared corpus."""
    stages: str
    """JSON file of stages."""
    output: str
    """New folder for the two runs."""
    model: str = "roformer_tiny"
    """Preset."""
    kills: int = 20
    """Kills."""
    workers: int = 1
    """Worker processes."""
    checkpoint_every: int = 2
    """Updates between checkpoints."""
    longest_wait: float = 1.0
    """Seconds after the last of these checkpoints within which a kill falls."""
    seed: int = 0
    """Of the moments."""
    validation: str | None = None
    """Prepared held-out corpus."""
    validation_rows: int = 8
    """Held-out rows to evaluate on after each stage."""


def main(args):
    """Runs both and prints the comparison; returns it."""
    output = Path(args.output)
    start(args, output / "straight").wait()
    killed, ended = kill_often(args, output / "killed")
    difference = compare(output / "straight", output / "killed")
    found = dict(kills=len(killed), killed_after=killed, others_ended_after=ended, **difference)
    print(json.dumps(found, indent=2))
    if difference["weights"] or difference["metrics"]:
        raise RuntimeError("the killed run differs from the undisturbed one")
    return found


class Workers:
    """The processes of one start of the command."""

    def __init__(self, commands):
        self.processes = [
            subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
            for command, environment, log in commands
        ]

    def wait(self):
        """Waits for the end; raises if a process failed."""
        codes = [process.wait() for process in self.processes]
        if any(codes):
            raise RuntimeError(
                f"pretrain.run must end well; exit codes {codes}: see the .log files"
            )

    def kill(self, index):
        """Kills one process; returns how many seconds the others took to end by themselves."""
        self.processes[index].send_signal(signal.SIGKILL)
        self.processes[index].wait()
        started = time.monotonic()
        others = [p for number, p in enumerate(self.processes) if number != index]
        codes = [process.wait(timeout=120) for process in others]
        if not all(codes):
            raise RuntimeError(f"a worker must fail when another is killed; exit codes {codes}")
        return time.monotonic() - started

    def running(self):
        """Whether all processes run."""
        return all(process.poll() is None for process in self.processes)


def start(args, folder):
    """Starts the command on a run folder, in new processes with new hash seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pretrain.run", "--data", args.data, "--stages", args.stages]
    command += ["--model", args.model, "--output", str(folder)]
    command += ["--checkpoint-every", str(args.checkpoint_every)]
    command += ["--validation-rows", str(args.validation_rows)]
    command += ["--validation", args.validation] if args.validation else []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    addresses = [f"127.0.0.1:{port}" for port in free_ports(args.workers)]
    if args.workers > 1:
        command += ["--strategy", "multiworker"]
    commands = []
    for index in range(args.workers):
        task = {"type": "worker", "index": index}
        changes = {"PYTHONHASHSEED": str(random.randrange(1, 10**6))}
        if args.workers > 1:
            changes["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        log = open(folder.parent / f"{folder.name}-{index}.log", "a")  # noqa: SIM115
        commands.append((command, {**environment, **changes}, log))
    return Workers(commands)


def free_ports(count):
    """Ports that nothing uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def kill_often(args, folder):
    """Kills and restarts, then lets the run end; returns updates and times of the kills."""
    moments, killed, ended = random.Random(args.seed), [], []
    for number in range(args.kills):
        workers = start(args, folder)
        while_writing = number % 3 == 1
        moment = wait_for_moment(args, workers, folder, moments, while_writing)
        if not workers.running():
            raise RuntimeError(
                f"the run ended before kill {number + 1}; give it more updates or fewer kills"
            )
        ended.append(round(workers.kill(moments.randrange(args.workers)), 1))
        killed.append(moment)
        print(f"kill {number + 1} of {args.kills}: {moment}", flush=True)
    start(args, folder).wait()
    return killed, ended[: args.kills if args.workers > 1 else 0]


def wait_for_moment(args, workers, folder, moments, while_writing):
    """Returns, when it has come, a few words about the moment of the next kill."""
    checkpoints = folder / "checkpoints"
    wanted = newest(checkpoints) + args.checkpoint_every * moments.randint(0, 2) + 1
    while newest(checkpoints) < wanted and workers.running():
        time.sleep(0.01)
    if not while_writing:
        time.sleep(moments.uniform(0, args.longest_wait))
        return f"after checkpoint {newest(checkpoints)}"
    while not list(checkpoints.glob(".update-*")) and workers.running():
        time.sleep(0.0005)
    return f"while the checkpoint after {newest(checkpoints)} was written"


def newest(checkpoints):
    """The update of the newest checkpoint; 0 if there is none."""
    return max((int(path.stem[-9:]) for path in checkpoints.glob("update-*.npz")), default=0)


def compare(folder, other):
    """Numbers of weights and lines of metrics.jsonl in which two runs differ."""
    return {"weights": different_weights(folder, other), "metrics": different_lines(folder, other)}


def different_weights(folder, other):
    """How many numbers of two models are not equal to the bit."""
    from roformer_zh import load_model

    pairs = zip(load_model(folder).get_weights(), load_model(other).get_weights(), strict=True)
    return sum(int(np.sum(a.view("uint32") != b.view("uint32"))) for a, b in pairs)


def different_lines(folder, other):
    """How many lines of two metrics.jsonl differ in more than times."""

    def lines(path):
        rows = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
        return [{key: row[key] for key in row if key not in TIMES} for row in rows]

    first, second = lines(folder), lines(other)
    return abs(len(first) - len(second)) + sum(a != b for a, b in zip(first, second, strict=False))


if __name__ == "__main__":
    run_command(main, Arguments)
