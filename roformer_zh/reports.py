"""Tables and plots."""


def markdown_table(rows):
    """A GitHub table of a list of dicts; columns in order of first appearance, missing cells empty.

    Example:
        >>> print(markdown_table([{"stage": "a", "loss": 1.5}]))
        | stage | loss |
        |---|---|
        | a | 1.5 |
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(str(row.get(column, "")) for column in columns) + " |")
    return "\n".join(lines)
