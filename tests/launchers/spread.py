"""Plans spread over what exporters say they can express: what conformance tests and the real validators run on."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner import api, catalog
from planner.comm import run
from planner.comm.program import choosing
from planner.launchers import EXPORTERS
from planner.launchers.bundle import refusals
from planner.models.workload import find_model
from planner.schema.plan import CommunicationRule, Plan, Stage
from tests.answered_once import answered_once
from tests.sweeps import QUICK

EVERY = 6 if os.environ.get(QUICK) else 1
"""Without slow tests (`make test`), only every so manieth case is tried."""

H100, B200, A100 = "dgx-h100", "dgx-b200", "dgx-a100-80gb"
MEGATRON = (
    ("llama3-8b", f"{H100}:1", "tp=2"),
    ("llama3-8b", f"{H100}:2", "tp=4 pp=2"),
    ("llama3-8b", f"{H100}:4", "zero=0"),
    ("llama3-8b", f"{H100}:4", "zero=2"),
    ("llama3-8b", f"{H100}:4", "zero=3 tp=2"),
    ("llama3-8b", f"{H100}:4", "zero=1 zero_scope=node"),
    ("llama3-8b", f"{H100}:4", "zero=3 zero_scope=node"),
    ("llama3-8b", f"{H100}:4", "cp=4 micro=2"),
    ("llama3-8b", f"{H100}:4", "tp=2 cp=2 pp=2 vpp=4"),
    ("llama3-8b", f"{H100}:4", "recompute=full tp=2 sequence_parallel=off"),
    ("llama3-8b", f"{H100}:4", "recompute=selective pp=4"),
    ("llama3-8b", f"{H100}:4", "recompute=block:0.5 pp=2 vpp=2"),
    ("llama3-8b", f"{H100}:4", "precision=fp8 tp=4 tp_overlap=on"),
    ("llama3-8b", f"{H100}:4", "precision=fp16 micro=4"),
    ("llama3-8b", f"{H100}:2", "precision=fp32 tp=8"),
    ("llama3-8b", f"{B200}:2", "precision=mxfp8 tp=2"),
    ("llama3-8b", f"{H100}:4", "precision=fp8-delayed tp=2"),
    ("llama3-8b", f"{H100}:4", "precision=fp8-blockwise tp=2 recompute=selective:mlp"),
    ("llama3-8b", f"{B200}:2", "precision=nvfp4 tp=2"),
    ("deepseek-v2-lite", f"{H100}:4", "precision=fp8 ep=8 recompute=selective:layernorm+moe_act+mla_up_proj+mlp"),
    ("mixtral-8x7b", f"{H100}:4", "ep=8 tp=2 recompute=selective:core_attn+layernorm+moe_act"),
    ("llama3-8b", f"{B200}:2", "tp=4 cp=2"),
    ("llama3-8b", f"{H100}:4", "offload=optimizer"),
    ("llama3-8b", f"{H100}:4", "offload=optimizer:0.5 offload_overlap=on activation_offload=core_attn+attn_proj"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8 recompute=selective:moe_act activation_offload=qkv_linear+expert_fc1+moe_act"),
    ("llama3-8b", f"{H100}:4", "tp=2 recompute=full graphs=full"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8 graphs=modules"),
    ("llama3-70b", f"{H100}:16", "tp=4 pp=4 vpp=4 cp=2"),
    ("llama3-70b", f"{H100}:16", "tp=8 pp=4 rank_order=tp-cp-ep-pp-dp"),
    ("llama3-70b", f"{H100}:16", "tp=4 pp=32"),
    ("llama3-70b", f"{H100}:16", "tp=8 pp=16 vpp=5"),
    ("llama3-70b", f"{H100}:16", "tp=4 pp=8 vpp=5"),
    ("llama3-70b", f"{H100}:16", "tp=8 pp=2 vpp=4 p2p_overlap=on"),
    ("llama3-70b", f"{H100}:12", "tp=8 pp=12"),
    ("llama3.1-405b", f"{H100}:64", "tp=8 pp=16 vpp=4"),
    ("gpt3-175b", f"{A100}:32", "tp=8 pp=8"),
    ("gpt2", f"{A100}:1", ""),
    ("gpt2", f"{A100}:1", "tp=4 dp_overlap=off"),
    ("opt-1.3b", f"{A100}:1", "tp=2"),
    ("mixtral-8x7b", f"{H100}:4", "ep=8 pp=2"),
    ("mixtral-8x7b", f"{H100}:4", "ep=4 tp=2 etp=2"),
    ("mixtral-8x7b", f"{H100}:4", "ep=8 tp=2 pp=2"),
    ("mixtral-8x7b", f"{H100}:8", "ep=8 tp=4 etp=1 pp=2"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8 cp=2"),
    ("qwen3-30b-a3b", f"{H100}:8", "ep=16 tp=2 pp=4"),
    ("qwen3-8b", f"{H100}:4", "tp=2"),
    ("deepseek-v3", f"{H100}:64", "ep=32 pp=16 tp=1"),
    ("deepseek-v3", f"{H100}:128", "ep=64 pp=8 tp=2"),
    ("gpt-oss-20b", f"{H100}:2", "ep=4"),
    ("gpt-oss-120b", f"{H100}:8", "ep=8 tp=2 etp=1"),
    ("llama4-scout", f"{H100}:16", "ep=16 tp=4"),
)
FSDP = (
    ("llama3-8b", f"{H100}:1", ""),
    ("llama3-8b", f"{H100}:2", "tp=2"),
    ("llama3-8b", f"{H100}:2", "tp=8"),
    ("llama3-8b", f"{H100}:4", "cp=2"),
    ("llama3-8b", f"{H100}:4", "cp=4 tp=2"),
    ("llama3-8b", f"{H100}:4", "zero_scope=node"),
    ("llama3-8b", f"{H100}:4", "zero_scope=node tp=2"),
    ("llama3-8b", f"{H100}:4", "zero_scope=node tp=2 cp=2"),
    ("llama3-8b", f"{H100}:4", "micro=2 recompute=full"),
    ("llama3-8b", f"{H100}:4", "micro=4 recompute=selective"),
    ("llama3-8b", f"{H100}:4", "pp=2"),
    ("llama3-8b", f"{H100}:4", "pp=4 vpp=2"),
    ("llama3-8b", f"{H100}:4", "pp=4 tp=2 vpp=4"),
    ("llama3-8b", f"{H100}:4", "pp=2 cp=2 tp=2"),
    ("llama3-8b", f"{H100}:8", "tp=8 pp=8"),
    ("llama3-8b", f"{H100}:4", "precision=fp8"),
    ("llama3-8b", f"{H100}:4", "precision=fp8 tp=2 recompute=full"),
    ("llama3-8b", f"{B200}:4", "precision=mxfp8 tp=2"),
    ("llama3-8b", f"{H100}:4", "tp=2 tp_overlap=on"),
    ("llama3-70b", f"{H100}:16", "tp=8"),
    ("llama3-70b", f"{H100}:16", "tp=8 pp=4"),
    ("llama3-70b", f"{H100}:16", "tp=4 pp=32"),
    ("llama3-70b", f"{H100}:16", "tp=8 pp=8 vpp=2"),
    ("llama3-70b", f"{H100}:12", "tp=8 pp=12"),
    ("llama3.1-405b", f"{H100}:64", "tp=8 pp=16 vpp=4"),
    ("llama3-70b", f"{H100}:16", "tp=4 cp=4 recompute=full"),
    ("llama3.1-405b", f"{H100}:64", "tp=8 pp=16"),
    ("llama3.1-405b", f"{H100}:64", "tp=8 pp=8 recompute=full"),
    ("qwen3-8b", f"{H100}:4", "tp=2"),
    ("qwen3-8b", f"{H100}:4", "tp=2 pp=2"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8"),
    ("qwen3-30b-a3b", f"{H100}:4", "ep=8 pp=2"),
    ("qwen3-30b-a3b", f"{H100}:8", "ep=16 tp=2"),
    ("mixtral-8x7b", f"{H100}:8", "ep=8 cp=2"),
    ("llama3-8b", f"{H100}:4", "pp=4 schedule=interleaved-zero-bubble vpp=2"),
    ("llama3-8b", f"{H100}:4", "pp=2 tp=2 schedule=zbv"),
    ("llama3.1-405b", f"{H100}:64", "pp=8 tp=8 schedule=zbv micro=1"),
    ("llama3-8b", f"{H100}:4", "pp=4 schedule=dualpipe-v"),
)
DEEPSPEED = (
    *(("llama3-8b", f"{H100}:{n}", f"zero={z}") for n in (1, 4, 16) for z in (0, 1, 2, 3)),
    *(("llama3-8b", f"{H100}:4", f"zero={z} offload=optimizer micro=2") for z in (1, 2, 3)),
    *(("llama3-8b", f"{H100}:4", f"zero={z} recompute=full micro=8") for z in (1, 2, 3)),
    *(("llama3-8b", f"{H100}:4", f"zero=1 tp={tp} pp={pp}") for tp in (1, 2, 4) for pp in (1, 2, 4)),
    ("llama3-8b", f"{H100}:4", "zero=3 zero_scope=node"),
    ("llama3-8b", f"{H100}:4", "zero=2 precision=fp16"),
    ("llama3-8b", f"{H100}:4", "zero=3 precision=fp32"),
    ("llama3-8b", f"{H100}:4", "zero=3 tp=2 dp_overlap=off"),
    ("opt-1.3b", f"{A100}:2", "zero=2"),
    ("gpt2", f"{A100}:1", "zero=1"),
    ("llama3-70b", f"{H100}:16", "zero=3 recompute=full"),
)
DDP = (
    ("bert-large", "dgx-a100-40gb:4", ""),
    ("bert-large", "dgx-a100-40gb:4", "precision=fp16 micro=4"),
    ("vit-l16", "dgx-a100-40gb:2", "micro=8"),
    ("gpt2", f"{A100}:1", "micro=2"),
)
TUNED = (
    ("llama3-8b", f"{H100}:1", "", "lora"),
    ("llama3-8b", f"{H100}:2", "zero=3 micro=2 recompute=full", "lora"),
    ("llama3-8b", f"{A100}:1", "precision=fp16", "lora"),
    ("llama3-70b", f"{H100}:2", "zero=3 recompute=full", "lora"),
    ("llama3-8b", f"{H100}:1", "micro=2", "qlora"),
    ("llama3-8b", f"{H100}:1", "micro=4 recompute=full", "qlora"),
    ("llama3-70b", f"{H100}:1", "zero=3 recompute=full", "qlora"),
    ("llama3-8b", f"{H100}:1", "", "qlora:int8"),
    ("llama3-8b", f"{H100}:2", "zero=3 recompute=full", "finetune"),
    ("opt-1.3b", f"{A100}:1", "", "lora"),
    ("qwen3-8b", f"{H100}:1", "", "qlora"),
    ("qwen3-30b-a3b", f"{H100}:1", "recompute=full", "lora"),
    ("deepseek-v2-lite", f"{H100}:1", "recompute=full", "lora"),
    ("mixtral-8x7b", f"{H100}:2", "zero=3 recompute=full", "lora"),
    *(
        ("llama3-8b", f"{H100}:{n}", f"zero={z} micro=2", method)
        for n in (1, 4)
        for z in (0, 3)
        for method in ("lora", "qlora", "finetune")
    ),
)
TUNED_BY_DEEPSPEED = tuple(
    ("llama3-8b", f"{H100}:4", f"zero={z} micro=2", method) for z in (1, 2, 3) for method in ("lora", "finetune")
)
LIGER = (
    ("llama3-8b", f"{H100}:1", "micro=2", "lora"),
    ("llama3-8b", f"{H100}:1", "micro=2 zero=3", "qlora"),
    ("llama3-8b", f"{H100}:1", "zero=3 recompute=full", "finetune"),
)
TPU = (
    ("llama3.1-8b", "tpu-v5p-4:16", ""),
    ("llama3.1-8b", "tpu-v5p-4:16", "tp=4 micro=4"),
    ("llama3.1-8b", "tpu-v5p-4:16", "cp=2 micro=2"),
    ("llama3.1-8b", "tpu-v5p-4:16", "tp=2 cp=2 recompute=selective micro=4"),
    ("llama3.1-8b", "tpu-v5p-4:2", "recompute=full micro=8"),
    ("llama3.1-8b", "tpu-v5p-4:16", "offload=optimizer"),
    ("llama3.1-8b", "tpu-v5p-4:16", "pp=2 micro=2"),
    ("llama3.1-8b", "tpu-v5p-4:16", "pp=4 tp=2"),
    ("llama3.1-70b", "tpu-v5p-4:64", "tp=4 micro=4"),
    ("llama3.1-70b", "tpu-v5p-4:64", "tp=4 pp=4 recompute=full"),
    ("llama3.1-405b", "tpu-v5p-4:512", "tp=8 recompute=full micro=8"),
    ("llama3-8b", "tpu-v4-4:16", ""),
    ("llama3-8b", "tpu-v4-4:32", "tp=2"),
    ("llama2-7b", "tpu-v5e-8:8", "tp=2 recompute=full"),
    ("llama2-70b", "tpu-v5e-8:32", "tp=4 recompute=full"),
    ("llama2-70b", "tpu-v5e-8:64", "tp=4 recompute=full"),
    ("llama3-8b", "tpu-v6e-8:1", "tp=2"),
    ("llama3-8b", "tpu-v6e-8:32", "tp=2"),
    ("llama3-8b", "tpu-v6e-8:64", "tp=2"),
    ("llama3-8b", "tpu-v6e-8:64", "zero_scope=node"),
    ("qwen2.5-7b", "tpu-v6e-8:8", "tp=2"),
    ("qwen2.5-0.5b", "tpu-v6e-8:1", ""),
    ("qwen3-0.6b", "tpu-v6e-8:1", "micro=4"),
    ("qwen3-8b", "tpu-v6e-8:8", "recompute=selective"),
    ("qwen3-32b", "tpu-v5p-4:32", "tp=2"),
    ("qwen3-30b-a3b", "tpu-v6e-8:16", "ep=8"),
    ("qwen3-235b-a22b", "tpu-v5p-4:128", "ep=16 recompute=full"),
    ("mixtral-8x7b", "tpu-v5p-4:32", "ep=8"),
    ("mixtral-8x22b", "tpu-v5p-4:64", "ep=8 tp=2 recompute=full"),
    ("deepseek-v3", "tpu-v5p-4:512", "ep=64 tp=2 recompute=full"),
    ("kimi-k2", "tpu-v5p-4:512", "ep=64 recompute=full"),
    ("moonlight-16b-a3b", "tpu-v5p-4:16", "ep=8"),
)
MI300X, MI355X = "mi300x-8", "mi355x-8"
PRIMUS = (
    ("llama3.1-8b", f"{MI300X}:1", "tp=2"),
    ("llama3.1-8b", f"{MI300X}:2", "tp=4 pp=2"),
    ("llama3.1-8b", f"{MI300X}:4", "zero=0"),
    ("llama3.1-8b", f"{MI300X}:4", "zero=2"),
    ("llama3.1-8b", f"{MI300X}:4", "zero=3 tp=2"),
    ("llama3.1-8b", f"{MI300X}:4", "zero=1 zero_scope=node"),
    ("llama3.1-8b", f"{MI300X}:4", "cp=4 micro=2"),
    ("llama3.1-8b", f"{MI300X}:4", "tp=2 cp=2 pp=2 vpp=4"),
    ("llama3.1-8b", f"{MI300X}:4", "recompute=full tp=2 sequence_parallel=off"),
    ("llama3.1-8b", f"{MI300X}:4", "recompute=selective pp=4"),
    ("llama3.1-8b", f"{MI300X}:4", "recompute=block:0.5 pp=2 vpp=2"),
    ("llama3.1-8b", f"{MI300X}:4", "precision=fp8 tp=4"),
    ("llama3.1-8b", f"{MI300X}:4", "precision=fp8-delayed tp=2"),
    ("llama3.1-8b", f"{MI355X}:4", "tp=2 recompute=selective:mlp"),
    ("llama3.1-8b", f"{MI300X}:4", "precision=fp16 micro=4"),
    ("llama3.1-8b", f"{MI300X}:2", "precision=fp32 tp=8"),
    ("llama3.1-8b", f"{MI355X}:2", "precision=mxfp8 tp=2"),
    ("llama3.1-8b", f"{MI355X}:1", "precision=mxfp4"),
    ("llama3.1-8b", f"{MI355X}:2", "precision=mxfp4 tp=2 recompute=selective"),
    ("llama3.1-8b", f"{MI300X}:4", "offload=optimizer"),
    ("llama3.1-8b", f"{MI300X}:4", "offload=optimizer:0.5 offload_overlap=on activation_offload=core_attn+attn_proj"),
    ("llama2-7b", f"{MI300X}:4", "tp=8 pp=4 micro=1 recompute=none schedule=zero-bubble"),
    ("llama3.1-8b", f"{MI300X}:4", "pp=4 tp=2 schedule=zbv"),
    ("llama3-70b", f"{MI300X}:16", "pp=8 tp=8 schedule=zbv micro=1"),
    ("llama3-70b", f"{MI300X}:16", "tp=4 pp=4 vpp=4 cp=2"),
    ("llama3-70b", f"{MI300X}:16", "tp=8 pp=4 rank_order=tp-cp-ep-pp-dp"),
    ("llama3-70b", f"{MI300X}:16", "tp=8 pp=16 vpp=5"),
    ("llama3-70b", f"{MI300X}:12", "tp=8 pp=12"),
    ("llama3-70b", f"{MI300X}:16", "tp=8 pp=2 vpp=4 p2p_overlap=on"),
    ("gpt2", f"{MI300X}:1", "tp=4 dp_overlap=off"),
    ("gpt3-175b", f"{MI300X}:16", "tp=8 pp=8"),
    ("mixtral-8x7b", f"{MI300X}:4", "ep=8 pp=2"),
    ("mixtral-8x7b", f"{MI300X}:4", "ep=4 tp=2 etp=2"),
    ("qwen3-30b-a3b", f"{MI300X}:4", "ep=8 cp=2"),
    ("qwen3-8b", f"{MI300X}:4", "tp=2"),
    ("deepseek-v2-lite", f"{MI300X}:4", "precision=fp8 ep=8 recompute=selective:layernorm+moe_act+mla_up_proj+mlp"),
    ("deepseek-v3", f"{MI300X}:64", "ep=32 pp=16 tp=1"),
    ("gpt-oss-20b", f"{MI300X}:2", "ep=4"),
    ("llama4-scout", f"{MI300X}:16", "ep=16 tp=4"),
)
"""Asked of Primus alone: no other launcher of this list says anything else of AMD's accelerators."""
MIXED = (
    ("llama3-8b", (f"{H100}:1", f"{A100}:1")),
    ("gpt3-175b", (f"{A100}:8", "dgx-a100-40gb:8")),
)
"""What the planner itself answers over two pools: unlike pipelines, and one pipeline over both."""
ALIKE = (
    ("llama3.2-3b", (f"{A100}:2", "dgx-v100:2")),
    ("llama3.2-3b", ("dgx-v100:2", f"{A100}:2")),
    ("llama3-70b", (f"{H100}:4", f"{A100}:4")),
)
"""What ``plan --launchable`` answers over two pools: pipelines of one kind that fill their nodes."""
RUNTIMES: dict[str, tuple[tuple[str, ...], ...]] = {
    **{"megatron-core": MEGATRON, "fsdp2": FSDP, "pytorch-ddp": DDP},
    "deepspeed": (*DEEPSPEED, *TUNED_BY_DEEPSPEED),
    **{"hf-trainer": TUNED, "hf-trainer-liger": LIGER, "maxtext": TPU},
}
"""Runtime -> model, cluster, settings, and what is trained."""


