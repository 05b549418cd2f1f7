"""Solving a program: the answer as plain numbers, with the bound that was proven."""

from __future__ import annotations

import math
from dataclasses import replace

from planner.base.errors import NoAnswer
from planner.base.solver import Outcome, Status
from planner.procurement.program import cuts
from planner.procurement.program.calendar import (
    Arranged,
    Choice,
    arranged,
    dated,
    held_in_months,
    largest,
    most_in_a_month,
    stretches,
)
from planner.procurement.program.cuts import SAFELY, charge, forbid, keys
from planner.procurement.program.instance import (
    FAR,
    USUAL,
    ProcureInstance,
    ProcureVariant,
    ProgramSolution,
    Settings,
    better,
    monthly_limit,
)
from planner.procurement.program.integer_program import MILLION, ProcureProgram, build, name, own_watts
from planner.procurement.program.job_order import EPS
from planner.procurement.program.on_dates import on_dates
from planner.procurement.program.several_starts import merged
from planner.procurement.throughput.column import Place

SHORTEST_STEP = 1e-4
"""Relative width to which the earliest completion is narrowed down."""
RATIO_ROUNDS = 12
ROUNDS = 400
"""Most rounds of asking for an order, and forbidding choices that have none."""


def solve(instance: ProcureInstance, variant: ProcureVariant, settings: Settings = USUAL) -> ProgramSolution | None:
    """The best answer of one variant, or None if there is none.

    A monthly limit makes a program many times larger, and seldom matters: it is left out first, and what is then best
    is best if it keeps the limit. Else that is the bound: those that keep the limit are sought with pools that are held
    from their delivery, then from chosen days, and what is proven of these is not proven of all days.
    """
    limit = monthly_limit(instance.asked, variant)
    bound = 0.0
    if limit is None:
        return _solved(instance, variant, settings)
    if variant.minimise != "monthly":
        without = _solved(instance, _without_monthly(variant), settings)
        if without is None or most_in_a_month(dated(instance, without), without) <= limit:
            return without
        bound = without.bound
    solution = _solved(instance, variant, settings)
    if not _holds(instance):
        return None if solution is None else _at_least(solution, max(bound, solution.bound), math.inf)
    if solution is None or solution.value - bound > settings.gap * abs(solution.value):
        solution = better(solution, _on_dates(instance, variant, settings, known=solution is not None))
    return None if solution is None else replace(solution, bound=min(solution.value, bound))


def _holds(instance: ProcureInstance) -> bool:
    """Whether anything may be bought or taken for a term, of which the first day is to be chosen."""
    return any(instance.pools[p].held for c in instance.columns for p in c.place)


def _without_monthly(variant: ProcureVariant) -> ProcureVariant:
    return replace(variant, dropped=variant.dropped | {"monthly"})


def _on_dates(
    instance: ProcureInstance, variant: ProcureVariant, settings: Settings, *, known: bool
) -> ProgramSolution | None:
    """The best of the answers that hold pools from chosen days, if any; where one is known, none in time is none."""
    spread = on_dates(instance, variant)
    if spread is None:
        return None
    later = (_tried if known else _solved)(spread.instance, variant, settings)
    return None if later is None else spread.back(later)


def excluded(instance: ProcureInstance, settings: Settings = USUAL) -> bool:
    """Whether it is proven that no answer keeps all limits.

    Where not all orders of jobs could be tried, one may; and what is held from other days than those that are tried may
    keep a monthly limit.
    """
    variant = ProcureVariant(minimise="")
    try:
        columns, proven = _sought(instance, _without_monthly(variant) if _holds(instance) else variant, settings)
    except NoAnswer:
        return False
    return columns is None and proven


