"""How tokens reach experts on other ranks: what each way sends and holds, where it runs, what starts it."""

import json
from dataclasses import replace

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.cost import experts, stage_memory
from planner.launchers import bundle, parts, reading
from planner.launchers.reading.megatron_options import dispatcher
from planner.schema.plan import Plan
from planner.space.cost_grid import single_grid
from planner.verify import violations
from tests.cases import figures
from tests.launchers.environments import given
from tests.sweeps import sweep
from tests.test_overlap import _plain, figures_of, with_layout
from tests.words import worded

SPREAD = "tp=1 pp=2 ep=32 micro=1 zero=1"


def estimated(on: str, *pins: str, model: str = "qwen3-30b-a3b", runtime: str = "megatron-core") -> Plan:
    batch = 1152 if on.startswith("gb200") else 128
    return api.estimate(model, on, list(pins), batch=batch, runtime=runtime).plans[0]


def test_what_is_sent_by_hand() -> None:
    """16 ranks of two nodes: 4 copies a token to all of them, 0.46875 of those that cross, or 16 ranks' tokens each."""
    grid = with_layout(single_grid(figures_of("windows"), *_plain("windows")), ep=16, dp=16)
    asked = {
        name: experts.dispatch(replace(grid, options=replace(grid.options, dispatcher=code)))
        for name, code in {"own": 0.0, "alltoall": 1.0, "deepep": 2.0, "allgather": 3.0}.items()
    }
    s, tokens = grid.shape, grid.layout.micro * grid.shape.sequence
    spread = grid.stack.expert_imbalance
    assert (
        asked["alltoall"].bytes_sent == asked["deepep"].bytes_sent == pytest.approx(2 * tokens * 4 * s.hidden * spread)
    )
    assert asked["allgather"].bytes_sent == pytest.approx(2 * tokens * 16 * s.hidden)
    assert asked["own"].seconds == asked["deepep" if float(grid.stack.dispatch_once) else "alltoall"].seconds
    assert asked["deepep"].seconds < asked["alltoall"].seconds
    gathered = replace(grid, options=replace(grid.options, dispatcher=3.0))
    more = stage_memory.passing(gathered, 0.0).layer - stage_memory.passing(grid, 0.0).layer
    assert more == pytest.approx(2 * asked["allgather"].bytes_sent)


@sweep(
    ("parts", "copies", "groups", "kept", "reached"),
    [
        (8, 8, 1, 1, 8 * (1 - (7 / 8) ** 8)),
        (4, 8, 8, 4, 4 * (1 - 15 / 70)),  # of C(8, 4) = 70 choices of groups C(6, 4) = 15 leave a node of two out
        (8, 8, 8, 4, 4.0),
        (32, 8, 8, 4, 4 * 4 * (1 - (3 / 4) ** 2)),  # each of four groups sends two copies to its four ranks
        (64, 1, 1, 1, 1.0),
        (1, 8, 8, 4, 1.0),
    ],
)
def test_ranks_that_a_token_reaches(parts: int, copies: int, groups: int, kept: int, reached: float) -> None:
    grid = single_grid(figures_of("windows"), *_plain("windows"))
    shape = replace(
        grid.shape, experts_per_token=float(copies), expert_groups=float(groups), groups_per_token=float(kept)
    )
    assert experts.distinct(replace(grid, shape=shape), float(parts)) == pytest.approx(reached)


@sweep(
    ("node", "ranks", "measured_s"),
    [
        # deepseek-ai/DeepEP@94a9f8f docs/README_Hybrid-EP.md, kernels, 16 bit: 4,096 tokens of width 7,168, 8 of the
        # experts each, 8 experts a rank. Bytes over the table's GB/s: over nodes reached of H100, ranks of GB200.
        ("dgx-h100:4", 32, 3.599 * 4096 * 7168 * 2 / 57.69e9),
        ("dgx-h100:8", 64, 5.251 * 4096 * 7168 * 2 / 50.55e9),
        ("gb200-nvl72:1", 8, 5.251 * 4096 * 7168 * 2 / 764.03e9),
        ("gb200-nvl72:1", 16, 6.454 * 4096 * 7168 * 2 / 706.95e9),
        ("gb200-nvl72:1", 36, 7.266 * 4096 * 7168 * 2 / 632.31e9),
    ],
)
def test_a_fused_dispatch_takes_what_was_measured(node: str, ranks: int, measured_s: float) -> None:
    """Within 15 %: one rate of links and one of NICs, set by these tables, stand for all sizes of a generation."""
    known = figures("qwen3-30b-a3b", node, "megatron-core", "2026.06", ("bf16",))
    grid = single_grid(replace(known, shape=replace(known.shape, pattern=None)), *_plain("windows"))
    shape = replace(grid.shape, experts_per_token=8.0, hidden=7168.0, sequence=4096.0)
    grid = with_layout(replace(grid, shape=shape, options=replace(grid.options, dispatcher=2.0)), ep=ranks, dp=ranks)
    assert experts.dispatch(grid).seconds == pytest.approx(measured_s, rel=0.15)


