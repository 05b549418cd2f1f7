"""Why a question leaves no layout: the pin or the rule at fault, and what would be possible."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from planner.axes import AXES, LAYOUT_AXES, OPTION_AXES, PlanAxis
from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    CP,
    CP_ALGORITHM,
    DISPATCHER,
    DP,
    EP,
    EP_OVERLAP,
    ETP,
    GRAPHS,
    MICRO,
    OFFLOAD,
    PRECISION,
    RECOMPUTE,
    SCHEDULE,
    SEQUENCE_PARALLEL,
    TP,
    VPP,
    ZERO,
    ZERO_SCOPE,
)
from planner.axes.values import (
    ALONE,
    CORE_ATTENTION,
    PART,
    RANK_ORDERS,
    SCOPES,
    SPLIT_SCHEDULES,
    WHOLE,
    WHOLE_MIXTURE,
    WITH_WEIGHTS,
    offload_name,
    schedule_name,
)
from planner.figures import cost_inputs, matrix_formats
from planner.models import blocks, context
from planner.schema.hardware import Runtime
from planner.space import dispatchers
from planner.space.blocks import Block
from planner.space.blocks import blocks as blocks_of
from planner.space.enumerate_layouts import OF_TP, Question, divisors, layouts
from planner.space.levers import scopes_over_nodes
from planner.space.offloading import LOST_BY_DELAYED, modules_of, offloadable
from planner.space.pins import Bound, Pins
from planner.space.rules import Rule


def no_layout(question: Question) -> str:
    """One message for a question whose rows are empty: each pin is lifted in turn, then each rule."""
    for axis in _pinned(question, LAYOUT_AXES):
        possible = [int(v) for v in np.unique(layouts(_freed(question, axis))[axis.name])]
        if possible:
            return _refused(question, axis, _why(question, axis), _listed(possible))
    if rule := _at_fault(question):
        why = (_hint(question, rule.name) or f"{rule.says}. ").rstrip()
        return f"no layout of {_what(question)}{_with(question)}: {why} (rule {rule.name})"
    pins = _layout_pins(question)
    ones = "/".join(axis for axis, bound in pins.items() if str(bound) == "1")
    reasons = [_with(question).removeprefix(" with "), f"{ones} of 1" if ones else ""]
    together = f"{' and '.join(filter(None, reasons))} exclude one another" if pins else "no layout is legal"
    cluster = question.setting.cluster
    return (
        f"{together} for {_what(question)} ({cluster.accelerators:,} accelerators, batch {_listed(question.batches)})."
    )


def no_options(question: Question) -> str:
    """One message for a question whose pins leave an option axis without a value: each pin is lifted in turn."""
    for axis in _pinned(question, OPTION_AXES):
        possible = _option_values(_freed(question, axis), axis)
        if possible:
            return _refused(question, axis, _why_not_option(question, axis), ", ".join(possible))
    setting = question.setting
    together = f"the pins {question.pins} exclude one another" if question.pins.bounds else "no precision is common"
    return f"{together} for {setting.runtime.id} on {setting.cluster.accelerator.id}."


# ---- pins ------------------------------------------------------------------------------------------------------------


def _pinned(question: Question, axes: Iterable[PlanAxis[Any]]) -> list[PlanAxis[Any]]:
    """The pinned ones of these axes; what a person would hardly have said (a degree of 1) comes last."""
    pins = question.pins.bounds
    pinned = (axis for axis in axes if axis.name in pins)
    return sorted(pinned, key=lambda axis: str(pins[axis.name]) in ("1", "none", "off"))


def _freed(question: Question, axis: PlanAxis[Any]) -> Question:
    others = {name: bound for name, bound in question.pins.bounds.items() if name != axis.name}
    # Without its pin, a precision is 16 bit and no other, and what any layout takes is left to the runtime.
    every = {axis.name: Bound(axis.choices)} if axis is PRECISION or axis.any_layout else {}
    every |= {axis.name: Bound((*SCOPES, *scopes_over_nodes(question.counts)))} if axis is ZERO_SCOPE else {}
    return replace(question, pins=Pins(others | every))


def _layout_pins(question: Question) -> dict[str, Bound]:
    return {name: bound for name, bound in question.pins.bounds.items() if AXES[name] in LAYOUT_AXES}


def _refused(question: Question, axis: PlanAxis[Any], why: str, possible: str) -> str:
    others = _with(_freed(question, axis)) or " here"
    return f"{axis.name}={question.pins.bounds[axis.name]}: {why}{axis.name} can be {possible}{others}."


def _with(question: Question) -> str:
    """The pinned degrees, but for those of 1."""
    pins = {axis: bound for axis, bound in _layout_pins(question).items() if str(bound) != "1"}
    return f" with {Pins(pins)}" if pins else ""


def _what(question: Question) -> str:
    cluster = question.setting.cluster
    return f"{question.setting.workload.model.id} on {cluster.count:,} x {cluster.node.id}"


# ---- layouts ---------------------------------------------------------------------------------------------------------


def _at_fault(question: Question) -> Rule | None:
    """The first rule without which there are layouts; None where there are none without all of them."""
    # The one that is easiest to mend first.
    rules = sorted(question.rules(), key=lambda rule: rule.name != "batch_divides")
    if not _stands_without(question, *rules):
        return None
    return next((rule for rule in rules if _stands_without(question, rule)), None)


def _stands_without(question: Question, *rules: Rule) -> bool:
    waived = question.waived.union(rule.name for rule in rules)
    return len(layouts(replace(question, waived=waived))["tp"]) > 0


def _why(question: Question, axis: PlanAxis[Any]) -> str:
    """What keeps the pin on a degree from standing: the runtime, the model, a rule, or the numbers themselves."""
    setting, bound = question.setting, question.pins.bounds[axis.name]
    model, ranks = setting.workload.model, setting.cluster.accelerators
    known = setting.runtime.axes.get(axis.name, (1,))
    if axis not in (DP, MICRO) and known != "any" and not _some(bound, known):
        if since := _since(setting.runtime, axis, bound):
            return since
        return f"{setting.runtime.id} {'cannot split so' if known == (1,) else 'takes no such value'}. "
    if axis in (EP, ETP) and model.moe is None:
        return _hint(question, "experts_divide")
    if rule := _at_fault(question):
        return _hint(question, rule.name) or f"{rule.says}. "
    if axis is TP and (name := _against_tp(question, bound)):
        return _hint(question, name)
    if axis is MICRO and not any(_some(bound, divisors(batch)) for batch in question.batches):
        return f"it has to divide the batch of {_listed(question.batches)}. "
    if axis is EP and model.moe and not _some(bound, divisors(model.moe.experts)):
        return _hint(question, "experts_divide")
    if axis is VPP:
        few = not _some(bound, range(1, setting.workload.layers + 1))
        return _hint(question, "layer_for_every_chunk") if few else "interleaving needs pp above 1. "
    if axis is CP and _some(bound, divisors(ranks)) and not _some(bound, (2**i for i in range(32))):
        return "context parallelism goes by powers of two. "
    return f"{ranks:,} accelerators don't split that way. "


def _since(runtime: Runtime, axis: PlanAxis[Any], bound: Bound) -> str:
    """When a runtime began to be able to do what a pin asks, if this release of it is too old; else empty."""
    late = [
        runtime.since[what]
        for what in (axis.name, *(f"{axis.name}={v}" for v in bound.values))
        if what in runtime.since
    ]
    return f"{runtime.id} can do that since {max(late)}; ask for a newer release (--runtime). " if late else ""


def _against_tp(question: Question, bound: Bound) -> str:
    """The first rule that alone forbids every pinned tp that splits the accelerators: several may, all at once."""
    degrees = np.array([d for d in divisors(question.setting.cluster.accelerators) if bound.allows(d)], dtype=np.int64)
    rules = (rule for rule in question.rules() if rule.name in OF_TP and len(degrees))
    return next((rule.name for rule in rules if not rule.holds({"tp": degrees}, question.setting).any()), "")


def _some(bound: Bound, values: Iterable[object]) -> bool:
    return any(bound.allows(value) for value in values)


def _hint(question: Question, rule: str) -> str:
    """The numbers at fault, in words."""
    w, cluster = question.setting.workload, question.setting.cluster
    model = w.model
    batches, better = _listed(question.batches), _rounded(question)
    mend = f"; try --batch {better}" if better not in question.batches else ""
    each = cluster.node.accelerators
    return {
        "heads_divide": f"{model.heads} attention heads don't divide by it. ",
        "kv_heads_divide": f"{model.kv_heads} key/value heads and tp don't divide one another. ",
        "recurrence_divides": f"{model.recurrence.heads} heads of its recurrence don't divide by it. "
        if model.recurrence
        else "",
        "hidden_divides": f"{model.hidden:,} hidden doesn't divide by it. ",
        "tp_in_domain": f"{cluster.node.id} joins {each} accelerators (or --waive tp_in_domain). ",
        "batch_divides": f"a batch of {batches} doesn't divide by dp x micro-batch{mend}. ",
        "stages_alike": "the leading dense layers do not fit into the first chunks of its stages; less vpp or pp. "
        if blocks.leading(model)
        else "stages of an encoder-decoder, or of RWKV-7, are not planned; try pp=1. ",
        "layers_deal": f"{w.layers} layers cannot be split evenly. ",
        "layer_for_every_chunk": f"there are {w.layers} layers. ",
        "sequence_divides": f"a sequence of {w.sequence:,} doesn't divide by 2 cp and tp. ",
        "context_heads": f"{model.kv_heads} key/value heads don't divide by tp x cp: sinks need whole ones. ",
        "context_kernel": f"{question.setting.runtime.id} has no kernel for it on {cluster.accelerator.id}. ",
        "experts_divide": f"{model.moe.experts} experts don't divide by it. "
        if model.moe
        else "a dense model has no experts. ",
        "whole_pairs": "a pair is two sequences. ",
        "interleave_fill": "interleaving needs micro-batches in multiples of pp. ",
    }.get(rule, "")


def _rounded(question: Question) -> int:
    """The batch in question, up to the next multiple of the accelerators; of pairs of answers, of twice as many."""
    ranks = question.setting.cluster.accelerators * (1 if question.setting.workload.task == "sft" else 2)
    return -(-question.batches[0] // ranks) * ranks


def _listed(values: list[int] | tuple[int, ...]) -> str:
    shown = [f"{v:,}" for v in values[:12]]
    return ", ".join(shown) + (", ..." if len(values) > 12 else "")


# ---- options ---------------------------------------------------------------------------------------------------------


def _option_values(question: Question, axis: PlanAxis[Any]) -> list[str]:
    """The values that an option axis can have, as a pin would spell them."""
    s = question.setting
    rows = layouts(question)
    found = blocks_of(rows, s.workload, s.cluster, s.runtime, question.pins)
    return sorted({value for block in found for value in _spelt(block, axis)})


def _spelt(block: Block, axis: PlanAxis[Any]) -> list[str]:
    if axis is SCHEDULE:
        pairs = {(int(pp), int(vpp)) for pp, vpp in zip(block.rows["pp"], block.rows["vpp"], strict=True)}
        return [schedule_name(name, *pair) for name in block.axes[SCHEDULE] for pair in pairs]
    return [axis.spell(value) for value in block.axes[axis]]


def _why_not_modules(question: Question) -> str:
    runtime, model = question.setting.runtime, question.setting.workload.model
    for axis in (ACTIVATION_OFFLOAD, GRAPHS):
        if axis.name in question.pins and _option_values(_freed(question, axis), RECOMPUTE):
            return f"it does not go with {axis.name}={question.pins.bounds[axis.name]}. "
    if not runtime.recompute_modules:
        return f"{runtime.id} cannot recompute modules by name. "
    there = [module for module in modules_of(model) if module in runtime.recompute_modules]
    precision, overlap = (question.pins.bounds.get(axis) for axis in (PRECISION.name, EP_OVERLAP.name))
    if overlap and not overlap.allows(False) and WHOLE_MIXTURE in there:
        return f"{WHOLE_MIXTURE} does not go with {EP_OVERLAP.name}=on; the other modules of {model.id} do. "
    if precision and "fp8-delayed" in precision.values and LOST_BY_DELAYED & set(there):
        return f"delayed scaling (fp8-delayed) does not go with {' or '.join(sorted(LOST_BY_DELAYED))}. "
    return f"of {model.id}, {runtime.id} can recompute {', '.join((CORE_ATTENTION, *there))}. "


def _why_not_moved(question: Question) -> str:
    """What the runtime and the model have of it, and what it does not go with."""
    runtime, model, axis = question.setting.runtime, question.setting.workload.model, ACTIVATION_OFFLOAD
    if not (known := runtime.axes.get(axis.name, ())):
        return _since(runtime, axis, Bound()) or f"{runtime.id} keeps activations on the accelerator. "
    if GRAPHS.name in question.pins and _option_values(_freed(question, GRAPHS), axis):
        return f"it does not go with {GRAPHS.name}={question.pins.bounds[GRAPHS.name]}. "
    there = [each for each in (WHOLE, *offloadable(model)) if each in known]
    return (
        f"of {model.id}, {runtime.id} can offload {', '.join(there)}; inputs of modules go neither with whole layers "
        "recomputed nor, of core_attn, with selective recomputation. "
    )


def _why_not_shared(question: Question) -> str:
    """What a model's attention allows, and what an exchange needs."""
    able = ", ".join(context.algorithms(question.setting.workload))
    return (
        f"none goes with cp 1, the others with more; kernels for {question.setting.workload.model.id} have {able}; "
        "a2a needs key/value heads that divide by tp x cp, a2a+p2p more than one domain. "
    )


