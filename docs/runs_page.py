"""Fills the tables of ``runs.md``: errors by task, and on pairs of runs that differ in one lever."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from planner.base import resources
from planner.calibration import run
from planner.catalog import load

PAGE = Path(__file__).resolve().parent / "runs.md"
PART = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)
LIMIT = 0.05


def filled(page: str) -> str:
    """The page with its tables as `clusterwright validate --by task` has the figures."""
    found = _validated()
    parts = {"tuned": _tuned(found["groups"]), "levers": _levers(found["levers"])}
    return PART.sub(lambda at: f"{at[1]}{parts[at[2]]}\n{at[4]}", page)


@cache
def _validated() -> dict[str, Any]:
    return run.validate(load(), resources.runs(), "task", LIMIT)[0]


def _tuned(groups: Sequence[dict[str, Any]]) -> str:
    shown = [each for each in groups if each["covered"] and "pretrain" not in each["name"]]
    rows = [
        (
            *each["name"].split(", "),
            f"{each['covered']}",
            _percent(each["mape"]),
            _percent(each["bias"]),
            f"{each['oom']['called_infeasible']}",
        )
        for each in sorted(shown, key=lambda each: (each["name"].split(", ")[0], -each["covered"]))
    ]
    return _table(("task", "source", "runs", "MAPE", "bias", "called infeasible at 50 %"), rows)


def _levers(levers: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            each["lever"],
            f"{each['pairs']}",
            f"{each['apart']}",
            _percent(each["ordered"]),
            _percent(each["ratio_error"]),
        )
        for each in levers
    ]
    return _table(("lever", "pairs", "over 3 % apart", "of those in order", "ratio off by (median)"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
