"""The report of `pretrain.evaluate`: its tables and its plot."""

from roformer_zh.files import atomic_path
from roformer_zh.reports import markdown_table, percent


def report_text(args, corpus, run, found):
    """The tables as Markdown.

    Args:
        args: the script's arguments.
        corpus: the held-out `Corpus`.
        run: the run.
        found: length -> metrics, as `evaluate.main` returns them.
    """
    trained = run.model.encoder.config.trained_length
    average = corpus.num_tokens / corpus.num_documents
    longest = max(found)
    return "\n".join(
        [
            f"# {args.model} on {args.data}",
            "",
            f"{corpus.num_documents:,} documents, {corpus.num_tokens:,} tokens. The model was "
            f"trained on at most {trained or 'an unknown number of'} tokens. The unigram baseline "
            "uses the frequencies of the held-out text itself. Rows are packed: a document has "
            f"{average:,.0f} tokens on average, and a longer row holds several.",
            "",
            markdown_table(length_rows(found)),
            "",
            f"By position, at length {longest}:",
            "",
            markdown_table(bucket_rows(found[longest]["scales"], trained)),
            "",
        ]
    )


def length_rows(found):
    """Rows of the table by length; a column more for each further position scale."""
    rows = []
    for length, metrics in found.items():
        own, *others = metrics["scales"]
        rows.append(
            {
                "length": length,
                "rows": f"{metrics['rows']:,}",
                "masked tokens": f"{metrics['masked']:,}",
                "loss": f"{metrics['loss']:.3f}",
                "accuracy, %": percent(metrics["accuracy"]),
                **{column(scale, own): loss_of(metrics["scales"][scale]) for scale in others},
                "unigram loss": f"{metrics['unigram_loss']:.3f}",
                "unigram accuracy, %": percent(metrics["unigram_accuracy"]),
            }
        )
    return rows


def bucket_rows(scales, trained):
    """Rows of the table by position; a column more for each further position scale."""
    rows = []
    own, *others = scales
    for number, bucket in enumerate(scales[own]["buckets"]):
        beyond = trained is not None and bucket["last"] >= trained
        rows.append(
            {
                "positions": f"{bucket['first']}-{bucket['last']}" + " (beyond training)" * beyond,
                "masked tokens": f"{bucket['masked']:,}",
                "loss": loss_of(bucket),
                **{column(s, own): loss_of(scales[s]["buckets"][number]) for s in others},
                "accuracy, %": "" if bucket["loss"] is None else percent(bucket["accuracy"]),
            }
        )
    return rows


def column(scale, own):
    """Heading of the losses at another scale than the model's own."""
    return f"loss, positions / {scale:g}" + f" instead of {own:g}" * (own != 1)


def loss_of(found):
    """A loss in print; empty where nothing was masked."""
    return "" if found["loss"] is None else f"{found['loss']:.3f}"


def plot_by_position(found, trained, path):
    """Draws the loss by position at the longest length, a line a position scale, into a PNG."""
    from matplotlib.figure import Figure

    length = max(found)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for scale, metrics in found[length]["scales"].items():
        points = [
            ((bucket["first"] + bucket["last"]) / 2, bucket["loss"])
            for bucket in metrics["buckets"]
            if bucket["loss"] is not None
        ]
        axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=f"positions / {scale:g}")
    if trained is not None and trained < length:
        axes.axvline(trained, color="grey", linewidth=0.8, label="trained length")
    axes.set(xlabel=f"position in a row of {length:,} tokens", ylabel="held-out loss")
    axes.legend(fontsize=8)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
