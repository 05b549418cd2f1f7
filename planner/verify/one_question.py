"""Plans that answer one question agree in what does not depend on the plan: its model, its machines, its prices.

A figure that is changed in one of them contradicts the others. Points of a set's front are held to each other likewise:
on as many accelerators, a second of a step costs as many days, and a day as many dollars.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from planner.schema.plan import FrontPoint, Plan, PlanSet
from planner.schema.plan_prediction import NearestRun
from planner.schema.procurement import Procurement
from planner.schema.study import StudyResult
from planner.verify.finding import Inconsistent, Violation, same

OF_ITS_OWN = ("tokens", "texts", "imbalance")
"""Of a workload, what a set over several batches or a plan says of its own."""
HARDWARE = (
    "accelerator", "vendor", "accelerators_per_node", "accelerator_memory_bytes", "peak_flops", "scaleup_bytes_per_s",
    "nics_per_node", "nic_bytes_per_s", "max_power_w", "changed", "expanded",
)  # fmt: skip
"""Of a pool, what does not depend on how a plan uses it."""
OF_A_RUN = (
    "lab", "model", "accelerator", "accelerators", "runtime", "precision", "degrees", "batch", "measured_s",
    "predicted_s",
)  # fmt: skip
"""Facts of a measured run, which do not depend on the plan that names it."""
OWN_RUN = "own run"
"""What a run of the site itself has for a lab."""
DEGREES = re.compile(r"\b(?:TP|PP|CP|DP)(\d+)")
"""Degrees of a label that make up its accelerators; those that it does not name are 1."""


def check(found: PlanSet | Procurement | StudyResult) -> None:
    """Lets a document pass whose plans agree.

    Raises:
        Inconsistent: they don't; the message says in what.
    """
    if isinstance(found, PlanSet):
        plans = [*found.plans, *(lost.plan for lost in found.contingency or ())]
        wrong = [*_workloads(plans), *_machines(plans), *_runs(plans), *_front(found), *_measured_step(found)]
    elif isinstance(found, Procurement):
        bought = [job for alternative in found.alternatives for job in alternative.workloads]
        jobs = {
            name: [job.plan for job in bought if job.plan and job.name == name] for name in {job.name for job in bought}
        }
        wrong = [says for plans in jobs.values() for says in _trained(plans)]
        for plans in jobs.values():  # machines of other makers have other frameworks
            for name in {plan.runtime.name for plan in plans}:
                wrong += _released([plan for plan in plans if plan.runtime.name == name])
        trained = [job.plan for job in bought if job.plan]
        wrong += [*_machines(trained), *_runs(trained)]
    else:
        designed = [plan for point in (*found.best, *found.pareto) for plan in point.plan]
        models = {plan.workload.model for plan in designed}
        wrong = [
            says for model in models for says in _workloads([p for p in designed if p.workload.model == model])
        ]  # its machines are what a study changes
        wrong += _runs(designed)
    if wrong:
        raise Inconsistent(tuple(Violation("plans_answer_one_question", says) for says in dict.fromkeys(wrong)))


def _differing(what: str, one: Any, other: Any, names: Iterable[str]) -> Iterator[str]:
    yield from (
        f"{what}: {name} is not one in all plans" for name in names if getattr(one, name) != getattr(other, name)
    )


def _workloads(plans: Sequence[Plan]) -> Iterator[str]:
    """What is trained, by which release, and from which inputs."""
    yield from _trained(plans)
    yield from _released(plans)


def _trained(plans: Sequence[Plan]) -> Iterator[str]:
    """What is trained, and from which inputs it was planned."""
    for one, other in pairwise(plans):
        names = [name for name in vars(one.workload) if name not in OF_ITS_OWN]
        yield from _differing("workload", one.workload, other.workload, names)
        yield from _differing("generator", one.generator, other.generator, ("version", "seed", "inputs"))


def _released(plans: Sequence[Plan]) -> Iterator[str]:
    """By which framework and release, and why each figure is assumed."""
    for one, other in pairwise(plans):
        yield from _differing("runtime", one.runtime, other.runtime, ("name", "release"))
    why: dict[tuple[str, str], str] = {}
    for plan in plans:
        stated = Counter((assumption.what, assumption.flag) for assumption in plan.assumptions)
        for assumption in plan.assumptions:
            name = (assumption.what, assumption.flag)
            # One plan may say several things of one figure: of its accelerator's efficiency and of its runtime's.
            if stated[name] == 1 and why.setdefault(name, assumption.why) != assumption.why:
                yield f"assumptions: {assumption.what} has several reasons"


def _runs(plans: Sequence[Plan]) -> Iterator[str]:
    """What is said of a measured run, wherever it is named; of several, the nearest comes first."""
    known: dict[tuple[str, bool], NearestRun] = {}
    for plan in plans:
        runs = plan.nearest_runs or ()
        for run in runs:
            one = known.setdefault((run.run, run.lab == OWN_RUN), run)
            yield from _differing(f"run {run.run}", one, run, OF_A_RUN)
        if any(further.distance < nearer.distance for nearer, further in pairwise(runs)):
            yield "nearest_runs are not in the order of their distance"


def _machines(plans: Sequence[Plan]) -> Iterator[str]:
    """The nodes of plans on the same cluster, their network and their price."""
    known: dict[tuple[object, ...], Plan] = {}
    for plan in plans:
        cluster = plan.cluster
        nodes = tuple((pool.node, pool.zone, pool.accelerators_per_node) for pool in cluster.pools)
        one = known.setdefault((cluster.name.partition(":")[0], cluster.fabric.id, cluster.region, nodes), plan)
        for before, pool in zip(one.cluster.pools, cluster.pools, strict=True):
            yield from _differing(pool.node, before, pool, HARDWARE)
        yield from _differing(cluster.fabric.id, one.cluster.fabric, cluster.fabric, vars(cluster.fabric))
        before_price, price = one.money.price, plan.money.price
        if before_price is not None and price is not None and before_price.basis == price.basis:
            yield from _differing(f"the price of {price.node}", before_price, price, vars(price))


def _measured_step(document: PlanSet) -> Iterator[str]:
    """A measured step stands beside the prediction of the one plan, and is slow or fast beyond its interval."""
    if document.measured is None:
        return
    interval = document.plans[0].prediction.intervals.get("step_time_s") if len(document.plans) == 1 else None
    if interval is None or len(document.measured.phases) != 1:
        yield "measured: one whole step of one plan is expected"
        return
    (whole,) = document.measured.phases
    stated = (whole.predicted_s, whole.low_s, whole.high_s)
    if stated != (document.plans[0].prediction.step_time_s, interval.low, interval.high):
        yield "measured: its prediction is not the plan's"
    side = "slow" if whole.measured_s > interval.high else "fast" if whole.measured_s < interval.low else "as predicted"
    if whole.verdict != side:
        yield f"measured: {whole.measured_s:.6g} s is {side}, and it says {whole.verdict}"


def _front(found: PlanSet) -> Iterator[str]:
    """``days = c step``, ``usd = r days accelerators`` for points of one batch on as many accelerators; degrees make up
    the accelerators of a label.
    """
    if len({plan.batch.global_ for plan in found.plans}) != 1 or any(len(p.cluster.pools) > 1 for p in found.plans):
        return
    if found.question is not None and len(found.question.batches) > 1:
        return
    first: dict[int, FrontPoint] = {}
    for point in found.front:
        one = first.setdefault(point.accelerators, point)
        if not same(point.days * one.step_time_s, one.days * point.step_time_s):
            yield f"front: {point.label} takes {point.days:.6g} days by {point.step_time_s:.6g} s a step"
        if point.usd_total is not None and one.usd_total is not None:
            if not same(point.usd_total * one.days, one.usd_total * point.days):
                yield f"front: {point.label} costs {point.usd_total:.6g} USD in {point.days:.6g} days"
        degrees = math.prod(map(int, DEGREES.findall(point.label)))
        if degrees != point.accelerators:
            yield f"front: {point.label} is for {degrees} accelerators, and says {point.accelerators}"
