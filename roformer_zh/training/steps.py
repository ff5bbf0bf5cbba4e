"""One training or evaluation step of a global batch, cut over replicas and micro-batches."""

import numpy as np

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.dropout import dropout_seed, fold_in
from roformer_zh.training.log import add_sums


def cut_plan(rows, replicas, micro_batch_size=None):
    """How `rows` rows are cut: (micro-batches a replica, rows a micro-batch), padding included.

    Example:
        >>> cut_plan(7, replicas=2), cut_plan(256, replicas=4, micro_batch_size=24)
        ((1, 4), (3, 22))
    """
    share = -(-rows // replicas)
    count = -(-share // (micro_batch_size or share))
    return count, -(-share // count)


def cut(array, replica, count, size):
    """The part of one replica, (count, size, ...); rows that are missing at the end are zeros."""
    part = array[replica * count * size : (replica + 1) * count * size]
    missing = np.zeros((count * size - len(part), *array.shape[1:]), array.dtype)
    return np.concatenate([part, missing]).reshape(count, size, *array.shape[1:])


class Step:
    """Runs one function of (model, part of a batch) on every replica and adds up what it returns.

    Args:
        strategy: a tf.distribute.Strategy; the model was made in its scope.
        model: a Keras model.
        objective: see `roformer_zh.training`.
        micro_batch_size: most rows that a replica computes at once; None = its whole share.
    """

    def __init__(self, strategy, model, objective, micro_batch_size=None):
        self.strategy, self.model, self.objective = strategy, model, objective
        self.micro_batch_size = micro_batch_size
        self.traces = 0
        self._function = tf.function(self._on_all, autograph=False)

    def distribute(self, batch, rows=0):
        """Puts a global numpy batch onto the replicas of this process.

        Args:
            batch: dict of arrays with equally many rows, at least one.
            rows: the rows to pad to, so that a short last batch needs no new trace.
        """
        rows = max(rows, *(len(array) for array in batch.values()))
        replicas = self.strategy.num_replicas_in_sync
        plan = cut_plan(rows, replicas, self.micro_batch_size)
        devices = self.strategy.extended.worker_devices if replicas > 1 else (None,)

        def part(context):
            replica = context.replica_id_in_sync_group
            with tf.device(devices[replica % len(devices)]):
                return {
                    name: tf.constant(cut(batch[name], replica, *plan)) for name in sorted(batch)
                }

        return self.strategy.experimental_distribute_values_from_function(part)

    def __call__(self, parts, *scalars):
        """Runs the step; `scalars` are tensors that every replica gets. Returns tensors."""
        return self._function(parts, *scalars)

    def _on_all(self, parts, *scalars):
        """The step on all replicas; the answer of the first one here stands for all."""
        self.traces += 1
        results = self.strategy.run(self._on_replica, args=(parts, *scalars))
        return tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], results
        )


class EvaluationStep(Step):
    """Sums of the objective over a global batch, without dropout or gradients."""

    def _on_replica(self, parts):
        sums = add_up(lambda part, _: self.objective(self.model, part, training=False), parts)
        return all_reduce_sum(sums)

    def sums(self, batches):
        """The float64 sums over an iterable of numpy batches, the same in every worker."""
        total, rows = {}, 0
        for batch in batches:
            rows = max(rows, len(next(iter(batch.values()))))
            result = self(self.distribute(batch, rows))
            add_sums(total, {key: value.numpy().astype("float64") for key, value in result.items()})
        return total


class TrainStep(Step):
    """Loss, gradients, one sum over the replicas, finite test, clip, update.

    Args:
        optimizer: an `AdamW` made in the strategy's scope.
        loss_scale: a `LossScale` made there too.
        seed: of the dropout masks.
        jit: whether XLA compiles the forward and backward pass.
    """

    def __init__(self, *arguments, optimizer, loss_scale, seed, jit=False, **options):
        super().__init__(*arguments, **options)
        self.optimizer, self.loss_scale, self.seed = optimizer, loss_scale, seed
        self._local_sums = self._sum_gradients
        if jit:
            self._local_sums = tf.function(self._sum_gradients, jit_compile=True, autograph=False)
        self.unused = []

    def __call__(self, parts, weight, rate, update, stop):
        """One update.

        Args:
            parts: what `distribute` gave.
            weight: the weight of the whole batch, over all replicas.
            rate: learning rate.
            update: number of the update; the dropout masks depend on it.
            stop: whether this process was asked to stop; the answer says if any was.

        Returns:
            dict of tensors: `sums`, the objective's over the whole batch, and `gradient_norm`
            (before clipping), `finite`, `loss_scale` and `stop`.
        """
        return super().__call__(
            parts,
            tf.constant(weight, tf.float32),
            tf.constant(rate, tf.float32),
            tf.constant(update, tf.int32),
            tf.constant(stop, tf.float32),
        )

    def _on_replica(self, parts, weight, rate, update, stop):
        context = tf.distribute.get_replica_context()
        replica = context.replica_id_in_sync_group
        scale = tf.identity(self.loss_scale.scale)
        gradients, sums = self._local_sums(parts, scale / weight, update, replica)
        gradients, sums, stop = all_reduce_sum((gradients, sums, stop))

        norm = tf.linalg.global_norm(gradients) / scale
        finite = tf.math.is_finite(norm) & tf.math.is_finite(sums["loss"])
        factor = clip_factor(norm, self.optimizer.options.clip_norm) / scale
        local = local_copy(self.strategy, replica)

        def apply():
            self.optimizer.apply(self._in_order([g * factor for g in gradients]), rate, local)
            return True

        tf.cond(finite, apply, lambda: False)
        self.loss_scale.update(finite, local)
        return dict(sums=sums, gradient_norm=norm, finite=finite, loss_scale=scale, stop=stop)

    def _sum_gradients(self, parts, factor, update, replica):
        """Gradients of loss x factor and the objective's sums over this replica's rows."""
        seed = tf.constant([self.seed, 0], tf.int32)

        def one(part, number):
            with tf.GradientTape() as tape, dropout_seed(seed_of(seed, update, number, replica)):
                sums = self.objective(self.model, part, training=True)
                scaled = sums["loss"] * factor
            return self._gradients(tape, scaled), sums

        return add_up(one, parts)

    def _gradients(self, tape, loss):
        """Dense float32 gradients of the variables that the loss depends on."""
        variables = [variable.value for variable in self.model.trainable_variables]
        gradients = tape.gradient(loss, variables)
        self.unused = [index for index, gradient in enumerate(gradients) if gradient is None]
        return [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in gradients if g is not None]

    def _in_order(self, gradients):
        """The gradients with None for each variable that the loss does not depend on."""
        gradients = iter(gradients)
        count = len(self.model.trainable_variables)
        return [None if index in self.unused else next(gradients) for index in range(count)]


def add_up(function, parts):
    """The sum of function(micro-batch, number) over the micro-batches, one after the other."""
    count = next(iter(parts.values())).shape[0]

    def part(number):
        return {name: array[number] for name, array in parts.items()}

    total = function(part(0), 0)
    if count == 1:
        return total

    def body(number, total):
        more = function(part(number), number)
        return number + 1, tf.nest.map_structure(tf.add, total, more)

    _, total = tf.while_loop(
        lambda number, _: number < count, body, (1, total), parallel_iterations=1
    )
    return total


def all_reduce_sum(values):
    """The sums of float32 tensors over all replicas, in one packed all-reduce."""
    values = tf.nest.map_structure(tf.identity, values)  # places arguments on this replica's device
    return tf.distribute.get_replica_context().all_reduce("SUM", values)


def clip_factor(norm, clip_norm):
    """What a gradient of this norm is multiplied with, so that its norm is at most `clip_norm`."""
    return clip_norm / tf.maximum(norm, clip_norm) if clip_norm else tf.ones_like(norm)


def seed_of(seed, *numbers):
    """A dropout seed that depends on every number: update, micro-batch, replica."""
    for number in numbers:
        seed = fold_in(seed, number)
    return seed


def local_copy(strategy, replica):
    """A function from a variable to the copy of it that the given replica reads and writes."""

    def copy(variable):
        copies = strategy.experimental_local_results(variable)
        return copies[int(tf.get_static_value(replica)) % len(copies)]

    return copy
