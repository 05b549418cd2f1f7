"""Convolutional networks on unlike accelerators: node models from the catalog, for uneven data parallelism.

A node's forward and backward pass are close to lines in its images, so that Cannikin's model holds: its slopes and
intercepts are taken from the cost of two batches (:mod:`planner.cost.convolution`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner import binding, families
from planner.accuracy.frame import Efficiencies
from planner.catalog import Catalog
from planner.cost import collectives, convolution
from planner.errors import WrongQuestion
from planner.mixed.node_times import Nodes, nodes
from planner.mixed.pools import Pool, Pools, joint

RUNTIME = ("pytorch-ddp", "2020")
"""The data-parallel trainer whose efficiencies hold, and its year."""
FEW, MANY = 16.0, 256.0
"""Images between which times are taken to be lines."""
UPDATE_BYTES = 20.0
"""Traffic of the update per parameter: momentum, weight and gradient."""


def of(catalog: Catalog, network: str, offered: Pools, used: Sequence[Pool], precision: str = "fp16") -> Nodes:
    """A node for every accelerator of the pools `used`, in their order: ``t = q b + s`` forward, ``k b + m`` backward.

    The last layer's share of the gradients cannot overlap; the first is ready after its share of the backward pass.

    Raises:
        WrongQuestion: no such network, or an accelerator without the precision.
    """
    model = convolution.layers(families.network(network))
    using = Efficiencies.of(catalog)
    columns: list[tuple[float, float, float, float]] = []
    networks = []
    for pool in used:
        part = pool.cluster.accelerator
        if not binding.can_train_in(part, precision):
            raise WrongQuestion(f"{part.id} does not train in {precision}")
        reached = using.accelerator(part)
        device = binding.matured(binding.device(part, reached, precision, RUNTIME[1]), reached, RUNTIME[1])
        runtime = using.runtime(*RUNTIME, "", part.generation)
        software = binding.software(runtime, precision)
        times = convolution.passes(model, device, software, np.array([FEW, MANY]))
        (few_f, many_f), (few_b, many_b) = (np.ravel(way).tolist() for way in (times.forward, times.backward))
        q, k = (many_f - few_f) / (MANY - FEW), (many_b - few_b) / (MANY - FEW)
        update = float(model.parameters) * UPDATE_BYTES / device.memory_rate + software.step_overhead
        ahead, back = max(few_f - q * FEW + update, 0.0), max(few_b - k * FEW, 0.0)
        columns += [(q, ahead, k, back)] * pool.cluster.accelerators
        networks.append(binding.network(pool.cluster, reached))
    ranks = len(columns)
    link = joint(offered, used, networks, float(ranks))
    if len(used) > 1:
        fewest = min(pool.cluster.accelerators for pool in used)
        link = replace(link, domain=min(float(link.domain), max(float(min(fewest, ranks // 2)), 1.0)))
    reduce = float(
        collectives.all_reduce(
            link, convolution.gradient_bytes(model, software), collectives.group(link, float(ranks), 1.0)
        )
    )
    last = reduce / len(model.size)
    q, s, k, m = np.array(columns).T
    return nodes(q, s, k, m, gamma=1.0 / len(model.size), overlapped=reduce - last, last=last)
