"""What could be acquired: nodes of one kind, in one number, one way, wired one way, in one place; what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import cast

from planner import catalog as catalogs
from planner.binding import HOST_BANDWIDTH
from planner.catalog import Catalog
from planner.cost import money, wiring
from planner.cost.goodput import ACCELERATOR_MTBF_S, RESTART_S, goodput
from planner.cost.ownership import charge, facility_per_month
from planner.errors import WrongQuestion
from planner.parameters import parameters
from planner.procure import prices
from planner.procure.parts import Part, parts
from planner.procure.portfolio import DAYS_PER_MONTH, Candidate, Owned, Portfolio, Way
from planner.procure.prices import Quote
from planner.schema.hardware import Cluster, Node, Region
from planner.workload import model as find_model
from planner.workload import optimizer

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Sizes that are tried where the question names none."""
MOST_ACCELERATORS = 4096
"""In one cluster, where the question names no other bound."""
SERVER_POWER = 1.8
"""Power of a server over that of its accelerators where none is stated (Epoch AI, cost code)."""
UNKNOWN_TDP = 400.0
"""Watts of an accelerator that no source gives."""
DRAIN = 0.1
"""Share of the time between two checkpoints in which one must be written."""
COPIES_KEPT = 3
RADIX = 64
"""Ports of a switch: that of the NDR part; other rates are wired with the same."""
TOKEN_BYTES = 4.0
LIBRA, LIBRA_DATE = "USD per GB/s: LIBRA (astra-sim/libra 4d_cost_model.yml)", "2024-05"


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a bill of materials."""

    item: str
    kind: str
    count: float
    unit_price_usd: float
    source: str
    date: str

    @property
    def usd(self) -> float:
        """To the cent."""
        return round(self.count * self.unit_price_usd, 2)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One thing that may be acquired (or is owned), and what it costs. US dollars, watts, days."""

    id: str
    way: str
    cluster: Cluster
    """With `count` nodes that train."""
    copies: int = 1
    """How many of it can be held; jobs move freely between equal ones."""
    spares: int = 0
    wiring: str = ""
    quote: Quote | None = None
    items: tuple[Item, ...] = ()
    """What is paid at once."""
    month_usd: float = 0.0
    """While it is held, used or not."""
    day_usd: float = 0.0
    """While it is used."""
    day_kg: float = 0.0
    """CO2 equivalent while it is used."""
    power: float = 0.0
    """Provided at the plug, for machines of one's own."""
    colocated: bool = False
    """Whether that power is paid for as colocation."""
    network_power: float = 0.0
    """Watts of switches and links."""
    load: float = 0.75
    racks: float = 0.0
    switch_ports: float = 0.0
    start_day: float = 0.0
    end_day: float = math.inf
    held_days: float = 0.0
    """For which `month_usd` is due; a term is paid whole, even beyond the horizon."""
    fixed_charge: float = 0.0
    """What holding it adds to the cost that is minimised, without what is paid by month or day."""
    restart_s: float = RESTART_S
    preemptions_per_node_s: float = 0.0
    at_most: int | None = None
    """Nodes that can be had of `offer`."""
    offer: str = ""
    """The candidate that it belongs to: its node, and where there are several of that node, what tells them apart."""
    running: dict[str, float] = field(default_factory=dict)
    """What `month_usd` consists of."""

    @property
    def node(self) -> Node:
        """The node type."""
        return self.cluster.node

    @property
    def nodes(self) -> int:
        """All of them, spares too."""
        return self.cluster.count + self.spares

    @property
    def pue(self) -> float:
        """Facility power over IT power where it stands."""
        return _pue(self.cluster)

    @property
    def kwh_per_day(self) -> float:
        """Kilowatt-hours at the plug for a day of training."""
        return _joules_per_day(self.load, self.cluster, self.network_power, self.cluster.count) / money.JOULES_PER_KWH

    @property
    def hired(self) -> bool:
        """Paid by the hour, a cluster for each job; anything else is held, and jobs share it."""
        return self.way in ("on-demand", "spot")

    @property
    def capital(self) -> float:
        """US dollars that are paid at once."""
        return sum(item.usd for item in self.items)

    @property
    def last_day(self) -> float:
        """Until when it may work: what is held is paid for its time, and works in no other."""
        return min(self.end_day, self.start_day + self.held_days) if self.held_days else self.end_day

    @property
    def held_usd(self) -> float:
        """US dollars that holding it costs beside what is paid at once."""
        return self.month_usd * self.held_days / DAYS_PER_MONTH

    @property
    def family(self) -> str:
        """What makes two alternatives different: how which nodes are come by."""
        return f"{self.way} {self.node.id}"


