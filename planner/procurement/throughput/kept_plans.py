"""Plans that earlier questions searched, kept in the user's cache folder: a second question about a job need not wait.

One file for each job. Its name is a digest of all that a search depends on: the program's own files, the catalog with
all that lies over it, the model, and how it is trained. So a file is never out of date, only no longer read.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from planner.axes.options import option_values
from planner.axes.table import OPTION_AXES
from planner.base import writing
from planner.base.errors import ClusterwrightError
from planner.base.reading import short_hash
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.models.workload import find_model
from planner.procurement.question.portfolio import Job
from planner.procurement.supply.pools import SupplyPool
from planner.procurement.throughput.column import Key, machine, work
from planner.schema.hardware import Cluster
from planner.schema.rl import RLPlan
from planner.search.problem import Candidate

MOST_FILES = 100
"""A file for each job; those that were written first make room."""
MOST_PLANS = 20_000
"""In a file, some 8 MB: more are not kept."""
DIGITS = 24
NOWHERE = -1
"""Block and index of a candidate that is of no search at hand."""

Size = tuple[Key, int]
"""A wiring and a count that go together."""
SizeAnswers = tuple[dict[Size, Candidate | RLPlan], str]
"""The best plan on every size and wiring; and if there is none, why."""


class PlanTask(NamedTuple):
    """One search: a job on one machine, in some of its wirings and counts."""

    job: Job
    pool: SupplyPool
    fabrics: dict[Key, Cluster]
    wanted: set[Size]


class KeptPlans:
    """What a cache folder has of the jobs of one question, and what is added to it."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self._folder = folder
        self._ground = (__version__, _own_files(), sorted(catalog.versions().items()))
        self._books: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()
        self._names: dict[Key, str] = {}

    def known(self, task: PlanTask) -> SizeAnswers | None:
        """What earlier searches found for all that is wanted; None where they did not look at all of it."""
        if task.job.post_training is not None:
            return None
        book = self._book(task.job)
        names = {size: _size_name(task.pool, size) for size in task.wanted}
        if not book.keys() >= set(names.values()):
            return None
        try:
            plans = {size: _plan(book[name]) for size, name in names.items()}
        except (AttributeError, KeyError, TypeError, ValueError, ClusterwrightError):
            return None  # no file of ours: the search answers
        why = next((kept for name in names.values() if isinstance(kept := book[name], str)), "")
        return {size: plan for size, plan in plans.items() if plan is not None}, why

    def keep(self, task: PlanTask, answers: SizeAnswers) -> None:
        """Add what a search found."""
        plans, why = answers
        if task.job.post_training is not None:
            return
        book = self._book(task.job)
        for size in task.wanted:
            plan = plans.get(size)
            book[_size_name(task.pool, size)] = _stated(plan) if isinstance(plan, Candidate) else why
        self._changed.add(self._name(task.job))

    def write(self) -> None:
        """Write what was added. A folder that can't be written keeps nothing, and nothing is said of it."""
        with contextlib.suppress(OSError, ClusterwrightError):
            for name in sorted(self._changed):
                if len(self._books[name]) <= MOST_PLANS:
                    writing.make_folder(self._folder)
                    writing.write(self._folder / name, json.dumps(self._books[name]), replace=True)
            files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
            for old in files[:-MOST_FILES]:
                old.unlink()
        self._changed.clear()

    def _name(self, job: Job) -> str:
        key = work(job)
        if key not in self._names:
            self._names[key] = f"{_digest(self._ground, find_model(job.model), key[1:])}.json"
        return self._names[key]

    def _book(self, job: Job) -> dict[str, Any]:
        name = self._name(job)
        if name not in self._books:
            try:
                book = json.loads((self._folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError):
                book = None
            self._books[name] = book if isinstance(book, dict) else {}
        return self._books[name]


def usual_folder() -> Path | None:
    """``clusterwright/plans`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; None where nobody knows the home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clusterwright" / "plans"
    except RuntimeError:
        return None


def _digest(*parts: object) -> str:
    return short_hash(repr(parts).encode(), DIGITS)


def _own_files() -> str:
    """A digest of the program's files, by name, size and time: a checkout changes without its version."""
    package = Path(__file__).resolve().parents[2]
    stats = sorted((str(path), path.stat()) for path in package.rglob("*") if path.suffix in (".py", ".toml", ".csv"))
    return _digest([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


def _size_name(pool: SupplyPool, size: Size) -> str:
    """What of a pool and its size a search depends on."""
    return _digest(machine(pool), pool.cluster.accelerator, size)


def _stated(plan: Candidate) -> dict[str, Any]:
    options = {axis.name: axis.state(plan.options[axis]) for axis in OPTION_AXES}
    return {"time": plan.time, "memory": plan.memory, "value": plan.value, "layout": plan.layout, "options": options}


def _plan(kept: Any) -> Candidate | None:
    """A plan as it was kept; None where it was kept that there is none."""
    if isinstance(kept, str):
        return None
    stated: Mapping[str, Any] = kept["options"]
    return Candidate(
        NOWHERE, NOWHERE, _positive(kept["value"]), _positive(kept["time"]), _positive(kept["memory"]),
        layout={str(axis): int(degree) for axis, degree in kept["layout"].items()},
        options=option_values(**{axis.name: axis.value(stated[axis.name]) for axis in OPTION_AXES}),
    )  # fmt: skip


def _positive(number: Any) -> float:
    if not isinstance(number, int | float) or not 0 < number < math.inf:
        raise ValueError(f"{number!r} is no positive number")
    return float(number)
