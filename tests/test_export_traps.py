"""Where a launcher takes what is wrong without a word, export refuses it before anything is written: a test a trap."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner import api, verify
from planner.base.errors import WrongQuestion
from planner.launchers import (
    EXPORTERS,
    accelerate,
    bundle,
    deepspeed,
    megatron,
    nccl_tuner,
    parts,
    plan_facts,
    slurm,
    torchtitan,
)
from planner.launchers.bundle import refusals
from planner.schema.plan import CallChoice, CommunicationChoice, CommunicationRule, Plan
from tests.altering import altered
from tests.launchers import kubernetes_fields
from tests.launchers.environments import given
from tests.launchers.spread import MIXED, Case, chosen_plan, expressible, mixed, plan, two_pools
from tests.words import worded

OPTIONS = Path(__file__).parent / "golden" / "launchers" / "megatron_options.txt"
dense = partial(plan, Case("megatron-core", "llama3-70b", "dgx-h100:16", "tp=4 pp=4 vpp=4 cp=2"))
mixture = partial(plan, Case("megatron-core", "mixtral-8x7b", "dgx-h100:4", "ep=8 tp=2 pp=2"))
OWN = {"rotary-base": "", "lr": "1.0e-4"}
"""Settings that leave positions to the model."""
sharded = partial(plan, Case("fsdp2", "llama3-8b", "dgx-h100:2", "tp=2"))


def why_not(whole: Plan, name: str) -> str:
    return "; ".join(refusals(whole, EXPORTERS[name]))


def argv(whole: Plan, target: str = "megatron") -> list[str]:
    found: list[str] = json.loads(bundle(whole, parts(target), given(target)).files["target.json"])["argv"]
    return found


def environment(whole: Plan, target: str = "megatron") -> dict[str, str]:
    found: dict[str, str] = json.loads(bundle(whole, parts(target), given(target)).files["target.json"])["environment"]
    return found


def changed(whole: Plan, **parallelism: Any) -> Plan:
    return replace(whole, parallelism=replace(whole.parallelism, **parallelism))


# ---- Megatron --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "settings", "connections"),
    [
        ("dgx-h100:4", "zero=0", None),
        ("dgx-h100:4", "cp=4 micro=2", "1"),
        ("dgx-h100:2", "tp=4 pp=2", "1"),
        ("dgx-h100:4", "zero=3 tp=2", "8"),
        ("dgx-h100:4", "zero=2", "8"),
        ("dgx-b200:2", "tp=4 cp=2", None),
    ],
)
def test_connections_follow_the_generation(cluster: str, settings: str, connections: str | None) -> None:
    whole = plan(Case("megatron-core", "llama3-8b", cluster, settings))
    assert environment(whole).get("CUDA_DEVICE_MAX_CONNECTIONS") == connections


def test_an_environment_that_contradicts_the_degrees_is_refused() -> None:
    assert "this plan needs 1" in why_not(replace(dense(), env={megatron.CONNECTIONS: "8"}), "megatron")
    assert not why_not(replace(dense(), env={megatron.CONNECTIONS: "1", "OTHER": "x"}), "megatron")


def test_gradients_are_as_wide_as_the_plan_counts_them() -> None:
    """``--bf16`` accumulates in 32 bit by itself, ``--fp16`` in 16 unless told."""
    wide = "--accumulate-allreduce-grads-in-fp32"
    half = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "precision=fp16 micro=4"))
    assert half.runtime.bytes_per_parameter["gradients"] == 4.0
    assert wide in argv(half)
    assert wide not in argv(dense())


def test_context_parallelism_needs_ampere() -> None:
    """Transformer Engine's fused kernels begin there, and its unfused one does not share a sequence."""
    whole = plan(Case("megatron-core", "llama3-8b", "dgx-a100-80gb:4", "cp=2"))
    assert not why_not(whole, "megatron")
    (pool,) = whole.cluster.pools
    rates = {name: rate for name, rate in pool.peak_flops.items() if name != "bf16"}
    volta = replace(pool, accelerator="V100-SXM2-32GB", peak_flops=rates)
    says = "context parallelism on V100-SXM2-32GB (pool 0): its kernels begin with Ampere"
    assert says in why_not(replace(whole, cluster=replace(whole.cluster, pools=(volta,))), "megatron")
    with pytest.raises(WrongQuestion, match="cp=2: megatron-core has no kernel for it on V100"):
        api.plan("llama3-8b", "dgx-v100:2", pin=("cp=2",))


