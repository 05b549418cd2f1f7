"""Kinds of pipelines: which pools their stages stand on, how each stage is run, and what they need and deliver.

A kind is a chain of pools with a number of stages on each, one way to run a stage on each of these pools, and a deal of
the layers. A bundle is `width` such pipelines side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray

from planner.cost import collective_times, pipeline
from planner.cost.figures import Array, Network
from planner.mixed import layer_split
from planner.mixed.layer_split import StageCosts
from planner.mixed.stages import ROLES, Priced

Chain = tuple[tuple[int, int], ...]
"""(pool, stages on it), from the first stage to the last."""
STAGES_ALONE = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
STAGES_TOGETHER = (1, 2, 3, 4, 6, 8)
STAGES_TOGETHER_COARSE = (1, 2, 4, 8)
"""Stages on one pool: where it holds the whole pipeline, and where it shares it."""
MOST_POOLS = 2
"""Pools that one pipeline may span."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PipelineTemplates:
    """Kinds of pipelines as columns of equal length."""

    chain: Integers
    """Index into the chains."""
    configs: Integers
    """Row of each of the chain's pools in its table of configurations, shape (kinds, MOST_POOLS)."""
    usage: Integers
    """Accelerators of a bundle on every pool, shape (kinds, pools)."""
    width: Integers
    samples: Integers
    """Sequences of a bundle's micro-batch."""
    slowest: Array
    """Seconds of a micro-batch on the slowest stage."""
    total: Array
    """Seconds of a micro-batch through all stages."""
    update: Array
    dense: Array
    experts: Array
    """Most parameters of a rank."""
    tp: Array
    cp: Array
    ep: Array
    etp: Array
    forward: Array
    backward: Array
    layers: Array
    """Layers of the first stage; `forward` and `backward` are the seconds of its passes."""
    seam: Integers
    """Which layers stand on which pool, as a number: kinds of the same one hold every layer on the same pool."""

    def __len__(self) -> int:
        return len(self.chain)

    def taken(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> PipelineTemplates:
        """The templates at some rows: their indices or a mask, shape (kinds,)."""
        return PipelineTemplates(*(getattr(self, f.name)[rows] for f in fields(self)))


def joined(parts: Sequence[PipelineTemplates]) -> PipelineTemplates:
    """The templates of all parts, one after the other."""
    return PipelineTemplates(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(PipelineTemplates)))


def chains(pools: int, layers: int, alone: Sequence[int], together: Sequence[int]) -> Iterator[Chain]:
    """Every order of up to :data:`MOST_POOLS` of the pools with every number of stages on each, at most one a layer.

    `alone` are the numbers of stages tried where one pool holds the whole pipeline, `together` where two share it.
    """
    for pool in range(pools):
        yield from (((pool, n),) for n in alone if n <= layers)
    if MOST_POOLS < 2:
        return
    for a, b in permutations(range(pools), 2):
        yield from (((a, n), (b, m)) for n in together for m in together if n + m <= layers)


def rows_of(chain: Chain, tables: Sequence[Priced], shared: Sequence[str] = ()) -> list[Integers]:
    """For each of the chain's pools, rows of its table whose micro-batch, width and `shared` degrees agree, shape
    (kinds,).
    """
    first = tables[chain[0][0]].configs
    columns_so_far = [np.arange(len(first.tp))]
    for pool, _ in chain[1:]:
        configs = tables[pool].configs
        agree = [
            getattr(configs, name)[None, :] == getattr(first, name)[columns_so_far[0], None]
            for name in ("micro", "width", *shared)
        ]
        left, right = np.nonzero(np.all(agree, axis=0))
        columns_so_far = [*(column[left] for column in columns_so_far), right]
    return columns_so_far


