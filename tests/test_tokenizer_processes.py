"""The same ids in every process, thread and environment."""

import hashlib
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roformer_zh.tokenizer import WordTokenizer
from tests.tokenizer_texts import ODD, VOCABULARY, WORDS, tokenizer

ROOT = Path(__file__).parent.parent
TEXTS = [f"{a}{b}，{c}被告欠款50,000.00元\n"
         for a in WORDS[:5] for b in ODD[:5] for c in WORDS[5:7]]


def run(code, *arguments, **environment):
    """Runs code in a fresh process, in which a broken text would fail at printing, too."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
                          cwd=ROOT, text=True, capture_output=True, check=False,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fresh_process_gives_the_same_ids_under_any_hash_seed_and_locale(tmp_path):
    """fxsjy/jieba#740."""
    made = WordTokenizer.load(VOCABULARY, user_dictionary=["逾期利率", ("lpr利率", 99)])
    texts = [*TEXTS, "LPR利率与逾期利率"]
    made.save(tmp_path / "saved")
    (tmp_path / "pickled").write_bytes(pickle.dumps(made))
    (tmp_path / "texts").write_bytes(pickle.dumps(texts))
    ids = json.dumps([made.encode(text) for text in texts])
    expected = hashlib.sha256(ids.encode()).hexdigest()
    code = """
        import hashlib, json, pickle, sys
        from pathlib import Path
        from roformer_zh.tokenizer import WordTokenizer
        folder = Path(sys.argv[1])
        texts = pickle.loads((folder / "texts").read_bytes())
        for made in (WordTokenizer.load(folder / "saved"),
                     pickle.loads((folder / "pickled").read_bytes())):
            ids = json.dumps([made.encode(text) for text in texts])
            print(hashlib.sha256(ids.encode()).hexdigest())
        print([name for name in sys.modules if name.split(".")[0] in ("keras", "tensorflow")])
        """
    for seed, locale in (("1", "C"), ("2", "C.UTF-8"), ("3", "tr_TR.UTF-8")):
        printed = run(code, tmp_path, PYTHONHASHSEED=seed, LC_ALL=locale, PYTHONUTF8="0")
        assert printed.splitlines() == [expected, expected, "[]"]


def test_threads_give_the_ids_of_one():
    """Eight threads that race for the first call of a tokenizer with an empty memory."""
    expected = [tokenizer().encode_words(text) for text in TEXTS]
    for options in (dict(), dict(segmenter="jieba")):
        fresh = WordTokenizer.load(VOCABULARY, **options)
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _, t=fresh: [t.encode_words(x) for x in TEXTS], range(8)):
                assert found == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("segmenter", ["rjieba", "jieba"])
def test_a_tokenizer_works_in_forked_and_spawned_workers(method, segmenter):
    made = tokenizer(segmenter=segmenter)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(made.encode, TEXTS) == [made.encode(text) for text in TEXTS]


def test_batches_over_processes_are_in_order():
    made = tokenizer()
    expected = [made.encode(text) for text in TEXTS]
    assert made.encode_batch(iter(TEXTS)) == expected
    assert made.encode_batch(TEXTS, workers=2) == expected
    assert made.encode_batch([], workers=2) == []
    assert made.encode_batch(TEXTS[:3], workers=2) == expected[:3]
    for bad in (0, 1.5):
        with pytest.raises(ValueError, match="workers must be a whole number of 1 or more"):
            made.encode_batch(TEXTS, workers=bad)
    with pytest.raises(TypeError, match="a text must be a str; got int"):
        made.encode_batch([*TEXTS, 3], workers=2)


def test_workers_do_not_import_the_main_script(tmp_path):
    """A script that imports Keras would otherwise load it once a worker, or start itself again."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(f"""
        open({str(tmp_path / "log")!r}, "a").write("imported\\n")
        from roformer_zh.tokenizer import WordTokenizer
        made = WordTokenizer.load("vocab/vocab.txt")
        texts = ["被告", "原告", "法院"]
        assert made.encode_batch(texts, workers=2) == [made.encode(text) for text in texts]
        """), encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=ROOT, text=True, capture_output=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "log").read_text() == "imported\n"


def test_ids_survive_a_reload_of_the_module():
    printed = run("""
        import importlib
        import roformer_zh.tokenizer.word_tokenizer as module
        from roformer_zh.tokenizer import pieces, vocabulary
        before = module.WordTokenizer.load("vocab/vocab.txt").encode("原告与被告，a1")
        for module in (module, pieces, vocabulary):
            importlib.reload(module)
        from roformer_zh.tokenizer import WordTokenizer
        print(WordTokenizer.load("vocab/vocab.txt").encode("原告与被告，a1") == before)
        """)
    assert printed == "True\n"
