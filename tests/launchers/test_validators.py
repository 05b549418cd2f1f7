"""The launchers' own parsers take what is exported and read the plan's values out of it; broken files they refuse.

Nothing here runs unless the launchers are installed: ``make test-launchers``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.launchers import (
    accelerate,
    megatron,
    megatron_bridge,
    megatron_model,
    plan_facts,
    primus,
    quoting,
    skypilot_and_dstack,
    torchtitan,
)
from planner.schema.plan import Plan
from planner.schema.workload import LOW_PRECISION
from tests.launchers import trainer_fields
from tests.launchers.bridge_fields import published, values_of_bridge
from tests.launchers.conformance import kept, leaves
from tests.launchers.environments import CHECKOUTS, ask, checkout, export, python
from tests.launchers.maxtext_fields import values_of_maxtext
from tests.launchers.megatron_fields import of_record
from tests.launchers.spread import expressible

Values = dict[str, Any]
FEWEST = 30
"""Plans an exporter is tried on."""


FORMATS = {
    "fp8": ("hybrid", "tensorwise"),
    "fp8-delayed": ("hybrid", "delayed"),
    "fp8-blockwise": ("e4m3", "blockwise"),
    "mxfp8": ("e4m3", "mxfp8"),
}
"""Format and recipe of a precision, as Megatron's configuration calls them."""


def values_of_megatron(plan: Plan) -> Values:
    p, shape, moe = plan.parallelism, plan.workload.shape, plan.workload.shape["moe"]
    chunks = plan_facts.chunks(plan)
    policy = plan.recompute.policy
    recompute: list[object] = [None, None, None]
    if policy != "none":
        recompute = ["selective", None, None] if policy.startswith("selective") else ["full", "uniform", 1]
    if policy.startswith("block"):
        recompute = ["full", "block", megatron.recomputed(plan)]
    latent = shape["latent"] is not None
    window = shape["window"] if shape["window"] and shape["window"]["size"] < plan.workload.sequence else None
    mixed = megatron_model.mixtures(moe, shape["layers"]) if moe else []
    return {
        **{name: getattr(p, name) for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "sequence_parallel")},
        "etp": p.etp if moe else p.tp,
        "world": plan.cluster.accelerators,
        "micro": plan.batch.micro,
        "global": plan.batch.global_,
        "accumulation": plan.batch.accumulation,
        "distributed_optimizer": p.zero_stage > 0,
        "instances": p.dp * p.cp // p.dp_shard if p.zero_stage else 1,
        "fsdp": {2: "optim_grads", 3: "optim_grads_params"}.get(p.zero_stage),
        "recompute": recompute,
        "modules_again": plan.recompute.policy.partition(":")[2].split("+")
        if plan.recompute.policy.startswith("selective:")
        else ["core_attn"],
        "dispatcher": dispatcher_of_megatron(plan.dispatcher) if moe else None,
        "layers": shape["layers"],
        "hidden": shape["hidden"],
        "ffn": shape["ffn"],
        "heads": shape["heads"],
        "groups": shape["heads"] if latent else shape["kv_heads"],
        "experts": moe["experts"] if moe else None,
        "gated": shape["gated"],
        "biases": [shape["qkv_bias"] and shape["output_bias"], shape["qkv_bias"]],
        "softmax": "learnable" if plan.workload.model.startswith("gpt-oss") else "vanilla",
        "epsilon": shape.get("norm_epsilon") or 1e-5,
        **angles_of_megatron(shape),
        "bf16": plan.precision in ("bf16", *LOW_PRECISION),
        "fp16": plan.precision == "fp16",
        "wide_gradients": plan.precision != "fp32",
        "fp8": FORMATS.get(plan.precision, (None, "delayed"))[0],
        "fp8_recipe": FORMATS.get(plan.precision, (None, "delayed"))[1],
        "fp4": "e2m1" if plan.precision == "nvfp4" else None,
        "sequence": plan.workload.sequence,
        "vocab": shape["vocab"],
        "tied": shape["tied"],
        "overlap": [plan.overlap.dp, plan.overlap.dp and p.zero_stage > 0, plan.overlap.p2p, plan.overlap.tp],
        "pp_inner": p.rank_order == "tp-cp-ep-pp-dp",
        "offload": bool(plan.offload["optimizer"]),
        "chunks": chunks if len(set(chunks)) > 1 or (p.pp > 1 and plan.workload.mtp_layers) else None,
        "modules": plan.workload.mtp_layers or 0,
        "moe_layers": mixed if mixed and not all(mixed) else None,
        "windows": megatron_model.windowed(shape) if window and window["every"] > 1 else None,
        "window": [window["size"] - 1, 0] if window else None,
        "model": of_record(plan_facts.complete(plan).workload.shape, plan.workload.sequence)
        | {"cp_comm_type": p.cp_algorithm or "p2p"},
    }


