"""``clusterwright estimate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import completion_values, options
from planner.question.asked_plans import PlanOptions, PlanQuestion


@click.command(cls=options.TakesAxes)
@click.argument("model", shell_complete=completion_values.models)
@click.argument("settings", nargs=-1, shell_complete=completion_values.axes, metavar="[AXIS=VALUE]...")
@options.declared(PlanQuestion, "cluster", ("fabric", "site"))
@options.shown
@options.declared(PlanQuestion, ("accelerators", "link"))
def estimate(
    model: str,
    settings: tuple[str, ...],
    cluster: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    verbose: bool,
    **asked: Any,
) -> int:
    """Predict one given configuration of MODEL: does it fit, how fast is it, what limits it.

    An axis that is not given is neutral: degrees and micro-batch 1, nothing recomputed, overlap where the runtime
    has it. Over several pools each group of pipelines is one group=..., as plan prints it. Exits with 1 if it does
    not fit, or not as surely as --oom-risk asks.

    \b
      clusterwright estimate llama3-70b --cluster dgx-h100:16 tp=4 pp=4 vpp=5
      clusterwright estimate llama3-8b --cluster dgx-a100-80gb:1 --runtime fsdp2 micro=2 recompute=full
      clusterwright estimate gpt2-medium --cluster t4-4:1 --cluster dgx-v100:1 group=t4-4:layers=8,dgx-v100:layers=16
    """  # noqa: D301 - click reads the control character itself
    from planner.api import answers
    from planner.commands.screen import plan_view

    found = answers.estimate(model, cluster, settings, PlanOptions(**asked))
    plan_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
    return 0 if found.search.feasible else 1
