"""The encoder's equations in float64 numpy, position by position; shares no code with the library.

Sources: attention and LayerNorm, arXiv 1706.03762 and 1810.04805; rotary positions, arXiv
2104.09864, equations 14 to 16 and 34; linear attention, its equation 19; relative vectors, arXiv
1909.00204 and the constants of NEZHA's released code.
"""

import math

import numpy as np


def rotated(vector, position, base=10000.0, scale=1.0):
    """R_m x: pair i of x turned by m * base ** (-2 i / d), as a d x d matrix."""
    width = len(vector)
    matrix = np.zeros((width, width))
    for i in range(width // 2):
        angle = position / scale * base ** (-2 * i / width)
        a, b = 2 * i, 2 * i + 1
        matrix[a, a] = matrix[b, b] = math.cos(angle)
        matrix[a, b], matrix[b, a] = -math.sin(angle), math.sin(angle)
    return matrix @ vector


def relative_vector(distance, width, reach):
    """NEZHA's constant for a distance: sin and cos of the clipped distance plus the reach."""
    row = max(-reach, min(reach, distance)) + reach
    vector = np.zeros(width)
    for i in range(width // 2):
        angle = row / 10000.0 ** (2 * i / width)
        vector[2 * i], vector[2 * i + 1] = math.sin(angle), math.cos(angle)
    return vector


def layer_norm(x, gamma, beta, epsilon):
    """Mean 0, variance 1 over the last axis, then scale and shift."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def gelu(x):
    """x times the normal distribution function of x."""
    return np.vectorize(lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))))(x)


def exact_head(q, k, v, real, positions, config):
    """softmax attention of one head over rows of q, k, v of shape (T, H)."""
    length, width = q.shape
    out = np.zeros((length, width))

    def turn(x, m):
        return rotated(x, m, config.max_wavelength, config.position_scale)

    for t in range(length):
        scores = []
        for s in range(length):
            if config.position == "rotary":
                score = turn(q[t], positions[t]) @ turn(k[s], positions[s])
            elif config.position == "relative":
                vector = relative_vector(
                    positions[s] - positions[t], width, config.max_relative_position
                )
                score = q[t] @ (k[s] + vector)
            else:
                score = q[t] @ k[s]
            scores.append(score / math.sqrt(width) if real[s] else -math.inf)
        weights = np.exp(np.array(scores) - max(scores))
        weights /= weights.sum()
        for s in range(length):
            value = v[s]
            if config.rotary_value:
                value = turn(value, positions[s])
            if config.position == "relative":
                value = value + relative_vector(
                    positions[s] - positions[t], width, config.max_relative_position
                )
            out[t] += weights[s] * value
    return out


def linear_head(q, k, v, real, positions, config):
    """Equation 19 for one head: the rotation in the numerator only."""
    if config.feature_map == "elu":
        q, k = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k))
    else:
        q = np.exp(q) / np.exp(q).sum(-1, keepdims=True)
        k = np.exp(k) * real[:, None]
        k = k / k.sum(0, keepdims=True)
    out = np.zeros_like(v)
    for t in range(len(q)):
        numerator, denominator = np.zeros(v.shape[1]), 0.0
        for s in range(len(k)):
            if not real[s]:
                continue
            turned = config.position == "rotary"
            left = rotated(q[t], positions[t]) if turned else q[t]
            right = rotated(k[s], positions[s]) if turned else k[s]
            value = rotated(v[s], positions[s]) if config.rotary_value else v[s]
            numerator += (left @ right) * value
            denominator += q[t] @ k[s]
        out[t] = numerator / denominator
    return out


def encode(weights, config, token_ids, segment_ids, real, positions=None):
    """Hidden states of one sequence, (T, D), from a dict of variable path -> float64 array."""

    def w(path):
        return weights[path]

    length = len(token_ids)
    positions = list(range(length)) if positions is None else positions
    x = w("token_embedding/embeddings")[token_ids] + w("segment_embedding/embeddings")[segment_ids]
    if config.position == "learned":
        x = x + w("position_embedding/embeddings")[positions]
    if config.position == "sinusoidal":
        for t in range(length):
            for i in range(config.embedding_dim):
                angle = positions[t] / 10000.0 ** (2 * (i // 2) / config.embedding_dim)
                x[t, i] += math.sin(angle) if i % 2 == 0 else math.cos(angle)

    def norm(x, path):
        return layer_norm(x, w(path + "/gamma"), w(path + "/beta"), config.layer_norm_epsilon)

    x = norm(x, "embedding_norm")
    if config.embedding_dim != config.hidden_dim:
        x = x @ w("embedding_projection/kernel") + w("embedding_projection/bias")
    head = linear_head if config.attention == "linear" else exact_head
    size = config.head_dim
    for layer in range(config.num_layers):
        block = f"block_{layer}/"
        projected = x @ w(block + "attention/query_key_value_kernel")
        projected = projected + w(block + "attention/query_key_value_bias")
        q, k, v = np.split(projected, 3, axis=-1)
        outs = [
            head(*(p[:, n * size : (n + 1) * size] for p in (q, k, v)), real, positions, config)
            for n in range(config.num_heads)
        ]
        attended = np.concatenate(outs, -1) @ w(block + "attention/output/kernel")
        x = norm(x + attended + w(block + "attention/output/bias"), block + "attention_norm")
        inner = gelu(x @ w(block + "intermediate/kernel") + w(block + "intermediate/bias"))
        x = norm(
            x + inner @ w(block + "output/kernel") + w(block + "output/bias"), block + "output_norm"
        )
    return x