def pools(catalog: Catalog, asked: Portfolio) -> list[Pool]:
    """Everything that may be acquired, and what is owned.

    Raises:
        WrongQuestion: a candidate has no price, or none of its sizes can be had.
    """
    found = [pool for owned in asked.owned for pool in _owned(catalog, asked, owned)]
    for offer, candidate in zip(offers(asked.candidates), asked.candidates, strict=True):
        for way in candidate.ways:
            found += (replace(pool, offer=offer) for pool in _offered(catalog, asked, candidate, way))
    return _told_apart(found)


def offers(candidates: Sequence[Candidate]) -> list[str]:
    """A name for each candidate: its node; its ways, too, where several have that node; a number if need be."""
    nodes = [candidate.node for candidate in candidates]
    named = [c.node if nodes.count(c.node) == 1 else f"{c.node} {'/'.join(c.ways)}" for c in candidates]
    return [name if named.count(name) == 1 else f"{name} #{named[: n + 1].count(name)}" for n, name in enumerate(named)]


def _told_apart(found: list[Pool]) -> list[Pool]:
    """The pools, those of one name with what they differ in behind it (or a number where that is nothing)."""
    groups: dict[str, list[Pool]] = {}
    for pool in found:
        groups.setdefault(pool.id, []).append(pool)
    names: dict[str, int] = {}
    told = []
    for pool in found:
        alike = [_details(other) for other in groups[pool.id]]
        mine = _details(pool)
        said = [text for n, text in enumerate(mine) if text and len({other[n] for other in alike}) > 1]
        name = " ".join([pool.id, *said])
        names[name] = names.get(name, 0) + 1
        told.append(replace(pool, id=name if names[name] == 1 else f"{name} #{names[name]}"))
    return told


def _details(pool: Pool) -> tuple[str, ...]:
    """What pools of one name may differ in."""
    region = pool.cluster.region
    return (
        f"in {region.id}" if region else "",
        f"with {pool.node.nics} NICs",
        f"on {pool.cluster.fabric.id}",
        f"from day {pool.start_day:g}",
        f"at {pool.quote.usd:,.2f} USD" if pool.quote else "",
    )


