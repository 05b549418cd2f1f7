"""Convolutional networks on unlike accelerators: node models from the catalog, for uneven data parallelism.

A node's forward and backward pass are close to lines in its images, so that Cannikin's model holds: its slopes and
intercepts are taken from the cost of two batches (:mod:`planner.cost.convolution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import collective_times, convolution, memory_risk
from planner.cost.figures import Device
from planner.cost.other_families import Software, stretched
from planner.figures import cost_inputs, matrix_formats, residual_widths
from planner.figures.efficiency import Efficiencies
from planner.models import families
from planner.question.job_pools import JobPool, Pools, joint
from planner.question.request import OOM_RISK
from planner.rebalancing.node_times import Array, Nodes, nodes

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
    """Of each image."""
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
    model, own = convolution.layers(families.network(network)), pool.cluster.accelerator
    if not matrix_formats.can_train_in(own, precision):
        able = [name for name in PRECISIONS if matrix_formats.can_train_in(own, name)]
        raise WrongQuestion(
            f"{own.id} does not train in {precision}; it does in {', '.join(able) or 'none'} (--precision)"
        )
    using = Efficiencies.of(catalog)
    reached, runtime = using.accelerator(own), using.runtime(RUNTIME[:1], RUNTIME[1], "", own.generation)
    software = cost_inputs.software(runtime, precision)
    spread, _ = residual_widths.found_memory(residual_widths.read(catalog, residual_widths.MEMORY), RUNTIME[0])
    return ImagePart(
        device=cost_inputs.matured(cost_inputs.device(own, reached, precision, RUNTIME[1]), reached, RUNTIME[1]),
        software=software,
        fixed=convolution.state_bytes(model, software) + runtime.resident_bytes,
        image=convolution.image_bytes(model, software) * runtime.activation_factor,
        usable=memory_risk.usable(own.memory, spread, oom_risk),
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
    straggler_factor = max(float(stretched(link, each.software, 1.0)) for each in parts)
    group = collective_times.group(link, float(ranks), 1.0)
    reduce = (
        float(collective_times.all_reduce(link, convolution.gradient_bytes(model, software), group)) * straggler_factor
    )
    columns: list[tuple[float, ...]] = []
    for pool, each in zip(used, parts, strict=True):
        times = convolution.passes(model, each.device, each.software, np.array([FEW, MANY]))
        (few_f, many_f), (few_b, many_b) = (
            (np.ravel(way) * straggler_factor).tolist() for way in (times.forward, times.backward)
        )
        q, k = (many_f - few_f) / (MANY - FEW), (many_b - few_b) / (MANY - FEW)
        update = float(convolution.update_time(model, each.device)) + float(each.software.step_overhead)
        ahead, back = max(few_f - q * FEW, 0.0) + update, max(few_b - k * FEW, 0.0)
        row = (q, ahead, k, back, 1.0 - float(each.software.dp_overlap), each.cap)
        columns += [row] * pool.cluster.accelerators
    last = reduce / len(model.size)
    q, s, k, m, gamma, cap = np.array(columns).T
    return nodes(q, s, k, m, gamma=gamma, overlapped=reduce - last, last=last, cap=cap)


def of_each(used: Sequence[JobPool], figures: Array) -> list[Array]:
    """Figures of all nodes (:func:`nodes_of`; one entry for each accelerator), split into one array for each pool."""
    ends = np.cumsum([pool.cluster.accelerators for pool in used])
    return np.split(figures, ends[:-1].tolist())
