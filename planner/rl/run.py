"""From a question about post-training to its placements, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from planner.base.errors import NoAnswer
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.models.parameters import parameters
from planner.models.workload import workload
from planner.question.plan_options import PlanOptions
from planner.question.reading import _runtime
from planner.rl import candidates, problem, program
from planner.rl.answer import Found, colocated_plan, plan_apart
from planner.rl.candidates import Training
from planner.rl.constants import Fitted, fitted
from planner.rl.decode import Rollout, Served
from planner.rl.problem import Machines, Work
from planner.rl.program import Point
from planner.schema.choices import Objective, Placement
from planner.schema.plan import Assumption, Generator
from planner.schema.rl import RLFrontPoint, RLPlan, RLPlanSet, RLSearch


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question with everything looked up."""

    known: Catalog
    work: Work
    machines: Sequence[Machines]
    training: PlanOptions
    """Runtime, precision, pins, optimizer and risk of the trainer."""
    replica: Mapping[str, int]
    """Pinned degrees of a replica."""
    split: tuple[int, int] | None
    tried: Mapping[Placement, tuple[float, ...]]
    objective: Objective
    inputs: Mapping[str, str]
    assumptions: Sequence[tuple[str, str, str]] = ()


@dataclass
class _Counts:
    """What was looked at."""

    trainers: int = 0
    splits: int = 0
    programs: int = 0
    proven: bool = True
    gap: float = 0.0


def plan(asked: Asked) -> RLPlanSet:
    """The best step of every placement, the best of all first.

    Raises:
        WrongQuestion: a layout or a precision that cannot be.
        NoAnswer: nothing fits; the message says what would.
    """
    problem.holds(asked.machines, asked.work.model)
    fit = fitted()
    served = _served(asked, fit)
    counts = _Counts()
    plans: list[RLPlan] = []
    front: list[RLFrontPoint] = []
    if "colocated" in asked.tried and asked.split is None:
        for place in range(len(asked.machines)):
            trained = _trained(asked, place, asked.machines[place].accelerators, fit, counts)
            found = colocated_plan(_found(asked, fit), trained, served[place]) if trained else None
            plans += [found] if found else []
    apart = {name: values for name, values in asked.tried.items() if name != "colocated"}
    if apart and sum(each.accelerators for each in asked.machines) > 1:
        trainings = [
            trained
            for place, size in _trainers(asked)
            if (trained := _trained(asked, place, size, fit, counts)) is not None
        ]
        counts.splits = len(trainings)
        for placement, stalenesses in apart.items():
            for stale in stalenesses:
                plans += _apart(asked, fit, served, trainings, placement, stale, counts)
    if not plans:
        raise NoAnswer(_nothing(asked))
    best_first = sorted(plans, key=lambda plan: _value(asked.objective, plan))
    front = _front(best_first)
    kept = _one_of_each(best_first)
    return RLPlanSet(
        generator=Generator(version=__version__, seed=0, inputs=dict(asked.inputs)),
        work=_found(asked, fit).described(),
        engine=asked.work.engine.id,  # type: ignore[arg-type]
        objective=asked.objective,
        pools=tuple(f"{each.cluster.node.id}:{each.cluster.count}" for each in asked.machines),
        plans=tuple(replace(plan, rank=rank) for rank, plan in enumerate(kept, 1)),
        front=front,
        search=RLSearch(
            trainers=counts.trainers,
            replicas=sum(len(layout.tp) for layout in _layouts(asked)),
            splits=counts.splits,
            programs=counts.programs,
            proven=counts.proven,
            gap=counts.gap,
        ),
        evidence="",
        assumptions=tuple(Assumption(what=what, why=why, flag=flag) for what, why, flag in asked.assumptions),
    )


def _found(asked: Asked, fit: Fitted) -> Found:
    return Found(work=asked.work, machines=asked.machines, fit=fit, replica=asked.replica)


def _served(asked: Asked, fit: Fitted) -> list[Served]:
    """The policy as the engine serves it on each pool."""
    work = workload(asked.work.model, method="full")
    served = []
    for each in asked.machines:
        runtime, _ = _runtime(asked.known, asked.training.runtime, each.cluster.accelerator, work)
        served.append(problem.served(asked.known, asked.work.model, asked.work, each.cluster, runtime, fit.across_s))
    return served


def _layouts(asked: Asked) -> list[Rollout]:
    return [problem.replica_layouts(asked.work.model, each.cluster, asked.replica) for each in asked.machines]


