"""A contract over all axes of a plan: each is known to every part of the program that has to know it.

An axis is a row of :mod:`planner.axes.table`. Whoever adds one adds a value to :data:`OTHER` and an impossible plan to
:data:`IMPOSSIBLE`; each test then tells which part of the program has not heard of it.
"""

from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from planner import api, catalog, verify
from planner.axes import AXES, LAYOUT_AXES, OPTION_AXES, PINNED, PlanAxis
from planner.axes.options import DIMENSIONS, grid_of_one, option_values
from planner.axes.table import DISPATCHER, IN_ANSWERS, SCHEDULE
from planner.base.errors import WrongQuestion
from planner.cost import experts, split_schedules
from planner.cost.figures import Options
from planner.launchers import plan_facts
from planner.launchers.registry import EXPORTERS
from planner.mixed import prepared_pools
from planner.planning.comparison import compare
from planner.question.axis_keywords import Axes
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from planner.schema import record
from planner.schema.hardware import OVERLAPPED_SHARDS
from planner.schema.plan import Plan
from planner.schema.plan_layout import sections
from planner.space.cost_grid import as_figures
from planner.space.pins import parse_pins
from tests.sweeps import sweep

POOLS = ("dgx-h100:1", "dgx-a100-80gb:1")
OTHER: dict[str, Any] = {
    **dict(tp=4, pp=2, vpp=2, cp=4, ep=8, etp=2, dp=8, micro=2, batch=256, nodes=4),
    **dict(precision="fp8", recompute="full", sequence_parallel=False, tp_overlap=True, zero=3, zero_scope="node"),
    **dict(dp_overlap=False, p2p_overlap=True, ep_overlap=True, rank_order="tp-cp-ep-pp-dp", offload="optimizer:0.25"),
    **dict(placement="optimizer:0.5", cp_algorithm="a2a", offload_overlap=True, activation_offload="core_attn"),
    **dict(graphs="modules", schedule="zbv", dispatcher="deepep", attention_kernel="flash-3"),
}
"""Axis -> a value that the plan below does not have."""
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "precision": {"precision": "mxfp4"},
    "recompute": {"recompute": "full"},
    "sequence_parallel": {"sequence_parallel": False},
    "tp_overlap": {"sequence_parallel": False, "tp_overlap": True},
    "zero": {"zero": 3},
    "zero_scope": {"zero_scope": "node"},
    "p2p_overlap": {"p2p_overlap": True},
    "ep_overlap": {"ep_overlap": True, "dispatcher": "allgather"},
    "rank_order": {"rank_order": "tp-cp-ep-pp-dp"},
    "offload": {"offload": "optimizer:0.25"},
    "placement": {"placement": "optimizer:0.5"},
    "cp_algorithm": {"cp_algorithm": "a2a+p2p"},
    "offload_overlap": {"offload": "none", "offload_overlap": True},
    "activation_offload": {"activation_offload": "core_attn"},
    "graphs": {"graphs": "full"},
    "schedule": {"schedule": "zbv"},
    "dispatcher": {"dispatcher": "allgather", "ep_overlap": True},
    "attention_kernel": {"attention_kernel": "flash-4"},
}
"""Axis -> what of a plan cannot be; any plan may overlap data-parallel communication, or not."""
SEARCHED_OVER_POOLS = {"precision", "recompute", "sequence_parallel", "tp_overlap", "dp_overlap"}
"""Options that plans over several pools choose for themselves."""
OTHER_FACTS = {"places_head", "fp32_sums_below_zero", "muon", OVERLAPPED_SHARDS}
"""What `since` of a runtime dates, and no axis is."""


@cache
def plan() -> Plan:
    """A mixture on 16 accelerators that uses tensor, context and expert parallelism, and host memory."""
    return api.estimate("qwen3-30b-a3b", "dgx-h100:2", tp=2, cp=2, ep=4, batch=512, offload="optimizer:0.5")[0]


def changed(**axes: Any) -> Plan:
    """The plan's document with other values on some axes, and nothing else changed."""
    document = record.dump(plan())
    document["axes"] |= axes
    return record._adapter(Plan).validate_python(sections(document))


def found_by_verify(axes: Plan) -> set[str]:
    return {str(finding) for finding in verify.violations(axes)}


def text(axis: PlanAxis[Any], stated: Any) -> str:
    return axis.spell(axis.value(stated))


def test_every_axis_is_a_row_that_stands_in_every_list():
    assert list(AXES) == [axis.name for axis in (*LAYOUT_AXES, *OPTION_AXES)]
    assert set(IN_ANSWERS) == set(AXES.values())
    assert {axis for axes in DIMENSIONS.values() for axis in axes} == set(OPTION_AXES)
    assert all(axis.help and (axis.choices or axis.kind != "choice") for axis in AXES.values())
    assert OTHER.keys() == AXES.keys()
    assert IMPOSSIBLE.keys() | {"dp_overlap"} == {axis.name for axis in OPTION_AXES}


@sweep("name", PINNED)
def test_it_is_pinned_as_it_is_spelt(name):
    axis = AXES[name]
    assert str(parse_pins([f"{name}={text(axis, OTHER[name])}"]).bounds[name]) == text(axis, OTHER[name])
    with pytest.raises(WrongQuestion, match=name):
        parse_pins([f"{name}=nonsense"])


@sweep("axis", OPTION_AXES)
def test_it_is_priced(axis):
    """Other values give the cost model other figures; precisions stand among the devices instead."""
    neutral = as_figures(option_values())
    values = [axis.value(OTHER[axis.name]), axis.value(not OTHER[axis.name])] if axis.kind == "switch" else [
        axis.value(OTHER[axis.name])
    ]  # fmt: skip
    figures = [as_figures(option_values(**{axis.name: value})) for value in values]
    assert axis.name == "precision" or any(each != neutral for each in figures)


