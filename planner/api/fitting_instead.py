"""What fits in place of a configuration that ran out of memory, and at which price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from planner import planning
from planner.base.errors import NoAnswer, WrongQuestion
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.reading import run_of_cells
from planner.catalog import Catalog
from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.report.recommendation import configuration
from planner.schema.plan import Plan
from planner.schema.reports import FittingPlan
from planner.site import forecasts

DEGREES = ("tp", "pp", "vpp", "cp", "ep")
"""Columns that stay where memory alone is saved: recomputation, ZeRO, offload and the micro-batch change."""


def fitting_instead(row: Mapping[str, str], catalog: Catalog, *, is_learnt: bool) -> tuple[list[FittingPlan], str]:
    """The plans that fit where a run did not; where none does, what would, in words.

    The fastest with the degrees of the run comes first, then the fastest on its accelerators. An accelerator counts as
    no larger than the peak that was predicted for the run, which was too much for it, unless the catalog has learnt of
    it already. Nothing is said of a row that does not say what ran.

    Args:
        row: Cells of the run.
        catalog: A site's, where there is one.
        is_learnt: Whether that has learnt of the run.
    """
    run = run_of_cells({"id": "run", **row}, catalog)
    (forecast,) = forecasts.predicted([run], catalog)
    if forecast is None or not row.get("global_batch_seqs") or row.get("task", "").startswith("--"):
        return [], ""
    degrees = [f"{axis}={row[axis]}" for axis in DEGREES if row.get(axis)]
    plans: list[FittingPlan] = []
    without = ""
    for where, pins in (("with its degrees", degrees), ("on its accelerators", [])):
        try:
            plan = _fastest(run, row, math.inf if is_learnt else forecast.memory_bytes, pins, catalog)
        except WrongQuestion:
            continue
        except NoAnswer as error:
            without = str(error).splitlines()[-1]
            continue
        if all(other.configuration != configuration(plan) for other in plans):
            plans.append(
                FittingPlan(
                    where=where,
                    configuration=configuration(plan),
                    step_time_s=plan.prediction.step_time_s,
                    step_time_ratio=plan.prediction.step_time_s / forecast.step_time_s,
                    memory_bytes=plan.prediction.memory.total_bytes,
                    ran_out_at_bytes=forecast.memory_bytes,
                    usd=plan.money.usd_total,
                    tokens=plan.workload.tokens,
                )
            )
    return plans, "" if plans else without


def _fastest(run: Run, row: Mapping[str, str], most_bytes: float, pins: list[str], catalog: Catalog) -> Plan:
    """The fastest plan that fits into accelerators of at most `most_bytes`."""
    assert run.workload is not None and run.cluster is not None
    part = run.cluster.accelerator
    smaller = replace(run.cluster, accelerator=replace(part, memory=min(part.memory, most_bytes)))
    options = PlanOptions(
        pin=pins,
        seq=run.workload.sequence,
        batch=row["global_batch_seqs"],
        precision=row.get("precision") or None,
        runtime=run.runtime,
        method=run.workload.method.kind,
        top=1,
    )
    known, wanted = request(run.workload.model, smaller, options, known=catalog)
    return planning.plan(known, wanted).plans[0]
