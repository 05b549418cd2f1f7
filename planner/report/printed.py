"""What ``--json`` prints of a comparison, a validation and collectives, as far as a page shows it: read with checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from planner.schema.plan import Money


@dataclass(frozen=True, kw_only=True)
class PrintedFigures:
    """Keys that a page has no use for are passed over; a wrong type is refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore", allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class ComparedPlan(PrintedFigures):
    """One of the two, as far as its price goes."""

    money: Money


@dataclass(frozen=True, kw_only=True)
class Compared(PrintedFigures):
    """``compare --json``."""

    questions: tuple[str, ...]
    differing: tuple[tuple[str, str, str], ...]
    days: float
    usd: float | None
    tokens: float
    """Per second, second over first."""
    distinguishable: bool
    plans: tuple[ComparedPlan, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupErrors(PrintedFigures):
    """Errors of some runs, as fractions."""

    name: str = "all"
    n: int
    covered: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    interval80_coverage: float | None


@dataclass(frozen=True, kw_only=True)
class Validation(PrintedFigures):
    """``validate --json``."""

    by: str
    overall: GroupErrors
    groups: tuple[GroupErrors, ...]


@dataclass(frozen=True, kw_only=True)
class CallTimes(PrintedFigures):
    """A kind of call of a step; seconds of all of them."""

    op: str
    group: str
    ranks: int
    bytes: float
    count: float
    alone_s: float
    exposed_s: float
    choice: str = ""


@dataclass(frozen=True, kw_only=True)
class Collectives(PrintedFigures):
    """``comm show --json``."""

    step_time_s: float
    calls: tuple[CallTimes, ...]


KINDS: dict[str, type[PrintedFigures]] = {
    "comparison": Compared,
    "validation": Validation,
    "communication": Collectives,
}
"""Kind of document -> what of it is read."""
