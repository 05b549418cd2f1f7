"""The search spaces of the benchmarks: every axis is listed here, so that figures stay comparable over versions.

Layout axes are ranges: what a space holds of them is what divides, by the planner's own rules. Option axes are lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planner.axes import LAYOUT_AXES, OPTION_AXES, PlanAxis
from planner.catalog import Catalog
from planner.question.plan_options import PlanOptions
from planner.question.reading import request as request_
from planner.question.request import Request
from planner.question.search_problem import prepare, problem
from planner.search.problem import SearchProblem

Question = tuple[Catalog, Request]

TOP = 20

LAYOUTS = {
    "tp": "1..64",
    "pp": "1..128",
    "vpp": "1..64",
    "cp": "1..16",
    "ep": "1..256",
    "etp": "1..64",
    "dp": "1..16384",
    "micro": "1..128",
}
SWITCHES = {
    "sequence_parallel": "on|off",
    "tp_overlap": "off|on",
    "zero": "0|1|2|3",
    "zero_scope": "full|node",
    "dp_overlap": "off|on",
    "p2p_overlap": "off|on",
    "ep_overlap": "off|on",
    "rank_order": "tp-cp-ep-dp-pp|tp-cp-ep-pp-dp",
    "offload": "none|optimizer",
}
PRECISION_A100 = "bf16"
PRECISION_H100 = "bf16|fp8"
RECOMPUTE_SIXTEENTHS = "|".join(["none", "selective", *(f"block:{i / 16:g}" for i in range(1, 16)), "full"])
RECOMPUTE_QUARTERS = "none|selective|block:0.25|block:0.5|block:0.75|full"


@dataclass(frozen=True, slots=True)
class Space:
    """A named space: a model on a cluster, with everything that is searched over."""

    name: str
    model: str
    node: str
    nodes: int
    batches: tuple[int, ...]
    precision: str
    recompute: str
    waived: tuple[str, ...] = ()

    @property
    def pins(self) -> tuple[str, ...]:
        """Every axis, as the planner is told it."""
        axes = {**LAYOUTS, "precision": self.precision, "recompute": self.recompute, **SWITCHES}
        return tuple(f"{axis}={values}" for axis, values in axes.items())

    def question(self, *, fold: bool = True) -> Question:
        """The question whose candidates are this space; `fold` counts near-duplicates once, as `plan` does."""
        asked = PlanOptions(pin=self.pins, waive=self.waived, top=TOP, all=not fold)
        catalog, request = request_(self.model, f"{self.node}:{self.nodes}", asked)
        return catalog, replace(request, batches=self.batches)


SPACES = (
    Space(
        name="gpt3-175b on 512 A100-80GB",
        model="gpt3-175b",
        node="dgx-a100-80gb",
        nodes=64,
        batches=(1536, 3072),
        precision=PRECISION_A100,
        recompute=RECOMPUTE_SIXTEENTHS,
        waived=("tp_in_domain",),
    ),
    Space(
        name="megatron-1t on 1,024 A100-80GB",
        model="megatron-1t",
        node="dgx-a100-80gb",
        nodes=128,
        batches=(3072, 6144),
        precision=PRECISION_A100,
        recompute=RECOMPUTE_SIXTEENTHS,
        waived=("tp_in_domain",),
    ),
    Space(
        name="deepseek-v3 on 2,048 H100",
        model="deepseek-v3",
        node="dgx-h100",
        nodes=256,
        batches=(15360,),
        precision=PRECISION_H100,
        recompute=RECOMPUTE_QUARTERS,
    ),
    Space(
        name="deepseek-v3 on 16,384 H100",
        model="deepseek-v3",
        node="dgx-h100",
        nodes=2048,
        batches=(15360, 16384),
        precision=PRECISION_H100,
        recompute=RECOMPUTE_QUARTERS,
    ),
)


def tiny(space: Space) -> Space:
    """The same axes on an eighth of the accelerators, with a batch that leaves few layouts and three policies."""
    return replace(
        space,
        name=f"{space.name}, tiny",
        nodes=max(space.nodes // 8, 8),
        batches=(64,),
        recompute="none|block:0.5|full",
    )


def posed(question: Question) -> SearchProblem:
    """A question, enumerated: from legal layouts to figures and targets."""
    catalog, request = question
    return problem(prepare(catalog, request), request.top)


def values(asked: SearchProblem) -> dict[str, list[int] | list[str]]:
    """Every axis with the values that occur on it in some candidate."""
    layouts = {axis.name: _degrees(asked, axis.name) for axis in LAYOUT_AXES}
    return {**layouts, **{axis.name: _options(asked, axis) for axis in OPTION_AXES}}


def _degrees(asked: SearchProblem, axis: str) -> list[int]:
    return [int(v) for v in np.unique(np.concatenate([block.rows[axis] for block in asked.blocks]))]


def _options(asked: SearchProblem, axis: PlanAxis[Any]) -> list[str]:
    return list(dict.fromkeys(axis.spell(value) for block in asked.blocks for value in block.axes[axis]))
