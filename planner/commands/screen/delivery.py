"""What every answer ends with: its document written, what to do next, how much it assumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from planner.commands.screen import render
from planner.schema.plan import Assumption, PlanSet

if TYPE_CHECKING:
    from planner.schema.images import ImagePlan
    from planner.schema.procurement import Procurement
    from planner.schema.study import StudyResult

Answer = TypeVar("Answer", PlanSet, "Procurement", "StudyResult", "ImagePlan")


def hand_over(found: Answer, show: Callable[[Answer], None], *, as_json: bool, output: Path | None, after: str) -> None:
    """Prints an answer by `show` and what to do next, or its document, and writes the document where asked."""
    from planner.base import writing
    from planner.planning import document

    if output is not None:
        writing.write(output, document.as_json(found), replace=True)
    if as_json:
        render.json(document.stamped(found))
        return
    show(found)
    render.text()
    render.labelled("Next", after)


def assumed(every: Sequence[Assumption], verbose: bool) -> None:
    """What an answer that is no plan rests on: how much of it; verbose: each, with its reason and what changes it."""
    if every:
        lines = [f"{each.what}: {each.why} ({each.flag})" for each in every]
        render.labelled(
            "Assumes", *(lines if verbose else [f"{len(every)} things that -v lists, with what changes them"])
        )
