"""Devices and worker processes: opens the tf.distribute strategy that the options name."""

import contextlib
import functools
import json
import os

import numpy as np

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.training.interrupts import time_limit
from roformer_zh.training.rendezvous import meet, read_cluster


def open_strategy(options):
    """The strategy that `TrainingOptions` name; call it before anything else uses TensorFlow.

    Raises:
        ValueError: a device does not exist, or TF_CONFIG is wrong.
        RuntimeError: the devices are in use already, or a worker is missing.
    """
    if options.devices and options.strategy != "mirrored":
        raise ValueError(
            f"--devices goes with --strategy mirrored only; got --strategy {options.strategy} "
            f"--devices {' '.join(options.devices)} (elsewhere CUDA_VISIBLE_DEVICES chooses GPUs)"
        )
    if options.strategy == "multiworker":
        return _multiworker(options)
    _prepare_devices(options.devices)
    if options.strategy == "one":
        return tf.distribute.get_strategy()
    return _mirrored(options.devices)


def is_chief(strategy):
    """Whether this process writes files and prints."""
    return not _worker_index(strategy)


def share(strategy, value):
    """The chief's JSON-able value, in every worker."""
    if not _is_multiworker(strategy):
        return value
    text = np.frombuffer(json.dumps(value).encode(), np.uint8) if is_chief(strategy) else ()
    size = int(_sum(strategy, np.float32([len(text)]))[0])
    padded = np.zeros(size, "float32")
    padded[: len(text)] = text
    return json.loads(_sum(strategy, padded).astype("uint8").tobytes())


def share_arrays(strategy, arrays, like):
    """The chief's dict of arrays, in every worker.

    Args:
        strategy: the strategy.
        arrays: the chief's; None in other workers.
        like: dict of variables with the names, shapes and dtypes.
    """
    if not _is_multiworker(strategy):
        return arrays
    sizes = [int(np.prod(variable.shape)) for variable in like.values()]
    vector = np.zeros(sum(sizes), "float32")
    if is_chief(strategy):
        vector = np.concatenate([arrays[name].ravel().astype("float32") for name in like])
    parts = np.split(_sum(strategy, vector), np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(variable.shape).astype(variable.dtype.as_numpy_dtype)
        for (name, variable), part in zip(like.items(), parts, strict=True)
    }


def barrier(strategy):
    """Returns when every worker is here."""
    if _is_multiworker(strategy):
        _sum(strategy, np.zeros(1, "float32"))


@contextlib.contextmanager
def device_errors_explained(strategy):
    """Turns TensorFlow's errors about lost workers and full memory into a line that helps."""
    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise RuntimeError(
            f"the device's memory is full ({_first_line(error)}); use a smaller "
            "--micro-batch-size, --recompute or a mixed --dtype-policy"
        ) from error
    except tf.errors.OpError as error:
        if not _is_multiworker(strategy):
            raise
        raise RuntimeError(
            f"another worker was lost ({_first_line(error)}); start all workers again with the "
            "same command: they continue from the last checkpoint"
        ) from error


def _first_line(error):
    """The line of a TensorFlow error that says what happened."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    telling = [line for line in lines if "abort" in line or "OOM" in line or "reset" in line]
    return (telling or lines or [type(error).__name__])[0].rstrip(": ")


def _prepare_devices(names):
    """Lets GPU memory grow, and splits the CPU into as many logical devices as are named."""
    cpus = [int(name.partition(":")[2] or 0) for name in names if name.startswith("CPU")]
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.experimental.enable_op_determinism()
    fixed = [gpu for gpu in gpus if not tf.config.experimental.get_memory_growth(gpu)]
    try:
        for gpu in fixed:
            tf.config.experimental.set_memory_growth(gpu, True)
        if cpus and max(cpus) > 0:
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0],
                [tf.config.LogicalDeviceConfiguration()] * (1 + max(cpus)),
            )
    except RuntimeError as error:
        known = {device.name.partition("device:")[2] for device in tf.config.list_logical_devices()}
        if fixed or not set(names) <= known:
            raise RuntimeError(
                f"devices must be set up before TensorFlow's first operation ({error}); "
                "make the Trainer before anything else uses TensorFlow"
            ) from error


def _mirrored(names):
    """A MirroredStrategy over the named devices, or all GPUs."""
    known = [
        device.name.partition("device:")[2]
        for device in tf.config.list_logical_devices()
        if names or device.device_type == "GPU"
    ]
    if not set(names) <= set(known) or not known:
        raise ValueError(
            f"--strategy mirrored needs GPUs, or devices among {', '.join(known) or 'none'}; got "
            f"{' '.join(names) or 'no --devices'} (--devices CPU:0 CPU:1 tries it without a GPU)"
        )
    # Collectives of several strategies in one process share their keys (tensorflow#61314).
    on_cpu = any(name.startswith("CPU") for name in names)
    reduction = tf.distribute.ReductionToOneDevice() if on_cpu else None
    return tf.distribute.MirroredStrategy(list(names) or None, reduction)


def _multiworker(options):
    """A MultiWorkerMirroredStrategy over the workers of TF_CONFIG, all of them present."""
    cluster = read_cluster()
    hosts = ",".join(address.rpartition(":")[0] for address in cluster.workers)
    os.environ.setdefault("no_grpc_proxy", hosts)
    report = print if options.verbose else lambda line: None
    meet(cluster, options.startup_timeout, report)
    _prepare_devices(())
    late = (
        f"TensorFlow could not connect the workers {', '.join(cluster.workers)} within "
        f"{options.startup_timeout:g} s; check that each can reach the others' ports"
    )
    with time_limit(options.startup_timeout, late):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        barrier(strategy)
    return strategy


def _worker_index(strategy):
    """The index of this process among the workers; 0 for a single one."""
    resolver = strategy.cluster_resolver
    return (resolver.task_id or 0) if resolver is not None else 0


def _is_multiworker(strategy):
    """Whether other processes take part."""
    resolver = strategy.cluster_resolver
    return resolver is not None and len(resolver.cluster_spec().as_dict().get("worker", ())) > 1


def _sum(strategy, vector):
    """The sum of one float32 vector a worker, in every worker."""
    results = _summing(strategy)(tf.constant(vector))
    return strategy.experimental_local_results(results)[0].numpy()


@functools.cache
def _summing(strategy):
    """The tf.function behind `_sum`; one trace does for every length."""
    local = len(strategy.extended.worker_devices)

    def on_replica(vector):
        context = tf.distribute.get_replica_context()
        first = tf.get_static_value(context.replica_id_in_sync_group) % local == 0
        return context.all_reduce("SUM", tf.identity(vector) if first else tf.zeros_like(vector))

    signature = [tf.TensorSpec([None], tf.float32)]
    return tf.function(
        lambda vector: strategy.run(on_replica, (vector,)), signature, autograph=False
    )
