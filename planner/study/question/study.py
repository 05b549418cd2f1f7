"""What a study asks: a base cluster, the axes along which it may change, workloads, objectives, constraints, costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import ConfigDict

from planner.base.typed import reads
from planner.cost.ownership import Ownership
from planner.question.plan_options import PlanOptions
from planner.question.rl_options import RLTraining
from planner.question.values import TABLE, FabricId, NodeId, RegionId, whole
from planner.rl.learned import SiteSteps
from planner.schema.study import UNITS, Axis, Rate, StudyQuestion, Value

Objective = Literal["step-time", "cost", "energy", "performance-per-dollar"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
LARGER_IS_BETTER = ("performance-per-dollar",)
MEASURES = tuple(UNITS)
"""What may be limited beside the axes themselves."""
Basis = Literal["purchase", "on-demand", "spot", "reserved-1y", "reserved-3y"]


@dataclass(frozen=True, kw_only=True)
class StudyWorkload:
    """A model that the cluster is to train, and what share of the work it is."""

    model: str
    weight: float
    asked: PlanOptions
    post_training: RLTraining | None = None
    """What a step of it does, where it is one."""
    learned: SiteSteps | None = None
    """What steps of the user's own site say of it."""


@dataclass(frozen=True, kw_only=True)
class StudyConstraint:
    """A limit on a measure or on an axis, SI."""

    of: str
    at_most: float = math.inf
    at_least: float = -math.inf


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a cluster costs: a price of the catalog, or a stated function, and what owning adds."""

    basis: Basis
    accelerator_usd: float | None = None
    """US dollars of one accelerator before the rates; None: the catalog's price of a node, and rates count from the
    base on.
    """
    node_usd: float = 0.0
    rates: tuple[Rate, ...] = ()
    ownership: Ownership = field(default_factory=Ownership)


@dataclass(frozen=True, kw_only=True)
class Base:
    """The cluster that the axes change."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    node: NodeId
    count: Annotated[int | None, reads(partial(whole, 1_000_000))] = None
    """Nodes ..."""
    accelerators: Annotated[int | None, reads(partial(whole, 10_000_000))] = None
    """... or accelerators: as many nodes as hold them."""
    fabric: FabricId | None = None
    region: RegionId | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """The whole question."""

    name: str
    base: Base
    axes: tuple[Axis, ...]
    workloads: tuple[StudyWorkload, ...]
    objectives: tuple[Objective, ...]
    constraints: tuple[StudyConstraint, ...] = ()
    costs: Costs
    power: tuple[Rate, ...] = ()
    """Watts that more of a figure adds to a node's, from the base on."""
    trials: int
    inputs: dict[str, str] = field(default_factory=dict)
    """Input -> sha256 prefix."""
    stated: StudyQuestion | None = None
    """It in the words of its file."""

    @property
    def size(self) -> int:
        """How many points the axes span."""
        return math.prod(len(axis.values) for axis in self.axes)

    def point(self, index: int) -> Point:
        """The place on every axis of point `index`, from 0; the last axis changes fastest."""
        places: list[int] = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            places.append(place)
        return tuple(reversed(places))

    def number(self, point: Point) -> int:
        """The index of a point: :meth:`point` turned round."""
        ordinal = 0
        for axis, place in zip(self.axes, point, strict=True):
            ordinal = ordinal * len(axis.values) + place
        return ordinal

    def place(self, values: Mapping[str, Value]) -> Point:
        """The point with these values; raises ValueError where the axes have none such."""
        if [*values] != [axis.path for axis in self.axes]:
            raise ValueError(f"its axes are {', '.join(values)}")
        return tuple(axis.values.index(values[axis.path]) for axis in self.axes)

    def values(self, point: Point) -> dict[str, Value]:
        """Axis -> value at a point."""
        return {axis.path: axis.values[place] for axis, place in zip(self.axes, point, strict=True)}


Point = tuple[int, ...]
"""A place on every axis."""
