"""Which figure a dollar goes into: what a tenth more of each brings a step, and what it costs, one figure at a time.

Asked twice: from the base as the catalog has it, up, and at the best point. A figure pays where a token costs less with
it, over all workloads as they weigh, power and facility included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal

from planner.base.errors import ClusterwrightError
from planner.schema.study import Axis, FigurePerDollar, Value
from planner.study.program.evaluation import Evaluator
from planner.study.question import axes

MORE = 0.1
"""Share by which a figure is raised; whole numbers go to the next value of their axis."""
Values = Mapping[str, Value]


def per_dollar(evaluator: Evaluator, best: Values) -> tuple[FigurePerDollar, ...]:
    """Every figure raised by itself, at the base and at the best point, at each the most a dollar first."""
    base = base_values(evaluator)
    from_base = [] if base is None else list(_raised(evaluator, "base", base))
    at_best = list(_raised(evaluator, "best", best))
    return tuple(figure for some in (from_base, at_best) for figure in sorted(some, key=_order))


def base_values(evaluator: Evaluator) -> dict[str, Value] | None:
    """Axis -> the value that the base has by itself; None where it lacks one of the figures."""
    study = evaluator.study
    cluster = axes.built(evaluator.catalog, study.base, {})
    values = {axis.path: axes.current(cluster, axis.path) for axis in study.axes}
    return {path: value for path, value in values.items() if value is not None} if None not in values.values() else None


def _order(figure: FigurePerDollar) -> tuple[float, str]:
    """What lowers the price of a token most for a dollar first; figures without a price last."""
    return (math.inf if figure.per_percent is None else figure.token / figure.usd, figure.axis)


def _raised(evaluator: Evaluator, at: Literal["base", "best"], start: Values) -> Iterator[FigurePerDollar]:
    before = _worth(evaluator, start)
    if before is None:
        return
    for axis in (axis for axis in evaluator.study.axes if axis.ordered):
        value = _more(axis, start[axis.path])
        after = None if value is None else _worth(evaluator, {**start, axis.path: value})
        if value is None or after is None:
            continue
        step = math.log(after[0] / before[0])
        paid = math.log(after[1] / before[1])
        yield FigurePerDollar(
            at=at,
            axis=axis.path,
            start=float(start[axis.path]),
            value=float(value),
            step=after[0] / before[0] - 1.0,
            usd=after[1] - before[1],
            paid=after[1] / before[1] - 1.0,
            token=after[2] / before[2] - 1.0,
            per_percent=step / paid if paid > 0.0 else None,
        )


def _more(axis: Axis, now: Value) -> Value | None:
    """A tenth more, or the next whole number of the axis; None above the last."""
    if isinstance(now, float):
        return now * (1.0 + MORE)
    return next((value for value in axis.values if float(value) > float(now)), None)


def _worth(evaluator: Evaluator, values: Values) -> tuple[float, float, float] | None:
    """Seconds of a step, weighted over the workloads, US dollars of the cluster, to buy or of an hour, and of a million
    tokens.
    """
    try:
        (outcome,) = evaluator.loosened().valued([values], [()])
        step_s = evaluator.step_s(outcome)
        capital = evaluator.clusters.capital(values)
        usd = evaluator.clusters.hourly_usd(values) if capital is None else capital
        token_usd = evaluator.token_usd(outcome, values)
    except ClusterwrightError:
        return None
    return None if step_s is None or not token_usd or usd <= 0.0 else (step_s, usd, token_usd)
