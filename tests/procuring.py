"""Small procurements made up for tests, and an independent way to answer them: try everything."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.catalog import cluster, load
from planner.procurement.program.instance import ProcureInstance
from planner.procurement.question.portfolio import Job, Limits, Portfolio
from planner.procurement.supply.pools import Item, SupplyPool
from planner.procurement.throughput.column import Column
from planner.question.plan_options import PlanOptions

CATALOG = load()
NODES = ("dgx-h100", "dgx-a100-80gb", "p5.48xlarge", "p4de.24xlarge")
HORIZON = 100.0
NO_LIMITS = Limits()


def job(n: int, deadline: float, release: float = 0.0, **more: object) -> Job:
    return Job(
        name=f"job {n}",
        model="llama3-8b",
        asked=PlanOptions(),
        tokens=1e9 * (n + 1),
        release_day=release,
        deadline_day=deadline,
        given_deadline=True,
        **more,  # type: ignore[arg-type]
    )


def bought(n: int, capital: float, month: float = 0.0, day: float = 0.0, **more: object) -> SupplyPool:
    # Two kinds of nodes, so that families differ; what things cost is made up.
    held = HORIZON - float(more.get("start_day", 0.0))  # type: ignore[arg-type]
    return SupplyPool(
        id=f"buy {n}",
        way="buy",
        cluster=cluster(CATALOG, NODES[n % 2], 1, None, "us"),
        items=(Item("box", "node", 1, capital, "made up", "2026"),),
        fixed_charge=capital,
        month_usd=month,
        held_days=held,
        day_usd=day,
        running={"facility": month},
        **more,  # type: ignore[arg-type]
    )


def hired(n: int, day: float, **more: object) -> SupplyPool:
    return SupplyPool(
        id=f"rent {n}",
        way="on-demand" if n % 2 else "spot",
        cluster=cluster(CATALOG, NODES[2 + n % 2], 1, None, "us"),
        copies=3,
        day_usd=day,
        **more,  # type: ignore[arg-type]
    )


def portfolio(jobs: tuple[Job, ...], objective: str = "cost", limits: Limits = NO_LIMITS) -> Portfolio:
    return Portfolio(
        name="made up",
        as_of="2026-11-20",
        horizon_days=HORIZON,
        objective=objective,  # type: ignore[arg-type]
        jobs=jobs,
        candidates=(),
        limits=limits,
    )


def random_instance(seed: int, *, copies: int = 1) -> ProcureInstance:
    """One to three jobs, one to two pools to buy and as many to hire, and limits that often bind.

    With several copies all jobs have one window, so that whether they fit is a sum.
    """
    r = random.Random(seed)
    alike = copies > 1
    jobs = tuple(
        job(n, 60.0 if alike else r.choice([30.0, 60.0, 100.0]), 0.0 if alike else r.choice([0.0, 0.0, 0.0, 10.0]))
        for n in range(r.randint(2 if alike else 1, 3))
    )
    pools: list[SupplyPool] = [
        bought(
            n,
            r.uniform(50, 900) * 1e3,
            r.uniform(0, 5e3),
            r.uniform(0, 500),
            power=r.uniform(5e3, 5e4),
            racks=float(r.randint(1, 3)),
            day_kg=r.uniform(10, 900),
            start_day=r.choice([0.0, 0.0, 20.0]),
            copies=copies,
        )
        for n in range(r.randint(1, 2))
    ]
    pools += [
        hired(n, r.uniform(1e3, 3e4) * (5 if alike else 1), day_kg=r.uniform(10, 900)) for n in range(r.randint(1, 2))
    ]
    columns = [
        Column(j, p, days, jobs[j].tokens / days / 86400)
        for j in range(len(jobs))
        for p in range(len(pools))
        if r.random() < 0.9 and (days := r.uniform(3, 70))
    ]
    limits = Limits(
        budget=r.choice([None, r.uniform(2e5, 2e6)]),
        capital=r.choice([None, None, r.uniform(5e4, 9e5)]),
        power=r.choice([None, r.uniform(1e4, 8e4)]),
        racks=r.choice([None, float(r.randint(1, 4))]),
        carbon=r.choice([None, None, r.uniform(5e3, 6e4)]),
    )
    return ProcureInstance(portfolio(jobs, "cost", limits), pools, columns)


@dataclass(frozen=True)
class Answer:
    run: tuple[int, ...]
    cost: float
    cash: float
    carbon: float
    done: float


def answers(instance: ProcureInstance) -> Iterator[Answer]:
    """Every assignment that keeps all limits, with every first day of its pools, and what it costs."""
    days = {(c.job, c.pool): c.days for c in instance.columns}
    for run in itertools.product(range(len(instance.pools)), repeat=len(instance.jobs)):
        if any((j, p) not in days for j, p in enumerate(run)):
            continue
        yield from _answers(instance, run, days)


def _answers(instance: ProcureInstance, run: tuple[int, ...], days: dict[tuple[int, int], float]) -> Iterator[Answer]:
    """An assignment with every number of copies, every first day on which pools may begin, and every order."""
    pools = instance.pools
    each = []
    for p in sorted(set(run)):
        mine = [j for j, q in enumerate(run) if q == p]
        if pools[p].hired:
            ends = [_ends(instance, [j], p, days, pools[p].start_day, 1) for j in mine]
            each.append([(0, 0.0, max(e for e in ends if e is not None))] if None not in ends else [])
            continue
        first = _first_days(instance, pools[p], {j: days[j, p] for j in mine})
        options = ((n, start) for n in range(1, pools[p].copies + 1) for start in first)
        each.append(
            [(n, start, end) for n, start in options if (end := _ends(instance, mine, p, days, start, n)) is not None]
        )
    for chosen in itertools.product(*each):
        found = _costed(instance, run, days, dict(zip(sorted(set(run)), chosen, strict=True)))
        if found is not None:
            yield found


def _first_days(instance: ProcureInstance, pool: SupplyPool, days: dict[int, float]) -> list[float]:
    """A purchase begins on its delivery, or as late as a chain of jobs, one after another, lets it: the last one ends
    on its deadline. Later than the latest of these some chain is late; what is between two of them costs more than the
    later one.
    """
    chains = [some for n in range(1, len(days) + 1) for some in itertools.combinations(days, n)]
    latest = {instance.jobs[last].deadline_day - sum(days[j] for j in some) for some in chains for last in some}
    return sorted({pool.start_day} | {day for day in latest if pool.start_day < day < HORIZON})


def _ends(
    instance: ProcureInstance, mine: list[int], p: int, days: dict[tuple[int, int], float], start: float, copies: int
) -> float | None:
    """The earliest end of all over the orders in which no one is late; None where there is none."""
    best = None
    for order in itertools.permutations(mine):
        free, last = [start] * copies, 0.0
        for j in order:
            first = max(instance.jobs[j].release_day, free[0])
            free = sorted([first + days[j, p], *free[1:]])
            last = max(last, first + days[j, p])
            if first + days[j, p] > instance.jobs[j].deadline_day + 1e-9:
                break
        else:
            best = last if best is None else min(best, last)
    return best


def _costed(
    instance: ProcureInstance, run: tuple[int, ...], days: dict[tuple[int, int], float],
    chosen: dict[int, tuple[int, float, float]],
) -> Answer | None:  # fmt: skip
    pools, limits = instance.pools, instance.asked.limits
    held = [pools[p] for p, (copies, _, _) in chosen.items() for _ in range(copies)]
    worked = [(pools[p], days[j, p]) for j, p in enumerate(run)]
    capital = sum(pool.items[0].unit_price_usd for pool in held)
    running = sum(
        copies * pools[p].month_usd * (pools[p].held_days - (start - pools[p].start_day)) / (365.25 / 12)
        for p, (copies, start, _) in chosen.items()
        if copies
    )
    running += sum(pool.day_usd * d for pool, d in worked)
    carbon = sum(pool.day_kg * d for pool, d in worked)
    if not within(limits, held, capital, running, carbon):
        return None
    return Answer(run, capital + running, capital + running, carbon, max(end for _, _, end in chosen.values()))


def within(limits: Limits, held: Sequence[SupplyPool], capital: float, running: float, carbon: float) -> bool:
    """Whether what pools cost, draw, fill and emit keeps the limits."""
    used = (
        (limits.budget, capital + running),
        (limits.capital, capital),
        (limits.power, sum(pool.power for pool in held)),
        (limits.racks, sum(pool.racks for pool in held)),
        (limits.carbon, carbon),
    )
    return all(limit is None or use <= limit for limit, use in used)


def best_value(instance: ProcureInstance, objective: str) -> float:
    """The best value there is; infinite where nothing keeps the limits."""
    found = list(answers(instance))
    value = {"cost": lambda a: a.cost, "carbon": lambda a: a.carbon, "time": lambda a: a.done}[objective]
    best = min((value(a) for a in found), default=math.inf)
    if objective == "time" and found and instance.asked.limits.budget is not None:
        return _earliest(instance, best)
    return best


def _earliest(instance: ProcureInstance, done: float) -> float:
    """The first day by which all can be done within the budget: later purchases cost less and end later, on any day
    between two that are tried.
    """
    low = 0.0
    while done - low > 1e-5 * done:
        middle = (low + done) / 2
        jobs = tuple(replace(job, deadline_day=min(job.deadline_day, middle)) for job in instance.jobs)
        sooner = replace(instance, asked=replace(instance.asked, jobs=jobs))
        if any(True for _ in answers(sooner)):
            done = middle
        else:
            low = middle
    return done


def best_ratio(instance: ProcureInstance, window: float) -> float:
    """Most tokens per dollar where all jobs have one window and nothing limits the work itself; 0 if nothing does it.

    Every assignment; in each, for a worth of a token that is raised until nothing is gained (Dinkelbach), a job that is
    hired for works on if a day of it is worth its rent, and what is left of a held pool goes to its fastest job if that
    pays.
    """
    days = {(c.job, c.pool): (c.days, c.tokens_per_s * 86400.0) for c in instance.columns}
    best = 0.0
    for run in itertools.product(range(len(instance.pools)), repeat=len(instance.jobs)):
        if all((j, p) in days for j, p in enumerate(run)):
            best = max(best, _ratio(instance, run, days, window))
    return best


def most_tokens_of_one(instance: ProcureInstance) -> float:
    """Most tokens of the one job, pool by pool; 0 if nothing does it. What is bought begins as late as its work lets
    it, so that a day more of work costs a day more of both, until the budget or the window is used up.
    """
    (only,), limits, most = instance.jobs, instance.asked.limits, 0.0
    for c in instance.columns:
        pool = instance.pools[c.pool]
        window = only.deadline_day - max(only.release_day, pool.start_day)
        after = HORIZON - only.deadline_day
        month_day = 0.0 if pool.hired else pool.month_usd / (365.25 / 12)
        capital = pool.capital + after * month_day
        daily = pool.day_usd + month_day
        rooms = [window]
        if limits.budget is not None and daily:
            rooms.append((limits.budget - capital) / daily)
        if limits.carbon is not None and pool.day_kg:
            rooms.append(limits.carbon / pool.day_kg)
        if min(rooms) >= c.days and within(limits, [] if pool.hired else [pool], pool.capital, 0.0, 0.0):
            most = max(most, min(rooms) * c.tokens_per_s * 86400.0)
    return most


def most_tokens_in_one_window(instance: ProcureInstance, window: float) -> float:
    """Most tokens where all jobs have one window and nothing limits the work itself; 0 if nothing does it."""
    days = {(c.job, c.pool): (c.days, c.tokens_per_s * 86400.0) for c in instance.columns}
    most = 0.0
    for run in itertools.product(range(len(instance.pools)), repeat=len(instance.jobs)):
        if not all((j, p) in days for j, p in enumerate(run)):
            continue
        held = [instance.pools[p] for p in set(run) if not instance.pools[p].hired]
        if not within(instance.asked.limits, held, sum(pool.capital for pool in held), 0.0, 0.0):
            continue
        tokens = 0.0
        for p in set(run):
            mine = [days[j, p] for j, q in enumerate(run) if q == p]
            room = window - instance.pools[p].start_day
            hired_apart = instance.pools[p].hired
            if (max if hired_apart else sum)(d for d, _ in mine) > room:  # type: ignore[operator]
                tokens = -math.inf
            elif hired_apart:
                tokens += room * sum(speed for _, speed in mine)
            else:
                spare = room - sum(d for d, _ in mine)
                tokens += sum(d * speed for d, speed in mine) + spare * max(speed for _, speed in mine)
        most = max(most, tokens)
    return most


def _ratio(
    instance: ProcureInstance, run: tuple[int, ...], days: dict[tuple[int, int], tuple[float, float]], window: float
) -> float:
    pools, limits = instance.pools, instance.asked.limits
    held = [pools[p] for p in set(run) if not pools[p].hired]
    for limit, use in (
        (limits.capital, sum(pool.items[0].unit_price_usd for pool in held)),
        (limits.power, sum(pool.power for pool in held)),
        (limits.racks, sum(pool.racks for pool in held)),
    ):
        if limit is not None and use > limit:
            return 0.0
    room = {}
    for p in set(run):
        mine = [days[j, p][0] for j, q in enumerate(run) if q == p]
        room[p] = window - pools[p].start_day - (max(mine) if pools[p].hired else sum(mine))
        if room[p] < 0:
            return 0.0
    cost = sum(pool.items[0].unit_price_usd + pool.month_usd * pool.held_days / (365.25 / 12) for pool in held)
    cost += sum(days[j, p][0] * pools[p].day_usd for j, p in enumerate(run))
    tokens = sum(days[j, p][0] * days[j, p][1] for j, p in enumerate(run))
    ratio = tokens / cost
    while True:
        more = [_worked_on(instance, run, days, p, room[p], window, ratio) for p in set(run)]
        raised = (tokens + sum(t for t, _ in more)) / (cost + sum(c for _, c in more))
        if raised <= ratio * (1 + 1e-12):
            return ratio
        ratio = raised


def _worked_on(
    instance: ProcureInstance,
    run: tuple[int, ...],
    days: dict[tuple[int, int], tuple[float, float]],
    p: int,
    room: float,
    window: float,
    ratio: float,
) -> tuple[float, float]:
    """More tokens, and what they cost, on one pool, where a dollar must bring `ratio` tokens."""
    pool, mine = instance.pools[p], [j for j, q in enumerate(run) if q == p]
    paying = [j for j in mine if days[j, p][1] > ratio * pool.day_usd]
    if pool.hired:
        longer = {j: window - pool.start_day - days[j, p][0] for j in paying}
    else:
        longer = {max(paying, key=lambda j: days[j, p][1]): room} if paying else {}
    return sum(n * days[j, p][1] for j, n in longer.items()), sum(n * pool.day_usd for n in longer.values())


def with_limits(instance: ProcureInstance, **limits: float | None) -> ProcureInstance:
    return replace(instance, asked=replace(instance.asked, limits=replace(instance.asked.limits, **limits)))
