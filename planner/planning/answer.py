"""A candidate of the search on one pool as a plan's document.

A plan of a fine-tuning also says what its step takes where texts are sorted by length, or padded, in place of packed
(:func:`texts_otherwise`). Both are priced as the plan itself with as many texts a step: its layout and its micro-batch,
whose memory must hold the longest texts anyhow, with more micro-batches of fewer tokens.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

import numpy as np

from planner import cost
from planner.axes.options import OptionValues, sections
from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    ATTENTION_KERNEL,
    CP_ALGORITHM,
    DISPATCHER,
    GRAPHS,
    OFFLOAD,
    OFFLOAD_OVERLAP,
    PLACEMENT,
    PRECISION,
    RECOMPUTE,
    SCHEDULE,
    ZERO,
)
from planner.axes.values import ALONE, IN_PLACE, SPLIT_SCHEDULES
from planner.base.units import format_many
from planner.cost import attention, data_parallel, expanded_memory, nearness, pipeline, stage_memory
from planner.cost.evaluate import terms
from planner.cost.figures import Grid
from planner.cost.stage_memory import Memory
from planner.figures import nearest_runs, own_runs
from planner.models import text_lengths as lengths
from planner.models.context import in_texts
from planner.models.parameters import parameters
from planner.planning import document, releases
from planner.planning.document import FullestStage, PoolInUse, Solution, Spread
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request
from planner.question.search_problem import Prepared
from planner.schema import plan as schema
from planner.schema import plan_layout
from planner.schema.hardware import Node
from planner.schema.plan import TextBatches
from planner.schema.plan_layout import ATTENTION_KERNELS, AttentionKernel
from planner.search.problem import Candidate
from planner.space import dispatchers
from planner.space.cost_grid import single_grid
from planner.space.pins import Pins
from planner.space.rules import RuleSetting, broken


def texts_otherwise(prepared: Prepared, candidate: Candidate) -> TextBatches:
    """Seconds of a step's texts, packed, sorted and padded.

    Sorted: every micro-batch of a step has about one length, the mean over steps being the texts' own. Padded: a
    micro-batch of b texts has the length ``P(b)`` of its longest, mean over all; a step waits for the slowest of dp
    replicas, whose m micro-batches are ``P(b) + (P(b dp) - P(b)) / sqrt(m)`` long: exact for one replica or one
    micro-batch, between as the spread of a sum. Images of a step are as many in all three.
    """
    work, layout = prepared.request.workload, candidate.layout
    full = lengths.filled(work.texts, work.sequence)
    per_step = full * work.sequence / lengths.mean(work.texts) * layout["batch"]
    together = layout["micro"] * layout["dp"]
    count = math.ceil(per_step / together)
    own = lengths.padded(work.texts, layout["micro"])
    slowest = own + (lengths.padded(work.texts, together) - own) / math.sqrt(count)
    weights = lengths.longest_of(work.texts, layout["micro"])

    alike = prepared.figures.shape
    images = alike.images * layout["batch"] / per_step

    def seconds(tokens: float, text: float, attended: float) -> float:
        shape = replace(alike, sequence=tokens, text=text, attended=attended, attended_full=text, images=images)
        grid = single_grid(
            replace(prepared.figures, shape=shape), {**layout, "batch": count * together}, candidate.options
        )
        return float(cost.evaluate(grid).time) * per_step / (count * together)

    return TextBatches(
        filled=full,
        per_step=per_step,
        sorted_s=seconds(lengths.mean(work.texts), float(alike.text), float(alike.attended)),
        padded_s=seconds(slowest, lengths.around_token(work.texts, weights), in_texts(work.model, work.texts, weights)),
    )


class MeasuredRuns(Protocol):
    """What planning asks of a site's measured runs; :mod:`planner.site.journal` answers from its journal."""

    def pins(self, request: Request) -> Sequence[Pins]:
        """The configurations of runs that answer the request."""
        ...

    def key(self, plan: schema.Plan) -> Hashable:
        """What plans share that one run measures."""
        ...

    def measured(self, plan: schema.Plan) -> schema.MeasuredSection | None:
        """The runs that followed a plan as it is predicted."""
        ...

    def ran_out(self, plan: schema.Plan) -> bool:
        """Whether the plan ran out of memory, and never ran."""
        ...