def _solved(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    return _sought(instance, variant, settings)[0]


def _tried(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """The best answer of a part of a question; none in time says nothing of the whole, of which one may be known."""
    try:
        return _solved(instance, variant, settings)
    except NoAnswer:
        return None


def _sought(
    instance: ProcureInstance, variant: ProcureVariant, settings: Settings
) -> tuple[ProgramSolution | None, bool]:
    """Asks the program, then for an order of what it chose, until that has one; and whether all that was forbidden on
    the way is impossible.
    """
    program = build(instance, variant)
    if len({j for j, _ in program.run}) < len(program.alike):
        return None, True  # some job fits nowhere in its window
    known: ProgramSolution | None = None
    # Nothing costs, emits or takes less than nothing; what more tokens are worth may be any amount.
    reached = -math.inf if variant.works_on else 0.0
    proven = math.inf
    if cuts.pays(program):
        instance, known, bound = cuts.narrowed(
            instance, variant, program, settings, lambda part: _tried(part, variant, settings)
        )
        reached = max(reached, bound)
        if known is not None and known.value - reached <= settings.gap * abs(known.value):
            return _at_least(known, reached, proven), True
        program = build(instance, variant)
    for n in range(ROUNDS):
        try:
            outcome = program.problem.solve(
                gap=settings.gap, time_limit_s=settings.time_limit_s, solver=settings.solver
            )
        except KeyboardInterrupt:
            if known is None:
                raise
            settings.watch.stop()
            return _at_least(known, reached, proven), False
        if outcome.status is Status.INFEASIBLE or (known is not None and not outcome.status.found):
            return _at_least(known, reached, proven), math.isinf(proven)
        if not outcome.status.found:
            raise NoAnswer(
                f"no answer was found in {settings.time_limit_s:g} s, and none was excluded; allow more time"
            )
        reached = max(reached, outcome.bound)  # what is asked next leaves out more
        if variant.minimise == "cost":
            settings.watch.found(1e3 * (outcome.objective if known is None else known.value), 1e3 * reached)
        choice = _choice(instance, variant, program, outcome)
        fewer = _on_fewer(instance, choice)
        if outcome.status is Status.FEASIBLE and fewer:
            # Not proven in time: the order is sought on what was chosen, and what is proven of all stays proven.
            known = better(known, _tried(fewer, variant, settings))
            if known is not None:
                return _at_least(known, reached, proven), math.isinf(proven)
        arrangement, choice = _ordered(instance, variant, program, choice)
        if not _corrected(program, instance, choice, arrangement, outcome, n):
            known = better(known, _solution_of(program, instance, outcome, choice, arrangement))
            return _at_least(known, min(outcome.objective, reached), proven), math.isinf(proven)
        if not arrangement.proven or not all(collision.proven for collision in arrangement.collisions):
            proven = min(proven, reached)
        if (
            fewer and not arrangement.collisions
        ):  # only days and pauses are not as they can be: perhaps that changes little
            known = better(known, _tried(fewer, variant, settings))
            if known is not None and known.value - min(reached, proven) <= settings.gap * abs(known.value):
                return _at_least(known, reached, proven), math.isinf(proven)
    if known is not None:
        return _at_least(known, reached, proven), math.isinf(proven)
    raise NoAnswer(
        f"in {ROUNDS} rounds no order of the jobs was found, and none was excluded; give fewer jobs or choices"
    )


def _at_least(known: ProgramSolution | None, reached: float, proven: float) -> ProgramSolution | None:
    """An answer to all of the program, of which so much is proven."""
    return None if known is None else replace(known, bound=min(known.value, reached, proven))


def _on_fewer(instance: ProcureInstance, choice: Choice) -> ProcureInstance | None:
    """The instance with only the pools of a choice; None where those are all."""
    used = {p for place in choice.run.values() for p in place}
    columns = [c for c in instance.columns if used.issuperset(c.place)]
    return replace(instance, columns=columns) if len(columns) < len(instance.columns) else None


def _choice(instance: ProcureInstance, variant: ProcureVariant, program: ProcureProgram, outcome: Outcome) -> Choice:
    value = outcome.value
    run: dict[int, Place] = {}
    days: dict[int, float] = {}
    free = {j: list(jobs) for j, jobs in program.alike.items()}
    for key, x in sorted(program.run.items(), key=lambda item: program.days[item[0]]):
        count = round(value(x))
        for j in free[key[0]][:count]:
            run[j], days[j] = key[1], value(program.work[key]) / count
        del free[key[0]][:count]
    hold = {p: n for p, x in program.hold.items() if (n := round(value(x))) > 0}
    return Choice(
        run,
        days,
        hold,
        {p: max(0.0, value(x)) / hold[p] for p, x in program.late.items() if p in hold},
        _most(instance, variant, program, outcome),
    )


def _most(
    instance: ProcureInstance, variant: ProcureVariant, program: ProcureProgram, outcome: Outcome
) -> dict[str, float]:
    """How much there is of what is sought: of nodes owned as many as power allows, not only as many as must work."""
    most = {resource: float(round(outcome.value(x))) for resource, x in program.most.items()}
    limit = instance.asked.limits.power
    if limit is None or variant.minimise == "power":
        return most
    spare = variant.moved.get("power", limit) - outcome.value(program.use["power"])
    watts = own_watts(instance)
    for resource in program.shared:
        if resource.name in most and resource.name in watts:
            more = min(resource.capacity - most[resource.name], math.floor(spare / watts[resource.name] + EPS))
            most[resource.name] += max(0.0, more)
            spare -= max(0.0, more) * watts[resource.name]
    return most


def _ordered(
    instance: ProcureInstance, variant: ProcureVariant, program: ProcureProgram, choice: Choice
) -> tuple[Arranged, Choice]:
    """A calendar of what was chosen; where work beyond the tokens has no room, with as much of it as has."""
    limit = monthly_limit(instance.asked, variant)
    months = None
    if limit is not None and "monthly" not in variant.dropped:
        held = held_in_months(instance, choice.hold, max(job.deadline_day for job in instance.jobs) + FAR)
        months = [limit - usd for usd in held]
    arrangement = arranged(instance, variant, program.shared, choice, months)
    least = {j: program.days[program.first(j), place] for j, place in choice.run.items()}
    if not arrangement.collisions or not variant.works_on:
        return arrangement, choice

    def worked(share: float) -> Choice:
        return replace(choice, days={j: least[j] + share * (choice.days[j] - least[j]) for j in least})

    def order(share: float) -> Arranged:
        return arranged(instance, variant, program.shared, worked(share), months)

    best = order(0.0)
    if best.collisions:
        return best, choice
    most = largest(lambda share: not order(share).collisions)
    return replace(order(most), proven=False), worked(most)


def _corrected(
    program: ProcureProgram, instance: ProcureInstance, choice: Choice, arrangement: Arranged, outcome: Outcome, n: int
) -> bool:
    """Whether the program got another constraint, or a price, for the order of jobs."""
    for m, collision in enumerate(arrangement.collisions):
        forbid(program, instance, choice, collision, f"{n}_{m}")
    changed = bool(arrangement.collisions)
    for m, (jobs, usd) in enumerate(arrangement.lost_usd.items()):
        paid = sum(
            outcome.value(program.pause[key]) * instance.jobs[key[0]].restart_days
            * sum(instance.pools[p].day_usd for p in key[1])
            for key in keys(program, choice, jobs) if key in program.pause
        )  # fmt: skip
        if paid < usd * (1 - 1e-6) - 1e-2:
            charge(program, instance, choice, jobs, usd, f"{n}_{m}")
            changed = True
    return changed


def _solution_of(
    program: ProcureProgram, instance: ProcureInstance, outcome: Outcome, choice: Choice, arrangement: Arranged
) -> ProgramSolution:
    """The answer, with what it comes to as the calendar has it: its pauses, and its work beyond the tokens."""
    values = dict(outcome.values)
    for key in keys(program, choice, choice.run):
        mine = [j for j in program.alike[key[0]] if choice.run[j] == key[1]]
        if key in program.pause:
            values[f"pause_{name(*key)}"] = float(sum(len(arrangement.times[j]) - 1 for j in mine))
        for x in program.work[key].coefficients:
            if x.startswith("work_"):
                values[x] = sum(choice.days[j] for j in mine)
    value = replace(outcome, values=values).value
    calendar = stretches(instance, choice.run, arrangement.times)
    copies = {p: 1 + max(s.copy for s in calendar if s.pool == p) for place in choice.run.values() for p in place}
    owned = {p: n for p, n in copies.items() if instance.pools[p].way == "own"}
    starts = {p: day for p, day in arrangement.starts.items() if day > instance.pools[p].start_day + EPS}
    solution = ProgramSolution(
        {**choice.hold, **owned},
        dict(choice.run),
        calendar,
        value(program.problem.objective),
        outcome.bound,
        {limit: value(expression) for limit, expression in program.use.items()},
        value(program.cost),
        value(program.tokens),
        starts,
    )
    return merged(instance, solution)


# ---- objectives that take several programs ---------------------------------------------------------------------------


def best(
    instance: ProcureInstance, variant: ProcureVariant, objective: str, settings: Settings = USUAL
) -> ProgramSolution | None:
    """The best answer under an objective of the question; its value is days, US dollars, kilograms, or (negative)
    million tokens, in all or per US dollar.
    """
    if objective == "time":
        return _earliest(instance, variant, settings)
    if objective == "tokens-per-dollar":
        return _most_per_dollar(instance, variant, settings)
    if objective == "tokens":
        return _most_tokens(instance, variant, settings)
    solution = solve(instance, replace(variant, minimise=objective), settings)
    return None if solution is None else replace(solution, value=solution.value * 1e3, bound=solution.bound * 1e3)


def _earliest(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """Bisection on the day by which all is done; every step is a program that asks for the least cost by that day."""
    earliest = solve(instance, variant, settings)
    if earliest is None:
        return None
    first = _no_earlier(instance, variant)
    high = earliest.done
    asked_low = False
    low = first
    while high - low > SHORTEST_STEP * high:
        # The best thinkable is often reached: it is asked first, then the middle.
        middle = (low + high) / 2 if asked_low else low
        asked_low = True
        try:
            trial = solve(instance, replace(variant, latest=middle * (1 + 1e-9)), settings)
        except KeyboardInterrupt:
            settings.watch.stop()
            break
        if trial is None:
            low = middle
        else:
            earliest = trial
            high = min(middle, trial.done)
        settings.watch.found(high, low)
    if monthly_limit(instance.asked, variant) is not None and _holds(instance):
        # Not every first day was tried of what was not found.
        sooner = _earliest(instance, _without_monthly(variant), settings)
        low = first if sooner is None else sooner.bound
    return replace(earliest, value=high, bound=min(low, high))


def _no_earlier(instance: ProcureInstance, variant: ProcureVariant) -> float:
    """A day before which no answer is done: the last job alone where it is done first."""
    first: dict[int, float] = {}
    for c in instance.columns:
        ready = max(instance.jobs[c.job].release_day, *(instance.pools[p].start_day for p in c.place))
        done = ready + c.days * variant.scale
        first[c.job] = min(done, first.get(c.job, FAR))
    return max(first.values())


def _most_tokens(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """The most tokens within all limits; and of the answers with so many the cheapest."""
    most = solve(instance, replace(variant, minimise="tokens"), settings)
    if most is None:
        return None
    enough = most.tokens * (1 - SAFELY)
    cheapest = _tried(instance, replace(variant, minimise="cost", least_tokens=enough), settings)
    # An order that the jobs have may leave less room than the program saw.
    chosen = most if cheapest is None or cheapest.tokens < enough * (1 - SAFELY) else cheapest
    return replace(chosen, value=-chosen.tokens, bound=min(most.bound * MILLION, -most.tokens))


def _most_per_dollar(instance: ProcureInstance, variant: ProcureVariant, settings: Settings) -> ProgramSolution | None:
    """Dinkelbach (1967): the ratio's optimum is where ``max tokens - ratio cost`` is 0."""
    solution = solve(instance, variant, settings)
    if solution is None:
        return None
    least_cost = solution.bound * 1e3
    bound = math.inf
    for _ in range(RATIO_ROUNDS):
        if solution.cost <= 0:
            return replace(solution, value=-math.inf, bound=-math.inf)
        price = solution.cost / solution.tokens
        trial = solve(instance, replace(variant, per_million_tokens=price), settings)
        if trial is None:
            break
        # cost - price tokens >= bound for every answer, so tokens / cost <= (1 - bound / cost) / price.
        excess = min(trial.bound * 1e3, 0.0)
        bound = (1.0 - excess / max(least_cost, 1e-9)) / price
        if trial.cost / trial.tokens >= price * (1 - 1e-9):
            break
        solution = trial
    ratio = solution.tokens / solution.cost
    return replace(solution, value=-ratio, bound=-max(bound, ratio))
