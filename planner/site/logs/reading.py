"""A whole log as runs: lines are read once, in any amount, and each is looked at by what it holds.

Another run begins where a configuration is dumped that differs, where a framework says that it begins, where steps are
counted from the first one again, and where another framework's lines take the place of those before, which never come
again: that is known at the end, so that such a file is read once more. Steps that go back, but not to the first, are
those of a run that was resumed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from planner.site.logs import arguments, elapsed, formats, micro_batches, recorded, tasks
from planner.site.logs.formats import FORMATS, LogFormat
from planner.site.logs.micro_batches import MicroBatches
from planner.site.logs.records import LoggedRun, LoggedStep, Steady, Tick, lines
from planner.site.logs.steady import FEWEST, OPEN, steady
from planner.site.logs.summary import Summary
from planner.site.logs.takeovers import Spans
from planner.site.logs.verdicts import Ending, verdict

MOST_STEPS = 1_000_000
"""Lines about steps that are kept of a run: some 200 MB. Further ones change no median."""
MOST_LOST = 0.015
"""Share of a step time that may have been lost when it was printed."""
MOST_SPREAD = 0.75
"""Interquartile range of step times, as a share of their median, beyond which they are not of one thing."""
_RANK = re.compile(r"^\s*(?:\[(?:default|rank|Rank )?(\d{1,6})\]:?|(\d{1,6}):\s)")
"""What torchrun, Slurm and PyTorch put before the lines of a rank."""
MOST_CUTS = 100
"""Changes of the framework in one file that are looked for."""
_BARS = "Hugging Face Trainer"
_TRAINERS = {_BARS, "DeepSpeed", "LLaMA-Factory", "MLPerf"}
"""Formats whose lines stand in logs of Hugging Face's Trainer."""
_TRAINER = next(place for place, shape in enumerate(FORMATS) if shape.name == _BARS)
_MARKS = ("loss", "train_runtime", "[step=", ":::MLLOG", " trl:", "SamplesPerSec=")
"""Words of lines that name a format and say no time."""


@dataclass(slots=True)
class _Counter:
    """The numbers of the steps that one rank has printed in one format."""

    first: int
    newest: int
    latest: int = 0
    """The newest since steps were last counted from the first: each epoch may have a bar of its own."""
    again: int = 0
    """Steps that were done again, from a checkpoint."""


@dataclass(slots=True)
class _Run:
    """A run while its lines are read."""

    logged: dict[int, list[LoggedStep | Tick]] = field(default_factory=dict)
    """By the place of the format in the table."""
    counters: dict[tuple[int, str], _Counter] = field(default_factory=dict)
    """By format and rank."""
    micro_batches: MicroBatches = field(default_factory=MicroBatches)
    marked: int | None = None
    """The format that a line names which says no time."""
    unread: str = ""
    """Why its lines say no time of a step, where one says so."""
    stated: dict[str, str] = field(default_factory=dict)
    repeated: dict[str, str] = field(default_factory=dict)
    """What was stated behind its last step: its own if another step of it follows, or nothing; else of the next run."""
    conflicts: dict[str, str] = field(default_factory=dict)
    device: str = ""
    task: str = ""
    """What is trained, where a line says so."""
    memory: float | None = None
    ending: Ending = field(default_factory=Ending)
    disturbed: bool = False
    at: int | None = None
    """The step that a line before has named."""
    total: int = 0
    summary: Summary = field(default_factory=Summary)
    spans: Spans = field(default_factory=Spans)

    def says(self, name: str, otherwise: str) -> str:
        """What it states by that name, or `otherwise` where it states nothing."""
        return self.stated.get(name, self.repeated.get(name, otherwise))

    @property
    def begun(self) -> bool:
        """Whether something happened that belongs to its configuration."""
        return bool(self.logged) or self.failed

    @property
    def failed(self) -> bool:
        """Whether a line says that it ended before its time; of a log of anything else an error says nothing."""
        return self.ending.verdict is not None and (not self.ending.general or bool(self.stated))

    @property
    def is_trainers(self) -> bool:
        """Whether Hugging Face's Trainer printed something of it, or nobody did."""
        return not self.spans.by_format or bool(self.summary) or "Total optimization steps" in self.stated

    @property
    def cuts(self) -> frozenset[int]:
        """Numbers of the lines at which another framework takes over: bars may be of anything in another one's run."""
        return frozenset(self.spans.cuts(without="" if self.is_trainers else _BARS))

    @property
    def holds_something(self) -> bool:
        """Whether a line belongs to a format that is known."""
        return self.begun or self.marked is not None or bool(self.summary)


