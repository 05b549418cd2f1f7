"""A step as it was traced next to the step as it was predicted: cause by cause, the largest difference first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from planner.base.errors import WrongQuestion
from planner.base.units import format_many
from planner.schema.plan import Plan
from planner.schema.reports import TracedCause, TracedRank, TraceReport
from planner.trace import reading
from planner.trace.kernels import Kind
from planner.trace.ranks import APART as LONGEST_WAIT
from planner.trace.ranks import RankTrace, TraceFile
from planner.trace.remedies import remedy
from planner.trace.timeline import Shares, shares

ROWS: Mapping[str, tuple[tuple[str, ...], tuple[Kind, ...]]] = {
    "matrix": (("matrix", "logits"), ("matrix",)),
    "attention": (("attention",), ("attention",)),
    "element-wise": (("vector", "embedding", "expanded"), ("vector", "copy")),
    "TP": (("tp",), ("tp",)),
    "CP": (("cp",), ("cp",)),
    "EP": (("ep",), ("ep",)),
    "p2p and bubble": (("p2p", "bubble"), ("p2p",)),
    "DP and waiting": (("dp", "jitter"), ("dp",)),
    "optimizer": (("optimizer",), ("optimizer",)),
    "host": (("launch", "overhead"), ()),
    "other communication": ((), ("other communication",)),
}
"""Row -> causes of a plan's breakdown, kinds of kernels. A receiving rank waits in its kernel: a bubble is in p2p,
waiting for the slowest rank in the collectives. Projections of the vocabulary are matrix products. What the host delays
is when nothing runs."""
RECOMPUTED = ("matrix", "attention", "element-wise")
"""Rows over which recomputation is shared out in proportion: its kernels are those of the forward pass again."""


def explain(plan: Plan, paths: Sequence[Path], steps: int | None = None) -> TraceReport:
    """Sets traces of one job, one a rank, against the plan that ran.

    Arguments:
        plan: What ran.
        paths: PyTorch's traces (Kineto; ``.json`` or ``.json.gz``), or Nsight Systems' exports to SQLite; each
            accelerator in one counts as a rank.
        steps: Steps in each trace, where the profiler did not mark them.

    Raises:
        WrongQuestion: a trace cannot be read, holds no kernel, or does not say how many steps it is of.
    """
    files = [reading.read(path, plan.parallelism) for path in paths]
    traces = [trace for file in files for trace in file.ranks()]
    _each_once(files)
    counts = {_steps(trace, steps) for trace in traces}
    if len(counts) > 1:
        both = " and ".join(map(str, sorted(counts)))
        raise WrongQuestion(f"the traces are of {both} steps; trace as many on each rank")
    count, found = counts.pop(), [shares(trace) for trace in traces]
    rows = sorted(_rows(plan, found, count), key=lambda row: -abs(row.longer_s))
    return TraceReport(
        steps=count,
        step_s=fmean(each.total for each in found) / count,
        predicted_s=plan.predicted_s,
        rows=tuple(rows),
        ranks=tuple(_rank(trace, each, count) for trace, each in zip(traces, found, strict=True)),
        notes=(*_left_out(files, traces), *_notes(plan, traces, found, count)),
    )


def _each_once(files: Sequence[TraceFile]) -> None:
    """Refuses two traces of one rank: it would count twice."""
    known: dict[int | Path, TraceFile] = {}
    for file in files:
        rank = file.path.resolve() if file.rank is None else file.rank
        if (other := known.setdefault(rank, file)) is not file:
            which = "named twice" if file.rank is None else f"of rank {rank}, as {other.path} is"
            raise WrongQuestion(f"{file.path}: {which}; name one trace of each rank")


def _steps(trace: RankTrace, given: int | None) -> int:
    if given is not None:
        if not 1 <= given <= 10_000:
            raise WrongQuestion(f"--steps {given}: must be from 1 to 10,000")
        return given
    if not trace.steps:
        raise WrongQuestion(
            f"{trace.path}: no step is marked in it; say of how many it is with --steps N (profiler.step() marks them)"
        )
    return len(trace.steps)


def _rows(plan: Plan, found: Sequence[Shares], steps: int) -> Iterator[TracedCause]:
    predicted = _predicted(plan.prediction.breakdown)
    idle = fmean(each.idle for each in found) / steps
    step = fmean(each.total for each in found) / steps
    for name, (_, kinds) in ROWS.items():
        alone = idle if name == "host" else _mean(found, "alone", kinds, steps)
        hidden = _mean(found, "hidden", kinds, steps)
        if max(alone, hidden, predicted[name]) > 0.0:
            why = remedy(name, plan, alone, predicted[name], hidden, step)
            yield TracedCause(cause=name, measured_s=alone, predicted_s=predicted[name], hidden_s=hidden, why=why)


def _mean(found: Sequence[Shares], of: str, kinds: Sequence[Kind], steps: int) -> float:
    return fmean(sum(getattr(each, of).get(what, 0.0) for what in kinds) for each in found) / steps


def _predicted(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each row; recomputation shared out, anything unknown with the host."""
    rows = {name: sum(breakdown.get(part, 0.0) for part in parts) for name, (parts, _) in ROWS.items()}
    known = {part for parts, _ in ROWS.values() for part in parts} | {"recompute"}
    rows["host"] += sum(seconds for part, seconds in breakdown.items() if part not in known)
    base = sum(rows[name] for name in RECOMPUTED)
    for name in RECOMPUTED:
        rows[name] *= 1.0 + (breakdown.get("recompute", 0.0) / base if base else 0.0)
    return rows