def plan(prepared: Prepared, candidate: Candidate, rank: int, runs: MeasuredRuns | None = None) -> schema.Plan:
    """Everything that is known of one candidate, as the plan of that rank (from 1).

    Of one that a site has run, the step time is the measurement, and so is all that follows from it.
    """
    predicted = solution(prepared, candidate)
    found = document.write(predicted, rank)
    measured = runs.measured(found) if runs else None
    return found if measured is None else document.write(as_measured(predicted, measured), rank)


def as_measured(predicted: Solution, measured: schema.MeasuredSection) -> Solution:
    """The solution with its measured step time, and the interval that its runs leave."""
    spread = Spread(measured.half_width, f"{format_many(measured.runs, 'run')} of this plan")
    return replace(predicted, step_time=measured.step_time_s, time_spread=spread, measured=measured)


def solution(prepared: Prepared, candidate: Candidate) -> Solution:
    """A candidate in the writer's terms: the request's cluster is a list of one pool."""
    request = prepared.request
    grid = single_grid(prepared.figures, candidate.layout, candidate.options)
    return replace(
        _outline(prepared, candidate, grid),
        breakdown={name: float(seconds) for name, seconds in cost.breakdown(grid).items() if seconds != 0.0},
        model_flops=float(cost.model_flops(grid)),
        by_stage=by_stage(grid),
        time_spread=releases.time_spread(prepared, candidate),
        older=releases.older(prepared, candidate),
        text_batches=texts_otherwise(prepared, candidate) if request.workload.texts else None,
        passes=_passes(grid) if candidate.options[SCHEDULE] in SPLIT_SCHEDULES else None,
        own_runs=_own_runs(prepared, grid),
        nearest_runs=_nearest_runs(prepared, candidate),
    )


def _passes(grid: Grid) -> schema.SplitPasses:
    """As long as a site's runs take."""
    timed = terms(grid).stages
    site = float(grid.stack.whole_step)
    slowest, others = (
        (site * float(x.forward), site * float(x.inward), site * float(x.weight))
        for x in pipeline.split_passes(grid, timed)
    )
    return schema.SplitPasses(slowest_s=slowest, others_s=others)


def _own_runs(prepared: Prepared, grid: Grid) -> schema.OwnRunsSection | None:
    """What the site's runs shift a candidate's prediction by; None where there are none."""
    own = prepared.figures.own
    if own is None:
        return None
    shared = float(prepared.figures.stack.whole_step)
    whole = float(grid.stack.whole_step)
    plain = replace(grid, stack=replace(grid.stack, whole_step=1.0))
    return schema.OwnRunsSection(
        shared_factor=shared,
        near_factor=whole / shared,
        without_s=float(cost.evaluate(plain).time),
        model=own.model,
        generation=own.generation,
        site=nearness.SITE,
        near=nearness.NEAR,
        other=dict(nearness.OTHER),
        doubled=dict(nearness.DOUBLED),
        runs=own_runs.listed(own.runs),
    )


def _nearest_runs(prepared: Prepared, candidate: Candidate) -> tuple[schema.NearestRun, ...]:
    """Published and own runs that a candidate is nearest to, the nearest first; none where nothing was measured."""
    request = prepared.request
    work = request.workload
    layout = candidate.layout
    part = request.cluster.accelerator
    plan: dict[str, str | float] = {
        "model": own_runs.block(work.model),
        "generation": part.generation,
        "precision": candidate.options[PRECISION],
        "recompute": candidate.options[RECOMPUTE].name,
        "accelerator": part.id,
        "runtime": request.runtime.measured_as or request.runtime.id,
        "kind": "moe" if work.model.moe else "dense",
        "method": work.method.kind,
        "accelerators": float(layout["nodes"] * request.cluster.node.accelerators),
        **{axis: float(layout[axis]) for axis in ("tp", "pp", "cp", "ep", "micro")},
        "parameters": float(parameters(work.model).total),
        "sequence": float(work.sequence),
    }
    return nearest_runs.nearest(prepared.nearby(), plan)


def _outline(prepared: Prepared, candidate: Candidate, grid: Grid) -> Solution:
    """The same without what only a document says: what the step time is made of, how sure it is, other releases."""
    request = prepared.request
    layout = candidate.layout
    used = _pool(prepared, layout["nodes"], candidate.options, float(grid.device.peak))
    fullest = fullest_stage(prepared, grid, layout["pp"])
    return Solution(
        request=request,
        question=Pools((used.pool,)),
        pools=(used,),
        configuration=_configuration(prepared, candidate, grid, fullest.held),
        step_time=candidate.time,
        breakdown={},
        model_flops=0.0,
        fullest=fullest,
        time_spread=Spread(0.0, ""),
        memory_spread=Spread(prepared.memory_half_width, prepared.memory_comparable),
    )