def read(path: Path) -> list[LoggedRun]:
    """The runs of a log.

    Raises:
        WrongQuestion: the file cannot be read.
    """
    if recorded.is_recorded(path):
        return recorded.read(path)
    runs = list(_runs(lines(path)))
    cuts: frozenset[int] = frozenset()
    while (more := frozenset().union(*(run.cuts for run in runs)) - cuts) and len(cuts) < MOST_CUTS:
        cuts |= more
        runs = list(_runs(lines(path), cuts))
    return [_finished(run) for run in runs if run.holds_something]


def measured(run: LoggedRun) -> list[Steady]:
    """What the steps of a run say that was not lost when they were printed, for each batch and regime."""
    if run.unread:
        return []
    if not run.ticks:
        return _agreeing(steady(run.steps))
    exact = _agreeing(elapsed.steady(run.ticks))
    if exact or run.whole_run_s:
        return exact
    average = elapsed.by_average(run.ticks)
    return _agreeing([average] if average else [])


def _agreeing(measured: Iterable[Steady]) -> list[Steady]:
    """Regimes whose steps agree; nothing where most steps of the run are of two kinds."""
    parts = list(measured)
    if parts and max(parts, key=lambda part: part.steps).mixed:
        return []
    return [one for one in parts if one.rounding <= MOST_LOST and one.spread <= MOST_SPREAD and not one.mixed]


def why_unread(run: LoggedRun) -> str:
    """Why a run whose steps are logged says no step time, in words."""
    if run.unread:
        return run.unread
    count = len({line.step for line in run.steps or run.ticks})
    coarse = elapsed.steady(run.ticks) if run.ticks else steady(run.steps)
    if any(one.spread > MOST_SPREAD for one in coarse):
        return "its step times lie so far apart that they are not of one run: name a log of one"
    if any(one.mixed for one in coarse):
        return (
            "its step times are of two kinds, of two jobs that write to one file or of a change that its clock is too "
            "coarse to place, or grow all the time: name a log of one, or a longer one"
        )
    if coarse and run.ticks:
        return (
            "too little time passes for a clock that prints whole seconds, and the bar's own rate is a moving average"
        )
    if coarse:
        return f"its step times are printed with too few digits ({100 * coarse[0].rounding:.0f} % are lost)"
    return f"{count:,} logged step{'' if count == 1 else 's'}; at least {FEWEST} must be left behind the warm-up"


def _runs(text: Iterable[str], cuts: Collection[int] = ()) -> Iterator[_Run]:
    """The runs of a log.

    Args:
        text: Its lines.
        cuts: Numbers of lines at which another framework takes over.
    """
    run = _Run()
    for number, line in enumerate(text, 1):
        if number in cuts:
            yield run
            run = _Run()
        if not line:
            continue
        stated = [*arguments.stated(line)]
        device = formats.device(line)
        differs = run.begun and any(run.says(name, value) != value for name, value in stated)
        if differs:
            yield run  # a configuration that differs is dumped behind its steps
            run = _Run(device=run.device, stated=run.repeated)
        elif run.begun and "*** Running" in line and formats.BEGINS.search(line):
            yield run
            run = _next(run) if run.is_trainers else _Run(stated=run.repeated)
        if stated or device:
            run.spans.note_dump(number)
        run.device = run.device or device
        if run.begun:
            run.repeated |= dict(stated)
        else:
            for name, value in stated:
                if (before := run.stated.setdefault(name, value)) != value:
                    run.conflicts[name] = f"{name} is {before} and {value}"
        for place, entry in _entries(run, line):
            if _starts_again(run, place, entry, line):
                yield run
                run = _next(run)
            _add(run, place, entry, line)
            run.spans.note_step(FORMATS[place].name, number)
        _noted(run, line)
        run.ending.note(line, number, max((counter.newest for counter in run.counters.values()), default=0))
    run.stated |= run.repeated
    yield run


