"""``clusterwright procure`` and ``design``: what to buy, rent or build."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from planner.base.errors import WrongQuestion
from planner.base.secrets import shown
from planner.commands import options
from planner.question.purchase_options import DesignQuestion, ProcureQuestion


@click.command()
@click.argument("portfolio", required=False, type=options.PATH, metavar="[PORTFOLIO.toml]")
@options.declared(ProcureQuestion, ("model", "region"), "top")
@click.option("--sweep", metavar="LIMIT=A..B", help="Best answer at several values of a limit: budget=1M..20M.")
@options.declared(ProcureQuestion, ("as_of", "survive"), ("quick", "no_cache"), ("catalog", "site"), "engine")
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
) -> int:
    """Recommend what to buy or rent for a portfolio of jobs, which network to use, and how to train on it.

    An integer program selects among precomputed plans. The answer states the proven gap, the binding limits and
    their shadow prices. Ctrl-C ends the integer programs with the best answer so far (exit code 130).

    \b
      clusterwright procure examples/portfolios/pretrain-8b.toml
      clusterwright procure --model llama3-8b --tokens 2T --budget '$5M' --deadline 60d
      clusterwright procure lab.toml --sweep budget=1M..20M
      clusterwright procure lab.toml --bom -o bom.csv
    """  # noqa: D301 - click reads the control character itself
    from planner.api import buying
    from planner.base.errors import WrongQuestion
    from planner.base.stopping import INTERRUPTED, Watch
    from planner.commands.screen import procure_view, render
    from planner.procurement import run
    from planner.procurement.program.instance import Settings

    if bom and (as_json or sweep is not None):
        raise WrongQuestion("--bom is a table by itself; leave --json and --sweep out")
    question = ProcureQuestion(portfolio, **asked)
    known, wanted = buying.portfolio(question)
    watch = Watch(keeps=sweep is None and not bom)
    settings = Settings(
        time_limit_s=question.time_limit, engine=question.engine, cache=buying.cache(question), watch=watch
    )
    bar = procure_view.progress(watch)
    if sweep is not None:
        from planner.procurement import sweep as sweeping

        procure_view.deliver_sweep(
            sweeping.swept(known, wanted, sweep, settings=settings, progress=bar), as_json=as_json, output=output
        )
        return 0
    if bom:
        found = run.procure(
            known, wanted, depth=run.Depth(top=1, marginal=False, sensitivity=False), settings=settings, progress=bar
        )
        procure_view.deliver_bill(found, output=output)
        return 0
    depth = run.Depth(top=question.top, marginal=not question.quick, sensitivity=not question.quick)
    try:
        found = run.procure(known, wanted, depth=depth, settings=settings, progress=bar)
    except KeyboardInterrupt:
        render.error("stopped before there was an answer: jobs were still planned on machines (--quick asks for less)")
        raise click.Abort from None
    procure_view.deliver(found, as_json=as_json, output=output, verbose=verbose)
    return INTERRUPTED if watch.stopped else 0


@click.command()
@click.argument("study", type=options.PATH, metavar="STUDY.toml")
@click.argument("more", nargs=-1, type=options.PATH, metavar="")
@options.declared(DesignQuestion, ("trials", "site"))
@options.shown
def design(
    study: Path,
    more: tuple[Path, ...],
    shard: str | None,
    as_json: bool,
    verbose: bool,
    output: Path | None,
    **asked: Any,
) -> None:
    """Recommend which cluster to build for the workloads of a study, and where to spend the next dollar.

    Every point changes figures of a cluster, and the best training plans on it are searched exactly. Where the time
    allows, the best point is proven to be the optimum: all are evaluated, or whole ranges of them are bounded away.
    Else, and where trials are asked for, TPE or NSGA-II proposes points.

    \b
      clusterwright design examples/studies/transformer-1t.toml
      clusterwright design study.toml --trials 1000 --workers 4 --storage study.journal
      clusterwright design study.toml --resume --storage study.journal
      clusterwright design study.toml --engine dask://10.0.0.1:8786 --storage points.journal
      clusterwright design study.toml --shard 3/16 -o shard-3.json
      clusterwright design merge study.toml shard-*.json
    """  # noqa: D301 - click reads the control character itself
    from planner.api import buying
    from planner.commands.screen import design_view, render
    from planner.study import merge, run
    from planner.study.program.evaluation import Evaluator

    question = DesignQuestion(study, **{**asked, "shard": None if shard is None else _shard(shard)})
    if str(study) == "merge" and more:
        study, *written = more
        if not written:
            raise WrongQuestion("merge what? clusterwright design merge STUDY.toml shard-1.json shard-2.json")
        known, wanted = buying.posed(question, study)
        found = merge.merge(known, wanted, written, explained=not question.quick)
        design_view.deliver(found, study=study, as_json=as_json, output=output, verbose=verbose)
        return
    if more:
        raise WrongQuestion(f"{more[0]}: one study at a time (clusterwright design merge joins shards)")
    known, wanted = buying.posed(question, study)
    how = buying.how(question)
    way = run.way(Evaluator(known, wanted), how)
    whole = way != "trials"
    place = how.storage or (None if way == "bounded" else _place(wanted.name, how.shard, wanted.size, whole=whole))
    if how.resume and place is None:
        raise WrongQuestion(
            f"--resume: all {wanted.size:,} points are evaluated at once, and nothing was kept; leave it out, "
            "or name a journal: --storage FILE"
        )
    how = replace(how, storage=place, way=way)
    try:
        found = run.design(known, wanted, how, None if as_json else render.progress)
    except KeyboardInterrupt:
        if place:
            each = "point" if whole else "trial"
            render.error(
                f"stopped; {shown(place)} keeps every finished {each}: the same command with --resume continues"
            )
        raise
    design_view.deliver(
        found, study=study, as_json=as_json, output=output, verbose=verbose,
        journal=None if whole or place is None else shown(place),
    )  # fmt: skip


def _place(name: str, part: tuple[int, int] | None, size: int, *, whole: bool) -> str | None:
    """The journal of a study that names none: of trials and of long enumerations."""
    from planner.study import run

    if whole and size // (part[1] if part else 1) <= run.SMALL:
        return None
    share = f".shard-{part[0]}-of-{part[1]}" if part else ".points" if whole else ""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}{share}.journal"


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise WrongQuestion(f"--shard {text}: write I/N with I from 1 to N, for example 3/16")
    return int(match[1]), int(match[2])
