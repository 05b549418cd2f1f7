"""A question as a person asks it, and the same made computable: figures, a space of candidates, and what to
minimise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.axes import OPTION_AXES
from planner.axes.table import PRECISION
from planner.base.errors import WrongQuestion, meant
from planner.catalog import Catalog
from planner.cost import stage_memory
from planner.cost.second_memory import Expansion
from planner.figures import conformal_intervals, cost_inputs, nearest_runs, step_time_interval
from planner.figures.efficiency import Efficiency, reached
from planner.figures.nearest_runs import NearbyRuns
from planner.figures.own_runs import NearRuns, block
from planner.figures.profiles import overlay
from planner.figures.profiles import profile as profiles
from planner.figures.profiles.profile import Profile
from planner.question.request import Request, _per_second, _that_progress, goodput_of
from planner.schema.hardware import Accelerator, Cluster, Runtime
from planner.search.problem import SearchProblem, Target
from planner.space import infeasible
from planner.space.blocks import Block, blocks
from planner.space.cost_grid import Figures
from planner.space.enumerate_layouts import Question, Rows, layouts
from planner.space.levers import Levers, offered
from planner.space.pins import Pins
from planner.space.rules import RuleSetting

OWN_RUNS_SHARED = "the site's own runs shift every plan by the same factor: over several pools none is nearer to them"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request made computable: figures, blocks, and what the objective weighs each row with."""

    request: Request
    reached: Efficiency
    figures: Figures
    blocks: tuple[Block, ...]
    targets: tuple[Target, ...]
    sure: Mapping[str, tuple[float, str]]
    """By precision: half-width of the 80 % interval of a step time, on a log scale, and what it rests on."""
    profiles: Mapping[str, Profile]
    """Layer times measured elsewhere that hold here, by precision."""
    unused: tuple[str, ...]
    """Profiles of this model and accelerator that do not hold, and why."""
    memory_half_width: float
    """Of the 80 % interval of a peak of memory, on a log scale."""
    memory_comparable: str
    older: Figures | None = None
    """Figures under the older release of the request."""
    plausible: tuple[Figures, ...] = ()
    """The same under every runtime that one of unknown name may be."""
    nearby: Callable[[], NearbyRuns] = NearbyRuns.nothing
    """Reads the measured runs of the catalog."""

    @property
    def usable(self) -> float:
        """Bytes that a predicted peak may reach on an accelerator at the risk asked for."""
        return self.within(self.request.cluster.accelerator.memory)

    def within(self, capacity: float) -> float:
        """The same of any capacity."""
        return stage_memory.usable(capacity, self.memory_half_width, self.request.oom_risk)


def space(request: Request) -> tuple[Block, ...]:
    """Every legal layout with the options that it can take; it depends on nothing that is only fast or slow.

    Raises:
        WrongQuestion: no layout is legal under the pins.
    """
    question = _asked(request)
    rows = layouts(question)
    if not len(rows["tp"]):
        raise WrongQuestion(infeasible.no_layout(question))
    found = tuple(blocks(rows, request.workload, request.cluster, request.runtime, request.pins))
    if not found:
        raise WrongQuestion(infeasible.no_options(question))
    return found


def _asked(request: Request) -> Question:
    setting = RuleSetting(request.workload, request.cluster, request.runtime)
    return Question(setting, request.counts, request.batches, request.pins, request.waived)


def prepare(catalog: Catalog, request: Request, spanned: tuple[Block, ...] | None = None) -> Prepared:
    """Binds the request's records to figures and spans its space, unless :func:`space` has done so for its like.

    Raises:
        WrongQuestion: no layout is legal under the pins, or the objective needs a price that the catalog lacks.
        NoAnswer: so many accelerators fail more often than the job restarts.
    """
    request = replace(request, counts=_that_progress(request))
    found = space(request) if spanned is None else spanned
    known, part = conformal_intervals.read(catalog), request.cluster.accelerator
    fitted = resolve_efficiency(catalog, request, part)
    refuse_unlisted(request, fitted)
    kinds = {name for block in found for name in block.axes[PRECISION]}
    measured, unused = measured_layers(catalog, request, kinds)
    memory = conformal_intervals.memory_width(catalog, request.runtime.id)
    figures = _figures(request, fitted, sorted(kinds), measured, memory[0])
    targets = tuple(_target(request, block) for block in found)
    sure = {name: how_sure(known, request, part, name) for name in kinds}
    older, plausible = _elsewhere(catalog, request, list(figures.devices)) if not measured else (None, ())
    nearby = partial(nearest_runs.read, catalog)
    return Prepared(request, fitted, figures, found, targets, sure, measured, unused, *memory, older, plausible, nearby)


def refuse_unlisted(request: Request, fitted: Efficiency) -> None:
    """Refuses pinned values for which the accelerator's efficiencies have no figure.

    Raises:
        WrongQuestion: a value, with those that the accelerator has.
    """
    part = request.cluster.accelerator
    for axis in OPTION_AXES:
        if not axis.listed or axis.name not in request.pins:
            continue
        known = (axis.spell(axis.neutral), *getattr(fitted.accelerator, axis.listed))
        for value in request.pins.bounds[axis.name].values:
            if value not in known:
                instead = meant(value, known, f"choose {', '.join(known)}")
                raise WrongQuestion(f"{axis.name}={value}: no figure is known for it on {part.id}; {instead}")


