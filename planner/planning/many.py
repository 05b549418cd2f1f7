"""Many configurations on one pool as given, priced together: the figures of each, or why it has none.

Those with the same values on all option axes share a class of the space, and those of one precision and schedule are
columns of one grid of the cost model. A configuration that leaves switches open stands for several candidates, of
which the fastest is taken, as :func:`planner.planning.estimate` takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner import cost
from planner.axes import LAYOUT_AXES, OPTION_AXES
from planner.axes.options import OptionValues
from planner.axes.table import PRECISION, SCHEDULE
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import goodput, money, stage_memory
from planner.figures.efficiency import Efficiency
from planner.planning import infeasible, releases
from planner.planning.document import Spread
from planner.question.configuration import one_configuration
from planner.question.request import Request, goodput_of
from planner.question.search_problem import Prepared, prepare, refuse_unlisted
from planner.schema.listings import EvaluatedConfiguration
from planner.search.problem import Candidate
from planner.space import infeasible as why_none
from planner.space.blocks import Block, blocks
from planner.space.cost_grid import Figures, column_grid
from planner.space.enumerate_layouts import Question, layouts
from planner.space.pins import Bound, Pins
from planner.space.rules import RuleSetting

AT_ONCE = 1 << 13
"""Candidates that are priced at a time: their arrays stay small."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A candidate that a configuration stands for."""

    place: int
    """Of the configuration, among all."""
    layout: dict[str, int]
    options: OptionValues


def evaluate(catalog: Catalog, request: Request, settings: Sequence[Sequence[str]]) -> list[EvaluatedConfiguration]:
    """The figures of each configuration, in their order; the reason in place of them where it is not legal.

    Args:
        catalog: The catalog of the question.
        request: All that the configurations share, one count of nodes and one batch.
        settings: The words of each configuration, as ``estimate`` takes them.

    Raises:
        NoAnswer: so many accelerators fail more often than the job restarts.
    """
    pinned: dict[int, Pins] = {}
    reasons: dict[int, str] = {}
    for place, words in enumerate(settings):
        try:
            pinned[place] = one_configuration(request, words)
        except WrongQuestion as error:
            reasons[place] = str(error)

    choices = _choices(request, pinned, reasons)
    alike: dict[tuple[str, str], list[_Choice]] = {}
    for choice in choices:
        alike.setdefault((choice.options[PRECISION], choice.options[SCHEDULE]), []).append(choice)

    asked = [" ".join(words) for words in settings]
    evaluated = {n: EvaluatedConfiguration(configuration=asked[n], reason=why) for n, why in reasons.items()}
    prepared_in: dict[str, Prepared] = {}
    for (precision, _), some in alike.items():
        if precision not in prepared_in:
            prepared_in[precision] = _prepared(catalog, request, some[0])
        prepared = prepared_in[precision]
        best = _fastest(prepared, _listed(prepared.reached, request, pinned, some, evaluated, asked))
        evaluated |= _figures(prepared, best, asked)
    return [evaluated[place] for place in range(len(settings))]


# ---- which candidates ------------------------------------------------------------------------------------------------


def _choices(request: Request, pinned: Mapping[int, Pins], reasons: dict[int, str]) -> list[_Choice]:
    """The candidates of all configurations, each one's in the order in which ties are broken; why one has none is added
    to `reasons`.
    """
    setting = RuleSetting(request.workload, request.cluster, request.runtime)
    question = Question(setting, request.counts, request.batches, Pins(), request.waived)
    alike: dict[str, tuple[Pins, dict[int, dict[str, int]]]] = {}
    for place, layout in _legal(question, pinned).items():
        if layout is None:
            reasons[place] = why_none.no_layout(replace(question, pins=pinned[place]))
            continue
        own = Pins({axis.name: b for axis in OPTION_AXES if (b := pinned[place].bounds.get(axis.name)) is not None})
        alike.setdefault(str(own), (own, {}))[1][place] = layout

    choices: list[_Choice] = []
    for pins, by_place in alike.values():
        places: dict[tuple[int, ...], list[int]] = {}
        for place, layout in by_place.items():
            places.setdefault(tuple(layout.values()), []).append(place)
        rows = dict(zip((axis.name for axis in LAYOUT_AXES), np.array([*places]).T, strict=True))
        spanned = blocks(rows, request.workload, request.cluster, request.runtime, pins)
        some = [choice for block in spanned for choice in _of_block(block, places)]
        for place in by_place.keys() - {choice.place for choice in some}:
            reasons[place] = why_none.no_options(replace(question, pins=pinned[place]))
        choices += some
    return choices


def _legal(question: Question, pinned: Mapping[int, Pins]) -> dict[int, dict[str, int] | None]:
    """The layout of each configuration; None where none is legal.

    All rows with any of the values that some configuration has on an axis are made at once.
    """
    named = [axis.name for axis in LAYOUT_AXES if all(axis.name in pins for pins in pinned.values())]
    values = {axis: dict.fromkeys(pins.bounds[axis].values[0] for pins in pinned.values()) for axis in named}
    rows = layouts(replace(question, pins=Pins({axis: Bound(tuple(some)) for axis, some in values.items()})))
    columns = {axis: column.tolist() for axis, column in rows.items()}
    known: dict[tuple[str, ...], list[int]] = {}
    for row, key in enumerate(zip(*(columns[axis] for axis in named), strict=True)):
        known.setdefault(tuple(map(str, key)), []).append(row)

    layout_of: dict[int, dict[str, int] | None] = {}
    for place, pins in pinned.items():
        able = known.get(tuple(pins.bounds[axis].values[0] for axis in named), ())
        legal = [row for row in able if all(pins.allow(axis, columns[axis][row]) for axis in columns)]
        assert len(legal) <= 1, "a configuration with several layouts"
        layout_of[place] = {axis: columns[axis][legal[0]] for axis in columns} if legal else None
    return layout_of


