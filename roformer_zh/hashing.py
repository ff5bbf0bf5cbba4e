"""Random numbers as pure functions of a key and an index: no state, any order, any worker."""

import functools
import hashlib
import json

import numpy as np


@functools.lru_cache(4096)
def make_key(*parts):
    """A 64-bit key from strings and numbers, the same in every process."""
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def hash64(values, key):
    """64 random bits for each value under a key (the SplitMix64 generator, jumped to `value`).

    Args:
        values: unsigned or non-negative integers, any shape.
        key: uint64 array that broadcasts against `values`, or one number.
    """
    state = np.asarray(values).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = state + np.asarray(key, np.uint64)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def uniform(bits):
    """The 64 random bits as numbers in [0, 1), float64."""
    return (bits >> np.uint64(11)) * 2.0**-53