def test_every_figure_of_options_is_given_by_an_axis():
    every = {axis.name: axis.choices for axis in OPTION_AXES if axis.kind == "choice"}
    every |= {axis.name: ("on",) for axis in OPTION_AXES if axis.kind == "switch"}
    every |= {
        "recompute": ("block:0.5", "selective:core_attn+layernorm+moe_act+mla_up_proj+mlp+moe"),
        "offload": ("optimizer:0.5", "optimizer+weights"),
        "zero_scope": ("nodes:4",),
        "placement": ("optimizer+weights+activations",),
        "activation_offload": ("all", "attn_norm+qkv_linear+core_attn+attn_proj+mlp_norm+expert_fc1+moe_act"),
    }
    given: set[str] = set()
    for name, texts in every.items():
        for value in map(AXES[name].read, texts):
            given |= grid_of_one(option_values(**{name: value})).figures(lambda values, dimension: values[0]).keys()
    of_runs = {"recompute_offloaded", "function_in_8_bit"}
    assert given | of_runs == {field.name for field in fields(Options)}


@sweep("name", list(AXES))
def test_it_is_written_and_read_back(name):
    if name == "nodes":
        assert AXES[name].of(plan()) == plan().cluster.pools[0].count
        return
    other = changed(**{name: OTHER[name]})
    assert AXES[name].of(other) == OTHER[name] != AXES[name].of(plan())
    assert record.dump(other)["axes"][name] == OTHER[name]
    assert AXES[name].state(AXES[name].value(OTHER[name])) == OTHER[name]


@sweep("name", [name for name in AXES if name != "nodes"])
def test_compare_names_it(name):
    other = changed(**{name: OTHER[name]})
    assert [row for row, *_ in compare(plan(), other).differing] == [AXES[name].label]


def test_every_date_of_a_runtime_is_that_of_an_axis():
    """What releases date (`since`), some value of an axis uses, so that older releases lack it."""
    more = {"recompute": ("selective", "block:0.5", "selective:moe"), "offload": ("optimizer",)}
    used = {
        what
        for name, axis in AXES.items()
        for stated in (OTHER[name], True if axis.kind == "switch" else OTHER[name], *axis.choices, *more.get(name, ()))
        for what in axis.since(axis.value(stated))
    }
    for runtime in catalog.load().runtimes.values():
        for what in runtime.since.keys() - OTHER_FACTS:
            # A part of the states is dated as all of them; older releases send tokens as their own figures say.
            assert what == "offload=part" or what.startswith("dispatcher=") or what in used, f"{runtime.id}: {what}"


def test_switches_that_are_on_are_used():
    for axis in OPTION_AXES:
        if axis.kind == "switch":
            assert (list(axis.since(True)), list(axis.since(False))) == ([axis.name], [])


def test_plans_over_several_pools_are_held_to_it_or_search_it():
    assert {axis.name for axis in OPTION_AXES if axis.pools is None} == SEARCHED_OVER_POOLS
    _, wanted, _ = pooled_request("llama3-8b", POOLS, PlanOptions(batch=128))
    refused = OTHER | {"cp_algorithm": "a2a"}
    for axis in OPTION_AXES:
        if axis.pools is not None:
            pins = parse_pins([f"{axis.name}={text(axis, refused[axis.name])}"])
            with pytest.raises(WrongQuestion, match=f"{axis.name}=.*plans over several pools have"):
                prepared_pools._refuse_other_pins(replace(wanted, pins=pins))


def test_every_trainer_says_whether_it_expresses_it():
    for name, exporter in EXPORTERS.items():
        if exporter.role == "trainer" and name != "torchrun":  # starts a script of your own
            missing = {axis.name for axis in OPTION_AXES} - set(exporter.expresses)
            assert not missing, f"{name} does not say whether it has {', '.join(sorted(missing))}"
    assert plan_facts.values(plan()).keys() >= AXES.keys()


@sweep("name", sorted(IMPOSSIBLE))
def test_verify_finds_an_impossible_value(name):
    wrong = changed(**IMPOSSIBLE[name])
    assert found_by_verify(wrong) - found_by_verify(plan()), name


LISTED = ("schedule", "recompute", "attention_kernel")
"""Axes of words of which Python takes several."""


def test_keywords_of_python_are_the_pinned_axes():
    assert {*Axes.__annotations__, *(name for name, axis in AXES.items() if axis.option)} == {*AXES}
    named = dict.fromkeys(AXES, "str") | dict.fromkeys(LISTED, "str | Sequence[str]")
    for name, annotation in Axes.__annotations__.items():
        whole = "int | str | Sequence[int]" if isinstance(AXES[name].neutral, int) else named[name]
        assert annotation.__forward_arg__ == ("bool | str" if AXES[name].kind == "switch" else whole), name


def test_codes_of_dispatchers_and_schedules_are_those_of_the_cost_model():
    sent = {name: DISPATCHER.figures(name)["dispatcher"] for name in DISPATCHER.choices}
    assert sent["deepep"] == sent["hybridep"] == experts.ONCE_PER_DOMAIN
    assert sent["allgather"] == experts.ALL_GATHERED
    follow = {name: SCHEDULE.figures(name)["schedule"] for name in SCHEDULE.choices}
    assert follow["zero-bubble"] == follow["interleaved-zero-bubble"] == split_schedules.ZERO_BUBBLE
    assert (follow["zbv"], follow["dualpipe-v"]) == (split_schedules.ZBV, split_schedules.DUALPIPE_V)
    assert follow["1f1b"] == 0.0
