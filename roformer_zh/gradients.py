"""Functions with their gradients written out: they keep fewer arrays than what a backend derives.

Values are those of the plain formulas. This saves memory, not time (benchmarks/results.md).
"""

from keras import ops


def _with_gradient(function):
    """A function of tensors from one that returns its value and a function of the upstream."""

    def run(*tensors):
        @ops.custom_gradient
        def differentiated(*tensors):
            value, gradient = function(*tensors)

            def of_backend(*given, upstream=None):  # torch names it, the others do not
                return gradient(given[0] if upstream is None else upstream)

            return value, of_backend

        return differentiated(*tensors)

    return run


@_with_gradient
def times_table(x, table):
    """x times the transposed table: (.., E), (V, E) -> (.., V).

    The table's gradient is computed as it lies; that of `matmul(x, transpose(table))` is turned,
    which needs V x E numbers once more.
    """

    def gradient(upstream):
        rows = ops.reshape(x, (-1, ops.shape(x)[-1]))
        columns = ops.reshape(upstream, (-1, ops.shape(upstream)[-1]))
        return ops.matmul(upstream, table), ops.matmul(ops.transpose(columns), rows)

    return ops.matmul(x, ops.transpose(table)), gradient


@_with_gradient
def gelu(x):
    """x * Phi(x); keeps x alone, where four arrays of its size would be kept."""

    def gradient(upstream):
        density = ops.exp(-0.5 * ops.square(x)) * 0.3989422804014327
        return upstream * (normal_distribution(x) + x * density)

    return x * normal_distribution(x), gradient


def normal_distribution(x):
    """Phi(x), written with erf so that ONNX can hold it."""
    return 0.5 + 0.5 * ops.erf(x * 0.7071067811865476)


def layer_norm(x, gamma, beta, epsilon):
    """Mean 0 and variance 1 over the last axis, scaled and shifted; float32 (.., D), (D), (D)."""

    @_with_gradient
    def normalise(x, gamma, beta):
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        scale = ops.rsqrt(variance + epsilon)
        normal = centred * scale

        def gradient(upstream):
            rows = tuple(range(len(x.shape) - 1))
            inner = upstream * gamma
            slope = ops.mean(inner * normal, axis=-1, keepdims=True)
            mean = ops.mean(inner, axis=-1, keepdims=True)
            return (
                (inner - mean - normal * slope) * scale,
                ops.sum(upstream * normal, axis=rows),
                ops.sum(upstream, axis=rows),
            )

        return normal * gamma + beta, gradient

    return normalise(x, gamma, beta)


def cross_entropy(ids, logits):
    """-log softmax(logits)[id]: integers (..), float32 (.., V) -> (..).

    Its gradient is softmax(logits) less 1 at the id. One array beside the logits is kept.
    """
    ids_by_row = ops.cast(ops.reshape(ids, (-1, 1)), "int32")

    @_with_gradient
    def losses(logits):
        rows = ops.reshape(logits, (-1, ops.shape(logits)[-1]))
        largest = ops.max(rows, axis=-1, keepdims=True)
        at_ids = ops.take_along_axis(rows, ids_by_row, axis=-1) - largest  # (rows, 1)
        exponentials = ops.exp(rows - largest)
        sums = ops.sum(exponentials, axis=-1, keepdims=True)

        def gradient(upstream):
            scale = ops.reshape(upstream, (-1, 1))
            numbers = ops.arange(ops.shape(ids_by_row)[0], dtype="int32")[:, None]
            places = ops.concatenate([numbers, ids_by_row], axis=-1)
            at_places = (ops.exp(at_ids) / sums - 1.0) * scale
            result = ops.scatter_update(exponentials * (scale / sums), places, at_places[:, 0])
            return ops.reshape(result, ops.shape(logits))

        return ops.reshape(ops.log(sums) - at_ids, ops.shape(ids)), gradient

    return losses(logits)
