"""Traces of PyTorch's profiler (JSON) and of Nsight Systems (SQLite), read once into the kernels of each accelerator.

JSON is read event by event: a trace of any length needs the memory of one event.
"""

from __future__ import annotations

import codecs
import json
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.base import reading
from planner.base.errors import WrongQuestion
from planner.schema.plan import Parallelism
from planner.site.trace import host, ranks
from planner.site.trace.host import NAMES
from planner.site.trace.ranks import KINDS, TraceFile, kind

CHUNK = 1 << 20
LONGEST = 1 << 24
"""Characters of one value: an event has some 500, what a profiler says of devices and process groups some 100,000."""
_WHITE = re.compile(r"[ \t\r\n]*")


def items(text: Text) -> Iterator[tuple[str, Any]]:
    """Key and value of everything at the top of a trace; of its events, each by itself.

    Raises:
        EOFError: it ends in the middle.
        ValueError: it is no JSON.
    """
    if text.next() == "[":
        yield from (("traceEvents", event) for event in text.listed())
        return
    text.take("{")
    while text.next() != "}":
        key = text.value()
        text.take(":")
        if key == "traceEvents":
            yield from ((key, event) for event in text.listed())
        else:
            yield str(key), text.value()
        if text.next() == ",":
            text.take(",")


class Text:
    """A file of JSON, of which a window is held."""

    def __init__(self, file: reading.BoundedFile) -> None:
        self.file = file
        self.decoder = json.JSONDecoder()
        self.decoded = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self.window, self.at, self.passed, self.over = "", 0, 0, False

    def more(self) -> bool:
        """Whether the window grew."""
        if self.over:
            return False
        if len(self.window) - self.at > LONGEST:
            raise ValueError(f"no value ends within {LONGEST:,} characters")
        chunk = self.file.read1(CHUNK)
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
        if (character := self.next()) != expected:
            raise ValueError(f"{character!r} where {expected!r} is expected")
        self.at += 1

    def value(self) -> Any:
        """The next value, whole."""
        self.next()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.window, self.at)
            except ValueError:
                if not self.more():
                    raise EOFError from None
                continue
            if end < len(self.window) or self.over:
                self.at = end
                return value
            self.more()  # a number at the window's end may go on

    def listed(self) -> Iterator[Any]:
        """The values of a list, one after another."""
        self.take("[")
        while self.next() != "]":
            yield self.value()
            if self.next() == ",":
                self.take(",")
        self.take("]")


FEWER = "trace fewer steps (active=2 of the schedule)"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Categories of Kineto's events that run on the accelerator (libkineto/src/ActivityType.cpp)."""
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
"""As torch.profiler marks a step (torch/profiler/profiler.py)."""
_SQLITE = b"SQLite format 3\x00"


def read(path: Path, cut: Parallelism) -> TraceFile:
    """The kernels of a trace; `cut` tells which process groups there are.

    Raises:
        WrongQuestion: it cannot be read, is no trace, holds no kernel, or more than fit into memory.
    """
    if not path.is_file():
        raise WrongQuestion(f"{path}: {'a folder; name the trace in it' if path.is_dir() else 'no such file'}")
    trace = TraceFile(path)
    try:
        with path.open("rb") as file:
            first = file.read(len(_SQLITE))
        is_nsight = first == _SQLITE
        (_nsight if is_nsight else _kineto)(trace, cut)
        if trace.on_host and not trace.kernels and not trace.accelerated:
            _operators(trace, cut)
    except (OSError, zlib.error, sqlite3.Error) as error:
        is_over = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
        reason = f"reading it takes more than {reading.SECONDS_READ:.0f} s; {FEWER}" if is_over else str(error)
        raise WrongQuestion(f"{path}: {reason}") from None
    if trace.kernels >= ranks.MOST_KERNELS:
        most = f"{ranks.MOST_KERNELS:,}"
        raise WrongQuestion(f"{path}: more than {most} kernels; {FEWER}")
    if not trace.kernels:
        raise WrongQuestion(f"{path}: no kernel of an accelerator in it{_instead(trace, is_nsight)}")
    return trace


def _instead(trace: TraceFile, is_nsight: bool) -> str:
    """What is in a trace without kernels."""
    if trace.left_out:
        return f" that has a time; {trace.left_out:,} have none"
    if is_nsight:
        return "; of a job on CPUs, Nsight Systems records no operators: take torch.profiler's trace"
    why = "add ProfilerActivity.CUDA to the profiler's activities"
    return f", {trace.on_host:,} events of the host; {why}" if trace.on_host else ""


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _kineto(trace: TraceFile, cut: Parallelism) -> None:
    known: dict[tuple[str, str], int] = {}
    for key, value in _items(trace):
        if key == "distributedInfo" and isinstance(value, dict) and isinstance(value.get("rank"), int):
            trace.rank = value["rank"]
            trace.accelerated |= bool(host.ACCELERATED.search(str(value.get("backend"))))
        trace.accelerated |= key == "deviceProperties" and bool(value)
        if key == "traceEvents" and isinstance(value, dict) and value.get("ph") == "X":
            _event(trace, value, cut, known)


