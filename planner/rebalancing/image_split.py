"""The images of a step shared out over unlike accelerators: which pools take part, and how many images each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.cost import convolution
from planner.models import families
from planner.question.job_pools import JobPool, Pools, merged
from planner.question.request import OOM_RISK
from planner.rebalancing import batch_split, images, node_times
from planner.rebalancing.batch_split import BatchSplit
from planner.rebalancing.node_times import Nodes
from planner.schema.images import ImagePlan, ImagePool
from planner.schema.plan import Assumption, Generator

MOST_POOLS = 8
"""Of which every set is tried."""
Found = tuple[float, tuple[JobPool, ...], Nodes, BatchSplit]
"""Seconds of a step on some pools."""


def plan(catalog: Catalog, network: str, offered: Pools, batch: int, precision: str = "fp16", *,
         oom_risk: float = OOM_RISK, inputs: Mapping[str, str] | None = None,
         assumptions: Sequence[tuple[str, str, str]] = ()) -> ImagePlan:  # fmt: skip
    """The shortest step over any set of the pools, in whole images: exact under the model, as every set is tried.

    Raises:
        WrongQuestion: no such network, no pool with nodes, too many pools, or one without the precision.
        NoAnswer: the batch fits into the memory of all pools together in no way.
    """
    pools = Pools(merged(offered.all, {name for pair in offered.given for name in pair}), offered.given)
    if not pools.all:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    if len(pools.all) > MOST_POOLS:
        raise WrongQuestion(f"{len(pools.all)} pools: images are shared over {MOST_POOLS} at most")
    sets = [part for n in range(1, len(pools.all) + 1) for part in combinations(pools.all, n)]
    found = [each for part in sets if (each := _on(catalog, network, pools, part, batch, precision, oom_risk))]
    if not found:
        most = int(sum(np.floor(images.nodes_of(catalog, network, pools, pools.all, precision, oom_risk).cap)))
        raise NoAnswer(
            f"{batch:,} images do not fit: all accelerators together hold {most:,} at this risk (--oom-risk); "
            f"what would do: --batch {most}, or more of them" if most else
            f"{network} does not fit into the memory of any accelerator"
        )  # fmt: skip
    step, used, nodes, split = min(found, key=lambda each: each[0])
    alone = min((each for each in found if len(each[1]) == 1), key=lambda each: each[0], default=None)
    shares = images.of_each(used, split.batches)
    model = families.network(network)
    return ImagePlan(
        generator=Generator(version=__version__, seed=0, inputs=dict(inputs or {})),
        model=network,
        name=model.name,
        parameters=convolution.layers(model).parameters,
        precision=precision,
        runtime=images.RUNTIME[0],
        release=images.RUNTIME[1],
        batch=batch,
        pools=tuple(
            _pool(pool, mine, images.part(catalog, network, pool, precision, oom_risk))
            for pool, mine in zip(used, shares, strict=True)
        ),
        left_out=tuple(pool.name for pool in pools.all if pool not in used),
        step_time_s=step,
        images_per_s=batch / step,
        breakdown=_breakdown(nodes, split),
        even_step_s=_even(images.nodes_of(catalog, network, pools, pools.all, precision, oom_risk), batch),
        best_pool=alone[1][0].name if alone else None,
        best_pool_step_s=alone[0] if alone else None,
        assumptions=tuple(Assumption(what=what, why=why, flag=flag) for what, why, flag in assumptions),
    )


def _on(catalog: Catalog, network: str, pools: Pools, part: tuple[JobPool, ...], batch: int, precision: str,
        oom_risk: float) -> Found | None:  # fmt: skip
    """The best split over some pools of which each takes part; None where it does not fit, or one gets nothing."""
    nodes = images.nodes_of(catalog, network, pools, part, precision, oom_risk)
    if batch > np.sum(np.floor(nodes.cap)):
        return None
    split = batch_split.whole(nodes, batch)
    if not all(np.any(mine > 0) for mine in images.of_each(part, split.batches)):
        return None
    return float(split.time), part, nodes, split


def _even(nodes: Nodes, batch: int) -> float | None:
    shares = node_times.even(nodes, batch)
    return float(node_times.step_time(nodes, shares)) if np.all(shares <= nodes.cap) else None


def _pool(pool: JobPool, shares: node_times.Array, part: images.ImagePart) -> ImagePool:
    return ImagePool(
        name=pool.name,
        node=pool.cluster.node.id,
        zone=pool.zone,
        count=pool.count,
        accelerator=pool.cluster.accelerator.id,
        accelerators=pool.cluster.accelerators,
        images=int(np.sum(shares)),
        fewest=int(np.min(shares)),
        most=int(np.max(shares)),
        memory_bytes=part.fixed + part.image * float(np.max(shares)),
        capacity_bytes=pool.cluster.accelerator.memory,
    )


def _breakdown(nodes: Nodes, split: BatchSplit) -> dict[str, float]:
    """Seconds of the slowest accelerator by cause."""
    slowest = int(np.argmax(node_times.node_time(nodes, split.batches)))
    mine = float(split.batches[slowest])
    forward = float(nodes.q[slowest] * mine + nodes.s[slowest])
    backward = float(nodes.k[slowest] * mine + nodes.m[slowest])
    shown = float(split.time) - forward - backward
    return {"forward, update": forward, "backward": backward, "reductions": shown}
