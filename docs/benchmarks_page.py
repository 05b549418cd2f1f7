"""Fills ``benchmarks.md`` from what the programs in ``benchmarks/`` measured, kept in ``benchmarks/data/speed.json``.

    python benchmarks/search_speed.py --json > search.json     # likewise scaling.py, command_line.py
    python -m docs.benchmarks_page search.json scaling.json commands.json
    python benchmarks/procure.py --json > procure.json && python -m docs.benchmarks_page procure.json

Without files it counts the candidates anew and keeps the times. ``make docs`` refreshes the tables; a test holds the
counts to what today's program counts.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
DATA = ROOT / "benchmarks" / "data" / "speed.json"
PART = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)
NAMES = {"llama3.1-405b": "Llama 3.1 405B", "deepseek-v3": "DeepSeek-V3"}


def filled(page: str) -> str:
    """The page with its tables as the figures are."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    parts = {
        "conditions": _conditions(measured),
        "search": _search(measured["problems"]),
        "scaling": _scaling(measured["searches"]),
        "procurement": _procurement(measured["procure"]),
        "commands": _commands(measured["commands"]),
    }
    return PART.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[4]}", page)


def _conditions(measured: dict[str, Any]) -> str:
    machine, problems = measured["machine"], measured["problems"]
    longest = max(problems, key=lambda each: each["proven_top20_cpu_s"])
    return (
        f"**The best 20 plans of {_millions(longest['candidates'])} candidates are proven in "
        f"{longest['proven_top20_cpu_s']:.2f} CPU seconds** ({longest['name']}).\n\n"
        f"Conditions: {machine['cores']} cores that other work shared (load {machine['load']}), Python "
        f"{machine['python']}, NumPy {machine['numpy']}, one process and one\nthread, CPU seconds, median of three "
        "(commands: five). The loop "
        f"`for i in range(5_000_000): s += i * i` took {machine['loop_s']:.2f} CPU seconds; compare with yours."
    )


def _search(problems: Sequence[dict[str, Any]]) -> str:
    heads = (
        "space",
        "candidates",
        "fit",
        "best 20 proven",
        "costed for it",
        "all costed",
        "cells a CPU s",
        "peak memory",
    )
    rows = [
        (
            each["name"],
            _millions(each["candidates"]),
            _millions(each["feasible"]),
            f"{each['proven_top20_cpu_s']:.2f} s",
            _millions(each["costed"]),
            f"{each['cpu_s']:.2f} s",
            _millions(each["candidates_per_cpu_s"]),
            f"{each['peak_bytes'] / 1e6:.1f} MB",
        )
        for each in problems
    ]
    return _table(heads, rows)


def _scaling(searches: Sequence[dict[str, Any]]) -> str:
    models = list(dict.fromkeys(each["model"] for each in searches))
    heads = [
        "accelerators",
        *(name for model in models for name in (f"{NAMES[model]}: layouts", "candidates", "CPU s")),
    ]
    rows = []
    for count in dict.fromkeys(each["accelerators"] for each in searches):
        cells = [f"{count:,}"]
        for each in (each for each in searches if each["accelerators"] == count):
            cells += [f"{each['layouts']:,}", _millions(each["candidates"]), f"{each['cpu_s']:.2f}"]
        rows.append(cells)
    return _table(heads, rows)


def _turned(each: dict[str, Any]) -> str:
    """A question in words; the figures of earlier runs name fewer ways to turn it."""
    most = f", at most {each['at_most']} of each" if each.get("at_most") else ""
    unlike = " that all differ" if each.get("differing") else ""
    return f"{each['workloads']} workloads{unlike}, {each['nodes']} types{', a calendar' * each['calendar']}{most}"


def _procurement(measured: dict[str, Any]) -> str:
    machine, first = measured["machine"], measured["procurement"]
    heads = (
        "question",
        "jobs on pools",
        "searches",
        "columns, CPU s",
        "nothing dominates",
        "integer program, CPU s",
        "gap",
        "peak memory",
    )
    rows = [
        (
            _turned(each),
            f"{each['columns']:,}",
            "-" if each["searches"] is None else f"{each['searches']:,}",
            "-" if each["columns_cpu_s"] is None else f"{each['columns_cpu_s']:.0f}",
            f"{each['undominated']:,}",
            f"{each['solve_cpu_s']:.1f}",
            "-" if each["gap"] is None else f"{100 * each['gap']:.2g} %",
            _bytes(each["peak_bytes"]),
        )
        for each in (first, *measured["larger"])
    ]
    queries = [(f"`--budget '{each['budget']}'`", f"{each['cpu_s']:.1f}") for each in measured["queries"]]
    said = (
        f"Node types for sale x {first['wirings']} wirings x {first['regions']} regions x 4 sizes, with and without "
        "spares;\nworkloads "
        f"over {first['months']} months with a budget, capital, power, racks and a limit on every month; "
        f"{machine['cores']} cores that\nother work shared (load {machine['load']}). "
        "The integer program may take 600 s on the clock, and states the gap that it leaves. Processes "
        "that search\ncolumns outlive a question: where their CPU seconds are not counted, none are said."
    )
    asked = "`clusterwright procure --model llama3-8b --tokens 2T --deadline 60d`"
    return f"{said}\n\n{_table(heads, rows)}\n\n{_table((asked, 'CPU s'), queries)}"


def _question(row: dict[str, Any]) -> str:
    most = row.get("at_most")
    parts = (
        f"{row['workloads']}{' different' * row.get('differing', False)} workloads",
        f"{row['nodes']} types",
        "a calendar" * row["calendar"],
        "" if most is None else f"at most {most} nodes of each",
    )
    return ", ".join(part for part in parts if part)


def _bytes(size: float | None) -> str:
    return "-" if size is None else f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _commands(commands: Sequence[dict[str, Any]]) -> str:
    rows = [(f"`clusterwright {each['command']}`", f"{each['cpu_s']:.2f}") for each in commands]
    return _table(("command", "CPU s"), rows)


def _millions(count: float) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e6:.2f} M"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def counted(name: str) -> dict[str, int]:
    """Candidates of one of the spaces, how many fit, and how many are costed to prove the best 20."""
    from benchmarks.search_speed import proven
    from benchmarks.spaces import SPACES

    found = proven(next(space for space in SPACES if space.name == name).question())
    return {"candidates": found.candidates, "feasible": found.feasible, "costed": found.costed}


def main(files: Sequence[str]) -> None:
    """Keeps what was measured, or counts anew, and writes the page."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    for name in files:
        fresh = json.loads(Path(name).read_text(encoding="utf-8"))
        fresh["machine"] |= {"load": round(os.getloadavg()[0])}
        fresh.pop("axes", None)
        measured |= {"procure": fresh} if "procurement" in fresh else fresh
    if not files:
        measured["problems"] = [each | counted(each["name"]) for each in measured["problems"]]
    DATA.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
