"""Where the time of a step goes, and when: causes, and the pipeline's timeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from planner.base.units import format_percent, format_seconds
from planner.planning import comparison
from planner.report import pass_orders, vega_lite
from planner.report.html_page import Block, Chart, Lines, Section, TextTable
from planner.report.quantities import seconds
from planner.schema.plan import Group, Plan, PlanDifference
from planner.schema.plan_prediction import called

FAMILIES = {
    "compute": (
        "matrix", "attention", "vector", "logits", "embedding", "convolution", "router", "magnitudes", "reference",
        "tower", "copies",
    ),
    "communication": ("tp", "cp", "ep", "p2p", "dp", "mp", "all-to-all"),
    "recomputation": ("recompute",),
    "update": ("optimizer", "offload"),
    "waiting": ("bubble", "jitter", "imbalance", "waiting", "straggler"),
}  # fmt: skip
"""Kind of a cause -> causes as :mod:`planner.cost.evaluate` names them; all others are "other"."""
KINDS = [*FAMILIES, "other"]
OVER_PASSES = {"bubble", "dp", "copies", "optimizer", "offload", "p2p", "jitter"}
"""Causes that are no part of a micro-batch's passes through a stage."""
FORWARD = 1.0 / 3.0
"""Of the arithmetic of a micro-batch: its backward pass multiplies twice as much (Narayanan et al. 2021)."""
WEIGHT = 0.5
"""Of the arithmetic of a backward pass: a product's two gradients take as many operations each."""
BETWEEN = "micro-batches between"
"""Part of a timeline in which many passes are one bar."""
PARTS = ("forward", "exchanges", "backward", "update", BETWEEN)
"""Of a timeline."""
MOST_WORKED_OUT = 60_000
"""Passes of a step that are worked out to draw it: some seconds. Of a longer step the middle is left out."""
MOST_BLOCKS = 1600
"""Of a timeline: what a reader can still make out, and a browser draws at once."""


def kind(cause: str) -> str:
    """Which kind of time a cause is."""
    return next((name for name, causes in FAMILIES.items() if cause in causes), "other")


def section(plans: Sequence[Plan], chosen: Plan, apart: Sequence[PlanDifference] = ()) -> Section:
    """Causes of the chosen plan's step, those of all plans by kind, and one step's timeline; `apart`: how sure the
    others' differences from the chosen plan are.
    """
    blocks: list[Block] = [_causes(chosen)]
    if len(plans) > 1:
        blocks.append(_compared(plans, chosen, apart))
    return Section("Where the time goes", (*blocks, *_timelines(chosen)))


def _causes(plan: Plan) -> Chart:
    total = sum(plan.prediction.breakdown.values())
    causes = sorted(plan.prediction.breakdown.items(), key=lambda each: -each[1])
    rows = [(called(cause), kind(cause), seconds(took), format_percent(took / total)) for cause, took in causes]
    values = [
        {"row": row[0], "part": row[1], "value": took, "text": f"{row[2]}, {row[3]}"}
        for row, (_, took) in zip(rows, causes, strict=True)
    ]
    largest = f"{rows[0][0]} takes {rows[0][3]}" if rows else "nothing"
    title = f"A step of plan #{plan.rank}, by cause"
    table = TextTable(title, ("cause", "kind", "time", "share"), rows)
    return Chart(title, f"Of {seconds(total)}, {largest}.", vega_lite.bars(values, "seconds", KINDS), table)


def _compared(plans: Sequence[Plan], chosen: Plan, apart: Sequence[PlanDifference]) -> Chart:
    rows = {plan.rank: f"#{plan.rank}{', recommended' * (plan is chosen)}" for plan in plans}
    named = {rows[plan.rank]: plan for plan in plans}
    first = chosen.prediction.step_time_s
    intervals = []
    for difference in apart:
        if row := rows.get(difference.rank):
            within = comparison.scaled(difference, named[row].prediction.step_time_s / first)
            intervals.append((row, first * within.low, first * within.high))
    summary = "What each plan saves in one place it spends in another."
    if intervals:
        summary += f" Lines: 80 % of the difference from #{chosen.rank}."
    return by_kind("Steps of all plans, by kind of time", summary, named, intervals)


