"""Plans a pretraining before it is paid for: memory, micro-batches, time and traffic a stage."""

import dataclasses
from typing import Literal

from pretrain.devices import DEVICES
from pretrain.plan_text import plan_text
from roformer_zh import costs
from roformer_zh.batches.masking import training_slots
from roformer_zh.batches.stages import load_stages
from roformer_zh.command import run_command
from roformer_zh.config import EncoderConfig
from roformer_zh.memory import training_memory
from roformer_zh.training.steps import cut_plan

RESERVED = 0.10
"""Share of a device's memory left to the runtime and to what the allocator cannot use."""
EFFICIENCY = {"float32": 0.50, "half": 0.25}
"""Share of the peak that useful operations reach, from published figures on V100, by the rule of
costs.py. BERT-Large at 512 on one card (NVIDIA DeepLearningExamples, TensorFlow2): 11.06
sequences/s in float32 and 40.95 mixed, 72 % and 33 %. BERT-Base at 128 (Oneflow-Inc/DLPerf, TF 2.3
official models with XLA, 64 rows): one card 62 % and 23 %, eight (tf.distribute) 53 % and 16 %."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Plan a pretraining: memory, the largest micro-batch, hours and traffic, a stage and in all.

    Everything is computed from sizes; nothing is measured and no device is needed.
    """

    stages: str
    """JSON file of stages, such as pretrain/stages/paper.json."""
    model: str = "roformer_base"
    """Preset, as of pretrain.run."""
    device: str = "v100-32gb"
    """One of v100-16gb, v100-32gb, a100-40gb, a100 (80 GB), h100, h200, cpu."""
    replicas: int = 1
    """Devices that train together."""
    dtype_policy: Literal["float32", "mixed_float16", "mixed_bfloat16"] = "mixed_float16"
    """Keras dtype policy, as of pretrain.run, whose default is float32."""
    recompute: bool = False
    """Compute activations again in the backward pass."""
    attention: str | None = None
    """Attention kernel: full, chunked or linear; the default is the preset's."""
    efficiency: float | None = None
    """Share of the device's peak that training reaches; the default is 0.50 in float32 and 0.25
    in half precision, from published figures of BERT on V100."""
    bandwidth: float | None = None
    """GB/s that each device sends in an all-reduce; the default is the device's table entry."""
    vocabulary_size: int | None = None
    """Rows of the token table; the default is the preset's."""
    max_sequence_length: int | None = None
    """Rows of a learned position table (bert, wobert); the default is the preset's."""


def main(args):
    """Prints the plan as Markdown; returns it as a dict."""
    stages, device = load_stages(args.stages), check(args)
    config = model_config(args, stages)
    rows = [plan_stage(args, config, device, stage) for stage in stages]
    plan = {
        "model": args.model,
        "parameters": costs.parameters(config),
        "efficiency": efficiency(args),
        "peak_flops": device.peak(args.dtype_policy),
        "stages": rows,
        "hours": sum(row["hours"] for row in rows),
        "updates": sum(row["updates"] for row in rows),
        "tokens": sum(row["updates"] * row["batch_size"] * row["sequence_length"] for row in rows),
        "all_reduce_bytes": all_reduce_bytes(config, args.replicas),
    }
    print(plan_text(args, config, device, plan, RESERVED))
    return plan


def check(args):
    """The device; raises where an argument is out of range."""
    if args.device not in DEVICES:
        raise ValueError(f"--device must be one of {', '.join(DEVICES)}; got {args.device!r}")
    if args.replicas < 1:
        raise ValueError(f"--replicas must be at least 1; got {args.replicas}")
    if args.efficiency is not None and not 0 < args.efficiency <= 1:
        raise ValueError(f"--efficiency must be above 0 and at most 1; got {args.efficiency:g}")
    if args.bandwidth is not None and not args.bandwidth > 0:
        raise ValueError(f"--bandwidth must be above 0 GB/s; got {args.bandwidth:g}")
    device = DEVICES[args.device]
    if device.peak(args.dtype_policy) is None:
        raise ValueError(
            f"{args.device} has no fast {args.dtype_policy}; use "
            f"--dtype-policy {' or '.join(device.policies())}"
        )
    return device


