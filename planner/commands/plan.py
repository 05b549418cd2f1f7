"""``clusterwright plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import completion_values
from planner.commands.question_options import PinsAxes, over_pools, question


@click.command(cls=PinsAxes)
@click.argument("model", shell_complete=completion_values.models)
@question
@over_pools
@click.option(
    "--pin",
    multiple=True,
    shell_complete=completion_values.axes,
    metavar="AXIS=VALUE",
    help="Fix or bound axes: tp=8,pp=4..16.",
)
@click.option(
    "--objective",
    type=click.Choice(["time", "cost", "energy", "tokens-per-dollar"]),
    default="time",
    show_default=True,
    help="What to optimise.",
)
@click.option(
    "--noise-scale",
    metavar="N",
    help="Gradient noise scale, or critical batch size, in sequences: choose the batch in --batch A..B"
    " with the best goodput (statistical efficiency x throughput).",
)
@click.option("--deadline", "--within", "deadline", metavar="TIME", help="Longest training time, e.g. '30 d'.")
@click.option("--max-cost", "--budget", "max_cost", metavar="USD", help="Highest training cost, e.g. '$500k'.")
@click.option(
    "--launchable",
    is_flag=True,
    help="Over several pools, only plans that a launcher can run: identical pipelines that fill their nodes.",
)
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Number of plans to list.")
@click.option(
    "--shortlist",
    type=int,
    metavar="N",
    help="Only plans to run in turn: the best with other degrees or schedules (export --benchmark writes their runs).",
)
@click.option(
    "--to",
    metavar="TARGET",
    shell_complete=completion_values.targets,
    help="Of a shortlist, only plans that this target of export starts.",
)
@click.option(
    "--contingency",
    type=int,
    metavar="K",
    help="Also the plans that the recommended one continues with when 1 to K nodes are lost.",
)
@click.option("--all", is_flag=True, help="Also list plans that differ only in switches.")
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
    from planner.question.reading import PlanOptions

    options = PlanOptions(**asked)
    if answers.counts_images(model):
        images_view.deliver(answers.images(model, cluster, options), as_json=as_json, output=output)
        return
    found = answers.plan(model, cluster, options, None if as_json else render.progress)
    plan_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
