"""Buying a cluster: its wirings, spare nodes, racks, the bill of materials, and its resale.

The day of a resale is a decision: a whole number of months after the purchase, or the horizon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, cast

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import money, network_bill
from planner.cost.goodput import ACCELERATOR_MTBF_S, RESTART_S, goodput
from planner.cost.money import DAYS_PER_YEAR
from planner.cost.ownership import charge, facility_per_month, resale
from planner.figures.cost_inputs import HOST_BANDWIDTH
from planner.models.parameters import parameters
from planner.models.workload import find_model, optimizer
from planner.procurement.question.portfolio import NodeOption, Portfolio
from planner.procurement.supply.pools import Item, SupplyPool, carbon_per_day, energy_per_day, node_power, pue
from planner.procurement.supply.prices import BillPart, parts
from planner.question.values import DAYS_PER_MONTH
from planner.schema.hardware import Cluster, Price
from planner.schema.workload import Model

DRAIN = 0.1
"""Share of the time between two checkpoints in which one must be written."""
COPIES_KEPT = 3
RADIX = 64
"""Ports of a switch whose part is not known: those of NDR."""
PIECES = ("switch", "link-nic", "link-switch")
"""Parts of a network by piece, ``switch-NAME`` and so on: the catalog's NDR, and what a catalog of one's own adds."""
TOKEN_BYTES = 4.0
LIBRA_RANGE = (0.6, 2.4)
"""Times LIBRA's price of bandwidth that NDR networks come to by piece: one full switch, and three tiers of them."""
LIBRA = (
    "USD per GB/s: LIBRA (astra-sim/libra 4d_cost_model.yml); by piece, where that is known (NDR, 2024-08), "
    f"{LIBRA_RANGE[0]:g} to {LIBRA_RANGE[1]:g} times as much"
)
LIBRA_DATE = "2024-05"


def wirings_of(
    candidate: NodeOption, cluster: Cluster, known: dict[str, BillPart]
) -> Iterator[tuple[Cluster, network_bill.Bill, str]]:
    """The cluster under every wiring that differs at this size, with its bill; the switch of its rate gives the ports.

    Raises:
        WrongQuestion: a wiring for a network that is described dimension by dimension.
    """
    fabric = cluster.fabric
    nics = cluster.node.nics
    several = cluster.count > 1
    pieces = _pieces(cluster, known)
    radix = pieces[0].radix or RADIX if pieces else RADIX
    if fabric.dimensions:
        if any(topology for topology, _ in candidate.wirings):
            raise WrongQuestion(
                f"{candidate.node}: {fabric.id} has dimensions, which are its wiring; leave wirings out"
            )
        yield (
            cluster,
            network_bill.wired(fabric.topology, cluster.count, nics, radix),
            "in dimensions" if several else "",
        )
        return
    seen = set()
    for topology, oversubscription in candidate.wirings:
        kind = cast(network_bill.Wiring, topology or fabric.topology)
        if kind == "rail-optimised" and cluster.count * nics <= radix:
            kind = "fat-tree"  # all rails fit on one switch
        ends = cluster.count if kind == "rail-optimised" else cluster.count * nics
        over = (
            oversubscription if network_bill.tiers(ends, radix) > 1 else 1.0
        )  # without a spine nothing is thinned out
        key = (kind, over) if several else ()
        if key in seen:
            continue
        seen.add(key)
        try:
            bill = network_bill.wired(kind, cluster.count, nics, radix, over)
        except ValueError:
            continue  # not that many nodes
        if topology == "" or not several:
            yield cluster, bill, kind if several else ""
            continue
        joined = replace(fabric, topology=kind, leaf_nodes=bill.leaf_nodes, oversubscription=bill.oversubscription)
        label = kind if bill.oversubscription == 1.0 else f"{kind} {bill.oversubscription:g}:1"
        yield replace(cluster, fabric=joined), bill, label


class WiredOffer(NamedTuple):
    """A cluster that may be bought: how it is wired, the bill of its network, and the price of a node."""

    cluster: Cluster
    bill: network_bill.Bill
    wiring: str
    quote: Price


