"""The space: what each rule lets through, what a pin says, and what is told where nothing is left."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.axes.table import (
    DP_OVERLAP,
    OFFLOAD,
    PRECISION,
    RANK_ORDER,
    RECOMPUTE,
    SEQUENCE_PARALLEL,
    TP_OVERLAP,
    ZERO,
    ZERO_SCOPE,
)
from planner.axes.values import FULL, NO_RECOMPUTE, SELECTIVE, recompute
from planner.base.errors import WrongQuestion
from planner.question.search_problem import prepare
from planner.schema.hardware import OVERLAPPED_SHARDS
from planner.schema.workload import Recurrence
from planner.space.blocks import blocks
from planner.space.cost_grid import open_grid, single_grid
from planner.space.enumerate_layouts import Question, divisors, layouts
from planner.space.offloading import modules_of
from planner.space.pins import Bound, Pins, parse_pins
from planner.space.rules import RULES, RuleSetting
from planner.space.shared_copies import shared_by
from tests.cases import CATALOG, cluster, prepared, request
from tests.sweeps import sweep
from tests.words import worded

# ---- rules -----------------------------------------------------------------------------------------------------------


def setting(model: str = "llama3-8b", on: str = "dgx-h100:4", runtime: str = "megatron-core", **trained) -> RuleSetting:
    asked = request(model, on, runtime=runtime, trained=trained)
    return RuleSetting(asked.workload, asked.cluster, asked.runtime)


LLAMA = setting()
"""32 heads, 8 key/value heads, 32 layers, 4,096 hidden, sequences of 8,192."""
GPT2, T5 = setting("gpt2"), setting("t5-large")
MIXTURE, LATENT = setting("mixtral-8x7b"), setting("deepseek-v2-lite")
POD = setting(on="tpu-v5p-4:16", runtime="maxtext")
TURNS = setting("llama4-maverick")
"""48 layers, every second a mixture."""
LED = setting("deepseek-v3")
"""61 layers, the first three dense."""
EVEN = setting(runtime="fsdp")
WINDOWED, SINKS = setting("mistral-7b"), setting("gpt-oss-20b")
"""A window of 4,096 in sequences of 8,192; 8 key/value heads with sinks."""
VOLTA = setting(on="dgx-v100:2")
LONG = setting(sequence=1_048_576)

STATE = Recurrence(kind="mamba2", heads=12, value_dim=64, key_heads=4, key_dim=64)
ONE = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)

STATES = RuleSetting(
    replace(LLAMA.workload, model=replace(LLAMA.workload.model, recurrence=STATE)), LLAMA.cluster, LLAMA.runtime
)
"""As Llama, with a recurrence of 12 heads, four of keys."""
PAIRS = RuleSetting(replace(LLAMA.workload, task="dpo"), LLAMA.cluster, LLAMA.runtime)
ALLOWS = [
    ("whole_pairs", PAIRS, [{"micro": 2}, {"micro": 4}], [{"micro": 1}, {"micro": 3}]),
    ("whole_pairs", LLAMA, [{"micro": 1}], []),
    ("recurrence_divides", STATES, [{"tp": 1}, {"tp": 4}, {"tp": 12}], [{"tp": 3}, {"tp": 8}, {"tp": 24}]),
    ("recurrence_divides", LLAMA, [{"tp": 8}, {"tp": 3}], []),
    ("whole_sequence", STATES, [{"cp": 1}], [{"cp": 2}]),
    ("whole_sequence", LLAMA, [{"cp": 2}], []),
    ("heads_divide", LLAMA, [{"tp": 1}, {"tp": 8}, {"tp": 32}], [{"tp": 3}, {"tp": 64}]),
    ("heads_divide", GPT2, [{"tp": 3}, {"tp": 12}], [{"tp": 8}]),
    ("kv_heads_divide", LLAMA, [{"tp": 4}, {"tp": 8}, {"tp": 16}], [{"tp": 3}, {"tp": 12}]),
    ("hidden_divides", GPT2, [{"tp": 3}, {"tp": 256}], [{"tp": 5}, {"tp": 512}]),
    ("tp_in_domain", LLAMA, [{"tp": 8}], [{"tp": 9}, {"tp": 16}]),
    ("tp_in_domain", POD, [{"tp": 8}, {"tp": 64}], [{"tp": 10**6}]),
    (
        "sequence_divides",
        LLAMA,
        [{"cp": 1, "tp": 3}, {"cp": 2}, {"cp": 8, "tp": 8}, {"cp": 4096}],
        [{"cp": 3}, {"cp": 8192}, {"cp": 2048, "tp": 8}],
    ),
    ("context_chunk", LLAMA, [{"cp": 1}, {"cp": 8}], [{"cp": 16}]),
    ("context_chunk", GPT2, [{"cp": 1}], [{"cp": 2}]),
    ("context_heads", LLAMA, [{"cp": 1}, {"cp": 16, "tp": 8}], []),
    ("context_heads", WINDOWED, [{"cp": 16, "tp": 8}], []),
    ("context_heads", SINKS, [{"cp": 8}, {"cp": 4, "tp": 2}, {"tp": 16}], [{"cp": 16}, {"cp": 2, "tp": 8}]),
    ("context_kernel", LLAMA, [{"cp": 1}, {"cp": 8}], []),
    ("context_kernel", VOLTA, [{"cp": 1}], [{"cp": 2}]),
    ("experts_divide", MIXTURE, [{"ep": 1}, {"ep": 8}], [{"ep": 3}, {"ep": 16}]),
    ("experts_divide", LLAMA, [{"ep": 1}], [{"ep": 2}]),
    (
        "expert_ranks",
        MIXTURE,
        [{"ep": 8, "dp": 8}, {"ep": 8, "tp": 8}, {"ep": 4, "etp": 2, "tp": 2, "cp": 2, "dp": 2}],
        [{"ep": 8, "dp": 4}, {"ep": 8, "etp": 2, "tp": 2, "dp": 4}, {"ep": 2, "pp": 2}],
    ),
    ("expert_tensor", MIXTURE, [{"etp": 1, "tp": 4}, {"etp": 4, "tp": 4}], [{"etp": 2, "tp": 4}, {"etp": 3, "tp": 3}]),
    ("expert_tensor", LATENT, [{"etp": 8, "tp": 8}], [{"etp": 256, "tp": 256}]),
    ("expert_tensor", LLAMA, [{"etp": 1, "tp": 4}], [{"etp": 4, "tp": 4}]),
    ("layer_for_every_chunk", LLAMA, [{"pp": 32}, {"pp": 8, "vpp": 4}], [{"pp": 33}, {"pp": 16, "vpp": 3}]),
    ("layer_for_every_chunk", T5, [{"pp": 48}], [{"pp": 49}]),
    (
        "layers_deal",
        LLAMA,
        [{"pp": 4}, {"pp": 8, "vpp": 4}, {"pp": 3}, {"pp": 5}, {"pp": 6, "vpp": 2}],
        [{"pp": 3, "vpp": 4}, {"pp": 5, "vpp": 5}],
    ),
    ("layers_deal", EVEN, [{"pp": 4}, {"pp": 8, "vpp": 4}], [{"pp": 3}, {"pp": 6, "vpp": 2}]),
    ("stages_alike", LLAMA, [{"pp": 5}, {"pp": 8, "vpp": 4}], []),
    ("stages_alike", T5, [{"pp": 1}], [{"pp": 2}]),
    ("stages_alike", TURNS, [{"pp": 1}, {"pp": 3}, {"pp": 16}, {"pp": 5}, {"pp": 4, "vpp": 6}], []),
    (
        "stages_alike",
        LED,
        [{"pp": 4, "vpp": 4}, {"pp": 3}, {"pp": 4, "vpp": 8}, {"pp": 3, "vpp": 7}],
        [{"pp": 2, "vpp": 31}, {"pp": 2, "vpp": 30}],
    ),
    (
        "batch_divides",
        LLAMA,
        [{"batch": 64, "dp": 8, "micro": 8}, {"batch": 6, "dp": 3}],
        [{"batch": 64, "dp": 8, "micro": 16}, {"batch": 64, "dp": 3}],
    ),
    (
        "interleave_fill",
        LLAMA,
        [{"pp": 4, "batch": 2}, {"pp": 4, "vpp": 2, "batch": 8}, {"pp": 2, "vpp": 2, "batch": 16, "dp": 2, "micro": 2}],
        [{"pp": 4, "vpp": 2, "batch": 6}, {"vpp": 2, "batch": 8}, {"pp": 4, "vpp": 2, "batch": 8, "micro": 4}],
    ),
    (
        "micro_batch_tokens",
        LLAMA,
        [{"micro": 16}, {"micro": 32, "cp": 2}, {"micro": 1}],
        [{"micro": 17}, {"micro": 32}],
    ),
    ("micro_batch_tokens", LONG, [{"micro": 1}, {"micro": 1, "cp": 8}], [{"micro": 2}, {"micro": 2, "cp": 4}]),
]


def test_every_rule_is_tried_and_named():
    assert {name for name, *_ in ALLOWS} == {rule.name for rule in RULES}
    assert len(RULES) == len({rule.name for rule in RULES})
    assert all(rule.says for rule in RULES)


@sweep(("name", "of", "through", "refused"), ALLOWS, ids=[f"{n}-{s.workload.model.id}" for n, s, *_ in ALLOWS])
def test_what_a_rule_lets_through(name, of, through, refused):
    rule = next(rule for rule in RULES if rule.name == name)
    rows = [ONE | row for row in (*through, *refused)]
    columns = {axis: np.array([row[axis] for row in rows]) for axis in ONE}
    held = rule.holds(columns, of)
    assert held.tolist() == [True] * len(through) + [False] * len(refused)


# ---- layouts ---------------------------------------------------------------------------------------------------------


def rows_of(*arguments, waived=(), **more):
    asked = request(*arguments, **more)
    inside = RuleSetting(asked.workload, asked.cluster, asked.runtime)
    return layouts(Question(inside, asked.counts, asked.batches, asked.pins, frozenset(waived)))


def values(rows, axis) -> list[int]:
    return [int(v) for v in np.unique(rows[axis])]


def test_a_rule_is_waived_by_name():
    asked = (("llama3-70b", "dgx-h100:4"), {"batches": (64,), "pins": "pp=1 cp=1 micro=1"})
    assert values(rows_of(*asked[0], **asked[1]), "tp") == [1, 2, 4, 8]
    assert values(rows_of(*asked[0], waived=["tp_in_domain"], **asked[1]), "tp") == [1, 2, 4, 8, 16, 32]


@sweep(
    ("name", "asked", "axis", "gained"),
    [
        ("heads_divide", ("qwen2.5-7b", "dgx-h100:1", {"batches": (8,), "pins": "pp=1"}), "tp", [8]),
        ("tp_in_domain", ("llama3-8b", "dgx-h100:2", {"batches": (16,), "pins": "pp=1"}), "tp", [16]),
        ("context_chunk", ("gpt2", "dgx-h100:1", {"batches": (8,), "pins": "pp=1"}), "cp", [2, 4, 8]),
        ("expert_ranks", ("mixtral-8x7b", "dgx-h100:1", {"batches": (8,), "pins": "pp=8"}), "ep", [2, 4, 8]),
        ("layers_deal", ("llama3-8b", "dgx-h100:1", {"batches": (8,), "pins": "pp=2"}), "vpp", list(range(9, 16))),
        ("batch_divides", ("llama3-8b", "dgx-h100:1", {"batches": (4,), "pins": "tp=1 pp=1 cp=1"}), "micro", [1, 2, 4]),
        ("interleave_fill", ("llama3-8b", "dgx-h100:1", {"batches": (4,), "pins": "pp=8"}), "vpp", [2, 4]),
        ("micro_batch_tokens", ("llama3-8b", "dgx-h100:1", {"batches": (32,), "pins": "pp=8"}), "micro", [32]),
    ],
)
def test_what_waiving_adds(name, asked, axis, gained):
    model, on, more = asked
    strict, free = rows_of(model, on, **more), rows_of(model, on, waived=[name], **more)
    added = sorted(set(values(free, axis)) - set(values(strict, axis)))
    assert set(gained) <= set(added)
    assert len(free["tp"]) > len(strict["tp"])


def test_all_rules_hold_of_every_row_unless_waived():
    for model in ("llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "t5-large"):
        asked = request(model, "dgx-h100:3", batches=(24, 36), counts=(1, 3))
        inside = RuleSetting(asked.workload, asked.cluster, asked.runtime)
        rows = layouts(Question(inside, asked.counts, asked.batches, asked.pins))
        assert len(rows["tp"]) > 50
        for rule in RULES:
            assert rule.holds(rows, inside).all(), rule.name


def test_rows_come_once_and_small_values_first():
    rows = rows_of("mixtral-8x7b", "dgx-h100:2", batches=(16, 32), counts=(1, 2))
    every = list(zip(*(rows[axis].tolist() for axis in ONE), strict=True))
    assert len(set(every)) == len(every)
    # Node counts and batches as asked; within them by tp, cp, pp, vpp, micro, ep, whole experts before split ones.
    order = ("nodes", "batch", "etp", "tp", "cp", "pp", "vpp", "micro", "ep")
    split = np.where(rows["etp"] > 1, 1, 0)
    sequence = list(zip(*(split if axis == "etp" else rows[axis] for axis in order), strict=True))
    assert sequence == sorted(sequence)


def test_counts_and_batches_come_in_the_order_they_are_asked():
    rows = rows_of("llama3-8b", "dgx-h100:2", batches=(32, 16), counts=(2, 1), pins="tp=8 pp=1")
    found = list(dict.fromkeys(zip(rows["nodes"].tolist(), rows["batch"].tolist(), strict=True)))
    assert found == [(2, 32), (2, 16), (1, 32), (1, 16)]


def test_experts_stay_whole_or_are_split_as_all_else():
    rows = rows_of("mixtral-8x7b", "dgx-h100:1", batches=(8,))
    assert set(zip(rows["tp"].tolist(), rows["etp"].tolist(), strict=True)) == {
        (1, 1),
        (2, 1),
        (2, 2),
        (4, 1),
        (4, 4),
        (8, 1),
        (8, 8),
    }
    assert values(rows_of("mixtral-8x7b", "dgx-h100:1", batches=(8,), pins="etp=4"), "tp") == [4]


@sweep("runtime", CATALOG.runtimes)
def test_since_names_what_a_runtime_has(runtime):
    known = CATALOG.runtime(runtime)
    for what in known.since:
        axis, _, value = what.partition("=")
        if axis in ("places_head", "recompute_modules", "fp32_sums_below_zero"):
            assert getattr(known, axis)
            continue
        if what == OVERLAPPED_SHARDS:
            assert known.overlapped_experts_zero == (0, 1, 2, 3)
            continue
        if axis == "muon":
            assert known.muon_zero
            continue
        values = known.zero_scope if axis == "zero_scope" else known.axes[axis]
        assert not value or value in map(str, values), what


def test_an_old_release_lacks_what_came_later():
    """Megatron-LM of 2021 interleaved; sequence and context parallelism, selective recomputation came after it."""
    found = options_of(prepared("gpt3-175b", "dgx-a100-80gb:64", runtime="megatron-core", release="2021"))
    assert {o[RECOMPUTE].name for *_, o in found} == {"none", "full"}
    assert {o[ZERO] for *_, o in found} == {0}
    assert not any(o[SEQUENCE_PARALLEL] or o[TP_OVERLAP] or o[DP_OVERLAP] or o[OFFLOAD] for *_, o in found)
    rows = prepared("gpt3-175b", "dgx-a100-80gb:64", runtime="megatron-core", release="2021").blocks
    assert {int(cp) for b in rows for cp in b.rows["cp"]} == {1} and any((b.rows["vpp"] > 1).any() for b in rows)
    newer = options_of(prepared("gpt3-175b", "dgx-a100-80gb:64", runtime="megatron-core", release="2022"))
    assert {o[RECOMPUTE].name for *_, o in newer} >= {"selective"}
    assert any(o[SEQUENCE_PARALLEL] for *_, o in newer) and not any(o[TP_OVERLAP] for *_, o in newer)


def test_exchanges_overlap_under_sharded_gradients_where_the_runtime_has_it() -> None:
    """Megatron-LM has it since May 2026 (core_v0.18); Primus 26.5 holds one of March."""
    megatron, primus = CATALOG.runtime("megatron-core"), CATALOG.runtime("primus")
    assert (megatron.at("2026.04").overlapped_experts_zero, primus.overlapped_experts_zero) == ((0, 1), (0, 1))
    pins = "ep_overlap=on,tp=1,pp=1,cp=1,ep=8,micro=1"
    newest = options_of(prepared("qwen3-30b-a3b", "mi300x-8:2", runtime="megatron-core", pins=pins))
    without = options_of(prepared("qwen3-30b-a3b", "mi300x-8:2", runtime="primus", pins=pins))

    assert ({o[ZERO] for *_, o in newest}, {o[ZERO] for *_, o in without}) == ({0, 1, 2, 3}, {0, 1})


@sweep(
    ("pins", "since"),
    [("cp=2", "2023.10"), ("recompute=selective", "2022.05"), ("sequence_parallel=on,tp=8", "2022.04")],
)
def test_what_came_later_is_told_with_its_date(pins, since):
    with pytest.raises(WrongQuestion, match=f"megatron-core can do that since {since}; ask for a newer release"):
        prepared("gpt3-175b", "dgx-a100-80gb:64", runtime="megatron-core", release="2021", pins=pins)


def test_a_runtime_removes_what_it_cannot_express():
    rows = rows_of("llama3-8b", "dgx-h100:2", batches=(16,), runtime="fsdp")
    assert all(values(rows, axis) == [1] for axis in ("tp", "pp", "vpp", "cp", "ep"))
    assert values(rows, "dp") == [16]
    rows = rows_of("llama3-8b", "dgx-h100:2", batches=(16,), runtime="deepspeed")
    assert values(rows, "cp") == values(rows, "vpp") == [1]
    assert len(values(rows, "pp")) > 1


@given(st.integers(1, 100_000))
@settings(derandomize=True)
def test_divisors(n):
    found = divisors(n)
    assert found == sorted(set(found))
    assert all(n % d == 0 for d in found)
    assert found[0] == 1
    assert found[-1] == n
    if n <= 2000:
        assert found == [d for d in range(1, n + 1) if n % d == 0]


# ---- pins ------------------------------------------------------------------------------------------------------------

GOOD = [
    ("tp=8", {"tp": Bound(("8",))}),
    ("tp=8,pp=4..16", {"tp": Bound(("8",)), "pp": Bound((), 4, 16)}),
    (" tp=8   pp=2 ", {"tp": Bound(("8",)), "pp": Bound(("2",))}),
    ("pp=4..", {"pp": Bound((), 4, None)}),
    ("pp=..4", {"pp": Bound((), None, 4)}),
    ("pp=4..4", {"pp": Bound((), 4, 4)}),
    ("tp=1|2|4", {"tp": Bound(("1", "2", "4"))}),
    ("precision=bf16|fp8", {"precision": Bound(("bf16", "fp8"))}),
    ("precision=BF16|MXFP4", {"precision": Bound(("bf16", "mxfp4"))}),
    ("zero=0|1", {"zero": Bound(("0", "1"))}),
    ("zero-scope=node|nodes:1|nodes:04", {"zero_scope": Bound(("node", "node", "nodes:4"))}),
    ("sequence_parallel=Yes", {"sequence_parallel": Bound(("on",))}),
    ("dp_overlap=0", {"dp_overlap": Bound(("off",))}),
    ("recompute=selective|block:0.25", {"recompute": Bound(("selective", "block:0.25"))}),
    ("rank_order=tp-cp-ep-pp-dp", {"rank_order": Bound(("tp-cp-ep-pp-dp",))}),
    ("offload=optimizer", {"offload": Bound(("optimizer",))}),
    ("", {}),
    (" , ", {}),
]


@sweep(("text", "bounds"), GOOD)
def test_pins_are_read(text, bounds):
    read = parse_pins([text])
    assert dict(read.bounds) == bounds
    # What a pin prints is what it reads.
    assert parse_pins([str(read)]) == read


def test_pins_add_up():
    assert parse_pins(["tp=8", "pp=2,cp=1"]) == parse_pins(["tp=8 pp=2 cp=1"])
    assert "tp" in parse_pins(["tp=8"])
    assert "pp" not in parse_pins(["tp=8"])


@worded("pins.refused")
def test_bad_pins_are_refused_in_words(text):
    with pytest.raises(WrongQuestion) as raised:
        parse_pins([text])
    assert "\n" not in str(raised.value)
    return raised.value


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
@settings(derandomize=True)
def test_a_range_lets_through_what_lies_in_it(a, b, value):
    low, high = sorted((a, b))
    pins = parse_pins([f"tp={low}..{high}"])
    assert pins.allow("tp", value) == (low <= value <= high)
    assert pins.allow("pp", value)
    assert parse_pins([f"tp={low}|{high}"]).allow("tp", value) == (value in (low, high))


def test_pins_bound_the_space():
    found = prepared(
        "llama3-8b", "dgx-h100:4", batches=(64,), pins="tp=2|4 pp=2..8 zero=1 recompute=block:0.3 micro=..2"
    )
    assert found.blocks
    for block in found.blocks:
        assert set(block.rows["tp"]) <= {2, 4}
        assert 2 <= block.rows["pp"].min() <= block.rows["pp"].max() <= 8
        assert block.rows["micro"].max() <= 2
        assert [p.name for p in block.axes[RECOMPUTE]] == ["block:0.3"]
        assert set(block.axes[ZERO]) == {1}


def test_recomputation_policies():
    assert [recompute(name) for name in ("none", "selective", "full")] == [NO_RECOMPUTE, SELECTIVE, FULL]
    assert (recompute("block:0.25").layers, recompute("block:0.25").selective) == (0.25, 0.0)


def test_modules_are_recomputed_by_name():
    """In one order; attention's scores are what selective alone means."""
    some = recompute("selective:moe_act+layernorm")
    assert (some.name, some.selective) == ("selective:layernorm+moe_act", 0.0)
    assert recompute("selective:core_attn") is SELECTIVE
    assert recompute("selective:mlp+core_attn").selective == 1.0
    for wrong, said in (("moe_at", "moe_act?"), ("mlp+mlp", "stands twice"), ("", "is no module")):
        with pytest.raises(WrongQuestion, match=re.escape(said)):
            recompute(f"selective:{wrong}")


