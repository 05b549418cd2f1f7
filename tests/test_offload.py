"""Activations and parts of the optimizer in host memory: planned, priced, checked, exported and read back."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner import api
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import load
from planner.launchers import bundle, parts, reading, write
from planner.schema.plan import Plan
from planner.verify import violations
from tests.answered_once import answered_once
from tests.launchers.environments import given
from tests.sweeps import sweep
from tests.words import worded

GIB = 2.0**30


@answered_once
def estimated(pins: str, name: str = "llama3-8b", runtime: str = "megatron-core") -> Plan:
    return api.estimate(name, "dgx-h100:2", ["micro=1", *pins.split()], batch=64, runtime=runtime).plans[0]


def named(plan: Plan) -> set[str]:
    return {violation.name for violation in violations(plan)} - {"limits_hold"}


def test_inputs_of_attention_leave_the_accelerator() -> None:
    """By hand: 32 layers of 8,192 tokens; queries 32 x 128, keys and values 8 x 256, all in 16 bit. The last layer's
    stay, and one's are copied; the rest is held in blocks of the allocator."""
    plain, away = estimated("zero=1"), estimated("zero=1 activation_offload=core_attn")
    each = 8192 * (32 * 128 + 8 * 256) * 2
    assert away.offloaded is not None and away.offloaded.activations_bytes == 30 * each
    gone = plain.prediction.memory.activations_bytes - away.prediction.memory.activations_bytes
    assert 30 * each <= gone <= 1.5 * 30 * each
    assert away.prediction.step_time_s == plain.prediction.step_time_s  # 63 GB/s copy them within a layer's pass
    assert not named(away) and "offload" not in away.prediction.breakdown


def test_a_slow_link_shows() -> None:
    """What a layer's pass does not cover is waited for, both ways."""
    plan = estimated("ep=8 zero=1 activation_offload=moe_act", "mixtral-8x7b")
    plain = estimated("ep=8 zero=1", "mixtral-8x7b")
    assert plan.prediction.breakdown["offload"] > 0
    assert plan.prediction.step_time_s > plain.prediction.step_time_s
    assert "offloaded_bytes_are_possible" not in named(plan)


def test_everything_leaves_but_five_tensors() -> None:
    """TRL keeps five on their way; with whole layers recomputed these are layers' inputs."""
    pins = "zero=0 recompute=full activation_offload=all"
    away = estimated(pins, runtime="hf-trainer")
    assert away.offloaded is not None and away.offloaded.activations_bytes == 27 * 8192 * 4096 * 2
    assert not {"offloaded_bytes_are_possible", "activations_are_possible"} & named(away)


@pytest.mark.slow
def test_of_a_part_of_the_states_a_part_is_there() -> None:
    whole, half, none = (estimated(f"zero=1 offload={p}") for p in ("optimizer", "optimizer:0.5", "none"))
    held = [plan.prediction.memory.optimizer_bytes for plan in (whole, half, none)]
    assert held[0] == 0 and held[1] == pytest.approx(held[2] / 2)
    took = [plan.prediction.breakdown["optimizer"] for plan in (whole, half, none)]
    assert took[1] == pytest.approx((took[0] + took[2]) / 2)
    beside = estimated("zero=1 offload=optimizer offload_overlap=on").prediction.breakdown["optimizer"]
    assert took[0] / 2 < beside < took[0]  # gradients out and weights back beside the host's own update


def test_weights_and_gradients_leave_with_the_states() -> None:
    """By hand: DeepSpeed's shards of 8.03 B parameters on 16 ranks; on the host 8 + 4 + 4 bytes, and 2 of weights."""
    plan = estimated("zero=3 offload=optimizer+weights", runtime="deepspeed")
    memory = plan.prediction.memory
    assert (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes) == (0, 0, 0)
    assert memory.host is not None and memory.host.optimizer_bytes == pytest.approx(18 * plan.workload.parameters / 16)
    assert plan.offload == {"optimizer": True, "weights": True} and not named(plan)
    # With activations the host's seconds are stated, too: weights and gradients cross the link in passes, not there.
    both = estimated("zero=3 recompute=full offload=optimizer+weights activation_offload=all", runtime="hf-trainer")
    assert both.offloaded is not None and both.offloaded.host_update_s > 0 and not named(both)
    pins = ["zero=3", "recompute=full", "offload=optimizer+weights"]
    asked = {"batch": 64, "runtime": "hf-trainer", "method": "finetune", "task": "dpo"}
    for_pairs = api.estimate("llama3-8b", "dgx-h100:2", ["micro=2", *pins], **asked).plans[0]  # type: ignore[arg-type]
    assert for_pairs.prediction.memory.parameters_bytes == 0 and not named(for_pairs)


