"""The document of a procurement: ranked alternatives, each with its bill, its calendar and its training plans.

SI units but for what people buy by: days, US dollars, kilowatt-hours, kilograms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from planner.base.units import format_usd
from planner.schema import notebook
from planner.schema.plan import Assumption, ComparableOffers, Constraint, Generator, Plan
from planner.schema.record import Answer, Document, Record, Sparse
from planner.schema.rl import RLPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pipelines = Annotated[
    Literal["identical", "any"], BeforeValidator(lambda word: "identical" if word == "alike" else word)
]
"""Which pipelines may share a job; ``alike`` is the former word for identical, still read in documents and files."""


class Currency(Record):
    """The currency of the question; amounts in the document are US dollars."""

    code: str = "USD"
    usd: float = 1.0
    """US dollars for one."""
    date: str = ""
    source: str = ""

    def format(self, usd: float) -> str:
        """An amount of US dollars in this currency, as people read it."""
        text = format_usd(usd / self.usd)
        return text if self.code == "USD" else text.replace("$", f"{self.code} ")


class Owning(Record):
    """Costs of ownership in addition to the price of the machines."""

    interest: float
    """A year."""
    life_years: float
    residual: float
    """Share of the capital that is left at the end of the life."""
    colocation_usd_per_kw_month: float
    maintenance: float
    """Share of the capital, a year."""
    staff_usd_per_accelerator_year: float


class PoolGroup(Record):
    """Heterogeneous pools that may work on one job at once."""

    pools: tuple[str, ...]
    """Offers, as pools name them."""
    workloads: tuple[str, ...]
    """Which may run so; empty: all."""
    link_bytes_per_s: float | None
    """What a node sends to another pool, if given."""
    link_latency_s: float | None
    pipelines: Pipelines = "any"
    """``identical``: all pipelines are the same and fill their nodes, as launchers require."""


class ProcureOptions(Record):
    """The question, as far as the answer must keep to it."""

    name: str
    as_of: str
    horizon_days: float
    objective: Literal["time", "cost", "tokens-per-dollar", "tokens", "carbon"]
    charge: Literal["cash", "amortised"]
    """Whether a purchase counts whole, or by the share of its life that the horizon takes."""
    currency: Currency
    limits: dict[str, float]
    """Name -> value: US dollars, watts, kilograms, days, counts."""
    owned: dict[str, int]
    """Node -> how many there are already."""
    ownership: Owning | None = None
    mixed: tuple[PoolGroup, ...] | None = None
    standing: dict[str, float] | None = None
    """Racks and switch ports that machines owned already take, whether they work or not."""
    survive_nodes: int | None = None
    """That any job may lose, once, for the time of a repair, and keep its deadline."""
    max_price_age_days: float | None = None
    """Older prices were left out."""
    resale: Sparse[float] = None
    """What a buyer pays for nodes, over what they are worth by their age; None: nothing bought is sold."""


class OfferQuestion(Record):
    """All that was asked, with which the offer is made again."""

    portfolio: dict[str, Any]
    """As the file says it, with what flags said in its place."""
    ways: str | None
    nodes: tuple[str, ...]
    """Only these; empty: all."""
    top: int = 3
    """Alternatives asked for."""
    marginal: bool = True
    """Whether marginal values were."""
    sensitivity: bool = True


class Optimality(Record):
    """How good the first alternative is."""

    gap: float
    bound: float
    """Nothing better than this exists among the candidates."""
    value: float
    unit: str
    method: str
    pools: int
    """Things that could be acquired."""
    columns: int
    """Jobs on pools that were planned exactly."""
    mixed_columns: int = 0
    """Jobs on several pools at once, planned to within a gap."""
    mixed_gap: float = 0.0
    """How much shorter a step of any of those plans could be, at most."""
    restrictions: Sparse[tuple[str, ...]] = None
    """What the method keeps to, a clause each: other answers were not tried, and the bound is of these alone."""
    whole: Sparse[bool] = None
    """No longer written: earlier releases said false of every answer, since plans without levers are a restriction."""
    moving_bound_usd: Sparse[float] = None
    """US dollars that no answer is cheaper than, of those that keep to the other restrictions, in which jobs move
    between pools at checkpoints: a relaxation in which moves cost nothing. Where costs are minimised and it was asked.
    """
    stopped: Sparse[bool] = None
    """Whether Ctrl-C ended the search: what was not computed by then (alternatives, marginal values, answers under one
    more condition) is left out.
    """


class Line(Record):
    """A line of the bill: ``usd = count x unit_price_usd`` to the cent."""

    pool: str
    item: str
    kind: Literal[
        "node", "network", "head node", "I/O node", "storage", "rental", "energy", "facility", "maintenance", "staff"
    ]
    count: float
    unit: str
    unit_price_usd: float
    usd: float
    source: str
    date: str


class Year(Record):
    """What is spent in one year of the horizon, from 1."""

    year: int
    capital_usd: float
    rental_usd: float
    running_usd: float
    total_usd: float
    sold_usd: Sparse[float] = None
    """What nodes that are sold in it bring, in no sum of what is spent; None where nothing is sold."""


class PriceRange(Record):
    """The total if everything rented were paid at other current offers of its accelerators, and what has an old or
    assumed price were as far from it as the current offers of any accelerator are from their median. US dollars.
    """

    low_usd: float
    median_usd: float
    high_usd: float
    offers: int
    """Providers that sell the accelerators so, in all pools."""
    oldest: str
    """Date of the oldest of their prices."""


class Cost(Record):
    """What it costs. US dollars."""

    total_usd: float
    """What is minimised: all cash, or cash with capital replaced by its charge."""
    cash_usd: float
    """All that is paid."""
    capital_usd: float
    charged_usd: float
    """What of the capital counts: all of it, less what nodes that are sold bring; or what is charged for its days."""
    sold_usd: Sparse[float] = None
    """What nodes that are sold bring; None where the question sells nothing."""
    used_usd: float
    """Share of the capital for the days that machines work, over their life."""
    resale_usd: float | None = None
    """What the nodes that are bought and kept would fetch at the end of the horizon: an estimate, no part of any total.
    """
    by_kind: dict[str, float]
    by_year: tuple[Year, ...]
    range: PriceRange | None = None
    """Where anything is rented that more than one provider sells, or has an old or assumed price."""


class PoolBought(Record):
    """Nodes that act as one cluster, and how they are come by."""

    id: str
    way: Literal["own", "buy", "on-demand", "spot", "reserved-1y", "reserved-3y"]
    node: str
    count: int
    """Nodes that train, in each copy."""
    spares: int
    copies: int
    accelerators: int
    """In all copies, spares left out."""
    offer: str = ""
    """The candidate that it was chosen from, as a limit on its number names it."""
    wiring: str
    region: str
    start_day: float
    end_day: float | None
    """End of a term, or the day on which it is sold; None: it stays."""
    sold_usd: Sparse[float] = None
    """What the nodes of one copy bring then; None: they are not sold."""
    month_usd: float
    """For one copy while it is held."""
    held_days: float
    day_usd: float
    """For one copy while it works."""
    power_w: float
    """One copy, provided at the plug; 0 for machines of others."""
    colocated: bool | None = None
    """Whether its power is paid for as colocation; a workstation stands in the office."""
    node_power_w: float
    network_power_w: float
    load: float
    pue: float
    usd_per_kwh: float
    grams_per_kwh: float
    racks: float
    switch_ports: float
    utilisation: float
    """Share of the time from its start to its end or the horizon in which it works."""
    price_date: str
    stale: bool
    """Whether the price is older than a year, undated, or of a day still to come."""
    offers: ComparableOffers | None = None
    """What an hour of its accelerator is sold for in the same way, where it is rented at the catalog's price."""
    price_spread: Sparse[tuple[float, float]] = None
    """What today's price may be of one that is old or assumed, at least and at most: the cheapest and the dearest
    current offer of any accelerator over the median of its offers. Where several providers sell it, `offers` say that.
    """


