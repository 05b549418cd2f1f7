"""``clusterwright report``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="The page; one that stands there is replaced.",
)
def report(files: tuple[Path, ...], output: Path) -> None:
    """Write documents as one HTML page: the recommendation first, then charts, machines, sources and assumptions.

    FILES are what -o of plan, estimate, procure and design wrote, what --json of compare, validate and comm show
    printed, or the CSV of validate -o. The page needs no network. It asks for the extra clusterwright[report].

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright report plan.json
      clusterwright report plan.json offer.json -o both.html
    """  # noqa: D301 - click reads the control character itself
    from planner.api import pages
    from planner.commands.screen import render

    size = len(pages.written(files, output).encode())
    render.labelled("Written", f"{output}, {size / 1e6:.1f} MB; open it in a browser (it prints to PDF, too)")
