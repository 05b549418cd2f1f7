"""Multi-token prediction modules: counted, written down, checked, exported, read back."""

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from planner import api, catalog, verify
from planner.base.errors import WrongQuestion
from planner.launchers import bundle, parts, plan_facts
from planner.launchers.reading import imported_plan
from planner.planning import comparison, document
from planner.procurement.question.reading import read
from planner.schema.plan import Plan
from tests.asking import ask
from tests.launchers.environments import given
from tests.sweeps import sweep

H100 = "dgx-h100:128"
PINS = ["ep=64", "pp=8", "tp=2", "recompute=full"]


@cache
def estimated(modules: int, *more: str) -> Plan:
    """DeepSeek-V3 on a given split."""
    return api.estimate("deepseek-v3", H100, [*PINS, *more], mtp_layers=modules).plans[0]


plain, one, two = (partial(estimated, modules) for modules in (0, 1, 2))


def test_a_module_is_one_more_layer_and_the_head_once_more() -> None:
    """``FLOPs = 6 tokens (layer + h V)``: of the layer's products and scores, by the model's own difference."""
    assert "mtp_layers" not in document.dump(plain())["workload"]
    assert document.dump(one())["workload"]["mtp_layers"] == 1
    held = [sum(stage.layers for stage in plan.parallelism.stages) for plan in (plain(), one(), two())]
    assert held == [61, 62, 63]
    assert plain().workload.parameters == one().workload.parameters == 671_026_404_352
    first, second = (
        more.prediction.model_flops - less.prediction.model_flops for less, more in ((plain(), one()), (one(), two()))
    )
    assert first == pytest.approx(second, rel=1e-9)
    tokens = one().batch.global_ * one().workload.sequence
    # One layer: latent attention, its scores in full, 8 of 256 experts, the shared one and the router; and the head.
    h, heads, expert = 7168, 128, 3 * 7168 * 2048
    attention = h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * 256 + heads * 128 * h
    layer = attention + 9 * expert + h * 256 + 4096 * heads * (192 + 128)
    assert first == pytest.approx(6 * tokens * (layer + h * 129_280), rel=1e-6)


def test_more_modules_take_more_time() -> None:
    """Also where the last stage gives up layers for their heads, so that its logits do not show in the step."""
    times = [plan.prediction.step_time_s for plan in (plain(), one(), two())]
    assert times == sorted(set(times))
    assert "logits" not in plain().prediction.breakdown
    shown = [plan.prediction.breakdown.get("logits", 0.0) for plan in (one(), two())]
    assert shown == sorted(shown)


def test_losses_that_wait_are_kept() -> None:
    """``4 t V`` bytes for each module: its logits in fp32, until the model's own loss has had its backward pass."""
    held = [
        api.estimate("llama3-8b", "dgx-h100:2", ["micro=1"], mtp_layers=n).plans[0].prediction.memory for n in (0, 1, 2)
    ]
    more = [one.buffers_bytes - other.buffers_bytes for one, other in zip(held[1:], held[:2], strict=True)]
    assert all(4 * 8192 * 128_256 <= each <= 1.2 * 4 * 8192 * 128_256 for each in more)


@sweep(("said", "told"), [("17", "must be from 0 to 16"), ("true", "True"), ('"1"', "1")])
def test_a_portfolio_asks_for_modules_too(tmp_path: Path, said: str, told: str) -> None:
    text = """name = "mtp"
currency = "USD"
as_of = "2026-11-20"
horizon = "3 months"
[[owned]]
node = "dgx-h100"
count = 2
[[workloads]]
model = "llama3-8b"
tokens = "1B"
mtp_layers = {}
"""
    file = tmp_path / "portfolio.toml"
    file.write_text(text.format(said))
    with pytest.raises(WrongQuestion, match=f"mtp.layers.*{told}"):
        read(file, catalog.load(None))
    file.write_text(text.format(1))
    (job,) = read(file, catalog.load(None)).jobs
    assert job.asked.mtp_layers == 1


@pytest.mark.slow
def test_the_whole_search_counts_them() -> None:
    """The best plan with a module is no faster than the best without, and passes the checker."""
    found = [api.plan("moonlight-16b-a3b", "dgx-h100:4", mtp_layers=modules, top=1).plans[0] for modules in (0, 1)]
    assert found[0].prediction.step_time_s < found[1].prediction.step_time_s
    assert any("MTP module" in a.what for a in found[1].assumptions)
    assert not any("MTP module" in a.what for a in found[0].assumptions)


def test_leading_layers_are_in_first_chunks() -> None:
    """With 62 layers, pp 2 and vpp 31, the third dense layer would be the first stage's second chunk."""
    with pytest.raises(WrongQuestion, match="leading dense layers do not fit into the first chunks of its stages"):
        api.plan("deepseek-v3", "dgx-h100:64", pin=["pp=2", "vpp=31"], mtp_layers=1)
    assert api.estimate("deepseek-v3", H100, ["pp=4", "ep=64", "vpp=2"], mtp_layers=1).plans


