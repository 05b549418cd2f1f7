"""What matters around the best point: elasticities, sweeps of one axis and of two, the next million."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from planner.base.errors import ClusterwrightError
from planner.schema.study import Axis, AxisSensitivity, NextMillion, PairSweep, Swept, Value
from planner.study.program.evaluation import Evaluator, PointOutcome
from planner.study.question.study import LARGER_IS_BETTER

STEP = 0.01
"""Share of an axis, up and down, over which an elasticity is taken."""
SWEPT = 9
"""Most values of an axis in a sweep; of an axis in a sweep of two, fewer."""
SWEPT_TWICE = 5
PAIRS = 6
"""Most sweeps of two axes: those of the axes with the largest elasticities."""
MILLION = 1e6
Values = Mapping[str, Value]


def thinned(values: Sequence[Value], most: int, must: Value) -> list[Value]:
    """At most `most` of the values, evenly spaced, with both ends and the value `must`."""
    if len(values) <= most:
        return list(values)
    places = {round(n * (len(values) - 1) / (most - 1)) for n in range(most)}
    at = values.index(must)
    nearest = min(places - {0, len(values) - 1}, key=lambda place: abs(place - at))
    if at not in places:
        places = places - {nearest} | {at}
    return [values[place] for place in sorted(places)]


def around(evaluator: Evaluator, best: Values) -> tuple[tuple[AxisSensitivity, ...], tuple[PairSweep, ...]]:
    """Sensitivities and sweeps of one and of two axes. Constraints bound no sweep: what breaks them is marked."""
    study = evaluator.study
    single = [(axis, value) for axis in study.axes for value in thinned(axis.values, SWEPT, best[axis.path])]
    swept = _unbounded(evaluator, [{**best, axis.path: value} for axis, value in single])
    every = []
    for axis in study.axes:
        sweep = tuple(
            Swept(value=value, objectives=outcome.objectives, feasible=outcome.feasible)
            for (of, value), outcome in zip(single, swept, strict=True)
            if of is axis
        )
        slopes = elasticities(evaluator, axis, best)
        every.append(
            AxisSensitivity(
                axis=axis.path, elasticity=slopes.get(study.objectives[0]), elasticities=slopes, sweep=sweep
            )
        )
    steepest = sorted(every, key=lambda elasticity: -abs(elasticity.elasticity or 0.0))
    named = {axis.path: axis for axis in study.axes}
    chosen = [named[elasticity.axis] for elasticity in steepest if named[elasticity.axis].ordered]
    pairs = list(itertools.combinations(chosen, 2))[:PAIRS]
    return tuple(every), tuple(_pair(evaluator, a, b, best) for a, b in pairs)


def _unbounded(evaluator: Evaluator, values: Sequence[Values]) -> list[PointOutcome]:
    """Outcomes of points off the lattice, whether they keep the constraints or not."""
    loose = evaluator.loosened()
    kept = evaluator.bounds(values)
    outcomes = loose.valued(values, [()] * len(values))
    return [
        PointOutcome(o.point, o.objectives, o.measures, o.violations | broken, o.candidates, o.why)
        for o, broken in zip(outcomes, kept, strict=True)
    ]


def elasticities(evaluator: Evaluator, axis: Axis, best: Values) -> dict[str, float]:
    """``d ln objective / d ln axis`` at a point, by objective: from 1 % less to 1 % more, the plan searched anew; of
    whole numbers from the value below to the one above.
    """
    if not axis.ordered:
        return {}
    now = best[axis.path]
    if isinstance(now, int):
        at = axis.values.index(now)
        ends = [axis.values[max(at - 1, 0)], axis.values[min(at + 1, len(axis.values) - 1)]]
    else:
        ends = [float(now) * (1 - STEP), float(now) * (1 + STEP)]
    try:
        low, high = evaluator.loosened().valued([{**best, axis.path: end} for end in ends], [(), ()])
    except ClusterwrightError:
        return {}
    run = math.log(float(ends[1]) / float(ends[0])) if ends[0] != ends[1] else 0.0
    if not low.objectives or not high.objectives or run == 0.0:
        return {}
    return {name: math.log(high.objectives[name] / low.objectives[name]) / run for name in low.objectives}


def _pair(evaluator: Evaluator, a: Axis, b: Axis, best: Values) -> PairSweep:
    rows, columns = (thinned(axis.values, SWEPT_TWICE, best[axis.path]) for axis in (a, b))
    objective = evaluator.study.objectives[0]
    points = [{**best, a.path: x, b.path: y} for x in rows for y in columns]
    values = [o.objectives.get(objective) for o in evaluator.loosened().valued(points, [()] * len(points))]
    return PairSweep(
        axes=(a.path, b.path),
        rows=tuple(rows),
        columns=tuple(columns),
        objective=objective,
        values=tuple(tuple(values[n * len(columns) : (n + 1) * len(columns)]) for n in range(len(rows))),
    )


def next_million(evaluator: Evaluator, best: Values) -> tuple[NextMillion, ...]:
    """What a million US dollars more bring on each axis that has a price, the largest gain first.

    A figure that can be anything is raised by what a million buys at the best point's own slope of the capital, and
    the plan is searched anew; of whole numbers the next value's gain is scaled to a million.
    """
    study, clusters = evaluator.study, evaluator.clusters
    if study.costs.basis != "purchase":
        return ()
    start = clusters.capital(best)
    before = evaluator.loosened().valued([best], [()])[0].objectives
    gains = []
    for axis in (axis for axis in study.axes if axis.ordered):
        now = best[axis.path]
        try:
            moved = _bought(evaluator, axis, best, float(start or 0.0))
            if moved is None:
                continue
            value, share, basis = moved
            after = evaluator.loosened().valued([{**best, axis.path: value}], [()])[0].objectives
        except ClusterwrightError:
            continue
        if not after:
            continue
        changes = {name: (after[name] / before[name] - 1.0) * share for name in before}
        shown = float(value) if not isinstance(now, int) else float(now) + (float(value) - float(now)) * share
        gains.append(NextMillion(axis=axis.path, value=shown, changes=changes, basis=basis))
    first = study.objectives[0]
    sign = -1.0 if first in LARGER_IS_BETTER else 1.0
    return tuple(sorted(gains, key=lambda gain: sign * gain.changes[first]))


def _bought(evaluator: Evaluator, axis: Axis, best: Values, start: float) -> tuple[Value, float, str] | None:
    """The value that a million buys, and what share of the step to it a million is; None where it has no price."""
    now = best[axis.path]
    if isinstance(now, int):
        at = axis.values.index(now)
        if at + 1 >= len(axis.values):
            return None
        dearer = float(evaluator.clusters.capital({**best, axis.path: axis.values[at + 1]}) or 0.0) - start
        return (axis.values[at + 1], MILLION / dearer, "next value, in proportion") if dearer > 0 else None
    slope = float(evaluator.clusters.capital({**best, axis.path: float(now) * (1 + STEP)}) or 0.0) - start
    if slope <= 0:
        return None
    return float(now) * (1 + STEP * MILLION / slope), 1.0, "searched again"
