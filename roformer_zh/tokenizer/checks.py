"""Checks of arguments that are text or numbers."""

import operator


def require_text(text):
    """Raises TypeError unless `text` is a string."""
    if not isinstance(text, str):
        raise TypeError(f"a text must be a str; got {type(text).__name__}")


def require_whole(value, least, name):
    """Raises ValueError unless `value` is a whole number of at least `least`."""
    try:
        fits = operator.index(value) >= least
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} must be a whole number of {least} or more; got {value!r}")
