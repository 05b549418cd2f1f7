"""``clusterwright init``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from planner.base import resources, writing
from planner.commands import options

USED_BY = {
    "portfolio": ("work to buy or rent machines for", "clusterwright procure {}"),
    "study": ("a cluster whose figures may change", "clusterwright design {}"),
    "cluster": ("machines that you have", "clusterwright plan llama3-8b --cluster {}"),
}
"""A file that you edit: what it describes, and the command that reads it."""


@click.group()
def init() -> None:
    """Start a file or a folder that you keep: each holds something that works, and comments that say what to change."""


@init.command(short_help="Make DIR a site: a profile and a journal of measured runs.")
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


def _writer(kind: str) -> Callable[..., None]:
    """What writes the commented file of a kind."""

    def write(output: Path) -> None:
        from planner.commands.screen import render

        template = resources.data("examples") / "templates" / f"{kind}.toml"
        writing.write(output, template.read_text(encoding="utf-8"), replace=True)
        render.labelled("Wrote", str(output))
        render.labelled("Next", f"edit {output}", USED_BY[kind][1].format(output))

    return write


for _kind, (_what, _used) in USED_BY.items():
    _own = f"my-{_kind}.toml"
    _help = f"Write a commented file of {_what}.\n\n\b\n  clusterwright init {_kind} {_own}\n  {_used.format(_own)}"
    init.command(_kind, help=_help)(options.new_file(_writer(_kind)))
