"""The images of a step split over heterogeneous accelerators: which pools take part, and how many images each gets.

A node's forward and backward pass are close to linear in its images, so that Cannikin's model holds: its slopes and
intercepts are taken from the cost of two batches (:mod:`planner.cost.convolution`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.cost import collective_times, convolution, stage_memory
from planner.cost.figures import Device
from planner.cost.other_families import Software, stretched
from planner.figures import conformal_intervals, cost_inputs, matrix_formats
from planner.figures.efficiency import Efficiencies
from planner.models import families
from planner.question.job_pools import JobPool, Pools, joint
from planner.question.request import OOM_RISK
from planner.rebalancing import batch_split
from planner.rebalancing.batch_split import Array, BatchSplit, Nodes, nodes
from planner.schema.images import ImagePlan, ImagePool
from planner.schema.plan import Assumption, Generator

RUNTIME = ("pytorch-ddp", "2020")
"""The data-parallel trainer whose efficiencies hold, and its year."""
PRECISIONS = ("fp16", "bf16", "tf32", "fp32")
FEW, MANY = 16.0, 256.0
"""Images between which times are taken to be lines."""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An accelerator of a pool under a network: its figures, and what its memory holds. Bytes."""

    device: Device
    software: Software
    fixed: float
    """Held whatever the images."""
    image: float
    """Held for each image."""
    usable: float
    """What a predicted peak may reach at the risk asked for."""

    @property
    def cap(self) -> float:
        """Most images of a step that fit into its memory."""
        return float(np.floor(max(self.usable - self.fixed, 0.0) / self.image))


def part(catalog: Catalog, network: str, pool: JobPool, precision: str, oom_risk: float = OOM_RISK) -> ImagePart:
    """Figures of the accelerator of a pool for a convolutional network.

    Raises:
        WrongQuestion: no such network, or an accelerator without the precision.
    """
    model = convolution.layers(families.network(network))
    accelerator = pool.cluster.accelerator
    if not matrix_formats.can_train_in(accelerator, precision):
        able = [name for name in PRECISIONS if matrix_formats.can_train_in(accelerator, name)]
        raise WrongQuestion(
            f"{accelerator.id} does not train in {precision}; it does in {', '.join(able) or 'none'} (--precision)"
        )
    using = Efficiencies.of(catalog)
    reached = using.accelerator(accelerator)
    runtime = using.runtime(RUNTIME[:1], RUNTIME[1], "", accelerator.generation)
    software = cost_inputs.software(runtime, precision)
    spread, _ = conformal_intervals.memory_width(catalog, RUNTIME[0])
    return ImagePart(
        device=cost_inputs.matured(
            cost_inputs.device(accelerator, reached, precision, RUNTIME[1]), reached, RUNTIME[1]
        ),
        software=software,
        fixed=convolution.state_bytes(model, software) + runtime.resident_bytes,
        image=convolution.image_bytes(model, software) * runtime.activation_factor,
        usable=stage_memory.usable(accelerator.memory, spread, oom_risk),
    )


