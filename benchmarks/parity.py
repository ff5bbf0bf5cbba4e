"""Imported full-size models against transformers, in one process.

Writes random BERT and RoFormer models with transformers, imports them, and prints the largest
differences of hidden states and MLM logits from transformers in float64, beside transformers' own
float32 ones. Needs the extra `hf`:

    python -m benchmarks.parity
"""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from roformer_zh.command import run_command
from roformer_zh.reports import markdown_table

SIZES = {"tiny": (2, 2, 128), "base": (12, 12, 768)}
"""Name -> layers, heads, width."""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Compares imported random models with transformers."""

    size: str = "base"
    """tiny or base."""
    models: tuple[str, ...] = ("bert", "roformer")
    """Which model types."""
    lengths: tuple[int, ...] = (1, 128, 512, 1536)
    """Tokens a sequence; BERT stops at 512."""
    tolerance: float = 1e-4
    """Largest difference that passes."""


def main(args):
    """Prints one row a model and length; returns them."""
    import torch
    import transformers
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            rows += compare(name, args, Path(folder) / name)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(markdown_table(rows))
    worst = max(max(row["hidden"], row["logits"]) for row in rows)
    if worst > args.tolerance:
        raise ValueError(f"the largest difference must be at most {args.tolerance}; got {worst}")
    return {"rows": rows, "largest": worst}


def compare(name, args, folder):
    """The rows of one model type."""
    from roformer_zh.checkpoints import import_checkpoint
    theirs = write_model(name, args.size, folder)
    ours = import_checkpoint(folder).model
    single = {length: run_theirs(theirs, length) for length in usable(name, args.lengths)}
    theirs = theirs.double()
    rows = []
    for length in usable(name, args.lengths):
        expected = run_theirs(theirs, length)
        found = run_ours(ours, length)
        rows.append({"model": f"{name}_{args.size}", "length": length,
                     **{part: largest(found[part], expected[part]) for part in expected},
                     **{f"transformers float32, {part}": largest(single[length][part],
                                                                 expected[part])
                        for part in expected}})
    return rows


def usable(name, lengths):
    """The lengths that a model takes."""
    return [length for length in lengths if name != "bert" or length <= 512]


def write_model(name, size, folder):
    """A random model with random biases and LayerNorms, saved by transformers."""
    import torch
    import transformers
    layers, heads, width = SIZES[size]
    kinds = {"bert": (transformers.BertConfig, transformers.BertForMaskedLM, 21128),
             "roformer": (transformers.RoFormerConfig, transformers.RoFormerForMaskedLM, 50000)}
    config_class, model_class, vocabulary_size = kinds[name]
    torch.manual_seed(0)
    model = model_class(config_class(
        vocab_size=vocabulary_size, num_hidden_layers=layers, num_attention_heads=heads,
        hidden_size=width, intermediate_size=4 * width, attn_implementation="eager",
        max_position_embeddings=512 if name == "bert" else 1536, layer_norm_eps=1e-12)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 1:
                center = 1.0 if key.endswith("LayerNorm.weight") else 0.0
                parameter.normal_(center, 0.1)
    model.save_pretrained(folder)
    rows = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = [*range(0x4E00, 0xA000), *range(0x20000, 0x2A000)]
    rows += map(chr, characters[:vocabulary_size - len(rows)])
    (folder / "vocab.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return model


def make_inputs(length):
    """One full row and one that is padded from two thirds on."""
    rng = np.random.default_rng(length)
    token_ids = rng.integers(5, 20000, (2, length))
    mask = np.ones((2, length), bool)
    mask[1, max(1, length * 2 // 3):] = False
    segments = np.tile(np.arange(length) >= length // 2, (2, 1)).astype(int)
    return token_ids, segments, mask


def positions(length):
    """Where logits are compared, within both rows."""
    return np.tile([0, max(0, length * 2 // 3 - 1)], (2, 1))


def run_theirs(model, length):
    """Hidden states at real tokens, and logits."""
    import torch
    token_ids, segments, mask = make_inputs(length)
    with torch.no_grad():
        hidden = getattr(model, model.base_model_prefix)(
            input_ids=torch.from_numpy(token_ids), token_type_ids=torch.from_numpy(segments),
            attention_mask=torch.from_numpy(mask.astype(int))).last_hidden_state
        rows = torch.from_numpy(positions(length))[..., None].expand(-1, -1, hidden.shape[-1])
        logits = model.cls.predictions(torch.gather(hidden, 1, rows))
    return {"hidden": hidden.numpy()[mask], "logits": logits.numpy()}


def run_ours(model, length):
    """The same of the imported model."""
    token_ids, segments, mask = make_inputs(length)
    inputs = {"token_ids": token_ids.astype("int32"), "segment_ids": segments.astype("int32"),
              "padding_mask": mask}
    hidden = np.array(model.encoder(inputs))[mask]
    logits = np.array(model({**inputs, "mask_positions": positions(length).astype("int32")}))
    return {"hidden": hidden, "logits": logits}


def largest(found, expected):
    """The largest absolute difference, to three digits."""
    return float(f"{np.abs(found - expected).max():.3g}")


if __name__ == "__main__":
    run_command(main, Arguments)
