"""Devices and worker processes: opens the tf.distribute strategy that the options name."""




def open_strategy(options):
    """The strategy of `TrainingOptions`; call it before anything else touches TensorFlow.

    Raises:
        ValueError: a device does not exist, or TF_CONFIG is wrong.
        RuntimeError: the devices are in use already, or a worker is missing.
    """
    import tensorflow as tf

    prepare_devices(options.devices)
    if options.strategy == "one":
        if options.devices:
            raise ValueError("--devices goes with --strategy mirrored; --strategy one takes none")
        return tf.distribute.get_strategy()
    return mirrored(options.devices)


def prepare_devices(names):
    """Lets GPU memory grow, and splits the CPU into as many logical devices as are named."""
    import tensorflow as tf

    try:
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
        wanted = 1 + max(
            (int(n.partition(":")[2]) for n in names if n.startswith("CPU")), default=0
        )
        if wanted > 1 and len(tf.config.list_logical_devices("CPU")) < wanted:
            tf.config.set_logical_device_configuration(
                tf.config.list_physical_devices("CPU")[0],
                [tf.config.LogicalDeviceConfiguration()] * wanted,
            )
    except RuntimeError as error:
        raise RuntimeError(
            f"devices must be set up before TensorFlow's first operation ({error}); "
            "make the Trainer first"
        ) from error


def mirrored(names):
    """A MirroredStrategy over the named devices, or all GPUs."""
    import tensorflow as tf

    cpus = any(name.startswith("CPU") for name in names)
    reduction = tf.distribute.ReductionToOneDevice() if cpus else None
    return tf.distribute.MirroredStrategy(list(names) or None, reduction)


def is_chief(strategy):
    """Whether this process writes files and prints."""
    resolver = strategy.cluster_resolver
    return resolver is None or not resolver.task_id


def share(strategy, value):
    """The chief's JSON-able value, in every worker."""
    return value


def share_arrays(strategy, arrays, like):
    """The chief's dict of arrays, in every worker; `like` has their shapes and dtypes."""
    return arrays


def barrier(strategy):
    """Waits until every worker is here."""