def test_a_mixture_with_tensor_parallelism_needs_sequence_parallelism() -> None:
    assert not why_not(mixture(), "megatron")
    assert "needs sequence parallelism" in why_not(changed(mixture(), sequence_parallel=False), "megatron")


def test_sequence_parallelism_alone_is_refused() -> None:
    alone = replace(changed(dense(), tp=1), overlap=replace(dense().overlap, tp=False))
    assert "sequence parallelism without tensor parallelism" in why_not(alone, "megatron")


def test_transformer_engine_is_never_switched_off() -> None:
    for _, whole in expressible("megatron"):
        assert not {"--transformer-impl", "--no-rope-fusion", "--mock-data"} & set(argv(whole))


def test_a_batch_that_does_not_divide_never_reaches_megatron() -> None:
    odd = replace(dense(), batch=replace(dense().batch, global_=1022, per_pool=(1022,)))
    with pytest.raises(verify.Inconsistent, match="not the global batch"):
        verify.check(odd, may_exceed_limits=True)


def test_fewer_key_value_heads_than_ranks_are_legal() -> None:
    stages = tuple(replace(stage, tp=16, dp=2) for stage in dense().parallelism.stages)
    whole = changed(dense(), tp=16, cp=1, dp=2, dp_shard=2, stages=stages)
    assert whole.workload.shape["kv_heads"] == 8
    assert not why_not(whole, "megatron")


def test_layouts_hold_every_layer() -> None:
    for asked, whole in expressible("megatron"):
        told = argv(whole)
        if "--pipeline-model-parallel-layout" in told:
            layout = told[told.index("--pipeline-model-parallel-layout") + 1]
            sizes = [int(n or 1) for n in re.findall(r"t(?:\*(\d+))?", layout)]
            assert sum(sizes) == whole.workload.shape["layers"], asked
            assert len(sizes) == whole.parallelism.pp * whole.parallelism.vpp, asked
        else:
            assert len(set(plan_facts.chunks(whole))) == 1, asked


