"""The optimum of a large study without a look at every point: whole boxes of points are bounded away.

More peak, memory or bandwidth never makes a plan slower, and never makes it not fit; rates that are not negative never
make it cheaper. So no point of a box (a range of values on such axes, one value on the others) is worth more than the
plans of its fastest corner at the prices, powers and limits of its cheapest one. A box whose bound is no better than
the best point so far holds nothing; any other is halved along the axis that costs most, the best bound first (branch
and bound: Land and Doig, 1960). What is left in the end bounds what any point may still bring.

With several objectives a box has a bound in each, of the same plans, and holds nothing where one point is at least as
good in all of them: what is left is the whole front.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, product
from typing import NamedTuple

from planner.base.errors import ClusterwrightError
from planner.study.program.clusters import Values
from planner.study.program.evaluation import Evaluator, PointOutcome
from planner.study.question.study import LARGER_IS_BETTER, Point, Study

FASTER = (
    *("accelerator.memory", "accelerator.memory_bandwidth", "accelerator.scaleup.bandwidth"),
    *("node.scaleup.bandwidth", "node.nic_bandwidth", "fabric.nic_bandwidth"),
)
"""Figures more of which makes no plan slower, beside the peaks."""
AT_ONCE = 64
"""Boxes that are halved side by side: searches of many machines share their arrays."""
IN_ONE_SPACE, BOX_S = 16, 2e-3
"""About how many points are searched in one space: many corners are known, and they are spread over all spaces. And
CPU seconds of a box, about, beside the searches (`benchmarks/design_points.py`)."""
ROUNDING = 1e-9
"""Share by which floating-point sums may differ."""


Worth = tuple[float, ...]
"""A value in each objective of which less is better."""


class PointBox(NamedTuple):
    """The points between two, place by place; both are in it."""

    low: Point
    high: Point

    @property
    def size(self) -> int:
        """How many points it holds."""
        return math.prod(high - low + 1 for low, high in zip(self.low, self.high, strict=True))


@dataclass(slots=True)
class Proof:
    """What was found, and how much is proven of it."""

    points: dict[Point, PointOutcome] = field(default_factory=dict)
    """What was evaluated and keeps every limit that needs no plan."""
    evaluated: int = 0
    """Points whose plans were searched for."""
    bounded_away: int = 0
    """Points of boxes that hold nothing better than the best."""
    bound: float = math.inf
    """What no point is better than in the first objective; less is better, also where it should be large."""
    front: list[Worth] = field(default_factory=list)
    """What the feasible points are worth that none beats, likewise."""
    left: int = 0
    """Boxes that may hold something better still."""
    monotone: bool = True
    """Whether no box or point was worth more than the box that it is of: else nothing is proven."""

    @property
    def best(self) -> float:
        """The best feasible point's first objective; infinite where there is none."""
        return min((worth[0] for worth in self.front), default=math.inf)

    @property
    def complete(self) -> bool:
        """Whether the best, or the front, is proven to be that of all points."""
        single = all(len(worth) == 1 for worth in self.front)
        closed = single and self.bound >= self.best * (1.0 - math.copysign(ROUNDING, self.best))
        return self.monotone and (not self.left or closed)

    def covers(self, bound: Worth) -> bool:
        """Whether a point was met that is at least as good in everything."""
        return any(_at_least_as_good(worth, bound) for worth in self.front)

    def add(self, worth: Worth) -> None:
        """Notes what a feasible point is worth."""
        if not self.covers(worth):
            self.front = [*(costs for costs in self.front if not _at_least_as_good(worth, costs)), worth]


def axes(study: Study) -> list[int]:
    """Places of the axes along which a box may be wide: their figures speed plans up, and none of their rates falls.

    Of several batches that of most tokens a second is taken: a faster machine may step slower, as may RL on it.
    """
    steps = "step-time" in study.objectives or any(limit.of == "step-time" for limit in study.constraints)
    if any(job.post_training or (steps and ".." in str(job.asked.batch).replace("|", "..")) for job in study.workloads):
        return []
    falling = {_figure(rate.path) for rate in (*study.costs.rates, *study.power) if rate.per_unit < 0}
    return [
        place
        for place, axis in enumerate(study.axes)
        if (axis.path in FASTER or axis.path.startswith("accelerator.peak.")) and axis.ordered
        and _figure(axis.path) not in falling
    ]  # fmt: skip


