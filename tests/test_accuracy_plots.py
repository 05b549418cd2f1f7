"""The plots of docs/accuracy-details.md: the same bytes each time, axes with units, no text over another."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from docs import accuracy_plots as plots
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("a-rather-long-source", "mpt-llmfoundry", "torchtitan", "nemo-24.07")


def drawn(runs=60):
    chance = np.random.default_rng(0)
    measured = np.exp(chance.uniform(-1, 5, runs))
    predicted = measured * np.exp(chance.normal(0, 0.12, runs))
    sources = [SOURCES[i % len(SOURCES)] for i in range(runs)]
    families = ["moe" if i % 5 == 0 else "dense" for i in range(runs)]
    scale = 2.0 ** chance.integers(3, 12, runs)
    parts = {"mixtures, source left out": {"all runs": 0.1, "source": 0.5, "model": 0.001, "scatter": 0.399}}
    return {
        "scatter": lambda: plots.scatter(
            [("left", predicted, measured, sources), ("right", predicted, measured, families)]
        ),
        "strips": lambda: plots.strips("title", predicted, measured, sources, families),
        "scale": lambda: plots.by_scale([("dense", predicted, measured, scale), ("moe", predicted, measured, scale)]),
        "parts": lambda: plots.components(parts),
    }


def texts(path):
    """Texts are drawn as outlines; each says in a comment what it is."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))


@pytest.mark.slow
@sweep("name", drawn())
def test_the_same_figures_give_the_same_bytes(name, tmp_path):
    first = plots.save(tmp_path / "one", name, drawn()[name]).read_bytes()
    assert plots.save(tmp_path / "two", name, drawn()[name]).read_bytes() == first
    assert b"<dc:date>" not in first


@pytest.mark.slow
@sweep("name", drawn())
def test_no_text_stands_over_another(name):
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.text import Text

    matplotlib.use("agg")
    with matplotlib.rc_context(plots.SETTINGS):
        figure = drawn()[name]()
        figure.canvas.draw()
        shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
        boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
        canvas = figure.bbox
        pyplot.close(figure)
    assert len(boxes) > 5
    # Ticks beyond an axis' limits are never drawn.
    boxes = [(text, box) for text, box in boxes if canvas.overlaps(box)]
    for (one, first), (other, second) in combinations(boxes, 2):
        assert not first.overlaps(second), f"{one!r} over {other!r}"
    assert [text for text, box in boxes if box.x0 < canvas.x0 or box.x1 > canvas.x1] == []


@pytest.mark.slow
def test_axes_say_what_and_in_which_unit(tmp_path):
    figures = drawn()
    assert {"measured step time, s", "predicted step time, s"} <= set(
        texts(plots.save(tmp_path, "a", figures["scatter"]))
    )
    assert "error of the predicted step time, %" in texts(plots.save(tmp_path, "b", figures["strips"]))
    assert {"accelerators", "error of the predicted step time, %"} <= set(
        texts(plots.save(tmp_path, "c", figures["scale"]))
    )


def test_the_pages_show_every_figure_there_is():
    pages = {
        path.name: path.read_text(encoding="utf-8") for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    }
    shown = {
        page: set(re.findall(rf"\]\((?:docs/)?{plots.FOLDER}/([a-z0-9-]+)\.svg\)", text))
        for page, text in pages.items()
    }
    drawn = {path.stem for path in (ROOT / "docs" / plots.FOLDER).iterdir()}
    assert set().union(*shown.values()) == drawn
    elsewhere = {name for name in drawn if name.startswith(("case-", "design-", "blind-", "terminal"))}
    assert shown["accuracy-details.md"] == drawn - elsewhere


def test_plots_are_drawn_only_when_asked_for():
    """matplotlib is an extra: the page's other parts, and every command, do without it."""
    source = (ROOT / "docs" / "accuracy_plots.py").read_text(encoding="utf-8")
    assert not re.search(r"^(import|from) matplotlib", source, re.MULTILINE)
