"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path

import click

from planner.commands import offer_options, question_options, site_option


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=int, metavar="N", help="Which plan of a set (default: 1).")
@offer_options.options
@click.option("--trace", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Of a real step.")
@click.option("--steps", type=int, metavar="N", help="Steps in each trace, where none is marked.")
@click.option(
    "--recheck",
    is_flag=True,
    help="Price its plans again with today's catalog and compare every figure; exit code 1 if one differs.",
)
@click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="To recheck with: your hardware over the built-in.",
)
@site_option.option
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE.toml",
    help="To recheck with: the cluster's file that a plan was made from.",
)
@click.option(
    "--table",
    multiple=True,
    metavar="[POOL=]FILE",
    help="To recheck with: the measured times by which comm choose picked.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
@question_options.verbose
def explain(
    file: Path,
    rank: int | None,
    workload: str | None,
    alternative: int | None,
    trace: tuple[Path, ...],
    steps: int | None,
    recheck: bool,
    catalog: Path | None,
    site: Path | None,
    cluster: tuple[Path, ...],
    table: tuple[str, ...],
    as_json: bool,
    verbose: bool,
) -> None:
    """Print a document again, with its reasons, after checking it: plans, an offer, a study, shares of images.

    With --trace: where the time of a real step went, next to the prediction. Traces are PyTorch's (Kineto JSON, gzipped
    or not) or Nsight Systems' exports to SQLite, one for each rank that was traced.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain plan.json --recheck
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
        again=explained.recheck_options(recheck, catalog, site, cluster, table),
    )