def _figure(path: str) -> str:
    """What a figure is, whosever it is: a NIC's rate is the node's and the fabric's, equal peaks change together."""
    return "peak" if path.startswith("accelerator.peak.") else path.partition(".")[2]


def able(study: Study) -> bool:
    """Whether boxes say anything of a study: there is an axis along which they are wide."""
    return any(len(study.axes[place].values) > 1 for place in axes(study))


def _at_least_as_good(one: Worth, other: Worth) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def _worse(one: Worth, other: Worth) -> bool:
    """Whether one is larger than the other anywhere, by more than sums are rounded."""
    return any(a > b + ROUNDING * abs(b) for a, b in zip(one, other, strict=True))


def search(
    evaluator: Evaluator, most: int, advance: Callable[[int, str], None] | None = None, best: float = math.inf
) -> Proof:
    """Bounds boxes away until none is left, or `most` were bounded.

    Arguments:
        evaluator: Of a study for which :func:`able` holds.
        most: Boxes that may be bounded.
        advance: Told how many points more are dealt with, and of the best so far.
        best: Objective of a feasible point that is known already, where there is one objective.
    """
    proof = Proof(front=[(best,)] if best < math.inf else [])
    tree = _Tree(evaluator)
    boxes = [*_roots(evaluator.study)]
    bounded = 0
    while boxes and bounded < most:
        bounded += len(boxes)
        tree.add(proof, boxes)
        if advance:
            advance(tree.dealt(proof), "" if proof.best == math.inf else f"best {abs(proof.best):,.4g}")
        boxes = [half for box in tree.taken(proof) for half in tree.halves(box)]
    tree.close(proof, boxes)
    return proof


def corners(study: Study) -> list[Point]:
    """The fastest point of each combination of the values on the other axes."""
    return [box.high for box in _roots(study)]


def _roots(study: Study) -> Iterator[PointBox]:
    """The largest boxes: one for each combination of the values on the other axes."""
    wide = set(axes(study))
    ends = [len(axis.values) - 1 for axis in study.axes]
    for places in product(*([None] if n in wide else range(end + 1) for n, end in enumerate(ends))):
        low = tuple(0 if place is None else place for place in places)
        yield PointBox(low, tuple(end if place is None else place for place, end in zip(places, ends, strict=True)))


