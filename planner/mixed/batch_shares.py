"""Bundles of pipelines as a plan: what reductions cost them, the shortest step, and who does how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.axes.options import OptionValues
from planner.cost import data_parallel
from planner.cost.data_parallel import ShardedState
from planner.cost.evaluate import jitter
from planner.cost.figures import Array, Device, Grid, Layout, Network, Options, Shape, Stack
from planner.mixed.integer_program import Offer
from planner.mixed.pipelines import PipelineTemplates
from planner.mixed.stages import option_figures


@dataclass(frozen=True, slots=True)
class BundleSetting:
    """Everything that the search reads."""

    kinds: PipelineTemplates
    shape: Shape
    device: Device
    """Figures of one pool: only the size of elements is read, which all pools share."""
    stack: Stack
    networks: tuple[Network, ...]
    """The network of every pool."""
    network_of: Callable[[Sequence[int]], Network]
    """What a collective over some pools finds."""
    options: OptionValues
    """What all groups have in common, where their degrees use it."""
    offer: Offer
    """Pools, the batch, and what a node counts: in the objective, or where that is time, in the budget."""
    by_rate: bool
    """Whether ``T sum nodes weight`` is minimised rather than T."""
    longest: float
    """Step time that is allowed, seconds."""
    most: float
    """Most of ``T sum nodes weight``."""


@dataclass(frozen=True, slots=True)
class BundleGroup:
    """Bundles of one kind that work on as many micro-batches each."""

    kind: int
    copies: int
    micro_batches: int
    sequences: int
    """All of the group's bundles together, in a step."""
    time: float
    """Seconds from the start of the step to its end on this group."""


@dataclass(frozen=True, slots=True)
class MixedPlan:
    """A plan: its groups, nodes in use, step time and objective."""

    groups: tuple[BundleGroup, ...]
    nodes: tuple[int, ...]
    time: float
    value: float
    exposed: float
    """Seconds of gradient reductions that nothing hides, in the slowest group."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Bundles that make a plan together, as their reductions find them."""

    pools: tuple[int, ...]
    """That some bundle stands on."""
    nodes: NDArray[np.int64]
    """Nodes of every pool that are used."""
    replicas: float
    replicas_per_domain: float
    """Replicas that share a domain, at most."""
    spans_pools: bool
    """Whether some layers are held on several pools."""


