"""The plots of the pages on accuracy: predicted against measured, residuals by source, accelerator and scale.

Colours are Okabe and Ito's, which colour-blind readers tell apart, and every colour has a marker of its own. The same
figures give the same bytes: no date, ids salted with a constant, text as outlines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "figures"
STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "^"),
    ("#009E73", "s"),
    ("#CC79A7", "D"),
    ("#56B4E9", "v"),
    ("#E69F00", "P"),
    ("#333333", "X"),
)
FAMILIES = {"dense": "dense", "moe": "mixture of experts", "encoder": "encoder", "cnn": "CNN", "dlrm": "recommender"}
SETTINGS = {
    "svg.hashsalt": "clusterwright",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
_TICKS = (-0.5, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.5, 1.0)
_ERROR = "error of the predicted step time"


def save(folder: Path, name: str, draw: Callable[[], Any]) -> Path:
    """Draws a figure under the page's settings and writes it as SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS, "backend": "svg"}):
        figure = draw()
        path = folder / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


def scatter(panels: Sequence[tuple[str, np.ndarray, np.ndarray, Sequence[str]]]) -> Any:
    """Predicted against measured step times; a panel is its title, both times, and what its points are coloured by."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 4.7), layout="constrained", squeeze=False
    )
    for ax, (title, predicted, measured, labels) in zip(axes[0], panels, strict=True):
        ends = (min(predicted.min(), measured.min()) / 1.3, max(predicted.max(), measured.max()) * 1.3)
        for factor, style in ((1.0, "-"), (1.2, ":"), (1 / 1.2, ":")):
            ax.plot(ends, [factor * end for end in ends], style, color="#888888", linewidth=0.9, zorder=1)
        names = np.array(labels)
        for place, name in enumerate(sorted(set(labels), key=lambda n: -np.sum(names == n))):
            kind = list(FAMILIES.values()).index(name) if name in FAMILIES.values() else place
            colour, marker = STYLES[kind % len(STYLES)]
            inside = names == name
            told = f"{name} ({inside.sum():,})"
            ax.scatter(
                measured[inside], predicted[inside], s=16, c=colour, marker=marker, alpha=0.65, linewidths=0, label=told
            )
        ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, title=title, aspect="equal")
        ax.set(xlabel="measured step time, s", ylabel="predicted step time, s")
        decades = range(int(np.ceil(np.log10(ends[0]))), int(np.floor(np.log10(ends[1]))) + 1)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_ticks([10.0**decade for decade in decades], [f"{10.0**decade:,g}" for decade in decades])
        ax.grid(True)
        ax.legend(loc="upper left", fontsize=7.5, handletextpad=0.2, borderaxespad=0.2, labelspacing=0.3)
    return figure


def strips(
    title: str, predicted: np.ndarray, measured: np.ndarray, labels: Sequence[str], families: Sequence[str]
) -> Any:
    """Residuals, one line of points a label, most runs first; the bar is the median."""
    from matplotlib import pyplot

    names, kinds = np.array(labels), np.array(families)
    order = sorted(set(labels), key=lambda name: (-int(np.sum(names == name)), name))
    figure, ax = pyplot.subplots(figsize=(8.2, 1.1 + 0.42 * len(order)), layout="constrained")
    residual = np.log(predicted / measured)
    for line, name in enumerate(order):
        inside = np.flatnonzero(names == name)
        height = _spread(residual[inside])
        for kind, (colour, marker) in zip(FAMILIES, STYLES, strict=False):
            chosen = kinds[inside] == kind
            ax.scatter(
                residual[inside][chosen], line + height[chosen], s=11, c=colour, marker=marker, alpha=0.7, linewidths=0
            )
        middle = float(np.median(residual[inside]))
        ax.plot([middle, middle], [line - 0.38, line + 0.38], color="black", linewidth=1.6, solid_capstyle="butt")
    ax.set_yticks(range(len(order)), [f"{name}  ({int(np.sum(names == name)):,})" for name in order])
    ax.set(ylim=(len(order) - 0.5, -0.5), title=title)
    ax.tick_params(axis="y", length=0)
    _in_per_cent(ax.xaxis, residual)
    ax.set_xlabel(f"{_ERROR}, %")
    shown = [kind for kind in FAMILIES if kind in set(families)]
    if len(shown) > 1:
        _legend(figure, shown)
    return figure


def bars(names: Sequence[str], errors: Sequence[float], title: str) -> Any:
    """Mean errors (shares) by name, the smallest first, each with its figure."""
    from matplotlib import pyplot

    order = np.argsort(errors)
    figure, ax = pyplot.subplots(figsize=(7.2, 1.0 + 0.34 * len(names)), layout="constrained")
    values = 100 * np.array(errors)[order]
    ax.barh(range(len(order)), values, color=STYLES[0][0], height=0.62)
    ax.set_yticks(range(len(order)), [names[place] for place in order])
    for line, value in enumerate(values):
        ax.text(value + 0.6, line, f"{value:.0f} %", va="center", fontsize=8.5)
    ax.set(title=title, ylim=(len(order) - 0.5, -0.5), xlim=(0, 1.12 * float(values.max())))
    ax.set_xlabel(f"mean {_ERROR}, %")
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x")
    return figure


def by_scale(panels: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray]]) -> Any:
    """Residuals over the number of accelerators; a panel is its title, both times, and the accelerators of its runs."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.5 * len(panels), 3.3), layout="constrained", sharey=True, squeeze=False
    )
    for place, (ax, (title, predicted, measured, accelerators)) in enumerate(zip(axes[0], panels, strict=True)):
        residual, scale = np.log(predicted / measured), np.log2(accelerators)
        colour, marker = STYLES[place]
        ax.scatter(scale, residual, s=14, c=colour, marker=marker, alpha=0.55, linewidths=0)
        octave = np.round(scale)
        middles = [(o, float(np.median(residual[octave == o]))) for o in np.unique(octave)]
        ax.plot(*zip(*middles, strict=True), color="black", linewidth=1.4, label="median")
        ticks = range(int(octave.min()), int(octave.max()) + 1, 2)
        ax.set_xticks(ticks, [f"{2**t:,}" for t in ticks])
        ax.set(title=f"{title} ({len(residual):,} runs)", xlabel="accelerators")
        ax.legend(loc="upper right", fontsize=8)
    for ax in axes[0]:
        _in_per_cent(ax.yaxis, np.concatenate([np.log(p / m) for _, p, m, _ in panels]))
    axes[0][0].set_ylabel(f"{_ERROR}, %")
    return figure


