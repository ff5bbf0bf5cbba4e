"""Tables and plots."""

from roformer_zh.reports import markdown_table, plot_training, read_metrics, stage_table

STAGE = dict(
    name="a",
    sequence_length=512,
    batch_size=256,
    steps=1200,
    tokens=1000,
    loss=1.2345,
    accuracy=0.6549,
)


def test_stage_table_counts_tokens_a_stage():
    rows = stage_table([STAGE, {**STAGE, "tokens": 2500, "val_loss": 1.5, "val_accuracy": 0.5}])
    assert [row["tokens"] for row in rows] == ["1,000", "1,500"]
    assert rows[0]["loss"] == "1.234" and rows[0]["accuracy, %"] == "65.5"
    assert "held-out loss" not in rows[0] and rows[1]["held-out accuracy, %"] == "50.0"
    assert "published loss" not in rows[0]


def test_stage_table_shows_published_figures():
    (row,) = stage_table([{**STAGE, "published_loss": 1.73, "published_accuracy": 0.65}])
    assert row["published loss"] == "1.73" and row["published accuracy, %"] == "65.0"
    assert markdown_table([row]).count("\n") == 2


def test_plot_of_loss_and_accuracy(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "train", "stage": "a", "update": 1, "loss": 2.0, "accuracy": 0.1}\n'
        '{"kind": "validation", "stage": "a", "update": 1, "val_loss": 2.1, "val_accuracy": 0.2}\n'
        '{"kind": "skipped", "stage": "b", "update": 2}\n'
    )
    plot_training(read_metrics(path), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
