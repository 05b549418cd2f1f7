"""``clusterwright import`` and ``compare``: what export wrote reads back to the same plan; wrong files are told."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.launchers import EXPORTERS, bundle, parts, plan_facts, reading
from planner.launchers.reading import deepspeed
from planner.launchers.torchrun import NAME as START
from planner.planning import comparison, document
from planner.schema.plan import Group, GroupStage, Plan
from tests.asking import ask
from tests.launchers.environments import given
from tests.launchers.spread import EVERY, Case, expressible, plan
from tests.sweeps import sweep
from tests.words import worded

MINE = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 2 --num-layers 80 --hidden-size 8192 "
    "--num-attention-heads 64 --ffn-hidden-size 28672 --swiglu --group-query-attention --num-query-groups 8 "
    "--normalization RMSNorm --untie-embeddings-and-output-weights --disable-bias-linear --seq-length 8192 "
    "--position-embedding-type rope --rotary-base 500000 --hidden-dropout 0 --attention-dropout 0 "
    "--micro-batch-size 1 --global-batch-size 1024 --bf16 --use-distributed-optimizer "
    "--sequence-parallel --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
    "--log-interval 10 --cross-entropy-loss-fusion"
)
TITAN = "--module llama3 --training.local_batch_size 2 --training.seq_len 8192"
DS, AX, MEGATRON = "ds_config.json", "axolotl.yaml", "megatron-core"
LIKE = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "etp",
    "dp",
    "dp_shard",
    "zero_stage",
    "zero_scope",
    "sequence_parallel",
    "stages",
)


pytestmark = pytest.mark.usefixtures("folder")


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans train the same thing the same way."""
    return (
        all(getattr(a.parallelism, name) == getattr(b.parallelism, name) for name in LIKE)
        and a.batch == b.batch
        and a.precision == b.precision
        and a.workload.sequence == b.workload.sequence
        and a.workload.parameters == b.workload.parameters
        and a.recompute.policy[:5] == b.recompute.policy[:5]
        and a.offload == b.offload
    )


def cluster(whole: Plan) -> list[str]:
    (pool,) = whole.cluster.pools
    return [f"{pool.node}:{pool.count}"]


@pytest.mark.parametrize(
    ("target", "runtime"), [("megatron", "megatron-core"), ("torchtitan", "fsdp2"), ("deepspeed", "deepspeed")]
)
def test_what_export_wrote_reads_back(target: str, runtime: str) -> None:
    found = [(asked, p) for asked, p in expressible(target, (runtime,)) if len(p.cluster.pools) == 1][::2]
    assert len(found) >= 10 // EVERY
    for asked, whole in found:
        made = bundle(whole, parts(target), given(target)).files
        text = made["ds_config.json"] if target == "deepspeed" else made[START]
        shown = target == "megatron"
        complete = shown and not [*EXPORTERS[target].loses(whole)]
        pinned = {} if shown else {"recompute": whole.recompute.policy}
        if target == "torchtitan" and len(set(plan_facts.chunks(whole))) > 1:
            pinned["vpp"] = str(whole.parallelism.vpp)  # the module deals the layers, not the command
        present = reading.plan(
            target,
            text,
            cluster(whole),
            model=None if complete else whole.workload.model,
            seq=whole.workload.sequence if target == "deepspeed" else None,
            precision=None if shown or target == "deepspeed" else whole.precision,
            pinned=pinned,
        )
        assert same(present.plans.plans[0], whole), asked
        assert not present.differs, asked


