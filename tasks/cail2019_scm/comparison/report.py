"""report.md and table.csv of a comparison, out of its rows."""

import math

from roformer_zh.reports import markdown_table
from tasks.cail2019_scm.comparison import results
from tasks.cail2019_scm.comparison.published import CAVEATS, published_rows
from tasks.cail2019_scm.split import leak_table
from tasks.cail2019_scm.statistics import accuracy_interval, detectable_difference

_EXPLANATION = (
    "Each pair is judged on the same rows with all seeds. The p-value is the larger of an exact "
    "sign-flip test over the rows (McNemar's, with means over seeds) and a t-test whose variance "
    "joins rows and seeds; it is adjusted for the number of comparisons in this table (Holm). "
    "Better or worse is said below 0.05 only."
)


def report_text(comparison):
    """The text of report.md.

    Args:
        comparison: `compare.Comparison`.
    """
    rows, settings = comparison.rows, comparison.settings
    sections = [
        ("", introduction(comparison)),
        ("Accuracy", accuracy_section(comparison)),
        ("What each change brought" if settings.variants else "Paired comparisons",
         comparison_section(comparison)),
        ("Accuracy by length of the pair", length_section(comparison)),
        ("Text cut, and cost", markdown_table([cost_row(row) for row in rows])),
        ("Pretraining", pretraining_section(comparison)),
        ("Fine-tuning settings", settings_section(settings, rows)),
        ("Not run", "\n".join(f"- {label}: {reason}" for label, reason in comparison.not_run)),
        ("Documents that the splits share", leak_table(comparison.splits)),
        ("Published figures", published_section(comparison)),
    ]
    parts = ["# Comparison on " + str(comparison.name)]
    for title, text in sections:
        if text:
            parts += [f"## {title}"] * bool(title) + [text]
    return "\n\n".join(parts) + "\n"


def introduction(comparison):
    """What was judged, how, and what so many rows can show."""
    data, rows = comparison.data, comparison.rows
    count = len(data.judged)
    official = ("This is the official CAIL2019-SCM split." if comparison.official else
                "**These are not the official CAIL2019-SCM files**: no figure here is to be "
                "compared with published ones.")
    chosen = ("Weights are chosen on valid.json, where figures are therefore a little too good; "
              "test.json is judged once, with the chosen weights." if data.selects else
              "valid.json is judged, once (test.json is not there, or is not to be read), so "
              "nothing is chosen on it: every training runs to its end. What stops early, and the "
              "CNN and the LSTM, choose weights on every tenth row of train.json and do not train "
              "on it.")
    error = math.sqrt(max(p * (1 - p) for p in (row.judged.mean() for row in rows)) / count)
    share = results.median_disagreement(rows)
    text = [f"{len(data.train):,} training triplets, {len(data.valid):,} in valid.json"
            f"{f', {len(data.test):,} in test.json' if data.test is not None else ''}. {official}",
            chosen,
            f"What the sample can show: at {count:,} judged rows one standard error of an accuracy "
            f"is up to {100 * error:.1f} points. " + (
                f"Two trained systems differ on {share:.0%} of the rows (median of all pairs, "
                "first seed); with that, a true difference of about "
                f"{100 * detectable_difference(count, share):.1f} points is found four times out "
                "of five, a smaller one less often." if share else "")]
    if any(not row.may_be_ranked for row in rows):
        text.append("**One seed: trained systems are not ranked.** Give at least two seeds, "
                    "better five.")
    return "\n\n".join(text)


def accuracy_section(comparison):
    """The main table and how to read it."""
    return (markdown_table([accuracy_row(row) for row in comparison.rows])
            + "\n\nMean over seeds in percent. The first interval (95 %, Student's t) is over "
            "seeds: another seed, the same rows. The second (95 %, Wilson) is over rows: other "
            "rows of the kind. A tie decides for B.")


def accuracy_row(row):
    """One line of the main table."""
    entry = {"system": row.label, "seeds": _seeds(row)}
    for part, right in row.right.items():
        found = results.accuracy_of(right)
        entry[f"{part}, %"] = f"{100 * found['mean']:.1f}"
        entry[f"{part}, over seeds"] = _interval(found["seed_low"], found["seed_high"])
        entry[f"{part}, over rows"] = _interval(found["item_low"], found["item_high"])
    return {**entry, "ties": f"{results.ties_of(row):g}"}


def _seeds(row):
    """How many seeds a row has."""
    return "none" if row.cells[0].identity["seed"] is None else len(row.cells)


def _interval(low, high):
    """An interval in percent; empty if there is none."""
    return "" if low is None else f"{100 * max(low, 0):.1f} to {100 * min(high, 1):.1f}"


def comparison_section(comparison):
    """The table of paired tests and a sentence a pair."""
    entries = comparison.comparisons
    if not entries:
        return "None of the references is in the table." if not comparison.settings.variants else ""
    table = markdown_table([{
        "system": entry["system"], "against": entry["against"],
        "difference, points": f"{100 * entry['difference']:+.1f}",
        "95 % interval": "" if "low" not in entry else
        f"{100 * entry['low']:+.1f} to {100 * entry['high']:+.1f}",
        "p": f"{entry['p_value']:.3g}" if "p_value" in entry else "",
        "p, adjusted": f"{entry['adjusted']:.3g}" if "adjusted" in entry else "",
        "verdict": entry["verdict"],
    } for entry in entries])
    sentences = "\n".join(f"- {results.sentence(entry)}" for entry in entries)
    return f"{table}\n\n{_EXPLANATION}\n\n{sentences}"


