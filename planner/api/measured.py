"""A step that a user measured, stated or in a training log, compared with what ``estimate`` prices."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner import verify
from planner.base.errors import WrongQuestion
from planner.base.units import format_many, format_seconds
from planner.catalog import Catalog
from planner.planning import measured_step
from planner.question.plan_options import MeasuredTime
from planner.question.request import Request
from planner.schema.plan import Plan, PlanSet
from planner.site import log_rows
from planner.site.log_rows import Known
from planner.site.logs.verdicts import FAILED

HOW = "write what a step took, 12.3s, or name its log"


def compared(estimated: PlanSet, given: MeasuredTime, catalog: Catalog, request: Request) -> PlanSet:
    """An estimate with the measured step compared.

    Raises:
        WrongQuestion: no time, a phase of another training, or a log that cannot be read or is of another run.
    """
    plan = estimated.plans[0]
    seconds, source = _taken(given, plan, catalog)
    least_s = verify.least_step_time(plan)
    if seconds < least_s:
        raise WrongQuestion(
            f"--measured {format_seconds(seconds)}: at the peak rate of these accelerators a step takes "
            f"{format_seconds(least_s)}; is this the configuration that ran?"
        )
    return replace(estimated, measured=measured_step.compared(catalog, request, plan, seconds, source))


def _taken(given: MeasuredTime, plan: Plan, catalog: Catalog) -> tuple[float, str]:
    """Seconds of a step, and what says so."""
    if isinstance(given, Mapping):
        given = given["step"] if [*given] == ["step"] else ",".join(f"{phase}=..." for phase in given)
    if isinstance(given, float | int) and 0.0 < given < math.inf:
        return float(given), "as stated"
    text = str(given)
    if isinstance(given, Path) or Path(text).is_file():
        return _of_log(Path(text).expanduser(), plan, catalog)
    name, equals, value = text.rpartition("=")
    if equals and name != "step":
        phase = re.split("[=,]", text)[0]
        raise WrongQuestion(f"--measured {phase}: phases of a step are measured with --task grpo, ppo or rloo; {HOW}")
    if not re.match(r"\s*[\d.+-]", value):
        raise WrongQuestion(f"--measured {text}: no such file; {HOW}")
    return log_rows.seconds(value, "--measured"), "as stated"


def _of_log(path: Path, plan: Plan, catalog: Catalog) -> tuple[float, str]:
    """Seconds of a step by a log, of the most steps where it says several, and how they were counted."""
    remedy = "give the configuration that ran, with its --batch and --seq"
    known = Known(plans=(plan,), stated={}, catalog=catalog, remedy=remedy)
    runs = log_rows.of_plans(log_rows.read(path), known)
    findings = [finding for run in runs for finding in log_rows.findings(path, run, known)]
    timed = [finding for finding in findings if finding.step_time_s]
    if not timed:
        raise WrongQuestion(f"--measured {path}: {findings[0].reason or 'no step time in it'}; {HOW}")
    longest = max(timed, key=lambda finding: int(finding.row.get("steps", 0)))
    others = len(timed) - 1
    notes = [
        *longest.notes,
        *([str(longest.verdict)] if longest.verdict.word in FAILED else []),
        *([f"{format_many(others, 'further measurement')} in it, of fewer steps"] if others else []),
    ]
    assert longest.step_time_s is not None
    return longest.step_time_s, "; ".join([f"{path.name}: {notes[0]}" if notes else path.name, *notes[1:]])