@pytest.mark.parametrize(
    ("target", "case", "name", "written"),
    [
        ("torchtitan", Case("fsdp2", "llama3-8b", "dgx-h100:8", "tp=2 zero=3 zero_scope=nodes:2"), START, "degree 4"),
        ("megatron", Case(MEGATRON, "qwen3-30b-a3b", "dgx-h100:8", "ep=8 zero_scope=nodes:2"), START, "-instances 4"),
        ("deepspeed", Case("deepspeed", "llama3-8b", "dgx-h100:8", "zero=3 zero_scope=nodes:4"), DS, '_size": 32'),
        ("axolotl", Case("hf-trainer", "llama3-8b", "dgx-h100:8", "zero=3 zero_scope=nodes:2"), AX, "_size: 16"),
    ],
)  # fmt: skip
def test_copies_on_several_nodes_are_written_and_read_back(target: str, case: Case, name: str, written: str) -> None:
    whole = plan(case)
    text = bundle(whole, parts(target), given(target)).files[name]
    asked = {"seq": whole.workload.sequence, "precision": None if target == "axolotl" else whole.precision}
    (back,) = reading.plan(target, text, cluster(whole), model=case.model, **asked).plans.plans
    assert written in text
    assert (back.parallelism.zero_scope, back.parallelism.dp_shard) == (
        whole.parallelism.zero_scope,
        whole.parallelism.dp_shard,
    )


def test_a_command_line_finds_its_model(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, f"import '{MINE}' --from megatron --cluster dgx-h100:16 -o mine.json")
    assert answer.code == 0, answer.err
    assert "Llama 3 70B" in answer.report
    assert (
        "Read as        megatron: vocabulary 128,256, 128 ranks, adamw, 1 x 128 sequences a rank and step"
        in answer.report
    )
    assert "Ignored        log-interval: a plan has no field for these" in answer.report
    ask(capsys, "plan llama3-70b --cluster dgx-h100:16 -o best.json")
    answer = ask(capsys, "compare mine.json best.json")
    assert answer.code == 0
    assert "Gain           best: " in answer.report
    assert " faster (80 %: " in answer.report
    assert "recompute" in answer.report
    assert "Warning" not in answer.report
    gained = ask(capsys, "compare mine.json best.json --json").document
    assert gained["tokens"] > 1.1
    assert gained["usd"] < 0
    assert gained["distinguishable"] is True


def test_a_shape_that_is_in_no_library_is_taken_as_it_is() -> None:
    present = reading.plan("megatron", MINE.replace("28672", "24576"), ["dgx-h100:16"])
    (best,) = present.plans.plans
    assert best.workload.name == "imported model"
    assert best.workload.shape["ffn"] == 24576


@worded("import.files")
def test_what_cannot_be_read_is_told(case: str) -> str:
    source, text = case.split(": ", 1)
    model = None if source.endswith(" without a model") else "llama3-70b"
    with pytest.raises(WrongQuestion) as told:
        reading.plan(
            source.split()[0], text.replace("MINE", MINE).replace("TITAN", TITAN), ["dgx-h100:16"], model=model
        )
    return str(told.value).replace(MINE, "MINE")


SCRIPT = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=4; PP=${PP:-8}
LAYERS=80  # of Llama's
MODEL_ARGS="
    --num-layers $LAYERS --hidden-size 8192 \\
    --num-attention-heads 64"