def _next(run: _Run) -> _Run:
    """Another run: of the same configuration, unless one that names other things was dumped behind the steps."""
    if run.repeated.keys() <= run.stated.keys():
        return _Run(device=run.device, stated=dict(run.stated), task=run.task)
    return _Run(device=run.device, stated=run.repeated)


def _entries(run: _Run, line: str) -> Iterator[tuple[int, LoggedStep | Tick]]:
    """What a line says of steps. Most say nothing: a word of each pattern is looked for before the pattern is tried."""
    for place, shape in enumerate(FORMATS):
        if shape.head_hint and shape.head_hint in line and shape.head and (head := shape.head.search(line)):
            run.at = int(head["step"])
        if shape.hint not in line:
            continue
        for match in shape.step.finditer(line):
            entry = _entry(run, place, shape, match)
            run.memory = max(run.memory or 0.0, formats.memory(match) or 0.0) or None
            run.total = max(run.total, _total(match))
            if entry is not None:
                yield place, entry


def _entry(run: _Run, place: int, shape: LogFormat, match: re.Match[str]) -> LoggedStep | Tick | None:
    if "iteration" in shape.step.groupindex:
        run.marked = place
        return run.micro_batches.step(match, run.disturbed)
    if bar := micro_batches.of_bar(match):
        run.marked = place
        run.unread = bar
        return None
    if "step" in shape.step.groupindex or shape.head is not None or "samples" in shape.step.groupindex:
        return formats.line_of(match, run.at, run.disturbed)
    counter = run.counters.get((place, _rank(match.string)))
    return formats.line_of(match, counter.newest + 1 if counter else 1, run.disturbed)


def _total(match: re.Match[str]) -> int:
    """Steps of the run, where a line about a step says so; a bar may be of something else."""
    groups = match.groupdict()
    text = groups.get("total")
    return 0 if text is None or groups.get("clock") else int(min(formats.number(text), formats.MOST_STEPS))


def _rank(line: str) -> str:
    match = _RANK.match(line)
    return (match[1] or match[2] or "") if match else ""


def _starts_again(run: _Run, place: int, entry: LoggedStep | Tick, line: str) -> bool:
    """Whether steps are counted from the first one again: another run of the same configuration."""
    counter = run.counters.get((place, _rank(line)))
    if counter is None or FORMATS[place].name in ("Hugging Face Trainer", "torchtune"):
        return False  # each epoch, and each evaluation, has a bar of its own
    return entry.step <= counter.first and counter.newest - entry.step > OPEN


def _add(run: _Run, place: int, entry: LoggedStep | Tick, line: str) -> None:
    counter = run.counters.setdefault((place, _rank(line)), _Counter(entry.step, entry.step))
    if entry.step <= counter.first:
        counter.latest = entry.step
    elif entry.step < counter.latest - OPEN:
        counter.again = max(counter.again, counter.latest - entry.step + 1)
    counter.latest = max(counter.latest, entry.step)
    counter.newest = max(counter.newest, entry.step)
    kept = run.logged.setdefault(place, [])
    if len(kept) < MOST_STEPS:
        kept.append(entry)
    run.disturbed = False
    run.ending.went_on()
    run.stated |= run.repeated
    run.repeated = {}


def _noted(run: _Run, line: str) -> None:
    """Notes what a line says of memory, evaluations, the task, and the run as a whole."""
    if "reserved" in line or "emory" in line:
        peaks = [formats.memory(match) for shape in FORMATS if shape.memory and (match := shape.memory.search(line))]
        run.memory = max((peak for peak in (run.memory, *peaks) if peak), default=None)
    if run.marked is None and not run.logged and any(word in line for word in _MARKS):
        run.marked = next((at for at, one in enumerate(FORMATS) if one.mark and one.mark.search(line)), None)
    run.task = tasks.named(line, run.task)
    if ("val" in line or "check" in line) and formats.DISTURBED.search(line):
        run.disturbed = True
    if "train_" in line or "TrainOutput" in line:
        run.summary.note(line)