def bought(catalog: Catalog, asked: Portfolio, candidate: NodeOption, offer: WiredOffer) -> Iterator[SupplyPool]:
    """The cluster bought with and without spares, to be kept and, where the question says so, to be sold."""
    cluster, bill, wiring, quote = offer
    several = cluster.count > 1
    wanted = {0, _spares(asked, cluster), min(asked.reliability.survive or 0, cluster.count)}
    for spares in sorted(wanted) if several else (0,):
        nodes = cluster.count + spares
        racks = racks_filled(asked, cluster, nodes)
        if racks is None:
            continue
        joined = parts(catalog)
        items = tuple(_items(asked, offer, nodes, joined))
        network_w = _network_power(cluster, bill, joined)
        watts = (nodes * node_power(cluster.node, cluster) + network_w) * pue(cluster)
        capital = sum(item.usd for item in items)
        owner = asked.ownership
        held = asked.horizon_days - candidate.delivery_day
        office = cluster.node.kind == "workstation"
        running = {
            "facility": 0.0 if office else facility_per_month(watts / pue(cluster), owner),
            "maintenance": owner.maintenance * capital / 12,
            "staff": owner.staff_usd_per_accelerator_year * nodes * cluster.node.accelerators / 12,
        }
        whole = capital if asked.charge == "cash" else charge(capital, held, owner)
        called = " ".join(
            [f"buy {cluster.count} x {cluster.node.id}"]
            + ([f"{wiring}"] if wiring else [])
            + ([f"+{spares} spare"] if spares else [])
        )
        pool = SupplyPool(
            id=called,
            lengths_of=called,
            way="buy",
            cluster=cluster,
            copies=min(candidate.copies or len(asked.jobs), len(asked.jobs)),
            spares=spares,
            wiring=wiring,
            quote=quote,
            items=items,
            month_usd=sum(running.values()),
            running=running,
            day_usd=energy_per_day(asked, cluster, network_w, cluster.count),
            day_kg=carbon_per_day(asked, cluster, network_w, cluster.count),
            power=watts,
            network_power=network_w,
            load=owner.load,
            racks=racks,
            switch_ports=float(bill.nic_links),
            start_day=candidate.delivery_day,
            held_days=held,
            colocated=not office,
            fixed_charge=whole,
            day_charge=0.0 if asked.charge == "cash" else whole / held,
            restart_s=RESTART_S if spares else asked.reliability.restart_without_spares_s,
            at_most=candidate.at_most,
        )
        yield pool
        yield from sold(asked, pool)


def _spares(asked: Portfolio, cluster: Cluster) -> int:
    """Nodes on hand so that a repair outlasts them with the stated risk: Poisson with ``N t / MTBF``."""
    mean = cluster.accelerators * asked.reliability.repair_days * money.DAY_S / ACCELERATOR_MTBF_S
    term = below = math.exp(-mean)
    spares = 0
    while below < 1.0 - asked.reliability.spare_risk and spares < cluster.count:
        spares += 1
        term *= mean / spares
        below += term
    return max(1, spares)