TRAINING_ARGS=(
    --micro-batch-size 2  # what fits
    --global-batch-size "512"
    --moe-layer-freq "([0]*3+[1]*58)"
)
TRAINING_ARGS+=(--seq-length 4096)
torchrun --nnodes $SLURM_NNODES pretrain_gpt.py $MODEL_ARGS "${TRAINING_ARGS[@]}" \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size 8 --data-path $DATA "$@" 2>&1 | tee $LOG
"""


def test_variables_of_a_script_are_put_in() -> None:
    found = reading.read("megatron", SCRIPT)
    assert (found.settings["tp"], found.settings["pp"], found.settings["micro"]) == (4, 8, 2)
    assert (found.batch, found.sequence) == (512, 4096)
    assert (found.shape["layers"], found.shape["hidden"], found.shape["heads"]) == (80, 8192, 64)


def test_what_changes_sharding_is_taken_over() -> None:
    plain = MINE.replace("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "")
    more = "--recompute-activations --use-torch-fsdp2 --decoder-first-pipeline-num-layers 38 --train-samples 10241"
    found = reading.read("megatron", f"{plain} {more}")
    assert (found.settings["recompute"], found.settings["zero"]) == ("selective", 3)
    assert (found.chunks, found.samples, found.unread) == ([38, 42], 10241, ["log-interval"])


@pytest.mark.parametrize(
    ("model", "cluster", "pins"),
    [
        ("deepseek-v2", "dgx-h100:32", "ep=32 pp=8"),
        ("deepseek-v3", "dgx-h100:64", "ep=32 pp=8"),
        ("gpt-oss-20b", "dgx-h100:2", "ep=8 pp=2"),
        ("gpt-oss-20b", "dgx-h100:2", "ep=8 pp=2 vpp=4 ep_overlap=on"),
        ("gpt-oss-20b", "dgx-h100:2", "ep=8 pp=2 vpp=4 ep_overlap=off"),
    ],
)
def test_latents_windows_and_overlaps_read_back(model: str, cluster: str, pins: str) -> None:
    whole = plan(Case("megatron-core", model, cluster, pins))
    made = bundle(whole, parts("megatron"), given("megatron")).files[START]
    (back,) = reading.plan("megatron", made, [cluster]).plans.plans
    for part in ("latent", "window", "layers", "heads", "kv_heads", "head_dim"):
        assert back.workload.shape[part] == whole.workload.shape[part], part
    assert back.workload.model == model and back.overlap == whole.overlap
    assert same(back, whole)


@pytest.mark.parametrize("kernel", ["cudnn", "flash-3"])
def test_the_attention_kernel_reads_back(kernel: str) -> None:
    whole = plan(Case("megatron-core", "llama3-8b", "dgx-h100:1", f"tp=2 attention_kernel={kernel}"))

    made = bundle(whole, parts("megatron"), given("megatron")).files[START]
    found = reading.plan("megatron", made, ["dgx-h100:1"])

    assert found.plans.plans[0].attention_kernel == whole.attention_kernel == kernel
    assert not [text for text in found.differs if "attention" in text]


@sweep("option", ["attention-backend", "flash-attention-version", "fp8-recipe", "cuda-graph-impl"])
def test_an_option_without_its_value_is_refused(option: str) -> None:
    with pytest.raises(WrongQuestion, match=f"--{option}: no value behind it"):
        reading.plan("megatron", f"{GPT_OSS} --{option}", ["dgx-h100:2"])


def test_an_attention_kernel_without_a_figure_is_told() -> None:
    """A command that leaves the version of FlashAttention to Transformer Engine names no kernel."""
    fused, flash = (
        reading.plan("megatron", f"{GPT_OSS} --attention-backend {name}", [f"{cluster}:2"])
        for name, cluster in (("fused", "mi300x-8"), ("flash", "dgx-h100"))
    )

    assert fused.plans.plans[0].attention_kernel is flash.plans.plans[0].attention_kernel is None
    assert "attention by cudnn; predicted by the usual kernel" in fused.differs
    assert "kernels and buffers as stated (attention-backend); predicted with the runtime's usual ones" in flash.differs


GPT_OSS = """pretrain_gpt.py --bf16 --untie-embeddings-and-output-weights --normalization RMSNorm --num-layers 24
--hidden-size 2880 --ffn-hidden-size 2880 --num-attention-heads 64 --group-query-attention --num-query-groups 8
--kv-channels 64 --num-experts 32 --moe-ffn-hidden-size 2880 --moe-router-topk 4 --position-embedding-type yarn
--no-bias-gelu-fusion --sequence-parallel --no-bias-dropout-fusion --quick-geglu --glu-linear-offset 1.0
--softmax-type learnable --window-attn-skip-freq 2 --window-size 127,0 --activation-func-clamp-value 7.0
--vocab-size 201088 --seq-length 4096 --micro-batch-size 1 --global-batch-size 1024 --expert-model-parallel-size 4"""


def test_a_command_with_sinks_and_biases_everywhere_is_gpt_oss() -> None:
    found = reading.plan("megatron", GPT_OSS, ["dgx-h100:2"])
    assert found.plans.plans[0].workload.model == "gpt-oss-20b"
    assert not found.unread
    assert "moe.router.balance_loss is 0.0; the library's model has 0.9, and so has the plan" in found.differs


TRAINER = {
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": "auto",
        "offload_optimizer": {"device": "auto"},
        "stage3_prefetch_bucket_size": "auto",
        "reduce_bucket_size": "auto",
    },
    "tensor_parallel": {"autotp_size": "auto"},
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "sequence_parallel_size": "auto",
}
"""As Hugging Face's Trainer is given it: what is ``auto`` follows from its own arguments."""


