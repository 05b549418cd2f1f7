"""Tables that question files share: how a model is trained, and what owning costs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, InstanceOf

from planner.base.typed import missing, reads
from planner.cost.money import DAYS_PER_YEAR, Ownership
from planner.models import workload
from planner.question.file_values import TABLE, Money, PositiveShare, Residual, Several, Share, span
from planner.question.plan_options import PlanOptions
from planner.schema.workload import Model


def _known(named: object) -> str | Model:
    """A model's name that means one; a record, which no file can hold, as Python gave it."""
    if isinstance(named, Model):
        return named
    workload.model(str(named))
    return str(named)


Integer = Annotated[int, Field(strict=True)]


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """The keys that ``[[workloads]]`` of every question file have, each as ``clusterwright plan`` takes it."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    model: Annotated[str | InstanceOf[Model], reads(_known), missing('write for example model = "llama3-8b"')]
    batch: str | None = None
    seq: Annotated[Integer | None, Field(alias="sequence")] = None
    mtp_layers: Integer = 0
    imbalance: float | None = None
    tokens: str | None = None
    method: str = "pretrain"
    task: str = "sft"
    rank: Integer | None = None
    optimizer: str = "adamw"
    runtime: str | None = None
    precision: str | None = None
    pin: Annotated[Several[str], Field(alias="pins")] = ()

    def options(self, *more: str) -> PlanOptions:
        """The same as a question to ``clusterwright plan``, with `more` keys of a record that extends this one."""
        names = [field.name for field in fields(TrainingTable) if field.name != "model"]
        return PlanOptions(**{name: getattr(self, name) for name in (*names, *more)})


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
