"""``clusterwright procure``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import completion_values, question_options, worker_options

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("portfolio", required=False, type=FILE, metavar="[PORTFOLIO.toml]")
@click.option(
    "--model",
    metavar="MODEL",
    shell_complete=completion_values.models,
    help="Model to train, if there is no portfolio.",
)
@click.option("--tokens", metavar="N", help="Tokens to train on, e.g. 2T.")
@question_options.method(help="What is trained.")
@click.option("--batch", metavar="N", help="Global batch in sequences.")
@click.option("--seq", metavar="N", help="Tokens per sequence: 8192 or 8k.")
@click.option(
    "--precision", metavar="P", help="bf16, fp16, fp8, mxfp8, mxfp4, nvfp4, fp8-delayed or -blockwise (default 16 bit)."
)
@click.option("--budget", metavar="USD", help="Total budget, e.g. '$5M'.")
@click.option("--power", metavar="W", help="Power limit of purchased machines, at the plug, e.g. 400kW.")
@click.option("--deadline", "--within", "deadline", metavar="TIME", help="Deadline, e.g. 60d.")
@click.option(
    "--objective",
    type=click.Choice(["time", "cost", "tokens-per-dollar", "carbon"]),
    help="What to optimise (default: cost).",
)
@click.option(
    "--node",
    multiple=True,
    shell_complete=completion_values.nodes,
    metavar="ID",
    help="Only these nodes (default: all that have a price).",
)
@click.option(
    "--ways",
    metavar="LIST",
    help="Ways to acquire machines, separated by commas: buy, on-demand, spot, reserved-1y, reserved-3y.",
)
@click.option(
    "--region",
    metavar="ID",
    shell_complete=completion_values.regions,
    help="Region of purchased machines (default: us).",
)
@click.option(
    "--top", type=click.IntRange(1, 20), default=3, show_default=True, metavar="K", help="Number of alternatives."
)
@click.option("--sweep", metavar="LIMIT=A..B", help="Best answer at several values of a limit: budget=1M..20M.")
@click.option("--as-of", metavar="DATE", help="Date at which prices are checked for age (default: today).")
@click.option("--max-price-age", metavar="TIME", help="Leave out what is offered at older prices, e.g. '12 months'.")
@click.option("--survive", metavar="N-K", help="Deadlines hold though a job loses K nodes for a repair, e.g. N-1.")
@click.option("--quick", is_flag=True, help="Alternatives only: no shadow prices, no sensitivity.")
@click.option(
    "--time-limit",
    type=click.FloatRange(1),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds for each integer program.",
)
@click.option(
    "--catalog", type=FILE, metavar="DIR", help="Your own hardware and prices, added to the built-in catalog."
)
@worker_options.engine("Search plans")
@click.option("--bom", is_flag=True, help="Only the bill of materials of the best answer, as CSV (with -o to a file).")
@click.option("--json", "as_json", is_flag=True, help="Print the document instead of the report.")
@question_options.verbose
@question_options.output()
def procure(
    portfolio: Path | None,
    top: int,
    sweep: str | None,
    quick: bool,
    time_limit: float,
    engine: str | None,
    bom: bool,
    catalog: Path | None,
    as_json: bool,
    verbose: bool,
    output: Path | None,
    **flags: Any,
) -> None:
    """Recommend what to buy or rent for a portfolio of jobs, which network to use, and how to train on it.

    An integer program selects among precomputed plans. The answer states the proven gap, the binding limits and
    their shadow prices.

    \b
      clusterwright procure examples/portfolios/pretrain-8b.toml
      clusterwright procure --model llama3-8b --tokens 2T --budget '$5M' --deadline 60d
      clusterwright procure lab.toml --sweep budget=1M..20M
      clusterwright procure lab.toml --bom -o bom.csv
    """  # noqa: D301 - click reads the control character itself
    from planner.base.errors import WrongQuestion
    from planner.catalog import load
    from planner.commands.screen import procure_view, render
    from planner.procurement import run
    from planner.procurement.program.solution import Settings
    from planner.procurement.question import flags as asked_flags

    if bom and (as_json or sweep is not None):
        raise WrongQuestion("--bom is a table by itself; leave --json and --sweep out")
    known = load(catalog)
    wanted = asked_flags.asked(known, portfolio, asked_flags.Flags(**flags))
    settings = Settings(time_limit_s=time_limit, engine=engine)
    bar = None if as_json or bom else render.progress
    if sweep is not None:
        from planner.procurement import sweep as sweeping

        procure_view.deliver_sweep(
            sweeping.swept(known, wanted, sweep, settings=settings, progress=bar), as_json=as_json, output=output
        )
        return
    if bom:
        found = run.procure(
            known, wanted, depth=run.Depth(top=1, marginal=False, sensitivity=False), settings=settings, progress=bar
        )
        procure_view.deliver_bill(found, output=output)
        return
    depth = run.Depth(top=top, marginal=not quick, sensitivity=not quick)
    found = run.procure(known, wanted, depth=depth, settings=settings, progress=bar)
    procure_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