class Stretch(Record):
    """A time without a break on one copy of a pool."""

    pool: str
    copy: int
    start_day: float
    end_day: float


class SpotRisk(Record):
    """What a job on machines that may be taken back costs and takes: expected, and in nine of ten runs. Only failures
    and preemptions vary here: how far the step time may be off is in the finish's interval.
    """

    preemptions_per_node_day: float
    """As the question assumes."""
    interruptions: float
    """Expected during the job, failures of its machines included."""
    finish_90_day: float
    usd: float
    """Rent of the job, expected."""
    usd_90: float
    on_demand_usd: float | None
    """Rent of the same nodes on demand, which nobody takes back; None where nobody sells them so."""
    break_even_per_node_day: float | None
    """Preemptions above which on demand is cheaper; 0 where it always is."""


class Survives(Record):
    """That a job keeps its deadline though it loses nodes, once, for the time of a repair."""

    lost_nodes: int
    repair_days: float
    tokens_per_s: float
    """Meanwhile: as before on spare nodes, else on the best smaller size that was planned; 0 where it waits."""
    restart_days: float
    days: float
    """By which it is then done later."""


class JobDone(Record):
    """One job: where and when it runs, and the plan that launches it."""

    name: str
    model: str
    tokens: float
    days: float
    """Wall time that the tokens take."""
    tokens_per_s: float
    release_day: float
    deadline_day: float
    finish_day: float
    finish_low: float
    finish_high: float
    """80 % interval of the finish, from that of the step time."""
    late_chance: Sparse[float] = None
    """What `chance_late` returns; None where a job takes all days for more tokens, and in documents of before 2026-12.
    """
    pools: tuple[str, ...]
    """One, or several that work on it at the same times, in the order of the plan's own."""
    interruptible: bool = False
    """Whether it may be paused where another job needs its nodes; else it runs in one piece."""
    restart_days: float = 0.0
    """Lost at each pause, until it works again."""
    pauses: int = 0
    schedule: tuple[Stretch, ...]
    plan: Sparse[Plan] = None
    post_training: Sparse[RLPlan] = None
    """In place of a plan, the fastest placement of a job that generates responses and trains on them; its dollars are
    those of the pools.
    """
    spot: SpotRisk | None = None
    """Where any of its pools may be taken back; not told of post-training."""
    survives: Survives | None = None
    """Where the question asks for it."""

    def start_day(self) -> float:
        """Day on which it first works."""
        return min((stretch.start_day for stretch in self.schedule), default=self.release_day)

    def chance_late(self) -> float:
        """Chance that the job is done after its deadline: ``1 - Phi(ln(due / median) / sigma)``.

        Days from the start of the job to its end are log-normal: their 80 % interval ``low .. high`` gives
        ``median = sqrt(low high)`` and ``sigma = ln(high / low) / (2 x 1.2816)``; ``due`` are those to the deadline.
        Only the step time varies: how late machines are, and jobs before this one, is not in it.
        """
        start = self.start_day()
        due, low, high = (day - start for day in (self.deadline_day, self.finish_low, self.finish_high))
        if not 0.0 < low < high < math.inf or due <= 0.0:
            return float(self.finish_day > self.deadline_day)
        sigma = math.log(high / low) / (2.0 * NormalDist().inv_cdf(0.9))
        return 1.0 - NormalDist(math.log(low * high) / 2.0, sigma).cdf(math.log(due))


