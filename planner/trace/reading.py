"""A trace as the kernels of one rank, read once: PyTorch's profiler and Nsight Systems."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import sqlite3
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.schema.plan import Parallelism
from planner.trace.kernels import KINDS, kind

CHUNK = 1 << 20
LATEST = 1 << 63
"""Profilers count times in 64 bits."""
LONGEST = 1 << 24
"""Characters of one value: an event has some 500, what a profiler says of devices and process groups some 100,000."""
MOST_KERNELS = 8_000_000
"""Of one rank: 140 MB, and some ten times as much while instants are shared out. Ten steps of a large model have
a tenth of it."""
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of Kineto's events that run on the accelerator (libkineto/src/ActivityType.cpp)."""
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
"""As torch.profiler marks a step (torch/profiler/profiler.py)."""
_WHITE = re.compile(r"[ \t\r\n]*")
_NAMES = 1 << 16
"""Kernels of different names and groups whose kind is remembered."""
_SQLITE = b"SQLite format 3\x00"


@dataclass(slots=True)
class RankTrace:
    """What ran on one accelerator: seconds from some instant, and the kind of each kernel."""

    path: Path
    rank: int | None = None
    steps: set[int] = field(default_factory=set)
    """Numbers of the steps that the profiler marked."""
    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    kinds: array[int] = field(default_factory=lambda: array("b"))
    """Places in :data:`planner.trace.kernels.KINDS`."""
    left_out: int = 0
    """Kernels whose times are none."""
    cut_off: bool = False
    """Whether the file ends in the middle."""
    on_host: int = 0
    """Events of the host: of a trace without kernels they say why."""

    def add(self, start: object, duration: object, what: int, unit: float) -> None:
        """Notes a kernel; `unit` is seconds of one of its figures."""
        if not (_is_time(start) and _is_time(duration)) or len(self.kinds) >= MOST_KERNELS:
            self.left_out += 1
            return
        first = float(start) * unit  # type: ignore[arg-type]  # a number, as was just checked
        self.starts.append(first)
        self.ends.append(first + float(duration) * unit)  # type: ignore[arg-type]
        self.kinds.append(what)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST


def read(path: Path, cut: Parallelism) -> RankTrace:
    """The kernels of a trace; `cut` tells which process groups there are.

    Raises:
        WrongQuestion: it cannot be read, is no trace, holds no kernel, or more than fit into memory.
    """
    if not path.is_file():
        raise WrongQuestion(f"{path}: {'a folder; name the trace in it' if path.is_dir() else 'no such file'}")
    found = RankTrace(path)
    try:
        with path.open("rb") as file:
            first = file.read(len(_SQLITE))
        (_nsight if first == _SQLITE else _kineto)(found, cut)
    except (OSError, zlib.error, sqlite3.Error) as error:
        raise WrongQuestion(f"{path}: {error}") from None
    if len(found.kinds) >= MOST_KERNELS:
        raise WrongQuestion(f"{path}: more than {MOST_KERNELS:,} kernels; trace fewer steps (active=2 of the schedule)")
    if not found.kinds:
        raise WrongQuestion(f"{path}: no kernel of an accelerator in it{_instead(found)}")
    return found


def _instead(found: RankTrace) -> str:
    """What is in a trace without kernels."""
    if found.left_out:
        return f" that has a time; {found.left_out:,} have none"
    why = "add ProfilerActivity.CUDA to the profiler's activities"
    return f", {found.on_host:,} events of the host; {why}" if found.on_host else ""


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _kineto(found: RankTrace, cut: Parallelism) -> None:
    known: dict[tuple[str, str], int] = {}
    for key, value in _items(found):
        if key == "distributedInfo" and isinstance(value, dict) and isinstance(value.get("rank"), int):
            found.rank = value["rank"]
        if key == "traceEvents" and isinstance(value, dict) and value.get("ph") == "X":
            _event(found, value, cut, known)


