"""What no column of a measured row holds of a plan, in words of its notes that are read back as the same options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from planner.axes.table import ACTIVATION_OFFLOAD, AXES, OFFLOAD
from planner.axes.values import WITH_WEIGHTS, nodes_of
from planner.calibration.runs import names
from planner.schema.hardware import SPLIT_SCHEDULES
from planner.schema.plan import Plan
from planner.schema.plan_layout import ALONE, ATTENTION_KERNELS, Dispatcher

PLACED = "stages placed by layout"
WITH_WEIGHTS_WORDS = "optimizer and weights in host memory"
_BETWEEN = "; "
_OVERLAPS = ("tp", "dp", "p2p")
_STATED: Mapping[str, Mapping[object, str]] = {
    "schedule": {name: name for name in SPLIT_SCHEDULES},
    **{f"{name}_overlap": {True: f"{name} overlap", False: f"no {name} overlap"} for name in _OVERLAPS},
    "ep_overlap": {True: "expert exchanges overlap", False: "expert exchanges do not overlap"},
    "dispatcher": {
        name: f"dispatcher {'alltoall' if name == ALONE else name}" for name in (ALONE, *get_args(Dispatcher))
    },
    "attention_kernel": {name: f"{name} attention" for name in ATTENTION_KERNELS},
    "graphs": {"modules": "CUDA graphs: modules", "full": "CUDA graphs: full iteration"},
    "zero_scope": {"node": "states shared in node"},
    "rank_order": {"tp-cp-ep-pp-dp": "ranks in the order tp-cp-ep-pp-dp"},
    "offload_overlap": {True: "optimizer copies overlap"},
}
"""Axis -> its value -> words that :mod:`planner.calibration.runs.words` reads as it; other values have none."""
_WORDS = {PLACED, WITH_WEIGHTS_WORDS, *(words for phrases in _STATED.values() for words in phrases.values())}
_COUNTED = re.compile(
    r"optimizer offload \d{1,3}%|states shared in \d{1,6} nodes|\d MTP modules|activations in host memory: [a-z_0-9+]+",
    re.ASCII,
)


def of_plan(plan: Plan) -> str:
    """The notes of a row that ran a plan, so that it is predicted as the plan is."""
    return _BETWEEN.join(_of_plan(plan))


def _of_plan(plan: Plan) -> Iterator[str]:
    cut = plan.parallelism
    if plan.runtime.places_head or plan.runtime.cuts_by_work:
        yield PLACED
    modules = plan.workload.mtp_layers or 0
    if modules or plan.workload.model in names.PREDICTED_AHEAD:
        yield f"{modules} MTP modules"
    ranks = {"tp_overlap": cut.tp, "dp_overlap": cut.dp, "p2p_overlap": cut.pp, "schedule": cut.pp}
    ranks |= dict.fromkeys(("ep_overlap", "dispatcher"), cut.ep)
    for name, phrases in _STATED.items():
        value = AXES[name].of(plan)
        if ranks.get(name, 2) > 1 and value in phrases:
            yield phrases[value]
    if (nodes := nodes_of(cut.zero_scope)) > 1:
        yield f"states shared in {nodes} nodes"
    share = OFFLOAD.value(OFFLOAD.of(plan))
    if share:
        yield WITH_WEIGHTS_WORDS if share == WITH_WEIGHTS else f"optimizer offload {share:.0%}"
    if ACTIVATION_OFFLOAD.is_mentioned(plan):
        yield f"activations in host memory: {ACTIVATION_OFFLOAD.of(plan)}"


def are_ours(notes: str) -> bool:
    """Whether notes hold nothing but such words."""
    return all(part in _WORDS or _COUNTED.fullmatch(part) for part in notes.split(_BETWEEN))
