"""What an answer costs at least, or trains at most, in which jobs move between pools at checkpoints: no program here
tries that.

The relaxation: ``share[j,p]`` of a job's tokens is seen on pool p, whenever, and a move costs nothing. ``D[j,p]`` are
the days that the whole job takes there; where its plan was not searched, those at the best rate of the machine, which
are fewer. ``hold[p]`` copies are held, a whole number, and begin ``late[p]`` days later, summed over copies. Left out
are the order of jobs, restarts, limits on months and on copies, and spare days for lost nodes: each only makes answers
dearer. Where the most tokens are sought, a job may see all of its tokens many times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.base.solver import Linear, Problem, Status, total
from planner.procurement.program.instance import ProcureInstance
from planner.procurement.program.integer_program import MILLION
from planner.procurement.program.job_order import EPS
from planner.procurement.question.portfolio import Objective, Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.question.values import DAYS_PER_MONTH

BOUNDED: tuple[Objective, ...] = ("cost", "time", "tokens", "carbon")
"""Objectives whose answers with moves are bounded."""
MOST_SHARES = 3000
"""Jobs on pools up to which the relaxation is solved: it takes a tenth of a second or so."""
MOST_NODES = 200
"""Nodes of branch and bound; what is proven by then is a bound, too."""
MOST_SEARCHES = 6
"""Machines whose plans are searched because the relaxation would use them at their best rate."""
SHORTEST_STEP = 5e-3
"""Share of the answer's days at which bisection ends."""
ENOUGH = 1e-3
"""Share of the answer's cost within which a bound needs no closer look."""
THOUSAND = 1e3

Pair = tuple[int, int]
"""A job and a pool."""
Days = Callable[[int, int], float | None]
"""Days that a job takes on a pool, at least; None where it does not train there."""


@dataclass(frozen=True)
class Relaxed:
    """The relaxation's optimum, or a bound on it."""

    value: float
    shares: Mapping[Pair, float]
    """Share of each job's tokens on each pool; none where no answer with moves is better than the known one."""


def unknown(asked: Portfolio) -> str:
    """Why no bound is computed; empty where one is."""
    if asked.mixed:
        return "jobs may work on several pools at once"
    return "" if asked.objective in BOUNDED else f"{asked.objective} is sought"


def least(instance: ProcureInstance, days: Days, value: float, search: Callable[[Pair], bool]) -> float | None:
    """What no answer undercuts in which jobs may move between pools at checkpoints: US dollars, days, kilograms of CO2,
    or the negative of millions of tokens, whichever is sought.

    Args:
        instance: The question with all pools that are offered, none of them with several starts.
        days: How long jobs take on pools.
        value: The best answer without moves, in the same unit.
        search: Searches the plan of a job on a pool, so that `days` knows it; whether there was one to search.

    Returns:
        At most `value`; None for the reason that :func:`unknown` gives, or where the question is too large.
    """
    asked = instance.asked
    if unknown(asked):
        return None
    budget = math.inf if asked.limits.budget is None else asked.limits.budget
    most_usd = value if asked.objective == "cost" else budget
    bound = -math.inf if asked.objective == "tokens" else 0.0
    # A day is bisected once: closer looks, each with a bisection of its own, take seconds and narrow it little.
    for left in reversed(range(1 if asked.objective == "time" else MOST_SEARCHES + 1)):
        known = dict(_undominated(instance, dict(_known(instance, days, most_usd))))
        if len(known) > MOST_SHARES:
            return None
        relaxed = (_soonest if asked.objective == "time" else _relaxed)(instance, known, value)
        bound = max(bound, relaxed.value)
        if bound >= value - ENOUGH * abs(value) or not left or not any(map(search, relaxed.shares)):
            break
    return min(bound, value)


def _window(instance: ProcureInstance, j: int, pool: SupplyPool) -> tuple[float, float]:
    """From when to when a job may work on a pool, whose term may begin on any day."""
    job = instance.jobs[j]
    start = max(job.release_day, pool.start_day)
    return start, job.deadline_day if pool.term_days else min(job.deadline_day, pool.last_day)


