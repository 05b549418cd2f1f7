"""The whole way from a portfolio to a verified answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner.base.errors import NoAnswer
from planner.base.progress import Clock, Progress, advancing
from planner.base.typed import part
from planner.base.units import format_count, format_power
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.catalog.ages import is_stale
from planner.cost.ownership import resale
from planner.procurement.answer import document, money_risks
from planner.procurement.program import infeasible, pruning, shadow_prices
from planner.procurement.program import moving as jobs_moving
from planner.procurement.program.alternatives import families, ranked
from planner.procurement.program.instance import (
    USUAL,
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
    limits,
)
from planner.procurement.program.restrictions import restrictions
from planner.procurement.program.several_starts import with_several_starts
from planner.procurement.program.solve import best, excluded
from planner.procurement.question.portfolio import Portfolio
from planner.procurement.supply.acquiring import pools, standing, too_old
from planner.procurement.supply.pools import SupplyPool, offers
from planner.procurement.supply.prices import OLD_RATE_DAYS, TERM_DAYS
from planner.procurement.throughput.bounds import EVERYTHING, LowerBounds, Reach
from planner.procurement.throughput.column import Column, survivals
from planner.procurement.throughput.job_days import Throughputs
from planner.procurement.throughput.kept_plans import KeptPlans
from planner.procurement.throughput.several_pools import Mixtures
from planner.report.quantities import limited
from planner.schema import procurement as schema
from planner.schema.plan import Assumption, Generator
from planner.verify import Inconsistent
from planner.verify import procurement as verify

PRICE_SWING = (0.8, 1.2)
TOP = 3
GROWTH = 2.0
"""Times as dear machines that are looked at next, where the cheap ones do not say what would be enough."""
UNPROVEN = "Not proven: not every order of the jobs was tried (terms, months and pauses leave too many); one may do."
METHOD = "integer program over precomputed plans and orders of jobs"
SMALLEST_SHARE = 0.5**infeasible.HALVINGS
"""Smallest share of the work that a search for the most that fits distinguishes from nothing."""


@dataclass(frozen=True, kw_only=True)
class Depth:
    """How much of the answer is wanted beside the best."""

    top: int = TOP
    marginal: bool = True
    sensitivity: bool = True


@dataclass(frozen=True)
class Posed:
    """A question with everything computed that its programs need."""

    whole: ProcureInstance
    """With all columns, dominated ones too."""
    instance: ProcureInstance
    lean: ProcureInstance
    """Without what another node, come by in the same way, dominates."""
    speeds: Throughputs
    mixtures: Mixtures


def pose(
    catalog: Catalog,
    asked: Portfolio,
    progress: Progress | None = None,
    *,
    reach: Reach | None = None,
    known: Posed | None = None,
    settings: Settings = USUAL,
) -> Posed:
    """Pools and their columns; not those that cannot matter, even at the best rate of their machines.

    Args:
        catalog: Hardware and prices.
        asked: The question.
        progress: Told of every search.
        reach: What may matter. By default what is done in time for the budget, and for what prices that fall would make
            of it; where a job has nothing then, more.
        known: The same with fewer columns, whose searches are not made again.
        settings: Who searches plans, and where those of earlier questions are kept.

    Raises:
        NoAnswer: a job fits on nothing that can be had; the message says why.
    """
    offered = known.whole.pools if known else pools(catalog, asked)
    mixtures = known.mixtures if known else Mixtures(catalog, asked, offered)
    lost = asked.reliability.survive is not None
    engine = settings.engine
    speeds = (
        known.speeds if known else Throughputs(catalog, asked.jobs, offered, mixtures, every_size=lost, engine=engine)
    )
    if known is None and settings.cache is not None:
        speeds.kept = KeptPlans(settings.cache, catalog)
    if reach is None:
        reach = Reach(usd=_budget(asked) / PRICE_SWING[0], late_usd=0.0)
    columns = _columns(speeds, len(asked.jobs), reach, progress)
    for j, job in enumerate(asked.jobs):
        if not any(c.job == j for c in columns):
            reasons = "\n".join(f"  {why}" for why in speeds.why_not(job)[:4])
            least = f" at {job.min_tokens_per_s:,.0f} tokens/s" if job.min_tokens_per_s else ""
            number = sum(pool.available for pool in offered)
            raise NoAnswer(
                f"{job.name}: {job.model_name} trains{least} on none of the {number} candidates.\n{reasons}".rstrip()
            )
    survives = survivals(asked, offered, columns)
    whole = ProcureInstance(asked, offered, columns, standing(catalog, asked), survives)
    return Posed(whole, _pruned(whole), _pruned(whole, across=True), speeds, mixtures)


def _budget(asked: Portfolio) -> float:
    return math.inf if asked.limits.budget is None else asked.limits.budget


def _columns(speeds: Throughputs, jobs: int, reach: Reach, progress: Progress | None) -> list[Column]:
    """The columns within reach, or within as much more as gives every job one."""
    while True:
        with advancing(progress, "plans", speeds.wanted(reach)) as advance:
            columns = speeds.columns(advance, reach=reach)
        if reach == EVERYTHING or len({c.job for c in columns}) == jobs:
            return columns
        reach = _wider(reach, speeds.least)


def _wider(reach: Reach, least: LowerBounds) -> Reach:
    """Dearer machines; where there are none, those on which jobs are late, too."""
    if reach.usd >= least.dearest_usd:
        return EVERYTHING
    return replace(reach, usd=GROWTH * max(reach.usd, least.cheapest_usd, 1.0))


def _conflict(catalog: Catalog, posed: Posed, settings: Settings, progress: Progress | None) -> infeasible.Conflict:
    """Why there is no answer, with every column that an answer to any of the remedies may need."""
    asked = posed.instance.asked
    reach = Reach(usd=_budget(asked), late_usd=_budget(asked))
    while True:
        if posed.speeds.wanted(reach):
            posed = pose(catalog, asked, progress, reach=reach, known=posed)
        conflict = infeasible.conflict(posed.lean, settings)
        reach = _of_remedies(asked, conflict, reach, posed.speeds.least)
        if not posed.speeds.wanted(reach):
            return conflict


def _of_remedies(asked: Portfolio, conflict: infeasible.Conflict, reach: Reach, least: LowerBounds) -> Reach:
    """What any of the remedies may need: enough money, more time, or less of the work; and where more money alone is
    none as yet, ever dearer machines.
    """
    enough = conflict.relaxed.get("budget")
    if asked.limits.budget is None or enough is None:
        return _wider(reach, least)
    return replace(reach, usd=enough, share=max(conflict.work, SMALLEST_SHARE))


def _pruned(whole: ProcureInstance, *, across: bool = False) -> ProcureInstance:
    return with_several_starts(replace(whole, columns=pruning.undominated(whole, across=across)))


def procure(
    catalog: Catalog,
    asked: Portfolio,
    *,
    depth: Depth = Depth(),
    settings: Settings = USUAL,
    progress: Progress | None = None,
) -> schema.Procurement:
    """The best ways to come by what the portfolio needs, verified.

    Raises:
        WrongQuestion: a candidate cannot be priced.
        NoAnswer: the limits conflict; the message names the smallest set that does, and what would relax it.
    """
    clock = Clock()
    posed = pose(catalog, asked, progress, settings=settings)
    instance = posed.instance
    with advancing(progress, "integer programs"):
        solutions = ranked(instance, posed.lean, asked.objective, depth.top, settings)
    if not solutions:
        message = conflict_message(asked, _conflict(catalog, posed, settings, progress))
        raise NoAnswer(message if excluded(posed.lean, settings) else f"{message}\n{UNPROVEN}")
    alternatives = tuple(
        document.alternative(instance, posed.speeds, solution, rank) for rank, solution in enumerate(solutions, 1)
    )
    with advancing(progress, "marginal values and sensitivities"):
        first = solutions[0]
        watch = settings.watch
        marginal = partial(shadow_prices.marginal_values, posed.lean, first, settings)
        gains = watch.optional(marginal, ()) if depth.marginal else ()
        sensitivity = partial(_sensitivity, catalog, posed, first, settings)
        turned = watch.optional(sensitivity, ()) if depth.sensitivity else ()
        apart = watch.optional(partial(_apart, posed, first, settings), None)
        fresh = watch.optional(partial(_fresh, posed, first, settings), None)
        soonest = watch.optional(partial(_soonest, posed, first, settings), None) if depth.marginal else None
        moving = watch.optional(partial(_moving, posed, first), None) if depth.marginal else None
    scale = document.SCALES.get(asked.objective, 1.0)
    kept_to = tuple(restrictions(posed.lean, first.cost, _share_by_moving(first, moving), not depth.marginal))
    result = schema.Procurement(
        generator=Generator(version=__version__, seed=0, inputs=dict(asked.inputs)),
        question=question(instance),
        optimality=schema.Optimality(
            gap=first.gap,
            bound=first.bound * scale,
            value=first.value * scale,
            unit=document.UNITS[asked.objective],
            method=f"{METHOD}; {', '.join(kept_to)}",
            pools=sum(pool.available for pool in posed.whole.pools),
            columns=sum(not c.other_pools and instance.pools[c.pool].available for c in posed.whole.columns),
            mixed_columns=sum(bool(c.other_pools) for c in posed.whole.columns),
            mixed_gap=posed.mixtures.gap,
            restrictions=kept_to,
            moving_bound_usd=moving if asked.objective == "cost" else None,
            stopped=watch.stopped or None,
        ),
        alternatives=alternatives,
        binding=_binding(alternatives[0], gains),
        marginal_values=gains,
        break_even=money_risks.break_evens(asked, [pool for pool in posed.whole.pools if pool.available]),
        sensitivity=turned,
        apart=apart,
        fresh=fresh,
        soonest=soonest,
        stale_prices=tuple(_stale(asked, instance, alternatives)),
        assumptions=(
            *_of_mixing(posed.mixtures, alternatives),
            *_of_age(catalog, asked),
            *_assumptions(asked, instance, alternatives),
        ),
        asked=asked.stated
        and replace(asked.stated, top=depth.top, marginal=depth.marginal, sensitivity=depth.sensitivity),
        meta=clock.meta(),
    )
    try:
        verify.check(result)
    except Inconsistent as error:
        raise AssertionError(f"the answer does not hold: {error}") from error
    return result


def _binding(best: schema.Alternative, gains: Sequence[schema.MarginalValue]) -> tuple[str, ...]:
    """Limits of which (almost) nothing is left, and those of which more would give a better answer: machines come
    whole, so a limit may bind with much of it unused.
    """
    wanted = {value.limit for value in gains if value.gain > 0}
    return tuple(c.name for c in best.constraints if c.binding or c.name in wanted)


def question(instance: ProcureInstance) -> schema.ProcureOptions:
    """What the answer must keep to."""
    asked = instance.asked
    return schema.ProcureOptions(
        name=asked.name,
        as_of=asked.as_of,
        horizon_days=asked.horizon_days,
        objective=asked.objective,
        charge=asked.charge,
        currency=asked.currency,
        limits={limit.name: limit.value for limit in limits(asked, instance.pools)},
        owned={owned.node: owned.count for owned in asked.owned},
        ownership=part(schema.Owning, asked.ownership),
        mixed=tuple(part(schema.PoolGroup, table) for table in asked.mixed) or None,
        standing=dict(instance.standing),
        survive_nodes=asked.reliability.survive,
        max_price_age_days=asked.max_price_age_days,
        resale=asked.resale,
    )


def repriced(catalog: Catalog, posed: Posed, factor: float) -> ProcureInstance:
    """The instance with all catalog prices of nodes turned; speeds stay."""
    asked = replace(posed.instance.asked, price_factor=factor)
    return _pruned(replace(posed.whole, asked=asked, pools=pools(catalog, asked)), across=True)


def _sensitivity(
    catalog: Catalog, posed: Posed, usual: ProgramSolution, settings: Settings
) -> tuple[schema.Sensitivity, ...]:
    asked = posed.instance.asked
    scale = document.SCALES.get(asked.objective, 1.0)
    swings = []
    for factor in PRICE_SWING:
        instance = repriced(catalog, posed, factor)
        turned = best(instance, ProcureVariant(), asked.objective, settings)
        if turned is not None:
            same = families(instance, turned) == families(posed.lean, usual)
            swings.append(
                schema.Sensitivity(
                    prices=factor, value=turned.value * scale, what=document.what(instance, turned), same=same
                )
            )
    return tuple(swings)


def _apart(posed: Posed, first: ProgramSolution, settings: Settings) -> schema.Apart | None:
    """The best answer without jobs on several pools, where the first has one."""
    if all(len(place) == 1 for place in first.run.values()):
        return None
    return _best_of(posed, [c for c in posed.whole.columns if not c.other_pools], settings)


def _fresh(posed: Posed, first: ProgramSolution, settings: Settings) -> schema.Apart | None:
    """The best answer at prices that a source gives for the last year, where the first has another price."""
    whole = posed.whole
    fresh = [money_risks.is_fresh(whole.asked, pool) for pool in whole.pools]
    if all(fresh[p] for place in first.run.values() for p in posed.lean.as_offered(place)):
        return None
    return _best_of(posed, [c for c in whole.columns if all(fresh[p] for p in c.place)], settings)


def _moving(posed: Posed, first: ProgramSolution) -> float | None:
    """What no answer undercuts whose jobs move between pools at checkpoints; None if unknown."""
    speeds = posed.speeds
    return jobs_moving.least(posed.whole, speeds.at_least, first.value, lambda pair: speeds.look_closer(*pair))


def _share_by_moving(first: ProgramSolution, moving: float | None) -> float | None:
    """Share of the best answer's value by which moves would better it at most."""
    return None if moving is None else abs(first.value - moving) / max(abs(first.value), 1e-9)