def _owned(catalog: Catalog, asked: Portfolio, owned: Owned) -> Iterator[Pool]:
    region = owned.region or asked.regions[0]
    for count in _sizes(catalog.node(owned.node), (), owned.count, 1):
        cluster = catalogs.cluster(catalog, owned.node, count, owned.fabric, region)
        yield Pool(
            id=f"own {count} x {owned.node}",
            way="own",
            cluster=cluster,
            copies=min(owned.count // count, len(asked.jobs)),
            load=asked.ownership.load,
            day_usd=_energy_per_day(asked, cluster, 0.0, count),
            day_kg=_carbon_per_day(asked, cluster, 0.0, count),
            power=count * node_power(cluster.node, cluster) * _pue(cluster),
            at_most=owned.count,
            offer=f"own {owned.node}",
        )


def standing(catalog: Catalog, asked: Portfolio) -> dict[str, float]:
    """Racks and switch ports that machines owned already take: they stand there whether they work or not."""
    taken = {"racks": 0.0, "switch_ports": 0.0}
    for owned in asked.owned:
        cluster = catalogs.cluster(catalog, owned.node, 1, owned.fabric, owned.region or asked.regions[0])
        # One that runs hotter than a rack is cooled has a rack to itself: it is there, and was cooled somehow.
        racks = _racks(asked, cluster, owned.count)
        taken["racks"] += float(owned.count) if racks is None else racks
        joined = owned.count > 1 and (owned.fabric or cluster.node.fabric)
        taken["switch_ports"] += cluster.node.nics * owned.count if joined else 0
    return taken


def _sizes(node: Node, counts: tuple[int, ...], at_most: int | None, least: int) -> list[int]:
    """Sizes to try: those named, or the ladder up to the most (which is tried, too)."""
    most = at_most if at_most is not None else max(1, MOST_ACCELERATORS // node.accelerators)
    tried = counts or tuple(sorted({n for n in LADDER if n <= most} | ({at_most} if at_most else set())))
    sizes = [n for n in tried if least <= n <= most]
    return [n for n in sizes if n == 1 or node.fabric is not None]


def _offered(catalog: Catalog, asked: Portfolio, candidate: Candidate, way: Way) -> Iterator[Pool]:
    quote = prices.quote(catalog, candidate, way, asked.price_factor)
    if quote is None:
        raise WrongQuestion(
            f"{candidate.node} has no {'purchase' if way == 'buy' else way} price in the catalog; give one: "
            f'price = {{ amount = "{"$300k" if way == "buy" else "$40/h"}", date = "{asked.as_of}" }}'
        )
    node = catalog.node(candidate.node)
    if candidate.nics is not None:
        node = replace(node, nics=candidate.nics)
    counts = _sizes(
        replace(node, fabric=candidate.fabric or node.fabric), candidate.counts, candidate.at_most, candidate.min_order
    )
    if not counts:
        raise WrongQuestion(f"{candidate.node}: no size from {candidate.min_order} to {candidate.at_most} can be had")
    elsewhere = asked.regions if way == "buy" else (_sold_in(catalog, quote, asked),)
    regions = candidate.regions or elsewhere
    for region in regions:
        for count in counts:
            joined = catalogs.cluster(catalog, candidate.node, count, candidate.fabric, region)
            base = replace(joined, node=replace(joined.node, nics=candidate.nics or joined.node.nics))
            if way != "buy":
                yield _rented(asked, candidate, way, base, quote)
                continue
            for wired, bill, label in _wired(candidate, base):
                yield from _bought(catalog, asked, candidate, wired, bill, label, quote)


def _sold_in(catalog: Catalog, quote: Quote, asked: Portfolio) -> str:
    """The first region of a price that the catalog knows, else the portfolio's."""
    for name in (part.strip() for part in quote.region.split(",")):
        if name in catalog.regions:
            return name
    return asked.regions[0]


# ---- renting ---------------------------------------------------------------------------------------------------------


def _rented(asked: Portfolio, candidate: Candidate, way: Way, cluster: Cluster, quote: Quote) -> Pool:
    """Nodes by the hour (`on-demand`, `spot`) or for a term."""
    count, a_day = cluster.count, money.rent(money.DAY_S, cluster.count, quote.usd)
    common = {
        "id": f"{way} {count} x {cluster.node.id}",
        "way": way,
        "cluster": cluster,
        "copies": min(candidate.copies or len(asked.jobs), len(asked.jobs)),
        "quote": quote,
        "load": asked.ownership.load,
        "start_day": candidate.delivery_day,
        "day_kg": _carbon_per_day(asked, cluster, 0.0, count),
        "at_most": candidate.at_most,
    }
    if way in prices.TERM_DAYS:
        monthly = float(a_day) * DAYS_PER_MONTH
        term = prices.TERM_DAYS[way]
        end = candidate.delivery_day + term
        return Pool(**common, month_usd=monthly, end_day=end, held_days=term, running={"rent": monthly})  # type: ignore[arg-type]
    preempted = asked.reliability.preemptions_per_node_day / money.DAY_S if way == "spot" else 0.0
    return Pool(**common, day_usd=float(a_day), preemptions_per_node_s=preempted)  # type: ignore[arg-type]


# ---- buying ----------------------------------------------------------------------------------------------------------


def _wired(candidate: Candidate, cluster: Cluster) -> Iterator[tuple[Cluster, wiring.Bill, str]]:
    """The cluster under every wiring that differs at this size, with its bill.

    Raises:
        WrongQuestion: a wiring for a network that is described dimension by dimension.
    """
    fabric, nics, several = cluster.fabric, cluster.node.nics, cluster.count > 1
    if fabric.dimensions:
        if any(topology for topology, _ in candidate.wirings):
            raise WrongQuestion(
                f"{candidate.node}: {fabric.id} has dimensions, which are its wiring; leave wirings out"
            )
        yield cluster, wiring.wired(fabric.topology, cluster.count, nics, RADIX), "in dimensions" if several else ""
        return
    seen = set()
    for topology, oversubscription in candidate.wirings:
        kind = cast(wiring.Wiring, topology or fabric.topology)
        if kind == "rail-optimised" and cluster.count * nics <= RADIX:
            kind = "fat-tree"  # all rails fit on one switch
        ends = cluster.count if kind == "rail-optimised" else cluster.count * nics
        over = oversubscription if wiring.tiers(ends, RADIX) > 1 else 1.0  # without a spine nothing is thinned out
        key = (kind, over) if several else ()
        if key in seen:
            continue
        seen.add(key)
        try:
            bill = wiring.wired(kind, cluster.count, nics, RADIX, over)
        except ValueError:
            continue  # not that many nodes
        if topology == "" or not several:
            yield cluster, bill, kind if several else ""
            continue
        joined = replace(fabric, topology=kind, leaf_nodes=bill.leaf_nodes, oversubscription=bill.oversubscription)
        label = kind if bill.oversubscription == 1.0 else f"{kind} {bill.oversubscription:g}:1"
        yield replace(cluster, fabric=joined), bill, label


def _bought(
    catalog: Catalog,
    asked: Portfolio,
    candidate: Candidate,
    cluster: Cluster,
    bill: wiring.Bill,
    wiring: str,
    quote: Quote,
) -> Iterator[Pool]:
    """The cluster bought with and without spares."""
    several = cluster.count > 1
    for spares in sorted({0, _spares(asked, cluster)}) if several else (0,):
        nodes = cluster.count + spares
        racks = _racks(asked, cluster, nodes)
        if racks is None:
            continue
        joined = parts(catalog)
        items = tuple(_items(asked, cluster, bill, wiring, quote, nodes, joined))
        network_w = _network_power(cluster, bill, joined)
        watts = (nodes * node_power(cluster.node, cluster) + network_w) * _pue(cluster)
        capital, owner = sum(item.usd for item in items), asked.ownership
        held = asked.horizon_days - candidate.delivery_day
        office = cluster.node.kind == "workstation"
        running = {
            "facility": 0.0 if office else facility_per_month(watts / _pue(cluster), owner),
            "maintenance": owner.maintenance * capital / 12,
            "staff": owner.staff_usd_per_accelerator_year * nodes * cluster.node.accelerators / 12,
        }
        whole = capital if asked.charge == "cash" else charge(capital, held, owner)
        yield Pool(
            id=" ".join(
                [f"buy {cluster.count} x {cluster.node.id}"]
                + ([f"{wiring}"] if wiring else [])
                + ([f"+{spares} spare"] if spares else [])
            ),
            way="buy",
            cluster=cluster,
            copies=min(candidate.copies or len(asked.jobs), len(asked.jobs)),
            spares=spares,
            wiring=wiring,
            quote=quote,
            items=items,
            month_usd=sum(running.values()),
            running=running,
            day_usd=_energy_per_day(asked, cluster, network_w, cluster.count),
            day_kg=_carbon_per_day(asked, cluster, network_w, cluster.count),
            power=watts,
            network_power=network_w,
            load=owner.load,
            racks=racks,
            switch_ports=float(bill.nic_links),
            start_day=candidate.delivery_day,
            held_days=held,
            colocated=not office,
            fixed_charge=whole,
            restart_s=RESTART_S if spares else asked.reliability.restart_without_spares_s,
            at_most=candidate.at_most,
        )


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


def _racks(asked: Portfolio, cluster: Cluster, nodes: int) -> float | None:
    """Racks that the nodes fill by height and heat; None where a rack cannot cool one."""
    hall, node, watts = asked.hall, cluster.node, node_power(cluster.node, cluster)
    each = hall.rack_units // hall.node_units.get(node.kind, 8)
    if hall.cooling_per_rack is not None:
        each = min(each, int(hall.cooling_per_rack // watts))
    return math.ceil(nodes / each) if each else None


def _items(
    asked: Portfolio,
    cluster: Cluster,
    bill: wiring.Bill,
    wiring: str,
    quote: Quote,
    nodes: int,
    known: dict[str, Part],
) -> Iterator[Item]:
    yield Item(cluster.node.id, "node", nodes, quote.usd, quote.source, quote.date)
    if cluster.count > 1:
        yield from _network_items(asked, cluster, bill, known)
    if cluster.node.kind == "workstation" and cluster.count == 1:
        return
    machine, storage = known["io-node"], known["storage-pb"]
    rate, kept = _io(asked, cluster)
    yield Item(machine.id, "head node", 1, machine.usd, machine.source, machine.date)
    yield Item(machine.id, "I/O node", math.ceil(rate / machine.rate), machine.usd, machine.source, machine.date)
    yield Item("storage-tb", "storage", math.ceil(kept / 1e12), storage.usd / 1000, storage.source, storage.date)


def _network_items(asked: Portfolio, cluster: Cluster, bill: wiring.Bill, known: dict[str, Part]) -> Iterator[Item]:
    """Switches and links by piece where their prices are known (NDR), else by LIBRA's price of bandwidth."""
    rate = cluster.node.nic_bandwidth or cluster.fabric.nic_bandwidth
    if cluster.fabric.dimensions:
        yield from _dimension_items(cluster)
        return
    if rate != known["switch-ndr"].rate or asked.network_prices == "libra":
        ports = cluster.count * cluster.node.nics
        usd = wiring.dimension_usd("switch" if bill.switches else "torus", "inter-pod", ports, 1, rate)
        yield Item(
            f"network of {cluster.fabric.id}, a port", "network", ports, round(usd / ports, 2), LIBRA, LIBRA_DATE
        )
        return
    for name, count in (
        ("switch-ndr", bill.switches),
        ("link-nic-ndr", bill.nic_links),
        ("link-switch-ndr", bill.switch_links),
    ):
        if count:
            part = known[name]
            yield Item(part.id, "network", count, part.usd, part.source, part.date)


def _dimension_items(cluster: Cluster) -> Iterator[Item]:
    """A line for each dimension of a network that leaves the node, by LIBRA's price of bandwidth; what lies within it
    is in the node's price.
    """
    below, all_ = 1, cluster.accelerators
    for n, each in enumerate(cluster.fabric.dimensions, 1):
        size = each.size or max(1, -(-all_ // below))
        below *= size
        usd = wiring.dimension_usd(each.topology, "inter-pod", size, max(1, all_ // size), each.bandwidth)
        if below > cluster.node.accelerators and size > 1:
            name = f"dimension {n} of {cluster.fabric.id} ({each.topology}), an accelerator"
            yield Item(name, "network", all_, round(usd / all_, 2), LIBRA, LIBRA_DATE)


def _network_power(cluster: Cluster, bill: wiring.Bill, known: dict[str, Part]) -> float:
    """Watts of switches and links."""
    counts = {"switch-ndr": bill.switches, "link-nic-ndr": bill.nic_links, "link-switch-ndr": bill.switch_links}
    return sum(known[name].power * count for name, count in counts.items())


def _io(asked: Portfolio, cluster: Cluster) -> tuple[float, float]:
    """Bytes per second of input and checkpoints that the largest job makes, and bytes to be kept.

    A checkpoint is written in a tenth of the time between two of them; gradients never reach these machines.
    """
    rate, states = 0.0, tuple(_state(job.model, job.asked.optimizer) for job in asked.jobs)
    host = cluster.accelerator.host_bandwidth or HOST_BANDWIDTH
    for state in set(states):
        good = goodput(cluster.accelerators, state / cluster.accelerators, host)
        rate = max(rate, state / (DRAIN * float(good.interval)))
    return rate, sum(job.tokens for job in asked.jobs) * TOKEN_BYTES + COPIES_KEPT * max(states)


@lru_cache(maxsize=256)
def _state(model: str, named: str) -> float:
    """Bytes of a checkpoint: weights and optimizer states."""
    used = optimizer(named)
    return parameters(find_model(model)).total * (2.0 + used.state_bytes + used.master_bytes)


# ---- energy ----------------------------------------------------------------------------------------------------------


def node_power(node: Node, cluster: Cluster) -> float:
    """Watts that a node draws at most; where no source says, its accelerators times what a server adds."""
    return node.max_power or node.accelerators * (cluster.accelerator.tdp or UNKNOWN_TDP) * SERVER_POWER


def _pue(cluster: Cluster) -> float:
    return cluster.region.pue if cluster.region else Region.pue


def _joules_per_day(load: float, cluster: Cluster, network_w: float, nodes: int) -> float:
    watts = money.power(nodes, node_power(cluster.node, cluster), load, _pue(cluster))
    return float(watts + network_w * _pue(cluster)) * money.DAY_S


def _energy_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """US dollars of electricity for a day of training."""
    region = cluster.region
    joules = _joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.electricity(joules, region.electricity)) if region else 0.0


def _carbon_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """Kilograms of CO2 equivalent of a day of training."""
    region = cluster.region
    joules = _joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.carbon(joules, region.carbon)) if region else 0.0
