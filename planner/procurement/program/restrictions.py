"""What the method keeps to and a question does not ask for: answers beyond it are not tried."""

from __future__ import annotations

from collections.abc import Iterator

from planner.procurement.program.instance import ProcureInstance
from planner.procurement.program.several_starts import has_all_starts


def restrictions(instance: ProcureInstance) -> Iterator[str]:
    """What every answer to this instance keeps to, a clause each."""
    used = {p for c in instance.columns for p in c.place}
    yield "jobs stay where they are"
    kept = [pool for pool in (instance.pools[p] for p in used) if pool.held and not pool.term_days]
    if any(pool.copies > 1 for pool in kept):
        yield "copies of a purchase begin together"
    if not has_all_starts(instance):
        yield "copies of an offer share their first days"
    sold = "purchases are kept or sold whole months later"
    yield "nothing bought is sold" if instance.asked.resale is None else sold