class _Tree:
    """Open boxes, the best bound first."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.study = evaluator, evaluator.study
        self.wide = axes(self.study)
        self.signs = [-1.0 if name in LARGER_IS_BETTER else 1.0 for name in self.study.objectives]
        self.none, self.any = (tuple(x for _ in self.signs) for x in (math.inf, -math.inf))
        """What a box is worth in which nothing can be feasible, and one of which nothing is known."""
        self.open: list[tuple[float, int, PointBox, Worth]] = []
        self.numbers = count()
        self.bounds: dict[PointBox, Worth] = {}
        """Bounds of the boxes that are being halved, kept for their halves."""
        self.seen: set[Point] = set()
        """Fastest corners, of which many boxes share one."""
        self.told = 0

    def add(self, proof: Proof, boxes: Sequence[PointBox]) -> None:
        """Bounds boxes, notes their fastest corners as points, and keeps those that may hold something better."""
        bounds = [*self._bounded(proof, boxes)]
        for box, bound in zip(boxes, bounds, strict=True):
            least = self.bounds.get(box, self.any)
            worth = self._feasible(proof, box.high)
            if _worse(least, bound) or _worse(bound, worth):
                proof.monotone = False
            if not proof.covers(bound) and bound != self.none and box.size > 1:
                heapq.heappush(self.open, (self._first(bound), next(self.numbers), box, bound))
        self.bounds.clear()

    def _first(self, bound: Worth) -> float:
        """What boxes are taken by, the least first: their bound, of several objectives the product of all."""
        if len(bound) == 1 or bound == self.any:
            return bound[0]
        return sum(sign * math.log(max(abs(value), 1e-300)) for sign, value in zip(self.signs, bound, strict=True))

    def _feasible(self, proof: Proof, point: Point) -> Worth:
        """What a point that was evaluated is worth; infinite where it is not feasible."""
        outcome = proof.points.get(point)
        return self._worth(outcome.objectives) if outcome and outcome.feasible else self.none

    def _worth(self, objectives: Mapping[str, float]) -> Worth:
        names = self.study.objectives
        return tuple(sign * objectives[name] for sign, name in zip(self.signs, names, strict=True))

    def taken(self, proof: Proof) -> Iterator[PointBox]:
        """The open boxes to halve next."""
        for _ in range(AT_ONCE):
            while self.open:
                _, _, box, bound = heapq.heappop(self.open)
                if not proof.covers(bound):
                    self.bounds |= dict.fromkeys(self.halves(box), bound)
                    yield box
                    break

    def close(self, proof: Proof, boxes: Sequence[PointBox]) -> None:
        """Notes what is proven, with what is still open."""
        left = [bound for _, _, _, bound in self.open if not proof.covers(bound)]
        left += [self.bounds[box] for box in boxes]
        proof.left, proof.bound = len(left), min((bound[0] for bound in left), default=proof.best)
        self.dealt(proof, boxes)

    def dealt(self, proof: Proof, boxes: Sequence[PointBox] = ()) -> int:
        """Counts the points that are dealt with, and returns how many more they are than before."""
        held = sum(box.size for _, _, box, bound in self.open if not proof.covers(bound)) + sum(
            box.size for box in boxes
        )
        proof.bounded_away = max(0, self.study.size - held - proof.evaluated)
        more, self.told = self.study.size - held - self.told, self.study.size - held
        return max(0, more)

    def halves(self, box: PointBox) -> tuple[PointBox, PointBox]:
        """A box in two along the axis that adds most to what its cheapest point costs, of equals the longest."""
        place = max(self.wide, key=lambda n: (self._costs(box, n), box.high[n] - box.low[n]))
        middle = (box.low[place] + box.high[place]) // 2
        return (
            PointBox(box.low, (*box.high[:place], middle, *box.high[place + 1 :])),
            PointBox((*box.low[:place], middle + 1, *box.low[place + 1 :]), box.high),
        )

    def _costs(self, box: PointBox, place: int) -> float:
        """What all of an axis's range adds to the cheapest point's price, power or capital; less than 0: no range."""
        if box.low[place] == box.high[place]:
            return -1.0
        dear = (*box.low[:place], box.high[place], *box.low[place + 1 :])
        try:
            return self._paid(self.study.values(dear)) - self._paid(self.study.values(box.low))
        except ClusterwrightError:
            return 0.0

    def _paid(self, values: Values) -> float:
        if self.study.objectives[0] == "energy":
            return self.evaluator.clusters.power(values)
        paid = self.evaluator.clusters.capital(values)
        return self.evaluator.clusters.hourly_usd(values) if paid is None else paid

    def _bounded(self, proof: Proof, boxes: Sequence[PointBox]) -> Iterator[Worth]:
        """What no point of each box is better than: infinite where none can be feasible."""
        corners = [self.study.values(box.high) for box in boxes]
        fastest = self.evaluator.loosened().valued(corners, [box.high for box in boxes])
        fresh = list(dict.fromkeys(box.high for box in boxes if box.high not in self.seen))
        self.seen.update(fresh)
        proof.evaluated = len(self.seen)
        for point, outcome in zip(fresh, self.evaluator.many(fresh), strict=True):
            if outcome.objectives:
                proof.points[point] = outcome
                if outcome.feasible:
                    proof.add(self._worth(outcome.objectives))
        for box, values, outcome in zip(boxes, corners, fastest, strict=True):
            yield self._bound(box, values, outcome)

    def _bound(self, box: PointBox, fast: Values, fastest: PointOutcome) -> Worth:
        if "cluster" in fastest.violations:
            return self.any if box.size > 1 else self.none  # its fastest corner is no cluster: another point may be
        if not fastest.objectives:
            return self.none
        cheap = self.study.values(box.low)
        known = self.evaluator.worth(fastest.candidates, cheap)
        small = {name: value for name, value in known.items() if name not in LARGER_IS_BETTER}
        large = {name: value for name, value in known.items() if name in LARGER_IS_BETTER}
        broken = (
            *_broken(self.evaluator.limits(cheap, small), "at most"),
            *_broken(self.evaluator.limits(fast, large), "at least"),
        )
        return self.none if any(broken) else self._worth(known)


def _broken(violations: dict[str, float], side: str) -> Iterable[bool]:
    return (value > ROUNDING for name, value in violations.items() if name.endswith(side))