def test_one_rank_waits_for_its_weights() -> None:
    """By hand, nothing overlapped: 64 times weights twice and gradients once, 2 bytes each, over the host's link."""
    pins = ["micro=1", "zero=3", "dp_overlap=off", "offload=optimizer+weights"]
    on_one = {"accelerators": {"H100": 1}, "batch": 64, "seq": 512, "runtime": "deepspeed"}
    plan = api.estimate("llama3-8b", (), pins, **on_one).plans[0]  # type: ignore[arg-type]
    host_rate = load().accelerator(plan.cluster.pools[0].accelerator).host_bandwidth
    assert plan.prediction.breakdown["dp"] == pytest.approx(64 * 6 * plan.workload.parameters / host_rate, rel=1e-6)
    assert not named(plan)


def test_weights_on_the_host_need_shards() -> None:
    with pytest.raises(WrongQuestion, match="weights live in host memory as shards alone, with zero 3"):
        estimated("zero=2 offload=optimizer+weights", runtime="deepspeed")
    plan = estimated("zero=3 offload=optimizer+weights", runtime="deepspeed")
    assert "offloaded_is_said_once" in named(replace(plan, parallelism=replace(plan.parallelism, zero_stage=2)))
    assert "offloaded_is_said_once" in named(replace(plan, offload={"optimizer": False, "weights": True}))


@pytest.mark.parametrize(("runtime", "target"), [("deepspeed", "hf-trainer"), ("hf-trainer", "trl")])
def test_weights_on_the_host_are_written_and_read_back(runtime: str, target: str, tmp_path: Path) -> None:
    pins = ["micro=1", "zero=3", "recompute=full", "offload=optimizer+weights"]
    plan = api.estimate("llama3-8b", "dgx-h100:2", pins, batch=64, runtime=runtime, method="finetune").plans[0]
    write(tmp_path / "job", {"": bundle(plan, parts(target), given(target))})
    found = reading.read("trainer", str(tmp_path / "job" / "start.sh"))
    assert (found.runtime, found.settings["zero"], found.settings["offload"]) == (runtime, 3, "optimizer+weights")


def test_host_memory_is_that_of_a_node() -> None:
    """By hand: of 8.03 B parameters a 16th on each of 8 accelerators, half of them with 8 + 4 + 4 bytes on the host."""
    plan = estimated("zero=1 offload=optimizer:0.5")
    host, limits = plan.prediction.memory.host, {each.name: each for each in plan.constraints}
    assert host is not None and host.total_bytes == pytest.approx(8 * 16 * 0.5 * plan.workload.parameters / 16)
    assert limits["host memory"].limit == host.capacity_bytes == 2048 * GIB
    assert estimated("zero=1").prediction.memory.host is None
    for change in ({"optimizer_bytes": GIB}, {"activations_bytes": GIB}, {"total_bytes": GIB}):
        memory = replace(plan.prediction.memory, host=replace(host, **change))
        wrong = replace(plan, prediction=replace(plan.prediction, memory=memory))
        assert "host_memory_is_one" in named(wrong)


def test_what_the_host_does_not_hold_is_refused() -> None:
    told = r"Host memory of a ws-2xrtx4090 is 128 GiB, and what is offloaded to it 1\.03 TiB"
    with pytest.raises(NoAnswer, match=told):
        api.estimate("llama3-70b", "ws-2xrtx4090:1", ["micro=1", "zero=1", "offload=optimizer"], batch=8)
    with pytest.raises(NoAnswer, match=told):
        api.plan("llama3-70b", "ws-2xrtx4090:1", pin=["micro=1", "zero=1", "offload=optimizer"], batch=8)


def test_a_host_that_nobody_knows_is_said() -> None:
    pins = ["micro=1", "zero=1", "offload=optimizer"]
    plan = api.estimate("gpt2", "vr-nvl144:1", pins, batch=144, runtime="megatron-core").plans[0]
    host = plan.prediction.memory.host
    assert host is not None and host.capacity_bytes is None and not named(plan)
    assert any(each.what == "vr-nvl144.host_memory" for each in plan.assumptions)


@sweep(
    ("change", "name"),
    [
        ({"optimizer_share": 0.25}, "states_follow_from_sharding"),
        ({"optimizer_share": 1.5}, "offloaded_is_said_once"),
        ({"activations": ("core_attn", "core_attn")}, "offloaded_is_said_once"),
        ({"activations": ("attn_proj",)}, "modules_can_be_offloaded"),
        ({"activations": ("moe_act", "core_attn")}, "modules_can_be_offloaded"),
        ({"activations_bytes": GIB}, "offloaded_bytes_are_possible"),
        ({"activations_bytes": 200 * GIB}, "offloaded_bytes_are_possible"),
        ({"activations": ("all",)}, "offloaded_bytes_are_possible"),
        ({"optimizer_overlap": True}, "update_follows_from_link"),
        ({"host_bytes_per_s": 1e9}, "update_follows_from_link"),
        ({"host_update_s": 1.0}, "update_follows_from_link"),
        ({"device_update_s": 1.0}, "update_follows_from_link"),
    ],
)
def test_verify_finds_what_cannot_be(change: dict[str, object], name: str) -> None:
    plan = estimated("zero=1 offload=optimizer:0.5 activation_offload=core_attn+attn_proj")
    assert plan.offloaded is not None and not named(plan)
    assert name in named(replace(plan, offloaded=replace(plan.offloaded, **change)))


