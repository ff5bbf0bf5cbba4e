"""Workers find each other before TensorFlow starts, which would wait for a missing one for ever."""

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass

EXAMPLE = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)


@dataclass(frozen=True)
class Cluster:
    """The workers of a run and which of them this process is; worker 0 is the chief."""

    workers: tuple[str, ...]
    index: int

    @property
    def port(self):
        """The port of this worker."""
        return int(self.workers[self.index].rpartition(":")[2])


def read_cluster(text=None):
    """The cluster that TF_CONFIG describes, strictly checked.

    Args:
        text: what TF_CONFIG holds; None reads the environment.

    Raises:
        ValueError: says what must hold and what came.

    Example:
        >>> task = {"type": "worker", "index": 1}
        >>> read_cluster(json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": task}))
        Cluster(workers=('a:1', 'b:1'), index=1)
    """
    text = os.environ.get("TF_CONFIG", "") if text is None else text
    try:
        config = json.loads(text)
        workers, task = config["cluster"]["worker"], config["task"]
        kind, index = task["type"], task["index"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"--strategy multiworker needs TF_CONFIG, such as {EXAMPLE}; got {text!r}"
        ) from error
    _require(
        set(config["cluster"]) == {"worker"}, "have workers only (worker 0 is the chief)", text
    )
    _require(kind == "worker", 'have the task type "worker"', text)
    _require(
        isinstance(workers, list) and workers and all(map(_is_address, workers)),
        "list its workers as host:port",
        text,
    )
    _require(len(set(workers)) == len(workers), "give each worker another host or port", text)
    _require(
        isinstance(index, int) and 0 <= index < len(workers),
        f"have a task index from 0 to {len(workers) - 1}, one for each of its workers",
        text,
    )
    return Cluster(tuple(workers), index)


def meet(cluster, timeout, report=print):
    """Returns when every worker has reached, and was reached by, every other one.

    Args:
        cluster: a `Cluster`.
        timeout: seconds to wait.
        report: called with a line when the wait begins.

    Raises:
        RuntimeError: the port is in use, a worker did not come in time, or the workers' TF_CONFIG
            do not belong together.
    """
    others = {i: address for i, address in enumerate(cluster.workers) if i != cluster.index}
    greeting = {"index": cluster.index, "workers": list(cluster.workers)}
    with _answering(cluster, greeting) as (heard, complaints):
        report(f"worker {cluster.index} waits up to {timeout:g} s for {len(others)} other(s)")
        reached, deadline = set(), time.monotonic() + timeout
        while not (reached >= set(others) and heard >= set(others)):
            for index in set(others) - reached:
                if _greet(others[index], greeting, complaints):
                    reached.add(index)
            if complaints:
                raise RuntimeError(complaints[0])
            if time.monotonic() > deadline:
                missing = sorted(set(others) - (reached & heard))
                raise RuntimeError(_absence(cluster, missing, timeout))
            time.sleep(0.1)


def _require(holds, rule, text):
    """Raises unless `holds`."""
    if not holds:
        raise ValueError(f"TF_CONFIG must {rule}; got {text}")


def _is_address(text):
    """Whether `text` is host:port."""
    host, _, port = str(text).rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 65536


def _listen(cluster):
    """A listening socket on this worker's port."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("", cluster.port))
        server.listen(64)
    except OSError as error:
        server.close()
        raise RuntimeError(
            f"worker {cluster.index} cannot listen on port {cluster.port} ({error.strerror}); "
            "end the process that uses it, or name another port in every worker's TF_CONFIG"
        ) from error
    return server


@contextlib.contextmanager
def _answering(cluster, greeting):
    """Answers greetings inside the block; yields who came, and complaints about them."""
    server, heard, complaints = _listen(cluster), set(), []
    arguments = (server, greeting, heard, complaints)
    thread = threading.Thread(target=_answer, args=arguments, daemon=True)
    thread.start()
    try:
        yield heard, complaints
    finally:
        server.shutdown(socket.SHUT_RDWR)  # a mere close leaves the port to the waiting accept
        thread.join()
        server.close()


def _answer(server, greeting, heard, complaints):
    """Takes greetings until the socket is shut; notes who came."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(5)
            other = _read_greeting(connection)
            connection.sendall(json.dumps(greeting).encode() + b"\n")
            _compare(greeting, other, complaints)
            heard.add(other["index"])


def _greet(address, greeting, complaints):
    """Whether the worker at `address` answered."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(json.dumps(greeting).encode() + b"\n")
            other = _read_greeting(connection)
    except (OSError, ValueError):
        return False
    _compare(greeting, other, complaints)
    return True


def _read_greeting(connection):
    """The greeting that came; ValueError if some other program spoke."""
    other = json.loads(connection.makefile("r").readline())
    if not isinstance(other, dict) or not {"workers", "index"} <= set(other):
        raise ValueError("this is no worker's greeting")
    return other


def _compare(greeting, other, complaints):
    """Notes a complaint if the other worker's TF_CONFIG does not belong with this one's."""
    if other["workers"] != greeting["workers"]:
        complaints.append(
            f"all workers must have the same list of workers in TF_CONFIG; this one has "
            f"{greeting['workers']}, worker {other['index']} has {other['workers']}"
        )
    elif other["index"] == greeting["index"]:
        complaints.append(
            f"two workers have the task index {other['index']}; give each its own in TF_CONFIG"
        )


def _absence(cluster, missing, timeout):
    """The message about workers that did not come."""
    names = ", ".join(f"{index} ({cluster.workers[index]})" for index in missing)
    return (
        f"worker {cluster.index} did not meet worker {names} within {timeout:g} s; start every "
        "worker with the same command and its own task index, and check that the ports are open "
        "between them"
    )