def test_only_modules_that_a_model_has_and_a_runtime_names():
    assert modules_of(LLAMA.workload.model) == ("mlp",)
    assert modules_of(MIXTURE.workload.model) == ("layernorm", "moe_act", "moe")
    assert modules_of(LATENT.workload.model) == ("layernorm", "moe_act", "mla_up_proj", "mlp", "moe")
    with pytest.raises(WrongQuestion, match="llama3-8b, megatron-core can recompute core_attn, mlp"):
        prepared("llama3-8b", "dgx-h100:2", batches=(16,), pins="recompute=selective:moe_act")
    with pytest.raises(WrongQuestion, match="moe does not go with ep_overlap=on"):
        prepared("mixtral-8x7b", "dgx-h100:4", batches=(64,), pins="recompute=selective:moe ep_overlap=on")
    with pytest.raises(WrongQuestion, match="cannot recompute modules by name"):
        prepared("llama3-8b", "dgx-h100:2", batches=(16,), runtime="fsdp2", pins="recompute=selective:mlp")


# ---- options and blocks ----------------------------------------------------------------------------------------------


def options_of(found) -> set[tuple]:
    """(tp > 1, replicas, stages, interleaved, options) that occur."""
    return {
        (bool(b.rows["tp"][0] > 1), bool(b.rows["dp"][0] * b.rows["cp"][0] > 1), b.rows["pp"][0] > 1, b.axes.at(place))
        for b in found.blocks
        for place in np.ndindex(*b.axes.shape)
    }