def test_verify_knows_what_is_offloaded_and_how_little_stays() -> None:
    plan = estimated("zero=1 offload=optimizer offload_overlap=on")
    assert plan.offloaded is not None and not named(plan)
    assert "offloaded_is_said_once" in named(replace(plan, offload={"optimizer": True, "weights": True}))
    alone = replace(plan, offloaded=replace(plan.offloaded, device_update_s=1e-3))
    assert "update_follows_from_link" in named(alone)
    away = estimated("zero=0 recompute=full activation_offload=all", runtime="hf-trainer")
    assert away.offloaded is not None
    nowhere = replace(away.offloaded, activations_bytes=0.0)
    assert "offloaded_bytes_are_possible" in named(replace(away, offloaded=nowhere))


def test_verify_knows_what_recomputation_leaves() -> None:
    plan = estimated("zero=1 activation_offload=core_attn")
    for policy in ("selective", "full"):
        changed = replace(plan.recompute, policy=policy, layers_fraction=float(policy == "full"))
        assert "modules_can_be_offloaded" in named(replace(plan, recompute=changed))


def test_megatron_starts_it_and_is_read_back() -> None:
    plan = estimated("zero=1 offload=optimizer:0.5 offload_overlap=on activation_offload=core_attn+attn_proj")
    made = bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]
    assert "--optimizer-offload-fraction 0.5" in made and "--overlap-cpu-optimizer-d2h-h2d" in made
    assert "--fine-grained-activation-offloading" in made and "--offload-modules core_attn attn_proj" in made
    assert "NVTE_CPU_OFFLOAD_V1=1" in made
    found = reading.plan("megatron", made, ["dgx-h100:2"]).plans.plans[0]
    assert found.offloaded == plan.offloaded and found.prediction.step_time_s == plan.prediction.step_time_s


def test_bridge_and_trl_say_it_too() -> None:
    plan = estimated("zero=1 offload=optimizer:0.5 offload_overlap=on activation_offload=core_attn", runtime="nemo")
    made = bundle(plan, parts("megatron-bridge"), given("megatron-bridge")).files["bridge.json"]
    assert '"model.offload_modules": [' in made and '"optimizer.overlap_cpu_optimizer_d2h_h2d": true' in made
    pins = ["micro=1", "zero=3", "recompute=full", "activation_offload=all"]
    away = api.estimate("llama3-8b", "dgx-h100:2", pins, batch=64, runtime="hf-trainer", method="finetune").plans[0]
    for target, file in (("trl", "sft.yaml"), ("axolotl", "axolotl.yaml")):
        assert "activation_offloading: true" in bundle(away, parts(target), given(target)).files[file]
    with pytest.raises(WrongQuestion, match="activation_offload all"):
        bundle(away, parts("hf-trainer"), given("hf-trainer"))


@worded("offload.refused")
def test_what_cannot_be_is_told(pins: str) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as raised:
        api.estimate("llama3-8b", "dgx-h100:2", pins.split(), batch=64, runtime="megatron-core")
    return raised.value


@sweep(
    ("name", "pins"),
    [
        ("deepseek-v4-flash", "tp=2 recompute=selective:layernorm"),
        ("gpt-oss-20b", "tp=2 recompute=selective:layernorm"),
        ("t5-11b", "tp=2 precision=fp8"),
    ],
)
def test_what_the_products_before_attention_read_holds(name: str, pins: str) -> None:
    """Where no product is fused with the norm, where the norm that is made again is another, where two attend."""
    assert not named(estimated(f"zero=1 activation_offload=qkv_linear {pins}", name))


def test_a_small_share_is_one() -> None:
    away = estimated("zero=1 offload=optimizer:0.00001").offloaded
    assert away is not None and away.optimizer_share == 1e-5


def test_parts_of_the_optimizer_are_not_everywhere() -> None:
    with pytest.raises(WrongQuestion, match=r"deepspeed cannot do that\. offload can be none, optimizer"):
        estimated("zero=1 offload=optimizer:0.5", runtime="deepspeed")
    with pytest.raises(WrongQuestion, match=r"since 2025\.05"):
        estimated("zero=3 activation_offload=all", runtime="hf-trainer@2024")
    with pytest.raises(WrongQuestion, match=r"can do that since 2025\.02"):
        estimated("zero=1 offload=optimizer:0.5", runtime="megatron-core@2024")


def test_an_older_release_has_no_modules_in_host_memory() -> None:
    with pytest.raises(WrongQuestion, match=r"can do that since 2026\.01"):
        api.estimate(
            "llama3-8b", "dgx-h100:2", ["activation_offload=core_attn"], batch=64, runtime="megatron-core@2025.05"
        )