def _why_not_schedule(question: Question, bound: Bound) -> str:
    """What goes with the schedules that a pin names."""
    workload, runtime = question.setting.workload, question.setting.runtime
    if any(name in SPLIT_SCHEDULES for name in bound.values):
        if cost_inputs.shape(workload, runtime).pattern is not None:
            return f"that goes with layers of one kind, and those of {workload.model.id} are of several. "
        chunks = {"zero-bubble": "vpp 1 and pp micro-batches", "interleaved-zero-bubble": "rounds of pp micro-batches"}
        fills = " or ".join(dict.fromkeys(chunks.get(name, "vpp 2 and 2 pp micro-batches") for name in bound.values))
        head = f" ({runtime.id} gives the stage with the head fewer)" if runtime.places_head else ""
        return (
            f"{bound} goes with pp above 1, {fills}, equal stages between first and last{head}, nothing recomputed, "
            "all weights trained in 16 or 32 bit, and no overlap of tensor parallelism or of experts' exchanges. "
        )
    return "none is pp 1, 1f1b is vpp 1, interleaved-1f1b more. "


def _why_not_dispatched(question: Question) -> str:
    accelerator = question.setting.cluster.accelerator
    if question.setting.workload.model.moe is None:
        return f"{question.setting.workload.model.id} has no experts. "
    asked = question.pins.bounds.get(DISPATCHER.name, Bound((ALONE,))).values
    if not any(dispatchers.runs_on(name, accelerator) for name in asked):
        return f"it has no kernels for {accelerator.id}. "
    if set(asked) == {"allgather"}:
        return "that goes with ep above 1 and etp 1, and no overlap of experts' exchanges. "
    return "that goes with experts on several ranks (ep or etp above 1). "


