"""The best mixed plan: branch and bound over which pools, how many replicas, and how long a step may take.

For a step time T every kind of bundle delivers a known number of sequences, so that the least nodes for it are an
integer program (:mod:`planner.mixed.assignment`). T is split into intervals: within ``[T1, T2]`` no plan needs fewer
nodes than the linear relaxation does at T2, and none is faster than T1. What gradient reductions cost depends on the
pools in use and on the replicas, so both are branched over too: replicas up to 1, 2, 4, 8 ... with that cost at its
least for the bound and at its most for the plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, count

import numpy as np
from numpy.typing import NDArray

from planner.cost import sharding
from planner.cost.evaluate import jitter
from planner.cost.figures import Array, Grid, Layout, Network, Options, Shape, Stack
from planner.cost.sharding import Held
from planner.mixed import assignment
from planner.mixed.assignment import Columns, Families, Offer
from planner.mixed.pipelines import Kinds

Advance = Callable[[int], None]
GAP = 0.004
"""Relative gap at which the search for the shortest step stops ..."""
GAP_BY_RATE = 0.01
"""... and that for the least ``T sum nodes weight``."""
MOST_INTERVALS = 3000
"""Intervals looked at before the search stops with the gap that is left; a number, so that answers repeat."""
_SHORTEST = 1e-5
"""Of the longest step time: where the first interval starts."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that the search reads."""

    kinds: Kinds
    shape: Shape
    stack: Stack
    networks: tuple[Network, ...]
    """Of every pool."""
    network_of: Callable[[Sequence[int]], Network]
    """What a collective over some pools finds."""
    dp_overlap: bool
    zero: bool
    offer: Offer
    """Pools, the batch, and what a node counts: in the objective, or where that is time, in the budget."""
    by_rate: bool
    """Whether ``T sum nodes weight`` is minimised rather than T."""
    longest: float
    """Step time that is allowed, seconds."""
    most: float
    """Most of ``T sum nodes weight``."""


@dataclass(frozen=True, slots=True)
class Group:
    """Bundles of one kind that work on as many micro-batches each."""

    kind: int
    copies: int
    micro_batches: int
    sequences: int
    """All of the group's bundles together, in a step."""
    time: float
    """Seconds from the start of the step to its end on this group."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """A plan: its groups, nodes in use, step time and objective."""

    groups: tuple[Group, ...]
    nodes: tuple[int, ...]
    time: float
    value: float
    exposed: float
    """Of the slowest group: gradient reductions that nothing hides, seconds."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found, and how sure that is."""

    best: tuple[Mixed, ...]
    """The best plan of every set of pools in use, best first."""
    bound: float
    """No plan of the space has a smaller objective."""
    nodes: int
    """Intervals looked at."""


