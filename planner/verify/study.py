"""Checks of a design study from its document alone: its trials, its best points and its sweeps tell one story."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from planner.schema.study import Brief, DesignPoint, StudyResult, Trial, Value, Values
from planner.verify.finding import Inconsistent, findings, same


def trials_are_counted(study: StudyResult) -> Iterator[str]:
    """As many trials as were tried and feasible, of as many points as the axes span."""
    spanned = math.prod(len(axis.values) for axis in study.question.axes)
    counts = (
        ("tried", study.search.tried, len(study.trials)),
        ("feasible", study.search.feasible, sum(trial.feasible for trial in study.trials)),
        ("outer_points", study.search.outer_points, spanned),
    )
    yield from (f"search.{name} is {stated:,}, and {counted:,} are there" for name, stated, counted in counts
                if stated != counted)  # fmt: skip
    numbers = [trial.number for trial in study.trials]
    if len({*numbers}) != len(numbers):
        yield "two trials have one number"
    if numbers == sorted(numbers) and spanned == len(numbers) and numbers != [*range(spanned)]:
        yield f"of {spanned:,} points the last is number {numbers[-1]:,}"


def trials_are_of_the_question(study: StudyResult) -> Iterator[str]:
    """Every trial has values of all axes, the objectives asked for, and a plan of each workload or a reason."""
    values = {axis.path: axis.values for axis in study.question.axes}
    models = [workload["model"] for workload in study.question.workloads]
    for trial in study.trials:
        where = f"trial {trial.number}"
        if trial.axes.keys() != values.keys() or any(trial.axes[name] not in values[name] for name in trial.axes):
            yield f"{where}: its axes are not of the question"
        if trial.objectives and {*trial.objectives} != {*study.question.objectives}:
            yield f"{where}: its objectives are not of the question"
        if trial.feasible != (bool(trial.objectives) and all(value <= 0 for value in trial.violations.values())):
            yield f"{where}: feasible is {trial.feasible}, its objectives and violations say otherwise"
        if trial.objectives and (trial.why or [brief.model for brief in trial.plan] != models):
            yield f"{where}: it has objectives, and not a plan of each workload"
        for brief in trial.plan:
            yield from (f"{where}: {says}" for says in (*_layout(brief, trial, study), *_options(brief, study)))


def _layout(brief: Brief, trial: Trial, study: StudyResult) -> Iterator[str]:
    """Ranks fill the nodes, and micro-batches the batch that was asked for."""
    degrees = brief.layout
    if "placement" in brief.options:
        if not (0 < brief.step_time_s < math.inf and min(degrees["trains"], degrees["rolls_out"]) > 0):
            yield f"{brief.step_time_s:g} s on {degrees['trains']} and {degrees['rolls_out']} accelerators"
        return
    per_node = trial.axes.get("node.accelerators")
    ranks = math.prod(degrees[name] for name in ("tp", "pp", "cp", "dp"))
    whole = study.question.base.get("count") is not None
    if whole and isinstance(per_node, int) and ranks != degrees["nodes"] * per_node:
        yield f"{ranks} ranks on {degrees['nodes']} nodes of {per_node}"
    if degrees["batch"] % (degrees["dp"] * degrees["micro"]):
        yield f"a batch of {degrees['batch']} is no multiple of dp {degrees['dp']} times micro {degrees['micro']}"
    asked = {
        workload["asked"].get("batch") for workload in study.question.workloads if workload["model"] == brief.model
    }
    if len(asked) == 1 and str(*asked).isdecimal() and int(str(*asked)) != degrees["batch"]:
        yield f"a batch of {degrees['batch']}, {', '.join(map(str, asked))} was asked for"
    if not (0 < brief.step_time_s < math.inf and 0 < brief.memory_bytes):
        yield f"{brief.step_time_s:g} s and {brief.memory_bytes:g} B"
    memory = trial.axes.get("accelerator.memory")
    if isinstance(memory, int | float) and brief.memory_bytes > memory:
        yield f"{brief.memory_bytes:g} B do not fit into {memory:g}"


def _options(brief: Brief, study: StudyResult) -> Iterator[str]:
    """Options that need a degree have it, degrees that need experts or stages have these, and names are known."""
    degrees = brief.layout
    if "placement" in brief.options:
        return
    shapes = (plan.workload.shape for point in (*study.best, *study.pareto) for plan in point.plan
              if plan.workload.model == brief.model)  # fmt: skip
    if any(shape.get("moe") is None for shape in shapes) and (degrees["ep"], degrees["etp"]) != (1, 1):
        yield f"ep {degrees['ep']} and etp {degrees['etp']} of a model without experts"
    if degrees["vpp"] > 1 and degrees["pp"] == 1:
        yield f"vpp {degrees['vpp']} of one stage"
    known: dict[str, Collection[object]] = {
        "zero": (0, 1, 2, 3),
        "sequence_parallel": (True, False) if degrees["tp"] > 1 else (False,),
    }
    for name, values in known.items():
        if name in brief.options and brief.options[name] not in values:
            yield f"{name} is {brief.options[name]!r}; {', '.join(map(str, values))} would be"


def points_are_trials(study: StudyResult) -> Iterator[str]:
    """Each point worth building is a feasible trial, with the plans that the trial has in short."""
    trials = {trial.number: trial for trial in study.trials}
    points: dict[int, DesignPoint] = {}
    for point in (*study.best, *study.pareto):
        trial = trials.get(point.number)
        if trial is None or not trial.feasible or point.axes != trial.axes:
            yield f"point {point.number} is no feasible trial with its axes"
            continue
        if points.setdefault(point.number, point) != point:
            yield f"point {point.number} is not the same among the best and on the front"
        if not (_alike(point.objectives, trial.objectives) and _alike(point.measures, trial.measures)):
            yield f"point {point.number} and its trial differ in objectives or measures"
        for step, brief in zip(point.steps(), _of(trial, steps=True), strict=False):
            sizes = step.trainer.accelerators, sum(side.accelerators for side in step.rollout)
            if (
                sizes != (brief.layout["trains"], brief.layout["rolls_out"])
                or step.placement != brief.options["placement"]
            ):
                yield f"point {point.number}, {brief.model}: its roles are not placed as the trial says"
            if not same(step.step_s, brief.step_time_s):
                yield f"point {point.number}, {brief.model}: a step of {step.step_s:.12g} s"
        for plan, brief in zip(point.plan, _of(trial, steps=False), strict=False):
            stated = {**brief.layout, **brief.options}
            if any(name in plan.axes and plan.axes[name] != value for name, value in stated.items()):
                yield f"point {point.number}, {brief.model}: the plan is not laid out as the trial says"
            if not same(plan.prediction.memory.total_bytes, brief.memory_bytes):
                yield f"point {point.number}, {brief.model}: {plan.prediction.memory.total_bytes:.12g} B of memory"
            if plan.rank != 1:
                yield f"point {point.number}, {brief.model}: its plan is number {plan.rank}"
            if not same(plan.prediction.step_time_s, brief.step_time_s):
                yield f"point {point.number}, {brief.model}: a step of {plan.prediction.step_time_s:.12g} s"


def _of(trial: Trial, *, steps: bool) -> list[Brief]:
    """The plans of a trial that are steps of post-trainings, or the others."""
    return [brief for brief in trial.plan if ("placement" in brief.options) == steps]


def sweeps_agree(study: StudyResult) -> Iterator[str]:
    """Sweeps are along axes of the question; one point has one first objective in all sweeps and trials."""
    if not (study.best and (study.sensitivity or study.pairs)):
        return
    first = study.question.objectives[0]
    best = study.best[0].axes
    values = {axis.path: axis.values for axis in study.question.axes}
    known = {_place(trial.axes): trial.objectives[first] for trial in study.trials if trial.objectives}
    points: list[tuple[Values, float | None]] = []
    for one in study.sensitivity:
        if one.elasticity != one.elasticities.get(first):
            yield f"sensitivity of {one.axis}: its elasticity is not that of {first}"
        for swept in one.sweep:
            points.append(({**best, one.axis: swept.value}, swept.objectives.get(first)))
            if swept.feasible and not swept.objectives:
                yield f"sensitivity of {one.axis}: {swept.value} is feasible and has no objectives"
            if swept.objectives and not (swept.feasible or study.question.constraints):
                yield f"sensitivity of {one.axis}: {swept.value} has objectives, no constraint, and is not feasible"
    for pair in study.pairs:
        rows, columns = pair.axes
        if pair.objective != first or [len(row) for row in pair.values] != [len(pair.columns)] * len(pair.rows):
            yield f"sweep of {rows} and {columns}: not a table of {first}"
            continue
        points += [({**best, rows: x, columns: y}, value) for x, line in zip(pair.rows, pair.values, strict=True)
                 for y, value in zip(pair.columns, line, strict=True)]  # fmt: skip
    for point, objective in points:
        if point.keys() != values.keys() or any(point[name] not in values[name] for name in point):
            yield f"a sweep has values that are not of the question: {point}"
        elif objective is not None and not same(known.setdefault(_place(point), objective), objective):
            yield f"a sweep says {objective:.12g} of a point that has {known[_place(point)]:.12g}"


def dollars_are_of_its_machines(study: StudyResult) -> Iterator[str]:
    """Figures that a dollar may go into are axes of the question, at the best point those of it, and each is raised."""
    paths = {axis.path for axis in study.question.axes}
    for figure in study.per_dollar or ():
        where = f"per_dollar of {figure.axis}"
        if figure.axis not in paths or not figure.value > figure.start:
            yield f"{where}: from {figure.start:g} to {figure.value:g} of no axis that is raised"
        elif figure.at == "best" and study.best and study.best[0].axes[figure.axis] != figure.start:
            yield f"{where}: the best point has {study.best[0].axes[figure.axis]}, it begins at {figure.start:g}"
        if (figure.per_percent is None) != (figure.paid <= 0.0):
            yield f"{where}: {figure.paid:+.3g} of the price, and {figure.per_percent} for a per cent of it"
        elif figure.per_percent is not None and not same(
            figure.per_percent, math.log1p(figure.step) / math.log1p(figure.paid)
        ):
            yield f"{where}: {figure.per_percent:.6g} for a per cent is not what step and price say"


def _place(axes: Values) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(axes.items()))


def _alike(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())


CHECKS = (
    trials_are_counted,
    trials_are_of_the_question,
    points_are_trials,
    sweeps_agree,
    dollars_are_of_its_machines,
)


def check(study: StudyResult) -> None:
    """Lets a study pass that holds.

    Raises:
        Inconsistent: it does not; the message says all that is wrong.
    """
    if violations := [*findings((rule.__name__, rule(study)) for rule in CHECKS)]:
        raise Inconsistent(tuple(violations))
