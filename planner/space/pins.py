"""Pins of axes (``tp=2|4|8``, ``pp=4..16``): what a person allows on each, and how it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.base.errors import WrongQuestion, meant
from planner.schema.plan_layout import CONTEXT_ALGORITHMS, SCHEDULES
from planner.schema.precisions import PRECISIONS
from planner.space.axes import (
    ALONE,
    AXES,
    DISPATCHERS,
    GRAPHS,
    OFFLOADED_MODULES,
    PINNED,
    RANK_ORDERS,
    activation_offload,
    offload_name,
    placement,
    recompute,
    states_offloaded,
)


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


_SWITCH = {"1": "on", "true": "on", "yes": "on", "on": "on", "0": "off", "false": "off", "no": "off", "off": "off"}
_SWITCHES = ("sequence_parallel", "tp_overlap", "dp_overlap", "p2p_overlap", "ep_overlap", "offload_overlap")
CHOICES = {
    "precision": PRECISIONS,
    "zero": ("0", "1", "2", "3"),
    "zero_scope": ("full", "node"),
    "rank_order": RANK_ORDERS,
    "cp_algorithm": (ALONE, *CONTEXT_ALGORITHMS),
    "graphs": GRAPHS,
    "dispatcher": DISPATCHERS,
    "schedule": SCHEDULES,
}


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
            if axis not in AXES and not equals and "activation_offload" in bounds and axis in OFFLOADED_MODULES:
                stated = "+".join((*map(str, bounds["activation_offload"].values), axis))
                raise WrongQuestion(f"{part}: modules are joined by +; write activation_offload={stated}")
            if axis not in AXES:
                hint = meant(axis, AXES, f"axes are {', '.join(PINNED)}")
                raise WrongQuestion(f"{part}: no axis {axis!r}; {hint}")
            if not equals:
                raise WrongQuestion(f"{part}: write {axis}=VALUE")
            if axis in bounds:
                raise WrongQuestion(f"{part}: {axis} is given twice; values to choose from are {axis}=a|b")
            bounds[axis] = _bound(axis, value)
    return Pins(bounds)


def _bound(axis: str, text: str) -> Bound:
    values = text.split("|")
    if axis in _SWITCHES:
        wrong = [v for v in values if v.lower() not in _SWITCH]
        if wrong:
            raise WrongQuestion(f"{axis}={text}: {wrong[0]!r} is neither on nor off")
        return Bound(tuple(_SWITCH[v.lower()] for v in values))
    if axis == "recompute":
        return Bound(tuple(recompute(v).name for v in values))
    if axis == "placement":
        return Bound(tuple(placement(v).name for v in values))
    if axis == "offload":
        return Bound(tuple(offload_name(states_offloaded(v)) for v in values))
    if axis == "activation_offload":
        return Bound(tuple("+".join(activation_offload(v)) or ALONE for v in values))
    if axis in CHOICES:
        values = [v if v in CHOICES[axis] else v.lower() for v in values]
        for v in values:
            if v not in CHOICES[axis]:
                raise WrongQuestion(f"{axis}={text}: {v!r} is not one of {', '.join(CHOICES[axis])}")
        return Bound(tuple(values))
    low, dots, high = text.partition("..")
    if dots:
        a, b = (_count(axis, text, x) if x else None for x in (low, high))
        if a is not None and b is not None and a > b:
            raise WrongQuestion(f"{axis}={text}: the range is empty; write {axis}={b}..{a}")
        return Bound((), a, b)
    return Bound(tuple(str(_count(axis, text, v)) for v in values))


def _count(axis: str, text: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < 1:
        raise WrongQuestion(f"{axis}={text}: {value!r} is not a whole number of at least 1")
    return int(value)