class Alternative(Document):
    """One answer."""

    rank: int
    what: str
    value: float
    """What more of the limit brings of the objective, in its unit."""
    bill_of_materials: tuple[Line, ...]
    cost: Cost
    power_w: float
    racks: float
    carbon_kg: float
    tokens_per_usd: float | None
    usd_per_peak_pflops: float | None
    """Capital over dense 16-bit peak of what is bought."""
    done_day: float
    pools: tuple[PoolBought, ...]
    workloads: tuple[JobDone, ...]
    constraints: tuple[Constraint, ...]
    rests_on: tuple[str, ...] | None = None
    """What of it no current source states: old prices, assumed ones, preemptions, a resale value. None: not stated."""

    def rows(self) -> list[dict[str, Any]]:
        """The bill, a row for each line."""
        return [vars(line) for line in self.bill_of_materials]

    def row(self) -> dict[str, Any]:
        """A row of a table: what the alternative is, costs and takes."""
        return {
            "rank": self.rank,
            "what": self.what,
            **{name: getattr(self.cost, name) for name in ("total_usd", "cash_usd", "capital_usd")},
            **{name: getattr(self, name) for name in ("done_day", "power_w", "racks", "carbon_kg", "tokens_per_usd")},
        }

    def title(self) -> str:
        """What it is, and what it costs."""
        return f"{self.what}, {format_usd(self.cost.total_usd)}, done on day {self.done_day:.1f}"


