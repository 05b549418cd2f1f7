"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rank", type=int, default=1, show_default=True, metavar="N", help="Which plan of a set.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def explain(file: Path, rank: int, as_json: bool) -> None:
    """Print the plan or the set of plans in FILE again, with its reasons, after checking it.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
    """  # noqa: D301 - click reads the control character itself
    from planner import document, render, verify
    from planner.commands import report

    found = document.load(file)
    chosen = document.chosen(found, rank, str(file))
    for plan in (chosen,) if as_json else report.printed(found, chosen):
        # An estimate may not fit; the report says so. All else must hold.
        over = any(k.name == "memory" and k.value > k.limit for k in plan.constraints)
        verify.check(plan, may_exceed_limits=over)
    if as_json:
        render.json(document.dump(chosen))
    else:
        report.explained(found, chosen)
