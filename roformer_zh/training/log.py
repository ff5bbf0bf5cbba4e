"""What a training run reports: sums over log intervals, metrics.jsonl, memory."""

import json
import resource
from pathlib import Path

from roformer_zh import lazy_tensorflow as tf
from roformer_zh.files import write_text
from roformer_zh.training.options import learning_rate


def means(sums):
    """Sums divided once by their weight: `loss`, `accuracy` (from `correct`) and the rest.

    Example:
        >>> means({"loss": 20.0, "correct": 1.0, "weight": 10.0})
        {'loss': 2.0, 'accuracy': 0.1}
    """
    if not sums.get("weight"):
        raise ValueError("nothing to average: the weights of all batches sum to 0")
    return {
        "accuracy" if name == "correct" else name: value / sums["weight"]
        for name, value in sums.items()
        if name != "weight"
    }


def add_sums(total, more):
    """Adds the entries of `more` to the dict `total`."""
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value


class MetricsLog:
    """`metrics.jsonl`: one JSON object a line, each with its `update`.

    Args:
        path: the file.
        writes: whether this process writes; others only agree.
    """

    def __init__(self, path, writes=True):
        self.path, self.writes = Path(path), writes

    def rewind(self, update):
        """Drops the lines after `update`, and a last line that was cut short."""
        if not self.writes:
            return
        kept = [line for line in self._lines() if line["update"] <= update]
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def append(self, line):
        """Writes one line, a dict."""
        if self.writes:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _lines(self):
        """The whole lines of the file."""
        if not self.path.exists():
            return
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(text)
            except json.JSONDecodeError:
                return


class Reporter:
    """Writes metrics.jsonl and, where no progress bar is drawn, the same in words.

    Args:
        trainer: a `Trainer`.
        update: the update that the run continues from; later lines are dropped.
        shows_lines: whether to print.
    """

    def __init__(self, trainer, update, shows_lines):
        self._loss_scale = trainer.train_step.loss_scale.scale
        self._say = trainer.report if shows_lines else (lambda text: None)
        self._log = MetricsLog(trainer.run_folder / "metrics.jsonl", trainer.is_chief)
        self._log.rewind(update)
        self._clock = {}

    def tick(self, seconds, tokens, waited):
        """Adds to the time since the last line, the tokens seen in it and the wait for input."""
        add_sums(self._clock, dict(seconds=seconds, tokens=tokens, waited=waited))

    def updates(self, stage, progress):
        """A line about the updates since the last one."""
        window, norms = progress.sums.pop("window", None), progress.sums.pop("norms", None)
        line = self._line("train", stage, progress)
        line["learning_rate"] = learning_rate(stage, progress.step - 1)
        line.update(means(window) if window else {})
        line.update(means(norms) if norms else {}, loss_scale=float(self._loss_scale.numpy()))
        seconds = max(self._clock["seconds"], 1e-9)
        line["tokens_per_second"] = self._clock["tokens"] / seconds
        line["input_wait"] = self._clock["waited"] / seconds
        line.update(examples=progress.examples, tokens=progress.tokens, memory_gb=memory_gb())
        self._clock = {}
        self._log.append(line)
        self._say(in_words(line, stage.steps))

    def validation(self, stage, progress, found):
        """A line about an evaluation."""
        self._log.append({**self._line("validation", stage, progress), **found})
        words = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        self._say(f"{stage.name}, after update {progress.update}: {words}")

    def skipped(self, stage, progress, step, loss, norm):
        """A line about an update that was not applied."""
        line = self._line("skipped", stage, progress)
        self._log.append({**line, "batch": step, "loss": str(loss), "gradient_norm": str(norm)})

    @staticmethod
    def _line(kind, stage, progress):
        """What every line starts with."""
        return dict(kind=kind, stage=stage.name, update=progress.update, step=progress.step)


def in_words(line, steps):
    """A `train` line of metrics.jsonl as a sentence."""
    missing = float("nan")
    scale = f", loss scale {line['loss_scale']:g}" if line.get("loss_scale", 1) != 1 else ""
    return (
        f"{line['stage']} {line['step']}/{steps}: loss {line.get('loss', missing):.4f}, "
        f"accuracy {line.get('accuracy', missing):.4f}, learning rate {line['learning_rate']:.2e}, "
        f"gradient norm {line.get('gradient_norm', missing):.3f}{scale}, "
        f"{line['tokens_per_second']:,.0f} tokens/s, {line['examples']:,} examples, "
        f"{line['memory_gb']:.1f} GB"
    )


def memory_gb():
    """Peak memory so far in GB: of the first GPU if there is one, else of the process."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
