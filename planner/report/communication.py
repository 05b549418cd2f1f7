"""The page of a step's communication: every kind of call."""

from __future__ import annotations

from planner.base.units import format_bytes, format_seconds
from planner.report import charts
from planner.report.blocks import Chart, Content, Section, TextTable
from planner.report.quantities import seconds
from planner.schema.reports import Communication


def of_communication(found: Communication, origin: str) -> Content:
    """Every kind of call of a step, and what of it shows."""
    name = [f"{c.op} ({c.group}, {c.ranks:,} ranks)" for c in found.calls]
    values = [
        {"row": row, "part": part, "value": took, "text": format_seconds(took)}
        for row, c in zip(name, found.calls, strict=True)
        for part, took in (("exposed", c.exposed_s), ("hidden behind compute", max(c.alone_s - c.exposed_s, 0.0)))
        if took
    ]
    rows = [
        (
            row,
            format_bytes(c.bytes),
            f"{c.count:,.0f}",
            format_seconds(c.alone_s),
            format_seconds(c.exposed_s),
            c.choice,
        )
        for row, c in zip(name, found.calls, strict=True)
    ]
    table = TextTable("Collectives of a step", ("call", "size", "calls", "alone", "exposed", "choice"), rows)
    spec = charts.bars(values, "seconds", ["exposed", "hidden behind compute"])
    chart = Chart("Time of all calls of a step", f"A step takes {seconds(found.step_time_s)}.", spec, table)
    return Content("Communication of a step", origin, [Section("Collectives", (chart, table))])