def test_what_the_trainer_fills_in_is_told(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "ds.json").write_text(json.dumps(TRAINER), encoding="utf-8")
    line = "import ds.json --from deepspeed --model llama3-8b --cluster dgx-h100:2 -o mine.json"
    answer = ask(capsys, line)
    assert answer.code in (0, 1)
    for text in (
        "overlap_comm auto: on, DeepSpeed's default for ZeRO-3",
        "offload_optimizer.device auto: none, DeepSpeed's default",
        "train_micro_batch_size_per_gpu auto: 8, the Trainer's default",
        "gradient_accumulation_steps auto: 1, the Trainer's default",
        "tensor_parallel.autotp_size auto: 1, DeepSpeed's default",
        "bf16.enabled and fp16.enabled auto: 16 bit",
    ):
        assert f"{text}" in answer.report
    (whole,) = json.loads((folder / "mine.json").read_text(encoding="utf-8"))["plans"]
    assert whole["axes"]["micro"] == 8
    assert whole["axes"]["batch"] == 8 * 16
    assert whole["axes"]["dp_overlap"]
    assert whole["axes"]["offload"] == "none"
    answer = ask(capsys, f"{line} --micro 2 --force")
    assert "per_device_train_batch_size" not in answer.report
    assert json.loads((folder / "mine.json").read_text(encoding="utf-8"))["plans"][0]["axes"]["batch"] == 2 * 16


@pytest.mark.parametrize(
    ("zero", "on"),
    [
        ({"stage": 3}, True),
        ({"stage": 2}, False),
        ({"stage": 3, "overlap_comm": "auto"}, True),
        ({"stage": 1, "overlap_comm": "auto"}, False),
        ({"stage": 1, "overlap_comm": True}, True),
        ({"stage": 3, "overlap_comm": False}, False),
        ({"stage": 0, "overlap_comm": True}, False),
    ],
)
def test_overlap_is_what_deepspeed_would_do(zero: dict[str, object], on: bool) -> None:
    """``overlap_comm_valid`` of DeepSpeed 0.19.8: not set means on for ZeRO-3 alone."""
    found = reading.read("deepspeed", json.dumps({"zero_optimization": zero}))
    assert found.settings["dp_overlap"] == ("on" if on else "off")


PATHS = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "sequence_parallel_size"),
    *("bf16", "fp16", "bf16.enabled", "pipeline", "pipeline.stages", "tensor_parallel", "tensor_parallel.autotp_size"),
    *("zero_optimization", "zero_optimization.stage", "zero_optimization.overlap_comm"),
    *("zero_optimization.zero_hpz_partition_size", "zero_optimization.offload_optimizer"),
    *("zero_optimization.offload_optimizer.device", "gradient_clipping", "optimizer"),
)
JUNK = (None, "auto", "", "x", -1, 0, 1, 2, 1.5, 10**30, True, False, [], ["x"], {}, {"x": 1})


@pytest.mark.parametrize("path", PATHS)
def test_whatever_stands_in_a_file_is_read_or_told(path: str) -> None:
    for value in JUNK:
        said: Any = value
        for name in reversed(path.split(".")):
            said = {name: said}
        text = json.dumps({"bf16": {"enabled": True}, "train_batch_size": 512, **said})
        try:
            reading.read("deepspeed", text)
            deepspeed.check(text, 16)
        except WrongQuestion as error:
            assert "deepspeed" in str(error), f"{path}: {value!r}"


def test_weights_gathered_from_all_ranks_are_no_copies_of_a_node() -> None:
    zero = {"stage": 3, "zero_hpz_partition_size": 32}
    config = json.dumps({"zero_optimization": zero, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1})
    present = reading.plan("deepspeed", config, ["dgx-h100:4"], model="llama3-8b", seq=8192)
    assert (present.plans.plans[0].parallelism.zero_scope, list(present.differs)) == ("full", [])


