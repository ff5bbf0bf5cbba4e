"""Writes tests/fixtures: tiny random models in foreign formats, and what they compute.

RoFormer and BERT are written and evaluated by transformers (in float64); NEZHA, which transformers
no longer has, by the numpy definition below, in the names its Hugging Face class had. Needs torch
and transformers (`pip install .[hf]`), which the tests do not:

    python tests/make_fixtures.py

Each folder holds config.json, vocab.txt, *.safetensors and outputs.npz, where
`{case}/token_ids`, `segment_ids`, `padding_mask`, `mask_positions`, `mask_ids` are inputs,
`{case}/hidden`, `logits`, `pooled` the outputs, `loss` and `gradient/{tensor}` the mean masked
cross-entropy of case "7" and its gradient, and `written_by` the versions.
"""

import json
import shutil
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "fixtures"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = list("今天气非常好我们在北京法院判决书原告被一二三，。")
WORDS = ["今天", "天气", "非常", "我们", "北京", "法院", "判决书", "原告"]
LENGTHS = (1, 7, 130)
SIZES = dict(num_hidden_layers=2, num_attention_heads=2, hidden_size=12, intermediate_size=20,
             type_vocab_size=2, layer_norm_eps=1e-12, max_position_embeddings=140)


def make_cases(vocabulary_size, rng):
    """Inputs of every length: a full row and, from 7 on, a shorter pair with padding behind it."""
    cases = {}
    for length in LENGTHS:
        token_ids = rng.integers(5, vocabulary_size, (2, length))
        token_ids[:, 0] = 2
        segment_ids = np.zeros((2, length), int)
        padding_mask = np.ones((2, length), bool)
        if length > 1:
            real = length - length // 3
            segment_ids[0, length // 2:] = 1
            segment_ids[1, real // 2:real] = 1
            padding_mask[1, real:] = False
            token_ids[1, real:] = 0
        positions = np.array([[0, 0], [0, 0]] if length == 1 else
                             [[1, length - 1], [1, length // 2]])
        cases[str(length)] = dict(
            token_ids=token_ids, segment_ids=segment_ids, padding_mask=padding_mask,
            mask_positions=positions, mask_ids=rng.integers(5, vocabulary_size, (2, 2)))
    return cases


def save_outputs(folder, cases, outputs, gradients, written_by):
    """Writes outputs.npz; floats as float32."""
    arrays = {"written_by": np.array(written_by)}
    for case, inputs in cases.items():
        for name, value in {**inputs, **outputs[case]}.items():
            kind = np.float32 if value.dtype.kind == "f" else value.dtype
            arrays[f"{case}/{name}"] = value.astype(np.bool_ if value.dtype == bool else
                                                    np.int16 if value.dtype.kind == "i" else kind)
    arrays.update({f"gradient/{name}": value.astype(np.float32)
                   for name, value in gradients.items()})
    np.savez_compressed(folder / "outputs.npz", **arrays)


def write_vocabulary(folder, rows):
    """Writes vocab.txt, one row a line."""
    (folder / "vocab.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")


def transformers_fixture(name, model_class, config, rows, shard_size="5GB"):
    """One folder written and evaluated by transformers."""
    import torch
    import transformers
    folder = fresh_folder(name)
    rng = np.random.default_rng(sum(map(ord, name)))
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "embed_positions" in parameter_name:
                continue  # RoFormer's constant
            center = 1.0 if parameter_name.endswith("LayerNorm.weight") else 0.0
            values = rng.normal(center, 0.25, tuple(parameter.shape)).astype(np.float32)
            parameter.copy_(torch.from_numpy(values))
    model.save_pretrained(folder, max_shard_size=shard_size)
    write_vocabulary(folder, rows)
    model = model.double()
    cases = make_cases(len(rows), rng)
    outputs = {case: torch_outputs(model, inputs) for case, inputs in cases.items()}
    gradients = torch_gradients(model, cases["7"], outputs["7"])
    save_outputs(folder, cases, outputs, gradients,
                 f"transformers {transformers.__version__}, torch {torch.__version__}")


def torch_forward(model, inputs):
    """Hidden states, all logits and the pooled vector (or None) of a transformers model."""
    import torch
    base = getattr(model, model.base_model_prefix)
    result = base(input_ids=torch.from_numpy(inputs["token_ids"]),
                  token_type_ids=torch.from_numpy(inputs["segment_ids"]),
                  attention_mask=torch.from_numpy(inputs["padding_mask"].astype(int)))
    return (result.last_hidden_state, model.cls.predictions(result.last_hidden_state),
            getattr(result, "pooler_output", None))


def torch_outputs(model, inputs):
    """The stored outputs of one case."""
    import torch
    with torch.no_grad():
        hidden, logits, pooled = torch_forward(model, inputs)
    stored = dict(hidden=hidden.numpy(),
                  logits=np.take_along_axis(logits.numpy(), inputs["mask_positions"][..., None], 1))
    return stored if pooled is None else {**stored, "pooled": pooled.numpy()}


def torch_gradients(model, inputs, outputs):
    """Gradients of the mean masked cross-entropy; the loss is added to `outputs`."""
    import torch
    _, logits, _ = torch_forward(model, inputs)
    picked = logits[torch.arange(2)[:, None], torch.from_numpy(inputs["mask_positions"])]
    loss = torch.nn.functional.cross_entropy(
        picked.reshape(-1, picked.shape[-1]), torch.from_numpy(inputs["mask_ids"]).reshape(-1))
    loss.backward()
    outputs["loss"] = loss.detach().numpy()
    return {name: parameter.grad.numpy() for name, parameter in model.named_parameters()
            if parameter.grad is not None}


def nezha_fixture(name, rows):
    """NEZHA in its former Hugging Face names, evaluated by the definition in numpy."""
    from safetensors.numpy import save_file
    folder = fresh_folder(name)
    rng = np.random.default_rng(77)
    config = {**SIZES, "model_type": "nezha", "architectures": ["NezhaForPreTraining"],
              "vocab_size": len(rows), "hidden_act": "gelu", "max_relative_position": 64,
              "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
              "initializer_range": 0.02, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_vocabulary(folder, rows)
    tensors = {key: rng.normal(key.endswith("LayerNorm.weight"), 0.25, shape).astype(np.float32)
               for key, shape in nezha_shapes(config).items()}
    table = nezha_table(config["hidden_size"] // config["num_attention_heads"], 64)
    constants = {"nezha.encoder.layer.0.attention.self.relative_positions_encoding."
                 "positions_encoding": table[nezha_buckets(9)].astype(np.float32)}
    save_file({**tensors, **constants}, folder / "model.safetensors", {"format": "pt"})
    wide = {key: value.astype(np.float64) for key, value in tensors.items()}
    cases = make_cases(len(rows), rng)
    outputs = {}
    for case, inputs in cases.items():
        hidden, logits, pooled = nezha_forward(wide, config, inputs)
        logits = np.take_along_axis(logits, inputs["mask_positions"][..., None], 1)
        outputs[case] = dict(hidden=hidden, logits=logits, pooled=pooled)
    outputs["7"]["loss"] = np.array(nezha_loss(wide, config, cases["7"]))
    save_outputs(folder, cases, outputs, nezha_gradients(wide, config, cases["7"]),
                 f"the numpy definition in make_fixtures.py, numpy {np.__version__}")


def nezha_shapes(config):
    """Tensor names and shapes of NezhaForPreTraining without its constants."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {"nezha.embeddings.word_embeddings": (config["vocab_size"], width),
              "nezha.embeddings.token_type_embeddings": (2, width),
              "nezha.embeddings.LayerNorm": None, "nezha.pooler.dense": (width, width),
              "cls.predictions.transform.dense": (width, width),
              "cls.predictions.transform.LayerNorm": None, "cls.seq_relationship": (2, width)}
    for i in range(config["num_hidden_layers"]):
        prefix = f"nezha.encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{prefix}attention.{part}"] = (width, width)
        shapes[f"{prefix}attention.output.LayerNorm"] = None
        shapes[f"{prefix}intermediate.dense"] = (inner, width)
        shapes[f"{prefix}output.dense"] = (width, inner)
        shapes[f"{prefix}output.LayerNorm"] = None
    full = {"cls.predictions.bias": (config["vocab_size"],)}
    for name, shape in shapes.items():
        full[name + ".weight"] = shape or (width,)
        if not name.endswith("_embeddings"):
            full[name + ".bias"] = (shape or (width,))[:1]
    return full


def nezha_table(head_dim, clip):
    """Row r: sin and cos of r itself (0 .. 2 * clip) in alternating columns."""
    rates = np.exp(np.arange(0, head_dim, 2) * (-np.log(10000.0) / head_dim))
    angles = np.arange(2 * clip + 1)[:, None] * rates
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(2 * clip + 1, head_dim)


def nezha_buckets(length, clip=64):
    """(query, key) -> row of the table: key index - query index, clipped, + clip."""
    places = np.arange(length)
    return np.clip(places[None, :] - places[:, None], -clip, clip) + clip


def nezha_forward(tensors, config, inputs):
    """NEZHA by definition: hidden states, logits and pooled vector in float64."""
    from math import erf
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + erf(x / 2**0.5)))
    heads = config["num_attention_heads"]

    def dense(x, name):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    def norm(x, name):
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * tensors[name + ".weight"] + tensors[name + ".bias"]

    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)  # (B, N, T, H)

    x = norm(tensors["nezha.embeddings.word_embeddings.weight"][inputs["token_ids"]]
             + tensors["nezha.embeddings.token_type_embeddings.weight"][inputs["segment_ids"]],
             "nezha.embeddings.LayerNorm")
    batch, length, width = x.shape
    relative = nezha_table(width // heads, 64)[nezha_buckets(length)]  # (T, S, H)
    for i in range(config["num_hidden_layers"]):
        prefix = f"nezha.encoder.layer.{i}."
        q, k, v = (split(dense(x, f"{prefix}attention.self.{part}"))
                   for part in ("query", "key", "value"))
        scores = np.einsum("bnth,bnsh->bnts", q, k) + np.einsum("bnth,tsh->bnts", q, relative)
        scores = scores / np.sqrt(width // heads)
        scores = np.where(inputs["padding_mask"][:, None, None, :], scores, -1e30)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = np.einsum("bnts,bnsh->bnth", weights, v)
        context += np.einsum("bnts,tsh->bnth", weights, relative)
        context = context.transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = norm(x + dense(context, prefix + "attention.output.dense"),
                 prefix + "attention.output.LayerNorm")
        inner = gelu(dense(x, prefix + "intermediate.dense"))
        x = norm(x + dense(inner, prefix + "output.dense"), prefix + "output.LayerNorm")
    features = norm(gelu(dense(x, "cls.predictions.transform.dense")),
                    "cls.predictions.transform.LayerNorm")
    logits = features @ tensors["nezha.embeddings.word_embeddings.weight"].T
    return (x, logits + tensors["cls.predictions.bias"],
            np.tanh(dense(x[:, 0], "nezha.pooler.dense")))


def nezha_loss(tensors, config, inputs):
    """Mean cross-entropy of `mask_ids` at `mask_positions`."""
    _, logits, _ = nezha_forward(tensors, config, inputs)
    logits = np.take_along_axis(logits, inputs["mask_positions"][..., None], 1)
    logits = logits - logits.max(-1, keepdims=True)
    chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(chances, inputs["mask_ids"][..., None], 2).mean()


def nezha_gradients(tensors, config, inputs, step=1e-5):
    """Central differences of the loss, one parameter after the other."""
    gradients = {}
    for name, value in tensors.items():
        if "pooler" in name or "seq_relationship" in name:
            continue
        gradient = np.zeros(value.size)
        flat = value.reshape(-1)
        for i in range(value.size):
            kept, losses = flat[i], []
            for sign in (1, -1):
                flat[i] = kept + sign * step
                losses.append(nezha_loss(tensors, config, inputs))
            flat[i] = kept
            gradient[i] = (losses[0] - losses[1]) / (2 * step)
        gradients[name] = gradient.reshape(value.shape)
    return gradients


def fresh_folder(name):
    """An empty folder for one fixture."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def main():
    """Writes every fixture."""
    import torch
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertForPreTraining,
        RoFormerConfig,
        RoFormerForMaskedLM,
    )
    torch.manual_seed(0)
    characters, words = SPECIALS + CHARACTERS, SPECIALS + CHARACTERS + WORDS
    eager = dict(attn_implementation="eager", **SIZES)
    transformers_fixture("roformer_word", RoFormerForMaskedLM, RoFormerConfig(
        vocab_size=len(words), embedding_size=8, **eager), words)
    transformers_fixture("roformer_char_value", RoFormerForMaskedLM, RoFormerConfig(
        vocab_size=len(characters), embedding_size=12, rotary_value=True, **eager), characters)
    transformers_fixture("bert_char_pooler", BertForPreTraining, BertConfig(
        vocab_size=len(characters), **eager), characters)
    transformers_fixture("bert_word_sharded", BertForMaskedLM, BertConfig(
        vocab_size=len(words), **eager), words, shard_size="8KB")
    nezha_fixture("nezha_char", characters)


if __name__ == "__main__":
    main()
