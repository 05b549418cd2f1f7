"""A question about several pools made computable: figures of every pool, kinds of pipelines, what is minimised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from planner.axes import AXES
from planner.axes.options import OptionValues, option_values
from planner.axes.table import CP_ALGORITHM, PRECISION, SEQUENCE_PARALLEL, TP_OVERLAP, ZERO
from planner.axes.values import ALONE, FULL, NO_RECOMPUTE, SELECTIVE, Recompute
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.cost import stage_memory
from planner.cost.figures import Network, Stack
from planner.cost.layer_times import LayerTable
from planner.figures import conformal_intervals, cost_inputs
from planner.figures.efficiency import Efficiency
from planner.figures.profiles.profile import Profile
from planner.mixed import pipelines, stages
from planner.mixed.batch_shares import BundleSetting
from planner.mixed.integer_program import Offer
from planner.mixed.layer_split import LayerSplit
from planner.mixed.pipelines import Chain, PipelineTemplates
from planner.mixed.stages import SHARED, Priced, StageConfigs
from planner.models import blocks, context
from planner.planning.document import Spread
from planner.question import job_pools as pools
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request, goodput_over
from planner.question.search_problem import how_sure, measured_layers, plausible, resolve_efficiency
from planner.schema.hardware import Cluster, Runtime
from planner.schema.workload import PRECISIONS
from planner.space.blocks import precisions
from planner.space.cost_grid import Figures
from planner.space.pins import Bound
from planner.space.rules import RULES, Rule
from planner.space.rules import RuleSetting as RuleSetting

FINE_POOLS, FINE_ACCELERATORS = 2, 128
"""Up to so many pools and accelerators every value below is tried, beyond only the powers of two and of four."""
MICRO = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
COARSE_MICRO = (1, 2, 4, 8, 16, 32, 64)
COARSE_WIDTHS = (1, 4, 16, 64)
ONE_POOL_RULES = (
    "heads_divide",
    "kv_heads_divide",
    "hidden_divides",
    "tp_in_domain",
    "sequence_divides",
    "context_chunk",
    "context_heads",
    "context_kernel",
    "experts_divide",
    "expert_ranks",
    "expert_tensor",
    "micro_batch_tokens",
)
"""Rules that a stage must keep by itself; those on dealing layers and batches evenly do not hold here."""


@dataclass(frozen=True, slots=True)
class PreparedPools:
    """A question with everything that a mixed plan is made from."""

    request: Request
    pools: Pools
    precision: str
    options: OptionValues
    """What all groups have in common, where their degrees use it."""
    memory_spread: Spread
    """Spread of a peak of memory."""
    time_spreads: tuple[Spread, ...]
    """Spread of a step time, on each pool."""
    reached: tuple[Efficiency, ...]
    figures: tuple[Figures, ...]
    tables: tuple[Priced, ...]
    chains: tuple[Chain, ...]
    links: dict[tuple[int, int], Network]
    setting: BundleSetting
    profiles: tuple[Profile | None, ...]
    """Layer times measured elsewhere that hold on each pool."""
    layer_times: tuple[tuple[str, ...], ...]
    """For each pool, which measured layer times are used, which are not and why, in words."""
    older: tuple[Figures, ...]
    """Figures of every pool under the request's older release; none where it has none, or layer times were measured."""
    plausible: tuple[tuple[Figures, ...], ...]
    """Figures of every pool under every runtime that the request's may be."""
    splits: tuple[LayerSplit, ...] = ()
    """The layers of every kind of pipelines where they are given; empty where they are split to be fast."""


def fine(pools: Sequence[JobPool]) -> bool:
    """Whether all values are tried on these pools: on few pools of few accelerators (:data:`FINE_POOLS`)."""
    return len(pools) <= FINE_POOLS and sum(p.cluster.accelerators for p in pools) <= FINE_ACCELERATORS


Measured = tuple[dict[str, Profile], tuple[str, ...]]
"""Layer times that hold on a pool by precision, and which others do not and why."""


@dataclass(frozen=True, slots=True)
class BoundPools:
    """A question's pools as figures."""

    catalog: Catalog
    request: Request
    offered: Pools
    precision: str
    options: OptionValues
    memory_spread: Spread
    reached: tuple[Efficiency, ...]
    figures: tuple[Figures, ...]
    links: dict[tuple[int, int], Network]
    profiled: tuple[Measured, ...]

    @property
    def usable(self) -> tuple[float, ...]:
        """Bytes that a peak may reach on each pool."""
        spread, risked = self.memory_spread.half_width, self.request.oom_risk
        return tuple(stage_memory.usable(p.cluster.accelerator.memory, spread, risked) for p in self.offered.all)