def kinds(chains: Sequence[Chain], tables: Sequence[Priced], links: dict[tuple[int, int], Network], layers: int,
          limits: Sequence[int], shared: Sequence[str] = ()) -> PipelineTemplates | None:  # fmt: skip
    """All kinds of pipelines that fit, chain after chain, each with its best split of layers; None where none does.

    Args:
        chains: Pools and stages of each.
        tables: Of each pool, its priced stages.
        links: The network between two pools.
        layers: Of the model.
        limits: Accelerators of each pool.
        shared: Degrees that all stages of a pipeline have in common.
    """
    within = [_within(chain, tables, limits, shared) for chain in chains]
    costs = {i: chain_costs(chains[i], rows, tables, links) for i, (rows, usage) in enumerate(within) if len(usage)}
    parts = []
    for i, split in sorted(layer_split.split_chains(costs, layers).items()):
        kept, (rows, usage) = np.isfinite(split.slowest), within[i]
        if kept.any():
            fits = [row[kept] for row in rows]
            parts.append(columns(i, chains[i], fits, usage[kept], tables, split.taken(kept)))
    return joined(parts) if parts else None


def _within(
    chain: Chain, tables: Sequence[Priced], limits: Sequence[int], shared: Sequence[str]
) -> tuple[list[Integers], Integers]:
    """Rows of the tables for every pipeline on a chain that the pools have room for, and what it uses of them."""
    rows = rows_of(chain, tables, shared)
    usage = np.zeros((len(rows[0]), len(tables)), dtype=np.int64)
    for (pool, stages), row in zip(chain, rows, strict=True):
        usage[:, pool] += (stages * tables[pool].configs.accelerators[row]).astype(np.int64)
    fits = np.all(usage <= np.asarray(limits), axis=-1)
    return [row[fits] for row in rows], usage[fits]


def places(chain: Chain) -> list[tuple[int, int, str, int]]:
    """(place in the chain, pool, role, stages to the end) of every stage."""
    depth = sum(n for _, n in chain)
    stage_places: list[tuple[int, int, str, int]] = []
    for place, (pool, n) in enumerate(chain):
        for _ in range(n):
            i = len(stage_places)
            role = "alone" if depth == 1 else "first" if i == 0 else "last" if i == depth - 1 else "middle"
            stage_places.append((place, pool, role, depth - i))
    return stage_places


def chain_costs(chain: Chain, rows: Sequence[Integers], tables: Sequence[Priced],
           links: dict[tuple[int, int], Network]) -> StageCosts:  # fmt: skip
    """What the split of layers needs of a chain's stages, one pipeline for each entry of `rows`."""
    stages = places(chain)
    hops = _hops(stages, rows, tables, links)
    parts = []
    for i, (place, pool, role, depth) in enumerate(stages):
        table, row = tables[pool], rows[place]
        max_layers = table.max_layers[row][:, :, ROLES.index(role), depth - 1]
        fixed = _waited(stages, hops, i)[:, None]
        least = 1
        if role in ("alone", "first"):
            fixed = fixed + table.embedding[row][:, None] + table.leading[row]
            least = max(table.least, 1)
        if role in ("alone", "last"):
            fixed = fixed + table.head[row][:, None]
        parts.append((table.layer[row], max_layers, np.broadcast_to(fixed, max_layers.shape), least))
    return layer_split.stage_costs(parts)


def _waited(stages: Sequence[tuple[int, int, str, int]], hops: Sequence[Array], i: int) -> Array:
    """Seconds of a micro-batch's transfers that stage i waits for (:func:`planner.cost.pipeline.waited`); within its
    pool the slower side's, as in one cluster.
    """
    sides = ((i - 1, hops[i]), (i + 1, hops[i + 1]))
    nothing = np.zeros_like(hops[i])

    def waits(other: int, hop: Array, *, inside: bool) -> Array:
        exists = 0 <= other < len(stages)
        return hop if exists and (stages[other][1] == stages[i][1]) is inside else nothing

    within = np.maximum(*(waits(*side, inside=True) for side in sides))
    return np.asarray(pipeline.waited(within, *(waits(*side, inside=False) for side in sides)))


