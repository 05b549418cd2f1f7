"""Files and answers to the documents of a page."""

from __future__ import annotations

from pathlib import Path

from planner.base.errors import WrongQuestion
from planner.planning import document
from planner.planning.document.files import LARGEST_STUDY, json_file
from planner.report import communication, comparison, images, offers, plans, studies, validation
from planner.report.blocks import Content
from planner.schema.comparison import Comparison
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.reports import Communication, Validation
from planner.schema.study import StudyResult

Kept = PlanSet | Plan | Procurement | StudyResult | ImagePlan
"""What ``-o FILE`` writes."""
PRINTED = {"comparison": Comparison, "validation": Validation, "communication": Communication}
"""Kind of document that ``--json`` prints -> its record."""


def file(path: Path) -> Kept | Content:
    """A document to be checked, or the page of what ``--json`` or ``validate -o`` wrote.

    Raises:
        WrongQuestion: it cannot be read, or is of another kind.
    """
    if path.suffix.lower() == ".csv":
        return validation.of_runs(path)
    return parsed(json_file(path, LARGEST_STUDY), path.name)


def parsed(data: object, origin: str) -> Kept | Content:
    """The same of JSON types."""
    found = document.parse_answer(data, origin, PRINTED)
    if isinstance(found, Comparison):
        return comparison.of_comparison(found, origin)
    if isinstance(found, Validation):
        return validation.of_validation(found, origin)
    return communication.of_communication(found, origin) if isinstance(found, Communication) else found


def shown(found: Kept, origin: str) -> Content:
    """What a page shows of a document.

    Raises:
        WrongQuestion: there is nothing in it.
    """
    if (isinstance(found, PlanSet) and not found.plans) or (isinstance(found, Procurement) and not found.alternatives):
        raise WrongQuestion(f"{origin}: nothing in it to show")
    if isinstance(found, PlanSet):
        return plans.of_set(found, origin)
    if isinstance(found, Plan):
        return plans.of_plan(found, origin)
    if isinstance(found, Procurement):
        return offers.of_offer(found, origin)
    return images.of_images(found, origin) if isinstance(found, ImagePlan) else studies.of_study(found, origin)