def _rank(trace: RankTrace, found: Shares, steps: int) -> TracedRank:
    return TracedRank(
        file=str(trace.path),
        rank=trace.rank,
        device=trace.device,
        step_s=found.total / steps,
        computing_s=found.computing / steps,
        waiting_s=(found.total - found.computing - found.idle) / steps,
        idle_s=found.idle / steps,
        kernels=len(trace.kinds),
    )


APART = 0.05
"""Relative difference of what ranks compute from which on the slowest is named: published repetitions are 3 % apart."""


def _left_out(files: Sequence[TraceFile], traces: Sequence[RankTrace]) -> Iterator[str]:
    """What of the files does not count."""
    for file in files:
        if file.cut_off:
            yield f"{file.path}: the file ends in the middle; what is there counts, and steps may be longer than that"
        if file.left_out:
            yield f"{file.path}: {format_many(file.left_out, 'kernel')} without a time left out"
        if unused := len(file.on) - sum(trace.path is file.path for trace in traces):
            yield f"{file.path}: {format_many(unused, 'accelerator')} with hardly a kernel left out"
    for trace in traces:
        if trace.apart:
            far = f"{LONGEST_WAIT / 60:.0f} minutes"
            yield f"{trace.path}: {format_many(trace.apart, 'kernel')} left out: longer than {far}, or so far from most"


def _notes(plan: Plan, traces: Sequence[RankTrace], found: Sequence[Shares], steps: int) -> Iterator[str]:
    """Which rank others wait for, and whether the trace is of this plan."""
    computing = [each.computing / steps for each in found]
    if len(found) > 1 and max(computing) > (1 + APART) * fmean(computing):
        slow = computing.index(max(computing))
        why = f"{'a fuller pipeline stage, or ' if plan.parallelism.pp > 1 else ''}a slower accelerator"
        more = 100 * (max(computing) / fmean(computing) - 1)
        yield f"{_named(traces[slow], slow)} computes {more:.0f} % longer than the ranks do on average: {why}"
    step = fmean(each.total for each in found) / steps
    if not 0.5 < step / plan.predicted_s < 2.0:
        yield "more than twice off its prediction: is that the plan that ran, and so many steps (--rank, --steps)?"


def _named(trace: RankTrace, place: int) -> str:
    return (
        f"device {trace.device}" if trace.device is not None else f"rank {place if trace.rank is None else trace.rank}"
    )
