"""Pictures: the figures behind them, what they refuse, and that nothing is drawn as boxes."""

import warnings

import numpy as np
import pytest
from matplotlib import font_manager

from roformer_zh import plots


@pytest.fixture
def figures(monkeypatch):
    """The figures that plots save, in order."""
    saved, save = [], plots._save
    monkeypatch.setattr(plots, "_save", lambda figure, path: (saved.append(figure),
                                                              save(figure, path)))
    return saved


def is_png(path):
    return path.read_bytes().startswith(b"\x89PNG")


def test_rotary_decay_is_the_papers_sum():
    for head_dim, wavelength in ((128, 10000.0), (6, 50.0)):
        for distance in (0, 1, 17, 250):
            sums, total = [], 0j
            for i in range(head_dim // 2):
                theta = wavelength ** (-2 * i / head_dim)
                total += complex(np.cos(distance * theta), np.sin(distance * theta))
                sums.append(abs(total))
            found = plots.rotary_decay(head_dim, [distance], wavelength)[0]
            assert found == pytest.approx(np.mean(sums), rel=1e-12)


def test_rotary_decay_falls_over_long_distances():
    values = plots.rotary_decay(128, np.arange(251))
    means = values[1:].reshape(5, 50).mean(axis=1)
    assert values.argmax() == 0 and values[0] == 32.5
    assert (np.diff(means) < 0).all() and means[-1] < means[0] / 1.8


def test_rotary_decay_needs_pairs():
    with pytest.raises(ValueError, match="head_dim must be even and at least 2; got 5"):
        plots.rotary_decay(5, [1])


def test_plot_of_the_decay(tmp_path, figures):
    short, long = np.arange(20), np.arange(600)
    bounds = {"a": (short, plots.rotary_decay(6, short)), "b": (long, plots.rotary_decay(6, long))}
    plots.plot_rotary_decay(bounds, tmp_path / "decay.png")
    assert is_png(tmp_path / "decay.png")
    first, second = figures[0].axes
    assert len(first.lines) == 1 and len(second.lines) == 2
    mean = second.lines[1]
    assert mean.get_xdata()[0] == 50
    assert mean.get_ydata()[0] == pytest.approx(bounds["b"][1][:101].mean())


def row(series, low, high, correct, judged):
    names = ("series", "length_low", "length_high", "correct", "judged")
    return dict(zip(names, (series, low, high, correct, judged), strict=True))


def test_accuracy_by_length_has_wilson_intervals_where_rows_are(tmp_path, figures):
    rows = [row("b", 512, 1023, 30, 40), row("a", 512, 1023, 20, 40), row("a", 0, 511, 9, 12)]
    plots.plot_accuracy_by_length(rows, tmp_path / "a.png")
    (panel,) = figures[0].axes
    assert [t.get_text() for t in panel.get_xticklabels()] == ["0-511\n(12)", "512-1,023\n(40)"]
    assert panel.get_legend_handles_labels()[1] == ["guessing", "b", "a"]
    first, second = panel.containers
    assert first.lines[0].get_ydata().tolist() == [0.75]
    assert second.lines[0].get_ydata().tolist() == [0.75, 0.5]
    assert abs(first.lines[0].get_xdata()[0] - second.lines[0].get_xdata()[1]) > 0.05
    low, high = (cap.get_ydata()[1] for cap in second.lines[1])
    assert (low, high) == pytest.approx((0.3520, 0.6480), abs=1e-4)  # Wilson, 20 of 40


def test_accuracy_by_length_refuses_impossible_counts(tmp_path):
    with pytest.raises(ValueError, match="at least one row; got none"):
        plots.plot_accuracy_by_length([], tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"correct must lie in 0..judged.*got 5 of 4"):
        plots.plot_accuracy_by_length([row("a", 0, 9, 5, 4)], tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_pretraining_curves_over_updates_and_hours(tmp_path, figures):
    curves = {"roformer": [(10, 0.1, 3.0), (20, 0.3, 2.0)], "bert": [(10, 0.05, 3.5)]}
    plots.plot_pretraining(curves, tmp_path / "p.png", held_out={"bert": [(10, 0.05, 3.6)]})
    updates, hours = figures[0].axes
    assert updates.lines[0].get_xdata().tolist() == [10, 20]
    assert hours.lines[0].get_xdata().tolist() == [0.1, 0.3]
    assert hours.lines[0].get_ydata().tolist() == [3.0, 2.0]
    assert hours.lines[3].get_ydata().tolist() == [3.6]
    assert hours.lines[3].get_color() == hours.lines[2].get_color() != hours.lines[0].get_color()
    assert (updates.get_xlabel(), hours.get_xlabel()) == ("update", "hours")
    assert "held-out" in updates.get_ylabel()


def test_pretraining_curves_need_points(tmp_path):
    with pytest.raises(ValueError, match=r"every model must have points.*'bert': 0"):
        plots.plot_pretraining({"bert": []}, tmp_path / "p.png")
    with pytest.raises(ValueError, match=r"held-out points of .*'nezha'"):
        held_out = {"nezha": [(1, 1, 1)]}
        plots.plot_pretraining({"bert": [(1, 1, 1)]}, tmp_path / "p.png", held_out)


def test_lines_stay_apart_beyond_the_colours():
    looks = [look for look, _ in zip(plots._looks(), range(12), strict=False)]
    assert len({(look["color"], look["linestyle"]) for look in looks}) == 12


def test_a_missing_chinese_font_is_named_with_its_remedy():
    dejavu = font_manager.findfont("DejaVu Sans", fallback_to_default=False)
    with pytest.raises(plots.MissingFontError, match=r"font that has 法院.*fonts-wqy-microhei"):
        plots.chinese_font("法院", [dejavu])
    assert plots.chinese_font("[CLS] abc", [dejavu]).get_file() == dejavu


def test_simplified_chinese_fonts_come_first():
    names = ["DejaVuSans.ttf", "NotoSansCJK-Bold.ttc", "NotoSansCJK-Regular.ttc", "wqy-zenhei.ttc"]
    ordered = sorted((f"/fonts/{name}" for name in names), key=plots._preference)
    assert [path.split("/")[-1] for path in ordered] == names[::-1]


def test_the_map_writes_chinese_or_fails(tmp_path, figures):
    tokens = ["[CLS]", "原告", "认为", "[SEP]"]
    maps = {"layer 1, head 1": np.eye(4), "layer 1, head 2": np.full((4, 4), 0.25)}
    try:
        font = plots.chinese_font("".join(tokens))
    except plots.MissingFontError:
        with pytest.raises(plots.MissingFontError):
            plots.plot_attention_map(maps, tokens, tmp_path / "map.png")
        assert not list(tmp_path.iterdir())
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a glyph that it lacks
        plots.plot_attention_map(maps, tokens, tmp_path / "map.png")
    panel = figures[0].axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == tokens
    assert panel.get_xticklabels()[1].get_fontproperties().get_file() == font.get_file()
    assert panel.images[0].get_array().tolist() == np.eye(4).tolist()