def test_experts_over_nodes_are_priced_and_started_the_same_way() -> None:
    """Nobody asked: the runtime's figures send copies once, so its plan says by what; in one node nothing is said."""
    far, near = estimated("dgx-h100:8", SPREAD), estimated("dgx-h100:8", SPREAD.replace("32", "8"))
    assert (far.dispatcher, near.dispatcher) == ("deepep", None)
    assert far.prediction == estimated("dgx-h100:8", SPREAD, "dispatcher=deepep").prediction
    assert far.prediction.step_time_s < estimated("dgx-h100:8", SPREAD, "dispatcher=alltoall").prediction.step_time_s
    assert estimated("gb200-nvl72:16", "tp=1 ep=128 micro=1 zero=1").dispatcher == "hybridep"
    without, plain = (
        estimated("ws-4xpro6000:16", "tp=1 ep=16 micro=1 zero=1", f"dispatcher={x}") for x in ("none", "alltoall")
    )
    assert without.dispatcher is None and without.prediction == plain.prediction  # no kernels there


@pytest.mark.slow
@sweep("name", ["alltoall", "allgather", "deepep", "hybridep"])
@sweep("target", ["megatron", "megatron-bridge"])
def test_it_is_written_and_read_back(name: str, target: str) -> None:
    plan = estimated("dgx-h100:8", SPREAD, f"dispatcher={name}")
    assert plan.dispatcher == name and not violations(plan)
    written = "".join(bundle(plan, parts(target), given(target)).files.values())
    assert name in written and ("flex" in written) == (name in ("deepep", "hybridep"))
    if target == "megatron":
        found = reading.plan(
            "megatron", bundle(plan, parts(target), given(target)).files["start.sh"], ["dgx-h100:8"]
        ).plans.plans[0]
        assert found.dispatcher == name


@worded("dispatchers.refused", read=json.loads)
def test_what_does_not_run_is_refused(question: tuple[str, str, str]) -> WrongQuestion:
    on, pins, runtime = question
    with pytest.raises(WrongQuestion) as raised:
        estimated(on, pins, runtime=runtime)
    if runtime == "megatron-core":
        with pytest.raises(WrongQuestion, match="has no experts"):
            api.estimate("llama3-8b", "dgx-h100:1", ["dispatcher=alltoall"], batch=64, runtime=runtime)
    return raised.value


def test_verify_finds_a_dispatcher_without_other_ranks() -> None:
    near = estimated("dgx-h100:8", "ep=1 tp=8 zero=1")
    wrong = replace(near, dispatcher="deepep")
    assert "dispatcher_runs" in {violation.name for violation in violations(wrong)}


def test_a_script_that_says_nothing_gathers() -> None:
    """Megatron's own default (core/transformer/transformer_config.py, moe_token_dispatcher_type)."""
    flags = {"num-experts": ["8"], "expert-model-parallel-size": ["8"]}
    assert dispatcher(flags) == "allgather"
    assert dispatcher(flags | {"moe-token-dispatcher-type": ["flex"]}) == "deepep"
    assert dispatcher(flags | {"expert-tensor-parallel-size": ["2"]}) is None
    assert dispatcher({"num-experts": ["8"]}) is None


@pytest.mark.parametrize("machines", ["gb200-nvl72:2", "vr-nvl144:2"])
def test_verify_knows_which_dispatchers_an_accelerator_has(machines: str) -> None:
    """Beside a Grace or a Vera processor HybridEP runs and DeepEP does not, by one list of the catalog."""
    plan = api.estimate("qwen3-30b-a3b", machines, ["tp=1", "ep=8", "dispatcher=hybridep"], batch=1152).plans[0]

    assert plan.cluster.pools[0].dispatchers == ("hybridep",)
    assert not violations(plan)
    assert "dispatcher_runs" in {violation.name for violation in violations(replace(plan, dispatcher="deepep"))}


def test_verify_knows_which_attention_kernels_an_accelerator_has() -> None:
    """FlashAttention-3 is for Hopper, by the catalog's list that the plan's pool carries; MI300X lists none."""
    plan = api.estimate("llama3-8b", "dgx-b200:1", ["tp=1", "attention_kernel=flash-4"], batch=64).plans[0]
    amd = api.estimate("llama3-8b", "mi300x-8:1", ["tp=1"], batch=64).plans[0]

    assert plan.cluster.pools[0].attention_kernels == ("cudnn", "flash-2", "flash-4", "triton")
    assert not violations(plan)
    for wrong in (replace(plan, attention_kernel="flash-3"), replace(amd, attention_kernel="flash-3")):
        assert "attention_kernel_runs" in {violation.name for violation in violations(wrong)}


def test_flash_attention_3_has_no_dropout() -> None:
    """GPT-2 is trained with dropout: of FlashAttention its plans have the second, and verify finds another."""
    pins = {"tp": 1, "batch": 64}
    plan = api.estimate("gpt2-xl", "dgx-h100:1", attention_kernel="flash-2", **pins).plans[0]

    with pytest.raises(WrongQuestion, match=r"neither flash-3 nor flash-4 with dropout.*can be cudnn, flash-2, none"):
        api.estimate("gpt2-xl", "dgx-h100:1", attention_kernel="flash-3", **pins)
    assert not violations(plan)
    assert "attention_kernel_runs" in {v.name for v in violations(replace(plan, attention_kernel="flash-3"))}
