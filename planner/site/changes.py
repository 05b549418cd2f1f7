"""Changes of a site's journal that can be undone: ``history.jsonl`` beside it keeps the rows before and after each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.base import locking, writing
from planner.base.errors import WrongQuestion
from planner.site import folder
from planner.site.folder import Site

HISTORY = "history.jsonl"
NAMED = {"id", "model", "accelerator", "num_accelerators"}
"""Columns that every row has: a run is told by them."""
PlacedRows = Sequence[tuple[int, dict[str, str]]]
"""Rows, each with its place in the journal, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done to a journal at once."""

    what: str
    """In words, as ``removed lab-6788a221ba``."""
    before: PlacedRows
    """Rows that it took away."""
    after: PlacedRows
    """Rows that it put in."""
    undoes: int | None = None
    """Line of the history, from 0, of the change that it took back."""


def apply(site: Site, change_of: Callable[[list[dict[str, str]]], Change]) -> Change:
    """Changes a site's journal; other writers wait. The history is written first: a change of which only that was
    written can be undone, too.

    Args:
        site: Whose journal it is.
        change_of: The change of the rows that are there.

    Raises:
        WrongQuestion: the journal or its history cannot be read or written.
    """
    try:
        with locking.Lock(site.runs):
            rows = folder.read(site.runs)
            change = change_of(rows)
            lines = [json.dumps(asdict(one)) for one in (*history(site), change)]
            writing.write(site.folder / HISTORY, "\n".join(lines) + "\n", replace=True)
            folder.rewrite(site.runs, _applied(rows, change))
            return change
    except OSError as error:
        raise WrongQuestion(f"{site.runs}: cannot be written: {error.strerror or error}") from None


def _applied(rows: Sequence[dict[str, str]], change: Change) -> list[dict[str, str]]:
    gone = {row["id"] for _, row in change.before}
    kept = [row for row in rows if row.get("id") not in gone]
    known = {row.get("id") for row in kept}
    for place, row in sorted(change.after, key=lambda placed: placed[0]):
        if row["id"] not in known:
            kept.insert(place, row)
    return kept


def history(site: Site) -> list[Change]:
    """All changes of a site's journal, the oldest first.

    Raises:
        WrongQuestion: the file is not as this program writes it.
    """
    path = site.folder / HISTORY
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise WrongQuestion(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return [_change(path, number, line) for number, line in enumerate(lines)]


def _change(path: Path, number: int, line: str) -> Change:
    try:
        entry = json.loads(line)
        before, after = (
            [(int(place), {str(column): str(text) for column, text in row.items()}) for place, row in entry[side]]
            for side in ("before", "after")
        )
        undoes = entry["undoes"] if entry["undoes"] is None else int(entry["undoes"])
        rows = [row for _, row in (*before, *after)]
        placed = all(0 <= place <= sys.maxsize for place, _ in (*before, *after))
        named = all(NAMED <= row.keys() for row in rows)
        if not placed or not named or (undoes is not None and not 0 <= undoes < number):
            raise KeyError("id")
        return Change(what=str(entry["what"]), before=before, after=after, undoes=undoes)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise WrongQuestion(f"{path}:{number + 1}: is no change of a journal; remove the line") from None


def undo(site: Site) -> Change:
    """Takes the last change back that was not taken back yet.

    Raises:
        WrongQuestion: there is none, or a file cannot be read or written.
    """
    return apply(site, lambda _: _undo_of_last(site))


def _undo_of_last(site: Site) -> Change:
    changes = history(site)
    taken_back = {change.undoes for change in changes}
    standing = [place for place, change in enumerate(changes) if change.undoes is None and place not in taken_back]
    if not standing:
        raise WrongQuestion(
            f"{site.folder}: no change is left to undo; what was learned goes with: clusterwright runs remove ID"
        )
    change = changes[standing[-1]]
    return Change(what=f"undone: {change.what}", before=change.after, after=change.before, undoes=standing[-1])