class MarginalValue(Record):
    """What more of a limit would bring, by solving again."""

    limit: str
    step: float
    unit: str
    gain: float
    """Improvement of the objective; 0 where none."""
    gain_unit: str


class BreakEven(Record):
    """From how many months of use buying is cheaper than renting, for one kind of node."""

    buy: str
    rent: str
    owned_usd_per_accelerator_hour: float
    """The total cost of ownership at full use."""
    rented_usd_per_accelerator_hour: float
    utilisation: float
    """Share of its life above which owning is cheaper; above 1: never."""
    months: float | None
    """Months of full use until rent would have paid for the purchase; None where rent never does."""


class Sensitivity(Record):
    """The best answer with all catalog prices of nodes turned."""

    prices: float
    value: float
    what: str
    same: bool
    """Whether the same kinds of nodes are come by in the same way."""


class Apart(Record):
    """The best answer under one more condition: every job on one pool, or prices of the last year alone."""

    value: float | None
    """None where nothing keeps the limits so."""
    what: str


class Soonest(Record):
    """The earliest completion that the whole budget buys."""

    done_day: float
    cash_usd: float
    what: str


class Procurement(Answer[Alternative]):
    """The answer."""

    kind: Literal["procurement"] = "procurement"
    schema_version: Literal[1] = 1
    generator: Generator
    question: ProcureOptions
    optimality: Optimality
    alternatives: tuple[Alternative, ...]
    binding: tuple[str, ...]
    marginal_values: tuple[MarginalValue, ...]
    break_even: tuple[BreakEven, ...]
    sensitivity: tuple[Sensitivity, ...]
    apart: Apart | None = None
    """Where the first alternative has a job on several pools."""
    fresh: Sparse[Apart] = None
    """Where the first alternative rests on a price that is older than a year, or assumed."""
    soonest: Sparse[Soonest] = None
    """Where the first alternative leaves most of the budget, and more of it buys an earlier day."""
    stale_prices: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    asked: Sparse[OfferQuestion] = None
    """None in documents of before, and where a model of one's own was given from Python."""
    meta: dict[str, Any]

    def parts(self) -> tuple[Alternative, ...]:
        """The alternatives, best first."""
        return self.alternatives

    def rows_of(self, parts: Sequence[Alternative]) -> list[dict[str, Any]]:
        """What each alternative is, costs and takes."""
        return [alternative.row() for alternative in parts]

    def plot(self) -> Axes:
        """What every alternative costs, by kind, with matplotlib."""
        costs = {f"#{a.rank}": {k: usd / 1e6 for k, usd in a.cost.by_kind.items()} for a in self.alternatives}
        return notebook.stacked(costs, "million USD")

    def title(self) -> str:
        """How many alternatives, and the best."""
        return notebook.counted([alternative.title() for alternative in self.alternatives], "alternative")
