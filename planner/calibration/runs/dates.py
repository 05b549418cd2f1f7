"""Options of a run against the dates from when on its framework has them (`since`, in the catalog of runtimes)."""

from __future__ import annotations

from collections.abc import Mapping

from planner.schema.hardware import Runtime, dated


def late(known: Runtime, date: str) -> tuple[str, ...]:
    """What of `since` a runtime surely had not at a date (YYYY or YYYY.MM): what came after the year, or the month."""
    if (middle := dated(date)) is None:
        return ()
    end = middle + (0.5 / 12 if "." in date else 0.5)
    return tuple(what for what, since in known.since.items() if (dated(since) or 0.0) > end)


def contradiction(known: Runtime, date: str, stated: Mapping[str, str]) -> str:
    """Why a run of that date cannot have been what a row states; empty if it can.

    Arguments:
        known: the runtime.
        date: its release, YYYY or YYYY.MM.
        stated: what the row states of options -> the cell that says so; options as `since` names them.
    """
    for what in late(known, date):
        if what in stated:
            return (
                f"{stated[what]}: {known.id} has {what} since {known.since[what]}, the run is of {date}; "
                "correct the one or the other (framework, framework_date, runtime)"
            )
    return ""