def _soonest(posed: Posed, first: ProgramSolution, settings: Settings) -> schema.Soonest | None:
    """The earliest completion within the budget, where the first answer leaves most of that and ends later."""
    solution = shadow_prices.soonest(posed.lean, first, settings)
    if solution is None:
        return None
    return schema.Soonest(
        done_day=solution.done, cash_usd=solution.use["budget"], what=document.what(posed.lean, solution)
    )


def _best_of(posed: Posed, columns: Sequence[Column], settings: Settings) -> schema.Apart:
    """The best answer with some of the columns."""
    fewer = _pruned(replace(posed.whole, columns=columns), across=True)
    objective = posed.whole.asked.objective
    solution = best(fewer, ProcureVariant(), objective, settings)
    if solution is None:
        return schema.Apart(value=None, what="")
    scale = document.SCALES.get(objective, 1.0)
    return schema.Apart(value=solution.value * scale, what=document.what(fewer, solution))


def _stale(asked: Portfolio, instance: ProcureInstance, alternatives: tuple[schema.Alternative, ...]) -> Iterator[str]:
    rate = asked.currency
    if rate.code != "USD" and is_stale(rate.date, asked.as_of, OLD_RATE_DAYS):
        yield f"1 {rate.code}: {rate.usd:g} USD of {rate.date}"
    used = {pool.id for alternative in alternatives for pool in alternative.pools}
    chosen = [pool for pool in instance.pools if pool.id in used]
    dated = [(f"{q.node.id} {q.way}", q.quote.usd, q.quote.date) for q in chosen if q.quote is not None]
    dated += [(x.item, x.unit_price_usd, x.date) for q in chosen for x in q.items if x.kind != "node"]
    for what, usd, day in dict.fromkeys(dated):
        if is_stale(day, asked.as_of):
            yield f"{what}: {usd:,.2f} USD of {day or 'no date'}"