def by_kind(
    title: str, summary: str, plans: Mapping[str, Plan], intervals: Sequence[tuple[str, float, float]] = ()
) -> Chart:
    """Steps of named plans by kind of time; an interval has the name, and seconds from and to."""
    values, rows = [], []
    for row, plan in plans.items():
        sums = {name: sum(t for c, t in plan.prediction.breakdown.items() if kind(c) == name) for name in KINDS}
        values += [
            {"row": row, "part": name, "value": took, "text": seconds(took)} for name, took in sums.items() if took
        ]
        within = next((f"{seconds(low)} to {seconds(high)}" for name, low, high in intervals if name == row), "–")
        rows.append((row, *(seconds(sums[name]) for name in KINDS), *[within] * bool(intervals)))
    ends = [
        {"row": row, "low": low, "high": high, "text": f"{seconds(low)} to {seconds(high)}"}
        for row, low, high in intervals
    ]
    table = TextTable(title, ("plan", *KINDS, *["80 %"] * bool(intervals)), rows)
    return Chart(title, summary, vega_lite.bars(values, "seconds", KINDS, intervals=ends), table)


# ---- timeline --------------------------------------------------------------------------------------------------------


def _timelines(plan: Plan) -> Iterator[Block]:
    if plan.parallelism.groups:
        for number, group in enumerate(plan.parallelism.groups, 1):
            if len(group.stages) > 1:
                yield _of_group(plan, number, group)
    elif plan.parallelism.pp > 1:
        yield _of_plan(plan)
    else:
        several = plan.batch.accumulation
        batches = f"{several:,} micro-batches in turn" if several > 1 else "one micro-batch a step"
        text = f"no pipeline: every replica works on {batches}"
        yield Lines((("Timeline", (text,)),))


def _of_plan(plan: Plan) -> Block:
    """Every stage takes as long: what of the step is passes, over the micro-batches."""
    p, causes = plan.parallelism, plan.prediction.breakdown
    count = max(plan.batch.accumulation, 1)
    inside = {cause: took / count for cause, took in causes.items() if cause not in OVER_PASSES}
    again = inside.get("recompute", 0.0)
    each = sum(inside.values())
    sent = sum(inside.get(cause, 0.0) for cause in FAMILIES["communication"]) / each if each else 0.0
    ahead = (each - again) * FORWARD
    chunks = p.vpp if p.pp > 1 else 1
    transfer = causes.get("p2p", 0.0) / count / (2 * chunks)
    after = sum(causes.get(cause, 0.0) for cause in ("dp", "copies", "optimizer"))
    return _drawn(
        f"One step of plan #{plan.rank} through its {p.pp} stages ({p.schedule})",
        [f"stage {number}" for number in range(1, p.pp + 1)],
        [ahead] * p.pp,
        [each - ahead] * p.pp,
        (count, chunks, transfer, after, sent),
        p.schedule,
    )


def _of_group(plan: Plan, number: int, group: Group) -> Block:
    """The stages of a group take what the plan states for each."""
    pools = plan.cluster.pools
    names = [f"stage {index}: {pools[stage.pool].accelerator}" for index, stage in enumerate(group.stages, 1)]
    ahead = [stage.time_s * FORWARD for stage in group.stages]
    back = [stage.time_s * (1.0 - FORWARD) for stage in group.stages]
    after = plan.prediction.breakdown.get("dp", 0.0) + plan.prediction.breakdown.get("optimizer", 0.0)
    title = f"One step of group {number}, {len(names)} stages"
    return _drawn(title, names, ahead, back, (group.micro_batches, 1, 0.0, after, 0.0))


