"""What a procurement is asked: jobs, candidates, limits and what owning costs. Frozen records; days and US dollars.

Their field types say how a portfolio file writes them (:mod:`planner.base.typed`); an alias is the key of the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from planner.base import units
from planner.base.typed import missing, reads
from planner.catalog.ages import today
from planner.cost.goodput import RESTART_S
from planner.question import values as currency
from planner.question.plan_options import PlanOptions
from planner.question.rl_options import RLTraining
from planner.question.typed_file import OwnershipTable
from planner.question.values import (
    DAY_S,
    TABLE,
    Bandwidth,
    Days,
    Delay,
    FabricId,
    IsoDate,
    Kilograms,
    Money,
    NodeId,
    Positive,
    PositiveMoney,
    PositiveShare,
    RegionId,
    Several,
    Share,
    Watts,
    Whole,
    above_nothing,
    iso_date,
    span,
)
from planner.rl.learned import SiteSteps
from planner.schema.procurement import Currency, OfferQuestion, Pipelines, PoolGroup
from planner.schema.workload import Model

DAYS_PER_YEAR = 365.25
Way = Literal["buy", "on-demand", "spot", "reserved-1y", "reserved-3y"]
"""How nodes are come by. What is owned already is a way of its own, `own`."""
WAYS: tuple[Way, ...] = get_args(Way)
Objective = Literal["time", "cost", "tokens-per-dollar", "tokens", "carbon"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
NetworkPrices = Literal["parts", "libra"]
Charge = Literal["cash", "amortised"]


WIRINGS = ("rail-optimised", "fat-tree", "rail-only", "dragonfly", "torus")
PRICE = ("amount", "date", "source")
"""Keys of a price of one's own."""


def _ascending(counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(counts)))


def _wiring(text: object) -> tuple[str, float]:
    """``"fat-tree 2:1"`` -> topology and oversubscription."""
    match = re.fullmatch(r"([a-z-]+)(?:\s+(\d+(?:\.\d+)?):1)?", str(text))
    if match is None or match[1] not in WIRINGS:
        raise ValueError(f"{text!r}: write {', '.join(WIRINGS)}, with '2:1' behind it for oversubscription")
    over = float(match[2] or 1.0)
    if over < 1:
        raise ValueError(f"{text!r}: oversubscription is at least 1:1")
    return match[1], over


def _latency(text: object) -> float:
    seconds = units.parse(text, "time")  # type: ignore[arg-type]
    if seconds < 0:
        raise units.UnitError(f"{text!r}: must not be negative")
    return seconds


def _price(given: Any, info: Any) -> StatedPrice:
    """``{amount = "$40/h", date = ..., source = ...}``: one way, its price, and where that comes from."""
    ways = info.data.get("ways", ())
    if not isinstance(given, dict) or set(given) - set(PRICE) or "amount" not in given:
        raise ValueError('write price = { amount = "$40/h", date = "2026-11-20", source = "our quote" }')
    if len(ways) != 1:
        raise ValueError("a price of your own goes with one way; write a candidate for each")
    text = str(given["amount"])
    hourly = text.replace(" ", "").endswith("/h")
    if hourly == (ways[0] == "buy"):
        raise ValueError(
            f"{text!r}: {'a purchase is not paid by the hour' if hourly else 'give the price of an hour: /h'}"
        )
    usd = above_nothing(text, currency.usd(re.sub(r"\s*/\s*h$", "", text), info.context.currency))
    return StatedPrice(usd=usd, date=iso_date(given.get("date", "")), source=str(given.get("source", "the portfolio")))


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model to be trained once, from its release to its deadline."""

    name: str
    model: str | Model
    """An id, a file, or a record from Python."""
    asked: PlanOptions
    """How it is trained, as ``clusterwright plan`` takes it."""
    tokens: float
    release_day: float = 0.0
    deadline_day: float
    given_deadline: bool = False
    """Whether the question named it; else it is the horizon."""
    priority: int = 0
    """If two jobs share a deadline, the one of higher priority goes first."""
    interruptible: bool = False
    """Whether it may be paused where another job needs its nodes."""
    restart_days: float = RESTART_S / DAY_S
    """Lost at each pause, until it works again."""
    min_tokens_per_s: float = 0.0
    post_training: RLTraining | None = None
    """Its step where it generates responses and trains on them; its tokens are then those of all steps."""
    learned: SiteSteps | None = None
    """What steps of the user's own site say of it."""

    @property
    def model_name(self) -> str:
        """The model as messages name it."""
        return self.model if isinstance(self.model, str) else self.model.id


@dataclass(frozen=True, kw_only=True)
class StatedPrice:
    """A price in place of the catalog's: to buy one node, or for an hour of it."""

    usd: float
    date: str
    source: str


