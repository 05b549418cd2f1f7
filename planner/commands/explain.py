"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands import asking, offered


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=int, metavar="N", help="Which plan of a set (default: 1).")
@offered.options
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
@asking.verbose
def explain(
    file: Path, rank: int | None, workload: str | None, alternative: int | None, as_json: bool, verbose: bool
) -> None:
    """Print the plan, the set of plans or the offer in FILE again, with its reasons, after checking it.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain offer.json --workload base
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import explained

    explained.show(file, rank=rank, workload=workload, alternative=alternative, as_json=as_json, verbose=verbose)
