"""A traced step next to its prediction."""

from __future__ import annotations

from planner.base.units import format_many, format_percent, format_seconds
from planner.commands.screen import render
from planner.schema.reports import TracedRank, TraceReport

MOST_RANKS = 8
"""Ranks that are listed: of more, those that compute longest."""


def show(found: TraceReport) -> None:
    """The table of causes, the ranks where they are several, and what was noted."""
    off = found.predicted_s / found.step_s - 1.0
    render.text(
        f"{format_seconds(found.step_s)} a step traced, {format_seconds(found.predicted_s)} predicted "
        f"({100 * off:+.0f} %); {format_many(found.steps, 'step')} on {format_many(len(found.ranks), 'rank')}"
    )
    render.text()
    rows = [
        (
            row.cause,
            _some(row.measured_s),
            _some(row.predicted_s),
            f"{'+' if row.longer_s >= 0 else '-'}{format_seconds(abs(row.longer_s))}",
            format_percent(row.measured_s / found.step_s),
            _some(row.hidden_s),
        )
        for row in found.rows
    ]
    render.table(["", "traced", "predicted", "difference", "of the step", "hidden"], rows, align="lrrrrr")
    render.text()
    for row in found.rows:
        if row.why:
            label = row.cause.partition(" ")[0]
            render.labelled(label if label.isupper() else label.capitalize(), row.why)
    _ranks(found)
    render.labelled("Notes", *found.notes)


def _some(seconds: float) -> str:
    return format_seconds(seconds) if seconds else "-"


def _ranks(found: TraceReport) -> None:
    if len(found.ranks) < 2:
        return
    render.text()
    listed = sorted(found.ranks, key=lambda rank: -rank.computing_s)[:MOST_RANKS]
    rows = [
        (
            _name(each),
            *(format_seconds(value) for value in (each.step_s, each.computing_s, each.waiting_s, each.idle_s)),
        )
        for each in listed
    ]
    render.table(["rank", "step", "computing", "communicating alone", "idle"], rows, align="rrrrr")
    render.text()


def _name(each: TracedRank) -> str:
    """A rank's number, or the accelerator's of a file that is of several."""
    return f"device {each.device}" if each.device is not None else "-" if each.rank is None else str(each.rank)
