"""Questions that several test files ask: models, clusters and runtimes joined by name."""

from dataclasses import replace
from functools import cache

from planner import catalog
from planner.figures import cost_inputs
from planner.figures.efficiency import reached
from planner.models.workload import workload
from planner.question.request import Request
from planner.question.search_problem import Prepared, prepare, problem
from planner.schema.hardware import Cluster
from planner.schema.workload import Model
from planner.search.problem import SearchProblem
from planner.space.cost_grid import Figures
from planner.space.pins import parse_pins

CATALOG = catalog.load()


@cache
def cluster(
    name: str, *, leaf_nodes: int | None = None, oversubscription: float = 1.0, **accelerator: float
) -> Cluster:
    """``node:count``, on a fabric with other leaves or oversubscription, with other figures of the accelerator."""
    node, count = name.split(":")
    joined = catalog.cluster(CATALOG, node, int(count))
    fabric = replace(
        joined.fabric, oversubscription=oversubscription, leaf_nodes=leaf_nodes or joined.fabric.leaf_nodes
    )
    return replace(joined, fabric=fabric, accelerator=replace(joined.accelerator, **accelerator))


def request(
    model: str | Model,
    on: Cluster | str,
    *,
    runtime: str = "megatron-core",
    release: str = "",
    counts: tuple[int, ...] = (),
    batches: tuple[int, ...] = (),
    pins: str = "",
    trained: dict | None = None,
    **more: object,
) -> Request:
    """A question; what is left out is the model's default, all nodes, the newest release."""
    joined = cluster(on) if isinstance(on, str) else on
    framework = CATALOG.runtime(runtime)
    what, release = workload(model, **(trained or {})), release or framework.releases[-1]
    return Request(
        workload=what,
        cluster=joined,
        counts=counts or (joined.count,),
        batches=batches or (what.batch,),
        runtime=framework.at(release),
        release=release,
        pins=parse_pins([pins]),
        **more,
    )


def prepared(*arguments: object, **more: object) -> Prepared:
    """The same, made computable."""
    return prepare(CATALOG, request(*arguments, **more))


def problem_of(*arguments: object, top: int = 20, capacity: float | None = None, **more: object) -> SearchProblem:
    """The same, as a search sees it."""
    return problem(prepared(*arguments, **more), top, capacity=capacity)


def figures(
    model: str | Model,
    on: Cluster | str,
    runtime: str,
    release: str = "",
    precisions: tuple[str, ...] = ("bf16",),
    **trained: object,
) -> Figures:
    """The figures of a question without its space."""
    asked = request(model, on, runtime=runtime, release=release, trained=trained)
    at = asked.cluster
    fitted = reached(CATALOG, at.accelerator, asked.runtime, asked.release)
    return Figures(
        cost_inputs.shape(asked.workload, asked.runtime),
        {name: cost_inputs.device(at.accelerator, fitted.accelerator, name, asked.release) for name in precisions},
        cost_inputs.network(at, fitted.accelerator),
        cost_inputs.stack(asked.runtime, fitted.runtime, asked.release, at.accelerator),
        at.node.accelerators,
    )
