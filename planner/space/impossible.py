"""Why a question leaves no layout: the pin or the rule at fault, and what would be possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.space.axes import LAYOUT_AXES, Bound, Pins
from planner.space.layouts import Question, layouts
from planner.space.rules import RULES


def no_layout(question: Question) -> str:
    """One message for a question whose rows are empty: each pin is lifted in turn, then each rule."""
    pins = question.pins.bounds
    for axis in [axis for axis in LAYOUT_AXES if axis in pins]:
        freed = Pins({name: bound for name, bound in pins.items() if name != axis})
        possible = _values(replace(question, pins=freed), axis)
        if possible:
            why = _broken_by(question, axis)
            return f"{axis}={pins[axis]}: {why}{axis} can be {_listed(possible)} here."
    model, cluster = question.setting.workload.model, question.setting.cluster
    for rule in question.rules():
        if len(layouts(replace(question, waived=question.waived | {rule.name}))["tp"]):
            return (
                f"no layout of {model.id} on {cluster.count} x {cluster.node.id}"
                f"{f' with {question.pins}' if pins else ''} keeps the rule {rule.name}: {rule.says}. "
                f"{_hint(question, rule.name)}"
            )
    together = f"the pins {question.pins} exclude one another" if pins else "no layout is legal"
    return (
        f"{together} for {model.id} on {cluster.count} x {cluster.node.id} with a batch of {_listed(question.batches)}."
    )


def no_options(question: Question) -> str:
    """One message for a question whose pins leave an option axis without a value."""
    pins = {name: str(bound) for name, bound in question.pins.bounds.items() if name not in LAYOUT_AXES}
    runtime, accelerator = question.setting.runtime, question.setting.cluster.accelerator
    told = " ".join(f"{axis}={text}" for axis, text in pins.items()) or "this"
    axis = next(iter(pins), "precision")
    known = runtime.axes.get(axis, ("only its neutral value",))
    values = "anything" if known == "any" else ", ".join(_word(v) for v in known)
    return f"{told}: {runtime.id} on {accelerator.id} cannot do that here; {runtime.id} takes {axis} = {values}."


def _word(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _values(question: Question, axis: str) -> list[int]:
    return [int(v) for v in np.unique(layouts(question)[axis])]


def _broken_by(question: Question, axis: str) -> str:
    """The first rule that, waived, lets the pin stand."""
    for rule in RULES:
        if len(layouts(replace(question, waived=question.waived | {rule.name}))["tp"]):
            return f"{_hint(question, rule.name) or rule.says + '. '}"
    bound = question.pins.bounds[axis]
    return f"{_size(question, bound)}" if axis != "batch" else ""


def _size(question: Question, bound: Bound) -> str:
    ranks = question.setting.cluster.accelerators
    return f"{ranks:,} accelerators don't split that way. " if not bound.allows(1) else ""


def _hint(question: Question, rule: str) -> str:
    """The numbers at fault, in words."""
    w, cluster = question.setting.workload, question.setting.cluster
    model = w.model
    batches = _listed(question.batches)
    return {
        "heads_divide": f"{model.heads} attention heads don't divide by it. ",
        "kv_heads_divide": f"{model.kv_heads} key/value heads and tp don't divide one another. ",
        "hidden_divides": f"{model.hidden:,} hidden doesn't divide by it. ",
        "tp_in_domain": f"{cluster.node.id} joins {cluster.node.accelerators} accelerators (or --waive tp_in_domain). ",
        "batch_divides": f"A batch of {batches} sequences doesn't divide by dp x micro-batch; try --batch "
        f"{_rounded(question)}. ",
        "layers_deal": f"{model.layers} layers don't deal evenly. ",
        "layer_for_every_chunk": f"there are {model.layers} layers. ",
        "sequence_divides": f"a sequence of {w.sequence:,} doesn't divide by 2 cp and tp. ",
        "experts_divide": f"{model.moe.experts} experts don't divide by it. "
        if model.moe
        else "a dense model has no experts. ",
        "interleave_fill": "interleaving needs micro-batches in multiples of pp. ",
    }.get(rule, "")


def _rounded(question: Question) -> int:
    """The batch in question, up to the next multiple of the accelerators."""
    ranks = question.setting.cluster.accelerators
    return -(-question.batches[0] // ranks) * ranks


def _listed(values: list[int] | tuple[int, ...]) -> str:
    shown = [f"{v:,}" for v in values[:12]]
    return ", ".join(shown) + (", ..." if len(values) > 12 else "")
