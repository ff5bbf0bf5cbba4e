"""A model's weights as a flat dict of arrays: one name a tensor, query, key and value apart."""

import keras
import numpy as np

from roformer_zh.runs import encoder_of

FUSED = "query_key_value_"


def named_variables(model):
    """Our name -> Keras variable: its path behind the model's name, `head/` before the head's."""
    encoder = encoder_of(model)
    inside = {id(variable) for variable in encoder.variables}
    named = {}
    for variable in model.variables:
        owner, start = (encoder, "") if id(variable) in inside else (model, "head/")
        parts = variable.path.split("/")
        named[start + "/".join(parts[parts.index(owner.name) + 1:])] = variable
    return named


def tensor_shapes(model):
    """Our name -> shape of every tensor, the fused ones split."""
    shapes = {}
    for name, variable in named_variables(model).items():
        shape = tuple(variable.shape)
        for part in _parts(name):
            shapes[part] = shape if part == name else (*shape[:-1], shape[-1] // 3)
    return shapes


def get_tensors(model):
    """Our name -> float32 array of every tensor, the fused ones split."""
    tensors = {}
    for name, variable in named_variables(model).items():
        array = np.array(keras.ops.convert_to_numpy(variable))
        parts = _parts(name)
        tensors.update(zip(parts, np.split(array, len(parts), axis=-1) if len(parts) > 1
                           else [array], strict=True))
    return tensors


def set_tensors(model, tensors):
    """Assigns every tensor of the model; names and shapes are checked before the first change."""
    shapes = tensor_shapes(model)
    wrong = [name for name in {*shapes, *tensors}
             if name not in shapes or np.shape(tensors.get(name, ())) != shapes[name]
             or name not in tensors]
    if wrong:
        raise ValueError(f"tensors must be the model's own; these are not: {sorted(wrong)}")
    for name, variable in named_variables(model).items():
        parts = [tensors[part] for part in _parts(name)]
        variable.assign(np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0])


def _parts(name):
    """The names of the tensors that one variable holds, in order."""
    if FUSED not in name:
        return [name]
    start, kind = name.split(FUSED)
    return [f"{start}{part}/{kind}" for part in ("query", "key", "value")]
