"""BERT and WoBERT in TensorFlow checkpoints: the names of google-research/bert and bert4keras."""

from roformer_zh.checkpoints.mapping import NameMap, Skipped

BLOCK = {
    "attention/query/kernel": "attention/self/query/kernel",
    "attention/query/bias": "attention/self/query/bias",
    "attention/key/kernel": "attention/self/key/kernel",
    "attention/key/bias": "attention/self/key/bias",
    "attention/value/kernel": "attention/self/value/kernel",
    "attention/value/bias": "attention/self/value/bias",
    "attention/output/kernel": "attention/output/dense/kernel",
    "attention/output/bias": "attention/output/dense/bias",
    "attention_norm/gamma": "attention/output/LayerNorm/gamma",
    "attention_norm/beta": "attention/output/LayerNorm/beta",
    "intermediate/kernel": "intermediate/dense/kernel",
    "intermediate/bias": "intermediate/dense/bias",
    "output/kernel": "output/dense/kernel",
    "output/bias": "output/dense/bias",
    "output_norm/gamma": "output/LayerNorm/gamma",
    "output_norm/beta": "output/LayerNorm/beta",
}
TABLE = {
    "token_embedding/embeddings": "embeddings/word_embeddings",
    "segment_embedding/embeddings": "embeddings/token_type_embeddings",
    "position_embedding/embeddings": "embeddings/position_embeddings",
    "embedding_norm/gamma": "embeddings/LayerNorm/gamma",
    "embedding_norm/beta": "embeddings/LayerNorm/beta",
    "embedding_projection/kernel": "encoder/embedding_hidden_mapping_in/kernel",
    "embedding_projection/bias": "encoder/embedding_hidden_mapping_in/bias",
    **{f"block_{{i}}/{ours}": f"encoder/layer_{{i}}/{theirs}" for ours, theirs in BLOCK.items()},
    "pooler/kernel": "pooler/dense/kernel",
    "pooler/bias": "pooler/dense/bias",
    "head/transform/kernel": "cls/predictions/transform/dense/kernel",
    "head/transform/bias": "cls/predictions/transform/dense/bias",
    "head/transform_norm/gamma": "cls/predictions/transform/LayerNorm/gamma",
    "head/transform_norm/beta": "cls/predictions/transform/LayerNorm/beta",
    "head/output_bias": "cls/predictions/output_bias",
    "head/score/kernel": "roformer_zh/score/kernel",
    "head/score/bias": "roformer_zh/score/bias",
    "head/projection/kernel": "roformer_zh/projection/kernel",
    "head/projection/bias": "roformer_zh/projection/bias",
    "head/log_scale": "roformer_zh/log_scale",
}
SKIPPED = (
    Skipped(r".*/(adam|lamb)_[mv]", "optimizer slot"),
    Skipped(r".*/(Adam|LAMB|Lamb)\w*(_\d+)?", "optimizer slot"),
    Skipped(r"((AdamWeightDecay|LAMB|Lamb)\w*/)?(beta[12]_power|iterations|learning_rate)",
            "optimizer slot"),
    Skipped(r"global_step|optimizer/.*", "optimizer slot"),
    Skipped(r"(good_steps|loss_scale)", "optimizer slot"),
    Skipped(r"cls/seq_relationship/output_(weights|bias)", "next-sentence head"),
)
MAP = NameMap("Google BERT", "bert/", TABLE, skipped=SKIPPED)
