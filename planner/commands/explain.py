"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.commands import offered

if TYPE_CHECKING:
    from planner.schema.procurement import Procurement


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=int, metavar="N", help="Which plan of a set (default: 1).")
@offered.options
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
def explain(file: Path, rank: int | None, workload: str | None, alternative: int | None, as_json: bool) -> None:
    """Print the plan, the set of plans or the offer in FILE again, with its reasons, after checking it.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain offer.json --workload base
    """  # noqa: D301 - click reads the control character itself
    from planner import document, verify
    from planner.commands.screen import render, report
    from planner.schema.procurement import Procurement

    found = document.load_any(file)
    offered.fits(found, file, rank=rank, workload=workload, alternative=alternative)
    if isinstance(found, Procurement):
        offered.check(found)
        if workload is None:
            _offer(found, alternative, as_json=as_json)
            return
        found = document.offered(found, workload, alternative or 1, str(file))
    chosen = document.chosen(found, 1 if rank is None else rank, str(file))
    for plan in (chosen,) if as_json else report.printed(found, chosen):
        # An estimate may not fit; the report says so. All else must hold.
        over = any(k.name == "memory" and k.value > k.limit for k in plan.constraints)
        verify.check(plan, may_exceed_limits=over)
    if as_json:
        render.json(document.dump(chosen))
    else:
        report.explained(found, chosen)


def _offer(found: Procurement, alternative: int | None, *, as_json: bool) -> None:
    """The offer again, or one alternative of it."""
    from planner import document
    from planner.commands.screen import procure_view, render

    if as_json:
        render.json(document.dump(found if alternative is None else found.alternatives[alternative - 1]))
    else:
        procure_view.show(found, alternative or 1)
