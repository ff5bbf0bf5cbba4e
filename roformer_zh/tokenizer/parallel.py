"""Encoding in several processes."""


def encode_in_processes(tokenizer, texts, workers):
    """Ids of every text, in order, by `workers` processes that load no Keras.

    joblib's workers import neither Keras nor the caller's main module, are safe to start beside
    threads (TensorFlow's), and are kept for the next call.
    """
    import joblib

    run = joblib.Parallel(n_jobs=workers, backend="loky", batch_size=1)
    done = run(joblib.delayed(_encode_all)(tokenizer, part)
               for part in even_parts(texts, 4 * workers))
    return [ids for part in done for ids in part]


def even_parts(texts, count):
    """Consecutive parts of about equal numbers of characters, at most `count`.

    Example:
        >>> even_parts(["甲", "乙乙乙", "丙", "丁"], 2)
        [['甲', '乙乙乙'], ['丙', '丁']]
    """
    size = sum(map(len, texts)) / count
    parts, filled = [[]], 0
    for text in texts:
        if parts[-1] and filled >= size * len(parts):
            parts.append([])
        parts[-1].append(text)
        filled += len(text)
    return parts


def _encode_all(tokenizer, texts):
    """What a worker does."""
    return [tokenizer.encode(text) for text in texts]