def _finished(run: _Run) -> LoggedRun:
    place = _believed(run)
    shape = FORMATS[place] if place is not None else None
    entries = _in_order(run, place) if place is not None else []
    names = {FORMATS[logged].name for logged in run.logged}
    both = {"Megatron-LM", "DeepSpeed"} <= names
    stated = {name: value for name, value in run.stated.items() if name not in run.conflicts}
    total = int(stated.get("Total optimization steps", 0)) or int(stated.get("train_iters", 0)) or run.total
    ticks = elapsed.training_bar([entry for entry in entries if isinstance(entry, Tick)], total)
    total = max((tick.total for tick in ticks), default=0) or total
    logged = LoggedRun(
        format=shape.name if shape else "",
        runtime=arguments.runtime(stated) or ("megatron-deepspeed" if both else shape.runtime if shape else ""),
        steps=tuple(entry for entry in entries if isinstance(entry, LoggedStep)),
        ticks=tuple(ticks),
        stated=arguments.columns(stated) | ({"task": run.task} if run.task else {}),
        device=run.device,
        memory_bytes=run.memory or None,
        memory_kind=shape.memory_kind if shape and run.memory else "",
        conflicts=(*run.conflicts.values(), *arguments.conflicts(stated)),
        whole_run_s=run.summary.step_s(total, ticks[0].step if ticks else 0, stated) if names <= _TRAINERS else None,
        unread=arguments.impossible(stated) or _unread(run, shape),
        total=total,
        notes=tuple(_notes(run, place)),
    )
    return replace(logged, verdict=verdict(logged, run.ending))


def _in_order(run: _Run, place: int) -> list[LoggedStep | Tick]:
    """The entries of a format; of ranks that are printed one after another those of a step together, where no step was
    done again.
    """
    entries = run.logged.get(place, [])
    ranks = [counter for (at, _), counter in run.counters.items() if at == place]
    if len(ranks) < 2 or any(counter.again for counter in ranks):
        return entries
    return sorted(entries, key=lambda entry: entry.step)


def _believed(run: _Run) -> int | None:
    """The place of the format that is read: the first of the table whose lines say a step time."""
    if run.unread:
        return run.marked
    places = sorted(run.logged)
    exact = (place for place in places if _is_exact(run.logged[place]))
    marked = _TRAINER if run.marked is None and run.summary else run.marked
    return next(exact, places[0] if places else marked)


def _is_exact(entries: list[LoggedStep | Tick]) -> bool:
    ticks = [entry for entry in entries if isinstance(entry, Tick)]
    if ticks:
        return any(one.rounding <= MOST_LOST for one in elapsed.steady(elapsed.training_bar(ticks, 0)))
    roundings = [entry.rounding for entry in entries if isinstance(entry, LoggedStep)]
    return len(entries) > FEWEST and median(roundings) <= MOST_LOST


def _unread(run: _Run, shape: LogFormat | None) -> str:
    if shape is None or run.unread:
        return run.unread
    if not run.logged and not run.summary:
        return run.micro_batches.unread or f"{shape.name}: its lines say no time of a step"
    if shape.varies:
        return "counts the tokens that are trained on, without padding: no step time follows from that"
    return ""


def _notes(run: _Run, place: int | None) -> Iterator[str]:
    """How lines of ranks, and of a run that was resumed, were put together."""
    counters = {rank: counter for (of, rank), counter in run.counters.items() if of == place}
    if len(counters) > 1:
        yield f"lines of {len(counters)} ranks: the slowest of each step counts"
    if again := max((counter.again for counter in counters.values()), default=0):
        yield f"resumed from a checkpoint: {again:,} steps were done again"
