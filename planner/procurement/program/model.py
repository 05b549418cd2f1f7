"""The integer program: which pools to hold, which job runs on which, and when. Every constraint has a name.

Sets: jobs j, pools p, places q (mostly one pool; several where one job is to run on unlike pools at once), spans t
between any two days on which something begins or ends (with months where a monthly limit holds). ``D[j,q]`` days that j
takes on q, ``L[t]`` days of a span.

Variables: ``hold[p]`` whole number of copies held; ``run[j,q]`` 1 if j runs on q; ``work[j,q]`` days that it runs,
``D run`` but where more tokens are worth something; ``day[j,q,t]`` those of a span. A sum over ``q of p`` is over the
places that p belongs to: a job on several pools takes a copy of each of them while it runs.

Hired pools (by the hour) are no variable of their own: each job hires its own. Copies of a held pool are equal, and a
job may move between them; by McNaughton's rule (1959) a span's jobs fit on ``hold`` copies if none needs more than the
span and all together no more than ``hold L[t]``. That holds with jobs on several pools, too, as long as those that
share one are all on the same pools; else they go one after another (:func:`_together`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from planner.procurement.question.portfolio import Job, Portfolio
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Column, Place
from planner.question.values import DAYS_PER_MONTH
from planner.solver import Linear, Problem, total

FAR = 40 * 365.25
"""Days: a deadline that no longer limits anything."""
TONNE = 1000.0
MILLION = 1e6


@dataclass(frozen=True)
class ProcureInstance:
    """A question made computable: jobs, pools and the columns that join them."""

    asked: Portfolio
    pools: Sequence[SupplyPool]
    columns: Sequence[Column]
    standing: Mapping[str, float] = field(default_factory=dict)
    """Limit -> what of it machines owned already take, whether they work or not."""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs."""
        return self.asked.jobs


@dataclass(frozen=True, kw_only=True)
class ProcureVariant:
    """The instance turned a little: what is minimised, which limits are off or moved, what is forbidden."""

    minimise: str = "cost"
    """cost, carbon, tokens (the negative of them), or the name of a limit whose use is minimised."""
    per_million_tokens: float = 0.0
    """US dollars that a million tokens are worth: with it, jobs may run on beyond their tokens."""
    dropped: frozenset[str] = frozenset()
    moved: Mapping[str, float] = field(default_factory=dict)
    """Limit -> its value in place of the question's."""
    cut: tuple[frozenset[str], ...] = ()
    """Families of earlier answers: exactly these must not be used again."""
    without: frozenset[str] = frozenset()
    """Ways to come by nodes that are closed."""
    latest: float | None = None
    """Day by which every job must be done."""
    scale: float = 1.0
    """On the work of every job."""


@dataclass(frozen=True)
class Limit:
    """A named limit as it stands in the program."""

    name: str
    value: float
    unit: str


@dataclass
class ProcureProgram:
    """A program with its variables and expressions, ready to be solved."""

    problem: Problem
    spans: list[tuple[float, float]]
    hold: dict[int, Linear] = field(default_factory=dict)
    run: dict[tuple[int, Place], Linear] = field(default_factory=dict)
    work: dict[tuple[int, Place], Linear] = field(default_factory=dict)
    day: dict[tuple[int, Place, int], Linear] = field(default_factory=dict)
    use: dict[str, Linear] = field(default_factory=dict)
    """Limit -> what it limits, in its unit."""
    cost: Linear = field(default_factory=lambda: total(()))
    tokens: Linear = field(default_factory=lambda: total(()))
    """In millions."""


def limits(asked: Portfolio, pools: Sequence[SupplyPool]) -> list[Limit]:
    """The limits that the question names, in the order in which they are told."""
    given = asked.limits
    units = {"budget": "USD", "capital": "USD", "monthly": "USD", "power": "W", "racks": "", "switch_ports": "",
             "carbon": "kg"}  # fmt: skip
    found = [
        Limit(name, getattr(given, name), unit) for name, unit in units.items() if getattr(given, name) is not None
    ]
    most = {pool.offer: pool.at_most for pool in pools if pool.at_most is not None and pool.way != "own"}
    found += [Limit(f"quantity:{offer}", float(count), "") for offer, count in sorted(most.items())]
    found += [Limit(f"deadline:{job.name}", job.deadline_day, "d") for job in asked.jobs if job.given_deadline]
    return found + (
        [Limit("horizon", asked.horizon_days, "d")] if not all(j.given_deadline for j in asked.jobs) else []
    )


