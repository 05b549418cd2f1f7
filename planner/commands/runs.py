"""``clusterwright runs``: the runs in a site's journal, to look at, to correct and to undo that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands import options
from planner.question.document_options import LearnQuestion

if TYPE_CHECKING:
    from planner.api.site_runs import JournalRun, SiteJournal
    from planner.site.changes import Change

_SITE = options.declared(LearnQuestion, "site")


@click.group()
def runs() -> None:
    """Look at the runs that a site has learned, correct them, and undo that.

    \b
      clusterwright runs list --site my-site
      clusterwright runs show 6788a221ba --site my-site
      clusterwright runs edit 6788a221ba tp=4 step_time_s=4.31 --site my-site
      clusterwright runs remove 6788a221ba --site my-site
      clusterwright runs undo --site my-site
      clusterwright runs merge rows.csv --site my-site
    """  # noqa: D301 - click reads the control character itself


@runs.command("list")
@_SITE
@options.json()
def list_(site: Path | None, as_json: bool) -> None:
    """List the runs of a site's journal, each next to what the site predicts of it now."""
    from planner.base.units import format_seconds
    from planner.calibration.runs.columns import number
    from planner.commands.screen import render
    from planner.site.journal import described

    site_journal = _journal(site)
    learned = site_journal.runs()
    if as_json:
        render.json(site_journal.document(learned))
        return
    rows = []
    for run in learned:
        time = number(run.row, "step_time_s")
        held = number(run.row, "memory_gb_per_gpu")
        rows.append(
            [
                run.row["id"],
                run.row.get("date", "-"),
                described(run.row),
                format_seconds(time) if time else run.row.get("metric", "-"),
                format_seconds(run.now.step_time_s) if run.now else "-",
                f"{held * 1e9 / 2**30:.1f} GiB" if held else "-",
            ]
        )
    render.table(
        ["id", "date", "run", "step", "predicted", "memory"], rows, align="lllrrr", priority=["date", "memory"]
    )


@runs.command()
@click.argument("run", metavar="ID")
@_SITE
@options.json()
def show(run: str, site: Path | None, as_json: bool) -> None:
    """Show all that the journal says of a run; ID may be the end of one."""
    from planner.base.units import format_seconds
    from planner.commands.screen import render

    site_journal = _journal(site)
    found = site_journal.show(run)
    if as_json:
        render.json(site_journal.document([found]))
        return
    render.labelled("Run", *(f"{column}={text}" for column, text in found.row.items()))
    predicted = f"{format_seconds(found.now.step_time_s)} a step" if found.now else found.reason
    render.labelled("Predicted", f"{predicted}, with it learned" if found.now else predicted)


@runs.command()
@click.argument("run", metavar="ID")
@_SITE
@options.json()
def remove(run: str, site: Path | None, as_json: bool) -> None:
    """Take a run out of the journal, and fit the site's predictions again."""
    site_journal = _journal(site)
    _show(site_journal, site_journal.remove(run), as_json=as_json)


@runs.command()
@click.argument("run", metavar="ID")
@click.argument("cells", nargs=-1, required=True, metavar="COLUMN=VALUE...")
@_SITE
@options.json()
def edit(run: str, cells: tuple[str, ...], site: Path | None, as_json: bool) -> None:
    """Correct what the journal says of a run (COLUMN= empties a cell), and fit the site's predictions again."""
    site_journal = _journal(site)
    _show(site_journal, site_journal.edit(run, cells), as_json=as_json)


@runs.command()
@_SITE
@options.json()
def undo(site: Path | None, as_json: bool) -> None:
    """Take the last change of the journal back that still stands; again, the one before it."""
    site_journal = _journal(site)
    _show(site_journal, site_journal.undo(), as_json=as_json)


@runs.command()
@click.argument("other", type=options.PATH, metavar="FILE|DIR")
@options.declared(LearnQuestion, "accept")
@_SITE
@options.json()
def merge(other: Path, accept: bool, site: Path | None, as_json: bool) -> None:
    """Add the runs of another site, or of rows that learn --share wrote, but for those that are there."""
    site_journal = _journal(site)
    _show(site_journal, site_journal.merge(other, accept=accept), as_json=as_json)


def _journal(site: Path | None) -> SiteJournal:
    from planner.api.site_runs import SiteJournal

    return SiteJournal(site)


def _show(site_journal: SiteJournal, change: Change, *, as_json: bool) -> None:
    from planner.commands.screen import render
    from planner.site.journal import described

    put_in: tuple[JournalRun, ...] = site_journal.changed(change)
    if as_json:
        document: dict[str, Any] = site_journal.document(put_in, change)
        render.json(document)
        return
    lines = [f"{run.row['id']}: {described(run.row)}" for run in put_in]
    render.labelled("Journal", change.what, *lines)
    render.labelled(
        "Next", "clusterwright runs undo takes it back" if change.undoes is None else "clusterwright runs list"
    )
