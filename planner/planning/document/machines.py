"""What a plan runs on, as sections of its document: pools, the network inside each and the links between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass, replace
from itertools import combinations

from planner.planning.document.solution import PoolInUse, Solution
from planner.question.request import preemptions, restart
from planner.schema import plan as schema
from planner.schema.hardware import Accelerator, Cluster, Fabric
from planner.schema.notebook import LONG


def cluster_section(solution: Solution) -> schema.ClusterSection:
    """All pools in use, with what joins each two of them; the fabric and the region are the first pool's."""
    first = solution.pools[0].pool.cluster
    names = [f"{each.pool.name}:{each.nodes}" for each in solution.pools]
    return schema.ClusterSection(
        name=" + ".join(names) if solution.heterogeneous else first.name or names[0],
        accelerators=solution.accelerators,
        pools=tuple(_pool_section(solution, each) for each in solution.pools),
        fabric=fabric_section(first.fabric, first.accelerators),
        region=first.region.id if first.region else None,
        links=tuple(_link_section(solution, a, b) for a, b in combinations(range(len(solution.pools)), 2)),
    )


def _pool_section(solution: Solution, used: PoolInUse) -> schema.Pool:
    """A pool; where several were offered with its zone, its network, and how it interrupts a job if unlike others."""
    own = used.pool.cluster.accelerator
    changed = tuple(changed_figures(solution.request.stock.get(own.id, own), own)) or None
    dispatchers = own.dispatchers if solution.configuration.dispatcher is not None else None
    plain = replace(
        plain_pool(used.pool.cluster, used.nodes),
        changed=changed,
        dispatchers=dispatchers,
        attention_kernels=used.attention_kernels,
    )
    if not solution.heterogeneous:
        return plain
    restarts = [restart(solution.request, each.pool) for each in solution.pools]
    taken_back = preemptions(solution.request, used.pool)
    among_others = {
        "zone": used.pool.zone,
        "offered": used.pool.count,
        "network": used.pool.cluster.fabric.id,
        "preemptions_per_node_s": taken_back or None,
        "restart_s": restart(solution.request, used.pool) if len(set(restarts)) > 1 else None,
    }
    return schema.Pool(**{**vars(plain), **among_others})


def changed_figures(stock: Accelerator, own: Accelerator) -> Iterator[schema.ChangedFigure]:
    """Every figure of an accelerator that is not the catalog's; where it was read and what it is sold for are none."""
    before = _figures(stock)
    now = _figures(own)
    for figure in dict.fromkeys((*before, *now)):
        if before.get(figure) != now.get(figure):
            yield schema.ChangedFigure(figure=figure, catalog=before.get(figure), used=now.get(figure))


def _figures(record: object, prefix: str = "") -> dict[str, float | bool | str | None]:
    """A record's figures, numbers as floats, those of records and tables in it under ``scaleup.bandwidth``."""
    inside = record.items() if isinstance(record, dict) else vars(record).items()
    figures: dict[str, float | bool | str | None] = {}
    for name, value in inside:
        if is_dataclass(value) or isinstance(value, dict):
            figures |= _figures(value, f"{prefix}{name}.")
        elif name not in LONG and name != "name":
            figure = ", ".join(value) if isinstance(value, tuple) else value
            figures[prefix + name] = float(figure) if type(figure) is int else figure
    return figures


def plain_pool(cluster: Cluster, count: int) -> schema.Pool:
    """`count` nodes of a cluster, as a plan on them alone describes them."""
    node = cluster.node
    accelerator = cluster.accelerator
    link = cluster.scaleup
    return schema.Pool(
        node=node.id,
        count=count,
        accelerator=accelerator.id,
        vendor=accelerator.vendor,
        accelerators_per_node=node.accelerators,
        accelerator_memory_bytes=accelerator.memory,
        peak_flops={str(dtype): rate for dtype, rate in accelerator.peak.items()},
        scaleup_bytes_per_s=link.bandwidth,
        nics_per_node=node.nics,
        nic_bytes_per_s=node.nic_bandwidth,
        max_power_w=node.max_power,
        expanded=_expanded_pool(accelerator),
    )


def _expanded_pool(accelerator: Accelerator) -> schema.ExpandedPool | None:
    """Memory beside the accelerators' own; None where there is none."""
    if accelerator.expanded_memory is None or accelerator.expanded_bandwidth is None:
        return None
    return schema.ExpandedPool(
        bytes=accelerator.expanded_memory,
        bytes_per_s=accelerator.expanded_bandwidth,
        latency_s=accelerator.expanded_latency,
        scope=accelerator.expanded_scope,
        access=accelerator.expanded_access,
    )


def _link_section(solution: Solution, a: int, b: int) -> schema.PoolLink:
    link = solution.question.link(solution.pools[a].pool, solution.pools[b].pool)
    return schema.PoolLink(pools=(a, b), bytes_per_s=link.bandwidth, latency_s=link.latency, basis=link.basis)


def fabric_section(fabric: Fabric, accelerators: int) -> schema.FabricSection:
    """The network between nodes; a dimension of open size takes in what `accelerators` leave for it."""
    return schema.FabricSection(
        id=fabric.id,
        kind=fabric.kind,
        nic_bytes_per_s=fabric.nic_bandwidth,
        latency_s=fabric.latency,
        topology=fabric.topology,
        leaf_nodes=fabric.leaf_nodes,
        oversubscription=fabric.oversubscription,
        dimensions=_dimensions(fabric, accelerators),
    )


def _dimensions(fabric: Fabric, accelerators: int) -> tuple[schema.DimensionSection, ...] | None:
    """Innermost first; None where the network has links, NICs and leaves instead."""
    dimensions = []
    left = accelerators
    for each in fabric.dimensions:
        size = each.size or max(left, 1)
        left //= size
        dimensions.append(
            schema.DimensionSection(
                topology=each.topology, size=size, bytes_per_s=each.bandwidth, latency_s=each.latency
            )
        )
    return tuple(dimensions) or None
