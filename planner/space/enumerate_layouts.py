"""Legal layouts as rows: contiguous columns of every combination that the rules let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.axes import LAYOUT_AXES
from planner.schema.hardware import Runtime
from planner.space.pins import Pins
from planner.space.rules import RULES, Rule, RuleSetting

Rows = dict[str, NDArray[np.int64]]
OF_TP = ("heads_divide", "kv_heads_divide", "recurrence_divides", "hidden_divides", "tp_in_domain")
"""Rules on the tensor-parallel degree alone."""
OF_CP = ("sequence_divides", "context_chunk", "context_heads", "context_kernel", "whole_sequence")
"""Rules that the context-parallel degree adds."""


def divisors(n: int) -> list[int]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


@dataclass(frozen=True, slots=True)
class Question:
    """What layouts are wanted: the setting, node counts and batches to try, pins, waived rules."""

    setting: RuleSetting
    counts: tuple[int, ...]
    batches: tuple[int, ...]
    pins: Pins
    waived: frozenset[str] = frozenset()
    seen: dict[object, Rows] = field(default_factory=dict, compare=False, repr=False)
    """Rows of this question and of those made from it by other pins or waived rules: why one has none asks for many."""

    def rules(self) -> Iterable[Rule]:
        """The rules that are not waived."""
        return (rule for rule in RULES if rule.name not in self.waived)


def _allowed(question: Question, axis: str, values: Iterable[int]) -> list[int]:
    runtime = question.setting.runtime
    bound = question.pins.bounds.get(axis)
    pinned = values if bound is None else filter(bound.allows, values)
    return [v for v in pinned if _expresses(runtime, axis, v)]


def _expresses(runtime: Runtime, axis: str, value: int) -> bool:
    """Whether the runtime can express a degree: an axis it does not list stays at 1."""
    known = runtime.axes.get(axis)
    if axis in ("dp", "micro", "batch", "nodes") or known == "any":
        return True
    return value == 1 if known is None else value in known


def _cross(columns: Rows, question: Question, axis: str, values: Iterable[int]) -> Rows:
    """Every row with every allowed value of one more axis."""
    height = len(columns["nodes"])
    if not height:
        return {**columns, axis: columns["nodes"]}
    able = _allowed(question, axis, values)
    grown = {name: np.repeat(column, len(able)) for name, column in columns.items()}
    grown[axis] = np.tile(np.asarray(able, dtype=np.int64), height)
    return grown


def _keep(columns: Rows, mask: NDArray[np.bool_]) -> Rows:
    return columns if mask.all() else {name: column[mask] for name, column in columns.items()}


def _apply(columns: Rows, question: Question, names: Sequence[str]) -> Rows:
    """The rows that the named rules (unless waived) let through."""
    for rule in question.rules():
        if rule.name in names and len(columns["nodes"]):
            columns = _keep(columns, rule.holds(columns, question.setting))
    return columns


def layouts(question: Question) -> Rows:
    """All legal rows, axis -> integers of shape (rows,): axis by axis, each rule applied as soon as its axes are there.

    The order of rows is the order of axes, small values first: it is also how ties are broken.
    """
    pinned = tuple((axis.name, question.pins.bounds.get(axis.name)) for axis in LAYOUT_AXES)
    key = (question.counts, question.batches, question.waived, pinned)
    if key not in question.seen:
        question.seen[key] = _layouts(question)
    return question.seen[key]


def _layouts(question: Question) -> Rows:
    model = question.setting.workload.model
    parts = [
        _of_count(question, count, batch, model.moe.experts if model.moe else 1)
        for count in question.counts
        for batch in question.batches
    ]
    return {axis.name: np.concatenate([part[axis.name] for part in parts]) for axis in LAYOUT_AXES}


def _of_count(question: Question, count: int, batch: int, experts: int) -> Rows:
    n = count * question.setting.cluster.node.accelerators
    layers = question.setting.workload.layers
    ranks = divisors(n)
    rows: Rows = {"nodes": np.array([count]), "batch": np.array([batch]), "etp": np.array([1])}
    rows = _cross(rows, question, "tp", ranks)
    rows = _apply(rows, question, OF_TP)
    rows = _cross(rows, question, "cp", [d for d in ranks if d & (d - 1) == 0])
    rows = _apply(rows, question, OF_CP)
    rows = _cross(rows, question, "pp", [d for d in ranks if d <= layers])
    rows = _keep(rows, n % (rows["tp"] * rows["cp"] * rows["pp"]) == 0)
    rows["dp"] = n // (rows["tp"] * rows["cp"] * rows["pp"])
    rows = _keep(rows, np.isin(rows["dp"], _allowed(question, "dp", ranks)))
    rows = _cross(rows, question, "vpp", range(1, layers + 1))
    rows = _keep(rows, (rows["vpp"] == 1) | (rows["pp"] > 1))
    rows = _apply(rows, question, ("layer_for_every_chunk", "layers_deal", "stages_alike"))
    rows = _cross(rows, question, "micro", divisors(batch))
    rows = _apply(rows, question, ("batch_divides", "whole_pairs", "interleave_fill", "micro_batch_tokens"))
    rows = _cross(rows, question, "ep", divisors(experts))
    rows = _apply(rows, question, ("experts_divide",))
    return _expert_tensor(rows, question, experts > 1)


def _expert_tensor(rows: Rows, question: Question, mixture: bool) -> Rows:
    """Experts whole on a rank (etp 1), or split like everything else (etp = tp)."""
    split = {name: column.copy() for name, column in rows.items()}
    split["etp"] = split["tp"].copy()
    split = _keep(split, (split["tp"] > 1) & mixture)
    both = {name: np.concatenate([column, split[name]]) for name, column in rows.items()}
    degrees = np.unique(both["etp"]) if len(both["etp"]) else np.array([1])
    both = _keep(both, np.isin(both["etp"], _allowed(question, "etp", [int(d) for d in degrees])))
    return _apply(both, question, ("expert_ranks", "expert_tensor"))
