"""What planning asks of a site's measured runs; :mod:`planner.site.runs` answers from its journal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from planner.question.request import Request
from planner.schema.plan import MeasuredSection, Plan
from planner.space.pins import Pins


class MeasuredRuns(Protocol):
    """What a site knows of plans."""

    def pins(self, request: Request) -> Sequence[Pins]:
        """The configurations of runs that answer the request."""
        ...

    def key(self, plan: Plan) -> Hashable:
        """What plans share that one run measures."""
        ...

    def measured(self, plan: Plan) -> MeasuredSection | None:
        """The runs that followed a plan as it is predicted."""
        ...

    def ran_out(self, plan: Plan) -> bool:
        """Whether the plan ran out of memory, and never ran."""
        ...
