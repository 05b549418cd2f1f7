"""The best mixed plan: branch and bound over subproblems and over how long a step may take.

For a step time T every kind of bundle delivers a known number of sequences, so that the least nodes for it are an
integer program (:mod:`planner.mixed.integer_program`), the more easily kept the longer T. With reductions at their
least, the shortest T at which it can be kept bounds a subproblem (:mod:`planner.mixed.subproblems`), found by
bisection; the same bundles with the reductions that they really have are a plan. Where the two are apart, the
subproblem is split.
Where money or energy counts (``T sum nodes weight``), T itself is split into intervals too: within ``[T1, T2]`` no plan
needs fewer nodes than at T2, and none is faster than T1.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from planner.base import stopping
from planner.mixed import integer_program
from planner.mixed.batch_shares import BundleSetting, MixedPlan, kind_time, shortest_step
from planner.mixed.integer_program import Assigned
from planner.mixed.subproblems import GAP as GAP_OF_NODES
from planner.mixed.subproblems import Subproblem, list_subproblems

BoundReport = Callable[[float, float], None]
"""Given the best objective so far, and a bound on the others."""
GAP = 0.004
"""Relative gap at which the search for the shortest step stops ..."""
GAP_BY_RATE = 0.01
"""... and that for the least ``T sum nodes weight``."""
MOST_LOOKED = 3000
"""Subproblems and intervals looked at before the search stops with the gap that is left; a number, so that answers
repeat."""
MOST_INTERVALS = 400
"""Most intervals of step times that are searched, where money or energy counts."""
MOST_RELAXED = 24
"""Subproblems whose relaxation is looked at to show that a set of pools is no better than the best known."""
_SHORTEST = 1e-5
"""Share of the longest step time where bisection starts."""


@dataclass(frozen=True, slots=True)
class Result:
    """What was found, and how sure that is."""

    best: tuple[MixedPlan, ...]
    """The best plan of every set of pools in use, best first."""
    bound: float
    """No plan of the space has a smaller objective."""
    looked: int
    """Subproblems and intervals looked at."""


@dataclass
class _State:
    """A search under way: the best plans so far, the objective to beat, and the least bound of what was put aside."""

    setting: BundleSetting
    incumbent: float
    gap: float
    report_bound: BoundReport | None
    best: dict[tuple[int, ...], MixedPlan] = field(default_factory=dict)
    bound: float = np.inf
    looked: int = 0

    @property
    def reach(self) -> float:
        """What is not below this is not worth finding."""
        return self.incumbent * (1.0 - self.gap)

    def aside(self, bound: float) -> None:
        """Nothing of what is put aside is below this."""
        self.bound = min(self.bound, bound)

    def look(self, bound: float) -> None:
        """Count one more subproblem; nothing of what is left is below `bound`."""
        self.looked += 1
        if self.report_bound is not None:
            self.report_bound(self.incumbent, min(bound, self.bound))

    def taken(self, assigned: Assigned | None, rows: NDArray[np.intp]) -> MixedPlan | None:
        """The plan that bundles make; kept if it is the best on its pools. None where it breaks the limits."""
        if assigned is None or not np.isfinite(assigned.value) or not np.any(assigned.counts):
            return None
        picked = np.flatnonzero(assigned.counts)
        plan = shortest_step(self.setting, rows[picked], assigned.counts[picked])
        if plan is None or plan.time > self.setting.longest:
            return None
        rate = sum(n * w for n, w in zip(plan.nodes, self.setting.offer.weights, strict=True))
        if plan.time * rate > self.setting.most:
            return None
        key = tuple(p for p, n in enumerate(plan.nodes) if n)
        if key not in self.best or plan.value < self.best[key].value:
            self.best[key] = plan
        self.incumbent = min(self.incumbent, plan.value)
        return plan


def search(setting: BundleSetting, known: float = np.inf, *, looks: int = MOST_LOOKED, gap: float | None = None,
           report_bound: BoundReport | None = None, sets: list[tuple[int, ...]] | None = None) -> Result:  # fmt: skip
    """The best plan of every set of pools, and a bound on all plans.

    Args:
        setting: The question.
        known: An objective already reached: what is no better is not looked for.
        looks: Most subproblems that are looked at.
        gap: Relative distance from the bound at which the search stops; None: the default of the objective.
        report_bound: Called with each subproblem looked at.
        sets: The sets of pools; None: all.
    """
    gap = (GAP_BY_RATE if setting.by_rate else GAP) if gap is None else gap
    state = _State(setting, known, gap, report_bound)
    subproblems = list_subproblems(setting, sets)
    if subproblems and setting.by_rate:
        _by_intervals(state, subproblems, min(looks, MOST_INTERVALS))
    elif subproblems and np.isfinite(setting.most):
        _within_budget(state, subproblems, looks)
    elif subproblems:
        _quickest(state, subproblems, looks)
    ranked = sorted(state.best.values(), key=lambda plan: (plan.value, plan.time, plan.nodes))
    return Result(tuple(ranked), float(min(state.bound, state.incumbent)), state.looked)


def beyond(setting: BundleSetting, value: float, sets: list[tuple[int, ...]] | None = None) -> bool:
    """Whether nothing on these sets of pools has an objective below `value`, as the linear relaxations show."""
    if not np.isfinite(value):
        return False
    left = list_subproblems(setting, sets)
    if setting.by_rate:
        end = min(setting.longest, _longest(setting))
        return all(_lower_rate(setting, subproblem, end) >= value for subproblem in left)
    step = min(value, setting.longest)
    for _ in range(MOST_RELAXED):
        if not left:
            return True
        subproblem = left.pop()
        if _possible(subproblem.assigned(step, subproblem.least, whole=False)[0]):
            if not (parts := subproblem.split()):
                return False
            left += parts
    return False


# ---- the shortest step -----------------------------------------------------------------------------------------------


def _quickest(state: _State, subproblems: list[Subproblem], looks: int) -> None:
    """Subproblems in order of their bound: each is bounded when it is first looked at, and split the next time."""
    order = count()
    end = min(state.setting.longest, _longest(state.setting))
    heap: list[tuple[float, int, Subproblem, bool]] = [
        (_SHORTEST * end, next(order), one, False) for one in subproblems
    ]
    heapq.heapify(heap)
    while heap:
        bound, _, subproblem, bounded = heapq.heappop(heap)
        if bound >= state.reach or state.looked >= looks or stopping.asked():
            state.aside(min(bound, *(entry[0] for entry in heap)) if heap else bound)
            return
        state.look(bound)
        if bounded:
            parts = subproblem.split()
            if not parts:
                state.aside(bound)
            for part in parts:
                heapq.heappush(heap, (bound, next(order), part, False))
            continue
        bound = _bounded(state, subproblem, bound, min(state.reach, end))
        if bound >= state.reach:
            state.aside(min(bound, state.reach) if np.isfinite(bound) else np.inf)
        else:
            heapq.heappush(heap, (bound, next(order), subproblem, True))


def _bounded(state: _State, subproblem: Subproblem, low: float, high: float) -> float:
    """The shortest step of a subproblem with reductions at their least, not below `low`; at least `high` where it is
    beyond.

    Its bundles, and those found for reductions at their largest, are taken as plans.
    """
    fine = 1.0 + 0.25 * state.gap

    def kept(step: float, *, whole: bool) -> tuple[Assigned | None, NDArray[np.intp]]:
        return subproblem.assigned(step, subproblem.least, whole=whole)

    if not _possible(kept(high, whole=False)[0]):
        return max(high, state.reach)
    first = low * fine
    while low * fine < high:
        middle = first if first else float(np.sqrt(low * high))
        first = 0.0
        low, high = (low, middle) if _possible(kept(middle, whole=False)[0]) else (middle, high)
    # Whole bundles need a little longer than the linear relaxation; how much is looked for where it matters.
    half = 1.0 + 0.5 * state.gap
    top = min(state.reach, state.setting.longest)
    step = low * half
    wider = half
    subproblems, rows = kept(step, whole=True)
    while subproblems is not None and not np.isfinite(subproblems.value):
        if step >= top:
            return max(step, state.reach)
        low = step
        wider = wider**2
        step = min(step * wider, top)
        subproblems, rows = kept(step, whole=True)
    while low * half * fine < step and subproblems is not None:
        middle = float(np.sqrt(low * step))
        closer, those = kept(middle, whole=True)
        if closer is None:
            break
        if np.isfinite(closer.value):
            step, subproblems, rows = middle, closer, those
        else:
            low = middle
    plan = state.taken(subproblems, rows)
    if plan is None or plan.time > low * (1.0 + state.gap):
        step = min(plan.time if plan else np.inf, state.reach, state.setting.longest)
        if np.isfinite(step):
            state.taken(*subproblem.assigned(step, subproblem.largest, whole=True))
    return low


def _possible(assigned: Assigned | None) -> bool:
    """Whether the batch may be done: not shown to be impossible."""
    return assigned is None or bool(np.isfinite(assigned.value))


def _longest(setting: BundleSetting) -> float:
    """Seconds in which the slowest bundle that there is would do all of the work."""
    kinds = setting.kinds
    batch = setting.offer.batch
    steps = np.ceil(batch / kinds.samples)
    alone = np.zeros(len(kinds))
    return float(np.max(kind_time(setting, kinds, 2.0, steps, alone))) * 4.0


# ---- money, energy, budgets ------------------------------------------------------------------------------------------


def _within_budget(state: _State, subproblems: list[Subproblem], looks: int) -> None:
    """The shortest step under a budget: the shortest of all, if that keeps it; else interval by interval."""
    free = _State(replace(state.setting, most=np.inf), state.incumbent, state.gap, state.report_bound)
    _quickest(free, subproblems, looks)
    for plan in sorted(free.best.values(), key=lambda subproblem: subproblem.value):
        state.taken(
            Assigned(np.array([g.copies for g in plan.groups]), np.array(plan.nodes), plan.value),
            np.array([g.kind for g in plan.groups]),
        )
    state.looked = free.looked
    least = min(free.bound, free.incumbent)
    if state.incumbent * (1.0 - state.gap) <= least:
        state.aside(least)
        return
    _by_intervals(state, subproblems, looks)


def _by_intervals(state: _State, subproblems: list[Subproblem], looks: int) -> None:
    """Intervals of step times in order of their bound, halved until narrow; then their subproblem is split."""
    setting = state.setting
    order = count()
    end = min(setting.longest, _longest(setting))
    heap: list[tuple[float, int, Subproblem, float, float]] = []
    for subproblem in subproblems:
        bound = _lower_rate(setting, subproblem, end) if setting.by_rate else 0.0
        if bound >= state.reach:
            state.aside(bound)
            continue
        for part in subproblem.narrowed():
            heapq.heappush(heap, (bound, next(order), part, _SHORTEST * end, end))
    while heap:
        bound, _, subproblem, low, high = heapq.heappop(heap)
        if bound >= state.reach or state.looked >= looks or stopping.asked():
            state.aside(min(bound, *(entry[0] for entry in heap)) if heap else bound)
            return
        state.look(bound)
        narrow = high <= low * (1.0 + state.gap / 2.0)
        bound = max(bound, _lower(setting, subproblem, low, high, whole=narrow))
        if bound >= state.reach:
            state.aside(bound)
            continue
        if high <= 2.0 * low:
            state.taken(*subproblem.assigned(high, subproblem.largest, whole=True))
        if narrow:
            parts = subproblem.split()
            if not parts:
                state.aside(bound)
            for part in parts:
                heapq.heappush(heap, (bound, next(order), part, low, high))
            continue
        middle = float(np.sqrt(low * high))
        heapq.heappush(heap, (bound, next(order), subproblem, low, middle))
        heapq.heappush(heap, (bound if setting.by_rate else max(bound, middle), next(order), subproblem, middle, high))


def _lower(setting: BundleSetting, subproblem: Subproblem, low: float, high: float, *, whole: bool = False) -> float:
    """A bound on the objective over an interval of step times; infinite where nothing keeps the limits.

    From the linear relaxation, and where `whole` from the integer program too: in a narrow interval it pays.
    """
    assigned, _ = subproblem.assigned(high, subproblem.least, whole=False)
    if assigned is not None and np.isfinite(assigned.value) and whole:
        exact, _ = subproblem.assigned(high, subproblem.least, whole=True)
        assigned = exact if exact is not None and exact.proven else assigned
    least = min(w for p, w in enumerate(setting.offer.weights) if p in subproblem.on.pools)
    if assigned is not None and not np.isfinite(assigned.value):
        return np.inf
    least = max(assigned.value * (1.0 - GAP_OF_NODES) if assigned is not None else 0.0, least)
    rated = max(low * least, _lower_rate(setting, subproblem, high))
    if rated > setting.most:
        return np.inf
    return rated if setting.by_rate else low


def _lower_rate(setting: BundleSetting, subproblem: Subproblem, high: float) -> float:
    """A bound on ``T sum nodes weight`` over all steps up to `high`.

    No kind delivers more per second than at `high` and with parts of micro-batches: ``o / T <= micro width (1 / (max
    jitter) - (sum + exposed + (update + overhead) / jitter - max) / (max T))``, which grows with T. With bundles and
    nodes times T as unknowns the program is linear.
    """
    kinds, straggler_factor = subproblem.on.kinds, subproblem.on.straggler_factor
    fixed = kinds.total + subproblem.least + (kinds.update + setting.stack.step_overhead) / straggler_factor
    rate = kinds.samples * (1.0 / (kinds.slowest * straggler_factor) - (fixed - kinds.slowest) / (kinds.slowest * high))
    columns, _ = subproblem.on.families.best(np.maximum(rate, 0.0))
    offer = setting.offer
    wide = replace(offer, nodes=tuple(n * high for n in offer.nodes))
    assigned = integer_program.assign(columns, wide, subproblem.most * high, whole=False)
    return assigned.value if assigned is not None else 0.0
