"""BERT and WoBERT in Hugging Face files: the names of transformers' BertForPreTraining."""

from roformer_zh.checkpoints import google_bert
from roformer_zh.checkpoints.mapping import NameMap, Skipped


def from_google(name):
    """The Hugging Face name of a Google name: dots for slashes, torch's words for the last part."""
    name = name.replace("layer_{i}", "layer.{i}").replace("/", ".")
    for theirs, torch in ((".kernel", ".weight"), (".gamma", ".weight"), (".beta", ".bias"),
                          ("_embeddings", "_embeddings.weight"), ("output_bias", "bias")):
        name = name.removesuffix(theirs) + torch if name.endswith(theirs) else name
    return name


TABLE = {ours: from_google(theirs) for ours, theirs in google_bert.TABLE.items()
         if not ours.startswith("embedding_projection/")}
SPELLINGS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
COPIES = {"cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
          "cls.predictions.decoder.bias": "cls.predictions.bias"}
SKIPPED = (
    Skipped(r"embeddings\.(position_ids|token_type_ids)", "buffer"),
    Skipped(r"cls\.seq_relationship\.(weight|bias)", "next-sentence head"),
)
MAP = NameMap("Hugging Face BERT", "bert.", TABLE, transposed=True, spellings=SPELLINGS,
              copies=COPIES, skipped=SKIPPED)
