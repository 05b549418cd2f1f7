"""Operators of a job that trains on CPUs, from PyTorch's profile, and what each of them does.

On a CPU an operator is its own kernel: ``aten::mm`` lasts as long as the product takes. Calls nest: one counts for the
time in which none that it makes runs. What an attention operator, an optimizer's step or a collective calls is of its
kind. Calls of Python, of the autograd engine and of FSDP's hooks compute nothing: they are the host's, as gaps are.

Names are PyTorch's: collectives ``gloo:all_reduce`` on threads of their own (ProcessGroupGloo.cpp), and
``c10d::allreduce_`` and ``_c10d_functional::wait_tensor`` where they are begun and awaited;
``Optimizer.step#AdamW.step`` (torch/optim/optimizer.py). A collective names no process group.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.schema.plan import Parallelism
from planner.site.trace import ranks
from planner.site.trace.ranks import COMMUNICATION, KINDS, Kind, TraceFile, collective, is_time

NAMES = 1 << 16
"""Kernels or calls of different names whose kind is remembered."""
ACCELERATED = re.compile(
    r"^(?:n|r|x|h)ccl(?::|$)|^(?:cuda|hip)(?:Launch|Memcpy|Stream)|^aten::(?:_?cudnn|miopen|_efficient_attention)|"
    r"^aten::(?:_scaled_dot_product)?_(?:flash|efficient|cudnn)_attention(?:_forward|_backward|$)"
)
"""Backends, and calls of a job on accelerators, where an operator only launches."""
_COLLECTIVE = re.compile(r"^(?:(?:gloo|mpi|ucc):|c10d::|_c10d_functional::)")
_WHOLE: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("optimizer", re.compile(r"^Optimizer\.step#|^aten::_fused_(?:adamw?|sgd|adagrad)|^aten::_foreach_")),
    ("attention", re.compile(r"scaled_dot_product|flash_attention|efficient_attention|^FlexAttention")),
    ("matrix", re.compile(r"^(?:aten|mkldnn|quantized|mkl)::_?(?:(?:b?add|grouped_|scaled_|int_|weight_int\dpack_)?b?mm"
                          r"|matmul|(?:mkldnn_)?(?:convolution|linear)\w*)(?:_|$)")),
)  # fmt: skip
"""What all that it calls belongs to."""
_COPY = re.compile(r"^aten::(?:copy_|_to_copy|to|contiguous|clone)$")
_COMPUTES = re.compile(r"^(?!c10d|autograd|torch::|FSDP)\w+::|CompiledFxGraph|^graph_\d+_cpp_")
_NOTHING = -1
_EXCHANGES = frozenset(KINDS.index(what) for what in COMMUNICATION)


@dataclass(slots=True)
class Calls:
    """The calls of a profile, in microseconds: thread by thread, not yet nested."""

    starts: array[float] = field(default_factory=lambda: array("d"))
    ends: array[float] = field(default_factory=lambda: array("d"))
    threads: array[int] = field(default_factory=lambda: array("l"))
    kinds: array[int] = field(default_factory=lambda: array("b"))
    """Places in :data:`planner.site.trace.ranks.KINDS`, or -1 of what computes nothing."""
    inner: array[int] = field(default_factory=lambda: array("b"))
    """Such places of what a call makes compute, or -1 where each of those is of its own kind."""
    marked: tuple[float, float] | None = None
    """When the first step that the profiler marked begins, and the last one ends."""
    numbers: dict[str, int] = field(default_factory=dict)
    known: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any], is_step: bool, cut: Parallelism) -> None:
        """Notes a call; `cut` says which axes a collective may be of."""
        start = event.get("ts")
        duration = event.get("dur")
        if not (is_time(start) and is_time(duration)) or len(self.starts) >= ranks.MOST_KERNELS:
            return
        end = start + duration
        if is_step:
            first, last = self.marked or (start, end)
            self.marked = (min(first, start), max(last, end))
            return
        name = str(event.get("name", ""))
        kinds = self.known.get(name) or _kinds(name, cut)
        if len(self.known) < NAMES:
            self.known[name] = kinds
        self.starts.append(start)
        self.ends.append(end)
        thread = str(event.get("tid"))[:64]
        if len(self.numbers) < NAMES:
            self.numbers.setdefault(thread, len(self.numbers))
        self.threads.append(self.numbers.get(thread, 0))
        self.kinds.append(kinds[0])
        self.inner.append(kinds[1])

    def into(self, trace: TraceFile) -> None:
        """Gives a trace what ran, as if on one accelerator, within the steps that are marked."""
        if len(self.starts) >= ranks.MOST_KERNELS:
            trace.kernels = ranks.MOST_KERNELS  # more than are read: the trace is refused
            return
        first, last = self.marked or (0.0, np.inf)
        for start, end, what in self._innermost():
            if end > first and start < last:
                within = max(start, first)
                trace.add((0, 0), within, min(end, last) - within, what, 1e-6)
        if self.marked and trace.on:
            trace.on[0, 0].marked = (first * 1e-6, last * 1e-6)

    def _innermost(self) -> Iterator[tuple[float, float, int]]:
        """Start, end and kind of each stretch in which one call of a thread runs and calls nothing."""
        starts, ends, threads = map(np.asarray, (self.starts, self.ends, self.threads))
        open_calls: list[tuple[float, int, int]] = []
        """End, kind, and kind of what they call: of the calls that run, the innermost last."""
        at = 0.0
        thread = -1
        for place in (*np.lexsort((-ends, starts, threads)).tolist(), None):
            begins = None if place is None or threads[place] != thread else starts[place]
            while open_calls and (begins is None or open_calls[-1][0] <= begins):
                end, what, _ = open_calls.pop()
                if what != _NOTHING and end > at:
                    yield at, end, what
                at = max(at, end)
            if place is None:
                return
            what = self.kinds[place]
            inner = self.inner[place]
            if open_calls:
                _, outer, inherited = open_calls[-1]
                if outer != _NOTHING and starts[place] > at:
                    yield at, starts[place], outer
                if inherited != _NOTHING and inner not in _EXCHANGES:
                    what = what if what == _NOTHING else inherited
                    inner = inherited
            thread = threads[place]
            at = starts[place]
            open_calls.append((ends[place], what, inner))


def _kinds(name: str, cut: Parallelism) -> tuple[int, int]:
    """Places of a call's kind, and of what it calls."""
    if _COLLECTIVE.search(name):
        place = KINDS.index(collective(name, {"Collective name": name.partition(":")[2]}, cut))
        return place, place
    if whole := next((what for what, pattern in _WHOLE if pattern.search(name)), None):
        place = KINDS.index(whole)
        return (_NOTHING if name.startswith("Optimizer") else place), place
    if _COPY.search(name):
        return KINDS.index("copy"), _NOTHING
    return (KINDS.index("vector") if _COMPUTES.search(name) else _NOTHING), _NOTHING
