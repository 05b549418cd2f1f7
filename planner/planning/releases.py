"""A plan under other software than the question's: an older release of its runtime, or all that one may stand for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner import cost
from planner.cost import experts
from planner.planning.document import Spread
from planner.question.request import Request
from planner.question.search_problem import Prepared
from planner.schema.plan import OlderRelease
from planner.search.problem import Candidate
from planner.space.axes import ALONE
from planner.space.grid import Figures, dispatched, single_grid

WITHIN = 1.28
"""Standard deviations of a normal variable that 80 % lie within, on either side."""


def older(prepared: Prepared, candidate: Candidate) -> OlderRelease | None:
    """What the request's older release makes of a candidate; None where the question states its release."""
    request = prepared.request
    if prepared.older is None:
        return None
    late = request.runtime.lacks(request.older)
    muon = ("muon",) if request.workload.optimizer.iterations else ()
    lacks = tuple(what for what in (*used(candidate), *muon) if what in late)
    return OlderRelease(
        release=request.older, step_time_s=None if lacks else _time(prepared.older, candidate), lacks=lacks
    )


def time_spread(prepared: Prepared, candidate: Candidate) -> Spread:
    """The interval of a candidate's step time; under a runtime that stands for several, how far apart these predict it
    (standard deviation of the logarithm) adds to the variance.
    """
    half, why = prepared.sure[candidate.options.precision]
    if not prepared.plausible:
        return Spread(half, why)
    return apart(prepared.request, Spread(half, why), [_time(figures, candidate) for figures in prepared.plausible])


def apart(request: Request, known: Spread, times: Sequence[float]) -> Spread:
    """An interval widened by how far apart the runtimes that the request's stands for predict the step, seconds."""
    wider = WITHIN * float(np.std(np.log(times)))
    reason = f"any of {', '.join(request.runtime.between)} ({min(times):.3g} to {max(times):.3g} s)"
    return Spread(math.hypot(known.half_width, wider), f"{known.runs}, {reason}")


def used(candidate: Candidate) -> Iterator[str]:
    """What of a runtime's axes a candidate uses, as `since` names it."""
    layout, options = candidate.layout, candidate.options
    yield from (axis for axis in ("tp", "pp", "vpp", "cp", "ep", "etp") if layout[axis] > 1)
    switches = {
        "sequence_parallel": options.tensor.sequence_parallel,
        "tp_overlap": options.tensor.overlap,
        "dp_overlap": options.sharding.overlap,
        "p2p_overlap": options.p2p_overlap,
        "offload=optimizer": options.offload,
        "offload_overlap": options.offload_overlap,
        "graphs": options.graphs,
        "activation_offload": options.activation_offload,
    }
    yield from (name for name, on in switches.items() if on)
    yield f"recompute={options.recompute.name.partition(':')[0]}"
    yield f"zero={options.sharding.zero}"
    yield f"zero_scope={options.sharding.scope}"
    yield f"precision={options.precision}"
    yield f"rank_order={options.rank_order}"
    yield f"schedule={options.schedule}"


def _time(figures: Figures, candidate: Candidate) -> float:
    """Seconds per step of a candidate by other figures, which say themselves whether copies of tokens are sent once."""
    once = dispatched(candidate.options.dispatcher) == experts.ONCE_PER_DOMAIN
    options = replace(candidate.options, dispatcher=ALONE) if once else candidate.options
    return float(cost.evaluate(single_grid(figures, candidate.layout, options)).time)
