"""What owning costs, as a question file says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.cost.ownership import Ownership
from planner.question import values
from planner.question.tables import Tables, Where

_OWNERSHIP = (
    "interest", "life", "residual", "load", "colocation_per_kw_month", "maintenance", "staff_per_accelerator_year",
    "availability",
)  # fmt: skip


def ownership(r: Tables, table: Any, money: Callable[[Any], float], where: Where = ("ownership",)) -> Ownership:
    """What owning costs, as a file states it; what it leaves out is as usual."""
    table = r.keys(table, _OWNERSHIP, where)
    plain = Ownership()
    said = {
        "interest": r.value(table, "interest", where, values.share),
        "life_years": r.value(table, "life", where, lambda x: values.span(x) / 365.25),
        "residual": r.value(table, "residual", where, values.residual),
        "availability": r.value(table, "availability", where, values.some_share),
        "load": r.value(table, "load", where, values.share),
        "colocation_usd_per_kw_month": r.value(table, "colocation_per_kw_month", where, money),
        "maintenance": r.value(table, "maintenance", where, values.share),
        "staff_usd_per_accelerator_year": r.value(table, "staff_per_accelerator_year", where, money),
    }
    return Ownership(**{key: getattr(plain, key) if value is None else value for key, value in said.items()})
