"""``clusterwright comm``: what every collective of a plan uses, measured and chosen."""

from __future__ import annotations

from pathlib import Path

import click

_CATALOG = click.option(
    "--catalog", type=click.Path(path_type=Path), metavar="DIR", help="Your own hardware over the built-in catalog."
)
_RANK = click.option("--rank", type=int, default=1, show_default=True, metavar="N", help="Which plan of a set.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the document instead of the table.")


@click.group()
def comm() -> None:
    """Say what every collective of a plan uses; measure back ends, and choose by call."""


@comm.command()
@click.argument("file", metavar="PLAN", type=click.Path(path_type=Path))
@_RANK
@_CATALOG
@_JSON
def show(file: Path, rank: int, catalog: Path | None, as_json: bool) -> None:
    """List every collective of a step of PLAN: what, over whom, how much, where, and what it costs.

    Alone is the time of all its calls if nothing ran beside them, exposed what of it the step waits for. Exposed times
    add up to the communication terms of the plan's step time.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright comm show plan.json
    """  # noqa: D301 - click reads the control character itself
    from planner import catalog as catalogs
    from planner import document, render, verify
    from planner.comm.listing import listed
    from planner.commands import comm_view

    plan = document.chosen(document.load(file), rank, str(file))
    verify.check(plan, may_exceed_limits=True)
    found = listed(plan, catalogs.load(catalog), str(file))
    if as_json:
        render.json(comm_view.listing(plan, found))
    else:
        comm_view.show_calls(plan, found, file)
