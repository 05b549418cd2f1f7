"""An answer handed over: on the screen or as its document, and into a file; and the assumptions that it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from planner.commands.screen import render

if TYPE_CHECKING:
    from planner.schema.images import ImagePlan
    from planner.schema.plan import Assumption, PlanSet
    from planner.schema.procurement import Procurement
    from planner.schema.rl import RLPlanSet
    from planner.schema.study import StudyResult

Answer = TypeVar("Answer", "PlanSet", "Procurement", "StudyResult", "ImagePlan", "RLPlanSet")


def hand_over(found: Answer, show: Callable[[Answer], None], *, as_json: bool, output: Path | None, after: str) -> None:
    """Prints an answer by `show` and, line by line, what to do next, or its document, which it writes where asked."""
    from planner.base import writing
    from planner.planning import document

    if output is not None:
        writing.write(output, document.as_json(found), replace=True)
    if as_json:
        render.json(document.stamped(found))
        return
    show(found)
    render.text()
    render.labelled("Next", *after.splitlines())


def assumed(assumptions: Sequence[Assumption], verbose: bool) -> None:
    """Prints on how many assumptions an answer that is no plan rests; verbose: each, its reason and what changes it."""
    if assumptions:
        count = [f"{len(assumptions)} things that -v lists, with what changes them"]
        reasons = [f"{one.what}: {one.why} ({one.flag})" for one in assumptions]
        render.labelled("Assumes", *(reasons if verbose else count))
