"""The plots of ``case-studies.md``. Colours and settings are those of :mod:`docs.accuracy_plots`."""

from __future__ import annotations

from typing import Any

import numpy as np

from docs.accuracy_plots import STYLES

SECONDS = "step time, s"


def _axes(columns: int, *, width: float = 4.4, height: float = 3.6) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(1, columns, figsize=(width * columns, height), layout="constrained", squeeze=False)


def _lines(ax: Any, x: Any, lines: dict[str, Any]) -> None:
    for (name, y), (colour, marker) in zip(lines.items(), STYLES, strict=False):
        ax.plot(x, y, marker=marker, markersize=5, color=colour, label=name, linewidth=1.4)
    ax.grid(visible=True)
    ax.legend()


def _powers(ax: Any, values: Any) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(values, [f"{v:g}" for v in values])
    ax.minorticks_off()


def _seconds(ax: Any, values: Any) -> None:
    ax.set_yscale("log")
    ax.set_yticks(values, [f"{v:,}" for v in values])
    ax.minorticks_off()


def sweep(series: dict[str, Any]) -> Any:
    """Step time against the model-parallel degree."""
    figure, axes = _axes(1, width=6.4)
    ax = axes[0][0]
    names = {"free": "memory free, ZeRO 2", "fits": "80 GB, ZeRO 2", "any": "80 GB, any ZeRO"}
    _lines(ax, series["degrees"], {told: series[name] for name, told in names.items()})
    ax.axvline(8, color="#888888", linewidth=0.9, linestyle=":")
    ax.annotate("pod", (8, ax.get_ylim()[1]), xytext=(3, -10), textcoords="offset points", color="#555555")
    ax.set(
        yscale="log",
        xlabel="model-parallel ranks (data-parallel: 1,024 over them)",
        ylabel=SECONDS,
        title="Transformer-1T on 1,024 A100",
    )
    _powers(ax, series["degrees"])
    _seconds(ax, (50, 100, 200, 500, 1000, 2000))
    return figure


def expansion(series: dict[str, Any]) -> Any:
    """Gain from expanded memory against its bandwidth and its size."""
    figure, axes = _axes(2)
    lines = {name: value for name, value in series.items() if isinstance(value, tuple) and "," in name}
    panels = (("rates", "bandwidth of 1.6 TB, GB/s"), ("sizes", "size at 512 GB/s, GB"))
    for which, (ax, (key, label)) in enumerate(zip(axes[0], panels, strict=True)):
        _lines(ax, series[key], {name: value[which] for name, value in lines.items()})
        ax.axhline(1, color="#888888", linewidth=0.9)
        ax.set(xlabel=label, ylabel="times as fast as with 80 GB alone", ylim=(0.9, None))
        _powers(ax, series[key])
    axes[0][0].set_title("gain from expanded memory")
    return figure


def compute(series: dict[str, Any]) -> Any:
    """Step time against the accelerator's peak."""
    figure, axes = _axes(1, width=5.4)
    ax = axes[0][0]
    _lines(ax, series["factors"], {name: series[name] for name in ("80 GB", "with expanded memory")})
    ax.set(yscale="log", xlabel="peak FLOP/s, times an A100's", ylabel=SECONDS, title="compute scaling")
    _powers(ax, series["factors"])
    _seconds(ax, (30, 50, 100, 200, 300))
    return figure


def heat(series: dict[str, Any], of: str) -> Any:
    """Step time against bandwidth inside pods and between them, relative to the middle; `of`: what is shown."""
    figure, axes = _axes(len(series["maps"]), width=4.0, height=3.9)
    relative = {name: np.array(values) / values[2][2] for name, values in series["maps"].items()}
    least, most = (f([f(x) for x in relative.values()]) for f in (np.min, np.max))
    for ax, (name, values) in zip(axes[0], relative.items(), strict=True):
        shown = ax.imshow(np.log2(values), origin="lower", cmap="cividis_r", vmin=np.log2(least), vmax=np.log2(most))
        for (row, column), value in np.ndenumerate(values):
            dark = np.log2(value) > (np.log2(least) + np.log2(most)) / 2
            ax.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black", size=8)
        ax.set_xticks(range(len(series["intra"])), [f"{x:g}" for x in series["intra"]])
        ax.set_yticks(range(len(series["inter"])), [f"{x:g}" for x in series["inter"]])
        ax.set(xlabel="GB/s inside a pod", ylabel="GB/s between pods", title=name)
        for side in ax.spines.values():
            side.set_visible(False)
    del shown
    figure.suptitle(of, x=0.02, ha="left", fontsize=10)
    return figure


def clusters(series: dict[str, Any]) -> Any:
    """Step time of each kind of cluster."""
    figure, axes = _axes(1, width=6.8)
    ax = axes[0][0]
    names = list(series["times"])
    place = np.arange(len(names))
    for offset, which, label in ((-0.2, 0, "alone"), (0.2, 1, "with 480 GB at 512 GB/s each")):
        values = [series["times"][name][which] for name in names]
        ax.bar(place + offset, values, width=0.38, color=STYLES[which][0], label=label)
        for x, value in zip(place + offset, values, strict=True):
            known = not np.isnan(value)
            ax.text(
                x,
                value if known else 20,
                f"{value:.0f}" if known else "-",
                ha="center",
                va="bottom",
                size=8,
            )
    ax.set_xticks(place, names)
    ax.set(ylabel=SECONDS, title="Transformer-1T on 1,024 accelerators (-: does not fit)")
    _seconds(ax, (20, 50, 100, 200, 500, 1000))
    ax.set_ylim(20, 1300)
    ax.legend()
    return figure


def recommender(series: dict[str, Any], spilling: dict[str, Any]) -> Any:
    """Throughput by sharding, and what expanded memory makes of fewer ranks."""
    figure, axes = _axes(2)
    left, right = axes[0]
    _lines(left, series["ranks"], {by: np.array(values) / 1e3 for by, values in series["ways"].items()})
    left.set(
        xlabel="ranks", ylabel="thousand samples/s a rank", title="tables cut evenly, whole, by rows", ylim=(0, None)
    )
    _powers(left, series["ranks"])
    left.tick_params(axis="x", labelsize=7)
    _lines(
        right,
        spilling["rates"],
        {
            "1 rank" if n == 1 else f"{n} ranks": values
            for n, values in spilling["lines"].items()
            if n < spilling["alone"]
        },
    )
    right.axhline(1, color="#888888", linewidth=0.9)
    right.set(
        xlabel="bandwidth of expanded memory, GB/s",
        ylabel=f"samples/s a rank, {spilling['alone']} ranks alone: 1",
        title="fewer ranks with expanded memory",
    )
    _powers(right, spilling["rates"])
    return figure


def recommender_compute(series: dict[str, Any]) -> Any:
    """Throughput against the accelerator's peak."""
    figure, axes = _axes(1, width=5.4)
    ax = axes[0][0]
    _lines(ax, series["factors"], {f"{ranks:,} ranks": values for ranks, values in series["lines"].items()})
    ax.axhline(1, color="#888888", linewidth=0.9)
    ax.set(
        xlabel="peak FLOP/s, times an A100's",
        ylabel="samples/s, at an A100's peak: 1",
        title="DLRM: compute scaling",
        ylim=(0, None),
    )
    _powers(ax, series["factors"])
    return figure
