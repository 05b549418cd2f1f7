"""A plan under other software than the question's: an older release of its runtime, or all that one may stand for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from planner import cost
from planner.axes import AXES, OPTION_AXES, PlanAxis
from planner.axes.options import OptionValues
from planner.axes.table import CP_ALGORITHM, DISPATCHER, EP_OVERLAP, PRECISION, ZERO, sent
from planner.axes.values import ALONE
from planner.cost import experts
from planner.figures.step_time_interval import WITHIN
from planner.models import context
from planner.planning.document import Spread
from planner.question.request import Request
from planner.question.search_problem import Prepared
from planner.schema.hardware import OVERLAPPED_SHARDS
from planner.schema.plan import OlderRelease
from planner.search.problem import Candidate
from planner.space.cost_grid import Figures, single_grid


def older(prepared: Prepared, candidate: Candidate) -> OlderRelease | None:
    """What the request's older release makes of a candidate; None where the question states its release."""
    request = prepared.request
    if prepared.older is None:
        return None
    late = request.runtime.lacks(request.older)
    muon = ("muon",) if request.workload.optimizer.iterations else ()
    plain = context.algorithms(request.workload)[:1]
    lacks = tuple(what for what in (*used(chosen(candidate.layout, candidate.options), plain), *muon) if what in late)
    return OlderRelease(
        release=request.older, step_time_s=None if lacks else _time(prepared.older, candidate), lacks=lacks
    )


def time_spread(prepared: Prepared, candidate: Candidate) -> Spread:
    """The interval of a candidate's step time; under a runtime that stands for several, how far apart these predict it
    (standard deviation of the logarithm) adds to the variance.
    """
    half, why = prepared.sure[candidate.options[PRECISION]]
    if not prepared.plausible:
        return Spread(half, why)
    return apart(prepared.request, Spread(half, why), [_time(figures, candidate) for figures in prepared.plausible])


def apart(request: Request, known: Spread, times: Sequence[float]) -> Spread:
    """An interval widened by how far apart the runtimes that the request's stands for predict the step, seconds."""
    wider = WITHIN * float(np.std(np.log(times)))
    reason = f"any of {', '.join(request.runtime.between)} ({min(times):.3g} to {max(times):.3g} s)"
    return Spread(math.hypot(known.half_width, wider), f"{known.runs}, {reason}")


Chosen = Mapping[PlanAxis[Any], Sequence[Any]]
"""Axis -> the values that parts of a plan have."""


def chosen(layout: Mapping[str, int], options: OptionValues) -> Chosen:
    """What a plan has whose parts are all alike."""
    values = {AXES[name]: [value] for name, value in layout.items()}
    return {**values, **{axis: [options[axis]] for axis in OPTION_AXES}}


def used(chosen: Chosen, plain: Sequence[str] = ()) -> Iterator[str]:
    """What of a runtime's axes a plan uses, as `since` names it: first what other plans leave out, then values of what
    every plan has.

    Args:
        chosen: Values of its parts.
        plain: Ways to share a sequence that every release has which can train the model.
    """
    for axis in sorted(chosen, key=lambda axis: (any(axis.since(axis.neutral)), axis.option)):
        for value in chosen[axis]:
            yield from axis.since(axis.neutral if axis is CP_ALGORITHM and value in plain else value)
    if any(chosen.get(EP_OVERLAP, ())) and max(chosen.get(ZERO, (0,))) >= 2:
        yield OVERLAPPED_SHARDS


def _time(figures: Figures, candidate: Candidate) -> float:
    """Seconds per step of a candidate by other figures."""
    return float(cost.evaluate(single_grid(figures, candidate.layout, as_sent(candidate.options))).time)


def as_sent(options: OptionValues) -> OptionValues:
    """A candidate's options for other figures, which say themselves whether copies of tokens are sent once."""
    return options.replaced(dispatcher=ALONE) if sent(options[DISPATCHER]) == experts.ONCE_PER_DOMAIN else options
