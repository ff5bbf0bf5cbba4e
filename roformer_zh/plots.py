"""Pictures of models and results, as PNG files that appear whole or not at all."""

import itertools
import re
from pathlib import Path

import numpy as np

from roformer_zh.files import atomic_path
from roformer_zh.reports import wilson

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, apart for all kinds of colour vision."""
STYLES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX"
SMOOTHED = 101
"""Distances of the running mean that is drawn over a long curve; odd."""
CHINESE_FONTS = (
    "wqy-", "NotoSansSC", "NotoSansHans", "NotoSansCJKsc", "SourceHanSans(SC|CN)", "simhei", "msyh",
    "PingFang", "Hiragino Sans GB", "STHeiti", "DroidSansFallback", "NotoSansCJK", "SourceHan",
    "NotoSerif(SC|CJK)", "simsun", "uming", "ukai",
)  # fmt: skip
"""Patterns of font files, simplified Chinese shapes first."""


class MissingFontError(RuntimeError):
    """No installed font has the characters of a picture."""


def rotary_decay(head_dim, distances, max_wavelength=10000.0):
    """The bound of a rotary score that falls with distance: the mean of |S_1| .. |S_(d/2)|.

    S_i sums exp(1j * distance * theta_k) over k < i, theta_k = max_wavelength ** (-2 k / d).

    Args:
        head_dim: width d of a head; even.
        distances: relative distances, shape (n,).
        max_wavelength: base of the angles.

    Returns:
        float64 array (n,); at distance 0 it is (d / 2 + 1) / 2, its largest value.

    Source: arXiv 2104.09864, section 3.4.3 and Figure 2.

    Example:
        >>> rotary_decay(128, [0, 1, 250]).round(1).tolist()
        [32.5, 31.5, 6.5]
    """
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even and at least 2; got {head_dim}")
    theta = max_wavelength ** (-np.arange(0, head_dim, 2) / head_dim)
    turns = np.exp(1j * np.outer(distances, theta))  # (n, d / 2)
    return np.abs(np.cumsum(turns, axis=1)).mean(axis=1)


def plot_rotary_decay(bounds, path):
    """Draws `rotary_decay` over distance, a panel each.

    Args:
        bounds: dict of panel title to (distances, values).
        path: the PNG file.
    """
    figure, panels = _figure(len(bounds), width=5.2, height=3.6)
    for panel, (title, (distances, values)) in zip(panels, bounds.items(), strict=True):
        many = len(distances) > 4 * SMOOTHED
        panel.plot(distances, values, color=COLOURS[0], linewidth=0.5 if many else 1.3)
        if many:
            middle = slice(SMOOTHED // 2, -(SMOOTHED // 2))
            smooth = np.convolve(values, np.ones(SMOOTHED) / SMOOTHED, "valid")
            label = f"mean of {SMOOTHED} distances"
            panel.plot(distances[middle], smooth, color=COLOURS[1], label=label)
            panel.legend(fontsize=8)
        panel.set(title=title, xlabel="relative distance, tokens", ylabel="relative upper bound")
        panel.set_xlim(0, max(distances))
        panel.set_ylim(0, None)
        panel.grid(alpha=0.3)
    _save(figure, path)


def plot_attention_over_distance(profile, path):
    """Draws attention relative to even attention over distance: a panel a layer, a line a head.

    Args:
        profile: a `roformer_zh.attention_maps.DistanceProfile`.
        path: the PNG file.
    """
    middles = np.sqrt(np.maximum(profile.edges[:-1], 0.5) * np.maximum(profile.edges[1:] - 1, 0.5))
    figure, panels = _figure(len(profile.ratios), width=4.6, height=3.8, sharey=True)
    for layer, (panel, heads) in enumerate(zip(panels, profile.ratios, strict=False)):
        for head, (line, look) in enumerate(zip(heads, _looks(), strict=False)):
            panel.plot(middles, line, label=f"head {head + 1}", markersize=4, **look)
        panel.axhline(1, color="grey", linestyle="--", linewidth=1, label="even attention")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(middles[::2], [_distance_label(profile.edges, k) for k in
                                        range(0, len(middles), 2)], fontsize=7)
        panel.minorticks_off()
        panel.set(title=f"layer {layer + 1}", xlabel="distance of query and key, tokens")
        panel.grid(alpha=0.3)
        if len(heads) <= 8:
            panel.legend(fontsize=8)
    panels[0].set_ylabel("attention / even attention")
    _save(figure, path)


def plot_attention_map(maps, tokens, path):
    """Draws who looks at whom in one text, at most four panels a row.

    Args:
        maps: dict of panel title to (T, T) weights, queries by keys.
        tokens: the T tokens, labels of both axes.
        path: the PNG file.

    Raises:
        MissingFontError: no installed font has the tokens' characters.
    """
    font = chinese_font("".join(tokens))
    size, columns = 1.6 + 0.2 * len(tokens), 2 if len(maps) <= 4 else 4
    figure, panels = _figure(len(maps), size, 0.9 * size, columns=columns)
    places = np.arange(len(tokens))
    for (title, weights), panel in zip(maps.items(), panels, strict=True):
        image = panel.imshow(weights, cmap="cividis", vmin=0)
        panel.set_xticks(places, tokens, rotation=90, fontproperties=font, fontsize=8)
        panel.set_yticks(places, tokens, fontproperties=font, fontsize=8)
        panel.set_title(title, fontsize=9)
        figure.colorbar(image, ax=panel, shrink=0.7).ax.tick_params(labelsize=7)
    figure.supxlabel("key (what is looked at)", fontsize=9)
    figure.supylabel("query (what looks)", fontsize=9)
    _save(figure, path)


def plot_accuracy_by_length(rows, path, chance=0.5):
    """Draws accuracy by length with 95 % intervals (Wilson), a line a series.

    Args:
        rows: dicts of series, length_low, length_high (inclusive), correct and judged (counts).
        path: the PNG file.
        chance: accuracy of guessing, a dashed line; None = no line.
    """
    if not rows:
        raise ValueError("accuracy by length needs at least one row; got none")
    bins = sorted({(row["length_low"], row["length_high"]) for row in rows})
    names = list(dict.fromkeys(row["series"] for row in rows))
    figure, (panel,) = _figure(1, width=max(6.0, 1.1 * len(bins) + 3), height=4)
    for number, (name, look) in enumerate(zip(names, _looks(), strict=False)):
        chosen = sorted((r for r in rows if r["series"] == name), key=lambda r: r["length_low"])
        accuracy, low, high = np.array([wilson(r["correct"], r["judged"]) for r in chosen]).T
        shift = (number - (len(names) - 1) / 2) * min(0.12, 0.6 / len(names))
        places = [bins.index((r["length_low"], r["length_high"])) + shift for r in chosen]
        panel.errorbar(places, accuracy, [accuracy - low, high - accuracy], label=name, capsize=3,
                       markersize=5, **look)
    if chance is not None:
        panel.axhline(chance, color="grey", linestyle="--", linewidth=1, label="guessing")
    panel.set_xticks(range(len(bins)), [_bin_label(bins, rows, part) for part in bins], fontsize=8)
    panel.set(xlabel="length, tokens (rows judged)", ylabel="accuracy, 95 % interval")
    panel.set_xlim(-0.5, len(bins) - 0.5)
    panel.grid(axis="y", alpha=0.3)
    _legend_below(figure, panel)
    _save(figure, path)


def plot_pretraining(curves, path, held_out=None, loss="loss a character"):
    """Draws loss against updates and against hours, a line a model: the paper's Figure 3.

    Args:
        curves: dict of model name to list of (update, hours, loss).
        path: the PNG file.
        held_out: the same for points on held-out text, drawn as marks in the model's colour.
        loss: label of the vertical axis.
    """
    unknown = set(held_out or ()) - set(curves)
    if not curves or not all(curves.values()) or unknown:
        raise ValueError(
            "every model must have points, and held-out points a curve; got "
            f"{ {name: len(points) for name, points in curves.items()} } and held-out points of "
            f"{sorted(unknown) or 'no others'}"
        )
    figure, panels = _figure(2, width=4.6, height=4.2, sharey=True)
    for (name, points), look in zip(curves.items(), _looks(), strict=False):
        points = np.array(sorted(points), float)
        marks = np.array(sorted((held_out or {}).get(name, ())), float).reshape(-1, 3)
        for column, panel in enumerate(panels):
            line = {**look, "marker": None}
            panel.plot(points[:, column], points[:, 2], label=name, **line)
            panel.plot(marks[:, column], marks[:, 2], **{**look, "linestyle": "", "markersize": 6})
    for panel, label in zip(panels, ("update", "hours"), strict=True):
        panel.set_xlabel(label)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(loss + (" (marks: held-out)" if held_out else ""))
    _legend_below(figure, panels[0])
    _save(figure, path)


def chinese_font(text, paths=None):
    """The installed font in which a picture writes `text`.

    Args:
        text: the characters that it must have.
        paths: font files to choose from; None = those of this machine.

    Returns:
        A `matplotlib.font_manager.FontProperties`.

    Raises:
        MissingFontError: none has all of them.
    """
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    paths = font_manager.findSystemFonts() if paths is None else paths
    needed = {ord(character) for character in text if not character.isspace()}
    for path in sorted(paths, key=_preference):
        if _preference(path)[0] == len(CHINESE_FONTS) and max(needed, default=0) >= 0x2E80:
            break
        if needed <= set(FT2Font(path).get_charmap()):
            return font_manager.FontProperties(fname=path)
    raise MissingFontError(
        f"a picture with Chinese text needs a font that has {''.join(sorted(map(chr, needed)))}; "
        "none is installed: install one, such as the package fonts-wqy-microhei or fonts-noto-cjk "
        "(apt-get install fonts-wqy-microhei)"
    )


def _preference(path):
    """Sort key of font files: place in CHINESE_FONTS, then plain faces before bold, then name."""
    name = Path(path).name
    found = (i for i, part in enumerate(CHINESE_FONTS) if re.match(part, name, re.IGNORECASE))
    plain = re.search("regular|microhei|zenhei|normal", name, re.IGNORECASE) is None
    return next(found, len(CHINESE_FONTS)), plain, name


def _looks():
    """Colour, line style and marker of each line in turn; combinations repeat late."""
    for number in itertools.count():
        turn = number // len(COLOURS)
        yield {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STYLES[turn % len(STYLES)],
            "marker": MARKERS[number % len(MARKERS)],
        }


def _figure(count, width, height, sharey=False, columns=4):
    """A figure of `count` panels, at most so many a row, and the panels in order."""
    from matplotlib.figure import Figure

    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=sharey).ravel()
    for panel in panels[count:]:
        panel.set_axis_off()
    return figure, panels[:count]


def _legend_below(figure, panel):
    """One legend of a panel's lines under the whole figure, where it covers nothing."""
    handles, labels = panel.get_legend_handles_labels()
    columns = min(4, len(labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)


def _distance_label(edges, number):
    """The distances of a bin: 0, 1, 3-4, ..."""
    low, high = edges[number], edges[number + 1] - 1
    return f"{low}" if low == high else f"{low:,}-\n{high:,}"


def _bin_label(bins, rows, part):
    """A length bin, and how many rows each series has there (one figure if they agree)."""
    judged = {r["judged"] for r in rows if (r["length_low"], r["length_high"]) == part}
    counts = f"{min(judged):,}" if len(judged) == 1 else f"{min(judged):,}-{max(judged):,}"
    span = f"{part[0]:,}" if part[0] == part[1] else f"{part[0]:,}-{part[1]:,}"
    return f"{span}\n({counts})"


def _save(figure, path):
    """Writes the PNG file atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