def _begins(instance: ProcureInstance, pair: Pair) -> bool:
    """Whether a job may begin on a pool before it must be done."""
    start, end = _window(instance, pair[0], instance.pools[pair[1]])
    return start < end


def _known(instance: ProcureInstance, days: Days, most_usd: float) -> Iterator[tuple[Pair, float]]:
    """The days of every job on every pool that may be part of an answer of so many US dollars."""
    last = max(job.deadline_day for job in instance.jobs)
    for p, pool in enumerate(instance.pools):
        if not pool.available or (pool.held and _charge(pool) - pool.idle_usd * (last - pool.start_day) > most_usd):
            continue
        for j in range(len(instance.jobs)):
            whole = days(j, p) if _begins(instance, (j, p)) else None
            if whole is not None:
                yield (j, p), whole


def _charge(pool: SupplyPool) -> float:
    return pool.fixed_charge + pool.held_usd


def _undominated(instance: ProcureInstance, known: Mapping[Pair, float]) -> Iterator[tuple[Pair, float]]:
    """All pairs but those with a machine to hire for which another one, of no limited number, does as well."""
    kept: dict[int, list[tuple[float, ...]]] = {}

    def figures(pair: Pair) -> tuple[float, ...]:
        pool = instance.pools[pair[1]]
        counts = instance.asked.limits.carbon is not None or instance.asked.objective == "carbon"
        emitted = known[pair] * pool.day_kg if counts else 0.0
        return (known[pair] * pool.day_usd, known[pair], emitted, pool.start_day, -pool.last_day)

    for pair in sorted(known, key=lambda pair: (figures(pair), pair)):
        pool = instance.pools[pair[1]]
        if pool.hired:
            mine = figures(pair)
            rivals = kept.setdefault(pair[0], [])
            if any(all(a <= b for a, b in zip(rival, mine, strict=True)) for rival in rivals):
                continue
            if pool.at_most is None:
                rivals.append(mine)
        yield pair, known[pair]


def _soonest(instance: ProcureInstance, known: Mapping[Pair, float], value: float) -> Relaxed:
    """By bisection, a day by which not all can be done."""
    done = value
    bound = 0.0
    shares: Mapping[Pair, float] = {}
    while done - bound > SHORTEST_STEP * value:
        day = (done + bound) / 2
        jobs = tuple(replace(job, deadline_day=min(job.deadline_day, day)) for job in instance.jobs)
        by_then = replace(instance, asked=replace(instance.asked, jobs=jobs))
        relaxed = _relaxed(by_then, {pair: known[pair] for pair in known if _begins(by_then, pair)}, math.inf)
        if relaxed.value == math.inf:
            bound = day
        else:
            done = day
            shares = relaxed.shares
    return Relaxed(bound, shares)