def _assumptions(
    asked: Portfolio, instance: ProcureInstance, alternatives: tuple[schema.Alternative, ...]
) -> Iterator[Assumption]:
    used = {pool.id for alternative in alternatives for pool in alternative.pools}
    chosen = [pool for pool in instance.pools if pool.id in used]
    for what, why, flag in asked.assumptions:
        yield Assumption(what=what, why=why, flag=flag)
    for node, why in dict.fromkeys((pool.node.id, pool.quote.assumed) for pool in chosen if pool.quote):
        if why:
            yield Assumption(what=f"price of {node}", why=why, flag="price = { ... }")
    yield from _of_owning(asked, [pool for pool in chosen if pool.way == "buy"])
    if any(pool.way == "spot" for pool in chosen):
        rate = asked.reliability.preemptions_per_node_day
        yield Assumption(
            what=f"a spot node is preempted {rate:g} times a day",
            why="assumed; no provider states it",
            flag="[reliability] preemptions_per_node_day",
        )
    if any(pool.way in TERM_DAYS for pool in chosen):
        yield Assumption(what="a term is paid for to its end, month by month", why="as it is sold", flag="ways")
    for why in dict.fromkeys(
        a.what + ": " + a.why for x in alternatives for j in x.workloads if j.plan for a in j.plan.assumptions
    ):
        what, _, reason = why.partition(": ")
        linked = re.match(r"[\d.e+]+ Gbit/s a node between ", what)
        yield Assumption(
            what=what, why=reason, flag="[[mixed]] link" if linked else "the workload's own keys, or --catalog"
        )


