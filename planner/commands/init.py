"""``clusterwright init``."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def init() -> None:
    """Start a folder that you keep."""


@init.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def site(folder: Path) -> None:
    """Make DIR a site: its profile for exports (site.toml) and a journal of its measured runs (runs.csv).

    Commands take it with --site DIR, or from the environment variable CLUSTERWRIGHT_SITE.

    \b
      clusterwright init site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import render
    from planner.site import folder as folders
    from planner.site import journal

    written = folders.init(folder, journal.HEADER)
    render.labelled("Wrote", *(str(path) for path in written))
    render.labelled("Next", f"edit {written[0]}", f"clusterwright plan ... --site {folder}")
