"""What a training run reports: sums over log intervals, metrics.jsonl, memory."""

import json
import resource
from pathlib import Path

from roformer_zh.files import write_text


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

    def append(self, **line):
        """Writes one line."""
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


def progress_line(line, steps):
    """A line of metrics.jsonl in words."""
    scale = f", loss scale {line['loss_scale']:g}" if line.get("loss_scale", 1) != 1 else ""
    return (
        f"{line['stage']} {line['step']}/{steps}: loss {line.get('loss', float('nan')):.4f}, accuracy "
        f"{line.get('accuracy', float('nan')):.4f}, learning rate {line['learning_rate']:.2e}, "
        f"gradient norm {line.get('gradient_norm', float('nan')):.3f}{scale}, "
        f"{line['tokens_per_second']:,.0f} tokens/s, {line['examples']:,} examples, "
        f"{line['memory_gb']:.1f} GB"
    )


def memory_gb():
    """Peak memory so far in GB: of the first GPU if there is one, else of the process."""
    import tensorflow as tf

    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