@dataclass(frozen=True, kw_only=True)
class NodeOption:
    """A node type that may be acquired."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    node: NodeId
    ways: Annotated[Several[Way], Field(min_length=1), missing(f"any of {', '.join(WAYS)}")]
    counts: Annotated[Several[Whole], AfterValidator(_ascending)] = ()
    """Sizes to try; empty: a ladder up to `at_most`."""
    at_most: Whole | None = None
    """Nodes of this type that can be had."""
    min_order: Whole = 1
    wirings: Several[Annotated[tuple[str, float], reads(_wiring)]] = (("", 1.0),)
    """Topology and oversubscription; an empty topology is the node's usual fabric."""
    nics: Whole | None = None
    fabric: FabricId | None = None
    regions: Several[RegionId] = ()
    delivery_day: Annotated[Delay, Field(alias="delivery")] = 0.0
    copies: Whole | None = None
    """Separate clusters of the same size that may be had; None: one for every job."""
    price: Annotated[StatedPrice | None, BeforeValidator(_price)] = None


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Nodes that are there already."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    node: NodeId
    count: Annotated[Whole, missing("write for example count = 2")]
    fabric: FabricId | None = None
    region: RegionId | None = None


class MixedPools(PoolGroup):
    """A ``[[mixed]]`` table: what the answer carries of it, and the sizes to try."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    pools: Annotated[Several[str], missing('name them: pools = ["own dgx-a100-80gb", "dgx-h100"]')]
    """What is owned (``own NODE``) and candidates, by the names of :func:`planner.procurement.supply.pools.offers`."""
    workloads: Several[str] = ()
    link_bytes_per_s: Annotated[Bandwidth | None, Field(alias="link")] = None
    """None: the slower pool's NICs, or an assumed rate to machines of others."""
    link_latency_s: Annotated[float | None, reads(_latency), Field(alias="latency")] = None
    """Given if the rate is."""
    pipelines: Pipelines = "identical"
    counts: Several[Several[Whole]] = ()
    """Nodes of each that are tried together; empty: all and half of what is owned, some of what is not."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Hard limits; None where there is none. US dollars, watts, kilograms."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    budget: PositiveMoney | None = None
    """All money that is spent within the horizon."""
    capital: Money | None = None
    monthly: PositiveMoney | None = None
    """Running costs and rent in any month, without capital."""
    power: Watts | None = None
    """Limit on the power of owned machines, at the plug."""
    racks: Positive | None = None
    switch_ports: Positive | None = None
    carbon: Kilograms | None = None


@dataclass(frozen=True, kw_only=True)
class Hall:
    """The room for machines of one's own."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    rack_units: Whole = 48
    cooling_per_rack: Watts | None = None
    node_units: ClassVar[dict[str, int]] = {"server": 8, "workstation": 4, "rack": 48}


MOST_LOST = 64


def _lost(text: object) -> int:
    """``"N-1"``, or the number itself."""
    match = re.fullmatch(r"(?:N-)?(\d+)", str(text).replace(" ", ""))
    if match is None or not 1 <= int(match[1]) <= MOST_LOST:
        raise ValueError(f'{text!r}: write the nodes that may be lost, "N-1" to "N-{MOST_LOST}"')
    return int(match[1])


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """What failures cost where the plan's own figures do not say."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    preemptions_per_node_day: Positive = 0.2
    """Preemptions of a spot node a day."""
    repair_days: Annotated[Days, Field(alias="repair")] = 3.0
    spare_risk: Share = 0.05
    """That the spares do not suffice while a node is repaired."""
    restart_without_spares_s: Annotated[
        float, reads(lambda text: span(text) * DAY_S), Field(alias="restart_without_spares")
    ] = 4 * 3600.0
    """Until a replacement or a smaller job runs, where no spare stands by."""
    survive: Annotated[int | None, reads(_lost)] = None
    """Nodes that every job may lose, once, for the time of a repair, and be done by its deadline all the same."""


@dataclass(frozen=True, kw_only=True)
class PortfolioTerms:
    """What a portfolio file and the question that it becomes both say."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    name: str = ""
    as_of: IsoDate = field(default_factory=today)
    """ISO date from which the age of prices is counted."""
    max_price_age_days: Annotated[Days | None, Field(alias="max_price_age")] = None
    """What is offered at an older price, or an undated one, is left out; None: the answer says what is old."""
    horizon_days: Annotated[Days, Field(alias="horizon"), missing('write for example horizon = "12 months"')]
    objective: Objective = "cost"
    charge: Charge = "cash"
    """What a bought machine costs the plan: all its price, or the share of its life that the horizon takes."""
    resale: PositiveShare | None = None
    """What a buyer pays for nodes, over what they are worth by their age; None: nothing bought is sold."""
    regions: Several[RegionId] = ("us",)
    limits: Limits = Limits()
    owned: Several[Owned] = ()
    mixed: Several[MixedPools] = ()
    ownership: OwnershipTable = field(default_factory=OwnershipTable)
    hall: Hall = Hall()
    reliability: Reliability = Reliability()
    network_prices: NetworkPrices = "parts"
    """Prices of networks that are bought: switches and links by piece where their prices are known, or LIBRA's US
    dollars for each GB/s for all of them."""


@dataclass(frozen=True, kw_only=True)
class Portfolio(PortfolioTerms):
    """The whole question."""

    jobs: tuple[Job, ...]
    candidates: tuple[NodeOption, ...]
    currency: Currency = field(default_factory=Currency)
    price_factor: float = 1.0
    """On every catalog price of nodes: what a sensitivity turns."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Input -> sha256 prefix."""
    assumptions: tuple[tuple[str, str, str], ...] = ()
    """(what, why, how to change it)."""
    stated: OfferQuestion | None = None
    """It in the words of its file and flags; None of a record from Python."""