def _configuration(prepared: Prepared, candidate: Candidate, grid: Grid, fullest: Memory) -> schema.Configuration:
    request = prepared.request
    options = candidate.options
    layout = candidate.layout
    held = sections(layout, options)
    return schema.Configuration(
        parallelism=_parallelism(grid, candidate, held["parallelism"]),
        batch=schema.Batch(
            global_=layout["batch"],
            micro=layout["micro"],
            accumulation=layout["batch"] // (layout["dp"] * layout["micro"]),
            per_pool=(layout["batch"],),
        ),
        recompute=schema.RecomputeSection(
            policy=options[RECOMPUTE].name,
            layers_fraction=options[RECOMPUTE].layers,
            selective=options[RECOMPUTE].name.startswith("selective"),
        ),
        offload={"optimizer": options[OFFLOAD] > 0} | ({"weights": True} if options[OFFLOAD] > 1 else {}),
        offloaded=_offloaded(options, fullest, grid),
        placement=None if grid.expanded is None else asdict(options[PLACEMENT]),
        overlap=schema.Overlap(**held["overlap"]),
        waived=broken(layout, RuleSetting(request.workload, request.cluster, request.runtime)) or None,
        **{name: held[name] for name in plan_layout.BY_NAME} | _launched(options, grid, request),
    )


def _launched(options: OptionValues, grid: Grid, request: Request) -> dict[str, str | None]:
    """The dispatcher that the runtime launches where none is asked for, and graphs as plans tell them apart."""
    accelerator = request.cluster.accelerator
    sent = dispatchers.launched(options[DISPATCHER], grid, accelerator, request.runtime)
    return {DISPATCHER.name: sent} | ({GRAPHS.name: "modules"} if options[GRAPHS] == IN_PLACE else {})


def _offloaded(options: OptionValues, fullest: Memory, grid: Grid) -> schema.Offloaded | None:
    if not 0.0 < options[OFFLOAD] < 1.0 and not options[OFFLOAD_OVERLAP] and not options[ACTIVATION_OFFLOAD]:
        return None
    share = min(options[OFFLOAD], 1.0)
    parameters = data_parallel.updated_parameters(grid, pipeline.split(grid.shape, grid.layout))
    on_host, on_device = data_parallel.update_rates(grid)
    return schema.Offloaded(
        optimizer_share=float(share),
        optimizer_overlap=options[OFFLOAD_OVERLAP],
        host_bytes_per_s=float(grid.device.host_bandwidth),
        host_update_s=float(share * parameters * on_host),
        device_update_s=float((1.0 - share) * parameters * on_device),
        activations=options[ACTIVATION_OFFLOAD],
        activations_bytes=float(fullest.hosted),
    )


def _pool(prepared: Prepared, nodes: int, options: OptionValues, peak: float) -> PoolInUse:
    """So many nodes of the request's cluster; `peak` is FLOP/s of one accelerator."""
    request = prepared.request
    profiles = {each.sha256: each for each in prepared.profiles.values()}.values()
    return PoolInUse(
        pool=JobPool(
            name=request.cluster.node.id, cluster=request.cluster, price=request.price, sold_as=request.sold_as
        ),
        nodes=nodes,
        peak=peak,
        profile=prepared.profiles.get(options[PRECISION]),
        layer_times=(*(each.description() for each in profiles), *prepared.unused),
        efficiency_notes=prepared.reached.notes,
        attention_kernels=_attention_kernels(prepared) if options[ATTENTION_KERNEL] != ALONE else None,
    )


def _attention_kernels(prepared: Prepared) -> tuple[AttentionKernel, ...]:
    """The kernels of attention that the catalog has figures of on the accelerator."""
    known = prepared.reached.accelerator.attention_kernels
    return tuple(name for name in ATTENTION_KERNELS if name in known)


