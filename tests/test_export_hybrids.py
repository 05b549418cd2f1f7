"""Models of several kinds of layers as Megatron-LM's pattern: written, read back, refused where it has no letter."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import planner
from planner.base.errors import WrongQuestion
from planner.launchers import EXPORTERS, bundle, megatron_hybrid, parts, plan_facts, reading
from planner.launchers.bundle import refusals
from planner.launchers.reading import imported_plan
from planner.schema.plan import Plan
from planner.verify import violations
from tests.launchers.environments import given

START = "torchrun --nproc-per-node 8 --nnodes 4"
NVIDIA = (
    f"{START} pretrain_hybrid.py --hybrid-layer-pattern M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M- "
    "--squared-relu --disable-bias-linear --untie-embeddings-and-output-weights --normalization RMSNorm "
    "--hidden-size 4096 --ffn-hidden-size 21504 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--kv-channels 128 --mamba-num-heads 128 --position-embedding-type none --hidden-dropout 0 --attention-dropout 0 "
    "--seq-length 8192 --vocab-size 131072 --micro-batch-size 1 --global-batch-size 256 --bf16"
)
"""As examples/post_training/modelopt/conf/nvidia/Nemotron-H-8B-Base-8K.sh has it (core_v0.19.0)."""


@cache
def best(model: str, *pins: str) -> Plan:
    return planner.plan(model, "dgx-h100:4", batch=256, runtime="megatron-core", pin=list(pins), top=1).plans[0]


DENSE = ("nemotron-h-8b", "pp=2", "vpp=4")
MIXTURE = ("nemotron3-nano-30b-a3b", "pp=2", "vpp=1", "ep=8")


def argv(plan: Plan) -> list[str]:
    found: list[str] = json.loads(bundle(plan, parts("megatron"), given("megatron")).files["target.json"])["argv"]
    return found


def after(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


@pytest.mark.parametrize("asked", [DENSE, MIXTURE, ("nemotron-h-8b", "pp=1")])
def test_the_pattern_is_the_models_and_its_bars_the_stages(asked: tuple[str, ...]) -> None:
    plan = best(*asked)
    written = after(argv(plan), "--hybrid-layer-pattern")
    assert [len(chunk) for chunk in written.split("|")] == plan_facts.chunks(plan)
    published = {"nemotron-h-8b": "M-M-M-M*" + "-M-M-M-M-M*" * 3 + "-M-M-M-M-M-"}
    published["nemotron3-nano-30b-a3b"] = "MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*EMEMEMEME"
    assert written.replace("|", "") == published[asked[0]]
    absent = ("--num-layers", "--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank")
    assert not set(absent) & set(argv(plan))
    assert "/pretrain_hybrid.py" in bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]


@pytest.mark.parametrize("asked", [DENSE, MIXTURE])
def test_what_is_written_is_read_back(asked: tuple[str, ...]) -> None:
    plan = best(*asked)
    found = imported_plan.plan(
        "megatron", f"{START} pretrain_hybrid.py {' '.join(map(repr, argv(plan)))}", ["dgx-h100:4"]
    )
    again = found.plans.plans[0]
    assert (again.workload.model, found.differs) == (asked[0], ())
    assert again.prediction.step_time_s == plan.prediction.step_time_s
    assert again.parallelism == plan.parallelism


def test_nvidias_own_command_is_the_librarys_model() -> None:
    found = imported_plan.plan("megatron", NVIDIA, ["dgx-h100:4"])
    assert found.plans.plans[0].workload.model == "nemotron-h-8b"


@pytest.mark.slow
def test_a_latent_of_experts_has_an_option() -> None:
    plan = planner.plan("nemotron3-super-120b-a12b", "dgx-h100:16", batch=256, runtime="megatron-core", top=1).plans[0]
    assert after(argv(plan), "--moe-latent-size") == "1024"


def test_a_release_and_a_package_are_told() -> None:
    said = {loss.field: loss.why for loss in bundle(best(*DENSE), parts("megatron"), given("megatron")).losses}
    assert "core_v0.18.0" in said["workload.shape.mixers"] and "mamba-ssm" in said["workload.shape.mixers"]


def test_exchanges_of_experts_do_not_overlap() -> None:
    """Megatron's HybridModel has no steps of two micro-batches."""
    with pytest.raises(planner.ClusterwrightError, match="an MLP or experts in every layer"):
        best(*MIXTURE[:1], "ep=8", "ep_overlap=on")
    plan = best("nemotron3-nano-30b-a3b", "ep=8", "pp=1")
    assert not plan.overlap.ep
    claimed = replace(plan, overlap=replace(plan.overlap, ep=True))
    assert "where layers are a mixer alone" in str(violations(claimed))
    assert "no combined steps of two micro-batches" in why_not(claimed)


