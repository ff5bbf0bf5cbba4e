"""Parameters and operations by formula against the built model."""

import math

import pytest

from roformer_zh import EncoderConfig, costs
from tests.conftest import tiny_config

PRODUCTS = ("MatMul", "BatchMatMulV2", "Einsum")


def tiny_masked_lm(config):
    from roformer_zh import Encoder, MaskedLM

    return MaskedLM(Encoder(config))


@pytest.mark.parametrize(
    "config",
    [
        tiny_config("rotary"),
        tiny_config("learned", embedding_dim=8),
        tiny_config("relative", num_segments=3),
        tiny_config("sinusoidal", pooler=True),
        tiny_config("none", attention="linear"),
        EncoderConfig.preset("roformer_tiny"),
        EncoderConfig.preset("wobert_tiny", vocabulary_size=1000),
        EncoderConfig.preset("nezha_small", vocabulary_size=1000),
    ],
    ids=lambda config: f"{config.position}-{config.hidden_dim}",
)
def test_parameters_are_those_of_the_built_model(config):
    model = tiny_masked_lm(config)
    assert costs.parameters(config) == model.count_params()
    assert costs.parameters(config, head=False) == model.encoder.count_params()


def operations(graph, loops):
    """Operations of the matrix products that a graph's outputs need, from the tensors' shapes.

    Args:
        graph: a traced tf.function's graph.
        loops: times that the body of each loop runs.
    """
    return sum(
        product(operation) if operation.type in PRODUCTS else inner(graph, operation, loops)
        for operation in needed(graph)
    )


def needed(graph):
    """The graph's operations that lead to its outputs; what nothing reads is never run."""
    found, waiting = set(), [tensor.op for tensor in graph.outputs]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found


def product(operation):
    """2 x the size of the result x the length of the sum."""
    if operation.type == "Einsum":
        terms = operation.get_attr("equation").decode().split("->")[0].split(",")
        sizes = {
            letter: size
            for term, tensor in zip(terms, operation.inputs, strict=True)
            for letter, size in zip(term, tensor.shape, strict=True)
        }
        return 2 * math.prod(sizes.values())
    turned = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    summed = operation.inputs[0].shape[-2 if turned else -1]
    return 2 * operation.outputs[0].shape.num_elements() * summed


def inner(graph, operation, loops):
    """Operations of the function that a loop or call runs."""
    if operation.type in ("While", "StatelessWhile"):
        name, times = operation.get_attr("body").name, loops
    elif operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
        name, times = operation.get_attr("f").name, 1
    else:
        return 0
    return times * operations(graph._get_function(name).graph, loops)


@pytest.mark.parametrize(
    "fields, length",
    [
        (dict(position="rotary"), 7),
        (dict(position="learned", embedding_dim=8), 7),
        (dict(position="relative"), 7),
        (dict(position="rotary", attention="linear"), 7),
        (dict(position="none", attention="linear", feature_map="softmax"), 9),
        (dict(position="rotary", attention="chunked"), 512),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_operations_are_those_of_the_built_model(fields, length):
    """Equal, not near; positions are given, so that NEZHA multiplies with 2 m + 1 vectors."""
    import tensorflow as tf

    config = tiny_config(**fields)
    model, rows, slots = tiny_masked_lm(config), 3, 2
    ids = tf.zeros((rows, length), tf.int32)
    inputs = {
        "token_ids": ids,
        "segment_ids": ids,
        "padding_mask": ids == 0,
        "position_ids": ids,
        "mask_positions": ids[:, :slots],
    }
    graph = tf.function(model, autograph=False).get_concrete_function(inputs).graph
    counted = operations(graph, loops=length // costs.QUERY_CHUNK)
    assert counted == costs.forward_flops(config, rows, length, slots)


def test_a_chunk_is_as_long_as_the_attention_has_it():
    from roformer_zh.attention import QUERY_CHUNK

    assert costs.QUERY_CHUNK == QUERY_CHUNK


def test_backward_is_twice_forward_but_for_fixed_vectors():
    rotary, relative = (EncoderConfig.preset(f"{name}_tiny") for name in ("roformer", "nezha"))
    assert costs.training_flops(rotary, 2, 64, 9) == 3 * costs.forward_flops(rotary, 2, 64, 9)
    fixed = 2 * 64 * relative.num_layers * 4 * 128 * 129
    assert costs.training_flops(relative, 2, 64, 9) == (
        3 * costs.forward_flops(relative, 2, 64, 9) - fixed
    )


@pytest.mark.parametrize("attention, products", [("full", 0), ("chunked", 2 * 2 * 512 * 12)])
def test_what_is_computed_again_is_added(attention, products):
    """Blocks with `recompute`; chunks, two products of 2 x 512 x 12 a token, always."""
    config, sizes = tiny_config(attention=attention), (3, 512, 77)
    tokens = 3 * 512 * config.num_layers
    plain = costs.executed_training_flops(config, *sizes)
    assert plain - costs.training_flops(config, *sizes) == tokens * products
    again = costs.executed_training_flops(config, *sizes, recompute=True)
    assert again - plain == tokens * costs.block_flops(config, 512)
