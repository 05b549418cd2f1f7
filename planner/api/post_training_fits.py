"""``fit`` of an RL post-training, from Python and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from planner.api import records
from planner.api.entry import asks
from planner.api.post_training import looked_up, taken_of
from planner.base import stopping, units
from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.progress import advancing
from planner.catalog import Catalog
from planner.catalog import cluster as whole_node
from planner.models.workload import find_model
from planner.planning import what_fits
from planner.question import pools
from planner.question.given import Progress
from planner.question.job_pools import part_of
from planner.question.plan_options import PlanOptions
from planner.question.reading import catalog_of
from planner.question.rl_options import RLFitQuestion, RLQuestion, training_options
from planner.rl import answer, fewest, problem
from planner.rl.problem import PostTraining
from planner.schema.hardware import Cluster
from planner.schema.record import Parts
from planner.schema.rl_fit import FittingStep, FittingSteps


@asks(RLFitQuestion)
def fit_rl(asked: RLFitQuestion) -> Parts[FittingStep]:
    """The fewest accelerators of every kind on which a post-training's step fits, or takes `step_time` at most.

    Args: as declared.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: it fits, or is as short, on none.

    >>> fit_rl("llama3.1-8b", "H100", response="1k/4k")[0].accelerators
    1
    """
    fits = fitted(asked, asked.progress).fits
    return Parts(fits, [step.row() for step in fits])


def by_flags(
    model: str | None, on: str | None, flags: Mapping[str, Any], options: PlanOptions, most: int | None,
    progress: Progress | None,
) -> FittingSteps:  # fmt: skip
    """The answer to ``fit --task grpo``.

    Raises:
        WrongQuestion: as :func:`fit_rl`, no model, or a flag that says nothing of such a training.
        NoAnswer: as :func:`fit_rl`.
    """
    if model is None:
        raise WrongQuestion(f"--task {options.task}: of which model? Name one: clusterwright fit qwen3-32b --task grpo")
    given: dict[str, Any] = {} if most is None else {"most": most}
    return fitted(RLFitQuestion(model, on, **flags, **given, **taken_of(options)), progress)


def fitted(asked: RLFitQuestion, progress: Progress | None) -> FittingSteps:
    """As :func:`fit_rl`; messages name flags.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: it fits, or is as short, on none.
    """
    if asked.split is not None:
        raise WrongQuestion(f"--split {asked.split}: fit finds how many accelerators; leave it out, or take plan")
    limit = _seconds(asked.step_time)
    options = training_options(asked)
    known = catalog_of(options)
    model = find_model(records.as_model(asked.model))
    work = problem.work(model, asked.task, asked)
    kinds = [asked.on] if asked.on is not None else what_fits.accelerators(known)
    steps: list[FittingStep] = []
    none: list[str] = []
    refused: list[WrongQuestion] = []
    with advancing(progress, "accelerators", len(kinds)) as advance:
        for kind in kinds:
            try:
                step = _of_kind(known, kind, asked, options, limit)
            except WrongQuestion as error:  # of one kind of many: it cannot train so, as where it has no bf16
                refused.append(error)
                step = None
            if stopping.asked():
                break
            if step is not None:
                steps.append(step)
            else:
                none.append(kind)
            if advance is not None:
                advance(1)
    if not steps and stopping.asked():
        raise KeyboardInterrupt
    if not steps and len(refused) == len(kinds):
        raise refused[0]
    if not steps:
        raise NoAnswer(_nowhere(asked, limit))
    rows = sorted(steps, key=lambda step: (step.accelerators, step.step_s))
    marked = tuple(replace(step, best=_best(step, rows)) for step in rows)
    return FittingSteps(
        work=answer.described(work), step_time_s=limit, most=asked.most, fits=marked, fits_none=tuple(none)
    )


def _seconds(text: float | str | None) -> float | None:
    """A wanted step time."""
    try:
        seconds = text if text is None or isinstance(text, int | float) else units.parse(text, "time")
    except units.UnitError as error:
        raise WrongQuestion(f"--step-time {text}: {error}; write for example --step-time '5 min'") from None
    if seconds is not None and not seconds > 0:
        raise WrongQuestion(f"--step-time {text}: must be above 0; write for example --step-time '5 min'")
    return seconds


def _of_kind(
    known: Catalog, kind: str, asked: RLFitQuestion, options: PlanOptions, limit: float | None
) -> FittingStep | None:
    """The fewest of a kind; None where no count does."""
    name, colon, count = kind.partition(":")
    if colon:
        raise WrongQuestion(f"--on {kind}: the fewest are looked for; write --on {name} --most {count or 8}")
    node = known.nodes.get(kind)
    try:
        part = pools.accelerator(known, kind) if node is None else node.accelerator
    except WrongQuestion as error:
        raise WrongQuestion(str(error).replace("--accelerators", "--on")) from None
    holding = [holder.accelerators for holder in known.nodes.values() if holder.accelerator == part]
    unit = max(holding) if node is None else node.accelerators
    whole = None if node is None else whole_node(known, node.id, 1, asked.fabric, asked.region)
    common = {field.name: getattr(asked, field.name) for field in fields(RLQuestion) if hasattr(asked, field.name)}

    def cluster(count: int) -> Cluster:
        if whole is None:
            return pools.so_many(known, part, count, asked.fabric, asked.region)[0]
        if count < unit:
            return replace(whole, node=part_of(whole.node, count))
        return replace(whole, count=count // unit)

    def question(count: int) -> PostTraining:
        return looked_up(RLQuestion(**common), [cluster(count)], options)

    return fewest.fitting(question, unit, asked.most, limit)


def _nowhere(asked: RLFitQuestion, limit: float | None) -> str:
    """Why nothing was found, and what would change that."""
    where = f"of {asked.on}" if asked.on is not None else "of one kind in the catalog"
    if limit is not None:
        return (
            f"--step-time {asked.step_time}: no {asked.most:,} accelerators {where} are as fast; allow more (--most), "
            "a longer step, or leave it out to see where a step fits"
        )
    held = [f"--{name}" for name in ("pin", "rollout", "placement") if getattr(asked, name)]
    without = f", or leave out {' and '.join(held)}" if held else ""
    return (
        f"no {asked.most:,} accelerators {where} hold a step; allow more (--most) or a lower cap (--response){without}"
    )


def _best(step: FittingStep, rows: list[FittingStep]) -> tuple[str, ...]:
    """What a row is of all; of equals the first."""
    priced = [row for row in rows if row.usd_per_step is not None]
    of = {
        "fewest": rows[0],
        "cheapest": min(priced, key=lambda row: (row.usd_per_step or 0.0, row.step_s), default=None),
        "fastest": min(rows, key=lambda row: row.step_s),
    }
    return tuple(name for name, chosen in of.items() if chosen is step)
