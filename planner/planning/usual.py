"""A usual run to compare a plan with: FSDP with ZeRO-3 over all accelerators, as its framework does it by itself.

Its micro-batch is the largest that fits with what the framework recomputes by default, or else with everything
recomputed.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner import cost
from planner.axes.table import MICRO, RECOMPUTE
from planner.base.errors import ClusterwrightError
from planner.catalog import Catalog
from planner.figures import conformal_intervals, plan_differences
from planner.planning import releases
from planner.question.configuration import configuration
from planner.question.request import Request
from planner.question.search_problem import Prepared, prepare, problem
from planner.schema.plan import Interval, Plan, UsualRun
from planner.search.branch_and_bound import Bounded
from planner.search.problem import Candidate
from planner.space.cost_grid import single_grid
from planner.space.pins import Bound, Pins, parse_pins

RUNTIME = "fsdp2"
TRAINED_WHOLE = ("pretrain", "finetune")
"""Methods that FSDP is usual for."""
WIDE = ("bf16", "fp16", "fp32")
"""Precisions in which a usual run trains, the first where a plan has another."""
MOST = 64
"""More than the micro-batches that are tried, times the ways to recompute."""


def run(catalog: Catalog, request: Request, plan: Plan) -> UsualRun | None:
    """The usual run of a plan's question on as many nodes; None where there is none: for one accelerator, for adapters,
    for a vendor that it does not run on, for a batch that it cannot share.
    """
    runtime = catalog.runtimes.get(RUNTIME)
    kind = request.workload.method.kind
    if runtime is None or kind not in TRAINED_WHOLE or plan.cluster.accelerators < 2:
        return None
    if request.cluster.accelerator.vendor not in runtime.vendors:
        return None
    release = runtime.releases[-1]
    asked = replace(
        request,
        runtime=runtime.at(release),
        release=release,
        older="",
        counts=(plan.cluster.pools[0].count,),
        batches=(plan.batch.global_,),
        pins=Pins(),
        objective="time",
        deadline_s=None,
        max_cost_usd=None,
    )
    usual = runtime.defaults["recompute"][0].value
    try:
        prepared = prepare(catalog, replace(asked, pins=_pins(asked, plan.precision, (str(usual), "full"))))
    except ClusterwrightError:
        return None
    fitting = Bounded().search(problem(prepared, MOST)).best
    policy = str(usual) if any(_policy(candidate) == usual for candidate in fitting) else "full"
    largest = max((candidate for candidate in fitting if _policy(candidate) == policy), key=_micro, default=None)
    if largest is None:
        return UsualRun(runtime=f"{RUNTIME} {release}", configuration="", step_time_s=None, gain=None)
    return UsualRun(
        runtime=f"{RUNTIME} {release}",
        configuration=f"zero=3 micro={_micro(largest)} recompute={policy}",
        step_time_s=largest.time,
        gain=_gain(catalog, prepared, largest, plan),
    )


def _pins(asked: Request, precision: str, policies: tuple[str, str]) -> Pins:
    """Neutral on every axis but the micro-batch, which is left open, and what is recomputed."""
    text = f"zero=3 precision={precision if precision in WIDE else WIDE[0]}"
    bounds = dict(configuration(asked, parse_pins(text.split())).bounds)
    del bounds[MICRO.name]
    return Pins({**bounds, RECOMPUTE.name: Bound(tuple(dict.fromkeys(policies)))})


def _policy(candidate: Candidate) -> str:
    return str(candidate.options[RECOMPUTE].name)


def _micro(candidate: Candidate) -> int:
    return candidate.layout[MICRO.name]


def _gain(catalog: Catalog, prepared: Prepared, usual: Candidate, plan: Plan) -> Interval:
    """How many times as long the usual run takes as the plan. Under one runtime what both share cancels."""
    known, ratio = conformal_intervals.read(catalog), usual.time / plan.prediction.step_time_s
    step = plan.prediction.intervals["step_time_s"]
    half = math.hypot(releases.time_spread(prepared, usual).half_width, math.log(step.high / step.low) / 2.0)
    basis = "80 %: both intervals, independent"
    if plan.runtime.name == RUNTIME and plan.measured is None:
        parts = cost.breakdown(single_grid(prepared.figures, usual.layout, usual.options))
        apart = plan_differences.distance(plan.prediction.breakdown, {name: float(s) for name, s in parts.items()})
        half = plan_differences.half_width(known, apart) or half
        basis = "80 %: what both share cancels"
    return Interval(low=ratio * math.exp(-half), high=ratio * math.exp(half), basis=basis)
