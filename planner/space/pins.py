"""Pins of axes (``tp=2|4|8``, ``pp=4..16``): what a person allows on each, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.axes import AXES, PINNED, PlanAxis
from planner.axes.axis import SWITCH
from planner.axes.table import ACTIVATION_OFFLOAD
from planner.axes.values import OFFLOADED_MODULES
from planner.base.errors import WrongQuestion, meant


@dataclass(frozen=True, slots=True)
class Bound:
    """What a pin allows: listed values, or a range of numbers."""

    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def allows(self, value: object) -> bool:
        """Whether the pin lets this value through."""
        if self.values:
            return _spelling(value) in self.values
        number = float(str(value))
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.values:
            return "|".join(self.values)
        return "..".join("" if end is None else f"{end:g}" for end in (self.low, self.high))


def _spelling(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


@dataclass(frozen=True, slots=True)
class Pins:
    """Axis -> what is allowed on it; an axis without a pin is free."""

    bounds: Mapping[str, Bound] = field(default_factory=dict)

    def allow(self, axis: str, value: object) -> bool:
        """Whether the pin on the axis, if there is one, lets the value through."""
        bound = self.bounds.get(axis)
        return bound is None or bound.allows(value)

    def __contains__(self, axis: str) -> bool:
        return axis in self.bounds

    def __str__(self) -> str:
        return " ".join(f"{axis}={bound}" for axis, bound in self.bounds.items())


def parse_pins(texts: Iterable[str]) -> Pins:
    """Read ``tp=8,pp=4..16`` and ``precision=bf16|fp8``; several texts add up.

    Raises:
        WrongQuestion: an unknown axis (with the nearest), a value that the axis cannot have, an axis given twice.
    """
    bounds: dict[str, Bound] = {}
    for text in texts:
        for part in re.split(r"[,\s]+", text.strip()):
            if not part:
                continue
            axis, equals, value = part.partition("=")
            axis = axis.replace("-", "_")
            if axis not in AXES and not equals and ACTIVATION_OFFLOAD.name in bounds and axis in OFFLOADED_MODULES:
                stated = "+".join((*map(str, bounds[ACTIVATION_OFFLOAD.name].values), axis))
                raise WrongQuestion(f"{part}: modules are joined by +; write {ACTIVATION_OFFLOAD.name}={stated}")
            if axis not in AXES:
                hint = meant(axis, AXES, f"axes are {', '.join(PINNED)}")
                raise WrongQuestion(f"{part}: no axis {axis!r}; {hint}")
            if not equals:
                raise WrongQuestion(f"{part}: write {axis}=VALUE")
            if axis in bounds:
                raise WrongQuestion(f"{part}: {axis} is given twice; values to choose from are {axis}=a|b")
            bounds[axis] = _bound(AXES[axis], value)
    return Pins(bounds)


def _bound(axis: PlanAxis[Any], text: str) -> Bound:
    texts = text.split("|")
    match axis.kind:
        case "switch":
            if wrong := [value for value in texts if value.lower() not in SWITCH]:
                raise WrongQuestion(f"{axis.name}={text}: {wrong[0]!r} is neither on nor off")
            return Bound(tuple(SWITCH[value.lower()] for value in texts))
        case "text":
            return Bound(tuple(axis.spell(axis.read(value)) for value in texts))
        case "choice":
            texts = [value if value in axis.choices else value.lower() for value in texts]
            for value in texts:
                if value not in axis.choices:
                    raise WrongQuestion(f"{axis.name}={text}: {value!r} is not one of {', '.join(axis.choices)}")
            return Bound(tuple(texts))
    low, dots, high = text.partition("..")
    if dots:
        least, most = (_count(axis, text, end) if end else None for end in (low, high))
        if least is not None and most is not None and least > most:
            raise WrongQuestion(f"{axis.name}={text}: the range is empty; write {axis.name}={most}..{least}")
        return Bound((), least, most)
    return Bound(tuple(str(_count(axis, text, value)) for value in texts))


def _count(axis: PlanAxis[Any], text: str, value: str) -> int:
    try:
        return int(axis.read(value))
    except WrongQuestion as error:
        raise WrongQuestion(f"{axis.name}={text}: {error}") from None