def _of_age(catalog: Catalog, asked: Portfolio) -> Iterator[Assumption]:
    """What is left out for the age of its price."""
    if left_out := too_old(catalog, asked):
        why = f"their prices are older than {asked.max_price_age_days:,.0f} days, undated or assumed"
        yield Assumption(what=f"left out: {left_out}", why=why, flag="--max-price-age")


def _of_mixing(mixtures: Mixtures, alternatives: tuple[schema.Alternative, ...]) -> Iterator[Assumption]:
    for name, table, why in mixtures.left_out():
        yield Assumption(
            what=f"{name} is not on {' + '.join(table.pools)} at once", why=why, flag="[[mixed]] link, counts"
        )
    for what in _of_several_kinds(alternatives):
        yield Assumption(
            what=what,
            why="launchers start identical pipelines only: this needs your own training script",
            flag='[[mixed]] pipelines = "identical"',
        )


def _of_several_kinds(alternatives: Sequence[schema.Alternative]) -> Iterator[str]:
    """Every workload once, for the best alternative in which its pipelines are unlike."""
    seen = set()
    for place, a in enumerate(alternatives, 1):
        for job in a.workloads:
            count = len(job.plan.parallelism.groups or ()) if job.plan else 0
            if count > 1 and job.name not in seen:
                seen.add(job.name)
                yield f"{job.name} runs in {count} groups of different pipelines{f' in #{place}' if place > 1 else ''}"


