"""Times MLM training on one GPU through Keras' JAX backend, beside its matmul peak.

Needs keras, jax and numpy and imports no TensorFlow; on a machine with a GPU:

    python -m benchmarks.gpu_training

A toy size, to see on a processor that it runs:

    python -m benchmarks.gpu_training --preset roformer_tiny --vocabulary 500 --lengths 64 128 \
        --tokens 256 --seconds 1 --matmul 256
"""

import argparse
import math
import os
import sys
import time

import numpy as np

from benchmarks.measure import best_rate, versions
from roformer_zh.config import ATTENTIONS, EncoderConfig
from roformer_zh.costs import training_flops
from roformer_zh.reports import markdown_table, percent

KERNELS = tuple(kernel for kernel in ATTENTIONS if kernel != "linear")
POLICIES = {"mixed_bfloat16": "bfloat16", "mixed_float16": "float16", "float32": "float32"}
"""Keras dtype policy -> dtype of the matrix products."""


def arguments(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", default="roformer_base", help="a preset of EncoderConfig")
    add("--vocabulary", type=int, default=50000, help="rows of the token table")
    add("--policies", nargs="+", default=["mixed_bfloat16", "float32"], choices=POLICIES,
        help="dtype policies")
    add("--lengths", nargs="+", type=int, default=[512, 1536], help="tokens a row")
    add("--kernels", nargs="+", default=list(KERNELS), choices=KERNELS, help="attention kernels")
    add("--tokens", type=int, default=16384, help="tokens a batch, rounded down to whole rows")
    add("--masked", type=float, default=0.15, help="share of tokens that are predicted")
    add("--dropout", type=float, default=0.1,
        help="both dropout rates; a fused kernel drops no attention")
    add("--recompute", action="store_true", help="compute each block again in the backward pass")
    add("--seconds", type=float, default=4.0, help="time of the steps of a row")
    add("--matmul", nargs="+", type=int, default=[4096, 8192],
        help="widths of the square products whose best rate is the peak")
    add("--deadline", type=float, default=420.0, help="start no further row after so many seconds")
    return parser.parse_args(argv)


def main(args):
    """Prints one row a policy, length and kernel; returns the rows."""
    started = time.perf_counter()
    use_jax()
    import jax

    device = jax.devices()[0]
    print(versions("keras", "jax", "jaxlib", "numpy"), f"on {device.device_kind}", flush=True)
    config = EncoderConfig.preset(
        args.preset, vocabulary_size=args.vocabulary, dropout=args.dropout)
    peaks = {policy: best_rate(lambda size, p=policy: matmul(size, POLICIES[p]), args.matmul)
             for policy in args.policies}
    rows = []
    for policy in args.policies:
        for length in args.lengths:
            for kernel in args.kernels:
                row = {"dtype policy": policy, "length": length,
                       "batch": rows_of(args, length), "kernel": kernel}
                if time.perf_counter() - started > args.deadline:
                    row["tokens/s"] = "not run: past the deadline"
                else:
                    rate = 0.0 if kernel == "fused" else args.dropout  # it shows no probabilities
                    case = config.replace(attention=kernel, attention_dropout=rate)
                    row |= measure(args, case, policy, length, peaks[policy])
                print(row, flush=True)
                rows.append(row)
    print(markdown_table([in_words(row) for row in rows]))
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use")
    if memory:
        print(f"Most memory in use at once, over all rows: {memory / 1e9:.1f} GB.")
    return rows


def use_jax():
    """Chooses the backend; Keras must not have been imported with another."""
    if "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    if keras.backend.backend() != "jax":
        raise ValueError(
            f"this benchmark needs Keras' jax backend; it runs on {keras.backend.backend()}; "
            "set KERAS_BACKEND=jax"
        )


def rows_of(args, length):
    """Rows a batch: as many as fit into the tokens."""
    return max(1, args.tokens // length)


def measure(args, config, policy, length, peak):
    """What one row of the table holds besides its case; no room on the device is an answer."""
    import jax

    batch = rows_of(args, length)
    slots = math.ceil(args.masked * length)
    flops = training_flops(config, batch, length, slots)
    try:
        found = time_steps(args, config, policy, batch, length, slots)
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return {"tokens/s": "out of memory"}
    speed = batch * length / found["seconds"]
    rate = flops / found["seconds"]
    return {
        "tokens/s": speed,
        "peak memory": found["memory"],
        "useful FLOP/s": rate,
        "share of matmul peak": rate / peak,
        "matmul peak": peak,
        "compilation, s": found["compilation"],
        "loss": found["loss"],
        "steps": found["steps"],
    }


def time_steps(args, config, policy, batch, length, slots):
    """Seconds a step, the compiled step's memory in bytes, its compilation, the last loss."""
    import jax

    from roformer_zh.encoder import Encoder
    from roformer_zh.heads import MaskedLM

    model = MaskedLM(Encoder(config, dtype=policy))
    model.encoder.recompute = args.recompute
    optimizer, state = make_state(model)
    data = jax.device_put(make_batch(config, batch, length, slots))
    step = jax.jit(make_step(model, optimizer), donate_argnums=0)
    started = time.perf_counter()
    compiled = step.lower(state, data, 0).compile()
    compilation = time.perf_counter() - started
    for update in range(2):
        state, loss = compiled(state, data, update)
    jax.block_until_ready(loss)
    steps, started = 0, time.perf_counter()
    while time.perf_counter() - started < args.seconds:
        for _ in range(2):
            state, loss = compiled(state, data, steps + 2)
            steps += 1
        jax.block_until_ready(loss)
    seconds = (time.perf_counter() - started) / steps
    if not math.isfinite(float(loss)):
        raise ValueError(f"the loss must stay finite; it is {float(loss)} after {steps + 2} steps")
    return {"seconds": seconds, "memory": memory_of(compiled), "compilation": compilation,
            "loss": float(loss), "steps": steps}


def make_state(model):
    """(optimizer, its variables and the model's as arrays that a step may overwrite)."""
    import jax.numpy as jnp
    import keras

    optimizer = keras.optimizers.AdamW(
        1e-4, weight_decay=0.01, beta_2=0.999, epsilon=1e-6, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(model.trainable_variables)
    groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    return optimizer, tuple([jnp.copy(v.value) for v in group] for group in groups)


def make_step(model, optimizer):
    """A pure function of (state, batch, update) that gives the next state and the loss."""
    import jax
    import jax.numpy as jnp

    from roformer_zh.dropout import dropout_seed
    from roformer_zh.training.objectives import MaskedLMObjective, token_losses

    def loss_of(trainable, fixed, batch, update):
        inputs = {name: batch[name] for name in MaskedLMObjective.inputs}
        with dropout_seed(jnp.stack([0, update]).astype("int32")):
            logits, fixed = model.stateless_call(trainable, fixed, inputs, training=True)
        weights = batch["mask_weights"]
        losses = token_losses(batch["mask_ids"], logits)
        return jnp.sum(losses * weights) / jnp.sum(weights), fixed

    def step(state, batch, update):
        trainable, fixed, slots = state
        (loss, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            trainable, fixed, batch, update)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, fixed, slots), loss

    return step


def make_batch(config, batch, length, slots):
    """Random tokens, every row full, equally many masked in each."""
    rng = np.random.default_rng(0)
    token_ids = rng.integers(5, config.vocabulary_size, (batch, length), dtype=np.int32)
    positions = np.argsort(rng.random((batch, length)), axis=1)[:, :slots].astype(np.int32)
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros((batch, length), np.int32),
        "padding_mask": np.ones((batch, length), bool),
        "mask_positions": positions,
        "mask_ids": np.take_along_axis(token_ids, positions, axis=1),
        "mask_weights": np.ones(positions.shape, np.float32),
    }


def memory_of(compiled):
    """Bytes that the compiled step needs: arguments, results and what lives in between."""
    plan = compiled.memory_analysis()
    return (plan.argument_size_in_bytes + plan.output_size_in_bytes
            - plan.alias_size_in_bytes + plan.temp_size_in_bytes)


def matmul(size, dtype):
    """A function of nothing: one square product."""
    import jax
    import jax.numpy as jnp

    left, right = (jax.random.normal(jax.random.key(n), (size, size)).astype(dtype)
                   for n in (0, 1))
    product = jax.jit(jnp.matmul)
    return lambda: product(left, right).block_until_ready()


def in_words(row):
    """The row as it is printed."""
    row = dict(row)
    if isinstance(row["tokens/s"], str):
        return row
    return row | {
        "tokens/s": f"{row['tokens/s']:,.0f}",
        "peak memory": f"{row['peak memory'] / 1e9:.2f} GB",
        "useful FLOP/s": f"{row['useful FLOP/s'] / 1e12:.3g} T",
        "share of matmul peak": f"{percent(row['share of matmul peak'])} %",
        "matmul peak": f"{row['matmul peak'] / 1e12:.3g} T",
        "compilation, s": f"{row['compilation, s']:.1f}",
        "loss": f"{row['loss']:.3f}",
    }


if __name__ == "__main__":
    main(arguments())