def _trainers(asked: Asked) -> list[tuple[int, int]]:
    """(Pool, accelerators) that may train beside a rollout elsewhere."""
    if asked.split is not None:
        return [(p, asked.split[0]) for p, each in enumerate(asked.machines) if asked.split[0] <= each.accelerators]
    several = len(asked.machines) > 1
    pairs = []
    for place, each in enumerate(asked.machines):
        sizes = each.sizes()
        kept = sizes if not several else tuple(size for size in sizes if size * 2 == each.accelerators)
        pairs += [(place, size) for size in (*kept, *([each.accelerators] if several else []))]
    return pairs


def _trained(asked: Asked, place: int, size: int, fit: Fitted, counts: _Counts) -> Training | None:
    """A pool's training, searched once for every placement."""
    found = candidates.trained(asked.known, asked.work, asked.machines, place, size, asked.training, fit)
    if found is not None:
        counts.trainers += found.trainer.candidates
        counts.proven = counts.proven and found.trainer.proven
    return found


def _apart(
    asked: Asked,
    fit: Fitted,
    served: Sequence[Served],
    trainings: Sequence[Training],
    placement: Placement,
    stale: float,
    counts: _Counts,
) -> list[RLPlan]:
    """The fastest step of one placement and staleness, and the cheapest if that is another."""
    ahead = stale if placement == "async" else 0.0
    offered = [
        candidates.kept(
            candidates.replicas(
                served[place], layout, asked.work, place, asked.work.engine.memory_share, 0.0, ahead, fit
            )
        )
        for place, layout in enumerate(_layouts(asked))
    ]
    sizes = [each.accelerators for each in asked.machines]
    point = Point(
        placement=placement,
        staleness=stale,
        updates=asked.work.updates,
        sequences=asked.work.demand.sequences,
        trainings=trainings,
        offered=offered,
        sizes=sizes,
        left=None if asked.split is None else asked.split[1],
        usd=[1.0 if each.usd_per_s is None else each.usd_per_s for each in asked.machines],
        sync_s=[_sync(asked, fit, served, each, sum(sizes)) for each in trainings],
    )
    solved = program.solve(point)
    if solved is None:
        return []
    counts.programs += solved.programs
    counts.gap = max(counts.gap, solved.gap)
    choices = dict.fromkeys((solved.fastest, solved.cheapest))
    return [plan_apart(_found(asked, fit), point, choice) for choice in choices]


def _sync(asked: Asked, fit: Fitted, served: Sequence[Served], trained: Training, total: int) -> float:
    """Seconds of weights to replicas elsewhere, and of what a step takes beside its phases."""
    slowest = min(served, key=lambda each: float(each.network.nic))
    sizes = (trained.trainer.accelerators, max(total - trained.trainer.accelerators, 1))
    return candidates.synchronised(asked.work, trained, served[trained.pool], slowest, sizes, True) + fit.other


def _value(objective: Objective, plan: RLPlan) -> float:
    """What is best is smallest."""
    if objective == "time" or plan.usd_per_step is None:
        return plan.step_s
    return plan.usd_per_step


def _one_of_each(plans: Sequence[RLPlan]) -> list[RLPlan]:
    """The best of every placement, best first."""
    best: dict[str, RLPlan] = {}
    for each in plans:
        best.setdefault(each.placement, each)
    return list(best.values())


def _front(plans: Sequence[RLPlan]) -> tuple[RLFrontPoint, ...]:
    """The fastest and the cheapest at each staleness."""
    points = []
    for stale in sorted({plan.staleness for plan in plans}):
        alike = [plan for plan in plans if plan.staleness == stale]
        fastest = min(alike, key=lambda plan: plan.step_s)
        cheapest = min(alike, key=lambda plan: math.inf if plan.usd_per_step is None else plan.usd_per_step)
        for objective, plan in (("time", fastest), ("cost", cheapest)):
            used = plan.trainer.accelerators + sum(
                side.accelerators for side in plan.rollout if plan.placement != "colocated"
            )
            points.append(
                RLFrontPoint(
                    staleness=stale,
                    placement=plan.placement,
                    objective=objective,  # type: ignore[arg-type]
                    accelerators=used,
                    step_s=plan.step_s,
                    usd_per_step=plan.usd_per_step,
                )
            )
    return tuple(points)


def _nothing(asked: Asked) -> str:
    """Why there is no placement, and what would relax it."""
    weights = 2.0 * parameters(asked.work.model).total / 2**30
    have = ", ".join(
        f"{each.accelerators:,} x {each.cluster.accelerator.id} ({each.cluster.accelerator.memory / 2**30:,.0f} GiB)"
        for each in asked.machines
    )
    return (
        f"no placement fits: weights of {weights:,.0f} GiB in bf16, and responses up to "
        f"{asked.work.demand.lengths.cap:,.0f} tokens, on {have}; take more accelerators, a lower cap (--response), "
        "--rollout-precision fp8, or leave out --pin, --rollout and --split"
    )