def test_a_stage_between_holds_some() -> None:
    """Of 61 layers in stages of 15, 16, 15 and 15, in 8 chunks, the second begins with two dense layers."""
    plan = api.estimate("deepseek-v3", "dgx-h100:64", ["pp=4", "ep=64", "vpp=8"]).plans[0]
    assert [stage.layers for stage in plan.parallelism.stages] == [15, 16, 15, 15]
    verify.check(plan, may_exceed_limits=True)


@pytest.mark.slow
def test_unlike_pools_deal_them() -> None:
    pools = ["dgx-h100:1", "dgx-a100-80gb:1"]
    plan = api.plan("moonlight-16b-a3b", pools, mtp_layers=1, top=1).plans[0]
    assert plan.workload.mtp_layers == 1 and plan.parallelism.groups
    assert all(sum(s.layers for s in group.stages) == 28 for group in plan.parallelism.groups)


def edited(plan: Plan, **workload: Any) -> Plan:
    """The plan with other words on its workload."""
    return replace(plan, workload=replace(plan.workload, **workload))


@sweep(
    ("modules", "workload", "says"),
    [
        (1, {"mtp_layers": None}, "of 61 layers"),
        (1, {"mtp_layers": 2}, "of 63 layers"),
        (0, {"mtp_layers": 1}, "of 62 layers"),
        (1, {"mtp_layers": 0}, "mtp_layers is 0"),
        (1, {"mtp_layers": -1}, "mtp_layers is -1"),
        (1, {"method": {"kind": "lora", "rank": 8, "targets": ["q"]}}, "mtp_layers is 1"),
    ],
)
def test_the_checker_recounts(modules: int, workload: dict[str, Any], says: str) -> None:
    plan = edited(estimated(modules), **workload)
    verify.check(one())
    with pytest.raises(verify.Inconsistent, match=says):
        verify.check(plan)


def test_the_report_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    line = "estimate moonlight-16b-a3b --cluster dgx-h100:4 ep=8 --mtp-layers"
    assert "Moonlight 16B-A3B with 1 MTP module, pre-training" in ask(capsys, f"{line} 1").report
    assert "MTP" not in ask(capsys, f"{line} 0").report


def test_plans_with_and_without_are_other_questions() -> None:
    assert "multi-token prediction modules" in comparison.compare(plain(), one()).questions


# ---- launchers -------------------------------------------------------------------------------------------------------


def argv(plan: Plan) -> list[str]:
    """Megatron's arguments."""
    found: list[str] = json.loads(bundle(plan, parts("megatron"), given("megatron")).files["target.json"])["argv"]
    return found


def test_megatron_gets_them_in_the_last_chunk() -> None:
    told = argv(two())
    assert told[told.index("--mtp-num-layers") + 1] == "2"
    assert told[told.index("--num-layers") + 1] == "61"
    layout = told[told.index("--pipeline-model-parallel-layout") + 1]
    assert layout.endswith("m*2L")
    assert layout.count("|") == 7
    assert "--mtp-num-layers" not in argv(plain())
    one = api.estimate("moonlight-16b-a3b", "dgx-h100:4", ["ep=8"], mtp_layers=1).plans[0]
    assert "--pipeline-model-parallel-layout" not in argv(one)


def test_what_no_launcher_could_start_is_refused() -> None:
    short = estimated(16, "vpp=2")
    assert plan_facts.chunks(short)[-1] < 16
    with pytest.raises(WrongQuestion, match="all 16 modules of multi-token prediction are in the last chunk"):
        argv(short)
    dense = api.estimate("llama3-8b", "dgx-h100:4", runtime="fsdp2", mtp_layers=1).plans[0]
    with pytest.raises(WrongQuestion, match="the module it needs has no multi-token prediction"):
        bundle(dense, parts("torchtitan"), {})
    made = bundle(dense, parts("accelerate"), given("accelerate"))
    assert "workload.mtp_layers" in {loss.field for loss in made.losses}


def test_import_reads_them_back() -> None:
    back = imported_plan.plan("megatron", "pretrain_gpt.py " + " ".join(f"'{word}'" for word in argv(one())), [H100])
    plan = back.plans.plans[0]
    assert (plan.workload.model, plan.workload.mtp_layers) == ("deepseek-v3", 1)
    assert plan.prediction.step_time_s == pytest.approx(one().prediction.step_time_s, rel=1e-9)
    assert not back.differs


def test_import_knows_where_megatron_puts_them_itself() -> None:
    """Without a layout the last stage holds them beside its share of the layers."""
    command = (
        "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --bf16 "
        "--group-query-attention --num-query-groups 8 --vocab-size 128256 --swiglu --normalization RMSNorm "
        "--disable-bias-linear --untie-embeddings-and-output-weights --seq-length 8192 --rotary-base 500000 "
        "--position-embedding-type rope --micro-batch-size 1 --global-batch-size 256 --train-iters 1000 "
        "--use-distributed-optimizer --pipeline-model-parallel-size 4 --mtp-num-layers 1"
    )
    back = imported_plan.plan("megatron", command, ["dgx-h100:2"])
    assert back.differs == ("stages hold [8, 8, 8, 9] layers; predicted as [8, 9, 8, 8]",) or back.differs