def _of_block(block: Block, places: Mapping[tuple[int, ...], list[int]]) -> Iterator[_Choice]:
    """A block's candidates as those of the configurations that have its layouts."""
    options = [block.axes.at(index) for index in np.ndindex(*block.axes.shape)]
    for row in range(block.height):
        layout = {axis: int(column[row]) for axis, column in block.rows.items()}
        for place in places[tuple(layout.values())]:
            yield from (_Choice(place, layout, values) for values in options)


def _prepared(catalog: Catalog, request: Request, choice: _Choice) -> Prepared:
    """The question with the figures of a candidate's precision."""
    setting = RuleSetting(request.workload, request.cluster, request.runtime)
    pins = Pins({"precision": Bound((choice.options[PRECISION],))})
    rows = {axis: np.array([value]) for axis, value in choice.layout.items()}
    spanned = tuple(blocks(rows, setting.workload, setting.cluster, setting.runtime, pins))
    return prepare(catalog, replace(request, pins=Pins()), spanned)


def _listed(
    fitted: Efficiency,
    request: Request,
    pinned: Mapping[int, Pins],
    choices: Sequence[_Choice],
    evaluated: dict[int, EvaluatedConfiguration],
    asked: Sequence[str],
) -> list[_Choice]:
    """Candidates whose values the accelerator's efficiencies have figures of; of others the reason is added."""
    for place in dict.fromkeys(choice.place for choice in choices):
        try:
            refuse_unlisted(replace(request, pins=pinned[place]), fitted)
        except WrongQuestion as error:
            evaluated[place] = EvaluatedConfiguration(configuration=asked[place], reason=str(error))
    return [choice for choice in choices if choice.place not in evaluated]


# ---- their figures ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Priced:
    """A candidate with what the cost model says of it."""

    choice: _Choice
    time: float
    memory: float
    flops: float
    peak: float
    """FLOP/s of one accelerator."""


def _fastest(prepared: Prepared, choices: Sequence[_Choice]) -> list[_Priced]:
    """The fastest candidate of each configuration, of equals the first."""
    best: dict[int, _Priced] = {}
    for start in range(0, len(choices), AT_ONCE):
        some = choices[start : start + AT_ONCE]
        grid = _grid(prepared.figures, some)
        step = cost.evaluate(grid)
        columns = (
            np.broadcast_to(figure, len(some)).tolist()
            for figure in (step.time, step.memory, cost.model_flops(grid), grid.device.peak)
        )
        for priced in map(_Priced, some, *columns):
            place = priced.choice.place
            if place not in best or priced.time < best[place].time:
                best[place] = priced
    return [*best.values()]


def _grid(figures: Figures, choices: Sequence[_Choice]) -> cost.Grid:
    columns = {axis: np.array([choice.layout[axis] for choice in choices]) for axis in choices[0].layout}
    return column_grid(figures, columns, [choice.options for choice in choices])


def _figures(prepared: Prepared, best: Sequence[_Priced], asked: Sequence[str]) -> dict[int, EvaluatedConfiguration]:
    """What ``estimate`` says of each in figures."""
    request = prepared.request
    capacity = request.cluster.accelerator.memory
    evaluated: dict[int, EvaluatedConfiguration] = {}
    for priced, half_width in zip(best, _half_widths(prepared, best), strict=True):
        choice, layout = priced.choice, priced.choice.layout
        name = asked[choice.place]
        if not math.isfinite(priced.memory):
            placed = Candidate(0, 0, priced.time, priced.time, priced.memory, layout, choice.options)
            reason = infeasible.overflowing(prepared, placed)
            evaluated[choice.place] = EvaluatedConfiguration(configuration=name, reason=reason)
            continue
        nodes = layout["nodes"]
        accelerators = nodes * request.cluster.node.accelerators
        tokens = layout["batch"] * request.workload.sequence
        steps = money.steps(request.workload.tokens, layout["batch"], request.workload.sequence)
        seconds = float(goodput.wall_time(priced.time, steps, goodput_of(request, float(nodes)).fraction))
        evaluated[choice.place] = EvaluatedConfiguration(
            configuration=name,
            fits=priced.memory <= prepared.usable,
            step_time_s=priced.time,
            step_time_low_s=priced.time * math.exp(-half_width),
            step_time_high_s=priced.time * math.exp(half_width),
            tokens_per_s=tokens / priced.time,
            mfu=cost.utilisation(priced.flops, priced.time, priced.peak * accelerators),
            memory_bytes=priced.memory,
            memory_capacity_bytes=capacity,
            oom_chance=stage_memory.chance(priced.memory, capacity, prepared.memory_half_width),
            days=seconds / money.DAY_S,
            usd=None if request.price is None else float(money.rent(seconds, nodes, request.price.usd)),
        )
    return evaluated


def _half_widths(prepared: Prepared, best: Sequence[_Priced]) -> list[float]:
    """Half-widths of the 80 % intervals of the step times, log scale."""
    if not best:
        return []
    half, why = prepared.sure[best[0].choice.options[PRECISION]]
    if not prepared.plausible:
        return [half] * len(best)
    choices = [replace(priced.choice, options=releases.as_sent(priced.choice.options)) for priced in best]
    times = [np.broadcast_to(cost.evaluate(_grid(figures, choices)).time, len(best)) for figures in prepared.plausible]
    return [releases.apart(prepared.request, Spread(half, why), seconds).half_width for seconds in np.transpose(times)]
