"""What owning costs, as a question file says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from planner.base.typed import reads
from planner.cost.ownership import DAYS_PER_YEAR, Ownership
from planner.question.file_values import TABLE, Money, PositiveShare, Residual, Share, span


@dataclass(frozen=True, kw_only=True)
class OwnershipTable(Ownership):
    """The table ``[ownership]``; what it leaves out is as usual."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    interest: Share = Ownership.interest
    life_years: Annotated[float, reads(lambda text: span(text) / DAYS_PER_YEAR), Field(alias="life")] = (
        Ownership.life_years
    )
    residual: Residual = Ownership.residual
    load: Share = Ownership.load
    colocation_usd_per_kw_month: Annotated[Money, Field(alias="colocation_per_kw_month")] = (
        Ownership.colocation_usd_per_kw_month
    )
    maintenance: Share = Ownership.maintenance
    staff_usd_per_accelerator_year: Annotated[Money, Field(alias="staff_per_accelerator_year")] = (
        Ownership.staff_usd_per_accelerator_year
    )
    availability: PositiveShare = Ownership.availability