def dispatcher_of_megatron(name: str | None) -> list[str]:
    """Its type, and the back end of the fused one, which is DeepEP where none is said."""
    return ["flex", name] if name in ("deepep", "hybridep") else [name or "alltoall", "deepep"]


def angles_of_megatron(shape: dict[str, Any]) -> Values:
    """Bases and scalings, Megatron's own where the model's are not known or have no option."""
    known = shape.get("rotary") or {"base": 500_000, "share": 1.0, "scaling": "none"}
    llama, yarn = (known["scaling"] == way for way in ("llama3", "yarn"))
    return {
        "angles": [
            10_000 if shape["learned_positions"] else known["base"],
            known["share"],
            llama,
            known["factor"] if llama else 8.0,
        ],
        "yarn": ([known["factor"], known["mscale"], known["mscale_all_dim"]] if yarn else [1.0, 1.0, 0.0])
        if shape["latent"]
        else None,
    }


def angles_of_torchtitan(shape: dict[str, Any]) -> Values:
    known = shape["rotary"]
    llama = known["scaling"] == "llama3"
    return {
        "theta": known["base"],
        "scaling": "llama" if llama else known["scaling"],
        "scaling_factor": known["factor"] if llama else 8.0,
        "original_max_position_embeddings": known["original"] if llama else 8192,
        "rope_factor": known["factor"] if known["scaling"] == "yarn" else 1.0,
    }