def together(setting: BundleSetting, templates: PipelineTemplates, copies: NDArray[np.int64]) -> Placement:
    """What bundles that make a plan together have in common.

    Args:
        setting: The question.
        templates: The kinds in use.
        copies: Bundles of each kind, shape (kinds,).
    """
    need = copies @ templates.usage
    used = tuple(int(p) for p in np.flatnonzero(need))
    replica_counts = [int((copies * templates.width)[templates.usage[:, p] > 0].sum()) for p in used]
    replicas = float(copies @ templates.width)
    nodes = -(-need // np.asarray(setting.offer.per_node))
    return Placement(
        used, nodes, replicas, neighbours(replicas, min(replica_counts)), len(np.unique(templates.seam)) > 1
    )


def micro_batches(
    setting: BundleSetting, kinds: PipelineTemplates, straggler_factor: float, step: float, exposed: Array
) -> Array:
    """Most micro-batches within a step: ``M = 1 + floor(((T - update - overhead) / jitter - exposed - sum) / max)``.

    `step` and `exposed` are seconds, `exposed` and the result of shape (kinds,); 0 where not even one ends in time.
    """
    left = (
        (step * (1.0 + 1e-12) - kinds.update - setting.stack.step_overhead) / straggler_factor - exposed - kinds.total
    )
    return np.where(left >= 0, 1.0 + np.floor(np.maximum(left, 0.0) / kinds.slowest), 0.0)


def kind_time(
    setting: BundleSetting, kinds: PipelineTemplates, straggler_factor: float, steps: Array, exposed: Array
) -> Array:
    """``T = ((M - 1) max + sum + exposed) jitter + update + overhead``.

    Seconds, shape (kinds,); `steps` are the micro-batches M of each kind's pipelines, `exposed` the seconds of
    reductions that nothing hides.
    """
    flow = (steps - 1.0) * kinds.slowest + kinds.total
    return np.asarray((flow + exposed) * straggler_factor + kinds.update + setting.stack.step_overhead)


def across(kinds: PipelineTemplates, network: Network, replicas_per_domain: Array | float) -> Network:
    """The network as replicas on several pools find it, of which up to `replicas_per_domain` share a domain.

    Copies on different pools share none, so that a reduction always leaves it.
    """
    return replace(
        network, domain=np.minimum(network.domain, kinds.tp * kinds.cp * np.maximum(replicas_per_domain, 1.0))
    )


def neighbours(replicas: float, fewest: float) -> float:
    """Replicas that share a domain at most: ``max(min(replicas of the pool with fewest, n / 2), 1)``."""
    return float(max(min(np.floor(fewest), np.floor(replicas / 2.0)), 1.0))


def reductions(
    setting: BundleSetting,
    kinds: PipelineTemplates,
    used: Sequence[int],
    replicas: Array | float,
    replicas_per_domain: float,
    *,
    spans_pools: bool,
) -> Array:
    """Seconds of gradient reductions that nothing hides, shape (kinds,), among `replicas` in all on the pools `used`.

    With `spans_pools`, some layers are held on several pools: every reduction passes the links. Without, every pipeline
    has the same layers on the same pool (:attr:`Kinds.seam`), and each pool reduces its own: the slowest counts.
    """
    if spans_pools:
        return exposed(setting, kinds, across(kinds, setting.network_of(used), replicas_per_domain), replicas)
    alone = [exposed(setting, kinds, setting.network_of((pool,)), replicas) for pool in used]
    return np.asarray(np.max(alone, axis=0))


def exposed(setting: BundleSetting, kinds: PipelineTemplates, network: Network, replicas: Array | float) -> Array:
    """Seconds of gradient reductions over all replicas that no backward pass hides, shape (kinds,)."""
    grid, held = replicated(setting, kinds, network, replicas)
    exposed_s = data_parallel.exposed_traffic(grid, held, kinds.layers, kinds.forward, kinds.backward)
    return np.broadcast_to(np.asarray(exposed_s, dtype=float), (len(kinds),))


def replicated(
    setting: BundleSetting, kinds: PipelineTemplates, network: Network, replicas: Array | float
) -> tuple[Grid, ShardedState]:
    """The replicas of each kind as reductions see them, and what a rank of them holds."""
    layout = Layout(tp=kinds.tp, pp=1.0, vpp=1.0, cp=kinds.cp, ep=kinds.ep, etp=kinds.etp,
                    dp=replicas, micro=1.0, batch=replicas)  # fmt: skip
    options = Options(**option_figures(setting.options, tp=kinds.tp, cp=kinds.cp, width=kinds.width.astype(float)))
    grid = Grid(
        shape=setting.shape,
        device=setting.device,
        network=network,
        stack=setting.stack,
        layout=layout,
        options=options,
    )
    return grid, ShardedState(kinds.dense, kinds.experts)


def straggler_factor_on(setting: BundleSetting, network: Network) -> float:
    """Factor by which waiting for the slowest rank stretches a step on these pools."""
    grid = Grid(shape=setting.shape, device=None, network=network, stack=setting.stack, layout=None, options=None)  # type: ignore[arg-type]
    return float(jitter(grid))


def shortest_step(setting: BundleSetting, kinds: NDArray[np.intp], copies: NDArray[np.int64]) -> MixedPlan | None:
    """The plan with the shortest step in which given bundles do the batch, and how many sequences each group does.

    A kind for which no time is left takes no part.

    Args:
        setting: The question.
        kinds: Rows of the templates in use.
        copies: Bundles of each, same shape.

    Returns:
        None where the bundles cannot do the batch within the limits.
    """
    while len(kinds):
        templates = setting.kinds.taken(kinds)
        on = together(setting, templates, copies)
        straggler_factor = straggler_factor_on(setting, setting.network_of(on.pools))
        shown = reductions(
            setting, templates, on.pools, on.replicas, on.replicas_per_domain, spans_pools=on.spans_pools
        )
        step = _shortest(setting, templates, copies, straggler_factor, shown)
        steps = micro_batches(setting, templates, straggler_factor, step, shown)
        if np.all(steps > 0):
            break
        kinds, copies = kinds[steps > 0], copies[steps > 0]
    else:
        return None
    times = kind_time(setting, templates, straggler_factor, steps, shown)
    done = (copies * templates.samples * steps).astype(np.int64)
    surplus = int(done.sum()) - setting.offer.batch
    for i in np.argsort(-times, kind="stable"):
        away = min(surplus, int(done[i]) - 1)
        done[i] -= away
        surplus -= away
    groups = tuple(
        BundleGroup(int(k), int(c), int(m), int(d), float(t))
        for k, c, m, d, t in zip(kinds, copies, steps, done, times, strict=True)
    )
    slowest = int(np.argmax(times))
    rate = float(on.nodes @ np.asarray(setting.offer.weights))
    end = float(times[slowest])
    value = end * rate if setting.by_rate else end
    return MixedPlan(groups, tuple(int(n) for n in on.nodes), end, value, float(shown[slowest] * straggler_factor))


def _shortest(
    setting: BundleSetting,
    templates: PipelineTemplates,
    copies: NDArray[np.int64],
    straggler_factor: float,
    shown: Array,
) -> float:
    """The least step time in which so many bundles do the batch, by bisection."""
    low, high = 0.0, 1.0

    def done(step: float) -> float:
        return float(
            np.sum(copies * templates.samples * micro_batches(setting, templates, straggler_factor, step, shown))
        )

    while done(high) < setting.offer.batch:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if done(middle) >= setting.offer.batch else (middle, high)
    return high
