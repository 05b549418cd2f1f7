"""``clusterwright procure``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import options
from planner.question.asked_purchases import ProcureQuestion


@click.command()
@click.argument("portfolio", required=False, type=options.PATH, metavar="[PORTFOLIO.toml]")
@options.declared(ProcureQuestion, ("model", "region"), "top")
@click.option("--sweep", metavar="LIMIT=A..B", help="Best answer at several values of a limit: budget=1M..20M.")
@options.declared(ProcureQuestion, ("as_of", "survive"), ("quick", "time_limit"), "catalog", "engine")
@click.option("--bom", is_flag=True, help="Only the bill of materials of the best answer, as CSV (with -o to a file).")
@options.shown
def procure(
    portfolio: Path | None,
    sweep: str | None,
    bom: bool,
    as_json: bool,
    verbose: bool,
    output: Path | None,
    **asked: Any,
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
    from planner.api import buying
    from planner.base.errors import WrongQuestion
    from planner.commands.screen import procure_view, render
    from planner.procurement import run
    from planner.procurement.program.solution import Settings

    if bom and (as_json or sweep is not None):
        raise WrongQuestion("--bom is a table by itself; leave --json and --sweep out")
    question = ProcureQuestion(portfolio, **asked)
    known, wanted = buying.portfolio(question)
    settings = Settings(time_limit_s=question.time_limit, engine=question.engine)
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
    depth = run.Depth(top=question.top, marginal=not question.quick, sensitivity=not question.quick)
    found = run.procure(known, wanted, depth=depth, settings=settings, progress=bar)
    procure_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
