"""The cluster and its memory, drawn: nodes and networks, the stage that each accelerator holds, and bytes by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

from planner.base.units import format_bytes
from planner.report import vega_lite
from planner.report.html_page import Box, Caption, Chart, Drawing, Section, TextTable, Wire
from planner.report.vega_lite import PALETTE
from planner.schema.plan import MemorySection, Parallelism, Plan, StageMemory
from planner.schema.plan_prediction import called

CELL, GAP = 17.0, 3.0
"""Pixels of an accelerator, and between two."""
MOST_NODES = 66
"""Of a pool that are drawn; the others look like them."""
WIDTH = 1120.0
MARGIN = 14.0
LINE = 18.0
Frame = tuple[float, float, float, float]
"""Left, top, width, height."""


class Holds(NamedTuple):
    """What an accelerator holds: the stage, empty where it is idle, its rank and places in groups, if known."""

    stage: str = ""
    rank: str = ""


def section(plan: Plan) -> Section:
    """All pools, their nodes and their networks."""
    top, boxes, wires, texts = 0.0, list[Box](), list[Wire](), list[Caption]()
    held = [_stages(plan, index) for index in range(len(plan.cluster.pools))]
    names = [stage for stage in dict.fromkeys(each.stage for each in chain.from_iterable(held)) if stage]
    colours = {what: place % len(PALETTE) for place, what in enumerate(names)}
    for index in range(len(plan.cluster.pools)):
        more, below = _pool(plan, index, held[index], colours, top)
        boxes += more[0]
        wires += more[1]
        texts += more[2]
        top = below
    title = "Machines, and what runs where"
    what = "group and stage" if plan.parallelism.groups else "pipeline stage"
    summary = f"Each square is an accelerator; its number is the {what} that it holds."
    rows = [row for index in range(len(held)) for row in _counted(plan, index, held[index])]
    table = TextTable(title, ("pool", "holds", "accelerators"), rows)
    return Section("Cluster", (Drawing(title, summary, WIDTH, top, boxes, wires, texts, table),))


def _stages(plan: Plan, pool: int) -> list[Holds]:
    """What each accelerator of a pool holds, in the order of ranks."""
    p, each = plan.parallelism, plan.cluster.pools[pool]
    size = each.count * each.accelerators_per_node
    if p.groups:
        found = chain.from_iterable(
            repeat(Holds(f"{g}.{s}"), group.copies * group.width * stage.tp * stage.cp)
            for g, group in enumerate(p.groups, 1)
            for s, stage in enumerate(group.stages, 1)
            if stage.pool == pool
        )
        names = list(found)
    else:
        names = [_of_rank(p, rank) for rank in range(p.tp * p.cp * p.dp * p.pp)]
    return (names + [Holds()] * size)[:size]


def _of_rank(p: Parallelism, rank: int) -> Holds:
    """What a rank holds, and its places in its groups, from 0 as launchers count."""
    size = {"tp": p.tp, "cp": p.cp, "dp": p.dp, "pp": p.pp}
    places, inner = dict[str, int](), 1
    for axis in (each for each in p.rank_order.split("-") if each in size):
        places[axis] = rank // inner % size[axis]
        inner *= size[axis]
    groups = ", ".join(f"{axis.upper()} {places[axis]}" for axis in size if size[axis] > 1)
    return Holds(str(places["pp"] + 1), f"rank {rank}{': ' if groups else ''}{groups}")


def _counted(plan: Plan, pool: int, held: Sequence[Holds]) -> Iterator[tuple[str, str, str]]:
    name = f"{plan.cluster.pools[pool].count} x {plan.cluster.pools[pool].node}"
    for what, count in Counter(each.stage for each in held).items():
        stage = f"group {what.replace('.', ', stage ')}" if "." in what else f"stage {what}"
        yield name, stage if what else "nothing", f"{count:,}"


def _pool(
    plan: Plan, index: int, held: Sequence[Holds], colours: Mapping[str, int], top: float
) -> tuple[tuple[list[Box], list[Wire], list[Caption]], float]:
    """Boxes, wires and texts of a pool below `top`, and where it ends."""
    pool = plan.cluster.pools[index]
    each = pool.accelerators_per_node
    columns = min(each, 4) if each <= 8 else 8
    wide = columns * (CELL + GAP) + GAP
    high = -(-each // columns) * (CELL + GAP) + GAP
    across = max(1, int((WIDTH - 2 * MARGIN) // (wide + MARGIN)))
    drawn = min(pool.count, MOST_NODES)
    boxes, wires = list[Box](), list[Wire]()
    texts = [Caption(MARGIN, top + LINE, _named(plan, index)), Caption(MARGIN, top + 2 * LINE, _network(plan, index))]
    left, y = MARGIN, top + 3 * LINE
    for row in range(-(-drawn // across)):
        nodes = range(row * across, min((row + 1) * across, drawn))
        wires.append(Wire(left, y, left + (len(nodes) - 0.5) * (wide + MARGIN), y))
        for place, node in enumerate(nodes):
            x = left + place * (wide + MARGIN)
            wires.append(Wire(x + wide / 2, y, x + wide / 2, y + 8))
            own = held[node * each : (node + 1) * each]
            boxes += _node((pool.node, node), own, colours, (x, y + 8, wide, high), columns)
        y += high + 8 + MARGIN
    wires.append(Wire(left, top + 3 * LINE, left, y - high - 8 - MARGIN))
    if drawn < pool.count:
        texts.append(Caption(MARGIN, y + 4, f"and {pool.count - drawn:,} more nodes like these"))
        y += LINE
    return (boxes, wires, texts), y + MARGIN / 2


def _node(
    node: tuple[str, int], held: Sequence[Holds], colours: Mapping[str, int], frame: Frame, columns: int
) -> Iterator[Box]:
    (name, number), (x, y, wide, high) = node, frame
    yield Box(x, y, wide, high, title=f"{name}, node {number}")
    for place, (what, rank) in enumerate(held):
        left, top = x + GAP + place % columns * (CELL + GAP), y + GAP + place // columns * (CELL + GAP)
        holds = "; ".join(each for each in (f"stage {what}" if what else "nothing", rank) if each)
        title = f"accelerator {place} of node {number}: {holds}"
        yield Box(left, top, CELL, CELL, title=title, colour=colours.get(what), text=what)


def _named(plan: Plan, index: int) -> str:
    pool = plan.cluster.pools[index]
    inside = "" if pool.scaleup_bytes_per_s is None else f", {_rate(pool.scaleup_bytes_per_s)} inside a node"
    has = format_bytes(pool.accelerator_memory_bytes)
    return f"{pool.count} x {pool.node}: {pool.accelerators_per_node} x {pool.accelerator} ({has}){inside}"


def _network(plan: Plan, index: int) -> str:
    pool, fabric = plan.cluster.pools[index], plan.cluster.fabric
    if pool.count == 1 and len(plan.cluster.pools) == 1:
        return "one node: no network between nodes"
    ports = f"{pool.nics_per_node} x {_rate(pool.nic_bytes_per_s or fabric.nic_bytes_per_s)} a node"
    shape = f"{fabric.topology}" + (f" {fabric.oversubscription:g}:1" if fabric.oversubscription != 1.0 else "")
    links = [link for link in plan.cluster.links if index in link.pools]
    other = "".join(f"; to pool {max(set(k.pools) - {index}, default=index) + 1}: {_rate(k.bytes_per_s)} a node"
                    for k in links)  # fmt: skip
    return f"{pool.network or fabric.id}, {shape}, {ports}{other}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.4g} GB/s"


GIB = 2.0**30
KINDS: tuple[str, ...] = ("parameters", "gradients", "optimizer", "activations", "buffers", "resident")
NAMES = (*map(called, KINDS),)


def memory_section(plan: Plan) -> Section:
    """Bytes on an accelerator of every stage, next to what it has."""
    chart = _of_groups(plan) if plan.parallelism.groups else _of_stages(plan)
    return Section("Memory", (chart,))


def _of_stages(plan: Plan) -> Chart:
    m = plan.prediction.memory
    by_stage: Sequence[MemorySection | StageMemory] = m.by_stage or (m,)
    names = [f"stage {index + 1}{' (fullest)' * (index == m.stage)}" for index in range(len(by_stage))]
    if m.by_stage is None:
        names = ["every stage" if plan.parallelism.pp == 1 else f"stage {m.stage + 1} (fullest)"]
    return _chart(names, NAMES, [*map(_parts, by_stage)], m.capacity_bytes, "On each accelerator.")


def _parts(held: MemorySection | StageMemory) -> list[float]:
    return [getattr(held, f"{kind}_bytes") for kind in KINDS]


def _of_groups(plan: Plan) -> Chart:
    stages = [
        (g, i, stage) for g, group in enumerate(plan.parallelism.groups, 1) for i, stage in enumerate(group.stages, 1)
    ]
    names = [f"group {g}, stage {i}: {plan.cluster.pools[stage.pool].accelerator}" for g, i, stage in stages]
    known = [stage.held for _, _, stage in stages]
    parts = [_parts(held) for held in known if held]
    kinds, held = (
        (NAMES, parts) if len(parts) == len(stages) else (("in use",), [[s.memory_bytes] for _, _, s in stages])
    )
    capacities = {plan.cluster.pools[stage.pool].accelerator_memory_bytes for _, _, stage in stages}
    has = ", ".join(format_bytes(each) for each in sorted(capacities))
    limit = min(capacities) if len(capacities) == 1 else None
    return _chart(names, kinds, held, limit, f"On each accelerator; their own memory: {has}.")


def _chart(
    names: Sequence[str], kinds: Sequence[str], held: Sequence[Sequence[float]], limit: float | None, how: str
) -> Chart:
    values = [
        {"row": name, "part": kind, "value": size / GIB, "text": format_bytes(size)}
        for name, each in zip(names, held, strict=True)
        for kind, size in zip(kinds, each, strict=True)
        if size
    ]
    rows = [(n, *map(format_bytes, each), format_bytes(sum(each))) for n, each in zip(names, held, strict=True)]
    title = "Memory of an accelerator, by stage and kind"
    over = "" if limit is None else f" The dashed line is its capacity, {format_bytes(limit)}."
    spec = vega_lite.bars(values, "GiB", kinds, limit=None if limit is None else limit / GIB)
    return Chart(title, how + over, spec, TextTable(title, ("stage", *kinds, "total"), rows))