def model_config(args, stages):
    """The preset with the changes asked for; every stage must fit a learned position table."""
    names = ("attention", "vocabulary_size", "max_sequence_length")
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    config = EncoderConfig.preset(args.model, **changes)
    for stage in stages:
        table = config.max_sequence_length
        if table is not None and stage.sequence_length > table:
            raise ValueError(
                f"every stage must fit the model's position table; stage {stage.name!r} has "
                f"{stage.sequence_length} tokens, {args.model} {table} rows: pass "
                f"--max-sequence-length {stage.sequence_length}, or use a model without a table "
                "(roformer, nezha)"
            )
    return config


def plan_stage(args, config, device, stage):
    """The figures of one stage, as a dict."""
    length, slots = stage.sequence_length, masked_slots(stage)
    micro, count = largest_micro_batch(args, config, device, stage)
    memory = step_memory(args, config, stage, micro, count > 1)
    share = count * micro  # rows that a replica computes, filled up
    sizes = (config, share, length, slots)
    executed = costs.executed_training_flops(*sizes, recompute=args.recompute)
    compute = executed / (device.peak(args.dtype_policy) * efficiency(args))
    bandwidth = (args.bandwidth or device.bandwidth) * 1e9
    transfer = all_reduce_bytes(config, args.replicas) / bandwidth
    seconds = compute + transfer
    return {
        "name": stage.name,
        "sequence_length": length,
        "batch_size": stage.batch_size,
        "updates": stage.steps,
        "masked_slots": slots,
        "micro_batch_size": micro,
        "accumulation": count,
        "filled_rows": share * args.replicas - stage.batch_size,
        **dataclasses.asdict(memory),
        "flops_per_token": costs.training_flops(config, 1, length, slots) / length,
        "compute_seconds": compute,
        "all_reduce_seconds": transfer,
        "tokens_per_second": stage.batch_size * length / seconds,
        "hours": seconds * stage.steps / 3600,
    }


def masked_slots(stage):
    """Slots a row that the head computes, as the batches have them."""
    return training_slots(stage.mask_selection_rate, stage.sequence_length)


def largest_micro_batch(args, config, device, stage):
    """(rows, count) of micro-batches, as the trainer cuts the replica's share.

    The largest divisor of the share that fits; where that is less than half of the most rows that
    fit (a share of 31 rows), the latter, and the trainer fills up with empty rows.
    """
    share = cut_plan(stage.batch_size, args.replicas)[1]
    cuts = sorted({cut_plan(share, 1, rows) for rows in range(1, share + 1)})
    fitting = [
        (rows, count)
        for count, rows in cuts
        if step_memory(args, config, stage, rows, count > 1).peak
        <= (1 - RESERVED) * device.memory
    ]
    if fitting:
        even = next(((rows, n) for rows, n in fitting if rows * n == share), (0, 0))
        return even if 2 * even[0] >= fitting[0][0] else fitting[0]
    memory = step_memory(args, config, stage, 1, share > 1)
    hints = [] if args.recompute else ["--recompute"]
    hints += [] if config.attention != "full" else ["--attention chunked"]
    hints += [] if args.dtype_policy != "float32" else ["--dtype-policy mixed_float16"]
    raise ValueError(
        f"one row of stage {stage.name!r} ({stage.sequence_length} tokens) must fit into "
        f"{(1 - RESERVED) * device.memory / 1e9:.1f} GB, {1 - RESERVED:.0%} of {args.device}'s "
        f"memory; it needs {memory.peak / 1e9:.1f} GB: try "
        f"{', '.join([*hints, 'a larger --device'])}"
    )


def step_memory(args, config, stage, rows, accumulate):
    """The memory of a step of `rows` rows at once."""
    return training_memory(
        config,
        rows,
        stage.sequence_length,
        masked_slots(stage),
        dtype_policy=args.dtype_policy,
        recompute=args.recompute,
        accumulate=accumulate,
    )


def efficiency(args):
    """The share of peak that is assumed."""
    kind = "float32" if args.dtype_policy == "float32" else "half"
    return EFFICIENCY[kind] if args.efficiency is None else args.efficiency


def all_reduce_bytes(config, replicas):
    """Bytes that each device sends, and receives, in a ring: 2 (n - 1) / n float32 gradients.

    Example:
        >>> all_reduce_bytes(EncoderConfig.preset("roformer_base"), 1)
        0
    """
    return 2 * (replicas - 1) * 4 * costs.parameters(config) // replicas


if __name__ == "__main__":
    run_command(main, Arguments)
