"""What could be acquired, as records: nodes of one kind, in one number, one way, wired one way, in one place; with the
power that they draw, and what that costs and emits at their site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from planner.cost import money
from planner.cost.goodput import RESTART_S
from planner.procurement.question.portfolio import NodeOption, Portfolio
from planner.procurement.supply.prices import TERM_DAYS
from planner.question.values import DAYS_PER_MONTH
from planner.schema.hardware import Cluster, Node, Price, Region

SERVER_POWER = 1.8
"""Power of a server over that of its accelerators where none is stated (Epoch AI, cost code)."""
UNKNOWN_TDP = 400.0
"""Watts of an accelerator that no source gives."""


def node_power(node: Node, cluster: Cluster) -> float:
    """Watts that a node draws at most; where no source says, its accelerators times what a server adds."""
    return node.max_power or node.accelerators * (cluster.accelerator.tdp or UNKNOWN_TDP) * SERVER_POWER


def pue(cluster: Cluster) -> float:
    """Facility power over IT power where a cluster stands."""
    return cluster.region.pue if cluster.region else Region.pue


def joules_per_day(load: float, cluster: Cluster, network_w: float, nodes: int) -> float:
    """Joules at the plug of a day of training: ``(nodes power load + network) PUE 86400``."""
    watts = money.power(nodes, node_power(cluster.node, cluster), load, pue(cluster))
    return float(watts + network_w * pue(cluster)) * money.DAY_S


def energy_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """US dollars of electricity for a day of training."""
    region = cluster.region
    joules = joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.electricity(joules, region.electricity)) if region else 0.0


def carbon_per_day(asked: Portfolio, cluster: Cluster, network_w: float, nodes: int) -> float:
    """Kilograms of CO2 equivalent of a day of training."""
    region = cluster.region
    joules = joules_per_day(asked.ownership.load, cluster, network_w, nodes)
    return float(money.carbon(joules, region.carbon)) if region else 0.0


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
class SupplyPool:
    """One thing that may be acquired (or is owned), and what it costs. US dollars, watts, days."""

    id: str
    way: str
    cluster: Cluster
    """With `count` nodes that train."""
    copies: int = 1
    """How many of it can be held; jobs move freely between equal ones."""
    lengths_of: str = ""
    """What is offered for several lengths of time: the name that all of these share, and their copies with it."""
    spares: int = 0
    wiring: str = ""
    quote: Price | None = None
    """Price of one node: to buy it, or for an hour of it."""
    sold_as: str = ""
    """The catalog's node whose price that is."""
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
    """For which `month_usd` is due; of a term all its months, even beyond the horizon."""
    fixed_charge: float = 0.0
    """What holding it adds to the cost that is minimised, without what is paid by month or day."""
    day_charge: float = 0.0
    """US dollars of `fixed_charge` for each day that it is held, where a purchase is charged by its days."""
    sold_usd: float | None = None
    """What its nodes bring on `end_day`, on which they are sold; None: they are not."""
    restart_s: float = RESTART_S
    preemptions_per_node_s: float = 0.0
    on_demand_usd: float | None = None
    """For spot, US dollars of an hour of one node that nobody takes back; None where nobody sells it."""
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
    def available(self) -> bool:
        """Whether so many nodes can be had; more than that are looked at for what they would bring."""
        return self.way == "own" or self.at_most is None or self.nodes <= self.at_most

    @property
    def pue(self) -> float:
        """Facility power over IT power where it stands."""
        return pue(self.cluster)

    @property
    def kwh_per_day(self) -> float:
        """Kilowatt-hours at the plug for a day of training."""
        return joules_per_day(self.load, self.cluster, self.network_power, self.cluster.count) / money.JOULES_PER_KWH

    @property
    def hired(self) -> bool:
        """Paid by the hour, a cluster for each job."""
        return self.way in ("on-demand", "spot")

    @property
    def held(self) -> bool:
        """Bought or reserved: paid for whether it is used or not, and jobs share its copies."""
        return not self.hired and self.way != "own"

    @property
    def term_days(self) -> float:
        """Days of a term, or of a purchase that is sold: it ends so long after it began."""
        return self.held_days if self.way in TERM_DAYS or self.sold_usd is not None else 0.0

    @property
    def idle_usd(self) -> float:
        """US dollars that a day costs on which it is there: less if what is bought is bought a day later."""
        return 0.0 if self.term_days else self.month_usd / DAYS_PER_MONTH + self.day_charge

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

    def starting(self, day: float) -> SupplyPool:
        """The pool from another day on: a term ends so much later, what is bought stays to the end of the horizon."""
        later = day - self.start_day
        if self.term_days:
            return replace(self, start_day=day, end_day=self.end_day + later)
        return replace(
            self,
            start_day=day,
            held_days=self.held_days - later,
            fixed_charge=self.fixed_charge - later * self.day_charge,
        )

    @property
    def family(self) -> str:
        """What makes two alternatives different: how which nodes are come by."""
        return f"{self.way} {self.node.id}"


def offers(candidates: Sequence[NodeOption]) -> list[str]:
    """A name for each candidate: its node; its ways, too, where several have that node; a number if need be."""
    nodes = [candidate.node for candidate in candidates]
    named = [c.node if nodes.count(c.node) == 1 else f"{c.node} {'/'.join(c.ways)}" for c in candidates]
    return [name if named.count(name) == 1 else f"{name} #{named[: n + 1].count(name)}" for n, name in enumerate(named)]