def test_options_exist_where_they_mean_something():
    for tensor, replicas, staged, o in options_of(prepared("llama3-8b", "dgx-h100:2", batches=(16,))):
        assert tensor or not (o[SEQUENCE_PARALLEL] or o[TP_OVERLAP])
        assert o[SEQUENCE_PARALLEL] or not o[TP_OVERLAP]
        assert replicas or (o[ZERO], o[ZERO_SCOPE], o[DP_OVERLAP]) == (int(o[OFFLOAD]), "full", False)
        assert o[ZERO_SCOPE] == "full" or o[ZERO] > 0
        assert (replicas and staged) or o[RANK_ORDER] == RANK_ORDER.neutral
        assert not staged or o[ZERO] <= 1
        assert o[PRECISION] == "bf16"


def test_mixtures_with_tensor_parallelism_are_sequence_parallel():
    found = options_of(prepared("mixtral-8x7b", "dgx-h100:1", batches=(8,)))
    assert all(o[SEQUENCE_PARALLEL] for tensor, _, _, o in found if tensor)


def test_where_weights_are_gathered_anyway_shards_go_with_stages():
    found = options_of(prepared("llama3-8b", "dgx-h100:2", batches=(16,), runtime="fsdp2"))
    assert {o[ZERO] for _, replicas, staged, o in found if replicas and staged} == {3}
    assert all(o[SEQUENCE_PARALLEL] for tensor, _, _, o in found if tensor)