def _parallelism(grid: Grid, candidate: Candidate, axes: Mapping[str, Any]) -> schema.Parallelism:
    layout = candidate.layout
    shards = int(data_parallel.replicas(grid).dense_shards) if candidate.options[ZERO] else 1
    layers = pipeline.stage_layers(grid.shape, grid.layout)
    pattern = grid.shape.pattern
    return schema.Parallelism(
        **axes,
        dp_shard=shards,
        cp_exchanging=int(attention.exchanging(grid)) if candidate.options[CP_ALGORITHM] == "a2a+p2p" else None,
        stages=tuple(
            schema.Stage(
                pool=0,
                layers=n,
                tp=layout["tp"],
                dp=layout["dp"],
                chunks=pipeline.chunk_sizes(grid.shape, layout["pp"], layout["vpp"])[index :: layout["pp"]]
                if pattern and pattern.work and layout["vpp"] > 1
                else None,
            )
            for index, n in enumerate(layers)
        ),
    )


def fullest_stage(prepared: Prepared, grid: Grid, pp: int) -> FullestStage:
    """The stage of `pp` that holds most."""
    split = pipeline.split(grid.shape, grid.layout)
    found = stage_memory.stages(grid, split)
    index = int(np.argmax([float(m.total) for m in found]))
    stage = int(stage_memory.held_by(grid, split)[index].index)
    there = prepared.request.cluster.accelerator.expanded_memory if grid.expanded is not None else None
    capacity = None if there is None else float(there / expanded_memory.sharers(grid))
    inputs = None
    if grid.options.graphs:
        plain = stage_memory.stages(replace(grid, options=replace(grid.options, graph_inputs=0.0)), split)[index]
        inputs = float(found[index].activations - plain.activations)
    return FullestStage(
        stage=stage,
        pool=0,
        held=found[index],
        expanded_capacity=capacity,
        graph_inputs=inputs,
        host=host_memory(prepared.request.cluster.node, grid, found),
    )


def host_memory(node: Node, grid: Grid, stages: Sequence[Memory]) -> schema.HostMemory | None:
    """What a node has in host memory, as if it held the stage alone that puts most there; None where nothing is."""
    each = [float(stage.hosted + stage.hosted_states) for stage in stages]
    most = int(np.argmax(each))
    if not each[most]:
        return None
    listed = stage_memory.held_by(grid, pipeline.split(grid.shape, grid.layout))
    return schema.HostMemory(
        total_bytes=node.accelerators * each[most],
        capacity_bytes=node.host_memory,
        stage=int(listed[most].index),
        optimizer_bytes=float(stages[most].hosted_states),
        activations_bytes=float(stages[most].hosted),
    )


def by_stage(grid: Grid) -> tuple[Memory, ...]:
    """What an accelerator of every pipeline stage holds; nothing where there is one."""
    if int(grid.layout.pp) < 2:
        return ()
    first, *_, last = stage_memory.stages(grid, pipeline.split(grid.shape, grid.layout))
    return (first, *stage_memory.middle_stages(grid, pipeline.inner_stages(grid.shape, grid.layout)), last)


def front_point(found: schema.Plan) -> schema.FrontPoint:
    """A plan as one point of the front, short."""
    predicted = found.prediction
    return _point(found, found.cluster.accelerators, predicted.step_time_s, found.money, predicted.memory.total_bytes)


def front_point_of(prepared: Prepared, candidate: Candidate) -> schema.FrontPoint:
    """The point of a candidate's plan, of which no document is written."""
    found = _outline(prepared, candidate, single_grid(prepared.figures, candidate.layout, candidate.options))
    run = document.money_section(found)
    return _point(found.configuration, found.accelerators, found.step_time, run, float(found.fullest.held.total))


def _point(
    found: schema.Configuration, accelerators: int, step_time: float, run: schema.Money, held: float
) -> schema.FrontPoint:
    cut = found.parallelism
    policy = found.recompute.policy
    degrees = " ".join(f"{axis.upper()}{n}" for axis in ("tp", "pp", "cp", "ep", "dp") if (n := getattr(cut, axis)) > 1)
    taken = {
        "offload": found.offloaded or any(found.offload.values()),
        f"{found.attention_kernel} attention": found.attention_kernel,
        "graphs": found.graphs,
        f"copies of {cut.zero_scope.partition(':')[2]} nodes": ":" in cut.zero_scope,
    }
    named = "".join(f", {lever}" for lever, used in taken.items() if used)
    return schema.FrontPoint(
        label=f"{degrees or 'one rank'}{'' if policy == 'none' else f', recompute {policy}'}{named}",
        accelerators=accelerators,
        step_time_s=step_time,
        days=run.days,
        usd_total=run.usd_total,
        memory_bytes=held,
    )