@dataclass(frozen=True)
class Standing:
    """Kinds that stand on some pools only; what is found of them once is kept."""

    setting: Setting
    pools: tuple[int, ...]
    rows: NDArray[np.intp]
    """Of these kinds in the setting's."""

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds."""
        return self.setting.kinds.taken(self.rows)

    @cached_property
    def families(self) -> Families:
        """The kinds, those together that need the same."""
        return assignment.families(self.kinds.usage, self.kinds.width)

    @cached_property
    def network(self) -> Network:
        """What collectives over all of these pools find."""
        return self.setting.network_of(self.pools)

    @cached_property
    def stretch(self) -> float:
        """Factor of waiting for the slowest rank."""
        return stretch_of(self.setting, self.network)


@dataclass(frozen=True)
class Scene:
    """Some pools, and bounds on how many replicas there are; without them, reductions are free: the loosest bound."""

    on: Standing
    fewest: int = 0
    most: float = np.inf

    @cached_property
    def least(self) -> Array:
        """Exposed reductions with the fewest replicas, seconds, shape (kinds,)."""
        if not self.fewest:
            return np.zeros(len(self.on.kinds))
        several = len(self.on.pools) > 1
        return shortest_exposed(self.on.setting, self.on.kinds, self.on.network, self.fewest, self.most, several)

    @cached_property
    def largest(self) -> Array:
        """With the most, as many of them on every pool."""
        several = len(self.on.pools) > 1
        fewest = self.most / len(self.on.pools) if several else self.most
        return exposed(self.on.setting, self.on.kinds, self.on.network, float(self.most), fewest, several=several)

    def columns(self, step: float, exposed: Array) -> tuple[Columns, NDArray[np.intp]]:
        """What the best kinds deliver within a step time, ``o = micro width M``; and which kinds those are."""
        kinds = self.on.kinds
        steps = micro_batches(self.on.setting, kinds, self.on.stretch, step, exposed)
        return self.on.families.best(kinds.samples * steps)

    def narrowed(self) -> list[Scene]:
        """The same with the replicas bounded by 1, 2, 4, 8 ..."""
        offer, kinds = self.on.setting.offer, self.on.kinds
        have = sum(int(offer.nodes[p]) * offer.per_node[p] for p in self.on.pools)
        smallest = int(np.min(np.sum(kinds.usage, axis=-1) / kinds.width))
        found, fewest = [], 1
        for most in _replica_bounds(have // max(smallest, 1), offer.batch):
            found.append(Scene(self.on, fewest, most))
            fewest = most + 1
        return found


def micro_batches(setting: Setting, kinds: Kinds, stretch: float, step: float, exposed: Array) -> Array:
    """Most micro-batches within a step: ``M = 1 + floor(((T - update - overhead) / jitter - exposed - sum) / max)``."""
    left = (step * (1.0 + 1e-12) - kinds.update - setting.stack.step_overhead) / stretch - exposed - kinds.total
    return np.where(left >= 0, 1.0 + np.floor(np.maximum(left, 0.0) / kinds.slowest), 0.0)


def kind_time(setting: Setting, kinds: Kinds, stretch: float, steps: Array, exposed: Array) -> Array:
    """``T = ((M - 1) max + sum + exposed) jitter + update + overhead``."""
    flow = (steps - 1.0) * kinds.slowest + kinds.total
    return np.asarray((flow + exposed) * stretch + kinds.update + setting.stack.step_overhead)


def across(kinds: Kinds, network: Network, replicas: float, fewest: float) -> Network:
    """The network as replicas on several pools find it: ``inside <= min(replicas of the pool with fewest, n / 2)``.

    Copies on different pools share no domain, so that a reduction always leaves it.
    """
    beside = max(min(np.floor(fewest), np.floor(replicas / 2.0)), 1.0)
    return replace(network, domain=np.minimum(network.domain, kinds.tp * kinds.cp * beside))


def loosest(kinds: Kinds, network: Network, most: float) -> Network:
    """A bound on :func:`across` for up to `most` replicas, however they stand: no reduction is shorter.

    Every hop leaves the domain, at the rate of as many NICs as could ever share one, ``B_nic min(domain, tp cp most /
    2) / min(tp, ep etp)``, and with the shorter latency.
    """
    sharing = np.minimum(network.domain, kinds.tp * kinds.cp * max(most / 2.0, 1.0))
    ports = np.maximum(sharing / np.minimum(kinds.tp, kinds.ep * kinds.etp), 1.0)
    latency = min(network.nic_latency, network.scaleup_latency)
    return replace(network, domain=1, mesh=0.0, nic=network.nic * ports, nic_latency=latency)


def shortest_exposed(setting: Setting, kinds: Kinds, network: Network, fewest: int, most: float,
                     several: bool) -> Array:  # fmt: skip
    """A bound on :func:`exposed` with `fewest` to `most` replicas, however they stand on the pools."""
    if several and fewest > 1:
        network = loosest(kinds, network, most)
    elif several and most > 1:
        return np.zeros(len(kinds))
    return exposed(setting, kinds, network, float(fewest), 1.0, several=several and fewest == 1)


def exposed(setting: Setting, kinds: Kinds, network: Network, replicas: float, fewest: float, *,
            several: bool = False) -> Array:  # fmt: skip
    """Gradient reductions over all replicas that no backward pass hides, as :func:`planner.cost.sharding.exposed`.

    With `several` pools, `fewest` replicas stand on the one with the fewest (:func:`across`).
    """
    if several:
        network = across(kinds, network, replicas, fewest)
    layout = Layout(tp=kinds.tp, pp=1.0, vpp=1.0, cp=kinds.cp, ep=kinds.ep, etp=kinds.etp,
                    dp=replicas, micro=1.0, batch=replicas)  # fmt: skip
    options = Options(
        recompute_layers=0.0,
        recompute_selective=0.0,
        recompute_modules=0.0,
        recompute_offloaded=0.0,
        sequence_parallel=0.0,
        tp_overlap=0.0,
        zero=((kinds.width > 1) | (kinds.cp > 1)) * float(setting.zero),
        zero_in_node=0.0,
        dp_overlap=float(setting.dp_overlap),
        p2p_overlap=0.0,
        pp_inner=0.0,
        offload=0.0,
    )
    # The device plays no part in communication.
    of = Grid(shape=setting.shape, device=None, network=network, stack=setting.stack, layout=layout, options=options)  # type: ignore[arg-type]
    held = Held(kinds.dense, kinds.experts)
    found = sharding.exposed_beside(of, held, kinds.layers, kinds.forward, kinds.backward)
    return np.broadcast_to(np.asarray(found, dtype=float), (len(kinds),))


def stretch_of(setting: Setting, network: Network) -> float:
    """Factor by which waiting for the slowest rank stretches a step on these pools."""
    of = Grid(shape=setting.shape, device=None, network=network, stack=setting.stack, layout=None, options=None)  # type: ignore[arg-type]
    return float(jitter(of))


def scenes(setting: Setting, *, all_pools: bool = False) -> list[Scene]:
    """Every set of pools that some kinds stand on (or only all of them), large sets first."""
    offer = setting.offer
    used = setting.kinds.usage > 0
    found = []
    for size in range(len(offer.nodes), len(offer.nodes) - 1 if all_pools else 0, -1):
        for pools in combinations(range(len(offer.nodes)), size):
            outside = [p for p in range(len(offer.nodes)) if p not in pools]
            rows = np.flatnonzero(~np.any(used[:, outside], axis=-1))
            if len(rows) and np.all(np.any(used[rows][:, list(pools)], axis=0)):
                found.append(Scene(Standing(setting, pools, rows)))
    return found


def _replica_bounds(most: int, batch: int) -> list[int]:
    most = max(min(most, batch), 1)
    found = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192, 1 << 15, 1 << 17, 1 << 20) if n < most]
    return [*found, most]


def search(setting: Setting, known: float = np.inf, *, intervals: int = MOST_INTERVALS, gap: float | None = None,
           advance: Advance | None = None, all_pools: bool = False) -> Result:  # fmt: skip
    """The best plan of every set of pools, and a bound on all plans. `known` is an objective already reached; with
    `all_pools` only plans that use every pool are searched.
    """
    gap = (GAP_BY_RATE if setting.by_rate else GAP) if gap is None else gap
    best: dict[tuple[int, ...], Mixed] = {}
    incumbent, bound_left = known, np.inf
    order = count()
    end = min(setting.longest, _longest(setting))
    heap: list[tuple[float, int, Scene, float, float]] = []
    for scene in scenes(setting, all_pools=all_pools):
        heapq.heappush(heap, (0.0, next(order), scene, _SHORTEST * end, end))
    looked = 0
    while heap:
        bound, _, scene, low, high = heapq.heappop(heap)
        if bound >= incumbent * (1.0 - gap) or looked >= intervals:
            bound_left = min(bound_left, bound, *(entry[0] for entry in heap))
            break
        looked += 1
        if advance is not None:
            advance(1)
        if not setting.by_rate and np.isfinite(incumbent):
            # What cannot be better by more than the gap is done with after one program.
            high = min(high, incumbent)
            if low < (reach := incumbent * (1.0 - gap)) < high and not np.isfinite(_lower(setting, scene, low, reach)):
                bound_left = min(bound_left, reach)
                continue
        if not scene.fewest:
            bound = _lower(setting, scene, low, high)
            if np.isfinite(bound) and bound < incumbent * (1.0 - gap):
                for each in scene.narrowed():
                    heapq.heappush(heap, (bound, next(order), each, low, high))
            elif np.isfinite(bound):
                bound_left = min(bound_left, bound)
            continue
        narrow = high <= low * (1.0 + gap / 2.0)
        bound = _lower(setting, scene, low, high, whole=narrow)
        if not np.isfinite(bound) or bound >= incumbent * (1.0 - gap):
            bound_left = min(bound_left, bound)
            continue
        promising = not setting.by_rate or high <= 2.0 * low
        found = _whole(setting, scene, high) if promising else None
        if found is not None:
            key = tuple(p for p, n in enumerate(found.nodes) if n)
            if key not in best or found.value < best[key].value:
                best[key] = found
            incumbent = min(incumbent, found.value)
        if narrow:
            bound_left = min(bound_left, bound)
            continue
        middle = float(np.sqrt(low * high))
        heapq.heappush(heap, (bound, next(order), scene, low, middle))
        heapq.heappush(heap, (bound if setting.by_rate else middle, next(order), scene, middle, high))
    ranked = sorted(best.values(), key=lambda plan: (plan.value, plan.time, plan.nodes))
    return Result(tuple(ranked), float(min(bound_left, incumbent)), looked)


def _longest(setting: Setting) -> float:
    """Seconds in which the slowest bundle that there is would do all of the work."""
    kinds, batch = setting.kinds, setting.offer.batch
    steps = np.ceil(batch / kinds.samples)
    alone = np.zeros(len(kinds))
    return float(np.max(kind_time(setting, kinds, 2.0, steps, alone))) * 4.0


def _lower(setting: Setting, scene: Scene, low: float, high: float, *, whole: bool = False) -> float:
    """A bound on the objective over an interval of step times; infinite where nothing keeps the limits.

    From the linear relaxation, and where `whole` from the integer program too: in a narrow interval it pays.
    """
    columns, _ = scene.columns(high, scene.least)
    found = assignment.assign(columns, setting.offer, scene.most, whole=False)
    if found is not None and whole:
        found = assignment.assign(columns, setting.offer, scene.most, whole=True, proven=True) or found
    if found is None or not np.isfinite(found.value):
        return np.inf
    weights = [w for p, w in enumerate(setting.offer.weights) if p in scene.on.pools]
    least = max(found.value, min(weights))
    rated = _lower_rate(setting, scene, high) if setting.by_rate or np.isfinite(setting.most) else 0.0
    if max(low * least, rated) > setting.most:
        return np.inf
    return max(low * least, rated) if setting.by_rate else low


def _lower_rate(setting: Setting, scene: Scene, high: float) -> float:
    """A bound on ``T sum nodes weight`` over all steps up to `high`.

    No kind delivers more per second than at `high` and with parts of micro-batches: ``o / T <= micro width (1 / (max
    jitter) - (sum + exposed + (update + overhead) / jitter - max) / (max T))``, which grows with T. With bundles and
    nodes times T as unknowns the program is linear.
    """
    kinds, stretch = scene.on.kinds, scene.on.stretch
    fixed = kinds.total + scene.least + (kinds.update + setting.stack.step_overhead) / stretch
    rate = kinds.samples * (1.0 / (kinds.slowest * stretch) - (fixed - kinds.slowest) / (kinds.slowest * high))
    columns, _ = scene.on.families.best(np.maximum(rate, 0.0))
    offer = setting.offer
    wide = replace(offer, nodes=tuple(n * high for n in offer.nodes))
    found = assignment.assign(columns, wide, scene.most * high if np.isfinite(scene.most) else np.inf, whole=False)
    return found.value if found is not None else np.inf


def _whole(setting: Setting, scene: Scene, high: float) -> Mixed | None:
    """A plan whose step takes at most `high`; None where there is none or it breaks the limits."""
    columns, rows = scene.columns(high, scene.largest)
    found = assignment.assign(columns, setting.offer, scene.most, whole=True, gap=1e-3)
    if found is None or not np.any(found.counts):
        return None
    picked = np.flatnonzero(found.counts)
    plan = settle(setting, scene.on.rows[rows[picked]], found.counts[picked])
    if plan is None or plan.time > setting.longest:
        return None
    rate = sum(n * w for n, w in zip(plan.nodes, setting.offer.weights, strict=True))
    return plan if plan.time * rate <= setting.most else None


def settle(setting: Setting, kinds: NDArray[np.intp], copies: NDArray[np.int64]) -> Mixed | None:
    """So many bundles of some kinds as a plan: the shortest step in which they do the batch, and who does how much.

    A kind for which no time is left takes no part. None, where the bundles cannot do the batch within the limits.
    """
    while len(kinds):
        of = setting.kinds.taken(kinds)
        need = copies @ of.usage
        used = tuple(int(p) for p in np.flatnonzero(need))
        nodes = -(-need // np.asarray(setting.offer.per_node))
        network = setting.network_of(used)
        stretch = stretch_of(setting, network)
        each = [int((copies * of.width)[of.usage[:, p] > 0].sum()) for p in used]
        shown = exposed(setting, of, network, float(copies @ of.width), float(min(each)), several=len(used) > 1)
        step = _shortest(setting, of, copies, stretch, shown)
        steps = micro_batches(setting, of, stretch, step, shown)
        if np.all(steps > 0):
            break
        kinds, copies = kinds[steps > 0], copies[steps > 0]
    else:
        return None
    times = kind_time(setting, of, stretch, steps, shown)
    done = (copies * of.samples * steps).astype(np.int64)
    surplus = int(done.sum()) - setting.offer.batch
    for i in np.argsort(-times, kind="stable"):
        away = min(surplus, int(done[i]) - 1)
        done[i] -= away
        surplus -= away
    groups = tuple(
        Group(int(k), int(c), int(m), int(d), float(t))
        for k, c, m, d, t in zip(kinds, copies, steps, done, times, strict=True)
    )
    slowest = int(np.argmax(times))
    rate = float(nodes @ np.asarray(setting.offer.weights))
    end = float(times[slowest])
    value = end * rate if setting.by_rate else end
    return Mixed(groups, tuple(int(n) for n in nodes), end, value, float(shown[slowest] * stretch))


def _shortest(setting: Setting, of: Kinds, copies: NDArray[np.int64], stretch: float, shown: Array) -> float:
    """The least step time in which so many bundles do the batch, by bisection."""
    low, high = 0.0, 1.0

    def done(step: float) -> float:
        return float(np.sum(copies * of.samples * micro_batches(setting, of, stretch, step, shown)))

    while done(high) < setting.offer.batch:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if done(middle) >= setting.offer.batch else (middle, high)
    return high