def length_section(comparison):
    """Accuracy in parts of the judged rows, with intervals."""
    entries = []
    for part in comparison.by_length:
        accuracy, low, high, _ = accuracy_interval(part["correct"], part["judged"])
        title = f"{part['length_low']:,} to {part['length_high']:,} ({part['judged']} rows)"
        entries.append((part["series"], title,
                        f"{100 * accuracy:.0f} ({100 * low:.0f} to {100 * high:.0f})"))
    table = {}
    for series, title, text in entries:
        table.setdefault(series, {"system": series})[title] = text
    picture = "\n\n![accuracy by length](accuracy_by_length.png)" if comparison.picture else ""
    return (markdown_table(list(table.values())) + "\n\nLength: tokens of A and of the longer one "
            f"of B and C, {comparison.length_unit}. Percent right with Wilson's 95 % interval, "
            f"mean over seeds.{picture}")


def cost_row(row):
    """Parameters, speed and hours of a system, and what it does not read."""
    facts = [cell.facts for cell in row.cells]

    def mean(name):
        known = [fact[name] for fact in facts if fact.get(name) is not None]
        return sum(known) / len(known) if known else None

    def show(value, form):
        return "" if value is None else format(value, form)

    hours = sum(fact.get("seconds") or 0 for fact in facts) / 3600
    trained = sum(fact.get("train_seconds") or 0 for fact in facts) / 3600
    return {"system": row.label, "pairs cut": show(mean("pairs_cut"), ".0%"),
            "text cut": show(mean("text_cut"), ".0%"),
            "parameters": show(facts[0].get("parameters"), ",d"),
            "training tokens/s": show(mean("tokens_per_second"), ",.0f"),
            "hours of training": f"{trained:.3f}" if trained else "",
            "hours altogether": f"{hours:.3f}"}


def pretraining_section(comparison):
    """What each model had seen before, and why differing corpora stand in one table."""
    entries = {}
    for row in comparison.rows:
        if row.kind != "finetuned":
            continue
        identity = row.cells[0].identity
        known, encoder = identity["pretraining"], identity["encoder"]
        entries[identity["model"]] = {
            "model": identity["model"], "positions": encoder["position"],
            "tokenizer": f"{identity['tokenizer']['mode']}, {encoder['vocabulary_size']:,} rows, "
                         f"`{identity['tokenizer']['vocabulary_hash'][:8]}`",
            "corpus": f"`{known['corpus_hash'][:8]}`" if known["corpus_hash"] else "not recorded",
            "updates": _number(known["updates"]), "tokens seen": _number(known["tokens"]),
            "characters seen": _number(known["characters"]),
            "weights": f"`{identity['weights'][:8]}`"}
    reason = comparison.settings.different_corpora
    note = f"\n\nThe corpora need not be the same here: {reason}" if reason else ""
    return markdown_table(list(entries.values())) + note if entries else ""


def _number(value):
    """A count, or that it is not recorded."""
    return "not recorded" if value is None else f"{value:,.0f}"


def settings_section(settings, rows):
    """What all share, what a model forces, and all that was computed with in full."""
    parts = ["All models: " + _words(settings.finetune)
             + ". What is not named has finetune's default (manifest.json has all)."]
    for model in settings.models:
        if model.finetune:
            parts.append(f"- {model.name} alone: {_words(model.finetune)}; {model.reason}")
        if model.lengths is not None:
            parts.append(f"- {model.name} only at {', '.join(map(str, model.lengths))}; "
                         f"{model.reason or 'no reason given'}")
    parts += [f"- {variant.name}: {_words(variant.finetune)}" for variant in settings.variants]
    if any(row.kind in ("cnn", "lstm") for row in rows):
        parts.append(f"- CNN and LSTM: {_words(settings.baseline_training) or 'their defaults'}")
    return "\n".join(parts)


def _words(given):
    """Settings in one line."""
    return ", ".join(f"{name} {value}" for name, value in given.items())


def published_section(comparison):
    """The published rows and their caveats."""
    if comparison.settings.variants:
        return ""
    standing = ("" if comparison.official else "The rows above are of other data and do not "
                "compare with these.\n\n")
    return (f"{standing}{markdown_table(published_rows())}\n\n"
            + "\n".join(f"- {text}" for text in CAVEATS))


def table_rows(comparison):
    """The lines of table.csv: numbers as they are, one line a system."""
    lines = []
    for row in comparison.rows:
        identity = row.cells[0].identity
        line = {"system": row.label, "kind": row.kind, "model": identity["model"],
                "length": identity["length"], "seeds": _seeds(row)}
        for part, right in row.right.items():
            line |= {f"{part}_{name}": value for name, value in results.accuracy_of(right).items()}
            line[f"{part}_rows"] = right.shape[1]
            line[f"{part}_by_seed"] = " ".join(f"{value:.4f}" for value in right.mean(axis=1))
        line["ties"] = results.ties_of(row)
        facts = [cell.facts for cell in row.cells]
        for name in ("text_cut", "pairs_cut", "parameters"):
            line[name] = facts[0].get(name)
        for name in ("tokens_per_second", "train_seconds", "seconds"):
            known = [fact[name] for fact in facts if fact.get(name) is not None]
            line[name] = sum(known) / len(known) if known else None
        for entry in comparison.comparisons:
            if entry["system"] == row.label:
                against = entry["against"]
                line |= {f"difference from {against}": entry["difference"],
                         f"adjusted p against {against}": entry.get("adjusted"),
                         f"verdict against {against}": entry["verdict"]}
        lines.append(line)
    return lines