def test_every_option_is_in_both_revisions() -> None:
    lines = [line.split() for line in OPTIONS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    known = {name for name, *revisions in lines if revisions == ["12"]}
    for asked, whole in expressible("megatron"):
        assert {word for word in argv(whole) if word.startswith("--")} <= known, asked


def test_interleaving_on_two_stages_needs_overlap() -> None:
    whole = plan(Case("megatron-core", "llama3-70b", "dgx-h100:16", "tp=8 pp=2 vpp=4 p2p_overlap=on"))
    assert not why_not(whole, "megatron")
    assert "overlapped transfers" in why_not(replace(whole, overlap=replace(whole.overlap, p2p=False)), "megatron")


def test_experts_exchanges_overlap_where_the_plan_says_so() -> None:
    case = Case("megatron-core", "mixtral-8x7b", "dgx-h100:4", "ep=8 pp=2 vpp=4 ep_overlap=on")
    on, flag = plan(case), "--overlap-moe-expert-parallel-comm"
    off = replace(on, overlap=replace(on.overlap, ep=None))
    assert flag in argv(on) and flag not in argv(off)
    assert environment(on)["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"


oss = partial(plan, Case("megatron-core", "gpt-oss-20b", "dgx-h100:2", "ep=4"))


def test_biases_everywhere_and_attention_sinks_have_options() -> None:
    told = argv(oss())
    assert not {"--disable-bias-linear", "--add-qkv-bias"} & set(told)
    assert "--no-bias-dropout-fusion" in told  # grouped experts with biases stop without it
    assert told[told.index("--softmax-type") + 1] == "learnable"
    made = bundle(oss(), parts("megatron"), given("megatron"))
    assert {loss.field for loss in made.losses} == {"workload.shape.rotary.scaling"}
    assert ("--quick-geglu" in told, told[told.index("--glu-linear-offset") + 1]) == (True, "1.0")


def test_biases_of_experts_go_with_whole_experts() -> None:
    assert not why_not(oss(), "megatron")
    assert "biases of experts need etp 1, not 2" in why_not(changed(oss(), etp=2), "megatron")
    shared = {**oss().workload.shape, "moe": {**oss().workload.shape["moe"], "shared_ffn": 2880}}
    assert "shared experts have no biases" in why_not(
        replace(oss(), workload=replace(oss().workload, shape=shared)), "megatron"
    )


@pytest.mark.parametrize(
    ("qkv", "output", "mlp", "options"),
    [
        (True, True, True, []),
        (False, False, False, ["--disable-bias-linear"]),
        (True, False, False, ["--disable-bias-linear", "--add-qkv-bias"]),
        (True, True, False, None),
        (False, True, True, None),
    ],
)
def test_biases_of_some_layers_are_refused(qkv: bool, output: bool, mlp: bool, options: list[str] | None) -> None:
    shape = {**dense().workload.shape, "qkv_bias": qkv, "output_bias": output, "mlp_bias": mlp}
    whole = replace(dense(), workload=replace(dense().workload, shape=shape))
    if options is None:
        assert "biases are on all linear layers, on none" in why_not(whole, "megatron")
    else:
        assert [word for word in argv(whole) if "bias" in word] == options


# ---- torchtitan ------------------------------------------------------------------------------------------------------


def test_the_mesh_of_torchtitan_fills_the_world() -> None:
    for asked, whole in expressible("torchtitan"):
        told = dict(pairwise(argv(whole, "torchtitan")))
        degrees = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "context_parallel")
        product = int(told["--parallelism.pipeline_parallel_degree"])
        for name in degrees:
            product *= int(told[f"--parallelism.{name}_degree"])
        assert product == whole.cluster.accelerators, asked


def test_pipelines_and_experts_run_without_cuda_graphs() -> None:
    for asked, whole in expressible("torchtitan"):
        needs = whole.parallelism.pp > 1 or whole.parallelism.ep > 1
        assert ("--training.disable_cuda_graphs" in argv(whole, "torchtitan")) == needs, asked


def test_a_pipeline_of_torchtitan_has_a_micro_batch_for_every_stage() -> None:
    """torch's schedule stops at fewer; torchtitan's parser does not see it."""
    piped = api.estimate("llama3-8b", "dgx-h100:4", ["pp=4", "micro=16"], runtime="fsdp2", batch="256").plans[0]
    assert piped.batch.accumulation == 2
    assert why_not(piped, "torchtitan") == "torch's 1F1B needs a micro-batch for each of 4 stages, a step has 2"


def test_formats_and_recomputation_are_in_the_module() -> None:
    whole = plan(Case("fsdp2", "llama3-8b", "dgx-h100:4", "precision=fp8 tp=2 recompute=full"))
    module = torchtitan.module(whole, OWN)
    assert "CONVERTERS = [Float8LinearConverter" in module
    assert "RECOMPUTE = FullAC.Config()" in module
    assert "CONVERTERS = []" in torchtitan.module(sharded(), OWN)


def test_a_job_that_is_started_again_goes_on() -> None:
    options = argv(dense())
    assert options[options.index("--load") + 1] == options[options.index("--save") + 1] == "/given/save"
    assert "--pretrained-checkpoint" not in options
    tuned = replace(dense(), workload=replace(dense().workload, method={**dense().workload.method, "kind": "finetune"}))
    options = argv(tuned)
    assert options[options.index("--pretrained-checkpoint") + 1] == "/given/load"
    assert options[options.index("--load") + 1] == "/given/save"
    assert "--finetune" not in options  # it would begin again, from step 0, whenever it is started


# ---- plans over several pools --------------------------------------------------------------------------------------


def test_unlike_pipelines_are_no_job_of_a_launcher() -> None:
    unlike, whole = (mixed(*question) for question in MIXED)
    assert len(unlike.parallelism.groups) == 2
    for name in ("megatron", "torchtitan", "deepspeed", "accelerate"):
        assert "it has 2 groups of heterogeneous pipelines" in why_not(unlike, name)
    assert not why_not(whole, "megatron")
    options = argv(whole)
    assert options[options.index("--pipeline-model-parallel-size") + 1] == "16"


@pytest.mark.parametrize(
    ("stage", "group", "says"),
    [
        ({"cp": 2}, {}, "cp differs from stage to stage (2, 1, "),
        ({"ep": 4}, {}, "ep differs from stage to stage (4, 1, "),
        ({"recompute": "full"}, {}, "recompute differs from stage to stage (full, none, "),
        ({}, {"micro_batches": 1537}, "1,536 sequences in micro-batches for 1,537"),
    ],
)
def test_a_pipeline_with_unlike_stages_is_refused(stage: dict[str, Any], group: dict[str, Any], says: str) -> None:
    whole = mixed(*MIXED[1])
    (only,) = whole.parallelism.groups
    first, *others = only.stages
    unlike = replace(only, stages=(replace(first, **stage), *others), **group)
    assert says in why_not(changed(whole, groups=(unlike,)), "megatron")


def test_stages_beside_each_other_do_not_span_pools() -> None:
    """With ``--use-tp-pp-dp-mapping`` ranks of a pipeline follow one another: each stage would lie on both pools."""
    whole = two_pools(plan(Case("megatron-core", "llama3-70b", "dgx-h100:16", "tp=8 pp=4")))
    assert not why_not(whole, "megatron")
    says = "rank order tp-cp-ep-pp-dp puts all stages of a replica on adjacent ranks; several pools need tp-cp-ep-dp-pp"
    assert why_not(changed(whole, rank_order="tp-cp-ep-pp-dp"), "megatron") == says
    assert not why_not(changed(dense(), rank_order="tp-cp-ep-pp-dp"), "megatron")


# ---- DeepSpeed -------------------------------------------------------------------------------------------------------

GOOD = {
    "train_batch_size": 512,
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 16,
    "zero_optimization": {"stage": 1},
    "bf16": {"enabled": True},
}


@worded("export.deepspeed_files", read=json.loads)
def test_deepspeed_files_are_checked(change: dict[str, Any]) -> str:
    deepspeed.lint(GOOD, 8, 1)
    with pytest.raises(WrongQuestion) as told:
        deepspeed.lint(GOOD | change, 8, 1)
    return str(told.value)


def test_a_pipeline_of_deepspeed_goes_with_little_zero() -> None:
    whole = plan(Case("deepspeed", "llama3-8b", "dgx-h100:4", "zero=1 tp=2 pp=2"))
    assert not why_not(whole, "deepspeed")
    assert "ZeRO 0 or 1, not 3" in why_not(changed(whole, zero_stage=3), "deepspeed")


# ---- Accelerate ------------------------------------------------------------------------------------------------------


def test_accelerate_multiplies_its_degrees() -> None:
    settings = accelerate.configuration(sharded(), given("accelerate") | {"master-port": "1"})
    accelerate.lint(settings, 16)
    with pytest.raises(WrongQuestion, match="num_processes is 16, the cluster has 32"):
        accelerate.lint(settings, 32)
    inner = settings["parallelism_config"]
    with pytest.raises(WrongQuestion, match="make 32 processes, not 16"):
        accelerate.lint(settings | {"parallelism_config": inner | {"parallelism_config_tp_size": 4}}, 16)
    replicas = {"parallelism_config_dp_replicate_size": 8, "parallelism_config_dp_shard_size": 1}
    with pytest.raises(WrongQuestion, match="replicas without shards"):
        accelerate.lint(settings | {"parallelism_config": inner | replicas}, 16)


# ---- schedulers ------------------------------------------------------------------------------------------------------


def test_skypilot_gets_only_accelerators_that_exist() -> None:
    unknown = altered(dense(), {"cluster.pools.0.accelerator": "H999"})
    assert "no known name for H999" in why_not(unknown, "skypilot")


@pytest.mark.parametrize(
    ("vendor", "resource"), [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Intel", "habana.ai/gaudi")]
)
def test_pods_ask_for_the_resource_of_their_vendor(vendor: str, resource: str) -> None:
    (pool,) = dense().cluster.pools
    whole = replace(dense(), cluster=replace(dense().cluster, pools=(replace(pool, vendor=vendor),)))
    for scheduler in ("jobset", "trainjob", "pytorchjob", "volcano"):
        made = bundle(whole, parts(f"torchrun+{scheduler}"), given(f"torchrun+{scheduler}"))
        assert f"{resource}: 8" in made.files[f"{scheduler}.yaml"]
        unknown = replace(
            whole, cluster=replace(whole.cluster, pools=(replace(pool, accelerator="Dojo-D1", vendor="Tesla"),))
        )
        assert "no Kubernetes resource is known for Dojo-D1" in why_not(unknown, scheduler)


def test_ray_counts_gpus_alone() -> None:
    whole = altered(dense(), {"cluster.pools.0.accelerator": "Gaudi2", "cluster.pools.0.vendor": "Intel"})
    for scheduler in ("ray-train", "rayjob"):
        assert "Gaudi2 (pool 0): it runs on accelerators of nvidia and amd" in why_not(whole, scheduler)


def test_unlike_pools_in_kubernetes_are_told() -> None:
    whole = mixed(*MIXED[1])
    for scheduler in ("jobset", "volcano"):
        target = f"megatron+{scheduler}"
        assert "cluster.pools" in {loss.field for loss in bundle(whole, parts(target), given(target)).losses}


@pytest.mark.parametrize("scheduler", ["jobset", "volcano"])
def test_each_pool_lands_on_its_own_nodes(scheduler: str) -> None:
    whole, target = on_pools(H100, H200), f"megatron+{scheduler}"
    labels = {"pool.dgx-h100.node-label": "nvidia.com/gpu.product=NVIDIA-H100", "pool.dgx-h200.node-label": "tier="}
    made = yaml.safe_load(bundle(whole, parts(target), given(target) | labels).files[f"{scheduler}.yaml"])
    found = [pod["nodeSelector"] for pod in pods(made)]
    assert found == [{"nvidia.com/gpu.product": "NVIDIA-H100"}, {"tier": ""}]
    assert not kubernetes_fields.problems(scheduler, made)
    for wrong in ("h100", "=h100", "a b=c", "a=b c", "a=b\nc", "-a=b", "/a=b", "a=$(x)"):
        with pytest.raises(WrongQuestion, match="write a label of nodes as NAME=VALUE"):
            bundle(whole, parts(target), given(target) | {"pool.dgx-h100.node-label": wrong})


def pods(value: Any) -> list[dict[str, Any]]:
    """Whatever in a document has containers."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, dict) and "containers" in value else [p for part in inner for p in pods(part)]


def test_names_in_kubernetes_are_labels() -> None:
    for name in ("Llama 3.1 405B", "9lives", "---", "é", "a" * 99, ""):
        whole = replace(dense(), workload=replace(dense().workload, model=name))
        made = bundle(whole, parts("megatron+jobset"), given("megatron+jobset"))
        label = yaml.safe_load(made.files["jobset.yaml"])["metadata"]["name"]
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", label), name


def batch_script(whole: Plan, **more: str) -> str:
    return bundle(whole, parts("megatron+slurm"), given("megatron+slurm") | more).files["job.sbatch"]


def set_(**values: str) -> dict[str, str]:
    """``gpu_type`` as ``gpu-type``."""
    return {name.replace("_", "-"): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("", "8"), ("h100", "h100:8"), ("1g.10gb", "1g.10gb:8"), ("nvidia_h100-80", "nvidia_h100-80:8")],
)
def test_gpu_lines_of_slurm_parse(kind: str, expected: str) -> None:
    text = batch_script(dense(), **set_(gpu_type=kind))
    assert f"#SBATCH --gpus-per-node={expected}\n" in text
    slurm.lint(text, [8])


@pytest.mark.parametrize(
    "kind", ["8", "h100:4", "a100,v100", "h100/2", "gpu+", "+", "h 100", "<h100>", "h100\n#SBATCH --uid=0"]
)
def test_types_that_slurm_would_read_as_something_else_are_refused(kind: str) -> None:
    with pytest.raises(WrongQuestion, match="SBATCH"):
        batch_script(dense(), **set_(gpu_type=kind))


@worded("export.gpu_lines", read=json.loads)
def test_corrupted_gpu_lines_are_refused(change: tuple[str, str]) -> str:
    """No node without GPUs can say so: Slurm would refuse the right ones, too."""
    text, (old, new) = batch_script(dense(), **set_(gpu_type="h100")), change
    assert old in text
    with pytest.raises(WrongQuestion) as told:
        slurm.lint(text.replace(old, new, 1), [8])
    return str(told.value)


def on_pools(*pools: tuple[str, str]) -> Plan:
    """A plan over two pools with these nodes and accelerators."""
    whole = two_pools(plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "recompute=selective pp=4")))
    kinds = [replace(p, node=n, accelerator=a) for p, (n, a) in zip(whole.cluster.pools, pools, strict=True)]
    return replace(whole, cluster=replace(whole.cluster, pools=tuple(kinds)))


H100, H200 = ("dgx-h100", "H100-SXM5-80GB"), ("dgx-h200", "H200-SXM-141GB")
LARGE, SMALL = ("dgx-a100-80gb", "A100-SXM4-80GB"), ("dgx-a100-40gb", "A100-SXM4-40GB")
OTHER = ("tpu-v5e", "TPU-v5e")


@pytest.mark.parametrize(
    ("pools", "more", "types", "partitions"),
    [
        ((H100, H200), {}, ["h100", "h200"], []),
        ((H100, H100), {}, [None, None], []),
        ((H100, H100), {"gpu-type": "hopper"}, ["hopper", "hopper"], []),
        ((LARGE, SMALL), {}, ["<pool.dgx-a100-80gb.gpu-type>", "<pool.dgx-a100-40gb.gpu-type>"], []),
        ((H100, OTHER), {}, ["h100", "<pool.tpu-v5e.gpu-type>"], []),
        ((H100, H200), {"partition": "all", "pool.dgx-h200.partition": "new"}, ["h100", "h200"], ["all", "new"]),
        ((H100, H200), {"pool.dgx-h200.gpu-type": "nvidia_h200"}, ["h100", "nvidia_h200"], []),
        ((H100, H100), {"pool.dgx-h100#2.partition": "b", "partition": "a"}, [None, None], ["a", "b"]),
    ],
)
def test_each_pool_asks_for_its_own_gpus(
    pools: tuple[tuple[str, str], ...], more: dict[str, str], types: list[str | None], partitions: list[str]
) -> None:
    made = bundle(on_pools(*pools), parts("torchrun+slurm"), given("torchrun+slurm") | more)
    components = made.files["job.sbatch"].split("#SBATCH hetjob\n")
    lines = [f"#SBATCH --gpus-per-node={kind + ':' if kind else ''}8" for kind in types]
    for number, (component, line) in enumerate(zip(components, lines, strict=True)):
        assert line in component.splitlines()
        assert "#SBATCH --time=" in component
        asked = [text for text in component.splitlines() if "--partition" in text]
        assert asked == ([f"#SBATCH --partition={partitions[number]}"] if partitions else [])
    left = [kind for kind in types if kind and kind.startswith("<")]
    assert [f"<{setting.name}>" for setting in made.missing] == left
    assert all(mark in made.files["README"] for mark in left)


def test_one_type_for_unlike_pools_is_refused() -> None:
    with pytest.raises(WrongQuestion, match=r"different accelerators; write --set pool\.dgx-h100\.gpu-type="):
        batch_script(on_pools(H100, H200), **set_(gpu_type="h100"))
    with pytest.raises(WrongQuestion, match=r"did you mean pool\.dgx-h100\.gpu-type\?"):
        batch_script(on_pools(H100, H200), **{"pool.dgx-h10.gpu-type": "h100"})


# ---- NCCL ------------------------------------------------------------------------------------------------------------


def rule(**changes: Any) -> CommunicationRule:
    usual = {"op": "all-reduce", "group": "dp", "backend": "nccl", "algorithm": "ring", "protocol": "simple"}
    return CommunicationRule(**{**usual, "bytes_min": 0, "bytes_max": 1 << 20, **changes})


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ((), "no communication rules for NCCL"),
        ((rule(op="all-to-all"),), "would be read as allreduce"),
        ((rule(op="send-recv"),), "would be read as allreduce"),
        ((rule(algorithm="rong"),), "would be read as ring"),
        ((rule(protocol="ll256"),), "would be read as simple"),
        ((rule(protocol=""),), "would be read as simple"),
        ((rule(algorithm="", protocol=""),), "no communication rules for NCCL"),
        ((rule(op="all-gather", algorithm="tree"),), "no tree for allgather and would ignore the row"),
        ((rule(op="broadcast", algorithm="nvls"),), "no nvls for broadcast"),
        ((rule(algorithm="pat"),), "no pat for allreduce"),
        ((rule(algorithm="nvls", protocol="ll"),), "no ll for nvls"),
        ((rule(op="all-gather", algorithm="pat", protocol="ll128"),), "no ll128 for pat"),
        ((rule(algorithm="nvls_tree", ranks=8),), "no nvls_tree inside one node"),
        ((rule(ranks=8), rule(ranks=8, algorithm="tree")), "overlap"),
        ((rule(ranks=8), rule()), "of any ranks and of some"),
        ((rule(), rule(bytes_min=1 << 22, bytes_max=1 << 23)), "no row for allreduce between"),
        ((rule(), rule(bytes_min=1 << 10, bytes_max=1 << 23)), "overlap"),
    ],
)
def test_every_word_for_nccl_is_checked(rules: tuple[CommunicationRule, ...], says: str) -> None:
    assert says in why_not(replace(dense(), communication=rules), "nccl-tuner")


def test_sizes_above_four_gigabytes_have_a_row() -> None:
    whole = replace(dense(), communication=(rule(bytes_max=1 << 34),))
    assert not why_not(whole, "nccl-tuner")
    assert nccl_tuner.row(whole.communication[0]).split(",")[2] == str(1 << 34)


def test_groups_of_one_size_share_rows_and_others_have_their_own() -> None:
    rules = (rule(ranks=8, group="tp"), rule(ranks=8), rule(ranks=16, algorithm="tree", protocol="ll"))
    whole = replace(dense(), communication=rules)
    assert not why_not(whole, "nccl-tuner")
    made = bundle(whole, parts("torchrun+nccl-tuner"), given("torchrun+nccl-tuner"))
    rows = made.files[nccl_tuner.NAME].splitlines()
    assert [line.split(",")[-1] for line in rows] == ["8", "16"]
    assert any("share their rows" in loss.why for loss in made.losses)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ((rule(),), {"NCCL_ALGO": "AllReduce:ring", "NCCL_PROTO": "AllReduce:simple"}),
        (
            (rule(bytes_max=9), rule(bytes_min=10, algorithm="tree", protocol="ll"), rule(op="all-gather")),
            {"NCCL_ALGO": "AllReduce:ring,tree;AllGather:ring", "NCCL_PROTO": "AllReduce:simple,ll;AllGather:simple"},
        ),
        ((rule(algorithm="nvls_tree"),), {"NCCL_ALGO": "AllReduce:NVLSTree,ring", "NCCL_PROTO": "AllReduce:simple"}),
        ((rule(protocol="ll128"),), {"NCCL_ALGO": "AllReduce:ring"}),
        ((rule(), rule(ranks=4, algorithm="", protocol="")), {}),
        ((rule(op="broadcast"),), {"NCCL_ALGO": "Broadcast:ring", "NCCL_PROTO": "Broadcast:simple"}),
    ],
)
def test_the_environment_holds_nccl_to_what_the_rules_use(
    rules: tuple[CommunicationRule, ...], expected: dict[str, str]
) -> None:
    """LL128 is never named: NCCL would use it where it is not safe; and the ring stays where switches have to add."""
    assert nccl_tuner.environment(replace(dense(), communication=rules)) == expected


def test_what_other_back_ends_would_have_saved_is_told() -> None:
    told = CallChoice(
        op="send-recv",
        group="pp",
        ranks=4,
        bytes=100.0,
        count=1.0,
        choice="mpich",
        runner_up="nccl",
        alone_s=1.0,
        base_s=2.0,
        extrapolated=False,
        saved_s=0.25,
    )
    why = CommunicationChoice(
        table="t.csv",
        sha256="",
        base="nccl",
        live=("mpich", "nccl"),
        most=2,
        margin=0.2,
        gap=0.0,
        saved_s=0.25,
        step_time_s=dense().prediction.step_time_s - 0.25,
        calls=(told,),
    )
    rules = (rule(), rule(op="send-recv", backend="mpich", algorithm="", protocol=""))
    losses = list(nccl_tuner.loses(replace(dense(), communication=rules, communication_choice=why)))
    assert "rules for mpich are not in the table: 250 ms a step more" in losses[0].why


def test_what_comm_choose_writes_is_taken_and_each_call_meets_its_row() -> None:
    """The plugin's reading, written out: the first row of the operation, the bytes and the ranks."""
    whole = chosen_plan()
    made = bundle(whole, parts("torchrun+nccl-tuner"), given("torchrun+nccl-tuner"))
    rows = [line.split(",") for line in made.files[nccl_tuner.NAME].splitlines()]
    assert whole.communication_choice is not None
    tuned = [call for call in whole.communication_choice.calls if " " in call.choice]
    assert tuned
    for call in tuned:
        met = [
            f"nccl {row[3]}/{row[4]}"
            for row in rows
            if row[0] == call.op.replace("-", "")
            and int(row[1]) <= call.bytes <= int(row[2])
            and int(row[7]) == call.ranks
        ]
        assert met == [call.choice]
    assert any("send-recv" in loss.why for loss in made.losses if loss.field == "communication.op")
