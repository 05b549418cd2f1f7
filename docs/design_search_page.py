"""Fills the tables in ``design-studies.md`` from what ``benchmarks/design_search.py --write``, ``design_points.py
--write`` and ``design_workers.py --write`` measured.

``make docs`` refreshes the tables; ``python -m docs.design_search_page`` draws the regret curves, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design-studies.md"
DATA = ROOT / "benchmarks" / "data" / "design_search.json"
POINTS = DATA.with_name("design_points.json")
WORKERS = DATA.with_name("design_workers.json")
PART = re.compile(r"(<!-- (searches|points|workers) -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)
FLOOR = 0.01
"""Per cent of regret below which a curve is drawn as none."""


def filled(page: str) -> str:
    """The page with its tables as the figures are."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    points = json.loads(POINTS.read_text(encoding="utf-8"))["rows"]
    parts = {
        "searches": f"{_shipped(measured, points)}\n{_compared(measured)}\n",
        "points": _points(points),
        "workers": _workers(json.loads(WORKERS.read_text(encoding="utf-8"))),
    }
    return PART.sub(lambda found: found[1] + parts[found[2]] + found[4], page)


def _workers(measured: dict[str, Any]) -> str:
    by: dict[int, list[dict[str, Any]]] = {}
    for row in measured["rows"]:
        by.setdefault(row["points"], []).append(row)
    numbers = [row["workers"] for row in next(iter(by.values()))]
    heads = ["one process", *(f"{n} workers" for n in numbers[1:]), *(f"efficiency of {n}" for n in numbers[1:])]
    lines = [f"| points | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for points, rows in by.items():
        cells = [f"{row['cpu_s']:.1f}" for row in rows] + [f"{row['of_cpu']:.2f}" for row in rows[1:]]
        lines.append(f"| {points:,} | {' | '.join(cells)} |")
    return "\n".join([*lines, *_dask(measured.get("dask", ()))]) + "\n"


def _dask(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a Dask cluster on loopback takes, its workers' start included."""
    if rows:
        yield "\n| points | Dask workers | one killed | CPU s | s on the clock | best |\n|---|---|---|---|---|---|"
    for row in rows:
        killed = "yes" if row["killed"] else "no"
        figures = f"{row['cpu_s']:.0f} | {row['wall_s']:.0f} | {row['best']:.6g}"
        yield f"| {row['points']:,} | {row['workers']} | {killed} | {figures} |"


def _points(measured: list[dict[str, Any]]) -> str:
    heads = ("study", "points", "layouts a search", "a point, ms", "estimated", "a box, ms", "estimated")
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---|' * (len(heads) - 1)}"]
    for row in measured:
        cells = [row["study"], f"{row['points']:,}", f"{row['searched'] / row['searches']:,.0f}"]
        cells += [_ms(row[name]) for name in ("point_ms", "estimate_ms", "box_ms", "box_estimate_ms")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _ms(value: float) -> str:
    return "" if not value else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _shipped(measured: dict[str, Any], points: list[dict[str, Any]]) -> str:
    each = {row["study"]: row["point_ms"] for row in points}
    lines = ["| as shipped | points | proven by | evaluated | CPU s | enumerating it |", "|---|---|---|---|---|---|"]
    for row in measured["shipped"]:
        how = "bounds" if row["method"] == "bounded" else "enumeration"
        cells = (row["study"], f"{row['points']:,}", how, f"{row['evaluated']:,}", f"{row['cpu_s']:.1f}")
        lines.append(f"| {' | '.join(cells)} | {each[row['study']] * row['points'] / 1e3:,.0f} CPU s |")
    return "\n".join(lines) + "\n"


def studies(measured: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each study, the proof's first."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in measured["compared"]:
        found.setdefault(row["study"], []).append(row)
    return found


def _compared(measured: dict[str, Any]) -> str:
    by = studies(measured)
    proofs = {name: rows[0] for name, rows in by.items()}
    heads = [f"{name} ({row['points']:,} points)" for name, row in proofs.items()]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    cells = [f"**0**, {row['trials']:,} points, {row['cpu_s']:.1f} CPU s" for row in proofs.values()]
    lines.append(f"| proven by bounds | {' | '.join(cells)} |")
    names = dict.fromkeys(row["way"] for rows in by.values() for row in rows[1:])
    for way in names:
        found = [next((row for row in rows if row["way"] == way), None) for rows in by.values()]
        lines.append(f"| {way} | {' | '.join(_cell(row) for row in found)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{_percent(row['median'])} / {_percent(row['p90'])}; {row['found']} of {row['seeds']}; {row['cpu_s']:.1f} s"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value >= FLOOR else "0"


def curves(measured: dict[str, Any]) -> Any:
    """Median regret after so many trials, a panel a study, a colour and marker a way."""
    from matplotlib import pyplot

    from docs.accuracy_plots import STYLES

    by = studies(measured)
    columns = min(len(by), 3)
    rows = -(-len(by) // columns)
    figure, panels = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 2.6 * rows), squeeze=False, sharey=True)
    names = dict.fromkeys(row["way"] for found in by.values() for row in found[1:])
    styles = dict(zip(names, (*STYLES, ("#888888", "*")), strict=False))  # one more way than the other plots have kinds
    for panel, (name, found) in zip(panels.flat, by.items(), strict=False):
        for row in found[1:]:
            colour, marker = styles[row["way"]]
            marks = [measured["mark"] * (n + 1) for n in range(len(row["curve"]))]
            values = [float("nan") if value is None else max(value, FLOOR) for value in row["curve"]]
            panel.plot(marks, values, color=colour, marker=marker, markersize=3.5, linewidth=1, label=row["way"])
        panel.set(title=name, yscale="log", ylim=(FLOOR * 0.8, 300), xlabel="trials")
        panel.grid(True)
    for panel in list(panels.flat)[len(by) :]:
        panel.axis("off")
    for line in panels[:, 0]:
        line.set_ylabel("median regret, %")
        line.set_yticks([FLOOR, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=4, loc="lower center", fontsize=8)
    figure.tight_layout(rect=(0, 0.16 / rows, 1, 1))
    return figure


def main() -> None:
    """Writes the page and its figure."""
    from docs import accuracy_plots

    measured = json.loads(DATA.read_text(encoding="utf-8"))
    accuracy_plots.save(ROOT / "docs" / accuracy_plots.FOLDER, "design-regret", lambda: curves(measured))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