def racks_filled(asked: Portfolio, cluster: Cluster, nodes: int) -> float | None:
    """Racks that the nodes fill by height and heat; None where a rack cannot cool one."""
    hall = asked.hall
    node = cluster.node
    watts = node_power(cluster.node, cluster)
    nodes_a_rack = hall.rack_units // hall.node_units.get(node.kind, 8)
    if hall.cooling_per_rack is not None:
        nodes_a_rack = min(nodes_a_rack, int(hall.cooling_per_rack // watts))
    return math.ceil(nodes / nodes_a_rack) if nodes_a_rack else None


def _items(asked: Portfolio, offer: WiredOffer, nodes: int, known: dict[str, BillPart]) -> Iterator[Item]:
    cluster, bill, _, quote = offer
    yield Item(cluster.node.id, "node", cluster.count, quote.usd, quote.source, quote.date)
    if spares := nodes - cluster.count:
        yield Item(f"{cluster.node.id}, spare", "node", spares, quote.usd, quote.source, quote.date)
    if cluster.count > 1:
        yield from _network_items(asked, cluster, bill, known)
    if cluster.node.kind == "workstation" and cluster.count == 1:
        return
    machine, storage = known["io-node"], known["storage-pb"]
    rate, kept = _io(asked, cluster)
    yield Item(machine.id, "head node", 1, machine.usd, machine.source, machine.date)
    yield Item(machine.id, "I/O node", math.ceil(rate / machine.rate), machine.usd, machine.source, machine.date)
    yield Item("storage-tb", "storage", math.ceil(kept / 1e12), storage.usd / 1000, storage.source, storage.date)


def _network_items(
    asked: Portfolio, cluster: Cluster, bill: network_bill.Bill, known: dict[str, BillPart]
) -> Iterator[Item]:
    """Switches and links by piece where their prices are known, else by LIBRA's price of bandwidth."""
    if cluster.fabric.dimensions:
        yield from _dimension_items(cluster)
        return
    pieces = _pieces(cluster, known)
    if pieces is None or asked.network_prices == "libra":
        rate = _rate(cluster)
        ports = cluster.count * cluster.node.nics
        usd = network_bill.dimension_usd("switch" if bill.switches else "torus", "inter-pod", ports, 1, rate)
        yield Item(
            f"network of {cluster.fabric.id}, a port", "network", ports, round(usd / ports, 2), LIBRA, LIBRA_DATE
        )
        return
    for part, count in zip(pieces, (bill.switches, bill.nic_links, bill.switch_links), strict=True):
        if count:
            yield Item(part.id, "network", count, part.usd, part.source, part.date)


def _rate(cluster: Cluster) -> float:
    """Bytes per second of a port."""
    return cluster.node.nic_bandwidth or cluster.fabric.nic_bandwidth


def _pieces(cluster: Cluster, known: dict[str, BillPart]) -> tuple[BillPart, BillPart, BillPart] | None:
    """Switch, link from NIC to switch, and link between switches of the cluster's rate; None unless all are known."""
    names = [name.removeprefix("switch-") for name, part in known.items() if part.rate == _rate(cluster)]
    for name in names:
        switch, nic, link = (known.get(f"{piece}-{name}") for piece in PIECES)
        if switch and nic and link:
            return switch, nic, link
    return None


def _dimension_items(cluster: Cluster) -> Iterator[Item]:
    """A line for each dimension of a network that leaves the node, by LIBRA's price of bandwidth; what lies within it
    is in the node's price.
    """
    below = 1
    all_ = cluster.accelerators
    for n, dimension in enumerate(cluster.fabric.dimensions, 1):
        size = dimension.size or max(1, -(-all_ // below))
        below *= size
        usd = network_bill.dimension_usd(
            dimension.topology, "inter-pod", size, max(1, all_ // size), dimension.bandwidth
        )
        if below > cluster.node.accelerators and size > 1:
            name = f"dimension {n} of {cluster.fabric.id} ({dimension.topology}), an accelerator"
            yield Item(name, "network", all_, round(usd / all_, 2), LIBRA, LIBRA_DATE)


def _network_power(cluster: Cluster, bill: network_bill.Bill, known: dict[str, BillPart]) -> float:
    """Watts of switches and links; of NDR where those of the rate are not known."""
    pieces = _pieces(cluster, known) or [known[f"{piece}-ndr"] for piece in PIECES]
    counts = (bill.switches, bill.nic_links, bill.switch_links)
    return sum(part.power * count for part, count in zip(pieces, counts, strict=True))


def _io(asked: Portfolio, cluster: Cluster) -> tuple[float, float]:
    """Bytes per second of input and checkpoints that the largest job makes, and bytes to be kept.

    A checkpoint is written in a tenth of the time between two of them; gradients never reach these machines.
    """
    rate = 0.0
    states = tuple(_state(job.model, job.asked.optimizer) for job in asked.jobs)
    host = cluster.accelerator.host_bandwidth or HOST_BANDWIDTH
    for state in set(states):
        good = goodput(cluster.accelerators, state / cluster.accelerators, host)
        rate = max(rate, state / (DRAIN * float(good.interval)))
    return rate, sum(job.tokens for job in asked.jobs) * TOKEN_BYTES + COPIES_KEPT * max(states)


@lru_cache(maxsize=256)
def _state(model: str | Model, named: str) -> float:
    """Bytes of a checkpoint: weights and optimizer states."""
    used = optimizer(named)
    return parameters(find_model(model)).total * (2.0 + used.state_bytes + used.master_bytes)


def sold(asked: Portfolio, pool: SupplyPool) -> Iterator[SupplyPool]:
    """A purchase that is sold after one month, after two and so on, or at the end; nothing where nothing is sold.

    The nodes bring ``resale K 10^(-0.14 t)``, to the cent; network and storage bring nothing. What is due by the month
    ends with the sale.
    """
    if asked.resale is None:
        return
    nodes = sum(item.usd for item in pool.items if item.kind == "node")
    for called, days in _lengths(asked, pool):
        usd = round(asked.resale * resale(nodes, days / DAYS_PER_YEAR), 2)
        yield replace(
            pool,
            id=f"{pool.id} {called}",
            held_days=days,
            end_day=pool.start_day + days,
            fixed_charge=pool.capital - usd,
            sold_usd=usd,
        )


def _lengths(asked: Portfolio, pool: SupplyPool) -> Iterator[tuple[str, float]]:
    """Days for which it may be held, with a name: whole months until every job must be done, within the horizon; all
    days to the horizon where those months are not enough.
    """
    first = max(pool.start_day, min(job.release_day for job in asked.jobs))
    needed = math.ceil((max(job.deadline_day for job in asked.jobs) - first) / DAYS_PER_MONTH - 1e-9)
    left = asked.horizon_days - pool.start_day
    whole = int(left / DAYS_PER_MONTH + 1e-9)
    for months in range(1, min(needed, whole) + 1):
        yield f"for {months} month{'s' if months > 1 else ''}", months * DAYS_PER_MONTH
    if needed > whole:
        yield "to the horizon", left
