"""A worker of transformers' RoFormer on torch; runs in an environment of its own.

    PYTHON -m benchmarks.transformers_peer '{"task": "training", "layers": 6, ...}'
"""

import json
import sys

import numpy as np
import torch
from transformers import RoFormerConfig, RoFormerForMaskedLM, RoFormerModel

from benchmarks.measure import serve, versions


def main(options):
    """Makes the model and serves steps of it."""
    torch.manual_seed(0)
    torch.set_num_threads(options["threads"])
    step = {"training": training, "scoring": scoring}[options["task"]](options)
    serve(step, matmul, versions=versions("torch", "transformers"))


def model_config(options):
    """transformers' configuration of the same sizes."""
    return RoFormerConfig(
        vocab_size=options["vocabulary"],
        embedding_size=options["width"],
        hidden_size=options["width"],
        num_hidden_layers=options["layers"],
        num_attention_heads=options["heads"],
        intermediate_size=4 * options["width"],
        max_position_embeddings=max(1536, options["length"]),
    )


def training(options):
    """One update: forward, backward, clipping, AdamW; 15 % masked, logits at every position."""
    model = RoFormerForMaskedLM(model_config(options)).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, eps=1e-6, weight_decay=0.01)
    rng = np.random.default_rng(0)
    shape = options["batch"], options["length"]

    def step():
        ids = torch.tensor(rng.integers(5, options["vocabulary"], shape))
        labels = torch.where(torch.tensor(rng.random(shape) < options["masked"]), ids, -100)
        mask = torch.ones(shape)
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def scoring(options):
    """Encodes all rows of `lengths` once, in batches of `batch` padded to the longest."""
    model = RoFormerModel(model_config(options)).eval()
    lengths, size = options["lengths"], options["batch"]
    rng = np.random.default_rng(0)
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]

    @torch.inference_mode()
    def step():
        for rows in batches:
            mask = torch.arange(max(rows))[None] < torch.tensor(rows)[:, None]
            ids = torch.tensor(rng.integers(5, options["vocabulary"], mask.shape)) * mask
            hidden = model(input_ids=ids, attention_mask=mask.float())[0]
            weights = mask[:, :, None].float()
            pooled = (hidden * weights).sum(1) / weights.sum(1)
            torch.nn.functional.normalize(pooled).numpy()

    return step


def matmul(size):
    """One square product."""
    left, right = torch.rand(size, size), torch.rand(size, size)
    return lambda: left @ right


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
