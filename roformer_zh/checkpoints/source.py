"""Opens what a user points at: a TensorFlow checkpoint or a Hugging Face folder."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from roformer_zh.checkpoints.bert4keras_weights import (
    OBJECT_SUFFIX,
    names_of_h5,
    names_of_objects,
)

TENSORFLOW_SUFFIX = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
PICKLED = ("pytorch_model.bin.index.json", "pytorch_model.bin")
SAFE = ("model.safetensors.index.json", "model.safetensors")
CONFIG_NAMES = {"huggingface": ("config.json",), "google": ("bert_config.json", "config.json")}
OTHER_CONFIGS = ("tokenizer_config.json", "generation_config.json")


@dataclasses.dataclass(frozen=True)
class Source:
    """The tensors of a foreign checkpoint, read one at a time."""

    kind: str
    """"huggingface" or "google"."""
    path: Path
    """The file, or the prefix of a TensorFlow checkpoint."""
    folder: Path
    """Where config and vocabulary lie."""
    shapes: dict
    """Name -> shape."""
    read: Callable
    """Name -> array."""
    layers: tuple = ()
    """Names of layers without weights, where the file has them."""


def open_source(path):
    """A `Source` for a path; see `python -m roformer_zh.checkpoints import --help`.

    Args:
        path: a Hugging Face folder or its weight file; the prefix, the .index, .meta or .data file
            of a TensorFlow checkpoint, or a folder with exactly one; a file of bert4keras'
            `save_weights`.

    Raises:
        FileNotFoundError: there is no checkpoint; the message says what was expected.
        ValueError: there are several, or the file is damaged.
    """
    path = Path(path)
    if path.is_dir():
        path = _find_weights(path)
    if path.name.endswith((".safetensors", ".safetensors.index.json")):
        return _open_safetensors(path)
    if path.name.endswith((".bin", ".bin.index.json", ".pt", ".pth")):
        return _open_pickled(path)
    if path.suffix == ".keras":
        raise ValueError(f"{path} is a .keras file; load it with roformer_zh.load_model")
    if path.suffix == ".h5":
        return _open_h5(path)
    return _open_tensorflow(path)


def read_json(path):
    """The object in a JSON file."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object; got {type(content).__name__}")
    return content


def find_config(source, path=None):
    """(path, fields) of the foreign config: `path`, or the one beside the weights.

    Raises:
        FileNotFoundError: there is none.
        ValueError: there are several of other names, or it is no JSON object.
    """
    names = CONFIG_NAMES[source.kind]
    found = [Path(path)] if path is not None else [
        source.folder / name for name in names if (source.folder / name).is_file()]
    found = found or sorted(file for file in source.folder.glob("*config*.json")
                            if file.name not in OTHER_CONFIGS)
    if not found:
        raise FileNotFoundError(f"{source.folder} holds no {' or '.join(names)}; give the config "
                                "with --config")
    if len(found) > 1 and found[0].name not in names:
        raise ValueError(f"{source.folder} holds several configs: "
                         f"{', '.join(file.name for file in found)}; choose one with --config")
    return found[0], read_json(found[0])


def _find_weights(folder):
    """The one checkpoint in a folder."""
    if (folder / "model.keras").is_file():
        raise ValueError(f"{folder} is a run folder of this library already; nothing to import")
    found = [next((folder / name for name in names if (folder / name).is_file()), None)
             for names in (SAFE, PICKLED)]
    prefixes = sorted(file.with_suffix("") for file in folder.glob("*.index"))
    candidates = [file for file in found if file][:1] + prefixes
    candidates = candidates or sorted(folder.glob("*.h5"))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ValueError(f"{folder} must hold one checkpoint; it holds "
                         f"{', '.join(file.name for file in candidates)}: give the path of one")
    raise FileNotFoundError(
        f"{folder} holds no checkpoint: expected {SAFE[1]}, {PICKLED[1]}, or NAME.index with "
        f"NAME.data-00000-of-00001; it holds {', '.join(_listing(folder)) or 'nothing'}")