def _event(found: RankTrace, event: Mapping[str, Any], cut: Parallelism, known: dict[tuple[str, str], int]) -> None:
    name, category = str(event.get("name", "")), str(event.get("cat", "")).lower()
    if category not in ON_DEVICE:
        if "user_annotation" in category and (mark := _STEP.match(name)):
            found.steps.add(int(mark[1]))
        found.on_host += 1
        return
    args = event.get("args") if isinstance(event.get("args"), dict) else {}
    assert isinstance(args, dict)
    if category != "kernel":
        what = KINDS.index("copy")
    else:
        label = (name, f"{args.get('Process Group Description', '')}{args.get('Process Group Ranks', '')}")
        if label not in known and len(known) < _NAMES:
            known[label] = KINDS.index(kind(name, args, cut))
        what = known[label] if label in known else KINDS.index(kind(name, args, cut))
    found.add(event.get("ts"), event.get("dur"), what, 1e-6)


def _items(found: RankTrace) -> Iterator[tuple[str, Any]]:
    """Key and value of everything at the top of a trace; of its events, each by itself."""
    with gzip.open(found.path) if found.path.suffix == ".gz" else found.path.open("rb") as file:
        text = _Text(file)  # type: ignore[arg-type]  # a GzipFile reads as any binary file does
        try:
            yield from _parsed(text)
        except EOFError:
            found.cut_off = True
        except (ValueError, RecursionError) as error:
            raise WrongQuestion(f"{found.path}: not JSON near character {text.passed + text.at:,}: {error}") from None


def _parsed(text: _Text) -> Iterator[tuple[str, Any]]:
    if text.next() == "[":
        yield from (("traceEvents", each) for each in text.listed())
        return
    text.take("{")
    while text.next() != "}":
        key = text.value()
        text.take(":")
        if key == "traceEvents":
            yield from ((key, each) for each in text.listed())
        else:
            yield str(key), text.value()
        if text.next() == ",":
            text.take(",")


class _Text:
    """A file of JSON, of which a window is held."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.decoder = file, json.JSONDecoder()
        self.decoded = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self.window, self.at, self.passed, self.over = "", 0, 0, False

    def more(self) -> bool:
        """Whether the window grew."""
        if self.over:
            return False
        if len(self.window) - self.at > LONGEST:
            raise ValueError(f"no value ends within {LONGEST:,} characters")
        try:
            chunk = self.file.read1(CHUNK)
        except (EOFError, zlib.error):  # a gzipped file that has lost its end
            chunk = b""
        self.over = not chunk
        self.passed += self.at
        self.window, self.at = self.window[self.at :] + self.decoded.decode(chunk, self.over), 0
        return bool(chunk)

    def next(self) -> str:
        """The next character that is not white."""
        while True:
            match = _WHITE.match(self.window, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.window):
                return self.window[self.at]
            if not self.more():
                raise EOFError

    def take(self, expected: str) -> None:
        """Steps over one character."""
        if (there := self.next()) != expected:
            raise ValueError(f"{there!r} where {expected!r} is expected")
        self.at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        while True:
            try:
                found, end = self.decoder.raw_decode(self.window, self.at)
            except ValueError:
                if not self.more():
                    raise EOFError from None
                continue
            if end < len(self.window) or self.over:
                self.at = end
                return found
            self.more()  # a number at the window's end may go on

    def listed(self) -> Iterator[Any]:
        """The values of a list, one after another."""
        self.take("[")
        while self.next() != "]":
            yield self.value()
            if self.next() == ",":
                self.take(",")
        self.take("]")


# ---- Nsight Systems --------------------------------------------------------------------------------------------------


def _nsight(found: RankTrace, cut: Parallelism) -> None:
    """``nsys export --type sqlite``: kernels and copies, in nanoseconds; process groups are not in it."""
    with sqlite3.connect(f"{found.path.resolve().as_uri()}?mode=ro", uri=True) as base:
        tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if {"CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"} <= tables:
            names = dict(base.execute("SELECT id, value FROM StringIds"))
            known: dict[int, int] = {}
            kernels = "SELECT start, end - start, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
            for start, duration, name in base.execute(kernels):
                if name not in known:
                    known[name] = KINDS.index(kind(str(names.get(name, "")), {}, cut))
                found.add(start, duration, known[name], 1e-9)
        for table in tables & {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}:
            for start, duration in base.execute(f"SELECT start, end - start FROM {table}"):
                found.add(start, duration, KINDS.index("copy"), 1e-9)
