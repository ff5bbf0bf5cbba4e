"""Memory by formula against the tensors of the traced graph and against measured growth."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roformer_zh import EncoderConfig, memory
from tests.memory_worker import batch_of

ROOT = Path(__file__).parent.parent
B, T, P = 3, 300, 50
ALIASES = {"Reshape", "Identity", "IdentityN", "ExpandDims", "Squeeze", "StopGradient"}
SHAPES = {"Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs"}
NOT_KEPT = {"Const", "ReadVariableOp", "Placeholder", "AddN"}


def kept_bytes(config, policy):
    """Bytes of the forward pass' tensors that the gradient's operations read, by their names."""
    import tensorflow as tf

    from roformer_zh import Encoder, MaskedLM
    from roformer_zh.dropout import dropout_seed
    from roformer_zh.training.objectives import MaskedLMObjective
    from roformer_zh.training.trainer import dtype_policy

    with dtype_policy(policy):
        model = MaskedLM(Encoder(config))
    batch = {name: tf.constant(array) for name, array in batch_of(config, B, T, P).items()}

    forward = set()

    @tf.function(autograph=False)
    def step(batch):
        with tf.GradientTape() as tape, dropout_seed(tf.constant([1, 2])):
            loss = MaskedLMObjective()(model, batch, training=True)["loss"]
        forward.update(operation.name for operation in loss.graph.get_operations())
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    def source(tensor):
        while tensor.op.type in ALIASES:
            tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
        return tensor

    kept = {}
    for operation in step.get_concrete_function(batch).graph.get_operations():
        if operation.name in forward or operation.type in SHAPES:
            continue
        for tensor in map(source, operation.inputs):
            known = tensor.op.name in forward and tensor.op.type not in NOT_KEPT
            if known and tensor.dtype != tf.resource:
                kept[tensor.name] = (tensor.shape.num_elements() or 0) * tensor.dtype.size
    return sum(kept.values())


@pytest.mark.parametrize(
    "preset, fields, policy",
    [
        ("roformer", {}, "float32"),
        ("roformer", {}, "mixed_float16"),
        ("roformer", dict(attention="chunked", activation="gelu_tanh"), "float32"),
        ("roformer", dict(attention="linear"), "float32"),
        ("roformer", dict(attention="linear", feature_map="softmax"), "mixed_bfloat16"),
        ("nezha", dict(activation="relu"), "float32"),
        ("bert", dict(dropout=0.0, attention_dropout=0.0, embedding_dim=64), "mixed_float16"),
    ],
)
def test_kept_tensors_are_those_that_the_gradient_reads(preset, fields, policy):
    config = EncoderConfig.preset(f"{preset}_tiny", vocabulary_size=1000, **fields)
    found = memory.training_memory(config, B, T, P, dtype_policy=policy)
    head = memory.head_tensors(config, B, P, memory.COMPUTE_BYTES[policy])
    formula = found.activations + found.logits - head["logits"]
    kept = kept_bytes(config, policy)
    if config.attention == "chunked":  # two chunks of queries lie in a list, whose size TF hides
        kept += config.num_layers * B * 2 * memory.QUERY_CHUNK * config.hidden_dim * 4
    assert formula == pytest.approx(kept, rel=0.03)


SIZES = {
    "scores": (dict(num_layers=4, num_heads=4, hidden_dim=256), 2, 1024, 150, {}),
    "vocabulary": (
        dict(num_layers=2, num_heads=2, hidden_dim=256, vocabulary_size=50000), 16, 256, 42, {},
    ),
    "chunked": (
        dict(num_layers=6, num_heads=6, hidden_dim=384, attention="chunked"), 2, 1024, 150, {},
    ),
}  # fmt: skip


def measure_growth(job):
    """Bytes that the updates of a job add to a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory_worker", json.dumps(job)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "TF_NUM_INTEROP_THREADS": "1"},  # what runs side by side is chance
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["growth"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_memory_is_what_a_training_step_adds_to_the_process(name):
    fields, *sizes, options = SIZES[name]
    fields = dict(vocabulary_size=5000, intermediate_dim=4 * fields["hidden_dim"]) | fields
    names = ("batch_size", "sequence_length", "masked_positions")
    job = dict(config=fields, **dict(zip(names, sizes, strict=True)), **options)
    growth = min(measure_growth(job) for _ in range(3))  # chance only ever adds
    formula = memory.training_memory(EncoderConfig(**fields), *sizes, **options).peak
    print(f"{name}: measured {growth / 1e9:.2f} GB, by formula {formula / 1e9:.2f} GB")
    assert formula == pytest.approx(growth, rel=0.25)
