"""A question as asked, with every choice left open a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.units import format_seconds
from planner.cost.figures import Figure
from planner.cost.goodput import CHECKPOINT_PAUSE_S, RESTART_S, GoodputEstimate, PoolFailures, joint_goodput
from planner.cost.money import HOUR_S
from planner.figures import cost_inputs
from planner.models.parameters import parameters
from planner.question.job_pools import JobPool
from planner.schema.choices import Objective
from planner.schema.hardware import Accelerator, Cluster, Price, Runtime
from planner.schema.workload import Workload
from planner.space.pins import Pins

OOM_RISK = 0.05


OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A question: what to train, on what, with what freedom, and what counts as better."""

    workload: Workload
    cluster: Cluster
    """With the largest count in question."""
    counts: tuple[int, ...]
    """Node counts to try."""
    batches: tuple[int, ...]
    """Global batches to try."""
    runtime: Runtime
    release: str
    older: str = ""
    """An older release whose step time is told beside, where the question states none."""
    supposed: Mapping[str, Any] = field(default_factory=dict)
    """Traits of the runtime (:class:`~planner.schema.efficiency.RuntimeEfficiency`) taken to be other than the
    catalog says, to see what depends on them."""
    pins: Pins = field(default_factory=Pins)
    waived: frozenset[str] = frozenset()
    objective: str = "time"
    deadline_s: float | None = None
    max_cost_usd: float | None = None
    top: int = 5
    fold: bool = True
    weighs_own_runs: bool = True
    """Whether a site's runs shift plans near them more than others: not where plans over several pools, which are near
    none, are compared with these."""
    launchable: bool | None = None
    """Of plans over several pools only those that a launcher can run: identical pipelines that fill their nodes; False:
    any; None: any where a launcher runs the best, otherwise as True."""
    price: Price | None = None
    """Per node-hour; the sold entry's id stands in `sold_as`."""
    price_basis: str = "on-demand"
    """The kind of price that was asked for."""
    sold_as: str = ""
    oom_risk: float = OOM_RISK
    """Largest chance of running out of memory that a plan may have, up to a half."""
    restart_s: float = RESTART_S
    preemptions_per_node_s: float = 0.0
    """Of instances that their owner may take back."""
    stock: Mapping[str, Accelerator] = field(default_factory=dict)
    """The catalog's accelerators by id, beside which a changed one of that id is seen."""
    inputs: Mapping[str, str] | None = None
    """Input -> sha256 prefix, for the documents."""
    assumptions: tuple[tuple[str, str, str], ...] = ()
    """(what, why, flag) of what the question left open."""


def _that_progress(request: Request) -> tuple[int, ...]:
    """The counts on which a job gets anywhere between two interruptions."""
    counts = tuple(count for count in request.counts if float(goodput_of(request, count).fraction) > 0)
    if not counts:
        good = goodput_of(request, min(request.counts))
        raise NoAnswer(
            f"{min(request.counts) * request.cluster.node.accelerators:,} accelerators get nowhere: the job is "
            f"interrupted every {format_seconds(float(good.mtbf))}, and a restart takes "
            f"{format_seconds(float(good.restart))}."
        )
    return counts


def goodput_of(request: Request, nodes: object) -> GoodputEstimate:
    """Goodput on that many of the request's own nodes (one number or an array of them)."""
    return goodput_over(request, [(JobPool(name="", cluster=request.cluster), np.asarray(nodes, dtype=float))])


def goodput_over(request: Request, used: Sequence[tuple[JobPool, Figure]]) -> GoodputEstimate:
    """Goodput on some nodes of each pool: checkpoints of weights and optimizer states, evenly over all accelerators and
    as fast as the slowest pool copies its share to host memory.
    """
    optimizer = request.workload.optimizer
    state = parameters(request.workload.model).total * (2.0 + optimizer.state_bytes + optimizer.master_bytes)
    accelerators = sum(nodes * pool.per_node for pool, nodes in used)
    host = min(pool.cluster.accelerator.host_bandwidth or cost_inputs.HOST_BANDWIDTH for pool, _ in used)
    return joint_goodput(
        [
            PoolFailures(nodes * pool.per_node, nodes * preemptions(request, pool), restart(request, pool))
            for pool, nodes in used
        ],
        CHECKPOINT_PAUSE_S + state / accelerators / host,
    )


def preemptions(request: Request, pool: JobPool) -> float:
    """How often the owner takes a node of a pool back, per second."""
    return request.preemptions_per_node_s if pool.preemptions_per_node_s is None else pool.preemptions_per_node_s


def restart(request: Request, pool: JobPool) -> float:
    """Seconds until a job goes on after an interruption of a pool."""
    return request.restart_s if pool.restart_s is None else pool.restart_s


def _per_second(request: Request) -> float:
    """US dollars per node and second."""
    if request.price is None:
        raise WrongQuestion(
            f"{request.cluster.node.id} has no {request.price_basis} price in the catalog; "
            "give one (--price '$2.10/h' per accelerator) or another --basis, "
            "or ask for neither a budget nor an objective in money"
        )
    return float(request.price.usd) / HOUR_S