def test_parts_of_zero_that_no_plan_has_are_told() -> None:
    zero = {"stage": 3, "offload_param": {"device": "none"}, "zero_hpz_partition_size": 8, "reduce_bucket_size": 5}
    held = {**zero, "offload_param": {"device": "cpu"}}
    with pytest.raises(WrongQuestion, match="offload_param cpu with offload_optimizer none: a plan has weights"):
        reading.read("deepspeed", json.dumps({"zero_optimization": held}))
    zero["elastic_checkpoint"] = True
    found = reading.read("deepspeed", json.dumps({"zero_optimization": zero, "gradient_clipping": 1.0}))
    assert found.settings["zero_scope"] == "node"
    assert found.unread == ["gradient_clipping", "zero_optimization.elastic_checkpoint"]


@pytest.mark.parametrize(
    ("source", "text", "batch", "micro"),
    [
        (
            "megatron",
            MINE.replace("--global-batch-size 1024", "").replace("micro-batch-size 1", "micro-batch-size 2"),
            8,
            2,
        ),
        ("torchtitan", TITAN, 128, 2),
        ("torchtitan", f"{TITAN} --training.global_batch_size -1", 128, 2),
        ("torchtitan", f"{TITAN} --training.global_batch_size 512", 512, 2),
        ("deepspeed", '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}', 384, 2),
        ("deepspeed", '{"train_micro_batch_size_per_gpu": 4, "train_batch_size": "auto"}', 256, 4),
        ("deepspeed", '{"train_batch_size": 512, "gradient_accumulation_steps": 2}', 512, 4),
        ("deepspeed", '{"train_batch_size": 512, "zero_optimization": {"stage": 3}}', 512, 8),
        ("deepspeed", '{"tensor_parallel": {"autotp_size": "auto"}, "train_micro_batch_size_per_gpu": 1}', 64, 1),
    ],
)
def test_the_batch_follows_from_its_parts(source: str, text: str, batch: int, micro: int) -> None:
    named = None if source == "megatron" else "llama3-8b"
    asked = {"seq": 4096} if source == "deepspeed" else {}
    (whole,) = reading.plan(source, text, ["dgx-h100:8"], model=named, **asked).plans.plans
    assert (whole.batch.global_, whole.batch.micro) == (batch, micro)


def test_weights_that_stay_whole_are_told() -> None:
    compiled = f"{TITAN} --compile.enable"
    never = f"{compiled} --parallelism.fsdp_reshard_after_forward never"
    (told,) = reading.plan("torchtitan", never, ["dgx-h100:8"], model="llama3-8b").differs
    assert told.startswith("weights stay whole")
    assert not reading.plan("torchtitan", compiled, ["dgx-h100:8"], model="llama3-8b").differs


def test_gradients_in_16_bit_are_told() -> None:
    """``--fp16`` alone keeps them so, and a plan counts 32 bit."""
    text = "--num-layers 32 --micro-batch-size 1 --global-batch-size 64 --fp16"
    (told,) = reading.read("megatron", text).differs
    assert told == "gradients stay in 16 bit; predicted in 32 bit"
    for other in (f"{text} --accumulate-allreduce-grads-in-fp32", text.replace("--fp16", "--bf16")):
        found = reading.read("megatron", other)
        assert not found.differs and not found.unread


def test_layouts_are_read() -> None:
    found = reading.read("megatron", f"{MINE} --pipeline-model-parallel-layout E(t*9|)*2t*20|t*20tL")
    assert found.chunks == [9, 9, 20, 21]


def test_stages_dealt_by_hand_are_told() -> None:
    present = reading.plan("megatron", f"{MINE} --pipeline-model-parallel-layout Et*38|t*42L", ["dgx-h100:16"])
    assert present.differs == ("stages hold [38, 42] layers; predicted as [40, 40]",)


def test_a_model_that_differs_is_told() -> None:
    """Dropout where nobody says otherwise, as Megatron has it."""
    said = MINE.replace("--hidden-dropout 0 --attention-dropout 0 ", "")
    present = reading.plan("megatron", said, ["dgx-h100:16"])
    assert present.differs == ("dropout is True; the library's model has False, and so has the plan",)