def _open_tensorflow(path):
    """A `Source` of a TensorFlow checkpoint given by prefix or by any of its files."""
    prefix = path.with_name(TENSORFLOW_SUFFIX.sub("", path.name))
    if not prefix.with_name(prefix.name + ".index").is_file():
        near = _listing(prefix.parent) if prefix.parent.is_dir() else []
        raise FileNotFoundError(
            f"no checkpoint at {path}: expected {prefix.name}.index and "
            f"{prefix.name}.data-00000-of-00001 in {prefix.parent}; it holds "
            f"{', '.join(near) or 'nothing'}")
    import tensorflow as tf
    try:
        reader = tf.train.load_checkpoint(str(prefix))
        shapes = {name: tuple(shape) for name, shape
                  in reader.get_variable_to_shape_map().items()}
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(f"{prefix} is no whole TensorFlow checkpoint: {error}") from error
    places = {name: name for name in shapes}
    if any(name.endswith(OBJECT_SUFFIX) for name in shapes):
        places = names_of_objects(shapes, prefix)

    def read(name):
        try:
            return reader.get_tensor(places[name])
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:
            raise ValueError(f"{prefix}: {name} cannot be read: {error}") from error

    shapes = {name: shapes[place] for name, place in places.items()}
    return Source("google", prefix, prefix.parent, shapes, read)


def _open_h5(path):
    """A `Source` of an .h5 file of bert4keras."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    import h5py
    places, layers = names_of_h5(path)

    def read(name):
        with h5py.File(path) as file:
            return file[places[name]][()]

    with h5py.File(path) as file:
        shapes = {name: file[place].shape for name, place in places.items()}
    return Source("google", path, path.parent, shapes, read, tuple(layers))


def _open_safetensors(path):
    """A `Source` of one safetensors file, or of the shards that an index names."""
    from safetensors import SafetensorError, safe_open
    shapes, files = {}, {}
    for file in _shards(path):
        try:
            opened = safe_open(file, framework="np")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is no whole safetensors file: {error}") from error
        for name in opened.keys():  # noqa: SIM118
            if name in files:
                raise ValueError(f"{file}: {name} lies in another shard too")
            shapes[name] = tuple(opened.get_slice(name).get_shape())
            files[name] = (file, opened)
    _check_index(path, files)

    def read(name):
        file, opened = files[name]
        if opened.get_slice(name).get_dtype() == "BF16":
            return _read_bfloat16(file, name)
        return opened.get_tensor(name)

    return Source("huggingface", path, path.parent, shapes, read)


def _read_bfloat16(file, name):
    """One bfloat16 tensor as float32, from a file that was checked; numpy has no such type."""
    with open(file, "rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        entry = json.loads(opened.read(size))[name]
        start, end = entry["data_offsets"]
        opened.seek(8 + size + start)
        halves = np.frombuffer(opened.read(end - start), "<u2").astype(np.uint32) << 16
    return halves.view(np.float32).reshape(entry["shape"])


def _open_pickled(path):
    """A `Source` of torch files; only tensors are unpickled, never code."""
    try:
        import torch
    except ImportError as error:
        raise ValueError(f"{path} is a torch pickle, which needs torch: pip install "
                         "'.[hf]' in the project's folder, or save the model as safetensors"
                         ) from error
    tensors = {}
    for file in _shards(path):
        try:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises errors of many kinds
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{file} holds more than tensors, or is damaged, and was not loaded: "
                             f"{reason}") from error
        if not isinstance(loaded, dict) or not all(map(torch.is_tensor, loaded.values())):
            raise ValueError(f"{file} must hold a dict of tensors; got {type(loaded).__name__}")
        tensors.update(loaded)
    _check_index(path, tensors)
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def read(name):
        tensor = tensors[name]
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()

    return Source("huggingface", path, path.parent, shapes, read)


def _shards(path):
    """The files an index names, or the one file; each must be there."""
    files = [path]
    if path.suffix == ".json":
        files = [path.parent / Path(name).name
                 for name in sorted(set(_weight_map(path).values()))]
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"no file {file}" + ("" if file == path
                                                         else f", which {path.name} names"))
    return files


def _weight_map(path):
    """Tensor name -> file name of an index file."""
    names = read_json(path).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{path} must hold a weight_map of tensor names to file names")
    return names


def _check_index(path, names):
    """The shards must hold exactly the tensors that their index lists."""
    if path.suffix != ".json":
        return
    different = sorted(set(_weight_map(path)) ^ set(names))
    if different:
        raise ValueError(f"{path} and its shards disagree about {', '.join(different[:5])}")


def _listing(folder):
    """Up to ten names in a folder, for errors."""
    return sorted(file.name for file in folder.iterdir())[:10]
