"""From a question about post-training to its placements, best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.base.errors import NoAnswer
from planner.base.version import __version__
from planner.cost.decoding import Rollout, Served
from planner.models.parameters import parameters
from planner.models.workload import workload
from planner.question.runtimes import runtime_of
from planner.rl import answer, candidates, nearest, problem, program
from planner.rl.answer import colocated_plan, plan_apart
from planner.rl.candidates import Training, WeightsMoved
from planner.rl.problem import PostTraining
from planner.rl.program import PlacementPoint
from planner.schema.choices import Objective, Placement
from planner.schema.plan import Assumption, Generator
from planner.schema.rl import RLFrontPoint, RLPlan, RLPlanSet, RLSearch


@dataclass
class _Counts:
    """What was looked at."""

    trainers: int = 0
    splits: int = 0
    programs: int = 0
    proven: bool = True
    gap: float = 0.0
    trained: dict[tuple[int, int], Training | None] = field(default_factory=dict)
    """By pool and accelerators: a whole pool trains alike whether it rolls out in turns or not."""


def plan(asked: PostTraining) -> RLPlanSet:
    """The best step of every placement, the best of all first.

    Raises:
        WrongQuestion: a layout or a precision that cannot be.
        NoAnswer: nothing fits; the message says what would.
    """
    problem.holds(asked.machines, asked.work.model)
    served = served_on_pools(asked)
    counts = _Counts()
    plans: list[RLPlan] = []
    if "colocated" in asked.tried and asked.split is None:
        for place in range(len(asked.machines)):
            trained = _trained(asked, place, asked.machines[place].accelerators, counts)
            together = colocated_plan(asked, trained, served[place]) if trained else None
            plans += [together] if together else []
    apart = {name: values for name, values in asked.tried.items() if name != "colocated"}
    if apart and sum(machine.accelerators for machine in asked.machines) > 1:
        trainings = [
            trained for place, size in _trainers(asked) if (trained := _trained(asked, place, size, counts)) is not None
        ]
        counts.splits = len(trainings)
        for placement, stalenesses in apart.items():
            for stale in stalenesses:
                plans += _apart(asked, served, trainings, placement, stale, counts)
    if not plans:
        raise NoAnswer(nothing_fits(asked))
    best_first = sorted(plans, key=lambda plan: _value(asked.objective, plan))
    search = RLSearch(
        trainers=counts.trainers,
        replicas=sum(len(layout.tp) for layout in layouts_of(asked)),
        splits=counts.splits,
        programs=counts.programs,
        proven=counts.proven,
        gap=counts.gap,
    )
    return document(asked, best_first, search)


def document(asked: PostTraining, best_first: Sequence[RLPlan], search: RLSearch) -> RLPlanSet:
    """Placements as a document: the best of each, and the fastest and cheapest at every staleness."""
    engine = asked.work.engine
    assumptions = [Assumption(what=what, why=why, flag=flag) for what, why, flag in asked.assumptions]
    return RLPlanSet(
        generator=Generator(version=__version__, seed=0, inputs=dict(asked.inputs)),
        work=answer.described(asked.work),
        engine=engine.id,  # type: ignore[arg-type]
        engine_release=asked.work.engine_release,
        objective=asked.objective,
        pools=tuple(f"{machine.cluster.node.id}:{machine.cluster.count}" for machine in asked.machines),
        plans=tuple(
            replace(plan, rank=rank, nearest=nearest.nearest(asked, plan))
            for rank, plan in enumerate(_one_of_each(best_first), 1)
        ),
        front=_front(best_first),
        search=search,
        site=asked.learned.section(best_first[0], engine.id, asked.like) if asked.learned else None,
        assumptions=tuple(assumptions),
    )


def served_on_pools(asked: PostTraining) -> list[Served]:
    """The policy as the engine serves it on every pool."""
    work = workload(asked.work.model, method="full")
    served = []
    for machine in asked.machines:
        runtime, _ = runtime_of(asked.known, asked.training.runtime, machine.cluster.accelerator, work)
        served.append(problem.served(asked, machine.cluster, runtime))
    return served


def layouts_of(asked: PostTraining) -> list[Rollout]:
    """Layouts of replicas on every pool, as far as the question leaves them open."""
    return [problem.replica_layouts(asked.work.model, machine.cluster, asked.replica) for machine in asked.machines]


def _trainers(asked: PostTraining) -> list[tuple[int, int]]:
    """(Pool, accelerators) that may train beside a rollout elsewhere."""
    if asked.split is not None:
        return [
            (p, asked.split[0]) for p, machine in enumerate(asked.machines) if asked.split[0] <= machine.accelerators
        ]
    several = len(asked.machines) > 1
    pairs = []
    for place, machine in enumerate(asked.machines):
        sizes = machine.sizes()
        kept = sizes if not several else tuple(size for size in sizes if size * 2 == machine.accelerators)
        pairs += [(place, size) for size in (*kept, *([machine.accelerators] if several else []))]
    return pairs


def _trained(asked: PostTraining, place: int, size: int, counts: _Counts) -> Training | None:
    """A pool's training, searched once for every placement."""
    if (place, size) in counts.trained:
        return counts.trained[place, size]
    training = candidates.trained(asked, place, size)
    counts.trained[place, size] = training
    if training is not None:
        counts.trainers += training.trainer.candidates
        counts.proven = counts.proven and training.trainer.proven
    return training


