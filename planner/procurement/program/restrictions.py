"""What the method keeps to and a question does not ask for: answers beyond it are not tried."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.base.units import format_percent
from planner.procurement.program.instance import ProcureInstance
from planner.procurement.program.moving import MOST_SHARES, unknown
from planner.procurement.program.several_starts import COUNT_MONEY, has_all_starts
from planner.procurement.supply.acquiring import MOST_ACCELERATORS, ladder
from planner.procurement.supply.pools import offers

SHARED_DAYS = "copies of an offer share their first days"
MOVED = {"tokens": "train more by", "time": "end sooner by", "carbon": "emit less by"}
"""What moves of jobs would do, by what is sought."""
FIRST_SIZES = 7
"""Sizes of clusters that are named before the dots."""


def restrictions(
    instance: ProcureInstance, best_usd: float, moving: float | None = None, quick: bool = False
) -> Iterator[str]:
    """What the best answer to this instance, of so many US dollars, was sought among, a clause each; answers in which
    jobs move cost less, or train more, by this share at most, where that is known: a `quick` answer does not ask.
    """
    pools = [instance.pools[p] for p in sorted({p for c in instance.columns for p in c.place})]
    limited = instance.asked.limits
    yield "plans are without levers (CUDA graphs, kernels, offload, modules recomputed by name)"
    gains = MOVED.get(instance.asked.objective, "save")
    why = "--quick" if quick else unknown(instance.asked) or f"stopped, or above {MOST_SHARES:,} jobs on pools"
    bound = (
        f"were not tried, without a bound: {why}"
        if moving is None
        else f"would {gains} at most {format_percent(moving, 2)}"
    )
    yield f"jobs stay where they are (moves at checkpoints {bound})"
    if _has_sizes_between(instance):
        tried = ", ".join(map(str, ladder(instance.asked)[:FIRST_SIZES]))
        yield f"clusters have {tried} ... nodes (at most {MOST_ACCELERATORS:,} accelerators)"

    # Under a budget a later day of some copies may be what others are paid with.
    later_pays = any(pool.copies > 1 and pool.idle_usd > 0 for pool in pools) and limited.budget is not None
    most_usd = best_usd if instance.asked.objective == "cost" else math.inf
    if not has_all_starts(instance, most_usd) or (later_pays and instance.asked.objective not in COUNT_MONEY):
        yield SHARED_DAYS

    if limited.monthly is not None and any(pool.held for pool in pools):
        yield "purchases and terms begin on chosen days"

    sold = "purchases are kept or sold whole months later"
    yield "nothing bought is sold" if instance.asked.resale is None else sold


def _has_sizes_between(instance: ProcureInstance) -> bool:
    """Whether some sizes of a cluster are left out that the question does not name."""
    candidates = instance.asked.candidates
    named = {offer for offer, x in zip(offers(candidates), candidates, strict=True) if x.counts}
    counts: dict[str, set[int]] = {}
    for pool in instance.pools:
        if pool.available and pool.offer not in named:
            counts.setdefault(pool.offer, set()).add(pool.cluster.count)
    return any(len(sizes) < max(sizes) for sizes in counts.values())
