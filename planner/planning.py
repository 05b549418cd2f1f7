"""From a question to ranked plans: space, search, and the documents that say what was found."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from planner import binding, document, explain, verify
from planner.catalog import Catalog
from planner.cost.goodput import Goodput, goodput
from planner.cost.money import DAY_S, HOUR_S
from planner.efficiency import Reached, reached
from planner.errors import NoAnswer, WrongQuestion
from planner.parameters import parameters
from planner.schema.hardware import Cluster, Price, Runtime
from planner.schema.plan import FrontPoint, PlanSet, SearchSection
from planner.schema.workload import Workload
from planner.search.bounded import Bounded
from planner.search.problem import Found, Problem, Target
from planner.space.axes import Pins
from planner.space.grid import Block, Figures, blocks
from planner.space.layouts import Question, layouts
from planner.space.rules import Setting

OBJECTIVES = ("time", "cost", "energy", "tokens-per-dollar")


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
    pins: Pins = Pins()
    waived: frozenset[str] = frozenset()
    objective: str = "time"
    deadline_s: float | None = None
    max_cost_usd: float | None = None
    top: int = 5
    fold: bool = True
    price: Price | None = None
    """Per node-hour; the sold entry's id stands in `sold_as`."""
    sold_as: str = ""
    inputs: Mapping[str, str] | None = None
    """Input -> sha256 prefix, for the documents."""
    assumptions: tuple[tuple[str, str, str], ...] = ()
    """(what, why, flag) of what the question left open."""


@dataclass(frozen=True, slots=True)
class Model:
    """A request made computable: figures, blocks, and what the objective weighs each row with."""

    request: Request
    reached: Reached
    figures: Figures
    blocks: tuple[Block, ...]
    targets: tuple[Target, ...]


def prepare(catalog: Catalog, request: Request) -> Model:
    """Binds the request's records to figures and spans its space.

    Raises:
        WrongQuestion: no layout is legal under the pins, or the objective needs a price that the catalog lacks.
    """
    setting = Setting(request.workload, request.cluster, request.runtime)
    question = Question(setting, request.counts, request.batches, request.pins, request.waived)
    rows = layouts(question)
    if not len(rows["tp"]):
        raise WrongQuestion(explain.no_layout(question))
    found = tuple(blocks(rows, request.workload, request.cluster, request.runtime, request.pins))
    if not found:
        raise WrongQuestion(explain.no_options(question))
    fitted = reached(catalog, request.cluster.accelerator, request.runtime, request.release)
    kinds = {name for block in found for name in block.axes.precision}
    figures = Figures(
        binding.shape(request.workload),
        {name: binding.device(request.cluster.accelerator, fitted.accelerator, name) for name in sorted(kinds)},
        binding.network(request.cluster, fitted.accelerator),
        binding.stack(request.runtime, fitted.runtime, request.release),
        request.cluster.node.accelerators,
    )
    targets = tuple(_target(request, block) for block in found)
    return Model(request, fitted, figures, found, targets)


def goodput_of(request: Request, nodes: object) -> Goodput:
    """Goodput on that many nodes: checkpoints of weights and optimizer states, evenly over all accelerators."""
    optimizer = request.workload.optimizer
    state = parameters(request.workload.model).total * (2.0 + optimizer.state_bytes + optimizer.master_bytes)
    accelerators = np.asarray(nodes, dtype=float) * request.cluster.node.accelerators
    host = request.cluster.accelerator.host_bandwidth or binding.HOST_BANDWIDTH
    return goodput(accelerators, state / accelerators, host)


def _target(request: Request, block: Block) -> Target:
    """Weights that turn a step time into the objective for all tokens, and the step times that limits allow."""
    nodes, batch = block.rows["nodes"].astype(float), block.rows["batch"].astype(float)
    steps = request.workload.tokens / (batch * request.workload.sequence)
    seconds = steps / np.asarray(goodput_of(request, nodes).fraction)
    limit = np.full(block.height, np.inf)
    if request.deadline_s is not None:
        limit = np.minimum(limit, request.deadline_s / seconds)
    if request.max_cost_usd is not None:
        limit = np.minimum(limit, request.max_cost_usd / (seconds * nodes * _per_second(request)))
    if request.objective == "time":
        return Target(seconds, limit)
    if request.objective == "energy":
        return Target(seconds * nodes, limit)
    return Target(seconds * nodes * _per_second(request), limit)


def _per_second(request: Request) -> float:
    """US dollars per node and second."""
    if request.price is None:
        raise WrongQuestion(
            f"{request.cluster.node.id} has no price; give one (--price '$2.10/h' per accelerator) "
            "or rank by --objective time"
        )
    return request.price.usd / HOUR_S


def problem(model: Model, top: int, *, capacity: float | None = None) -> Problem:
    """The search's view of a prepared request."""
    memory = model.request.cluster.accelerator.memory if capacity is None else capacity
    return Problem(model.figures, model.blocks, model.targets, memory, top, model.request.fold)


def plan(catalog: Catalog, request: Request, advance: Callable[[int], None] | None = None) -> PlanSet:
    """Searches the request's whole space and returns its best plans, verified.

    Raises:
        WrongQuestion: the question allows no layout.
        NoAnswer: layouts exist, and none fits into memory or within the limits; the message says what would.
    """
    started, cpu = time.perf_counter(), time.process_time()
    model = prepare(catalog, request)
    found = Bounded(front=True).search(problem(model, request.top), advance)
    if not found.best:
        raise NoAnswer(explain.nothing_fits(catalog, model, found))
    plans = tuple(document.plan(model, candidate, rank) for rank, candidate in enumerate(found.best, 1))
    result = PlanSet(
        search=_search_section(request, model, found),
        plans=plans,
        reasons=explain.reasons(model, found, plans),
        front=_front(catalog, model, found),
        meta={
            "wall_s": round(time.perf_counter() - started, 3),
            "cpu_s": round(time.process_time() - cpu, 3),
            "host": platform.machine(),
        },
    )
    for each in result.plans:
        verify.check(each)
    return result


def _search_section(request: Request, model: Model, found: Found) -> SearchSection:
    switches = int(np.prod(model.blocks[found.best[0].block].axes.shape[2:])) if request.fold else 1
    return SearchSection(
        candidates=found.candidates,
        feasible=found.feasible,
        costed=found.costed,
        proven_optimal=found.proven,
        method=found.method,
        objective=request.objective,
        alike=switches,
    )


def _front(catalog: Catalog, model: Model, found: Found) -> tuple[FrontPoint, ...]:
    """Over several counts the best of each count; on one count, faster against leaner."""
    if len(model.request.counts) == 1:
        return tuple(document.front_point(model, candidate) for candidate in found.front)
    points = []
    for count in model.request.counts:
        one = replace(model.request, counts=(count,), top=1)
        try:
            prepared = prepare(catalog, one)
        except WrongQuestion:
            continue
        best = Bounded().search(problem(prepared, 1)).best
        points += [document.front_point(prepared, candidate) for candidate in best]
    return tuple(points)


def days(seconds: float) -> float:
    """Seconds as days."""
    return seconds / DAY_S