def _apart(
    asked: PostTraining,
    served: Sequence[Served],
    trainings: Sequence[Training],
    placement: Placement,
    stale: float,
    counts: _Counts,
) -> list[RLPlan]:
    """The fastest step of one placement and staleness on whole nodes, and the cheapest if that is another."""
    ahead = stale if placement == "async" else 0.0
    offered = [
        candidates.kept(
            candidates.replicas(asked, place, served[place], layout, (asked.work.engine.memory_share, 0.0), ahead)
        )
        for place, layout in enumerate(layouts_of(asked))
    ]
    sizes = [machine.accelerators for machine in asked.machines]
    point = PlacementPoint(
        placement=placement,
        staleness=stale,
        updates=asked.work.updates,
        sequences=asked.work.demand.sequences,
        trainings=trainings,
        offered=offered,
        sizes=sizes,
        left=None if asked.split is None else asked.split[1],
        usd=[1.0 if machine.usd_per_s is None else machine.usd_per_s for machine in asked.machines],
        weights=[synchronised(asked, served, trained, sum(sizes)) for trained in trainings],
        other_s=asked.excess.other,
    )
    solved = program.solve(point)
    if solved is None:
        return []
    counts.programs += solved.programs
    counts.gap = max(counts.gap, solved.gap)
    choices = dict.fromkeys((solved.fastest, solved.cheapest))
    nodes = [machine.cluster.node.accelerators for machine in asked.machines]
    filled = [program.in_whole_nodes(point, choice, nodes) for choice in choices]
    # What fills a node beside a trainer that sets the pace costs more: the cheapest stands as it was found, too.
    return [plan_apart(asked, point, choice) for choice in dict.fromkeys((*filled, solved.cheapest))]


def synchronised(asked: PostTraining, served: Sequence[Served], trained: Training, total: int) -> WeightsMoved:
    """The way of weights to replicas elsewhere."""
    used = trained.trainer.accelerators
    left = [n for n, pool in enumerate(asked.machines) if n != trained.pool or pool.accelerators > used]
    slowest = served[min(left, key=lambda n: float(served[n].network.nic))]
    sizes = (trained.trainer.accelerators, max(total - trained.trainer.accelerators, 1))
    return candidates.synchronised(asked.work, trained, served[trained.pool], slowest, sizes, True)


def _value(objective: Objective, plan: RLPlan) -> float:
    """What is best is smallest: of a step, or of the steps in its place by a stated law of learning."""
    if objective == "time" or plan.usd_per_step is None:
        return plan.learning_step_s
    return plan.usd_per_step * (plan.steps_times or 1.0)


def _one_of_each(plans: Sequence[RLPlan]) -> list[RLPlan]:
    """The best of every placement, best first."""
    best: dict[str, RLPlan] = {}
    for plan in plans:
        best.setdefault(plan.placement, plan)
    return list(best.values())


def _front(plans: Sequence[RLPlan]) -> tuple[RLFrontPoint, ...]:
    """The fastest and the cheapest at every staleness."""
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


def nothing_fits(asked: PostTraining) -> str:
    """Why there is no placement, and what would relax it."""
    weights = 2.0 * parameters(asked.work.model).total / 2**30
    have = ", ".join(
        f"{cluster.accelerators:,} x {cluster.accelerator.id} ({cluster.accelerator.memory / 2**30:,.0f} GiB)"
        for cluster in (machine.cluster for machine in asked.machines)
    )
    return (
        f"no placement fits: weights of {weights:,.0f} GiB in bf16, and responses up to "
        f"{asked.work.demand.lengths.cap:,.0f} tokens, on {have}; take more accelerators, a lower cap (--response), "
        "--rollout-precision fp8, or leave out --pin, --rollout and --split"
    )
