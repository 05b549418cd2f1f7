"""Fills the tables of ``runs.md``: errors by task, of cards by what their runs were, and on pairs of runs that differ
in one lever.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from planner.base import resources
from planner.calibration import run
from planner.catalog import load
from planner.commands.calibrate_and_validate import lever_rows, percent

PAGE = Path(__file__).resolve().parent / "runs.md"
PART = re.compile(r"(<!-- (\w+) -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)
LIMIT = 0.05
LEVERS = ("lever", "pairs", "over 3 % apart", "of those in order", "ratio off by (median)")


def filled(page: str) -> str:
    """The page with its tables as `clusterwright validate --by task` has the figures."""
    found, runs = _validated()
    parts = {
        "tuned": _tuned(found["groups"]),
        "cards": _cards(runs),
        "levers": _table(LEVERS, lever_rows(found["levers"])),
    }
    return PART.sub(lambda at: f"{at[1]}{parts[at[2]]}\n{at[4]}", page)


@cache
def _validated() -> tuple[dict[str, Any], str]:
    return run.validate(load(), resources.runs(), "task", LIMIT)


def _tuned(groups: Sequence[dict[str, Any]]) -> str:
    shown = [each for each in groups if each["covered"] and "pretrain" not in each["name"]]
    rows = [
        (
            *each["name"].split(", "),
            f"{each['covered']}",
            percent(each["mape"]),
            percent(each["bias"]),
            f"{each['oom']['called_infeasible']}",
        )
        for each in sorted(shown, key=lambda each: (each["name"].split(", ")[0], -each["covered"]))
    ]
    return _table(("task", "source", "runs", "MAPE", "bias", "called infeasible at 50 %"), rows)


CARDS = {
    "means of ten steps, the first among them": r"first with its compilation",
    "deterministic kernels": r"deterministic kernels",
    "tuned recipes, mock data": r"/pretrain_(performance|weak_scaling)",
    "pre-training on data": r"/(pretrain|checkpoint_resume)",
    "adapters, SFT": r"/(peft|sft)",
}
"""What a card's run was -> by what its row's notes say so, the first that does."""


def _cards(runs: str) -> str:
    """Errors of Megatron-Bridge's cards by what their runs were."""
    with resources.runs().open(encoding="utf-8", newline="") as file:
        notes = {row["id"]: row["notes"] for row in csv.DictReader(file) if row["source"] == "megatron-bridge-cards"}
    found: dict[str, list[tuple[float, bool]]] = {kind: [] for kind in CARDS}
    for row in csv.DictReader(io.StringIO(runs)):
        if row["id"] in notes and row["error"]:
            kind = next(kind for kind, said in CARDS.items() if re.search(said, notes[row["id"]]))
            found[kind].append((float(row["error"]), row["fits"] != "True"))
    rows = []
    for kind, each in found.items():
        errors = np.array([error for error, _ in each])
        figures = np.mean(np.abs(errors)), np.median(np.abs(errors)), np.mean(errors)
        rows.append((kind, f"{len(each)}", *map(percent, figures), f"{sum(out for _, out in each)}"))
    return _table(("what was run", "runs", "MAPE", "median", "bias", "called infeasible at 50 %"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))