@sweep(("runtime", "stages"), [("megatron-core", {1}), ("deepspeed", {1, 2, 3})])
@sweep("nodes", [1, 2])
def test_an_offloaded_optimizer_is_a_distributed_one(runtime, stages, nodes):
    found = options_of(prepared("gpt2", f"dgx-h100:{nodes}", batches=(16,), runtime=runtime))
    assert {o[ZERO] for _, replicas, staged, o in found if o[OFFLOAD] and replicas and not staged} == stages
    assert {o[ZERO] for _, replicas, _, o in found if o[OFFLOAD] and not replicas} == {1}
    assert 0 in {o[ZERO] for *_, o in found if not o[OFFLOAD]}


def test_a_pin_on_an_offload_that_no_runtime_has_is_told():
    asked = request("gpt2", "dgx-h100:1", batches=(16,), pins="zero=0,offload=optimizer")
    with pytest.raises(WrongQuestion, match="megatron-core offloads the optimizer with zero 1 only"):
        prepare(CATALOG, asked)


def test_blocks_part_the_rows():
    asked = request("llama3-8b", "dgx-h100:2", batches=(16,))
    inside = RuleSetting(asked.workload, asked.cluster, asked.runtime)
    rows = layouts(Question(inside, asked.counts, asked.batches, asked.pins))
    found = list(blocks(rows, asked.workload, asked.cluster, asked.runtime, asked.pins))
    assert sum(block.height for block in found) == len(rows["tp"])
    assert all({0.0, 1.0} <= set(block.axes[OFFLOAD]) for block in found)
    assert [block.size for block in found] == [block.height * block.width for block in found]
    for block in found:
        for column in (block.rows["tp"] > 1, block.rows["dp"] * block.rows["cp"] > 1, block.rows["pp"] > 1):
            assert column.all() or not column.any()
        assert block.shape == (*block.axes.shape, block.height)


