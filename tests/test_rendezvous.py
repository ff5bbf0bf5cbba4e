"""TF_CONFIG, and workers that find each other or say why not."""

import json
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from roformer_zh.training.cluster import open_strategy
from roformer_zh.training.rendezvous import Cluster, meet, read_cluster


def config(workers=("a:1", "b:1"), index=0, kind="worker", **more):
    """The text of a TF_CONFIG."""
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": {"worker": list(workers), **more}, "task": task})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs TF_CONFIG, such as"),
        ("{", "needs TF_CONFIG, such as"),
        ('{"cluster": {"worker": ["a:1"]}}', "needs TF_CONFIG, such as"),
        (config(index=2), "have a task index from 0 to 1"),
        (config(index=-1), "have a task index from 0 to 1"),
        (config(index="0"), "have a task index from 0 to 1"),
        (config(workers=["a:1", "a:1"]), "give each worker another host or port"),
        (config(workers=["a", "b:1"]), "list its workers as host:port"),
        (config(workers=["a:1", "b:99999"]), "list its workers as host:port"),
        (config(workers=[]), "list its workers as host:port"),
        (config(kind="chief"), 'have the task type "worker"'),
        (config(ps=["c:1"]), "have workers only"),
    ],
)
def test_a_wrong_tf_config_is_an_error_at_once(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=message):
        read_cluster()


def test_tf_config_is_read(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config(index=1))
    assert read_cluster() == Cluster(("a:1", "b:1"), 1)
    assert read_cluster().port == 1


def addresses(count):
    """Addresses on this machine whose ports are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = tuple(f"127.0.0.1:{server.getsockname()[1]}" for server in sockets)
    for server in sockets:
        server.close()
    return found


def meet_all(clusters, timeout=20):
    """What each of several workers raised, or None."""
    raised = [None] * len(clusters)

    def one(number):
        try:
            meet(clusters[number], timeout, report=lambda line: None)
        except RuntimeError as error:
            raised[number] = str(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(clusters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_workers_meet_and_leave_their_ports_free():
    workers = addresses(3)
    assert meet_all([Cluster(workers, index) for index in range(3)]) == [None] * 3
    for address in workers:
        with socket.create_server(("", int(address.rpartition(":")[2]))):
            pass


def test_a_missing_worker_is_named_in_time():
    workers = addresses(3)
    raised = meet_all([Cluster(workers, index) for index in (0, 2)], timeout=1)
    assert all(f"worker 1 ({workers[1]}) within 1 s" in message for message in raised)


def test_a_port_in_use_is_named():
    workers = addresses(2)
    port = int(workers[1].rpartition(":")[2])
    in_use = pytest.raises(RuntimeError, match=f"worker 1 cannot listen on port {port}")
    with socket.create_server(("", port)), in_use:
        meet(Cluster(workers, 1), timeout=1)


def test_workers_of_different_clusters_complain():
    workers = addresses(3)
    clusters = [Cluster(workers[:2], 0), Cluster((workers[0], workers[1], workers[2]), 1)]
    raised = meet_all(clusters, timeout=2)
    assert any("must have the same list of workers" in message for message in raised)


def test_two_workers_with_one_index_complain():
    workers = addresses(2)
    swapped = (workers[1], workers[0])
    raised = meet_all([Cluster(workers, 0), Cluster(swapped, 0)], timeout=2)
    assert any("same list of workers" in message for message in raised)


def test_noise_on_the_port_does_no_harm():
    workers = addresses(2)

    def noise():
        for number in range(20):
            words = (b"GET / HTTP/1.0\r\n\r\n", b"[1]\n", b'{"a": 1}\n', b"\xff\n")[number % 4]
            try:
                with socket.create_connection(("127.0.0.1", int(workers[0][10:])), 1) as other:
                    other.sendall(words)
            except OSError:
                pass

    thread = threading.Thread(target=noise)
    thread.start()
    assert meet_all([Cluster(workers, index) for index in range(2)]) == [None, None]
    thread.join()


@pytest.mark.parametrize("answer", [b"[1]\n", b"3\n", b'{"a": 1}\n', b"HTTP/1.1 400\r\n", b"\n"])
def test_another_program_on_a_worker_s_port_is_a_missing_worker(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        workers = (*addresses(1), f"127.0.0.1:{server.getsockname()[1]}")

        def speak():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer)

        threading.Thread(target=speak, daemon=True).start()
        (message,) = meet_all([Cluster(workers, 0)], timeout=1)
    assert f"worker 1 ({workers[1]}) within 1 s" in message


def test_time_limit_ends_a_call_that_never_returns():
    code = (
        "from roformer_zh.training.interrupts import time_limit\n"
        "import threading\n"
        "with time_limit(0.2, 'the others did not come'): threading.Lock().acquire() or input()\n"
        "with time_limit(0.2, 'the others did not come'): threading.Event().wait()\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], input="\n", capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1
    assert process.stderr == "error: the others did not come\n"


def options(**fields):
    """What `open_strategy` reads of the options."""
    return SimpleNamespace(**{"strategy": "one", "devices": (), "verbose": False, **fields})


def test_devices_that_do_not_exist_are_named():
    with pytest.raises(ValueError, match=r"needs GPUs, or devices among .*got GPU:7"):
        open_strategy(options(strategy="mirrored", devices=("GPU:7",)))
    with pytest.raises(ValueError, match="goes with --strategy mirrored only"):
        open_strategy(options(devices=("GPU:0",)))


def test_devices_that_come_too_late_are_an_error():
    import tensorflow as tf

    tf.constant(1.0)
    with pytest.raises((RuntimeError, ValueError), match=r"first operation|devices among"):
        open_strategy(options(strategy="mirrored", devices=("CPU:0", "CPU:63")))


def test_gpu_memory_grows_and_gpu_kernels_repeat(monkeypatch):
    import tensorflow as tf

    done = []
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: ["gpu 0"] if kind == "GPU" else []
    )
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", lambda gpu: False)
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda gpu, on: done.append((gpu, on))
    )
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: done.append("deterministic")
    )
    open_strategy(options())
    assert sorted(done, key=str) == [("gpu 0", True), "deterministic"]