def _of_owning(asked: Portfolio, bought: list[SupplyPool]) -> Iterator[Assumption]:
    if not bought:
        return
    owner = asked.ownership
    hall = asked.hall
    restart = asked.reliability.restart_without_spares_s / 3600
    charge = (
        f"its whole price{'' if asked.resale is None else ', less what its nodes are sold for'}"
        if asked.charge == "cash"
        else f"its share of {owner.life_years:g} years at {owner.interest:.0%}"
    )
    yield Assumption(
        what=f"a purchase counts with {charge}",
        why="the default" if asked.charge == "cash" else "from the question",
        flag="charge",
    )
    yield Assumption(
        what=f"resale value of nodes falls by {1 - resale(1.0, 1.0):.0%} a year",
        why=f"Epoch AI's rate of progress; {'in no total' if asked.resale is None else 'what is sold counts'}",
        flag="[ownership] residual counts what is left" if asked.resale is None else "resale",
    )
    yield Assumption(
        what=f"maintenance {owner.maintenance:.0%} a year, load {owner.load:.0%} of peak power, "
        f"colocation {owner.colocation_usd_per_kw_month:g} USD/kW-month",
        why="CBRE 2023 rate; Epoch AI load; maintenance from memory",
        flag="[ownership]",
    )
    yield Assumption(
        what=f"repair {asked.reliability.repair_days:g} days, restart {restart:g} h without a spare node",
        why="assumed; no opened source gives it",
        flag="[reliability]",
    )
    yield Assumption(
        what=f"a server takes {hall.node_units['server']} of {hall.rack_units} rack units",
        why="typical; no opened source gives it",
        flag="[hall]",
    )