def _elsewhere(
    catalog: Catalog, request: Request, precisions: Sequence[str]
) -> tuple[Figures | None, tuple[Figures, ...]]:
    """The request's figures under its older release, and under every runtime that its own stands for."""

    def under(runtime: Runtime, release: str) -> Figures:
        asked = replace(request, runtime=runtime, release=release)
        return _figures(asked, reached(catalog, request.cluster.accelerator, runtime, release), precisions, {}, 0.0)

    older = under(request.runtime.at(request.older), request.older) if request.older else None
    return older, tuple(under(*runtime) for runtime in plausible(catalog, request))


def plausible(catalog: Catalog, request: Request) -> Iterator[tuple[Runtime, str]]:
    """Every runtime, with its release, that the request's own stands for."""
    for named in request.runtime.between:
        name, _, release = named.partition("@")
        runtime = catalog.runtime(name)
        yield runtime, release or runtime.releases[-1]


def how_sure(
    known: Mapping[str, conformal_intervals.Width], request: Request, part: Accelerator, precision: str
) -> tuple[float, str]:
    """Half-width of the 80 % interval of a step time on some accelerator, log scale, and the runs it comes from."""
    work = request.workload
    return step_time_interval.half_width(
        known,
        step_time_interval.Situation(
            generation=part.generation,
            precision=precision,
            kind="moe" if work.model.moe else "dense",
            runtime=request.runtime.measured_as or request.runtime.id,
            framework=request.runtime.id,
            method=work.method.kind,
            sequence=work.sequence,
        ),
    )


def resolve_efficiency(catalog: Catalog, request: Request, part: Accelerator) -> Efficiency:
    """What the request's runtime reaches on some accelerator; its notes say where no training run was measured."""
    found = reached(catalog, part, request.runtime, request.release)
    found = replace(found, runtime=replace(found.runtime, **request.supposed))
    if found.own and not request.weighs_own_runs:
        found = replace(found, notes=(*found.notes, OWN_RUNS_SHARED))
    if conformal_intervals.measured(conformal_intervals.read(catalog), part.generation):
        return found
    note = f"no transformer's training run was fitted on {part.generation}: its interval is as wide as for unseen ones"
    return replace(found, notes=(*found.notes, note))


def _figures(
    request: Request,
    fitted: Efficiency,
    precisions: Sequence[str],
    measured: Mapping[str, Profile],
    memory_half_width: float,
) -> Figures:
    """What the cost functions read of a request's records."""
    part, per_node = request.cluster.accelerator, request.cluster.node.accelerators
    return Figures(
        cost_inputs.shape(request.workload, request.runtime),
        {name: cost_inputs.device(part, fitted.accelerator, name, request.release) for name in precisions},
        cost_inputs.network(request.cluster, fitted.accelerator),
        cost_inputs.stack(request.runtime, fitted.runtime, request.release, part),
        per_node,
        {name: found.table for name, found in measured.items()},
        expanded=_expanded(request, fitted, memory_half_width),
        own=NearRuns(fitted.own, block(request.workload.model), part.generation)
        if fitted.own and request.weighs_own_runs
        else None,
        uncompiled=fitted.without_compiler(request.runtime, request.release, part),
    )


def _expanded(request: Request, fitted: Efficiency, memory_half_width: float) -> Expansion | None:
    """The accelerator's second memory, as far as plans may fill it."""
    second = cost_inputs.expansion(request.cluster.accelerator, fitted.accelerator, request.cluster.node.accelerators)
    if second is None:
        return None
    return replace(second, memory=stage_memory.usable(second.memory, memory_half_width, request.oom_risk))


def moved(prepared: Prepared, cluster: Cluster) -> Prepared:
    """The same question on a cluster that differs in how fast and large it is, not in which layouts there are: the
    same nodes of as many accelerators.
    """
    request, before, fitted = replace(prepared.request, cluster=cluster), prepared.figures, prepared.reached
    part = cluster.accelerator
    figures = replace(
        before,
        devices={name: cost_inputs.device(part, fitted.accelerator, name, request.release) for name in before.devices},
        network=cost_inputs.network(cluster, fitted.accelerator),
        expanded=_expanded(request, fitted, prepared.memory_half_width),
    )
    return replace(prepared, request=request, figures=figures, older=None, plausible=())


def measured_layers(catalog: Catalog, request: Request, kinds: set[str]) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """The profile that holds in each precision, and why others of the same model and accelerator do not."""
    known, work, part = overlay.read(catalog), request.workload, request.cluster.accelerator.id
    found = {name: profiles.fit(known, work, part, name) for name in sorted(kinds)}
    used = {name: each for name, each in found.items() if each is not None}
    return used, profiles.reasons(known, used.values(), work, part, kinds)


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


def problem(prepared: Prepared, top: int, *, capacity: float | None = None) -> SearchProblem:
    """The search's view of a prepared request: a plan may hold what of the capacity the risk leaves."""
    memory = prepared.usable if capacity is None else prepared.within(capacity)
    return SearchProblem(prepared.figures, prepared.blocks, prepared.targets, memory, top, prepared.request.fold)


def levers_of(prepared: Prepared) -> Levers:
    """The levers that a request's pins leave free."""
    request = prepared.request
    kernels = prepared.reached.accelerator.attention_kernels
    return offered(request.workload, request.cluster, request.runtime, request.pins, kernels, request.counts)


def legal_rows(prepared: Prepared) -> Rows:
    """Every legal layout."""
    return layouts(_asked(prepared.request))


def wave(prepared: Prepared, rows: Rows, pins: Pins, capacity: float | None = None) -> SearchProblem | None:
    """The problem of some rows under other pins; None where no options go with them."""
    request = prepared.request
    found = tuple(blocks(rows, request.workload, request.cluster, request.runtime, pins))
    targets = tuple(_target(request, block) for block in found)
    return problem(replace(prepared, blocks=found, targets=targets), 1, capacity=capacity) if found else None
