"""A whole log as runs: lines are read once, in any amount, and each is looked at by what it holds.

Which logged steps count, by rules that are stated: the median of what is left, its spread, and how many there are.

1. Lines of several ranks about one step are one: the slowest, which the others wait for.
2. The first line is left out, and every one after it that takes more than :data:`SLOW` times the median of the second
   half: compilation, allocation, caches that fill.
3. Steps before which an evaluation or a checkpoint was reported are left out, unless that leaves too few.
4. Of the rest, steps beyond :data:`FAR` quartile ranges (and :data:`SLOW`) above the median are stragglers.
5. Batches of different sizes (a ramp-up) are different measurements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from planner.site.logs import arguments, formats, recorded, tasks
from planner.site.logs.formats import FORMATS, LogFormat
from planner.site.logs.records import LoggedRun, LoggedStep, Steady, lines

MOST_STEPS = 1_000_000
"""Lines about steps that are kept of a run: some 200 MB. Further ones change no median."""


@dataclass(slots=True)
class _Run:
    """A run while its lines are read."""

    steps: dict[str, list[LoggedStep]] = field(default_factory=dict)
    """By the name of the format."""
    stated: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, str] = field(default_factory=dict)
    """What was stated behind its last step: where that turns out to differ, it begins the next dump."""
    conflicts: dict[str, str] = field(default_factory=dict)
    device: str = ""
    task: str = ""
    """What is trained, where a line says so."""
    memory: float | None = None
    out_of_memory: bool = False
    disturbed: bool = False
    at: int | None = None
    """The step that a line before has named."""
    whole_run_s: float | None = None

    @property
    def begun(self) -> bool:
        """Whether something happened that belongs to its configuration."""
        return bool(self.steps) or self.out_of_memory


def read(path: Path) -> list[LoggedRun]:
    """The runs of a log, one for each configuration that it dumps.

    Raises:
        WrongQuestion: the file cannot be read.
    """
    if recorded.is_recorded(path):
        return recorded.read(path)
    return [_finished(run) for run in _runs(lines(path)) if run.begun or run.whole_run_s]


def _runs(text: Iterable[str]) -> Iterator[_Run]:
    run = _Run()
    for line in text:
        stated = [*arguments.stated(line)]
        if run.begun and any(run.stated.get(name, value) != value for name, value in stated):
            yield run  # a configuration that differs is dumped behind its steps
            run = _Run(device=run.device, stated=run.repeated)
        if run.begun:
            run.repeated |= dict(stated)
        for name, value in stated:
            if (before := run.stated.setdefault(name, value)) != value:
                run.conflicts[name] = f"{name} is {before} and {value}"
        _noted(run, line)
    yield run


def _noted(run: _Run, line: str) -> None:
    """Notes what a line says. Most say nothing: a word of each pattern is looked for before the pattern is tried."""
    for shape in FORMATS:
        if shape.hint in line and (match := shape.step.search(line)):
            _step(run, shape, match)
        if "[batch=" in line and shape.head and (head := shape.head.search(line)):
            run.at = int(head["step"])
        if "reserved" in line and shape.memory and (match := shape.memory.search(line)):
            run.memory = max(run.memory or 0.0, formats.memory(match) or 0.0)
    run.task = tasks.named(line, run.task)
    if "emory" in line or "EXHAUSTED" in line:
        run.out_of_memory |= bool(formats.OUT_OF_MEMORY.search(line))
    if ("val" in line or "check" in line) and formats.DISTURBED.search(line):
        run.disturbed = True
    if "train_steps_per_second" in line and (match := formats.SUMMARY.search(line)):
        rate = formats.number(match["rate"])
        run.whole_run_s = 1.0 / rate if rate else None
    if "capacity: " in line or "accelerators_name" in line:
        _device(run, line)


def _device(run: _Run, line: str) -> None:
    for pattern in formats.DEVICES:
        run.device = match["device"] if (match := pattern.search(line)) else run.device


def _step(run: _Run, shape: LogFormat, match: re.Match[str]) -> None:
    total = match.groupdict().get("total")
    if total is not None and run.stated.get("Total optimization steps") not in (None, total):
        return  # a bar of something else: an evaluation, a download
    made = formats.step(match, run.at, None, run.disturbed)
    if made is None:
        return
    kept = run.steps.setdefault(shape.name, [])
    if len(kept) < MOST_STEPS:
        kept.append(made)
    run.disturbed, run.out_of_memory, run.repeated = False, False, {}
    run.memory = max(run.memory or 0.0, formats.memory(match) or 0.0) or None


def _finished(run: _Run) -> LoggedRun:
    shape = next((known for known in FORMATS if known.name in run.steps), None)
    both = {"Megatron-LM", "DeepSpeed"} <= run.steps.keys()
    stated = {name: value for name, value in run.stated.items() if name not in run.conflicts}
    return LoggedRun(
        format=shape.name if shape else "",
        runtime=arguments.runtime(stated) or ("megatron-deepspeed" if both else shape.runtime if shape else ""),
        steps=tuple(run.steps[shape.name]) if shape else (),
        stated=arguments.columns(stated) | ({"task": run.task} if run.task else {}),
        device=run.device,
        memory_bytes=run.memory or None,
        memory_kind=shape.memory_kind if shape and run.memory else "",
        out_of_memory=run.out_of_memory,
        conflicts=(*run.conflicts.values(), *arguments.conflicts(stated)),
        whole_run_s=run.whole_run_s,
    )


FEWEST = 3
"""Lines that must be left: of fewer, no spread says whether they agree."""
SLOW = 1.1
"""Times the median from which a step is called slow: steady steps of one configuration are within some 3 %."""
FAR = 3.0
"""Quartile ranges: in normally distributed times one step of 10,000 lies beyond (Tukey's outer fence)."""


def steady(steps: Sequence[LoggedStep]) -> list[Steady]:
    """What the steps of a run say, for each size of batch; nothing of a batch with fewer than :data:`FEWEST`."""
    by_batch: dict[int | None, list[LoggedStep]] = {}
    merged = _ranks_merged(steps)
    for step in merged:
        by_batch.setdefault(step.batch, []).append(step)
    summaries = (_of_one(batch, step, step[0] is merged[0]) for batch, step in by_batch.items())
    return [step for step in summaries if step is not None]


def _ranks_merged(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """One line for each step, though ranks may print theirs later than another prints the next. A step that was done
    again, from a checkpoint, counts twice.
    """
    window: dict[int, LoggedStep] = {}
    merged: list[LoggedStep] = []
    newest = -1
    for step in steps:
        if step.step <= newest and step.step not in window:
            merged += [window[at] for at in sorted(window)]  # a restart: what was open is done
            window = {}
            newest = -1
        known = window.get(step.step)
        window[step.step] = step if known is None or step.seconds > known.seconds else known
        newest = max(newest, step.step)
        for done in sorted(window)[:-_OPEN]:
            merged.append(window.pop(done))
    return merged + [window[at] for at in sorted(window)]


_OPEN = 4
"""Steps of which lines of late ranks may still come."""


def _of_one(batch: int | None, steps: Sequence[LoggedStep], first: bool) -> Steady | None:
    left_out: dict[str, int] = {}
    kept = _warm(steps) if first else list(steps)
    if dropped := len(steps) - len(kept):
        left_out["warm-up"] = dropped
    calm = [step for step in kept if not step.disturbed]
    if FEWEST <= len(calm) < len(kept):
        left_out["next to an evaluation or a checkpoint"] = len(kept) - len(calm)
        kept = calm
    if len(kept) < FEWEST:
        return None
    times = [step.seconds for step in kept]
    middle, low, high = median(times), *quantiles(times, n=4)[::2]
    limit = max(SLOW * middle, high + FAR * (high - low))
    counted = [time for time in times if time <= limit]
    if stragglers := len(times) - len(counted):
        left_out["straggling"] = stragglers
    low, high = quantiles(counted, n=4)[::2]
    middle = median(counted)
    return Steady(
        per=kept[0].per,
        batch=batch,
        median=middle,
        spread=(high - low) / middle,
        steps=len(counted),
        left_out=left_out,
    )


def _warm(steps: Sequence[LoggedStep]) -> list[LoggedStep]:
    """The steps behind the first, and behind the slow ones that follow it."""
    usual = median(step.seconds for step in steps[len(steps) // 2 :])
    first = next((at for at, each in enumerate(steps) if at and each.seconds <= SLOW * usual), len(steps))
    return list(steps[first:])