def test_families_tell_apart_all_but_micro_batch_and_interleaving():
    found = prepared("mixtral-8x7b", "dgx-h100:1", batches=(8, 16)).blocks
    axes = ("nodes", "batch", "tp", "pp", "cp", "ep", "etp")
    known = {}
    for block in found:
        for row, family in enumerate(block.family.tolist()):
            degrees = tuple(int(block.rows[axis][row]) for axis in axes)
            assert known.setdefault(family, degrees) == degrees
    assert len(set(known.values())) == len(known)


def test_a_single_plan_is_a_point_of_the_open_grid():
    found = prepared("llama3-8b", "dgx-h100:1", batches=(8,), pins="precision=bf16|fp8")
    block = found.blocks[-1]
    grid = open_grid(found.figures, block)
    place = tuple(size - 1 for size in block.axes.shape)
    layout = {axis: int(column[-1]) for axis, column in block.rows.items()}
    one = single_grid(found.figures, layout, block.axes.at(place))
    for record in ("shape", "device", "network", "stack", "layout", "options"):
        whole, point = getattr(grid, record), getattr(one, record)
        for name in type(whole).__slots__:
            value = np.broadcast_to(getattr(whole, name), block.shape)[(*place, -1)]
            assert value == getattr(point, name), name


# ---- where nothing is left -------------------------------------------------------------------------------------------