@dataclass(frozen=True)
class Case:
    """A plan, by what was asked."""

    runtime: str
    model: str
    cluster: str
    settings: str
    method: str = "pretrain"

    def __str__(self) -> str:
        what = "" if self.method == "pretrain" else f"/{self.method}"
        return f"{self.runtime}/{self.model}/{self.cluster}/{self.settings}{what}"


@answered_once
def plan(case: Case) -> Plan:
    """The plan that estimate makes of a case."""
    asked = {"runtime": case.runtime, "method": case.method}
    if case.method != "pretrain":
        own = find_model(case.model)
        asked |= {"batch": own.batch, "seq": own.sequence, "tokens": own.tokens}
    found = api.estimate(case.model, case.cluster, case.settings.split(), **asked)
    return found.plans[0]


@answered_once
def mixed(model: str, pools: tuple[str, ...]) -> Plan:
    """The planner's best plan over several pools."""
    return api.plan(model, list(pools)).plans[0]


@answered_once
def alike(model: str, pools: tuple[str, ...], **asked: Any) -> Plan:
    """The best one over all of these pools that a launcher starts."""
    found = api.plan(model, list(pools), launchable=True, **asked).plans
    return next(p for p in found if len(p.cluster.pools) == len(pools))


def cases() -> Iterator[Case]:
    """All of them."""
    for runtime, asked in RUNTIMES.items():
        yield from (Case(runtime, *question) for question in asked)