def bind(catalog: Catalog, request: Request, offered: Pools) -> BoundPools:
    """Binds every pool's records to figures.

    Raises:
        WrongQuestion: the pools share no precision, or a pin asks for what plans over several pools have not.
    """
    pools = offered.all
    _refuse_other_pins(request)
    precision = common_precision(request, pools)
    efficiencies, profiled, figures = _priced_by(catalog, request, pools, precision)
    spread = Spread(*conformal_intervals.memory_width(catalog, request.runtime.id))
    options = _options(request)
    between = _between(offered, figures)
    return BoundPools(
        catalog, request, offered, precision, options, spread, efficiencies, figures, between, tuple(profiled)
    )


def prepare(catalog: Catalog, request: Request, offered: Pools, batch: int, *, few: bool | None = None,
            policies: Sequence[Recompute] = (), shared: Sequence[str] = ()) -> PreparedPools:  # fmt: skip
    """Binds every pool's records to figures and lists the kinds of pipelines that fit; `few` is :func:`fine` and
    `policies` all that :func:`able_policies` says unless given. Where some have the degrees `shared` in common for all
    of their stages, only these are listed.

    Raises:
        WrongQuestion: the pools share no precision, or a pin leaves nothing.
        NoAnswer: no pipeline of any kind fits.
    """
    bound = bind(catalog, request, offered)
    pools = offered.all
    policies = policies or able_policies(request)
    layers = int(bound.figures[0].shape.layers)
    uneven = may_be_cut(request)
    few = fine(pools) if few is None else few
    alone = tuple(n for n in (pipelines.STAGES_ALONE if uneven else (1,)) if request.pins.allow("pp", n))
    together = _together(request, few) if uneven else ()
    depth = min(max(*alone, 2 * max(together, default=1), 1), layers)
    tables = tuple(
        stages.priced(f, _ways(request, p, bound.options, few), bound.options, bound.precision, policies, depth, most)
        for f, p, most in zip(bound.figures, pools, bound.usable, strict=True)
    )
    listed = tuple(
        c
        for c in pipelines.chains(len(pools), layers, alone, together)
        if request.pins.allow("pp", sum(n for _, n in c))
    )
    limits = [p.cluster.accelerators for p in pools]
    templates = pipelines.kinds(listed, tables, bound.links, layers, limits, shared)
    if templates is None and shared:
        return prepare(catalog, request, offered, batch, few=few, policies=policies)
    if templates is None:
        raise NoAnswer(_nothing_fits(request, pools))
    return prepared(bound, tables, listed, templates, batch)


def prepared(bound: BoundPools, tables: tuple[Priced, ...], chains: tuple[Chain, ...], kinds: PipelineTemplates,
             batch: int, splits: tuple[LayerSplit, ...] = ()) -> PreparedPools:  # fmt: skip
    """A question's pools with the kinds of pipelines that plans are made of, and the layers of each where they are
    given.
    """
    request = bound.request
    precision = bound.precision
    pools = bound.offered.all
    known = conformal_intervals.read(bound.catalog)
    measured = any(used for used, _ in bound.profiled)
    return PreparedPools(
        request,
        bound.offered,
        precision,
        bound.options,
        bound.memory_spread,
        tuple(Spread(*how_sure(known, request, p.cluster.accelerator, precision)) for p in pools),
        bound.reached,
        bound.figures,
        tables,
        chains,
        bound.links,
        _setting(bound, kinds, batch),
        tuple(used.get(precision) for used, _ in bound.profiled),
        tuple((*(table.description() for table in used.values()), *unused) for used, unused in bound.profiled),
        *(((), ()) if measured else _elsewhere(bound.catalog, request, pools, precision)),
        splits,
    )


def otherwise(catalog: Catalog, prepared: PreparedPools, request: Request, offered: Pools) -> PreparedPools:
    """The kinds of pipelines that are prepared, as another question about the same pools finds them: by its software
    and its links. Stages keep what they were priced at.
    """
    _, _, figures = _priced_by(catalog, request, prepared.pools.all, prepared.precision)
    asked = replace(offered, all=prepared.pools.all)
    setting = replace(prepared.setting, network_of=_network_of(asked, figures))
    return replace(prepared, pools=asked, figures=figures, links=_between(asked, figures), setting=setting)