@worded("pins.impossible", read=json.loads)
def test_a_pin_that_leaves_nothing_is_told_with_what_is_possible(asked):
    model, pins = asked
    with pytest.raises(WrongQuestion) as raised:
        prepared(model, "dgx-h100:16", batches=(1024,), pins=pins)
    assert "\n" not in str(raised.value)
    return raised.value


@sweep(("runtime", "pins"), [("fsdp", "tp=2"), ("fsdp2", "offload=optimizer"), ("deepspeed", "cp=2")])
def test_a_runtime_at_fault_is_named(runtime, pins):
    with pytest.raises(WrongQuestion, match=rf"{pins}: {runtime} .* can be "):
        prepared("llama3-8b", "dgx-h100:2", batches=(64,), runtime=runtime, pins=pins)


def test_what_is_said_to_be_possible_is():
    for axis in ("tp", "pp", "cp", "ep", "dp", "micro", "vpp"):
        with pytest.raises(WrongQuestion) as raised:
            prepared("mixtral-8x7b", "dgx-h100:2", batches=(64,), pins=f"{axis}=7")
        listed = str(raised.value).split(f"{axis} can be ")[1].split(" here")[0]
        for value in listed.removesuffix(", ...").split(", "):
            assert prepared("mixtral-8x7b", "dgx-h100:2", batches=(64,), pins=f"{axis}={value}").blocks


