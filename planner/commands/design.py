"""``clusterwright design``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import click

from planner.base.errors import WrongQuestion
from planner.base.secrets import shown
from planner.commands import question_options, worker_options

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("study", type=FILE, metavar="STUDY.toml")
@click.argument("more", nargs=-1, type=FILE, metavar="")
@click.option(
    "--trials", type=click.IntRange(1, 1_000_000), metavar="N", help="Total number of trials (default: the study's)."
)
@click.option(
    "--time",
    default="2 min",
    show_default=True,
    metavar="TIME",
    help="CPU time that a proof of the optimum may take, about; 0 s: none.",
)
@worker_options.options("Evaluate every point")
@click.option(
    "--storage",
    metavar="FILE|URL",
    help="Journal of the trials (default: NAME.journal here), or a database: postgresql://USER@HOST/NAME.",
)
@click.option("--resume", is_flag=True, help="Continue with the trials in the storage.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=0,
    show_default=True,
    metavar="S",
    help="Random seed of the trials.",
)
@click.option("--shard", metavar="I/N", help="Evaluate only every N-th point, from the I-th on (see merge).")
@click.option("--quick", is_flag=True, help="No sensitivities, sweeps or importances.")
@click.option("--catalog", type=FILE, metavar="DIR", help="Your own hardware, added to the built-in catalog.")
@click.option("--json", "as_json", is_flag=True, help="Print the document instead of the report.")
@question_options.verbose
@question_options.output()
def design(
    study: Path,
    more: tuple[Path, ...],
    trials: int | None,
    time: str,
    workers: int,
    engine: str | None,
    storage: str | None,
    resume: bool,
    seed: int,
    shard: str | None,
    quick: bool,
    catalog: Path | None,
    as_json: bool,
    verbose: bool,
    output: Path | None,
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
    from planner.catalog import load
    from planner.commands.screen import design_view, render
    from planner.study import merge, run
    from planner.study.program.evaluation import Evaluator
    from planner.study.question import reading

    known = load(catalog)
    if str(study) == "merge" and more:
        study, *written = more
        if not written:
            raise WrongQuestion("merge what? clusterwright design merge STUDY.toml shard-1.json shard-2.json")
        found = merge.merge(known, reading.read(study, known), written, explained=not quick)
        design_view.deliver(found, study=study, as_json=as_json, output=output, verbose=verbose)
        return
    if more:
        raise WrongQuestion(f"{more[0]}: one study at a time (clusterwright design merge joins shards)")
    asked = reading.read(study, known)
    part = None if shard is None else _shard(shard)
    how = run.How(
        trials=trials, time_s=run.seconds(time), workers=workers, engine=engine, storage=storage, resume=resume,
        seed=seed, shard=part, explained=not quick,
    )  # fmt: skip
    way = run.way(Evaluator(known, asked), how)
    whole = way != "trials"
    place = storage or (None if way == "bounded" else _place(asked.name, part, asked.size, whole=whole))
    if resume and place is None:
        raise WrongQuestion(
            f"--resume: all {asked.size:,} points are evaluated at once, and nothing was kept; leave it out, "
            "or name a journal: --storage FILE"
        )
    how = replace(how, storage=place, way=way)
    try:
        found = run.design(known, asked, how, None if as_json else render.progress)
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
