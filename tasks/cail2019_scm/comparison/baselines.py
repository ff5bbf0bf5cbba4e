"""Cells of the systems without pretraining: majority, TF-IDF, untrained encoder, CNN, LSTM."""

import gc
import time

import numpy as np

from roformer_zh.layout import Layout
from tasks.cail2019_scm.baselines import TfidfScorer, majority_label
from tasks.cail2019_scm.comparison.cells import Cell, judge, position_limit, shares, word_run
from tasks.cail2019_scm.comparison.settings import system_label


def baseline_jobs(settings, data, pretrained, runs):
    """(identity, function that makes the cell) of every baseline cell."""
    jobs = []
    for kind in settings.baselines:
        if kind == "majority":
            jobs.append((_identity(data, "majority of train", kind), _majority))
        elif kind == "tfidf":
            jobs.append((_identity(data, "TF-IDF cosine, whole texts", kind), _tfidf))
            jobs += [(_identity(data, f"TF-IDF cosine, {length // 2} words a text", kind, length),
                      _tfidf) for length in settings.lengths]
        elif kind == "untrained":
            chosen = settings.untrained or (settings.models[0].name,)
            jobs += [_untrained_job(settings, data, pretrained, model, length, seed, runs)
                     for model in settings.models if model.name in chosen
                     for length in settings.lengths for seed in settings.seeds]
        else:
            run = word_run([pretrained(runs / model.run) for model in settings.models])
            jobs += [_neural_job(kind, settings, data, run, length, seed)
                     for length in settings.lengths for seed in settings.seeds]
    return [job for job in jobs if job]


def _identity(data, system, kind, length=None, seed=None, **more):
    """What decides a baseline's cell."""
    return {"system": system, "kind": kind, "model": system, "length": length, "seed": seed,
            "data": data.hashes, **more}


def _majority(identity, data):
    """The label that most training rows have, whatever the text."""
    score = 1.0 if majority_label(data.train) == "B" else -1.0
    return _cell(identity, data, lambda rows: (np.full(len(rows), score), np.zeros(len(rows))), {})


def _tfidf(identity, data):
    """TF-IDF with frequencies of the training texts, of whole texts or of their first words."""
    cut = _cutter(identity["length"])
    scorer = TfidfScorer([cut(text) for row in data.train for text in row[:3]])

    def score(rows):
        return scorer.score_triplets([[cut(text) for text in row[:3]] for row in rows])

    return _cell(identity, data, score, {})


def _cutter(length):
    """A function that keeps the first length / 2 jieba words of a text; all without a length."""
    from roformer_zh.tokenizer.segmenter import make_segmenter

    if length is None:
        return lambda text: text
    segment = make_segmenter()
    return lambda text: "".join(segment(text)[:length // 2])


def _untrained_job(settings, data, pretrained, model, length, seed, runs):
    """A model's architecture with random weights: cosine of mean vectors; None if too long."""
    run = pretrained(runs / model.run)
    layout = Layout("siamese", length, settings.finetune.get("truncation", "longest_first"))
    if position_limit(run["info"], layout):
        return None
    identity = _identity(data, f"untrained {system_label(model.name, length)}", "untrained", length,
                         seed, encoder=run["info"]["encoder"], layout=layout.to_dict(),
                         tokenizer=run["tokenizer"].fingerprint())

    def make(identity, data):
        import keras

        from roformer_zh import DocumentMatcher, Encoder, SiameseScorer

        keras.utils.set_random_seed(seed)
        scorer = SiameseScorer(Encoder(run["info"]["encoder"]))
        matcher = DocumentMatcher(scorer, run["tokenizer"], layout, verbose=False)
        scores, parameters = judge(matcher, data), scorer.count_params()
        _forget()
        return Cell(identity, {"parameters": parameters,
                               **shares(data.judged, run["tokenizer"], layout)}, scores)

    return identity, make


def _neural_job(kind, settings, data, run, length, seed):
    """A word CNN or LSTM that is trained on the triplets alone."""
    training = dict(settings.baseline_training)
    identity = _identity(data, f"word {kind.upper()}-{length}", kind, length, seed,
                         settings=training, tokenizer=run["tokenizer"].fingerprint())

    def make(identity, data):
        from tasks.cail2019_scm.pair_baselines import score_baseline

        train, chooses = data.to_choose()
        started = time.perf_counter()
        found = score_baseline(kind, train, chooses, data.judged, run["tokenizer"], seed,
                               sequence_length=length, **training)
        scores = {"test": found["test_scores"], "valid": found["valid_scores"]}
        if not data.selects:
            scores = {"valid": found["test_scores"]}
        layout = Layout("siamese", length)
        facts = {"parameters": int(found["parameters"]), "epochs": int(found["epochs"]),
                 "tokens_per_second": float(found["tokens_per_second"]),
                 "train_seconds": float(found["seconds"]),
                 **shares(data.judged, run["tokenizer"], layout),
                 "seconds": time.perf_counter() - started}
        _forget()
        return Cell(identity, facts, scores)

    return identity, make


def _cell(identity, data, score, facts):
    """The cell of a function from rows to two arrays of scores."""
    started = time.perf_counter()
    scores = {"valid": score(data.valid)}
    if data.test is not None:
        scores["test"] = score(data.test)
    return Cell(identity, {"text_cut": None, **facts, "seconds": time.perf_counter() - started},
                scores)


def _forget():
    """Lets go of Keras' state of the last cell."""
    import keras

    keras.backend.clear_session()
    gc.collect()