def test_a_batch_that_goes_nowhere_names_its_rule():
    with pytest.raises(WrongQuestion) as raised:
        prepared("llama3-8b", "dgx-h100:2", batches=(7,), runtime="fsdp")
    assert "batch_divides" in str(raised.value)
    assert "try --batch 16" in str(raised.value)


def test_pins_that_exclude_one_another():
    asked = request("llama3-8b", "dgx-h100:2", batches=(16,))
    asked = replace(asked, pins=Pins({"tp": Bound(("3",)), "pp": Bound(("5",)), "cp": Bound(("7",))}))
    with pytest.raises(WrongQuestion, match="exclude one another"):
        prepare(CATALOG, asked)


@pytest.mark.parametrize(
    ("degrees", "able"),
    [
        ({}, True),
        ({"ep": 16}, True),
        ({"ep": 32}, False),  # half of the experts
        ({"tp": 8, "dp": 8}, True),
        ({"tp": 8, "cp": 4, "dp": 2}, False),  # half a replica
        ({"dp": 16}, False),  # one copy
        ({"dp": 24}, False),  # one and a half
    ],
)
def test_nodes_share_copies_that_are_whole(degrees, able):
    """Two nodes of eight, of a stage of 64 ranks unless it says otherwise."""
    rows = {axis: np.array([degrees.get(axis, usual)]) for axis, usual in USUAL.items()}
    assert shared_by(2, rows, cluster("dgx-h100:8")).tolist() == [able]


USUAL = {"tp": 1, "cp": 1, "dp": 64, "ep": 1, "etp": 1}


def test_counts_of_nodes_that_can_share_a_copy_are_named_where_one_cannot():
    """Of eight nodes two or four can; three leave no whole copies."""
    with pytest.raises(WrongQuestion, match=r"zero_scope can be full, node, nodes:2, nodes:4 here"):
        prepared("llama3-8b", "dgx-h100:8", pins="zero_scope=nodes:3 zero=1")