def expressible(name: str, runtimes: tuple[str, ...] | None = None) -> list[tuple[str, Plan]]:
    """The plans that an exporter says it can express, each with what was asked; some on two pools, and with rules."""
    exporter = EXPORTERS[name]
    asked_of = (Case("primus", *question) for question in PRIMUS) if name == "primus" else cases()
    wanted = [case for case in asked_of if runtimes is None or case.runtime in runtimes][::EVERY]
    found = [
        (str(case), _with_rules(plan(case), number) if name == "nccl-tuner" else plan(case))
        for number, case in enumerate(wanted)
    ]
    if runtimes is None and name not in ("nccl-tuner", "primus"):
        found += [(f"{model} on {' and '.join(pools)}", mixed(model, pools)) for model, pools in MIXED[::EVERY]]
        found += [(f"{model} alike on {' and '.join(pools)}", alike(model, pools)) for model, pools in ALIKE[::EVERY]]
    found += [
        (f"{asked} on two pools", two_pools(p))
        for asked, p in found
        if p.parallelism.pp in (2, 4) and not p.parallelism.groups and name != "primus"
    ][:4]
    return [(asked, p) for asked, p in found if not [*refusals(p, exporter)]]


def two_pools(whole: Plan) -> Plan:
    """The same plan with the first half of its stages on one kind of node and the second half on another."""
    pool = whole.cluster.pools[0]
    half = replace(pool, count=pool.count // 2)
    pools = (half, replace(half, node="dgx-h200", accelerator="H200-SXM-141GB"))
    p = whole.parallelism
    stages = tuple(replace(stage, pool=int(index >= p.pp // 2)) for index, stage in enumerate(p.stages))
    batch = replace(whole.batch, per_pool=(whole.batch.global_ // 2, whole.batch.global_ // 2))
    return replace(
        whole,
        cluster=replace(whole.cluster, pools=pools),
        parallelism=replace(p, stages=stages),
        batch=batch,
    )


def uneven(whole: Plan, layers: tuple[int, ...]) -> Plan:
    """The same plan with its stages' layers dealt by hand."""
    p = whole.parallelism
    stages = tuple(Stage(pool=0, layers=n, tp=p.tp, dp=p.dp) for n in layers)
    return replace(whole, parallelism=replace(p, stages=stages))


def _with_rules(whole: Plan, number: int) -> Plan:
    """Rules for NCCL: two borders that move with the number."""
    ops = ("all-reduce", "all-gather", "reduce-scatter")
    borders = (0, 1 << (10 + number % 7), 1 << (20 + number % 5), 1 << 33)
    others = (("ring", "ll128"), ("ring", "simple"))
    choices = {op: ((("tree", "ll") if op == "all-reduce" else ("pat", "simple")), *others) for op in ops}
    rules = [
        CommunicationRule(
            op=op, group="dp", bytes_min=low, bytes_max=high - 1, backend="nccl", algorithm=algorithm, protocol=protocol
        )
        for op in ops[: 1 + number % 3]
        for low, high, (algorithm, protocol) in zip(borders, borders[1:], choices[op], strict=False)
    ]
    return replace(whole, communication=tuple(rules))


@answered_once
def chosen_plan() -> Plan:
    """A plan with the rules that ``comm choose`` makes of a table of NCCL's algorithms and protocols."""
    whole = api.plan("llama3-70b", f"{H100}:16").plans[0]
    laws = {
        ("ring", "simple"): (1e-5, 2e-12),
        ("ring", "ll"): (3e-6, 6e-12),
        ("", ""): (2e-5, 4e-12),
    }
    rows = [
        f"nccl,{algorithm},{protocol},{op},{ranks},{4**n},{number},{start + 4**n * each}"
        for op in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv")
        for ranks in (2, 8, 128)
        for n in range(5, 19)
        for (algorithm, protocol), (start, each) in laws.items()
        for number in range(4)
        if not (algorithm and op in ("all-to-all", "send-recv"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        header = "backend,algorithm,protocol,op,ranks,bytes,round,seconds"
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return run.with_rules(
            whole, catalog.load(), [str(path)], choosing.ChooseOptions(launcher="nccl-tuner"), "plan"
        )[1]
