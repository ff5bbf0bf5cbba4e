"""Times a token of linear attention beside the exact kernels, at equally many tokens a batch."""

import dataclasses
import statistics
import time
from typing import Literal

import numpy as np

from benchmarks.measure import versions
from roformer_zh.command import run_command
from roformer_zh.files import atomic_path
from roformer_zh.reports import markdown_table

KERNELS = {
    "linear, elu": dict(attention="linear", feature_map="elu"),
    "linear, softmax": dict(attention="linear", feature_map="softmax"),
    "chunked": dict(attention="chunked"),
    "full": dict(attention="full"),
}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Times one attention layer, or a whole encoder, forward and in training.

    Every batch has the same number of tokens, 32 x 1,024 up to 1 x 32,768 by default, so that a
    kernel whose time a token does not grow takes the same time for each. Lengths take turns, so
    that other work on the machine falls on all. Training is forward and backward pass, without
    dropout and without an optimizer.
    """

    kernels: tuple[str, ...] = tuple(KERNELS)
    """Kernels to time."""
    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192, 16384, 32768)
    """Tokens a sequence."""
    tokens: int = 32768
    """Tokens a batch."""
    part: Literal["attention", "encoder"] = "attention"
    """One attention layer with its dense layers, or embeddings, angles and all blocks."""
    heads: int = 2
    """Attention heads."""
    width: int = 128
    """hidden_dim."""
    layers: int = 2
    """Blocks of the encoder."""
    longest_full: int = 2048
    """Full attention is timed up to this length: its memory grows with it."""
    longest_chunked: int = 8192
    """Chunked attention is timed up to this length: its time grows with it."""
    rounds: int = 5
    """Turns of each length; the median counts."""
    plot: str | None = None
    """PNG file of the curves; None draws none."""


def main(args):
    """Prints a table for the forward pass and one for training; returns the microseconds."""
    check(args)
    print(versions("tensorflow", "keras", "numpy"))
    found = {}
    for training in (False, True):
        name = "training" if training else "forward"
        found[name] = {kernel: time_kernel(args, kernel, training) for kernel in args.kernels}
        print(f"\n{name}, microseconds a token, {args.tokens:,} tokens a batch\n")
        print(markdown_table(table(found[name], args.lengths)), flush=True)
    if args.plot:
        plot(found, args)
    return found


def check(args):
    """Refuses kernels and lengths that cannot be timed."""
    unknown = sorted(set(args.kernels) - set(KERNELS))
    if unknown:
        raise ValueError(f"--kernels must be of {', '.join(KERNELS)}; got {unknown[0]!r}")
    uneven = [length for length in args.lengths if args.tokens % length]
    if uneven:
        raise ValueError(
            f"every length must divide --tokens {args.tokens}, so that batches are equal; "
            f"got {uneven[0]}"
        )


def time_kernel(args, kernel, training):
    """Microseconds a token: a dict of length -> median."""
    longest = {"full": args.longest_full, "chunked": args.longest_chunked}.get(kernel)
    lengths = [length for length in args.lengths if longest is None or length <= longest]
    steps = {length: make_step(args, kernel, length, training) for length in lengths}
    seconds = {length: [] for length in lengths}
    for step in steps.values():
        step()
    for _ in range(args.rounds):
        for length, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[length].append(time.perf_counter() - started)
    return {
        length: 1e6 * statistics.median(values) / args.tokens for length, values in seconds.items()
    }


def make_step(args, kernel, length, training):
    """A function of nothing that computes one batch and waits for its end."""
    import tensorflow as tf

    from roformer_zh import EncoderConfig

    config = EncoderConfig(
        vocabulary_size=1000,
        num_layers=args.layers,
        num_heads=args.heads,
        hidden_dim=args.width,
        intermediate_dim=4 * args.width,
        dropout=0.0,
        attention_dropout=0.0,
        **KERNELS[kernel],
    )
    make = attention_layer if args.part == "attention" else whole_encoder
    compute, variables = make(config, args.tokens // length, length)

    @tf.function(autograph=False)
    def step():
        if not training:
            return tf.reduce_sum(compute(False))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(compute(True) ** 2)
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        return tf.add_n([tf.reduce_sum(tf.convert_to_tensor(g)) for g in gradients])

    return lambda: step().numpy()


def attention_layer(config, batch, length):
    """(function of training, variables) of one layer; its input and angles are given."""
    import tensorflow as tf

    from roformer_zh.attention import SelfAttention

    layer = SelfAttention(config)
    layer.build()
    generator = np.random.default_rng(0)
    hidden = generator.standard_normal((batch, length, config.hidden_dim), "float32")
    hidden, mask = tf.constant(hidden), tf.ones((batch, length), bool)
    located = [tf.constant(part) for part in layer.scheme.locate(None, length)]
    inputs = tf.Variable(hidden)  # its gradient is what the blocks below would need

    def compute(training):
        return layer(inputs, mask, located, training=training)

    return compute, [*layer.trainable_variables, _AsKeras(inputs)]


def whole_encoder(config, batch, length):
    """(function of training, variables) of an `Encoder`."""
    import tensorflow as tf

    from roformer_zh import Encoder

    encoder = Encoder(config)
    ids = np.random.default_rng(0).integers(5, config.vocabulary_size, (batch, length), "int32")
    inputs = {
        "token_ids": tf.constant(ids),
        "segment_ids": tf.zeros_like(ids),
        "padding_mask": tf.ones_like(ids, bool),
    }
    return lambda training: encoder(inputs, training=training), encoder.trainable_variables


@dataclasses.dataclass(frozen=True)
class _AsKeras:
    """A variable of TensorFlow where one of Keras is expected."""

    value: object


def table(found, lengths):
    """Rows: a kernel each, with the slowest over the fastest length."""
    rows = []
    for kernel, times in found.items():
        row = {"kernel": kernel}
        for length in lengths:
            row[f"{length:,}"] = f"{times[length]:.2f}" if length in times else "-"
        row["slowest / fastest"] = f"{max(times.values()) / min(times.values()):.2f}"
        rows.append(row)
    return rows


def plot(found, args):
    """Draws the time of a token over the length, a line a kernel, into a PNG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, (name, kernels) in zip(figure.subplots(1, 2), found.items(), strict=True):
        for kernel, times in kernels.items():
            axes.plot(times.keys(), times.values(), "o-", markersize=4, label=kernel)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xticks(args.lengths, [f"{length:,}" for length in args.lengths], fontsize=8)
        axes.set(title=name, xlabel="tokens a sequence", ylabel="microseconds a token")
    axes.legend(fontsize=8)
    with atomic_path(args.plot) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


if __name__ == "__main__":
    run_command(main, Arguments)
