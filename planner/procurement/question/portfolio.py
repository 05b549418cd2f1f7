"""What a procurement is asked: jobs, candidates, limits and what owning costs. Frozen records; days and US dollars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from planner.cost.ownership import Ownership
from planner.question.amounts import Exchange
from planner.question.asked import PlanOptions

DAYS_PER_YEAR = 365.25
Way = Literal["buy", "on-demand", "spot", "reserved-1y", "reserved-3y"]
"""How nodes are come by. What is owned already is a way of its own, `own`."""
WAYS: tuple[Way, ...] = get_args(Way)
Objective = Literal["time", "cost", "tokens-per-dollar", "carbon"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
NetworkPrices = Literal["parts", "libra"]
NETWORK_PRICES: tuple[NetworkPrices, ...] = get_args(NetworkPrices)
Charge = Literal["cash", "amortised"]
CHARGES: tuple[Charge, ...] = get_args(Charge)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model to be trained once, from its release to its deadline."""

    name: str
    model: str
    asked: PlanOptions
    """How it is trained, as ``clusterwright plan`` takes it."""
    tokens: float
    release_day: float = 0.0
    deadline_day: float
    given_deadline: bool = False
    """Whether the question named it; else it is the horizon."""
    priority: int = 0
    """Of two with one deadline the higher goes first."""
    min_tokens_per_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NodeOption:
    """A node type that may be acquired."""

    node: str
    ways: tuple[Way, ...]
    counts: tuple[int, ...] = ()
    """Sizes to try; empty: a ladder up to `at_most`."""
    at_most: int | None = None
    """Nodes of this type that can be had."""
    min_order: int = 1
    wirings: tuple[tuple[str, float], ...] = (("", 1.0),)
    """Topology and oversubscription; an empty topology is the node's usual fabric."""
    nics: int | None = None
    fabric: str | None = None
    regions: tuple[str, ...] = ()
    delivery_day: float = 0.0
    copies: int | None = None
    """Separate clusters of the same size that may be had; None: one for every job."""
    price_usd: float | None = None
    """In place of the catalog's: to buy one node, or for an hour of it."""
    price_date: str = ""
    price_source: str = ""


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Nodes that are there already."""

    node: str
    count: int
    fabric: str | None = None
    region: str | None = None


@dataclass(frozen=True, kw_only=True)
class MixedPools:
    """Unlike pools that may work on one job together."""

    pools: tuple[str, ...]
    """What is owned (``own NODE``) and candidates, by the names of :func:`planner.procurement.supply.pools.offers`."""
    counts: tuple[tuple[int, ...], ...] = ()
    """Nodes of each that are tried together; empty: all and half of what is owned, some of what is not."""
    bandwidth: float | None = None
    """B/s that a node sends to another pool; None: the slower one's NICs, or an assumed one to machines of others."""
    latency: float | None = None
    """Seconds; given if the bandwidth is."""
    jobs: tuple[str, ...] = ()
    """Workloads; empty: all."""
    alike: bool = True
    """Whether pipelines are of one kind and fill their nodes, as launchers start them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Hard limits; None where there is none. US dollars, watts, kilograms."""

    budget: float | None = None
    """All money that is spent within the horizon."""
    capital: float | None = None
    monthly: float | None = None
    """Running costs and rent in any month, without capital."""
    power: float | None = None
    """Of machines of one's own, provided at the plug."""
    racks: float | None = None
    switch_ports: float | None = None
    carbon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Hall:
    """The room for machines of one's own."""

    rack_units: int = 48
    cooling_per_rack: float | None = None
    """Watts."""
    node_units: dict[str, int] = field(default_factory=lambda: {"server": 8, "workstation": 4, "rack": 48})


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """What failures cost where the plan's own figures do not say."""

    preemptions_per_node_day: float = 0.2
    """Of spot instances."""
    repair_days: float = 3.0
    spare_risk: float = 0.05
    """That the spares do not suffice while a node is repaired."""
    restart_without_spares_s: float = 4 * 3600.0
    """Until a replacement or a smaller job runs, where no spare stands by."""


@dataclass(frozen=True, kw_only=True)
class Portfolio:
    """The whole question."""

    name: str
    as_of: str
    """ISO date from which the age of prices is counted."""
    horizon_days: float
    objective: Objective = "cost"
    jobs: tuple[Job, ...]
    candidates: tuple[NodeOption, ...]
    owned: tuple[Owned, ...] = ()
    mixed: tuple[MixedPools, ...] = ()
    regions: tuple[str, ...] = ("us",)
    limits: Limits = Limits()
    hall: Hall = Hall()
    ownership: Ownership = field(default_factory=Ownership)
    charge: Charge = "cash"
    """What a bought machine costs the plan: all its price, or the share of its life that the horizon takes."""
    reliability: Reliability = Reliability()
    network_prices: NetworkPrices = "parts"
    """Of networks that are bought: switches and links by piece where their prices are known, or LIBRA's US dollars for
    each GB/s for all of them.
    """
    exchange: Exchange = field(default_factory=Exchange)
    price_factor: float = 1.0
    """On every catalog price of nodes: what a sensitivity turns."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Input -> sha256 prefix."""
    assumptions: tuple[tuple[str, str, str], ...] = ()
    """(what, why, how to change it)."""