def test_a_width_that_is_not_stated_is_megatrons() -> None:
    """Of SwiGLU 8 h / 3, down to a multiple of 64; of the others 4 h."""
    for function, width in (("--swiglu", 21824), ("", 32768)):
        said = MINE.replace("--ffn-hidden-size 28672 --swiglu", function)
        assert reading.read("megatron", said).shape["ffn"] == width


def test_a_vocabulary_that_is_not_stated_is_told() -> None:
    of_library = reading.plan("megatron", MINE, ["dgx-h100:16"])
    assert of_library.assumed[0].startswith("vocabulary not stated: 128,256, as llama3-70b has")
    other = reading.plan("megatron", MINE.replace("--num-layers 80", "--num-layers 40"), ["dgx-h100:16"])
    assert other.assumed[0].startswith("vocabulary not stated: 50,257, GPT-2's")
    assert not reading.plan("megatron", f"{MINE} --vocab-size 128256", ["dgx-h100:16"]).assumed


@pytest.mark.parametrize(
    ("flags", "activation"),
    [
        ("--swiglu", "swiglu"),
        ("--squared-relu", "squared-relu"),
        ("--quick-geglu", None),
        ("--quick-geglu --glu-linear-offset 1.0 --activation-func-clamp-value 7.0", "clamped-swiglu"),
        ("", "gelu-tanh"),
        ("--no-bias-gelu-fusion", "gelu"),
        ("--disable-bias-linear", "gelu"),
    ],
)
def test_the_mlps_function_is_read(flags: str, activation: str | None) -> None:
    said = MINE.replace("--swiglu", flags).replace(" --disable-bias-linear ", " " if "bias" not in flags else "  ")
    said = said if "disable" not in flags else f"{said} --disable-bias-linear"
    assert reading.read("megatron", said).shape["activation"] == activation


def test_an_option_and_its_value_in_one_quoted_word_are_read() -> None:
    script = f'FP8=("--fp8-format hybrid" "--fp8-recipe tensorwise")\n{MINE} ${{FP8[@]}}'
    assert reading.read("megatron", script).precision == "fp8"


def test_gradients_reduced_in_16_bit_are_told() -> None:
    assert reading.read("megatron", f"{MINE} --grad-reduce-in-bf16").differs
    assert not reading.read("megatron", MINE).differs


@pytest.mark.parametrize(
    "flag", ["--ds-sequence-parallel-size 4", "--cpu-offloading", "--enable-zbh1-pipeline", "--optimizer shampoo"]
)
def test_what_changes_memory_and_is_not_understood_is_refused_by_name(flag: str) -> None:
    with pytest.raises(WrongQuestion, match=flag.split()[0]):
        reading.read("megatron", f"{MINE} {flag}")


