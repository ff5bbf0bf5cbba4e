"""Published accuracies on CAIL2019-SCM, in percent, and what stands in the way of comparing."""

PUBLISHED = (
    ("always B (class counts)", 55.8, 52.3, "README of thesharing/lfesm"),
    ("CNN", 62.27, 69.53, "arXiv 1911.08962 (the task's paper)"),
    ("LSTM", 62.00, 68.00, "arXiv 1911.08962"),
    ("BERT", 61.93, 67.32, "arXiv 1911.08962"),
    ("11.2yuan (3rd)", 66.73, 72.07, "arXiv 1911.08962"),
    ("backward (2nd)", 67.73, 71.81, "arXiv 1911.08962"),
    ("AlphaCourt (1st)", 70.07, 72.66, "arXiv 1911.08962"),
    ("LFESM", 70.01, 74.15, "README of thesharing/lfesm"),
    ("CNN", 64.73, 67.25, "README of thesharing/lfesm"),
    ("LSTM", 64.33, 66.34, "README of thesharing/lfesm"),
    ("BERT", 64.53, 65.59, "README of thesharing/lfesm"),
    ("BERT-512", 64.13, 67.77, "arXiv 2104.09864, Table 5 (RoFormer)"),
    ("WoBERT-512", 64.07, 68.10, "arXiv 2104.09864, Table 5"),
    ("RoFormer-512", 64.13, 68.29, "arXiv 2104.09864, Table 5"),
    ("RoFormer-1024", 66.07, 69.79, "arXiv 2104.09864, Table 5"),
    ("RoFormer-512, mean pooling", 63.07, 69.47, "PaddleNLP, README of RoFormer"),
    ("ERNIE-Doc-base-zh", 64.20, 64.84, "PaddleNLP, README of ERNIE-Doc"),
    ("siamese BERT", None, 69.01, "README of alumik's siamese BERT"),
)
"""(system, valid, test, source); None where a figure is not given."""

CAVEATS = (
    "Each published figure is one run without an interval; at 1,536 rows one standard error is "
    "1.19 points, 1.67 for the difference of two independent systems.",
    "BERT alone has 65.59, 67.32, 67.77 and 69.01 in four hands, CNN 67.25 and 69.53: what "
    "RoFormer-1024 gains over WoBERT-512 (1.69) is about one standard error.",
    "The released fine-tuning script of RoFormer prints the test accuracy each epoch and makes "
    "about half a pass over the data an epoch (20 epochs are about 10 passes); its paper speaks of "
    "a 6:2:2 split, the official one is 5,102 / 1,500 / 1,536.",
    "The README of LFESM prints 74.15 as the winner's test accuracy, the task's paper 72.66: the "
    "paper is quoted. No published NEZHA figure on this task was found.",
)


def published_rows():
    """The published figures as rows of a table."""
    return [{"published system": name, "valid, %": "" if valid is None else f"{valid:.2f}",
             "test, %": f"{test:.2f}", "source": source}
            for name, valid, test, source in PUBLISHED]
