"""Weight files that bert4keras' `model.save_weights` wrote: their layers under Google's names.

An .h5 file keeps the layers' names. A TensorFlow file (tf.keras writes one where the name does not
end in .h5) keeps their order and their attributes, from which the names follow.
"""

import re

LAYER = {
    "MultiHeadSelfAttention": [f"attention/{part}/{kind}" for part in (
        "self/query", "self/key", "self/value", "output/dense") for kind in ("kernel", "bias")],
    "MultiHeadSelfAttention-Norm": ["attention/output/LayerNorm/beta",
                                    "attention/output/LayerNorm/gamma"],
    "FeedForward": ["intermediate/dense/kernel", "intermediate/dense/bias",
                    "output/dense/kernel", "output/dense/bias"],
    "FeedForward-Norm": ["output/LayerNorm/beta", "output/LayerNorm/gamma"],
}
"""Part of a layer's name -> Google's names of its weights, behind `bert/encoder/layer_{i}/`."""
OTHER = {
    "Embedding-Token": ["bert/embeddings/word_embeddings"],
    "Embedding-Segment": ["bert/embeddings/token_type_embeddings"],
    "Embedding-Position": ["bert/embeddings/position_embeddings"],
    "Embedding-Norm": ["bert/embeddings/LayerNorm/beta", "bert/embeddings/LayerNorm/gamma"],
    "Embedding-Mapping": ["bert/encoder/embedding_hidden_mapping_in/kernel",
                          "bert/encoder/embedding_hidden_mapping_in/bias"],
    "Embedding-Relative-Position": ["bert/relative_positions_encoding"],
    "MLM-Dense": ["cls/predictions/transform/dense/kernel", "cls/predictions/transform/dense/bias"],
    "MLM-Norm": ["cls/predictions/transform/LayerNorm/beta",
                 "cls/predictions/transform/LayerNorm/gamma"],
    "MLM-Bias": ["cls/predictions/output_bias"],
    "Pooler-Dense": ["bert/pooler/dense/kernel", "bert/pooler/dense/bias"],
    "NSP-Proba": ["cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"],
}
"""Name of another layer -> Google's names of its weights, in order."""
ATTRIBUTES = {
    "embeddings": ["embeddings"],
    "norm": ["beta", "gamma"],
    "dense": ["kernel", "bias"],
    "bias": ["beta"],
    "plain bias": ["bias"],
    "attention": [f"{part}_dense/{kind}" for part in "qkvo" for kind in ("kernel", "bias")],
    "feed-forward": ["i0_dense/kernel", "i0_dense/bias", "o_dense/kernel", "o_dense/bias"],
    "old feed-forward": ["dense_1/kernel", "dense_1/bias", "dense_2/kernel", "dense_2/bias"],
}
"""Kind of a layer -> the attributes that a TensorFlow file keeps of it, in the order above."""
OBJECT_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
MARKER = "Embedding-Rotary-Position"
"""A layer without weights by which an .h5 file shows that it is a RoFormer."""


def names_of_h5(path):
    """({Google name: path of the array in the file}, names of all layers) of an .h5 file.

    Raises:
        ValueError: it is no file of bert4keras, or a layer has no place in a model of this library.
    """
    import h5py
    try:
        with h5py.File(path) as file:
            root = file.get("model_weights", file)
            layers = [_text(name) for name in root.attrs["layer_names"]]
            weights = {name: [f"{root.name.rstrip('/')}/{name}/{_text(weight)}"
                              for weight in root[name].attrs["weight_names"]] for name in layers}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path} must be an .h5 file of bert4keras' save_weights; it is damaged "
                         f"or another program's: {error}") from error
    found = {}
    for layer, places in weights.items():
        if places:
            found.update(_pair(layer, places, path))
    return found, layers


def names_of_objects(names, where):
    """{Google name: name in the file} of a TensorFlow file of Keras objects.

    Optimizer state keeps its name, which every map skips.

    Raises:
        ValueError: a layer has no place in a model of this library.
    """
    layers, found = {}, {}
    for name in names:
        match = re.fullmatch(rf"layer_with_weights-(\d+)/([\w/]+){OBJECT_SUFFIX}", name)
        if match:
            layers.setdefault(int(match[1]), {})[match[2]] = name
        elif name.startswith(("optimizer/", "save_counter")) or "/.OPTIMIZER_SLOT/" in name:
            found[f"optimizer/{name}"] = name
        elif name != "_CHECKPOINTABLE_OBJECT_GRAPH":
            raise ValueError(f"{where}: {name} belongs to no layer of bert4keras; load the file in "
                             "the program that wrote it and save it as a checkpoint (bert4keras: "
                             "save_weights_as_checkpoint)")
    ordered = [layers[number] for number in sorted(layers)]
    kinds = [_kind(weights, where) for weights in ordered]
    for layer, kind, weights in zip(_layer_names(kinds, where), kinds, ordered, strict=True):
        found.update(_pair(layer, [weights[key] for key in ATTRIBUTES[kind]], where))
    return found


def _kind(attributes, where):
    """The kind of a layer by its attributes."""
    kind = next((kind for kind, keys in ATTRIBUTES.items() if set(keys) == set(attributes)), None)
    if kind is None:
        raise ValueError(f"{where}: no layer of this library has the weights "
                         f"{', '.join(sorted(attributes))}")
    return kind


def _layer_names(kinds, where):
    """The layers' names by their order: embeddings, blocks, heads."""
    names, block, inside = [], -1, None
    for place, kind in enumerate(kinds):
        following = kinds[place + 1] if place + 1 < len(kinds) else None
        if kind == "embeddings":
            normed = "Embedding-Norm" in names
            tables = ["Embedding-Token", "Embedding-Segment", "Embedding-Position"]
            left = [table for table in tables if table not in names]
            name = "Embedding-Relative-Position" if normed or not left else left[0]
        elif kind == "attention":
            block += 1
            name = inside = f"Transformer-{block}-MultiHeadSelfAttention"
        elif kind.endswith("feed-forward"):
            name = inside = f"Transformer-{block}-FeedForward"
        elif kind == "norm":
            name, inside = f"{inside or 'Embedding'}-Norm", "MLM"
        elif kind.endswith("bias"):
            name = "MLM-Bias"
        elif block < 0:
            name = "Embedding-Mapping"
        else:
            name = "MLM-Dense" if following == "norm" else "Pooler-Dense"
            name = "NSP-Proba" if name in names else name
            inside = "MLM"
        if name in names:
            raise ValueError(f"{where} has two layers that would be {name}; save it as a "
                             "checkpoint (bert4keras: save_weights_as_checkpoint)")
        names.append(name)
    return names


def _pair(layer, places, where):
    """{Google name: place} of one layer's weights."""
    match = re.fullmatch(r"Transformer-(\d+)-(.+)", layer)
    if match:
        names = [f"bert/encoder/layer_{match[1]}/{name}" for name in LAYER.get(match[2], [])]
    else:
        names = OTHER.get(layer, [])
    if len(names) != len(places):
        raise ValueError(f"{where}: layer {layer} with {len(places)} weights has no place in a "
                         "model of this library")
    return dict(zip(names, places, strict=True))


def _text(name):
    """A name as text; older h5py gives bytes."""
    return name.decode() if isinstance(name, bytes) else str(name)
