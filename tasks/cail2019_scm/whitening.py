"""A start for a siamese scorer: all directions of its vectors count alike.

Mean vectors of a masked language model point almost the same way for every text, so their cosines
hardly differ. Subtracting the mean and whitening the covariance over the training texts, without
any label, mends much of that. Source: BERT-whitening, arXiv 2103.15316.
"""

import numpy as np

from roformer_zh.heads import pool

MOST_TEXTS = 1000
_SHRINKAGE = 0.003  # of the mean variance, added to each direction's
_BATCH = 16


def whiten(strategy, scorer, batches):
    """Sets a scorer's projection from what its encoder makes of the training texts.

    Args:
        strategy: the tf.distribute.Strategy of the scorer; the chief computes.
        scorer: a `SiameseScorer` with a projection.
        batches: the siamese `TripletBatches` of the training split.
    """
    from roformer_zh.training.cluster import is_chief, share_arrays

    layer, found = scorer.projection, None
    if is_chief(strategy):
        kernel, bias = whitening(_pooled(scorer, batches))
        found = {"kernel": kernel, "bias": bias}
    like = {"kernel": layer.kernel.value, "bias": layer.bias.value}
    for name, array in share_arrays(strategy, found, like).items():
        getattr(layer, name).assign(array)


def whitening(vectors):
    """The affine map after which vectors have mean 0 and covariance near the identity.

    Args:
        vectors: (n, width), n at least 2.

    Returns:
        (kernel, bias), float32: vectors @ kernel + bias.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> vectors = rng.normal(size=(5000, 2)) @ [[3.0, 1.0], [0.0, 0.5]] + [7.0, -2.0]
        >>> kernel, bias = whitening(vectors)
        >>> (np.cov((vectors @ kernel + bias).T).round(1) + 0.0).tolist()
        [[0.9, 0.0], [0.0, 1.0]]
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2 or len(vectors) < 2:
        raise ValueError(f"whitening needs at least two vectors; got shape {vectors.shape}")
    mean = vectors.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov((vectors - mean).T))
    variances = np.maximum(variances, 0) + _SHRINKAGE * max(variances.mean(), 1e-12)
    kernel = directions / np.sqrt(variances)
    return kernel.astype(np.float32), (-mean @ kernel).astype(np.float32)


def _pooled(scorer, batches):
    """Vectors (n, hidden_dim) of different texts, before projection and unit length."""
    found = []
    for inputs in batches.texts(MOST_TEXTS, _BATCH):
        hidden = scorer.encoder(inputs)
        vectors = pool(scorer.encoder, hidden, inputs["padding_mask"], scorer.pooling)
        found.append(np.asarray(vectors))
    return np.concatenate(found)