def _priced_by(
    catalog: Catalog, request: Request, pools: Sequence[JobPool], precision: str
) -> tuple[tuple[Efficiency, ...], list[Measured], tuple[Figures, ...]]:
    """What software reaches on every pool, the layer times that were measured on it, and its figures by both."""
    reached = tuple(resolve_efficiency(catalog, request, p.cluster.accelerator) for p in pools)
    profiled = [measured_layers(catalog, replace(request, cluster=p.cluster), {precision}) for p in pools]
    figures = [
        _figures(request, pool, known, precision, {name: profile.table for name, profile in used.items()})
        for pool, known, (used, _) in zip(pools, reached, profiled, strict=True)
    ]
    return reached, profiled, tuple(figures)


def _between(offered: Pools, figures: Sequence[Figures]) -> dict[tuple[int, int], Network]:
    """The link from each pool to each other."""
    all_pools = offered.all
    return {
        (i, j): pools.link_between(offered, all_pools[i], all_pools[j], figures[i].network, figures[j].network)
        for i, j in product(range(len(all_pools)), repeat=2)
        if i != j
    }


def _network_of(offered: Pools, figures: Sequence[Figures]) -> Callable[[Sequence[int]], Network]:
    """What a collective over some of the pools finds."""
    all_pools = offered.all
    networks = [f.network for f in figures]

    def joint(used: Sequence[int]) -> Network:
        total = float(sum(all_pools[p].cluster.accelerators for p in used))
        return pools.joint(offered, [all_pools[p] for p in used], [networks[p] for p in used], total)

    return joint


def _elsewhere(
    catalog: Catalog, request: Request, pools: Sequence[JobPool], precision: str
) -> tuple[tuple[Figures, ...], tuple[tuple[Figures, ...], ...]]:
    """Every pool's figures under the request's older release, and under every runtime that its own stands for."""

    def under(runtime: Runtime, release: str) -> tuple[Figures, ...]:
        asked = replace(request, runtime=runtime, release=release)
        efficiencies = [resolve_efficiency(catalog, asked, pool.cluster.accelerator) for pool in pools]
        return tuple(
            _figures(asked, pool, reached, precision, {}) for pool, reached in zip(pools, efficiencies, strict=True)
        )

    return under(request.runtime, request.older) if request.older else (), tuple(
        under(*runtime) for runtime in plausible(catalog, request)
    )


def _refuse_other_pins(request: Request) -> None:
    """Raises WrongQuestion where a pin, or a trained tower, asks for what plans over several pools have not."""
    if (tower := request.workload.model.tower) and tower.trained:
        raise WrongQuestion(f"{request.workload.model.id}: a trained tower is priced on one pool: take one")
    for name, axis in AXES.items():
        values = axis.pools
        if values is not None and axis is CP_ALGORITHM:
            values = (*values, context.algorithms(request.workload)[0])
        if values is not None and not any(request.pins.allow(name, value) for value in values):
            texts = ("off" if value is False else str(value) for value in values)
            raise WrongQuestion(
                f"--pin {name}={request.pins.bounds[name]}: plans over several pools have {name} "
                f"{' or '.join(texts)} only; one pool can have it"
            )
    if "dp" in request.pins:
        raise WrongQuestion(
            f"--pin dp={request.pins.bounds['dp']}: over several pools the search chooses the replicas of each pool; "
            "one pool can have it"
        )


def common_precision(request: Request, pools: Sequence[JobPool]) -> str:
    """The first precision that all pools have, or the one that was asked for.

    Raises:
        WrongQuestion: there is none.
    """
    pins = request.pins
    if "precision" not in pins:
        pins = replace(pins, bounds={**pins.bounds, "precision": Bound(PRECISIONS[:2])})
    able = [precisions(p.cluster, request.runtime, pins) for p in pools]
    shared = [name for name in able[0] if all(name in others for others in able)]
    if not shared:
        able_to = ", ".join(f"{p.name} has {'/'.join(a) or 'none of them'}" for p, a in zip(pools, able, strict=True))
        raise WrongQuestion(f"the pools share no precision: {able_to}; leave one out, or ask for another (--precision)")
    return shared[0]


