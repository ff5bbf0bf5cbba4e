"""Dropout without state: a mask is a pure function of the seed in force and the layer's number."""

import contextlib
import contextvars

import keras
from keras import ops

_SEED = contextvars.ContextVar("dropout_seed", default=None)


@contextlib.contextmanager
def dropout_seed(seed):
    """Sets the seed of every `Dropout` called inside the block.

    Args:
        seed: int32 tensor or sequence of shape (2,); see `fold_in`. `None` unsets it.

    Example:
        >>> layer = Dropout(0.5, salt=0)
        >>> with dropout_seed([1, 2]):
        ...     first = layer(ops.ones((1, 8)), training=True)
        ...     second = layer(ops.ones((1, 8)), training=True)
        >>> bool(ops.all(first == second))
        True
    """
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


def current_seed():
    """The seed in force, or None."""
    return _SEED.get()


def fold_in(seed, number):
    """A new seed of shape (2,) that depends on every bit of `seed` and on `number`.

    Args:
        seed: int32, shape (2,).
        number: int32 scalar: an update, a micro-batch, a replica, a layer.

    Source: the 32-bit finalizer of MurmurHash3 (A. Appleby), on wrapping int32 arithmetic.
    """
    seed = ops.cast(seed, "int32")
    number = ops.cast(number, "int32")
    first = _scramble(seed[0] ^ _scramble(number + 0x3C6EF372))
    second = _scramble(seed[1] + first)
    return ops.stack([first, second])


def _scramble(x):
    """A bijection of int32 in which every input bit moves about half of the output bits."""
    for factor in (-2048144789, -1028477387):
        x = x * factor
        x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, 15), 0x1FFFF))
    return x


class _Given(keras.random.SeedGenerator):
    """A seed generator that holds no variable and always answers the seed it was given."""

    def __init__(self, seed):
        self.seed_tensor = seed

    def next(self, ordered=True):
        if keras.backend.backend() == "jax":  # its keys are unsigned
            return ops.cast(self.seed_tensor, "uint32")
        return self.seed_tensor


@keras.saving.register_keras_serializable("roformer_zh")
class Dropout(keras.layers.Layer):
    """Inverted dropout: its mask repeats with the seed in force and differs between layers.

    Drawing random numbers is what dropout costs, so four decisions share one 32-bit number: a byte
    below a threshold of 256 * rate is dropped. The threshold is rounded up or down at random, once
    for each row of the last axis, so that every value is dropped with the exact rate.

    Args:
        rate: share of the values set to 0, from 0 to 255 / 256.
        salt: the layer's number; two layers of one model need different ones.

    Raises:
        ValueError: the rate is out of range.
        RuntimeError: called in training outside `dropout_seed`.
    """

    def __init__(self, rate, salt, **kwargs):
        super().__init__(autocast=False, **kwargs)
        if not 0 <= rate <= 255 / 256:
            raise ValueError(f"a dropout rate must be from 0 to 255 / 256; got {rate}")
        self.rate, self.salt = rate, salt
        self.built = True

    @property
    def scale(self):
        """What kept values are multiplied with."""
        return 1.0 / (1.0 - self.rate)

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        return ops.where(self.keep(ops.shape(x)), x * self.scale, 0.0)

    def keep(self, shape, part=0):
        """A bool mask, True where a value is kept.

        Args:
            shape: of the mask.
            part: number of the piece, where one array is dropped in several.
        """
        seed = current_seed()
        if seed is None:
            raise RuntimeError(
                f"dropout in training needs a seed, so that its mask can repeat; {self.path} "
                "was called outside one; train with roformer_zh.Trainer, wrap the call in "
                "roformer_zh.dropout.dropout_seed((seed, step)), or set both dropout rates to 0"
            )
        seed = fold_in(fold_in(seed, self.salt), part)
        *rows, width = shape
        words = keras.random.randint(
            (*rows, -(-width // 4)), -(2**31), 2**31 - 1, dtype="int32", seed=_Given(seed)
        )
        drawn = ops.view(words, "int8")[..., :width]
        rounding = keras.random.uniform((*rows, 1), seed=_Given(fold_in(seed, 1)))
        threshold = ops.floor(256 * self.rate + rounding) - 128
        return ops.greater_equal(drawn, ops.cast(threshold, "int8"))

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "salt": self.salt}