def _why_not_option(question: Question, axis: PlanAxis[Any]) -> str:
    """What keeps the pin on an option from standing: the accelerator, the runtime, or what it goes with."""
    runtime, accelerator = question.setting.runtime, question.setting.cluster.accelerator
    bound = question.pins.bounds[axis.name]
    if axis is PRECISION and not any(matrix_formats.can_train_in(accelerator, name) for name in bound.values):
        return f"{accelerator.id} has no such matrix products. "
    pinned = question.pins.bounds.get(SCHEDULE.name, Bound())
    if axis is SCHEDULE or (
        any(name in SPLIT_SCHEDULES for name in pinned.values)
        and _some(bound, _option_values(_freed(question, SCHEDULE), axis))
    ):
        return _why_not_schedule(question, pinned)
    known = runtime.axes.get(axis.name, ("none", False, 0, RANK_ORDERS[0]))
    if axis is ZERO_SCOPE:
        known = (*runtime.zero_scope, *(("nodes",) if "node" in runtime.zero_scope else ()))
    part = axis is OFFLOAD
    kinds = Bound(tuple(PART if part and ":" in name else name.partition(":")[0] for name in bound.values))
    if axis is ACTIVATION_OFFLOAD:
        return _why_not_moved(question)
    if known != "any" and not _some(kinds, known) and not kinds.allows(ALONE):
        if question.setting.workload.optimizer.iterations and axis in (ZERO, ZERO_SCOPE, OFFLOAD, PRECISION):
            return f"{runtime.id} cannot do that with {question.setting.workload.optimizer.id}. "
        if since := _since(runtime, axis, kinds):
            return since
        return f"{runtime.id} cannot do that. "
    if axis is RECOMPUTE:
        return _why_not_modules(question)
    if axis is ZERO and GRAPHS.name in question.pins and _option_values(_freed(question, GRAPHS), axis):
        return (
            f"it does not go with {GRAPHS.name}={question.pins.bounds[GRAPHS.name]} while experts' exchanges overlap. "
        )
    if axis is SEQUENCE_PARALLEL and bound.allows(False):
        return "mixtures need it with tp above 1. "
    if axis in (OFFLOAD, ZERO) and question.pins.bounds.get(OFFLOAD.name) == Bound((offload_name(WITH_WEIGHTS),)):
        return "weights live in host memory as shards alone, with zero 3. "
    needed = runtime.offload_needs_zero
    if needed and (
        axis is OFFLOAD or (axis is ZERO and question.pins.bounds.get(OFFLOAD.name) == Bound(("optimizer",)))
    ):
        return f"{runtime.id} offloads the optimizer with zero {'/'.join(map(str, needed))} only. "
    if axis is CP_ALGORITHM:
        return _why_not_shared(question)
    return _why_not_dispatched(question) if axis is DISPATCHER else axis.condition