def _relaxed(instance: ProcureInstance, known: Mapping[Pair, float], value: float) -> Relaxed:
    pools = instance.pools
    problem = Problem()
    tokens = [job.tokens / MILLION for job in instance.jobs]
    most = instance.asked.objective == "tokens"
    often = max(1.0, -value / sum(tokens)) if most else 1.0  # so that no figure of the program is large or small
    share = {pair: problem.continuous(f"share_{pair[0]}_{pair[1]}", high=None if most else 1.0) for pair in known}
    work = {pair: often * whole * share[pair] for pair, whole in known.items()}
    held = sorted({p for _, p in known if pools[p].held})
    hold = {p: problem.integer(f"hold_{p}") for p in held}
    late = {p: problem.continuous(f"late_{p}") for p in held if pools[p].idle_usd > 0}
    for j in range(len(instance.jobs)):
        mine = [pair for pair in known if pair[0] == j]
        if not mine:
            return Relaxed(value, {})
        seen = often * total(share[pair] for pair in mine)
        problem.constrain(seen >= 1 if most else seen == 1, f"all_{j}")
        windows = {pair: _window(instance, j, pools[pair[1]]) for pair in mine}
        end = max(end for _, end in windows.values())
        for n, first in enumerate(sorted({start for start, _ in windows.values()})):
            later = total(work[pair] for pair in mine if windows[pair][0] >= first)
            problem.constrain(later <= end - first, f"time_{j}_{n}")
    for p, copies in hold.items():
        mine = [pair for pair in known if pair[1] == p]
        for pair in () if most else mine:
            problem.constrain(share[pair] <= copies, f"held_{pair[0]}_{p}")
        room = pools[p].term_days or max(_window(instance, j, pools[p])[1] for j, _ in mine) - pools[p].start_day
        worked = total(work[pair] for pair in mine)
        problem.constrain(worked <= room * copies - late.get(p, Linear({})), f"room_{p}")
    cost = total(
        [
            *(_charge(pools[p]) * copies for p, copies in hold.items()),
            *(-pools[p].idle_usd * days for p, days in late.items()),
            *(pools[p].day_usd * days for (_, p), days in work.items()),
        ]
    )
    if instance.asked.objective == "carbon":
        cost = total(pools[p].day_kg * days for (_, p), days in work.items())
    _limit(problem, instance, hold, late, work)
    scale = often * sum(tokens) if most else THOUSAND
    gained = total(tokens[j] * often * x for (j, _), x in share.items())
    problem.minimise(total(()) if value == math.inf else -gained / scale if most else cost / scale)
    outcome = problem.solve(max_nodes=MOST_NODES, gap=ENOUGH / 10)
    if outcome.status is Status.INFEASIBLE:
        return Relaxed(value, {})
    used = {} if not outcome.status.found else {pair: outcome.value(x) for pair, x in share.items()}
    return Relaxed(outcome.bound * scale, {pair: part for pair, part in used.items() if part > EPS})


def _limit(
    problem: Problem,
    instance: ProcureInstance,
    hold: Mapping[int, Linear],
    late: Mapping[int, Linear],
    work: Mapping[Pair, Linear],
) -> None:
    """Limits of the question that money, machines and their nodes keep at any time, or in all."""
    pools = instance.pools
    given = instance.asked.limits
    stays = [p for p in hold if not pools[p].term_days]  # terms may take the same place after one another
    worked = [(pools[p], days) for (_, p), days in work.items()]
    saved = [-pools[p].month_usd / DAYS_PER_MONTH * days for p, days in late.items()]
    uses: Mapping[str, Sequence[Linear]] = {
        "budget": [(pools[p].capital + pools[p].held_usd) * x for p, x in hold.items()]
        + [pool.day_usd * days for pool, days in worked]
        + saved,
        "capital": [pools[p].capital * x for p, x in hold.items()],
        "power": [pools[p].power * hold[p] for p in stays],
        "racks": [pools[p].racks * hold[p] for p in stays],
        "switch_ports": [pools[p].switch_ports * hold[p] for p in stays],
        "carbon": [pool.day_kg * days for pool, days in worked],
    }
    for name, terms in uses.items():
        limit = getattr(given, name)
        if limit is not None:
            left = limit - (instance.standing.get(name, 0.0) if name in ("racks", "switch_ports") else 0.0)
            problem.constrain(total(terms) / (limit or 1.0) <= left / (limit or 1.0), name)
    days = max(job.deadline_day for job in instance.jobs) - min(job.release_day for job in instance.jobs)
    most = {pool.offer: pool.at_most for pool in pools if pool.at_most is not None and pool.way != "own"}
    most |= {f"own {owned.node}": owned.count for owned in instance.asked.owned}
    for n, (offer, count) in enumerate(sorted(most.items())):
        mine = [
            pool.nodes * x
            for pool, x in worked
            if (f"own {pool.node.id}" if pool.way == "own" else pool.offer if pool.hired else "") == offer
        ]
        problem.constrain(total(mine) <= count * days, f"nodes_{n}")
        kept = [pools[p].nodes * hold[p] for p in stays if pools[p].offer == offer]
        problem.constrain(total(kept) <= count, f"kept_{n}")