def _figures(
    request: Request, pool: JobPool, efficiency: Efficiency, precision: str, profiles: dict[str, LayerTable]
) -> Figures:
    cluster = pool.cluster
    return Figures(
        cost_inputs.shape(request.workload, None),  # This search deals the layers itself.
        {precision: cost_inputs.device(cluster.accelerator, efficiency.accelerator, precision, request.release)},
        cost_inputs.network(cluster, efficiency.accelerator),
        cost_inputs.stack(request.runtime, efficiency.runtime, request.release, cluster.accelerator),
        cluster.node.accelerators,
        profiles,
    )


def _options(request: Request) -> OptionValues:
    """What all groups have in common where their degrees use it: every switch and ZeRO 1 that the runtime has and the
    pins allow, and the first way to share a sequence.
    """
    on = {axis.name: axis.read(axis.preferred or "on") for axis in SHARED if axis not in (PRECISION, CP_ALGORITHM)}
    able = {axis: value for axis, value in on.items() if has_value(request, axis, value)}
    if not able.get(SEQUENCE_PARALLEL.name):
        able.pop(TP_OVERLAP.name, None)
    return option_values(**able, **{CP_ALGORITHM.name: context.algorithms(request.workload)[0]})


def has_value(request: Request, axis: str, value: object) -> bool:
    """Whether the runtime has a value of an axis, and a pin allows it."""
    known = request.runtime.axes.get(axis, ())
    return (known == "any" or value in known) and request.pins.allow(axis, value)


def able_policies(request: Request) -> tuple[Recompute, ...]:
    """Recomputation policies that the runtime has and the pins allow.

    Raises:
        WrongQuestion: there is none.
    """
    known = request.runtime.axes.get("recompute", ("none",))
    policies = [
        p
        for p in (NO_RECOMPUTE, SELECTIVE, FULL)
        if (known == "any" or p.name in known) and request.pins.allow("recompute", p.name)
    ]
    if not policies:
        raise WrongQuestion("mixed pools recompute none, selective or full; pin one of these")
    return tuple(policies)


def _together(request: Request, few: bool) -> tuple[int, ...]:
    """Stages on each of the pools that a pipeline spans."""
    if "pp" in request.pins:
        return tuple(range(1, 9))
    return pipelines.STAGES_TOGETHER if few else pipelines.STAGES_TOGETHER_COARSE


def may_be_cut(request: Request) -> bool:
    """Whether layers can be dealt to stages one by one: not where kinds of layers alternate or two stacks join."""
    model = request.workload.model
    return blocks.alike(model) and request.runtime.uneven_stages and request.runtime.axes.get("pp", (1,)) != (1,)


def rules_of_stages(request: Request) -> list[Rule]:
    """What a stage must keep by itself, less what the question waives."""
    return [rule for rule in RULES if rule.name in ONE_POOL_RULES and rule.name not in request.waived]


def columns_of(rows: NDArray[np.int64], cluster: Cluster) -> dict[str, NDArray[np.int64]]:
    """Rows of (tp, cp, ep, micro-batch, width) as the columns that rules of the space look at."""
    columns = dict(zip(("tp", "cp", "ep", "micro", "width"), rows.T, strict=True))
    columns |= {"etp": np.ones(len(rows), dtype=np.int64), "dp": columns["width"]}
    columns |= {"pp": columns["etp"], "vpp": columns["etp"], "batch": columns["width"] * columns["micro"]}
    return columns | {"nodes": np.full(len(rows), cluster.count)}


def _ways(request: Request, pool: JobPool, options: OptionValues, few: bool) -> StageConfigs:
    """Every legal way to run a stage on a pool, by the rules of the space that concern one stage."""
    cluster = pool.cluster
    model = request.workload.model
    domain = cluster.node.accelerators

    def allowed(axis: str, values: Sequence[int]) -> list[int]:
        known = request.runtime.axes.get(axis)
        able = [v for v in values if axis == "micro" or known == "any" or (v == 1 if known is None else v in known)]
        return [v for v in able if request.pins.allow(axis, v)]

    tps = allowed("tp", [n for n in range(1, domain + 1) if domain % n == 0])
    long = request.workload.sequence >= 8192 and few
    cps = allowed("cp", [1, 2, 4, 8] if "cp" in request.pins else [1, 2] if long else [1])
    cps = [n for n in cps if request.pins.allow(CP_ALGORITHM.name, options[CP_ALGORITHM] if n > 1 else ALONE)]
    eps = allowed("ep", [2**i for i in range(9)] if model.moe else [1])
    widths = [w for w in (WIDTHS if few or model.moe else COARSE_WIDTHS) if w == 1 or options[ZERO] or model.moe]
    micros = allowed("micro", MICRO if few else COARSE_MICRO)
    rows = np.array(list(product(tps, cps, eps, micros, widths)), dtype=np.int64).reshape(-1, 5)
    columns = columns_of(rows, cluster)
    mask = columns["tp"] * columns["cp"] * columns["width"] <= cluster.accelerators
    for rule in rules_of_stages(request):
        mask &= rule.holds(columns, RuleSetting(request.workload, cluster, request.runtime))
    if model.moe:
        # A bundle is as wide as its experts need, or wider for its optimizer states.
        mask &= columns["ep"] <= columns["tp"] * columns["cp"] * columns["width"]
    if not request.pins.allow("zero", 0):
        mask &= columns["cp"] * columns["width"] > 1
    if not mask.any():
        raise WrongQuestion(f"no stage can run on {pool.name} under these pins: {request.pins}")
    kept = {name: column[mask].astype(float) for name, column in columns.items()}
    return StageConfigs(*(kept[name] for name in ("tp", "cp", "ep", "etp", "micro", "width")))