@worded("import.not_understood")
def test_what_may_matter_and_is_not_understood_is_refused_by_name(flag: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        reading.read("megatron", f"{MINE} {flag}")
    names = frozenset(word.lstrip("-") for word in flag.split() if word.startswith("--"))
    found = reading.read("megatron", f"{MINE} {flag}", reading.Started(ignored=names))
    assert found.unread == ["log-interval"]
    assert found.assumed == (f"left out as asked: {', '.join(f'--{name}' for name in sorted(names))}",)
    return str(caught.value)


def test_eight_and_four_bit_scaling_is_the_commands_own() -> None:
    for flags, precision in (
        ("--fp8-format hybrid", "fp8-delayed"),
        ("--fp8-format hybrid --fp8-recipe tensorwise", "fp8"),
        ("--fp8-format e4m3 --fp8-recipe blockwise", "fp8-blockwise"),
        ("--fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--fp4-format e2m1 --fp4-recipe nvfp4", "nvfp4"),
    ):
        assert reading.read("megatron", f"{MINE} {flags}").precision == precision
    with pytest.raises(WrongQuestion, match="--fp4-recipe"):
        reading.read("megatron", f"{MINE} --fp4-format e2m1 --fp4-recipe custom")


@worded("import.predicted_otherwise")
def test_what_is_predicted_otherwise_is_told(flag: str) -> str:
    (differs,) = reading.read("megatron", f"{MINE} {flag}").differs
    return differs


@pytest.mark.parametrize(
    "program",
    [
        "pretrain_bert.py",
        "pretrain_t5.py",
        "pretrain_vlm.py",
        "run_text_generation_server.py",
        "hf2megads_converter.py",
    ],
)
def test_programs_that_train_no_decoder_are_refused(program: str) -> None:
    with pytest.raises(WrongQuestion, match=f"{program}: (trains|generates)"):
        reading.read("megatron", f"torchrun --nproc-per-node 8 examples/{program} {MINE}")


def test_a_fork_is_told() -> None:
    found = reading.read("megatron", f"deepspeed --num_gpus 8 pretrain_gpt.py {MINE}")
    assert found.ranks == 8 and found.assumed[0].startswith("deepspeed starts it: a fork of Megatron-LM")


def test_a_padded_vocabulary_is_read() -> None:
    assert reading.read("megatron", f"{MINE} --padded-vocab-size 201088").shape["vocab"] == 201_088


def test_a_router_is_read() -> None:
    flags = (
        "--num-experts 64 --moe-router-topk 8 --moe-router-score-function sigmoid --moe-router-num-groups 8 "
        "--moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias "
        "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --moe-z-loss-coeff 1e-3"
    )
    router = reading.read("megatron", f"{MINE} {flags}").shape["moe"]["router"]
    assert router == {
        **{"score": "sigmoid", "normalised": True, "scaling": 2.5, "groups": 8, "groups_per_token": 4},
        **{"bias_rate": 1e-3, "balance": "sequence", "balance_loss": 1e-4, "z_loss": 1e-3},
        **{"capacity": None, "on_input": False},
    }
    several = f"{MINE} --num-experts 8 --moe-router-load-balancing-type aux_loss seq_aux_loss"
    assert reading.read("megatron", several).shape["moe"]["router"] is None


def test_other_questions_are_told() -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    other = plan(Case("megatron-core", "llama3-8b", "dgx-h100:1", "tp=2"))
    assert comparison.compare(one, one).questions == ()
    assert comparison.compare(one, one).tokens == 1.0
    assert not comparison.compare(one, one).distinguishable
    assert not comparison.compare(one, one).differing
    assert comparison.compare(one, other).questions == ("clusters",)
    longer = replace(one, workload=replace(one.workload, sequence=1, tokens=1e15))
    assert comparison.compare(one, longer).questions == ("lengths of sequences", "tokens to train on")
    fabric = replace(one.cluster.fabric, oversubscription=2.0)
    thinner = replace(one, cluster=replace(one.cluster, fabric=fabric))
    assert comparison.compare(one, thinner).questions == ("networks",)


def test_plans_over_pools_are_told_group_by_group() -> None:
    """Their degrees are the largest of all groups: by these alone two of them could look the same."""
    alone = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    first, second = _group(0, [10] * 4, micro=2, sequences=610), _group(1, [5] * 8, micro=1, sequences=414)
    both = replace(alone, parallelism=replace(alone.parallelism, groups=(first, second)))
    told = {axis: (one, other) for axis, one, other in comparison.compare(alone, both).differing}
    assert told["PP"][1] == "4; 8"
    assert told["micro-batch"][1] == "2; 1"
    assert told["layers of stages"][1] == "4 x 10; 8 x 5"
    assert told["pools of stages"] == ("-", "1; 2")
    assert told["pipelines"] == ("-", "2; 2")
    shifted = replace(both, parallelism=replace(both.parallelism, groups=(replace(first, sequences=582), second)))
    assert comparison.compare(both, shifted).differing == (("sequences", "610; 414", "582; 414"),)


def _group(pool: int, layers: list[int], *, micro: int, sequences: int) -> Group:
    stages = tuple(
        GroupStage(pool=pool, layers=n, tp=4, cp=1, ep=1, recompute="none", time_s=0.1, memory_bytes=1e9)
        for n in layers
    )
    return Group(copies=2, width=1, micro=micro, micro_batches=100, sequences=sequences, time_s=30.0, stages=stages)


def test_gains_are_those_of_the_tokens_of_the_first() -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    assert one.money.usd_total is not None
    money = replace(one.money, days=10 * one.money.days, usd_total=10 * one.money.usd_total)
    longer = replace(one, workload=replace(one.workload, tokens=10 * one.workload.tokens), money=money)
    found = comparison.compare(one, longer)
    assert found.questions == ("tokens to train on",)
    assert found.days == pytest.approx(0, abs=1e-9)
    assert found.usd == pytest.approx(0, abs=1e-6)


def test_gains_are_those_of_the_figures() -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    faster = replace(one, prediction=replace(one.prediction, tokens_per_s=2 * one.prediction.tokens_per_s))
    found = comparison.compare(one, faster)
    assert found.tokens == pytest.approx(2)
    assert found.distinguishable
    assert json.loads(json.dumps(found.days)) == 0


def test_other_tokens_are_said_first_and_time_is_for_the_same_tokens(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """The second trains ten times the tokens in twenty times the time."""
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    prediction = replace(one.prediction, tokens_per_s=one.prediction.tokens_per_s / 2)
    workload = replace(one.workload, tokens=10 * one.workload.tokens)
    slow = replace(one, prediction=prediction, workload=workload, money=replace(one.money, days=20 * one.money.days))
    share = comparison.token_share(one, slow)
    assert share == pytest.approx(0.1) and comparison.compare(one, slow).days == pytest.approx(one.money.days)
    assert comparison.token_share(one, one) == 1.0
    for tokens in ("1B", "2B"):
        ask(capsys, f"estimate gpt2 --cluster dgx-a100-40gb:1 micro=8 --tokens {tokens} -o {tokens}.json")
    lines = ask(capsys, "compare 1B.json 2B.json").report.splitlines()
    assert lines[0] == "Tokens         they differ, 1.00 B and 2.00 B: time and money are for 1.00 B on both sides"
    assert lines[1] == "Gain           none: the two are the same plan"
    (time,) = (line.split() for line in lines if line.startswith("time "))
    assert time[1:3] == time[3:5]


def test_plans_of_other_models_gain_nothing_and_equal_ones_say_so(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    one = plan(Case("megatron-core", "llama3-8b", "dgx-h100:4", "zero=0"))
    other = plan(Case("megatron-core", "qwen3-8b", "dgx-h100:4", "tp=2"))
    for name, whole in (("one", one), ("other", other)):
        (folder / f"{name}.json").write_text(document.as_json(whole), encoding="utf-8")
    said = ask(capsys, "compare one.json other.json").report
    assert "Gain           not comparable: they train different models" in said
    assert "faster" not in said
    assert "slower" not in said
    assert "Gain           none: the two are the same plan" in ask(capsys, "compare one.json one.json").report


def test_what_deepspeeds_file_cannot_say_is_told() -> None:
    assert any(line.startswith("recomputation: ") for line in deepspeed.read("{}").assumed)


SLURM_JOB = """#SBATCH --nodes=2
torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B \\
  --per_device_train_batch_size 1 --bf16 True --model_max_length 2048
"""


@pytest.mark.parametrize(
    ("where", "node", "count"),
    [
        ({"cluster": ["dgx-h100"]}, "dgx-h100", 2),
        ({"cluster": ["dgx-h100:4"]}, "dgx-h100", 4),
        ({"cluster": [], "accelerators": "A100-80GB"}, "p4de.24xlarge", 2),
        ({"cluster": [], "accelerators": "H100:8"}, "p5.48xlarge", 1),
    ],
)
def test_machines_without_a_count_hold_the_ranks_that_the_script_starts(
    where: dict[str, Any], node: str, count: int, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text(SLURM_JOB, encoding="utf-8")
    (pool,) = reading.plan(None, str(script), **where).plans.plans[0].cluster.pools
    assert (pool.node, pool.count) == (node, count)


def test_who_says_no_machines_reads_how_many_the_script_starts(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(SLURM_JOB, encoding="utf-8")
    with pytest.raises(WrongQuestion, match="it starts 16 ranks, and --accelerators H100 takes as many"):
        reading.plan(None, str(script), [])
    with pytest.raises(WrongQuestion, match="one of them"):
        reading.plan(None, str(script), ["dgx-h100:2"], accelerators="H100")
