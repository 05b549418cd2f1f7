"""What frameworks print about a step, by the table of ``formats.toml``, and what a line of it says.

A line says either how long a step took, as a time or a rate (:class:`LoggedStep`), or how much time has passed since
the run began (:class:`Tick`), of which differences count.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from planner.site.logs.records import LoggedStep, Per, Tick

_N = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:e[-+]?\d{1,2})?(?![.,]?\d)"
"""A number as Python formats it: a point for decimals, commas for thousands at most. Where a locale has put a comma for
the decimals, none is there."""
_CLOCK = r"(?:\d+:)*\d+(?![:\d])"
"""Time that has passed, as ``1:02:03``; nothing where a part of it is missing."""
_FACTORS = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9}
MEMORY = {"mib": 2.0**20, "gib": 2.0**30, "gb": 1e9, "mb": 1e6, "b": 1.0}
"""Group -> bytes of its unit."""
STEP = ("step", "step_of_bar", "step_of_pipe", "samples", "bar")
"""Groups that number a step; of several the first."""
CLOCKS = {"clock": 1.0, "clock_ms": 1e-3, "stamp_ms": 1e-3}
"""Groups that say how much time has passed -> seconds to which they are printed."""
MOST_STEPS = 1e18
"""What a step's number is read as at most."""
THREE_DIGITS = 0.005
"""Share of a number that three digits lose at most."""
Kind = Literal["reserved", "allocated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """How one framework reports its steps; the fields are those of ``formats.toml``."""

    name: str
    runtime: str
    """Id of the runtime that prints so; empty where several do."""
    source: str
    """Repository and file that print it."""
    counts: str
    """What a line's time is of, in words."""
    hint: str
    """Text that a line must hold before the pattern is tried."""
    step: re.Pattern[str]
    head_hint: str = ""
    head: re.Pattern[str] | None = None
    """The line before that says the step, where they are two."""
    memory: re.Pattern[str] | None = None
    """A line of its own with the peak of memory."""
    memory_kind: Kind = "reserved"
    """The one of the allocator's counters that is printed."""
    mark: re.Pattern[str] | None = None
    """A line that names the format and says no time."""
    varies: bool = False
    """Whether tokens that are counted leave out padding."""


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the table; a number of more than 18 digits is none."""
    return re.compile(text.replace("{N}", _N).replace("{C}", _CLOCK).replace(r"\d+", r"\d{1,18}"))


def _format(row: Mapping[str, str | bool]) -> LogFormat:
    patterns = {name: _pattern(str(row[name])) for name in ("step", "head", "memory", "mark") if name in row}
    return LogFormat(**{**row, **patterns})  # type: ignore[arg-type]  # a column of the table is a field


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FORMATS = tuple(_format(row) for row in _TABLE["format"])
"""In the order in which they are believed where a log holds several."""
NAMES = tuple(dict.fromkeys(shape.name for shape in FORMATS))
_LINES = _TABLE["lines"]
DISTURBED = _pattern(_LINES["disturbed"])
"""Lines of evaluations and checkpoints; the steps around them are slower than the others."""
BEGINS = _pattern(_LINES["begins"])
"""A line with which another run of the same configuration begins."""
SUMMARY = {name: _pattern(_LINES[name]) for name in ("runtime", "rate", "samples", "ended_at")}
"""What Hugging Face's Trainer says of a whole run; warm-up and evaluations are in it."""
DEVICES = tuple(_pattern(text) for text in _LINES["devices"].values())
"""Lines that name the accelerator as its driver does."""
_MAKERS = ("NVIDIA", "Tesla", "AMD", "capacity: ", "accelerators_name", "submission_platform")
"""Words of such lines."""


def number(text: str) -> float:
    """``7,123`` or ``1.2K``."""
    factor = _FACTORS.get(text[-1], 1.0)
    return float(text.rstrip("KkMG").replace(",", "")) * factor


def rounding(text: str) -> float:
    """Half a unit of the last digit that is printed, as a share of the number: ``0.12`` is 4 % wide."""
    digits = text.rstrip("KkMG").replace(",", "")
    mantissa, _, exponent = digits.partition("e")
    decimals = len(mantissa.partition(".")[2])
    value = float(digits)
    lost = 0.5 * 10.0 ** (int(exponent or 0) - decimals) / value if value else 0.0
    # Numbers with a suffix have three digits, of which zeros at the end are not printed.
    return min(lost, THREE_DIGITS) if text[-1] in _FACTORS else lost


def seconds_of(clock: str) -> float:
    """``1 day, 2:03:04``, ``1:02:03``, ``02:03`` or ``83.4`` as seconds."""
    days, _, rest = clock.rpartition(", ")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60.0 * seconds + float(part)
    return seconds + 86_400.0 * float(days.split()[0] if days else 0)


def line_of(match: re.Match[str], at: int | None, disturbed: bool) -> LoggedStep | Tick | None:
    """What a match reports; None where it is no time (0 or infinite rates of a first line).

    Arguments:
        match: Of a format's pattern.
        at: The step, where a line before has said it.
        disturbed: Whether an evaluation or a checkpoint was reported since the step before.
    """
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    count = next((groups[name] for name in STEP if name in groups), None)
    step = at if count is None else int(min(number(count), MOST_STEPS))
    clock = next((name for name in CLOCKS if name in groups), None)
    if step is None:
        return None
    if clock is not None:
        return _tick(groups, clock, step, disturbed)
    name, text, per = _time(groups)
    value = number(text)
    if not 0.0 < value < math.inf:
        return None
    seconds = {"ms": value / 1e3, "s": value}.get(name, 1.0 / value)
    batch = int(groups["batch"]) if "batch" in groups else None
    return LoggedStep(step, seconds, per, batch, disturbed, rounding(text))


def _tick(groups: Mapping[str, str], clock: str, step: int, disturbed: bool) -> Tick:
    count = groups.get("samples", groups.get("step", ""))
    text = groups[clock]
    return Tick(
        step=step,
        clock_s=seconds_of(text) if clock == "clock" else number(text) * CLOCKS[clock],
        resolution_s=CLOCKS[clock],
        step_resolution=rounding(count) * step * 2.0 if count[-1:] in _FACTORS else 0.0,
        per="sequence" if "samples" in groups else "step",
        begins="begins" in groups,
        disturbed=disturbed,
        average_s=_average(groups),
        total=int(min(number(groups["total"]), MOST_STEPS)) if "total" in groups else 0,
    )


def _average(groups: Mapping[str, str]) -> float | None:
    """Seconds of a step by a bar's own moving average."""
    if "s" in groups:
        return number(groups["s"])
    rate = number(groups["steps"]) if "steps" in groups else 0.0
    return 1.0 / rate if rate else None


def _time(groups: Mapping[str, str]) -> tuple[str, str, Per]:
    """The group that says the time, its text, and what it is the time of."""
    per: Mapping[str, Per] = {"tokens": "token", "sequences": "sequence", "steps": "step", "ms": "step", "s": "step"}
    name = next(name for name in per if name in groups)
    return name, groups[name], per[name]


def device(line: str) -> str:
    """The accelerator that a line names; empty of most."""
    if not any(maker in line for maker in _MAKERS):
        return ""
    return next((match["device"] for pattern in DEVICES if (match := pattern.search(line))), "")


def memory(match: re.Match[str]) -> float | None:
    """Bytes of the peak that a match reports."""
    for name, text in match.groupdict().items():
        if text is not None and name in MEMORY:
            return number(text) * MEMORY[name]
    return None
