"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands import asking, offered


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=int, metavar="N", help="Which plan of a set (default: 1).")
@offered.options
@click.option("--trace", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Of a real step.")
@click.option("--steps", type=int, metavar="N", help="Steps in each trace, where none is marked.")
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
@asking.verbose
def explain(
    file: Path,
    rank: int | None,
    workload: str | None,
    alternative: int | None,
    trace: tuple[Path, ...],
    steps: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print the plan, the set of plans or the offer in FILE again, with its reasons, after checking it.

    With --trace: where the time of a real step went, next to the prediction. Traces are PyTorch's (Kineto JSON, gzipped
    or not) or Nsight Systems' exports to SQLite, one for each rank that was traced.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain offer.json --workload base
      clusterwright explain plan.json --trace rank0.json.gz --trace rank8.json.gz
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import explained

    explained.show(
        file,
        rank=rank,
        workload=workload,
        alternative=alternative,
        trace=trace,
        steps=steps,
        as_json=as_json,
        verbose=verbose,
    )