def nodes_of(catalog: Catalog, network: str, offered: Pools, used: Sequence[JobPool], precision: str = "fp16",
       oom_risk: float = OOM_RISK) -> Nodes:  # fmt: skip
    """A node for every accelerator of the pools `used`, in their order: ``t = q b + s`` forward, ``k b + m`` backward.

    Reductions may run beside the share of the backward pass that the trainer overlaps, but for the last layer's.
    Waiting for the slowest rank stretches all but the update, as in :func:`planner.cost.convolution.step_time`.

    Raises:
        WrongQuestion: no such network, or an accelerator without the precision.
    """
    model = convolution.layers(families.network(network))
    using = Efficiencies.of(catalog)
    parts = [part(catalog, network, pool, precision, oom_risk) for pool in used]
    networks = [cost_inputs.network(pool.cluster, using.accelerator(pool.cluster.accelerator)) for pool in used]
    ranks = sum(pool.cluster.accelerators for pool in used)
    link = joint(offered, used, networks, float(ranks))
    if len(used) > 1:
        fewest = min(pool.cluster.accelerators for pool in used)
        link = replace(link, domain=min(float(link.domain), max(float(min(fewest, ranks // 2)), 1.0)))
    software = parts[0].software
    straggler_factor = max(float(stretched(link, image_part.software, 1.0)) for image_part in parts)
    group = collective_times.group(link, float(ranks), 1.0)
    reduce = (
        float(collective_times.all_reduce(link, convolution.gradient_bytes(model, software), group)) * straggler_factor
    )
    columns: list[tuple[float, ...]] = []
    for pool, image_part in zip(used, parts, strict=True):
        times = convolution.passes(model, image_part.device, image_part.software, np.array([FEW, MANY]))
        (few_f, many_f), (few_b, many_b) = (
            (np.ravel(way) * straggler_factor).tolist() for way in (times.forward, times.backward)
        )
        q, k = (many_f - few_f) / (MANY - FEW), (many_b - few_b) / (MANY - FEW)
        update = float(convolution.update_time(model, image_part.device)) + float(image_part.software.step_overhead)
        ahead = max(few_f - q * FEW, 0.0) + update
        back = max(few_b - k * FEW, 0.0)
        row = (q, ahead, k, back, 1.0 - float(image_part.software.dp_overlap), image_part.cap)
        columns += [row] * pool.cluster.accelerators
    last = reduce / len(model.size)
    q, s, k, m, gamma, cap = np.array(columns).T
    return nodes(q, s, k, m, gamma=gamma, overlapped=reduce - last, last=last, cap=cap)


def of_each(used: Sequence[JobPool], figures: Array) -> list[Array]:
    """Figures of all nodes (:func:`nodes_of`; one entry for each accelerator), split into one array for each pool."""
    ends = np.cumsum([pool.cluster.accelerators for pool in used])
    return np.split(figures, ends[:-1].tolist())


MOST_POOLS = 8
"""Most pools of which every subset is tried."""
Found = tuple[float, tuple[JobPool, ...], Nodes, BatchSplit]
"""Seconds of a step on some pools."""


class ImageTraining(NamedTuple):
    """A network of images to train: what its passes take on any pool follows."""

    catalog: Catalog
    network: str
    precision: str = "fp16"
    oom_risk: float = OOM_RISK


def plan(
    training: ImageTraining,
    offered: Pools,
    batch: int,
    *,
    inputs: Mapping[str, str] | None = None,
    assumptions: Sequence[tuple[str, str, str]] = (),
) -> ImagePlan:
    """The shortest step over any set of the pools, in whole images: exact under the model, as every set is tried.

    Raises:
        WrongQuestion: no such network, no pool with nodes, too many pools, or one without the precision.
        NoAnswer: the batch fits into the memory of all pools together in no way.
    """
    catalog, network, precision, oom_risk = training
    pools = offered.merged()
    if not pools.all:
        raise WrongQuestion("no pool has any nodes; give at least one (--cluster NODE:COUNT)")
    if len(pools.all) > MOST_POOLS:
        raise WrongQuestion(f"{len(pools.all)} pools: images are shared over {MOST_POOLS} at most")
    sets = [part for n in range(1, len(pools.all) + 1) for part in combinations(pools.all, n)]
    plans = [plan_on for part in sets if (plan_on := _on(training, pools, part, batch))]
    if not plans:
        most = int(sum(np.floor(nodes_of(catalog, network, pools, pools.all, precision, oom_risk).cap)))
        raise NoAnswer(
            f"{batch:,} images do not fit: all accelerators together hold {most:,} at this risk (--oom-risk); "
            f"what would do: --batch {most}, or more of them" if most else
            f"{network} does not fit into the memory of any accelerator"
        )  # fmt: skip
    step, used, nodes, split = min(plans, key=lambda plan_on: plan_on[0])
    alone = min((plan_on for plan_on in plans if len(plan_on[1]) == 1), key=lambda plan_on: plan_on[0], default=None)
    shares = of_each(used, split.batches)
    model = families.network(network)
    return ImagePlan(
        generator=Generator(version=__version__, seed=0, inputs=dict(inputs or {})),
        model=network,
        name=model.name,
        parameters=convolution.layers(model).parameters,
        precision=precision,
        runtime=RUNTIME[0],
        release=RUNTIME[1],
        batch=batch,
        pools=tuple(
            _pool(pool, mine, part(catalog, network, pool, precision, oom_risk))
            for pool, mine in zip(used, shares, strict=True)
        ),
        left_out=tuple(pool.name for pool in pools.all if pool not in used),
        step_time_s=step,
        images_per_s=batch / step,
        breakdown=_breakdown(nodes, split),
        even_step_s=_even(nodes_of(catalog, network, pools, pools.all, precision, oom_risk), batch),
        best_pool=alone[1][0].name if alone else None,
        best_pool_step_s=alone[0] if alone else None,
        assumptions=tuple(Assumption(what=what, why=why, flag=flag) for what, why, flag in assumptions),
    )


def _on(training: ImageTraining, pools: Pools, part: tuple[JobPool, ...], batch: int) -> Found | None:
    """The best split over some pools of which each takes part; None where it does not fit, or one gets nothing."""
    catalog, network, precision, oom_risk = training
    nodes = nodes_of(catalog, network, pools, part, precision, oom_risk)
    if batch > np.sum(np.floor(nodes.cap)):
        return None
    split = batch_split.whole(nodes, batch)
    if not all(np.any(mine > 0) for mine in of_each(part, split.batches)):
        return None
    return float(split.time), part, nodes, split


def _even(nodes: Nodes, batch: int) -> float | None:
    shares = batch_split.even(nodes, batch)
    return float(batch_split.step_time(nodes, shares)) if np.all(shares <= nodes.cap) else None


def _pool(pool: JobPool, shares: batch_split.Array, part: ImagePart) -> ImagePool:
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
    slowest = int(np.argmax(batch_split.node_time(nodes, split.batches)))
    mine = float(split.batches[slowest])
    forward = float(nodes.q[slowest] * mine + nodes.s[slowest])
    backward = float(nodes.k[slowest] * mine + nodes.m[slowest])
    shown = float(split.time) - forward - backward
    return {"forward, update": forward, "backward": backward, "reductions": shown}
