"""On which accelerators a training fits, and what fits on some: many small searches, side by side.

An accelerator is tried alone, then in twos, fours and so on: the fewest of each that hold the training are listed, and
the cheapest and the fastest of all that were tried. The other way round, models of the library are tried from the
largest down, and sequences doubled while they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from planner.axes.table import PRECISION
from planner.base import stopping
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.figures import cost_inputs, matrix_formats
from planner.models.parameters import parameters
from planner.models.workload import library, workload
from planner.planning import order, ranked
from planner.question import pools
from planner.question.given import joined
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.question.request import Request
from planner.question.runtimes import trains
from planner.question.search_problem import prepare
from planner.schema.hardware import Cluster
from planner.schema.listings import FittingTraining
from planner.schema.plan import Plan
from planner.schema.workload import Model, Workload

SHORTEST, LONGEST = 1024, 2**20
"""Tokens of a sequence between which lengths are doubled."""
Advance = Callable[[int], None]


def on_catalog(
    known: Catalog, model: str | Model, asked: PlanOptions, most: int, advance: Advance | None = None
) -> tuple[FittingTraining, ...]:
    """The fewest of every accelerator that hold the training, fewest first, with the cheapest and the fastest of all.

    Arguments:
        known: Whose accelerators are tried.
        model: What is trained.
        asked: How: method, sequence, batch, tokens and so on.
        most: Accelerators of one kind that are tried together, at most.
        advance: Told of every accelerator that was tried.

    Raises:
        NoAnswer: it fits on none.
    """
    every, fewest = [], []
    for part in accelerators(known):
        found = [fit for count in _doubling(1, most) if (fit := _on(known, model, part, count, asked))]
        if stopping.asked():  # what was being looked at is not found in full
            break
        every += found
        fewest += found[:1]
        if advance is not None:
            advance(1)
    if not every and stopping.asked():
        raise KeyboardInterrupt
    if not every:
        raise NoAnswer(
            f"no {most:,} accelerators of one kind in the catalog hold it; allow more (--most), or train less"
        )
    marked = [replace(fit, best=_best(fit, every)) for fit in every]
    listed = [fit for fit in marked if fit.best or any(fit == replace(one, best=fit.best) for one in fewest)]
    return tuple(sorted(listed, key=lambda fit: (fit.accelerators, fit.capacity_bytes, fit.accelerator)))


def on_accelerators(
    known: Catalog, models: Sequence[Model], text: str, asked: PlanOptions, top: int, advance: Advance | None = None
) -> tuple[FittingTraining, ...]:
    """The largest models that fit on ``RTX-4090:2``, largest first, each with the longest sequences that do.

    Raises:
        WrongQuestion: no such accelerator, or no count.
        NoAnswer: none of the models fits.
    """
    found: list[FittingTraining] = []
    try:
        clusters = pools.of_accelerators(known, text if ":" in text else f"{text}:1", asked.fabric, asked.region)
    except WrongQuestion as error:
        raise WrongQuestion(str(error).replace("--accelerators", "--on")) from None
    if len(clusters) != 1:
        raise WrongQuestion(f"--on {text}: no one kind of node holds so many; ask for as many as whole nodes have")
    for model in sorted(models, key=lambda each: -parameters(each).total):
        fit = _longest(known, model, clusters[0], asked) if len(found) < top else None
        if stopping.asked():
            break
        if fit:
            found.append(fit)
        if advance is not None:
            advance(1)
    if not found and stopping.asked():
        raise KeyboardInterrupt
    if not found:
        none = f"{models[0].id} does not fit" if len(models) == 1 else f"of {len(models):,} models none fits"
        raise NoAnswer(f"{none} on {text}: --method {asked.method}, from {asked.seq or SHORTEST:,} tokens a sequence")
    return tuple(found)


def trainable(known: Sequence[Model] | None = None) -> list[Model]:
    """Decoders of the library: what is fine-tuned."""
    every = library()
    return [model for model in (known or [every[entry] for entry in every]) if model.family == "decoder"]


def accelerators(known: Catalog) -> list[str]:
    """Those that a node holds, by their names, but for what is only announced."""
    held = {node.accelerator for node in known.nodes.values()}
    return sorted(part for part in held if not known.accelerator(part).announced)


def precisions(asked: PlanOptions) -> list[str]:
    """Precisions that are asked for; bf16 where none is.

    Raises:
        WrongQuestion: a name that is none.
    """
    named = (joined(asked.precision) or "bf16").split(",")
    for name in named:
        if name not in PRECISION.choices:
            raise WrongQuestion(f"--precision {name}: choose {', '.join(PRECISION.choices)}")
    return named


def _doubling(start: int, end: int) -> Iterator[int]:
    while start <= end:
        yield start
        start *= 2


def _best(fit: FittingTraining, every: Sequence[FittingTraining]) -> tuple[str, ...]:
    """What of all a fit is; of equals the first."""
    priced = [each for each in every if each.usd is not None]
    of = {
        "fewest": min(every, key=lambda each: (each.accelerators, each.accelerators * each.capacity_bytes)),
        "cheapest": min(priced, key=lambda each: (each.usd or 0.0, each.hours), default=None),
        "fastest": min(every, key=lambda each: (each.hours, each.accelerators)),
    }
    return tuple(name for name, chosen in of.items() if chosen is fit)


def _on(known: Catalog, model: str | Model, part: str, count: int, asked: PlanOptions) -> FittingTraining | None:
    """The plan that is recommended on so many accelerators; None where none fits or nothing trains so there."""
    clusters = pools.of_accelerators(known, f"{part}:{count}", asked.fabric, asked.region)
    return _recommended(known, model, clusters[0], asked) if len(clusters) == 1 else None


def _longest(known: Catalog, model: Model, cluster: Cluster, asked: PlanOptions) -> FittingTraining | None:
    """With the longest sequences: from the length asked for, or the shortest, doubled while they fit."""
    found = None
    for length in _doubling(SHORTEST, LONGEST) if asked.seq is None else (asked.seq,):
        fit = _recommended(known, model, cluster, replace(asked, seq=length))
        if fit is None:
            break
        found = fit
    return found


def _recommended(known: Catalog, model: str | Model, cluster: Cluster, asked: PlanOptions) -> FittingTraining | None:
    try:
        _, wanted = request(model, cluster, asked, known=known)
        if least_bytes(wanted.workload) > cluster.accelerators * cluster.accelerator.memory:
            return None
        plans = ranked.search(known, prepare(known, replace(wanted, top=1)), top=order.CHOSEN_AMONG).plans
    except WrongQuestion:
        if not _trains(known, cluster, model, asked):
            return None
        raise
    return _fit(plans[order.recommended(plans)], wanted) if plans else None


def _trains(known: Catalog, cluster: Cluster, model: str | Model, asked: PlanOptions) -> bool:
    """Whether the runtime asked for, or any of the method, runs on the accelerator, and that has the precision."""
    work, part = workload(model, method=asked.method, task=asked.task), cluster.accelerator
    every = [each for each in known.runtimes.values() if trains(each, work)]
    named = [known.runtime(asked.runtime.partition("@")[0])] if asked.runtime else every
    needed = [*precisions(asked), *(["fp8"] if work.method.base == "fp8" else [])]
    able = any(part.vendor in each.vendors for each in named)
    return able and all(matrix_formats.can_train_in(part, each) for each in needed)


def least_bytes(workload: Workload) -> float:
    """Bytes of the weights alone, however they are cut."""
    quantised = cost_inputs.frozen_bytes(workload, None)
    return (quantised or 2.0) * parameters(workload.model).total


def _fit(plan: Plan, wanted: Request) -> FittingTraining:
    memory, pool, money = plan.prediction.memory, plan.cluster.pools[0], plan.money
    interval = plan.prediction.intervals.get("step_time_s")
    hours_a_second = 24.0 * money.days / plan.prediction.step_time_s
    return FittingTraining(
        model=plan.workload.model,
        parameters=plan.workload.parameters,
        sequence=plan.workload.sequence,
        batch=plan.batch.global_,
        accelerator=pool.accelerator,
        accelerators=plan.cluster.accelerators,
        node=wanted.cluster.node.id,
        memory_bytes=memory.total_bytes,
        capacity_bytes=memory.capacity_bytes,
        oom_chance=memory.oom_chance,
        step_time_s=plan.prediction.step_time_s,
        tokens_per_s=plan.prediction.tokens_per_s,
        tokens=plan.workload.tokens,
        hours=24.0 * money.days,
        usd=money.usd_total,
        price=money.price,
        hours_low=None if interval is None else hours_a_second * interval.low,
        hours_high=None if interval is None else hours_a_second * interval.high,
    )
