"""The runs in a site's journal from Python and the command line: look at them, change them, and undo that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from planner.api.learning import of_site
from planner.base.errors import WrongQuestion, did_you_mean
from planner.base.units import format_many
from planner.calibration.runs import reading
from planner.calibration.runs.columns import number
from planner.catalog import Catalog, load
from planner.question.given import path
from planner.site import cells, changes, folder, forecasts, journal, log_rows, sharing
from planner.site.changes import Change
from planner.site.folder import Row
from planner.site.forecasts import RunForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRun:
    """One run as the journal has it, and what the site's catalog makes of it now, with it learned."""

    row: dict[str, str]
    now: RunForecast | None
    reason: str
    """Why it cannot be predicted; empty if it can."""

    def document(self) -> dict[str, Any]:
        """It as JSON types."""
        return {
            "predicted_s": self.now and self.now.step_time_s,
            "predicted_memory_bytes": self.now and self.now.memory_bytes,
            "reason": self.reason,
            "row": self.row,
        }


class SiteJournal:
    """The runs of a site. Each change is kept in the site's ``history.jsonl``, and its predictions are fitted again."""

    def __init__(self, site: str | Path | None = None) -> None:
        self._site = of_site(path(site))

    @property
    def file(self) -> Path:
        """The journal."""
        return self._site.runs

    def runs(self) -> tuple[JournalRun, ...]:
        """All runs, in the order of the journal.

        Raises:
            WrongQuestion: the journal cannot be read.
        """
        return self._predicted(folder.read(self._site.runs))

    def show(self, run: str) -> JournalRun:
        """The run of an id, or of what one id alone ends with.

        Raises:
            WrongQuestion: no run has it, or several do.
        """
        rows = folder.read(self._site.runs)
        return self._predicted([rows[_place(rows, run)]])[0]

    def remove(self, run: str) -> Change:
        """Takes a run out.

        Raises:
            WrongQuestion: no run has the id, or several do; or the site cannot be written.
        """

        def removal(rows: list[dict[str, str]]) -> Change:
            place = _place(rows, run)
            return Change(what=f"removed {rows[place]['id']}", before=[(place, rows[place])], after=[])

        return self._fitted(changes.apply(self._site, removal))

    def edit(self, run: str, new_cells: Sequence[str]) -> Change:
        """Corrects cells of a run, each ``COLUMN=VALUE``, or ``COLUMN=`` without a value; it gets the id of what it is.

        Raises:
            WrongQuestion: no such run or column, a value that the column or such a run cannot have, or a column is
                missing; or the site cannot be written.
        """
        catalog = self._catalog()
        emptied = {text.strip().removesuffix("=") for text in new_cells if text.strip().endswith("=")}
        stated = log_rows.given([text for text in new_cells if not text.strip().endswith("=")], catalog, measured=True)
        if not (stated or emptied):
            raise WrongQuestion(f"runs edit {run}: what is to change? COLUMN=VALUE, as tp=4")
        if unknown := sorted(emptied - {*folder.COLUMNS} | emptied & {*folder.OWN}):
            raise WrongQuestion(f"{unknown[0]}=: no such column{did_you_mean(unknown[0], folder.COLUMNS, most=1)}")

        def correction(rows: list[dict[str, str]]) -> Change:
            place = _place(rows, run)
            old = rows[place]
            corrected = {column: text for column, text in {**old, **stated}.items() if column not in emptied}
            new = self._checked(corrected, f"runs edit {run}", stated)
            if new["id"] != old["id"] and any(row["id"] == new["id"] for row in rows):
                raise WrongQuestion(
                    f"runs edit {run}: then it is {new['id']}, which the journal has; remove one of both"
                )
            return Change(what=f"edited {old['id']}, now {new['id']}", before=[(place, old)], after=[(place, new)])

        return self._fitted(changes.apply(self._site, correction))

    def merge(self, other: str | Path, *, accept: bool = False) -> Change:
        """Adds the runs of another site's folder, or of rows that ``learn --share`` wrote, but for those that it has.

        Args:
            other: The folder or the file.
            accept: Whether runs more than twice off their prediction are taken, too.

        Raises:
            WrongQuestion: they cannot be read, a cell is none that its column can hold, a column is missing, or a run
                is more than twice off; or the site cannot be written.
        """
        source = Path(other).expanduser()
        file = source / folder.RUNS if source.is_dir() else source
        catalog = self._catalog()
        today = date.today().isoformat()
        merged: list[dict[str, str]] = []
        for line, row in enumerate(folder.read(file), 2):
            for column, text in row.items():
                if why := column not in folder.OWN and sharing.wrong(column, text, catalog):
                    raise WrongQuestion(f"{file}:{line}: {column}={text}: {why}; nothing was written")
            known = {column: text for column, text in row.items() if column in folder.COLUMNS}
            merged.append(self._checked({"source": "merged", "date": today, **known}, f"{file}:{line}", known))
        if not accept:
            cure = f"Correct it in {file}, or leave it out"
            for one in self._predicted(merged):
                forecasts.refuse_doubtful(journal.described(one.row), number(one.row, "step_time_s"), one.now, cure)

        def addition(rows: list[dict[str, str]]) -> Change:
            ids = {row["id"] for row in rows}
            fresh = list({row["id"]: row for row in merged if row["id"] not in ids}.values())
            what = f"merged {format_many(len(fresh), 'run')} of {len(merged)} of {file}"
            return Change(what=what, before=[], after=[(len(rows) + place, row) for place, row in enumerate(fresh)])

        return self._fitted(changes.apply(self._site, addition))

    def undo(self) -> Change:
        """Takes the last change back that still stands.

        Raises:
            WrongQuestion: none does, or the site cannot be written.
        """
        return self._fitted(changes.undo(self._site))

    def document(self, runs: Sequence[JournalRun], change: Change | None = None) -> dict[str, Any]:
        """Runs, and what was changed, as JSON types."""
        return {
            "kind": "site-runs",
            "schema_version": 1,
            "journal": str(self.file),
            "change": change and change.what,
            "runs": [one.document() for one in runs],
        }

    def changed(self, change: Change) -> tuple[JournalRun, ...]:
        """The runs that a change put in."""
        return self._predicted([row for _, row in change.after])

    def _catalog(self) -> Catalog:
        return load(site=self._site.folder)

    def _predicted(self, rows: Sequence[dict[str, str]]) -> tuple[JournalRun, ...]:
        catalog = self._catalog()
        runs = [reading.run_of_cells(row, catalog) for row in rows]
        made = forecasts.predicted(runs, catalog)
        return tuple(
            JournalRun(row=row, now=now, reason=run.reason) for row, run, now in zip(rows, runs, made, strict=True)
        )

    def _checked(self, row: Row, where: str, stated: Iterable[str]) -> dict[str, str]:
        """The row with its id.

        Args:
            row: Its cells.
            where: What is asked, for the message.
            stated: Columns that may not make the run impossible.
        """
        if absent := cells.missing(row, log_rows.NEEDED):
            raise WrongQuestion(f"{where}: does not say {', '.join(absent)}; nothing was written")
        if row.get("metric") != "oom" and not row.get("step_time_s"):
            raise WrongQuestion(f"{where}: says neither step_time_s nor metric=oom; nothing was written")
        new = folder.identified(row, self._site.profile.name)
        reason = reading.run_of_cells(new, self._catalog()).reason
        if any(re.search(rf"\b{column}\b", reason) for column in stated):
            raise WrongQuestion(f"{where}: {reason}; nothing was written")
        return new

    def _fitted(self, change: Change) -> Change:
        journal.fitted(self._site, self._catalog())
        return change


def _place(rows: Sequence[Row], run: str) -> int:
    """The place of the run of an id, or of what one id alone ends with."""
    ids = [row["id"] for row in rows]
    places = [place for place, known in enumerate(ids) if known == run]
    places = places or [place for place, known in enumerate(ids) if run and known.endswith(run)]
    if len(places) == 1:
        return places[0]
    if places:
        raise WrongQuestion(f"{run}: {len(places)} runs end so; which? {', '.join(ids[place] for place in places[:5])}")
    raise WrongQuestion(f"{run}: no such run{did_you_mean(run, ids)} (clusterwright runs list)")