def _setting(bound: BoundPools, kinds: PipelineTemplates, batch: int) -> BundleSetting:
    request = bound.request
    figures = bound.figures
    pools = bound.offered.all
    longest, most = limits(request, pools, batch)
    return BundleSetting(
        kinds=kinds,
        shape=figures[0].shape,
        device=figures[0].devices[bound.precision],
        stack=joint_stack(figures),
        networks=tuple(f.network for f in figures),
        network_of=_network_of(bound.offered, figures),
        options=bound.options,
        offer=Offer(
            tuple(pool.count for pool in pools),
            tuple(pool.per_node for pool in pools),
            _weights(request, pools),
            batch,
        ),
        by_rate=request.objective != "time",
        longest=longest,
        most=most,
    )


def joint_stack(figures: Sequence[Figures]) -> Stack:
    """Overheads of the runtime on several pools together: the longest waits and the least overlap of any."""
    return replace(figures[0].stack, **{
        name: max(getattr(f.stack, name) for f in figures) for name in ("step_overhead", "jitter")
    }, dp_overlap=min(f.stack.dp_overlap for f in figures))  # fmt: skip


def limits(request: Request, pools: Sequence[JobPool], batch: int) -> tuple[float, float]:
    """Longest step that a deadline allows, and most dollars of a step times 3600 that a budget does.

    With the goodput of all nodes of these pools: that of fewer is hardly less. Where all together get nowhere, the
    limits leave out nothing here, and what is found is judged by its own (:func:`planner.mixed.answer.kept`).
    """
    steps = request.workload.tokens / (batch * request.workload.sequence)
    good = float(goodput_over(request, [(p, float(p.count)) for p in pools]).fraction) or 1.0
    longest = np.inf if request.deadline_s is None else request.deadline_s * good / steps
    most = np.inf if request.max_cost_usd is None else request.max_cost_usd * good / steps * 3600.0
    return longest, most


def _weights(request: Request, pools: Sequence[JobPool]) -> tuple[float, ...]:
    """What a node counts: dollars an hour where money matters, watts for energy, its accelerators where only time
    does.
    """
    if request.objective == "energy":
        powers = [p.cluster.node.max_power for p in pools]
        if any(w is None for w in powers):
            missing = ", ".join(p.name for p, w in zip(pools, powers, strict=True) if w is None)
            raise WrongQuestion(f"--objective energy: the power of {missing} is not known (--catalog)")
        return tuple(float(w or 0.0) for w in powers)
    if request.objective == "time" and request.max_cost_usd is None:
        return tuple(float(p.per_node) for p in pools)
    missing = ", ".join(p.name for p in pools if p.usd_per_hour is None)
    if missing:
        raise WrongQuestion(
            f"{missing}: no {request.price_basis} price in the catalog; give one (--price POOL='$2.10/h') "
            "or another --basis, or ask for neither a budget nor an objective in money"
        )
    return tuple(float(p.usd_per_hour or 0.0) for p in pools)


def _nothing_fits(request: Request, pools: Sequence[JobPool]) -> str:
    held = ", ".join(f"{p.cluster.accelerators:,} x {p.cluster.accelerator.id}" for p in pools)
    return (
        f"No pipeline fits into memory: {request.workload.model.name} on {held}, however its stages are placed. "
        "More nodes, larger ones, or adapters instead of the whole model (--method lora) would help."
    )