def why_not(plan: Plan) -> str:
    return "; ".join(refusals(plan, EXPORTERS["megatron"]))


def other(**state: Any) -> Plan:
    """The dense plan with another recurrence."""
    plan = best(*DENSE)
    shape = {**plan.workload.shape, "recurrence": {**plan.workload.shape["recurrence"], **state}}
    return replace(plan, workload=replace(plan.workload, shape=shape))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"kind": "delta"}, r"blocks with a recurrence (delta) have no flag"),
        ({"convolution": 3}, "recurrence.convolution = 3: its Mamba layers have 4"),
        ({"norm": "none"}, "recurrence.norm = none: its Mamba layers have full"),
    ],
)
def test_other_states_are_refused(state: dict[str, Any], words: str) -> None:
    assert words in why_not(other(**state))


def test_groups_are_divided_and_eight_bits_need_sixteens() -> None:
    plan = other(key_heads=1)
    assert "tp 2 must divide it" in why_not(replace(plan, parallelism=replace(plan.parallelism, tp=2)))
    assert "must divide by 16" in why_not(replace(other(heads=129), precision="fp8"))


def test_layers_with_both_parts_are_refused() -> None:
    shape = {**best(*DENSE).workload.shape, "feeds": ("mlp",), "norms_per_layer": 2}
    both = replace(best(*DENSE), workload=replace(best(*DENSE).workload, shape=shape))
    assert "blocks with a recurrence (mamba2) have no flag" in why_not(both)
    alone = {**shape, "recurrence": None, "mixers": ("attention", "none"), "feeds": ("none", "mlp")}
    without = replace(both, workload=replace(both.workload, shape=alone))
    assert "blocks without attention have no flag" in why_not(without)
    mtp = replace(best(*DENSE), workload=replace(best(*DENSE).workload, mtp_layers=1))
    assert "patterns of their own" in why_not(mtp)


def test_a_chunk_of_another_kernel_is_told() -> None:
    assert [loss.field for loss in megatron_hybrid.loses(other(chunk=256))][1] == "workload.shape.recurrence.chunk"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("--hybrid-layer-pattern", "--hybrid-override-pattern"), "without --hybrid-layer-pattern"),
        (("pretrain_hybrid.py", "pretrain_gpt.py"), "take pretrain_hybrid.py, which builds it"),
        (("M-M-M-M*", "M-G-M-M*"), "'G', a gated delta net, cannot be taken over"),
        (("M-M-M-M*", "M-X-M-M*"), "'X' is no layer; choose M [*] - E, and | between stages"),
        (("M-M-M-M*", "M-||M-M*"), "every stage needs a layer"),
        (("M-M-M-M*", "M-M-|M-|M*"), "has 9 segments; pp 2 does not divide them"),
        (("--bf16", "--bf16 --pipeline-model-parallel-layout Et|tL"), "bars in the pattern are its stages"),
    ],
)
def test_commands_that_say_no_such_model(changed: tuple[str, str], words: str) -> None:
    text = f"{NVIDIA} --pipeline-model-parallel-size 2".replace(*changed)
    with pytest.raises(WrongQuestion, match=words):
        reading.read("megatron", text.replace("|", r"\|"))


def test_without_bars_stages_are_even() -> None:
    text = f"{NVIDIA} --pipeline-model-parallel-size"
    assert reading.read("megatron", f"{text} 2").chunks == [26, 26]
    ends = reading.read("megatron", f"{text} 2 --decoder-first-pipeline-num-layers 20")
    assert ends.chunks == [20, 32]
    with pytest.raises(WrongQuestion, match="52 layers without bars, which 8 stages do not divide"):
        reading.read("megatron", f"{text} 8")


def test_defaults_of_a_state_are_megatrons() -> None:
    found = reading.read("megatron", NVIDIA.replace("--mamba-num-heads 128 ", "")).shape["recurrence"]
    assert (found["heads"], found["value_dim"], found["key_heads"], found["key_dim"]) == (128, 64, 8, 128)