def conflict_message(asked: Portfolio, conflict: infeasible.Conflict) -> str:
    """A conflict as a message: what conflicts, and the ways out."""
    values = {name: value for name, value in _values(asked)}
    money = asked.currency
    named = ", ".join(f"{_named(name)} {_format_limit(name, values.get(name), money)}" for name in conflict.limits)
    if not conflict.limits:
        cooled = asked.hall.cooling_per_rack
        hot = f" [hall] cooling_per_rack = {format_power(cooled)} excludes what draws more." if cooled else ""
        if conflict.nowhere:
            named = ", ".join(conflict.nowhere)
            return f"no answer exists even without the limits: nothing available does {named} in any time.{hot}"
        return (
            "no answer exists even without the limits: each job fits somewhere alone, and all together they do not fit "
            f"on what is available (copies, owned, delivery within the horizon).{hot}"
        )
    lines = [f"no way to do all of it: {named} conflict{'s' if len(conflict.limits) == 1 else ''} with the work"]
    # Another conflict may stand behind this one: only what was solved is promised.
    if conflict.relaxed.keys() == set(conflict.limits):
        lines[0] += f"; without {'it' if len(conflict.limits) == 1 else 'any one of them'} there is an answer"
    lines[0] += "."
    ways = [
        f"{_named(name)} {_format_limit(name, _enough(name, value, money), money)}"
        + (" (and a horizon as long)" if name.startswith("deadline:") and value > asked.horizon_days else "")
        for name, value in conflict.relaxed.items()
    ]
    if share := math.floor(100 * conflict.work) / 100:
        tokens = sum(job.tokens for job in asked.jobs) * share
        ways.append(f"{share:.0%} of the work ({format_count(tokens)} tokens)")
    if ways:
        lines.append(f"Any one of these is enough: {'; '.join(ways)}.")
    behind = [_named(name) for name in conflict.limits if name not in conflict.relaxed]
    if behind:
        lines.append(f"Moving {' or '.join(behind)} alone is not enough: other limits conflict behind.")
    return "\n".join(lines)


def _values(asked: Portfolio) -> Iterator[tuple[str, float]]:
    for name in ("budget", "capital", "monthly", "power", "racks", "switch_ports", "carbon"):
        if (value := getattr(asked.limits, name)) is not None:
            yield name, value
    for job in asked.jobs:
        yield f"deadline:{job.name}", job.deadline_day
    for offer, candidate in zip(offers(asked.candidates), asked.candidates, strict=True):
        if candidate.at_most is not None:
            yield f"quantity:{offer}", candidate.at_most
    yield "horizon", asked.horizon_days


def _named(name: str) -> str:
    kind, _, of = name.partition(":")
    return {"deadline": f"deadline of {of}", "quantity": f"nodes of {of}"}.get(kind, kind.replace("_", " "))


def _enough(name: str, value: float, currency: schema.Currency) -> float:
    """The value rounded up to what is printed of it, so that whoever takes it at its word has enough."""
    kind = name.partition(":")[0]
    unit = currency.usd if kind in ("budget", "capital", "monthly") else 1.0
    places = {"deadline": 1, "horizon": 1, "quantity": 0, "racks": 0, "switch_ports": 0, "carbon": 0}.get(
        kind, 2 - math.floor(math.log10(max(value / unit, 1.0)))
    )
    scale = 10.0**places
    return math.ceil(value / unit * scale - 1e-9) / scale * unit


def _format_limit(name: str, value: float | None, currency: schema.Currency) -> str:
    if value is None:
        return ""
    if name.startswith(("deadline", "horizon")):
        return f"{value:,.1f} d".replace(".0 d", " d")
    return limited(name, value, currency.format)
