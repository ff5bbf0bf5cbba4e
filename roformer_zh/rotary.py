"""Rotary position embedding: angles and rotation, as pure functions.

Source: RoFormer, arXiv 2104.09864, section 3.2.2 and equation 34.
"""

import numpy as np
from keras import ops


def rotary_angles(position_ids, head_dim, max_wavelength=10000.0, position_scale=1.0):
    """The angles m * theta_i, theta_i = max_wavelength ** (-2 i / head_dim), in float32.

    Args:
        position_ids: positions m, any numeric dtype, shape (..., T).
        head_dim: width of a head; even.
        max_wavelength: base of the geometric series of angles.
        position_scale: positions are divided by it first (interpolation, arXiv 2306.15595).

    Returns:
        float32 tensor of shape (..., T, head_dim / 2), whatever the dtype policy.
    """
    if head_dim % 2:
        raise ValueError(f"head_dim must be even for rotary positions; got {head_dim}")
    theta = (
        max_wavelength ** (-np.arange(0, head_dim, 2, dtype="float64") / head_dim) / position_scale
    )
    positions = ops.cast(position_ids, "float32")
    return ops.expand_dims(positions, -1) * theta.astype("float32")


def split_pairs(x):
    """Moves the pairs (2i, 2i+1) of the last axis into two halves: all even, then all odd entries.

    A query and a key moved alike have the same product, so scores stay the paper's, and `rotate`
    needs no strided access.
    """
    shape = ops.shape(x)
    pairs = ops.reshape(x, (*shape[:-1], shape[-1] // 2, 2))
    return ops.reshape(ops.swapaxes(pairs, -1, -2), shape)


def join_pairs(x):
    """The inverse of `split_pairs`."""
    shape = ops.shape(x)
    halves = ops.reshape(x, (*shape[:-1], 2, shape[-1] // 2))
    return ops.reshape(ops.swapaxes(halves, -1, -2), shape)


def rotate(x, cos, sin):
    """Turns each pair of `x` by its angle; pairs lie in two halves (see `split_pairs`).

    Args:
        x: shape (..., head_dim).
        cos, sin: of the angles; broadcast against (..., head_dim / 2).

    Example:
        >>> angles = rotary_angles([[1]], head_dim=4)
        >>> query = split_pairs(ops.array([[[1.0, 0, 0, 0]]]))
        >>> query = rotate(query, ops.cos(angles), ops.sin(angles))
        >>> key = split_pairs(ops.array([[[0.0, 1, 0, 0]]]))
        >>> print(f"{float(ops.sum(query * key)):.4f}")
        0.8415
    """
    even, odd = ops.split(x, 2, axis=-1)
    return ops.concatenate([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
