"""The page of two plans compared."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base.units import format_percent, format_usd
from planner.report import prices
from planner.report.blocks import Content, Lines, Section, TextTable
from planner.schema.comparison import Comparison


def of_comparison(found: Comparison, origin: str) -> Content:
    """Where two plans differ, and what the second gains."""
    paid = prices.compared(("first", "second"), [plan.money for plan in found.plans])
    lines = [
        *_gain(found),
        ("Different questions", list(found.questions)),
        ("Prices", paid),
    ]
    table = TextTable("Where they differ", ("axis", "first", "second"), found.differing)
    top = Section("Gain of the second plan", (Lines([each for each in lines if each[1]]), table))
    return Content("Two plans compared", origin, [top])


def _gain(found: Comparison) -> Iterator[tuple[str, list[str]]]:
    """What the second plan brings, and how sure that is; nothing where the two train different models."""
    if "models" in found.questions:
        yield "Gain", ["not comparable: they train different models"]
        return
    more = "more" if found.tokens >= 1 else "fewer"
    gain = [f"{format_percent(abs(found.tokens - 1.0))} {more} tokens per second, {found.days:+,.1f} days"]
    if found.usd is not None:
        gain.append(f"{format_usd(abs(found.usd))} {'saved' if found.usd <= 0 else 'more'}")
    sure = "their 80 % intervals lie apart" if found.distinguishable else "the prediction cannot distinguish the two"
    yield from (("Gain", gain), ("Confidence", [sure]))
