"""The front over one limit: the best answer at several values of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from planner.base import units
from planner.base.errors import WrongQuestion
from planner.base.progress import Progress
from planner.catalog import Catalog
from planner.procurement import run
from planner.procurement.answer import document
from planner.procurement.program.instance import USUAL, ProcureVariant, Settings
from planner.procurement.program.solve import best
from planner.procurement.question.portfolio import Portfolio
from planner.question.values import usd
from planner.verify import procurement as verify

POINTS = 8
MONEY = ("budget", "capital", "monthly")
FIGURES = ("value", "gap", "done_day", "total_usd", "carbon_kg")
"""Figures of a point of the sweep; null where there is no answer."""
SWEPT = (*MONEY, "power", "racks")


def swept(
    catalog: Catalog,
    asked: Portfolio,
    text: str,
    *,
    settings: Settings = USUAL,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The best answer at each of several values of a limit, geometrically spaced, and which of them are on the front;
    each verified as an answer of its own.

    Raises:
        WrongQuestion: not ``LIMIT=A..B``, or no limit that can be swept.
    """
    name, low, high = _range(asked, text)
    limits = replace(asked.limits, **{name: high})
    posed = run.pose(catalog, replace(asked, limits=limits), progress, settings=settings)
    points: list[dict[str, Any]] = []
    reached = None
    for n in range(POINTS):
        value = low * (high / low) ** (n / (POINTS - 1))
        solution = best(posed.lean, ProcureVariant(moved={name: value}), asked.objective, settings)
        if solution is None:
            points.append({"limit": value, "what": "", "front": False, **dict.fromkeys(FIGURES), "rests_on": ()})
            continue
        kept = replace(posed.lean, asked=replace(asked, limits=replace(asked.limits, **{name: value})))
        best_there = document.alternative(kept, posed.speeds, solution, 1)
        verify.keeps(run.question(kept), best_there)
        better = reached is None or solution.value < reached - 2 * settings.gap * abs(reached)
        reached = solution.value if better else reached
        points.append(
            {
                "limit": value,
                "what": document.what(posed.instance, solution),
                "value": best_there.value,
                "gap": solution.gap,
                "done_day": best_there.done_day,
                "total_usd": best_there.cost.total_usd,
                "carbon_kg": best_there.carbon_kg,
                "front": better,
                "rests_on": best_there.rests_on,
            }
        )
    return {
        "kind": "procurement-sweep",
        "schema_version": 1,
        "limit": name,
        "limit_unit": "USD" if name in MONEY else "W" if name == "power" else "",
        "value_unit": document.UNITS[asked.objective],
        "currency": {"code": asked.currency.code, "usd": asked.currency.usd, "date": asked.currency.date},
        "objective": asked.objective,
        "points": points,
    }


def _range(asked: Portfolio, text: str) -> tuple[str, float, float]:
    match = re.fullmatch(r"([a-z_]+)=(.+)\.\.(.+)", text.replace(" ", ""))
    if match is None or match[1] not in SWEPT:
        raise WrongQuestion(f"--sweep {text}: write LIMIT=A..B with one of {', '.join(SWEPT)}, e.g. budget=1M..20M")
    low, high = (_value(asked, match[1], part, text) for part in (match[2], match[3]))
    if not 0 < low < high:
        raise WrongQuestion(f"--sweep {text}: the first value must be above nothing and below the second")
    return match[1], low, high


def _value(asked: Portfolio, name: str, part: str, text: str) -> float:
    try:
        if name in MONEY:
            bare = re.fullmatch(r"[\d.,]+[kMB]?", part)
            return (
                usd(f"{part[:-1]} {part[-1]}{asked.currency.code}", asked.currency)
                if bare and part[-1] in "kMB"
                else (usd(f"{part} {asked.currency.code}" if bare else part, asked.currency))
            )
        return units.parse(part, "power" if name == "power" else "count")
    except units.UnitError as error:
        raise WrongQuestion(f"--sweep {text}: {error}") from None
