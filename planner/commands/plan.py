"""``clusterwright plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands.asking import question


@click.command()
@click.argument("model")
@question
@click.option("--accelerators", metavar="KIND:N,..", help="Accelerators of several kinds: A100:4,V100:4,RTX6000:8.")
@click.option("--link", "links", multiple=True, metavar="A/B=RATE", help="Link between two pools: 'a/b=25 Gbit/s'.")
@click.option("--pin", "pins", multiple=True, metavar="AXIS=VALUE", help="Fix or bound axes: tp=8,pp=4..16.")
@click.option(
    "--objective",
    type=click.Choice(["time", "cost", "energy", "tokens-per-dollar"]),
    default="time",
    show_default=True,
    help="What is best.",
)
@click.option(
    "--noise-scale",
    metavar="N",
    help="Gradient noise scale, or critical batch size, in sequences: takes the batch of --batch A..B that brings most"
    " progress, not most tokens.",
)
@click.option("--deadline", metavar="TIME", help="Longest training time, e.g. '30 d'.")
@click.option("--max-cost", metavar="USD", help="Most that training may cost, e.g. '$500k'.")
@click.option(
    "--launchable",
    is_flag=True,
    help="Over several pools, only what a launcher starts as it is: pipelines of one kind that fill their nodes.",
)
@click.option("--top", type=int, default=5, show_default=True, metavar="K", help="Plans to list.")
@click.option("--all", "all_switches", is_flag=True, help="List plans that differ in switches only, too.")
def plan(model: str, cluster: tuple[str, ...], as_json: bool, output: Path | None, **asked: Any) -> None:
    """Rank the ways to train MODEL on a cluster.

    MODEL is an id (clusterwright models list), a TOML file or a Hugging Face config.json.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16
      clusterwright plan deepseek-v3 --cluster dgx-h100:64..256 --precision fp8 --objective cost
      clusterwright plan llama3-8b --cluster my-cluster.toml --pin tp=1..4 -o plan.json
      clusterwright plan gpt2-xl --cluster dgx-a100-40gb:4 --cluster dgx-v100:8
      clusterwright plan resnet50 --accelerators A100:4,V100:4,RTX6000:8 --batch 1024
    """  # noqa: D301 - click reads the control character itself
    from planner import api
    from planner.commands.screen import images_view, render, report

    if api.counts_images(model):
        images_view.deliver(api.images(model, cluster, **asked), as_json=as_json, output=output)
        return
    with_bar = None if as_json else render.progress
    found = api.plan(model, cluster, progress=with_bar, **asked)
    report.deliver(found, as_json=as_json, output=output)
