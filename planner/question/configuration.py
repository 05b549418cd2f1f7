"""Pins: what a question holds axes to, and one configuration with a value on every axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.axes import AXES, PlanAxis
from planner.axes.table import BATCH, CP, CP_ALGORITHM, DP_OVERLAP, NODES, TP, TP_OVERLAP
from planner.base.errors import WrongQuestion, meant
from planner.models import context
from planner.question.given import joined, texts
from planner.question.plan_options import PlanOptions
from planner.question.request import Request
from planner.schema.hardware import Runtime
from planner.space import split_schedules
from planner.space.pins import Bound, Pins, parse_pins
from planner.space.rules import RULES


def stated_pins(asked: PlanOptions) -> Pins:
    """What the question holds axes to.

    Raises:
        WrongQuestion: no such axis or value, one that an option of its own says, or the precision twice.
    """
    pins = not_options(parse_pins(texts(asked.pin)))
    precision = joined(asked.precision)
    if precision is None:
        return pins
    if "precision" in pins:
        raise WrongQuestion("--precision and --pin precision=... are duplicates; keep one")
    return Pins({**pins.bounds, **parse_pins([f"precision={precision.replace(',', '|')}"]).bounds})


def not_options(pins: Pins) -> Pins:
    """The pins, unless one is of an axis that has an option of its own.

    Raises:
        WrongQuestion: one is.
    """
    for axis in (NODES, BATCH):
        if axis.name in pins:
            raise WrongQuestion(f"{axis.name}={pins.bounds[axis.name]}: say it with {axis.option}")
    return pins


def one_configuration(wanted: Request, settings: Sequence[str]) -> Pins:
    """Pins for every axis of one configuration; what is not given is neutral.

    Raises:
        WrongQuestion: a setting that cannot be, or several values where one is meant.
    """
    pins = configuration(wanted, not_options(parse_pins(settings)))
    counts = {"--cluster": len(wanted.counts), "--batch": len(wanted.batches)}
    for what, values in {**counts, **{f"{axis}={b}": len(b.values) for axis, b in pins.bounds.items()}}.items():
        if values != 1:
            raise WrongQuestion(f"{what}: estimate takes one layout a call; plan tries several values")
    return pins


def configuration(wanted: Request, given: Pins) -> Pins:
    """Pins for every axis: as given, else neutral (degrees 1, nothing recomputed, overlap where the runtime has it)."""
    bounds = {**wanted.pins.bounds, **given.bounds}
    texts = {axis.name: _unstated(axis, wanted.runtime, bounds) for axis in AXES.values()}
    if _may_exceed_1(CP, bounds):
        texts[CP_ALGORITHM.name] = context.algorithms(wanted.workload)[0]
    waits = wanted.runtime.axes.get(DP_OVERLAP.name, ())
    texts |= split_schedules.neutral(bounds, waits == "any" or False in waits)
    return Pins({**{name: Bound((text,)) for name, text in texts.items() if text is not None}, **bounds})


def switched_on(wanted: Request, pins: Pins, given: Pins) -> Iterator[tuple[str, str, str]]:
    """Overlap of tensor parallelism, which a configuration has unless it says otherwise, if its runtime has it off."""
    name = TP_OVERLAP.name
    default = wanted.runtime.default(name, wanted.release)
    stated = name in given or name in wanted.pins
    if default and default.value is False and not stated and _may_exceed_1(TP, pins.bounds):
        if wanted.runtime.axes.get(name, "") in ("any", (False, True), (True,)):
            what = f"{name}=on where it is faster, which {wanted.runtime.id} has off by default"
            yield what, default.source, name


def _unstated(axis: PlanAxis[Any], runtime: Runtime, bounds: Mapping[str, Bound]) -> str | None:
    """What a configuration has on an axis that it does not state; None where that is left open."""
    if axis.preferred is None:
        return axis.unstated
    known = runtime.axes.get(axis.name, (axis.neutral,))
    has_preferred = known == "any" or axis.read(axis.preferred) in known
    if has_preferred and (not axis.goes_with or any(_may_exceed_1(AXES[name], bounds) for name in axis.goes_with)):
        return axis.preferred
    return str(next(iter(known))) if axis.unstated is None else axis.unstated


def _may_exceed_1(degree: PlanAxis[Any], bounds: Mapping[str, Bound]) -> bool:
    """Whether a configuration leaves a degree open, or states one above 1."""
    if (bound := bounds.get(degree.name)) is not None:
        return bound.values != ("1",)
    return degree.unstated != "1"


def waived_rules(names: Sequence[str]) -> frozenset[str]:
    """The names, if rules have them that may be waived.

    Raises:
        WrongQuestion: there is no such rule, or a plan does not add up without it.
    """
    rules = {rule.name: rule for rule in RULES}
    for name in names:
        if name not in rules:
            hint = meant(name, rules, f"rules are {', '.join(rules)}")
            raise WrongQuestion(f"--waive {name}: no such rule; {hint}")
        if not rules[name].waivable:
            able = ", ".join(rule.name for rule in RULES if rule.waivable)
            raise WrongQuestion(
                f"--waive {name}: a plan does not add up unless {rules[name].says}; ask for one that does "
                f"(--batch, --pin, another count of nodes). {able} can be waived"
            )
    return frozenset(names)