def deadline(job: Job, variant: ProcureVariant) -> float:
    """The day by which a job must be done under a variant."""
    name = f"deadline:{job.name}" if job.given_deadline else "horizon"
    day = FAR if name in variant.dropped else variant.moved.get(name, job.deadline_day)
    return day if variant.latest is None else min(day, variant.latest)


def window(instance: ProcureInstance, j: int, place: Place, variant: ProcureVariant) -> tuple[float, float]:
    """From when to when a job may run where all of these pools are there."""
    job, pools = instance.jobs[j], [instance.pools[p] for p in place]
    start = max(job.release_day, *(pool.start_day for pool in pools))
    return start, min(deadline(job, variant), *(pool.last_day for pool in pools))


def spans(instance: ProcureInstance, variant: ProcureVariant) -> list[tuple[float, float]]:
    """The days between which nothing begins or ends."""
    used = {p for c in instance.columns for p in c.place}
    last = max(deadline(job, variant) for job in instance.jobs)
    points = {0.0, last}
    for job in instance.jobs:
        points |= {job.release_day, deadline(job, variant)}
    for p in used:
        points |= {instance.pools[p].start_day, instance.pools[p].last_day}
    if monthly_limit(instance.asked, variant) is not None:
        points |= {n * DAYS_PER_MONTH for n in range(int(min(last, 20 * 12 * DAYS_PER_MONTH) / DAYS_PER_MONTH) + 1)}
    days = sorted(point for point in points if 0 <= point <= last)
    return [(a, b) for a, b in pairwise(days) if b - a > 1e-9]


def monthly_limit(asked: Portfolio, variant: ProcureVariant) -> float | None:
    """What may be spent in a month under a variant; None where that is not limited."""
    if "monthly" in variant.dropped and variant.minimise != "monthly":
        return None
    return variant.moved.get("monthly", asked.limits.monthly) if asked.limits.monthly is not None else None


def build(instance: ProcureInstance, variant: ProcureVariant) -> ProcureProgram:
    """The program of a variant. Columns that cannot end in their window are left out."""
    program = ProcureProgram(Problem(), spans(instance, variant))
    _variables(program, instance, variant)
    _assign(program, instance)
    _held_where_run(program, instance)
    _time(program, instance, variant)
    _together(program, instance)
    _money(program, instance)
    _limits(program, instance, variant)
    _owned(program, instance)
    _copies(program, instance, variant)
    _cuts(program, instance, variant)
    program.problem.minimise(_objective(program, instance, variant))
    return program


