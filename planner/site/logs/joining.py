"""Runs that are spread over files: those of ranks, and files that go on where another ends (rotated or resumed).

Files of ranks have names that differ in the number of a rank alone, or are those that torchrun writes for each. A run
goes on another's if both are of one folder, one format and one configuration, and its steps begin where the other's
end, or in the second half of them; where several could be meant, the one of the same name but for numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from planner.site.logs.records import LoggedRun, LoggedStep, Tick

Log = tuple[Path, Sequence[LoggedRun]]
"""A file and the runs that it holds."""
_NUMBERED = re.compile(r"\.(?:log|txt|out|err|gz)\b|[\W_]*\d+")
"""What the names of a job's files differ in: numbers and dates; an extension may come before or behind them."""
_RANKED = re.compile(
    r"(?i)((?:^|[^a-z])(?:global[-_]?rank|local[-_]?rank|rank|worker|node|host|proc|task|gpu|default)[-_.=]?)\d+"
)
"""The part of a file's name that numbers a rank."""


def rank_key(path: Path) -> tuple[Path, str]:
    """Folder and name of a file without the number of its rank; torchrun has a folder for each rank."""
    if _is_torchruns(path):
        return path.parent.parent, path.name
    return path.parent, _RANKED.sub(r"\1#", path.name)


def _is_torchruns(path: Path) -> bool:
    """Whether a file is ``attempt_0/3/stdout.log``."""
    return path.parent.name.isdecimal() and path.parent.parent.name.startswith("attempt_")


def joined(logs: Sequence[Log]) -> list[tuple[Path, list[LoggedRun]]]:
    """The files, each with the runs that begin in it: what another file holds of a run is put to it."""
    by_rank: dict[tuple[Path, str], list[Log]] = {}
    for path, runs in logs:
        several = _RANKED.search(path.name) or _is_torchruns(path)
        by_rank.setdefault(rank_key(path) if several else (path, str(len(by_rank))), []).append((path, runs))
    merged = [log for group in by_rank.values() for log in _of_ranks(group)]
    return _continued([(path, [_named(run, path) for run in runs]) for path, runs in merged])


def _named(run: LoggedRun, path: Path) -> LoggedRun:
    return run if run.files else replace(run, files=(path.name,))


def _of_ranks(logs: Sequence[Log]) -> Iterator[Log]:
    """The runs of one job whose ranks have files of their own; files with other numbers of runs stay by themselves."""
    path, runs = max(logs, key=lambda log: len(log[1]))
    others = [log for log in logs if log[0] != path and len(log[1]) == len(runs)]
    yield from (log for log in logs if log[0] != path and 0 < len(log[1]) < len(runs))
    if len(logs) == 1 or not runs:
        yield path, runs
        return
    names = tuple(
        other.name if other.parent == path.parent else f"{other.parent.name}/{other.name}" for other, _ in logs
    )
    note = f"{len(logs)} files of one job's ranks: the slowest of each step counts"
    yield (
        path,
        [
            replace(
                run,
                steps=tuple(_by_step(run, [other[place] for _, other in others])),
                stated={**_agreed(other[place].stated for _, other in others), **run.stated},
                memory_bytes=max((peak for peak in _peaks(run, [other[place] for _, other in others])), default=None),
                files=names,
                notes=(*run.notes, note),
            )
            for place, run in enumerate(runs)
        ],
    )


def _by_step(run: LoggedRun, others: Sequence[LoggedRun]) -> list[LoggedStep]:
    """Lines of all ranks in the order of steps; a run that goes back keeps the order of its own lines."""
    if any(before.step > behind.step for before, behind in pairwise(run.steps)):
        return list(run.steps)
    lines = [line for one in (run, *others) if one.format == run.format for line in one.steps]
    return sorted(lines, key=lambda line: line.step)


def _agreed(all_stated: Iterable[Mapping[str, str]]) -> dict[str, str]:
    agreed: dict[str, str] = {}
    for stated in all_stated:
        agreed = {**stated, **agreed}
    return agreed


def _peaks(run: LoggedRun, others: Sequence[LoggedRun]) -> list[float]:
    return [one.memory_bytes for one in (run, *others) if one.memory_bytes]


def _continued(logs: Sequence[Log]) -> list[tuple[Path, list[LoggedRun]]]:
    """The files with each run put together with what goes on it, whatever the order in which files are named."""
    places = [(place, number) for place, (_, runs) in enumerate(logs) for number in range(len(runs))]
    kept: dict[tuple[int, int], LoggedRun] = {}
    for place, number in sorted(places, key=lambda at: logs[at[0]][1][at[1]].first):
        path, runs = logs[place]
        able = [at for at, one in kept.items() if logs[at[0]][0].parent == path.parent and _goes_on(one, runs[number])]
        named = [at for at in able if _stem(logs[at[0]][0]) == _stem(path)]
        sure = named or (able if runs[number].stated else [])
        # A file that could go on several runs, or says nothing of what ran, has a name that tells.
        if (before := sure[0] if len(sure) == 1 else None) is None:
            kept[place, number] = runs[number]
        else:
            kept[before] = _put_together(kept[before], runs[number])
    return [
        (path, [kept[at] for at in sorted(kept) if at[0] == place])
        for place, (path, _) in enumerate(logs)
        if any(at[0] == place for at in kept)
    ]


def _stem(path: Path) -> str:
    """The part of a file's name that all files of a job have."""
    return _NUMBERED.sub("", path.name)


def _goes_on(before: LoggedRun, run: LoggedRun) -> bool:
    """Whether a run begins where another ends."""
    of_one = before.format == run.format and not any(
        before.stated[column] != text for column, text in run.stated.items() if column in before.stated
    )
    lines = before.steps or before.ticks
    if not of_one or len(lines) < 2 or not (run.steps or run.ticks):
        return False
    every = max(median(behind - ahead for ahead, behind in pairwise([line.step for line in lines])), 1)
    middle = (before.first + before.last) / 2
    return middle < run.first <= before.last + 2 * every and run.last > before.last


def _put_together(before: LoggedRun, run: LoggedRun) -> LoggedRun:
    again = max(before.last - run.first + 1, 0)
    note = f"continued at step {run.first:,} in {' and '.join(run.files)}"
    return replace(
        run,
        steps=(*before.steps, *_disturbed(run.steps)),
        ticks=(*before.ticks, *_disturbed_ticks(run.ticks)),
        stated={**run.stated, **before.stated},
        device=before.device or run.device,
        memory_bytes=max(_peaks(before, [run]), default=None),
        whole_run_s=None,
        files=(*before.files, *(name for name in run.files if name not in before.files)),
        notes=(*before.notes, note + (f": {again:,} steps were done again" if again else ""), *run.notes),
    )


def _disturbed(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """Steps of which the first is behind a start: it warms up."""
    return [replace(steps[0], disturbed=True), *steps[1:]] if steps else []


def _disturbed_ticks(ticks: Sequence[Tick]) -> list[Tick]:
    return [replace(ticks[0], begins=True), *ticks[1:]] if ticks else []