def _operators(trace: TraceFile, cut: Parallelism) -> None:
    """What the CPU ran, of a trace that has no kernels: the file is gone through once more."""
    calls = host.Calls()
    for key, event in _items(trace):
        if key == "traceEvents" and isinstance(event, dict) and event.get("ph") == "X":
            category = str(event.get("cat", "")).lower()
            is_step = category == "user_annotation" and bool(_STEP.match(str(event.get("name", ""))))
            if category in ("cpu_op", "user_annotation"):
                calls.add(event, is_step, cut)
    calls.into(trace)
    trace.is_host = trace.kernels > 0


def _event(trace: TraceFile, event: Mapping[str, Any], cut: Parallelism, known: dict[tuple[str, str], int]) -> None:
    name = str(event.get("name", ""))
    category = str(event.get("cat", "")).lower()
    if category not in ON_DEVICE:
        if "user_annotation" in category and (mark := _STEP.match(name)):
            trace.steps.add(int(mark[1]))
        trace.on_host += 1
        trace.accelerated |= bool(host.ACCELERATED.search(name))
        return
    args = event.get("args") if isinstance(event.get("args"), dict) else {}
    assert isinstance(args, dict)
    if category != "kernel":
        what = KINDS.index("copy")
    else:
        label = (name, f"{args.get('Process Group Description', '')}{args.get('Process Group Ranks', '')}")
        if label not in known and len(known) < NAMES:
            known[label] = KINDS.index(kind(name, args, cut))
        what = known[label] if label in known else KINDS.index(kind(name, args, cut))
    trace.add((0, _number(args.get("device"))), event.get("ts"), event.get("dur"), what, 1e-6)


def _number(given: object) -> int:
    return given if isinstance(given, int) else 0


def _items(trace: TraceFile) -> Iterator[tuple[str, Any]]:
    """Key and value of everything at the top of a trace; of its events, each by itself."""
    with reading.bounded_file(trace.path, FEWER) as file:
        text = Text(file)
        try:
            yield from items(text)
        except EOFError:
            trace.cut_off = True
        except (ValueError, RecursionError) as error:
            raise WrongQuestion(f"{trace.path}: not JSON near character {text.passed + text.at:,}: {error}") from None


# ---- Nsight Systems --------------------------------------------------------------------------------------------------

MOST_STRINGS = 1_000_000
"""Names in an export, of kernels and of all else; those beyond count as none."""
_KERNELS, _COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def _nsight(trace: TraceFile, cut: Parallelism) -> None:
    """``nsys export --type sqlite``: kernels and copies, in nanoseconds; process groups are not in it."""
    with sqlite3.connect(f"{trace.path.resolve().as_uri()}?mode=ro", uri=True) as base:
        over = time.process_time() + reading.SECONDS_READ
        base.set_progress_handler(lambda: time.process_time() > over, 1_000_000)
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        # By their kinds: a view, or a table of a module, may be called anything and compute for ever.
        tables = {name for _, name, stored, *_ in base.execute("PRAGMA table_list") if stored == "table"}
        if {_KERNELS, "StringIds"} <= tables:
            names = dict(base.execute(f"SELECT id, value FROM StringIds LIMIT {MOST_STRINGS}"))
            known: dict[int, int] = {}
            for process, device, start, duration, name in base.execute(_selected(base, _KERNELS, "demangledName")):
                if name not in known:
                    known[name] = KINDS.index(kind(str(names.get(name, "")), {}, cut))
                trace.add((_number(process), _number(device)), start, duration, known[name], 1e-9)
        for table in tables & set(_COPIES):
            for process, device, start, duration in base.execute(_selected(base, table)):
                trace.add((_number(process), _number(device)), start, duration, KINDS.index("copy"), 1e-9)


def _selected(base: sqlite3.Connection, table: str, *more: str) -> str:
    """What to ask of a table: process, device, times, more."""
    columns = {row[1] for row in base.execute(f"PRAGMA table_info({table})")}
    where = [column if column in columns else "0" for column in ("globalPid", "deviceId")]
    return f"SELECT {', '.join((*where, 'start', 'end - start', *more))} FROM {table}"
