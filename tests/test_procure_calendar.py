"""Portfolios that isolate one thing of time each, with answers worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best
from planner.procurement.question.portfolio import Job, Owned
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column
from tests.procuring import HORIZON, bought, job, portfolio
from tests.sequencing import OWN, QUOTA, TERM, hire
from tests.sweeps import sweep

MONTH = 365.25 / 12
SETTINGS = Settings(gap=1e-9)


@dataclass(frozen=True)
class Case:
    """What is asked, and the least cost (or earliest day); None where there is no answer."""

    name: str
    jobs: tuple[Job, ...]
    pools: list[SupplyPool]
    days: dict[tuple[int, int], float]
    """Of a job on a pool."""
    wanted: float | None
    objective: str = "cost"
    owned: int = 0


def rent(nodes: int, usd: float, most: int | None = None, **more: object) -> SupplyPool:
    return hire("on-demand", QUOTA, nodes, day_usd=usd, at_most=most, **more)


def own(nodes: int, usd: float = 10.0) -> SupplyPool:
    return hire("own", OWN, nodes, day_usd=usd)


def buy(usd: float, month: float = 0.0, start: float = 0.0, **more: object) -> SupplyPool:
    return replace(bought(0, usd, month), start_day=start, held_days=HORIZON - start, **more)  # type: ignore[arg-type]


def term(usd: float, days: float = 40.0, start: float = 0.0, **more: object) -> SupplyPool:
    pool = hire("reserved-1y", TERM, 2, month_usd=usd / days * MONTH, held_days=days, end_day=start + days)
    return replace(pool, start_day=start, copies=1, **more)  # type: ignore[arg-type]


def paused(each: Job, restart: float = 0.0) -> Job:
    return replace(each, interruptible=True, restart_days=restart)


BOTH = {(0, 0): 20.0, (1, 0): 20.0}
CASES = [
    Case("a quota does two jobs one after the other", (job(0, 40), job(1, 40)), [rent(8, 100, 8)], BOTH, 4_000),
    Case("but not in less time than both take", (job(0, 39), job(1, 39)), [rent(8, 100, 8)], BOTH, None),
    Case("whoever is due first goes first", (job(0, 40), job(1, 20)), [rent(8, 100, 8)], BOTH, 4_000),
    Case("a release after the first job's end", (job(0, 20), job(1, 60, 30)), [rent(8, 100, 8)], BOTH, 4_000),
    Case("a release that leaves no room before", (job(0, 45), job(1, 30, 10)), [rent(8, 100, 8)], BOTH, None),
    Case("one copy to hire is a queue", (job(0, 40), job(1, 40)), [rent(4, 100, copies=1)], BOTH, 4_000),
    Case("clusters of two sizes share a quota", (job(0, 20), job(1, 20)), [rent(8, 100, 12), rent(4, 60, 12)],
         {(0, 0): 20.0, (1, 1): 20.0}, 3_200),
    Case("five and five of nine nodes are not at once", (job(0, 39), job(1, 39)), [rent(5, 100, 9)], BOTH, None),
    Case("what the quota has no time for is done dearer", (job(0, 30), job(1, 30)),
         [rent(8, 100, 8), hire("spot", TERM, 2, day_usd=300)], {**BOTH, (0, 1): 20.0, (1, 1): 20.0}, 8_000),
    Case("nodes owned are divided anew", (job(0, 20), job(1, 20), job(2, 40)), [own(2), own(4)],
         {(0, 0): 20.0, (1, 0): 20.0, (2, 1): 20.0}, 600, owned=4),
    Case("and are in one place at a time", (job(0, 20), job(1, 20), job(2, 39)), [own(2), own(4)],
         {(0, 0): 20.0, (1, 0): 20.0, (2, 1): 20.0}, None, owned=4),
    Case("three jobs on nodes for two", tuple(job(n, 40) for n in range(3)), [own(2)],
         {(n, 0): 20.0 for n in range(3)}, 600, owned=4),
    Case("a delivery comes first", (job(0, 40),), [buy(1e5, start=20.0)], {(0, 0): 20.0}, 1e5),
    Case("and may come too late", (job(0, 39),), [buy(1e5, start=20.0)], {(0, 0): 20.0}, None),
    Case("a purchase begins on the last day that will do", (job(0, 85),), [buy(1e5, 3_000)], {(0, 0): 20.0},
         1e5 + 3_000 * (HORIZON - 65) / MONTH),
    Case("and that is earlier if one job is due before the other", (job(0, 85), job(1, 60)), [buy(1e5, 3_000)], BOTH,
         1e5 + 3_000 * (HORIZON - 40) / MONTH),
    Case("a term begins with the job that needs it", (job(0, 90, 50),), [term(8_000)], {(0, 0): 30.0}, 8_000),
    Case("two jobs fit into one term", (job(0, 60, 10), job(1, 90, 30)), [term(8_000)], BOTH, 8_000),
    Case("and not where they are too far apart", (job(0, 20), job(1, 90, 45)), [term(8_000)],
         BOTH, None),
    Case("unless it is renewed", (job(0, 20), job(1, 90, 45)), [term(8_000), term(16_000, 80.0)],
         {**BOTH, (0, 1): 20.0, (1, 1): 20.0}, 16_000),
    Case("small jobs again and again, within two long ones that fill a term, need other nodes",
         (job(0, 21), job(1, 42), *(job(n, 2 * n + 1.0, 2.0 * n) for n in range(2, 20))),
         [term(8_000, 90.0), rent(4, 100)],  # none but job 10, from day 20 to 21, fits between the long ones
         {(0, 0): 20.0, (1, 0): 20.0, **{(n, p): 0.05 for n in range(2, 20) for p in (0, 1)}}, 8_000 + 17 * 5),
    Case("an urgent job in the middle of a long one needs other nodes", (job(0, 44), job(1, 20, 10)),
         [rent(8, 100, 8), hire("spot", TERM, 2, day_usd=300)], {(0, 0): 30.0, (1, 0): 5.0, (1, 1): 5.0}, 4_500),
    Case("if the long one may not be paused, which costs a restart", (paused(job(0, 44), 2.0), job(1, 20, 10)),
         [rent(8, 100, 8), hire("spot", TERM, 2, day_usd=300)], {(0, 0): 30.0, (1, 0): 5.0, (1, 1): 5.0}, 3_700),
    Case("and is not done if that is dearer", (paused(job(0, 60), 12.0), job(1, 30, 20)),
         [rent(8, 100, 8), hire("spot", TERM, 2, day_usd=300)], {(0, 0): 40.0, (1, 0): 5.0, (1, 1): 5.0}, 5_500),
    Case("all is done when the last in the queue is", (job(0, 90), job(1, 90)), [rent(8, 100, 8), buy(1e6, start=30.0)],
         {**BOTH, (1, 1): 5.0}, 35.0, "time"),
]  # fmt: skip


@sweep("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_what_time_makes_of_it(case: Case) -> None:
    asked = replace(portfolio(case.jobs, case.objective), owned=(Owned(node=OWN, count=case.owned),))
    columns = [Column(j, p, days, 1e3) for (j, p), days in case.days.items()]
    found = best(ProcureInstance(asked, case.pools, columns), ProcureVariant(), case.objective, SETTINGS)
    assert (None if found is None else found.value) == (case.wanted and pytest.approx(case.wanted, rel=2e-4))


def test_there_are_two_dozen() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == 25