def _hops(stages: Sequence[tuple[int, int, str, int]], rows: Sequence[Integers], tables: Sequence[Priced],
          links: dict[tuple[int, int], Network]) -> list[Array]:  # fmt: skip
    """Seconds of the transfers before every stage and after the last: activations there, gradients back."""
    nothing = np.zeros(len(rows[0]))
    hops = [nothing]
    for (place, pool, _, _), (next_place, other, _, _) in pairwise(stages):
        if pool == other:
            hops.append(tables[pool].hop[rows[place]])
        else:
            size = np.maximum(tables[pool].hop_bytes[rows[place]], tables[other].hop_bytes[rows[next_place]])
            hops.append(np.asarray(2.0 * collective_times.send(links[pool, other], size, 1.0, 2.0)))
    return [*hops, nothing]


def columns(index: int, chain: Chain, rows: list[Integers], usage: Integers, tables: Sequence[Priced],
            split: layer_split.LayerSplit) -> PipelineTemplates:  # fmt: skip
    """Templates of one chain whose layers are split: accelerators, parameters and seconds of a bundle of each."""
    count = len(usage)
    dense, experts, update = np.zeros(count), np.zeros(count), np.zeros(count)
    for i, (place, pool, role, _) in enumerate(places(chain)):
        table = tables[pool]
        row = rows[place]
        n = split.layers[:, i]
        mine, routed = parameters(table, row, role, n)
        dense, experts = np.maximum(dense, mine), np.maximum(experts, routed)
        update_s = table.update[row]
        update = np.maximum(update, mine * update_s[:, 0] + routed * update_s[:, 1])
    configs = [tables[pool].configs for pool, _ in chain]
    largest = {
        name: np.max([getattr(w, name)[row] for w, row in zip(configs, rows, strict=True)], axis=0)
        for name in ("tp", "cp", "ep", "etp")
    }
    table = tables[chain[0][0]]
    row = rows[0]
    policy = split.policy[:, 0]
    padded = np.zeros((count, max(MOST_POOLS, len(chain))), dtype=np.int64)
    for place, each_row in enumerate(rows):
        padded[:, place] = each_row
    width = configs[0].width[rows[0]].astype(np.int64)
    first = split.layers[:, 0].astype(np.float64)
    alone = float(sum(stages for _, stages in chain) == 1)
    late = alone * table.head_backward[row]
    return PipelineTemplates(
        chain=np.full(count, index),
        configs=padded,
        usage=usage,
        width=width,
        samples=configs[0].micro[rows[0]].astype(np.int64) * width,
        slowest=split.slowest,
        total=split.total,
        update=update,
        dense=dense,
        experts=experts,
        **largest,
        forward=first * table.forward[row, policy]
        + (table.embedding[row] + 2.0 * table.tower[row]) / 3.0
        + alone * table.head[row]
        - late,
        backward=first * table.backward[row, policy] + 2.0 * (table.embedding[row] - table.tower[row]) / 3.0 + late,
        layers=first,
        seam=_seam(chain, split.layers, len(tables)),
    )


def _seam(chain: Chain, layers: Integers, pools: int) -> Integers:
    """A number for the pools of the chain, in order, and the layers on each but the last."""
    seam = np.zeros(len(layers), dtype=np.int64)
    start = 0
    for place, (pool, stages) in enumerate(chain):
        start += stages
        held = layers[:, :start].sum(-1) if place < len(chain) - 1 else 0
        seam = (seam * (pools + 1) + pool + 1) * (int(layers.sum(-1).max()) + 1) + held
    return seam


def parameters(table: Priced, row: Integers, role: str, layers: Integers) -> tuple[Array, Array]:
    """Parameters on a rank of a stage of that role with `layers` layers: dense ones, and those of routed experts."""
    first = role in ("alone", "first")
    dense = layers * table.dense[row] + table.ends[row, ROLES.index(role)] + first * table.lead_dense[row]
    return dense, layers * table.experts[row] + first * table.lead_experts[row]
