"""Values of the option axes: one of each (a plan's), or those of a grid, dimension by dimension."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

from planner.axes.axis import PlanAxis
from planner.axes.table import OPTION_AXES, SCHEDULE
from planner.axes.values import Recompute, schedule_name
from planner.schema import plan_layout
from planner.schema.plan_layout import ZeroScope, ZeroStage

Value = TypeVar("Value")
Placed = TypeVar("Placed")
Point = tuple[Any, ...]
"""A value of every axis on one dimension."""


class TensorMode(NamedTuple):
    """A point of the dimension `tensor`: how tensor-parallel regions communicate."""

    sequence_parallel: bool
    overlap: bool


class KeptPasses(NamedTuple):
    """A point of the dimension `recompute`: what passes keep and where, and what CUDA graphs launch of them."""

    recompute: Recompute
    offloaded: tuple[str, ...]
    graphs: str


class Sharding(NamedTuple):
    """A point of the dimension `sharding`: what data-parallel ranks share, whether that overlaps compute, the share of
    the optimizer states in host memory, and whether their copies overlap the update.
    """

    zero: ZeroStage
    scope: ZeroScope
    overlap: bool
    offload: float = 0.0
    offload_overlap: bool = False


def _by_dimension() -> dict[str, tuple[PlanAxis[Any], ...]]:
    names = dict.fromkeys(axis.dimension for axis in OPTION_AXES)
    return {name: tuple(axis for axis in OPTION_AXES if axis.dimension == name) for name in names}


DIMENSIONS: Mapping[str, tuple[PlanAxis[Any], ...]] = _by_dimension()
"""Dimensions of a grid of options, and the axes that lie on each."""
_PLACE = {axis: place for place, axis in enumerate(OPTION_AXES)}
_DIMENSION = {axis: place for place, axes in enumerate(DIMENSIONS.values()) for axis in axes}
_NEUTRAL = tuple(axis.neutral for axis in OPTION_AXES)


@dataclass(frozen=True, slots=True)
class OptionValues:
    """A value on every option axis: ``options[ZERO]``."""

    values: Point

    def __getitem__(self, axis: PlanAxis[Value]) -> Value:
        return cast("Value", self.values[_PLACE[axis]])

    def replaced(self, **values: object) -> OptionValues:
        """With other values on some axes."""
        return OptionValues(_filled(self.values, values))


def option_values(**values: object) -> OptionValues:
    """The values given, neutral ones on all other axes."""
    return OptionValues(_filled(_NEUTRAL, values))


def _filled(values: Point, changed: dict[str, Any]) -> Point:
    filled = tuple(changed.pop(axis.name, value) for axis, value in zip(OPTION_AXES, values, strict=True))
    if changed:
        raise TypeError(f"no option axis: {', '.join(changed)}")
    return filled


@dataclass(frozen=True, slots=True)
class OptionGrid:
    """Points on every dimension, in order of preference: the first of equals wins."""

    points: tuple[tuple[Point, ...], ...]

    def __getitem__(self, axis: PlanAxis[Value]) -> tuple[Value, ...]:
        place = DIMENSIONS[axis.dimension].index(axis)
        return tuple(point[place] for point in self.points[_DIMENSION[axis]])

    def on(self, dimension: str) -> tuple[Point, ...]:
        """Points on one dimension."""
        return self.points[tuple(DIMENSIONS).index(dimension)]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many points each dimension has."""
        return tuple(len(listed) for listed in self.points)

    def at(self, index: Sequence[int]) -> OptionValues:
        """The option values at one multi-index."""
        chosen = (listed[place] for listed, place in zip(self.points, index, strict=True))
        values = dict(zip(_DIMENSION, chain.from_iterable(chosen), strict=True))
        return OptionValues(tuple(values[axis] for axis in OPTION_AXES))

    def neutral_on(self, *axes: PlanAxis[Any]) -> OptionGrid:
        """The grid with the neutral point alone on the dimensions of these axes."""
        places = {_DIMENSION[axis] for axis in axes}
        return OptionGrid(tuple(
            _neutral(name) if place in places else listed
            for place, (name, listed) in enumerate(zip(DIMENSIONS, self.points, strict=True))
        ))  # fmt: skip

    def held(self, chosen: OptionValues, held: Collection[PlanAxis[Any]]) -> OptionGrid:
        """The grid without points that one choice's values on some axes would turn into others of the grid."""
        points = []
        for axes, listed in zip(DIMENSIONS.values(), self.points, strict=True):
            changed = {
                point: tuple(chosen[axis] if axis in held else value for axis, value in zip(axes, point, strict=True))
                for point in listed
            }
            points.append(tuple(point for point in listed if changed[point] == point or changed[point] not in listed))
        return OptionGrid(tuple(points))

    def figures(self, place: Callable[[Sequence[float], int], Placed]) -> dict[str, Placed]:
        """Figures of the cost model, each placed with its values along a dimension; those that are 0 all along it are
        left out.
        """
        placed: dict[str, Placed] = {}
        for dimension, (name, listed) in enumerate(zip(DIMENSIONS, self.points, strict=True)):
            placed |= {figure: place(values, dimension) for figure, values in _figures(name, listed).items()}
        return placed


@lru_cache(maxsize=1024)
def _figures(dimension: str, listed: tuple[Point, ...]) -> dict[str, list[float]]:
    """Figures of the cost model for points of a dimension, but for those that are 0 at all of them."""
    by_point = [
        {
            name: figure
            for axis, value in zip(DIMENSIONS[dimension], point, strict=True)
            for name, figure in axis.figures(value).items()
        }
        for point in listed
    ]
    names = dict.fromkeys(chain.from_iterable(by_point))
    values = {name: [figures.get(name, 0.0) for figures in by_point] for name in names}
    return {name: figures for name, figures in values.items() if any(figures)}


def _neutral(dimension: str) -> tuple[Point]:
    return (tuple(axis.neutral for axis in DIMENSIONS[dimension]),)


def option_grid(**points: Iterable[Any]) -> OptionGrid:
    """The points given of each dimension: values of its axis, or tuples of its axes' values; else the neutral one."""
    return OptionGrid(tuple(_listed(name, points.pop(name, None)) for name in DIMENSIONS))


def _listed(name: str, points: Iterable[Any] | None) -> tuple[Point, ...]:
    if points is None:
        return _neutral(name)
    return tuple(points) if len(DIMENSIONS[name]) > 1 else tuple((value,) for value in points)


def sections(layout: Mapping[str, int], options: OptionValues) -> dict[str, Any]:
    """What the sections of a plan's record hold of its axes: ``{"parallelism": {"tp": 8, ...}, "overlap": {...}}``."""
    stated = {axis.name: axis.state(options[axis]) for axis in OPTION_AXES}
    stated[SCHEDULE.name] = schedule_name(options[SCHEDULE], layout["pp"], layout["vpp"])
    return plan_layout.sectioned({**layout, **stated})


def grid_of_one(options: OptionValues) -> OptionGrid:
    """A single plan's options as a grid."""
    return OptionGrid(tuple((tuple(options[axis] for axis in axes),) for axes in DIMENSIONS.values()))