def values_of_torchtitan(plan: Plan) -> Values:
    p, shape, moe = plan.parallelism, plan.workload.shape, plan.workload.shape["moe"]
    shard = max(p.dp_shard // p.cp, 1) if p.zero_stage else 1
    converted = {"fp8": ["Float8Linear"], "mxfp8": ["MXFP8Linear"]}
    return {
        **{name: getattr(p, name) for name in ("tp", "pp", "cp", "ep")},
        "mesh": [p.dp // shard, shard],
        "world": plan.cluster.accelerators,
        "micro": plan.batch.micro,
        "local": plan.batch.global_ // p.dp if p.pp > 1 else plan.batch.micro,
        "global": plan.batch.global_,
        "sequence": plan.workload.sequence,
        "layers": shape["layers"],
        "hidden": shape["hidden"],
        "vocab": shape["vocab"],
        "tied": shape["tied"],
        "heads": shape["heads"],
        "groups": shape["kv_heads"],
        "epsilon": shape["norm_epsilon"],
        "angles": angles_of_torchtitan(shape),
        "experts": moe["experts"] if moe else None,
        "chunks": plan_facts.chunks(plan) if p.pp > 1 else None,
        "schedule": {"none": "none", **torchtitan.TABLE.options["parallelism.pipeline_parallel_schedule"].values}[
            p.schedule
        ],
        "compiled": p.schedule not in ("interleaved-zero-bubble", "zbv", "dualpipe-v"),
        "reshard": {0: "default", 2: "never", 3: "always"}[p.zero_stage],
        "recompute": {"none": "NoneType", "selective": "SelectiveAC", "full": "FullAC"}[plan.recompute.policy],
        "converted": converted.get(plan.precision, []),
        "parameter_dtype": "float32" if plan.precision == "fp32" else "bfloat16",
        "async_tp": plan.overlap.tp,
    }


def values_of_deepspeed(plan: Plan) -> Values:
    p = plan.parallelism
    return {
        "global": plan.batch.global_,
        "micro": plan.batch.micro,
        "accumulation": plan.batch.accumulation,
        "zero": p.zero_stage,
        "bf16": plan.precision == "bf16",
        "fp16": plan.precision == "fp16",
        "offload": bool(plan.offload["optimizer"]),
        "hpz": p.dp_shard if p.zero_scope == "node" else 1,
        "overlap": plan.overlap.dp and p.zero_stage > 0,
        "tp": p.tp,
        "pp": p.pp,
    }


def values_of_accelerate(plan: Plan) -> Values:
    p, engine = plan.parallelism, accelerate.route(plan)
    sharded = engine == "FSDP"
    return {
        "engine": engine,
        "precision": "no" if plan.precision == "fp32" else plan.precision,
        "machines": sum(pool.count for pool in plan.cluster.pools),
        "world": plan.cluster.accelerators,
        "product": plan.cluster.accelerators if sharded else None,
        "mesh": [p.dp * p.cp // p.dp_shard, p.dp_shard // p.cp] if sharded else None,
        "tp": p.tp,
        "cp": p.cp,
        "reshard": p.zero_stage == 3 if sharded else None,
        "recompute": plan.recompute.policy == "full" if sharded else None,
        "zero": p.zero_stage if engine == "DEEPSPEED" else None,
    }


def values_of_skypilot(plan: Plan) -> Values:
    (pool,) = plan.cluster.pools
    return {
        "nodes": pool.count,
        "accelerators": {skypilot_and_dstack.SKYPILOT_NAMES[pool.accelerator]: pool.accelerators_per_node},
        "spot": False,
        "network": "best" if pool.count > 1 else None,
        "run": skypilot_and_dstack.SKYPILOT_SCRIPT,
        "name": plan.workload.model.replace(".", "-"),
    }


def values_of_ray_train(plan: Plan) -> Values:
    (pool,) = plan.cluster.pools
    return {
        "nodes": pool.count,
        "gpus": pool.accelerators_per_node,
        "total": {"GPU": float(plan.cluster.accelerators)},
        "placement": "STRICT_SPREAD",
        "restarts": 0,
        "files": ["plan.json", "start.sh"],
    }


def values_of_dstack(plan: Plan) -> Values:
    (pool,) = plan.cluster.pools
    return {
        "type": "task",
        "name": plan.workload.model.replace(".", "-"),
        "nodes": pool.count,
        "gpus": [skypilot_and_dstack.DSTACK_NAMES[pool.accelerator]],
        "count": [pool.accelerators_per_node] * 2,
        "commands": 1,
    }


def values_of_primus(plan: Plan) -> Values:
    """As Megatron has them, and what Primus's own defaults would change."""
    folder = f"/given/save/{primus.GROUP}/{primus.USER}/{quoting.slug(plan.workload.model)}/checkpoints"
    return values_of_megatron(plan) | {
        "fp4": "e2m1" if plan.precision == "mxfp4" else None,
        "fp4_recipe": "mxfp4" if plan.precision == "mxfp4" else "nvfp4",
        "pipeline": primus.SCHEDULES.get(plan.parallelism.schedule),
        "data": [["/given/data-path"], None, None],
        "checkpoints": [folder, folder, False, False],
        "rates": ["linear", 0, 0.01, 1e-4, 0.0, False],
        "batches": ["single", 0],
    }


EXPECTED: dict[str, Callable[[Plan], Values]] = {
    "megatron": values_of_megatron,
    "megatron-bridge": values_of_bridge,
    "primus": values_of_primus,
    "torchtitan": values_of_torchtitan,
    "deepspeed": values_of_deepspeed,
    "accelerate": values_of_accelerate,
    **trainer_fields.EXPECTED,
    "maxtext": values_of_maxtext,
    "skypilot": values_of_skypilot,
    "dstack": values_of_dstack,
    "ray-train": values_of_ray_train,
}


def _before(name: str) -> tuple[str, ...]:
    variable = {"megatron": "MEGATRON_LM"}.get(name, name.upper().replace("-", "_"))
    return (checkout(variable),) if variable in CHECKOUTS else ()


def _job(plan: Plan, name: str, folder: Path) -> Values:
    """What is asked; a recipe would fetch its model's config.json, which is asked with it."""
    return export(plan, name, folder) | (published(plan) if name == "megatron-bridge" else {})


@pytest.mark.parametrize("name", EXPECTED)
def test_the_launcher_reads_the_plan(name: str, tmp_path: Path) -> None:
    python(name)
    before = _before(name)
    plans = expressible(name)
    assert len(plans) >= FEWEST
    jobs = [_job(plan, name, tmp_path / str(number)) for number, (_, plan) in enumerate(plans)]
    fields = 0
    for (asked, plan), found in zip(plans, ask(name, jobs, tmp_path, *before), strict=True):
        assert "error" not in found, f"{asked}: {found['error']}"
        expected = EXPECTED[name](plan)
        assert found["values"] == expected, asked
        fields = max(fields, leaves(expected))
    kept(name, plans=len(plans), fields=fields)


@pytest.mark.parametrize("name", ["trl", "llama-factory", "axolotl"])
def test_whole_texts_are_packed_apart(name: str, tmp_path: Path) -> None:
    """Where their lengths are stated."""
    python(name)
    before = _before(name)
    asked = {"runtime": "hf-trainer", "seq": "4k", "lengths": "600/2k"}
    kinds = ("lora", "finetune")
    plans = [api.estimate("llama3-8b", "dgx-h100:1", ["zero=3"], method=kind, **asked).plans[0] for kind in kinds]
    jobs = [_job(plan, name, tmp_path / str(number)) for number, plan in enumerate(plans)]
    for plan, found in zip(plans, ask(name, jobs, tmp_path, *before), strict=True):
        assert "error" not in found, found["error"]
        assert found["values"] == EXPECTED[name](plan)


def test_every_recipe_builds_the_model(tmp_path: Path) -> None:
    python("megatron-bridge")
    plans = [api.estimate(model, "dgx-h100:1", runtime="megatron-core").plans[0] for model in megatron_bridge.RECIPES]
    jobs = [_job(plan, "megatron-bridge", tmp_path / str(number)) for number, plan in enumerate(plans)]
    for plan, found in zip(plans, ask("megatron-bridge", jobs, tmp_path, *_before("megatron-bridge")), strict=True):
        assert "error" not in found, f"{plan.workload.model}: {found['error']}"
        assert found["values"] == values_of_bridge(plan), plan.workload.model


def test_megatron_reads_multi_token_prediction(tmp_path: Path) -> None:
    """On one stage, and in the last chunk of several."""
    python("megatron")
    asked = (
        ("moonlight-16b-a3b", "dgx-h100:4", "ep=8", 1),
        ("deepseek-v3", "dgx-h100:128", "ep=64 pp=8 tp=2", 1),
        ("deepseek-v3", "dgx-h100:128", "ep=64 pp=8 tp=2 vpp=2", 2),
    )
    plans = [api.estimate(m, where, pins.split(), mtp_layers=n).plans[0] for m, where, pins, n in asked]
    jobs = [export(plan, "megatron", tmp_path / str(number)) for number, plan in enumerate(plans)]
    for plan, found in zip(plans, ask("megatron", jobs, tmp_path, checkout()), strict=True):
        assert "error" not in found, f"{plan.workload.model}: {found['error']}"
        assert found["values"] == values_of_megatron(plan), plan.workload.model


# ---- what they must refuse -------------------------------------------------------------------------------------------


def _argument(*changes: str) -> Callable[[dict[str, Any]], None]:
    """Replaces the value of an option, or adds options."""

    def change(job: dict[str, Any]) -> None:
        for option, value in zip(changes[::2], changes[1::2], strict=True):
            argv = job["argv"]
            if option in argv:
                argv[argv.index(option) + 1] = value
            else:
                argv += [option, *([value] if value else [])]

    return change


def _word(key: str, word: str) -> Callable[[dict[str, Any]], None]:
    """Another word in place of ``key=value``."""

    def change(job: dict[str, Any]) -> None:
        (at,) = [index for index, said in enumerate(job["argv"]) if said.partition("=")[0] == key]
        job["argv"][at] = word

    return change


def _without(option: str) -> Callable[[dict[str, Any]], None]:
    return lambda job: job["argv"].remove(option)


def _world(count: int) -> Callable[[dict[str, Any]], None]:
    return lambda job: job.update(world=count)


def _environment(**values: str) -> Callable[[dict[str, Any]], None]:
    return lambda job: job.update(environment=values)


def _words(*words: str) -> Callable[[dict[str, Any]], None]:
    """What stands behind the script on its command line."""
    return lambda job: job.update(words=words)


def _text(file: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(job: dict[str, Any]) -> None:
        path = Path(job["folder"], file)
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


DENSE = "megatron-core/llama3-70b/dgx-h100:16/tp=4 pp=4 vpp=4 cp=2"
WHOLE = "megatron-core/llama3-70b/dgx-h100:16/tp=8 pp=4 rank_order=tp-cp-ep-pp-dp"
LORA = "hf-trainer/llama3-8b/dgx-h100:1//lora"
QLORA = "hf-trainer/llama3-8b/dgx-h100:1/micro=2/qlora"
REPLICAS = "pytorch-ddp/gpt2/dgx-a100-80gb:1/micro=2"
ON_AMD = "primus/llama3-70b/mi300x-8:16/tp=4 pp=4 vpp=4 cp=2"
ON_TPU = "maxtext/llama3.1-8b/tpu-v5p-4:16/"
STAGED = "maxtext/llama3.1-8b/tpu-v5p-4:16/pp=2 micro=2"
BROKEN: dict[str, list[tuple[str, Callable[[dict[str, Any]], None]]]] = {
    "megatron": [
        (DENSE, _argument("--tensor-model-parallel-size", "3")),
        (WHOLE, _argument("--num-layers", "79")),
        (DENSE, _world(100)),
        (DENSE, _argument("--no-such-flag", "1")),
        (DENSE, _without("--use-distributed-optimizer")),
        (DENSE, _without("--overlap-grad-reduce")),
        (DENSE, _argument("--pipeline-model-parallel-layout", "Et*20|t*20|t*20|t*19L")),
        (DENSE, _argument("--global-batch-size", "1022")),
        (DENSE, _argument("--expert-model-parallel-size", "8")),
        (DENSE, _argument("--fp16", "")),
        (DENSE, _environment(CUDA_DEVICE_MAX_CONNECTIONS="8")),
        ("megatron-core/llama3-8b/dgx-h100:4/zero=3 tp=2", _environment(CUDA_DEVICE_MAX_CONNECTIONS="1")),
        ("megatron-core/llama3-70b/dgx-h100:12/tp=8 pp=12", _argument("--pipeline-model-parallel-layout", "Et|tL")),
        ("megatron-core/mixtral-8x7b/dgx-h100:4/ep=8 pp=2", _argument("--num-experts", "12")),
        ("megatron-core/gpt-oss-20b/dgx-h100:2/ep=4", _argument("--softmax-type", "learned")),
        ("megatron-core/gpt-oss-120b/dgx-h100:8/ep=8 tp=2 etp=1", _argument("--expert-tensor-parallel-size", "2")),
    ],
    "megatron-bridge": [
        (DENSE, _text("bridge.json", "model.tensor_model_", "model.tensor_modell_")),
        (DENSE, _text("bridge.json", '_size": 4', '_size": 3')),
        (DENSE, _text("bridge.json", "llama3_70b_", "llama3_71b_")),
        (DENSE, lambda job: job["config"].update(num_hidden_layers=126)),
        (DENSE, _text("bridge.json", '"num_layers": 80', '"num_layers": 79')),
        (DENSE, _text("bridge.json", "bf16_mixed", "bf16_mixt")),
        (DENSE, _text("bridge.json", "tp_comm_overlap", "tp_com_overlap")),
        (DENSE, _text("bridge.json", '"train.global_batch_size": 1024', '"train.global_batch_size": 1022')),
        (DENSE, _world(100)),
        (DENSE, _words("train.train_iters")),
        (DENSE, _words("train.iterations=5")),
        (DENSE, _words("nothing.at.all=5")),
        ("megatron-core/llama3-8b/dgx-h100:4/zero=3 tp=2", _environment(CUDA_DEVICE_MAX_CONNECTIONS="1")),
        ("megatron-core/llama3-8b/dgx-h100:4/zero=3 tp=2", _text("bridge.json", "fsdp_dtensor", "torch_dist")),
    ],
    "primus": [
        (ON_AMD, _text("primus.yaml", "tensor_model_parallel_size", "tensor_parallel_size")),
        (ON_AMD, _text("primus.yaml", "tensor_model_parallel_size: 4", "tensor_model_parallel_size: 3")),
        (ON_AMD, _text("primus.yaml", "layernorm_epsilon", "layer_norm_epsilon")),
        (ON_AMD, _text("primus.yaml", "pre_trainer.yaml", "pre_train.yaml")),
        (ON_AMD, _text("primus.yaml", "language_model.yaml", "language_models.yaml")),
        (ON_AMD, _text("primus.yaml", "work_group", "group")),
        (ON_AMD, _text("primus.yaml", "pipeline_model_parallel_size: 4", "pipeline_model_parallel_size: 5")),
        (ON_AMD, _text("primus.yaml", "global_batch_size: 1024", "global_batch_size: 1022")),
        (ON_AMD, _text("primus.yaml", "bf16: true", "bf16: true\n        fp16: true")),
        (ON_AMD, _world(100)),
        ("primus/gpt-oss-20b/mi300x-8:2/ep=4", _text("primus.yaml", "expert_model_parallel_size: 4", "num_expert: 4")),
        ("primus/llama3.1-8b/mi300x-8:4/zero=2", _environment(CUDA_DEVICE_MAX_CONNECTIONS="1")),
    ],
    "torchtitan": [
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _argument("--parallelism.tensor_parallel_degree", "two")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _argument("--parallelism.tensor_paralel_degree", "2")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _argument("--parallelism.tensor_parallel_degree", "3")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _argument("--config", "no_such_function")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _argument("--job.config_file", "job.toml")),
        ("fsdp2/llama3-8b/dgx-h100:4/pp=2", _without("--training.disable_cuda_graphs")),
        ("fsdp2/llama3-8b/dgx-h100:4/pp=2", _argument("--parallelism.pipeline_parallel_microbatch_size", "7")),
        ("fsdp2/llama3-8b/dgx-h100:4/pp=2", _argument("--parallelism.pipeline_parallel_layers_per_stage", "5")),
        ("fsdp2/qwen3-30b-a3b/dgx-h100:4/ep=8", _without("--training.disable_cuda_graphs")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("plan_config.py", "n_heads=HEADS", "heads=HEADS")),
    ],
    "deepspeed": [
        ("deepspeed/llama3-8b/dgx-h100:4/zero=2", _text("ds_config.json", '"stage": 2', '"stage": 7')),
        ("deepspeed/llama3-8b/dgx-h100:4/zero=2", _text("ds_config.json", "overlap_comm", "overlap_com")),
        (
            "deepspeed/llama3-8b/dgx-h100:4/zero=2",
            _text("ds_config.json", '"train_batch_size": 512', '"train_batch_size": 500'),
        ),
        ("deepspeed/llama3-8b/dgx-h100:4/zero=2", lambda job: job.update(dp=16)),
        (
            "deepspeed/llama3-8b/dgx-h100:4/zero=2",
            _text("ds_config.json", '"bf16"', '"fp16": {"enabled": true}, "bf16"'),
        ),
        (
            "deepspeed/llama3-8b/dgx-h100:4/zero=3",
            _text("ds_config.json", '"stage": 3', '"stage": 3, "mics_shard_size": 8'),
        ),
    ],
    "accelerate": [
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("accelerate.yaml", "num_machines", "num_machine")),
        (
            "deepspeed/llama3-8b/dgx-h100:4/zero=1",
            _text("accelerate.yaml", "num_machines", "mixed_precision: bf16\nnum_machines"),
        ),
        (
            "fsdp2/llama3-8b/dgx-h100:2/tp=2",
            _text("accelerate.yaml", "distributed_type: FSDP", "distributed_type: FSPD"),
        ),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("accelerate.yaml", "tp_size: 2", "tp_size: 0")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("accelerate.yaml", "tp_size: 2", "tp_sise: 2")),
    ],
    "maxtext": [
        (ON_TPU, _word("remat_policy", "remat_polisy=minimal")),
        (ON_TPU, _word("base_emb_dim", "base_emb_dim=wide")),
        (ON_TPU, _word("decoder_block", "decoder_block=llama5")),
        (ON_TPU, _word("opt_type", "opt_type=adamx")),
        (ON_TPU, _word("dcn_data_parallelism", "dcn_data_parallelism=2")),
        (STAGED, _word("num_layers_per_pipeline_stage", "num_layers_per_pipeline_stage=15")),
        (STAGED, _word("num_pipeline_microbatches", "num_pipeline_microbatches=33")),
    ],
    "hf-trainer": [
        (REPLICAS, _argument("--bf16", "yess")),
        (REPLICAS, _argument("--per_device_train_batches", "1")),
        (REPLICAS, _argument("--fp16", "true")),
        (REPLICAS, _argument("--optim", "adamw")),
        (REPLICAS, _argument("--save_steps", "often")),
        ("deepspeed/llama3-8b/dgx-h100:4/zero=1", _argument("--gradient_accumulation_steps", "7")),
        ("deepspeed/llama3-8b/dgx-h100:4/zero=1", _argument("--learning_rate", "3e-4")),
        ("deepspeed/llama3-8b/dgx-h100:4/zero=1", _text("accelerate.yaml", "same_", "mixed_precision: bf16\nsame_")),
        ("fsdp2/llama3-8b/dgx-h100:1/", _text("accelerate.yaml", "dp_shard_size: 8", "dp_shard_size: 0")),
        ("fsdp2/llama3-8b/dgx-h100:1/", _text("accelerate.yaml", "distributed_type: FSDP", "distributed_type: FSPD")),
    ],
    "trl": [
        (LORA, _text("sft.yaml", "packing: true", "packed: true")),
        (LORA, _text("sft.yaml", "max_length: 8192", "max_length: many")),
        (LORA, _text("sft.yaml", "optim: adamw_torch", "optim: adamw")),
        (LORA, _text("sft.yaml", "bf16: true", "bf16: true\nfp16: true")),
        (QLORA, _text("sft.yaml", "load_in_4bit: true", "load_in_4bit: true\nload_in_8bit: true")),
        (
            "hf-trainer/llama3-8b/dgx-h100:2/zero=3 recompute=full/finetune",
            _text("accelerate.yaml", ": FSDP", ": FSPD"),
        ),
    ],
    "axolotl": [
        (LORA, _text("axolotl.yaml", "sample_packing", "sample_pack")),
        (LORA, _text("axolotl.yaml", "sequence_len: 8192", "sequence_len: many")),
        (LORA, _text("axolotl.yaml", "adapter: lora", "adapter: lorra")),
        (QLORA, _text("axolotl.yaml", "load_in_4bit: true", "load_in_4bit: false")),
        (QLORA, _text("axolotl.yaml", "micro_batch_size: 2", "micro_batch_size: 2\nbatch_size: 2")),
        ("fsdp2/llama3-8b/dgx-h100:1/", _text("axolotl.yaml", "SHARDED_STATE", "SHARED_STATE")),
    ],
    "llama-factory": [
        (LORA, _text("llama_factory.yaml", "cutoff_len: 8192", "cutoff: 8192")),
        (LORA, _text("llama_factory.yaml", "finetuning_type: lora", "finetuning_type: lorra")),
        (LORA, _text("llama_factory.yaml", "do_train: true", "do_train: true\nuse_dorra: true")),
        (LORA, _text("llama_factory.yaml", "bf16: true", "bf16: true\nfp16: true")),
        (QLORA, _text("llama_factory.yaml", "finetuning_type: lora", "finetuning_type: full")),
        (QLORA, _text("llama_factory.yaml", "quantization_bit: 4", "quantization_bit: 4\nresize_vocab: true")),
    ],
    "skypilot": [
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.yaml", "num_nodes", "num_node")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.yaml", "num_nodes: 2", "num_nodes: two")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.yaml", "H100:8", "H100:x")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.yaml", "network_tier: best", "network_tier: fastest")),
    ],
    "ray-train": [
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", "NODES = 2", 'NODES = "two"')),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", "use_gpu=True", "use_gpu=False")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", "num_workers=", "num_worker=")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", "resources_per_worker=", "resource_per_worker=")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", "max_failures=", "max_failure=")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("ray_train.py", '"start.sh"', '"begin.sh"')),
    ],
    "dstack": [
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.dstack.yml", "nodes: 2", "node: 2")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.dstack.yml", "nodes: 2", "nodes: 0")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.dstack.yml", "count: 8", "count: x")),
        ("fsdp2/llama3-8b/dgx-h100:2/tp=2", _text("task.dstack.yml", "type: task", "type: tsk")),
    ],
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_launcher_refuses_what_is_broken(name: str, tmp_path: Path) -> None:
    python(name)
    before = _before(name)
    plans = dict(expressible(name))
    jobs = []
    for number, (asked, change) in enumerate(BROKEN[name]):
        job = _job(plans[asked], name, tmp_path / str(number))
        change(job)
        jobs.append(job)
    for number, found in enumerate(ask(name, jobs, tmp_path, *before)):
        assert "error" in found, f"{name} takes broken case {number}: {json.dumps(found)[:300]}"
    kept(name, refused=len(jobs))