def _drawn(
    title: str,
    names: Sequence[str],
    ahead: Sequence[float],
    back: Sequence[float],
    rest: tuple[int, int, float, float, float],
    name: str = "1f1b",
) -> Block:
    """`rest`: micro-batches, chunks, seconds of a transfer, of reductions with the update, the share of exchanges."""
    count, chunks, transfer, after, sent = rest
    stages = len(names)
    shown = _shown(count, stages, chunks)
    if name in pass_orders.FOLDED and shown < 2 * stages:
        shown = 0
    if not shown:
        return Lines((("Timeline", (f"{stages} stages of {chunks} chunks are too many to draw",)),))
    weight = [seconds_back * WEIGHT for seconds_back in back]
    is_whole = (chunks == 1 or count % stages == 0) and 2 * count * stages * chunks <= MOST_WORKED_OUT
    most = count if is_whole else shown
    works = pass_orders.run(ahead, back, most, chunks=chunks, transfer=transfer, weight=weight, name=name)
    end = max(work.end for work in works)
    first = shown // 2 + 1
    last = most - shown // 2
    between = range(first, last + 1) if shown < most else range(0)
    values = [value for work in works if work.micro_batch not in between for value in _spans(work, names, chunks, sent)]
    values += [value for stage in range(stages) for value in _merged(works, stage, names[stage], between)]
    if after > 0.0:
        text = f"{seconds(after)}: what shows of gathers, reductions and copies, and the update"
        values += [{"row": n, "part": "update", "start": end, "end": end + after, "text": text} for n in names]
    few = ""
    if between:
        few = f" Micro-batches {first:,} to {last:,} are one bar where they follow each other."
    elif most < count:
        few = f" {most} of its {count:,} micro-batches are drawn; what is left out in the middle repeats."
    parts = (*PARTS[:3], "weight", *PARTS[3:]) if name in pass_orders.ORDERS else PARTS
    halves = ", half of the rest as weight gradients" if name in pass_orders.ORDERS else ""
    summary = f"Gaps are the bubble.{few} A third of a pass's arithmetic is taken as forward"
    summary += f"{halves}."
    table = TextTable(
        title, ("stage", "works", "waits", "bubble"), [_idle(works, i, n, end) for i, n in enumerate(names)]
    )
    return Chart(title, summary, vega_lite.spans(values, "seconds", parts, names), table)


def _shown(count: int, stages: int, chunks: int) -> int:
    """Micro-batches to draw; 0 where not even one for each stage can be."""
    most = MOST_BLOCKS // (2 * stages * chunks)
    if chunks == 1:
        return min(count, max(most, 0), 8 * stages)
    return min(count - count % stages, most - most % stages, 4 * stages)


def _spans(work: pass_orders.Work, names: Sequence[str], chunks: int, sent: float) -> Iterator[dict[str, object]]:
    """A pass, and its exchanges, which happen all along, as its last share."""
    which = f"micro-batch {work.micro_batch}" + (f", chunk {work.chunk}" if chunks > 1 else "")
    cut = work.end - sent * (work.end - work.start)
    row = names[work.stage]
    yield {"row": row, "part": work.kind, "start": work.start, "end": cut, "text": which}
    if sent > 0.01:
        yield {"row": row, "part": "exchanges", "start": cut, "end": work.end, "text": f"{which}, not overlapped"}


def _merged(works: Sequence[pass_orders.Work], stage: int, name: str, between: range) -> Iterator[dict[str, object]]:
    """A bar for passes of a stage that follow each other and are of the micro-batches `between`."""
    in_turn = sorted((work for work in works if work.stage == stage), key=lambda work: work.start)
    for is_between, passes in groupby(in_turn, key=lambda work: work.micro_batch in between):
        if not is_between:
            continue
        run = list(passes)
        start = run[0].start
        end = run[-1].end
        numbers = [work.micro_batch for work in run]
        busy = format_percent(sum(work.end - work.start for work in run) / (end - start), 0)
        text = f"{len(run):,} passes of micro-batches {min(numbers):,} to {max(numbers):,}, at work {busy} of the time"
        yield {"row": name, "part": BETWEEN, "start": start, "end": end, "text": text}


def _idle(works: Sequence[pass_orders.Work], stage: int, name: str, end: float) -> tuple[str, ...]:
    busy = sum(work.end - work.start for work in works if work.stage == stage)
    return name, format_seconds(busy), format_seconds(end - busy), format_percent(1.0 - busy / end)
