"""``clusterwright plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import completion_values, options
from planner.question.asked_plans import PlanOptions, PlanQuestion


@click.command(cls=options.PinsAxes)
@click.argument("model", shell_complete=completion_values.models)
@options.declared(PlanQuestion, "cluster", ("fabric", "site"))
@options.shown
@options.declared(PlanQuestion, ("accelerators", "all"))
def plan(model: str, cluster: tuple[str, ...], as_json: bool, output: Path | None, verbose: bool, **asked: Any) -> None:
    """Rank the ways to train MODEL on a cluster.

    MODEL is an id (clusterwright models list), a TOML file or a Hugging Face config.json.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16
      clusterwright plan deepseek-v3 --cluster dgx-h100:64..256 --precision fp8 --objective cost
      clusterwright plan llama3-8b --cluster my-cluster.toml --pin tp=1..4 -o plan.json
      clusterwright plan llama3-8b --cluster dgx-h100:4 --shortlist 5 --to megatron+slurm -o shortlist.json
      clusterwright plan gpt2-xl --cluster dgx-a100-40gb:4 --cluster dgx-v100:8
      clusterwright plan resnet50 --accelerators A100:4,V100:4,RTX6000:8 --batch 1024
    """  # noqa: D301 - click reads the control character itself
    from planner.api import answers
    from planner.commands.screen import images_view, plan_view, render

    question = PlanOptions(**asked)
    if answers.counts_images(model):
        images_view.deliver(answers.images(model, cluster, question), as_json=as_json, output=output)
        return
    found = answers.plan(model, cluster, question, None if as_json else render.progress)
    plan_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