def _variables(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    more = variant.per_million_tokens > 0
    for c in instance.columns:
        if any(instance.pools[p].way in variant.without for p in c.place):
            continue
        start, end = window(instance, c.job, c.place, variant)
        days = c.days * variant.scale
        if days > (end - start) * (1 + 1e-12):
            continue
        key, name = (c.job, c.place), _name(c.job, c.place)
        run = program.run[key] = program.problem.binary(f"run_{name}")
        if more:
            work = program.work[key] = program.problem.continuous(f"work_{name}")
            program.problem.constrain(work >= days * run, f"enough_{name}")
            program.problem.constrain(work <= (end - start) * run, f"window_{name}")
        else:
            program.work[key] = days * run
    for p in sorted({p for _, place in program.run for p in place}):
        if not instance.pools[p].hired:
            program.hold[p] = program.problem.integer(f"hold_{p}", high=instance.pools[p].copies)


def _name(j: int, place: Place) -> str:
    return "_".join(str(n) for n in (j, *place))


def _assign(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``assign[j]``: ``sum_q run[j,q] = 1``, every job runs in one place."""
    for j in range(len(instance.jobs)):
        runs = [run for (job, _), run in program.run.items() if job == j]
        program.problem.constrain(total(runs) == 1, f"assign_{j}")


def _held_where_run(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``held[j,q,p]``: ``run[j,q] <= hold[p]`` for p of q; ``needed[p]``: ``hold[p] <= sum_{j, q of p} run[j,q]``,
    nothing is held idle.
    """
    for (j, place), run in program.run.items():
        for p in place:
            if p in program.hold:
                program.problem.constrain(run <= program.hold[p], f"held_{_name(j, place)}_for_{p}")
    for p, hold in program.hold.items():
        program.problem.constrain(hold <= total(r for (_, q), r in program.run.items() if p in q), f"needed_{p}")


def _time(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``spread[j,q]``: ``sum_t day[j,q,t] = work[j,q]``; ``room[p,t]``: ``sum_{j, q of p} day[j,q,t] <= hold[p]
    L[t]``.
    """
    monthly = monthly_limit(instance.asked, variant) is not None
    rooms: dict[tuple[int, int], list[Linear]] = {}
    for (j, place), work in program.work.items():
        held = [p for p in place if p in program.hold]
        if not held and not monthly:
            continue
        start, end = window(instance, j, place, variant)
        inside = [t for t, (a, b) in enumerate(program.spans) if a >= start - 1e-9 and b <= end + 1e-9]
        days: dict[int, Linear] = {inside[0]: work} if len(inside) == 1 else {}
        if not days:
            for t in inside:
                length = program.spans[t][1] - program.spans[t][0]
                days[t] = program.problem.continuous(f"day_{_name(j, place)}_in_{t}", high=length)
            program.problem.constrain(total(days.values()) == work, f"spread_{_name(j, place)}")
        for t, day in days.items():
            program.day[j, place, t] = day
            for p in held:
                rooms.setdefault((p, t), []).append(day)
    for (p, t), listed in rooms.items():
        length = program.spans[t][1] - program.spans[t][0]
        program.problem.constrain(total(listed) <= length * program.hold[p], f"room_{p}_{t}")


def _together(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``together[g,t]``: ``sum_{j, q in g} day[j,q,t] <= L[t] (1 + J alone[g])``, g places of several held pools that
    share some, J jobs: they work one after another, but where all work is on the same pools: ``alone[g]`` is 1 only if
    ``sum_s in_use[s] <= 1 + |g| (1 - alone[g])``, and ``in_use[s] >= run[j,q]`` for each set s of held pools in q.
    """
    jobs = len(instance.jobs)
    for g, sets in enumerate(sharing(instance, [place for _, place in program.run])):
        if len(sets) == 1:
            continue
        alone = program.problem.binary(f"alone_{g}")
        in_use = []
        for n, pools in enumerate(sets):
            used = program.problem.continuous(f"in_use_{g}_{n}", high=1)
            in_use.append(used)
            for (j, place), run in program.run.items():
                if held_of(instance, place) == pools:
                    program.problem.constrain(used >= run, f"in_use_if_run_{g}_{n}_{_name(j, place)}")
        program.problem.constrain(total(in_use) <= 1 + len(sets) * (1 - alone), f"alone_{g}_if")
        for t, (start, end) in enumerate(program.spans):
            days = [day for (_, place, n), day in program.day.items() if n == t and held_of(instance, place) in sets]
            if days:
                length = end - start
                program.problem.constrain(total(days) <= length * (1 + jobs * alone), f"together_{g}_{t}")


def held_of(instance: ProcureInstance, place: Place) -> frozenset[int]:
    """The pools of a place that are held: what is hired is there for each job."""
    return frozenset(p for p in place if not instance.pools[p].hired)


def sharing(instance: ProcureInstance, places: Sequence[Place]) -> list[list[frozenset[int]]]:
    """Sets of several held pools that places are on, in groups of those that share one, directly or through others."""
    groups: list[list[frozenset[int]]] = []
    for pools in sorted({held_of(instance, place) for place in places}, key=sorted):
        if len(pools) > 1:
            mine = [group for group in groups if any(pools & other for other in group)]
            groups = [group for group in groups if group not in mine]
            groups.append([pools, *(other for group in mine for other in group)])
    return groups


def _money(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``cost = sum_p hold (charge + held) + sum work rate``, the rate of a place that of all its pools; ``tokens = sum
    work rate``, in millions.
    """
    rate = {(c.job, c.place): c.tokens_per_s for c in instance.columns}
    by_day = [instance.pools[p].day_usd * work for (_, place), work in program.work.items() for p in place]
    held = [(instance.pools[p].fixed_charge + instance.pools[p].held_usd) * x for p, x in program.hold.items()]
    program.cost = total(by_day + held)
    program.tokens = total(rate[key] * 86400.0 / MILLION * work for key, work in program.work.items())


def _limits(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """Every limit as ``use <= value``, both over the value: ``budget``, ``capital``, ``power``, ``racks``,
    ``switch_ports``, ``carbon``, ``quantity:OFFER`` and ``monthly`` (one a month).
    """
    pools = instance.pools

    def held(figure: Callable[[SupplyPool], float]) -> Linear:
        return total(figure(pools[p]) * x for p, x in program.hold.items())

    def worked(figure: Callable[[SupplyPool], float]) -> Linear:
        return total(figure(pools[p]) * work for (_, place), work in program.work.items() for p in place)

    program.use = {
        "budget": held(lambda q: q.capital + q.held_usd) + worked(lambda q: q.day_usd),
        "capital": held(lambda q: q.capital),
        "power": held(lambda q: q.power),
        "racks": held(lambda q: q.racks) + instance.standing.get("racks", 0.0),
        "switch_ports": held(lambda q: q.switch_ports) + instance.standing.get("switch_ports", 0.0),
        "carbon": worked(lambda q: q.day_kg),
    }
    for limit in limits(instance.asked, pools):
        if limit.name.startswith("quantity:"):
            program.use[limit.name] = _quantity(program, instance, variant, limit.name.partition(":")[2])
        value = variant.moved.get(limit.name, limit.value)
        if limit.name in variant.dropped or limit.name not in program.use:
            continue
        scale = value or 1.0
        program.problem.constrain(program.use[limit.name] / scale <= value / scale, limit.name.replace(":", "_"))
    monthly = monthly_limit(instance.asked, variant)
    if monthly is not None:
        if "monthly" in variant.dropped:
            most = program.use["monthly"] = program.problem.continuous("most_in_a_month")
        for n, spent in _by_month(program, instance):
            if "monthly" in variant.dropped:
                program.problem.constrain(spent <= most, f"monthly_{n}")
            else:
                program.problem.constrain(spent / monthly <= 1, f"monthly_{n}")


def _quantity(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant, offer: str) -> Linear:
    """``most[o] >= sum_p nodes hold[p] + sum_{j,q} nodes run[j,q]`` in each span, j that may run in it: nodes of an
    offer that are bought, or hired at a time.
    """
    pools = instance.pools
    held = total(pools[p].nodes * x for p, x in program.hold.items() if pools[p].offer == offer)

    def hired_of(place: Place) -> list[SupplyPool]:
        return [pools[p] for p in place if pools[p].hired and pools[p].offer == offer]

    hired = [key for key in program.run if hired_of(key[1])]
    if not hired:
        return held
    most = program.problem.continuous(f"most_{'_'.join(offer.split())}")
    for n, keys in enumerate(_at_a_time(program, instance, variant, hired)):
        nodes = [pool.nodes * program.run[key] for key in keys for pool in hired_of(key[1])]
        program.problem.constrain(held + total(nodes) <= most, f"nodes_{'_'.join(offer.split())}_{n}")
    return most


def _at_a_time(
    program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant, keys: Sequence[tuple[int, Place]]
) -> list[tuple[tuple[int, Place], ...]]:
    """Which of the jobs in their places may run at the same time: one tuple a span, each once."""
    windows = {key: window(instance, *key, variant) for key in keys}
    found = (
        tuple(key for key, (start, end) in windows.items() if start < b - 1e-9 and end > a + 1e-9)
        for a, b in program.spans
    )
    return list(dict.fromkeys(each for each in found if each))


def _copies(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``copies[p,t]``: ``sum_{j, q of p} run[j,q] <= copies[p]``, j that may run on hired p in span t."""
    for p in sorted({p for _, place in program.run for p in place}):
        keys = [key for key in program.run if p in key[1]]
        if not instance.pools[p].hired or len(keys) <= instance.pools[p].copies:
            continue
        for n, alike in enumerate(_at_a_time(program, instance, variant, keys)):
            if len(alike) > instance.pools[p].copies:
                runs = total(program.run[key] for key in alike)
                program.problem.constrain(runs <= instance.pools[p].copies, f"copies_{p}_{n}")


def _by_month(program: ProcureProgram, instance: ProcureInstance) -> list[tuple[int, Linear]]:
    """What is spent in each month, without capital: holding by its days, use by its days."""
    months: dict[int, list[Linear]] = {}
    for (_, place, t), day in program.day.items():
        a_day = sum(instance.pools[p].day_usd for p in place)
        months.setdefault(int(program.spans[t][0] / DAYS_PER_MONTH + 1e-9), []).append(a_day * day)
    found = []
    for n in range(int(max(b for _, b in program.spans) / DAYS_PER_MONTH - 1e-9) + 1):
        held = [share * instance.pools[p].month_usd * x for p, x in program.hold.items()
                if (share := month_share(instance.pools[p], n)) > 0]  # fmt: skip
        terms = held + months.get(n, [])
        if terms:
            found.append((n, total(terms)))
    return found


def month_share(pool: SupplyPool, month: int) -> float:
    """Share of a month (from 0) for which a pool is held."""
    a, b = month * DAYS_PER_MONTH, (month + 1) * DAYS_PER_MONTH
    return max(0.0, min(b, pool.start_day + pool.held_days) - max(a, pool.start_day)) / DAYS_PER_MONTH


def _owned(program: ProcureProgram, instance: ProcureInstance) -> None:
    """``owned[node]``: ``sum_p nodes hold[p] <= count``; what is there is divided, not multiplied."""
    for owned in instance.asked.owned:
        used = [instance.pools[p].nodes * x for p, x in program.hold.items()
                if instance.pools[p].way == "own" and instance.pools[p].node.id == owned.node]  # fmt: skip
        if used:
            program.problem.constrain(total(used) <= owned.count, f"owned_{owned.node}")


def _cuts(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> None:
    """``uses[f]`` 1 if a pool of family f runs a job; ``cut[n]``: not exactly the families of an earlier answer."""
    if not variant.cut:
        return
    by_family: dict[str, list[Linear]] = {}
    for (_, place), run in program.run.items():
        for family in sorted({instance.pools[p].family for p in place}):
            by_family.setdefault(family, []).append(run)
    uses = {}
    for n, (name, runs) in enumerate(sorted(by_family.items())):
        used = uses[name] = program.problem.binary(f"uses_{n}")
        program.problem.constrain(used <= total(runs), f"used_{n}")
        for m, run in enumerate(runs):
            program.problem.constrain(run <= used, f"uses_if_run_{n}_{m}")
    for n, names in enumerate(variant.cut):
        if names <= uses.keys():  # else what was used then cannot be used now
            inside = total(uses[name] for name in names)
            outside = total(used for name, used in uses.items() if name not in names)
            program.problem.constrain(inside - outside <= len(names) - 1, f"cut_{n}")


def _objective(program: ProcureProgram, instance: ProcureInstance, variant: ProcureVariant) -> Linear:
    """US dollars over a thousand; kilograms over a thousand; or the use of a limit over its value."""
    if variant.per_million_tokens > 0:
        return program.cost / 1e3 - variant.per_million_tokens / 1e3 * program.tokens
    if variant.minimise == "cost":
        return program.cost / 1e3
    if variant.minimise == "carbon":
        return program.use["carbon"] / TONNE
    scale = next(
        (limit.value for limit in limits(instance.asked, instance.pools) if limit.name == variant.minimise), 1.0
    )
    return program.use[variant.minimise] / (scale or 1.0)


def moved(variant: ProcureVariant, name: str, value: float) -> ProcureVariant:
    """The variant with one limit moved."""
    return replace(variant, moved={**variant.moved, name: value})
