"""Two worker processes over loopback: the same weights, and what happens when one goes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.distribute_worker import train

ROOT = Path(__file__).parent.parent


def free_ports(count):
    """Ports that nothing uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def start(folder, **settings):
    """Two workers that train on one folder."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": workers}, "task": task})
        outputs = dict(output=str(folder / f"worker{index}.npz"), run_folder=str(folder / "run"))
        arguments = json.dumps({"strategy": "multiworker", **outputs, **settings})
        with open(folder / f"worker{index}.log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.distribute_worker", arguments],
                env={**os.environ, "TF_CONFIG": config},
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
            )
        processes.append(process)
    return processes


def ends(processes, folder, seconds=180):
    """The exit codes; prints what the workers said if one failed."""
    try:
        codes = [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        for log in sorted(folder.glob("*.log")):
            print(log.name, log.read_text()[-3000:])
    return codes


def one_device(folder, **settings):
    """The weights of one device."""
    trainer, _ = train(dict(run_folder=folder, **settings))
    return trainer.model.get_weights()


def weights_of(path, size=None):
    """What a worker wrote."""
    with np.load(path) as file:
        return [file[name] for name in sorted(file.files) if name.startswith(f"{size}/")]


@pytest.mark.slow
def test_two_workers_give_the_weights_of_one_device(tmp_path):
    sizes = [None, 2, 1]  # rows a micro-batch: accumulation 1, 2 and 4
    processes = start(tmp_path, batch_size=7, micro_batch_sizes=sizes)
    expected = one_device(tmp_path / "one", batch_size=7)
    assert ends(processes, tmp_path) == [0, 0]
    for size, accumulation in zip(sizes, (1, 2, 4), strict=True):
        both = [weights_of(tmp_path / f"worker{index}.npz", size) for index in range(2)]
        pairs = zip(expected, *both, strict=True)
        assert all(np.array_equal(first, second) for _, first, second in pairs)
        difference = max(np.abs(a - b).max() for a, b in zip(expected, both[0], strict=True))
        print(f"2 workers, accumulation {accumulation}: largest difference {difference:.1e}")
        assert difference <= 1e-6
        checkpoints = sorted((tmp_path / "run" / str(size) / "checkpoints").iterdir())
        assert [path.name for path in checkpoints] == ["update-000000020.npz"]


@pytest.mark.slow
def test_losing_a_worker_ends_the_other_and_the_same_command_continues(tmp_path):
    settings = dict(batch_size=7, steps=60, pause=0.1, checkpoint_every=5, validation=False)
    folder = tmp_path / "run" / "None" / "checkpoints"

    def checkpoint_after(update):
        deadline = time.monotonic() + 120
        while not any(int(path.stem[-9:]) > update for path in folder.glob("update-*.npz")):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    processes = start(tmp_path, **settings)
    checkpoint_after(0)
    processes[1].kill()
    started = time.monotonic()
    assert processes[0].wait(60) == 1
    print(f"the other worker ended after {time.monotonic() - started:.1f} s")
    assert "error: another worker was lost" in (tmp_path / "worker0.log").read_text()

    processes = start(tmp_path, **settings)
    checkpoint_after(15)
    processes[1].send_signal(signal.SIGTERM)
    assert ends(processes, tmp_path) == [0, 0]
    assert "continuing" in (tmp_path / "worker0.log").read_text()

    processes = start(tmp_path, **settings)
    expected = one_device(tmp_path / "one", batch_size=7, steps=60, validation=False)
    assert ends(processes, tmp_path) == [0, 0]
    for index in range(2):
        weights = weights_of(tmp_path / f"worker{index}.npz")
        assert max(np.abs(a - b).max() for a, b in zip(expected, weights, strict=True)) <= 1e-6
    lines = (tmp_path / "run" / "None" / "metrics.jsonl").read_text().splitlines()
    updates = [json.loads(line)["update"] for line in lines if '"train"' in line]
    assert updates == list(range(5, 61, 5))