def components(parts: Mapping[str, Mapping[str, float]]) -> Any:
    """Bars of the squared residual of each set, cut by what its runs have in common."""
    from matplotlib import pyplot

    kinds = list(dict.fromkeys(kind for found in parts.values() for kind in found))
    colours = dict(zip(kinds, ("#333333", *(c for c, _ in STYLES if c != "#333333")), strict=False))
    colours[kinds[-1]] = "#d5d5d5"
    figure, ax = pyplot.subplots(figsize=(8.2, 1.3 + 0.42 * len(parts)), layout="constrained")
    for line, found in enumerate(parts.values()):
        start = 0.0
        for kind in kinds:
            width = 100 * max(found.get(kind, 0.0), 0.0)
            ax.barh(line, width, 0.7, start, color=colours[kind], edgecolor="white", linewidth=0.8)
            if width >= 6:
                dark = kind != kinds[-1] and colours[kind] not in ("#56B4E9", "#E69F00")
                ax.text(start + width / 2, line, f"{width:.0f}", ha="center", va="center", color="w" if dark else "k")
            start += width
    ax.set_yticks(range(len(parts)), list(parts))
    ax.set(ylim=(len(parts) - 0.5, -0.5), xlim=(0, 100), xlabel="share of the squared residual, %")
    ax.tick_params(axis="y", length=0)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours[kind]) for kind in kinds]
    figure.legend(handles, kinds, loc="outside upper left", ncols=len(kinds), handlelength=1, columnspacing=1.2)
    return figure


def _legend(figure: Any, shown: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    styles = dict(zip(FAMILIES, STYLES, strict=False))
    handles = [Line2D([], [], color=styles[kind][0], marker=styles[kind][1], linestyle="", ms=5) for kind in shown]
    bar = Line2D([], [], color="black", marker="|", linestyle="", ms=9, mew=1.6)
    names = [*(FAMILIES[kind] for kind in shown), "median"]
    figure.legend([*handles, bar], names, loc="outside lower right", ncols=len(names), handletextpad=0.1)


def _in_per_cent(axis: Any, residual: np.ndarray) -> None:
    """A log axis of factors with ticks as signed per cent: twice too slow is as far out as twice too fast."""
    lowest, highest = residual.min() - 0.03, residual.max() + 0.03
    ticks = [tick for tick in (*_TICKS, 2.0, 4.0) if lowest <= np.log1p(tick) <= highest]
    if highest - lowest > 1.2:
        ticks = [tick for tick in ticks if tick in (-0.5, -0.3, 0.0, 0.5, 1.0, 2.0, 4.0)]
    axis.set_ticks([np.log1p(tick) for tick in ticks], [_signed(tick) for tick in ticks])
    axis.axes.grid(True, axis=axis.axis_name)
    getattr(axis.axes, f"ax{'v' if axis.axis_name == 'x' else 'h'}line")(0.0, color="#888888", linewidth=1.0, zorder=1)


def _signed(tick: float) -> str:
    return f"{100 * tick:+.0f}".replace("-", "\N{MINUS SIGN}") if tick else "0"


def _spread(values: np.ndarray) -> np.ndarray:
    """Heights in -0.36 to 0.36 that keep near-equal points apart: those of one bin are stacked about the line."""
    bins = np.round(values / 0.012)
    height = np.zeros(len(values))
    for each in np.unique(bins):
        inside = np.flatnonzero(bins == each)
        step = min(0.09, 0.72 / max(len(inside) - 1, 1))
        height[inside] = step * (np.arange(len(inside)) - (len(inside) - 1) / 2)
    return height
