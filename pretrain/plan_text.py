"""The text of a plan."""

from roformer_zh.reports import markdown_table

PARTS = ("weights", "optimizer", "gradients", "activations", "logits", "peak")


def plan_text(args, config, device, plan, reserved):
    """Markdown with the model, a table of memory, one of time, and what is assumed."""
    title = f"# {args.model} on {args.replicas} x {device.name}, {args.dtype_policy}"
    return "\n".join(
        [
            title,
            "",
            f"{plan['parameters']:,} parameters; attention {config.attention}"
            f"{', blocks computed again' if args.recompute else ''}; vocabulary "
            f"{config.vocabulary_size:,}.",
            "",
            "## Memory of one device, GB",
            "",
            markdown_table([memory_row(stage) for stage in plan["stages"]]),
            "",
            "## Time",
            "",
            markdown_table([time_row(stage) for stage in plan["stages"]]),
            "",
            f"In all {plan['updates']:,} updates, {plan['tokens'] / 1e9:,.1f} G tokens (padding "
            f"included), **{plan['hours']:,.0f} hours** ({plan['hours'] / 24:,.1f} days, "
            f"{plan['hours'] * args.replicas:,.0f} device-hours).",
            "",
            *assumptions(args, device, plan, reserved),
        ]
    )


def memory_row(stage):
    """One stage's row of the first table."""
    return {
        "stage": stage["name"],
        "micro-batch": stage["micro_batch_size"],
        **{part: f"{stage[part] / 1e9:.2f}" for part in PARTS},
    }


def time_row(stage):
    """One stage's row of the second table."""
    return {
        "stage": stage["name"],
        "batch": stage["batch_size"],
        "micro-batch x accumulation": f"{stage['micro_batch_size']} x {stage['accumulation']}",
        "empty rows": stage["filled_rows"],
        "MFLOP a token": f"{stage['flops_per_token'] / 1e6:,.0f}",
        "tokens/s": f"{stage['tokens_per_second']:,.0f}",
        "s an update": f"{stage['compute_seconds'] + stage['all_reduce_seconds']:.2f}",
        "all-reduce, s": f"{stage['all_reduce_seconds']:.3f}",
        "hours": f"{stage['hours']:,.1f}",
    }


def assumptions(args, device, plan, reserved):
    """Lines that say what the figures rest on."""
    bandwidth = args.bandwidth or device.bandwidth
    return [
        "## Assumed",
        "",
        f"- Peak {plan['peak_flops'] / 1e12:,.3g} TFLOP/s and {device.memory / 1e9:.0f} GB a "
        f"device: {device.source}; {reserved:.0%} of the memory is left to the runtime.",
        f"- {plan['efficiency']:.0%} of the peak is reached (--efficiency; measure it on your "
        "device). Default: 50 % in float32, 25 % in half precision. Published on V100: BERT-Large "
        "at 512, one card, 72 % and 33 %; BERT-Base at 128 with XLA, one card, 62 % and 23 %, "
        "eight with tf.distribute, 53 % and 16 %.",
        "- FLOPs: a multiply-add is 2, matrix products only, backward twice forward, head at the "
        "masked slots only; time counts what is computed again, the column does not.",
        f"- All-reduce a device and update: 2 (n - 1) / n x 4 bytes x parameters = "
        f"{plan['all_reduce_bytes'] / 1e6:,.0f} MB in a ring of n = {args.replicas}, at "
        f"{bandwidth:g} GB/s (--bandwidth), not overlapped with computing.",
        "- Memory: the peak is the start of the backward pass or the update; other parts are not "
        "all alive then. Gradients are two sets where micro-batches are added up.",
    ]
